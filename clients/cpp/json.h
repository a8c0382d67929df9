// JSON lines, written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "histogram.h"

namespace spangap {

// A JSON object. Keys must not need escapes; text may contain anything, even bytes that are not UTF-8.
class JsonObject {
 public:
  JsonObject& text(std::string_view key, std::string_view value);
  JsonObject& number(std::string_view key, uint64_t value);
  JsonObject& boolean(std::string_view key, bool value);
  JsonObject& histogram(std::string_view key, const Histogram& value);
  JsonObject& object(std::string_view key, JsonObject& value);

  // The finished text; nothing may be added after it.
  const std::string& finish();

 private:
  void key(std::string_view name);

  std::string text_ = "{";
};

// Writes one message to standard output, whole and at once. If the reader is gone, the life line shows it.
void send_message(JsonObject& message);

}  // namespace spangap

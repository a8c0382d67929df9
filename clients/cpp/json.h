// JSON lines, written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "histogram.h"

namespace spangap {

// One JSON object. Keys must need no escapes; text may hold anything, also bytes that are not UTF-8.
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

// Writes one message to standard output, whole and at once. A reader that is gone is noticed by the life line.
void send_message(JsonObject& message);

}  // namespace spangap

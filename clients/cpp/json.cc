#include "json.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <mutex>

namespace spangap {
namespace {

// Length of the well-formed UTF-8 sequence at the start of `bytes`, 0 if there is none.
size_t utf8_length(std::string_view bytes) {
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(bytes[at]); };
  const unsigned first = byte(0);
  size_t length = 0;
  uint32_t smallest = 0, value = 0;
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) length = 2, smallest = 0x80, value = first & 0x1f;
  if (first >= 0xe0 && first <= 0xef) length = 3, smallest = 0x800, value = first & 0x0f;
  if (first >= 0xf0 && first <= 0xf4) length = 4, smallest = 0x10000, value = first & 0x07;
  if (length == 0 || bytes.size() < length) return 0;
  for (size_t at = 1; at < length; ++at) {
    if ((byte(at) & 0xc0) != 0x80) return 0;
    value = value << 6 | (byte(at) & 0x3f);
  }
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  return value < smallest || value > 0x10ffff || surrogate ? 0 : length;
}

void append_quoted(std::string& to, std::string_view value) {
  to += '"';
  while (!value.empty()) {
    const unsigned char first = value[0];
    size_t length = utf8_length(value);
    if (first == '"' || first == '\\') {
      to += '\\';
      to += value[0];
    } else if (first < 0x20 || first == 0x7f) {
      char escape[8];
      snprintf(escape, sizeof escape, "\\u%04x", first);
      to += escape;
    } else if (length > 0) {
      to += value.substr(0, length);
    } else {
      to += "\\ufffd";
      length = 1;
    }
    value.remove_prefix(length);
  }
  to += '"';
}

}  // namespace

void JsonObject::key(std::string_view name) {
  if (text_.size() > 1) text_ += ',';
  text_ += '"';
  text_ += name;
  text_ += "\":";
}

JsonObject& JsonObject::text(std::string_view name, std::string_view value) {
  key(name);
  append_quoted(text_, value);
  return *this;
}

JsonObject& JsonObject::number(std::string_view name, uint64_t value) {
  key(name);
  text_ += std::to_string(value);
  return *this;
}

JsonObject& JsonObject::boolean(std::string_view name, bool value) {
  key(name);
  text_ += value ? "true" : "false";
  return *this;
}

JsonObject& JsonObject::histogram(std::string_view name, const Histogram& value) {
  key(name);
  text_ += "{\"max\":" + std::to_string(value.max_ns()) + ",\"sum\":" + std::to_string(value.sum_ns());
  text_ += ",\"buckets\":[";
  bool first = true;
  value.each_bucket([&](uint64_t ns, uint64_t count) {
    text_ += first ? "[" : ",[";
    first = false;
    text_ += std::to_string(ns);
    text_ += ',';
    text_ += std::to_string(count);
    text_ += ']';
  });
  text_ += "]}";
  return *this;
}

JsonObject& JsonObject::object(std::string_view name, JsonObject& value) {
  key(name);
  text_ += value.finish();
  return *this;
}

const std::string& JsonObject::finish() {
  text_ += '}';
  return text_;
}

void send_message(JsonObject& message) {
  static std::mutex one_at_a_time;
  const std::string line = message.finish() + '\n';
  const std::lock_guard lock(one_at_a_time);
  size_t written = 0;
  while (written < line.size()) {
    const ssize_t count = write(STDOUT_FILENO, line.data() + written, line.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return;
    written += count;
  }
}

}  // namespace spangap

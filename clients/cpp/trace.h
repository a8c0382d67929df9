// W3C Trace Context: the ids of a call, and the `traceparent` header that carries them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace spangap {

struct TraceContext {
  std::array<uint8_t, 16> trace_id{};
  std::array<uint8_t, 8> span_id{};
  bool sampled = false;
};

constexpr size_t TRACEPARENT_BYTES = 55;

// The header's value, version 00.
std::array<char, TRACEPARENT_BYTES> format_traceparent(const TraceContext& context);

// Parses a header's value; a version above 00 as far as 00 goes. None if malformed.
std::optional<TraceContext> parse_traceparent(std::string_view header);

// Random ids, one generator per worker (xoshiro256++), seeded by the kernel.
class Ids {
 public:
  Ids();

  // A new sampled trace with its first span.
  TraceContext root();
  // A non-zero span id.
  std::array<uint8_t, 8> span_id();

 private:
  uint64_t next();

  std::array<uint64_t, 4> state_;
};

}  // namespace spangap

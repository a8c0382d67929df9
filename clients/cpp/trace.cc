#include "trace.h"

#include <sys/random.h>

#include <bit>
#include <cstring>
#include <system_error>

namespace spangap {
namespace {

char* write_hex(char* to, const uint8_t* bytes, size_t count) {
  static constexpr char DIGITS[] = "0123456789abcdef";
  for (size_t at = 0; at < count; ++at) {
    *to++ = DIGITS[bytes[at] >> 4];
    *to++ = DIGITS[bytes[at] & 15];
  }
  return to;
}

// Only lower-case digits are allowed.
int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

template <size_t N>
bool read_hex(std::string_view text, std::array<uint8_t, N>& bytes) {
  for (size_t at = 0; at < N; ++at) {
    const int high = digit(text[2 * at]);
    const int low = digit(text[2 * at + 1]);
    if (high < 0 || low < 0) return false;
    bytes[at] = static_cast<uint8_t>(high << 4 | low);
  }
  return true;
}

}  // namespace

std::array<char, TRACEPARENT_BYTES> format_traceparent(const TraceContext& context) {
  std::array<char, TRACEPARENT_BYTES> text;
  char* to = text.data();
  *to++ = '0', *to++ = '0', *to++ = '-';
  to = write_hex(to, context.trace_id.data(), context.trace_id.size());
  *to++ = '-';
  to = write_hex(to, context.span_id.data(), context.span_id.size());
  *to++ = '-', *to++ = '0', *to++ = context.sampled ? '1' : '0';
  return text;
}

std::optional<TraceContext> parse_traceparent(std::string_view header) {
  if (header.size() < TRACEPARENT_BYTES) return std::nullopt;
  const bool longer_is_fine =
      header.size() > TRACEPARENT_BYTES && header[TRACEPARENT_BYTES] == '-' && !header.starts_with("00");
  if (header.size() > TRACEPARENT_BYTES && !longer_is_fine) return std::nullopt;
  if (header[2] != '-' || header[35] != '-' || header[52] != '-') return std::nullopt;
  std::array<uint8_t, 1> version, flags;
  TraceContext context;
  if (!read_hex(header, version) || version[0] == 0xff) return std::nullopt;
  if (!read_hex(header.substr(3), context.trace_id) || !read_hex(header.substr(36), context.span_id) ||
      !read_hex(header.substr(53), flags)) {
    return std::nullopt;
  }
  if (context.trace_id == std::array<uint8_t, 16>{} || context.span_id == std::array<uint8_t, 8>{}) {
    return std::nullopt;
  }
  context.sampled = flags[0] & 1;
  return context;
}

Ids::Ids() {
  do {
    if (getrandom(state_.data(), sizeof state_, 0) != sizeof state_) {
      throw std::system_error(errno, std::generic_category(), "no random bytes from the kernel");
    }
    // All zeros is the only state that the generator never leaves.
  } while (state_ == std::array<uint64_t, 4>{});
}

uint64_t Ids::next() {
  const uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
  const uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

std::array<uint8_t, 8> Ids::span_id() {
  uint64_t id;
  do {
    id = next();
  } while (id == 0);
  std::array<uint8_t, 8> bytes;
  memcpy(bytes.data(), &id, sizeof id);
  return bytes;
}

TraceContext Ids::root() {
  TraceContext context;
  const auto high = span_id(), low = span_id();
  memcpy(context.trace_id.data(), high.data(), 8);
  memcpy(context.trace_id.data() + 8, low.data(), 8);
  context.span_id = span_id();
  context.sampled = true;
  return context;
}

}  // namespace spangap

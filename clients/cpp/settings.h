// The flags of CONTRACT.md as values.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace spangap {

// Invalid flags; the text says which one, and what was expected.
struct SettingsError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Stack { cpp_sync, cpp_async, cpp_callback };
enum class CallKind { unary, stream };
enum class ChannelMode { shared, per_worker, distinct, local_pool, pool };
enum class RecordKind { none, slow, all };

// An open loop's rate: `calls` every `ns`.
struct Rate {
  uint64_t calls;
  uint64_t ns;
};

struct ClientSettings {
  Stack stack;
  std::string stack_name;
  std::string target;
  CallKind call;
  ChannelMode channel_mode;
  // Channels of ChannelMode::pool.
  unsigned pool_channels = 0;
  // None: closed loop.
  std::optional<Rate> rate;
  unsigned in_flight;
  unsigned threads;
  uint64_t request_bytes;
  std::optional<uint64_t> response_bytes;
  std::optional<uint64_t> think_ns;
  int64_t timeout_ns;
  int64_t warmup_ns;
  // 0: until stopped.
  int64_t duration_ns;
  // 0: no limit.
  uint64_t calls;
  bool trace;
  RecordKind records;
  uint64_t slow_ns;
  std::string record_file;
};

struct TargetSettings {
  std::string listen;
  uint64_t response_bytes;
  uint64_t think_ns;
  // 0: the library's own.
  unsigned max_streams;
  unsigned threads;
  RecordKind records;
  std::string record_file;
};

// Limits of the Ping service.
constexpr uint64_t MAX_PAYLOAD_BYTES = 64 << 20;
constexpr uint64_t MAX_THINK_NS = 60'000'000'000;

ClientSettings parse_client_settings(const std::vector<std::string>& arguments);
TargetSettings parse_target_settings(const std::vector<std::string>& arguments);

}  // namespace spangap

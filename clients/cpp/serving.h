// What all calls of a target share: its settings, and the record of what it serves.
#pragma once

#include <grpcpp/grpcpp.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "alarm.h"
#include "records.h"
#include "settings.h"
#include "spangap/ping/v1/ping.pb.h"
#include "trace.h"

namespace spangap {

namespace pb = ::spangap::ping::v1;

// A ping, from its receipt to its answer.
struct ServedPing {
  int64_t received_ns;
  int64_t received_unix_ns;
  // Sampled trace context of the caller, if records are wanted.
  std::optional<TraceContext> parent;
  std::array<uint8_t, 8> span_id;
  bool in_stream = false;
};

class Serving {
 public:
  // Throws std::system_error if records cannot be written.
  explicit Serving(const TargetSettings& settings);

  // To be called first when a ping has been received.
  ServedPing receive();
  // The trace context of a unary ping, from its header, or of a ping within a stream.
  void set_parent(ServedPing& ping, const grpc::ServerContext& context, Ids& ids);
  void set_parent(ServedPing& ping, const pb::PingRequest& request, Ids& ids);

  // Fills the response and returns how long to think, or why the request is refused.
  grpc::Status prepare(const pb::PingRequest& request, pb::PingResponse& response, uint64_t& think_ns) const;

  // To be called last before the answer is given to the library.
  void answer(const ServedPing& ping, const grpc::Status& status);

  pb::UsageResponse usage();
  // Ends all think times at once, with CANCELLED. Returns whether any call was in progress.
  bool cut_off_calls();
  bool cut_off() const { return cut_off_.load(std::memory_order_relaxed); }
  // After this, nothing more may be served.
  void send_end(bool cut_off);

  const TargetSettings& settings;
  // Thinks without a thread per call.
  Alarm alarm;

 private:
  void adopt(ServedPing& ping, const std::optional<TraceContext>& context, Ids& ids);
  uint64_t calls() const;

  std::unique_ptr<Records> records_;
  std::array<std::atomic<uint64_t>, STATUS_CODES> by_status_{};
  std::atomic<uint64_t> malformed_traceparent_{0};
  std::atomic<uint64_t> records_dropped_{0};
  std::atomic<uint64_t> in_progress_{0};
  std::atomic<uint64_t> peak_in_progress_{0};
  std::atomic<bool> cut_off_{false};
};

}  // namespace spangap

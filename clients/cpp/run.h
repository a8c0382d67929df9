// What all workers of a run share: when calls may begin, and the record of each call.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "clock.h"
#include "records.h"
#include "schedule.h"
#include "settings.h"
#include "spangap/ping/v1/ping.pb.h"
#include "tally.h"
#include "trace.h"

namespace spangap {

// One call, from before its send to its end.
struct Call {
  Phase phase;
  // Closed loop: the time of its send.
  int64_t due_ns;
  int64_t sent_ns;
  // Read only if records are wanted.
  int64_t sent_unix_ns;
  TraceContext trace;
  uint16_t connection;
};

class Run {
 public:
  // Throws std::system_error if records cannot be written.
  explicit Run(const ClientSettings& settings);
  ~Run();
  Run(const Run&) = delete;

  // Sets the phases. To be called once, before the first call.
  void begin(int64_t start_ns);
  // The phases end now.
  void stop(int64_t now_ns);

  // Closed loop: a call is being sent. False if no more calls may begin.
  bool send_closed(Call& call);

  // Open loop: the calls from 0 up to this number (exclusive) come due.
  uint64_t slots_end() const { return slots_end_.load(std::memory_order_relaxed); }
  const Schedule& schedule() const { return *schedule_; }
  // Sleeps until a call is due. False if it will not come due because the phases ended first.
  bool wait_for(uint64_t slot) const;
  // Whether the phases ended so long ago that a call which should have been sent before is no longer sent: this program
  // cannot keep up with the rate. The call is counted as skipped.
  bool too_late() const { return monotonic_ns() > end_ns_.load(std::memory_order_relaxed) + CATCH_UP_NS; }
  // A call is being sent.
  void send_slot(Call& call, uint64_t slot);
  // The calls from one number up to another (exclusive) are not made: too many are in progress.
  void skip_slots(uint64_t from, uint64_t to);

  // A call has ended. Returns its duration from the send.
  int64_t end(const Call& call, unsigned status, const std::string& message);

  // Monotonic time at which the limit of calls ended the measured phase; NEVER_NS until then.
  int64_t limit_reached_ns() const { return limit_reached_ns_; }

  // Wakes whoever waits on the event descriptor: the limit has been reached, or a worker has ended.
  void notify();
  int event_descriptor() const { return event_; }

  const ClientSettings& settings;
  // The request of all calls whose trace context is not in the message.
  ping::v1::PingRequest request;
  Tallies tallies;
  std::unique_ptr<Records> records;

 private:
  static constexpr int64_t CATCH_UP_NS = SECOND_NS;

  void reach_limit(int64_t now_ns);
  void record(const Call& call, int64_t from_send_ns, unsigned status, bool slow, PhaseTally& tally);

  int64_t measured_from_ns_ = 0;
  std::atomic<int64_t> end_ns_{NEVER_NS};
  std::optional<Schedule> schedule_;
  uint64_t first_measured_slot_ = 0;
  std::atomic<uint64_t> slots_end_{0};
  // Whether the limit of calls determines the last slot.
  bool slots_limited_ = false;
  // Measured calls of a closed loop, if their number is limited.
  std::atomic<uint64_t> claimed_{0};
  std::atomic<int64_t> limit_reached_ns_{NEVER_NS};
  int event_ = -1;
};

}  // namespace spangap

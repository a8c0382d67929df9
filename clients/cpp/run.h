// What all workers of a run share: when calls may begin, and the account of each call.
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
  // Closed loop: when it was sent.
  int64_t due_ns;
  int64_t sent_ns;
  // Read only when there are records.
  int64_t sent_unix_ns;
  TraceContext trace;
  uint16_t connection;
};

class Run {
 public:
  // Throws std::system_error when records cannot be written.
  explicit Run(const ClientSettings& settings);
  ~Run();
  Run(const Run&) = delete;

  // Sets the phases. Called once, before the first call.
  void begin(int64_t start_ns);
  // The phases end now.
  void stop(int64_t now_ns);

  // Closed loop: a call is sent now. False when none may begin any more.
  bool send_closed(Call& call);

  // Open loop: the calls from 0 up to, not including, this number come due.
  uint64_t slots_end() const { return slots_end_.load(std::memory_order_relaxed); }
  const Schedule& schedule() const { return *schedule_; }
  // Sleeps until a call is due. False when it will not come due, because the phases ended before.
  bool wait_for(uint64_t slot) const;
  // Whether the phases are over for so long that a call which should have been sent before is not sent any more: this
  // program cannot keep up with the rate. It is counted as skipped.
  bool too_late() const { return monotonic_ns() > end_ns_.load(std::memory_order_relaxed) + CATCH_UP_NS; }
  // A call is sent now.
  void send_slot(Call& call, uint64_t slot);
  // The calls from one number up to, not including, another are not made: too many are under way.
  void skip_slots(uint64_t from, uint64_t to);

  // A call has ended. Returns how long it took from its send.
  int64_t end(const Call& call, unsigned status, const std::string& message);

  // Monotonic time at which the limit of calls ended the measured phase, NEVER_NS while it has not.
  int64_t limit_reached_ns() const { return limit_reached_ns_; }

  // Wakes whoever waits on the event descriptor: the limit is reached, or a worker has ended.
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
  // Whether the last slot is the last because of the limit of calls.
  bool slots_limited_ = false;
  // Measured calls of a closed loop, when they are limited.
  std::atomic<uint64_t> claimed_{0};
  std::atomic<int64_t> limit_reached_ns_{NEVER_NS};
  int event_ = -1;
};

}  // namespace spangap

// What all stacks have in common in making calls.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "alarm.h"
#include "channels.h"
#include "run.h"

namespace spangap {

// Keeps one call in progress. At any time it belongs to one thread, to the library during a call, or to the idle
// workers of an open loop; only `cancel` and `expire` may be called by others.
struct alignas(64) Worker {
  Worker(Run& run, Channel& channel);

  // A new context for a new call or stream; the previous one must have ended. Null if all were cancelled.
  grpc::ClientContext* renew_context();
  // Sets what differs between calls: the trace context, in the message or the header.
  void prepare_call();

  // When the call must end. C-core's deadlines would suffice for unary calls only, have a granularity of 1 ms, and cost
  // a timer and a header in each call; so all calls are watched here, and cancelled once they expire.
  void set_expiry() { expiry_ns_.store(call.sent_ns + run.settings.timeout_ns, std::memory_order_relaxed); }
  // The call has ended. False if it had expired before, and was cancelled.
  bool clear_expiry() { return expiry_ns_.exchange(0, std::memory_order_relaxed) != EXPIRED; }
  // Cancels the call if it has expired; otherwise returns when it will. NEVER_NS if no call is in progress.
  int64_t expire(int64_t now_ns);

  // Cancels the current call or stream, and all later ones.
  void cancel();

  Run& run;
  Channel& channel;
  Ids ids;
  Call call{};
  // Null: the run's.
  std::unique_ptr<pb::PingRequest> own_request;
  const pb::PingRequest& request() const { return own_request ? *own_request : run.request; }
  pb::PingResponse response;
  grpc::Status status;
  std::atomic<bool> under_way{false};
  bool stream_open = false;
  std::optional<grpc::ClientContext> context;

 private:
  static constexpr int64_t EXPIRED = -1;

  std::mutex mutex_;
  bool cancelled_ = false;
  std::atomic<int64_t> expiry_ns_{0};
};

// The status of a ping whose stream ended during it.
grpc::Status stream_failure(const grpc::Status& ended_with);

// After a call that failed faster than this, a worker of a closed loop pauses for as long.
constexpr int64_t PAUSE_NS = MILLISECOND_NS;

class Driver {
 public:
  virtual ~Driver() = default;

  // Begins to call.
  virtual void start() = 0;
  // Waits until all threads have ended. To be called once no worker is active.
  virtual void join() = 0;

  // Ends all calls as CANCELLED; no more may begin.
  void cancel();
  // Calls under way.
  uint64_t in_flight() const;
  bool active() const { return active_ > 0; }

 protected:
  explicit Driver(Run& run) : run_(run) {}

  // To be called by constructors, for each worker.
  void add(Worker& worker) { workers_.push_back(&worker); }
  void workers_begin(unsigned workers) { active_ += workers; }
  // A worker makes no more calls.
  void worker_ended();
  // From now on, watches for expired calls.
  void watch_expiry();
  // Ensures that a stream that is being closed soon ends, even without the target.
  void cancel_soon(Worker& worker);

  void account_begin(Worker& worker) { worker.under_way.store(true, std::memory_order_relaxed); }
  // `expired`: the call was cancelled because of that, whatever its status. Returns whether a worker of a closed loop
  // must pause.
  bool account_end(Worker& worker, const grpc::Status& status, bool expired);

  Run& run_;
  std::vector<Worker*> workers_;
  Alarm alarm_;

 private:
  std::atomic<unsigned> active_{0};
};

std::unique_ptr<Driver> make_sync_driver(Run& run, Channels& channels);
std::unique_ptr<Driver> make_async_driver(Run& run, Channels& channels);
std::unique_ptr<Driver> make_callback_driver(Run& run, Channels& channels);

}  // namespace spangap

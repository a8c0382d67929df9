// cpp-sync: blocking calls, with one thread per call in progress.

#include <algorithm>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "driver.h"

namespace spangap {
namespace {

using Stream = grpc::ClientReaderWriter<pb::PingRequest, pb::PingResponse>;

struct SyncWorker : Worker {
  using Worker::Worker;
  std::unique_ptr<Stream> stream;
};

// The seats of an open loop: threads take the next call that comes due, and wait for it themselves.
class Seats {
 public:
  Seats(Run& run, unsigned limit) : run_(run), limit_(limit) {}

  // Takes the next call for a waiting thread. `slots_end` or more: none is left.
  uint64_t take() {
    const std::lock_guard lock(mutex_);
    while (!missed_.empty() && missed_.front().from <= next_) {
      const uint64_t to = missed_.front().to;
      if (to > next_) run_.skip_slots(next_, to);
      next_ = std::max(next_, to);
      missed_.pop_front();
    }
    return next_++;
  }

  // A thread is about to call. Returns the number of the thread that it must start first, if none is waiting for the
  // next call.
  std::optional<unsigned> sit_down() {
    const std::lock_guard lock(mutex_);
    --waiting_;
    if (++calling_ == limit_) all_calling_from_ns_ = monotonic_ns();
    if (waiting_ > 0 || started_ == limit_) return std::nullopt;
    ++waiting_;
    return started_++;
  }

  void stand_up() {
    const std::lock_guard lock(mutex_);
    if (calling_ == limit_) {
      // Calls that came due while all threads were calling are skipped. Calls due earlier are late, and still sent.
      const uint64_t from = std::max(next_, run_.schedule().first_from(all_calling_from_ns_));
      const uint64_t to = std::min(run_.schedule().first_from(monotonic_ns()), run_.slots_end());
      if (to > from) missed_.push_back({from, to});
    }
    --calling_;
    ++waiting_;
  }

 private:
  struct Range {
    uint64_t from;
    uint64_t to;
  };

  Run& run_;
  const unsigned limit_;
  std::mutex mutex_;
  uint64_t next_ = 0;
  // The first thread exists from the start.
  unsigned started_ = 1;
  unsigned waiting_ = 1;
  unsigned calling_ = 0;
  int64_t all_calling_from_ns_ = 0;
  std::deque<Range> missed_;
};

class SyncDriver : public Driver {
 public:
  SyncDriver(Run& run, Channels& channels) : Driver(run), seats_(run, run.settings.in_flight) {
    for (unsigned number = 0; number < run.settings.in_flight; ++number) {
      add(sync_workers_.emplace_back(run, channels.of_worker(number)));
    }
    threads_.resize(run.settings.in_flight);
  }

  void start() override {
    watch_expiry();
    if (!run_.settings.rate) {
      workers_begin(threads_.size());
      for (unsigned number = 0; number < threads_.size(); ++number) {
        threads_[number] = std::thread([this, number] { closed_loop(sync_workers_[number]); });
      }
      return;
    }
    start_open(0);
  }

  void join() override {
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
    alarm_.stop();
  }

 private:
  void closed_loop(SyncWorker& worker) {
    no_timer_slack();
    bool pause = false;
    while (call(worker, pause, [&] { return run_.send_closed(worker.call); })) {
      if (pause) sleep_until(monotonic_ns() + PAUSE_NS);
    }
    close_stream(worker);
    worker_ended();
  }

  void start_open(unsigned number) {
    workers_begin(1);
    threads_[number] = std::thread([this, number] { open_loop(sync_workers_[number]); });
  }

  void open_loop(SyncWorker& worker) {
    no_timer_slack();
    for (uint64_t slot = seats_.take(); run_.wait_for(slot); slot = seats_.take()) {
      if (run_.too_late()) {
        run_.skip_slots(slot, slot + 1);
        continue;
      }
      if (const auto another = seats_.sit_down()) start_open(*another);
      bool pause;
      const auto send = [&] {
        run_.send_slot(worker.call, slot);
        return true;
      };
      if (!call(worker, pause, send)) run_.skip_slots(slot, slot + 1);
      seats_.stand_up();
    }
    close_stream(worker);
    worker_ended();
  }

  template <typename Send>
  bool call(SyncWorker& worker, bool& pause, Send send) {
    return run_.settings.call == CallKind::unary ? unary(worker, pause, send) : ping_in_stream(worker, pause, send);
  }

  template <typename Send>
  bool unary(SyncWorker& worker, bool& pause, Send send) {
    if (!worker.renew_context()) return false;
    worker.prepare_call();
    if (!send()) return false;
    account_begin(worker);
    worker.set_expiry();
    const grpc::Status status = worker.channel.stub->Ping(&*worker.context, worker.request(), &worker.response);
    const bool expired = !worker.clear_expiry();
    pause = account_end(worker, status, expired);
    return true;
  }

  template <typename Send>
  bool ping_in_stream(SyncWorker& worker, bool& pause, Send send) {
    if (!worker.stream && !worker.renew_context()) return false;
    worker.prepare_call();
    if (!send()) return false;
    account_begin(worker);
    if (!worker.stream) {
      // The header leaves together with the first request.
      worker.context->set_initial_metadata_corked(true);
      worker.stream = worker.channel.stub->PingStream(&*worker.context);
    }
    worker.set_expiry();
    const bool answered = worker.stream->Write(worker.request()) && worker.stream->Read(&worker.response);
    const bool expired = !worker.clear_expiry();
    if (answered && !expired) {
      pause = account_end(worker, grpc::Status::OK, false);
      return true;
    }
    const grpc::Status ended_with = worker.stream->Finish();
    pause = account_end(worker, stream_failure(ended_with), expired);
    worker.stream.reset();
    return true;
  }

  void close_stream(SyncWorker& worker) {
    if (!worker.stream) return;
    cancel_soon(worker);
    worker.stream->WritesDone();
    worker.stream->Finish();
    worker.stream.reset();
  }

  // A deque: workers do not move.
  std::deque<SyncWorker> sync_workers_;
  std::vector<std::thread> threads_;
  Seats seats_;
};

}  // namespace

std::unique_ptr<Driver> make_sync_driver(Run& run, Channels& channels) {
  return std::make_unique<SyncDriver>(run, channels);
}

}  // namespace spangap

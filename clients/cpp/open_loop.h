// The open loop of the stacks whose calls need no thread: one thread watches the schedule and sends.
#pragma once

#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "driver.h"

namespace spangap {

class OpenLoop {
 public:
  using Send = std::function<bool(Worker&, uint64_t slot)>;
  using Retire = std::function<void(Worker&)>;

  // `send` sends a call, or returns false if all calls were cancelled; `retire` ends a worker for good.
  OpenLoop(Run& run, std::vector<Worker*> workers, Send send, Retire retire)
      // The first worker makes the next call.
      : run_(run), idle_(workers.rbegin(), workers.rend()), send_(std::move(send)), retire_(std::move(retire)) {}

  void start() {
    thread_ = std::thread([this] { keep_time(); });
  }

  void join() {
    if (thread_.joinable()) thread_.join();
  }

  // A call has ended, so its worker may make another one.
  void release(Worker& worker) {
    {
      const std::lock_guard lock(mutex_);
      if (!over_) {
        idle_.push_back(&worker);
        return;
      }
    }
    retire_(worker);
  }

 private:
  void keep_time() {
    no_timer_slack();
    for (uint64_t slot = 0; run_.wait_for(slot); ++slot) {
      Worker* const worker = run_.too_late() ? nullptr : take();
      if (!worker) {
        run_.skip_slots(slot, slot + 1);
      } else if (!send_(*worker, slot)) {
        run_.skip_slots(slot, slot + 1);
        release(*worker);
      }
    }
    std::vector<Worker*> left;
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
      left.swap(idle_);
    }
    for (Worker* worker : left) retire_(*worker);
  }

  // The worker that ended a call most recently: its memory is warm, and its stream open.
  Worker* take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return nullptr;
    Worker* const worker = idle_.back();
    idle_.pop_back();
    return worker;
  }

  Run& run_;
  std::mutex mutex_;
  std::vector<Worker*> idle_;
  bool over_ = false;
  Send send_;
  Retire retire_;
  std::thread thread_;
};

}  // namespace spangap

#include "alarm.h"

#include <chrono>
#include <utility>

#include "clock.h"

namespace spangap {

Alarm::Alarm() : thread_([this] { run(); }) {}

void Alarm::stop() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Alarm::at(int64_t moment_ns, Action action) {
  bool first;
  {
    const std::lock_guard lock(mutex_);
    first = entries_.empty() || moment_ns < entries_.top().moment_ns;
    entries_.push({moment_ns, std::move(action)});
  }
  if (first) changed_.notify_one();
}

void Alarm::hurry() {
  std::unique_lock lock(mutex_);
  hurried_ = true;
  changed_.notify_one();
  idle_.wait(lock, [this] { return entries_.empty() && !busy_; });
}

void Alarm::run() {
  no_timer_slack();
  std::unique_lock lock(mutex_);
  while (!over_) {
    if (entries_.empty()) {
      idle_.notify_all();
      changed_.wait(lock);
      continue;
    }
    const int64_t moment_ns = entries_.top().moment_ns;
    if (!hurried_ && monotonic_ns() < moment_ns) {
      // The steady clock is CLOCK_MONOTONIC.
      changed_.wait_until(lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(moment_ns)));
      continue;
    }
    const Action action = std::move(const_cast<Entry&>(entries_.top()).action);
    entries_.pop();
    busy_ = true;
    lock.unlock();
    action();
    lock.lock();
    busy_ = false;
  }
}

}  // namespace spangap

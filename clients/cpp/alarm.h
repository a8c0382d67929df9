// A thread that runs actions at given moments, as precisely as the kernel's timers allow: those of C-core have a
// granularity of 1 ms.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <queue>
#include <thread>
#include <vector>

namespace spangap {

class Alarm {
 public:
  using Action = std::function<void()>;

  Alarm();
  ~Alarm() { stop(); }

  // Ends the thread. Actions that have not run by then never do.
  void stop();

  // Runs `action` on the alarm's thread at a moment of the monotonic clock.
  void at(int64_t moment_ns, Action action);

  // Runs all pending actions at once, and waits until they are done. From now on every action runs at once.
  void hurry();

 private:
  struct Entry {
    int64_t moment_ns;
    Action action;
    bool operator<(const Entry& other) const { return moment_ns > other.moment_ns; }
  };

  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable idle_;
  std::priority_queue<Entry> entries_;
  bool hurried_ = false;
  bool busy_ = false;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace spangap

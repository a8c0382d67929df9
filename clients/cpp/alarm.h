// A thread that does things at given moments, as exactly as the kernel's timers: those of C-core are 1 ms coarse.
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

  // Ends the thread. What has not been done by then is not done any more.
  void stop();

  // Does `action` on the alarm's thread at a moment of the monotonic clock.
  void at(int64_t moment_ns, Action action);

  // Does at once what was to be done later, and waits until it is done. From now on everything is done at once.
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

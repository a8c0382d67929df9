// Standard input: delivers `go`, and ends when the process that started this program does.
#pragma once

#include <cstdint>
#include <string>

namespace spangap {

class LifeLine {
 public:
  enum class Woken { time, go, ended, event };

  // Waits until a moment of the monotonic clock, a line `go`, the end of standard input, or a signal on `event` (a
  // counting descriptor, -1 for none). The end of standard input is reported once.
  Woken wait_until(int64_t moment_ns, int event = -1);

  // Whether standard input has ended; does not wait.
  bool has_ended();

 private:
  bool take_go();
  void read_more();

  std::string text_;
  bool ended_ = false;
  bool end_told_ = false;
};

}  // namespace spangap

// Standard input: `go`, and the sign that whoever started this program is gone.
#pragma once

#include <cstdint>
#include <string>

namespace spangap {

class LifeLine {
 public:
  enum class Woken { time, go, ended, event };

  // Waits until a moment of the monotonic clock, a line `go`, the end of standard input, or until `event` (a
  // descriptor that counts, -1 for none) is signalled. The end of standard input is told once.
  Woken wait_until(int64_t moment_ns, int event = -1);

  // Whether standard input has ended; looks without waiting.
  bool has_ended();

 private:
  bool take_go();
  void read_more();

  std::string text_;
  bool ended_ = false;
  bool end_told_ = false;
};

}  // namespace spangap

#include "life_line.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "clock.h"

namespace spangap {

bool LifeLine::take_go() {
  for (size_t end; (end = text_.find('\n')) != std::string::npos;) {
    const std::string line = text_.substr(0, end);
    text_.erase(0, end + 1);
    if (line == "go") return true;
  }
  // Input other than `go` need not be kept.
  if (text_.size() > 1024) text_.erase(2);
  return false;
}

void LifeLine::read_more() {
  char bytes[256];
  const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
  if (count > 0) {
    text_.append(bytes, count);
  } else if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
    ended_ = true;
  }
}

LifeLine::Woken LifeLine::wait_until(int64_t moment_ns, int event) {
  for (;;) {
    if (take_go()) return Woken::go;
    if (ended_ && !end_told_) {
      end_told_ = true;
      return Woken::ended;
    }
    const int64_t left_ns = moment_ns - monotonic_ns();
    if (left_ns <= 0) return Woken::time;
    // poll ignores negative descriptors.
    pollfd sources[2] = {{ended_ ? -1 : STDIN_FILENO, POLLIN, 0}, {event, POLLIN, 0}};
    const timespec timeout = to_timespec(left_ns);
    if (ppoll(sources, 2, &timeout, nullptr) <= 0) continue;
    if (sources[1].revents) {
      uint64_t count;
      if (read(event, &count, sizeof count) == sizeof count) return Woken::event;
    }
    if (sources[0].revents) read_more();
  }
}

bool LifeLine::has_ended() {
  pollfd source = {STDIN_FILENO, POLLIN, 0};
  while (!ended_ && poll(&source, 1, 0) > 0 && source.revents) read_more();
  return ended_;
}

}  // namespace spangap

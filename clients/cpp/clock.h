// The two clocks of the contract, in nanoseconds, and precise sleep.
#pragma once

#include <sys/prctl.h>
#include <time.h>

#include <cerrno>
#include <cstdint>

namespace spangap {

constexpr int64_t SECOND_NS = 1'000'000'000;
constexpr int64_t MILLISECOND_NS = 1'000'000;
// Later than any moment that a run can reach, with room for additions.
constexpr int64_t NEVER_NS = int64_t{1} << 62;

inline int64_t read_clock(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * SECOND_NS + now.tv_nsec;
}

// Durations: CLOCK_MONOTONIC.
inline int64_t monotonic_ns() { return read_clock(CLOCK_MONOTONIC); }

// Points in time: CLOCK_REALTIME since 1970.
inline int64_t wall_ns() { return read_clock(CLOCK_REALTIME); }

inline timespec to_timespec(int64_t ns) { return {ns / SECOND_NS, ns % SECOND_NS}; }

// Makes the calling thread's sleeps end on time instead of up to 50 us later.
inline void no_timer_slack() { prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); }

// Sleeps until a moment of the monotonic clock.
inline void sleep_until(int64_t moment_ns) {
  timespec moment = to_timespec(moment_ns);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, nullptr) == EINTR) {
  }
}

}  // namespace spangap

// When the calls of an open loop are due.
#pragma once

#include <algorithm>
#include <cstdint>

#include "clock.h"
#include "settings.h"

namespace spangap {

class Schedule {
 public:
  Schedule(Rate rate, int64_t start_ns) : rate_(rate), start_ns_(start_ns) {}

  // When call `number` is due, on the monotonic clock.
  int64_t due_ns(uint64_t number) const {
    const auto after = static_cast<unsigned __int128>(number) * rate_.ns / rate_.calls;
    return after > static_cast<unsigned __int128>(NEVER_NS) ? NEVER_NS : start_ns_ + static_cast<int64_t>(after);
  }

  // The first call that is due at `moment_ns` or later.
  uint64_t first_from(int64_t moment_ns) const {
    const auto after = static_cast<unsigned __int128>(std::max<int64_t>(moment_ns - start_ns_, 0));
    const auto number = (after * rate_.calls + rate_.ns - 1) / rate_.ns;
    return number > UINT64_MAX ? UINT64_MAX : static_cast<uint64_t>(number);
  }

 private:
  Rate rate_;
  int64_t start_ns_;
};

}  // namespace spangap

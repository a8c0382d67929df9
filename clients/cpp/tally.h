// Counts of each phase, kept by many threads without contention.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "histogram.h"

namespace spangap {

// The phases that calls belong to; the number is also bit 0 of a record's flags.
enum class Phase : uint8_t { warmup = 0, measured = 1 };
constexpr unsigned PHASES = 2;

// gRPC status codes run from 0 (OK) to 16.
constexpr unsigned STATUS_CODES = 17;
const char* status_name(unsigned code);

struct Failures {
  uint64_t count = 0;
  std::string last;
};

// Counts of one phase's calls in one interval.
struct PhaseTally {
  uint64_t due = 0;
  uint64_t skipped = 0;
  uint64_t ok = 0;
  uint64_t slow = 0;
  uint64_t records_dropped = 0;
  std::array<Failures, STATUS_CODES> failures;
  Histogram latency;
  Histogram from_send;
  Histogram lateness;

  void add(const PhaseTally& other);
  void clear();
  bool has_news() const;

 private:
  uint64_t failed() const;
};

// One thread's counts. Others take the lock only once a second.
class alignas(64) Tally {
 public:
  // Calls `count(PhaseTally&)` under the lock.
  template <typename Count>
  void count(Phase phase, Count count) {
    const std::lock_guard lock(mutex_);
    count(*open_[static_cast<unsigned>(phase)]);
  }

  // Moves everything that was counted into `sum`.
  void drain(Phase phase, PhaseTally& sum);

 private:
  std::mutex mutex_;
  std::array<std::unique_ptr<PhaseTally>, PHASES> open_{std::make_unique<PhaseTally>(),
                                                        std::make_unique<PhaseTally>()};
  // Swapped with the current one when drained, so that nobody waits while it is added up.
  std::array<std::unique_ptr<PhaseTally>, PHASES> spare_{std::make_unique<PhaseTally>(),
                                                         std::make_unique<PhaseTally>()};
};

// The tallies of all threads of a process.
class Tallies {
 public:
  // The calling thread's own. Threads beyond the first 64 share one, which bounds the memory.
  Tally& mine() {
    thread_local Tally* own = nullptr;
    if (!own) own = &tallies_[next_.fetch_add(1) % tallies_.size()];
    return *own;
  }

  void drain(Phase phase, PhaseTally& sum) {
    for (Tally& tally : tallies_) tally.drain(phase, sum);
  }

 private:
  std::array<Tally, 64> tallies_;
  std::atomic<unsigned> next_{0};
};

}  // namespace spangap

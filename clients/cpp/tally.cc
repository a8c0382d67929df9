#include "tally.h"

namespace spangap {

const char* status_name(unsigned code) {
  static constexpr std::array<const char*, STATUS_CODES> NAMES = {
      "OK",           "CANCELLED",         "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND",    "ALREADY_EXISTS",    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",      "OUT_OF_RANGE",      "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS",    "UNAUTHENTICATED"};
  // A status outside the list is what gRPC itself calls unknown.
  return NAMES[code < STATUS_CODES ? code : 2];
}

void PhaseTally::add(const PhaseTally& other) {
  due += other.due;
  skipped += other.skipped;
  ok += other.ok;
  slow += other.slow;
  records_dropped += other.records_dropped;
  for (unsigned code = 0; code < STATUS_CODES; ++code) {
    if (other.failures[code].count == 0) continue;
    failures[code].count += other.failures[code].count;
    failures[code].last = other.failures[code].last;
  }
  latency.add(other.latency);
  from_send.add(other.from_send);
  lateness.add(other.lateness);
}

void PhaseTally::clear() {
  due = skipped = ok = slow = records_dropped = 0;
  for (Failures& failure : failures) failure.count = 0;
  latency.clear();
  from_send.clear();
  lateness.clear();
}

uint64_t PhaseTally::failed() const {
  uint64_t sum = 0;
  for (const Failures& failure : failures) sum += failure.count;
  return sum;
}

bool PhaseTally::has_news() const { return due + skipped + ok + slow + records_dropped + failed() > 0; }

void Tally::drain(Phase phase, PhaseTally& sum) {
  auto& open = open_[static_cast<unsigned>(phase)];
  auto& spare = spare_[static_cast<unsigned>(phase)];
  {
    const std::lock_guard lock(mutex_);
    std::swap(open, spare);
  }
  if (!spare->has_news()) return;
  sum.add(*spare);
  spare->clear();
}

}  // namespace spangap

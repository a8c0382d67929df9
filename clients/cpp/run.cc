#include "run.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace spangap {

Run::Run(const ClientSettings& settings) : settings(settings), event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (event_ < 0) throw std::system_error(errno, std::generic_category(), "no event descriptor");
  request.set_payload(std::string(settings.request_bytes, '\0'));
  if (settings.response_bytes) request.set_response_bytes(*settings.response_bytes);
  if (settings.think_ns) request.set_think_ns(*settings.think_ns);
  if (settings.records != RecordKind::none) records = std::make_unique<Records>(settings.record_file);
}

Run::~Run() { close(event_); }

void Run::begin(int64_t start_ns) {
  measured_from_ns_ = start_ns + settings.warmup_ns;
  if (settings.duration_ns > 0) end_ns_ = measured_from_ns_ + settings.duration_ns;
  if (!settings.rate) return;
  schedule_.emplace(*settings.rate, start_ns);
  first_measured_slot_ = schedule_->first_from(measured_from_ns_);
  slots_end_ = settings.duration_ns > 0 ? schedule_->first_from(end_ns_) : UINT64_MAX;
  if (settings.calls > 0 && settings.calls < slots_end_ - first_measured_slot_) {
    slots_end_ = first_measured_slot_ + settings.calls;
    slots_limited_ = true;
  }
}

void Run::stop(int64_t now_ns) {
  end_ns_ = std::min(end_ns_.load(), now_ns);
  if (schedule_) slots_end_ = std::min(slots_end_.load(), schedule_->first_from(now_ns));
}

bool Run::wait_for(uint64_t slot) const {
  // A sleep cannot be interrupted, so a long one consists of short ones.
  constexpr int64_t LOOK_EVERY_NS = 100 * MILLISECOND_NS;
  const int64_t due_ns = schedule_->due_ns(slot);
  while (slot < slots_end()) {
    const int64_t now_ns = monotonic_ns();
    if (now_ns >= due_ns) return true;
    sleep_until(std::min(due_ns, now_ns + LOOK_EVERY_NS));
  }
  return false;
}

bool Run::send_closed(Call& call) {
  if (records) call.sent_unix_ns = wall_ns();
  call.sent_ns = call.due_ns = monotonic_ns();
  if (call.sent_ns >= end_ns_.load(std::memory_order_relaxed)) return false;
  call.phase = call.sent_ns < measured_from_ns_ ? Phase::warmup : Phase::measured;
  if (settings.calls > 0 && call.phase == Phase::measured) {
    const uint64_t number = claimed_.fetch_add(1, std::memory_order_relaxed);
    if (number >= settings.calls) return false;
    if (number + 1 == settings.calls) reach_limit(call.sent_ns);
  }
  tallies.mine().count(call.phase, [](PhaseTally& tally) { ++tally.due; });
  return true;
}

void Run::send_slot(Call& call, uint64_t slot) {
  call.phase = slot < first_measured_slot_ ? Phase::warmup : Phase::measured;
  call.due_ns = schedule_->due_ns(slot);
  if (records) call.sent_unix_ns = wall_ns();
  call.sent_ns = monotonic_ns();
  tallies.mine().count(call.phase, [&](PhaseTally& tally) {
    ++tally.due;
    tally.lateness.record(call.sent_ns - call.due_ns);
  });
  if (slots_limited_ && slot + 1 == slots_end()) reach_limit(call.sent_ns);
}

void Run::skip_slots(uint64_t from, uint64_t to) {
  const auto skip = [this](Phase phase, uint64_t count) {
    if (count == 0) return;
    tallies.mine().count(phase, [count](PhaseTally& tally) {
      tally.due += count;
      tally.skipped += count;
    });
  };
  const uint64_t border = std::clamp(first_measured_slot_, from, to);
  skip(Phase::warmup, border - from);
  skip(Phase::measured, to - border);
  if (slots_limited_ && to == slots_end()) reach_limit(monotonic_ns());
}

void Run::reach_limit(int64_t now_ns) {
  int64_t never = NEVER_NS;
  if (!limit_reached_ns_.compare_exchange_strong(never, now_ns)) return;
  notify();
}

int64_t Run::end(const Call& call, unsigned status, const std::string& message) {
  const int64_t now_ns = monotonic_ns();
  const int64_t from_send_ns = now_ns - call.sent_ns;
  const bool slow = static_cast<uint64_t>(from_send_ns) > settings.slow_ns;
  tallies.mine().count(call.phase, [&](PhaseTally& tally) {
    if (status == 0) {
      ++tally.ok;
      tally.from_send.record(from_send_ns);
      if (schedule_) tally.latency.record(now_ns - call.due_ns);
    } else {
      // A status outside gRPC's list is what gRPC itself calls unknown.
      Failures& failures = tally.failures[status < STATUS_CODES ? status : 2];
      ++failures.count;
      failures.last = message;
    }
    if (slow) ++tally.slow;
    if (records) record(call, from_send_ns, status, slow, tally);
  });
  return from_send_ns;
}

void Run::record(const Call& call, int64_t from_send_ns, unsigned status, bool slow, PhaseTally& tally) {
  const bool measured = call.phase == Phase::measured;
  if (settings.records == RecordKind::slow && !(slow && measured)) return;
  Record record;
  record.trace_id = call.trace.trace_id;
  record.span_id = call.trace.span_id;
  record.start_unix_ns = call.sent_unix_ns;
  record.duration_ns = from_send_ns;
  record.lateness_ns = call.sent_ns - call.due_ns;
  record.status = status < STATUS_CODES ? status : 2;
  record.flags = (measured ? Record::MEASURED : 0) | (slow ? Record::SLOW : 0);
  if (settings.call == CallKind::stream) record.flags |= Record::STREAM;
  record.connection = call.connection;
  if (!records->push(record)) ++tally.records_dropped;
}

void Run::notify() {
  const uint64_t one = 1;
  // Fails only if the counter is full, and then the reader is awake anyway.
  [[maybe_unused]] const ssize_t written = write(event_, &one, sizeof one);
}

}  // namespace spangap

#include "driver.h"

#include <algorithm>
#include <cstdio>

namespace spangap {
namespace {

constexpr int64_t CLOSE_WITHIN_NS = SECOND_NS;

}  // namespace

Worker::Worker(Run& run, Channel& channel) : run(run), channel(channel) {
  const bool context_in_message = run.settings.trace && run.settings.call == CallKind::stream;
  if (context_in_message) own_request = std::make_unique<pb::PingRequest>(run.request);
}

grpc::ClientContext* Worker::renew_context() {
  const std::lock_guard lock(mutex_);
  if (cancelled_) return nullptr;
  return &context.emplace();
}

void Worker::prepare_call() {
  call.connection = channel.connection;
  if (!run.settings.trace) return;
  call.trace = ids.root();
  if (own_request) {
    own_request->set_trace_id(call.trace.trace_id.data(), call.trace.trace_id.size());
    own_request->set_span_id(call.trace.span_id.data(), call.trace.span_id.size());
  } else {
    const auto header = format_traceparent(call.trace);
    context->AddMetadata("traceparent", std::string(header.data(), header.size()));
  }
}

int64_t Worker::expire(int64_t now_ns) {
  int64_t expiry_ns = expiry_ns_.load(std::memory_order_relaxed);
  if (expiry_ns <= 0) return NEVER_NS;
  if (now_ns < expiry_ns) return expiry_ns;
  // The lock keeps the context alive; the exchange fails if the response has arrived meanwhile.
  const std::lock_guard lock(mutex_);
  if (expiry_ns_.compare_exchange_strong(expiry_ns, EXPIRED)) context->TryCancel();
  return NEVER_NS;
}

void Worker::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  if (context) context->TryCancel();
}

grpc::Status stream_failure(const grpc::Status& ended_with) {
  // There was no response, so the call failed, however well the stream ended.
  if (ended_with.ok()) return {grpc::StatusCode::UNAVAILABLE, "the target ended the stream without a response"};
  return ended_with;
}

void Driver::cancel() {
  for (Worker* worker : workers_) worker->cancel();
}

uint64_t Driver::in_flight() const {
  return std::count_if(workers_.begin(), workers_.end(),
                       [](const Worker* worker) { return worker->under_way.load(std::memory_order_relaxed); });
}

void Driver::worker_ended() {
  if (active_.fetch_sub(1) == 1) run_.notify();
}

void Driver::watch_expiry() {
  const int64_t now_ns = monotonic_ns();
  // A call that begins after this check cannot expire before `next_ns`.
  int64_t next_ns = now_ns + run_.settings.timeout_ns;
  for (Worker* worker : workers_) next_ns = std::min(next_ns, worker->expire(now_ns));
  alarm_.at(next_ns, [this] { watch_expiry(); });
}

void Driver::cancel_soon(Worker& worker) {
  alarm_.at(monotonic_ns() + CLOSE_WITHIN_NS, [&worker] { worker.cancel(); });
}

bool Driver::account_end(Worker& worker, const grpc::Status& status, bool expired) {
  worker.under_way.store(false, std::memory_order_relaxed);
  if (expired) {
    char reason[64];
    const double timeout_ms = static_cast<double>(run_.settings.timeout_ns) / MILLISECOND_NS;
    snprintf(reason, sizeof reason, "no response within %gms", timeout_ms);
    return run_.end(worker.call, grpc::StatusCode::DEADLINE_EXCEEDED, reason) < PAUSE_NS;
  }
  const int64_t took_ns = run_.end(worker.call, status.error_code(), status.error_message());
  return !status.ok() && took_ns < PAUSE_NS;
}

}  // namespace spangap

#include "serving.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "clock.h"
#include "json.h"

namespace spangap {
namespace {

grpc::Status too_much(const char* field, uint64_t value, uint64_t most) {
  return {grpc::StatusCode::INVALID_ARGUMENT,
          std::string(field) + " is " + std::to_string(value) + ": expected at most " + std::to_string(most)};
}

}  // namespace

Serving::Serving(const TargetSettings& settings) : settings(settings) {
  if (settings.records != RecordKind::none) records_ = std::make_unique<Records>(settings.record_file);
}

ServedPing Serving::receive() {
  ServedPing ping;
  ping.received_unix_ns = wall_ns();
  ping.received_ns = monotonic_ns();
  const uint64_t now = in_progress_.fetch_add(1, std::memory_order_relaxed) + 1;
  uint64_t peak = peak_in_progress_.load(std::memory_order_relaxed);
  while (now > peak && !peak_in_progress_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
  return ping;
}

void Serving::set_parent(ServedPing& ping, const grpc::ServerContext& context, Ids& ids) {
  const auto header = context.client_metadata().find("traceparent");
  if (header == context.client_metadata().end()) return;
  adopt(ping, parse_traceparent({header->second.data(), header->second.size()}), ids);
}

void Serving::set_parent(ServedPing& ping, const pb::PingRequest& request, Ids& ids) {
  ping.in_stream = true;
  const std::string &trace_id = request.trace_id(), &span_id = request.span_id();
  if (trace_id.empty() && span_id.empty()) return;
  TraceContext context;
  if (trace_id.size() != context.trace_id.size() || span_id.size() != context.span_id.size()) {
    adopt(ping, std::nullopt, ids);
    return;
  }
  memcpy(context.trace_id.data(), trace_id.data(), trace_id.size());
  memcpy(context.span_id.data(), span_id.data(), span_id.size());
  const bool zero = context.trace_id == std::array<uint8_t, 16>{} || context.span_id == std::array<uint8_t, 8>{};
  context.sampled = true;
  adopt(ping, zero ? std::nullopt : std::optional(context), ids);
}

// `context` is none if it was present but invalid.
void Serving::adopt(ServedPing& ping, const std::optional<TraceContext>& context, Ids& ids) {
  if (!context) {
    malformed_traceparent_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (!records_ || !context->sampled) return;
  ping.parent = context;
  ping.span_id = ids.span_id();
}

grpc::Status Serving::prepare(const pb::PingRequest& request, pb::PingResponse& response,
                              uint64_t& think_ns) const {
  think_ns = request.has_think_ns() ? request.think_ns() : settings.think_ns;
  if (think_ns > MAX_THINK_NS) return too_much("think_ns", think_ns, MAX_THINK_NS);
  const uint64_t bytes = request.has_response_bytes() ? request.response_bytes() : settings.response_bytes;
  if (bytes > MAX_PAYLOAD_BYTES) return too_much("response_bytes", bytes, MAX_PAYLOAD_BYTES);
  // The existing bytes are zeros, too.
  if (bytes > 0 || !response.payload().empty()) response.mutable_payload()->resize(bytes, '\0');
  return grpc::Status::OK;
}

void Serving::answer(const ServedPing& ping, const grpc::Status& status) {
  const unsigned code = std::min<unsigned>(status.error_code(), STATUS_CODES - 1);
  by_status_[code].fetch_add(1, std::memory_order_relaxed);
  in_progress_.fetch_sub(1, std::memory_order_relaxed);
  if (!ping.parent) return;
  Record record;
  record.trace_id = ping.parent->trace_id;
  record.span_id = ping.span_id;
  record.parent_span_id = ping.parent->span_id;
  record.start_unix_ns = ping.received_unix_ns;
  record.status = code;
  record.flags = ping.in_stream ? Record::STREAM : 0;
  record.duration_ns = monotonic_ns() - ping.received_ns;
  if (!records_->push(record)) records_dropped_.fetch_add(1, std::memory_order_relaxed);
}

uint64_t Serving::calls() const {
  uint64_t sum = 0;
  for (const auto& count : by_status_) sum += count.load(std::memory_order_relaxed);
  return sum;
}

pb::UsageResponse Serving::usage() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& time) { return time.tv_sec * SECOND_NS + time.tv_usec * 1000; };
  pb::UsageResponse response;
  response.set_stack("cpp");
  response.set_library("gRPC C++ " + grpc::Version());
  response.set_cpu_ns(ns(usage.ru_utime) + ns(usage.ru_stime));
  response.set_context_switches(usage.ru_nvcsw + usage.ru_nivcsw);
  response.set_calls(calls());
  response.set_peak_in_progress(peak_in_progress_.exchange(in_progress_));
  response.set_max_streams(settings.max_streams);
  response.set_pid(getpid());
  return response;
}

bool Serving::cut_off_calls() {
  const bool under_way = in_progress_ > 0;
  cut_off_ = true;
  alarm.hurry();
  return under_way;
}

void Serving::send_end(bool cut_off) {
  if (records_) {
    records_->close();
    for (const Phase phase : {Phase::warmup, Phase::measured}) records_dropped_ += records_->take_lost(phase);
  }
  JsonObject by_status;
  for (unsigned code = 0; code < STATUS_CODES; ++code) {
    if (by_status_[code] > 0) by_status.number(status_name(code), by_status_[code]);
  }
  JsonObject message;
  message.text("event", "end").number("calls", calls()).object("by_status", by_status);
  message.number("malformed_traceparent", malformed_traceparent_).number("records_dropped", records_dropped_);
  send_message(message.boolean("cut_off", cut_off));
}

}  // namespace spangap

#include "session.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "channels.h"
#include "clock.h"
#include "driver.h"
#include "json.h"
#include "life_line.h"
#include "run.h"

namespace spangap {
namespace {

// Time left to calls in progress after standard input has ended.
constexpr int64_t CANCEL_AFTER_NS = SECOND_NS;

const char* phase_name(Phase phase) { return phase == Phase::warmup ? "warmup" : "measured"; }

std::unique_ptr<Driver> make_driver(Run& run, Channels& channels) {
  switch (run.settings.stack) {
    case Stack::cpp_sync:
      return make_sync_driver(run, channels);
    case Stack::cpp_async:
      return make_async_driver(run, channels);
    default:
      return make_callback_driver(run, channels);
  }
}

// CPU time and context switches of the whole process so far.
struct Usage {
  uint64_t cpu_ns;
  uint64_t context_switches;

  static Usage now() {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    const auto ns = [](const timeval& time) { return time.tv_sec * SECOND_NS + time.tv_usec * 1000; };
    return {static_cast<uint64_t>(ns(usage.ru_utime) + ns(usage.ru_stime)),
            static_cast<uint64_t>(usage.ru_nvcsw + usage.ru_nivcsw)};
  }
};

class Session {
 public:
  Session(Run& run, Driver& driver, LifeLine& life_line) : run_(run), driver_(driver), life_line_(life_line) {}

  // From `go` to the end. Returns the reason for the end.
  const char* run() {
    const int64_t start_ns = monotonic_ns();
    const int64_t measured_from_ns = start_ns + run_.settings.warmup_ns;
    const int64_t end_ns = run_.settings.duration_ns > 0 ? measured_from_ns + run_.settings.duration_ns : NEVER_NS;
    usage_ = Usage::now();
    run_.begin(start_ns);
    if (run_.settings.warmup_ns == 0) {
      say_phase("measured", start_ns);
      driver_.start();
      keep_phase(Phase::measured, start_ns, end_ns);
    } else {
      say_phase("warmup", start_ns);
      driver_.start();
      if (keep_phase(Phase::warmup, start_ns, measured_from_ns)) {
        say_phase("measured", measured_from_ns);
        keep_phase(Phase::measured, measured_from_ns, end_ns);
      }
    }
    drain();
    return stopped_ ? "stopped" : "done";
  }

 private:
  void say_phase(const char* name, int64_t at_ns) {
    JsonObject message;
    message.text("event", "phase").text("phase", name).number("unix_ns", wall_of(at_ns));
    send_message(message);
  }

  static uint64_t wall_of(int64_t moment_ns) { return wall_ns() - (monotonic_ns() - moment_ns); }

  // Reports once a second until the phase ends. False if it ended because standard input did.
  bool keep_phase(Phase phase, int64_t from_ns, int64_t end_ns) {
    int64_t covered_to_ns = from_ns;
    for (int64_t tick_ns = from_ns + SECOND_NS;; tick_ns += SECOND_NS) {
      LifeLine::Woken woken;
      do {
        woken = life_line_.wait_until(std::min(tick_ns, end_ns), run_.event_descriptor());
        // Reported once; a limit cannot be reached before the phase that it belongs to.
        if (woken == LifeLine::Woken::ended) stop(monotonic_ns());
        end_ns = std::min({end_ns, run_.limit_reached_ns(), stopped_at_ns_});
      } while (woken != LifeLine::Woken::time && end_ns > monotonic_ns());
      const int64_t now_ns = std::min(tick_ns, end_ns);
      report_phase(phase, now_ns, std::max<int64_t>(now_ns - covered_to_ns, 0));
      covered_to_ns = std::max(now_ns, covered_to_ns);
      // Calls of the previous phase that have ended since.
      if (phase == Phase::measured) report_news(Phase::warmup);
      if (now_ns >= end_ns) break;
    }
    phases_ended_ns_ = covered_to_ns;
    if (phase == Phase::measured && stopped_at_ns_ == NEVER_NS) run_.stop(end_ns);
    return stopped_at_ns_ == NEVER_NS;
  }

  void stop(int64_t now_ns) {
    stopped_ = true;
    stopped_at_ns_ = now_ns;
    run_.stop(now_ns);
  }

  void drain() {
    say_phase("drain", phases_ended_ns_);
    int64_t cancel_at_ns = stopped_ ? stopped_at_ns_ + CANCEL_AFTER_NS : NEVER_NS;
    int64_t tick_ns = phases_ended_ns_ + SECOND_NS;
    while (driver_.active()) {
      const auto woken = life_line_.wait_until(std::min(tick_ns, cancel_at_ns), run_.event_descriptor());
      const int64_t now_ns = monotonic_ns();
      if (woken == LifeLine::Woken::ended) cancel_at_ns = now_ns + CANCEL_AFTER_NS;
      if (now_ns >= cancel_at_ns) {
        driver_.cancel();
        stopped_ = true;
        cancel_at_ns = NEVER_NS;
      }
      if (now_ns >= tick_ns) {
        report_news(Phase::warmup);
        report_news(Phase::measured);
        tick_ns += SECOND_NS;
      }
    }
    driver_.join();
    say_phase("drained", monotonic_ns());
    if (run_.records) run_.records->close();
    report_news(Phase::warmup);
    report_news(Phase::measured);
  }

  // An interval of a phase that continues or has just ended.
  void report_phase(Phase phase, int64_t at_ns, int64_t duration_ns) {
    const Usage usage = Usage::now();
    const Usage used = {usage.cpu_ns - usage_.cpu_ns, usage.context_switches - usage_.context_switches};
    usage_ = usage;
    PhaseTally& tally = drain_tally(phase);
    report(phase, at_ns, duration_ns, tally, used);
  }

  // An interval that only contains calls which ended after their phase; CPU time used since belongs to neither phase.
  void report_news(Phase phase) {
    PhaseTally& tally = drain_tally(phase);
    if (tally.has_news()) report(phase, monotonic_ns(), 0, tally, {0, 0});
  }

  PhaseTally& drain_tally(Phase phase) {
    tally_.clear();
    run_.tallies.drain(phase, tally_);
    if (run_.records) tally_.records_dropped += run_.records->take_lost(phase);
    return tally_;
  }

  void report(Phase phase, int64_t at_ns, int64_t duration_ns, const PhaseTally& tally, const Usage& used) {
    JsonObject errors;
    for (unsigned code = 0; code < STATUS_CODES; ++code) {
      const Failures& failures = tally.failures[code];
      if (failures.count == 0) continue;
      JsonObject error;
      error.number("count", failures.count).text("last", failures.last);
      errors.object(status_name(code), error);
    }
    JsonObject message;
    message.text("event", "interval").text("phase", phase_name(phase));
    message.number("at_unix_ns", wall_of(at_ns)).number("duration_ns", duration_ns);
    message.number("due", tally.due).number("skipped", tally.skipped).number("ok", tally.ok);
    message.object("errors", errors).number("slow", tally.slow);
    message.histogram("latency", tally.latency).histogram("from_send", tally.from_send);
    message.histogram("lateness", tally.lateness).number("in_flight", driver_.in_flight());
    message.number("cpu_ns", used.cpu_ns).number("context_switches", used.context_switches);
    message.number("records_dropped", tally.records_dropped);
    send_message(message);
  }

  Run& run_;
  Driver& driver_;
  LifeLine& life_line_;
  PhaseTally tally_;
  Usage usage_{};
  bool stopped_ = false;
  int64_t stopped_at_ns_ = NEVER_NS;
  int64_t phases_ended_ns_ = 0;
};

int say_end(const char* reason) {
  JsonObject message;
  message.text("event", "end").text("reason", reason);
  send_message(message);
  return 0;
}

}  // namespace

int run_client(const ClientSettings& settings) {
  no_timer_slack();
  LifeLine life_line;
  Run run(settings);
  Channels channels(settings);
  if (const auto error = channels.connect([&] { return life_line.has_ended(); })) {
    JsonObject message;
    message.text("event", "failed").text("error", *error);
    send_message(message);
    return 1;
  }
  if (life_line.has_ended()) return say_end("stopped");
  if (run.records) run.records->check_connections([&](uint16_t connection) { return channels.is_open(connection); });
  const auto driver = make_driver(run, channels);
  JsonObject message;
  message.text("event", "ready").text("stack", settings.stack_name);
  message.text("library", "gRPC C++ " + grpc::Version()).number("channels", channels.count());
  send_message(message);
  if (life_line.wait_until(NEVER_NS) != LifeLine::Woken::go) return say_end("stopped");
  return say_end(Session(run, *driver, life_line).run());
}

}  // namespace spangap

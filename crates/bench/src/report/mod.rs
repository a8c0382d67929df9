//! Results of the runs as JSON: the shapes of `spangap tank --json`. Units end the keys.
//!
//! Unknown values are null, never 0.

mod evidence;
pub mod fields;
pub mod findings;
mod lines;
#[cfg(test)]
pub(crate) mod samples;
mod single;
pub mod spectrum;
pub mod sweep;
pub(crate) mod table;

use crate::contract::{Call, Channels, Nodelay, Stack};
pub use crate::distribution::{Distribution, Quantiles};
use crate::otlp::SpanCounts;
pub use findings::{RunFinding, Standing};
use serde::{Deserialize, Serialize};
pub use single::CallsInShort;
use spangap_model::evidence::Testimony;
use std::collections::BTreeMap;

/// `spangap tank --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TankReport {
    /// One entry per run, in the order in which they ran.
    pub runs: Vec<Run>,
    /// Summary in one plain sentence.
    #[serde(default)]
    pub verdict: String,
    /// Findings of the runs, the strongest first.
    #[serde(default)]
    pub findings: Vec<RunFinding>,
    /// Timing noise of the machine itself.
    pub noise: Noise,
    /// Spans sent by OTLP, if requested.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spans: Option<SpanCounts>,
    /// The log of slow calls, if requested.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slow_log: Option<SlowLogReport>,
    /// Requested runs that were not made, each with its reason.
    pub not_run: Vec<NotRun>,
    /// Caveats.
    pub warnings: Vec<String>,
    /// The same as evidence, the common form of all instruments; recomputed when a report is read.
    #[serde(skip_deserializing)]
    pub evidence: Testimony,
}

impl TankReport {
    /// Recomputes [`findings`](Self::findings), [`verdict`](Self::verdict) and [`evidence`](Self::evidence)
    /// from the runs.
    pub fn conclude(&mut self) {
        self.findings = findings::of(&self.runs, self.noise.cpus);
        self.verdict = findings::verdict::of(&self.runs, &self.findings);
        self.evidence = evidence::evidence(self);
    }
}

/// A requested run that was not made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotRun {
    /// Its settings, in words.
    pub what: String,
    /// Reason.
    pub why: String,
}

/// Settings of a run; runs with equal settings are repetitions of each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// `HOST:PORT`.
    pub target: String,
    /// The client's stack.
    pub stack: Stack,
    /// Kind of call.
    pub call: Call,
    /// `package.Service/Method` called instead of a ping; one call lasts from its first message to its status.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub method: Option<String>,
    /// How workers share channels.
    pub channels: Channels,
    /// Closed loop: number of calls in flight.
    pub inflight: Option<u32>,
    /// Open loop: calls due per second.
    pub rate_per_s: Option<f64>,
    /// Payload of a request in bytes.
    pub request_bytes: u64,
    /// Requested payload of a response; null leaves it to the target.
    pub response_bytes: Option<u64>,
    /// Requested think time; null leaves it to the target.
    pub think_ns: Option<u64>,
    /// `TCP_NODELAY` of the client's sockets.
    pub nodelay: Nodelay,
    /// Whether requests were written in two parts (`raw` only).
    pub split_writes: bool,
    /// Maximum attempts per call: one that ends with UNAVAILABLE is repeated. The call's duration covers all
    /// attempts.
    #[serde(default = "one")]
    pub attempts: u32,
    /// Threads of the client.
    pub threads: u32,
    /// CPUs of the client as a list such as `0,2-3`; null for all.
    pub cpus: Option<String>,
    /// Whether calls carried a trace context.
    pub trace: bool,
}

fn one() -> u32 {
    1
}

/// One run: one client process. All figures cover the measured phase alone, after warm-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Settings.
    #[serde(flatten)]
    pub asked: Asked,
    /// Number of the repetition, from 0.
    pub repeat: u32,
    /// The client's library and version.
    pub library: String,
    /// The target's stack, as it reports itself; null if it does not.
    pub target_stack: Option<String>,
    /// The target's library and version; null as above.
    pub target_library: Option<String>,
    /// Start of the measured phase; null if it never started.
    pub start_unix_ns: Option<u64>,
    /// Measured time.
    pub duration_s: f64,
    /// Length of the warm-up, whose calls are not counted.
    pub warmup_s: f64,
    /// Calls that were due; the sum of `calls` and `skipped_overload`.
    pub scheduled: u64,
    /// Calls made, whatever their outcome: the sum of `ok` and all `errors`.
    pub calls: u64,
    /// Calls that returned OK.
    pub ok: u64,
    /// Other calls, by gRPC status name.
    pub errors: BTreeMap<String, u64>,
    /// Last reason of each of these statuses.
    pub error_reasons: BTreeMap<String, String>,
    /// Calls not made because the maximum number was in flight.
    pub skipped_overload: u64,
    /// Warm-up calls that did not return OK.
    pub warmup_errors: u64,
    /// OK calls per second.
    pub throughput_per_s: f64,
    /// From the intended time to the response, for OK calls: includes the effect of a stall on the calls queued
    /// behind it. In a closed loop, which has no intended times, the same as `latency_from_send`.
    pub latency: Quantiles,
    /// From the actual send to the response, for the same calls.
    pub latency_from_send: Quantiles,
    /// From the intended time to the actual send, for all calls made; null in a closed loop.
    pub lateness: Option<Quantiles>,
    /// `latency` at many quantiles: `[quantile, ns]`, as far as the number of calls permits.
    pub spectrum: Vec<(f64, u64)>,
    /// `latency_from_send` at many quantiles; empty in reports of earlier versions.
    #[serde(default)]
    pub spectrum_from_send: Vec<(f64, u64)>,
    /// The run second by second, including the warm-up.
    pub seconds: Vec<Second>,
    /// Channels created before the first call; 0 where every call creates its own.
    pub channels_made: u32,
    /// TCP connections to the target that the kernel showed at the last check of a live client: shortly before
    /// the end of the measured phase, or when it was asked to stop; null if the kernel could not be asked.
    pub connections: Option<u64>,
    /// The kernel's view of them.
    pub sockets: Option<Sockets>,
    /// Effect of the stream limit on the run; null if the target reported no limit.
    pub streams: Option<Streams>,
    /// Duration from the send above which a call is slow.
    pub slow_over_ns: u64,
    /// Slow calls, whatever their outcome.
    pub slow: u64,
    /// CPU time of the client's process.
    pub cpu_client_s: f64,
    /// CPU time of the target's process; null if it is not one of ours.
    pub cpu_target_s: Option<f64>,
    /// Context switches of the client's process, both voluntary and involuntary.
    pub context_switches: u64,
    /// Context switches of the target's process.
    pub context_switches_target: Option<u64>,
    /// Raw ping-pong over loopback under the same load, before this run: the physical floor.
    pub floor: Option<Floor>,
    /// Call records (spans, slow calls) that found no room in the client.
    pub records_dropped: u64,
    /// How the client ended, if abnormally.
    pub client_error: Option<String>,
    /// Caveats about this run.
    pub warnings: Vec<String>,
}

impl Run {
    /// Whether the target is reached over loopback.
    pub(crate) fn on_this_host(&self) -> bool {
        let host = self.asked.target.rsplit_once(':').map_or("", |(host, _)| host);
        host == "localhost" || host.starts_with("127.") || matches!(host, "[::1]" | "::1")
    }
}

/// One second of a run. A call that ended after its phase counts in the last second of the warm-up, or in one
/// after the measured phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Its end, relative to the start of the warm-up.
    pub at_s: f64,
    /// Whether it belongs to the measured phase.
    pub measured: bool,
    /// OK calls that ended in it.
    pub ok: u64,
    /// Other calls that ended in it.
    pub errors: u64,
    /// Calls skipped.
    pub skipped: u64,
    /// Median of `latency` (closed loop: from send).
    pub p50_ns: Option<u64>,
    /// 99th percentile of `latency`.
    pub p99_ns: Option<u64>,
    /// Maximum of `latency`.
    pub max_ns: Option<u64>,
}

/// The client's connections to the target, as shown by the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sockets {
    /// Maximum number established at the same time.
    pub most_at_once: u64,
    /// Number of distinct connections observed; reconnections between two checks are missed. Where every call
    /// has its own, the number that the client reported, 65,535 at most.
    pub seen: u64,
    /// Number with `TCP_NODELAY` set, at the end; null if the sockets could not be read.
    pub nodelay_on: Option<u64>,
    /// Number without it.
    pub nodelay_off: Option<u64>,
    /// Whether tank had to set `TCP_NODELAY` on the live sockets.
    pub nodelay_forced: bool,
    /// Minimum RTT that TCP measured on any of them.
    pub min_rtt_ns: Option<u64>,
    /// Retransmitted segments on all of them.
    pub retransmitted_segments: Option<u64>,
    /// Congestion control, such as `cubic`.
    pub congestion_control: Option<String>,
}

/// The limit of concurrent streams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streams {
    /// SETTINGS_MAX_CONCURRENT_STREAMS announced by the target; null for no limit.
    pub limit_per_connection: Option<u32>,
    /// Number of calls waiting for a stream at any time: in flight less what all connections allow. Closed loop
    /// only.
    pub queued_by_limit: Option<u64>,
    /// Maximum number of concurrent calls, as counted by the target.
    pub target_peak_in_progress: Option<u64>,
}

/// Raw ping-pong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// Calls measured.
    pub calls: u64,
    /// OK calls per second.
    pub throughput_per_s: f64,
    /// As in the run.
    pub latency: Quantiles,
    /// As in the run.
    pub lateness: Option<Quantiles>,
}

/// Timing precision of this machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Median time of reading the monotonic clock.
    pub clock_read_ns: u64,
    /// Smallest observed step of the monotonic clock.
    pub clock_step_ns: u64,
    /// How late a thread wakes from an exact sleep of 1 ms.
    pub timer_lateness: Quantiles,
    /// Timer slack of that thread, if the kernel reports it.
    pub timer_slack_ns: Option<u64>,
    /// Longest pause of a thread that never sleeps.
    pub longest_pause_ns: u64,
    /// Length of that observation.
    pub watched_ns: u64,
    /// CPUs that the client may use.
    pub cpus: u32,
    /// Claims that this machine does not support, in words.
    pub cannot_claim: Vec<String>,
}

/// Fate of the log of slow calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlowLogReport {
    /// The file.
    pub path: String,
    /// Lines written.
    pub written: u64,
    /// Lines lost.
    pub dropped: u64,
}

/// One second of a run, for the progress line.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Time since the schedule began.
    pub elapsed_s: f64,
    /// Whether this is still warm-up.
    pub warming_up: bool,
    /// Calls that ended with OK in this second.
    pub ok: u64,
    /// Calls that ended otherwise in this second.
    pub errors: u64,
    /// Latency from the intended time of this second's OK calls.
    pub latency: Quantiles,
    /// Calls in flight.
    pub in_flight: usize,
}

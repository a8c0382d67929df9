//! What came of the runs, as scripts read it: the shapes of `spangap tank --json`. Units end the keys.
//!
//! What could not be seen is null, never 0.

mod evidence;
pub mod fields;
pub mod findings;
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
use spangap_model::evidence::Testimony;
use std::collections::BTreeMap;

/// `spangap tank --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TankReport {
    /// One entry per run, in the order in which they ran.
    pub runs: Vec<Run>,
    /// The runs in one plain sentence.
    #[serde(default)]
    pub verdict: String,
    /// What the runs show, the most telling first.
    #[serde(default)]
    pub findings: Vec<RunFinding>,
    /// What the machine itself adds.
    pub noise: Noise,
    /// Spans sent by OTLP, when that was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spans: Option<SpanCounts>,
    /// The log of slow calls, when that was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slow_log: Option<SlowLogReport>,
    /// Runs that were asked for and not made, each with its reason.
    pub not_run: Vec<NotRun>,
    /// What makes these figures less than they seem.
    pub warnings: Vec<String>,
    /// The same as values that every instrument speaks in; derived anew by whoever reads a report.
    #[serde(skip_deserializing)]
    pub evidence: Testimony,
}

/// A run that was asked for and not made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotRun {
    /// What was asked for, in words.
    pub what: String,
    /// Why it was not made.
    pub why: String,
}

/// What one run was asked to do; runs with equal ones are repetitions of each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// `HOST:PORT`.
    pub target: String,
    /// What made the calls.
    pub stack: Stack,
    /// Kind of call.
    pub call: Call,
    /// `package.Service/Method` that was called instead of a ping; one call of it is from its first message to its status.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub method: Option<String>,
    /// How workers share channels.
    pub channels: Channels,
    /// Closed loop: calls under way at any time.
    pub inflight: Option<u32>,
    /// Open loop: calls due per second.
    pub rate_per_s: Option<f64>,
    /// Payload of a request in bytes.
    pub request_bytes: u64,
    /// Payload asked for; null leaves it to the target.
    pub response_bytes: Option<u64>,
    /// Think time asked for; null leaves it to the target.
    pub think_ns: Option<u64>,
    /// `TCP_NODELAY` of the client's sockets.
    pub nodelay: Nodelay,
    /// Whether requests were written in two parts (`raw` only).
    pub split_writes: bool,
    /// Attempts that a call could have: one that ended with UNAVAILABLE was made again. Its time is that of all.
    #[serde(default = "one")]
    pub attempts: u32,
    /// Threads of the client.
    pub threads: u32,
    /// CPUs of the client as a list such as `0,2-3`; null for all.
    pub cpus: Option<String>,
    /// Whether every call carried a trace context.
    pub trace: bool,
}

fn one() -> u32 {
    1
}

/// One run: one client process. Every figure is of the measured phase alone, after warm-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What it was asked to do.
    #[serde(flatten)]
    pub asked: Asked,
    /// Which repetition of it this is, from 0.
    pub repeat: u32,
    /// Library that made the calls, with its version.
    pub library: String,
    /// Stack that served, by the target's own account; null when it gave none.
    pub target_stack: Option<String>,
    /// Library that served, with its version; null as above.
    pub target_library: Option<String>,
    /// Beginning of the measured phase; null when it never began.
    pub start_unix_ns: Option<u64>,
    /// Measured time.
    pub duration_s: f64,
    /// Time before it, in which calls were made and not counted.
    pub warmup_s: f64,
    /// Calls that were due; the sum of `calls` and `skipped_overload`.
    pub scheduled: u64,
    /// Calls made, whatever came of them: the sum of `ok` and all `errors`.
    pub calls: u64,
    /// Calls made that returned OK.
    pub ok: u64,
    /// Calls made that did not, by gRPC status name.
    pub errors: BTreeMap<String, u64>,
    /// The last reason of each of these statuses.
    pub error_reasons: BTreeMap<String, String>,
    /// Calls not made because as many as allowed were still waiting for their response.
    pub skipped_overload: u64,
    /// Calls made in the warm-up that did not return OK.
    pub warmup_errors: u64,
    /// OK calls per second.
    pub throughput_per_s: f64,
    /// From the intended time to the response, of OK calls: includes what a stall did to the calls queued behind.
    /// In a closed loop nothing is intended: the same as `latency_from_send`.
    pub latency: Quantiles,
    /// From the actual send to the response, of the same calls.
    pub latency_from_send: Quantiles,
    /// From the intended time to the actual send, of all calls made; null in a closed loop.
    pub lateness: Option<Quantiles>,
    /// `latency` at many quantiles: `[quantile, ns]`, as far as there are calls to tell.
    pub spectrum: Vec<(f64, u64)>,
    /// `latency_from_send` at many quantiles; empty in reports of earlier versions.
    #[serde(default)]
    pub spectrum_from_send: Vec<(f64, u64)>,
    /// The run second by second, warm-up included.
    pub seconds: Vec<Second>,
    /// Channels that the client made before its first call; 0 where every call makes its own.
    pub channels_made: u32,
    /// TCP connections to the target that the kernel showed at the last look at a client that was there: shortly
    /// before the end of the measured phase, or when it was asked to stop; null when the kernel could not be asked.
    pub connections: Option<u64>,
    /// The kernel's view of them.
    pub sockets: Option<Sockets>,
    /// How the limit of concurrent streams bore on the run; null when the target told none.
    pub streams: Option<Streams>,
    /// From which duration, counted from the send, a call is slow.
    pub slow_over_ns: u64,
    /// Slow calls, whatever came of them.
    pub slow: u64,
    /// CPU time of the client's process.
    pub cpu_client_s: f64,
    /// CPU time of the target's process; null when it is none of ours.
    pub cpu_target_s: Option<f64>,
    /// Context switches of the client's process, voluntary or not.
    pub context_switches: u64,
    /// Context switches of the target's process.
    pub context_switches_target: Option<u64>,
    /// Raw ping-pong over loopback under the same load, before this run: the physical floor.
    pub floor: Option<Floor>,
    /// Records of calls (spans, slow calls) that found no room in the client.
    pub records_dropped: u64,
    /// How the client ended, when not well.
    pub client_error: Option<String>,
    /// What makes this run's figures less than they seem.
    pub warnings: Vec<String>,
}

impl Run {
    /// Whether the target is reached over this host's loopback.
    pub(crate) fn on_this_host(&self) -> bool {
        let host = self.asked.target.rsplit_once(':').map_or("", |(host, _)| host);
        host == "localhost" || host.starts_with("127.") || matches!(host, "[::1]" | "::1")
    }
}

/// One second of a run. A call that ended after its phase is in the last second of the warm-up, or in one after the
/// measured phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// End of it, since the start of the warm-up.
    pub at_s: f64,
    /// Whether it counts.
    pub measured: bool,
    /// Calls that ended with OK.
    pub ok: u64,
    /// Calls that ended otherwise.
    pub errors: u64,
    /// Calls skipped.
    pub skipped: u64,
    /// Of `latency` (closed loop: from send).
    pub p50_ns: Option<u64>,
    /// The same.
    pub p99_ns: Option<u64>,
    /// The same.
    pub max_ns: Option<u64>,
}

/// What the kernel shows of the client's connections to the target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sockets {
    /// Most that were established at once.
    pub most_at_once: u64,
    /// Different ones seen during the run; reconnections between two looks are not seen. Where every call has its own,
    /// those that the client told of, 65,535 at most.
    pub seen: u64,
    /// With `TCP_NODELAY` set, at the end; null when the sockets could not be read.
    pub nodelay_on: Option<u64>,
    /// Without it.
    pub nodelay_off: Option<u64>,
    /// Whether tank had to set `TCP_NODELAY` on the live sockets.
    pub nodelay_forced: bool,
    /// Smallest round trip that TCP saw on any of them.
    pub min_rtt_ns: Option<u64>,
    /// Segments sent again, all of them.
    pub retransmitted_segments: Option<u64>,
    /// Congestion control, such as `cubic`.
    pub congestion_control: Option<String>,
}

/// The limit of concurrent streams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streams {
    /// SETTINGS_MAX_CONCURRENT_STREAMS that the target announces; null for no limit.
    pub limit_per_connection: Option<u32>,
    /// Calls that have to wait for a stream at any time: in flight less what all connections allow. Closed loop only.
    pub queued_by_limit: Option<u64>,
    /// Most calls that the target was handling at once, by its own count.
    pub target_peak_in_progress: Option<u64>,
}

/// Raw ping-pong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// Calls measured.
    pub calls: u64,
    /// OK calls per second.
    pub throughput_per_s: f64,
    /// As of the run.
    pub latency: Quantiles,
    /// As of the run.
    pub lateness: Option<Quantiles>,
}

/// How exact this machine's timing is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Time one reading of the monotonic clock takes, median.
    pub clock_read_ns: u64,
    /// Smallest step of the monotonic clock that was seen.
    pub clock_step_ns: u64,
    /// How late a thread wakes from an exact sleep of 1 ms.
    pub timer_lateness: Quantiles,
    /// Timer slack of that thread, if the kernel told.
    pub timer_slack_ns: Option<u64>,
    /// Longest time that a thread which never sleeps was not running, and for how long it was watched.
    pub longest_pause_ns: u64,
    /// The same.
    pub watched_ns: u64,
    /// CPUs that the client may use.
    pub cpus: u32,
    /// What cannot be claimed on this machine, in words.
    pub cannot_claim: Vec<String>,
}

/// What became of the log of slow calls.
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
    /// Since the schedule began.
    pub elapsed_s: f64,
    /// Whether this is still warm-up.
    pub warming_up: bool,
    /// Calls that ended with OK in this second.
    pub ok: u64,
    /// Calls that ended otherwise in this second.
    pub errors: u64,
    /// Latency from the intended time, this second's OK calls.
    pub latency: Quantiles,
    /// Calls waiting for their response.
    pub in_flight: usize,
}

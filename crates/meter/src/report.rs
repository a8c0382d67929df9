//! Every JSON shape that users see, in one place: the API, `spangap gaps --json` and the page share it.
//! Units end the keys. The page's TypeScript types are held to these by a test.

use crate::explain::Explanation;
use serde::{Deserialize, Serialize};
use spangap_model::Accounting;
use spangap_model::accounting::Malformed;
use std::collections::BTreeMap;

/// Quantiles of one distribution. `ci95` is the 95 % confidence interval `[low, high]` of the same quantile:
/// bucket width and sampling error together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Calls in the distribution.
    pub count: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 95th percentile.
    pub p95_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Largest value.
    pub max_ns: u64,
    /// Absent when `max_ns` is exact. Else the largest value was taken back, of a call that turned out to have several
    /// attempts, and what is now the largest lies between this and `max_ns`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_low_ns: Option<u64>,
    /// Exact mean.
    pub mean_ns: u64,
    /// 95 % interval of the median.
    pub p50_ci95_ns: [u64; 2],
    /// 95 % interval of the 99th percentile.
    pub p99_ci95_ns: [u64; 2],
}

/// A leg: its distribution, and how far each figure may be off because the hosts' clocks differ.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LegReport {
    /// The distribution by the midpoint of the clock offset interval.
    #[serde(flatten)]
    pub quantiles: Quantiles,
    /// Half-width of the widest offset interval among these calls: every figure is true to within this.
    pub bound_ns: u64,
    /// Mean half-width over these calls.
    pub bound_mean_ns: u64,
}

/// One row of the gap table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PairRow {
    /// Calling service; `SERVICE@PART` where parts of it are kept apart (`--by`).
    pub client: String,
    /// Called service.
    pub server: String,
    /// Method, when told apart.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub method: Option<String>,
    /// Calls in the distributions.
    pub calls: u64,
    /// Client duration minus server duration.
    pub gap: Quantiles,
    /// Client span durations of the same calls.
    pub client_duration: Quantiles,
    /// Server span durations of the same calls.
    pub server_duration: Quantiles,
    /// 99th percentile of the client's durations.
    pub client_p99_ns: u64,
    /// 99th percentile of the server's durations.
    pub server_p99_ns: u64,
    /// Sum of all gaps: what a fix could win.
    pub lost_ns_total: u64,
    /// Calls whose server span was the longer one, counted apart.
    pub negative: u64,
    /// The same by client status.
    pub negative_by_status: BTreeMap<String, u64>,
    /// Calls with more than one attempt, counted apart.
    pub attempts_over_one: u64,
    /// Calls excluded for the size of their response.
    pub excluded_large: u64,
    /// Share of the calls with one attempt whose spans tell the size of the response: only these can be excluded for it.
    /// Null without such calls.
    pub size_known_ratio: Option<f64>,
    /// Client start to server start; absent when no call's clock offset is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub request_leg: Option<LegReport>,
    /// Server end to client end; absent when no call's clock offset is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub response_leg: Option<LegReport>,
    /// Time between the arrivals of the two spans at the meter; 1 ms resolution.
    pub mate_delay: Quantiles,
    /// Share of the client service's CLIENT spans that found their mate, over the meter's life.
    pub client_match_ratio: Option<f64>,
    /// Share of the server service's SERVER spans that found their mate, over the meter's life.
    pub server_match_ratio: Option<f64>,
    /// The calls with the largest gap.
    pub worst: Vec<WorstRow>,
    /// Absent when `worst` is exact. Else so many calls were taken back, because they had several attempts, that calls with
    /// a gap up to this may be missing.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub worst_complete_above_ns: Option<u64>,
    /// The same pair in the stretch of time that it is compared with; absent unless one was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub before: Option<PairBefore>,
    /// Time lost in each step of the stretch, oldest first; absent unless asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost_ns_by_step: Option<Vec<u64>>,
}

/// A pair in the stretch of time that another is compared with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PairBefore {
    /// Calls in the distributions.
    pub calls: u64,
    /// Gap.
    pub gap: Quantiles,
    /// Client span durations of the same calls.
    pub client_duration: Quantiles,
    /// Server span durations of the same calls.
    pub server_duration: Quantiles,
    /// Sum of all gaps.
    pub lost_ns_total: u64,
}

/// One of the worst calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorstRow {
    /// 32 hex digits.
    pub trace_id: String,
    /// 16 hex digits.
    pub client_span_id: String,
    /// Client duration minus server duration.
    pub gap_ns: u64,
    /// Duration of the CLIENT span.
    pub client_ns: u64,
    /// Duration of the SERVER span.
    pub server_ns: u64,
    /// Start of the CLIENT span, client clock.
    pub start_unix_ns: u64,
    /// How the call ended.
    pub status: String,
    /// How the gap divides; absent when the hosts' clock offset was not known when the call was joined.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub legs: Option<CallLegs>,
    /// Client's host, if known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub client_host: Option<String>,
    /// Server's host, if known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub server_host: Option<String>,
    /// Whether both spans are held whole and can be shown.
    pub whole: bool,
}

/// The two legs of one call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallLegs {
    /// Client start to server start; the response leg is the rest of the gap.
    pub request_ns: u64,
    /// Each leg may be off by this much either way.
    pub bound_ns: u64,
}

/// What the meter saw and did not see.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    /// Where every span went; sums to `received`.
    pub spans: SpanCounts,
    /// Share of settled CLIENT and SERVER spans that found their mate.
    pub match_ratio: Option<f64>,
    /// Why spans were malformed.
    pub malformed: MalformedCounts,
    /// Time between the arrivals of two mates, all pairs.
    pub mate_delay: Quantiles,
    /// Match ratios of each service in both roles.
    pub services: Vec<ServiceCoverage>,
    /// Bytes of the store of pending spans now, and its limit.
    pub pending_bytes: u64,
    /// The limit of `pending_bytes`.
    pub pending_bytes_limit: u64,
    /// Bytes of whole spans held for the worst calls.
    pub whole_bytes: u64,
    /// Age of the oldest whole span held: mates later than this lose the first span's attributes. Null while
    /// the ring has not yet been full.
    pub whole_span_horizon_ms: Option<u64>,
    /// Requests refused because the meter was overloaded (the sender was told to retry).
    pub refused_requests: u64,
    /// Requests that could not be decoded.
    pub invalid_requests: u64,
    /// Requests that did not arrive within their deadlines (the sender was told).
    pub slow_requests: u64,
    /// Requests dropped while they were still arriving slowly, because others needed their room (the sender was told to
    /// retry).
    pub displaced_requests: u64,
    /// Answers cut off because their readers were slow and others waited for their places.
    pub displaced_answers: u64,
    /// Bytes of requests in hand now, as far as they have arrived.
    pub request_bytes: u64,
    /// The limit of `request_bytes`.
    pub request_bytes_limit: u64,
    /// Connections of each port.
    pub ports: Vec<PortReport>,
    /// Every store that has a limit.
    pub limits: Vec<LimitReport>,
    /// Calls of pairs past the series limit, counted in the pair `other`.
    pub calls_in_other: u64,
    /// Joined calls whose legs are unknown: no host name, too few calls between the hosts, or clocks that contradict.
    pub calls_without_legs: u64,
    /// Calls with one attempt for which neither span tells the size of the response: these are never excluded for it.
    pub calls_without_size: u64,
    /// Calls with a larger response are excluded, in bytes; null when none are.
    pub exclude_response_over_bytes: Option<u64>,
    /// Seconds since the meter started.
    pub uptime_s: u64,
    /// Stretches of the stored history in which no meter was recording.
    pub holes: Vec<Hole>,
    /// What a reader should know of the history and the clock, in words.
    pub notes: Vec<String>,
    /// What the history holds, and what waits to get there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub history: Option<HistoryCoverage>,
    /// Whole traces, where they are kept: `--keep-spans`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kept: Option<KeptCoverage>,
}

/// All spans of a short while, on disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptCoverage {
    /// Spans on disk.
    pub spans: u64,
    /// Bytes on disk, the index included.
    pub bytes: u64,
    /// The limit of `bytes`; the oldest are dropped to keep it.
    pub bytes_limit: u64,
    /// Files.
    pub segments: u64,
    /// When the oldest span arrived; null while there is none.
    pub from_unix_ms: Option<u64>,
    /// Bytes of requests on their way to the disk.
    pub queued_bytes: u64,
    /// The limit of `queued_bytes`; requests beyond it are counted in `not_kept_queue`.
    pub queued_bytes_limit: u64,
    /// Spans not kept, because they came faster than they could be written. The meter's other figures have them.
    pub not_kept_queue: u64,
    /// Spans not kept, because the disk refused them.
    pub not_kept_disk: u64,
    /// Spans not kept, because their request is larger than the limit allows.
    pub not_kept_large: u64,
    /// Spans dropped after their time, or to make room for newer ones.
    pub forgotten_spans: u64,
    /// Files set aside because they were damaged.
    pub damaged_segments: u64,
}

/// What the history holds, as of the last checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistoryCoverage {
    /// Whether it outlives the process.
    pub stored: bool,
    /// Its size, write-ahead log included.
    pub bytes: u64,
    /// The size it is kept below: what is finest and oldest goes first.
    pub bytes_limit: u64,
    /// How far back each step reaches, finest first.
    pub steps: Vec<HistorySteps>,
    /// Rows of closed minutes that are not written yet; answers have them from memory.
    pub waiting_rows: u64,
    /// Memory that they take.
    pub waiting_bytes: u64,
    /// At this size the oldest of them are given up.
    pub waiting_bytes_limit: u64,
    /// Rows given up so.
    pub lost_rows: u64,
    /// Rows that could not be read and were left out of answers.
    pub damaged_rows: u64,
    /// Why the last checkpoint could not be written; null when it was.
    pub problem: Option<String>,
}

/// What the history holds in one step of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistorySteps {
    /// Length of a row's stretch.
    pub step_s: u64,
    /// Start of the oldest row; null while there is none.
    pub from_unix_s: Option<u64>,
    /// The same of the worst calls that are kept for this step.
    pub worst_from_unix_s: Option<u64>,
    /// Rows, one per pair and stretch.
    pub rows: u64,
    /// Their size, worst calls included.
    pub bytes: u64,
}

/// Connections of one port since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortReport {
    /// `otlp_grpc`, `otlp_http` or `http`.
    pub port: String,
    /// Connections open now.
    pub open: u64,
    /// Connections that may be open at once.
    pub limit: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Closed because no request came in time, or not all of its head.
    pub closed_no_request: u64,
    /// Closed after a long time without a request.
    pub closed_idle: u64,
    /// Closed because the peer did not read its answer.
    pub closed_not_reading: u64,
    /// Closed because all places were taken and a new connection needed one.
    pub closed_for_room: u64,
    /// Closed because TLS was expected, and no handshake came about.
    pub closed_no_tls: u64,
    /// New connections closed at once, because no other could be closed for them.
    pub refused: u64,
    /// Times that the system could not accept a connection, such as for lack of file descriptors.
    pub accept_errors: u64,
}

/// A store with a limit, and what became of what did not fit. Counts are since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LimitReport {
    /// What is limited. One that ends in `_bytes` is in bytes, the others are numbers of things.
    pub name: String,
    /// In it now.
    pub used: u64,
    /// The most that may be in it.
    pub limit: u64,
    /// Shortened to fit.
    pub cut: u64,
    /// Forgotten to make room, or because it was idle.
    pub forgotten: u64,
    /// Found no room.
    pub refused: u64,
}

/// Match ratios of one service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceCoverage {
    /// `service.name`.
    pub service: String,
    /// CLIENT spans that found their mate.
    pub client_joined: u64,
    /// CLIENT spans that did not in time.
    pub client_unmatched: u64,
    /// SERVER spans that found their mate.
    pub server_joined: u64,
    /// SERVER spans that did not in time.
    pub server_unmatched: u64,
}

/// A stretch of time for which nothing was recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hole {
    /// Last moment recorded before.
    pub from_unix_s: u64,
    /// First moment recorded after.
    pub to_unix_s: u64,
}

/// [`Accounting`] as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // each key is documented at spangap_model::Accounting
pub struct SpanCounts {
    pub received: u64,
    pub joined: u64,
    pub pending: u64,
    pub expired_client_only: u64,
    pub expired_server_only: u64,
    pub evicted: u64,
    pub duplicate: u64,
    pub extra_attempts: u64,
    pub root: u64,
    pub other_kind: u64,
    pub malformed: u64,
}

impl SpanCounts {
    /// The sum of all classes; equal to `received` at any moment.
    pub fn classified(&self) -> u64 {
        // Taken apart in full, so that a class added to the shape cannot be forgotten here.
        let SpanCounts {
            received: _,
            joined,
            pending,
            expired_client_only,
            expired_server_only,
            evicted,
            duplicate,
            extra_attempts,
            root,
            other_kind,
            malformed,
        } = self;
        joined
            + pending
            + expired_client_only
            + expired_server_only
            + evicted
            + duplicate
            + extra_attempts
            + root
            + other_kind
            + malformed
    }
}

impl From<&Accounting> for SpanCounts {
    fn from(a: &Accounting) -> Self {
        SpanCounts {
            received: a.received,
            joined: a.joined,
            pending: a.pending,
            expired_client_only: a.expired_client_only,
            expired_server_only: a.expired_server_only,
            evicted: a.evicted,
            duplicate: a.duplicate,
            extra_attempts: a.extra_attempts,
            root: a.root,
            other_kind: a.other_kind,
            malformed: a.malformed,
        }
    }
}

/// [`Malformed`] as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // each key is documented at spangap_model::accounting::Malformed
pub struct MalformedCounts {
    pub bad_id: u64,
    pub end_before_start: u64,
    pub no_time: u64,
    pub too_long: u64,
}

impl From<&Malformed> for MalformedCounts {
    fn from(m: &Malformed) -> Self {
        MalformedCounts {
            bad_id: m.bad_id,
            end_before_start: m.end_before_start,
            no_time: m.no_time,
            too_long: m.too_long,
        }
    }
}

/// `GET /api/v1/pairs` and `spangap gaps --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PairsReport {
    /// The stretch of time covered, in Unix seconds; both 0 for files.
    pub from_unix_s: u64,
    /// End of the stretch.
    pub to_unix_s: u64,
    /// First second that the figures really cover, when it is not the minute asked for: the history has only coarser
    /// steps left of that time, or does not reach back so far.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub covered_from_unix_s: Option<u64>,
    /// Pairs left out because the answer would have been too large: those that lost the least time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pairs_left_out: Option<u64>,
    /// Pairs, most time lost first unless asked for otherwise.
    pub pairs: Vec<PairRow>,
    /// All pairs that the filters let through, of which `pairs` may be a page; absent for files.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub matching: Option<Matching>,
    /// The stretch of time compared with, as `[from, to]` in Unix seconds; absent unless one was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub against_unix_s: Option<[u64; 2]>,
    /// Length of a step of `lost_ns_by_step`; absent unless asked for. The first step starts at or before
    /// `from_unix_s`, at a multiple of this length.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub step_s: Option<u64>,
    /// Where every span went.
    pub spans: SpanCounts,
    /// What could not be read; always empty for the service.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub skipped: Vec<Skipped>,
    /// What sets the slow calls of the pairs apart, where that was asked for; the service has it at `/api/v1/explain`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub explain: Option<Vec<Explanation>>,
}

/// Sums over every pair that the filters let through.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Matching {
    /// How many pairs.
    pub pairs: u64,
    /// How many pairs there are without the filters.
    pub of_pairs: u64,
    /// Calls in their distributions.
    pub calls: u64,
    /// Sum of all their gaps.
    pub lost_ns_total: u64,
    /// Sum of all their gaps in the stretch compared with; absent unless one was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost_before_ns_total: Option<u64>,
}

/// `GET /api/v1/timeline`: time lost by all pairs that the filters let through.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// The stretch of time asked for, in Unix seconds.
    pub from_unix_s: u64,
    /// End of the stretch.
    pub to_unix_s: u64,
    /// As in [`PairsReport`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub covered_from_unix_s: Option<u64>,
    /// Length of a step.
    pub step_s: u64,
    /// One a step, oldest first; steps without calls are absent.
    pub points: Vec<TimelinePoint>,
}

/// One step of the fleet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimelinePoint {
    /// Start of the step.
    pub unix_s: u64,
    /// Calls in the distributions.
    pub calls: u64,
    /// Sum of their gaps.
    pub lost_ns_total: u64,
}

/// `GET /api/v1/changes`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    /// Another word whenever an answer of the API may be another.
    pub version: String,
}

/// A part of a file that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    /// File name, `-` for standard input.
    pub file: String,
    /// Where: `line 7`, `offset 4096`.
    pub place: String,
    /// What was found and what was expected.
    pub reason: String,
    /// How many spans are lost by it, when it can be told.
    pub spans: Option<u64>,
}

/// `GET /api/v1/pair`: one pair over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PairOverTime {
    /// The whole stretch in one row.
    pub total: PairRow,
    /// One point a step; steps without calls are absent.
    pub points: Vec<PairPoint>,
    /// Length of a point: a minute, or ten minutes, an hour or a day where the stretch is long or only these are left.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub step_s: Option<u64>,
    /// As in [`PairsReport`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub covered_from_unix_s: Option<u64>,
    /// Latency heatmap of the gap.
    pub heatmap: Heatmap,
}

/// One step of one pair.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PairPoint {
    /// Start of the step.
    pub unix_s: u64,
    /// Whether it can still change.
    pub open: bool,
    /// Gap.
    pub gap: Quantiles,
    /// Client duration.
    pub client_duration: Quantiles,
    /// Server duration.
    pub server_duration: Quantiles,
    /// Sum of the gaps.
    pub lost_ns_total: u64,
}

/// Counts by minute and bucket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Heatmap {
    /// Exponential scale of the buckets (OpenTelemetry `scale`).
    pub scale: i32,
    /// Index of the first row of `counts`; bucket `i` is `(2^(i/2^scale), 2^((i+1)/2^scale)]` seconds.
    pub first_index: i32,
    /// Upper bounds of the rows in nanoseconds, lowest first.
    pub upper_bounds_ns: Vec<f64>,
    /// Starts of the columns.
    pub unix_s: Vec<u64>,
    /// Length of a column.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub step_s: Option<u64>,
    /// `counts[column][row]`.
    pub counts: Vec<Vec<u64>>,
}

/// `GET /api/v1/worst`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorstReport {
    /// Worst calls with their pair, largest gap first.
    pub calls: Vec<WorstOfPair>,
    /// Absent when none can be missing. Else calls with a gap up to this may be, because calls with several attempts had
    /// taken their places.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub complete_above_ns: Option<u64>,
}

/// A worst call with the pair it belongs to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorstOfPair {
    /// Calling service.
    pub client: String,
    /// Called service.
    pub server: String,
    /// Method, when told apart.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub method: Option<String>,
    /// The call.
    #[serde(flatten)]
    pub call: WorstRow,
}

/// `GET /api/v1/call`: one call with both spans.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallReport {
    /// The call in one row.
    #[serde(flatten)]
    pub call: WorstOfPair,
    /// CLIENT span as OTLP JSON: `{"resource": …, "span": …}`; null when it was no longer held.
    pub client_span: Option<serde_json::Value>,
    /// SERVER span, likewise.
    pub server_span: Option<serde_json::Value>,
}

/// `GET /api/v1/annotations`: what changed in the fleet, to be laid over figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Annotations {
    /// Services that got a version which they had not before, oldest first, since the meter started.
    pub versions: Vec<VersionRow>,
}

/// A new version of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VersionRow {
    /// When its first span came.
    pub unix_ms: u64,
    /// The service.
    pub service: String,
    /// Its `service.version`.
    pub version: String,
    /// The one that came before it.
    pub before: String,
}

/// Every error of the API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ApiError {
    /// What went wrong and what was expected.
    pub error: String,
}

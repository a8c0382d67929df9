//! All user-visible JSON shapes, shared by the API, `spangap gaps --json` and the page. Units end the keys. A
//! test compares the page's TypeScript types with these.

mod coverage;
mod note;
mod peer_state;

pub use coverage::{
    ClickHouseCoverage, Coverage, HistoryCoverage, HistorySteps, Hole, KafkaCoverage, KafkaPartition,
    KeptCoverage, KubernetesCoverage, LimitReport, MalformedCounts, PeerCoverage, PeersCoverage, PortReport,
    ServiceCoverage, SpanCounts,
};
pub use note::{Note, NoteLevel};
pub use peer_state::PeerState;

use crate::explain::Explanation;
use serde::{Deserialize, Serialize};
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
    /// Absent when `max_ns` is exact. Otherwise the largest value was retracted because its call had several
    /// attempts, and the current maximum lies between this and `max_ns`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_low_ns: Option<u64>,
    /// Exact mean.
    pub mean_ns: u64,
    /// 95 % interval of the median.
    pub p50_ci95_ns: [u64; 2],
    /// 95 % interval of the 99th percentile.
    pub p99_ci95_ns: [u64; 2],
}

/// A leg: its distribution, and the possible error of each figure due to the difference between the hosts'
/// clocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LegReport {
    /// The distribution, based on the midpoint of the clock offset interval.
    #[serde(flatten)]
    pub quantiles: Quantiles,
    /// Half-width of the widest offset interval among these calls: every figure is accurate to within this.
    pub bound_ns: u64,
    /// Mean half-width over these calls.
    pub bound_mean_ns: u64,
}

/// One row of the gap table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PairRow {
    /// Calling service; `SERVICE@PART` where services are divided into parts (`--by`).
    pub client: String,
    /// Called service.
    pub server: String,
    /// Method, if methods are separated.
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
    /// Sum of all gaps: the maximum gain of a fix.
    pub lost_ns_total: u64,
    /// Calls with a longer server span, counted separately.
    pub negative: u64,
    /// These calls by client status.
    pub negative_by_status: BTreeMap<String, u64>,
    /// Calls with more than one attempt, counted separately.
    pub attempts_over_one: u64,
    /// Calls excluded because of their response size.
    pub excluded_large: u64,
    /// Share of single-attempt calls whose spans state the response size: only these can be excluded because
    /// of it. Null without such calls.
    pub size_known_ratio: Option<f64>,
    /// Client start to server start; absent if no call's clock offset is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub request_leg: Option<LegReport>,
    /// Server end to client end; absent if no call's clock offset is known.
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
    /// Absent when `worst` is exact. Otherwise so many calls were retracted because they had several attempts
    /// that calls with a gap up to this may be missing.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub worst_complete_above_ns: Option<u64>,
    /// The same pair in the time range of the comparison; absent unless requested.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub before: Option<PairBefore>,
    /// Time of clients beyond the usual, if the pair has left it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub beyond: Option<BeyondUsual>,
    /// Time lost in each step of the time range, oldest first; absent unless requested.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost_ns_by_step: Option<Vec<u64>>,
    /// What clients waited in each of these steps: `lost_ns_by_step`, and the rest in the server's spans.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub client_ns_by_step: Option<Vec<u64>>,
}

/// Time that clients waited longer than usual, in the part of the time range since the pair left its usual durations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BeyondUsual {
    /// In all.
    pub client_ns_total: u64,
    /// Of it in the gap; the rest is in the server's spans.
    pub gap_ns_total: u64,
    /// Start of it, Unix milliseconds.
    pub since_unix_ms: u64,
}

/// A pair in the time range of the comparison.
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
    /// Status of the call.
    pub status: String,
    /// Division of the gap; absent if the hosts' clock offset was not known when the call was joined.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub legs: Option<CallLegs>,
    /// Client's host, if known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub client_host: Option<String>,
    /// Server's host, if known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub server_host: Option<String>,
    /// The client's address according to the spans, where both hosts have the same name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub client_address: Option<String>,
    /// The server's address, likewise.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub server_address: Option<String>,
    /// Whether both complete spans are available.
    pub whole: bool,
}

/// The two legs of one call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallLegs {
    /// Client start to server start; the response leg is the rest of the gap.
    pub request_ns: u64,
    /// Maximum error of each leg in either direction.
    pub bound_ns: u64,
}

/// `GET /api/v1/pairs` and `spangap gaps --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PairsReport {
    /// Start of the time range covered, in Unix seconds; 0, like the end, for files.
    pub from_unix_s: u64,
    /// End of the time range.
    pub to_unix_s: u64,
    /// First second actually covered, if it is not the requested minute: the history has only coarser steps
    /// left of that time, or does not reach back that far.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub covered_from_unix_s: Option<u64>,
    /// Whose calls these are, where a meter shares its minutes with others.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub of_meters: Option<OfMeters>,
    /// Pairs omitted to limit the size of the answer: those that lost the least time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pairs_left_out: Option<u64>,
    /// Pairs, by default sorted by decreasing time lost.
    pub pairs: Vec<PairRow>,
    /// All pairs that match the filters, of which `pairs` may be a page; absent for files.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub matching: Option<Matching>,
    /// Time range of the comparison, as `[from, to]` in Unix seconds; absent unless requested.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub against_unix_s: Option<[u64; 2]>,
    /// Step length of `lost_ns_by_step`; absent unless requested. The first step starts at or before
    /// `from_unix_s`, at a multiple of this length.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub step_s: Option<u64>,
    /// Accounting of all spans.
    pub spans: SpanCounts,
    /// Parts of files that could not be read; always empty for the service.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub skipped: Vec<Skipped>,
    /// Attributes that distinguish the slow calls of the pairs, if requested; the service provides them at
    /// `/api/v1/explain`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub explain: Option<Vec<Explanation>>,
}

/// Sums over all pairs that match the filters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Matching {
    /// Number of matching pairs.
    pub pairs: u64,
    /// Number of pairs without the filters.
    pub of_pairs: u64,
    /// Calls in their distributions.
    pub calls: u64,
    /// Sum of all their gaps.
    pub lost_ns_total: u64,
    /// Sum of all their gaps in the time range of the comparison; absent unless requested.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost_before_ns_total: Option<u64>,
}

/// `GET /api/v1/timeline`: time lost by all pairs that match the filters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Start of the requested time range, in Unix seconds.
    pub from_unix_s: u64,
    /// End of the time range.
    pub to_unix_s: u64,
    /// As in [`PairsReport`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub covered_from_unix_s: Option<u64>,
    /// As in [`PairsReport`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub of_meters: Option<OfMeters>,
    /// Length of a step.
    pub step_s: u64,
    /// One point per step, oldest first; steps without calls are absent.
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
    /// What their clients waited: that, and the rest in the server's spans.
    pub client_ns_total: u64,
}

/// `GET /api/v1/changes`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    /// Changes whenever an answer of the API may have changed.
    pub version: String,
}

/// A part of a file that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    /// File name, `-` for standard input.
    pub file: String,
    /// Place: `line 7`, `offset 4096`.
    pub place: String,
    /// What was found and what was expected.
    pub reason: String,
    /// Number of spans lost with it, if known.
    pub spans: Option<u64>,
}

/// `GET /api/v1/pair`: one pair over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PairOverTime {
    /// The whole time range in one row.
    pub total: PairRow,
    /// One point per step; steps without calls are absent.
    pub points: Vec<PairPoint>,
    /// Length of a point: a minute, or ten minutes, an hour or a day if the time range is long or only these
    /// remain.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub step_s: Option<u64>,
    /// As in [`PairsReport`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub covered_from_unix_s: Option<u64>,
    /// As in [`PairsReport`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub of_meters: Option<OfMeters>,
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
    /// Absent when none can be missing. Otherwise calls with a gap up to this may be, because calls with
    /// several attempts had displaced them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub complete_above_ns: Option<u64>,
    /// As in [`PairsReport`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub of_meters: Option<OfMeters>,
}

/// Whose calls an answer contains.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OfMeters {
    /// The meters that have sent minutes; empty if the answer is of this meter alone.
    pub meters: Vec<MeterReach>,
    /// The same in words, and what is not among them.
    pub note: String,
}

/// How far the minutes of one meter reach.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeterReach {
    /// Its name.
    pub name: String,
    /// End of its last closed minute, Unix seconds.
    pub to_unix_s: u64,
}

/// A worst call with the pair it belongs to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorstOfPair {
    /// Calling service.
    pub client: String,
    /// Called service.
    pub server: String,
    /// Method, if methods are separated.
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
    /// CLIENT span as OTLP JSON: `{"resource": …, "span": …}`; null if it was no longer available.
    pub client_span: Option<serde_json::Value>,
    /// SERVER span, likewise.
    pub server_span: Option<serde_json::Value>,
}

/// `GET /api/v1/annotations`: changes in the fleet, to be overlaid on figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Annotations {
    /// New versions of services since the meter started, oldest first.
    pub versions: Vec<VersionRow>,
}

/// A new version of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VersionRow {
    /// Arrival of its first span.
    pub unix_ms: u64,
    /// The service.
    pub service: String,
    /// Its `service.version`.
    pub version: String,
    /// The previous version.
    pub before: String,
}

/// Every error of the API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ApiError {
    /// What went wrong and what was expected.
    pub error: String,
}

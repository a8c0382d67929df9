//! A client service and the server service it calls, with the statistics of their calls over a period.

use crate::histogram::Histogram;
use crate::shared::SharedBytes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name of the pair that collects the calls of all pairs beyond the series limit.
pub const OTHER: &str = "other";

/// Caller, callee and, on request, method.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PairKey {
    /// Service of the CLIENT span's resource: `service.name`, or `namespace/name` if there is a namespace.
    pub client: Arc<str>,
    /// Service of the SERVER span's resource, likewise.
    pub server: Arc<str>,
    /// Method, only if the meter distinguishes methods.
    pub method: Option<Arc<str>>,
}

/// Outcome of a call, according to its CLIENT span. The most specific code wins: gRPC, then HTTP status class,
/// then the span's own status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallStatus(u8);

const GRPC_BASE: u8 = 16;
const GRPC_NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

impl CallStatus {
    /// The span says nothing about its status.
    pub const UNSET: CallStatus = CallStatus(0);

    /// From the span's own status code (`Status.code` of OTLP: 1 ok, 2 error).
    pub fn from_span_code(code: u64) -> Self {
        CallStatus(if code == 1 || code == 2 { code as u8 } else { 0 })
    }

    /// From an HTTP response status code; anything outside 100-599 is unset.
    pub fn from_http(code: u64) -> Self {
        CallStatus(if (100..600).contains(&code) { (code / 100) as u8 + 2 } else { 0 })
    }

    /// From a gRPC status code (0 to 16); anything else is `UNKNOWN`, as gRPC itself treats it.
    pub fn from_grpc(code: u64) -> Self {
        CallStatus(GRPC_BASE + if code < 17 { code as u8 } else { 2 })
    }

    /// From a gRPC status name such as `DEADLINE_EXCEEDED`; `None` if unknown.
    pub fn from_grpc_name(name: &str) -> Option<Self> {
        GRPC_NAMES.iter().position(|n| *n == name).map(|i| Self::from_grpc(i as u64))
    }

    /// Stable name in metrics, JSON and the page.
    pub fn name(self) -> &'static str {
        match self.0 {
            1 => "span_ok",
            2 => "span_error",
            3 => "http_1xx",
            4 => "http_2xx",
            5 => "http_3xx",
            6 => "http_4xx",
            7 => "http_5xx",
            c if (GRPC_BASE..GRPC_BASE + 17).contains(&c) => GRPC_NAMES[(c - GRPC_BASE) as usize],
            _ => "unset",
        }
    }

    /// Whether clients try again after it: a server that is down, busy or broken, or a deadline that has passed. Of HTTP,
    /// only the class is known here; 408, 425 and 429 are for the caller to add.
    pub fn is_retryable(self) -> bool {
        const RETRYABLE: [u8; 6] = [2, 4, 8, 10, 13, 14];
        self == CallStatus::from_http(500)
            || RETRYABLE.iter().any(|code| self == CallStatus::from_grpc(u64::from(*code)))
    }

    /// A number below 64 for this status; [`CallStatus::from_code`] is the inverse.
    pub fn code(self) -> u8 {
        self.0
    }

    /// The status with this [`CallStatus::code`].
    pub fn from_code(code: u8) -> Self {
        CallStatus(code)
    }
}

/// One side of a retained call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSide {
    /// Unix time of the span's start in nanoseconds, on its own host's clock.
    pub start_unix_ns: u64,
    /// Duration in nanoseconds.
    pub duration_ns: u64,
    /// Host of the span (`k8s.node.name`, `host.id` or `host.name`), if known.
    pub host: Option<Arc<str>>,
    /// The whole span, if it was still in memory when its mate arrived: OTLP `Resource` and `Span` messages.
    pub whole: Option<WholeSpan>,
}

/// A span as received, in OTLP protobuf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeSpan {
    /// Encoded `opentelemetry.proto.resource.v1.Resource`.
    pub resource: SharedBytes,
    /// Encoded `opentelemetry.proto.trace.v1.Span`.
    pub span: SharedBytes,
}

/// Division of a call's gap into its two legs, as far as the hosts' clock offset was known at the join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLegs {
    /// Client start to server start in nanoseconds; the response leg is the rest of the gap.
    pub request_ns: u64,
    /// Error bound of each leg in either direction, in nanoseconds.
    pub bound_ns: u64,
}

/// A call retained with both spans: one of those with the largest gap of its pair and window, or one of a
/// sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptCall {
    /// Client duration minus server duration, in nanoseconds.
    pub gap_ns: u64,
    /// Trace id as sixteen bytes.
    pub trace_id: [u8; 16],
    /// Span id of the CLIENT span.
    pub client_span_id: [u8; 8],
    /// Outcome.
    pub status: CallStatus,
    /// Legs, if the hosts' clock offset was known.
    pub legs: Option<CallLegs>,
    /// The CLIENT span.
    pub client: KeptSide,
    /// The SERVER span.
    pub server: KeptSide,
}

impl KeptCall {
    /// Order of the worst list. Ties are broken by trace id, so that it does not depend on the order of
    /// arrival.
    fn rank(&self) -> (std::cmp::Reverse<u64>, [u8; 16], [u8; 8]) {
        (std::cmp::Reverse(self.gap_ns), self.trace_id, self.client_span_id)
    }
}

/// Statistics of one pair over one period.
#[derive(Clone, Debug, Default)]
pub struct PairStats {
    /// Client duration minus server duration, for calls with one attempt, not negative, not excluded for size.
    pub gap: Histogram,
    /// Client durations of the same calls.
    pub client: Histogram,
    /// Server durations of the same calls.
    pub server: Histogram,
    /// Client start to server start, by the midpoint of the clock offset, of those calls for which it is known.
    pub request_leg: Histogram,
    /// Server end to client end, likewise; the request and response legs of a call sum to its gap exactly.
    pub response_leg: Histogram,
    /// Largest half-width of the clock offset interval among those calls: each leg is accurate to within this.
    pub leg_bound_max_ns: u64,
    /// Sum of the half-widths, for their mean over the calls that have legs; includes calls retracted since.
    pub leg_bound_sum_ns: u128,
    /// Time between the arrivals of the two spans, for every joined call; 1 ms resolution.
    pub mate_delay: Histogram,
    /// Calls whose server span was longer than the client span, by client status.
    pub negative: BTreeMap<CallStatus, u64>,
    /// Calls with more than one SERVER span under the CLIENT span.
    pub attempts_over_one: u64,
    /// Calls excluded because their response was over the size limit.
    pub excluded_large: u64,
    /// Calls with one attempt whose response size is known, including excluded ones.
    pub sized: u64,
    /// The calls with the largest gap, largest first.
    pub worst: Vec<KeptCall>,
    /// Number of worst calls retained: at least [`WORST_KEPT`]. A pair whose calls are often retracted needs
    /// candidates to replace them.
    pub worst_room: u32,
    /// Calls with a smaller gap than this may be missing in `worst`: there was no room for them when they came,
    /// although retractions made room later.
    pub worst_floor_ns: u64,
}

/// Minimum number of worst calls retained per pair and window.
pub const WORST_KEPT: usize = 10;

impl PairStats {
    /// Calls in the main distributions.
    pub fn calls(&self) -> u64 {
        self.gap.count()
    }

    /// Calls with one attempt.
    pub fn single_calls(&self) -> u64 {
        self.calls() + self.negative.values().sum::<u64>() + self.excluded_large
    }

    /// All joined calls, whatever their class.
    pub fn joined_calls(&self) -> u64 {
        self.single_calls() + self.attempts_over_one
    }

    /// Whether it contains no call at all.
    pub fn is_empty(&self) -> bool {
        self.joined_calls() == 0 && self.mate_delay.count() == 0
    }

    /// Adds everything of `other`; the largest [`WORST_KEPT`] worst calls stay.
    pub fn merge(&mut self, other: &PairStats) {
        self.merge_distributions(other);
        for call in &other.worst {
            if self.would_keep(call.gap_ns) {
                self.keep_worst(call.clone());
            }
        }
    }

    /// Adds everything of `other` except its worst calls.
    pub fn merge_distributions(&mut self, other: &PairStats) {
        self.gap.merge(&other.gap);
        self.client.merge(&other.client);
        self.server.merge(&other.server);
        self.request_leg.merge(&other.request_leg);
        self.response_leg.merge(&other.response_leg);
        self.leg_bound_max_ns = self.leg_bound_max_ns.max(other.leg_bound_max_ns);
        self.leg_bound_sum_ns += other.leg_bound_sum_ns;
        self.mate_delay.merge(&other.mate_delay);
        for (status, n) in &other.negative {
            *self.negative.entry(*status).or_default() += n;
        }
        self.attempts_over_one += other.attempts_over_one;
        self.excluded_large += other.excluded_large;
        self.sized += other.sized;
        self.worst_floor_ns = self.worst_floor_ns.max(other.worst_floor_ns);
    }

    /// Maximum number of worst calls.
    #[inline]
    fn room(&self) -> usize {
        (self.worst_room as usize).max(WORST_KEPT)
    }

    /// Whether a call with this gap would be among the worst; cheap, so that the call is only built if so.
    #[inline]
    pub fn would_keep(&self, gap_ns: u64) -> bool {
        self.worst.len() < self.room() || self.worst.last().is_some_and(|w| gap_ns > w.gap_ns)
    }

    /// Adds a call to the worst list, and drops the smallest one if there are too many.
    pub fn keep_worst(&mut self, call: KeptCall) {
        let at = self.worst.partition_point(|w| w.rank() < call.rank());
        self.worst.insert(at, call);
        self.worst.truncate(self.room());
    }

    /// Removes a call from the worst list; false if it is not in it.
    pub fn forget_worst(&mut self, gap_ns: u64, trace_id: &[u8; 16], client_span_id: &[u8; 8]) -> bool {
        let rank = (std::cmp::Reverse(gap_ns), *trace_id, *client_span_id);
        let Ok(at) = self.worst.binary_search_by_key(&rank, KeptCall::rank) else { return false };
        if self.worst.len() >= self.room() {
            // Every call left out so far is no larger than the smallest in the list.
            let smallest = self.worst.last().map_or(0, |w| w.gap_ns);
            self.worst_floor_ns = self.worst_floor_ns.max(smallest);
        }
        self.worst.remove(at);
        true
    }

    /// Reduces the worst list to the calls shown: nothing will be retracted any more.
    pub fn drop_candidates(&mut self) {
        self.worst.truncate(WORST_KEPT);
        self.worst.shrink_to_fit();
        self.worst_room = 0;
    }

    /// A copy after [`PairStats::drop_candidates`].
    pub fn without_candidates(&self) -> PairStats {
        let mut copy = self.clone();
        copy.drop_candidates();
        copy
    }

    /// If the first `shown` worst calls may not be the true ones: every call with a larger gap than this is
    /// among them. `None` if the list is exact.
    pub fn worst_complete_above_ns(&self, shown: usize) -> Option<u64> {
        let last_shown = self.worst.get(shown.max(1) - 1).map_or(0, |w| w.gap_ns);
        (last_shown < self.worst_floor_ns).then_some(self.worst_floor_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(gap_ns: u64, id: u8) -> KeptCall {
        let side = KeptSide { start_unix_ns: 1, duration_ns: gap_ns, host: None, whole: None };
        KeptCall {
            gap_ns,
            trace_id: [id; 16],
            client_span_id: [id; 8],
            status: CallStatus::UNSET,
            legs: None,
            client: side.clone(),
            server: side,
        }
    }

    #[test]
    fn worst_calls_stay_sorted_and_bounded() {
        let mut stats = PairStats::default();
        for i in 0..50u8 {
            let gap = (i as u64 * 37) % 50;
            if stats.would_keep(gap) {
                stats.keep_worst(call(gap, i));
            }
        }
        let gaps: Vec<u64> = stats.worst.iter().map(|w| w.gap_ns).collect();
        assert_eq!(gaps, (40..50).rev().collect::<Vec<_>>());
        let top = (stats.worst[0].trace_id, stats.worst[0].client_span_id);
        assert!(stats.forget_worst(49, &top.0, &top.1));
        assert!(!stats.forget_worst(49, &top.0, &top.1));
        assert_eq!(stats.worst[0].gap_ns, 48);
        assert_eq!(stats.worst_complete_above_ns(9), None);
        assert_eq!(stats.worst_complete_above_ns(10), Some(40), "the tenth was dropped long ago");
    }

    #[test]
    fn status_codes_keep_their_names() {
        assert_eq!(CallStatus::from_grpc(4).name(), "DEADLINE_EXCEEDED");
        assert_eq!(CallStatus::from_grpc_name("UNAVAILABLE"), Some(CallStatus::from_grpc(14)));
        assert_eq!(CallStatus::from_http(503).name(), "http_5xx");
        assert_eq!(CallStatus::from_span_code(2).name(), "span_error");
        for code in 0..64 {
            assert_eq!(CallStatus::from_code(code).code(), code);
        }
    }
}

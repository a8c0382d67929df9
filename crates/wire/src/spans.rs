//! What the spans of a call say about its time: handed in by whoever read them.

use rustc_hash::FxHashMap;

/// Start and end of both spans of a call, Unix nanoseconds, each by its own host's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanTimes {
    /// The CLIENT span.
    pub client: Option<(i64, i64)>,
    /// The SERVER span.
    pub server: Option<(i64, i64)>,
}

/// Spans by (trace id, id of the CLIENT span): the pair that travels in the request's header.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    /// The times.
    pub times: FxHashMap<([u8; 16], [u8; 8]), SpanTimes>,
    /// Spans that contradict one known already (the same half twice); the first counts.
    pub duplicates: u64,
}

//! Spans whose start is truncated to milliseconds while their duration is not: OpenTelemetry for JavaScript reads the wall clock
//! with `Date.now()`, and adds a duration from the monotonic clock. The whole span is early by up to a millisecond, which is
//! longer than many calls take: it may end before the call's first byte leaves. Packets of the same host bound by how much.

use super::MILLISECOND_NS;
use crate::exchange::Exchange;
use spangap_model::Side;

/// By how much a span is too early, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Late {
    least: i64,
    most: i64,
}

impl Late {
    pub(super) fn middle(self) -> i64 {
        self.least + (self.most - self.least) / 2
    }

    /// How far from the middle the truth may be.
    pub(super) fn half(self) -> u64 {
        (self.most - self.least).unsigned_abs().div_ceil(2)
    }
}

/// By how much the span of a side is too early, given the packets at that side.
///
/// A client's call begins before its first byte leaves, and ends after the response is there; a server's begins after the first
/// byte of the request is there, and before the response leaves. Whatever cannot hold (a call that was given up) bounds nothing.
pub(super) fn by((start, end): (i64, i64), half: Option<&Exchange>, side: Side) -> Late {
    // Times that are both whole are truncated one by one.
    if start % MILLISECOND_NS != 0 || end % MILLISECOND_NS == 0 {
        return Late::default();
    }
    let response = half.and_then(|half| half.response.as_ref());
    let (before, after) = match side {
        Side::Client => (
            response.map(|response| response.last.ready_ns - end),
            half.map(|half| half.request.first.seen_ns),
        ),
        Side::Server => (
            half.map(|half| half.request.first.ready_ns - start),
            response.map(|response| response.first.seen_ns),
        ),
    };
    let possible = 0..MILLISECOND_NS;
    let most =
        after.map(|at| at - start).filter(|most| possible.contains(most)).unwrap_or(MILLISECOND_NS - 1);
    let least = before.filter(|least| (0..=most).contains(least)).unwrap_or(0);
    Late { least, most }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::{Mark, Part};

    const US: i64 = 1_000;

    fn exchange(request_us: i64, response_us: i64) -> Exchange {
        let at = |us: i64| Mark { seen_ns: us * US, ready_ns: us * US, ..Mark::default() };
        let part = |us: i64| Part { first: at(us), last: at(us), ..Part::default() };
        Exchange { request: part(request_us), response: Some(part(response_us)), ..Exchange::default() }
    }

    fn late(span_us: (i64, i64), half: Option<&Exchange>, side: Side) -> (i64, i64) {
        let Late { least, most } = by((span_us.0 * US, span_us.1 * US), half, side);
        (least / US, most / US)
    }

    #[test]
    fn a_start_in_whole_milliseconds_is_early_by_what_the_packets_allow() {
        // In truth from 700 to 1,150, the response being there at 1,100.
        let half = exchange(800, 1_100);
        assert_eq!(late((0, 450), Some(&half), Side::Client), (650, 800));
        // The server's: in truth from 900 to 1,050.
        assert_eq!(late((0, 150), Some(&half), Side::Server), (800, 999));
        assert_eq!(late((0, 150), Some(&exchange(800, 970)), Side::Server), (800, 970));
        // Nothing was captured there.
        assert_eq!(late((0, 150), None, Side::Client), (0, 999));
    }

    #[test]
    fn other_spans_stay_where_they_are() {
        let half = exchange(800, 1_100);
        for span in [(3, 450), (0, 2_000), (1_000, 5_000)] {
            assert_eq!(late(span, Some(&half), Side::Client), (0, 0), "{span:?}");
        }
    }

    #[test]
    fn a_call_that_was_given_up_ends_before_its_response() {
        // It came 4 ms after the end: no truncation explains that.
        assert_eq!(late((0, 450), Some(&exchange(200, 4_450)), Side::Client), (0, 200));
    }
}

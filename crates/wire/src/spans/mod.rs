//! Times of a call's spans, passed in by the caller that read them.

mod truncated;

use crate::exchange::Exchange;
use rustc_hash::FxHashMap;
use spangap_model::Side;

/// Times in whole milliseconds are most likely truncated to that unit.
pub(crate) const MILLISECOND_NS: i64 = 1_000_000;
/// Minimum precision of captures and most spans.
const MICROSECOND_NS: i64 = 1_000;

/// Start and end of both spans of a call, Unix nanoseconds, each by the clock of its own host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanTimes {
    /// The CLIENT span.
    pub client: Option<(i64, i64)>,
    /// The SERVER span.
    pub server: Option<(i64, i64)>,
    /// By how much each of them may be too early or too late as a whole, nanoseconds: by [`Side::index`].
    pub off_ns: [u64; 2],
}

impl SpanTimes {
    /// Selects the SERVER span of one attempt, as the server's tap saw it. All attempts of a call share one
    /// CLIENT span and one pair of ids. A SERVER span belongs to another attempt if it ended before the request's
    /// first byte arrived, or began after the response's last byte left.
    pub(crate) fn of_attempt(mut self, server: &Exchange, others: &[(i64, i64)]) -> SpanTimes {
        let all = self.server.into_iter().chain(others.iter().copied());
        let mut fitting = all.filter(|(start, end)| {
            // Also the start alone, with a duration of full precision: see [`truncated`].
            let cut = start % MILLISECOND_NS == 0;
            let exact_ns = if cut { MILLISECOND_NS } else { MICROSECOND_NS };
            let left_ns = server.response.as_ref().map_or(i64::MAX, |response| response.last.seen_ns);
            end.saturating_add(exact_ns) >= server.request.first.seen_ns
                && *start <= left_ns.saturating_add(exact_ns)
        });
        // If two fit, the choice is unknown.
        self.server = fitting.next().filter(|_| fitting.next().is_none());
        self
    }

    /// Places spans with truncated starts as well as the packets of their hosts allow.
    pub(crate) fn placed(mut self, halves: &[Option<Exchange>; 2]) -> SpanTimes {
        for (side, span) in [(Side::Client, &mut self.client), (Side::Server, &mut self.server)] {
            let Some(times) = span else { continue };
            let late = truncated::by(*times, halves[side.index()].as_ref(), side);
            (times.0, times.1) = (times.0 + late.middle(), times.1 + late.middle());
            self.off_ns[side.index()] = late.half();
        }
        self
    }
}

/// Trace id and id of the CLIENT span: the pair in the request's header.
pub type CallIds = ([u8; 16], [u8; 8]);

/// Spans by (trace id, id of the CLIENT span): the pair in the request's header.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    /// The times.
    pub times: FxHashMap<CallIds, SpanTimes>,
    /// Further SERVER spans of the same CLIENT span, from further attempts, in order of arrival.
    pub attempts: FxHashMap<CallIds, Vec<(i64, i64)>>,
    /// Server ports named by CLIENT spans.
    pub server_ports: FxHashMap<CallIds, u16>,
    /// Spans that contradict an earlier one (the same half twice); the first counts.
    pub duplicates: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::{Mark, Part};

    #[test]
    fn a_span_of_another_attempt_is_ignored() {
        const MS: i64 = 1_000_000;
        let at = |ms: i64| Mark { seen_ns: ms * MS, ready_ns: ms * MS, ..Mark::default() };
        let part = |from: i64, to: i64| Part { first: at(from), last: at(to), ..Part::default() };
        let attempt =
            Exchange { request: part(100, 110), response: Some(part(150, 160)), ..Exchange::default() };
        let unanswered = Exchange { response: None, ..attempt.clone() };
        let kept = |from_ms: i64, to_ms: i64, of: &Exchange| {
            let client = Some((0, 300 * MS));
            let times =
                SpanTimes { client, server: Some((from_ms * MS, to_ms * MS)), ..SpanTimes::default() }
                    .of_attempt(of, &[]);
            assert_eq!(times.client, client);
            times.server.is_some()
        };
        assert!(kept(105, 149, &attempt));
        assert!(!kept(20, 60, &attempt) && !kept(200, 240, &attempt));
        // An attempt that follows immediately.
        let span = SpanTimes { server: Some((20 * MS + 1, 100 * MS - 2_000)), ..SpanTimes::default() };
        assert_eq!(span.of_attempt(&attempt, &[]).server, None);
        // The span of this attempt is listed second; if two fit, neither is taken.
        let own = (105 * MS, 149 * MS);
        assert_eq!(span.of_attempt(&attempt, &[own]).server, Some(own));
        assert_eq!(span.of_attempt(&attempt, &[own, (106 * MS, 148 * MS)]).server, None);
        // It began early, ended early, or continues; or its times are truncated to milliseconds.
        assert!(kept(20, 101, &attempt) && kept(155, 240, &attempt) && kept(99, 99, &attempt));
        assert!(kept(200, 240, &unanswered) && !kept(20, 60, &unanswered));
    }
}

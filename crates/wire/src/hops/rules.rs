//! Rules for when one call may be the forwarded form of another.

use super::LinkedBy;
use crate::call::Halves;
use crate::exchange::{Ended, Exchange, TraceContext};
use crate::segment::Endpoint;
use spangap_model::{CallStatus, Side};
use std::rc::Rc;

/// Possible truncation of one tap's times, nanoseconds.
const SLACK_NS: i64 = 1_000;

/// When a tap saw a call, by its own clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtTap {
    /// Overall number of the capture.
    pub capture: usize,
    /// First byte of the request.
    pub from_ns: i64,
    /// First byte of the response.
    pub answered_ns: Option<i64>,
    /// Last byte of the call.
    pub to_ns: i64,
}

/// The facts by which links between calls are found.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Its connection: the section, and the number there.
    pub connection: (usize, u32),
    pub client: Endpoint,
    pub server: Endpoint,
    /// By the end at which the tap is.
    pub at: [Option<AtTap>; 2],
    /// Time between the first and the last byte at a tap. Spans do not count: an outer call and its hop carry the
    /// ids of one CLIENT span, which is as long as either.
    pub duration_ns: u64,
    pub trace: Option<TraceContext>,
    pub request_id: u64,
    /// `:path`, or the target of HTTP/1.
    pub path: Option<Rc<str>>,
    pub request_bytes: u64,
    pub response_bytes: Option<u64>,
    pub status: CallStatus,
    pub complete: bool,
}

impl Facts {
    /// Facts of a call on a connection; `captures` are the overall numbers of its section's captures.
    pub fn of(
        connection: (usize, u32),
        ends: [Endpoint; 2],
        halves: &Halves,
        captures: &[usize],
        path: Option<Rc<str>>,
    ) -> Facts {
        let at = |side: Side| {
            let half = halves.exchanges[side.index()].as_ref()?;
            let capture = *captures.get(usize::from(halves.captures[side.index()]))?;
            let (request, response) = (&half.request, half.response.as_ref());
            Some(match side {
                Side::Client => AtTap {
                    capture,
                    from_ns: request.first.seen_ns,
                    answered_ns: response.map(|response| response.first.ready_ns),
                    to_ns: response.map_or(request.last.seen_ns, |response| response.last.ready_ns),
                },
                Side::Server => AtTap {
                    capture,
                    from_ns: request.first.ready_ns,
                    answered_ns: response.map(|response| response.first.seen_ns),
                    to_ns: response.map_or(request.last.ready_ns, |response| response.last.seen_ns),
                },
            })
        };
        let known = || halves.exchanges.iter().flatten();
        let main = known().next();
        let whole = |half: &Exchange| half.ended == Ended::Complete && !half.doubts.hole;
        let at = [at(Side::Client), at(Side::Server)];
        let seen = at.iter().flatten().map(|at| u64::try_from(at.to_ns - at.from_ns).unwrap_or(0));
        Facts {
            connection,
            client: ends[0],
            server: ends[1],
            at,
            duration_ns: seen.max().unwrap_or(0),
            trace: known().find_map(|half| half.trace),
            request_id: known().map(|half| half.request_id).find(|id| *id != 0).unwrap_or(0),
            path,
            request_bytes: main.map_or(0, |half| half.request.body_bytes),
            response_bytes: main.and_then(|half| half.response).map(|response| response.body_bytes),
            status: known()
                .map(|half| half.status)
                .find(|status| *status != CallStatus::UNSET)
                .unwrap_or(CallStatus::UNSET),
            complete: main.is_some_and(whole),
        }
    }

    /// The tap at the proxy, or else the nearest one: for a call to it (`outer`), or by it.
    pub fn at_proxy(&self, outer: bool) -> Option<(Side, AtTap)> {
        let order = if outer { [Side::Server, Side::Client] } else { [Side::Client, Side::Server] };
        order.into_iter().find_map(|side| self.at[side.index()].map(|at| (side, at)))
    }
}

/// Clock number of each capture: equal numbers mean the same clock.
pub(crate) type Clocks<'a> = &'a [usize];

/// Taps of an outer and an inner call that share a clock, the nearest to the proxy first.
fn by_one_clock(outer: &Facts, inner: &Facts, clocks: Clocks<'_>) -> Option<(AtTap, AtTap)> {
    let outers = [outer.at[1], outer.at[0]].into_iter().flatten();
    outers
        .flat_map(|a| inner.at.into_iter().flatten().map(move |b| (a, b)))
        .find(|(a, b)| clocks.get(a.capture).is_some_and(|clock| Some(clock) == clocks.get(b.capture)))
}

/// Whether both are attempts of one client at one server, seen side by side by one tap. A proxy has its own
/// address or, if it hides behind those of others, sits between two taps.
fn are_attempts(one: &Facts, other: &Facts) -> bool {
    let seen_alike = || {
        let both = one.at.iter().zip(&other.at);
        both.filter_map(|(one, other)| one.as_ref().zip(other.as_ref())).any(|(a, b)| a.capture == b.capture)
    };
    one.client.address == other.client.address && one.server == other.server && seen_alike()
}

/// Whether the outer call contains the inner one; by durations alone if they share no clock.
pub(crate) fn nested(outer: &Facts, inner: &Facts, clocks: Clocks<'_>) -> bool {
    if outer.connection == inner.connection || are_attempts(outer, inner) {
        return false;
    }
    let Some((a, b)) = by_one_clock(outer, inner, clocks) else {
        return inner.duration_ns <= outer.duration_ns || !outer.complete || !inner.complete;
    };
    let began = a.from_ns <= b.from_ns + SLACK_NS && b.from_ns <= a.to_ns + SLACK_NS;
    let answered = b.answered_ns.zip(a.answered_ns).is_none_or(|(b, a)| b <= a + SLACK_NS);
    // A proxy that gave up may have answered by itself.
    began && (answered || !inner.complete || inner.status != outer.status)
}

/// Whether two paths are equal apart from a prefix that a proxy may add or remove.
fn same_path(a: &str, b: &str) -> bool {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    long == short || (short.len() > 1 && short.starts_with('/') && long.ends_with(short))
}

/// Whether both calls request the same; `None` if unknown.
fn same_request(outer: &Facts, inner: &Facts) -> Option<bool> {
    let paths = outer.path.as_deref().zip(inner.path.as_deref());
    paths.map(|(outer, inner)| same_path(outer, inner))
}

fn same_sizes(outer: &Facts, inner: &Facts) -> bool {
    outer.request_bytes == inner.request_bytes && outer.response_bytes == inner.response_bytes
}

/// The proof that the ids and the requests of both calls give, regardless of their times.
pub(crate) fn by_ids(outer: &Facts, inner: &Facts) -> Option<LinkedBy> {
    let traces = outer.trace.zip(inner.trace);
    let one_trace = traces.is_some_and(|(a, b)| a.trace_id == b.trace_id);
    let one_span = one_trace && traces.is_some_and(|(a, b)| a.span_id == b.span_id);
    let one_request = outer.request_id != 0 && outer.request_id == inner.request_id;
    // An application that passes its caller's headers on with its own calls is not a proxy.
    let asks = match same_request(outer, inner) {
        Some(same) => same || ((one_span || one_request) && same_sizes(outer, inner)),
        None => same_sizes(outer, inner),
    };
    let by = if one_span {
        LinkedBy::TraceContext
    } else if one_request {
        LinkedBy::RequestId
    } else {
        LinkedBy::TraceId
    };
    (asks && (one_trace || one_request)).then_some(by)
}

/// Whether the inner call has the outer one's content and lies within it by one clock of one host, and no id
/// contradicts that.
pub(crate) fn by_content(outer: &Facts, inner: &Facts, clocks: Clocks<'_>) -> bool {
    // The check that excludes most pairs comes first.
    let at_proxy = outer.at[1].zip(inner.at[0]);
    if at_proxy.is_none_or(|(a, b)| clocks.get(a.capture) != clocks.get(b.capture))
        || !nested(outer, inner, clocks)
    {
        return false;
    }
    let otherwise = outer.trace.zip(inner.trace).is_some_and(|(a, b)| a.trace_id != b.trace_id)
        || (outer.request_id != 0 && inner.request_id != 0 && outer.request_id != inner.request_id);
    let known = outer.complete && inner.complete && same_request(outer, inner) == Some(true);
    !otherwise && known && outer.status == inner.status && same_sizes(outer, inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(connection: u32, from_ns: i64, to_ns: i64) -> Facts {
        let at = AtTap { capture: 0, from_ns, answered_ns: Some(to_ns), to_ns };
        Facts {
            connection: (0, connection),
            client: Endpoint::v4([10, 0, 0, connection as u8], 1),
            server: Endpoint::v4([10, 0, 0, connection as u8 + 1], 2),
            at: [Some(at); 2],
            duration_ns: (to_ns - from_ns) as u64,
            trace: Some(TraceContext { trace_id: [1; 16], span_id: [1; 8] }),
            request_id: 0,
            path: Some("/shop.Cart/Add".into()),
            request_bytes: 10,
            response_bytes: Some(20),
            status: CallStatus::UNSET,
            complete: true,
        }
    }

    #[test]
    fn a_downstream_call_of_an_application_is_not_a_hop() {
        let outer = facts(1, 0, 1_000_000);
        let passed_on = facts(2, 10_000, 900_000);
        assert_eq!(by_ids(&outer, &passed_on), Some(LinkedBy::TraceContext));
        let own_span =
            Facts { trace: Some(TraceContext { trace_id: [1; 16], span_id: [2; 8] }), ..passed_on.clone() };
        assert_eq!(by_ids(&outer, &own_span), Some(LinkedBy::TraceId));
        // It passes the header on with a call of its own, or has a span of its own.
        let other = Facts { path: Some("/shop.Stock/Get".into()), request_bytes: 4, ..passed_on.clone() };
        assert_eq!(by_ids(&outer, &other), None);
        assert_eq!(by_ids(&outer, &Facts { trace: own_span.trace, ..other }), None);
        // A proxy removed the prefix.
        let api = Facts { path: Some("/api/shop.Cart/Add".into()), ..outer };
        assert_eq!(by_ids(&api, &passed_on), Some(LinkedBy::TraceContext));
        let short = Facts { path: Some("/Add".into()), ..own_span };
        assert_eq!(by_ids(&api, &short), Some(LinkedBy::TraceId));
    }

    #[test]
    fn times_are_compared_only_on_a_shared_clock() {
        let (outer, late) = (facts(1, 0, 1_000_000), facts(2, 2_000_000, 2_500_000));
        assert!(!nested(&outer, &late, &[0, 1]));
        let elsewhere = |facts: &Facts| {
            let at = facts.at[0].map(|at| AtTap { capture: 1, ..at });
            Facts { at: [at; 2], ..facts.clone() }
        };
        // By another clock, it may have been within.
        assert!(nested(&outer, &elsewhere(&late), &[0, 1]));
        assert!(!nested(&outer, &elsewhere(&late), &[0, 0]));
        let longer = elsewhere(&facts(2, 2_000_000, 4_000_000));
        assert!(!nested(&outer, &longer, &[0, 1]));
    }

    #[test]
    fn attempts_of_one_client_at_one_server_are_not_hops() {
        let first = Facts { response_bytes: None, complete: false, ..facts(1, 0, 1_000_000) };
        let again = Facts { client: first.client, server: first.server, ..facts(2, 900_000, 950_000) };
        assert!(!nested(&first, &again, &[0, 0]));
        // A proxy that hides behind its client's address has a tap on either side.
        let at = again.at[0].map(|at| AtTap { capture: 1, ..at });
        let behind = Facts { at: [None, at], ..again.clone() };
        assert!(nested(&Facts { at: [first.at[0], None], ..first.clone() }, &behind, &[0, 0]));
        assert!(nested(&first, &Facts { server: Endpoint::v4([10, 0, 0, 3], 2), ..again }, &[0, 0]));
    }

    #[test]
    fn content_links_only_uncontradicted_calls() {
        let plain = |facts: Facts| Facts { trace: None, ..facts };
        let (outer, inner) = (plain(facts(1, 0, 1_000_000)), plain(facts(2, 10_000, 900_000)));
        assert!(by_content(&outer, &inner, &[0]));
        assert!(!by_content(&inner, &outer, &[0]));
        assert!(!by_content(&outer, &Facts { request_bytes: 11, ..inner.clone() }, &[0]));
        assert!(
            !by_content(&outer, &Facts { request_id: 4, ..inner.clone() }, &[0]) || outer.request_id == 0
        );
        let other = TraceContext { trace_id: [9; 16], span_id: [1; 8] };
        let traced = facts(1, 0, 1_000_000);
        assert!(!by_content(&traced, &Facts { trace: Some(other), ..inner.clone() }, &[0]));
        assert!(!by_content(&outer, &Facts { path: None, ..inner }, &[0]));
    }
}

//! The finding `proxy`: a proxy's own time within a call.

use super::path::Inside;
use crate::call::{CallFinding, Halves, When};
use crate::episode::{PacketProof, What};
use crate::exchange::Mark;
use crate::findings::WORTH_NAMING_NS;
use crate::legs::Moments;
use crate::tcp::Handshake;
use spangap_model::evidence::{Certainty, Missing};
use spangap_model::{Cause, Side};

/// A call to a proxy.
pub(crate) struct Outer<'a> {
    pub halves: &'a Halves,
    pub moments: &'a Moments,
    pub duration_ns: u64,
    pub findings: &'a [CallFinding],
    /// The captures' overall numbers.
    pub captures: &'a [usize],
}

/// A call by which the proxy forwarded it.
pub(crate) struct Inner<'a> {
    pub halves: &'a Halves,
    pub duration_ns: u64,
    pub findings: &'a [CallFinding],
    pub captures: &'a [usize],
    /// The handshake of its connection, as seen at the proxy.
    pub handshake: Option<Handshake>,
}

/// Reports the proxy's own time if it made the call slow, and failed attempts if they did.
///
/// Both durations come from the proxy's own taps: from the complete request to the first byte of the response
/// there, minus the time of the hops. `waited_elsewhere` receives the interval at the proxy and that time, and
/// tells whether the proxy may have waited for another host. Time of the call's other findings does not belong to
/// the proxy, nor does opening a connection to the next host.
pub(crate) fn findings(
    outer: &Outer<'_>,
    hops: &[Inner<'_>],
    waited_elsewhere: impl FnOnce((i64, i64), u64) -> bool,
    out: &mut Vec<CallFinding>,
) {
    let most =
        |ns: i64| u64::try_from(ns).ok().filter(|ns| *ns >= WORTH_NAMING_NS && 2 * ns >= outer.duration_ns);
    let Some(inside) = Inside::of(outer.moments) else { return };
    let (Some(first), Some(last)) = (hops.first(), hops.last()) else { return };
    if let [failed @ .., _] = hops
        && !failed.is_empty()
        && let Some(cost_ns) = most(failed.iter().map(|hop| hop.duration_ns as i64).sum())
    {
        let evidence = failed.iter().filter_map(|hop| {
            let what = What::text("first byte of an attempt that another one followed");
            at(hop.halves, hop.captures, Side::Client, what, |half| Some(&half.request.first))
        });
        let evidence = evidence.take(4).collect();
        out.push(finding(Cause::Retries, Certainty::Shown, cost_ns, String::new(), evidence));
    }
    // Both sides of the proxy are required, without holes.
    let whole = |halves: &Halves, side: Side| {
        halves.exchanges[side.index()]
            .as_ref()
            .is_some_and(|half| !half.doubts.hole && half.response.is_some())
    };
    let ends = (inside.from.1, inside.to.1) == (Side::Server, Side::Server);
    if !ends || !whole(outer.halves, Side::Server) || !hops.iter().all(|hop| whole(hop.halves, Side::Client))
    {
        return;
    }
    let stay_ns = inside.to.0 - inside.from.0;
    let passed_ns: i64 = hops.iter().map(|hop| wire_ns(hop.halves)).sum();
    let opening_ns: i64 = hops.iter().map(|hop| opening_ns(hop, stay_ns)).sum();
    let is_app = |finding: &&CallFinding| {
        !matches!(
            finding.cause,
            Cause::ServerApp | Cause::ServerHostOrApp | Cause::ServerQueue | Cause::ClientApp
        )
    };
    let held = |finding: &CallFinding| finding.cost_ns.unwrap_or(0) as i64;
    let held_ns: i64 = outer.findings.iter().filter(is_app).map(held).sum::<i64>()
        + hops.iter().flat_map(|hop| hop.findings).filter(before_first_byte).map(held).sum::<i64>();
    let Some(cost_ns) = most(stay_ns - passed_ns - opening_ns - held_ns) else { return };
    let mut evidence = Vec::new();
    let mut note = |halves, captures, side, what, mark: fn(&crate::exchange::Exchange) -> Option<&Mark>| {
        evidence.extend(at(halves, captures, side, what, mark));
    };
    let (arrived, answered) = (Side::Server, Side::Client);
    note(
        outer.halves,
        outer.captures,
        arrived,
        What::text("last byte of the request at the proxy"),
        |half| Some(&half.request.last),
    );
    note(first.halves, first.captures, answered, What::text("first byte that the proxy passes on"), |half| {
        Some(&half.request.first)
    });
    note(
        last.halves,
        last.captures,
        answered,
        What::text("last byte of the response to the proxy"),
        |half| half.response.as_ref().map(|response| &response.last),
    );
    note(
        outer.halves,
        outer.captures,
        arrived,
        What::text("first byte of the response from the proxy"),
        |half| half.response.as_ref().map(|response| &response.first),
    );
    let certainty = match waited_elsewhere((inside.from.0, inside.to.0), cost_ns) {
        false => Certainty::Shown,
        true => Certainty::Possible(Missing::ProxyBackend),
    };
    let words = "In the proxy, or waiting for something other than TCP (a name lookup).".to_owned();
    out.push(finding(Cause::Proxy, certainty, cost_ns, words, evidence));
}

fn finding(
    cause: Cause,
    certainty: Certainty,
    cost_ns: u64,
    note: String,
    evidence: Vec<(u8, PacketProof)>,
) -> CallFinding {
    CallFinding {
        cause,
        certainty,
        side: None,
        when: When::Unknown,
        cost_ns: Some(cost_ns),
        note: note.into(),
        evidence,
    }
}

/// Time from a hop's first byte to its last at the proxy, regardless of spans.
fn wire_ns(halves: &Halves) -> i64 {
    let half = halves.exchanges[Side::Client.index()].as_ref();
    half.and_then(|half| Some(half.response.as_ref()?.last.ready_ns - half.request.first.seen_ns))
        .unwrap_or(0)
}

/// Time that a hop waited for its own connection: from the SYN to the first byte.
fn opening_ns(hop: &Inner<'_>, stay_ns: i64) -> i64 {
    let Some(half) = &hop.halves.exchanges[Side::Client.index()] else { return 0 };
    let Some((syn_ns, _)) = hop.handshake.and_then(|handshake| handshake.syn) else { return 0 };
    let waited_ns = half.request.first.seen_ns - syn_ns;
    if (0..=stay_ns).contains(&waited_ns) { waited_ns } else { 0 }
}

/// Whether a cause delays a call before its first byte.
fn before_first_byte(finding: &&CallFinding) -> bool {
    matches!(finding.cause, Cause::StreamLimit | Cause::SharedConnection | Cause::ConnectionPerCall)
}

fn at(
    halves: &Halves,
    captures: &[usize],
    side: Side,
    what: What,
    mark: impl FnOnce(&crate::exchange::Exchange) -> Option<&Mark>,
) -> Option<(u8, PacketProof)> {
    let capture = *captures.get(usize::from(halves.captures[side.index()]))?;
    let mark = mark(halves.exchanges[side.index()].as_ref()?)?;
    Some((capture as u8, PacketProof { packet: mark.packet, time_ns: mark.seen_ns, what }))
}

/// Removes findings that the hops of a forwarded call explain: blame on the server's application by its own ends,
/// and a missing answer if a hop was not answered either.
pub(crate) fn explained_by_hops(findings: &mut Vec<CallFinding>, unanswered: bool) {
    findings.retain(|finding| match finding.cause {
        Cause::ServerApp | Cause::ServerHostOrApp | Cause::ServerQueue => false,
        Cause::NoResponse => !unanswered,
        _ => true,
    });
}

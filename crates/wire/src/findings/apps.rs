//! The applications: the server's, the client's, and the queue in front of the server's.

use super::held::About;
use super::{Explained, WORTH_NAMING_NS, covered_ns};
use crate::call::{Finding, Halves, Note, When};
use crate::episode::{PacketProof, What};
use crate::exchange::{Exchange, Mark};
use spangap_model::evidence::{Certainty, Missing};
use spangap_model::{Cause, Side};

/// Adds findings about the applications. If only the picture fits, time that is `explained` by a shown cause is
/// not attributed to them.
pub(crate) fn findings(about: &About<'_>, explained: &[Explained], out: &mut Vec<Finding>) {
    let About { halves, moments, duration_ns, offset_ns, .. } = *about;
    if duration_ns < WORTH_NAMING_NS {
        return;
    }
    // For a call without a response, that module reports the server's time.
    let unanswered = super::unanswered::findings(about, explained, out);
    let most = |ns: i64| u64::try_from(ns).ok().filter(|ns| *ns >= WORTH_NAMING_NS && 2 * ns >= duration_ns);
    let at = |i: usize, side: Side| moments.0[i].filter(|(_, of)| *of == side).map(|(at, _)| at);
    let server = |i| at(i, Side::Server);
    let client = |i| at(i, Side::Client);
    let left_of = |from_ns: i64, to_ns: i64, wanted: &dyn Fn(&Explained) -> bool| {
        let ahead_ns = if halves.captures[Side::Server.index()] == 0 { 0 } else { offset_ns };
        let within = (from_ns - ahead_ns, to_ns - ahead_ns);
        (to_ns - from_ns).saturating_sub_unsigned(covered_ns(explained, within, wanted))
    };
    let rest = |from_ns: i64, to_ns: i64, side: Side| {
        let ahead_ns = if halves.captures[side.index()] == 0 { 0 } else { offset_ns };
        let within = (from_ns - ahead_ns, to_ns - ahead_ns);
        (to_ns - from_ns).saturating_sub_unsigned(covered_ns(explained, within, |span| span.shown))
    };
    let between = |from_ns: i64, to_ns: i64, side: Side| {
        let ahead_ns = if halves.captures[side.index()] == 0 { 0 } else { offset_ns };
        When::Between(from_ns - ahead_ns, to_ns - ahead_ns)
    };
    // If the server's tap does not show when the request was complete there, it was not before its last byte left
    // the client: the span's wait until then does not belong to the application, unless it answered before.
    let whole_ns = halves.exchanges[0].as_ref().filter(|half| server(3).is_none() && !half.doubts.hole);
    let whole_ns = whole_ns.and_then(|half| {
        let response = half.response.as_ref()?;
        Some(rest(half.request.last.seen_ns, response.last.ready_ns, Side::Client)).filter(|ns| *ns >= 0)
    });
    match (server(3).zip(server(6)), server(4).zip(server(5))) {
        _ if unanswered => {}
        (wire, Some((start, end))) => {
            // A span that goes on when the response has left, such as of a framework that ends it in a later turn, holds nothing
            // up any more.
            let end = server(7).map_or(end, |left| end.min(left));
            let span_ns = end - start;
            if let Some(cost) = most(whole_ns.map_or(span_ns, |whole_ns| whole_ns.min(span_ns))) {
                out.push(finding(
                    Cause::ServerApp,
                    Certainty::Shown,
                    Side::Server,
                    between(start, end, Side::Server),
                    cost,
                    server_evidence(halves),
                ));
            }
            if let Some((arrived, cost)) =
                wire.and_then(|(arrived, _)| Some((arrived, most(start - arrived)?)))
            {
                let when = between(arrived, start, Side::Server);
                let certainty = Certainty::Possible(Missing::ServerHost);
                out.push(finding(
                    Cause::ServerQueue,
                    certainty,
                    Side::Server,
                    when,
                    cost,
                    server_evidence(halves),
                ));
            }
        }
        (Some((arrived, answered)), None) => {
            // If both ends were captured completely, time that no other cause may have taken belongs to the
            // server's end; its span would tell which part of it.
            let whole =
                halves.exchanges.iter().all(|half| half.as_ref().is_some_and(|half| !half.doubts.hole));
            let bracketed = most(left_of(arrived, answered, &|_| true)).filter(|_| whole);
            let spanless = Certainty::Possible(Missing::ServerSpan);
            let found = match (bracketed, most(rest(arrived, answered, Side::Server))) {
                (Some(cost), _) => Some((Cause::ServerHostOrApp, Certainty::Shown, cost)),
                (None, cost) => cost.map(|cost| (Cause::ServerApp, spanless, cost)),
            };
            if let Some((cause, certainty, cost)) = found {
                let when = between(arrived, answered, Side::Server);
                out.push(finding(cause, certainty, Side::Server, when, cost, server_evidence(halves)));
            }
        }
        (None, None) => {}
    }
    let one_end = halves.exchanges[1].is_none() && !unanswered;
    if let Some(half) = halves.exchanges[0].as_ref().filter(|_| one_end && server(4).is_none())
        && let Some(response) = &half.response
        && let Some(cost) = most(rest(asked_ns(half), response.first.seen_ns, Side::Client))
    {
        let certainty = Certainty::Possible(Missing::ServerCapture);
        let when = between(asked_ns(half), response.first.seen_ns, Side::Client);
        let evidence = marks(halves.captures[0], &half.request.last, &response.first, true);
        out.push(finding(Cause::ServerApp, certainty, Side::Server, when, cost, evidence));
    }
    // Before its first byte and after its last one, the call involves only the client.
    let spent = |from: Option<i64>, to: Option<i64>| {
        from.zip(to).map_or(0, |(from, to)| rest(from, to, Side::Client).max(0) as u64)
    };
    let (out_ns, in_ns) = (spent(client(0), client(1)), spent(client(8), client(9)));
    let cost = out_ns + in_ns;
    if let (Some(cost), Some(half)) = (most(cost as i64), &halves.exchanges[0]) {
        let certainty = Certainty::Possible(Missing::ClientHost);
        let capture = halves.captures[0];
        let mut evidence = Vec::new();
        if out_ns > 0 {
            let what = What::with("first request byte, {us} after the CLIENT span began", out_ns / 1000, 0);
            evidence.push(shown(capture, half.request.first.packet, half.request.first.seen_ns, what));
        }
        if let Some(response) = half.response.as_ref().filter(|_| in_ns > 0) {
            let what = What::with("last response byte, {us} before the CLIENT span ended", in_ns / 1000, 0);
            evidence.push(shown(capture, response.last.ready_packet, response.last.ready_ns, what));
        }
        // Before the request, after the response, or both.
        out.push(finding(Cause::ClientApp, certainty, Side::Client, When::Unknown, cost, evidence));
    }
}

/// When a request was completely sent. At a tap that turns out to be the server's, its last byte may precede its
/// first.
fn asked_ns(half: &Exchange) -> i64 {
    half.request.last.seen_ns.max(half.request.first.seen_ns)
}

fn finding(
    cause: Cause,
    certainty: Certainty,
    side: Side,
    when: When,
    cost_ns: u64,
    evidence: Vec<(u8, PacketProof)>,
) -> Finding {
    Finding { cause, certainty, side: Some(side), when, cost_ns: Some(cost_ns), note: Note::None, evidence }
}

fn shown(capture: u8, packet: u64, time_ns: i64, what: What) -> (u8, PacketProof) {
    (capture, PacketProof { packet, time_ns, what })
}

fn server_evidence(halves: &Halves) -> Vec<(u8, PacketProof)> {
    let Some(half) = &halves.exchanges[1] else { return Vec::new() };
    let Some(response) = &half.response else { return Vec::new() };
    marks(halves.captures[1], &half.request.last, &response.first, false)
}

/// The packet that ends the request and the one that begins the response.
fn marks(capture: u8, request: &Mark, response: &Mark, client: bool) -> Vec<(u8, PacketProof)> {
    let (asked, answered) = if client {
        ((request.seen_ns, request.packet), (response.seen_ns, response.packet))
    } else {
        ((request.ready_ns, request.ready_packet), (response.seen_ns, response.packet))
    };
    let waited = (answered.0 - asked.0).max(0) as u64 / 1000;
    vec![
        shown(capture, asked.1, asked.0, What::text("last byte of the request")),
        shown(
            capture,
            answered.1,
            answered.0,
            What::with("first byte of the response, {us} later", waited, 0),
        ),
    ]
}

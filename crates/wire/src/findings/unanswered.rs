//! Calls that ended without a response: where they waited, and how sure that is.

use super::held::About;
use super::{Explained, WORTH_NAMING_NS, covered_ns, is_loss};
use crate::call::{CallFinding, Halves, When};
use crate::episode::{PacketProof, What};
use crate::exchange::{Ending, Stop};
use spangap_model::duration::format_ns;
use spangap_model::evidence::{Certainty, Missing};
use spangap_model::{Cause, Leg, Side};

const MAY_BE_LOST: Certainty = Certainty::Possible(Missing::ResponseSent);
const MAY_NOT_ARRIVE: Certainty = Certainty::Possible(Missing::RequestArrived);

/// Adds the finding about a call without a response; returns whether it is such a call. Time that is `explained`
/// by a shown cause is not attributed to the server.
pub(crate) fn findings(about: &About<'_>, explained: &[Explained], out: &mut Vec<CallFinding>) -> bool {
    let About { halves, moments, duration_ns, offset_ns, .. } = *about;
    let (Some(waited_in), Some(ending)) = (moments.1, halves.ending()) else { return false };
    if waited_in == Leg::ClientAppOut {
        // The request did not leave in time.
        return true;
    }
    let never_arrived = waited_in == Leg::RequestWire;
    if never_arrived {
        // The repeated retransmissions are part of the same event.
        out.retain(|finding| !is_loss(finding.cause));
    }
    let first_clock = |(at, side): (i64, Side)| {
        if halves.captures[side.index()] == 0 { at } else { at.saturating_sub(offset_ns) }
    };
    let known = |range: std::ops::Range<usize>| range.rev().find_map(|i| moments.0[i]);
    let (Some(from), Some(to)) = (known(0..8), moments.0[8].or(moments.0[9])) else { return true };
    let within = (first_clock(from), first_clock(to));
    let other = |span: &Explained| span.shown && !(never_arrived && is_loss(span.cause));
    let rest_ns = (within.1 - within.0).saturating_sub_unsigned(covered_ns(explained, within, other));
    let cost_ns = u64::try_from(rest_ns).unwrap_or(0).min(duration_ns);
    if cost_ns < WORTH_NAMING_NS || cost_ns.saturating_mul(2) < duration_ns {
        return true;
    }
    let (cause, side, certainty) = match (never_arrived, &halves.exchanges[Side::Server.index()]) {
        (true, _) => (Cause::BlackHole, None, Certainty::Shown),
        (false, Some(_)) if moments.0[3].is_some() => {
            (Cause::NoResponse, Some(Side::Server), Certainty::Shown)
        }
        _ if ending.request_acked => (Cause::NoResponse, Some(Side::Server), MAY_BE_LOST),
        _ => (Cause::NoResponse, Some(Side::Server), MAY_NOT_ARRIVE),
    };
    let (cost_ns, note) = (Some(cost_ns), note(halves, &ending).into());
    let when = When::Between(within.0, within.1);
    out.push(CallFinding {
        cause,
        certainty,
        side,
        when,
        cost_ns,
        note,
        evidence: evidence(halves, &ending),
    });
    true
}

/// What became of the request afterwards.
fn note(halves: &Halves, ending: &Ending) -> String {
    let time = |ns: i64| format_ns(ns.max(0).unsigned_abs());
    let [client, server] = &halves.exchanges;
    if let Some((server, response)) = server.as_ref().and_then(|server| Some((server, server.response?))) {
        let took = time(response.first.seen_ns - server.request.last.ready_ns);
        return format!(
            "the server answered {took} after the request arrived, when the call was already over"
        );
    }
    let late = client.as_ref().and_then(|client| client.response);
    let late = late.map(|response| time(response.first.seen_ns - ending.at_ns));
    late.map_or(String::new(), |late| format!("a response came {late} after the call was over"))
}

fn evidence(halves: &Halves, ending: &Ending) -> Vec<(u8, PacketProof)> {
    let mut all = Vec::with_capacity(3);
    let [client, server] = &halves.exchanges;
    let shown = |capture, packet, time_ns, what| (capture, PacketProof { packet, time_ns, what });
    if let Some(client) = client {
        let last = client.request.last;
        all.push(shown(
            halves.captures[0],
            last.packet,
            last.seen_ns,
            What::text("last byte of the request"),
        ));
    }
    if let Some(server) = server {
        let last = server.request.last;
        let what = What::text("last byte of the request is at the server");
        all.push(shown(halves.captures[1], last.ready_packet, last.ready_ns, what));
    }
    let (main, capture) = match (client, server) {
        (Some(client), _) => (client, halves.captures[0]),
        (None, Some(server)) => (server, halves.captures[1]),
        (None, None) => return all,
    };
    let waited_us = (ending.at_ns - main.request.last.seen_ns).max(0).unsigned_abs() / 1000;
    all.push(shown(capture, ending.packet, ending.at_ns, what_ended(ending, waited_us)));
    all
}

fn what_ended(ending: &Ending, waited_us: u64) -> What {
    let of = |text| What::with(text, waited_us, 0);
    match (ending.stop, ending.by) {
        (Stop::RstStream(code), Some(Side::Server)) => What::with(
            "the server ends it with RST_STREAM, error code {}, {us} later",
            u64::from(code),
            waited_us,
        ),
        (Stop::RstStream(code), _) => What::with(
            "the client ends it with RST_STREAM, error code {}, {us} later",
            u64::from(code),
            waited_us,
        ),
        (Stop::GoAway(code), _) => {
            What::with("GOAWAY, error code {}, leaves it out, {us} later", u64::from(code), waited_us)
        }
        (Stop::Fin, Some(Side::Server)) => of("the server closes the connection with FIN, {us} later"),
        (Stop::Fin, _) => of("the client closes the connection with FIN, {us} later"),
        (Stop::Rst, Some(Side::Server)) => of("the server's end resets the connection, {us} later"),
        (Stop::Rst, _) => of("the client's end resets the connection, {us} later"),
        (Stop::StillOpen, _) => of("the capture ends {us} later, without a response"),
    }
}

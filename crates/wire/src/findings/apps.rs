//! The applications: the server's, the client's, and the queue in front of the server's.

use super::held::About;
use super::{Explained, WORTH_NAMING_NS, covered_ns};
use crate::call::{CallFinding, Halves, Note, When};
use crate::episode::{PacketProof, What};
use crate::exchange::{Exchange, Mark};
use spangap_model::evidence::{Certainty, Missing};
use spangap_model::{Cause, Side};

/// Adds findings about the applications. If only the picture fits, time that is `explained` by a shown cause is
/// not attributed to them.
pub(crate) fn findings(about: &About<'_>, explained: &[Explained], out: &mut Vec<CallFinding>) {
    if about.duration_ns < WORTH_NAMING_NS {
        return;
    }
    // For a call without a response, that module reports the server's time.
    let unanswered = super::unanswered::findings(about, explained, out);
    let time = CallTime { about, explained };
    if !unanswered {
        let wire = time.server(3).zip(time.server(6));
        match (wire, time.server(4).zip(time.server(5))) {
            (wire, Some(span)) => by_server_span(&time, wire.map(|(arrived, _)| arrived), span, out),
            (Some(wire), None) => out.extend(by_both_taps(&time, wire)),
            (None, None) => {}
        }
        out.extend(by_clients_tap(&time));
    }
    out.extend(client_app(&time));
}

/// A call's time, and what is explained of it.
struct CallTime<'a> {
    about: &'a About<'a>,
    explained: &'a [Explained],
}

impl CallTime<'_> {
    /// A moment by the client's clock; `None` if that end does not show it.
    fn client(&self, moment: usize) -> Option<i64> {
        self.at(moment, Side::Client)
    }

    /// The same by the server's.
    fn server(&self, moment: usize) -> Option<i64> {
        self.at(moment, Side::Server)
    }

    fn at(&self, moment: usize, side: Side) -> Option<i64> {
        self.about.moments.0[moment].filter(|(_, of)| *of == side).map(|(at, _)| at)
    }

    /// An interval by the clock of one end, by that of the first capture.
    fn by_first_clock(&self, from_ns: i64, to_ns: i64, side: Side) -> (i64, i64) {
        let About { halves, offset_ns, .. } = *self.about;
        let ahead_ns = if halves.captures[side.index()] == 0 { 0 } else { offset_ns };
        (from_ns - ahead_ns, to_ns - ahead_ns)
    }

    fn between(&self, from_ns: i64, to_ns: i64, side: Side) -> When {
        let (from_ns, to_ns) = self.by_first_clock(from_ns, to_ns, side);
        When::Between(from_ns, to_ns)
    }

    /// The part of an interval that `wanted` explanations leave, nanoseconds.
    fn left_by(&self, from_ns: i64, to_ns: i64, side: Side, wanted: &dyn Fn(&Explained) -> bool) -> i64 {
        let within = self.by_first_clock(from_ns, to_ns, side);
        (to_ns - from_ns).saturating_sub_unsigned(covered_ns(self.explained, within, wanted))
    }

    /// The part that shown causes leave.
    fn rest(&self, from_ns: i64, to_ns: i64, side: Side) -> i64 {
        self.left_by(from_ns, to_ns, side, &|span| span.shown)
    }

    /// A cost worth naming, which is at least half of the call.
    fn most(&self, ns: i64) -> Option<u64> {
        u64::try_from(ns).ok().filter(|ns| *ns >= WORTH_NAMING_NS && 2 * ns >= self.about.duration_ns)
    }
}

/// The server's application by its span, and the queue before it, if its tap shows when the request `arrived`.
fn by_server_span(
    time: &CallTime<'_>,
    arrived: Option<i64>,
    (start, end): (i64, i64),
    out: &mut Vec<CallFinding>,
) {
    let halves = time.about.halves;
    // If the server's tap does not show when the request was complete there, it was not before its last byte left
    // the client: the span's wait until then does not belong to the application, unless it answered before.
    let whole_ns = halves.exchanges[0].as_ref().filter(|half| time.server(3).is_none() && !half.doubts.hole);
    let whole_ns = whole_ns.and_then(|half| {
        let response = half.response.as_ref()?;
        let rest_ns = time.rest(half.request.last.seen_ns, response.last.ready_ns, Side::Client);
        Some(rest_ns).filter(|ns| *ns >= 0)
    });
    let of_server = |cause, certainty, (from_ns, to_ns), cost_ns| {
        let when = time.between(from_ns, to_ns, Side::Server);
        finding(cause, certainty, Side::Server, when, cost_ns, server_evidence(halves))
    };
    // A span that goes on when the response has left, such as of a framework that ends it in a later turn, holds nothing
    // up any more.
    let end = time.server(7).map_or(end, |left| end.min(left));
    let span_ns = end - start;
    if let Some(cost_ns) = time.most(whole_ns.map_or(span_ns, |whole_ns| whole_ns.min(span_ns))) {
        out.push(of_server(Cause::ServerApp, Certainty::Shown, (start, end), cost_ns));
    }
    if let Some((arrived, cost_ns)) = arrived.and_then(|arrived| Some((arrived, time.most(start - arrived)?)))
    {
        let certainty = Certainty::Possible(Missing::ServerHost);
        out.push(of_server(Cause::ServerQueue, certainty, (arrived, start), cost_ns));
    }
}

/// The server's end between a request and its response at its tap. If both ends were captured completely, time that no
/// other cause may have taken belongs to that end; its span would tell which part of it.
fn by_both_taps(time: &CallTime<'_>, (arrived, answered): (i64, i64)) -> Option<CallFinding> {
    let halves = time.about.halves;
    let whole = halves.exchanges.iter().all(|half| half.as_ref().is_some_and(|half| !half.doubts.hole));
    let bracketed = time.most(time.left_by(arrived, answered, Side::Server, &|_| true)).filter(|_| whole);
    let (cause, certainty, cost_ns) = match bracketed {
        Some(cost_ns) => (Cause::ServerHostOrApp, Certainty::Shown, cost_ns),
        None => {
            let cost_ns = time.most(time.rest(arrived, answered, Side::Server))?;
            (Cause::ServerApp, Certainty::Possible(Missing::ServerSpan), cost_ns)
        }
    };
    let when = time.between(arrived, answered, Side::Server);
    Some(finding(cause, certainty, Side::Server, when, cost_ns, server_evidence(halves)))
}

/// The server's application, possibly, if only the client's end shows the call.
fn by_clients_tap(time: &CallTime<'_>) -> Option<CallFinding> {
    let halves = time.about.halves;
    if halves.exchanges[1].is_some() || time.server(4).is_some() {
        return None;
    }
    let half = halves.exchanges[0].as_ref()?;
    let response = half.response.as_ref()?;
    let (asked_ns, answered_ns) = (asked_ns(half), response.first.seen_ns);
    let cost_ns = time.most(time.rest(asked_ns, answered_ns, Side::Client))?;
    let certainty = Certainty::Possible(Missing::ServerCapture);
    let when = time.between(asked_ns, answered_ns, Side::Client);
    let evidence = marks(halves.captures[0], &half.request.last, &response.first, true);
    Some(finding(Cause::ServerApp, certainty, Side::Server, when, cost_ns, evidence))
}

/// The client's application. Before its first byte and after its last one, the call involves only the client.
fn client_app(time: &CallTime<'_>) -> Option<CallFinding> {
    let halves = time.about.halves;
    let spent = |from: Option<i64>, to: Option<i64>| {
        from.zip(to).map_or(0, |(from, to)| time.rest(from, to, Side::Client).max(0) as u64)
    };
    let out_ns = spent(time.client(0), time.client(1));
    let in_ns = spent(time.client(8), time.client(9));
    let cost_ns = time.most((out_ns + in_ns) as i64)?;
    let half = halves.exchanges[0].as_ref()?;
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
    let certainty = Certainty::Possible(Missing::ClientHost);
    // Before the request, after the response, or both.
    Some(finding(Cause::ClientApp, certainty, Side::Client, When::Unknown, cost_ns, evidence))
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
) -> CallFinding {
    CallFinding {
        cause,
        certainty,
        side: Some(side),
        when,
        cost_ns: Some(cost_ns),
        note: Note::None,
        evidence,
    }
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

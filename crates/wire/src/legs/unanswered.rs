//! The end of a call without a complete response: when it ended, and what it waited for until then.

use super::{MOMENTS, Moment};
use crate::call::Halves;
use crate::exchange::{Ending, Exchange};
use spangap_model::{Leg, Side};

/// Sets moment 8 of a call without a complete response, and removes the server's moments after it: a server may
/// go on, and even answer, when nobody listens any more. The client's end decides if there is one. Returns the
/// leg in which the call waited if nothing of a response had left the server by then.
///
/// The server's events are compared with the client's wait by durations on one clock each. The request needs time
/// to reach the server, so a response that left the server as long after the request as the client waited, or
/// longer, left too late; one that left earlier may have been on its way.
pub(super) fn end(halves: &Halves, at: &mut [Moment; MOMENTS]) -> Option<Leg> {
    let (main, side, ending) = main(halves)?;
    // The packet that tells the server about the end may leave after the client gave up: it, too, may have waited
    // behind lost bytes.
    let given_up_ns = halves.spans.and_then(|spans| spans.client).map(|(_, end_ns)| end_ns);
    let ending_ns = match given_up_ns.filter(|_| side == Side::Client) {
        Some(end_ns) if end_ns >= main.request.last.seen_ns => ending.at_ns.min(end_ns),
        _ => ending.at_ns,
    };
    if side == Side::Server && halves.spans.is_some_and(|spans| spans.client.is_some()) {
        // The client's span continues, and uses another clock.
        at[8] = None;
    } else {
        at[8] = Some((ending_ns, side));
    }
    let patience_ns = ending_ns.saturating_sub(main.request.first.seen_ns);
    let in_time = |moment: &Moment| match (moment, &halves.exchanges[Side::Server.index()]) {
        (Some((at, _)), Some(server)) => at.saturating_sub(server.request.first.seen_ns) < patience_ns,
        _ => false,
    };
    if let (Some((begin, _)), Some((end, _)), None) = (at[4], at[5], &halves.exchanges[Side::Server.index()])
    {
        // Without the server's packets, the position of the span within the call is unknown; only its length can
        // be checked.
        if end - begin > patience_ns {
            (at[4], at[5]) = (None, None);
        }
    } else {
        (4..8).filter(|i| !in_time(&at[*i])).collect::<Vec<_>>().into_iter().for_each(|i| at[i] = None);
    }
    // A complete response on its way, and a partial one, are legs of their own.
    if at[6].is_some() || !main.is_unanswered() {
        return None;
    }
    at[7] = None;
    let lost = halves.never_arrived || (at[3].is_none() && halves.exchanges.iter().all(Option::is_some));
    let lost = lost && side == Side::Client && !ending.request_acked && !main.doubts.hole;
    Some(if lost { Leg::RequestWire } else { Leg::NoResponse })
}

/// The half that shows how the call ended, if the call has no complete response.
fn main(halves: &Halves) -> Option<(&Exchange, Side, Ending)> {
    let [client, server] = &halves.exchanges;
    let (half, side) = match (client, server) {
        (Some(client), _) => (client, Side::Client),
        (None, server) => (server.as_ref()?, Side::Server),
    };
    Some((half, side, half.ending?))
}

impl Halves {
    /// How the call ended, if it got no complete response.
    pub fn ending(&self) -> Option<Ending> {
        main(self).map(|(.., ending)| ending)
    }
}

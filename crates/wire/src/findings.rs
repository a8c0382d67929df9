//! Why a call took its time: what both taps' rules saw put together, and what only both ends (or spans) show.

pub(crate) mod apps;
pub(crate) mod batched_arrival;
pub(crate) mod held;
pub(crate) mod network_delay;
#[cfg(test)]
mod tests;

use crate::call::{Finding, Halves};
use crate::legs::Moments;
use batched_arrival::Arrivals;
use network_delay::Paths;
use spangap_model::{Cause, Side};

/// Less than this is not called the reason why a call is slow, nanoseconds.
pub(crate) const WORTH_NAMING_NS: u64 = 1_000_000;

/// What is remembered from call to call.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub paths: Paths,
    pub arrivals: Arrivals,
}

/// Sorts by cost, the most first; those without a cost last.
pub(crate) fn by_cost(findings: &mut [Finding]) {
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.cost_ns));
}

/// Whether bytes were lost and sent again.
pub(crate) fn is_loss(cause: Cause) -> bool {
    matches!(cause, Cause::Rto | Cause::TailLoss | Cause::FastRetransmit)
}

/// One way of a call between the taps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// Who sent it.
    pub from: Side,
    /// When its last byte left, by the sender's clock, and the packet.
    pub sent: (i64, u64),
    /// When it had arrived, by the receiver's clock, and the packet.
    pub arrived: (i64, u64),
    /// The capture at the sender's end.
    pub capture: u8,
}

/// The ways of a call between the taps, as far as both ends have the same last byte of each.
pub(crate) fn ways(halves: &Halves, moments: &Moments) -> [Option<Way>; 2] {
    let [Some(client), Some(server)] = &halves.exchanges else { return [None; 2] };
    let mut ways = [None; 2];
    if moments.0[3].is_some() && !client.doubts.hole {
        let (there, here) = (client.request.last, server.request.last);
        ways[0] = Some(Way {
            from: Side::Client,
            sent: (there.seen_ns, there.packet),
            arrived: (here.ready_ns, here.ready_packet),
            capture: halves.captures[0],
        });
    }
    if let Some((here, there)) = client.response.as_ref().zip(server.response.as_ref())
        && moments.0[7].is_some()
        && !server.doubts.hole
    {
        ways[1] = Some(Way {
            from: Side::Server,
            sent: (there.last.seen_ns, there.last.packet),
            arrived: (here.last.ready_ns, here.last.ready_packet),
            capture: halves.captures[1],
        });
    }
    ways
}

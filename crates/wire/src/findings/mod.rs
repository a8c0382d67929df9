//! Findings of a call: the episodes of both taps combined, and what only both ends or spans can show.

pub(crate) mod apps;
pub(crate) mod batched_arrival;
pub(crate) mod held;
pub(crate) mod network_delay;
pub(crate) mod ready;
pub(crate) mod receiver_drop;
#[cfg(test)]
mod tests;
pub(crate) mod unanswered;

use crate::call::{CallFinding, Halves};
use crate::legs::Moments;
use batched_arrival::Arrivals;
use network_delay::Paths;
use spangap_model::evidence::Certainty;
use spangap_model::{Cause, Side};

/// Shorter times are not reported as the reason of a slow call, nanoseconds.
pub(crate) const WORTH_NAMING_NS: u64 = 1_000_000;

/// State kept from call to call.
#[derive(Debug, Default)]
pub(crate) struct EarlierCalls {
    pub paths: Paths,
    pub arrivals: Arrivals,
}

/// Sorts shown findings before possible ones, then by descending cost; those without a cost last.
pub(crate) fn by_weight(findings: &mut [CallFinding]) {
    findings
        .sort_by_key(|finding| std::cmp::Reverse((finding.certainty == Certainty::Shown, finding.cost_ns)));
}

/// Time that a finding explains, by the first capture's clock as far as it is known while reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Explained {
    pub cause: Cause,
    /// The sender of the delayed bytes.
    pub sender: Side,
    /// Whether it is shown, rather than only possible.
    pub shown: bool,
    pub range: (i64, i64),
}

/// How much of a range of time is covered by those explained intervals that are `wanted`.
pub(crate) fn covered_ns(
    explained: &[Explained],
    within: (i64, i64),
    wanted: impl Fn(&Explained) -> bool,
) -> u64 {
    let inside = |range: (i64, i64)| (range.0.max(within.0), range.1.min(within.1));
    let mut ranges: Vec<(i64, i64)> =
        explained.iter().filter(|span| wanted(span)).map(|span| inside(span.range)).collect();
    ranges.retain(|(begin, end)| end > begin);
    union(&mut ranges).unwrap_or(0)
}

/// Time covered by the ranges together; `None` without any.
fn union(ranges: &mut [(i64, i64)]) -> Option<u64> {
    ranges.sort_unstable();
    let mut covered = 0;
    let mut until = i64::MIN;
    for (begin, end) in ranges.iter().copied() {
        covered += (end - begin.max(until)).max(0);
        until = until.max(end);
    }
    (!ranges.is_empty()).then(|| covered.unsigned_abs())
}

/// Whether bytes were lost and retransmitted.
pub(crate) fn is_loss(cause: Cause) -> bool {
    matches!(cause, Cause::Rto | Cause::TailLoss | Cause::FastRetransmit | Cause::ReceiverDrop)
}

/// One direction of a call between the taps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// The sender.
    pub from: Side,
    /// When its last byte left, by the sender's clock, and the packet.
    pub sent: (i64, u64),
    /// When it arrived, by the receiver's clock, and the packet. Earlier bytes may have been missing at that
    /// time: the wait for them is not part of this transit.
    pub arrived: (i64, u64),
    /// The capture at the sender's end.
    pub capture: u8,
}

impl Way {
    /// From departure to arrival by the first capture's clock, with the second one `offset_ns` ahead of it.
    pub fn range(&self, offset_ns: i64) -> (i64, i64) {
        match self.capture {
            0 => (self.sent.0, self.arrived.0.saturating_sub(offset_ns)),
            _ => (self.sent.0.saturating_sub(offset_ns), self.arrived.0),
        }
    }
}

/// Both directions of a call between the taps, if both ends have the same last byte.
pub(crate) fn ways(halves: &Halves, moments: &Moments) -> [Option<Way>; 2] {
    let [Some(client), Some(server)] = &halves.exchanges else { return [None; 2] };
    let mut ways = [None; 2];
    if moments.0[3].is_some() && !client.doubts.hole {
        let (there, here) = (client.request.last, server.request.last);
        ways[0] = Some(Way {
            from: Side::Client,
            sent: (there.seen_ns, there.packet),
            arrived: (here.seen_ns, here.packet),
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
            arrived: (here.last.seen_ns, here.last.packet),
            capture: halves.captures[1],
        });
    }
    ways
}

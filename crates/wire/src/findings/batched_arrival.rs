//! Packets sent apart arrived together, in order: something on the path, or on the receiver's host, held them and
//! released them at once.

use super::Way;
use crate::call::{CallFinding, When};
use crate::episode::{PacketProof, What};
use spangap_model::evidence::Certainty;
use spangap_model::{Cause, Side};

/// Arrivals within this time form a batch, nanoseconds.
const TOGETHER_NS: u64 = 50_000;
/// Their departures must be spread over a time this many times longer.
const SPREAD: u64 = 10;
/// Minimum number of calls in a batch.
const LEAST: usize = 3;
/// Maximum arrivals remembered, by direction.
const REMEMBERED: usize = 1024;

/// Latest arrivals of each direction, in the order in which calls were joined.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// By the sender's capture.
    ways: [Vec<Way>; 2],
    next: [usize; 2],
}

impl Arrivals {
    /// Records an arrival.
    #[inline]
    pub fn note(&mut self, way: &Way) {
        let direction = usize::from(way.capture & 1);
        let (ways, next) = (&mut self.ways[direction], &mut self.next[direction]);
        if ways.len() < REMEMBERED {
            ways.push(*way);
        } else {
            ways[*next % REMEMBERED] = *way;
        }
        *next = next.wrapping_add(1);
    }

    /// The batch with which `way` arrived, if any.
    pub fn batch(&self, way: &Way) -> Option<Vec<Way>> {
        let ways = &self.ways[usize::from(way.capture & 1)];
        let near = |other: &&Way| other.arrived.0.abs_diff(way.arrived.0) <= TOGETHER_NS / 2;
        let mut batch: Vec<Way> = ways.iter().filter(near).copied().collect();
        // Bytes in one packet of the sender are one departure, regardless of the number of calls in it.
        batch.sort_unstable_by_key(|other| (other.sent, other.arrived));
        batch.dedup_by_key(|other| other.sent.1);
        let (first, last) = batch.first().zip(batch.last())?;
        let in_order = batch.windows(2).all(|pair| pair[0].arrived.0 <= pair[1].arrived.0);
        let apart = last.sent.0.abs_diff(first.sent.0);
        let together = last.arrived.0.abs_diff(first.arrived.0);
        let held = apart >= SPREAD * together.max(TOGETHER_NS);
        (batch.len() >= LEAST && in_order && held).then_some(batch)
    }
}

/// The finding for a call that was in transit during `range` and arrived in such a batch, `cost_ns` later than
/// possible.
pub(crate) fn finding(
    way: &Way,
    range: (i64, i64),
    batch: &[Way],
    cost_ns: u64,
    duration_ns: u64,
) -> CallFinding {
    let receiver = way.from.other();
    let apart = batch.first().zip(batch.last()).map_or(0, |(a, b)| b.sent.0.abs_diff(a.sent.0));
    let mut evidence = vec![
        (
            way.capture,
            PacketProof { packet: way.sent.1, time_ns: way.sent.0, what: What::text("this one leaves") },
        ),
        (
            1 - way.capture,
            PacketProof {
                packet: way.arrived.1,
                time_ns: way.arrived.0,
                what: What::with(
                    "{} calls arrive together that left over {us}",
                    batch.len() as u64,
                    apart / 1000,
                ),
            },
        ),
    ];
    for other in batch.iter().filter(|other| *other != way).take(2) {
        let what = What::text("another of them arrives");
        evidence
            .push((1 - way.capture, PacketProof { packet: other.arrived.1, time_ns: other.arrived.0, what }));
    }
    let host = if receiver == Side::Client { "client" } else { "server" };
    CallFinding {
        cause: Cause::BatchedArrival,
        certainty: Certainty::Shown,
        side: Some(receiver),
        when: When::Between(range.0, range.1),
        cost_ns: Some(cost_ns.min(duration_ns)),
        note: format!(
            "interrupt coalescing, a late softirq on the {host}'s host, or a queue on the path: a recording of that host tells them apart"
        )
        .into(),
        evidence,
    }
}

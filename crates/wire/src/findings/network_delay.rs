//! The path between the taps took longer than it does at best, with nothing lost.
//!
//! How much longer needs no offset between the clocks: it is the difference of two differences between the same two
//! clocks. Fastest is the fastest of all calls within the last seconds, so that a drift of the clocks does not count,
//! and of the connection itself, so that a longer path does not.

use super::{WORTH_NAMING_NS, Way};
use crate::call::Finding;
use crate::episode::{Certainty, Evidence, What};
use spangap_model::{Cause, Side};

/// The fastest way is looked for in this time and the same time before it: with clocks 200 ppm apart, 0.4 ms of drift.
const WINDOW_NS: i64 = 1_000_000_000;
/// Buffer of a switch, bytes, and its link, bit/s: it can delay by 8 * B / R at most. 32 MB at 25 Gbit/s are what
/// large shared-buffer switches of data centres have.
const SWITCH_BUFFER_BYTES: u64 = 32_000_000;
const SWITCH_LINK_BITS: u64 = 25_000_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    number: i64,
    least: Option<i64>,
    least_before: Option<i64>,
}

/// The fastest of each direction lately.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    /// By the sender's capture.
    windows: [Window; 2],
}

impl Paths {
    /// A way's time beyond the fastest one lately. `detour_ns` is the least of that on this connection.
    #[inline]
    pub fn excess_ns(&mut self, way: &Way, detour_ns: &mut i64) -> u64 {
        let took = way.arrived.0.saturating_sub(way.sent.0);
        let window = &mut self.windows[usize::from(way.capture & 1)];
        let number = way.sent.0.div_euclid(WINDOW_NS);
        if number > window.number || window.least.is_none() {
            let next = number == window.number + 1;
            *window = Window { number, least: None, least_before: window.least.filter(|_| next) };
        }
        let least = window.least.map_or(took, |least| least.min(took));
        window.least = Some(least);
        let fastest = window.least_before.map_or(least, |before| before.min(least));
        let beyond = took.saturating_sub(fastest);
        *detour_ns = (*detour_ns).min(beyond);
        (beyond - *detour_ns).max(0) as u64
    }
}

/// Whether a delay is worth naming.
pub(crate) fn counts(cost_ns: u64, duration_ns: u64) -> bool {
    cost_ns >= WORTH_NAMING_NS && cost_ns.saturating_mul(4) >= duration_ns
}

/// The finding, for one or both ways of a call with their costs.
pub(crate) fn finding(ways: &[(Way, u64)], duration_ns: u64) -> Finding {
    let mut evidence = Vec::new();
    let (mut total, mut longest) = (0_u64, 0);
    for (way, cost) in ways {
        total += cost;
        longest = longest.max(*cost);
        let (sent, arrived) = match way.from {
            Side::Client => {
                ("last byte of the request leaves", "last byte of the request arrives, {} us late")
            }
            Side::Server => {
                ("last byte of the response leaves", "last byte of the response arrives, {} us late")
            }
        };
        let packet = |(time_ns, packet): (i64, u64), what| Evidence { packet, time_ns, what };
        evidence.push((way.capture, packet(way.sent, What::text(sent))));
        evidence.push((1 - way.capture, packet(way.arrived, What::with(arrived, cost / 1000, 0))));
    }
    let most_ns = SWITCH_BUFFER_BYTES * 8 * 1_000_000_000 / SWITCH_LINK_BITS;
    let buffer = format!(
        "{} MB at {} Gbit/s delay by {} ms at most",
        SWITCH_BUFFER_BYTES / 1_000_000,
        SWITCH_LINK_BITS / 1_000_000_000,
        most_ns as f64 / 1e6
    );
    let note = if longest > most_ns {
        format!(
            "not the queue of one switch ({buffer}): a slower link, a detour, or a host between the taps and the wire"
        )
    } else {
        format!(
            "no more than the queue of one switch could do ({buffer}); hosts' queues between tap and wire are in it, too"
        )
    };
    Finding {
        cause: Cause::NetworkDelay,
        certainty: Certainty::Shown,
        side: None,
        cost_ns: Some(total.min(duration_ns)),
        note,
        evidence,
    }
}

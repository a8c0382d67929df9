//! The path between the taps took the time, with nothing lost.
//!
//! The sum of both directions does not depend on the offset between the clocks, nor does the excess of one
//! direction over another time: it is a difference of two differences between the same two clocks. The reference
//! is the fastest of all calls within the last seconds, so that a drift of the clocks does not count, and of the
//! connection itself, so that a longer path does not.

use super::{WORTH_NAMING_NS, Way};
use crate::call::{CallFinding, Note, When};
use crate::episode::{PacketProof, What};
use spangap_model::duration::format_ns;
use spangap_model::evidence::Certainty;
use spangap_model::{Cause, Side};

/// The fastest transit is taken from this interval and the previous one: with clocks 200 ppm apart, 0.4 ms of
/// drift.
const WINDOW_NS: i64 = 1_000_000_000;
/// Buffer of a switch, bytes, and its link, bit/s: it can delay by at most 8 * B / R. Large shared-buffer
/// switches of data centres have 32 MB at 25 Gbit/s.
const SWITCH_BUFFER_BYTES: u64 = 32_000_000;
const SWITCH_LINK_BITS: u64 = 25_000_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    number: i64,
    least: Option<i64>,
    least_before: Option<i64>,
}

/// The fastest recent transit of each direction.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    /// By the sender's capture.
    windows: [Window; 2],
}

impl Paths {
    /// A transit's excess over the fastest recent one. `detour_ns` is the minimum excess on this connection.
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

/// Transit times of a call.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathTime {
    /// The directions known to both ends, by sender: each with the time that another cause explains, and its
    /// excess over the fastest.
    pub ways: [Option<(Way, u64, u64)>; 2],
}

impl PathTime {
    /// Sum of both directions. It is exact whatever the clocks: the offset enters both with opposite signs.
    /// `None` unless both are known.
    pub fn sum_ns(&self) -> Option<u64> {
        let [Some((there, ..)), Some((back, ..))] = self.ways else { return None };
        let took = |way: &Way| way.arrived.0.saturating_sub(way.sent.0);
        Some(took(&there).saturating_add(took(&back)).max(0) as u64)
    }

    /// The cost: the unexplained time of both directions, if it is worth reporting; with only one direction, its
    /// excess over the fastest.
    pub fn cost_ns(&self, duration_ns: u64) -> Option<u64> {
        let beyond_ns: u64 = self.ways.iter().flatten().map(|(.., beyond)| beyond).sum();
        let late = is_late(beyond_ns, duration_ns);
        let Some(sum_ns) = self.sum_ns() else { return late.then_some(beyond_ns) };
        let explained_ns: u64 = self.ways.iter().flatten().map(|(_, explained, _)| explained).sum();
        let rest_ns = sum_ns.saturating_sub(explained_ns);
        let most = rest_ns >= WORTH_NAMING_NS && rest_ns.saturating_mul(2) >= duration_ns;
        (late || most).then_some(rest_ns).filter(|rest| *rest >= WORTH_NAMING_NS)
    }

    /// The finding; its note is written later, when the path is known best ([`note`]).
    pub fn finding(&self, cost_ns: u64, duration_ns: u64) -> CallFinding {
        let mut evidence = Vec::with_capacity(4);
        for (way, _, beyond_ns) in self.ways.iter().flatten() {
            let (sent, arrived) = match way.from {
                Side::Client => (
                    "last byte of the request leaves",
                    "last byte of the request arrives, {us} later than the fastest one",
                ),
                Side::Server => (
                    "last byte of the response leaves",
                    "last byte of the response arrives, {us} later than the fastest one",
                ),
            };
            let packet = |(time_ns, packet): (i64, u64), what| PacketProof { packet, time_ns, what };
            evidence.push((way.capture, packet(way.sent, What::text(sent))));
            evidence.push((1 - way.capture, packet(way.arrived, What::with(arrived, beyond_ns / 1000, 0))));
        }
        CallFinding {
            cause: Cause::NetworkDelay,
            certainty: Certainty::Shown,
            side: None,
            when: When::Unknown,
            cost_ns: Some(cost_ns.min(duration_ns)),
            note: Note::None,
            evidence,
        }
    }
}

/// Whether an excess over the fastest transit is worth reporting.
pub(crate) fn is_late(beyond_ns: u64, duration_ns: u64) -> bool {
    beyond_ns >= WORTH_NAMING_NS && beyond_ns.saturating_mul(4) >= duration_ns
}

/// Describes the constant part, with `least_ns` as the minimum of both directions on the connection, and the
/// excess.
pub(crate) fn note(cost_ns: u64, least_ns: Option<u64>) -> String {
    let always_ns = least_ns.unwrap_or(0).min(cost_ns);
    let top_ns = cost_ns - always_ns;
    let always = format!(
        "the minimum on this connection is {} there and back: distance, route, or a constant delay",
        format_ns(always_ns)
    );
    if top_ns < WORTH_NAMING_NS {
        return always;
    }
    let most_ns = SWITCH_BUFFER_BYTES * 8 * 1_000_000_000 / SWITCH_LINK_BITS;
    let buffer = format!(
        "{} MB at {} Gbit/s delay by at most {}",
        SWITCH_BUFFER_BYTES / 1_000_000,
        SWITCH_LINK_BITS / 1_000_000_000,
        format_ns(most_ns)
    );
    let top = if top_ns > most_ns {
        format!(
            "not the queue of one switch ({buffer}): a slower link, a detour, or a host between the taps and the wire"
        )
    } else {
        format!(
            "no more than the queue of one switch could cause ({buffer}); it includes the hosts' queues between tap \
             and wire"
        )
    };
    match always_ns {
        0..WORTH_NAMING_NS => top,
        _ => format!("{always}; {} come on top: {top}", format_ns(top_ns)),
    }
}

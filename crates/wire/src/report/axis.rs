//! The time axis of one call: nanoseconds since its start, by the clock of the first end that saw it.

use crate::align::Clock;
use crate::call::Call;
use crate::dissect::Dissection;
use crate::exchange::Exchange;
use spangap_model::Side;

/// Maps moments of either host to one axis.
#[derive(Clone, Copy, Debug)]
pub struct Axis<'a> {
    base: Side,
    start_ns: i64,
    clock: Option<&'a Clock>,
    /// Sign of the correction from the other tap's clock to the base's: the offset is that of the second capture.
    sign: i64,
}

impl<'a> Axis<'a> {
    /// The axis of a call; `None` for a call without packets.
    pub fn of(call: &Call, dissection: &'a Dissection) -> Option<Axis<'a>> {
        let (base, main) = main_half(call)?;
        // A CLIENT span begins before the wire does; without the client's packets, its clock cannot be compared.
        let start_ns = if base == Side::Client { call.start_ns } else { main.request.first.seen_ns };
        let base_capture = call.halves.captures[base.index()];
        let sign = if base_capture == dissection.first_capture_of(call) { -1 } else { 1 };
        Some(Axis { base, start_ns, clock: dissection.clock_of(call), sign })
    }

    /// The end whose clock defines the axis.
    pub fn base(&self) -> Side {
        self.base
    }

    /// Its zero, Unix nanoseconds by that clock.
    pub fn start_unix_ns(&self) -> i64 {
        self.start_ns
    }

    /// The correction for a moment on a host's clock, and its uncertainty in either direction; `None` if the
    /// clocks are unbounded.
    pub fn correction(&self, side: Side, unix_ns: i64) -> Option<(i64, u64)> {
        if side == self.base {
            return Some((0, 0));
        }
        let clock = self.clock?;
        let (low, high) = clock.offset_ns(unix_ns).or_else(|| clock.offset_ns(self.start_ns))?;
        let bound_ns = (high.saturating_sub(low).max(0) as u64).div_ceil(2);
        Some((self.sign * middle(low, high), bound_ns))
    }

    /// A moment on a host's clock, mapped to the axis; uncorrected if the clocks are unbounded.
    pub fn since_start_ns(&self, side: Side, unix_ns: i64) -> i64 {
        let (correction, _) = self.correction(side, unix_ns).unwrap_or_default();
        unix_ns.saturating_add(correction).saturating_sub(self.start_ns)
    }
}

/// The middle of an interval.
pub(super) fn middle(low: i64, high: i64) -> i64 {
    low + (high - low) / 2
}

/// The more informative half of a call: the client's if known.
pub(super) fn main_half(call: &Call) -> Option<(Side, &Exchange)> {
    [Side::Client, Side::Server]
        .into_iter()
        .find_map(|side| call.halves.exchanges[side.index()].as_ref().map(|exchange| (side, exchange)))
}

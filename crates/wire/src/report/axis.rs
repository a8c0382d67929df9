//! The time axis of one call: nanoseconds since it began, by the clock of the end that saw it first.

use super::build::{main_half, middle};
use crate::align::Clock;
use crate::call::Call;
use crate::dissect::Dissection;
use spangap_model::Side;

/// Brings moments of either host to one axis.
#[derive(Clone, Copy, Debug)]
pub struct Axis<'a> {
    base: Side,
    start_ns: i64,
    clock: Option<&'a Clock>,
    /// What brings a time of the other tap to the clock of the base's: the offset is that of the second capture.
    sign: i64,
}

impl<'a> Axis<'a> {
    /// Of a call; `None` for one without packets.
    pub fn of(call: &Call, dissection: &'a Dissection) -> Option<Axis<'a>> {
        let (base, main) = main_half(call)?;
        // A CLIENT span begins before the wire does; without the client's packets its clock cannot be compared.
        let start_ns = if base == Side::Client { call.start_ns } else { main.request.first.seen_ns };
        let base_capture = call.halves.captures[base.index()];
        let sign = if base_capture == dissection.first_capture_of(call) { -1 } else { 1 };
        Some(Axis { base, start_ns, clock: dissection.clock_of(call), sign })
    }

    /// The end whose clock it goes by.
    pub fn base(&self) -> Side {
        self.base
    }

    /// Its zero, Unix nanoseconds by that clock.
    pub fn start_unix_ns(&self) -> i64 {
        self.start_ns
    }

    /// What is added to a moment of a host's clock, and how far off that may be either way; `None` where nothing bounds it.
    pub fn correction(&self, side: Side, unix_ns: i64) -> Option<(i64, u64)> {
        if side == self.base {
            return Some((0, 0));
        }
        let clock = self.clock?;
        let (low, high) = clock.offset_ns(unix_ns).or_else(|| clock.offset_ns(self.start_ns))?;
        let bound_ns = (high.saturating_sub(low).max(0) as u64).div_ceil(2);
        Some((self.sign * middle(low, high), bound_ns))
    }

    /// A moment of a host's clock on the axis; uncorrected where nothing bounds the clocks.
    pub fn since_start_ns(&self, side: Side, unix_ns: i64) -> i64 {
        let (correction, _) = self.correction(side, unix_ns).unwrap_or_default();
        unix_ns.saturating_add(correction).saturating_sub(self.start_ns)
    }
}

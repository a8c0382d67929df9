//! How much of the calls' time on a host was recorded there.

use super::population::Population;
use crate::claims::host_of;
use spangap_model::evidence::{CallRecord, HostTime};
use spangap_model::{Doing, Leg, Legs, Side};

/// How much of the time that calls passed on an end's host was recorded there, from 0 to 1.
pub fn recorded(population: &Population<'_>, side: Side) -> f64 {
    let (mut known, mut all) = (0.0, 0.0);
    for row in &population.rows {
        let of = known_and_all_ns(row.call.record, side);
        known += row.call.weight * of.0 as f64;
        all += row.call.weight * of.1 as f64;
    }
    if all > 0.0 { known / all } else { 0.0 }
}

/// Time of a call on that end's host, nanoseconds: the recorded part, and all of it.
pub fn known_and_all_ns(call: &CallRecord, side: Side) -> (u64, u64) {
    let (mut known, mut all) = (0, 0);
    for leg in call.end_to_end().filter(|leg| is_on_host(leg.legs, side)) {
        known += recorded_ns(leg.ns, leg.host);
        all += u64::try_from(leg.ns).unwrap_or(0);
    }
    (known, all)
}

/// Recorded part of a leg, nanoseconds. If some threads are known to have had the call in hand, an interval
/// in which none had it is known, too: the call lay in a queue of the program, or waited for an answer from
/// elsewhere.
pub fn recorded_ns(leg_ns: i64, host: Option<&HostTime>) -> u64 {
    let Some(host) = host else { return 0 };
    if !host.tids.is_empty() && !host.parts.is_empty() {
        return u64::try_from(leg_ns).unwrap_or(0);
    }
    host.parts.iter().filter(|part| part.doing != Doing::Unknown).map(|part| part.ns).sum()
}

/// Whether these legs pass on the host of that side, and on no wire.
fn is_on_host(legs: Legs, side: Side) -> bool {
    let wire = [Leg::RequestWire, Leg::ResponseWire, Leg::NoResponse];
    host_of(legs) == side && !wire.iter().any(|leg| legs.contains(*leg))
}

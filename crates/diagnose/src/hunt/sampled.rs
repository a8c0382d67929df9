//! On a live system, packets show every call, but spans only a sample. The time that a call without spans spent in the
//! two applications is unknown, so if such calls dominate, nothing can be said about either. If most calls have no
//! spans and the sample has enough slow and ordinary calls, only the sample is compared.

use super::logical::Logical;
use spangap_model::{Leg, Legs};

/// A sample of fewer says less than all calls do.
const LEAST: usize = 40;
/// It is one of all calls, and not of the slow ones alone, when so many of it were answered on the wire as soon as the quicker
/// half of all.
const ORDINARY: f64 = 0.15;

/// The calls to compare, and how many are left out.
pub(super) fn with_spans(calls: Vec<Logical<'_>>) -> (Vec<Logical<'_>>, usize) {
    let with = calls.iter().filter(|call| has_spans(call)).count();
    if with < LEAST || 2 * with > calls.len() {
        return (calls, 0);
    }
    let mut all: Vec<i64> = calls.iter().map(on_the_wire_ns).collect();
    let (_, median, _) = all.select_nth_unstable((calls.len() - 1) / 2);
    let quick = calls.iter().filter(|call| has_spans(call) && on_the_wire_ns(call) <= *median).count();
    if (quick as f64) < ORDINARY * with as f64 {
        return (calls, 0);
    }
    let (kept, left_out): (Vec<_>, Vec<_>) = calls.into_iter().partition(has_spans);
    (kept, left_out.len())
}

fn has_spans(call: &Logical<'_>) -> bool {
    let known = |leg: Leg| call.record.legs.iter().any(|own| own.legs == Legs::one(leg));
    known(Leg::ClientAppIn) && known(Leg::ServerApp)
}

/// From the request's first byte on the wire to the response's last one.
fn on_the_wire_ns(call: &Logical<'_>) -> i64 {
    let own = [Leg::ClientAppOut, Leg::ClientAppIn].map(|leg| call.record.leg_ns(Legs::one(leg)));
    i64::try_from(call.record.duration_ns).unwrap_or(i64::MAX) - own[0] - own[1]
}

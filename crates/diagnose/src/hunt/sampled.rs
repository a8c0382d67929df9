//! On a live system, packets show every call, but spans only a sample. The time that a call without spans
//! spent in the two applications is unknown, so if such calls dominate, nothing can be said about either. If
//! most calls have no spans and the sample has enough slow and ordinary calls, only the sample is compared.
//!
//! Likewise, if a call went through a proxy and nobody captured behind it, the SERVER span lies in the legs
//! of the proxy's host: a wait there would look like one in front of the server.

use super::logical::Logical;
use spangap_model::{Leg, Legs};
use std::collections::BTreeSet;

/// A smaller sample says less than all calls do.
const LEAST: usize = 40;
/// It is a sample of all calls, and not of the slow ones alone, if this share of it was answered on the wire
/// as quickly as the faster half of all.
const ORDINARY: f64 = 0.15;

/// If most calls have no spans, returns those that do, and how many are omitted.
pub(super) fn with_spans(calls: Vec<Logical<'_>>) -> (Vec<Logical<'_>>, usize) {
    let with = calls.iter().filter(|call| has_spans(call)).count();
    if 2 * with > calls.len() {
        return (calls, 0);
    }
    alone(calls, has_spans)
}

/// If calls to an address were observed behind a proxy, returns those and calls to other addresses, and how
/// many are omitted.
pub(super) fn seen_behind_proxies(calls: Vec<Logical<'_>>) -> (Vec<Logical<'_>>, usize) {
    let passed_on = calls.iter().filter(|call| !call.record.path.is_empty());
    let proxies: BTreeSet<&str> = passed_on.filter_map(|call| call.record.server.as_deref()).collect();
    // Without a SERVER span, the proxy may have answered by itself.
    let is_unseen = |call: &Logical<'_>| {
        let server = call.record.server.as_deref();
        call.record.path.is_empty()
            && knows(call, Leg::ServerApp)
            && server.is_some_and(|server| proxies.contains(server))
    };
    if !calls.iter().any(is_unseen) {
        return (calls, 0);
    }
    alone(calls, |call| !is_unseen(call))
}

/// Only those calls, if they are a sample of all.
fn alone<'a>(calls: Vec<Logical<'a>>, is_kept: impl Fn(&Logical<'a>) -> bool) -> (Vec<Logical<'a>>, usize) {
    let kept = calls.iter().filter(|call| is_kept(call)).count();
    if kept < LEAST {
        return (calls, 0);
    }
    let mut all: Vec<i64> = calls.iter().map(on_the_wire_ns).collect();
    let (_, median, _) = all.select_nth_unstable((calls.len() - 1) / 2);
    let quick = calls.iter().filter(|call| is_kept(call) && on_the_wire_ns(call) <= *median).count();
    if (quick as f64) < ORDINARY * kept as f64 {
        return (calls, 0);
    }
    let (kept, left_out): (Vec<_>, Vec<_>) = calls.into_iter().partition(is_kept);
    (kept, left_out.len())
}

/// Whether both spans of a call are known. If the call went through proxies, the server's may be known behind
/// any of them, and the proxies' captures are as good without it.
fn has_spans(call: &Logical<'_>) -> bool {
    knows(call, Leg::ClientAppIn) && (knows(call, Leg::ServerApp) || !call.record.path.is_empty())
}

fn knows(call: &Logical<'_>, leg: Leg) -> bool {
    call.record.legs.iter().any(|own| own.legs == Legs::one(leg))
}

/// From the request's first byte on the wire to the response's last one.
fn on_the_wire_ns(call: &Logical<'_>) -> i64 {
    let own = [Leg::ClientAppOut, Leg::ClientAppIn].map(|leg| call.record.leg_ns(Legs::one(leg)));
    i64::try_from(call.record.duration_ns).unwrap_or(i64::MAX) - own[0] - own[1]
}

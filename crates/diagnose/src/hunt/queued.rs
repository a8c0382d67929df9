//! Bytes that had arrived while the threads that were to read them had other calls in hand: a queue, however short it is, and
//! whether or not a recording tells what these threads did meanwhile.

use super::logical::Logical;
use super::population::quantile;
use spangap_model::evidence::{CallRecord, LegRecord};
use spangap_model::{Leg, Legs};
use std::collections::BTreeMap;

/// So many calls that came while no other was in hand tell what it takes to begin with one.
const LEAST: usize = 8;

/// A stretch of time, Unix nanoseconds.
type Stretch = (i64, i64);

/// For each call how long it was in such a queue, nanoseconds: what it waited while others were in hand, beyond what calls
/// wait that come while none is. A server whose spans begin late is not one with a queue.
pub(super) fn queued(calls: &[Logical<'_>]) -> Vec<i64> {
    let busy = busy(calls);
    let waits: Vec<(i64, i64)> = calls.iter().map(|call| wait(call.record, &busy)).collect();
    let alone = waits.iter().filter(|(waited, behind)| *waited > 0 && *behind == 0);
    let alone: Vec<(u64, f64)> = alone.map(|(waited, _)| (waited.unsigned_abs(), 1.0)).collect();
    let usual = if alone.len() < LEAST { 0 } else { quantile(alone, 0.5) as i64 };
    waits.into_iter().map(|(_, behind)| (behind - usual).max(0)).collect()
}

/// When each thread had calls in hand: disjoint stretches in order of time.
fn busy(calls: &[Logical<'_>]) -> BTreeMap<u32, Vec<Stretch>> {
    let mut busy: BTreeMap<u32, Vec<Stretch>> = BTreeMap::new();
    for call in calls {
        let Some((served, (from, to))) = leg(call.record, Leg::ServerApp) else { continue };
        for tid in tids(served) {
            busy.entry(tid).or_default().push((from, to));
        }
    }
    for stretches in busy.values_mut() {
        stretches.sort_unstable();
        let mut merged: Vec<Stretch> = Vec::with_capacity(stretches.len());
        for (from, to) in stretches.drain(..) {
            match merged.last_mut().filter(|last| from <= last.1) {
                Some(last) => last.1 = last.1.max(to),
                None => merged.push((from, to)),
            }
        }
        *stretches = merged;
    }
    busy
}

/// How long a call waited to be begun with, and how much of that one of its threads had others in hand. Its own work, which
/// comes after that, is none of these.
fn wait(call: &CallRecord, busy: &BTreeMap<u32, Vec<Stretch>>) -> (i64, i64) {
    let Some((waits, (from, to))) = leg(call, Leg::ServerHostIn) else { return (0, 0) };
    let behind = |tid: u32| -> i64 {
        let Some(stretches) = busy.get(&tid) else { return 0 };
        let first = stretches.partition_point(|stretch| stretch.1 <= from);
        let overlapping = stretches[first..].iter().take_while(|stretch| stretch.0 < to);
        overlapping.map(|stretch| stretch.1.min(to) - stretch.0.max(from)).sum()
    };
    // Those that read its bytes, and those that served it in the end.
    let served = leg(call, Leg::ServerApp).into_iter().flat_map(|(served, _)| tids(served));
    (to - from, tids(waits).chain(served).map(behind).max().unwrap_or(0))
}

/// A leg that is told apart from its neighbours, and when it was.
fn leg(call: &CallRecord, name: Leg) -> Option<(&LegRecord, Stretch)> {
    let mut from = call.start_unix_ns;
    for leg in &call.legs {
        if leg.legs == Legs::one(name) {
            return (leg.ns > 0).then_some((leg, (from, from.saturating_add(leg.ns))));
        }
        from = from.saturating_add(leg.ns);
    }
    None
}

fn tids(leg: &LegRecord) -> impl Iterator<Item = u32> + '_ {
    leg.host.iter().flat_map(|host| host.tids.iter().copied())
}

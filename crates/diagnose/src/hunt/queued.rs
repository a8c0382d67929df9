//! Requests that had arrived while their readers handled other calls: a queue, however short, whether or not
//! a recording shows what those threads did. If one does, the blame is passed on: a call queued behind
//! another whose thread waits for a lock, a disk or a CPU waits for that, too, and not because the server has
//! too few threads.

use super::logical::{Logical, Queued};
use super::population::quantile;
use crate::claims::of_host;
use spangap_model::evidence::{CallRecord, EndLeg, HopLeg, HopPlace};
use spangap_model::{Culprit, Leg, Legs};
use std::collections::BTreeMap;

/// The usual wait is known from this many calls that arrive at an idle thread.
const LEAST: usize = 8;

/// A stretch of time, Unix nanoseconds.
type Stretch = (i64, i64);

/// Each call's time in such a queue: its wait while its thread handled others, beyond the usual wait of calls
/// that arrive at an idle thread. A server whose spans begin late has no queue.
pub(super) fn queued(calls: &[Logical<'_>]) -> Vec<Queued> {
    let busy = busy(calls);
    let waits: Vec<(i64, Behind<'_>)> = calls.iter().map(|call| wait(call.record, &busy)).collect();
    let alone = waits.iter().filter(|(waited, behind)| *waited > 0 && behind.ns == 0);
    let alone: Vec<(u64, f64)> = alone.map(|(waited, _)| (waited.unsigned_abs(), 1.0)).collect();
    let usual = if alone.len() < LEAST { 0 } else { quantile(alone, 0.5) as i64 };
    waits.into_iter().map(|(_, behind)| behind.beyond(usual)).collect()
}

/// The calls that one thread handled.
#[derive(Default)]
struct Busy<'c> {
    /// When it handled any: disjoint intervals in order of time.
    any: Vec<Stretch>,
    /// When it handled each, by start, with the latest end so far.
    each: Vec<(Stretch, i64, EndLeg<'c>)>,
}

/// The calls ahead of a call.
#[derive(Default)]
struct Behind<'c> {
    /// How long there were any, nanoseconds.
    ns: i64,
    /// Each of them, with how long it was in hand meanwhile.
    calls: Vec<(EndLeg<'c>, i64)>,
}

impl Behind<'_> {
    /// The wait beyond the usual one, divided by what the calls ahead spent their time on.
    fn beyond(&self, usual: i64) -> Queued {
        let ns = (self.ns - usual).max(0);
        let in_hand: f64 = self.calls.iter().map(|(_, ns)| *ns as f64).sum();
        if ns == 0 || in_hand <= 0.0 {
            return Queued { ns, behind: Vec::new() };
        }
        let mut of: BTreeMap<Culprit, f64> = BTreeMap::new();
        for (served, overlap) in &self.calls {
            for part in served.host.into_iter().flat_map(|host| &host.parts) {
                if let Some(culprit) = of_host(part, served.legs) {
                    *of.entry(culprit).or_default() += *overlap as f64 * part.ns as f64 / served.ns as f64;
                }
            }
        }
        let behind = of.into_iter().map(|(culprit, of)| (culprit, (ns as f64 * of / in_hand) as i64));
        Queued { ns, behind: behind.collect() }
    }
}

/// When each thread handled calls.
fn busy<'c>(calls: &[Logical<'c>]) -> BTreeMap<u32, Busy<'c>> {
    let mut busy: BTreeMap<u32, Busy<'c>> = BTreeMap::new();
    for call in calls {
        let Some((served, stretch)) = leg(call.record, Leg::ServerApp) else { continue };
        for tid in tids(served) {
            busy.entry(tid).or_default().each.push((stretch, stretch.1, served));
        }
    }
    for Busy { any, each } in busy.values_mut() {
        each.sort_unstable_by_key(|(stretch, ..)| *stretch);
        let mut latest = i64::MIN;
        for ((from, to), end, _) in each {
            latest = latest.max(*to);
            *end = latest;
            match any.last_mut().filter(|last| *from <= last.1) {
                Some(last) => last.1 = last.1.max(*to),
                None => any.push((*from, *to)),
            }
        }
    }
    busy
}

/// How long a call waited before its work began, and how much of that its threads spent with others in hand.
/// The later work on the call itself does not count.
fn wait<'c>(call: &CallRecord, busy: &BTreeMap<u32, Busy<'c>>) -> (i64, Behind<'c>) {
    let Some((waits, (from, to))) = leg(call, Leg::ServerHostIn) else { return (0, Behind::default()) };
    let overlap = |stretch: &Stretch| stretch.1.min(to) - stretch.0.max(from);
    let behind = |tid: &u32| -> i64 {
        let Some(Busy { any, .. }) = busy.get(tid) else { return 0 };
        let first = any.partition_point(|stretch| stretch.1 <= from);
        any[first..].iter().take_while(|stretch| stretch.0 < to).map(overlap).sum()
    };
    // The threads that read its bytes, and those that served it in the end.
    let served = leg(call, Leg::ServerApp).into_iter().flat_map(|(served, _)| tids(served));
    let Some(tid) = tids(waits).chain(served).max_by_key(behind) else {
        return (to - from, Behind::default());
    };
    let each = busy.get(&tid).map_or(&[][..], |busy| &busy.each);
    let first = each.partition_point(|(_, latest, _)| *latest <= from);
    let before = each[first..].iter().take_while(|((begin, _), ..)| *begin < to);
    let calls = before.map(|(stretch, _, served)| (*served, overlap(stretch))).filter(|(_, ns)| *ns > 0);
    (to - from, Behind { ns: behind(&tid), calls: calls.collect() })
}

/// A leg that stands alone rather than merged with its neighbours, and when it was.
fn leg(call: &CallRecord, name: Leg) -> Option<(EndLeg<'_>, Stretch)> {
    let is_it = |leg: &EndLeg<'_>| leg.legs == Legs::one(name) && leg.ns > 0;
    let before_ns: i64 = match call.path.is_empty() {
        true => call.legs.iter().take_while(|leg| leg.legs != Legs::one(name)).map(|leg| leg.ns).sum(),
        // Of several attempts, the last one was served.
        false => {
            let is_there = |step: &HopLeg| step.hop > 0 && step.place == HopPlace::Leg(Legs::one(name));
            let step = call.path.iter().rposition(is_there)?;
            call.path[..step].iter().map(|step| step.ns).sum()
        }
    };
    let from = call.start_unix_ns.saturating_add(before_ns);
    let last = call.end_to_end().filter(|leg| leg.legs == Legs::one(name)).last();
    last.filter(is_it).map(|leg| (leg, (from, from.saturating_add(leg.ns))))
}

fn tids(leg: EndLeg<'_>) -> impl Iterator<Item = u32> + '_ {
    leg.host.into_iter().flat_map(|host| host.tids.iter().copied())
}

//! Time by leg across all hops, summed over the linked calls while the clocks are unknown.

use super::path::{AllClocks, Inside, on_proxy, through};
use super::{HopTotals, PathSum, Stage};
use crate::align::Clock;
use crate::call::Halves;
use crate::legs::Moments;
use crate::totals::LegSum;
use crate::totals::accum::Accum;
use rustc_hash::FxHashMap;
use spangap_model::{Leg, Legs, Side};

/// A call with its hops, as input for the sums.
pub(crate) struct Linked<'a> {
    /// The section of its captures.
    pub section: usize,
    pub halves: &'a Halves,
    pub moments: &'a Moments,
    pub duration_ns: u64,
    /// The section's captures, by their numbers there.
    pub captures: &'a [usize],
    pub hops: Vec<Linked<'a>>,
}

/// Key of the separate sums for the time inside a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Proxy {
    hop: u8,
    /// The captures before and after it.
    captures: (usize, usize),
    with_wire: (bool, bool),
}

/// The sums.
#[derive(Debug, Default)]
pub(crate) struct PathSums {
    pub calls: u64,
    pub total_ns: u128,
    /// By hop, section, and whether the call has hops itself.
    legs: FxHashMap<(u8, usize, bool), Accum>,
    proxies: FxHashMap<Proxy, Accum>,
    /// Time of the hops themselves, by hop of the proxy.
    passed_ns: FxHashMap<Proxy, u128>,
}

impl PathSums {
    /// Counts a call with hops.
    pub fn add(&mut self, call: &Linked<'_>, one_clock: impl Fn(usize, usize) -> bool + Copy) {
        self.calls += 1;
        self.total_ns += u128::from(call.duration_ns);
        self.walk(call, 0, one_clock);
    }

    fn walk(&mut self, call: &Linked<'_>, hop: u8, one_clock: impl Fn(usize, usize) -> bool + Copy) {
        let capture = |of: &Linked<'_>, side: Side| {
            of.captures.get(usize::from(of.halves.captures[side.index()])).copied().unwrap_or(0)
        };
        let inside = Inside::of(call.moments);
        let first = call.hops.first().and_then(|hop| Some((hop, hop.moments.ends()?.0)));
        let last = call.hops.last().and_then(|hop| Some((hop, hop.moments.ends()?.1)));
        // A call without a response ends by the clock of its client.
        let one = |inside: &Inside| {
            inside.from.1 == inside.to.1
                || one_clock(capture(call, inside.from.1), capture(call, inside.to.1))
        };
        let parent = inside.filter(one).zip(first.zip(last));
        let accum = self.legs.entry((hop, call.section, parent.is_some())).or_default();
        accum.call(call.halves, call.moments, call.duration_ns, &[]);
        let Some((inside, ((one, first), (other, last)))) = parent else { return };
        let from = capture(call, inside.from.1);
        let (begin, end) = (capture(one, first.1), capture(other, last.1));
        let same = |at: usize| one_clock(at, begin);
        let moments = through(
            (inside.from.0, same(from)),
            first.0,
            if same(end) { last.0 } else { first.0 + passed(&call.hops) as i64 },
            (inside.to.0, same(capture(call, inside.to.1))),
        );
        let with_wire = (inside.legs.first < Leg::ServerHostIn, inside.legs.last > Leg::ServerHostOut);
        let proxy = Proxy { hop, captures: (from, begin), with_wire };
        self.proxies.entry(proxy).or_default().legs(u8::from(from > begin), &moments);
        *self.passed_ns.entry(proxy).or_default() += u128::from(passed(&call.hops));
        for inner in &call.hops {
            self.walk(inner, hop.saturating_add(1), one_clock);
        }
    }

    /// The sums, once the clocks of the sections are known.
    pub fn finish(self, sections: &[Option<Clock>], clocks: &AllClocks, totals: &mut HopTotals) {
        (totals.calls, totals.total_ns) = (self.calls, self.total_ns);
        let mut sums: Vec<PathSum> = Vec::new();
        let mut push = |hop: u8, stage: Stage, sum: LegSum| match sums
            .iter_mut()
            .find(|known| known.hop == hop && known.stage == stage)
        {
            Some(known) => {
                known.sum.total_ns = known.sum.total_ns.saturating_add(sum.total_ns);
                known.sum.bound_ns = known.sum.bound_ns.saturating_add(sum.bound_ns);
            }
            None => sums.push(PathSum { hop, stage, sum }),
        };
        for ((hop, section, parent), accum) in self.legs {
            let clock = sections.get(section).and_then(Option::as_ref);
            for leg in accum.finish(clock, clocks.resolution_ns).legs {
                if !(parent && on_proxy(leg.legs)) {
                    push(hop, Stage::Call(leg.legs), leg);
                }
            }
        }
        for (proxy, accum) in self.proxies {
            let (a, b) = proxy.captures;
            let same = clocks.same(a, b).then(Clock::same);
            let clock = same.as_ref().or_else(|| clocks.linked.get(&(a.min(b), a.max(b))));
            let request = Stage::ProxyRequest { with_wire: proxy.with_wire.0 };
            let response = Stage::ProxyResponse { with_wire: proxy.with_wire.1 };
            let passed_ns = self.passed_ns.get(&proxy).copied().unwrap_or(0);
            let passed_ns = i64::try_from(passed_ns).unwrap_or(i64::MAX);
            for leg in accum.finish(clock, clocks.resolution_ns).legs {
                if leg.legs == Legs::one(Leg::RequestWire) {
                    push(proxy.hop, request, leg);
                } else if leg.legs == Legs::one(Leg::ResponseWire) {
                    push(proxy.hop, response, leg);
                } else if leg.legs.contains(Leg::RequestWire) {
                    // Nothing compares the clocks: only the sum of both directions is known.
                    let both = leg.total_ns - passed_ns;
                    let bound_ns = leg.bound_ns + both.unsigned_abs().div_ceil(2);
                    push(proxy.hop, request, LegSum { total_ns: both / 2, bound_ns, ..leg });
                    push(proxy.hop, response, LegSum { total_ns: both - both / 2, bound_ns, ..leg });
                } else if leg.total_ns != passed_ns {
                    push(proxy.hop, Stage::ProxyRetry, LegSum { total_ns: leg.total_ns - passed_ns, ..leg });
                }
            }
        }
        sums.sort_by_key(|sum| order(sum.hop, sum.stage));
        totals.legs = sums;
    }
}

fn passed(hops: &[Linked<'_>]) -> u64 {
    hops.iter().map(|hop| hop.duration_ns).sum()
}

/// Position of a leg in a path: a hop lies between both halves of the previous one.
fn order(hop: u8, stage: Stage) -> (i16, Stage) {
    let hop = i16::from(hop);
    let deepest = i16::from(u8::MAX) + 1;
    let back = 2 * deepest - hop;
    match stage {
        Stage::Call(legs) if legs.first >= Leg::ServerSend => (back, stage),
        Stage::Call(_) | Stage::ProxyRequest { .. } => (hop, stage),
        Stage::ProxyRetry => (deepest - 1, stage),
        Stage::ProxyResponse { .. } => (back - 1, stage),
    }
}

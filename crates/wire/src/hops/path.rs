//! The legs of a call over all its hops.

use super::{PathLeg, Stage};
use crate::align::Clock;
use crate::call::{Call, LegTime};
use crate::legs::{Moment, Moments};
use rustc_hash::FxHashMap;
use spangap_model::evidence::HostTime;
use spangap_model::{Leg, Legs, Side};

/// The clocks of all captures.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllClocks {
    /// A number for each capture, equal where one clock times both.
    pub groups: Vec<usize>,
    /// Of two captures that have no connection in common, from the links between their calls: the lower number first.
    pub linked: FxHashMap<(usize, usize), Clock>,
    /// How much faster or slower one clock of a section may be than the other.
    pub drifts: Vec<f64>,
    /// Resolution of the coarsest capture, nanoseconds.
    pub resolution_ns: u32,
}

impl AllClocks {
    /// Whether one clock times both captures.
    pub fn same(&self, a: usize, b: usize) -> bool {
        a == b || self.groups.get(a).is_some_and(|group| Some(group) == self.groups.get(b))
    }

    /// From a moment of one capture to a moment of another: nanoseconds, and how far off that may be.
    fn between(&self, from: (i64, u8), to: (i64, u8)) -> Option<(i64, u64)> {
        let (a, b) = (usize::from(from.1), usize::from(to.1));
        let resolution = u64::from(self.resolution_ns.max(1));
        if self.same(a, b) {
            return Some((to.0 - from.0, resolution));
        }
        let clock = self.linked.get(&(a.min(b), a.max(b)))?;
        let (low, high) = if a < b { clock.first_at(to.0)? } else { clock.second_at(to.0)? };
        Some((low + (high - low) / 2 - from.0, high.abs_diff(low).div_ceil(2) + resolution))
    }
}

/// Where in a call its hops are: between the moments that its own captures show last before and first after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inside {
    pub from: (i64, Side),
    pub to: (i64, Side),
    pub legs: Legs,
}

/// Legs on the host of the server, which is a proxy.
const ON_HOST: Legs = Legs { first: Leg::ServerHostIn, last: Leg::ServerHostOut };

/// Whether a leg passes on the proxy, in part at least.
pub(crate) fn on_proxy(legs: Legs) -> bool {
    legs.first <= ON_HOST.last && legs.last >= ON_HOST.first
}

impl Inside {
    /// `None` when the call's own moments do not enclose its server's time.
    pub fn of(moments: &Moments) -> Option<Inside> {
        let mut inside: Option<Inside> = None;
        moments.raw(|leg| {
            if on_proxy(leg.legs) {
                let first =
                    inside.map_or((leg.from, leg.legs.first), |inside| (inside.from, inside.legs.first));
                let legs = Legs { first: first.1, last: leg.legs.last };
                inside = Some(Inside { from: first.0, to: leg.to, legs });
            }
        });
        inside.filter(|inside| inside.legs.first <= ON_HOST.first && inside.legs.last >= ON_HOST.last)
    }

    pub fn request(&self) -> Stage {
        Stage::ProxyRequest { with_wire: self.legs.first < ON_HOST.first }
    }

    pub fn response(&self) -> Stage {
        Stage::ProxyResponse { with_wire: self.legs.last > ON_HOST.last }
    }
}

/// First and last moment of a call, each with the number of its capture.
type Ends = [(i64, u8); 2];

fn ends(call: &Call) -> Option<Ends> {
    let (first, last) = Moments::of(&call.halves).ends()?;
    let placed = |(at, side): (i64, Side)| (at, call.halves.captures[side.index()]);
    Some([placed(first), placed(last)])
}

/// The legs of a call and all its hops, in order. They sum to its duration exactly.
pub(crate) fn path(call: &Call, clocks: &AllClocks) -> Vec<PathLeg> {
    let mut out = Vec::new();
    add(call, clocks, (0, 0), 0.0, &mut out);
    out
}

/// Where in a call its hops are, and each with its ends; `None` without hops, or where the moments of a call do not tell.
fn passed_on(call: &Call) -> Option<(Inside, Vec<(&Call, Ends)>)> {
    let inside = Inside::of(&Moments::of(&call.halves)).filter(|_| !call.hops.is_empty())?;
    let hops = call.hops.iter().map(|hop| Some((&hop.call, ends(&hop.call)?)));
    Some((inside, hops.collect::<Option<_>>()?))
}

/// What the hosts did in those legs of [`path`] that are legs of a call, in their order.
pub(crate) fn hosts_along<'c>(call: &'c Call, out: &mut Vec<Option<&'c HostTime>>) {
    let all = 0..call.legs.len();
    let Some((_, hops)) = passed_on(call) else {
        out.extend(all.map(|place| call.hosts.get(&place)));
        return;
    };
    let before = call.legs.iter().take_while(|leg| !on_proxy(leg.legs)).count();
    let after = call.legs.iter().rposition(|leg| on_proxy(leg.legs)).map_or(all.end, |place| place + 1);
    out.extend((0..before).map(|place| call.hosts.get(&place)));
    for (hop, _) in hops {
        hosts_along(hop, out);
    }
    out.extend((after..all.end).map(|place| call.hosts.get(&place)));
}

/// `drift` is how much faster or slower the clock of these legs may be than that of the whole.
fn add(call: &Call, clocks: &AllClocks, (hop, attempt): (u8, u8), drift: f64, out: &mut Vec<PathLeg>) {
    let drifting = |ns: i64| (ns.unsigned_abs() as f64 * drift).ceil() as u64;
    let own = |leg: &LegTime| PathLeg {
        hop,
        attempt,
        stage: Stage::Call(leg.legs),
        ns: leg.ns,
        bound_ns: leg.bound_ns + drifting(leg.ns),
    };
    let Some((inside, hops)) = passed_on(call) else {
        out.extend(call.legs.iter().map(own));
        return;
    };
    let within = call.legs.iter().filter(|leg| on_proxy(leg.legs));
    let (whole_ns, whole_bound_ns) =
        within.fold((0, 0), |(ns, bound), leg| (ns + leg.ns, leg.bound_ns.max(bound)));
    out.extend(call.legs.iter().take_while(|leg| !on_proxy(leg.legs)).map(own));
    let from = (inside.from.0, call.halves.captures[inside.from.1.index()]);
    let passed_ns: i64 = hops.iter().map(|(hop, _)| hop.duration_ns as i64).sum();
    let mut rest_ns = whole_ns - passed_ns;
    let mut off_ns = whole_bound_ns;
    let mut parts = Vec::new();
    let mut before = (from, inside.request());
    for (nth, (inner, [first, last])) in hops.iter().enumerate() {
        let (ns, bound_ns) = match clocks.between(before.0, *first) {
            Some(known) => known,
            // Nothing compares the clocks: what both ways took together is known, and each is half of it.
            None if nth == 0 => (rest_ns / 2, rest_ns.unsigned_abs().div_ceil(2)),
            None => (0, rest_ns.unsigned_abs()),
        };
        rest_ns -= ns;
        off_ns += bound_ns;
        parts.push((before.1, ns, bound_ns, *inner));
        before = (*last, Stage::ProxyRetry);
    }
    let several = parts.len() > 1;
    for (nth, (stage, ns, bound_ns, inner)) in parts.into_iter().enumerate() {
        out.push(PathLeg { hop, attempt, stage, ns, bound_ns: bound_ns + drifting(ns) });
        let attempt = if several { (nth as u8).saturating_add(1) } else { 0 };
        let one = clocks.same(usize::from(main_capture(call)), usize::from(main_capture(inner)));
        let own = clocks.drifts.get(call.section).copied().unwrap_or(0.0);
        let drift = if one { drift } else { drift + own };
        add(inner, clocks, (hop.saturating_add(1), attempt), drift, out);
    }
    out.push(PathLeg { hop, attempt, stage: inside.response(), ns: rest_ns, bound_ns: off_ns });
    let after =
        call.legs.iter().rposition(|leg| on_proxy(leg.legs)).map_or(call.legs.len(), |place| place + 1);
    out.extend(call.legs[after..].iter().map(own));
}

/// The capture by whose clock a call's time is told.
fn main_capture(call: &Call) -> u8 {
    let client = call.halves.exchanges[0].is_some();
    call.halves.captures[usize::from(!client)]
}

/// The moments of a proxy: the request there, its first attempt, the end of the last one, the response sent on; as if the
/// way through the proxy were one between two taps.
pub(crate) fn through(from: (i64, bool), first: i64, last: i64, to: (i64, bool)) -> Moments {
    let mut moments = Moments::default();
    let side = |same: bool| if same { Side::Server } else { Side::Client };
    let set = |at: i64, side: Side| -> Moment { Some((at, side)) };
    moments.0[2] = set(from.0, side(from.1));
    moments.0[3] = set(first, Side::Server);
    moments.0[7] = set(last, Side::Server);
    moments.0[8] = set(to.0, side(to.1));
    moments
}

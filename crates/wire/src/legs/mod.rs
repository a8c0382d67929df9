//! The legs of a call: ten moments of it, as far as they are known, and the time between neighbours.
//!
//! The client's moments are read on one clock, the server's on another. If the offset is known as an interval,
//! the server's moments are mapped to the client's clock by the middle of the interval: the time between two
//! moments of different ends is uncertain by half the interval's width. All legs are differences within one list
//! of moments, so they sum to the duration exactly.

use crate::align::Clock;
use crate::call::{Halves, LegTime};
use crate::spans::MILLISECOND_NS;
use spangap_model::{Leg, Legs, Side};

mod unanswered;

/// Moment `i` begins leg `i` of [`Leg::ALL`] and ends leg `i - 1`.
const MOMENTS: usize = 10;
/// Maximum rate difference when nothing bounds it: see [`crate::align`].
const MAX_SLOPE: f64 = 1e-3;

/// A moment: nanoseconds on the clock of that end.
pub(crate) type Moment = Option<(i64, Side)>;

/// The moments of a call, in order; unknown ones are `None`. Moment 8 of a call without a complete response is
/// the end of that call. If nothing of a response had arrived by then, the second field names the leg in which
/// the call waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moments(pub [Moment; MOMENTS], pub Option<Leg>);

/// The time between two neighbouring known moments, each on its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawLeg {
    pub legs: Legs,
    pub from: (i64, Side),
    pub to: (i64, Side),
}

impl Moments {
    /// The moments of a call. A last byte counts only if both ends mean the same byte.
    ///
    /// At its sender, a byte counts when the tap first sees it; at its receiver, when it becomes readable.
    ///
    /// The server's application begins (moment 4) with its SERVER span, but not before the complete request was
    /// available, as far as the server's tap shows that: see [`application_begins`]. The end of the span is not
    /// adjusted: between the first byte of a response and the span's end, the application may still be producing
    /// the rest, or only waiting until it is sent. No packet shows which, so the leg between is negative by the
    /// time that both overlapped.
    #[inline]
    pub fn of(halves: &Halves) -> Moments {
        let mut at = [None; MOMENTS];
        let [client, server] = &halves.exchanges;
        let spans = halves.spans.unwrap_or_default();
        if let Some(client) = client {
            at[1] = Some((client.request.first.seen_ns, Side::Client));
            at[2] = Some((client.request.last.seen_ns, Side::Client)).filter(|_| !client.doubts.end_cut[0]);
            at[8] = client.response.as_ref().map(|response| (response.last.ready_ns, Side::Client));
        } else if let Some(server) = server.as_ref().filter(|_| spans.client.is_none()) {
            at[1] = Some((server.request.first.seen_ns, Side::Server));
        }
        if let Some(server) = server {
            at[3] = Some((server.request.last.ready_ns, Side::Server)).filter(|_| !server.doubts.end_cut[0]);
            if let Some(response) = &server.response {
                at[6] = Some((response.first.seen_ns, Side::Server)).filter(|_| !server.doubts.tickets);
                at[7] = Some((response.last.seen_ns, Side::Server));
            }
            if let Some(client) = client {
                if client.request.end as u32 != server.request.end as u32 {
                    at[3] = None;
                }
                let ends = [client, server].map(|half| half.response.as_ref().map(|part| part.end as u32));
                if ends[0].is_some() && ends[0] != ends[1] {
                    at[7] = None;
                }
            }
        }
        // If nothing else shows the end of the call, its last known byte does; but whose time it is until then,
        // in which direction or at which end, is unknown.
        if halves.exchanges.iter().flatten().any(|half| half.doubts.end_cut[1]) {
            at[7] = None;
            at[8] = at[8].filter(|_| spans.client.is_none());
        }
        if let Some((start, end)) = spans.client {
            (at[0], at[9]) = (Some((start, Side::Client)), Some((end, Side::Client)));
        }
        if let Some(((start, end), client)) = spans.client.zip(client.as_ref())
            && is_over_before(end, spans.off_ns[Side::Client.index()], client.request.first.seen_ns)
        {
            let mut never_left = [None; MOMENTS];
            (never_left[0], never_left[9]) = (Some((start, Side::Client)), Some((end, Side::Client)));
            return Moments(never_left, Some(Leg::ClientAppOut));
        }
        if let Some((start, end)) = spans.server {
            let whole = server.as_ref().filter(|server| !server.doubts.hole).and(at[3]);
            let latest_ns = end.saturating_add_unsigned(spans.off_ns[Side::Server.index()]);
            let begin = application_begins((start, latest_ns), whole.map(|(at, _)| at));
            (at[4], at[5]) = (Some((begin, Side::Server)), Some((end, Side::Server)));
        }
        let waited_in = unanswered::end(halves, &mut at);
        Moments(at, waited_in)
    }

    /// The legs between moments `from` and `to`.
    #[inline]
    fn legs_between(&self, from: usize, to: usize) -> Legs {
        match self.1 {
            Some(waited_in) if from < 8 && to >= 8 => Legs::one(waited_in),
            _ => Legs { first: Leg::ALL[from], last: Leg::ALL[to - 1] },
        }
    }

    /// Drops the server's moments if the client's end of the call is unknown, so that the rest begins and ends on
    /// one clock. A call cannot end before it begins: a moment that contradicts this is not part of it.
    #[inline]
    pub fn closed(mut self) -> Moments {
        let of_client = |moment: &Moment| matches!(moment, Some((_, Side::Client)));
        let begins = self.0[..3].iter().any(of_client);
        let ends = self.0[8..].iter().any(of_client);
        if begins && !ends {
            self.0.iter_mut().filter(|moment| !of_client(moment)).for_each(|moment| *moment = None);
        }
        while let Some((first, last)) = self.ends()
            && last.0 < first.0
            && let Some(moment) = self.0.iter_mut().rfind(|moment| moment.is_some())
        {
            *moment = None;
        }
        self
    }

    /// First and last known moment.
    #[inline]
    pub fn ends(&self) -> Option<((i64, Side), (i64, Side))> {
        let mut known = self.0.iter().flatten();
        let first = *known.next()?;
        Some((first, *known.next_back().unwrap_or(&first)))
    }

    /// Time from the client's last moment before the server's first to its first moment after the server's last,
    /// nanoseconds; 0 if there are no such moments.
    #[inline]
    pub fn away_ns(&self) -> u64 {
        let of = |side: Side| move |moment: &Moment| matches!(moment, Some((_, of)) if *of == side);
        let servers = self.0.iter().position(of(Side::Server)).zip(self.0.iter().rposition(of(Side::Server)));
        let away = servers.and_then(|(first, last)| {
            let left = self.0[..first].iter().rev().flatten().next()?;
            let back = self.0[last + 1..].iter().flatten().next()?;
            Some(back.0.abs_diff(left.0))
        });
        away.unwrap_or(0)
    }

    /// Calls `each` with the legs between neighbouring known moments.
    #[inline]
    pub fn raw(&self, mut each: impl FnMut(RawLeg)) {
        let mut before: Option<(usize, (i64, Side))> = None;
        for (i, moment) in self.0.iter().enumerate() {
            let Some(moment) = *moment else { continue };
            if let Some((begin, from)) = before {
                let legs = self.legs_between(begin, i);
                each(RawLeg { legs, from, to: moment });
            }
            before = Some((i, moment));
        }
    }
}

/// Whether a call was over before its first byte left the client: the client gave up while that byte waited in a
/// buffer of the connection, and the packets of the call came later, for nobody. A span's times may be truncated
/// to milliseconds, or the whole span is off by that.
#[inline]
fn is_over_before(end_ns: i64, off_ns: u64, first_ns: i64) -> bool {
    let cut_ns = if end_ns % MILLISECOND_NS == 0 { MILLISECOND_NS } else { 0 };
    first_ns > end_ns.saturating_add(cut_ns).saturating_add_unsigned(off_ns)
}

/// When the server's application started to work on the call: at the start of its SERVER span, or when the
/// request was complete (`whole`), if that was later. A gRPC server begins the span with the request's header;
/// the time that it then waits for the rest belongs to the network and the client.
///
/// A span that ended before the request was complete did not need the rest of it (a refusal, a bidirectional
/// stream): all of it is the application's, and the leg before it is negative.
#[inline]
fn application_begins((start, end): (i64, i64), whole: Option<i64>) -> i64 {
    whole.filter(|whole| (start..=end).contains(whole)).unwrap_or(start)
}

/// The clocks of a call's two ends, as far as known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks<'a> {
    /// Clock relation of the two captures; `None` when it is unbounded.
    pub clock: Option<&'a Clock>,
    /// The capture at the client's end.
    pub client_capture: u8,
    /// Resolution of the coarser capture's timestamps, nanoseconds.
    pub resolution_ns: u32,
}

impl Clocks<'_> {
    /// The times of the client's clock at which the server's clock may have shown `at_ns`.
    fn at_client(&self, at_ns: i64) -> Option<(i64, i64)> {
        let clock = self.clock?;
        if self.client_capture == 0 { clock.first_at(at_ns) } else { clock.second_at(at_ns) }
    }

    /// Minimum and maximum of `length_ns`, a duration on the server's clock, on the client's clock.
    fn length_at_client(&self, at_ns: i64, length_ns: i64) -> (f64, f64) {
        let slopes = self.clock.and_then(|clock| clock.slope(at_ns)).unwrap_or((-MAX_SLOPE, MAX_SLOPE));
        let factor = |slope: f64| if self.client_capture == 0 { 1.0 / (1.0 + slope) } else { 1.0 + slope };
        let (a, b) = (length_ns as f64 * factor(slopes.0), length_ns as f64 * factor(slopes.1));
        (a.min(b), a.max(b))
    }
}

/// The moments on one clock: the client's, or the server's if no moment of the client is known.
struct ClockedMoments {
    at: [Option<i64>; MOMENTS],
    /// Uncertainty of a server moment relative to those of the client.
    uncertain_ns: [u64; MOMENTS],
}

/// The start of a call, its duration, and its legs. The legs sum to the duration exactly.
///
/// Bounds: between moments of one clock, the resolution of its timestamps (and, if the server's clock is mapped,
/// the uncertainty of its rate); between moments of both, half the width of the offset's interval plus the
/// resolution. Without any bound on the offset, only the sum of both directions is known: each gets half of it,
/// with that half as its bound. A span that may be off as a whole adds by how much.
pub(crate) fn legs(halves: &Halves, clocks: Clocks<'_>) -> (i64, u64, Vec<LegTime>) {
    let mut moments = Moments::of(halves).closed();
    let mapped = map(&mut moments, clocks);
    let resolution = u64::from(clocks.resolution_ns.max(1));
    let known: Vec<usize> = (0..MOMENTS).filter(|i| mapped.at[*i].is_some()).collect();
    let at = |i: usize| mapped.at[i].unwrap_or_default();
    let Some((first, last)) = known.first().zip(known.last()) else { return (0, 0, Vec::new()) };
    let start_ns = at(*first);
    let duration_ns = at(*last).saturating_sub(start_ns).max(0) as u64;
    let side = |i: usize| moments.0[i].map(|(_, side)| side);
    let both = known.iter().any(|i| side(*i) == Some(Side::Client));
    let mut legs = Vec::with_capacity(known.len());
    for pair in known.windows(2) {
        let [from, to] = *pair else { continue };
        let ns = at(to) - at(from);
        let bound_ns = match (side(from), side(to)) {
            (a, b) if a != b => mapped.uncertain_ns[from].max(mapped.uncertain_ns[to]) + resolution,
            (Some(Side::Server), _) if both => {
                let begin = moments.0[from].map_or(0, |(at, _)| at);
                let length = moments.0[to].map_or(0, |(at, _)| at) - begin;
                let (least, most) = clocks.length_at_client(at(from), length);
                let off = (least - ns as f64).abs().max((most - ns as f64).abs()).ceil() as u64;
                off.min(mapped.uncertain_ns[from] + mapped.uncertain_ns[to]).max(1) + resolution
            }
            _ => resolution,
        };
        let bound_ns = bound_ns.saturating_add(off_ns(halves, &moments, (from, to)));
        legs.push(LegTime { legs: moments.legs_between(from, to), ns, bound_ns });
    }
    (start_ns, duration_ns, legs)
}

/// How far a leg may be off because the whole of a span is: the legs at its ends, not what lies between them.
fn off_ns(halves: &Halves, moments: &Moments, (from, to): (usize, usize)) -> u64 {
    let Some(spans) = halves.spans.filter(|spans| spans.off_ns != [0; 2]) else { return 0 };
    // By the other clock, a millisecond is a little longer or shorter.
    let of = |moment: usize| match moment {
        0 | 9 => spans.off_ns[Side::Client.index()],
        4 | 5 => (spans.off_ns[Side::Server.index()] as f64 * (1.0 + MAX_SLOPE)).ceil() as u64,
        _ => 0,
    };
    let began_ns = spans.server.map(|(start, _)| start);
    match (from, to) {
        (0, 9) => 0,
        // Both are off by the same. But if the span may have begun before the request was complete, the application may have
        // begun with that.
        (4, 5) if moments.0[4].map(|(at, _)| at) == began_ns => {
            let whole = moments.0[3].zip(began_ns);
            whole
                .map_or(0, |((whole, _), began)| (whole.saturating_add_unsigned(of(4)) - began).max(0) as u64)
        }
        _ => of(from).saturating_add(of(to)),
    }
}

/// Maps the moments to one clock; removes those that cannot be mapped from `moments`.
fn map(moments: &mut Moments, clocks: Clocks<'_>) -> ClockedMoments {
    let mut mapped = ClockedMoments { at: [None; MOMENTS], uncertain_ns: [0; MOMENTS] };
    let of = |side: Side| move |moment: &Moment| matches!(moment, Some((_, of)) if *of == side);
    let one_clock = !moments.0.iter().any(of(Side::Client)) || !moments.0.iter().any(of(Side::Server));
    let mut unbounded = false;
    for (i, moment) in moments.0.iter().enumerate() {
        match *moment {
            Some((at, side)) if one_clock || side == Side::Client => mapped.at[i] = Some(at),
            Some((at, _)) => match clocks.at_client(at) {
                Some((low, high)) => {
                    mapped.at[i] = Some(low + (high - low) / 2);
                    mapped.uncertain_ns[i] = high.abs_diff(low).div_ceil(2);
                }
                None => unbounded = true,
            },
            None => {}
        }
    }
    if unbounded {
        *moments = afloat(*moments, &mut mapped, clocks);
    }
    mapped
}

/// Without a bound on the offset, the server's moments are placed in the middle of the time that both directions
/// took. A SERVER span may begin with the first byte of its request, before the last one was sent.
fn afloat(mut moments: Moments, mapped: &mut ClockedMoments, clocks: Clocks<'_>) -> Moments {
    let server: Vec<(usize, i64)> = (0..MOMENTS)
        .filter_map(|i| moments.0[i].filter(|(_, side)| *side == Side::Server).map(|(at, _)| (i, at)))
        .collect();
    let client = |i: &usize| moments.0[*i].filter(|(_, side)| *side == Side::Client).map(|(at, _)| at);
    let place = server.first().zip(server.last()).and_then(|((first, begin), (last, end))| {
        let sent_before = if *first > 3 { 0..2 } else { 0..*first };
        let before = sent_before.rev().find_map(|i| client(&i))?;
        let after = (*last..MOMENTS).find_map(|i| client(&i))?;
        Some((before, (after - before) - (end - begin), *begin, end - begin))
    });
    for (i, at) in server {
        let Some((before, slack, begin, length)) = place else {
            moments.0[i] = None;
            mapped.at[i] = None;
            continue;
        };
        let drift = (length.unsigned_abs() as f64 * MAX_SLOPE).ceil() as u64;
        mapped.at[i] = Some(before + slack.div_euclid(2) + (at - begin));
        let resolution = u64::from(clocks.resolution_ns.max(1));
        mapped.uncertain_ns[i] = slack.unsigned_abs().div_ceil(2) + drift + resolution;
    }
    moments
}

#[cfg(test)]
mod tests;

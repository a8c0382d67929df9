//! The legs of a call: ten moments of it, as far as they are known, and the time between neighbours.
//!
//! Moments of the client's end are read on one clock, those of the server's end on another. With the offset known
//! as an interval, the server's moments are mapped to the client's clock by the interval's middle: what lies between
//! two moments of different ends is uncertain by half its width. All legs are differences of one list of moments, so
//! they sum to the duration exactly.

use crate::align::Clock;
use crate::call::{Halves, LegTime};
use spangap_model::{Leg, Legs, Side};

mod unanswered;

/// Moment `i` begins leg `i` of [`Leg::ALL`] and ends leg `i - 1`.
const MOMENTS: usize = 10;
/// Times of spans may be cut to this.
const CUT_NS: i64 = 1_000_000;
/// Rate of one clock by the other where nothing bounds it: see [`crate::align`].
const MAX_SLOPE: f64 = 1e-3;

/// A moment: nanoseconds on the clock of that end.
pub(crate) type Moment = Option<(i64, Side)>;

/// The moments of a call, in order; unknown ones are `None`. Moment 8 of a call without a whole response is when that call
/// was over. Where nothing of a response came by then, the second field names the leg that it waited in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moments(pub [Moment; MOMENTS], pub Option<Leg>);

/// The time between two neighbouring known moments, each as its own clock shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawLeg {
    pub legs: Legs,
    pub from: (i64, Side),
    pub to: (i64, Side),
}

impl Moments {
    /// Of a call. A last byte counts only when both ends mean the same byte.
    ///
    /// At its sender a byte counts when it was first seen, at its receiver when it could be read.
    ///
    /// The server's application begins (moment 4) with its SERVER span, but not before it could have the whole request,
    /// as far as the server's tap shows when that was: see [`application_begins`]. The other end of the span is left as
    /// it is: between the first byte of a response and the span's end the application may still be at work on the rest of
    /// it, or only wait until that is sent. No packet tells which, so the leg between is below zero by as much as both
    /// went on at once.
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
        // Where nothing else tells when the call was over, the last byte known of it does; but whose time it is until then, on
        // which way or at which end, is not known.
        if halves.exchanges.iter().flatten().any(|half| half.doubts.end_cut[1]) {
            at[7] = None;
            at[8] = at[8].filter(|_| spans.client.is_none());
        }
        if let Some((start, end)) = spans.client {
            (at[0], at[9]) = (Some((start, Side::Client)), Some((end, Side::Client)));
        }
        if let Some(((start, end), client)) = spans.client.zip(client.as_ref())
            && is_over_before(end, client.request.first.seen_ns)
        {
            let mut never_left = [None; MOMENTS];
            (never_left[0], never_left[9]) = (Some((start, Side::Client)), Some((end, Side::Client)));
            return Moments(never_left, Some(Leg::ClientAppOut));
        }
        if let Some((start, end)) = spans.server {
            let whole = server.as_ref().filter(|server| !server.doubts.hole).and(at[3]);
            let begin = application_begins((start, end), whole.map(|(at, _)| at));
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

    /// Without the server's moments where the client's end of the call is not known: what remains begins and ends
    /// on one clock. A call cannot end before it begins: what says so is no part of it.
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

    /// From the client's last moment before the server's first to its first after the server's last, nanoseconds; 0 where
    /// there are no such moments.
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

    /// What lies between neighbouring known moments.
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

/// Whether a call was over before its first byte left the client: it was given up while that waited in a buffer of the
/// connection, and what the wire shows of it came later, for nobody. A span's times may be cut to milliseconds.
#[inline]
fn is_over_before(end_ns: i64, first_ns: i64) -> bool {
    let cut_ns = if end_ns % CUT_NS == 0 { CUT_NS } else { 0 };
    first_ns > end_ns.saturating_add(cut_ns)
}

/// When the server's application had the call in hand: when its SERVER span began, or when the request was there as a
/// `whole`, if that was later. A gRPC server begins the span with the request's header; what it then waits for the rest
/// is the way's time and the client's.
///
/// A span that was over before the request was complete did not need the rest of it (a refusal, a bidirectional stream):
/// all of it is the application's, and the leg before it is below zero.
#[inline]
fn application_begins((start, end): (i64, i64), whole: Option<i64>) -> i64 {
    whole.filter(|whole| (start..=end).contains(whole)).unwrap_or(start)
}

/// What is known of the clocks of a call's two ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks<'a> {
    /// Of the two captures; `None` when nothing bounds them.
    pub clock: Option<&'a Clock>,
    /// The capture at the client's end.
    pub client_capture: u8,
    /// Resolution of the timestamps, nanoseconds, of the coarser capture.
    pub resolution_ns: u32,
}

impl Clocks<'_> {
    /// The times of the client's clock at which the server's may have shown `at_ns`.
    fn at_client(&self, at_ns: i64) -> Option<(i64, i64)> {
        let clock = self.clock?;
        if self.client_capture == 0 { clock.first_at(at_ns) } else { clock.second_at(at_ns) }
    }

    /// How long `length_ns` of the server's clock may be by the client's: least and most.
    fn length_at_client(&self, at_ns: i64, length_ns: i64) -> (f64, f64) {
        let slopes = self.clock.and_then(|clock| clock.slope(at_ns)).unwrap_or((-MAX_SLOPE, MAX_SLOPE));
        let factor = |slope: f64| if self.client_capture == 0 { 1.0 / (1.0 + slope) } else { 1.0 + slope };
        let (a, b) = (length_ns as f64 * factor(slopes.0), length_ns as f64 * factor(slopes.1));
        (a.min(b), a.max(b))
    }
}

/// The moments on one clock: the client's, or the server's when nothing of the client's end is known.
struct ClockedMoments {
    at: [Option<i64>; MOMENTS],
    /// How far off a moment of the server's end may be from those of the client's end.
    uncertain_ns: [u64; MOMENTS],
}

/// The legs of a call, when it began, and how long it took. The legs sum to that exactly.
///
/// Bounds: between moments of one clock the resolution of its timestamps (and, where the server's is mapped, the
/// uncertainty of its rate); between moments of both, half the width of the offset's interval and the resolution.
/// Without any bound on the offset, what both ways took together is known: each is half of it, and off by as much
/// at most.
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
        legs.push(LegTime { legs: moments.legs_between(from, to), ns, bound_ns });
    }
    (start_ns, duration_ns, legs)
}

/// Brings the moments to one clock; takes those out of `moments` that cannot be.
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

/// Without a bound on the offset: the server's moments are put into the middle of the time that both ways took. A SERVER
/// span may begin with the first byte of its request, before the last one was sent.
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

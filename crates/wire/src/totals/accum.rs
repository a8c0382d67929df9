//! Sums over calls while the clocks are not yet known: sums of differences between clocks. The offset enters them
//! linearly, so it can correct them at the end.

use super::{CauseSum, LegSum, Sums};
use crate::align::{Clock, Stretch};
use crate::call::{CallFinding, Halves};
use crate::exchange::{Ended, Protocol};
use crate::legs::Moments;
use spangap_model::evidence::Certainty;
use spangap_model::{CallStatus, Cause, Histogram, Leg, Legs, Side};
use std::collections::BTreeMap;

/// Sum of one leg over calls.
#[derive(Clone, Copy, Debug)]
struct LegAccum {
    legs: Legs,
    /// The capture at the client's end.
    client: u8,
    /// How often the offset (second clock - first clock) is contained in each call's difference: 1, 0 or -1.
    sign: i8,
    calls: u64,
    /// Sum of the differences as shown by the clocks.
    raw_ns: i128,
    /// Sum of the moments at which the offset applies, by the client's clock: only where `sign` is not 0.
    moments_ns: i128,
    /// Time during which a rate difference between the clocks could falsify the sum.
    drifting_ns: u128,
}

/// Adds the counts of other calls.
pub(super) fn add_counts(counts: &mut BTreeMap<u16, u64>, others: &BTreeMap<u16, u64>) {
    for (status, count) in others {
        *counts.entry(*status).or_default() += count;
    }
}

/// Sums over some calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accum {
    pub calls: u64,
    one_end: [u64; 2],
    failed: u64,
    unfinished: u64,
    unanswered: u64,
    status_unknown: u64,
    http_statuses: BTreeMap<u16, u64>,
    cut_by_snap: u64,
    durations: Histogram,
    legs: Vec<LegAccum>,
    causes: Vec<CauseSum>,
    /// First and last moment at which an offset applies, for clients at each capture, by its clock.
    ranges_ns: [Option<(i64, i64)>; 2],
}

impl Accum {
    /// Total time of its calls.
    pub fn total_ns(&self) -> u128 {
        self.durations.sum_ns()
    }

    /// Counts a call.
    #[inline]
    pub fn call(&mut self, halves: &Halves, moments: &Moments, duration_ns: u64, findings: &[CallFinding]) {
        self.calls += 1;
        let timed = !halves.is_of_two_clocks();
        if timed {
            self.durations.record(duration_ns);
        }
        let [client, server] = &halves.exchanges;
        match (client, server) {
            (Some(_), None) => self.one_end[0] += 1,
            (None, Some(_)) => self.one_end[1] += 1,
            _ => {}
        }
        if let Some(half) = client.as_ref().or(server.as_ref()) {
            // An answer for which nobody waited is not the status of the call.
            if let Some(status) = half.http_status.filter(|_| !half.is_unanswered()) {
                *self.http_statuses.entry(status).or_default() += 1;
            }
            let has_status = !matches!(half.protocol, Protocol::Turns | Protocol::Tls);
            match half.ended {
                _ if half.end_was_cut() => self.cut_by_snap += 1,
                Ended::CaptureEnded => self.unfinished += 1,
                // A closing message without a response, or a call whose answer is not in the packets: the outcome
                // is unknown.
                Ended::ConnectionClosed if half.doubts.end_unknown => {
                    self.status_unknown += u64::from(has_status);
                }
                Ended::Reset { .. } | Ended::ConnectionClosed => self.failed += 1,
                Ended::Complete => {
                    self.failed += u64::from(failed(half.status));
                    self.status_unknown += u64::from(has_status && half.status == CallStatus::UNSET);
                }
            }
        }
        self.unanswered += u64::from(moments.1.is_some());
        if !timed {
            return;
        }
        self.legs(halves.captures[0], moments);
        for finding in findings {
            let shown = finding.certainty == Certainty::Shown;
            self.cause(CauseSum {
                cause: finding.cause,
                side: finding.side,
                calls: u64::from(shown),
                possible: u64::from(!shown),
                cost_ns: finding.cost_ns.unwrap_or(0),
            });
        }
    }

    /// Adds the legs of a call whose client is at that capture.
    #[inline]
    pub fn legs(&mut self, client: u8, moments: &Moments) {
        // Where one end's clock is compared with the other's, both directions use the offset of the same moment,
        // so that the sum over the legs stays exact; the drift until the server's moment of either goes into the
        // bound.
        let mut crossing: Option<i64> = None;
        let away_ns = moments.away_ns();
        let (accums, range) = (&mut self.legs, &mut self.ranges_ns[usize::from(client)]);
        moments.raw(|leg| {
            let ns = leg.to.0.saturating_sub(leg.from.0);
            let mut sign = 0;
            let mut moment_ns = 0;
            let mut drifting = 0;
            if leg.from.1 != leg.to.1 {
                // Server's clock minus client's is the offset if the client is at the first capture.
                let out = leg.from.1 == Side::Client;
                sign = if out == (client == 0) { -1 } else { 1 };
                moment_ns = *crossing.get_or_insert(if out { leg.from.0 } else { leg.to.0 });
                drifting = away_ns;
                *range = union(*range, Some((moment_ns, moment_ns)));
            } else if leg.from.1 == Side::Server {
                drifting = ns.unsigned_abs();
            }
            let accum = place(accums, leg.legs, client, sign);
            accum.calls += 1;
            accum.raw_ns += i128::from(ns);
            accum.moments_ns += i128::from(moment_ns) * i128::from(sign.abs());
            accum.drifting_ns += u128::from(drifting);
        });
    }

    /// Adds to the time of a cause.
    pub fn cause(&mut self, sum: CauseSum) {
        match self.causes.iter_mut().find(|known| known.cause == sum.cause && known.side == sum.side) {
            Some(known) => {
                known.calls += sum.calls;
                known.possible += sum.possible;
                known.cost_ns = known.cost_ns.saturating_add(sum.cost_ns);
            }
            None => self.causes.push(sum),
        }
    }

    /// Sum of a cause: calls for which it is shown and possible, and its cost.
    pub fn of_cause(&self, cause: Cause) -> Option<CauseSum> {
        self.causes.iter().find(|known| known.cause == cause).copied()
    }

    /// Subtracts what [`Accum::cause`] added.
    pub fn take_back(&mut self, sum: CauseSum) {
        for known in self.causes.iter_mut().filter(|known| (known.cause, known.side) == (sum.cause, sum.side))
        {
            known.calls = known.calls.saturating_sub(sum.calls);
            known.possible = known.possible.saturating_sub(sum.possible);
            known.cost_ns = known.cost_ns.saturating_sub(sum.cost_ns);
        }
        self.causes.retain(|known| known.calls + known.possible > 0);
    }

    /// Merges the calls of another sum.
    pub fn add(&mut self, other: &Accum) {
        self.calls += other.calls;
        for (mine, theirs) in self.one_end.iter_mut().zip(other.one_end) {
            *mine += theirs;
        }
        self.failed += other.failed;
        self.unfinished += other.unfinished;
        self.unanswered += other.unanswered;
        self.status_unknown += other.status_unknown;
        add_counts(&mut self.http_statuses, &other.http_statuses);
        self.cut_by_snap += other.cut_by_snap;
        self.durations.merge(&other.durations);
        for leg in &other.legs {
            let mine = place(&mut self.legs, leg.legs, leg.client, leg.sign);
            mine.calls += leg.calls;
            mine.raw_ns += leg.raw_ns;
            mine.moments_ns += leg.moments_ns;
            mine.drifting_ns += leg.drifting_ns;
        }
        for cause in &other.causes {
            self.cause(*cause);
        }
        for (mine, theirs) in self.ranges_ns.iter_mut().zip(other.ranges_ns) {
            *mine = union(*mine, theirs);
        }
    }

    /// The final sums, once the clocks are known.
    pub fn finish(mut self, clock: Option<&Clock>, resolution_ns: u32) -> Sums {
        by_weight(&mut self.causes);
        Sums {
            calls: self.calls,
            one_end: self.one_end,
            failed: self.failed,
            unfinished: self.unfinished,
            unanswered: self.unanswered,
            status_unknown: self.status_unknown,
            http_statuses: std::mem::take(&mut self.http_statuses),
            cut_by_snap: self.cut_by_snap,
            legs: self.finished_legs(clock, resolution_ns),
            durations: self.durations,
            causes: self.causes,
        }
    }

    /// First and last moment at which an offset applies, by the first clock; `None` if the clock relation is
    /// unknown there. The default range if there is no such moment.
    fn range_ns(&self, clock: &Clock) -> Option<(i64, i64)> {
        let [first, second] = self.ranges_ns;
        let second = match second {
            Some((from, to)) => Some((clock.first_at(from)?.0, clock.first_at(to)?.1)),
            None => None,
        };
        Some(union(first, second).unwrap_or_default())
    }

    fn finished_legs(&self, clock: Option<&Clock>, resolution_ns: u32) -> Vec<LegSum> {
        let range = clock.and_then(|clock| self.range_ns(clock));
        let stretches = clock.zip(range).map(|(clock, range)| over(clock, range)).unwrap_or_default();
        let range = range.unwrap_or_default();
        let bounded = !stretches.is_empty() && stretches.iter().all(|stretch| !stretch.corners.is_empty());
        let slopes = stretches.iter().flat_map(|stretch| &stretch.corners).map(|(_, slope)| slope.abs());
        let slope = if bounded { slopes.fold(0.0, f64::max) } else { 1e-3 };
        let mut sums: Vec<LegSum> = Vec::with_capacity(self.legs.len());
        let mut unplaced: Option<LegSum> = None;
        let crosses = self.legs.iter().any(|leg| leg.sign != 0);
        for leg in &self.legs {
            // By either clock: the other one's durations differ by as much.
            let drift = (leg.drifting_ns as f64 * slope * (1.0 + 2.0 * slope)).ceil() as u128;
            let own_bound = u128::from(leg.calls) * u128::from(resolution_ns.max(1)) + drift;
            let between = leg.legs.first >= Leg::RequestWire && leg.legs.last <= Leg::ResponseWire;
            let (total, bound) =
                if leg.sign == 0 { (leg.raw_ns, 0) } else { leg.corrected(&stretches, range) };
            let sum = LegSum {
                legs: leg.legs,
                total_ns: clamped(total),
                bound_ns: u64::try_from(bound.saturating_add(own_bound)).unwrap_or(u64::MAX),
            };
            if crosses && !bounded && between {
                // Without an offset, only the time between the client's own moments is known.
                let whole = Legs { first: Leg::RequestWire, last: Leg::ResponseWire };
                let all = unplaced.get_or_insert(LegSum { legs: whole, total_ns: 0, bound_ns: 0 });
                all.total_ns = clamped(i128::from(all.total_ns) + leg.raw_ns);
                all.bound_ns = all.bound_ns.saturating_add(u64::try_from(own_bound).unwrap_or(u64::MAX));
            } else {
                add_sum(&mut sums, sum);
            }
        }
        unplaced.into_iter().for_each(|sum| add_sum(&mut sums, sum));
        sums.sort_by_key(|sum| sum.legs);
        sums
    }
}

impl LegAccum {
    /// Sum of the offsets at its moments relative to the stretch's `base_ns`, for one line.
    fn offsets(&self, stretch: &Stretch, (offset, slope): (f64, f64)) -> i128 {
        let (calls, from_ns) = (i128::from(self.calls), i128::from(stretch.from_ns));
        let sum = if self.client == 0 {
            let since = self.moments_ns - calls * from_ns;
            self.calls as f64 * offset + since as f64 * slope
        } else {
            // By the second clock's t, the offset is base + (offset + slope (t - from - base)) / (1 + slope).
            let since = self.moments_ns - calls * (from_ns + i128::from(stretch.base_ns));
            (self.calls as f64 * offset + since as f64 * slope) / (1.0 + slope)
        };
        sum.round() as i128
    }

    /// The sum without the offset, and its uncertainty: over all lines that fit.
    fn corrected(&self, stretches: &[&Stretch], range: (i64, i64)) -> (i128, u128) {
        let (calls, sign) = (i128::from(self.calls), i128::from(self.sign));
        let mut extremes: Option<(i128, i128)> = None;
        let mut include = |offsets: i128| {
            let (low, high) = extremes.unwrap_or((offsets, offsets));
            extremes = Some((low.min(offsets), high.max(offsets)));
        };
        for stretch in stretches {
            for (offset, slope) in &stretch.corners {
                let base = calls * i128::from(stretch.base_ns) + (self.calls as f64 * offset).round() as i128;
                if let [_] = stretches {
                    include(calls * i128::from(stretch.base_ns) + self.offsets(stretch, (*offset, *slope)));
                } else {
                    // It is unknown which calls fall into which stretch: any stretch may apply to all.
                    for at in [range.0, range.1] {
                        let since = at.saturating_sub(stretch.from_ns) as f64;
                        include(base + (self.calls as f64 * since * slope).round() as i128);
                    }
                }
            }
        }
        let (low, high) = extremes.unwrap_or((0, 0));
        // Rounds towards zero, so that one direction gains exactly what the other loses.
        let middle = (low + high) / 2;
        (self.raw_ns + sign * middle, (high - low).unsigned_abs().div_ceil(2) + u128::from(self.calls))
    }
}

/// The smallest range that contains both.
fn union(a: Option<(i64, i64)>, b: Option<(i64, i64)>) -> Option<(i64, i64)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (a, b) => a.or(b),
    }
}

/// The stretches that overlap a range of time.
fn over(clock: &Clock, (first, last): (i64, i64)) -> Vec<&Stretch> {
    let all = &clock.stretches;
    let touches = |i: usize| {
        let begins = i == 0 || all[i].from_ns.min(all[i - 1].to_ns) <= last;
        begins && (i + 1 == all.len() || all[i].to_ns.max(all[i + 1].from_ns) >= first)
    };
    (0..all.len()).filter(|i| touches(*i)).map(|i| &all[i]).collect()
}

fn place(legs: &mut Vec<LegAccum>, of: Legs, client: u8, sign: i8) -> &mut LegAccum {
    let known = legs.iter().position(|leg| leg.legs == of && leg.client == client && leg.sign == sign);
    let place = known.unwrap_or_else(|| {
        let (raw_ns, moments_ns) = (0, 0);
        legs.push(LegAccum { legs: of, client, sign, calls: 0, raw_ns, moments_ns, drifting_ns: 0 });
        legs.len() - 1
    });
    &mut legs[place]
}

/// Sorts shown causes before possible ones, then by descending cost.
pub(super) fn by_weight(causes: &mut [CauseSum]) {
    causes.sort_by_key(|cause| {
        std::cmp::Reverse((cause.calls > 0, cause.cost_ns, cause.calls, cause.possible))
    });
}

pub(super) fn add_sum(sums: &mut Vec<LegSum>, sum: LegSum) {
    match sums.iter_mut().find(|known| known.legs == sum.legs) {
        Some(known) => {
            known.total_ns = known.total_ns.saturating_add(sum.total_ns);
            known.bound_ns = known.bound_ns.saturating_add(sum.bound_ns);
        }
        None => sums.push(sum),
    }
}

fn clamped(ns: i128) -> i64 {
    ns.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// gRPC status other than OK, or HTTP 5xx.
fn failed(status: spangap_model::CallStatus) -> bool {
    // Codes of `CallStatus`: 7 is HTTP 5xx, 16 is gRPC's OK, and the following ones are its errors.
    let code = status.code();
    code == 7 || (17..33).contains(&code)
}

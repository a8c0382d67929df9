//! The judge: one verdict out of all evidence, by plain rules.
//!
//! First it looks at calls that took longer than is typical in the run, then, where all calls are slow, at all of them. The
//! time in question is laid to what is *shown*, the most particular first: what packets show (a hold, a loss, a limit), then
//! what the host did to the threads of the call, then the leg it is in, which speaks for what can only be there. None gets
//! more than there is. What explains most of it is the verdict, if nothing else comes close. It knows nothing of scenarios.

mod weigh;

use crate::verdict::{Answer, Verdict};
use spangap_model::duration::format_ns;
use spangap_model::evidence::{CallRecord, Clocks, Evidence, SpanCounts};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};
use weigh::{Baseline, Lead, Weighed};

/// A call that takes so much longer is slow: less comes of what else a machine does, nanoseconds.
const SLOW_NS: u64 = 6_000_000;
/// What slow calls take beyond is noise below this ...
const NOISE_NS: u64 = 60_000_000;
/// ... below this for each call of the run ...
const NOISE_NS_PER_CALL: u64 = 100_000;
/// ... and below this share of the time of all calls.
const NOISE_SHARE: f64 = 0.05;
/// So many of the calls have to have several attempts, or open a connection, for that to be what is wrong.
const MANY: f64 = 0.05;
const MOST: f64 = 0.5;
/// A message of this many bytes is large.
const LARGE_BYTES: u64 = 256 << 10;
/// Clocks of hosts that are kept in step differ by less, nanoseconds.
const IN_STEP_NS: i64 = 1_000_000;
/// And run no more apart than this, parts per million.
const IN_STEP_PPM: f64 = 20.0;
/// One end of the offset's interval is this much farther from zero where one way takes longer, unless the clocks differ.
const LOPSIDED: i64 = 4;

/// Says what is to blame.
pub fn judge(evidence: &Evidence) -> Verdict {
    if let Some(verdict) = evidence.spans.and_then(retries) {
        return verdict;
    }
    let calls: Vec<&CallRecord> = evidence.measured().collect();
    let typical = Baseline::typical(&calls);
    let longer = are_longer(&calls, &typical);
    let looks = [
        (&typical, longer, "beyond the median"),
        (&Baseline::default(), typical.duration_ns > SLOW_NS, "in all"),
    ];
    let mut undecided = None;
    for (baseline, is_slow, words) in looks {
        if !is_slow {
            continue;
        }
        let slow: Vec<&CallRecord> =
            calls.iter().copied().filter(|call| call.duration_ns > baseline.duration_ns + SLOW_NS).collect();
        let weighed = Weighed::of(&slow, baseline);
        let time = format!("the {} that {} slow calls took {words}", format_ns(weighed.total_ns), slow.len());
        match weighed.lead() {
            Lead::One(culprit, share) => {
                let why =
                    format!("it explains {:.0} % of {time}{}", share * 100.0, weighed.others(&[culprit]));
                // A path that some calls take longer on than the median varies.
                let varies = culprit.cause == Cause::NetworkDelay && baseline.duration_ns > 0;
                let cause = if varies && !large(&slow) { Cause::NetworkJitter } else { culprit.cause };
                return refined(Culprit { cause, ..culprit }, &slow, weighed.leg(), evidence, why);
            }
            Lead::Two(one, other) => {
                let why = format!(
                    "{one} and {other} explain about as much of {time}{}",
                    weighed.others(&[one, other])
                );
                undecided.get_or_insert((weighed.leg(), why, slow));
            }
            Lead::None => {
                let why = format!("nothing explains enough of {time}{}", weighed.others(&[]));
                undecided.get_or_insert((weighed.leg(), why, slow));
            }
        }
    }
    if let Some(verdict) = opened(&calls) {
        return verdict;
    }
    if let Some((leg, why, slow)) = undecided {
        let answer =
            if large(&slow) { Answer::Culprit(Culprit::of(Cause::LargePayload)) } else { Answer::Unknown };
        return Verdict { answer, leg, why: Some(why) };
    }
    evidence.clocks.and_then(clocks).unwrap_or_else(|| {
        let why = format!(
            "the median of {} calls is {}, and hardly any takes much longer",
            calls.len(),
            format_ns(typical.duration_ns)
        );
        Verdict { answer: Answer::NOTHING, leg: None, why: Some(why) }
    })
}

fn blame(culprit: Culprit, leg: Option<Legs>, why: String) -> Verdict {
    Verdict { answer: Answer::Culprit(culprit), leg, why: Some(why) }
}

/// Whether what slow calls took beyond the typical is more than noise.
fn are_longer(calls: &[&CallRecord], typical: &Baseline) -> bool {
    let beyond = |call: &&CallRecord| call.duration_ns.saturating_sub(typical.duration_ns);
    let beyond_ns: u64 = calls.iter().map(beyond).filter(|ns| *ns > SLOW_NS).sum();
    let total_ns: u64 = calls.iter().map(|call| call.duration_ns).sum();
    let share_ns = (total_ns as f64 * NOISE_SHARE) as u64;
    beyond_ns > NOISE_NS.max(NOISE_NS_PER_CALL * calls.len() as u64).max(share_ns)
}

/// Says more exactly what a general cause is.
fn refined(
    culprit: Culprit,
    slow: &[&CallRecord],
    leg: Option<Legs>,
    evidence: &Evidence,
    why: String,
) -> Verdict {
    match culprit.cause {
        Cause::ServerApp | Cause::ClientApp | Cause::ServerQueue | Cause::NetworkDelay if large(slow) => {
            let words = format!("{why}; half of the messages have {LARGE_BYTES} bytes or more");
            blame(Culprit::of(Cause::LargePayload), leg, words)
        }
        Cause::NetworkDelay => path(leg, evidence, why),
        _ => blame(culprit, leg, why),
    }
}

/// The path: a delay, or one that varies. No packet tells one way that is longer than the other from clocks that differ:
/// the reasons speak of it, the verdict does not.
fn path(leg: Option<Legs>, evidence: &Evidence, why: String) -> Verdict {
    // All calls, not the slow ones alone: a path that varies has fast ones, too.
    let calls: Vec<&CallRecord> = evidence.measured().collect();
    let mut both: Vec<i64> =
        calls.iter().map(|call| way_ns(call, Leg::RequestWire) + way_ns(call, Leg::ResponseWire)).collect();
    both.sort_unstable();
    let at = |share: usize| both.get(both.len() * share / 100).copied().unwrap_or(0);
    let (low, middle, high) = (at(10), at(50), at(90));
    if high - low > middle.max(1) / 2 && high - low > SLOW_NS as i64 / 2 {
        let ms = |ns: i64| format_ns(ns.unsigned_abs());
        let words =
            format!("{why}; both ways together take {} to {} (10th and 90th percentile)", ms(low), ms(high));
        return blame(Culprit::of(Cause::NetworkJitter), leg, words);
    }
    if let Some(clock) = &evidence.clocks {
        let (low, high) = (clock.offset_low_ns.abs(), clock.offset_high_ns.abs());
        let holds_zero = clock.offset_low_ns <= 0 && 0 <= clock.offset_high_ns;
        if holds_zero && low.max(high) > LOPSIDED * low.min(high).max(1) {
            let words = format!(
                "{why}; if the clocks agree, one way takes {LOPSIDED} times as long as the other or more"
            );
            return blame(Culprit::of(Cause::NetworkDelay), leg, words);
        }
    }
    blame(Culprit::of(Cause::NetworkDelay), leg, why)
}

fn way_ns(call: &CallRecord, leg: Leg) -> i64 {
    call.leg_ns(Legs::one(leg))
}

fn large(slow: &[&CallRecord]) -> bool {
    let is = |call: &&&CallRecord| call.request_bytes.max(call.response_bytes.unwrap_or(0)) >= LARGE_BYTES;
    slow.iter().filter(is).count() as f64 >= MOST * slow.len() as f64
}

/// Several attempts for many calls.
fn retries(spans: SpanCounts) -> Option<Verdict> {
    let (extra, calls) = (spans.extra_attempts, spans.joined);
    (extra as f64 >= MANY * calls as f64 && extra > 1).then(|| {
        let words = format!("the server saw {extra} attempts beyond the first of {calls} calls");
        blame(Culprit::of(Cause::Retries), None, words)
    })
}

/// A connection for most calls.
fn opened(calls: &[&CallRecord]) -> Option<Verdict> {
    let opened = |call: &&&CallRecord| {
        call.findings
            .iter()
            .any(|finding| finding.culprit.cause == Cause::ConnectionPerCall && finding.is_shown())
    };
    let count = calls.iter().filter(opened).count();
    (count > 1 && count as f64 >= MOST * calls.len() as f64).then(|| {
        let words = format!("{count} of {} calls opened their connection", calls.len());
        blame(Culprit::at(Cause::ConnectionPerCall, Side::Client), None, words)
    })
}

/// Clocks that differ, where nothing is slow.
fn clocks(clock: Clocks) -> Option<Verdict> {
    let apart = clock.offset_low_ns > IN_STEP_NS || clock.offset_high_ns < -IN_STEP_NS;
    let drifting = clock.skew_ppm.is_some_and(|(low, high)| low > IN_STEP_PPM || high < -IN_STEP_PPM);
    let stepped = clock.stretches > 1;
    (apart || drifting || stepped).then(|| {
        let words = format!(
            "no call is slow; the server's clock is {} to {} ns ahead of the client's{}{}",
            clock.offset_low_ns,
            clock.offset_high_ns,
            if drifting { ", at another rate" } else { "" },
            if stepped { ", and was stepped" } else { "" }
        );
        blame(Culprit::of(Cause::Clock), None, words)
    })
}

#[cfg(test)]
mod tests;

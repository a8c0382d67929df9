//! The project's own judge: one verdict out of what `dissect` and `gaps` say of a run, by plain rules.
//!
//! It weighs the calls that took longer than a call does where nothing is wrong. Each is laid to what is *shown* for it, the
//! most particular first: what packets show (a hold, a loss, a limit), then what the host did to the threads of the call, then
//! the path, then the applications; none gets more than the call took. What explains most of their time is the verdict, if it
//! is [`LEAST_SHARE`] at least and nothing else comes close. Where nothing is shown, a leg with most of the time speaks for
//! what can only be there. It knows nothing of scenarios.

pub mod documents;

use super::verdict::{Answer, Verdict, cause_of, legs_of, side_of};
use crate::truth::Culprit;
use documents::{Call, Dissect, Gaps, Tank};
use spangap_model::duration::format_ns;
use spangap_model::{Cause, Leg, Side};
use std::collections::BTreeMap;

/// What a call takes at most where nothing is wrong, with what else a machine does beside it, nanoseconds.
const TYPICAL_NS: u64 = 6_000_000;
/// Slow calls together take at least this much longer, or nothing is wrong: a share of all calls' number ...
const NOISE_NS_PER_CALL: u64 = 100_000;
/// ... and in all, nanoseconds.
const NOISE_NS: u64 = 40_000_000;
/// A cause has to explain this much of the slow calls' time.
const LEAST_SHARE: f64 = 0.4;
/// One that explains this much of what the first does contradicts it.
const CLOSE: f64 = 0.8;
/// So many of the calls have to have several attempts, or open a connection, for that to be what is wrong.
const MANY: f64 = 0.05;
const MOST: f64 = 0.5;
/// A message of this many bytes is large.
const LARGE_BYTES: u64 = 256 << 10;
/// Clocks of hosts that are kept in step differ by less, nanoseconds.
const IN_STEP_NS: i64 = 1_000_000;
/// And run no more apart than this, parts per million.
const IN_STEP_PPM: f64 = 50.0;
/// One end of the offset's interval is this much farther from zero where one way takes longer, unless the clocks differ.
const LOPSIDED: i64 = 4;

/// What the judge goes by.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Packets, with spans and hosts as far as there are any.
    pub dissect: Dissect,
    /// Spans.
    pub gaps: Gaps,
    /// When the measured calls begin: those before were to warm up.
    pub tank: Option<Tank>,
}

/// Says what is to blame.
pub fn judge(evidence: &Evidence) -> Verdict {
    let calls = measured(evidence);
    let slow: Vec<&Call> = calls.iter().copied().filter(|call| call.duration_ns > TYPICAL_NS).collect();
    let number = calls.len() as u64;
    let beyond_ns: u64 = slow.iter().map(|call| call.duration_ns - TYPICAL_NS).sum();
    if let Some(verdict) = retries(&evidence.gaps) {
        return verdict;
    }
    if beyond_ns < NOISE_NS.max(NOISE_NS_PER_CALL * number) {
        let words = format!(
            "{} of {number} calls took longer than {}, together {} more",
            slow.len(),
            format_ns(TYPICAL_NS),
            format_ns(beyond_ns)
        );
        return opened(&calls)
            .or_else(|| clocks(&evidence.dissect))
            .unwrap_or_else(|| verdict(Answer::NOTHING, &[], words));
    }
    let weighed = Weighed::of(&slow);
    match weighed.lead() {
        Lead::One(culprit, share) => {
            let words = format!(
                "it explains {:.0} % of the {} that {} calls over {} took{}",
                share * 100.0,
                format_ns(weighed.total_ns),
                slow.len(),
                format_ns(TYPICAL_NS),
                weighed.others(culprit)
            );
            refined(culprit, &slow, evidence, words)
        }
        Lead::Two(one, other) => {
            let words = format!(
                "{one} and {other} explain about as much of the slow calls' time{}",
                weighed.others(one)
            );
            verdict(Answer::Unknown, &slow, words)
        }
        Lead::None => opened(&calls).unwrap_or_else(|| by_leg(&slow, &weighed)),
    }
}

fn verdict(answer: Answer, slow: &[&Call], why: String) -> Verdict {
    let leg = longest_leg(slow).and_then(|(leg, _)| legs_of(&leg));
    Verdict { answer, leg, why: Some(why) }
}

fn blame(culprit: Culprit, slow: &[&Call], why: String) -> Verdict {
    verdict(Answer::Culprit(culprit), slow, why)
}

/// Calls of the measured phase. What the tank asks its target about itself is none.
fn measured(evidence: &Evidence) -> Vec<&Call> {
    let from =
        evidence.tank.as_ref().and_then(|tank| tank.runs.first()).map_or(i64::MIN, |run| run.start_unix_ns);
    let of_the_tank = |call: &&Call| call.method.as_deref().is_some_and(|method| method.ends_with("/Usage"));
    evidence.dissect.calls.iter().filter(|call| call.start_unix_ns >= from && !of_the_tank(call)).collect()
}

/// What explains the slow calls' time.
struct Weighed {
    total_ns: u64,
    explained: BTreeMap<Culprit, u64>,
}

enum Lead {
    One(Culprit, f64),
    Two(Culprit, Culprit),
    None,
}

impl Weighed {
    fn of(slow: &[&Call]) -> Weighed {
        let mut explained: BTreeMap<Culprit, u64> = BTreeMap::new();
        for call in slow {
            let mut left_ns = call.duration_ns;
            for (culprit, cost_ns) in shown(call) {
                let cost_ns = cost_ns.min(left_ns);
                left_ns -= cost_ns;
                *explained.entry(culprit).or_default() += cost_ns;
            }
        }
        behind_lost_bytes(&mut explained);
        Weighed { total_ns: slow.iter().map(|call| call.duration_ns).sum(), explained }
    }

    /// The most first.
    fn sorted(&self) -> Vec<(Culprit, u64)> {
        let mut sorted: Vec<_> = self.explained.iter().map(|(culprit, ns)| (*culprit, *ns)).collect();
        sorted.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        sorted
    }

    fn share(&self, ns: u64) -> f64 {
        ns as f64 / self.total_ns.max(1) as f64
    }

    fn lead(&self) -> Lead {
        let sorted = self.sorted();
        let Some((first, ns)) = sorted.first().filter(|(_, ns)| self.share(*ns) >= LEAST_SHARE) else {
            return Lead::None;
        };
        match sorted.get(1) {
            Some((second, close)) if *close as f64 >= CLOSE * *ns as f64 => Lead::Two(*first, *second),
            _ => Lead::One(*first, self.share(*ns)),
        }
    }

    /// `; run-queue (client) 12 %`
    fn others(&self, but: Culprit) -> String {
        let others =
            self.sorted().into_iter().filter(|(culprit, ns)| *culprit != but && self.share(*ns) >= 0.05);
        others.map(|(culprit, ns)| format!("; {culprit} {:.0} %", self.share(ns) * 100.0)).collect()
    }
}

/// What is shown for a call and what it cost, the most particular first: what comes later may hold the same time again.
fn shown(call: &Call) -> Vec<(Culprit, u64)> {
    let mut shown: Vec<(u8, Culprit, u64)> = Vec::new();
    for finding in call.findings.iter().filter(|finding| finding.certainty == "shown") {
        let (Some(cause), Some(cost_ns)) = (cause_of(&finding.cause), finding.cost_ns) else { continue };
        let rank = match cause {
            // Taken from the parts of the legs, below.
            Cause::RunQueue | Cause::CpuQuota | Cause::Stopped | Cause::SoftirqOnCpu | Cause::SoftirqLate => {
                continue;
            }
            Cause::NetworkDelay | Cause::BatchedArrival => 3,
            Cause::ServerApp | Cause::ClientApp | Cause::ServerQueue => 4,
            Cause::HeadOfLine => 1,
            _ => 0,
        };
        let side = finding.side.as_deref().and_then(side_of);
        shown.push((rank, Culprit { cause, side }, cost_ns));
    }
    for leg in &call.legs {
        let side = if leg.leg.starts_with("client") { Side::Client } else { Side::Server };
        for part in leg.host.iter().flat_map(|host| &host.parts) {
            let softirq = part.behind.as_deref().is_some_and(is_softirq);
            let cause = match part.doing.as_str() {
                "runnable" | "interrupted" if softirq => Cause::SoftirqOnCpu,
                "runnable" => Cause::RunQueue,
                "throttled" => Cause::CpuQuota,
                "stopped" => Cause::Stopped,
                "softirq_late" => Cause::SoftirqLate,
                _ => continue,
            };
            shown.push((2, Culprit::at(cause, side), part.ns));
        }
    }
    // Of the same rank, what cost most; the sort keeps the order of dissect otherwise.
    shown.sort_by_key(|(rank, _, ns)| (*rank, std::cmp::Reverse(*ns)));
    shown.into_iter().map(|(_, culprit, ns)| (culprit, ns)).collect()
}

fn is_softirq(behind: &str) -> bool {
    ["NET_RX", "NET_TX", "ksoftirqd", "napi/"].iter().any(|name| behind.starts_with(name))
}

/// Bytes that wait behind lost ones wait for what mends the loss.
fn behind_lost_bytes(explained: &mut BTreeMap<Culprit, u64>) {
    let loss =
        |culprit: &Culprit| matches!(culprit.cause, Cause::Rto | Cause::TailLoss | Cause::FastRetransmit);
    let most = explained.iter().filter(|(culprit, _)| loss(culprit)).max_by_key(|(_, ns)| **ns);
    let Some(culprit) = most.map(|(culprit, _)| *culprit) else { return };
    let waiting: Vec<Culprit> =
        explained.keys().copied().filter(|culprit| culprit.cause == Cause::HeadOfLine).collect();
    for one in waiting {
        let ns = explained.remove(&one).unwrap_or(0);
        *explained.entry(culprit).or_default() += ns;
    }
}

/// Says more exactly what a general cause is.
fn refined(culprit: Culprit, slow: &[&Call], evidence: &Evidence, why: String) -> Verdict {
    match culprit.cause {
        Cause::NetworkDelay => path(slow, evidence, why),
        Cause::ServerApp | Cause::ClientApp if large(slow) => {
            let words = format!("{why}; half of the messages have {LARGE_BYTES} bytes or more");
            blame(Culprit::of(Cause::LargePayload), slow, words)
        }
        _ => blame(culprit, slow, why),
    }
}

/// The path: a delay, one that varies, or one way longer than the other.
fn path(slow: &[&Call], evidence: &Evidence, why: String) -> Verdict {
    // All calls, not the slow ones alone: a path that varies has fast ones, too.
    let calls = measured(evidence);
    let mut both: Vec<i64> =
        calls.iter().map(|call| leg_ns(call, Leg::RequestWire) + leg_ns(call, Leg::ResponseWire)).collect();
    both.sort_unstable();
    let at = |share: usize| both.get(both.len() * share / 100).copied().unwrap_or(0);
    let (low, middle, high) = (at(10), at(50), at(90));
    if high - low > middle.max(1) / 2 && high - low > TYPICAL_NS as i64 / 2 {
        let ms = |ns: i64| format_ns(ns.unsigned_abs());
        let words =
            format!("{why}; both ways together take {} to {} (10th and 90th percentile)", ms(low), ms(high));
        return blame(Culprit::of(Cause::NetworkJitter), slow, words);
    }
    if let Some(clock) = &evidence.dissect.clock {
        let (low, high) = (clock.offset_low_ns.abs(), clock.offset_high_ns.abs());
        let holds_zero = clock.offset_low_ns <= 0 && 0 <= clock.offset_high_ns;
        if holds_zero && low.max(high) > LOPSIDED * low.min(high).max(1) {
            let words = format!(
                "{why}; if the clocks agree, one way takes {LOPSIDED} times as long as the other or more"
            );
            return blame(Culprit::of(Cause::PathAsymmetry), slow, words);
        }
    }
    blame(Culprit::of(Cause::NetworkDelay), slow, why)
}

fn leg_ns(call: &Call, leg: Leg) -> i64 {
    call.legs.iter().filter(|one| one.leg == leg.name()).map(|one| one.ns).sum()
}

fn large(slow: &[&Call]) -> bool {
    let is = |call: &&&Call| call.request_bytes.max(call.response_bytes.unwrap_or(0)) >= LARGE_BYTES;
    slow.iter().filter(is).count() as f64 >= MOST * slow.len() as f64
}

/// The leg that the slow calls spent most time in, and its share.
fn longest_leg(slow: &[&Call]) -> Option<(String, f64)> {
    let mut legs: BTreeMap<&str, i64> = BTreeMap::new();
    for leg in slow.iter().flat_map(|call| &call.legs) {
        *legs.entry(&leg.leg).or_default() += leg.ns;
    }
    let total: u64 = slow.iter().map(|call| call.duration_ns).sum();
    let (leg, ns) = legs.into_iter().max_by_key(|(_, ns)| *ns)?;
    let share = ns as f64 / total.max(1) as f64;
    (share >= MOST).then(|| (leg.to_owned(), share))
}

/// Nothing is shown: what can only be where the time is.
fn by_leg(slow: &[&Call], weighed: &Weighed) -> Verdict {
    let Some((leg, share)) = longest_leg(slow) else {
        let words = format!(
            "no leg has most of the slow calls' time, and no cause explains it{}",
            weighed.others(Culprit::NOTHING)
        );
        return verdict(Answer::Unknown, slow, words);
    };
    let words = format!(
        "{:.0} % of the slow calls' time is in {leg}, and nothing that is shown explains it{}",
        share * 100.0,
        weighed.others(Culprit::NOTHING)
    );
    let legs = legs_of(&leg);
    let within = |first: Leg, last: Leg| legs.is_some_and(|legs| first <= legs.first && legs.last <= last);
    let culprit = match () {
        () if large(slow) => Culprit::of(Cause::LargePayload),
        () if within(Leg::ServerHostIn, Leg::ServerHostIn) => Culprit::at(Cause::ServerQueue, Side::Server),
        () if within(Leg::ServerApp, Leg::ServerApp) => Culprit::at(Cause::ServerApp, Side::Server),
        () if within(Leg::ClientAppOut, Leg::ClientAppOut) || within(Leg::ClientAppIn, Leg::ClientAppIn) => {
            Culprit::at(Cause::ClientApp, Side::Client)
        }
        () if within(Leg::RequestWire, Leg::RequestWire) || within(Leg::ResponseWire, Leg::ResponseWire) => {
            Culprit::of(Cause::NetworkDelay)
        }
        () => return verdict(Answer::Unknown, slow, words),
    };
    blame(culprit, slow, words)
}

/// Several attempts for many calls.
fn retries(gaps: &Gaps) -> Option<Verdict> {
    let (extra, calls) = (gaps.spans.extra_attempts, gaps.spans.joined);
    (extra as f64 >= MANY * calls as f64 && extra > 1).then(|| {
        let words = format!("the server saw {extra} attempts beyond the first of {calls} calls");
        blame(Culprit::of(Cause::Retries), &[], words)
    })
}

/// A connection for most calls.
fn opened(calls: &[&Call]) -> Option<Verdict> {
    let name = Cause::ConnectionPerCall.name();
    let opened = |call: &&&Call| {
        call.findings.iter().any(|finding| finding.cause == name && finding.certainty == "shown")
    };
    let count = calls.iter().filter(opened).count();
    (count > 1 && count as f64 >= MOST * calls.len() as f64).then(|| {
        let words = format!("{count} of {} calls opened their connection", calls.len());
        blame(Culprit::at(Cause::ConnectionPerCall, Side::Client), &[], words)
    })
}

/// Clocks that differ, where nothing is slow.
fn clocks(dissect: &Dissect) -> Option<Verdict> {
    let clock = dissect.clock.as_ref()?;
    let apart = clock.offset_low_ns > IN_STEP_NS || clock.offset_high_ns < -IN_STEP_NS;
    let rates = clock.skew_low_ppm.zip(clock.skew_high_ppm);
    let drifting = rates.is_some_and(|(low, high)| low > IN_STEP_PPM || high < -IN_STEP_PPM);
    let stepped = clock.stretches.len() > 1;
    (apart || drifting || stepped).then(|| {
        let words = format!(
            "no call is slow; the server's clock is {} to {} ns ahead of the client's{}{}",
            clock.offset_low_ns,
            clock.offset_high_ns,
            if drifting { ", at another rate" } else { "" },
            if stepped { ", and was stepped" } else { "" }
        );
        blame(Culprit::of(Cause::Clock), &[], words)
    })
}

#[cfg(test)]
mod tests;

//! All suspects, and the outcome for each: named, on the sheet, cleared with figures, or not checked.
//!
//! The table of [`super::suspects`] says which instrument would see a cause. A cause is cleared if such an instrument looked and did not see
//! it; if none looked, the catalogue says which one would have to.

use super::answer::Answered;
use super::lack::{Lack, Source};
use super::population::Population;
use super::recorded::recorded;
use super::suspects::{By, OPENING, SUSPECTS, Sides};
use super::{OnStep, Owner, Step};
use crate::claims::is_loss;
use serde::{Deserialize, Serialize};
use spangap_model::advice::about;
use spangap_model::duration::format_ns;
use spangap_model::evidence::{Evidence, Instrument, Need};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

/// A suspect with less than this of the excess, by its upper bound, is cleared.
const LITTLE: f64 = 0.15;
/// An instrument has to have seen so much of the time of calls in which it could see a suspect.
const LOOKED: f64 = 0.5;

/// A suspect that is not to blame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cleared {
    /// Who.
    #[serde(flatten)]
    pub culprit: Culprit,
    /// What it would have shown.
    pub would_show: String,
    /// What was seen, in words.
    pub seen: String,
    /// The same, to go by; absent in documents of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub figures: Option<SeenFigures>,
}

/// How many of the calls in question a suspect touched, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenFigures {
    /// Calls that it touched.
    pub calls: u64,
    /// Calls in question.
    pub of_calls: u64,
    /// Mean time that it took of each call in question, nanoseconds; absent if it touched none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mean_ns: Option<u64>,
    /// Mean time that it took of each ordinary call, nanoseconds; absent if it took none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ordinary_mean_ns: Option<u64>,
    /// Packets known to be missing from the captures.
    pub lost_packets: u64,
}

impl SeenFigures {
    /// As a sentence without its period, of a suspect that is cleared. `did`: what the calls did, in the past tense.
    pub fn words(&self, did: &str) -> String {
        let mut words = format!("{} of {} calls {did}", self.calls, self.of_calls);
        if let Some(ns) = self.mean_ns {
            words += &format!(", for only {} on average", format_ns(ns));
        }
        if let Some(ns) = self.ordinary_mean_ns {
            words += &format!("; ordinary calls {}", format_ns(ns));
        }
        if self.lost_packets > 0 {
            words += &format!("; {} packets are missing from the captures", self.lost_packets);
        }
        words
    }
}

/// A suspect that nobody looked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotLooked {
    /// Who.
    #[serde(flatten)]
    pub culprit: Culprit,
    /// What would look for it, in words.
    pub needs: String,
    /// The same, to go by; absent in documents of earlier versions.
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub lacks: Option<Lack>,
}

/// What looked.
pub(super) struct Looked {
    /// Share of calls that packets of that end show.
    packets: [f64; 2],
    /// Share of calls that packets of both ends show.
    both: f64,
    /// Share of calls of which that end's application is known.
    spans: [f64; 2],
    /// Share of calls whose connections were captured from their beginning.
    opening: f64,
    /// Share of the time on that end's host that was recorded.
    host: [f64; 2],
    /// Packets that captures are known to lack.
    lost: u64,
}

impl Looked {
    pub(super) fn of(evidence: &Evidence, population: &Population<'_>) -> Looked {
        let all = population.calls().max(f64::MIN_POSITIVE);
        let share = |is: &dyn Fn(&spangap_model::evidence::CallRecord) -> bool| {
            let rows = population.rows.iter().filter(|row| is(row.call.record));
            rows.map(|row| row.call.weight).sum::<f64>() / all
        };
        let knows = |leg: Leg| share(&move |call| call.legs.iter().any(|own| own.legs == Legs::one(leg)));
        let packets = evidence.coverage.iter().filter(|one| one.instrument == Instrument::Packets);
        Looked {
            packets: [0, 1].map(|side: usize| share(&move |call| call.seen_in[side].is_some())),
            both: share(&|call| call.seen_in.iter().all(Option::is_some)),
            spans: [knows(Leg::ClientAppOut), knows(Leg::ServerApp)],
            // The handshake scales the windows.
            opening: share(&|call| call.windows.iter().any(Option::is_some)),
            host: Side::ALL.map(|side| recorded(population, side)),
            lost: packets.map(|one| one.lost).sum(),
        }
    }

    /// The end of which fewer calls have packets.
    fn other_end(&self) -> Side {
        if self.packets[0] < self.packets[1] { Side::Client } else { Side::Server }
    }

    /// What is missing to have looked for it, and how much of that there is; `None` where it was looked for.
    fn lacks(&self, culprit: Culprit, by: By) -> Option<(Lack, f64)> {
        let side = culprit.side.unwrap_or(Side::Server);
        match by {
            By::Packets => missing(self.packets[0].max(self.packets[1]), Source::ClientCapture),
            By::BothEnds => missing(self.both, Source::capture(self.other_end())),
            By::Host => missing(self.host[side.index()], Source::host(side)),
            By::Spans => missing(self.spans[side.index()], Source::spans(side)),
            By::SpansAndOpening => missing(self.spans[side.index()], Source::spans(side))
                .or((self.opening < LOOKED).then_some((OPENING, self.opening))),
            By::Finding(lack) => Some((lack, 0.0)),
        }
    }

    /// What would supply something that was asked for, and how much of it there is; `None` where there is enough, or where no
    /// such source exists.
    pub(super) fn lacks_need(&self, need: Need) -> Option<(Lack, f64)> {
        match need {
            Need::Spans(side) => missing(self.spans[side.index()], Source::spans(side)),
            Need::Capture(side) => missing(self.packets[side.index()], Source::capture(side)),
            Need::HostRecording(side) => missing(self.host[side.index()], Source::host(side)),
            Need::HostCheck(side) => Some((Lack::of(Source::counters(side)), 0.0)),
            Need::LongerCapture | Need::Nothing => None,
        }
    }
}

fn missing(share: f64, source: Source) -> Option<(Lack, f64)> {
    (share < LOOKED).then_some((Lack::of(source), share))
}

/// What is missing, and how much of it there is.
pub(super) fn in_words((lack, covered): (Lack, f64)) -> String {
    let covered = covered * 100.0;
    let some = if covered > 0.0 { format!("; only {covered:.0} % of it is covered") } else { String::new() };
    format!("{lack}{some}")
}

/// All suspects but those named: cleared, or not looked for. What has a part of the excess is neither.
pub(super) fn suspects(
    evidence: &Evidence,
    population: &Population<'_>,
    answered: Option<&Answered>,
    named: &[Culprit],
    on_step: &mut OnStep<'_>,
) -> (Vec<Cleared>, Vec<NotLooked>) {
    let (mut cleared, mut not_looked) = (Vec::new(), Vec::new());
    let looked = Looked::of(evidence, population);
    for (cause, sides, by) in SUSPECTS {
        let before = cleared.len();
        let culprits: Vec<Culprit> = match sides {
            Sides::None => vec![Culprit::of(*cause)],
            Sides::One(side) => vec![Culprit::at(*cause, *side)],
            Sides::Both => Side::ALL.map(|side| Culprit::at(*cause, side)).to_vec(),
        };
        for culprit in culprits {
            let same = |other: &Culprit| {
                other.cause == culprit.cause
                    && (culprit.side.is_none() || other.side == culprit.side || other.side.is_none())
            };
            let is_named = named.iter().any(|other| same(other) || is_same_time(other.cause, culprit.cause));
            let found = found(answered, &same);
            if is_named || found.share > LITTLE {
                continue;
            }
            // What sent bytes again says nothing of where they were lost.
            let lost = is_loss(*cause) && answered.is_some_and(is_lost);
            if lost {
                let lack = Lack::of(Source::capture(looked.other_end()));
                not_looked.push(NotLooked { culprit, needs: lack.to_string(), lacks: Some(lack) });
                continue;
            }
            match looked.lacks(culprit, *by).filter(|_| found.calls == 0.0) {
                Some(missing) => {
                    let (needs, lacks) = (in_words(missing), Some(missing.0));
                    not_looked.push(NotLooked { culprit, needs, lacks });
                }
                None => cleared.push(clear(culprit, &found, answered, population, looked.lost)),
            }
        }
        if cleared.len() > before {
            on_step(Step::Cleared(&cleared[before..]));
        }
    }
    (cleared, not_looked)
}

/// Whether bytes that were lost where nobody saw have a part of the excess.
fn is_lost(answered: &Answered) -> bool {
    answered.shares.iter().any(|(owner, share)| matches!(owner, Owner::Lost(_)) && share.high > LITTLE)
}

/// Two names of the same time: a verdict says the more exact one.
fn is_same_time(named: Cause, other: Cause) -> bool {
    let places = [Cause::NetworkDelay, Cause::ServerApp, Cause::ServerQueue, Cause::ClientApp];
    match named {
        Cause::NetworkJitter => other == Cause::NetworkDelay,
        Cause::LargePayload => places.contains(&other),
        _ => false,
    }
}

/// What was seen of a suspect.
#[derive(Default)]
struct Found {
    /// Upper bound of its share.
    share: f64,
    calls: f64,
    ns: f64,
    ordinary_ns: f64,
}

fn found(answered: Option<&Answered>, same: &dyn Fn(&Culprit) -> bool) -> Found {
    let mut found = Found::default();
    let Some(answered) = answered else { return found };
    for (owner, share) in &answered.shares {
        let (Owner::Culprit(culprit) | Owner::Noise(culprit)) = owner else { continue };
        if !same(culprit) {
            continue;
        }
        found.share = found.share.max(if share.mid.abs() < 1e-9 { 0.0 } else { share.high });
        if let Some(present) = answered.present.get(owner) {
            found.calls += present.calls;
            found.ns += present.ns;
            found.ordinary_ns += present.ordinary_ns;
        }
    }
    found
}

fn clear(
    culprit: Culprit,
    found: &Found,
    answered: Option<&Answered>,
    population: &Population<'_>,
    lost_packets: u64,
) -> Cleared {
    let did = about(culprit.cause, culprit.side).did;
    let would_show = match answered {
        Some(answered) => {
            format!(
                "slow calls, each of which {did}, for {} or more",
                format_ns((answered.each_ns.mid / 2.0).max(0.0) as u64)
            )
        }
        None => format!("calls, each of which {did}"),
    };
    let touched = found.calls > 0.0;
    let whole = |ns: f64| ns.max(0.0) as u64;
    let figures = SeenFigures {
        calls: found.calls.round() as u64,
        of_calls: answered.map_or(population.calls(), |answered| answered.calls).round() as u64,
        mean_ns: touched.then(|| whole(found.ns)),
        ordinary_mean_ns: (touched && found.ordinary_ns > 0.0).then(|| whole(found.ordinary_ns)),
        lost_packets,
    };
    Cleared { culprit, would_show, seen: figures.words("did"), figures: Some(figures) }
}

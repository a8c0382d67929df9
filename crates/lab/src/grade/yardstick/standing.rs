//! One conclusion beside one truth: how it stands. Pure.

use crate::grade::conclusion::{Conclusion, Interval, Kind, Question};
use crate::grade::score::meant;
use serde::Serialize;
use spangap_model::{Culprit, Leg, Legs};
use std::collections::BTreeMap;

/// Of the calls that a conclusion rests on, so many have to be affected ones.
const MOST_OF_THEM: f64 = 0.8;
/// Share of all excess that the calls in question have together: those beyond are not looked at.
const IN_QUESTION: f64 = 0.8;

/// A fault of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// What is to blame.
    pub culprit: Culprit,
    /// Other names that are right.
    pub also_right: Vec<Culprit>,
    /// Legs of the call that it makes longer; `None` where it is not on one leg.
    pub legs: Option<Legs>,
    /// Calls that it made longer, by trace id, and by how much where that is known by construction.
    pub affected: BTreeMap<String, Option<u64>>,
}

impl Fault {
    fn is_meant_by(&self, named: Culprit) -> bool {
        meant(named, self.culprit) || self.also_right.iter().any(|right| meant(named, *right))
    }
}

/// What is known of a run by construction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// What is to blame: nothing, one or two.
    pub faults: Vec<Fault>,
    /// Where nothing is to blame: names that are right none the less, such as a clock that differs.
    pub harmless: Vec<Culprit>,
    /// What the machine itself did to the run, as the kernel counted it, so much that it may well explain what is slow.
    pub noise: Vec<Culprit>,
    /// Calls of the run: trace id, and how long each took, nanoseconds.
    pub calls: Vec<(String, u64)>,
}

/// How a conclusion stands. Every run has exactly one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// All that are named are to blame; where nothing is wrong, it says so.
    Right,
    /// Nobody is named, and the place is one where a fault acted.
    RightPlace,
    /// It names what the machine itself did, as the kernel's counters say, too: nothing was made wrong there, and nobody is
    /// accused of what he did not do.
    Noise,
    /// It cannot tell, or names a place where a fault has none.
    Unknown,
    /// The place is one where nothing was wrong.
    WrongPlace,
    /// It says that nothing is wrong, and something is.
    WronglyNothing,
    /// Somebody is named who is not to blame, whoever else is.
    Innocent,
}

/// A conclusion beside the truth.
#[derive(Clone, Debug, PartialEq)]
pub struct Stands {
    /// How.
    pub standing: Standing,
    /// Of a right culprit: whether the calls that it rests on are those that the fault made longer.
    pub grounded: Option<bool>,
    /// Those that are named and not to blame.
    pub innocents: Vec<Culprit>,
    /// Of a right culprit whose share is given with an interval: the share by construction, where that is known, and whether
    /// the interval holds it.
    pub share: Option<(Interval, f64)>,
}

/// How a conclusion stands beside what is known.
pub fn stands(known: &Known, said: &Conclusion) -> Stands {
    let is_right = |named: Culprit| {
        known.faults.iter().any(|fault| fault.is_meant_by(named))
            || known.faults.is_empty() && known.harmless.iter().any(|harmless| meant(named, *harmless))
    };
    let names =
        || said.culprits.iter().map(|named| named.culprit).filter(|culprit| *culprit != Culprit::NOTHING);
    let is_noise = |named: Culprit| known.noise.iter().any(|noise| meant(named, *noise));
    let innocents: Vec<Culprit> = names().filter(|named| !is_right(*named) && !is_noise(*named)).collect();
    let standing = if !innocents.is_empty() {
        Standing::Innocent
    } else if names().any(is_right) {
        Standing::Right
    } else if names().next().is_some() {
        Standing::Noise
    } else {
        match said.kind {
            Kind::Place => place(known, said.place),
            Kind::Nothing if known.faults.is_empty() => Standing::Right,
            Kind::Nothing => Standing::WronglyNothing,
            _ => Standing::Unknown,
        }
    };
    let right = standing == Standing::Right && !known.faults.is_empty();
    Stands {
        standing,
        grounded: right.then(|| is_grounded(known, said)),
        innocents,
        share: if right { share(known, said) } else { None },
    }
}

fn place(known: &Known, named: Option<Legs>) -> Standing {
    let Some(named) = named else { return Standing::Unknown };
    if known.faults.is_empty() {
        return Standing::WrongPlace;
    }
    if known.faults.iter().filter_map(|fault| fault.legs).any(|legs| is_same_place(legs, named)) {
        return Standing::RightPlace;
    }
    // A fault that is nowhere in particular is in no wrong place, either.
    match known.faults.iter().any(|fault| fault.legs.is_none()) {
        true => Standing::Unknown,
        false => Standing::WrongPlace,
    }
}

/// Whether the legs that are named are among those that were longer, or hold them and do not hold both ends of a call.
fn is_same_place(truth: Legs, named: Legs) -> bool {
    let within = |outer: Legs, inner: Legs| outer.contains(inner.first) && outer.contains(inner.last);
    // Both ways of the path are longer, and not the server between them.
    let path = truth == Legs { first: Leg::RequestWire, last: Leg::ResponseWire };
    let on_path = |legs: Legs| [Leg::RequestWire, Leg::ResponseWire].map(Legs::one).contains(&legs);
    let everywhere = named.first <= Leg::ClientSend && named.last >= Leg::ServerHostOut;
    match path {
        true => on_path(named) || within(named, truth) && !everywhere,
        false => within(truth, named) || within(named, truth) && !everywhere,
    }
}

/// Without a word on which calls, it is not: the name alone may be luck.
fn is_grounded(known: &Known, said: &Conclusion) -> bool {
    let meant: Vec<&Fault> = known
        .faults
        .iter()
        .filter(|fault| said.culprits.iter().any(|named| fault.is_meant_by(named.culprit)))
        .collect();
    let is_affected = |id: &&String| {
        meant.iter().any(|fault| fault.affected.is_empty() || fault.affected.contains_key(*id))
    };
    let affected = said.trace_ids.iter().filter(is_affected).count();
    !said.trace_ids.is_empty() && affected as f64 >= MOST_OF_THEM * said.trace_ids.len() as f64
}

fn share(known: &Known, said: &Conclusion) -> Option<(Interval, f64)> {
    let named = said.culprits.first()?;
    let interval = named.share?;
    let fault = known.faults.iter().find(|fault| fault.is_meant_by(named.culprit))?;
    constructed_share(fault, &known.calls, said.question?).map(|share| (interval, share))
}

/// What a fault has of the time in question, by construction: of the time of all calls, or of what slow calls take beyond
/// ordinary ones (the faster half). `None` where the cost of a call is not known, or nothing is in question.
pub fn constructed_share(fault: &Fault, calls: &[(String, u64)], question: Question) -> Option<f64> {
    if fault.affected.is_empty() || fault.affected.values().any(Option::is_none) {
        return None;
    }
    // No call can have waited for longer than it took.
    let cost =
        |(id, ns): &(String, u64)| fault.affected.get(id).copied().flatten().unwrap_or(0).min(*ns) as f64;
    let mean = |calls: &[(String, u64)], of: &dyn Fn(&(String, u64)) -> f64| {
        calls.iter().map(of).sum::<f64>() / calls.len().max(1) as f64
    };
    let took = |(_, ns): &(String, u64)| *ns as f64;
    let mut calls = calls.to_vec();
    calls.sort_by_key(|(_, ns)| *ns);
    let share = match question {
        Question::All => mean(&calls, &cost) / mean(&calls, &took),
        Question::Slow => {
            let median = calls.get(calls.len() / 2)?.1;
            let beyond = |(_, ns): &(String, u64)| ns.saturating_sub(median) as f64;
            let all: f64 = calls.iter().map(beyond).sum();
            let mut left = all * IN_QUESTION;
            let slow = calls.iter().rev().take_while(|call| {
                let in_question = left > 0.0;
                left -= beyond(call);
                in_question
            });
            let (ordinary, slow) = (&calls[..calls.len() / 2], &calls[calls.len() - slow.count()..]);
            (mean(slow, &cost) - mean(ordinary, &cost)) / (mean(slow, &took) - mean(ordinary, &took))
        }
    };
    share.is_finite().then_some(share)
}

/// What the first fault of a run costs a call that it made longer, mean, nanoseconds. Where that is not known by construction:
/// what these calls take beyond the median of the others, or beyond the fastest where it made all of them longer.
pub fn excess_ns(known: &Known) -> Option<u64> {
    let first = known.faults.first()?;
    let mean = |all: &[u64]| all.iter().sum::<u64>() / all.len().max(1) as u64;
    let costs: Vec<u64> = first.affected.values().flatten().copied().collect();
    if !costs.is_empty() {
        return Some(mean(&costs));
    }
    let took = |is_affected: bool| -> Vec<u64> {
        let calls = known.calls.iter().filter(|(id, _)| first.affected.contains_key(id) == is_affected);
        calls.map(|(_, ns)| *ns).collect()
    };
    let (affected, mut others) = (took(true), took(false));
    others.sort_unstable();
    let fastest = affected.iter().min().copied()?;
    let usual = others.get(others.len() / 2).copied().unwrap_or(fastest);
    Some(mean(&affected).saturating_sub(usual))
}

#[cfg(test)]
mod tests;

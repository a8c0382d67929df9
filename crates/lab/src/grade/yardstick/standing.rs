//! Classification of a conclusion against the truth. Pure.

use crate::grade::conclusion::{Conclusion, Interval, Kind, Question};
use crate::grade::score::meant;
use serde::Serialize;
use spangap_model::{Culprit, Leg, Legs};
use std::collections::{BTreeMap, BTreeSet};

/// Minimum share of affected calls among those that support a conclusion.
const MOST_OF_THEM: f64 = 0.8;
/// Calls are examined up to this share of the total excess.
const IN_QUESTION: f64 = 0.8;

/// A fault of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Culprit.
    pub culprit: Culprit,
    /// Other correct answers.
    pub also_right: Vec<Culprit>,
    /// Legs that it makes longer; `None` if it is not confined to a leg.
    pub legs: Option<Legs>,
    /// Affected calls by trace id, with the cost if known by construction.
    pub affected: BTreeMap<String, Option<u64>>,
}

impl Fault {
    fn is_meant_by(&self, named: Culprit) -> bool {
        meant(named, self.culprit) || self.also_right.iter().any(|right| meant(named, *right))
    }
}

/// Facts about a run that are known by construction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// Faults: none, one or two.
    pub faults: Vec<Fault>,
    /// If nothing is wrong: answers that are correct nevertheless, such as a clock offset.
    pub harmless: Vec<Culprit>,
    /// Whether a window before the run has the same, so that nothing has changed.
    pub unchanged: bool,
    /// The machine's own noise according to kernel counters, if large enough to explain slow calls.
    pub noise: Vec<Culprit>,
    /// Calls of the run: trace id, and duration in nanoseconds.
    pub calls: Vec<(String, u64)>,
}

/// Classification of a conclusion. Every run has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// All named culprits are right; or nothing is wrong, and it says so.
    Right,
    /// No culprit, and a fault acted at the place.
    RightPlace,
    /// It names the machine's own noise, which the kernel's counters confirm: nobody is accused unjustly.
    Noise,
    /// Undecided, or it names a place for a fault without one.
    Unknown,
    /// No fault acted at the place.
    WrongPlace,
    /// It says that nothing is wrong although there is a fault.
    WronglyNothing,
    /// An innocent culprit is named, possibly among others.
    Innocent,
}

/// A classified conclusion.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassifiedConclusion {
    /// Classification.
    pub standing: Standing,
    /// For a right culprit: whether it is supported by the calls that the fault made longer.
    pub grounded: Option<bool>,
    /// Innocent culprits that are named.
    pub innocents: Vec<Culprit>,
    /// For a right culprit with an interval: the share by construction, if known.
    pub share: Option<(Interval, f64)>,
}

/// Classifies a conclusion.
pub fn stands(known: &Known, said: &Conclusion) -> ClassifiedConclusion {
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
            Kind::Nothing if known.faults.is_empty() || known.unchanged => Standing::Right,
            Kind::Nothing => Standing::WronglyNothing,
            _ => Standing::Unknown,
        }
    };
    let right = names().any(is_right) && standing == Standing::Right && !known.faults.is_empty();
    ClassifiedConclusion {
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
    // A fault without a place cannot be in a wrong place, either.
    match known.faults.iter().any(|fault| fault.legs.is_none()) {
        true => Standing::Unknown,
        false => Standing::WrongPlace,
    }
}

/// Whether the named legs are among those that were longer, or contain them without spanning the whole call.
fn is_same_place(truth: Legs, named: Legs) -> bool {
    let within = |outer: Legs, inner: Legs| outer.contains(inner.first) && outer.contains(inner.last);
    // Both directions of the path are longer, but not the server between them.
    let path = truth == Legs { first: Leg::RequestWire, last: Leg::ResponseWire };
    let on_path = |legs: Legs| [Leg::RequestWire, Leg::ResponseWire].map(Legs::one).contains(&legs);
    let everywhere = named.first <= Leg::ClientSend && named.last >= Leg::ServerHostOut;
    match path {
        true => on_path(named) || within(named, truth) && !everywhere,
        false => within(truth, named) || within(named, truth) && !everywhere,
    }
}

/// A conclusion without calls is not grounded: the name alone may be luck. Of calls of the warm-up, the truth says nothing.
fn is_grounded(known: &Known, said: &Conclusion) -> bool {
    let measured: BTreeSet<&String> = known.calls.iter().map(|(id, _)| id).collect();
    let is_measured = |id: &&String| measured.is_empty() || measured.contains(*id);
    let ids: Vec<&String> = said.trace_ids.iter().filter(is_measured).collect();
    let meant: Vec<&Fault> = known
        .faults
        .iter()
        .filter(|fault| said.culprits.iter().any(|named| fault.is_meant_by(named.culprit)))
        .collect();
    let is_affected = |id: &&&String| {
        meant.iter().any(|fault| fault.affected.is_empty() || fault.affected.contains_key(**id))
    };
    let affected = ids.iter().filter(is_affected).count();
    !ids.is_empty() && affected as f64 >= MOST_OF_THEM * ids.len() as f64
}

fn share(known: &Known, said: &Conclusion) -> Option<(Interval, f64)> {
    let named = said.culprits.first()?;
    let interval = named.share?;
    let fault = known.faults.iter().find(|fault| fault.is_meant_by(named.culprit))?;
    let of = match said.question? {
        Question::All => said.beyond_ns.map_or(Of::All, Of::Beyond),
        Question::Slow if said.by_event => Of::WithEvent,
        Question::Slow => Of::Slow(said.slow_calls),
    };
    Some((interval, constructed_share(fault, &known.calls, of)?))
}

/// Which calls' time a share is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// That of all calls.
    All,
    /// What all calls take beyond so many nanoseconds each: those of a reference.
    Beyond(u64),
    /// What slow calls take beyond ordinary ones (the faster half): so many of the slowest, if the judge says how many, else
    /// those that have most of all excess.
    Slow(Option<u64>),
    /// What calls that the fault made longer take beyond the others, however slow either are.
    WithEvent,
}

/// Share of a fault by construction. `None` if the cost per call is unknown, or there is no excess.
pub fn constructed_share(fault: &Fault, calls: &[(String, u64)], of: Of) -> Option<f64> {
    if fault.affected.is_empty() || fault.affected.values().any(Option::is_none) {
        return None;
    }
    // No call can have lost more than it took beyond what calls take at least. A process that is stopped while its peer works
    // costs less than the stop lasts.
    let unaffected = calls.iter().filter(|(id, _)| !fault.affected.contains_key(id));
    let least_ns = unaffected.map(|(_, ns)| *ns).min().unwrap_or(0);
    let cost = |(id, ns): &(String, u64)| {
        let cost_ns = fault.affected.get(id).copied().flatten().unwrap_or(0);
        cost_ns.min(ns.saturating_sub(least_ns)) as f64
    };
    let mean = |calls: &[(String, u64)], of: &dyn Fn(&(String, u64)) -> f64| {
        calls.iter().map(of).sum::<f64>() / calls.len().max(1) as f64
    };
    let took = |(_, ns): &(String, u64)| *ns as f64;
    let mut calls = calls.to_vec();
    calls.sort_by_key(|(_, ns)| *ns);
    let share = match of {
        Of::All => mean(&calls, &cost) / mean(&calls, &took),
        Of::Beyond(ns) => {
            let beyond = mean(&calls, &took) - ns as f64;
            if beyond <= 0.0 {
                return None;
            }
            mean(&calls, &cost) / beyond
        }
        Of::WithEvent => {
            let (with, without): (Vec<_>, Vec<_>) = calls.into_iter().partition(|call| cost(call) > 0.0);
            if without.is_empty() {
                return None;
            }
            mean(&with, &cost) / (mean(&with, &took) - mean(&without, &took))
        }
        Of::Slow(slow_calls) => {
            let median = calls.get(calls.len() / 2)?.1;
            let beyond = |(_, ns): &(String, u64)| ns.saturating_sub(median) as f64;
            let all: f64 = calls.iter().map(beyond).sum();
            let mut left = all * IN_QUESTION;
            let slow = calls.iter().rev().take_while(|call| {
                let in_question = left > 0.0;
                left -= beyond(call);
                in_question
            });
            let most = calls.len().div_ceil(2);
            let slow = slow_calls.map_or_else(|| slow.count(), |said| (said as usize).clamp(1, most));
            let (ordinary, slow) = (&calls[..calls.len() / 2], &calls[calls.len() - slow..]);
            (mean(slow, &cost) - mean(ordinary, &cost)) / (mean(slow, &took) - mean(ordinary, &took))
        }
    };
    share.is_finite().then_some(share)
}

/// Mean cost of a run's first fault per affected call, in nanoseconds. If unknown by construction: the excess
/// of these calls over the median of the others, or over the fastest call if all are affected.
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

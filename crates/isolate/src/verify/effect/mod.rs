//! Whether a plan has its intended effect: judged by what happened between two readings, each judgement with
//! its evidence.

mod groups;
mod interrupts;

use super::counter_deltas::CounterDeltas;
use crate::plan::{Part, Plan};
use crate::topology::Topology;
use serde::Serialize;
use spangap_model::Cpus;
use spangap_report::figures::{counted, small_percent};

/// Input of the judgements.
#[derive(Clone, Copy, Debug)]
pub struct EffectInput<'a> {
    /// The applied plan.
    pub plan: &'a Plan,
    /// The machine at the later reading.
    pub now: &'a Topology,
    /// What happened since the earlier reading.
    pub since: &'a CounterDeltas,
}

/// One judgement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// Stable name, `interrupts`.
    pub what: &'static str,
    /// Interface, if it concerns one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// What came of it.
    pub verdict: EffectVerdict,
    /// A sentence with the figures; for `cannot_tell`, the reason.
    pub summary: String,
    /// Further figures.
    pub evidence: Vec<String>,
}

/// Verdict of one judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectVerdict {
    /// The plan does not have this effect.
    DoesNotHold,
    /// Unknown.
    CannotTell,
    /// The plan has this effect.
    Holds,
    /// A remark without a verdict.
    Remark,
}

impl Judgement {
    fn new(what: &'static str, verdict: EffectVerdict, summary: impl Into<String>) -> Judgement {
        Judgement { what, of: None, verdict, summary: summary.into(), evidence: Vec::new() }
    }

    fn cannot_tell(what: &'static str, why: impl Into<String>) -> Judgement {
        Judgement::new(what, EffectVerdict::CannotTell, why)
    }

    fn of(self, interface: &str) -> Judgement {
        Judgement { of: Some(interface.to_owned()), ..self }
    }

    fn with(self, evidence: Vec<String>) -> Judgement {
        Judgement { evidence, ..self }
    }
}

impl EffectInput<'_> {
    /// Whether the plan keeps applications off by cpusets.
    fn cpusets(&self) -> bool {
        keeps_applications_off(self.plan)
    }

    fn net(&self) -> &Cpus {
        &self.plan.net_cpus
    }
}

/// Whether a plan keeps applications off the network's CPUs by cpusets.
pub(crate) fn keeps_applications_off(plan: &Plan) -> bool {
    plan.changes.iter().any(|change| change.part == Part::Cpusets)
}

/// Makes all judgements.
pub fn judge(look: &EffectInput<'_>) -> Vec<Judgement> {
    if look.since.stands_still {
        let why = "on a copy nothing runs, and no kernel acts on its values";
        return vec![Judgement::cannot_tell("effect", why)];
    }
    let mut all: Vec<Judgement> =
        look.plan.policy.interfaces.iter().flat_map(|name| interrupts::of_interface(look, name)).collect();
    all.push(interrupts::softirqs(look));
    all.extend(interrupts::others(look));
    all.push(groups::user_tasks(look));
    all.extend(groups::partition(look));
    all.extend(groups::sets(look));
    all.extend(groups::balancing(look));
    all.extend(groups::kernel_threads(look));
    all
}

/// A part of a whole as a percentage; 0 if the whole is 0.
fn percent(part: u64, whole: u64) -> String {
    small_percent(part as f64 / whole.max(1) as f64)
}

/// List items shown; the rest is counted.
const NAMED: usize = 5;

/// The first items of a list, and the number of the rest.
fn first(list: impl ExactSizeIterator<Item = String>) -> Vec<String> {
    let more = list.len().saturating_sub(NAMED);
    let mut named: Vec<String> = list.take(NAMED).collect();
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    named
}

#[cfg(test)]
pub(crate) mod tests;

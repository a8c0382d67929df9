//! Takers of CPU time as evidence.

use super::{Kind, TakerReport, ThievesReport};
use crate::halted::{Halted, How};
use spangap_machine::facts::stat;
use spangap_model::duration::format_ns;
use spangap_model::evidence::{Certainty, Coverage, Finding, Instrument, Interval, Proof, Scope, Testimony};
use spangap_model::{Cause, Culprit, Doing};

/// Findings: each taker to blame and its cost. The target's own work and takers cleared are not findings.
pub(super) fn evidence(report: &ThievesReport, when: Option<Interval>) -> Testimony {
    let finding = |cause, cost_ns, note: String, proofs| Finding {
        hop: None,
        culprit: Culprit::of(cause),
        certainty: Certainty::Shown,
        instrument: Instrument::Thieves,
        scope: scope(report),
        when,
        cost_ns: Some(cost_ns),
        note,
        proofs,
    };
    let blamed = report.takers.iter().filter(|taker| taker.is_worth_mention()).filter_map(|taker| {
        Some(finding(taker.kind.cause()?, taker.total_ns, format!("{}.", taker.name), stretches(taker)))
    });
    let steal = report.causes.iter().filter(|cause| cause.cause == Cause::Steal.name()).map(|steal| {
        let note = format!(
            "The hypervisor took between {} and {} of it: the kernel counts in ticks, by CPU.",
            format_ns(steal.ns),
            format_ns(report.steal_at_most_ns)
        );
        let of_cpu = |cpu: &super::CpuReport| Proof::Value {
            place: stat::PATH.into(),
            value: format!("steal of CPU {}: {} ns", cpu.cpu, cpu.ns),
        };
        finding(Cause::Steal, steal.ns, note, report.steal.iter().map(of_cpu).collect())
    });
    let halted = report.halted.iter().filter_map(|halted| {
        let note = format!("{}.", halted.sentence());
        Some(finding(Cause::Stopped, halted.whole_look_ns?, note, vec![state(halted)]))
    });
    let events = report.events;
    let coverage = Coverage {
        instrument: Instrument::Thieves,
        source: report.target.clone(),
        side: None,
        when,
        seen: events.received,
        lost: events.lost + events.untold,
        cannot: report.notes.iter().map(|note| format!("{note}.")).collect(),
    };
    Testimony::new(coverage, blamed.chain(steal).chain(halted).collect())
}

/// The process, if there is exactly one; else everything under observation, which [`Coverage::source`] names.
fn scope(report: &ThievesReport) -> Scope {
    let &[pid] = report.pids.as_slice() else { return Scope::Host };
    let main = report.threads.iter().find(|thread| thread.tid == pid);
    Scope::Process { pid, name: main.map_or_else(String::new, |thread| thread.name.clone()) }
}

/// What the target did while it was denied the CPU.
fn stretches(taker: &TakerReport) -> Vec<Proof> {
    let did = match taker.kind {
        Kind::Quota => vec![(Doing::Throttled, taker.total_ns)],
        Kind::Stop => vec![(Doing::Stopped, taker.total_ns)],
        _ => vec![(Doing::Runnable, taker.while_runnable_ns), (Doing::Interrupted, taker.while_running_ns)],
    };
    let stretch = |(doing, ns)| Proof::Stretch { side: None, doing, taker: taker.taker.clone(), ns };
    did.into_iter().filter(|(_, ns)| *ns > 0).map(stretch).collect()
}

fn state(halted: &Halted) -> Proof {
    let place = match &halted.how {
        How::Frozen { file } => file.clone(),
        How::Stopped | How::Traced { .. } => format!("/proc/{}/task", halted.pid),
    };
    Proof::Value { place, value: halted.words() }
}

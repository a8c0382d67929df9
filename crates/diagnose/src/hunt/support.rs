//! Evidence for and against a culprit: the calls it rests on, and instruments that observed hosts rather than
//! calls. The latter have no share in the sheet.

use super::answer::Answered;
use super::verdict::document::Blamed;
use super::{Owner, behind};
use spangap_model::duration::format_ns;
use spangap_model::evidence::{Coverage, Evidence, Finding, Instrument, Proof};
use spangap_model::{Cause, Culprit};

/// Maximum number of sentences of one kind.
const MOST: usize = 4;

/// Adds the evidence for and against it.
pub(super) fn weigh(blamed: &mut Blamed, evidence: &Evidence, answered: Option<&Answered>) {
    if let Some(answered) = answered {
        own(blamed, answered);
    }
    behind::name(blamed, evidence);
    behind::crowded(blamed, evidence);
    let others = evidence.findings.iter().filter(|finding| speaks_for(finding, blamed.culprit)).take(MOST);
    blamed.speaks_for.extend(others.map(sentence));
    let silent = evidence.coverage.iter().filter(|coverage| {
        would_show(coverage, blamed.culprit)
            && !evidence.findings.iter().any(|finding| {
                finding.instrument == coverage.instrument && speaks_for(finding, blamed.culprit)
            })
    });
    blamed.speaks_against.extend(silent.take(MOST).map(|coverage| {
        format!(
            "{} watched {} ({} seen) and does not show it.",
            coverage.instrument.in_words(),
            coverage.source,
            coverage.seen
        )
    }));
}

/// What the sheet itself says.
fn own(blamed: &mut Blamed, answered: &Answered) {
    let present = answered.present.iter().find(|(owner, present)| {
        matches!(owner, Owner::Culprit(culprit) if culprit.side == blamed.culprit.side || blamed.culprit.side.is_none())
            && present.calls.round() as u64 == blamed.calls
            && matches!(owner, Owner::Culprit(culprit) if culprit.cause == blamed.culprit.cause)
    });
    let Some((_, present)) = present else { return };
    let calls = answered.calls.round();
    let ns = |ns: f64| format_ns(ns.max(0.0) as u64);
    // The mean of all calls in question belongs to those that show it alone.
    let each_ns = present.ns * answered.calls / present.calls.max(f64::MIN_POSITIVE);
    blamed.speaks_for.push(format!(
        "{} of the {calls} calls show it, for {} each on average.",
        present.calls.round(),
        ns(each_ns)
    ));
    // Calls with an event are compared with those that have none of it.
    if answered.baseline_ns > 0.0 && !answered.by_event {
        let words = format!("Ordinary calls have {} of it on average.", ns(present.ordinary_ns));
        match present.ordinary_ns * 4.0 < present.ns {
            true => blamed.speaks_for.push(words),
            false => blamed.speaks_against.push(words),
        }
    }
    let without = calls - present.calls.round();
    if without > 0.0 {
        blamed.speaks_against.push(format!("{without} of the {calls} calls do not show it."));
    }
}

/// Whether an independent finding has the same cause, or one that leads to it.
fn speaks_for(finding: &Finding, culprit: Culprit) -> bool {
    let one_side =
        finding.culprit.side.is_none() || culprit.side.is_none() || finding.culprit.side == culprit.side;
    one_side && (finding.culprit.cause == culprit.cause || brings_about(finding.culprit.cause, culprit.cause))
}

/// Whether one is a reason for the other.
fn brings_about(cause: Cause, other: Cause) -> bool {
    match other {
        Cause::RunQueue => {
            matches!(cause, Cause::CpuSaturated | Cause::Steal | Cause::SoftirqOnCpu | Cause::CpuQuota)
        }
        Cause::ReceiveWindow => matches!(cause, Cause::RunQueue | Cause::CpuQuota | Cause::Stopped),
        Cause::SynLoss => cause == Cause::AcceptOverflow,
        Cause::SoftirqLate => matches!(cause, Cause::Coalescing | Cause::SoftirqOnCpu),
        Cause::ServerQueue => matches!(cause, Cause::RunQueue | Cause::CpuSaturated),
        _ => false,
    }
}

/// Whether an instrument that observed a host would have shown it.
fn would_show(coverage: &Coverage, culprit: Culprit) -> bool {
    let one_side = coverage.side.is_some() && coverage.side == culprit.side;
    one_side
        && coverage.seen > 0
        && coverage.instrument == Instrument::Thieves
        && matches!(culprit.cause, Cause::RunQueue | Cause::CpuQuota | Cause::SoftirqOnCpu | Cause::Stopped)
}

fn sentence(finding: &Finding) -> String {
    let sure = if finding.is_shown() { "shows" } else { "considers possible:" };
    let mut words = format!("{} {sure} {}", finding.instrument.in_words(), finding.culprit);
    if let Some(ns) = finding.cost_ns {
        words += &format!(", {}", format_ns(ns));
    }
    let value = finding.proofs.iter().find_map(|proof| match proof {
        Proof::Value { place, value } => Some(format!(" ({place}: {value})")),
        _ => None,
    });
    words += &value.unwrap_or_default();
    words + "."
}

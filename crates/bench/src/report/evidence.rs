//! Results of the runs as evidence.

use super::{Run, RunFinding, Standing, TankReport};
use spangap_model::evidence::{
    self, Certainty, Coverage, Instrument, Interval, Missing, Proof, Scope, Testimony,
};
use spangap_model::{Cause, Culprit};
use std::collections::BTreeSet;

/// Findings of the runs.
pub(super) fn evidence(report: &TankReport) -> Testimony {
    let runs = &report.runs;
    let targets: BTreeSet<&str> = runs.iter().map(|run| run.asked.target.as_str()).collect();
    let target = targets.into_iter().collect::<Vec<_>>().join(", ");
    let when = whole(runs);
    let sum = |pick: fn(&Run) -> u64| runs.iter().map(pick).sum();
    let not_run = report.not_run.iter().map(|one| format!("{} was not run: {}.", one.what, one.why));
    let claims = report.noise.cannot_claim.iter().map(|claim| format!("This machine cannot tell {claim}."));
    let coverage = Coverage {
        instrument: Instrument::Tank,
        source: target.clone(),
        side: None,
        when,
        seen: sum(|run| run.calls),
        lost: sum(|run| run.skipped_overload),
        cannot: not_run.chain(report.warnings.iter().cloned()).chain(claims).collect(),
    };
    let yielded = report.findings.iter().map(|finding| one(finding, &target, when));
    Testimony::new(coverage, yielded.collect())
}

fn one(finding: &RunFinding, target: &str, when: Option<Interval>) -> evidence::Finding {
    let RunFinding { cause, side, standing, says, rests_on, cleared_by } = finding;
    let proof = |figure: &String| Proof::Value { place: "runs".into(), value: figure.clone() };
    evidence::Finding {
        hop: None,
        culprit: Culprit { cause: *cause, side: *side },
        certainty: match standing {
            Standing::Shown => Certainty::Shown,
            Standing::Possible => Certainty::Possible(missing(*cause)),
        },
        instrument: Instrument::Tank,
        scope: Scope::Pair { client: "spangap tank".into(), server: target.to_owned() },
        when,
        cost_ns: None,
        note: format!("{says} Cleared by: {cleared_by}."),
        proofs: rests_on.iter().map(proof).collect(),
    }
}

/// What another instrument would have to show.
fn missing(cause: Cause) -> Missing {
    match cause {
        Cause::NagleDelayedAck => Missing::SocketOption,
        Cause::IdleWake => Missing::ClientHost,
        _ => Missing::MetByCalls,
    }
}

/// From the start of the first run to the end of the last.
fn whole(runs: &[Run]) -> Option<Interval> {
    let ends = runs.iter().filter_map(|run| {
        let from = i64::try_from(run.start_unix_ns?).ok()?;
        Some((from, from.saturating_add((run.duration_s * 1e9) as i64)))
    });
    let (from, to): (Vec<i64>, Vec<i64>) = ends.unzip();
    Some(Interval { from_unix_ns: from.into_iter().min()?, to_unix_ns: to.into_iter().max()? })
}

//! Traps as evidence.

use super::{Inspection, Subject, TrapFinding, TrapVerdict};
use spangap_model::evidence::{Certainty, Coverage, Instrument, Missing, Proof, Scope, Testimony};
use spangap_model::{Cause, Culprit, evidence};

/// The evidence of a check. A trap is *shown* to delay calls where its counter rose between the two readings,
/// and *possible* where only a setting was found; in the latter case each cause that the trap is known for is
/// reported.
pub fn evidence(look: &Inspection, findings: &[TrapFinding]) -> Testimony {
    let process = one_process(look);
    let traps = findings.iter().filter(|finding| matches!(finding.verdict, TrapVerdict::Trap(_)));
    let yielded = traps.flat_map(|trap| trap.causes.iter().map(|cause| of_cause(trap, *cause, &process)));
    let untold = || findings.iter().filter(|finding| finding.verdict == TrapVerdict::CannotTell);
    let cannot = untold().map(|finding| format!("{}: {}.", finding.trap, finding.summary));
    let in_part = findings
        .iter()
        .flat_map(|finding| finding.unknown.iter().map(|why| format!("{}: not seen: {why}.", finding.trap)));
    let lost = untold().count() as u64;
    let coverage = Coverage {
        instrument: Instrument::HostCheck,
        source: source(look),
        side: None,
        when: None,
        seen: findings.len() as u64 - lost,
        lost,
        cannot: cannot.chain(in_part).collect(),
    };
    Testimony::new(coverage, yielded.collect())
}

fn of_cause(trap: &TrapFinding, cause: Cause, process: &Option<Scope>) -> evidence::Finding {
    let certainty = match trap.counted {
        Some(counted) if counted == cause => Certainty::Shown,
        _ => Certainty::Possible(Missing::MetByCalls),
    };
    let proof =
        |figure: &super::TrapFigure| Proof::Value { place: figure.path.clone(), value: figure.what.clone() };
    evidence::Finding {
        hop: None,
        culprit: Culprit::of(cause),
        certainty,
        instrument: Instrument::HostCheck,
        scope: match (trap.whose, process) {
            (Subject::Processes, Some(process)) => process.clone(),
            _ => Scope::Host,
        },
        when: None,
        cost_ns: None,
        note: format!("{}: {}.", trap.trap, trap.summary),
        proofs: trap.evidence.iter().map(proof).collect(),
    }
}

/// The process under inspection, if there is exactly one.
fn one_process(look: &Inspection) -> Option<Scope> {
    let mut processes = look.processes();
    let process = processes.next()?;
    let alone = processes.next().is_none();
    alone.then(|| Scope::Process { pid: process.pid, name: process.comm.clone() })
}

fn source(look: &Inspection) -> String {
    let names: Vec<String> =
        look.processes().map(|process| format!("{} (pid {})", process.comm, process.pid)).collect();
    if names.is_empty() { "the host".to_owned() } else { format!("the host of {}", names.join(", ")) }
}

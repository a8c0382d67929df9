//! Idle CPUs enter states so deep that waking up takes long.

use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::{Trap, percent};
use spangap_model::Cause;

pub const TRAP: Trap = Trap { name: "c-states", causes: &[Cause::IdleWake], look };

/// Exit latencies of states in use, in microseconds.
const MEDIUM_US: u64 = 100;
const LOW_US: u64 = 20;
/// A state counts as in use from this share of the time on.
const USED: f64 = 0.01;

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    let hidden = "this is a virtual machine: the hypervisor decides how deeply its CPUs sleep, and that is not visible here";
    let idle = match &look.idle {
        Ok(idle) => idle,
        Err(error) if error.is_absent() && look.virtual_machine => return Err(NoVerdict::from(hidden)),
        Err(error) if error.is_absent() => return Err(NoVerdict::from("there is no cpuidle here")),
        Err(error) => return Err(NoVerdict::from(error)),
    };
    // Hypervisors expose states to their guests that hide the real ones.
    if look.virtual_machine && idle.states.iter().all(|state| state.exit_us <= 1) {
        return Err(NoVerdict(format!("{hidden} (cpuidle driver {})", idle.driver)));
    }
    let limit = look.dma_latency_us.as_ref().ok().copied().filter(|limit| *limit >= 0).unwrap_or(i32::MAX);
    let allowed = |us: u64| i64::from(limit) >= us as i64;
    let open = idle.states.iter().rfind(|state| !state.disabled && allowed(state.exit_us));
    let Some(deepest) = open else { return Ok(FindingDraft::fine("no idle state is enabled")) };
    let cpus = look.cpus()?.len().max(1);
    let spent = look.seconds().and_then(|seconds| {
        let (before, after) = (look.before()?.idle.as_ref()?, look.after.idle.as_ref()?);
        let since = |name: &str| {
            let earlier = before.get(name).copied().unwrap_or_default();
            after
                .get(name)
                .map(|now| (now.0.saturating_sub(earlier.0), now.1.saturating_sub(earlier.1) as f64 / 1e6))
        };
        Ok((
            seconds * cpus as f64,
            idle.states
                .iter()
                .filter_map(|state| {
                    let name = state.folder.rsplit('/').next()?;
                    Some((state, since(name)?))
                })
                .collect::<Vec<_>>(),
        ))
    });
    let used = spent.as_ref().ok().and_then(|(total, spent)| {
        spent
            .iter()
            .filter(|(state, (_, seconds))| *seconds >= USED * total && !state.disabled)
            .map(|(state, _)| *state)
            .max_by_key(|state| state.exit_us)
    });
    let found = match used.map(|state| state.exit_us) {
        Some(MEDIUM_US..) => Some(Severity::Medium),
        Some(LOW_US..) => Some(Severity::Low),
        _ => None,
    };
    let summary = match used {
        Some(used) => format!("down to {} is in use: {} us to leave it", used.name, used.exit_us),
        None => {
            format!("none is in use; deepest enabled is {}, {} us to leave it", deepest.name, deepest.exit_us)
        }
    };
    let mut judged = FindingDraft::when(found, summary).means(
        "the first packet or wake-up after a pause waits until its CPU is awake; at low load, that affects most \
         calls",
    );
    match &spent {
        Ok((total, spent)) => {
            for (state, (count, seconds)) in
                spent.iter().filter(|(state, (count, _))| *count > 0 && state.exit_us >= LOW_US)
            {
                let what = format!(
                    "{}: exit latency {} us, entered {count} times, {} of the time",
                    state.name,
                    state.exit_us,
                    percent(*seconds, *total)
                );
                judged = judged.evidence(what, state.folder.clone());
            }
        }
        Err(why) => judged = judged.unknown(why.clone()),
    }
    judged = judged.evidence(
        format!(
            "driver {}, governor {}, deepest enabled {} ({} us)",
            idle.driver, idle.governor, deepest.name, deepest.exit_us
        ),
        deepest.folder.clone(),
    );
    judged = match &look.dma_latency_us {
        Ok(us) if *us < 2_000_000_000 => {
            judged.evidence(format!("a program asks for at most {us} us"), "/dev/cpu_dma_latency")
        }
        Ok(_) => judged,
        Err(error) if error.is_absent() => judged,
        Err(error) => judged.unknown(error),
    };
    Ok(judged
        .fix(format!("cpupower idle-set --disable-by-latency {LOW_US}  # until the next boot; costs power"))
        .fix("exec 9> /dev/cpu_dma_latency; printf '\\0\\0\\0\\0' >&9  # a trial, until this shell exits"))
}

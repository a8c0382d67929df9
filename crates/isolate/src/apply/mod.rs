//! Execution of a plan: one change after the other, each journaled first and read back afterwards.

mod new_cgroups;
pub(crate) mod pinned_affinities;
mod run;
#[cfg(test)]
mod tests;

use crate::journal::{JournalError, Writer, boot_id};
use crate::kernel::{Kernel, PlaceError, WriteEffects};
use crate::place::Place;
use crate::plan::{Change, Part, Plan, Refusal};
pub(crate) use run::ROUNDS;
use run::Run;

/// Progress of an execution, for an observer.
#[derive(Debug)]
pub enum Step<'a> {
    /// A value was written and read back.
    Changed(&'a Change, WriteEffects),
    /// The place already had the value.
    AlreadySo(&'a Change),
    /// The kernel refused an optional change.
    Refused(&'a Change, &'a str),
    /// A cgroup created in the meantime got the same treatment.
    CameMeanwhile(&'a Change),
    /// The number of queues has changed; the rest was planned again for the current interrupts.
    PlannedAgain(&'a Plan),
}

/// Result of an execution.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The final plan, including what was planned again.
    pub plan: Plan,
    /// Changed values: each place once, whether written directly or changed as a side effect. A rollback
    /// restores as many, unless somebody else interferes.
    pub changed: u64,
    /// Values that were already as planned.
    pub already: u64,
    /// Optional changes that the kernel refused, with its error.
    pub refused: Vec<(Place, String)>,
    /// Cgroups created in the meantime.
    pub came_meanwhile: u64,
    /// Places that vanished in the meantime: threads that ended, containers that were removed.
    pub gone: Vec<Place>,
    /// Number of tasks moved and refused.
    pub tasks: WriteEffects,
}

/// Reason for a plan not to be executed, or not completely; the caller then rolls back.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The machine has changed since the plan was made. Nothing was changed.
    #[error("{place} was {} when the plan was made, and now is {}: plan again", value(planned), value(found))]
    Stale {
        /// Where.
        place: Place,
        /// Value in the plan.
        planned: Option<String>,
        found: Option<String>,
    },
    /// The machine was rebooted since the plan was made. Nothing was changed.
    #[error("the plan was made before this machine's last boot: plan again")]
    OtherBoot,
    /// The kernel refused a required value.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The kernel accepted a required value, but reading it back yields another.
    #[error("{place} reads {} after \"{written}\" was written", value(found))]
    NotTaken {
        /// Where.
        place: Place,
        written: String,
        /// Value read back.
        found: Option<String>,
    },
    /// No queue's interrupt could be moved, so nothing would be gained.
    #[error("none of the interrupts of {interface}'s queues can be moved: {why}")]
    NoInterrupt {
        interface: String,
        /// The kernel's error for the first of them.
        why: String,
    },
    /// No plan is possible after the number of queues changed.
    #[error("after the number of queues was changed: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Refused(Vec<Refusal>),
    /// New cgroups kept appearing.
    #[error("new cgroups keep appearing on the network's CPUs: {0}")]
    NeverStable(String),
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Interrupted by the user.
    #[error("interrupted")]
    Interrupted,
}

/// A value in words: `"0-3"`, or `not there`.
fn value(value: &Option<String>) -> String {
    value.as_ref().map_or("not there".to_owned(), |value| format!("\"{}\"", value.trim_end()))
}

/// Executes a plan. Everything is compared with the plan first, and nothing is written before its old value is
/// on disk. After an error the caller rolls back; this function does not.
///
/// # Errors
/// See [`ApplyError`].
pub fn apply(
    kernel: &dyn Kernel,
    plan: &Plan,
    journal: &mut Writer,
    stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Step<'_>),
) -> Result<Applied, ApplyError> {
    let files = kernel.files();
    // If the boot id is unknown, the comparison of the values must suffice.
    if boot_id(&files).is_ok_and(|now| now != plan.boot_id) {
        return Err(ApplyError::OtherBoot);
    }
    let topology = kernel.topology();
    let mut run = Run::new(kernel, plan, journal, stop, tell);
    run.compare(&plan.changes)?;
    let (first, then): (Vec<Change>, Vec<Change>) = if plan.planned_again_after_queues {
        plan.changes.iter().cloned().partition(|change| change.part <= Part::Queues)
    } else {
        (Vec::new(), plan.changes.clone())
    };
    if first.is_empty() {
        run.all(&topology, &then)?;
    } else {
        run.hold_queues(&topology, &first)?;
        run.record(&topology, &first)?;
        run.make_each(&first)?;
        let topology = kernel.topology();
        let again = plan.after_queues(&topology).map_err(ApplyError::Refused)?;
        run.planned_again(&first, again);
        let then: Vec<Change> = run.applied.plan.changes[first.len()..]
            .iter()
            .filter(|change| change.part != Part::Queues)
            .cloned()
            .collect();
        run.all(&topology, &then)?;
    }
    Ok(run.applied)
}

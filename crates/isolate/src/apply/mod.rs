//! A plan made true: one change after the other, each in the journal first, each read back.

pub(crate) mod held;
mod meanwhile;
mod run;
#[cfg(test)]
mod tests;

use crate::journal::{JournalError, Writer, boot_id};
use crate::kernel::{Kernel, PlaceError, Written};
use crate::place::Place;
use crate::plan::{Change, Part, Plan, Refusal};
pub(crate) use run::ROUNDS;
use run::Run;

/// What just happened, for whoever watches.
#[derive(Debug)]
pub enum Step<'a> {
    /// A value was written and read back.
    Changed(&'a Change, Written),
    /// It was there already.
    AlreadySo(&'a Change),
    /// The kernel did not take it, and it is not needed.
    Refused(&'a Change, &'a str),
    /// A cgroup that came meanwhile got the same treatment.
    CameMeanwhile(&'a Change),
    /// The number of queues is changed; this is planned for the interrupts as they are now.
    PlannedAgain(&'a Plan),
}

/// What was done.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The plan as it was in the end, with what was planned again.
    pub plan: Plan,
    /// Values that are others than before: each place once, written by itself or brought along by another change. As many are
    /// restored when nobody else has a hand in it.
    pub changed: u64,
    /// Values that were so before.
    pub already: u64,
    /// Those that the kernel did not take and that are not needed, with what it said.
    pub refused: Vec<(Place, String)>,
    /// Cgroups that came meanwhile.
    pub came_meanwhile: u64,
    /// Places that went meanwhile: threads that ended, containers that were removed.
    pub gone: Vec<Place>,
    /// Tasks moved, and refused.
    pub tasks: Written,
}

/// Why it was not done, or not to the end: then what was done is to be rolled back.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The machine is no longer as it was when the plan was made. Nothing was changed.
    #[error("{place} was {} when the plan was made, and now is {}: plan again", value(planned), value(found))]
    Stale {
        /// Where.
        place: Place,
        /// Then.
        planned: Option<String>,
        /// Now.
        found: Option<String>,
    },
    /// The machine was started anew since the plan was made. Nothing was changed.
    #[error("the plan was made before this machine's last boot: plan again")]
    OtherBoot,
    /// A needed value was refused.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A needed value was taken, and then is another.
    #[error("{place} reads {} after \"{written}\" was written", value(found))]
    NotTaken {
        /// Where.
        place: Place,
        /// Written.
        written: String,
        /// Read back.
        found: Option<String>,
    },
    /// No queue's interrupt could be moved, so that nothing would be won.
    #[error("none of the interrupts of {interface}'s queues can be moved: {why}")]
    NoInterrupt {
        /// Which interface.
        interface: String,
        /// What the kernel said of the first of them.
        why: String,
    },
    /// After the number of queues was changed there is no plan.
    #[error("after the number of queues was changed: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Refused(Vec<Refusal>),
    /// New cgroups kept coming.
    #[error("new cgroups keep appearing on the network's CPUs: {0}")]
    NeverStable(String),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Told to stop.
    #[error("interrupted")]
    Interrupted,
}

/// A value in words: `"0-3"`, or `not there`.
fn value(value: &Option<String>) -> String {
    value.as_ref().map_or("not there".to_owned(), |value| format!("\"{}\"", value.trim_end()))
}

/// Does what a plan says. Everything is compared with the plan first; nothing is written before its old value is on disk.
/// After an error the caller rolls back; this does not.
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
    // Where the machine does not tell, the values themselves must do.
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

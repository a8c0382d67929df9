//! One CPU per side, for faults that act on one of them.

use super::Surroundings;
use crate::LabError;
use rustix::thread::{CpuSet, sched_getaffinity};
use spangap_model::Side;
use std::process::Command;

/// Priority of the witness, which checks whether the machine runs anything at all: above everything of a run.
pub(crate) const WITNESS: u32 = 20;
/// Niceness of the programs of a run that must distinguish its fault from the machine's other load.
const NICE: i32 = -20;
/// Real-time priority of such programs where niceness does not suffice.
const CALM: u32 = 5;
/// Priority of programs that precede these.
const FIRST: u32 = 10;
/// Priority of programs that come after these, but still on time.
pub(super) const BEHIND: u32 = 2;

/// One CPU per side.
#[derive(Clone, Copy, Debug)]
pub struct Apart([usize; 2]);

impl Apart {
    /// The first two usable CPUs.
    ///
    /// # Errors
    /// [`LabError::Unavailable`] if there are fewer.
    pub fn find() -> Result<Apart, LabError> {
        let allowed = sched_getaffinity(None)
            .map_err(|error| LabError::program("sched_getaffinity", error.to_string()))?;
        let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
        match (cpus.next(), cpus.next()) {
            (Some(client), Some(server)) => Ok(Apart([client, server])),
            _ => Err(LabError::Unavailable {
                what: "a CPU for each end".into(),
                why: "this process may use only one CPU; the fault takes two".into(),
            }),
        }
    }

    /// The same for a scenario with real-time priorities ([`Apart::calm`] and others).
    ///
    /// # Errors
    /// [`LabError::Unavailable`] also if real-time priorities are not permitted.
    pub fn find_in_real_time() -> Result<Apart, LabError> {
        let unavailable =
            |why: String| LabError::Unavailable { what: "the scheduling class SCHED_FIFO".into(), why };
        let tried = Command::new("chrt").args(["-f", &FIRST.to_string(), "true"]).output();
        let tried =
            tried.map_err(|error| unavailable(format!("chrt: {error}; the package util-linux has it")))?;
        if !tried.status.success() {
            return Err(unavailable(String::from_utf8_lossy(&tried.stderr).trim().to_owned()));
        }
        Apart::find()
    }

    /// CPU number of a side.
    pub fn of(&self, side: Side) -> usize {
        self.0[side.index()]
    }

    /// On a side's CPU, with precedence over the machine's other load.
    pub fn around(&self, side: Side) -> Surroundings {
        Surroundings { nice: Some(NICE), ..self.on(side) }
    }

    /// On a side's CPU as if nothing else ran on this machine: in the class SCHED_FIFO, but below
    /// [`Apart::first`].
    pub fn calm(&self, side: Side) -> Surroundings {
        Surroundings { fifo: Some(CALM), ..self.on(side) }
    }

    /// On a side's CPU, with the lowest priority.
    pub fn nicest(&self, side: Side) -> Surroundings {
        Surroundings { nice: Some(19), ..self.on(side) }
    }

    /// On a side's CPU above everything else, in the class SCHED_FIFO.
    pub fn first(&self, side: Side) -> Surroundings {
        Surroundings { fifo: Some(FIRST), ..self.on(side) }
    }

    /// On a side's CPU below [`Apart::calm`], but above the rest of this machine.
    pub fn behind(&self, side: Side) -> Surroundings {
        Surroundings { fifo: Some(BEHIND), ..self.on(side) }
    }

    fn on(&self, side: Side) -> Surroundings {
        Surroundings::on_cpus(&self.of(side).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_have_their_own() {
        match Apart::find() {
            Ok(apart) => assert_ne!(apart.of(Side::Client), apart.of(Side::Server)),
            Err(error) => assert!(matches!(error, LabError::Unavailable { .. }), "{error}"),
        }
    }
}

//! A CPU for each end, for faults that act on one of them.

use super::Around;
use crate::LabError;
use rustix::thread::{CpuSet, sched_getaffinity};
use spangap_model::Side;
use std::process::Command;

/// Priority of what looks whether the machine runs anything at all: before everything of a run.
pub(crate) const WITNESS: u32 = 20;
/// Niceness of the programs of a run that has to tell its own fault from what else this machine does.
const NICE: i32 = -20;
/// Real-time priority of such programs where niceness does not do.
const CALM: u32 = 5;
/// Priority of what comes before them.
const FIRST: u32 = 10;
/// Priority of what comes behind them, but still at its time.
pub(super) const BEHIND: u32 = 2;

/// One CPU for each end.
#[derive(Clone, Copy, Debug)]
pub struct Apart([usize; 2]);

impl Apart {
    /// The first two that this process may use.
    ///
    /// # Errors
    /// [`LabError::Unavailable`] when there are not two.
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

    /// The same, for a scenario that gives programs real-time priorities ([`Apart::calm`] and its like).
    ///
    /// # Errors
    /// [`LabError::Unavailable`] also when these are not to be had.
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

    /// Number of a side's CPU.
    pub fn of(&self, side: Side) -> usize {
        self.0[side.index()]
    }

    /// Runs on a side's CPU, before what else this machine has to do there.
    pub fn around(&self, side: Side) -> Around {
        Around { nice: Some(NICE), ..self.on(side) }
    }

    /// Runs on a side's CPU as if nothing else ran on this machine: in the class SCHED_FIFO, but behind [`Apart::first`].
    pub fn calm(&self, side: Side) -> Around {
        Around { fifo: Some(CALM), ..self.on(side) }
    }

    /// Runs on a side's CPU when nobody else wants to.
    pub fn nicest(&self, side: Side) -> Around {
        Around { nice: Some(19), ..self.on(side) }
    }

    /// Runs on a side's CPU before anybody else, in the class SCHED_FIFO.
    pub fn first(&self, side: Side) -> Around {
        Around { fifo: Some(FIRST), ..self.on(side) }
    }

    /// Runs on a side's CPU behind [`Apart::calm`], but before the rest of this machine.
    pub fn behind(&self, side: Side) -> Around {
        Around { fifo: Some(BEHIND), ..self.on(side) }
    }

    fn on(&self, side: Side) -> Around {
        Around::on_cpus(&self.of(side).to_string())
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

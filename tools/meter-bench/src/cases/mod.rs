//! The measurements, one per file.

pub mod crowd;
pub mod history;
pub mod lanes;
pub mod lock;
pub mod memory;
pub mod overload;
pub mod queue;
pub mod samples;
pub mod spool;
pub mod throughput;
pub mod truth;

use crate::BenchError;
use crate::payload::{Payload, Wire};
use crate::process::{MeterProcess, pin_to};
use crate::workload::Workload;
use std::ffi::OsStr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

/// The binary under test, and the cores of meter and load.
#[derive(Clone, Debug)]
pub struct Bench {
    /// `spangap`.
    pub binary: PathBuf,
    /// Core of the meter; `None` to pin neither.
    pub meter_cpu: Option<usize>,
    /// Core of the load.
    pub load_cpu: Option<usize>,
}

impl Bench {
    /// Starts a fresh meter on its core.
    ///
    /// # Errors
    /// It does not start.
    pub fn start<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<MeterProcess, BenchError> {
        self.on_meter_cpu(|| MeterProcess::start(&self.binary, arguments))
    }

    /// Like [`Bench::start`], with an existing history, which is removed with the meter.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_over<S: AsRef<OsStr>>(
        &self,
        data: TempDir,
        arguments: &[S],
    ) -> Result<MeterProcess, BenchError> {
        self.on_meter_cpu(|| MeterProcess::start_over(&self.binary, data, arguments))
    }

    /// Runs `work` on the meter's core, then returns to the load's.
    pub fn on_meter_cpu<T>(&self, work: impl FnOnce() -> T) -> T {
        self.meter_cpu.map(pin_to);
        let done = work();
        self.load_cpu.map(pin_to);
        done
    }
}

/// The batches of some passes in order, encoded on demand.
pub fn payloads(
    workload: &Arc<Workload>,
    passes: Range<u32>,
    wire: Wire,
) -> impl Iterator<Item = Payload> + Send + use<> {
    let workload = workload.clone();
    let numbers = passes.flat_map({
        let batches = workload.batches.len();
        move |pass| (0..batches).map(move |batch| (pass, batch))
    });
    numbers.map(move |(pass, batch)| Payload::new(&workload.batches[batch], pass, wire))
}

/// An error in the meter's answers.
fn wrong(meter: &MeterProcess, reason: String) -> BenchError {
    BenchError::Peer { peer: meter.http.to_string(), reason }
}

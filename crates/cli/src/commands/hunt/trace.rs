//! The slowest calls as a trace for Perfetto.

use crate::whole_file;
use anyhow::{Context, bail};
use spangap_gather::whole::{Selection, gather};
use spangap_gather::{Progress, Sources, perfetto};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Reads the sources a second time for the drawn calls, and writes the trace.
pub fn write(
    path: &Path,
    sources: &Sources,
    on_progress: &mut dyn FnMut(Progress),
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let mut go_on = |progress| {
        on_progress(progress);
        if stop.load(Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let gathered = gather(sources, &Selection::SLOWEST, &mut go_on, stop)?;
    let Some(trace) = perfetto::trace(&gathered) else {
        bail!("--perfetto {}: not written: the captures have no call to draw", path.display());
    };
    whole_file::write(path, trace).with_context(|| format!("cannot write the trace ({})", path.display()))
}

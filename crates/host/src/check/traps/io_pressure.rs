//! Disks are busy: work waits for reads, or for its writes to become durable.

use super::super::facts::memory::Memory;
use super::super::finding::{FindingDraft, NoVerdict};
use super::super::look::Inspection;
use super::super::stalls::{self, Stall};
use super::{Trap, percent, severity};
use spangap_model::Cause;

pub const TRAP: Trap = Trap { name: "io-pressure", causes: &[Cause::ServerApp, Cause::ClientApp], look };

/// Share of the time in which at least one task waited for I/O.
const HIGH: f64 = 0.5;
const MEDIUM: f64 = 0.2;
const LOW: f64 = 0.1;

const SYSTEM: &str = "/proc/pressure/io";

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    let seconds = look.seconds()?;
    let machine = (SYSTEM, &look.before()?.io_pressure, &look.after.io_pressure);
    let of_group = |memory: &Memory| (format!("{}/io.pressure", memory.folder), memory.io_pressure.clone());
    let stalls = stalls::of(look, machine, &of_group)?;
    // For a process, its own cgroup's pressure decides where available: other tenants' writes do not delay it.
    let own = stalls.iter().filter(|stall| stall.path != SYSTEM).map(|stall| stall.share(seconds));
    let all = stalls.iter().map(|stall| stall.share(seconds)).fold(0.0, f64::max);
    let share = own.reduce(f64::max).unwrap_or(all);
    let judged = FindingDraft::when(
        severity(share, HIGH, MEDIUM, LOW),
        format!("some task waited for a disk {} of the time", percent(share, 1.0)),
    );
    let judged =
        stalls.iter().map(Stall::evidence).fold(judged, |judged, (what, path)| judged.evidence(what, path));
    Ok(judged
        .means("threads wait for reads from a disk, or for writes to become durable (fsync). They need not belong \
        to the process in question, unless the file is its cgroup's")
        .fix("spangap host offcpu --pid PID  # names disk, fsync, journal and page-fault with how long they took"))
}

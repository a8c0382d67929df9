//! CPU pressure: how long work waited for a CPU.

use super::super::facts::pressure::Pressure;
use super::super::finding::{FindingDraft, NoVerdict};
use super::super::look::Inspection;
use super::{Trap, percent, severity};
use spangap_model::Cause;
use spangap_model::duration::format_ns;

pub const TRAP: Trap = Trap { name: "cpu-pressure", causes: &[Cause::RunQueue, Cause::CpuSaturated], look };

/// Share of the time in which at least one task waited for a CPU.
const HIGH: f64 = 0.5;
const MEDIUM: f64 = 0.2;
const LOW: f64 = 0.1;

const SYSTEM: &str = "/proc/pressure/cpu";

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    let seconds = look.seconds()?;
    let mut seen: Vec<(String, String, Pressure, Pressure)> = Vec::new();
    let mut unknown = Vec::new();
    match (&look.before()?.pressure, &look.after.pressure) {
        (Ok(before), Ok(after)) => seen.push(("the machine".into(), SYSTEM.into(), *before, *after)),
        (Err(error), _) | (_, Err(error)) => unknown.push(error),
    }
    for process in look.processes() {
        let Some(own) = process.groups.as_ref().ok().and_then(|groups| groups.first()) else { continue };
        let before =
            look.process_before(process.pid).and_then(|process| process.groups.as_ref().ok()?.first());
        if let (Some(Ok(before)), Ok(after)) = (before.map(|group| &group.pressure), &own.pressure) {
            seen.push(("its cgroup".into(), format!("{}/cpu.pressure", own.folder), *before, *after));
        }
    }
    let some =
        |before: &Pressure, after: &Pressure| after.some_us.saturating_sub(before.some_us) as f64 / 1e6;
    let worst = seen.iter().max_by(|a, b| some(&a.2, &a.3).total_cmp(&some(&b.2, &b.3)));
    let Some((name, _, before, after)) = worst else {
        return Err(match unknown.first() {
            Some(error) if !error.is_absent() => NoVerdict::from(*error),
            _ => NoVerdict::from(
                "this kernel has no pressure files: it is older than 4.20, or runs with psi=0",
            ),
        });
    };
    let found = severity(some(before, after) / seconds, HIGH, MEDIUM, LOW);
    let summary = format!(
        "in {name}, some task waited for a CPU {} of the time",
        percent(some(before, after), seconds)
    );
    let judged = seen.iter().fold(FindingDraft::when(found, summary), |judged, (_, path, before, after)| {
        let full =
            after.full_us.zip(before.full_us).map_or(0, |(after, before)| after.saturating_sub(before));
        let what = format!(
            "some +{}, full +{}, avg10 {:.2} %",
            format_ns((some(before, after) * 1e9) as u64),
            format_ns(full * 1_000),
            after.some_avg10
        );
        judged.evidence(what, path.clone())
    });
    let judged = judged
        .means(
            "at least one task was ready to run and had no CPU. It need not belong to the process: \
        run-queue-wait covers its own threads",
        )
        .fix("top -H -d 1  # who runs");
    Ok(unknown.into_iter().filter(|error| !error.is_absent()).fold(judged, FindingDraft::unknown))
}

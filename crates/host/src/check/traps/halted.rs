//! A process is stopped, traced by a debugger, or frozen with its cgroup.

use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::Trap;
use crate::halted::How;
use spangap_model::Cause;

pub const TRAP: Trap = Trap { name: "halted", causes: &[Cause::Stopped], look };

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    if look.whole_machine() {
        return Err(NoVerdict::from("no process is named (--pid)"));
    }
    let Some(first) = look.halted.first() else {
        return Ok(FindingDraft::fine("neither stopped nor frozen"));
    };
    let mut judged = FindingDraft::when(Some(Severity::High), first.words()).means(
        "none of its halted threads runs or answers until it is resumed; calls to it hang until they are given up",
    );
    for halted in &look.halted {
        let file = match &halted.how {
            How::Frozen { file } => file.clone(),
            How::Stopped | How::Traced { .. } => format!("/proc/{}/stat", halted.pid),
        };
        let what = format!("{} of {} threads: {}", halted.threads, halted.of_threads, halted.words());
        judged = judged.evidence(what, file).fix(halted.remedy());
    }
    Ok(judged.counted(Cause::Stopped, true).of_the_processes())
}

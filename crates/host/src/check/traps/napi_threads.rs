//! NAPI polls in kernel threads, which wait on the run queue like any other thread.

use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::super::remedy;
use super::Trap;
use spangap_model::Cause;

pub const TRAP: Trap = Trap { name: "napi-threads", causes: &[Cause::SoftirqLate], look };

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    let nics = look.nics.as_ref()?;
    let threaded: Vec<_> = nics.iter().filter(|nic| nic.threaded == Some(true)).collect();
    let Some(first) = threaded.first() else {
        let known = nics.iter().any(|nic| nic.threaded.is_some());
        return Ok(FindingDraft::fine(if known { "off" } else { "this kernel has none (before 5.12)" }));
    };
    let mut judged = FindingDraft::trap(Severity::Low, format!("{} polls in kernel threads", first.name)).means(
        "packets wait until the thread napi/IF-N gets a CPU, and compete with the application if both may use the \
         same ones. With their own CPUs, such threads help",
    );
    let cpus = remedy::apart(look).map_or_else(|| "0".to_owned(), |apart| apart.network.to_string());
    for nic in threaded {
        judged = judged
            .evidence("threaded 1", format!("/sys/class/net/{}/threaded", nic.name))
            .fix(format!("for p in $(pgrep 'napi/{}-'); do taskset -p -c {cpus} $p; done", nic.name))
            .fix(format!("echo 0 > /sys/class/net/{}/threaded  # or off", nic.name));
    }
    Ok(judged)
}

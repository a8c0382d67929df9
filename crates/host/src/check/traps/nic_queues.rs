//! An interface has so few receive queues that few CPUs handle all its packets.

use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::{Trap, counted};
use spangap_model::Cause;

pub const TRAP: Trap = Trap { name: "nic-queues", causes: &[Cause::SoftirqLate, Cause::SoftirqOnCpu], look };

/// From this many CPUs on, a single queue becomes the first bottleneck.
const MANY_CPUS: usize = 8;

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    let online = look.online.as_ref()?.len();
    let nics = look.nics.as_ref()?;
    let nics: Vec<_> = nics.iter().filter(|nic| nic.up && nic.driver.is_some()).collect();
    if nics.is_empty() {
        return Err(NoVerdict::from(
            "no hardware interface is up here (is this a separate network namespace?)",
        ));
    }
    let spread = |nic: &super::super::facts::nic::Nic| {
        nic.rx.iter().any(|queue| queue.cpus.as_ref().is_ok_and(|mask| !mask.is_empty()))
    };
    let words: Vec<String> =
        nics.iter().map(|nic| format!("{}: {}", nic.name, counted(nic.rx.len(), "receive queue"))).collect();
    let single: Vec<_> = nics.iter().filter(|nic| nic.rx.len() == 1 && online > 1 && !spread(nic)).collect();
    let found = match single.len() {
        0 => None,
        _ if online >= MANY_CPUS => Some(Severity::Medium),
        _ => Some(Severity::Low),
    };
    let mut judged = FindingDraft::when(found, format!("{}, {}", words.join(", "), counted(online, "CPU"))).means(
        "one CPU handles all packets of the interface; when it is busy they wait, and whatever runs there is \
        pushed aside",
    );
    for nic in &nics {
        let what = format!(
            "{} (driver {}): {}, {}",
            nic.name,
            nic.driver.as_deref().unwrap_or("none"),
            counted(nic.rx.len(), "receive queue"),
            counted(nic.irqs.len(), "interrupt line")
        );
        judged = judged.evidence(what, format!("/sys/class/net/{}/queues", nic.name));
    }
    for nic in single {
        judged = judged
            .fix(format!(
                "ethtool -l {0}; ethtool -L {0} combined {1}  # if it has more queues",
                nic.name,
                online.min(16)
            ))
            .fix(format!(
                "# a virtual machine: give the interface more queues on the host; otherwise RPS (rps_cpus \
            of {}) spreads the work over CPUs that you choose",
                nic.name
            ));
    }
    Ok(judged)
}

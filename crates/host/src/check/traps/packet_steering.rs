//! RPS masks steer received packets to the CPUs that the process may use.

use super::super::facts::nic::Queue;
use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::super::remedy;
use super::{Trap, counted, rate};
use spangap_model::Cause;
use spangap_model::Cpus;
use std::collections::BTreeMap;

pub const TRAP: Trap = Trap { name: "packet-steering", causes: &[Cause::SoftirqOnCpu], look };

/// Wake-ups for steered packets a second, from which on the trap takes effect rather than being possible.
const MEDIUM_PER_SECOND: f64 = 100.0;

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    let cpus = look.cpus()?;
    let nics = look.nics.as_ref()?;
    // Queues of an interface with the same mask share a line.
    let (mut on, mut aimed) = (0, BTreeMap::<(&str, String), Vec<&str>>::new());
    for nic in nics {
        for queue in &nic.rx {
            let Ok(mask) = &queue.cpus else { continue };
            on += usize::from(!mask.is_empty());
            if !mask.both(&cpus).is_empty() {
                aimed.entry((&nic.name, mask.mask())).or_default().push(&queue.name);
            }
        }
    }
    let path = |nic: &str, queue: &str| format!("/sys/class/net/{nic}/queues/{queue}/rps_cpus");
    let unknown: Vec<_> = nics
        .iter()
        .flat_map(|nic| &nic.rx)
        .filter_map(|queue| queue.cpus.as_ref().err())
        .filter(|error| !error.is_absent())
        .collect();
    let handed = handed_over(look, &cpus);
    let flows = look
        .settings
        .get("net/core/rps_sock_flow_entries")
        .and_then(|flows| flows.as_ref().ok())
        .copied()
        .unwrap_or(0);
    let mut judged = if aimed.is_empty() || look.whole_machine() {
        if on == 0 && !unknown.is_empty() {
            return Err(NoVerdict::from(unknown[0]));
        }
        FindingDraft::fine(if on == 0 {
            "RPS is off".to_owned()
        } else {
            format!("RPS on {}, none to CPUs {cpus}", counted(on, "queue"))
        })
    } else {
        let (count, seconds) = handed.clone().unwrap_or((0, 1.0));
        let severity =
            if count as f64 / seconds >= MEDIUM_PER_SECOND { Severity::Medium } else { Severity::Low };
        let masks = aimed.keys().filter_map(|(_, mask)| Cpus::parse_mask(mask));
        let hit = masks.fold(Cpus::default(), |all, mask| all.either(&mask.both(&cpus)));
        let queues = counted(aimed.values().map(Vec::len).sum::<usize>(), "queue");
        FindingDraft::trap(
            severity,
            format!("RPS steers packets of {queues} to {}, woken {}", hit.words(), rate(count, seconds)),
        )
    };
    for ((nic, mask), queues) in &aimed {
        let on = Cpus::parse_mask(mask).unwrap_or_default();
        let more =
            if queues.len() > 1 { format!(", the same for {} queues", queues.len()) } else { String::new() };
        let what = format!("mask {mask}: CPUs {on}, of the process {}{more}", on.both(&cpus));
        judged = judged.evidence(what, path(nic, queues[0]));
    }
    if let Ok((count, seconds)) = handed {
        judged = judged.evidence(
            format!("CPUs {cpus} woken by others for packets: {}", rate(count, seconds)),
            "/proc/net/softnet_stat",
        );
    }
    let takes = |queue: &&Queue| queue.cpus.as_ref().is_ok_and(|mask| !mask.both(&cpus).is_empty());
    let sends = nics.iter().flat_map(|nic| &nic.tx).filter(takes).count();
    if sends > 0 {
        let what = format!("XPS: these CPUs send through {} of their own", counted(sends, "queue"));
        judged = judged.evidence(what, "/sys/class/net/IF/queues/tx-N/xps_cpus");
    }
    if flows > 0 {
        judged = judged.evidence(
            format!("RFS is on with {flows} flows: packets follow the thread that reads them"),
            "/proc/sys/net/core/rps_sock_flow_entries",
        );
    }
    for process in look.processes().filter(|process| process.same_net == Ok(false)) {
        judged = judged.unknown(format!(
            "the masks inside the network namespace of {} ({}) are not visible from here",
            process.comm, process.pid
        ));
    }
    for error in unknown {
        judged = judged.unknown(error);
    }
    judged = judged.means(
        "the CPU that takes the interrupt passes the packets on, and the softirq that handles \
    them runs on a CPU of the process, in place of its threads",
    );
    let to = remedy::apart(look).map_or_else(|| "0".to_owned(), |apart| apart.network.mask());
    for ((nic, _), queues) in &aimed {
        judged = judged.fix(match queues.as_slice() {
            [queue] => format!("echo {to} > {}", path(nic, queue)),
            queues => format!("for q in {}; do echo {to} > {}; done", queues.join(" "), path(nic, "$q")),
        });
    }
    Ok(judged)
}

/// How often other CPUs steered packets to these CPUs, and over how many seconds.
fn handed_over(look: &Inspection, cpus: &Cpus) -> Result<(u64, f64), NoVerdict> {
    let (before, after) = (look.before()?.softnet.as_ref()?, look.after.softnet.as_ref()?);
    let its = after.iter().filter(|(cpu, _)| cpus.contains(**cpu));
    let count = its.map(|(cpu, after)| {
        let earlier = before.get(cpu).and_then(|before| before.received_rps);
        after.received_rps.zip(earlier).map_or(0, |(after, before)| after.saturating_sub(before))
    });
    Ok((count.sum(), look.seconds()?))
}

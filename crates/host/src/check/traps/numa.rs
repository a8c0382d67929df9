//! The interface is on one NUMA node, the process on another.

use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::Trap;
use spangap_model::Cause;

pub const TRAP: Trap = Trap { name: "numa", causes: &[Cause::ServerApp, Cause::ClientApp], look };

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    if look.nodes.len() < 2 {
        return Ok(FindingDraft::fine("one node"));
    }
    if look.whole_machine() {
        return Err(NoVerdict::from("no process is named (--pid)"));
    }
    let cpus = look.cpus()?;
    let its: Vec<u32> =
        look.nodes.iter().filter(|(_, of)| !of.both(&cpus).is_empty()).map(|(node, _)| *node).collect();
    let nics: Vec<_> = look.nics.as_ref()?.iter().filter(|nic| nic.up && nic.driver.is_some()).collect();
    let placed: Vec<_> = nics.iter().filter_map(|nic| Some((nic, nic.node?))).collect();
    let Some((first, _)) = placed.first() else {
        return Err(NoVerdict::from("no interface reports its node (the firmware omits it)"));
    };
    let far: Vec<_> = placed.iter().filter(|(_, node)| !its.contains(node)).collect();
    let words = |nodes: &[u32]| nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let (found, summary) = match far.first() {
        Some((nic, node)) => (
            Some(Severity::Medium),
            format!("{} is on node {node}, the process on node {}", nic.name, words(&its)),
        ),
        None if its.len() > 1 => (
            Some(Severity::Low),
            format!("the process may run on nodes {}; {} is on one of them", words(&its), first.name),
        ),
        None => (None, format!("{} and the process are on node {}", first.name, words(&its))),
    };
    let mut judged = FindingDraft::when(found, summary).means(
        "packets and their memory cross the link between the sockets; each remote access takes about twice as long, \
         and threads that move leave their memory behind",
    );
    for (nic, node) in &placed {
        judged = judged.evidence(
            format!("{} on node {node}", nic.name),
            format!("/sys/class/net/{}/device/numa_node", nic.name),
        );
    }
    for node in &its {
        let of = look.nodes.get(node).map(|of| of.both(&cpus).to_string()).unwrap_or_default();
        judged = judged.evidence(
            format!("node {node} has CPUs {of} of the process"),
            format!("/sys/devices/system/node/node{node}/cpulist"),
        );
    }
    let target = far.first().or(placed.first().as_ref()).map(|(_, node)| *node).unwrap_or(0);
    let near = look.nodes.get(&target).map(ToString::to_string).unwrap_or_default();
    let from: Vec<u32> = its.iter().copied().filter(|node| *node != target).collect();
    for pid in &look.pids {
        judged = judged.fix(format!(
            "taskset -a -p -c {near} {pid}; migratepages {pid} {} {target}",
            words(&from).replace(' ', "")
        ));
    }
    judged = judged
        .fix("# and give the interface's interrupts CPUs of that node which the process does not get")
        .fix(format!("# permanently: start it under numactl --cpunodebind={target} --membind={target}"));
    Ok(judged)
}

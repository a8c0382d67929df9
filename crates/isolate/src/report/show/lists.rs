//! The lists below the map: interfaces, services that move tasks and interrupts, boot settings, unknowns.

use super::ShowReport;
use crate::topology::{Interface, InterfaceIrq, Irq, Topology};
use spangap_model::Cpus;
use spangap_report::cut::keep_start;
use spangap_report::figures::counted;
use spangap_report::wrap::wrap_strictly;
use std::collections::{BTreeMap, BTreeSet};

/// Merged interfaces shown by name; the rest is counted.
const NAMED: usize = 4;
/// Interrupt targets shown one by one.
const TARGETS: usize = 12;
/// Errors of one kind shown.
const ERRORS: usize = 12;

/// The interfaces.
pub(super) fn interfaces(report: &ShowReport, width: usize) -> String {
    let topology = &report.topology;
    let mut text = "Interfaces\n".to_owned();
    let irqs: BTreeMap<u32, &Irq> = topology.irqs.iter().map(|irq| (irq.number, irq)).collect();
    if topology.interfaces.is_empty() {
        text += "  none\n";
    }
    // A Kubernetes node has hundreds of identical ones.
    let mut alike: Vec<(Vec<&str>, Vec<String>)> = Vec::new();
    for interface in &topology.interfaces {
        let words = interface_words(interface, &irqs);
        match alike.iter_mut().find(|(_, same)| interface.irqs.is_empty() && *same == words) {
            Some((names, _)) => names.push(&interface.name),
            None => alike.push((vec![&interface.name], words)),
        }
    }
    for (names, words) in alike {
        let name = match names.len() {
            few if few <= NAMED => names.join(", "),
            many => format!("{}, ... ({})", names[..2].join(", "), counted(many, "interface")),
        };
        let (first, rest) = words.split_first().expect("an interface says something");
        wrap_strictly(&mut text, &format!("  {}  ", keep_start(&name, 44)), first, width);
        for words in rest {
            wrap_strictly(&mut text, "      ", words, width);
        }
    }
    text
}

/// Description of an interface, one item per line.
fn interface_words(interface: &Interface, irqs: &BTreeMap<u32, &Irq>) -> Vec<String> {
    let mut first = vec![match &interface.driver {
        Some(driver) => driver.clone(),
        None => "no device".to_owned(),
    }];
    if let Some(pci) = &interface.pci {
        first.push(pci.clone());
    }
    if interface.driver.is_some() || interface.pci.is_some() {
        first.push(interface.node.map_or("node not told".to_owned(), |node| format!("node {node}")));
    }
    match interface.queues {
        Some(queues) => first.push(format!("{} of {} queues", queues.now, queues.most)),
        None => first.push(counted(interface.rx.len(), "receive queue")),
    }
    first.push(if interface.up { "up" } else { "down" }.to_owned());
    if interface.threaded {
        first.push("packets handled by kernel threads (threaded NAPI)".to_owned());
    }
    if !interface.lower.is_empty() {
        first.push(format!("over {}", interface.lower.join(", ")));
    }
    let mut words = vec![first.join(", ")];
    words.extend(irq_words(interface, irqs));
    let steering = steering(interface);
    if !steering.is_empty() {
        words.push(steering.join("; "));
    }
    words
}

/// Targets of the interrupts.
fn irq_words(interface: &Interface, irqs: &BTreeMap<u32, &Irq>) -> Vec<String> {
    let mut words = Vec::new();
    for (of_queues, what) in [(true, "queues"), (false, "other")] {
        let ours: Vec<&InterfaceIrq> =
            interface.irqs.iter().filter(|one| one.queue.is_some() == of_queues).collect();
        if ours.is_empty() {
            continue;
        }
        let goes = |one: &InterfaceIrq| irqs.get(&one.irq).map(|irq| super::goes(irq)).unwrap_or_default();
        let numbers: Cpus = ours.iter().map(|one| one.irq).collect();
        let plural = if numbers.len() == 1 { "IRQ" } else { "IRQs" };
        let single: Option<Vec<u32>> = ours
            .iter()
            .map(|one| Some(goes(one)).filter(|cpus| cpus.len() == 1).and_then(|cpus| cpus.iter().next()))
            .collect();
        let head = match of_queues {
            true => {
                let queues: Cpus = ours.iter().filter_map(|one| one.queue).collect();
                format!("q{queues}: {plural} {numbers}")
            }
            false => format!("{what}: {plural} {numbers}"),
        };
        words.push(match single {
            Some(cpus) if cpus.iter().collect::<BTreeSet<_>>().len() == 1 => {
                format!("{head} -> CPU {}", cpus[0])
            }
            Some(cpus) => format!("{head} -> CPUs {}, in this order", in_order(&cpus)),
            None => {
                let mut by_target: Vec<(Cpus, Vec<u32>)> = Vec::new();
                for one in &ours {
                    let cpus = goes(one);
                    let number = one.queue.unwrap_or(one.irq);
                    match by_target.iter_mut().find(|(same, _)| *same == cpus) {
                        Some((_, numbers)) => numbers.push(number),
                        None => by_target.push((cpus, vec![number])),
                    }
                }
                let q = if of_queues { "q" } else { "" };
                let each = |(cpus, numbers): &(Cpus, Vec<u32>)| {
                    let numbers: Cpus = numbers.iter().copied().collect();
                    let target = if cpus.is_empty() { "not told where".to_owned() } else { cpus.words() };
                    if by_target.len() == 1 { target } else { format!("{q}{numbers} {target}") }
                };
                let told: Vec<String> = by_target.iter().take(TARGETS).map(each).collect();
                let more = by_target.len().saturating_sub(TARGETS);
                let more = if more > 0 { format!("; and {more} more") } else { String::new() };
                format!("{head} -> {}{more}", told.join("; "))
            }
        });
    }
    words
}

/// Numbers in the given order, with runs merged: `1,49,2,50`, `0-62`.
fn in_order(numbers: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, to)) if *to + 1 == number => *to = number,
            _ => runs.push((number, number)),
        }
    }
    let run = |&(from, to): &(u32, u32)| if from == to { from.to_string() } else { format!("{from}-{to}") };
    runs.iter().map(run).collect::<Vec<_>>().join(",")
}

/// Software steering: RPS, RFS, XPS.
fn steering(interface: &Interface) -> Vec<String> {
    let mut words = Vec::new();
    let told = interface.rx.iter().any(|rx| rx.rps_cpus.is_some());
    let steered = by_cpus(interface.rx.iter().filter_map(|rx| Some((rx.rps_cpus.clone()?, rx.queue))));
    match steered.as_slice() {
        [] if told => words.push("RPS off".to_owned()),
        [] => {}
        sets => words.push(format!("RPS {}", sets.join(", "))),
    }
    let flows: u64 = interface.rx.iter().filter_map(|rx| rx.rps_flow_cnt).sum();
    if flows > 0 {
        words.push(format!("RFS tables with {flows} entries"));
    }
    let settable = interface.tx.iter().filter(|tx| tx.xps_cpus.is_some()).count();
    let by = by_cpus(interface.tx.iter().filter_map(|tx| Some((tx.xps_cpus.clone()?, tx.queue))));
    match by.len() {
        0 if settable > 0 => words.push("XPS off".to_owned()),
        0 => {}
        few if few <= NAMED => words.push(format!("XPS {}", by.join(", "))),
        many => words.push(format!("XPS with {many} sets of CPUs for {settable} queues")),
    }
    words
}

/// Queues grouped by their CPUs; those without any are omitted.
fn by_cpus(queues: impl Iterator<Item = (Cpus, u32)>) -> Vec<String> {
    let mut sets: Vec<(Cpus, Vec<u32>)> = Vec::new();
    let mut all = 0;
    for (cpus, queue) in queues {
        all += 1;
        if cpus.is_empty() {
            continue;
        }
        match sets.iter_mut().find(|(same, _)| *same == cpus) {
            Some((_, queues)) => queues.push(queue),
            None => sets.push((cpus, vec![queue])),
        }
    }
    let words = |(cpus, queues): &(Cpus, Vec<u32>)| {
        let of: Cpus = queues.iter().copied().collect();
        if queues.len() == all {
            format!("to {}", cpus.words())
        } else {
            format!("of q{of} to {}", cpus.words())
        }
    };
    sets.iter().map(words).collect()
}

/// Services that move interrupts and tasks.
pub(super) fn movers(topology: &Topology, width: usize) -> String {
    let mut text = "Who moves things\n".to_owned();
    let mut line =
        |head: &str, words: String| wrap_strictly(&mut text, &format!("  {head}  "), &words, width);
    let mut any = false;
    if let Some(balance) = &topology.irqbalance {
        any = true;
        let unit = balance.unit.as_ref().map(|unit| format!(", {unit}")).unwrap_or_default();
        let banned = match &balance.banned {
            None => "has no socket to ask which interrupts it leaves alone".to_owned(),
            Some(none) if none.is_empty() => "leaves no interrupt alone".to_owned(),
            Some(some) => {
                format!("leaves IRQs {} alone", some.iter().copied().collect::<Cpus>())
            }
        };
        line("irqbalance", format!("pid {}{unit}; {banned}", balance.pid));
    }
    if let Some(tuned) = &topology.tuned {
        any = true;
        let profile = tuned.profile.as_deref().unwrap_or("not told");
        line("tuned", format!("pid {}, profile {profile}", tuned.pid));
    }
    if let Some(kubelet) = &topology.kubelet {
        any = true;
        let mut words = vec![format!("CPU manager policy {}", kubelet.policy)];
        if !kubelet.shared.is_empty() {
            words.push(format!("containers share {}", kubelet.shared.words()));
        }
        let alone: Cpus = kubelet.exclusive.iter().flat_map(|one| one.cpus.iter()).collect();
        match kubelet.exclusive.len() {
            0 => {}
            few if few <= NAMED => words.extend(kubelet.exclusive.iter().map(|one| {
                format!("{} only for {}/{}", one.cpus.words(), keep_start(&one.pod, 40), one.container)
            })),
            many => words.push(format!("{} exclusive to {}", alone.words(), counted(many, "container"))),
        }
        match &kubelet.reserved {
            Some(reserved) => words.push(format!("reservedSystemCPUs {reserved}")),
            None => words.push("reservedSystemCPUs unknown".to_owned()),
        }
        line("kubelet", words.join("; "));
    }
    let pinned: Vec<_> = topology.pinned.iter().filter(|task| !task.kernel).collect();
    if !pinned.is_empty() {
        any = true;
        let cpus: Cpus = pinned.iter().flat_map(|task| task.allowed.iter()).collect();
        let names: BTreeSet<&str> = pinned.iter().map(|task| task.comm.as_str()).collect();
        let some: Vec<String> = names.iter().take(NAMED).map(|name| keep_start(name, 20)).collect();
        let more = if names.len() > NAMED { ", ..." } else { "" };
        line(
            "pinned",
            format!("{} of {}{more} on {}", counted(pinned.len(), "thread"), some.join(", "), cpus.words()),
        );
    }
    if !any {
        text += "  none seen: no irqbalance, tuned or kubelet, no pinned threads\n";
    }
    text
}

/// Settings made at boot.
pub(super) fn boot(topology: &Topology, width: usize) -> String {
    let boot = &topology.boot;
    let mut words = Vec::new();
    for (name, cpus) in [
        ("isolcpus", Some(&boot.isolated)),
        ("nohz_full", Some(&boot.nohz_full)),
        ("rcu_nocbs", Some(&boot.rcu_nocbs)),
        ("irqaffinity", boot.irqaffinity.as_ref()),
    ] {
        if let Some(cpus) = cpus.filter(|cpus| !cpus.is_empty()) {
            words.push(format!("{name} {cpus}"));
        }
    }
    if words.is_empty() {
        words.push("no CPU was set apart".to_owned());
    }
    let kernel = if boot.kernel.is_empty() { String::new() } else { format!("kernel {}; ", boot.kernel) };
    let mut text = String::new();
    wrap_strictly(&mut text, "At boot: ", &format!("{kernel}{}", words.join("; ")), width);
    text
}

/// Files that could not be read, and why.
pub(super) fn unknown(report: &ShowReport, width: usize) -> String {
    let errors = report.topology.unknown.iter().map(ToString::to_string);
    let all: Vec<String> = report.unknown.iter().cloned().chain(errors).collect();
    if all.is_empty() {
        return String::new();
    }
    let mut text = "Not known\n".to_owned();
    for error in all.iter().take(ERRORS) {
        wrap_strictly(&mut text, "  ", error, width);
    }
    let more = all.len().saturating_sub(ERRORS);
    if more > 0 {
        text += &format!("  and {more} more; --json has them\n");
    }
    text
}

/// The network's CPUs, and those that a plan would choose.
pub(super) fn net(report: &ShowReport, width: usize) -> String {
    let mut text = String::new();
    if let Some(net) = &report.net_cpus {
        wrap_strictly(&mut text, "Applied: ", &format!("{} for the network (NET)", net.words()), width);
    }
    if let Some(planned) = &report.planned {
        match &planned.net_cpus {
            Some(net) => {
                let words = format!("would take {} for the network: {}", net.words(), planned.why.join("; "));
                wrap_strictly(&mut text, "A plan ", &words, width);
            }
            None => wrap_strictly(&mut text, "A plan would be refused: ", &planned.why.join("; "), width),
        }
    }
    text
}

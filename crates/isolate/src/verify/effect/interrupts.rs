//! Where interrupts arrived and softirqs ran.

use super::{EffectInput, EffectVerdict, Judgement, counted, first, percent};
use crate::topology::Interface;
use spangap_model::Cpus;
use spangap_model::count::grouped;
use std::collections::BTreeMap;

/// From this share of NET_RX on the network's CPUs on, software steering counts as working: other sources of
/// NET_RX there do not explain that much.
const STEERED_SHARE: f64 = 0.5;

/// The interrupts of one interface or, if it has none, the steering of its packets.
pub fn of_interface(look: &EffectInput<'_>, name: &str) -> Vec<Judgement> {
    let Some(interface) = look.now.interface(name) else {
        return vec![Judgement::cannot_tell("interrupts", "the interface no longer exists").of(name)];
    };
    let mut judgements = Vec::new();
    if !interface.irqs.is_empty() {
        judgements.push(interrupts(look, interface).of(name));
    }
    let steered =
        |queue: &crate::topology::RxQueue| queue.rps_cpus.as_ref().is_some_and(|cpus| !cpus.is_empty());
    if interface.irqs.is_empty() || interface.rx.iter().any(steered) {
        judgements.push(steering(look, interface).of(name));
    }
    judgements
}

fn interrupts(look: &EffectInput<'_>, interface: &Interface) -> Judgement {
    let net = look.net();
    let mut by_cpu: BTreeMap<u32, u64> = BTreeMap::new();
    let (mut evidence, mut unknown, mut idle) = (Vec::new(), Vec::new(), Vec::new());
    for own in &interface.irqs {
        let name = match own.queue {
            Some(queue) => format!("IRQ {} (queue {queue})", own.irq),
            None => format!("IRQ {}", own.irq),
        };
        match look.since.irqs.get(&own.irq) {
            Some(Ok(counts)) => {
                let came: u64 = counts.values().fold(0, |all, count| all.saturating_add(*count));
                if came == 0 {
                    idle.push(name);
                    continue;
                }
                let here: Vec<String> = counts
                    .iter()
                    .filter(|(_, count)| **count > 0)
                    .map(|(cpu, count)| format!("{} on CPU {cpu}", grouped(*count)))
                    .collect();
                evidence.push(format!("{name}: {}", here.join(", ")));
                for (cpu, count) in counts {
                    let all = by_cpu.entry(*cpu).or_default();
                    *all = all.saturating_add(*count);
                }
            }
            Some(Err(why)) => unknown.push(format!("{name}: {why}")),
            None => unknown.push(format!("{name} is not in /proc/interrupts")),
        }
    }
    let sum = |counts: &mut dyn Iterator<Item = (&u32, &u64)>| {
        counts.fold(0_u64, |all, (_, count)| all.saturating_add(*count))
    };
    let all = sum(&mut by_cpu.iter());
    let outside = sum(&mut by_cpu.iter().filter(|(cpu, _)| !net.contains(**cpu)));
    let quiet = idle.len();
    if !idle.is_empty() {
        let idle = first(idle.into_iter()).join(", ");
        evidence.push(format!(
            "none arrived of {idle}: where the next one goes cannot be seen before it arrives"
        ));
    }
    let first_unknown = unknown.first().cloned();
    evidence.extend(first(unknown.into_iter()));
    let judgement = match (outside, all, first_unknown) {
        (1.., ..) => {
            let elsewhere: Cpus = by_cpu
                .iter()
                .filter(|(cpu, n)| **n > 0 && !net.contains(**cpu))
                .map(|(cpu, _)| *cpu)
                .collect();
            Judgement::new(
                "interrupts",
                EffectVerdict::DoesNotHold,
                format!(
                    "{} of {} went elsewhere, to {}",
                    grouped(outside),
                    counted(all, "interrupt"),
                    elsewhere.words()
                ),
            )
        }
        (_, 0, Some(why)) => Judgement::cannot_tell("interrupts", why),
        (_, 0, _) => Judgement::cannot_tell("interrupts", "none arrived in this time"),
        (_, _, Some(why)) => Judgement::cannot_tell(
            "interrupts",
            format!("{}, all on {}, but not all are known: {why}", counted(all, "interrupt"), net.words()),
        ),
        (..) => {
            let idle = match quiet {
                0 => String::new(),
                _ => format!(" ({quiet} of {} had none)", interface.irqs.len()),
            };
            let all = counted(all, "interrupt");
            Judgement::new("interrupts", EffectVerdict::Holds, format!("{all}, all on {}{idle}", net.words()))
        }
    };
    judgement.with(evidence)
}

/// Where software steers packets. The effect shows only in NET_RX, which other sources raise too: a small share
/// proves nothing, and neither does a large one without packets of this interface.
fn steering(look: &EffectInput<'_>, interface: &Interface) -> Judgement {
    let net = look.net();
    let mut evidence = Vec::new();
    let (mut wrong, mut off) = (Vec::new(), 0);
    for queue in &interface.rx {
        match &queue.rps_cpus {
            Some(cpus) if cpus.is_empty() => off += 1,
            Some(cpus) if !cpus.without(net).is_empty() => {
                wrong.push(format!("rx-{} hands packets to {}", queue.queue, cpus.words()));
            }
            Some(_) => {}
            None => evidence.push(format!("rx-{}: rps_cpus is not known", queue.queue)),
        }
    }
    if !wrong.is_empty() {
        let summary = format!("packets are handed to CPUs outside of {net}");
        return Judgement::new("steering", EffectVerdict::DoesNotHold, summary)
            .with(first(wrong.into_iter()));
    }
    if off == interface.rx.len() {
        let summary = "it has no interrupts of its own, and hands packets to no CPU (rps_cpus): they stay where \
        they arrived";
        return Judgement::cannot_tell("steering", summary);
    }
    let (inside, all) = match net_rx(look) {
        Ok(sums) => sums,
        Err(why) => return Judgement::cannot_tell("steering", why).with(evidence),
    };
    let packets = match look.since.packets.get(&interface.name) {
        None => {
            return Judgement::cannot_tell("steering", "the number of packets is unknown").with(evidence);
        }
        Some(0) => {
            return Judgement::cannot_tell("steering", "no packet arrived in this time").with(evidence);
        }
        Some(packets) => counted(*packets, "packet"),
    };
    let share = inside as f64 / all.max(1) as f64;
    let summary = format!(
        "{packets} arrived, and {} of {} NET_RX softirqs ran on {}",
        percent(inside, all),
        grouped(all),
        net.words()
    );
    if all == 0 {
        Judgement::cannot_tell("steering", "no NET_RX softirq ran in this time").with(evidence)
    } else if share >= STEERED_SHARE {
        Judgement::new("steering", EffectVerdict::Holds, summary).with(evidence)
    } else {
        let why = "whether those of this interface are among them cannot be seen here (`spangap host thieves` tells \
                   softirqs by device)";
        Judgement::cannot_tell("steering", format!("{summary}; {why}")).with(evidence)
    }
}

/// NET_RX softirqs on the network's CPUs, and on all.
fn net_rx(look: &EffectInput<'_>) -> Result<(u64, u64), String> {
    let (mut inside, mut all) = (0_u64, 0_u64);
    for (cpu, load) in &look.since.cpus {
        let load = load.as_ref().map_err(|why| format!("CPU {cpu}: {why}"))?;
        all = all.saturating_add(load.net_rx);
        if look.net().contains(*cpu) {
            inside = inside.saturating_add(load.net_rx);
        }
    }
    Ok((inside, all))
}

/// Where NET_RX and NET_TX ran.
pub fn softirqs(look: &EffectInput<'_>) -> Judgement {
    let net = look.net();
    let (mut rx, mut tx) = ((0_u64, 0_u64), (0_u64, 0_u64));
    let mut evidence = Vec::new();
    let mut unknown = Vec::new();
    for (cpu, load) in &look.since.cpus {
        match load {
            Ok(load) => {
                for (sums, ran) in [(&mut rx, load.net_rx), (&mut tx, load.net_tx)] {
                    sums.1 = sums.1.saturating_add(ran);
                    if net.contains(*cpu) {
                        sums.0 = sums.0.saturating_add(ran);
                    }
                }
                if load.net_rx > 0 || load.net_tx > 0 {
                    let (rx, tx) = (grouped(load.net_rx), grouped(load.net_tx));
                    let of = if net.contains(*cpu) { "network" } else { "applications" };
                    evidence.push((load.net_rx, format!("CPU {cpu} ({of}): {rx} NET_RX, {tx} NET_TX")));
                }
            }
            Err(why) => unknown.push(format!("CPU {cpu}: {why}")),
        }
    }
    if look.since.cpus.is_empty() {
        return Judgement::cannot_tell("softirqs", "/proc/softirqs was not read");
    }
    if unknown.len() == look.since.cpus.len() {
        return Judgement::cannot_tell("softirqs", unknown.swap_remove(0)).with(first(unknown.into_iter()));
    }
    // The busiest first: of many CPUs only some are shown.
    evidence.sort_by_key(|(rx, _)| std::cmp::Reverse(*rx));
    let mut evidence = first(evidence.into_iter().map(|(_, words)| words));
    evidence.extend(first(unknown.into_iter()));
    if rx.0 < rx.1 {
        evidence
            .push("elsewhere NET_RX is raised by loopback traffic, and by interfaces not asked for".into());
    }
    if tx.0 < tx.1 {
        evidence.push("elsewhere NET_TX is raised by applications that send".into());
    }
    let of = |(inside, all): (u64, u64), name: &str| match all {
        0 => format!("no {name}"),
        _ => format!("{} of {} {name}", percent(inside, all), grouped(all)),
    };
    let summary = format!("{} and {} on {}", of(rx, "NET_RX"), of(tx, "NET_TX"), net.words());
    Judgement::new("softirqs", EffectVerdict::Remark, summary).with(evidence)
}

/// Other devices' interrupts that arrived on the network's CPUs.
pub fn others(look: &EffectInput<'_>) -> Option<Judgement> {
    let ours: Vec<u32> = look
        .plan
        .policy
        .interfaces
        .iter()
        .filter_map(|name| look.now.interface(name))
        .flat_map(|interface| interface.irqs.iter().map(|own| own.irq))
        .collect();
    let mut came: Vec<(u64, String)> = Vec::new();
    for irq in look.now.irqs.iter().filter(|irq| !ours.contains(&irq.number)) {
        let Some(Ok(counts)) = look.since.irqs.get(&irq.number) else { continue };
        let here = counts.iter().filter(|(cpu, _)| look.net().contains(**cpu));
        let here = here.fold(0_u64, |all, (_, count)| all.saturating_add(*count));
        if here > 0 {
            came.push((here, format!("IRQ {} {}: {}", irq.number, irq.name, grouped(here))));
        }
    }
    came.sort_by_key(|(here, _)| std::cmp::Reverse(*here));
    let all = came.iter().fold(0_u64, |all, (here, _)| all.saturating_add(*here));
    if all == 0 {
        return None;
    }
    let (all, net) = (counted(all, "interrupt"), look.net().words());
    let summary = format!("{all} of other devices arrived on {net}");
    let evidence = first(came.into_iter().map(|(_, words)| words));
    Some(Judgement::new("other-interrupts", EffectVerdict::Remark, summary).with(evidence))
}

//! Misplaced interrupts and packet steering as evidence.

use super::{CpuReport, ShowReport};
use crate::topology::Interface;
use spangap_model::evidence::{Certainty, Coverage, Finding, Instrument, Missing, Proof, Scope, Testimony};
use spangap_model::{Cause, Cpus, Culprit};
use std::collections::BTreeMap;

/// Findings: packets that are, or may be, processed on CPUs reserved for applications. On a machine that
/// reserves none, nothing is out of place.
pub(super) fn evidence(report: &ShowReport) -> Testimony {
    let mut reached: BTreeMap<String, (Cpus, BTreeMap<String, String>)> = BTreeMap::new();
    let mut set_apart = false;
    for cpu in &report.cpus {
        let Some(whose) = whose(cpu, report) else { continue };
        set_apart = true;
        let ways = ways(cpu, report);
        if !ways.is_empty() {
            let (cpus, proofs) = reached.entry(whose).or_default();
            *cpus = cpus.either(&[cpu.cpu].into_iter().collect());
            proofs.extend(ways);
        }
    }
    let findings = reached.into_iter().map(|(whose, (cpus, proofs))| Finding {
        hop: None,
        culprit: Culprit::of(Cause::SoftirqOnCpu),
        certainty: Certainty::Possible(Missing::MetByCalls),
        instrument: Instrument::Isolation,
        scope: Scope::Host,
        when: None,
        cost_ns: None,
        note: format!("Packets reach {}, which {whose}.", cpus.words()),
        proofs: proofs.into_iter().map(|(place, value)| Proof::Value { place, value }).collect(),
    });
    let anybodys = (!set_apart).then(|| {
        "No CPU is set apart for applications: `spangap host check --pid` tells which interrupts affect a \
         process."
            .to_owned()
    });
    let unread = report.topology.unknown.iter().map(|error| format!("{error}."));
    let unknown = report.unknown.iter().map(|why| format!("{}.", why.trim_end_matches('.')));
    let coverage = Coverage {
        instrument: Instrument::Isolation,
        source: "interrupts and steering of this host's interfaces".into(),
        side: None,
        when: None,
        seen: report.topology.interfaces.len() as u64,
        lost: 0,
        cannot: anybodys.into_iter().chain(unread).chain(unknown).collect(),
    };
    Testimony::new(coverage, findings.collect())
}

/// What a CPU is reserved for, as a phrase that follows "which".
fn whose(cpu: &CpuReport, report: &ShowReport) -> Option<String> {
    if !cpu.exclusive_to.is_empty() {
        return Some(format!("{} has alone", cpu.exclusive_to.join(", ")));
    }
    if cpu.net {
        return None;
    }
    if cpu.boot_isolated {
        return Some("isolcpus= sets apart".to_owned());
    }
    report.net_cpus.as_ref().map(|net| format!("are the applications', as {} for the network", are(net)))
}

fn are(net: &Cpus) -> String {
    format!("{} {}", net.words(), if net.len() == 1 { "is" } else { "are" })
}

/// How packets reach a CPU: the file that directs them, and its content.
fn ways(cpu: &CpuReport, report: &ShowReport) -> Vec<(String, String)> {
    let topology = &report.topology;
    let mut ways = Vec::new();
    for interrupt in &cpu.interrupts {
        let Some(interface) = topology.interface(&interrupt.interface).filter(|one| one.up) else { continue };
        if !moves_packets(interface, interrupt.queue) {
            continue;
        }
        let irq = topology.irqs.iter().find(|irq| irq.number == interrupt.irq);
        let may = irq.and_then(|irq| irq.affinity.as_ref()).map_or("not told".into(), Cpus::to_string);
        let place = format!("/proc/irq/{}/smp_affinity_list", interrupt.irq);
        ways.push((place, format!("{may} ({})", interface.name)));
    }
    for steered in &cpu.steered {
        let Some(interface) = topology.interface(&steered.interface).filter(|one| one.up) else { continue };
        let rx = interface.rx.iter().find(|rx| rx.queue == steered.queue);
        let to = rx.and_then(|rx| rx.rps_cpus.as_ref()).map_or("not told".into(), Cpus::to_string);
        let place = format!("/sys/class/net/{}/queues/rx-{}/rps_cpus", interface.name, steered.queue);
        ways.push((place, to));
    }
    ways
}

/// Whether packets arrive by it: an interrupt of a queue, or the only one. Others signal events.
fn moves_packets(interface: &Interface, queue: Option<u32>) -> bool {
    queue.is_some() || interface.irqs.iter().all(|irq| irq.queue.is_none())
}

#[cfg(test)]
mod tests {
    use super::super::Circumstances;
    use super::super::tests::{article, later, seen};
    use super::*;
    use crate::topology::{ExclusiveCpus, Kubelet, Topology};

    fn cpus(numbers: &[u32]) -> Cpus {
        numbers.iter().copied().collect()
    }

    fn of(topology: &Topology, applied: Option<&[u32]>) -> Testimony {
        let known = Circumstances { applied: applied.map(cpus), ..Circumstances::default() };
        let report = seen(topology, &later(topology, &[]), &known);
        assert_eq!(report.evidence, evidence(&report), "the document has it");
        report.evidence
    }

    fn places(testimony: &Testimony) -> Vec<&str> {
        let proofs = testimony.findings.iter().flat_map(|finding| &finding.proofs);
        let place = proofs.filter_map(|proof| match proof {
            Proof::Value { place, .. } => Some(place.as_str()),
            _ => None,
        });
        place.collect()
    }

    #[test]
    fn without_reserved_cpus_interrupts_are_not_findings() {
        let testimony = of(&article(), None);
        assert_eq!(testimony.findings, []);
        let [coverage] = testimony.coverage.as_slice() else { panic!("one look") };
        assert!(coverage.seen == 1 && coverage.cannot[0].starts_with("No CPU is set apart"), "{coverage:?}");
    }

    #[test]
    fn interrupts_on_the_cpus_of_applications_may_take_them() {
        // Queues 0 and 1 go to CPUs 1 and 49, which belong to the network; 2 and 50 are the applications'.
        let testimony = of(&article(), Some(&[0, 1, 48, 49]));
        let [finding] = testimony.findings.as_slice() else { panic!("{testimony:?}") };
        assert_eq!(finding.culprit, Culprit::of(Cause::SoftirqOnCpu));
        assert_eq!(finding.certainty, Certainty::Possible(Missing::MetByCalls));
        assert!(
            finding.note.starts_with("Packets reach CPUs 2,50, which are the applications'"),
            "{}",
            finding.note
        );
        assert_eq!(
            places(&testimony),
            ["/proc/irq/148/smp_affinity_list", "/proc/irq/149/smp_affinity_list"]
        );
        assert_eq!(
            of(&article(), Some(&[0, 1, 2, 48, 49, 50])).findings,
            [],
            "all of them are the network's"
        );
        let mut down = article();
        down.interfaces[0].up = false;
        assert_eq!(of(&down, Some(&[0, 1, 48, 49])).findings, [], "no packet comes");
    }

    #[test]
    fn steering_reaches_the_cpus_that_a_container_has_alone() {
        let mut topology = article();
        topology.interfaces[0].rx[3].rps_cpus = Some(cpus(&[4, 5]));
        topology.kubelet = Some(Kubelet {
            policy: "static".into(),
            shared: cpus(&[0, 1, 2, 3]),
            exclusive: vec![ExclusiveCpus {
                pod: "shop".into(),
                container: "cart".into(),
                cpus: cpus(&[5, 6]),
            }],
            reserved: None,
        });
        let testimony = of(&topology, None);
        assert_eq!(testimony.findings[0].note, "Packets reach CPU 5, which shop/cart has alone.");
        assert_eq!(places(&testimony), ["/sys/class/net/eth0/queues/rx-3/rps_cpus"]);
    }
}

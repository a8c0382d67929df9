//! On generated machines: no CPU is lost, everything fits, nothing panics.

use super::page::ShowPage;
use super::{Circumstances, Reading, ShowReport};
use crate::topology::generated;
use crate::topology::{
    Boot, Cpu, CpuLoad, Cpusets, ExclusiveCpus, Group, Interface, InterfaceIrq, Irq, Kubelet, Owner, Queues,
    RxQueue, Topology, TxQueue, Version,
};
use proptest::prelude::*;
use spangap_machine::Host;
use spangap_model::Cpus;

/// A machine with so many packages, caches in each, cores in each, threads of each. Threads are numbered as
/// Linux does on most machines: first one of every core, then the others; with `mixed`, packages alternate.
pub(super) fn machine(packages: u32, caches: u32, cores: u32, threads: u32, mixed: bool) -> Topology {
    let all = packages * caches * cores;
    let number = |package: u32, core: u32, thread: u32| {
        let core = if mixed { core * packages + package } else { package * caches * cores + core };
        thread * all + core
    };
    let mut cpus = Vec::new();
    for package in 0..packages {
        for cache in 0..caches {
            let of =
                |core: u32| (0..threads).map(move |thread| number(package, cache * cores + core, thread));
            let shared: Cpus = (0..cores).flat_map(of).collect();
            for core in 0..cores {
                cpus.extend(of(core).map(|number| Cpu {
                    number,
                    siblings: of(core).collect(),
                    package: Some(package),
                    node: Some(package),
                    cache: Some(shared.clone()),
                }));
            }
        }
    }
    cpus.sort_by_key(|cpu| cpu.number);
    let load = cpus
        .iter()
        .map(|cpu| CpuLoad { cpu: cpu.number, idle_ticks: 100_000, ..CpuLoad::default() })
        .collect();
    let boot = Boot { id: "made-up".into(), kernel: "6.12.0".into(), ..Boot::default() };
    Topology { cpus, load, boot, ..Topology::default() }
}

/// Adds an interface with one queue for each of these CPUs, and one more interrupt.
pub(super) fn interface(topology: &mut Topology, name: &str, first_irq: u32, to: &[u32]) {
    let online = topology.cpus.len();
    let mut irqs = Vec::new();
    for (queue, cpu) in to.iter().enumerate() {
        let number = first_irq + queue as u32;
        let one: Cpus = [*cpu].into_iter().collect();
        let mut counts = vec![0; online];
        if let Some(at) = topology.cpus.iter().position(|known| known.number == *cpu) {
            counts[at] = 1_000 * (queue as u64 + 1);
        }
        let name = format!("{name}-TxRx-{queue}");
        topology.irqs.push(Irq { number, name, affinity: Some(one.clone()), effective: Some(one), counts });
        irqs.push(InterfaceIrq { irq: number, queue: Some(queue as u32) });
    }
    let number = first_irq + to.len() as u32;
    let all = Some(topology.online());
    let effective = Some([0].into_iter().collect());
    let counts = vec![0; online];
    topology.irqs.push(Irq { number, name: name.to_owned(), affinity: all, effective, counts });
    irqs.push(InterfaceIrq { irq: number, queue: None });
    topology.interfaces.push(Interface {
        name: name.to_owned(),
        driver: Some("mlx5_core".into()),
        pci: Some("0000:3b:00.0".into()),
        node: Some(0),
        up: true,
        queues: Some(Queues { now: to.len() as u32, most: 63 }),
        irqs,
        rx: (0..to.len() as u32)
            .map(|queue| RxQueue { queue, rps_cpus: Some(Cpus::default()), rps_flow_cnt: Some(0) })
            .collect(),
        tx: (0..to.len() as u32).map(|queue| TxQueue { queue, xps_cpus: Some(Cpus::default()) }).collect(),
        ..Interface::default()
    });
}

/// Two packages of 24 cores with two threads, and a card with four queues.
pub(super) fn article() -> Topology {
    let mut topology = machine(2, 1, 24, 2, false);
    interface(&mut topology, "eth0", 146, &[1, 49, 2, 50]);
    topology
}

/// A second reading: the network kept these CPUs busy.
pub(super) fn later(topology: &Topology, busy: &[u32]) -> Topology {
    let mut later = topology.clone();
    for load in &mut later.load {
        let busy = busy.contains(&load.cpu);
        let softirq = if busy { 70 } else { 0 };
        load.softirq_ticks += softirq;
        load.tasks_ticks += 20;
        load.idle_ticks += 80 - softirq;
        load.net_rx += if busy { 210_000 } else { 3 };
    }
    for irq in &mut later.irqs {
        for count in irq.counts.iter_mut().filter(|count| **count > 0) {
            *count += 9_000;
        }
    }
    later
}

pub(super) fn seen(before: &Topology, now: &Topology, known: &Circumstances) -> ShowReport {
    let reading = |topology, uptime_ns| Reading { topology, uptime_ns: Some(uptime_ns) };
    ShowReport::new(Some(reading(before, 50_000_000_000)), reading(now, 51_000_000_000), known)
}

/// CPU numbers in the rows of the map.
pub(super) fn rows(text: &str) -> Vec<u32> {
    let mut cpus = Vec::new();
    let body = text.lines().skip_while(|line| !line.starts_with("    CPU ")).skip(1);
    for line in body.take_while(|line| !line.is_empty()) {
        // Headings are indented less.
        let Some(rest) = line.strip_prefix("  ").filter(|rest| rest.starts_with([' ', '┌', '├', '└', '│']))
        else {
            continue;
        };
        let list: String =
            rest.chars().skip(2).take_while(|c| c.is_ascii_digit() || ",-/".contains(*c)).collect();
        cpus.extend(super::words::parse_list(&list).unwrap_or_else(|| panic!("{list:?} in {line}")));
    }
    cpus
}

/// CPU numbers in the picture, in order.
fn drawn(svg: &str) -> Vec<u32> {
    let numbers = svg.split("<g data-cpu=\"").skip(1);
    let mut cpus: Vec<u32> = numbers.map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect();
    cpus.sort_unstable();
    cpus
}

fn each_once(report: &ShowReport, width: usize, all: bool) -> Result<(), TestCaseError> {
    let online: Vec<u32> = report.topology.cpus.iter().map(|cpu| cpu.number).collect();
    let text = super::text::text(report, width, all);
    let mut shown = rows(&text);
    shown.sort_unstable();
    prop_assert_eq!(&shown, &online, "{}", text);
    let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    prop_assert!(widest <= width.max(80), "{widest} columns of {width}:\n{text}");
    let json: Vec<u32> = report.cpus.iter().map(|cpu| cpu.cpu).collect();
    prop_assert_eq!(&json, &online);
    let picture = super::picture::svg(report);
    prop_assert_eq!(drawn(&picture), online.clone());
    prop_assert!(!picture.contains("<1>"), "names are escaped");
    let page = ShowPage::new(report);
    let mut placed: Vec<u32> = page.cpus.iter().map(|cpu| cpu.cpu).collect();
    placed.sort_unstable();
    prop_assert_eq!(placed, online);
    let nodes = page.packages.iter().flat_map(|package| &package.nodes);
    let cores = nodes.flat_map(|node| &node.caches).flat_map(|cache| &cache.cores);
    prop_assert_eq!(cores.sum::<usize>(), page.cpus.len(), "each CPU has a place");
    Ok(())
}

proptest! {
    #[test]
    fn every_cpu_is_shown_once_whatever_the_machine(
        (packages, caches, cores, threads) in (1_u32..4, 1_u32..4, 1_u32..17, 1_u32..5),
        mixed: bool,
        all: bool,
        queues in prop::collection::vec(0_u32..600, 0..70),
        busy in prop::collection::vec(0_u32..600, 0..40),
        net in prop::collection::vec(0_u32..300, 0..8),
        width in 20_usize..200,
    ) {
        let mut before = machine(packages, caches, cores, threads, mixed);
        let cpus = before.cpus.len() as u32;
        let within = |cpus_of: &[u32]| cpus_of.iter().map(|cpu| cpu % cpus).collect::<Vec<u32>>();
        interface(&mut before, "enp129s0f0np0", 40, &within(&queues));
        interface(&mut before, "eth<1>&\"", 400, &within(&net));
        let now = later(&before, &within(&busy));
        let known = Circumstances { applied: Some(within(&net).into_iter().collect()), ..Circumstances::default() };
        let report = seen(&before, &now, &known);
        each_once(&report, width, all)?;
        let boot = ShowReport::new(None, Reading { topology: &now, uptime_ns: None }, &Circumstances::default());
        each_once(&boot, width, all)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn machines_of_any_shape_are_shown(shape in generated::shape(), width in 20_usize..200, all: bool) {
        let now = Topology::read(&Host::kept(shape.kept()));
        let report = ShowReport::new(None, Reading { topology: &now, uptime_ns: Some(1) }, &Circumstances::default());
        each_once(&report, width, all)?;
    }
}

#[test]
fn a_machine_with_2000_containers_fits_onto_a_few_screens() {
    for mounted in [generated::Mounted::V1, generated::Mounted::V2] {
        let now = Topology::read(&Host::kept(generated::large(2_000, mounted)));
        let report =
            ShowReport::new(None, Reading { topology: &now, uptime_ns: None }, &Circumstances::default());
        each_once(&report, 80, false).unwrap();
        let text = super::text::text(&report, 80, false);
        assert!(text.lines().count() < 200, "{text}");
    }
}

#[test]
fn large_machine_fits_into_a_few_rows() {
    let before = article();
    let known = Circumstances { applied: Cpus::parse_list("1,49,2,50"), ..Circumstances::default() };
    let report = seen(&before, &later(&before, &[1, 49, 2, 50]), &known);
    let text = super::text::text(&report, 80, false);
    println!("{text}");
    assert!(text.lines().take_while(|line| !line.starts_with("Interfaces")).count() < 20, "{text}");
    assert!(text.contains("┌ 1 ") && text.contains("└ 49"), "{text}");
    assert!(text.contains("NET; eth0 q1"), "{text}");
}

fn group(path: &str, effective: &str, owner: Owner) -> Group {
    Group {
        path: path.into(),
        cpus: None,
        effective: Cpus::parse_list(effective),
        mems: None,
        exclusive: false,
        balanced: true,
        partition: None,
        tasks: 3,
        kernel_tasks: 0,
        owner,
    }
}

#[test]
fn pods_that_are_alike_are_counted_and_exclusive_ones_shown() {
    let mut topology = machine(1, 1, 16, 2, false);
    let mut groups = vec![group("/", "0-31", Owner::Root)];
    let pod = |number: u32, container: Option<String>| Owner::Kubelet {
        pod: Some(format!("{number:08x}-aaaa-bbbb")),
        container,
    };
    groups.push(group("/kubepods", "0-31", Owner::Kubelet { pod: None, container: None }));
    for number in 0..200 {
        let path = format!("/kubepods/pod{number}");
        groups.push(group(&path, "0-31", pod(number, None)));
        groups.push(group(&format!("{path}/c"), "0-3,8-31", pod(number, Some("c0ffee0000".into()))));
    }
    groups.push(group("/kubepods/podx", "0-31", pod(999, None)));
    groups.push(group("/kubepods/podx/c", "4-7", pod(999, Some("decade0000".into()))));
    let cpusets = Cpusets {
        version: Version::V1,
        mount: "/sys/fs/cgroup/cpuset".into(),
        hybrid: false,
        enabled: true,
        groups,
    };
    topology.cpusets = Some(cpusets);
    topology.kubelet = Some(Kubelet {
        policy: "static".into(),
        shared: Cpus::parse_list("0-3,8-31").unwrap(),
        exclusive: vec![ExclusiveCpus {
            pod: "999".into(),
            container: "db".into(),
            cpus: Cpus::parse_list("4-7").unwrap(),
        }],
        reserved: None,
    });
    let report =
        ShowReport::new(None, Reading { topology: &topology, uptime_ns: None }, &Circumstances::default());
    let text = super::text::text(&report, 100, false);
    println!("{text}");
    assert_eq!(report.cpus[5].exclusive_to, ["999/db"]);
    assert_eq!(report.cpus[5].groups, ["pod 000003e7 container decade00"]);
    assert!(report.cpus[9].groups.is_empty(), "more than half of the CPUs says nothing");
    assert!(text.lines().count() < 60, "{text}");
}

/// Writes pictures of generated machines for inspection: `SHOW_PICTURES=DIR`.
#[test]
fn pictures() {
    let Some(folder) = std::env::var_os("SHOW_PICTURES") else { return };
    let write = |name: &str, report: &ShowReport| {
        let path = std::path::Path::new(&folder).join(name);
        let page = serde_json::to_string(&ShowPage::new(report)).unwrap();
        std::fs::write(path.with_extension("json"), page).unwrap();
        std::fs::write(path.with_extension("svg"), super::picture::svg(report)).unwrap();
        std::fs::write(path.with_extension("txt"), super::text::text(report, 80, false)).unwrap();
    };
    let net = Circumstances { applied: Cpus::parse_list("1,49,2,50"), ..Circumstances::default() };
    let before = article();
    write("article", &seen(&before, &later(&before, &[1, 49, 2, 50]), &net));
    let mut big = machine(2, 9, 8, 2, false);
    interface(&mut big, "enp129s0f0np0", 100, &(0..63).collect::<Vec<u32>>());
    interface(&mut big, "enp130s0", 200, &(72..76).collect::<Vec<u32>>());
    let mut busy = later(&big, &[3, 9, 17]);
    for load in &mut busy.load {
        load.tasks_ticks += u64::from(load.cpu * 7 % 90);
        load.softirq_ticks += u64::from(load.cpu * 13 % 40) / 3;
    }
    write("big", &seen(&big, &busy, &Circumstances::default()));
    let mut flat = machine(2, 1, 72, 2, true);
    interface(&mut flat, "eth0", 100, &(0..63).collect::<Vec<u32>>());
    write("flat", &seen(&flat, &later(&flat, &[5]), &Circumstances::default()));
    let small = machine(1, 1, 2, 1, false);
    write("small", &seen(&small, &later(&small, &[1]), &Circumstances::default()));
}

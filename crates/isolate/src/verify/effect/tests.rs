use super::*;
use crate::place::Place;
use crate::plan::{Change, IrqbalancePolicy, NetCpus, Policy};
use crate::topology::*;
use crate::verify::counter_deltas::CounterDeltas;
use proptest::prelude::*;

/// A machine with so many CPUs, an interface eth0 with two queues (IRQs 40 and 41) and one more interrupt (IRQ
/// 42), a disk (IRQ 50), and a cgroup v2 tree with our group for the last two CPUs.
pub(crate) fn made_topology(cpus: u32) -> Topology {
    let of =
        |number| Cpu { number, siblings: Cpus::from_iter([number]), package: None, node: None, cache: None };
    let irq = |number, name: &str| Irq {
        number,
        name: name.into(),
        affinity: None,
        effective: None,
        counts: vec![1_000; cpus as usize],
    };
    let queue = |queue| RxQueue { queue, rps_cpus: Some(Cpus::default()), rps_flow_cnt: Some(0) };
    let interface = Interface {
        name: "eth0".into(),
        irqs: [(40, Some(0)), (41, Some(1)), (42, None)]
            .map(|(irq, queue)| InterfaceIrq { irq, queue })
            .into(),
        rx: vec![queue(0), queue(1)],
        ..Interface::default()
    };
    let (net, rest) = (Cpus::from_iter(cpus - 2..cpus), Cpus::from_iter(0..cpus - 2));
    let group = |path: &str, effective: &Cpus, tasks, kernel_tasks, owner| Group {
        path: path.into(),
        cpus: Some(Cpus::default()),
        effective: Some(effective.clone()),
        mems: None,
        exclusive: false,
        balanced: true,
        partition: None,
        tasks,
        kernel_tasks,
        owner,
    };
    let unit = Owner::Systemd { unit: "system.slice".into() };
    let ours = Group { partition: Some("isolated".into()), ..group("/spangap-net", &net, 0, 0, Owner::Ours) };
    Topology {
        cpus: (0..cpus).map(of).collect(),
        interfaces: vec![interface],
        irqs: vec![irq(40, "eth0-0"), irq(41, "eth0-1"), irq(42, "eth0-config"), irq(50, "disk")],
        load: (0..cpus)
            .map(|cpu| CpuLoad { cpu, idle_ticks: 5_000, net_rx: 77, ..CpuLoad::default() })
            .collect(),
        balanced: Some(rest.clone()),
        cpusets: Some(Cpusets {
            version: Version::V2,
            mount: "/sys/fs/cgroup".into(),
            hybrid: false,
            enabled: true,
            groups: vec![
                group("/", &rest, 90, 90, Owner::Root),
                group("/system.slice", &rest, 12, 0, unit),
                ours,
            ],
        }),
        ..Topology::default()
    }
}

/// A plan for eth0 on these CPUs, with a partition.
pub(crate) fn made_plan(cpus: u32, net: &str) -> Plan {
    let net_cpus = Cpus::parse_list(net).unwrap();
    Plan {
        format: Plan::FORMAT.into(),
        boot_id: "boot".into(),
        policy: Policy {
            interfaces: vec!["eth0".into()],
            net_cpus: NetCpus::Auto,
            queues: false,
            cpusets: true,
            irqbalance: IrqbalancePolicy::Ban,
        },
        app_cpus: Cpus::from_iter(0..cpus).without(&net_cpus),
        net_cpus,
        choice: Vec::new(),
        changes: vec![Change {
            part: Part::Cpusets,
            place: Place::file("/sys/fs/cgroup/spangap-net/cpuset.cpus.partition"),
            from: Some("member".into()),
            to: "isolated".into(),
            otherwise: Some("root".into()),
            why: "no balancing".into(),
            needed: true,
        }],
        planned_again_after_queues: false,
        notes: Vec::new(),
        permanent: Vec::new(),
        before: None,
    }
}

/// The machine a second later, with interrupts `(irq, cpu, count)` and NET_RX `(cpu, count)`.
fn later(before: &Topology, irqs: &[(u32, usize, u64)], net_rx: &[(usize, u64)]) -> Topology {
    let mut after = before.clone();
    after.load.iter_mut().for_each(|load| load.idle_ticks += 100);
    for (number, cpu, came) in irqs {
        let irq = after.irqs.iter_mut().find(|irq| irq.number == *number).unwrap();
        irq.counts[*cpu] += came;
    }
    net_rx.iter().for_each(|(cpu, ran)| after.load[*cpu].net_rx += ran);
    after
}

fn judged(plan: &Plan, before: Option<&Topology>, now: &Topology) -> Vec<Judgement> {
    let since = CounterDeltas::new(before, now);
    judge(&EffectInput { plan, now, since: &since })
}

fn one<'a>(all: &'a [Judgement], what: &str) -> &'a Judgement {
    all.iter().find(|judgement| judgement.what == what).unwrap_or_else(|| panic!("no {what} in {all:#?}"))
}

/// A plan for CPUs 2-3 of 4, and the machine.
fn machine() -> (Plan, Topology) {
    (made_plan(4, "2-3"), made_topology(4))
}

#[test]
fn all_interrupts_where_they_should_be() {
    let (plan, before) = machine();
    let all = judged(
        &plan,
        Some(&before),
        &later(&before, &[(40, 2, 300), (41, 3, 34)], &[(2, 300), (3, 30), (0, 10)]),
    );
    let interrupts = one(&all, "interrupts");
    assert_eq!((interrupts.verdict, interrupts.of.as_deref()), (EffectVerdict::Holds, Some("eth0")));
    assert_eq!(interrupts.summary, "334 interrupts, all on CPUs 2-3 (1 of 3 had none)");
    assert!(interrupts.evidence[2].starts_with("none arrived of IRQ 42"), "{interrupts:?}");
    let softirqs = one(&all, "softirqs");
    assert_eq!(softirqs.verdict, EffectVerdict::Remark);
    assert_eq!(softirqs.summary, "97 % of 340 NET_RX and no NET_TX on CPUs 2-3");
    assert!(softirqs.evidence.last().unwrap().contains("loopback"), "{softirqs:?}");
    for what in ["user-tasks", "partition", "effective-sets", "balancing"] {
        assert_eq!(one(&all, what).verdict, EffectVerdict::Holds, "{what}");
    }
    assert!(!all.iter().any(|judgement| judgement.what == "other-interrupts"));
}

#[test]
fn interrupts_that_came_elsewhere_or_not_at_all() {
    let (plan, before) = machine();
    let all = judged(&plan, Some(&before), &later(&before, &[(40, 2, 300), (41, 1, 34), (50, 3, 7)], &[]));
    let interrupts = one(&all, "interrupts");
    assert_eq!(interrupts.verdict, EffectVerdict::DoesNotHold);
    assert_eq!(interrupts.summary, "34 of 334 interrupts went elsewhere, to CPU 1");
    let others = one(&all, "other-interrupts");
    assert_eq!(
        (others.verdict, others.evidence.as_slice()),
        (EffectVerdict::Remark, ["IRQ 50 disk: 7".to_owned()].as_slice())
    );
    let quiet = judged(&plan, Some(&before), &later(&before, &[], &[]));
    assert_eq!(
        one(&quiet, "interrupts").verdict,
        EffectVerdict::CannotTell,
        "an idle interface is no failure"
    );
}

#[test]
fn unknown_effects_have_reasons() {
    let (plan, before) = machine();
    let after = later(&before, &[(40, 2, 300)], &[]);
    let stands = judged(&plan, None, &after);
    assert_eq!(stands.len(), 1);
    assert!(one(&stands, "effect").summary.starts_with("on a copy nothing runs"));
    // Renumbered: 41 is now another interrupt.
    let mut renamed = after.clone();
    renamed.irqs[1].name = "eth1-0".into();
    let interrupts = judged(&plan, Some(&before), &renamed);
    let interrupts = one(&interrupts, "interrupts");
    assert_eq!(interrupts.verdict, EffectVerdict::CannotTell);
    assert_eq!(
        interrupts.summary,
        "300 interrupts, all on CPUs 2-3, but not all are known: IRQ 41 (queue 1): it did not exist before"
    );
    let mut fell = after.clone();
    fell.irqs[0].counts[2] = 3;
    fell.load[2].net_rx = 0;
    let fell = judged(&plan, Some(&before), &fell);
    assert!(one(&fell, "interrupts").summary.contains("went backwards"), "{fell:#?}");
    assert!(one(&fell, "softirqs").evidence.iter().any(|line| line == "CPU 2: a counter went backwards"));
    let mut fewer = after.clone();
    fewer.cpus.remove(1);
    fewer.irqs.iter_mut().for_each(|irq| irq.counts.truncate(3));
    let fewer = judged(&plan, Some(&before), &fewer);
    assert!(one(&fewer, "interrupts").summary.contains("switched on or off"), "{fewer:#?}");
    let mut gone = after;
    gone.interfaces.clear();
    assert_eq!(one(&judged(&plan, Some(&before), &gone), "interrupts").verdict, EffectVerdict::CannotTell);
}

#[test]
fn steering_in_software() {
    let (plan, mut before) = machine();
    before.interfaces[0].irqs.clear();
    before.interfaces[0].rx_packets = Some(7);
    let after_packets = |before: &Topology, net_rx: &[(usize, u64)], packets: Option<u64>| {
        let mut after = later(before, &[], net_rx);
        after.interfaces[0].rx_packets = packets;
        one(&judged(&plan, Some(before), &after), "steering").clone()
    };
    let steering = |before: &Topology, net_rx: &[(usize, u64)]| after_packets(before, net_rx, Some(107));
    assert!(steering(&before, &[(2, 9)]).summary.contains("hands packets to no CPU"));
    let net = Cpus::parse_list("2-3");
    before.interfaces[0].rx.iter_mut().for_each(|queue| queue.rps_cpus = net.clone());
    assert_eq!(steering(&before, &[]).verdict, EffectVerdict::CannotTell);
    assert_eq!(steering(&before, &[(2, 50), (1, 50)]).verdict, EffectVerdict::Holds);
    assert_eq!(
        steering(&before, &[(2, 49), (1, 51)]).verdict,
        EffectVerdict::CannotTell,
        "a small share says nothing"
    );
    let others = after_packets(&before, &[(2, 50)], Some(7));
    assert_eq!(
        (others.verdict, others.summary.as_str()),
        (EffectVerdict::CannotTell, "no packet arrived in this time")
    );
    for unknown in [None, Some(6)] {
        assert_eq!(after_packets(&before, &[(2, 50)], unknown).verdict, EffectVerdict::CannotTell);
    }
    before.interfaces[0].rx[1].rps_cpus = Cpus::parse_list("1,3");
    let wrong = steering(&before, &[(2, 50)]);
    assert_eq!(
        (wrong.verdict, wrong.evidence.as_slice()),
        (EffectVerdict::DoesNotHold, ["rx-1 hands packets to CPUs 1,3".to_owned()].as_slice())
    );
}

#[test]
fn threads_that_may_run_there() {
    let (plan, mut now) = machine();
    let verdict = |now: &Topology, plan: &Plan| one(&judged(plan, Some(now), now), "user-tasks").clone();
    let groups = |now: &mut Topology, at: usize, change: &dyn Fn(&mut Group)| {
        change(&mut now.cpusets.as_mut().unwrap().groups[at])
    };
    groups(&mut now, 1, &|group| group.effective = Cpus::parse_list("0-3"));
    let task = PinnedTask {
        tid: 4711,
        pid: 4711,
        start_ticks: 1,
        comm: "server".into(),
        allowed: Cpus::parse_list("0-1").unwrap(),
        kernel: false,
        bound: false,
        group: "/system.slice".into(),
    };
    now.pinned = vec![task.clone(); 11];
    now.pinned.push(PinnedTask { allowed: Cpus::parse_list("3").unwrap(), ..task.clone() });
    let allowed = verdict(&now, &plan);
    assert_eq!(
        (allowed.verdict, allowed.summary.as_str()),
        (EffectVerdict::DoesNotHold, "1 thread of applications may run on CPUs 2-3")
    );
    assert_eq!(allowed.evidence[0], "1 thread in /system.slice: server (4711) pinned to 3");
    now.pinned.pop();
    now.pinned.push(task.clone());
    assert_eq!(verdict(&now, &plan).verdict, EffectVerdict::Holds, "all of them are pinned elsewhere");
    groups(&mut now, 0, &|group| group.effective = Cpus::parse_list("0-3"));
    assert_eq!(verdict(&now, &plan).verdict, EffectVerdict::Holds, "threads of the kernel in the root");
    groups(&mut now, 2, &|group| group.tasks = 2);
    assert!(verdict(&now, &plan).evidence[0].contains("moved there by somebody"));
    let mut without = plan.clone();
    without.changes.clear();
    assert_eq!(verdict(&now, &without).verdict, EffectVerdict::Remark);
    now.cpusets = None;
    assert_eq!(verdict(&now, &plan).verdict, EffectVerdict::CannotTell);
}

#[test]
fn a_partition_and_the_sets_of_others() {
    let (plan, before) = machine();
    let with = |change: &dyn Fn(&mut Cpusets)| {
        let mut now = before.clone();
        change(now.cpusets.as_mut().unwrap());
        judged(&plan, Some(&before), &now)
    };
    let ours = |state: &str| with(&|cpusets| cpusets.groups[2].partition = Some(state.into()));
    assert_eq!(one(&ours("root"), "partition").verdict, EffectVerdict::Holds);
    let invalid = ours("isolated invalid (Cpu list in cpuset.cpus not exclusive)");
    assert_eq!(one(&invalid, "partition").verdict, EffectVerdict::DoesNotHold);
    assert!(one(&invalid, "partition").summary.contains("not exclusive"));
    assert_eq!(one(&ours("member"), "partition").verdict, EffectVerdict::DoesNotHold);
    let lacks = with(&|cpusets| cpusets.groups[2].effective = Cpus::parse_list("2"));
    assert!(one(&lacks, "partition").summary.ends_with("lacks CPU 3"));
    let gone = with(&|cpusets| drop(cpusets.groups.pop()));
    assert!(one(&gone, "partition").summary.ends_with("is gone"));
    let overlap = with(&|cpusets| cpusets.groups[1].effective = Cpus::parse_list("0-2"));
    assert_eq!(one(&overlap, "effective-sets").evidence, ["/system.slice has CPU 2 (12 threads)"]);
}

#[test]
fn version_1_finds_new_groups() {
    let (mut plan, mut now) = machine();
    plan.changes[0].place = Place::file("/sys/fs/cgroup/cpuset/system.slice/cpuset.cpus");
    let cpusets = now.cpusets.as_mut().unwrap();
    (cpusets.version, cpusets.mount) = (Version::V1, "/sys/fs/cgroup/cpuset".into());
    cpusets.groups[0].effective = Cpus::parse_list("0-3");
    (cpusets.groups[2].partition, cpusets.groups[2].exclusive) = (None, true);
    let judge = |now: &Topology| judged(&plan, Some(now), now);
    let all = judge(&now);
    for what in ["partition", "effective-sets", "new-cgroups", "user-tasks"] {
        assert_eq!(one(&all, what).verdict, EffectVerdict::Holds, "{what}");
    }
    let mut came = now.clone();
    let groups = &mut came.cpusets.as_mut().unwrap().groups;
    groups.push(Group {
        path: "/docker/abc".into(),
        effective: Cpus::parse_list("0-3"),
        ..groups[1].clone()
    });
    let all = judge(&came);
    assert_eq!(one(&all, "new-cgroups").evidence, ["/docker/abc has CPUs 2-3 (12 threads)"]);
    assert_eq!(one(&all, "effective-sets").verdict, EffectVerdict::Holds);
    assert_eq!(one(&all, "user-tasks").verdict, EffectVerdict::DoesNotHold);
}

#[test]
fn domains_of_the_scheduler_and_threads_of_the_kernel() {
    let (plan, mut now) = machine();
    let judge = |now: &Topology| judged(&plan, Some(now), now);
    assert_eq!(one(&judge(&now), "balancing").summary, "CPUs 2-3 are in no domain of the scheduler");
    now.balanced = Cpus::parse_list("0-1,3");
    assert!(one(&judge(&now), "balancing").summary.starts_with("CPU 3 is still balanced"));
    now.balanced = None;
    assert_eq!(one(&judge(&now), "balancing").verdict, EffectVerdict::CannotTell);
    let bound = PinnedTask {
        tid: 22,
        pid: 22,
        start_ticks: 1,
        comm: "ksoftirqd/3".into(),
        allowed: Cpus::parse_list("3").unwrap(),
        kernel: true,
        bound: true,
        group: "/".into(),
    };
    now.pinned.push(bound);
    let threads = judge(&now);
    assert_eq!(one(&threads, "kernel-threads").verdict, EffectVerdict::Remark);
    assert_eq!(one(&threads, "kernel-threads").evidence, ["ksoftirqd/3 (22)"]);
}

#[test]
fn numbers_as_people_read_them() {
    assert_eq!(
        [percent(0, 9), percent(1, 30), percent(1, 3), percent(0, 0)],
        ["0 %", "3.3 %", "33 %", "0 %"]
    );
    let seven = first((0..7).map(|number| number.to_string()).collect::<Vec<_>>().into_iter());
    assert_eq!(seven, ["0", "1", "2", "3", "4", "and 2 more"]);
}

/// Counters of a machine, and whether each of its CPUs is online.
fn reading() -> impl Strategy<Value = (Vec<u64>, Vec<bool>)> {
    (
        prop::collection::vec(prop_oneof![0_u64..5_000, any::<u64>()], 24),
        prop::collection::vec(any::<bool>(), 4),
    )
}

fn set((counters, there): &(Vec<u64>, Vec<bool>)) -> Topology {
    let mut made = made_topology(4);
    for (at, irq) in made.irqs.iter_mut().take(3).enumerate() {
        irq.counts = (0..4).filter(|cpu| there[*cpu]).map(|cpu| counters[at * 4 + cpu]).collect();
    }
    for (cpu, load) in made.load.iter_mut().enumerate() {
        (load.net_rx, load.softirq_ticks, load.idle_ticks) =
            (counters[12 + cpu], counters[16 + cpu], counters[20 + cpu]);
    }
    made.load.retain(|load| there[load.cpu as usize]);
    made.cpus.retain(|cpu| there[cpu.number as usize]);
    made.irqs.truncate(3);
    made
}

proptest! {
    #[test]
    fn no_readings_panic(before in reading(), after in reading()) {
        let plan = made_plan(4, "2-3");
        let (before, after) = (set(&before), set(&after));
        for judgement in judged(&plan, Some(&before), &after) {
            prop_assert!(!judgement.summary.is_empty());
        }
        crate::verify::cost::cost(&plan, &CounterDeltas::new(Some(&before), &after));
    }

    #[test]
    fn only_differences_count(base in 0_u64..1 << 40, came in prop::collection::vec((40_u32..43, 0_usize..4, 0_u64..9), 0..9)) {
        let plan = made_plan(4, "2-3");
        let from = |base: u64| {
            let mut before = made_topology(4);
            before.irqs.iter_mut().for_each(|irq| irq.counts.iter_mut().for_each(|count| *count = base));
            before.load.iter_mut().for_each(|load| (load.net_rx, load.softirq_ticks) = (base, base));
            let net_rx: Vec<(usize, u64)> = came.iter().map(|(_, cpu, many)| (*cpu, *many)).collect();
            let after = later(&before, &came, &net_rx);
            (judged(&plan, Some(&before), &after), crate::verify::cost::cost(&plan, &CounterDeltas::new(Some(&before), &after)))
        };
        prop_assert_eq!(from(base), from(0));
        let outside = came.iter().any(|(_, cpu, many)| *cpu < 2 && *many > 0);
        prop_assert_eq!(one(&from(base).0, "interrupts").verdict == EffectVerdict::DoesNotHold, outside);
    }
}

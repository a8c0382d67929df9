//! Invariants of every plan, on generated machines.

use super::*;
use crate::kernel::Kernel;
use crate::kernel::modelled::{Modelled, generated};
use crate::topology::{Cpu, ExclusiveCpus, Kubelet, Queues};
use proptest::prelude::*;
use std::collections::HashSet;

fn read(kernel: &Modelled) -> Topology {
    kernel.topology()
}

/// Online threads of a CPU's core.
fn core(topology: &Topology, cpu: u32) -> Cpus {
    let online = topology.online();
    topology
        .cpus
        .iter()
        .find(|one| one.number == cpu)
        .map(|one| one.siblings.both(&online))
        .unwrap_or_default()
}

fn by_rules(policy: &Policy) -> bool {
    !matches!(policy.net_cpus, NetCpus::List(_))
}

/// Network and applications share no CPU and no core, and nothing is written that was not requested.
fn holds(topology: &Topology, plan: &Plan) -> Result<(), TestCaseError> {
    let (policy, net) = (&plan.policy, &plan.net_cpus);
    prop_assert!(net.both(&plan.app_cpus).is_empty());
    prop_assert_eq!(net.either(&plan.app_cpus), topology.online());
    prop_assert!(!plan.app_cpus.is_empty() && !net.is_empty());
    if by_rules(policy) {
        prop_assert!(net.both(&core(topology, 0)).is_empty(), "{net}");
        for cpu in net.iter() {
            prop_assert!(core(topology, cpu).without(net).is_empty(), "half a core: {cpu} of {net}");
        }
    }
    prop_assert!(plan.changes.is_sorted_by_key(|change| change.part));
    let mut places = HashSet::new();
    for change in &plan.changes {
        let place = &change.place;
        prop_assert!(places.insert(place), "twice: {place}");
        prop_assert!(!change.why.is_empty());
        if let Some(from) = &change.from {
            // irqbalance may move a correct interrupt until it is told to leave it alone.
            let wandering = change.part == Part::Irqs && plan.changes[0].part == Part::Irqbalance;
            prop_assert!(wandering || !place.same(from, &change.to), "is so already: {place}");
        }
        match change.part {
            Part::Irqbalance => prop_assert!(policy.irqbalance != IrqbalancePolicy::Leave),
            Part::Queues => prop_assert!(policy.queues),
            Part::Irqs => {
                let to = Cpus::parse_list(&change.to).unwrap();
                prop_assert!(to.len() == 1 && to.without(net).is_empty(), "{place} to {to}");
            }
            Part::Steering => {}
            Part::Cpusets | Part::Tasks => prop_assert!(policy.cpusets),
        }
        let list = Cpus::parse_list(&change.to);
        match (place, list) {
            (Place::File { path }, Some(to)) if path.ends_with("/cpuset.cpus") => {
                let of_net = path.ends_with("/spangap-net/cpuset.cpus");
                prop_assert!(if of_net { to == *net } else { to.both(net).is_empty() }, "{path} to {to}");
            }
            (Place::Affinity { .. }, Some(to)) => {
                prop_assert!(to.both(net).is_empty() || change.part == Part::Steering)
            }
            _ => {}
        }
    }
    children_before_parents(topology, plan)
}

/// A parent cannot lack what a child has (version 1).
fn children_before_parents(topology: &Topology, plan: &Plan) -> Result<(), TestCaseError> {
    let known: HashSet<String> =
        topology.cpusets.iter().flat_map(|cpusets| &cpusets.groups).map(|group| group.path.clone()).collect();
    let mut parents: Vec<&str> = Vec::new();
    for change in &plan.changes {
        let Place::File { path } = &change.place else { continue };
        let Some(group) = path.strip_suffix("/cpuset.cpus") else { continue };
        if known.iter().any(|known| *known != "/" && group.ends_with(known.as_str())) {
            let above = parents.iter().find(|above| group.starts_with(&format!("{above}/")));
            prop_assert!(above.is_none(), "{group} after its parent");
            parents.push(group);
        }
    }
    Ok(())
}

/// Makes changes like `apply`, without its precautions. Returns the places that the kernel refused.
fn make(kernel: &Modelled, changes: &[Change]) -> Vec<Place> {
    let mut refused = Vec::new();
    for change in changes {
        let first = kernel.set(&change.place, &change.to);
        let taken = |text: &str| {
            let found = kernel.get(&change.place).unwrap();
            found.is_some_and(|found| change.place.same(&found, text))
        };
        if first.is_ok() && taken(&change.to) {
            continue;
        }
        let second =
            change.otherwise.as_ref().map(|text| kernel.set(&change.place, text).is_ok() && taken(text));
        if second != Some(true) && !matches!(change.place, Place::Tasks { .. }) {
            refused.push(change.place.clone());
        }
    }
    refused
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn rules_hold_for_every_plan((state, policy) in generated()) {
        let kernel = Modelled::new(state);
        let topology = read(&kernel);
        if let Ok(plan) = Plan::new(&topology, &policy) {
            holds(&topology, &plan)?;
            let text = serde_json::to_string(&plan).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Plan>(&text).unwrap(), &plan);
            prop_assert!(changes_for_new_groups(&plan, &topology).iter().all(|change| plan.changes.contains(change)));
        }
    }

    #[test]
    fn applied_plan_is_complete((state, policy) in generated()) {
        let kernel = Modelled::new(state);
        let Ok(mut plan) = Plan::new(&read(&kernel), &policy) else { return Ok(()) };
        let (first, then): (Vec<_>, Vec<_>) = plan.changes.into_iter().partition(|change| change.part <= Part::Queues);
        let mut refused = make(&kernel, &first);
        plan.changes = then;
        if plan.planned_again_after_queues {
            let topology = read(&kernel);
            let again = match plan.after_queues(&topology) {
                Ok(again) => again,
                Err(refusals) => return Err(TestCaseError::fail(format!("{refusals:?}"))),
            };
            prop_assert_eq!(&again.net_cpus, &plan.net_cpus);
            prop_assert!(!again.planned_again_after_queues);
            prop_assert!(plan.notes.iter().all(|note| again.notes.contains(note)), "notes are kept");
            holds(&topology, &again)?;
            plan = again;
        }
        refused.extend(make(&kernel, &plan.changes));
        let topology = read(&kernel);
        prop_assert!(changes_for_new_groups(&plan, &topology).is_empty());
        match Plan::new(&topology, &policy) {
            Ok(empty) => {
                let more: Vec<_> = empty.changes.iter().filter(|change| !refused.contains(&change.place)).collect();
                prop_assert!(more.is_empty(), "{more:#?}\nrefused {refused:#?}");
            }
            Err(refusals) => return Err(TestCaseError::fail(format!("{refusals:?}"))),
        }
    }

    #[test]
    fn exclusive_pod_leads_to_refusal(
        (state, policy) in generated(),
        own in prop::collection::btree_set(0_u32..12, 0..4),
    ) {
        let kernel = Modelled::new(state);
        let mut topology = read(&kernel);
        let Ok(plan) = Plan::new(&topology, &policy) else { return Ok(()) };
        let own: Cpus = own.into_iter().filter(|cpu| topology.online().contains(*cpu)).collect();
        let pod = ExclusiveCpus { pod: "7a".into(), container: "db".into(), cpus: own.clone() };
        topology.kubelet = Some(Kubelet { policy: "none".into(), shared: Cpus::default(), exclusive: vec![pod], reserved: None });
        match Plan::new(&topology, &policy) {
            Ok(same) => {
                prop_assert!(own.both(&plan.net_cpus).is_empty());
                prop_assert_eq!(same.changes, plan.changes);
            }
            Err(refusals) => {
                prop_assert!(!own.both(&plan.net_cpus).is_empty(), "{refusals:?}");
                prop_assert!(refusals.iter().all(|refusal| refusal.rule == "exclusive-pod" && refusal.help.is_some()));
            }
        }
    }
}

/// A machine with nothing but CPUs and interfaces.
#[derive(Clone, Debug)]
struct Shape {
    packages: u32,
    cores: u32,
    threads: u32,
    /// Cores per last-level cache.
    cache: u32,
    /// Whether second threads are numbered next to the first ones.
    beside: bool,
    offline: Vec<u32>,
    isolated: Vec<u32>,
    /// Nodes of the interfaces; a number beyond the existing nodes means unknown.
    nics: Vec<u32>,
}

impl Shape {
    fn topology(&self) -> Topology {
        let all = self.packages * self.cores * self.threads;
        let number = |core: u32, thread: u32| match self.beside {
            true => core * self.threads + thread,
            false => core + thread * self.packages * self.cores,
        };
        let set = |cores: std::ops::Range<u32>| -> Cpus {
            cores.flat_map(|core| (0..self.threads).map(move |thread| number(core, thread))).collect()
        };
        let mut cpus: Vec<Cpu> = Vec::new();
        for core in 0..self.packages * self.cores {
            let (package, cache) = (core / self.cores, core % self.cores / self.cache);
            let first = package * self.cores + cache * self.cache;
            let last = (first + self.cache).min((package + 1) * self.cores);
            for thread in 0..self.threads {
                let number = number(core, thread);
                if number > 0 && self.offline.contains(&(number % all)) {
                    continue;
                }
                let (siblings, cache) = (set(core..core + 1), Some(set(first..last)));
                cpus.push(Cpu { number, siblings, package: Some(package), node: Some(package), cache });
            }
        }
        cpus.sort_by_key(|cpu| cpu.number);
        let interface = |(at, node): (usize, &u32)| Interface {
            name: format!("eth{at}"),
            node: (*node < self.packages).then_some(*node),
            up: true,
            queues: Some(Queues { now: 4, most: 64 }),
            ..Interface::default()
        };
        let mut topology = Topology { cpus, ..Topology::default() };
        topology.interfaces = self.nics.iter().enumerate().map(interface).collect();
        topology.boot.isolated = self.isolated.iter().map(|cpu| cpu % all).collect();
        topology
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    let numbers = || prop::collection::vec(0_u32..64, 0..5);
    let nics = prop::collection::vec(0_u32..3, 1..4);
    (1..3_u32, 1..13_u32, 1..3_u32, 1..9_u32, any::<bool>(), numbers(), numbers(), nics).prop_map(
        |(packages, cores, threads, cache, beside, offline, isolated, nics)| Shape {
            packages,
            cores,
            threads,
            cache,
            beside,
            offline,
            isolated,
            nics,
        },
    )
}

proptest! {
    #[test]
    fn cpus_are_chosen_by_the_rules(shape in shape(), count in prop::option::of(1..9_u32)) {
        let topology = shape.topology();
        let policy = Policy {
            interfaces: topology.interfaces.iter().map(|interface| interface.name.clone()).collect(),
            net_cpus: count.map_or(NetCpus::Auto, NetCpus::Count),
            queues: false,
            cpusets: false,
            irqbalance: IrqbalancePolicy::Leave,
        };
        let plan = match Plan::new(&topology, &policy) {
            Ok(plan) => plan,
            Err(refusals) => {
                let few = |refusal: &Refusal| ["nothing-to-take", "too-few-cpus", "nothing-left"].contains(&refusal.rule);
                prop_assert!(refusals.iter().all(few), "{refusals:?}");
                return Ok(());
            }
        };
        holds(&topology, &plan)?;
        let net = &plan.net_cpus;
        prop_assert!(net.both(&topology.boot.isolated).is_empty());
        // Whole cores of the requested number, if all cores have as many threads.
        if let (Some(count), true) = (count, shape.offline.is_empty()) {
            prop_assert_eq!(net.len() as u32, count.div_ceil(shape.threads) * shape.threads);
        }
        // On the interface's node, unless a note says that there is no room.
        let far = plan.notes.iter().any(|note| note.text.contains("too few CPUs") || note.text.contains("is unknown"));
        let wanted: HashSet<Option<u32>> = topology.interfaces.iter().map(|interface| interface.node).collect();
        if !far && shape.packages > 1 {
            for cpu in topology.cpus.iter().filter(|cpu| net.contains(cpu.number)) {
                prop_assert!(wanted.contains(&cpu.node), "{net} and nodes {wanted:?}");
            }
        }
        // The same result from the list.
        let listed = Policy { net_cpus: NetCpus::List(net.clone()), ..policy };
        prop_assert_eq!(Plan::new(&topology, &listed).unwrap().changes, plan.changes);
    }
}

#[test]
fn after_queues_keeps_earlier_notes() {
    let shape = Shape {
        packages: 2,
        cores: 4,
        threads: 2,
        cache: 4,
        beside: false,
        offline: vec![],
        isolated: vec![],
        nics: vec![1],
    };
    let mut topology = shape.topology();
    let policy = Policy {
        interfaces: vec!["eth0".into()],
        net_cpus: NetCpus::Auto,
        queues: true,
        cpusets: false,
        irqbalance: IrqbalancePolicy::Ban,
    };
    let mut plan = Plan::new(&topology, &policy).unwrap();
    assert_eq!((plan.net_cpus.to_string().as_str(), plan.changes.len()), ("4,12", 1), "{plan:#?}");
    plan.before = Some(serde_json::json!({"measured": []}));
    topology.interfaces[0].queues = Some(Queues { now: 2, most: 64 });
    let again = plan.after_queues(&topology).unwrap();
    assert!(again.changes.is_empty() && !again.planned_again_after_queues);
    assert_eq!(
        (&again.before, &again.permanent, &again.choice),
        (&plan.before, &plan.permanent, &plan.choice)
    );
    topology.interfaces.clear();
    assert_eq!(plan.after_queues(&topology).unwrap_err()[0].rule, "no-such-interface");
}

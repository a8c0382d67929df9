//! Choice of the network's CPUs: whole cores near the interface, never that of CPU 0.
//!
//! Interrupts of timers and of devices that nobody moved land on CPU 0, so neither it nor its siblings are
//! taken unless listed. CPUs isolated at boot, or running tickless, were reserved for some application, and are
//! not taken either. A core is taken as a whole: its threads share first-level caches and execution units, and
//! an application on one thread would feel the network on the other.

use super::{NetCpus, Note, Policy, Refusal, Weight};
use crate::topology::{Cpu, Interface, Topology};
use spangap_model::Cpus;

/// By default one CPU in this many goes to the network, rounded up to whole cores: 4 of 96, 2 of 8 with two
/// threads a core. It is what people start with when they do this by hand; `verify` says when it is too few.
const ONE_IN: usize = 24;

/// The network's CPUs, and the reasons for them.
#[derive(Debug)]
pub(super) struct Choice {
    pub net: Cpus,
    /// Reasons, one sentence each.
    pub because: Vec<String>,
    pub notes: Vec<Note>,
}

/// Chooses the CPUs.
pub(super) fn choose(
    topology: &Topology,
    policy: &Policy,
    interfaces: &[&Interface],
) -> Result<Choice, Vec<Refusal>> {
    let online = topology.online();
    if online.is_empty() {
        let why = "which CPUs are online is not known: /sys/devices/system/cpu cannot be read";
        return Err(vec![Refusal { rule: "cpus-unknown", why: why.into(), help: None }]);
    }
    match &policy.net_cpus {
        NetCpus::List(list) => listed(topology, list, interfaces),
        NetCpus::Count(0) => Err(vec![no_cpu()]),
        NetCpus::Count(count) => {
            let count = *count as usize;
            let because = format!("{count} CPUs as requested, in whole cores");
            by_rules(topology, interfaces, count, 0, because, &Cpus::default())
        }
        NetCpus::Auto => {
            let by_size = online.len().div_ceil(ONE_IN);
            let queues: Option<Vec<u32>> =
                interfaces.iter().map(|interface| interface.queues.map(|queues| queues.most)).collect();
            let usable = queues.map_or(usize::MAX, |most| most.iter().sum::<u32>().max(1) as usize);
            let because = if usable < by_size {
                format!("no more CPUs than the {usable} queues can use, in whole cores")
            } else {
                format!("one CPU in {ONE_IN} of the machine's {}, rounded up to whole cores", online.len())
            };
            by_rules(topology, interfaces, by_size.min(usable), 1, because, &Cpus::default())
        }
    }
}

fn no_cpu() -> Refusal {
    Refusal {
        rule: "no-net-cpus",
        why: "no CPU is given to the network".into(),
        help: Some("--net-cpus with a number of CPUs above 0, or a list".into()),
    }
}

/// An alternative of the same size that avoids `avoid`, to suggest in a refusal.
pub(super) fn another(
    topology: &Topology,
    interfaces: &[&Interface],
    count: usize,
    avoid: &Cpus,
) -> Option<Cpus> {
    by_rules(topology, interfaces, count, 0, String::new(), avoid).ok().map(|choice| choice.net)
}

/// A core: its online threads.
#[derive(Clone, Copy)]
struct Core<'a> {
    first: &'a Cpu,
    online: &'a Cpus,
}

impl Core<'_> {
    fn threads(&self) -> Cpus {
        self.first.siblings.both(self.online).either(&one(self.first.number))
    }
}

fn one(cpu: u32) -> Cpus {
    [cpu].into_iter().collect()
}

/// Online threads of a CPU's core, itself included.
fn core_of(topology: &Topology, cpu: u32, online: &Cpus) -> Cpus {
    let siblings = topology.cpus.iter().find(|at| at.number == cpu).map(|at| at.siblings.both(online));
    siblings.unwrap_or_default().either(&one(cpu))
}

/// CPUs in the order in which queues are assigned: core by core, the cores by their lowest number.
pub(super) fn core_by_core(topology: &Topology, cpus: &Cpus) -> Vec<u32> {
    let online = topology.online();
    let mut ordered: Vec<u32> = Vec::new();
    for cpu in cpus.iter() {
        if !ordered.contains(&cpu) {
            let threads = core_of(topology, cpu, &online).both(cpus);
            ordered.extend(threads.iter().filter(|thread| !ordered.contains(thread)).collect::<Vec<_>>());
        }
    }
    ordered
}

/// Online CPUs of the interface's NUMA node; `None` if the node is unknown or has none.
pub(super) fn of_node(topology: &Topology, interface: &Interface) -> Option<Cpus> {
    let node = interface.node?;
    let cpus: Cpus =
        topology.cpus.iter().filter(|cpu| cpu.node == Some(node)).map(|cpu| cpu.number).collect();
    (!cpus.is_empty()).then_some(cpus)
}

/// NUMA nodes of the CPUs, in order.
fn nodes(topology: &Topology) -> Vec<u32> {
    let mut nodes: Vec<u32> = topology.cpus.iter().filter_map(|cpu| cpu.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// As many CPUs, in whole cores, spread over the interfaces' nodes, with a minimum number of cores per node.
fn by_rules(
    topology: &Topology,
    interfaces: &[&Interface],
    count: usize,
    least_cores: usize,
    how_many: String,
    avoid: &Cpus,
) -> Result<Choice, Vec<Refusal>> {
    let online = topology.online();
    let first_core = core_of(topology, 0, &online).both(&online);
    let from_boot = topology.boot.isolated.either(&topology.boot.nohz_full).both(&online);
    let kept_out = first_core.either(&from_boot).either(avoid);
    let mut cores: Vec<Core<'_>> = Vec::new();
    let mut seen = Cpus::default();
    for cpu in &topology.cpus {
        let core = Core { first: cpu, online: &online };
        if !seen.contains(cpu.number) {
            seen = seen.either(&core.threads());
            if core.threads().both(&kept_out).is_empty() {
                cores.push(core);
            }
        }
    }
    let Some(threads) = cores.first().map(|core| core.threads().len()) else {
        return Err(vec![nothing_to_take(&online, &first_core, &from_boot)]);
    };
    let mut because = Vec::new();
    let mut notes = Vec::new();
    let places = nodes_of(topology, interfaces, &mut because, &mut notes);
    let wanted = count.div_ceil(threads).max(least_cores * places.len());
    let mut net = Cpus::default();
    let mut taken = 0;
    for (at, node) in places.iter().enumerate() {
        let share = wanted / places.len() + usize::from(at < wanted % places.len());
        let near: Vec<Core<'_>> = cores
            .iter()
            .filter(|core| node.is_none_or(|node| core.first.node == Some(node)))
            .copied()
            .collect();
        let picked = in_one_cache(&near, share, node.is_some() || places.len() == 1, &mut because);
        taken += picked.len();
        net = picked.iter().fold(net, |net, core| net.either(&core.threads()));
    }
    if taken < wanted {
        let far: Vec<Core<'_>> =
            cores.iter().filter(|core| !net.contains(core.first.number)).copied().collect();
        if far.len() < wanted - taken {
            let most = net.len() + far.iter().map(|core| core.threads().len()).sum::<usize>();
            let why = format!("{count} CPUs are wanted for the network, and only {most} can be taken");
            let help = format!("--net-cpus {most}, or a list of CPUs, which is used as given");
            return Err(vec![Refusal { rule: "too-few-cpus", why, help: Some(help) }]);
        }
        let more: Cpus =
            far[..wanted - taken].iter().flat_map(|core| core.threads().iter().collect::<Vec<_>>()).collect();
        notes.push(Note {
            weight: Weight::Warning,
            text: format!(
                "The interface's NUMA node has too few CPUs: {} {} of another node, and packets cross between them.",
                more.words(),
                if more.len() == 1 { "is" } else { "are" }
            ),
        });
        net = net.either(&more);
    }
    if let Some(refusal) = nothing_left(topology, &net) {
        return Err(vec![refusal]);
    }
    because.insert(0, how_many);
    because.push(whole_cores(topology, &net));
    if !first_core.is_empty() {
        let threads = first_core.words();
        because
            .push(format!("not {threads}: timer interrupts, and interrupts that nobody moved, go to CPU 0"));
    }
    if !from_boot.is_empty() {
        let text = format!(
            "{} set apart at boot (isolcpus, nohz_full), usually for applications: not taken unless listed in \
             --net-cpus.",
            if from_boot.len() == 1 {
                format!("{} is", from_boot.words())
            } else {
                format!("{} are", from_boot.words())
            }
        );
        notes.push(Note { weight: Weight::Remark, text });
    }
    Ok(Choice { net, because, notes })
}

/// Distinct nodes of the interfaces; `None` stands for all CPUs where there are no nodes.
fn nodes_of(
    topology: &Topology,
    interfaces: &[&Interface],
    because: &mut Vec<String>,
    notes: &mut Vec<Note>,
) -> Vec<Option<u32>> {
    let nodes = nodes(topology);
    if nodes.len() < 2 {
        return vec![None];
    }
    let mut places: Vec<Option<u32>> = Vec::new();
    for interface in interfaces {
        let name = &interface.name;
        let place = if let Some(node) = interface.node.filter(|node| nodes.contains(node)) {
            because.push(format!("{name} is at NUMA node {node}: packets stay there"));
            Some(node)
        } else {
            let first = nodes[0];
            let text = match interface.node {
                Some(node) => format!(
                    "{name} is at NUMA node {node}, which has no CPUs: those of node {first} are taken."
                ),
                None => format!(
                    "The NUMA node of {name} is unknown (the firmware does not say, or it is not a device): node \
                     {first} is taken."
                ),
            };
            notes.push(Note { weight: Weight::Warning, text });
            Some(first)
        };
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// A number of cores, from a single last-level cache if one has enough to spare, else the first ones.
fn in_one_cache<'a>(near: &[Core<'a>], count: usize, say: bool, because: &mut Vec<String>) -> Vec<Core<'a>> {
    let mut caches: Vec<(&Option<Cpus>, Vec<Core<'a>>)> = Vec::new();
    for core in near {
        match caches.iter_mut().find(|(cache, _)| *cache == &core.first.cache) {
            Some((_, cores)) => cores.push(*core),
            None => caches.push((&core.first.cache, vec![*core])),
        }
    }
    if let Some((cache, cores)) = caches.iter().find(|(_, cores)| cores.len() >= count && count > 0) {
        if let (Some(cache), true, true) = (cache, caches.len() > 1, say) {
            because.push(format!("all of one last-level cache, that of {}", cache.words()));
        }
        return cores[..count].to_vec();
    }
    near[..near.len().min(count)].to_vec()
}

/// `whole cores: 1,49 and 2,50`.
fn whole_cores(topology: &Topology, net: &Cpus) -> String {
    const NAMED: usize = 6;
    let mut cores: Vec<String> = Vec::new();
    let mut seen = Cpus::default();
    for cpu in net.iter() {
        if !seen.contains(cpu) {
            let threads = core_of(topology, cpu, net).both(net);
            cores.push(threads.iter().map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(","));
            seen = seen.either(&threads);
        }
    }
    if cores.len() == net.len() {
        return "cores without sibling threads: nothing else runs on them".into();
    }
    let more = cores.len().saturating_sub(NAMED);
    cores.truncate(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("whole cores ({}{more}): no application shares one with the network", cores.join(" + "))
}

fn nothing_to_take(online: &Cpus, first_core: &Cpus, from_boot: &Cpus) -> Refusal {
    let why = format!(
        "no CPU can be given to the network: of {} {} to CPU 0's core{}",
        online.words(),
        if first_core.len() == 1 { format!("{first_core} belongs") } else { format!("{first_core} belong") },
        if from_boot.is_empty() {
            String::new()
        } else {
            format!(", and {from_boot} were set apart at boot")
        }
    );
    let last = online.iter().last().unwrap_or_default();
    let help = format!("--net-cpus with a list takes any CPUs it names, such as --net-cpus cpu:{last}");
    Refusal { rule: "nothing-to-take", why, help: Some(help) }
}

/// Applications need a CPU where the scheduler puts them.
fn nothing_left(topology: &Topology, net: &Cpus) -> Option<Refusal> {
    let left = topology.online().without(net);
    left.without(&topology.boot.isolated).is_empty().then(|| Refusal {
        rule: "nothing-left",
        why: if left.is_empty() {
            "no CPU is left for applications".into()
        } else {
            "only CPUs that were isolated at boot are left for applications".into()
        },
        help: Some("fewer CPUs for --net-cpus".into()),
    })
}

/// A list taken as given; deviations from the rules are noted.
fn listed(topology: &Topology, list: &Cpus, interfaces: &[&Interface]) -> Result<Choice, Vec<Refusal>> {
    let online = topology.online();
    let absent = list.without(&online);
    let mut refusals = Vec::new();
    if list.is_empty() {
        refusals.push(no_cpu());
    }
    if !absent.is_empty() {
        refusals.push(Refusal {
            rule: "no-such-cpu",
            why: format!(
                "{} not online",
                if absent.len() == 1 {
                    format!("{} is", absent.words())
                } else {
                    format!("{} are", absent.words())
                }
            ),
            help: Some(format!("--net-cpus with some of {online}")),
        });
    }
    if !list.is_empty() {
        refusals.extend(nothing_left(topology, list));
    }
    if !refusals.is_empty() {
        return Err(refusals);
    }
    let mut notes = Vec::new();
    let mut warn = |text: String| notes.push(Note { weight: Weight::Warning, text });
    let first_core = core_of(topology, 0, &online).both(list);
    if !first_core.is_empty() {
        warn(format!(
            "{} of CPU 0's core: timer interrupts, and interrupts that nobody moved, go there too.",
            if first_core.len() == 1 {
                format!("{} is", first_core.words())
            } else {
                format!("{} are", first_core.words())
            }
        ));
    }
    let halves: Cpus = list
        .iter()
        .flat_map(|cpu| core_of(topology, cpu, &online).without(list).iter().collect::<Vec<_>>())
        .collect();
    if !halves.is_empty() {
        warn(format!(
            "{} a core with CPUs of the network, and {} left to applications: they will slow each other down.",
            if halves.len() == 1 {
                format!("{} shares", halves.words())
            } else {
                format!("{} share", halves.words())
            },
            if halves.len() == 1 { "is" } else { "are" },
        ));
    }
    for interface in interfaces {
        let Some(near) = of_node(topology, interface) else { continue };
        let far = list.without(&near);
        let several = interfaces.iter().any(|other| other.node != interface.node);
        if !far.is_empty() && (!several || list.both(&near).is_empty()) {
            warn(format!(
                "{} is at NUMA node {}, and {} {} not: its packets cross between nodes.",
                interface.name,
                interface.node.unwrap_or_default(),
                far.words(),
                if far.len() == 1 { "is" } else { "are" }
            ));
        }
    }
    let isolated = list.both(&topology.boot.isolated);
    if !isolated.is_empty() {
        let text =
            format!("{} isolated at boot: the scheduler places nothing there by itself.", isolated.words());
        notes.push(Note { weight: Weight::Remark, text });
    }
    Ok(Choice { net: list.clone(), because: vec!["as listed".into()], notes })
}

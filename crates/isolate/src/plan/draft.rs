//! A plan under construction: the input of every rule, and the place for its results.

use super::{Change, Note, Part, Permanent, Policy, Refusal, Weight, choose};
use crate::place::Place;
use crate::topology::{Interface, Topology};
use spangap_model::Cpus;

/// A plan under construction.
pub(super) struct Draft<'a> {
    pub topology: &'a Topology,
    pub policy: &'a Policy,
    /// CPUs for the network.
    pub net: Cpus,
    /// CPUs for everything else, including those isolated at boot.
    pub app: Cpus,
    /// The interfaces with their CPUs, in the order of the policy.
    pub lanes: Vec<Lane<'a>>,
    pub changes: Vec<Change>,
    pub notes: Vec<Note>,
    pub permanent: Vec<Permanent>,
    pub refusals: Vec<Refusal>,
}

/// An interface, and the CPUs that its packets go to.
pub(super) struct Lane<'a> {
    pub interface: &'a Interface,
    /// Core by core: both threads of a core are adjacent.
    pub cpus: Vec<u32>,
    /// Index of the first queue's CPU: where the queues of earlier interfaces on the same CPUs end.
    pub first: usize,
    /// Number of queues that will have interrupts; 0 if it has none of its own.
    pub queues: usize,
    /// Number of queues assigned before those of the next interface.
    pub dealt: usize,
}

impl Lane<'_> {
    /// CPU of a queue.
    pub fn cpu_of(&self, queue: u32) -> u32 {
        self.cpus[(self.first + queue as usize) % self.cpus.len()]
    }

    /// Its CPUs as a set.
    pub fn set(&self) -> Cpus {
        self.cpus.iter().copied().collect()
    }
}

impl<'a> Draft<'a> {
    pub fn new(
        topology: &'a Topology,
        policy: &'a Policy,
        interfaces: &[&'a Interface],
        net: Cpus,
    ) -> Draft<'a> {
        let app = topology.online().without(&net);
        let mut lanes: Vec<Lane<'a>> = Vec::new();
        // With several nodes, each interface gets the CPUs at its own node; a single interface gets all, even
        // listed ones of another node.
        let several = interfaces.iter().any(|other| other.node != interfaces[0].node);
        for interface in interfaces {
            let own = choose::of_node(topology, interface).filter(|_| several).map(|node| net.both(&node));
            let own = own.filter(|own| !own.is_empty());
            let cpus = choose::core_by_core(topology, own.as_ref().unwrap_or(&net));
            let queues = queues_to_be(policy, interface, cpus.len());
            let before = lanes.iter().filter(|lane| lane.cpus == cpus).map(|lane| lane.dealt).sum();
            // The maximum that the interface reports, so that the result is the same before and after the
            // change.
            let told =
                interface.queues.map(|told| told.now as usize).filter(|now| *now > 0 && !policy.queues);
            let dealt = told.unwrap_or(queues);
            lanes.push(Lane { interface, cpus, first: before, queues, dealt });
        }
        Draft {
            topology,
            policy,
            net,
            app,
            lanes,
            changes: Vec::new(),
            notes: Vec::new(),
            permanent: Vec::new(),
            refusals: Vec::new(),
        }
    }

    /// CPUs that applications can be put on: not those isolated at boot. Tasks that are moved into a cgroup get
    /// all its CPUs, and would get stuck on these, where nobody balances.
    pub fn home(&self) -> Cpus {
        self.app.without(&self.topology.boot.isolated)
    }

    /// Whether the number of queues of this interface changes.
    pub fn renumbers(&self, lane: &Lane<'_>) -> bool {
        self.policy.queues
            && lane.interface.queues.is_some_and(|queues| {
                queues.most > 0 && queues.now != queues.most.min(lane.cpus.len() as u32)
            })
    }

    pub fn note(&mut self, weight: Weight, text: impl Into<String>) {
        self.notes.push(Note { weight, text: text.into() });
    }

    pub fn refuse(&mut self, rule: &'static str, why: impl Into<String>, help: Option<String>) {
        self.refusals.push(Refusal { rule, why: why.into(), help });
    }
}

/// Number of queues with interrupts of their own, after the number of queues was changed if the policy wants
/// that.
fn queues_to_be(policy: &Policy, interface: &Interface, cpus: usize) -> usize {
    match interface.queues {
        Some(queues) if policy.queues && queues.most > 0 => (queues.most as usize).min(cpus),
        _ => {
            let mut queues: Vec<u32> = interface.irqs.iter().filter_map(|irq| irq.queue).collect();
            queues.sort_unstable();
            queues.dedup();
            // A single interrupt without a number belongs to the only queue.
            let interrupts = queues.len().max(usize::from(!interface.irqs.is_empty()));
            // Some drivers keep interrupts for unused queues.
            let used = interface.queues.map(|queues| queues.now as usize).filter(|now| *now > 0);
            used.map_or(interrupts, |used| used.min(interrupts))
        }
    }
}

/// A required change of a file.
pub(super) fn file(part: Part, path: String, from: Option<String>, to: String, why: String) -> Change {
    Change { part, place: Place::file(path), from, to, otherwise: None, why, needed: true }
}

/// The first few names, and the number of the rest.
pub(super) fn some_of(names: &[String]) -> String {
    const MOST: usize = 5;
    let shown = names[..names.len().min(MOST)].join(", ");
    match names.len().checked_sub(MOST) {
        Some(more) if more > 0 => format!("{shown} and {more} more"),
        _ => shown,
    }
}

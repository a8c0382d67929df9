//! CPUs nested as in the hardware: packages, nodes, caches, cores.

use crate::topology::Topology;
use std::collections::BTreeMap;

pub(super) struct Package {
    /// Number; `None` if unknown.
    pub number: Option<u32>,
    pub nodes: Vec<Node>,
}

/// A NUMA node, or its part in one package.
pub(super) struct Node {
    /// Number; `None` if unknown.
    pub number: Option<u32>,
    pub caches: Vec<Cache>,
}

/// Cores that share a last-level cache.
pub(super) struct Cache {
    pub cores: Vec<Core>,
}

/// Indices in [`Topology::cpus`] of one core's threads.
pub(super) type Core = Vec<usize>;

/// Each online CPU once. Everything is ordered by its first CPU.
pub(super) fn packages(topology: &Topology) -> Vec<Package> {
    type Tree<T> = BTreeMap<Option<u32>, T>;
    let mut tree: Tree<Tree<Tree<BTreeMap<u32, Core>>>> = BTreeMap::new();
    for (at, cpu) in topology.cpus.iter().enumerate() {
        let first = cpu.siblings.iter().next().map_or(cpu.number, |first| first.min(cpu.number));
        let cache = cpu.cache.as_ref().and_then(|cache| cache.iter().next());
        tree.entry(cpu.package)
            .or_default()
            .entry(cpu.node)
            .or_default()
            .entry(cache)
            .or_default()
            .entry(first)
            .or_default()
            .push(at);
    }
    let caches = |caches: Tree<BTreeMap<u32, Core>>| {
        caches.into_values().map(|cores| Cache { cores: cores.into_values().collect() }).collect()
    };
    tree.into_iter()
        .map(|(number, nodes)| Package {
            number,
            nodes: nodes.into_iter().map(|(number, below)| Node { number, caches: caches(below) }).collect(),
        })
        .collect()
}

impl Cache {
    pub fn cpus(&self) -> usize {
        self.cores.iter().map(Vec::len).sum()
    }
}

/// `node 1`, or that the number is unknown.
pub(super) fn called(what: &str, number: Option<u32>) -> String {
    number.map_or_else(|| format!("{what} not told"), |number| format!("{what} {number}"))
}

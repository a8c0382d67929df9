//! The cgroups as a tree, with similar ones merged.

use crate::topology::{Cpusets, Group, Owner, Topology, Version};
use spangap_model::Cpus;
use spangap_report::cut::keep_start;
use spangap_report::figures::counted;
use spangap_report::wrap::wrap_strictly;
use std::collections::{BTreeMap, BTreeSet};

/// Merged groups shown by name; the rest is counted.
const NAMED: usize = 3;
/// Maximum number of lines; the rest is counted.
const LINES: usize = 48;
/// Maximum length of a name.
const NAME: usize = 44;
/// Maximum length of an id.
const ID: usize = 8;

/// Whether it is the network's group, made by `isolate`.
pub(super) fn is_net(group: &Group) -> bool {
    group.owner == Owner::Ours && group.path.ends_with("-net")
}

/// CPUs of each group that is confined to at most half of the CPUs, and to fewer than its parent.
pub(super) fn restricted(topology: &Topology) -> Vec<(Cpus, &Group)> {
    let Some(cpusets) = &topology.cpusets else { return Vec::new() };
    let online = topology.online();
    let tree = Tree::new(cpusets);
    let few = |at: &usize| {
        let effective = tree.effective(*at)?;
        let narrower = tree.parent[*at].and_then(|parent| tree.effective(parent)) != Some(effective);
        let here = effective.both(&online);
        let held = narrower && !here.is_empty() && here.len() * 2 <= online.len();
        held.then(|| (here, &cpusets.groups[*at]))
    };
    (0..cpusets.groups.len()).filter(|at| !is_net(&cpusets.groups[*at])).filter_map(|at| few(&at)).collect()
}

/// Display name of a group: pods and units by their identity, others by their path.
pub(super) fn name(group: &Group) -> String {
    let id = |id: &str| id.chars().take(ID).collect::<String>();
    match &group.owner {
        Owner::Kubelet { pod: Some(pod), container: Some(container) } => {
            format!("pod {} container {}", id(pod), id(container))
        }
        Owner::Kubelet { pod: Some(pod), container: None } => format!("pod {}", id(pod)),
        Owner::Systemd { unit } => unit.clone(),
        _ => group.path.clone(),
    }
}

/// Whether it belongs to one container.
pub(super) fn is_container(group: &Group) -> bool {
    matches!(group.owner, Owner::Kubelet { container: Some(_), .. })
}

/// Kind of a group, as a countable noun.
fn class(group: &Group) -> &'static str {
    match &group.owner {
        Owner::Kubelet { container: Some(_), .. } => "container",
        Owner::Kubelet { pod: Some(_), .. } => "pod",
        Owner::Systemd { unit } if unit.ends_with(".slice") => "slice",
        Owner::Systemd { unit } if unit.ends_with(".service") => "service",
        Owner::Systemd { unit } if unit.ends_with(".scope") => "scope",
        _ => "group",
    }
}

struct Tree<'a> {
    groups: &'a [Group],
    parent: Vec<Option<usize>>,
    children: Vec<Vec<usize>>,
    /// Equal numbers for groups that are alike, including everything below them.
    kinds: Vec<usize>,
}

impl<'a> Tree<'a> {
    fn new(cpusets: &'a Cpusets) -> Tree<'a> {
        let groups = &cpusets.groups;
        let by_path: BTreeMap<&str, usize> =
            groups.iter().enumerate().map(|(at, group)| (group.path.as_str(), at)).collect();
        let none = vec![Vec::new(); groups.len()];
        let mut tree =
            Tree { groups, parent: vec![None; groups.len()], children: none, kinds: vec![0; groups.len()] };
        for (at, group) in groups.iter().enumerate() {
            let above = group.path.rsplit_once('/').map_or("/", |(above, _)| above);
            let above = if above.is_empty() { "/" } else { above };
            // Parents come first, so there are no cycles.
            let parent = by_path.get(above).copied().filter(|parent| *parent < at);
            tree.parent[at] = parent;
            if let Some(parent) = parent {
                tree.children[parent].push(at);
            }
        }
        let mut kinds: BTreeMap<_, usize> = BTreeMap::new();
        for at in (0..groups.len()).rev() {
            let plain = tree.sum(at).plain;
            // Pods are alike whether they have one such container or two.
            let below = tree.children[at].iter().filter(|_| !plain).map(|child| tree.kinds[*child]);
            let below: BTreeSet<usize> = below.collect();
            let cpus = tree.effective(at).map(ToString::to_string);
            let next = kinds.len();
            tree.kinds[at] =
                *kinds.entry((class(&groups[at]), cpus, special(&groups[at]), below)).or_insert(next);
        }
        tree
    }

    /// Effective CPUs: its own if known, else its parent's.
    fn effective(&self, at: usize) -> Option<&'a Cpus> {
        let mut at = Some(at);
        while let Some(here) = at {
            if let Some(effective) = &self.groups[here].effective {
                return Some(effective);
            }
            at = self.parent[here];
        }
        None
    }

    /// Groups and tasks in the subtree, and whether all have the same CPUs and nothing special.
    fn sum(&self, at: usize) -> Sum {
        let group = &self.groups[at];
        let mut sum = Sum { below: 0, tasks: u64::from(group.tasks), plain: special(group).is_empty() };
        let mut rest = self.children[at].clone();
        while let Some(one) = rest.pop() {
            sum.below += 1;
            sum.tasks += u64::from(self.groups[one].tasks);
            sum.plain &= special(&self.groups[one]).is_empty() && self.effective(one) == self.effective(at);
            rest.extend(&self.children[one]);
        }
        sum
    }
}

struct Sum {
    below: usize,
    tasks: u64,
    plain: bool,
}

/// Distinguishing features.
fn special(group: &Group) -> Vec<String> {
    let mut words = Vec::new();
    if group.owner == Owner::Ours {
        words.push("made by isolate".to_owned());
    }
    if let Some(partition) = group.partition.as_deref().filter(|partition| *partition != "member") {
        words.push(format!("partition {partition}"));
    }
    if group.exclusive && group.path != "/" {
        words.push("exclusive".to_owned());
    }
    words
}

/// A line of the tree: its groups and its text.
struct Line {
    head: String,
    words: String,
}

/// The tree in lines of at most `width` columns.
pub(super) fn text(topology: &Topology, width: usize) -> String {
    let mut text = String::new();
    let Some(cpusets) = &topology.cpusets else {
        return "Cgroups\n  no cpuset controller was found\n".to_owned();
    };
    let version = match (cpusets.version, cpusets.hybrid) {
        (Version::V1, false) => "version 1",
        (Version::V1, true) => "version 1, version 2 is mounted too",
        (Version::V2, false) => "version 2",
        (Version::V2, true) => "version 2, version 1 is mounted too",
    };
    wrap_strictly(&mut text, "", &format!("Cgroups ({version}, {})", cpusets.mount), width);
    if cpusets.version == Version::V2 && !cpusets.enabled {
        wrap_strictly(
            &mut text,
            "  ",
            "the groups below the root have no cpuset controller: all have all CPUs",
            width,
        );
    }
    let tree = Tree::new(cpusets);
    let mut lines = Vec::new();
    for root in (0..tree.groups.len()).filter(|at| tree.parent[*at].is_none()) {
        lines.push(line(&tree, &[root], 0));
        below(&tree, &[root], 1, &mut lines);
    }
    let left_out = lines.len().saturating_sub(LINES);
    for line in lines.iter().take(LINES) {
        wrap_strictly(&mut text, &line.head, &line.words, width);
    }
    if left_out > 0 {
        wrap_strictly(
            &mut text,
            "  ",
            &format!("and {} more; --json has all groups", counted(left_out, "line")),
            width,
        );
    }
    text
}

/// Children of some merged groups, similar ones merged in turn.
fn below(tree: &Tree<'_>, above: &[usize], depth: usize, lines: &mut Vec<Line>) {
    let mut alike: Vec<(usize, Vec<usize>)> = Vec::new();
    for &child in above.iter().flat_map(|at| &tree.children[*at]) {
        match alike.iter_mut().find(|(kind, _)| *kind == tree.kinds[child]) {
            Some((_, group)) => group.push(child),
            None => alike.push((tree.kinds[child], vec![child])),
        }
    }
    for (_, group) in alike {
        let lots =
            if group.len() > NAMED || above.len() > 1 { vec![&group[..]] } else { group.chunks(1).collect() };
        for lot in lots {
            lines.push(line(tree, lot, depth));
            if !tree.sum(lot[0]).plain {
                below(tree, lot, depth + 1, lines);
            }
        }
    }
}

/// One group, or several merged ones.
fn line(tree: &Tree<'_>, group: &[usize], depth: usize) -> Line {
    let first = &tree.groups[group[0]];
    let called = match group {
        [_] if depth == 0 => first.path.clone(),
        [_] => {
            let folder = first.path.rsplit('/').next().unwrap_or(&first.path);
            match &first.owner {
                Owner::Kubelet { pod: Some(_), .. } => name(first),
                _ => folder.to_owned(),
            }
        }
        several => counted(several.len(), class(first)),
    };
    let sums: Vec<Sum> = group.iter().map(|at| tree.sum(*at)).collect();
    let (below, tasks): (usize, u64) =
        (sums.iter().map(|sum| sum.below).sum(), sums.iter().map(|sum| sum.tasks).sum());
    let mut words = vec![match tree.effective(group[0]) {
        Some(effective) => effective.words(),
        None => "CPUs not told".to_owned(),
    }];
    if let ([_], Some(own)) = (group, &first.cpus)
        && !own.is_empty()
        && first.effective.as_ref().is_some_and(|effective| effective != own)
    {
        words.push(format!("of {own} in its file"));
    }
    words.extend(special(first));
    words.push(match tasks {
        1 => "1 task".to_owned(),
        _ => format!("{tasks} tasks"),
    });
    if depth > 0 && sums.iter().all(|sum| sum.plain) && below > 0 {
        words.push(format!("{} below alike", counted(below, "group")));
    }
    Line {
        head: format!("{:indent$}{}  ", "", keep_start(&called, NAME), indent = 2 + 2 * depth.min(12)),
        words: words.join(", "),
    }
}

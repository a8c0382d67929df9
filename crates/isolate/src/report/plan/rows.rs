//! Changes as rows; similar ones are merged.

use crate::place::Place;
use crate::plan::Change;
use spangap_model::count::grouped;
use spangap_report::cut::keep_start;
use std::collections::BTreeMap;

/// A row of the diff.
#[derive(Debug)]
pub(super) struct Row {
    pub old: String,
    pub new: String,
    pub place: String,
    pub why: String,
    pub needed: bool,
}

/// From this number on, changes that differ only in their place are merged.
const ALIKE: usize = 3;
/// With more rows than this, changes to the same value are merged whatever their old values.
const MANY: usize = 24;
/// Longer values are truncated; the JSON has them in full.
const LONGEST: usize = 32;

/// Rows of one part, in the order of its changes.
pub(super) fn rows(changes: &[&Change]) -> Vec<Row> {
    let alike = folded(changes, |change| {
        (shape(&change.place), change.from.clone().unwrap_or_default(), change.to.clone(), change.why.clone())
    });
    if alike.len() <= MANY {
        return alike;
    }
    folded(changes, |change| (shape(&change.place), change.to.clone()))
}

fn folded<K: Ord>(changes: &[&Change], key: impl Fn(&Change) -> K) -> Vec<Row> {
    let mut groups: Vec<Vec<&Change>> = Vec::new();
    let mut by_key: BTreeMap<K, usize> = BTreeMap::new();
    for change in changes {
        let at = *by_key.entry(key(change)).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.push(change),
            None => groups.push(vec![change]),
        }
    }
    let row = |group: Vec<&Change>| match group.len() {
        few if few < ALIKE => group.iter().map(|change| row(&[change], change.place.to_string())).collect(),
        _ => vec![row(&group, together(&group))],
    };
    groups.into_iter().flat_map(row).collect()
}

fn row(group: &[&Change], place: String) -> Row {
    let first = group[0];
    let same = |of: fn(&Change) -> &str| group.iter().all(|change| of(change) == of(first));
    let old = match &first.from {
        _ if !same(|change| change.from.as_deref().unwrap_or_default()) => "various".into(),
        None => "none".into(),
        Some(old) if old.is_empty() => "empty".into(),
        Some(old) => keep_start(old, LONGEST),
    };
    let why = match same(|change| &change.why) {
        true => first.why.clone(),
        false => format!("{}; the same for the others", first.why),
    };
    let new = match &first.otherwise {
        Some(otherwise) => format!("{}, or {otherwise}", keep_start(&first.to, LONGEST)),
        None => keep_start(&first.to, LONGEST),
    };
    Row { old, new, place, why, needed: first.needed }
}

/// What a place has in common with others of its kind.
fn shape(place: &Place) -> String {
    match place {
        Place::File { path } => {
            let (head, around, tail) = parts(path);
            if around.is_empty() { path.clone() } else { format!("{head}*{tail}") }
        }
        Place::Affinity { .. } => "affinity".into(),
        other => other.to_string(),
    }
}

/// Splits a path into a part common to its kind, the distinguishing part, and the rest: the number of an
/// interrupt or queue, or the path below a top-level cgroup.
fn parts(path: &str) -> (&str, &str, &str) {
    let cut = |from: usize, to: usize| (&path[..from], &path[from..to], &path[to..]);
    let whole = cut(path.len(), path.len());
    if let Some(rest) = path.strip_prefix("/proc/irq/") {
        let end = rest.find('/').unwrap_or(rest.len());
        return cut(path.len() - rest.len(), path.len() - rest.len() + end);
    }
    if let Some(at) = path.find("/queues/") {
        let number = at + "/queues/rx-".len();
        let end = path.get(number..).and_then(|rest| rest.find('/'));
        return end.map_or(whole, |end| cut(number, number + end));
    }
    // MOUNT/TOP/WAY/cpuset.cpus
    let Some(file) = path.rfind("/cpuset.") else { return whole };
    let Some(mount) = path.find("/cgroup/").or_else(|| path.find("/cpuset/")) else { return whole };
    let mount = path[..file].find("/cpuset/").unwrap_or(mount) + "/cgroup/".len();
    match path.get(mount..file).and_then(|way| way.find('/')) {
        Some(top) => cut(mount + top + 1, file),
        None => whole,
    }
}

/// Several places of one kind.
fn together(group: &[&Change]) -> String {
    let count = grouped(group.len() as u64);
    match &group[0].place {
        Place::File { path } => {
            let (head, _, tail) = parts(path);
            if head.starts_with("/proc/irq/") || head.contains("/queues/") {
                let numbers = group.iter().filter_map(|change| match &change.place {
                    Place::File { path } => Some(parts(path).1),
                    _ => None,
                });
                let numbers = numbers.collect::<Vec<_>>().join(",");
                return format!("{head}{{{}}}{tail}", keep_start(&numbers, LONGEST));
            }
            format!("{head}...{tail} of {count} cgroups")
        }
        Place::Affinity { .. } => {
            let mut names: Vec<&str> = group
                .iter()
                .filter_map(|change| match &change.place {
                    Place::Affinity { comm, .. } => Some(comm.as_str()),
                    _ => None,
                })
                .collect();
            names.sort_unstable();
            names.dedup();
            format!("affinity of {count} threads ({})", keep_start(&names.join(", "), LONGEST))
        }
        other => other.to_string(),
    }
}

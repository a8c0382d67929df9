//! Annotations of a CPU, which can be merged over several CPUs.

use super::words::list;
use super::{CpuReport, ShowReport};
use spangap_report::cut::keep_start;
use spangap_report::figures::counted;
use std::collections::BTreeSet;

/// Something that happens on a CPU, or applies to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// Literal text.
    Words(String),
    /// Interrupts of one interface.
    Interrupts {
        interface: String,
        /// Whether they are directed here; otherwise they only arrived here.
        goes: bool,
        queues: BTreeSet<u32>,
        /// Whether some belong to no queue.
        other: bool,
    },
    /// Packets of one interface that are steered here by software.
    Steered { interface: String, queues: BTreeSet<u32> },
    /// Number of occurrences.
    Count { what: &'static str, number: u64 },
    /// Containers that own a CPU exclusively.
    Exclusive(BTreeSet<String>),
    /// Groups confined to a few CPUs.
    Groups(BTreeSet<String>),
}

/// Names shown in full; the rest is counted.
const NAMED: usize = 2;
/// Maximum length of a name.
const NAME: usize = 40;

impl Item {
    /// Whether both are of one kind and can be merged.
    pub fn is_like(&self, other: &Item) -> bool {
        match (self, other) {
            (Item::Words(one), Item::Words(two)) => one == two,
            (
                Item::Interrupts { interface: one, goes, .. },
                Item::Interrupts { interface: two, goes: also, .. },
            ) => one == two && goes == also,
            (Item::Steered { interface: one, .. }, Item::Steered { interface: two, .. }) => one == two,
            (Item::Count { what: one, .. }, Item::Count { what: two, .. }) => one == two,
            (Item::Exclusive(_), Item::Exclusive(_)) | (Item::Groups(_), Item::Groups(_)) => true,
            _ => false,
        }
    }

    /// Merges another item of the same kind into this one.
    pub fn add(&mut self, more: &Item) {
        match (self, more) {
            (Item::Interrupts { queues, other, .. }, Item::Interrupts { queues: more, other: also, .. }) => {
                queues.extend(more);
                *other |= also;
            }
            (Item::Steered { queues, .. }, Item::Steered { queues: more, .. }) => queues.extend(more),
            (Item::Count { number, .. }, Item::Count { number: more, .. }) => *number += more,
            (Item::Exclusive(names), Item::Exclusive(more)) | (Item::Groups(names), Item::Groups(more)) => {
                names.extend(more.iter().cloned());
            }
            _ => {}
        }
    }

    /// As text.
    pub fn words(&self) -> String {
        match self {
            Item::Words(words) => words.clone(),
            Item::Interrupts { interface, goes, queues, other } => {
                let mut words = format!("{interface}{}", of_queues(queues));
                if *other {
                    words += if queues.is_empty() { " other" } else { "+other" };
                }
                words + if *goes { "" } else { " (came)" }
            }
            Item::Steered { interface, queues } => match queues.len() {
                1 if queues.contains(&0) => format!("{interface} RPS"),
                _ => format!("{interface} RPS of{}", of_queues(queues)),
            },
            Item::Count { what, number } => format!("{number} {what}"),
            Item::Exclusive(names) => format!("only for {}", named(names, "container")),
            Item::Groups(names) => format!("cgroup {}", named(names, "cgroup")),
        }
    }
}

fn of_queues(queues: &BTreeSet<u32>) -> String {
    if queues.is_empty() {
        return String::new();
    }
    format!(" q{}", list(queues.iter().copied()))
}

fn named(names: &BTreeSet<String>, what: &str) -> String {
    if names.len() > NAMED {
        return counted(names.len(), what);
    }
    // Eight characters of a pod's uid distinguish it from others.
    let brief = |name: &String| match name.split_once('/').filter(|(pod, _)| pod.len() > 12 && pod.is_ascii())
    {
        Some((pod, container)) => keep_start(&format!("{}/{container}", &pod[..8]), NAME),
        None => keep_start(name, NAME),
    };
    names.iter().map(brief).collect::<Vec<_>>().join(", ")
}

/// All annotations of a CPU.
pub(super) fn items(report: &ShowReport, cpu: &CpuReport) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    let mut push = |item: Item| match items.iter_mut().find(|old| old.is_like(&item)) {
        Some(old) => old.add(&item),
        None => items.push(item),
    };
    for (holds, words) in marks(cpu) {
        if holds {
            push(Item::Words(words.to_owned()));
        }
    }
    if !cpu.exclusive_to.is_empty() {
        push(Item::Exclusive(cpu.exclusive_to.iter().cloned().collect()));
    }
    for irq in &cpu.interrupts {
        push(Item::Interrupts {
            interface: irq.interface.clone(),
            goes: irq.goes_here,
            queues: irq.queue.into_iter().collect(),
            other: irq.queue.is_none(),
        });
    }
    for steered in &cpu.steered {
        push(Item::Steered { interface: steered.interface.clone(), queues: [steered.queue].into() });
    }
    // The container that owns it is already mentioned.
    let told = |name: &&String| !cpu.exclusive_to.is_empty() && cpu.container_groups.contains(*name);
    let groups: BTreeSet<String> = cpu.groups.iter().filter(|name| !told(name)).cloned().collect();
    if !groups.is_empty() {
        push(Item::Groups(groups));
    }
    // Since boot, many things happen once.
    if !report.since_boot {
        for (number, what) in [(cpu.backlog_dropped, "dropped"), (cpu.time_squeeze, "squeezed")] {
            if number > 0 {
                push(Item::Count { what, number });
            }
        }
    }
    if cpu.steal_share.is_some_and(|share| share >= 0.01) {
        push(Item::Words("steal".to_owned()));
    }
    items
}

/// Properties of a CPU, in the words of the legend.
pub(super) fn marks(cpu: &CpuReport) -> [(bool, &'static str); 4] {
    [
        (cpu.net, "NET"),
        (cpu.planned, "would be NET"),
        (cpu.boot_isolated, "isolated at boot"),
        (cpu.balanced == Some(false) && !cpu.boot_isolated, "not balanced"),
    ]
}

//! Users of the CPUs and their paths through the kernel: sampled stacks, grouped by owner.

use super::{ContextReport, StackReport, StacksReport};
use serde::Serialize;
use spangap_report::figures::{counted, percent_of};
use std::collections::BTreeMap;

/// Maximum number of groups.
const GROUPS: usize = 12;
/// Maximum number of paths per group.
const WAYS: usize = 4;
/// Maximum number of frames per path.
const FRAMES: usize = 7;
/// Entries below this share of their list are omitted.
const SMALL: f64 = 0.05;
/// Groups below this share of all samples are summed up.
const SMALL_GROUP: f64 = 0.001;

/// A user of CPUs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupPage {
    /// Share of all samples.
    pub share: String,
    /// Who it is, on which CPUs, interrupting whom.
    pub words: String,
    /// Kernel paths, most frequent first.
    pub ways: Vec<WayPage>,
}

/// A path through the kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WayPage {
    /// Share of all samples.
    pub share: String,
    /// Functions, from the leaf to the root.
    pub words: String,
}

/// The groups to show, and a summary of the others.
pub(super) fn groups_shown(report: &StacksReport) -> (Vec<GroupPage>, Option<String>) {
    let groups = groups(report);
    let large = |group: &&Group<'_>| group.samples as f64 >= SMALL_GROUP * report.samples.received as f64;
    let shown = groups.iter().take(GROUPS).take_while(large).count();
    let more = (groups.len() > shown).then(|| {
        let rest: u64 = groups[shown..].iter().map(|group| group.samples).sum();
        let rest = percent_of(rest, report.samples.received);
        format!("{rest:>8}  of {} more: --json has them all", groups.len() - shown)
    });
    (groups[..shown].iter().map(|group| group.page(report)).collect(), more)
}

/// Stacks of one owner.
struct Group<'a> {
    who: String,
    samples: u64,
    stacks: Vec<&'a StackReport>,
}

fn groups(report: &StacksReport) -> Vec<Group<'_>> {
    let mut by_owner: BTreeMap<String, Group<'_>> = BTreeMap::new();
    for stack in &report.stacks {
        let softirq = stack.vector.map_or("softirq".into(), |vector| format!("softirq {vector}"));
        let who = match stack.context {
            ContextReport::Process => stack.current.first().map_or(String::new(), |who| who.process.words()),
            ContextReport::SoftirqAfterInterrupt => format!("{softirq} after an interrupt"),
            ContextReport::SoftirqInCall => format!("{softirq} inside of system calls"),
            ContextReport::Hardirq => "interrupt handlers".into(),
        };
        let group =
            by_owner.entry(who.clone()).or_insert_with(|| Group { who, samples: 0, stacks: Vec::new() });
        group.samples += stack.samples;
        group.stacks.push(stack);
    }
    let mut groups: Vec<_> = by_owner.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.samples));
    groups
}

impl Group<'_> {
    fn page(&self, report: &StacksReport) -> GroupPage {
        let all = report.samples.received;
        let mut ways: BTreeMap<String, u64> = BTreeMap::new();
        for stack in &self.stacks {
            *ways.entry(way(stack)).or_default() += stack.samples;
        }
        let mut ways: Vec<_> = ways.into_iter().collect();
        ways.sort_by_key(|(way, samples)| (std::cmp::Reverse(*samples), way.clone()));
        let large = |(_, samples): &&(String, u64)| *samples as f64 >= SMALL * self.samples as f64;
        let shown = ways.iter().take(WAYS).take_while(large).count().max(1);
        let told =
            |(way, samples): &(String, u64)| WayPage { share: percent_of(*samples, all), words: way.clone() };
        let mut told: Vec<WayPage> = ways[..shown].iter().map(told).collect();
        if ways.len() > shown {
            let share = percent_of(ways[shown..].iter().map(|(_, samples)| samples).sum::<u64>(), all);
            told.push(WayPage { share, words: counted(ways.len() - shown, "other way") });
        }
        let words = format!("{}{}", self.who, self.particulars(report));
        GroupPage { share: percent_of(self.samples, all), words, ways: told }
    }

    /// On which CPUs, and interrupting whom.
    fn particulars(&self, report: &StacksReport) -> String {
        let mut cpus: BTreeMap<u32, u64> = BTreeMap::new();
        let mut current: BTreeMap<String, u64> = BTreeMap::new();
        for stack in &self.stacks {
            stack.cpus.iter().for_each(|cpu| *cpus.entry(cpu.cpu).or_default() += cpu.samples);
            for one in &stack.current {
                *current.entry(one.process.words()).or_default() += one.samples;
            }
        }
        let mut text = String::new();
        if report.per_cpu.len() > 1 {
            let of = |cpu: u32| {
                let counts = report.per_cpu.iter().find(|counts| counts.cpu == cpu);
                counts.map_or(0, |counts| counts.samples.received)
            };
            let mut cpus: Vec<_> = cpus.into_iter().collect();
            cpus.sort_by_key(|&(cpu, samples)| (std::cmp::Reverse(samples), cpu));
            let most: Vec<_> = cpus
                .iter()
                .take(4)
                .map(|&(cpu, samples)| format!("CPU {cpu} {}", percent_of(samples, of(cpu))))
                .collect();
            text += &format!("; of {}", most.join(", of "));
            if cpus.len() > 4 {
                text += &format!(", {} more", cpus.len() - 4);
            }
        }
        if self.stacks.iter().any(|stack| stack.context != ContextReport::Process) {
            let mut current: Vec<_> = current.into_iter().collect();
            current.sort_by_key(|(name, samples)| (std::cmp::Reverse(*samples), name.clone()));
            let most: Vec<_> = current
                .iter()
                .filter(|(_, samples)| *samples as f64 >= SMALL * self.samples as f64)
                .take(3)
                .map(|(name, samples)| format!("{name} {}", percent_of(*samples, self.samples)))
                .collect();
            if !most.is_empty() {
                text += &format!("; current: {}", most.join(", "));
            }
        }
        text
    }
}

/// Functions at the root of every system call, fault and kernel thread.
fn is_entry(function: &str) -> bool {
    matches!(
        function,
        "do_syscall_64"
            | "x64_sys_call"
            | "entry_SYSCALL_64_after_hwframe"
            | "entry_SYSCALL_64"
            | "el0_svc"
            | "do_el0_svc"
            | "el0_svc_common"
            | "el0t_64_sync"
            | "el0t_64_sync_handler"
            | "invoke_syscall"
            | "ret_from_fork"
            | "ret_from_fork_asm"
            | "kthread"
    )
}

/// Kernel path of a stack in the usual notation: `e1000_clean <- __napi_poll <- net_rx_action`.
fn way(stack: &StackReport) -> String {
    if stack.user {
        return "user mode".into();
    }
    let frames = &stack.frames[..];
    let shown = match stack.context {
        // Frames below the softirq's driver function differ from packet to packet.
        ContextReport::SoftirqAfterInterrupt | ContextReport::SoftirqInCall => {
            let actions = &frames[..frames.len().saturating_sub(1)];
            if actions.is_empty() { frames } else { &actions[actions.len().saturating_sub(3)..] }
        }
        ContextReport::Process | ContextReport::Hardirq => {
            let entries = frames.iter().rev().take_while(|frame| is_entry(frame)).count();
            let own = &frames[..frames.len() - entries];
            if own.is_empty() { frames } else { own }
        }
    };
    let mut way = shown.iter().take(FRAMES).map(String::as_str).collect::<Vec<_>>().join(" <- ");
    if shown.len() > FRAMES {
        way += " <- ...";
    }
    way
}

//! Sampled stacks in words: who used the CPUs, and through which kernel paths.

use super::page::{GroupPage, WayPage};
use super::{ContextReport, SamplesReport, StackReport, StacksReport};
use spangap_model::Cpus;
use spangap_model::duration::format_ns;
use spangap_report::figures::counted;
use spangap_report::table::aligned;
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

fn percent(part: u64, of: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / of.max(1) as f64)
}

/// Title of the report.
pub fn title(report: &StacksReport) -> String {
    let cpus = report.per_cpu.iter().map(|cpu| cpu.cpu).collect::<Cpus>();
    let mut title = format!("Kernel stacks on CPU {cpus}");
    if !report.not_pids.is_empty() {
        let names: Vec<_> = report.not_pids.iter().map(|process| process.words()).collect();
        title += &format!(" that are not of {}", names.join(", "));
    }
    title
}

/// Classification of all samples, on one line.
pub fn shares(samples: &SamplesReport) -> String {
    let share = |part| percent(part, samples.received);
    format!(
        "{} samples: application {}, idle {}, softirqs {}, hardirqs {}, other processes {}",
        samples.received,
        share(samples.application),
        share(samples.idle),
        share(samples.softirq),
        share(samples.hardirq),
        share(samples.other_processes)
    )
}

/// The report.
pub fn text(report: &StacksReport) -> String {
    let mut text = format!("{}\n{}\n\n", title(report), rate(report));
    text += &table(report);
    text += "\n";
    if report.samples.kept == 0 {
        text += "Nothing else used these CPUs.\n";
    } else {
        text += "Who had the rest, as shares of the time of all these CPUs:\n";
    }
    let (groups, more) = groups_shown(report);
    for group in &groups {
        text += &format!("{:>8}  {}\n", group.share, group.words);
        for way in &group.ways {
            text += &format!("{:>18}  {}\n", way.share, way.words);
        }
    }
    if let Some(more) = more {
        text += &more;
        text.push('\n');
    }
    text += "\n";
    for note in &report.notes {
        text += &format!("Note: {note}.\n");
    }
    text += &cost(report);
    text.push('\n');
    text
}

/// Rate, duration, and number of samples.
pub(super) fn rate(report: &StacksReport) -> String {
    format!(
        "{} samples per second and CPU for {}: {} of {} expected",
        report.hz,
        format_ns(report.duration_ns),
        report.samples.received,
        report.samples.expected
    )
}

/// The groups to show, and a summary of the others.
pub(super) fn groups_shown(report: &StacksReport) -> (Vec<GroupPage>, Option<String>) {
    let groups = groups(report);
    let large = |group: &&Group<'_>| group.samples as f64 >= SMALL_GROUP * report.samples.received as f64;
    let shown = groups.iter().take(GROUPS).take_while(large).count();
    let more = (groups.len() > shown).then(|| {
        let rest: u64 = groups[shown..].iter().map(|group| group.samples).sum();
        let rest = percent(rest, report.samples.received);
        format!("{rest:>8}  of {} more: --json has them all", groups.len() - shown)
    });
    (groups[..shown].iter().map(|group| group.page(report)).collect(), more)
}

/// Header of the table of CPUs.
pub(super) const HEAD: [&str; 7] =
    ["CPU", "samples", "application", "idle", "softirqs", "hardirqs", "other processes"];

/// Rows of the table of CPUs.
pub(super) fn rows(report: &StacksReport) -> impl Iterator<Item = [String; 7]> {
    report.per_cpu.iter().map(|cpu| {
        let share = |part| percent(part, cpu.samples.received);
        [
            cpu.cpu.to_string(),
            cpu.samples.received.to_string(),
            share(cpu.samples.application),
            share(cpu.samples.idle),
            share(cpu.samples.softirq),
            share(cpu.samples.hardirq),
            share(cpu.samples.other_processes),
        ]
    })
}

fn table(report: &StacksReport) -> String {
    let table: Vec<_> = std::iter::once(HEAD.map(String::from)).chain(rows(report)).collect();
    aligned(&table, |_| false)
}

/// Cost of the sampling.
pub(super) fn cost(report: &StacksReport) -> String {
    let reader = format_ns(report.cost.reader_ns);
    match (report.cost.sample_ns, report.cost.cpu_share) {
        (Some(ns), Some(share)) => format!(
            "Overhead: a sample takes about {} here, which is {:.2} % of each CPU; reading the samples took \
             {reader} of CPU time.",
            format_ns(ns),
            share * 100.0
        ),
        _ => format!(
            "Overhead: reading the samples took {reader} of CPU time; the cost of taking them could not be measured."
        ),
    }
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
            |(way, samples): &(String, u64)| WayPage { share: percent(*samples, all), words: way.clone() };
        let mut told: Vec<WayPage> = ways[..shown].iter().map(told).collect();
        if ways.len() > shown {
            let share = percent(ways[shown..].iter().map(|(_, samples)| samples).sum(), all);
            told.push(WayPage { share, words: counted(ways.len() - shown, "other way") });
        }
        let words = format!("{}{}", self.who, self.particulars(report));
        GroupPage { share: percent(self.samples, all), words, ways: told }
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
                .map(|&(cpu, samples)| format!("CPU {cpu} {}", percent(samples, of(cpu))))
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
                .map(|(name, samples)| format!("{name} {}", percent(*samples, self.samples)))
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

#[cfg(test)]
mod tests {
    use super::super::page::StacksPage;
    use super::super::picture;
    use super::*;
    use crate::report::flame::{CostReport, CpuReport, CpuSamples, CurrentSamples, ProcessReport};

    fn process(pid: u32, name: &str) -> ProcessReport {
        ProcessReport { pid, name: (!name.is_empty()).then(|| name.into()) }
    }

    fn stack(
        context: ContextReport,
        frames: &[&str],
        current: &[(&ProcessReport, u64)],
        cpu: u32,
    ) -> StackReport {
        let samples = current.iter().map(|(_, samples)| samples).sum();
        StackReport {
            context,
            vector: frames.contains(&"net_rx_action").then_some("NET_RX"),
            user: frames.is_empty(),
            frames: frames.iter().map(|frame| frame.to_string()).collect(),
            samples,
            share: samples as f64 / 2000.0,
            cpus: vec![CpuSamples { cpu, samples }],
            current: current
                .iter()
                .map(|&(process, samples)| CurrentSamples { process: process.clone(), samples })
                .collect(),
        }
    }

    fn report() -> StacksReport {
        let (memcached, dd, idle) = (process(812, "memcached"), process(9, "d;d"), process(0, ""));
        let after = ContextReport::SoftirqAfterInterrupt;
        let net_rx = ["napi_gro_receive", "e1000_clean", "__napi_poll", "net_rx_action", "handle_softirqs"];
        let read = ["read_zero", "vfs_read", "ksys_read", "do_syscall_64", "entry_SYSCALL_64_after_hwframe"];
        let stacks = vec![
            stack(after, &net_rx, &[(&memcached, 160), (&idle, 40)], 1),
            stack(after, &net_rx[1..], &[(&memcached, 50)], 1),
            stack(ContextReport::Process, &read, &[(&dd, 100)], 0),
            stack(ContextReport::Process, &[], &[(&dd, 50)], 0),
            stack(ContextReport::SoftirqInCall, &net_rx, &[(&memcached, 1)], 1),
        ];
        let cpu = SamplesReport { expected: 1000, received: 1000, ..SamplesReport::default() };
        let zero = SamplesReport { kept: 150, idle: 850, other_processes: 150, ..cpu };
        let one = SamplesReport { kept: 251, application: 700, idle: 49, softirq: 251, ..cpu };
        StacksReport {
            hz: 999,
            duration_ns: 1_001_001_001,
            not_pids: vec![memcached],
            samples: SamplesReport {
                expected: 2000,
                received: 2000,
                kept: 401,
                application: 700,
                idle: 899,
                softirq: 251,
                other_processes: 150,
                ..SamplesReport::default()
            },
            per_cpu: vec![CpuReport { cpu: 0, samples: zero }, CpuReport { cpu: 1, samples: one }],
            stacks,
            names_missing: None,
            cost: CostReport { sample_ns: Some(2000), cpu_share: Some(0.002), reader_ns: 1_000_000 },
            notes: vec!["a truth".into()],
        }
    }

    #[test]
    fn the_summary_names_the_driver_the_cpu_and_who_was_interrupted() {
        let text = text(&report());
        for expected in [
            "Kernel stacks on CPU 0-1 that are not of memcached (pid 812)\n999 samples per second and CPU for 1.00 s: 2000 of 2000 expected",
            "  12.5 %  softirq NET_RX after an interrupt; of CPU 1 25.0 %; current: memcached (pid 812) 84.0 %, idle 16.0 %\n            12.5 %  e1000_clean <- __napi_poll <- net_rx_action\n",
            "   7.5 %  d;d (pid 9); of CPU 0 15.0 %\n             5.0 %  read_zero <- vfs_read <- ksys_read\n             2.5 %  user mode\n",
            "   0.1 %  of 1 more: --json has them all\n",
            "Note: a truth.\n",
            "Overhead: a sample takes about 2.00 us here, which is 0.20 % of each CPU",
        ] {
            assert!(text.contains(expected), "expected {expected:?} in\n{text}");
        }
    }

    #[test]
    fn folded_lines_sum_to_the_kept_samples() {
        let report = report();
        let lines = picture::folded(&report);
        let count = |line: &String| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
        assert_eq!(lines.iter().map(count).sum::<u64>(), report.samples.kept);
        let rx = "handle_softirqs;net_rx_action;__napi_poll;e1000_clean;napi_gro_receive";
        assert!(lines.contains(&format!("NET_RX interrupting memcached (pid 812);{rx} 160")), "{lines:#?}");
        assert!(lines.contains(&format!("NET_RX in a call of memcached (pid 812);{rx} 1")));
        // A semicolon separates frames, and process names may contain any character.
        assert!(lines.contains(&"d,d (pid 9);[user mode] 50".to_string()));
    }

    #[test]
    fn the_picture_needs_no_other_file() {
        let mut report = report();
        let svg = picture::svg(&report).unwrap();
        assert!(svg.contains("net_rx_action (210 samples") && svg.contains("<script"));
        for foreign in ["src=\"http", "href=\"http", "url(http"] {
            assert!(!svg.contains(foreign), "{foreign}");
        }
        let page = StacksPage::new(&report);
        assert_eq!(page.groups[0].ways[0].words, "e1000_clean <- __napi_poll <- net_rx_action");
        assert_eq!((page.folded, page.samples), (picture::folded(&report), 2000));
        assert_eq!(page.per_cpu.rows[1], ["1", "1000", "70.0 %", "4.9 %", "25.1 %", "0.0 %", "0.0 %"]);
        report.stacks.clear();
        assert!(picture::svg(&report).unwrap().contains("nothing else used these CPUs"));
    }
}

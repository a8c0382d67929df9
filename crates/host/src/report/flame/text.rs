//! Sampled stacks in words: who used the CPUs, and through which kernel paths.

use super::groups::groups_shown;
use super::{SamplesReport, StacksReport};
use spangap_model::Cpus;
use spangap_model::duration::format_ns;
use spangap_report::figures::{percent_of, small_percent};
use spangap_report::table::aligned;

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
    let share = |part| percent_of(part, samples.received.max(1));
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

/// Header of the table of CPUs.
pub(super) const HEAD: [&str; 7] =
    ["CPU", "samples", "application", "idle", "softirqs", "hardirqs", "other processes"];

/// Rows of the table of CPUs.
pub(super) fn rows(report: &StacksReport) -> impl Iterator<Item = [String; 7]> {
    report.per_cpu.iter().map(|cpu| {
        let share = |part| percent_of(part, cpu.samples.received.max(1));
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
            "Overhead: a sample takes about {} here, which is {} of each CPU; reading the samples took \
             {reader} of CPU time.",
            format_ns(ns),
            small_percent(share)
        ),
        _ => format!(
            "Overhead: reading the samples took {reader} of CPU time; the cost of taking them could not be measured."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::StacksPage;
    use super::super::picture;
    use super::*;
    use crate::report::flame::{
        ContextReport, CostReport, CpuReport, CpuSamples, CurrentSamples, ProcessReport, StackReport,
    };

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
            "    12 %  softirq NET_RX after an interrupt; of CPU 1 25 %; current: memcached (pid 812) 84 %, idle 16 %\n              12 %  e1000_clean <- __napi_poll <- net_rx_action\n",
            "   7.5 %  d;d (pid 9); of CPU 0 15 %\n             5.0 %  read_zero <- vfs_read <- ksys_read\n             2.5 %  user mode\n",
            "   0.1 %  of 1 more: --json has them all\n",
            "Note: a truth.\n",
            "Overhead: a sample takes about 2.00 us here, which is 0.2 % of each CPU",
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
        assert_eq!(page.per_cpu.rows[1], ["1", "1000", "70 %", "4.9 %", "25 %", "0.0 %", "0.0 %"]);
        report.stacks.clear();
        assert!(picture::svg(&report).unwrap().contains("nothing else used these CPUs"));
    }
}

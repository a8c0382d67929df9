//! Why threads slept and what woke them: JSON shape, conclusions, table.

use super::wait_times::Waits;
use crate::probes::cost::Cost;
use crate::probes::offcpu::{Histogram, Open};
use crate::waits::{SleepingThreads, WaitSum};
use serde::Serialize;
use spangap_model::duration::format_ns;
use spangap_model::{WaitClass, WaitReason};
use spangap_report::figures::{counted, percent};
use spangap_report::wrap::{COLUMNS, wrap};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Waits that delayed work are worth mention from this share of the measurement on ...
const SHARE: u64 = 100;
/// ... or if a single one lasted this long, in nanoseconds.
const AT_ONCE_NS: u64 = 10_000_000;
/// Maximum number of rows shown; the JSON has all.
const ROWS: usize = 15;

/// Why threads slept.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReasonsReport {
    /// Completed sleeps by reason and waker: those that delayed work first, idle waiting last.
    pub waits: Vec<ReasonReport>,
    /// Threads that were asleep at the end.
    pub asleep: Vec<AsleepReport>,
    /// What delayed work, and for whom the target mostly waited.
    pub conclusions: Vec<String>,
    /// Lost events: unobserved sleeps.
    pub lost: u64,
    /// Overhead of recording the reasons.
    pub cost: Option<Cost>,
    /// What this kernel cannot report, and other limitations.
    pub notes: Vec<String>,
}

/// Sleeps of one reason that one waker ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReasonReport {
    pub reason: &'static str,
    /// `held-up`, `handover`, `idle` or `unknown`.
    pub class: &'static str,
    /// Whether it is a problem worth mention.
    pub worth_mention: bool,
    /// The kernel function that shows the reason.
    pub function: Option<String>,
    /// `S`, or `D` for an uninterruptible sleep.
    pub state: char,
    /// Waker; `None` if it was not observed.
    pub waker: Option<String>,
    /// Count and durations.
    #[serde(flatten)]
    pub waits: Waits,
}

/// Threads asleep at the end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AsleepReport {
    pub reason: &'static str,
    /// The kernel function that shows it.
    pub function: Option<String>,
    /// Letter of their state.
    pub state: char,
    pub threads: u64,
}

impl ReasonsReport {
    /// Summarises the sleeps of a measurement of `duration_ns`.
    pub fn new(
        sums: &[WaitSum],
        asleep: &[SleepingThreads],
        duration_ns: u64,
        lost: u64,
        cost: Option<Cost>,
        notes: Vec<String>,
    ) -> ReasonsReport {
        let mut held: BTreeMap<WaitReason, Histogram> = BTreeMap::new();
        for sum in sums.iter().filter(|sum| sum.reason.class() == WaitClass::HeldUp) {
            held.entry(sum.reason).or_default().add(&sum.histogram);
        }
        held.retain(|_, all| all.sum_ns >= duration_ns / SHARE || all.max_ns >= AT_ONCE_NS);
        let mut sums: Vec<&WaitSum> = sums.iter().collect();
        sums.sort_by_key(|sum| (rank(sum, &held), Reverse(sum.histogram.sum_ns)));
        let row = |sum: &&WaitSum| ReasonReport {
            reason: sum.reason.name(),
            class: sum.reason.class().name(),
            worth_mention: held.contains_key(&sum.reason),
            function: sum.function.clone(),
            state: if sum.uninterruptible { 'D' } else { 'S' },
            waker: sum.waker.clone(),
            waits: Waits::new(&sum.histogram, Open::default()),
        };
        let mut still_held_up: BTreeMap<WaitReason, u64> = BTreeMap::new();
        for one in asleep.iter().filter(|one| one.reason.class() == WaitClass::HeldUp) {
            *still_held_up.entry(one.reason).or_default() += one.threads;
        }
        let asleep = asleep.iter().map(|one| AsleepReport {
            reason: one.reason.name(),
            function: one.function.clone(),
            state: one.state,
            threads: one.threads,
        });
        ReasonsReport {
            waits: sums.iter().map(row).collect(),
            asleep: asleep.collect(),
            conclusions: conclusions(&sums, &held, still_held_up, duration_ns),
            lost,
            cost,
            notes,
        }
    }
}

fn rank(sum: &WaitSum, held: &BTreeMap<WaitReason, Histogram>) -> u8 {
    match sum.reason.class() {
        WaitClass::HeldUp if held.contains_key(&sum.reason) => 0,
        WaitClass::HeldUp | WaitClass::Handover | WaitClass::Unknown => 1,
        WaitClass::Idle => 2,
    }
}

fn conclusions(
    sums: &[&WaitSum],
    held: &BTreeMap<WaitReason, Histogram>,
    still_held_up: BTreeMap<WaitReason, u64>,
    duration_ns: u64,
) -> Vec<String> {
    let mut said = Vec::new();
    let mut by_time: Vec<(&WaitReason, &Histogram)> = held.iter().collect();
    by_time.sort_by_key(|(_, all)| Reverse(all.sum_ns));
    for (reason, all) in by_time {
        said.push(format!(
            "{reason}: its threads waited {} for {}, {}{}.",
            format_ns(all.sum_ns),
            reason.words(),
            times(all),
            woken_by(sums.iter().filter(|sum| sum.reason == *reason).copied(), all)
        ));
    }
    // A wait that has not ended is in no sum, however long it lasts.
    for (reason, threads) in still_held_up.into_iter().filter(|(reason, _)| !held.contains_key(reason)) {
        said.push(format!(
            "{reason}: at the end {} still waited for {}; how long is not known.",
            if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") },
            reason.words()
        ));
    }
    if said.is_empty() {
        said.push("none: nothing held up its threads.".into());
    }
    let handovers = sums.iter().filter(|sum| sum.reason.class() == WaitClass::Handover);
    let most = handovers.max_by_key(|sum| sum.histogram.sum_ns);
    if let Some(most) = most.filter(|most| most.histogram.sum_ns >= duration_ns / SHARE) {
        let all = &most.histogram;
        said.push(format!(
            "Most of its waiting for others was for {}: {}, {}{}. This does not show whether the other was slow or \
             had nothing to hand over.",
            most.reason.words(),
            format_ns(all.sum_ns),
            times(all),
            woken_by([*most].into_iter(), all)
        ));
    }
    said
}

fn times(all: &Histogram) -> String {
    match all.count() {
        1 => "once".into(),
        count => format!("{count} times, {} in the longest", format_ns(all.max_ns)),
    }
}

/// The waker that ended most of it.
fn woken_by<'a>(sums: impl Iterator<Item = &'a WaitSum>, all: &Histogram) -> String {
    let most = sums.filter(|sum| sum.waker.is_some()).max_by_key(|sum| sum.histogram.sum_ns);
    let Some((most, waker)) = most.and_then(|most| Some((most, most.waker.as_ref()?))) else {
        return String::new();
    };
    let share = percent(most.histogram.sum_ns as f64 / all.sum_ns.max(1) as f64);
    format!("; {share} of that ended when {waker} woke {}", if all.count() == 1 { "it" } else { "them" })
}

/// Table and conclusions for a terminal.
pub fn text(report: &ReasonsReport) -> String {
    let mut out = String::from("\nwhy its threads slept, and who woke them\n");
    let _ = writeln!(
        out,
        "  {:<15}{:>2}{:>9}{:>10}{:>10}{:>10}{:>10}  {:<24} woken by",
        "", "", "sleeps", "total", "p50", "p99", "max", "in"
    );
    for row in report.waits.iter().take(ROWS) {
        let (p50, p99) = row.waits.quantiles.map_or((0, 0), |at| (at.p50_ns, at.p99_ns));
        let _ = writeln!(
            out,
            "  {:<15}{:>2}{:>9}{:>10}{:>10}{:>10}{:>10}  {:<24} {}",
            row.reason,
            row.state,
            row.waits.count,
            format_ns(row.waits.sum_ns),
            format_ns(p50),
            format_ns(p99),
            format_ns(row.waits.max_ns),
            row.function.as_deref().unwrap_or("-"),
            row.waker.as_deref().unwrap_or("not seen")
        );
    }
    if report.waits.is_empty() {
        out += "  no thread was woken\n";
    }
    if report.waits.len() > ROWS {
        let _ = writeln!(out, "  and {} more; --json has them", report.waits.len() - ROWS);
    }
    for one in &report.asleep {
        let threads = counted(one.threads, "thread");
        let _ = writeln!(
            out,
            "  asleep at the end: {threads} in {} ({}, state {})",
            one.reason,
            one.function.as_deref().unwrap_or("not known where"),
            one.state
        );
    }
    for words in &report.conclusions {
        wrap(&mut out, "  ", words, COLUMNS);
    }
    for note in &report.notes {
        wrap(&mut out, "  ", &format!("Note: {note}."), COLUMNS);
    }
    if report.lost > 0 {
        let _ = writeln!(out, "  {} events were lost: those sleeps are not counted here", report.lost);
    }
    if let Some(cost) = &report.cost {
        let _ = writeln!(out, "  overhead of the reasons: {cost}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(reason: WaitReason, waker: &str, ns: u64, times: u64) -> WaitSum {
        let mut histogram = Histogram::default();
        (0..times).for_each(|_| histogram.record(ns));
        WaitSum { reason, function: None, uninterruptible: false, waker: Some(waker.into()), histogram }
    }

    fn report(sums: &[WaitSum]) -> ReasonsReport {
        ReasonsReport::new(sums, &[], 1_000_000_000, 0, None, Vec::new())
    }

    #[test]
    fn delays_come_first_and_idle_waiting_last() {
        let report = report(&[
            sum(WaitReason::Poll, "timer", 900_000, 1000),
            sum(WaitReason::PipeRead, "cat (pid 5)", 400_000, 1000),
            sum(WaitReason::Lock, "db (pid 7, thread 8)", 200_000, 100),
            sum(WaitReason::KernelLock, "db (pid 7)", 3_000, 1),
        ]);
        let order: Vec<&str> = report.waits.iter().map(|row| row.reason).collect();
        assert_eq!(order, ["lock", "pipe-read", "kernel-lock", "poll"]);
        assert!(report.waits[0].worth_mention && !report.waits[2].worth_mention);
        let words = &report.conclusions[0];
        assert!(
            words.starts_with("lock: its threads waited 20.0 ms for a mutex")
                && words.contains("db (pid 7, thread 8)"),
            "{words}"
        );
        assert!(report.conclusions[1].contains("data in a pipe"), "{:?}", report.conclusions);
        assert!(text(&report).contains("cat (pid 5)"));
    }

    #[test]
    fn a_wait_that_has_not_ended_is_not_nothing() {
        let asleep = |reason, threads| SleepingThreads { reason, function: None, state: 'T', threads };
        let asleep =
            [asleep(WaitReason::Stopped, 3), asleep(WaitReason::Poll, 1), asleep(WaitReason::Stopped, 1)];
        let report = ReasonsReport::new(&[], &asleep, 1_000_000_000, 0, None, Vec::new());
        assert_eq!(
            report.conclusions,
            [
                "stopped: at the end 4 threads still waited for SIGCONT, after a stop signal; how long is not known."
            ]
        );
    }

    #[test]
    fn waiting_for_work_is_not_a_delay() {
        let report = report(&[
            sum(WaitReason::Poll, "NET_RX on an idle CPU", 900_000, 1000),
            sum(WaitReason::Sleep, "timer", 900_000, 1000),
            sum(WaitReason::Fsync, "jbd2 (pid 4)", 100_000, 3),
        ]);
        assert_eq!(report.conclusions, ["none: nothing held up its threads."]);
        assert!(report.waits.iter().all(|row| !row.worth_mention));
    }
}

//! Saturated CPUs: the client's, the target's, or all that both share.
//!
//! Look-alikes: a target that happens to use about one CPU while something else is the limit. So the target is
//! named only if throughput and the target's CPU both stagnate over a doubled load, and the client has CPU
//! left.

use super::{RunFinding, Runs, Standing};
use crate::contract::Stack;
use crate::report::Run;
use crate::report::fields::{Load, rounded};
use spangap_model::cause::{Cause, Side};

/// Share of its CPUs from which on a process has none left.
const FULL: f64 = 0.95;
/// Share of its CPUs below which a process has some left.
const SPARE: f64 = 0.85;
/// CPU usage of a process with one busy thread.
const ONE: std::ops::RangeInclusive<f64> = 0.95..=1.05;
/// Throughput that grows by less than this over a doubled load stagnates.
const STILL: f64 = 1.1;

/// CPUs that the client may use.
fn capacity(run: &Run, cpus: u32) -> f64 {
    let threads = match run.asked.stack {
        Stack::CppSync => run.asked.inflight.unwrap_or(u32::MAX),
        _ => run.asked.threads,
    };
    f64::from(threads.min(cpus.max(1)))
}

/// Average number of CPUs used.
fn used(run: &Run, cpu_s: f64) -> Option<f64> {
    // The shortest runs have too few ticks of CPU time for a quotient.
    (run.duration_s >= 0.2).then(|| cpu_s / run.duration_s)
}

pub(super) fn find(all: &Runs<'_>, cpus: u32) -> Vec<RunFinding> {
    [client(all, cpus), target(all, cpus), both(all, cpus)].into_iter().flatten().collect()
}

fn finding(side: Option<Side>, says: String, rests_on: Vec<String>, cleared_by: &str) -> RunFinding {
    let cause = Cause::CpuSaturated;
    RunFinding { cause, side, standing: Standing::Shown, says, rests_on, cleared_by: cleared_by.into() }
}

fn client(all: &Runs<'_>, cpus: u32) -> Option<RunFinding> {
    let share = |run: &Run| used(run, run.cpu_client_s).map(|used| used / capacity(run, cpus));
    let full: Vec<&Run> =
        all.runs.iter().filter(|run| run.ok > 0 && share(run).is_some_and(|share| share >= FULL)).collect();
    let most = *full.iter().max_by(|a, b| a.throughput_per_s.total_cmp(&b.throughput_per_s))?;
    let count = capacity(most, cpus);
    let line = |run: &&Run| {
        let used = used(run, run.cpu_client_s).unwrap_or(0.0);
        format!(
            "{}: {used:.2} of {count} CPUs, {}/s",
            all.name(run),
            rounded(run.throughput_per_s),
            count = capacity(run, cpus)
        )
    };
    Some(finding(
        Some(Side::Client),
        format!(
            "The client's CPU is the limit in {} of {} runs: it uses all {count} CPU{} available to it, so {}/s at \
             {} is what this client can make, not what the target can take.",
            full.len(),
            all.runs.len(),
            if count == 1.0 { "" } else { "s" },
            rounded(most.throughput_per_s),
            Load::of(&most.asked)
        ),
        full.iter().map(line).collect(),
        "no more throughput with more --threads, or with a second tank next to this one",
    ))
}

fn target(all: &Runs<'_>, cpus: u32) -> Option<RunFinding> {
    let of_target = |run: &Run| run.cpu_target_s.and_then(|cpu_s| used(run, cpu_s));
    let spare =
        |run: &Run| used(run, run.cpu_client_s).is_some_and(|used| used < SPARE * capacity(run, cpus));
    let busy = |run: &&&Run| {
        run.asked.inflight.is_some() && of_target(run).is_some_and(|used| ONE.contains(&used)) && spare(run)
    };
    all.alike(None).iter().find_map(|sweep| {
        let mut busy: Vec<&Run> = sweep.iter().filter(busy).copied().collect();
        busy.sort_by_key(|run| run.asked.inflight);
        let (first, last) = (*busy.first()?, *busy.last()?);
        let doubled = last.asked.inflight? >= 2 * first.asked.inflight?;
        if !doubled || last.throughput_per_s > first.throughput_per_s * STILL {
            return None;
        }
        let line = |run: &&Run| {
            format!("{}: target {:.2} CPUs, {}/s", all.name(run), of_target(run).unwrap_or(0.0), rounded(run.throughput_per_s))
        };
        Some(finding(
            Some(Side::Server),
            format!(
                "The target's CPU is the limit: from {} to {} throughput stays at {}/s while the target uses one \
                 whole CPU.",
                Load::of(&first.asked),
                Load::of(&last.asked),
                rounded(last.throughput_per_s)
            ),
            busy.iter().map(line).collect(),
            "no more throughput with a target of more threads (`spangap target --threads 2`)",
        ))
    })
}

fn both(all: &Runs<'_>, cpus: u32) -> Option<RunFinding> {
    let sum = |run: &Run| used(run, run.cpu_client_s + run.cpu_target_s?);
    let shared =
        |run: &&Run| run.on_this_host() && sum(run).is_some_and(|sum| sum >= FULL * f64::from(cpus.max(1)));
    let full: Vec<&Run> = all.runs.iter().filter(shared).collect();
    let most = *full.iter().max_by(|a, b| a.throughput_per_s.total_cmp(&b.throughput_per_s))?;
    Some(finding(
        None,
        format!(
            "Client and target together use all {cpus} CPUs of this host in {} of {} runs: {}/s at {} is the \
             machine's limit, and any CPU that one of them gains the other loses.",
            full.len(),
            all.runs.len(),
            rounded(most.throughput_per_s),
            Load::of(&most.asked)
        ),
        full.iter()
            .map(|run| format!("{}: {:.2} of {cpus} CPUs", all.name(run), sum(run).unwrap_or(0.0)))
            .collect(),
        "no more throughput with the target on another machine",
    ))
}

//! Nagle's algorithm against delayed ACKs: calls take 40 ms at low rates, and less at high ones.
//!
//! Look-alikes: a handler or a path that takes 40 ms by itself (at every rate, and with TCP_NODELAY as well),
//! idle CPUs (the raw floor shows them, as tenths of a millisecond), a service that is slow only when called
//! rarely. So only runs that differ in TCP_NODELAY alone, as shown by the kernel, are proof.

use super::{RunFinding, Runs, Standing, from_send, interval_of, median_in_words, nodelay};
use crate::report::Run;
use crate::report::fields::{Field, Load};
use spangap_model::cause::{Cause, Side};
use spangap_model::duration::format_ns;
use spangap_report::figures::percent;

/// Delay of an ACK in Linux: 40 ms and up to a few timer ticks, plus the call's own time.
const HELD_NS: std::ops::RangeInclusive<u64> = 38_000_000..=60_000_000;
/// Share of calls in that band from which on the typical call is delayed.
const TYPICAL: f64 = 0.3;
/// Calls per second and connection from which on none waits for a full delayed ACK.
const OFTEN_PER_S: f64 = 100.0;
/// Ratio up to which a median counts as lower than another.
const FALLEN: f64 = 0.5;

pub(super) fn find(all: &Runs<'_>) -> Vec<RunFinding> {
    let sweeps = all.alike(None);
    let mut found = Vec::new();
    for group in all.alike(Some(Field::Nodelay)) {
        if let Some(proof) = experiment(all, &group) {
            found.push(proof);
            continue;
        }
        if refuted(&group) {
            continue;
        }
        let own = sweeps
            .iter()
            .filter(|sweep| sweep.iter().any(|run| group.iter().any(|one| std::ptr::eq(*one, *run))));
        found.extend(own.filter_map(|sweep| over_rates(all, sweep).or_else(|| alone(all, sweep))));
    }
    found
}

/// Whether calls with TCP_NODELAY take as long, at a load that delays those without it.
fn refuted(group: &[&Run]) -> bool {
    let held = |on: bool| group.iter().filter(move |run| nodelay(run) == Some(on) && is_held(run));
    held(true).any(|on| held(false).any(|off| Load::of(&off.asked) == Load::of(&on.asked)))
}

/// Whether calls are so frequent on each connection that one of them carries the ACK that another waits for.
fn too_often_to_wait(run: &Run) -> bool {
    let connections = run.connections.unwrap_or(1).max(1) as f64;
    run.asked.rate_per_s.is_some_and(|rate| rate / connections >= OFTEN_PER_S)
}

/// Share of calls that took at least as long as a delayed ACK, from their send.
fn held_share(run: &Run) -> f64 {
    let spectrum = from_send(run).iter();
    let mut held = spectrum.filter(|(_, ns)| HELD_NS.contains(ns)).map(|(quantile, _)| *quantile);
    let first = held.next();
    first.zip(held.next_back()).map_or(0.0, |(first, last)| last - first)
}

/// Whether the typical call is delayed, and neither the path to the target nor the requested settings explain
/// it.
fn is_held(run: &Run) -> bool {
    held_share(run) >= TYPICAL && !is_slow_by_itself(run)
}

/// Whether the path to the target, or the requested settings, take about as long as a delayed ACK.
fn is_slow_by_itself(run: &Run) -> bool {
    let own_ns = HELD_NS.start() / 2;
    run.asked.think_ns.is_some_and(|ns| ns > own_ns)
        || run.sockets.as_ref().and_then(|sockets| sockets.min_rtt_ns).is_some_and(|ns| ns > own_ns)
        || run.floor.as_ref().and_then(|floor| floor.latency.p50_ns).is_some_and(|ns| ns > own_ns)
}

/// Whether one median is at most half of the other, with disjoint intervals.
fn fell(from: &Run, to: &Run) -> bool {
    let (Some(before), Some(after)) = (from.latency_from_send.p50_ns, to.latency_from_send.p50_ns) else {
        return false;
    };
    let (Some((low, _)), Some((_, high))) =
        (interval_of(from, from_send(from)), interval_of(to, from_send(to)))
    else {
        return false;
    };
    after as f64 <= before as f64 * FALLEN && high < low
}

fn finding(
    side: Side,
    standing: Standing,
    says: String,
    rests_on: Vec<String>,
    cleared_by: String,
) -> RunFinding {
    let cause = Cause::NagleDelayedAck;
    RunFinding { cause, side: Some(side), standing, says, rests_on, cleared_by }
}

fn line(all: &Runs<'_>, run: &Run) -> String {
    let sockets = run.sockets.as_ref();
    let count = |count: Option<u64>| count.map_or_else(|| "unknown".into(), |count| count.to_string());
    format!(
        "{}: {}; {} of calls took {} to {}; TCP_NODELAY on {} of the sockets, off {}",
        all.name(run),
        median_in_words(run),
        percent(held_share(run)),
        format_ns(*HELD_NS.start()),
        format_ns(*HELD_NS.end()),
        count(sockets.and_then(|sockets| sockets.nodelay_on)),
        count(sockets.and_then(|sockets| sockets.nodelay_off))
    )
}

/// Off against on at the same load, all else equal: an experiment.
fn experiment(all: &Runs<'_>, group: &[&Run]) -> Option<RunFinding> {
    let at = |on: bool, load: Load| -> Vec<&Run> {
        let same = group.iter().copied().filter(|run| Load::of(&run.asked) == load);
        same.filter(|run| nodelay(run) == Some(on)).collect()
    };
    let shows = |load: Load| {
        let (off, on) = (at(false, load), at(true, load));
        let every = off
            .iter()
            .all(|off| is_held(off) && on.iter().all(|on| fell(off, on) && held_share(on) < TYPICAL / 3.0));
        (!off.is_empty() && !on.is_empty() && every).then_some((off, on))
    };
    let mut loads: Vec<Load> = group.iter().map(|run| Load::of(&run.asked)).collect();
    loads.sort_by(|a, b| a.value().total_cmp(&b.value()));
    let (off, on) = loads.into_iter().find_map(shows)?;
    let rests_on: Vec<String> = off.iter().chain(&on).map(|run| line(all, run)).collect();
    let says = format!(
        "Nagle's algorithm and delayed ACKs hold the calls up: at {} p50 is {} without TCP_NODELAY and {} with it, all else equal.",
        Load::of(&off[0].asked),
        off[0].latency_from_send.p50_ns.map_or_else(String::new, format_ns),
        on[0].latency_from_send.p50_ns.map_or_else(String::new, format_ns)
    );
    let cleared_by = "a repetition (--repeat) in which the runs with TCP_NODELAY are as slow".to_owned();
    Some(finding(Side::Client, Standing::Shown, says, rests_on, cleared_by))
}

/// The signature over a sweep: delayed at a low rate, less so at a higher one.
fn over_rates(all: &Runs<'_>, sweep: &[&Run]) -> Option<RunFinding> {
    let rate = |run: &Run| run.asked.rate_per_s;
    let low = sweep.iter().copied().filter(|run| rate(run).is_some() && is_held(run));
    let low = low.min_by(|a, b| rate(a).unwrap_or(0.0).total_cmp(&rate(b).unwrap_or(0.0)))?;
    let higher = sweep.iter().copied().filter(|run| rate(run) > rate(low));
    let fallen = higher.filter(|run| fell(low, run)).min_by_key(|run| run.latency_from_send.p50_ns)?;
    let on = nodelay(low)?;
    let rests_on = vec![line(all, low), line(all, fallen)];
    let p50 = |run: &Run| run.latency_from_send.p50_ns.map_or_else(String::new, format_ns);
    let falls = format!(
        "p50 falls from {} at {} to {} at {}",
        p50(low),
        Load::of(&low.asked),
        p50(fallen),
        Load::of(&fallen.asked)
    );
    Some(match on {
        false => finding(
            Side::Client,
            Standing::Possible,
            format!(
                "Nagle's algorithm and delayed ACKs hold the calls up: the client's sockets lack TCP_NODELAY, the typical \
                 call takes as long as Linux delays an ACK, and {falls}. Only a service that is itself slow when \
                 called rarely would look the same."
            ),
            rests_on,
            "the same sweep with --nodelay default,on: if it is as slow with TCP_NODELAY, the cause is something \
             else".into(),
        ),
        true => finding(
            Side::Server,
            Standing::Possible,
            format!(
                "A delayed ACK seems to hold the calls up, although the client's sockets have TCP_NODELAY: {falls}. \
                 The target's sockets may lack it."
            ),
            rests_on,
            "`spangap sockets list` on the target's host shows TCP_NODELAY on, or `spangap dissect` shows no held segment".into(),
        ),
    })
}

/// A single load: calls take as long as a delayed ACK and the sockets lack TCP_NODELAY; a handler that takes 40
/// ms looks the same.
fn alone(all: &Runs<'_>, sweep: &[&Run]) -> Option<RunFinding> {
    if sweep.iter().any(|run| is_held(run) && too_often_to_wait(run)) {
        return None;
    }
    let run = sweep
        .iter()
        .copied()
        .find(|run| run.ok >= super::FEW && is_held(run) && nodelay(run) == Some(false))?;
    let says = format!(
        "The typical call takes {}, as long as Linux delays an ACK, and the client's sockets lack TCP_NODELAY: Nagle's \
         algorithm may hold the calls up, or the target takes that long.",
        run.latency_from_send.p50_ns.map_or_else(String::new, format_ns)
    );
    let cleared_by = "the same with --nodelay default,on or over --rate 10,100,1000: if it is as slow, the cause is something \
         else";
    Some(finding(Side::Client, Standing::Possible, says, vec![line(all, run)], cleared_by.into()))
}

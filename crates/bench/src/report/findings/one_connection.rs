//! The ceiling of one connection: throughput stops growing with calls in flight, but grows with more
//! connections.
//!
//! Look-alikes: a drift of the machine between runs (so several pairs of runs are required, all must agree, and
//! they must alternate), and the stream limit (such runs are left out).

use super::{RunFinding, Runs, Standing};
use crate::report::Run;
use crate::report::fields::{Field, rounded};
use spangap_model::cause::Cause;
use spangap_report::figures::counted;

/// Minimum ratio of throughputs in every pair of runs.
const MORE: f64 = 1.1;
/// Growth below this share of proportional growth means that a connection has reached its ceiling.
const PROPORTION: f64 = 0.6;
/// Minimum number of pairs of runs: one or two agree by chance.
const FEW_PAIRS: usize = 3;
/// Number of pairs that must agree for a proof. Without a difference, five agree with a probability of 1/32.
const PAIRS: usize = 5;

fn inflight(run: &Run) -> f64 {
    f64::from(run.asked.inflight.unwrap_or(0))
}

fn waits_for_streams(run: &Run) -> bool {
    run.streams.as_ref().and_then(|streams| streams.queued_by_limit).is_some_and(|queued| queued > 0)
}

/// Whether both kinds of run overlap in time.
fn took_turns(one: &[&Run], other: &[&Run]) -> bool {
    let span = |runs: &[&Run]| {
        let starts: Option<Vec<u64>> = runs.iter().map(|run| run.start_unix_ns).collect();
        let starts = starts?;
        Some((*starts.iter().min()?, *starts.iter().max()?))
    };
    let (Some((one_first, one_last)), Some((other_first, other_last))) = (span(one), span(other)) else {
        return false;
    };
    one_first < other_last && other_first < one_last
}

pub(super) fn find(all: &Runs<'_>) -> Vec<RunFinding> {
    all.alike(Some(Field::Channels)).iter().filter_map(|group| of_group(all, group)).collect()
}

fn of_group(all: &Runs<'_>, group: &[&Run]) -> Option<RunFinding> {
    let closed =
        || group.iter().copied().filter(|run| run.asked.inflight.is_some() && run.throughput_per_s > 0.0);
    let one: Vec<&Run> =
        closed().filter(|run| run.connections == Some(1) && !waits_for_streams(run)).collect();
    let smallest = *one.iter().min_by(|a, b| inflight(a).total_cmp(&inflight(b)))?;
    let largest = *one.iter().max_by(|a, b| inflight(a).total_cmp(&inflight(b)))?;
    // Growth up to the largest load, as a share of growth proportional to the calls in flight.
    let grown =
        |from: &Run| largest.throughput_per_s / from.throughput_per_s * inflight(from) / inflight(largest);
    // A ceiling is at the end of a sweep: proportional growth there rules it out, whatever came before.
    let until_quarter = one.iter().copied().filter(|run| inflight(run) * 4.0 <= inflight(largest));
    let quarter = until_quarter.max_by(|a, b| inflight(a).total_cmp(&inflight(b)))?;
    if grown(smallest) > PROPORTION || grown(quarter) > PROPORTION {
        return None;
    }
    // Loads of at least a quarter of the largest, where the ceiling matters.
    let bears = |run: &&Run| inflight(run) > inflight(smallest) && inflight(run) * 4.0 >= inflight(largest);
    let more: Vec<&Run> = closed()
        .filter(|run| run.connections.is_some_and(|n| n > 1) && run.channels_made > 1)
        .filter(bears)
        .collect();
    let pairs = |with: &Run| -> Vec<f64> {
        let same = one.iter().filter(|alone| alone.asked.inflight == with.asked.inflight);
        same.map(|alone| with.throughput_per_s / alone.throughput_per_s).collect()
    };
    // Of the ways to use more connections, the one with the best worst pair.
    let mut best: Option<(Vec<&Run>, Vec<f64>, f64)> = None;
    for channels in Vec::from_iter(more.iter().map(|run| run.asked.channels)) {
        let runs: Vec<&Run> = more.iter().copied().filter(|run| run.asked.channels == channels).collect();
        let ratios: Vec<f64> = runs.iter().flat_map(|run| pairs(run)).collect();
        let worst = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        if !ratios.is_empty() && best.as_ref().is_none_or(|(_, _, known)| worst > *known) {
            best = Some((runs, ratios, worst));
        }
    }
    let (with, ratios, low) = best?;
    let high = ratios.iter().copied().fold(0.0, f64::max);
    if low < MORE || ratios.len() < FEW_PAIRS {
        return None;
    }
    let proven = ratios.len() >= PAIRS && took_turns(&one, &with);
    let standing = if proven { Standing::Shown } else { Standing::Possible };
    let line = |run: &&Run| {
        format!(
            "{}: {}/s over {} connections",
            all.name(run),
            rounded(run.throughput_per_s),
            run.connections.unwrap_or(0)
        )
    };
    let top = with.iter().max_by(|a, b| inflight(a).total_cmp(&inflight(b)))?;
    Some(RunFinding {
        cause: Cause::SharedConnection,
        side: None,
        standing,
        says: format!(
            "One connection is the limit: from {} to {} calls in flight it gives {:.1} times the throughput, and {} connections \
             carry {low:.2} to {high:.2} times as much as one{}.",
            inflight(smallest),
            inflight(largest),
            largest.throughput_per_s / smallest.throughput_per_s,
            top.connections.unwrap_or(0),
            match standing {
                Standing::Shown => format!(" in all of {} pairs of runs", ratios.len()),
                Standing::Possible => format!(
                    "; {} of runs that did not alternate often enough to rule out drift of the machine",
                    counted(ratios.len(), "pair")
                ),
            }
        ),
        rests_on: one
            .iter()
            .filter(|run| bears(run) || std::ptr::eq(**run, smallest))
            .chain(&with)
            .map(line)
            .collect(),
        cleared_by: "with --repeat 5, runs in which one connection carries as much as several".into(),
    })
}

//! Calls at low rates are slower because the machine idles in between: the raw floor has the same delay.
//!
//! Look-alikes: Nagle's algorithm, which the floor (TCP_NODELAY set, one write) does not have; and a machine
//! that was busy during the low rates, which nothing here excludes.

use super::{RunFinding, Runs, Standing, median_in_words, median_interval};
use crate::report::Run;
use crate::report::fields::Load;
use spangap_model::cause::Cause;
use spangap_model::duration::format_ns;

/// A median at a low rate counts as higher from this ratio on.
const HIGHER: f64 = 1.5;
/// Share of the run's extra delay that the floor must show as well.
const EXPLAINED: f64 = 0.5;

/// Median of the run's floor, if valid: not above the run.
fn floor_ns(run: &Run) -> Option<u64> {
    let floor = run.floor.as_ref().filter(|floor| floor.calls >= super::FEW)?;
    floor.latency.p50_ns.filter(|ns| run.latency.p50_ns.is_some_and(|p50| *ns <= p50))
}

pub(super) fn find(all: &Runs<'_>) -> Option<RunFinding> {
    all.alike(None).iter().find_map(|sweep| {
        let mut by_rate: Vec<&Run> = sweep.iter().copied().filter(|run| run.asked.rate_per_s.is_some()).collect();
        by_rate.sort_by(|a, b| a.asked.rate_per_s.unwrap_or(0.0).total_cmp(&b.asked.rate_per_s.unwrap_or(0.0)));
        let low = by_rate.iter().copied().find(|run| median_interval(run).is_some() && floor_ns(run).is_some())?;
        let higher = by_rate.iter().copied().filter(|run| run.asked.rate_per_s > low.asked.rate_per_s);
        let best = higher.filter(|run| floor_ns(run).is_some()).min_by_key(|run| run.latency.p50_ns)?;
        let ((slow, _), (_, fast)) = (median_interval(low)?, median_interval(best)?);
        let (run_low, run_best) = (low.latency.p50_ns? as f64, best.latency.p50_ns? as f64);
        let (floor_low, floor_best) = (floor_ns(low)? as f64, floor_ns(best)? as f64);
        let rises = slow > fast && run_low >= HIGHER * run_best && floor_low >= HIGHER * floor_best;
        if !rises || floor_low - floor_best < EXPLAINED * (run_low - run_best) {
            return None;
        }
        let line = |run: &Run, floor: f64| {
            format!("{}: {}; raw floor p50 {}", all.name(run), median_in_words(run), format_ns(floor as u64))
        };
        Some(RunFinding {
            cause: Cause::IdleWake,
            side: None,
            standing: Standing::Possible,
            says: format!(
                "Calls at {} take longer than at {} ({} against {}), and so does raw ping-pong: it is the machine, \
                 not the stack. CPUs that idle between calls and have to wake up cause that.",
                Load::of(&low.asked),
                Load::of(&best.asked),
                format_ns(run_low as u64),
                format_ns(run_best as u64)
            ),
            rests_on: vec![line(low, floor_low), line(best, floor_best)],
            cleared_by: "the same delay while the CPUs are kept from idling (a busy loop of low priority on each)".into(),
        })
    })
}

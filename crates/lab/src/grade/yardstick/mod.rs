//! The yardstick: performance of a judge on runs that nobody tuned for. [`conduct()`] makes or takes the runs
//! and asks; [`standing`] classifies each conclusion, and this module sums them up: both are pure.

pub mod conduct;
mod judging;
pub mod known;
pub mod report;
pub mod standing;
pub mod text;

pub use conduct::conduct;

use crate::grade::conclusion::Interval;
use crate::grade::score::Share;
use serde::Serialize;
use standing::{ClassifiedConclusion, Standing};

/// A fault counts as found from an excess on if the judge is right in this share of runs with at least that
/// excess.
const FOUND: f64 = 0.9;
/// Fewer runs do not suffice.
const LEAST_RUNS: usize = 3;

/// Summed conclusions. Every run is in exactly one of the first seven.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tally {
    /// All named culprits are right, or nothing is wrong and the judge says so.
    pub right: Share,
    /// No culprit, and the place is right.
    pub right_place: Share,
    /// Only the machine's own noise is named.
    pub noise: Share,
    /// Undecided.
    pub unknown: Share,
    /// No culprit, and the place is wrong.
    pub wrong_place: Share,
    /// "Nothing" where there was a fault.
    pub wrongly_nothing: Share,
    /// An innocent culprit is named.
    pub innocent: Share,
    /// Among right culprits: those supported by calls that the fault made longer.
    pub grounded: Share,
    /// Among right culprits with a share known by construction: those whose 90 % interval contains it.
    pub held: Share,
    /// Intervals below the constructed share.
    pub too_low: u64,
    /// Intervals above it.
    pub too_high: u64,
}

/// Sums up.
pub fn tally<'a>(all: impl Iterator<Item = &'a ClassifiedConclusion> + Clone) -> Tally {
    let of = all.clone().count() as u64;
    let share =
        |standing| Share::new(all.clone().filter(|stands| stands.standing == standing).count() as u64, of);
    let grounded = || all.clone().filter_map(|stands| stands.grounded);
    let shares = || all.clone().filter_map(|stands| stands.share);
    let holds = |(Interval { low, high }, share): &(Interval, f64)| (low..=high).contains(&share);
    Tally {
        right: share(Standing::Right),
        right_place: share(Standing::RightPlace),
        noise: share(Standing::Noise),
        unknown: share(Standing::Unknown),
        wrong_place: share(Standing::WrongPlace),
        wrongly_nothing: share(Standing::WronglyNothing),
        innocent: share(Standing::Innocent),
        grounded: Share::new(
            grounded().filter(|grounded| *grounded).count() as u64,
            grounded().count() as u64,
        ),
        held: Share::new(shares().filter(holds).count() as u64, shares().count() as u64),
        too_low: shares().filter(|(interval, share)| interval.high < *share).count() as u64,
        too_high: shares().filter(|(interval, share)| interval.low > *share).count() as u64,
    }
}

/// The smallest excess from which on a fault is found in nine of ten runs, given each run's excess and whether
/// the judge was right. `None` if there is none, or too few runs.
pub fn floor_ns(runs: &[(u64, bool)]) -> Option<u64> {
    let mut runs = runs.to_vec();
    runs.sort_unstable_by_key(|(excess_ns, _)| *excess_ns);
    let found = |from: &[(u64, bool)]| {
        let right = from.iter().filter(|(_, right)| *right).count();
        from.len() >= LEAST_RUNS && right as f64 >= FOUND * from.len() as f64
    };
    // A floor is an excess at which the judge was right.
    (0..runs.len()).find(|at| runs[*at].1 && found(&runs[*at..])).map(|at| runs[at].0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grade::conclusion::{Conclusion, Kind};
    use spangap_model::{Cause, Culprit, Leg, Legs};
    use standing::{Fault, Known, stands};
    use std::collections::BTreeMap;

    fn known(culprit: Culprit, leg: Leg) -> Known {
        let (also_right, affected) = (Vec::new(), BTreeMap::from([("a".to_owned(), Some(50))]));
        let fault = Fault { culprit, also_right, legs: Some(Legs::one(leg)), affected };
        let calls = vec![("a".to_owned(), 100), ("b".to_owned(), 50), ("c".to_owned(), 50)];
        Known { faults: vec![fault], calls, ..Known::default() }
    }

    fn runs() -> Vec<Known> {
        vec![
            known(Culprit::of(Cause::Rto), Leg::ResponseWire),
            known(Culprit::of(Cause::NetworkDelay), Leg::RequestWire),
            Known::default(),
        ]
    }

    fn tallied(judge: impl Fn(&Known) -> Conclusion) -> Tally {
        let all: Vec<ClassifiedConclusion> =
            runs().iter().map(|known| stands(known, &judge(known))).collect();
        let tally = tally(all.iter());
        let sum: u64 = [
            tally.right,
            tally.right_place,
            tally.noise,
            tally.unknown,
            tally.wrong_place,
            tally.wrongly_nothing,
            tally.innocent,
        ]
        .iter()
        .map(|share| share.count)
        .sum();
        assert_eq!(sum, tally.right.of, "every run is one of seven");
        tally
    }

    #[test]
    fn a_judge_that_is_always_wrong_gets_nothing() {
        let tally = tallied(|_| Conclusion::named(Culprit::of(Cause::Coalescing)));
        assert_eq!((tally.right.count, tally.innocent.count, tally.grounded.of), (0, 3, 0));
        let tally = tallied(|known| match known.faults.is_empty() {
            true => Conclusion::place(Legs::one(Leg::ServerApp)),
            false => Conclusion::of(Kind::Nothing),
        });
        assert_eq!((tally.right.count, tally.wrongly_nothing.count, tally.wrong_place.count), (0, 2, 1));
    }

    #[test]
    fn right_judge_gets_all_and_overconfidence_shows() {
        let sure = |known: &Known, low, high| match known.faults.first() {
            None => Conclusion::of(Kind::Nothing),
            Some(fault) => {
                let document = serde_json::json!({
                    "verdict": "one", "question": "slow", "trace_ids": ["a"],
                    "culprits": [{ "cause": fault.culprit.cause.name(), "share": { "low": low, "high": high } }]
                });
                Conclusion::of_document(document).expect("a conclusion")
            }
        };
        let right = tallied(|known| sure(known, 0.9, 1.0));
        assert_eq!((right.right.count, right.grounded.count, right.held.count), (3, 2, 2));
        let low = tallied(|known| sure(known, 0.5, 0.9));
        assert_eq!((low.right.count, low.held.count, low.too_low, low.too_high), (3, 0, 2, 0));
    }

    #[test]
    fn the_floor_is_where_nine_of_ten_are_right() {
        let runs: Vec<(u64, bool)> = (1..=20).map(|ms| (ms, ms > 5)).collect();
        // At 4 and 5 it was wrong: 15 of 17 are no nine tenths, 15 of 16 are, but a floor is where it was right.
        assert_eq!(floor_ns(&runs), Some(6));
        assert_eq!(floor_ns(&[(5, true), (6, true)]), None, "two runs show nothing");
        assert_eq!(floor_ns(&[(5, false), (6, false), (7, false)]), None);
        assert_eq!(floor_ns(&[(5, true), (6, true), (7, true)]), Some(5));
    }
}

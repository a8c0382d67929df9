//! The rows of a time range, as a condition of SQL: for each meter the coarsest that lie within it, as in the history.

use crate::history::{Buckets, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Rows of one pair in a block; `block` in the schema.
const BLOCK: u64 = 24;

/// A meter, or an earlier history of one.
#[derive(Clone, Debug, Default)]
pub struct Sender {
    /// Its name.
    pub name: String,
    /// Starts of its first and last interval of each step.
    pub first_s: [Option<u64>; 4],
    /// See [`Sender::first_s`].
    pub last_s: [Option<u64>; 4],
}

impl Sender {
    /// Its intervals, of which `there` have arrived.
    pub fn buckets(&self, there: [BTreeSet<u64>; 4]) -> Buckets {
        let mut dropped_before_s = [0; 4];
        for step in Step::ALL {
            let first_s = self.first_s[step as usize].unwrap_or(u64::MAX);
            // A coarser row that ends before the first finer one: finer ones were dropped, or never sent.
            let coarser = Step::ALL.into_iter().filter(|coarser| *coarser > step);
            let ends =
                coarser.filter_map(|coarser| Some(self.first_s[coarser as usize]? + coarser.seconds()));
            if ends.min().is_some_and(|end_s| end_s <= first_s) {
                dropped_before_s[step as usize] = first_s;
            }
        }
        Buckets::of(there, dropped_before_s)
    }
}

/// A condition that selects these rows of each meter, which are in order of time. `None` if there are none.
pub fn condition<'a>(rows: impl IntoIterator<Item = (u64, &'a [(Step, u64)])>) -> Option<String> {
    let mut alike: BTreeMap<Vec<(Step, u64, u64)>, Vec<u64>> = BTreeMap::new();
    for (meter, rows) in rows {
        let mut ranges: Vec<(Step, u64, u64)> = Vec::new();
        for (step, start_s) in rows {
            match ranges.last_mut() {
                Some((last, _, until_s)) if last == step => *until_s = *start_s,
                _ => ranges.push((*step, *start_s, *start_s)),
            }
        }
        if !ranges.is_empty() {
            alike.entry(ranges).or_default().push(meter);
        }
    }
    let mut text = String::new();
    for (ranges, meters) in alike {
        let meters: Vec<String> = meters.iter().map(u64::to_string).collect();
        let or = if text.is_empty() { "" } else { " OR " };
        let _ = write!(text, "{or}(meter IN ({}) AND (", meters.join(", "));
        for (at, (step, from_s, to_s)) in ranges.into_iter().enumerate() {
            let or = if at == 0 { "" } else { " OR " };
            let step_s = step.seconds();
            let [first, last] = [from_s, to_s].map(|start_s| start_s / (BLOCK * step_s));
            let _ = write!(
                text,
                "{or}step_s = {step_s} AND block BETWEEN {first} AND {last} AND start BETWEEN {from_s} AND {to_s}"
            );
        }
        text.push_str("))");
    }
    (!text.is_empty()).then(|| format!("({text})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_ranges_and_meters_with_the_same_rows_share_them() {
        let same = [(Step::Minute, 3_540), (Step::Hour, 3_600), (Step::Hour, 7_200), (Step::Minute, 10_800)];
        let text = condition([(1, &same[..]), (2, &same[..]), (3, &same[..1]), (4, &[][..])]).unwrap();
        let hours = "step_s = 3600 AND block BETWEEN 0 AND 0 AND start BETWEEN 3600 AND 7200";
        assert_eq!(text.matches(hours).count(), 1, "{text}");
        assert_eq!(text.matches("meter IN (1, 2)").count(), 1, "{text}");
        assert_eq!(text.matches("step_s = 60 ").count(), 3, "{text}");
        assert_eq!(condition([(4, &[][..])]), None);
    }

    #[test]
    fn a_coarser_row_stands_for_finer_ones_only_where_these_were_dropped() {
        let first = |first_s: [u64; 4]| Sender { first_s: first_s.map(Some), ..Sender::default() };
        // A meter that began at seven minutes past.
        let new = first([3_600 + 420, 3_600, 3_600, 0]).buckets(Default::default());
        assert_eq!(new.minutes_dropped_before_s(), 0);
        let old = first([86_400 + 420, 86_400, 0, 0]).buckets(Default::default());
        assert_eq!(old.minutes_dropped_before_s(), 86_400 + 420);
    }
}

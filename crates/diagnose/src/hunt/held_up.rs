//! Calls that something held up, beside those of their kind that it did not. Where calls differ much anyway, the slow ones are
//! slow for many reasons, and none of these has most of it. What one of them costs the calls that have it can be told all
//! the same: they are chosen by what was seen in them, not by how long they took.

use super::answer::{Answered, answer, weighed_like};
use super::population::{EFFECTIVE, LEAST, Population, Row, effective};
use super::{Asked, Owner};
use crate::claims::is_held_up;
use std::collections::BTreeMap;

/// The answer for what has held up calls for the longest time in all; `None` where that is shown in too few of them, or in so
/// many that hardly any is left to compare with.
pub fn held_up(population: &Population<'_>) -> Option<(Owner, Answered)> {
    let mut sums: BTreeMap<Owner, f64> = BTreeMap::new();
    for row in &population.rows {
        for (owner, ns) in row.account {
            if matches!(owner, Owner::Culprit(culprit) if is_held_up(culprit.cause)) && *ns > 0 {
                *sums.entry(*owner).or_default() += row.call.weight * *ns as f64;
            }
        }
    }
    let (owner, _) = sums.into_iter().max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    let has = |row: &&Row<'_>| row.account.get(&owner).is_some_and(|ns| *ns > 0);
    let mut without: BTreeMap<usize, usize> = BTreeMap::new();
    for row in population.rows.iter().filter(|row| !has(row)) {
        *without.entry(row.stratum).or_default() += 1;
    }
    let comparable = |row: &&Row<'_>| without.get(&row.stratum).is_some_and(|count| *count >= LEAST);
    let mut rows: Vec<&Row<'_>> = population.rows.iter().filter(has).filter(comparable).collect();
    if effective(&rows, |row| row.account.get(&owner).copied().unwrap_or(0) as f64) < EFFECTIVE {
        return None;
    }
    let mut by_stratum: BTreeMap<usize, f64> = BTreeMap::new();
    for row in &rows {
        *by_stratum.entry(row.stratum).or_default() += row.call.weight;
    }
    let others: Vec<&Row<'_>> =
        population.rows.iter().filter(|row| !has(row) && by_stratum.contains_key(&row.stratum)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.beyond_ns));
    let answered = answer(Asked::Slow, &rows, &weighed_like(&by_stratum, &others), population)?;
    (answered.each_ns.low > 0.0).then_some((owner, answered))
}

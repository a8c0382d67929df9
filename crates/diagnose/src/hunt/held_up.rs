//! Calls that an event delayed, compared with calls of their kind that it did not. If durations vary a lot
//! anyway, slow calls are slow for many reasons, none of which has most of the excess. The cost of one event
//! can still be determined, because the calls are selected by the event, not by their duration.

use super::Owner;
use super::alike::Compared;
use super::answer::{Answered, beside_others};
use super::population::{EFFECTIVE, LEAST, Population, Row, effective};
use super::suspects::is_by_host;
use crate::claims::is_held_up;
use std::collections::{BTreeMap, BTreeSet};

/// The answer for the event that delayed calls for the longest total time; `None` if it is shown in too few
/// of them, or in so many that hardly any remain for comparison.
pub fn held_up(population: &Population<'_>) -> Option<(Owner, Answered)> {
    let mut sums: BTreeMap<Owner, f64> = BTreeMap::new();
    for row in &population.rows {
        for (owner, ns) in row.account {
            let is_event = match owner {
                Owner::Culprit(culprit) => is_held_up(culprit.cause),
                Owner::Lost(_) => true,
                _ => false,
            };
            if is_event && *ns > 0 {
                *sums.entry(*owner).or_default() += row.call.weight * *ns as f64;
            }
        }
    }
    let (owner, _) = sums.into_iter().max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    let is_from_host = matches!(owner, Owner::Culprit(culprit) if is_by_host(culprit.cause));
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
    let kinds: BTreeSet<usize> = rows.iter().map(|row| row.stratum).collect();
    let others = population.rows.iter().filter(|row| !has(row) && kinds.contains(&row.stratum)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.beyond_ns));
    // Calls selected by what a recording shows have a recording.
    let compared = Compared::new(rows, others).alike();
    if is_from_host && !compared.is_alike() {
        return None;
    }
    let mut answered = beside_others(&compared, population)?;
    answered.by_event = true;
    (answered.each_ns.low > 0.0).then_some((owner, answered))
}

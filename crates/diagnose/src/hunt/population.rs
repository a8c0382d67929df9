//! Calls of one kind are compared with each other: same method, same class of size, a new connection or not.

use super::account::Account;
use spangap_model::Cause;
use spangap_model::evidence::CallRecord;
use std::collections::BTreeMap;

/// Fewer calls of a kind have no median worth the name.
const LEAST: usize = 8;
/// Slow calls are those with the largest excess that together have this much of all of it, and those half as slow.
const MOST_OF_EXCESS: f64 = 0.8;
/// The excess has to be that of so many calls at least, (sum x)^2 / sum x^2: one outlier is a story of its own.
const EFFECTIVE: f64 = 4.0;
/// It has to be at least this much of what such calls take anyway.
const LEAST_OF_MEDIAN: f64 = 0.25;
/// And at least this long for a call, nanoseconds: the noise of timers and taps is below.
const LEAST_NS: u64 = 200_000;

/// A call beside others of its kind.
pub struct Row<'a> {
    /// The call.
    pub call: &'a CallRecord,
    /// Its sheet.
    pub account: &'a Account,
    /// Its kind.
    pub stratum: usize,
    /// What it took beyond the median of its kind, nanoseconds.
    pub beyond_ns: i64,
}

/// All calls in question.
pub struct Population<'a> {
    /// All of them.
    pub rows: Vec<Row<'a>>,
    /// Those of kinds too rare to have a median: they are slow beside nothing.
    pub set_aside: usize,
    /// Time of all rows, nanoseconds.
    pub total_ns: u64,
    /// Median duration of each kind, nanoseconds.
    pub medians: BTreeMap<usize, u64>,
}

/// The slow calls.
pub struct Slow<'p, 'a> {
    /// The largest excess first.
    pub rows: Vec<&'p Row<'a>>,
    /// Excess of all of them, nanoseconds.
    pub beyond_ns: u64,
}

impl<'a> Population<'a> {
    /// Sorts calls into kinds.
    pub fn of(calls: &[&'a CallRecord], accounts: &'a [Account]) -> Population<'a> {
        let kinds: Vec<(Option<&str>, u32, bool)> = calls.iter().map(|call| kind(call)).collect();
        let mut counts: BTreeMap<_, usize> = BTreeMap::new();
        for kind in &kinds {
            *counts.entry(*kind).or_default() += 1;
        }
        // Kinds that are too rare by themselves are compared with each other.
        let numbers: BTreeMap<_, usize> = counts
            .iter()
            .filter(|(_, count)| **count >= LEAST)
            .zip(1..)
            .map(|((kind, _), n)| (*kind, n))
            .collect();
        let stratum = |place: usize| numbers.get(&kinds[place]).copied().unwrap_or(0);
        let mut durations: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for (place, call) in calls.iter().enumerate() {
            durations.entry(stratum(place)).or_default().push(call.duration_ns);
        }
        let rare = durations.get(&0).map_or(0, Vec::len);
        let set_aside = if rare < LEAST { rare } else { 0 };
        let medians: BTreeMap<usize, u64> = durations.into_iter().map(|(n, of)| (n, median(of))).collect();
        let rows: Vec<Row<'a>> = calls
            .iter()
            .zip(accounts)
            .enumerate()
            .map(|(place, (call, account))| {
                let stratum = stratum(place);
                let median = medians.get(&stratum).copied().unwrap_or(0);
                let beyond = i64::try_from(call.duration_ns).unwrap_or(i64::MAX) - median as i64;
                // What is compared with nothing is not slow by comparison.
                let beyond_ns = if stratum == 0 && set_aside > 0 { 0 } else { beyond };
                Row { call, account, stratum, beyond_ns }
            })
            .collect();
        let total_ns = rows.iter().map(|row| row.call.duration_ns).sum();
        Population { rows, set_aside, total_ns, medians }
    }

    /// The calls that are slow beside others of their kind; `None` where nothing stands out from the spread.
    pub fn slow<'p>(&'p self) -> Option<Slow<'p, 'a>> {
        let mut rows: Vec<&Row<'a>> = self.rows.iter().filter(|row| row.beyond_ns > 0).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.beyond_ns));
        let all: f64 = rows.iter().map(|row| row.beyond_ns as f64).sum();
        let (mut sum, mut squares, mut medians, mut count) = (0.0, 0.0, 0.0, 0);
        let mut enough_ns = 0;
        for row in &rows {
            // Those nearly as slow as the last one belong to it: a cut between two causes would leave one of them out.
            if sum >= MOST_OF_EXCESS * all && row.beyond_ns < enough_ns / 2 {
                break;
            }
            if sum < MOST_OF_EXCESS * all {
                enough_ns = row.beyond_ns;
            }
            sum += row.beyond_ns as f64;
            squares += (row.beyond_ns as f64).powi(2);
            medians += self.medians.get(&row.stratum).copied().unwrap_or(0) as f64;
            count += 1;
        }
        rows.truncate(count);
        let effective = if squares > 0.0 { sum * sum / squares } else { 0.0 };
        let enough = effective >= EFFECTIVE
            && sum >= LEAST_OF_MEDIAN * medians
            && sum >= LEAST_NS as f64 * count as f64;
        enough.then_some(Slow { rows, beyond_ns: sum as u64 })
    }
}

/// Method, size by powers of eight, and whether it opened its connection.
fn kind(call: &CallRecord) -> (Option<&str>, u32, bool) {
    let bytes = call.request_bytes + call.response_bytes.unwrap_or(0);
    let opens = call
        .findings
        .iter()
        .any(|finding| finding.culprit.cause == Cause::ConnectionPerCall && finding.is_shown());
    (call.method.as_deref(), (u64::BITS - bytes.leading_zeros()) / 3, opens)
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

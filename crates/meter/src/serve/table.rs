//! The table of pairs: filtered, grouped, sorted, paged, compared with an earlier period. For all pairs, only
//! the data that determines the visible rows is read; the rest is read for those rows only, however many
//! pairs there are.

use super::api::{Answer, Api, Problem, Wanted, covered};
use super::fleet::Filter;
use super::whose::{Source, Whose};
use crate::history::{Covered, Figure, HistoryError, Lost, Needs, step_for};
use crate::query::{self, Matches, WORST_SHOWN};
use crate::report::*;
use crate::usual::{Beyond, Usual};
use axum::http::StatusCode;
use serde::Deserialize;
use spangap_model::{Histogram, PairKey, PairStats};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Maximum number of pairs in an answer: about 40 MB.
const MAX_PAIRS: usize = 20_000;
/// Maximum number of steps beside a row, and of rows with steps.
const MAX_ROW_STEPS: u64 = 60;
const MAX_ROWS_WITH_STEPS: usize = 256;
/// Name for all services of a group.
const EVERY: &str = "*";
/// A step longer than any time range.
const WHOLE_S: u64 = 1 << 62;

/// Grouping of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum By {
    /// The meter's own grouping: `--by`.
    #[default]
    Kept,
    Pair,
    Client,
    Server,
    Method,
}

impl By {
    fn group(self, key: PairKey) -> PairKey {
        let every = || EVERY.into();
        match self {
            By::Kept => key,
            By::Pair => PairKey { method: None, ..key },
            By::Client => PairKey { server: every(), method: None, ..key },
            By::Server => PairKey { client: every(), method: None, ..key },
            By::Method => PairKey { client: every(), ..key },
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sort {
    #[default]
    Lost,
    Beyond,
    Waited,
    Pair,
    Calls,
    GapP50,
    GapP99,
    ClientP99,
    ServerP99,
    Negative,
    Attempts,
    Match,
    Change,
}

/// Parameters of the table, besides the [`Filter`].
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Table {
    /// Host of one of the worst calls.
    node: Option<String>,
    /// Status of one of the worst calls, or of calls counted separately.
    status: Option<String>,
    #[serde(default)]
    by: By,
    #[serde(default)]
    sort: Sort,
    order: Option<Order>,
    top: Option<usize>,
    offset: Option<usize>,
    against_from: Option<u64>,
    against_to: Option<u64>,
    steps: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    Ascending,
    Descending,
}

impl Table {
    /// The time range of the comparison.
    fn against(&self) -> Result<Option<(u64, u64)>, Problem> {
        let wrong = |what: String| Problem(StatusCode::BAD_REQUEST, what);
        match (self.against_from, self.against_to) {
            (None, None) => Ok(None),
            (Some(from), Some(to)) if from <= to => Ok(Some((from, to))),
            (Some(from), Some(to)) => Err(wrong(format!("against_from {from} lies after against_to {to}"))),
            _ => Err(wrong("expected both of against_from and against_to, or neither".into())),
        }
    }

    /// Whether the worst calls determine which rows match.
    fn asks_for_worst(&self) -> bool {
        self.node.is_some() || self.status.is_some()
    }

    /// What is needed to determine rows and order, besides time lost and calls.
    fn needs(&self) -> Option<Needs> {
        if self.asks_for_worst() {
            return Some(Needs::WorstCalls);
        }
        match self.sort {
            Sort::GapP50 | Sort::GapP99 => Some(Needs::Distribution(Figure::Gap)),
            Sort::ClientP99 => Some(Needs::Distribution(Figure::Client)),
            Sort::ServerP99 => Some(Needs::Distribution(Figure::Server)),
            Sort::Waited | Sort::Change | Sort::Negative | Sort::Attempts => Some(Needs::Sums),
            Sort::Lost | Sort::Beyond | Sort::Pair | Sort::Calls | Sort::Match => None,
        }
    }

    fn passes(&self, stats: &PairStats) -> bool {
        let worst = || stats.worst.iter().take(WORST_SHOWN);
        let node = self.node.as_deref().is_none_or(|node| {
            let is = |host: &Option<Arc<str>>| host.as_deref() == Some(node);
            worst().any(|call| is(&call.client.host) || is(&call.server.host))
        });
        let status = self.status.as_deref().is_none_or(|status| {
            stats.negative.keys().any(|one| one.name() == status)
                || worst().any(|call| call.status.name() == status)
        });
        node && status
    }

    /// Sort key of a row, if it comes from the distributions.
    fn number(&self, stats: &PairStats) -> f64 {
        let quantile = |of: &Histogram, q: f64| of.quantile(q).map_or(0, |found| found.value_ns);
        let number = match self.sort {
            // What a call of a pair takes can be in the server's span alone.
            Sort::Waited | Sort::Change => return waited(stats),
            Sort::GapP50 => quantile(&stats.gap, 0.5),
            Sort::GapP99 => quantile(&stats.gap, 0.99),
            Sort::ClientP99 => quantile(&stats.client, 0.99),
            Sort::ServerP99 => quantile(&stats.server, 0.99),
            Sort::Negative => stats.negative.values().sum(),
            Sort::Attempts => stats.attempts_over_one,
            Sort::Lost | Sort::Beyond | Sort::Pair | Sort::Calls | Sort::Match => 0,
        };
        number as f64
    }

    /// Largest first, except names, which sort alphabetically; ties by time lost, then by name.
    fn compare(&self, a: &Candidate, b: &Candidate) -> Ordering {
        let natural = match self.sort {
            Sort::Pair => a.key.cmp(&b.key),
            _ => b.number.total_cmp(&a.number),
        };
        let asked = if self.order == Some(Order::Ascending) { natural.reverse() } else { natural };
        asked.then_with(|| b.lost_ns.cmp(&a.lost_ns)).then_with(|| a.key.cmp(&b.key))
    }
}

/// How long clients waited, nanoseconds.
fn waited(stats: &PairStats) -> f64 {
    stats.client.sum_ns() as f64
}

/// A row that may be shown, with its sort key.
struct Candidate {
    key: PairKey,
    calls: u64,
    lost_ns: u64,
    number: f64,
}

/// Calls and time lost of every row, the number of pairs excluded by the filter, and the time range covered.
struct Sums {
    rows: HashMap<PairKey, Lost>,
    filtered_out: u64,
    reached: Covered,
}

/// A table under construction.
struct Making<'a> {
    api: &'a Api,
    source: &'a Source<'a>,
    filter: &'a Filter,
    table: &'a Table,
    matches: Matches,
    /// By row: what clients waited beyond the usual.
    beyond: HashMap<PairKey, Beyond>,
}

/// The table of one time range.
pub(super) async fn pairs(
    api: &Api,
    wanted: Wanted,
    stretch: (u64, u64),
    filter: Filter,
    table: Table,
    whose: Whose,
) -> Answer {
    let against = table.against()?;
    api.ask_source(wanted, whose, move |api, source| {
        let overview = api.meter.overview();
        let matches = Matches::new(&overview);
        let beyond = HashMap::new();
        let mut making = Making { api, source: &source, filter: &filter, table: &table, matches, beyond };
        making.beyond = making.beyond_usual(stretch)?;
        let sums = making.sums(stretch)?;
        let before = against.map(|stretch| making.sums(stretch)).transpose()?.map(|sums| sums.rows);
        let of_pairs = sums.filtered_out + sums.rows.len() as u64;
        let mut candidates = making.candidates(stretch, sums.rows)?;
        let mut matching = Matching { of_pairs, ..Matching::default() };
        for one in &candidates {
            matching.calls += one.calls;
            matching.lost_ns_total = matching.lost_ns_total.saturating_add(one.lost_ns);
        }
        if let (Some(before), Some(against)) = (before, against) {
            matching.lost_before_ns_total = Some(before.values().map(|lost| nanoseconds(*lost)).sum());
            making.put_beside(&mut candidates, before, stretch, against)?;
        }
        matching.pairs = candidates.len() as u64;
        candidates.sort_unstable_by(|a, b| table.compare(a, b));
        let last = table.offset.unwrap_or(0).saturating_add(table.top.unwrap_or(MAX_PAIRS).min(MAX_PAIRS));
        let left_out = candidates.len().saturating_sub(last) as u64;
        candidates.truncate(last);
        candidates.drain(..table.offset.unwrap_or(0).min(candidates.len()));
        let shown: Vec<PairKey> = candidates.into_iter().map(|one| one.key).collect();
        let mut rows = making.rows(&shown, stretch, against)?;
        let step_s = match table.steps {
            None => None,
            Some(_) if rows.len() > MAX_ROWS_WITH_STEPS => None,
            Some(steps) => {
                let step_s = step_for(stretch.0, stretch.1, steps.min(MAX_ROW_STEPS));
                making.add_steps(&shown, &mut rows, stretch, step_s)?;
                Some(step_s)
            }
        };
        Ok(Ok(PairsReport {
            pairs: rows,
            // A page is intentional; only rows that no page could show count as left out.
            pairs_left_out: (left_out > 0 && table.top.is_none()).then_some(left_out),
            covered_from_unix_s: covered(sums.reached, stretch.0),
            of_meters: source.of_meters.clone(),
            matching: Some(matching),
            against_unix_s: against.map(|(from, to)| [from, to]),
            step_s,
            ..query::pairs_report([], &overview, stretch.0, stretch.1)
        }))
    })
    .await
}

/// Length of a time range, at least a minute.
fn seconds((from_s, to_s): (u64, u64)) -> f64 {
    to_s.saturating_sub(from_s).max(60) as f64
}

fn nanoseconds(lost: Lost) -> u64 {
    u64::try_from(lost.gap_ns).unwrap_or(u64::MAX)
}

impl Making<'_> {
    fn sums(&self, stretch: (u64, u64)) -> Result<Sums, HistoryError> {
        let minutes = self.source.gaps(|_| true)?;
        let mut pairs: HashMap<PairKey, Lost> = HashMap::new();
        let mut add = |key: &PairKey, _, lost| match pairs.get_mut(key) {
            Some(sum) => sum.add(lost),
            None => {
                pairs.insert(key.clone(), lost);
            }
        };
        let reached = minutes.lost(stretch, WHOLE_S, &|_| true, &mut add)?;
        let all = pairs.len();
        pairs.retain(|key, _| self.filter.matches(key));
        let filtered_out = (all - pairs.len()) as u64;
        if self.table.by == By::Kept {
            return Ok(Sums { rows: pairs, filtered_out, reached });
        }
        let mut rows: HashMap<PairKey, Lost> = HashMap::new();
        for (key, lost) in pairs {
            rows.entry(self.table.by.group(key)).or_default().add(lost);
        }
        Ok(Sums { rows, filtered_out, reached })
    }

    /// Statistics of the matching pairs, by row.
    fn stats(
        &self,
        stretch: (u64, u64),
        needs: Needs,
        matches: impl Fn(&PairKey) -> bool,
        mut each: impl FnMut(PairKey, PairStats),
    ) -> Result<(), HistoryError> {
        let minutes = self.source.minutes(&matches)?;
        let by = self.table.by;
        if by == By::Kept {
            minutes.pairs_of(stretch, needs, &matches, &mut each)?;
            return Ok(());
        }
        let mut groups: HashMap<PairKey, PairStats> = HashMap::new();
        minutes.pairs_of(stretch, needs, &matches, &mut |key, stats| {
            groups.entry(by.group(key)).or_default().merge(&stats);
        })?;
        groups.into_iter().for_each(|(key, stats)| each(key, stats));
        Ok(())
    }

    /// The matching rows, with their sort keys.
    fn candidates(
        &self,
        stretch: (u64, u64),
        sums: HashMap<PairKey, Lost>,
    ) -> Result<Vec<Candidate>, HistoryError> {
        let table = self.table;
        let mut told: HashMap<PairKey, f64> = HashMap::new();
        if let Some(needs) = table.needs() {
            let matches = |key: &PairKey| self.filter.matches(key);
            self.stats(stretch, needs, matches, |key, stats| {
                if table.passes(&stats) {
                    told.insert(key, table.number(&stats));
                }
            })?;
        }
        let candidate = |(key, lost): (PairKey, Lost)| {
            let told = told.get(&key).copied();
            if table.asks_for_worst() && told.is_none() {
                return None;
            }
            let lost_ns = nanoseconds(lost);
            let number = match table.sort {
                Sort::Calls => lost.calls as f64,
                Sort::Match => {
                    let [client, server] = self.matches.of(&key);
                    client.unwrap_or(2.0).min(server.unwrap_or(2.0))
                }
                Sort::Lost | Sort::Pair => lost_ns as f64,
                Sort::Beyond => self.beyond.get(&key).map_or(0.0, |beyond| beyond.client_ns as f64),
                _ => told.unwrap_or(0.0),
            };
            Some(Candidate { key, calls: lost.calls, lost_ns, number })
        };
        Ok(sums.into_iter().filter_map(candidate).collect())
    }

    /// What clients of this meter waited beyond the usual, by row: since each pair left it.
    fn beyond_usual(&self, (from_s, to_s): (u64, u64)) -> Result<HashMap<PairKey, Beyond>, HistoryError> {
        let usual = self.api.meter.usual();
        let mut rows: HashMap<PairKey, Beyond> = HashMap::new();
        let is_in = |usual: &Usual| usual.since_unix_ms / 1_000 <= to_s;
        let asked = |key: &PairKey| self.filter.matches(key) && usual.get(key).is_some_and(is_in);
        if !usual.keys().any(asked) {
            return Ok(rows);
        }
        let (view, memory) = self.api.store.view(self.source.cancel, asked)?;
        for (key, usual) in usual.iter().filter(|(key, _)| asked(key)) {
            let since = (from_s.max(usual.since_unix_ms / 1_000), to_s);
            let stats = view.pair(key, since, &memory)?;
            if stats.is_empty() {
                continue;
            }
            let beyond = usual.beyond(&stats);
            rows.entry(self.table.by.group(key.clone())).and_modify(|row| row.add(beyond)).or_insert(beyond);
        }
        Ok(rows)
    }

    /// Sorts by change if requested; a pair without calls since then gets its own row.
    fn put_beside(
        &self,
        candidates: &mut Vec<Candidate>,
        mut before: HashMap<PairKey, Lost>,
        stretch: (u64, u64),
        against: (u64, u64),
    ) -> Result<(), HistoryError> {
        let is_asked = self.table.sort == Sort::Change;
        let mut waited_before: HashMap<PairKey, f64> = HashMap::new();
        if is_asked {
            let matches = |key: &PairKey| self.filter.matches(key);
            self.stats(against, Needs::Sums, matches, |key, stats| {
                waited_before.insert(key, waited(&stats));
            })?;
        }
        let was = |key: &PairKey| waited_before.get(key).map_or(0.0, |was_ns| was_ns / seconds(against));
        for one in candidates.iter_mut() {
            before.remove(&one.key);
            if is_asked {
                one.number = one.number / seconds(stretch) - was(&one.key);
            }
        }
        if !self.table.asks_for_worst() {
            candidates.extend(before.into_keys().map(|key| {
                let number = if is_asked { -was(&key) } else { 0.0 };
                Candidate { key, calls: 0, lost_ns: 0, number }
            }));
        }
        Ok(())
    }

    /// The rows of these keys, in this order.
    fn rows(
        &self,
        shown: &[PairKey],
        stretch: (u64, u64),
        against: Option<(u64, u64)>,
    ) -> Result<Vec<PairRow>, HistoryError> {
        let by = self.table.by;
        let wanted: HashSet<&PairKey> = shown.iter().collect();
        let matches = |key: &PairKey| match by {
            By::Kept => wanted.contains(key),
            by => self.filter.matches(key) && wanted.contains(&by.group(key.clone())),
        };
        let mut rows: HashMap<PairKey, PairRow> = HashMap::new();
        self.stats(stretch, Needs::WorstCalls, matches, |key, stats| {
            let row = query::pair_row(&key, &stats, &self.matches);
            rows.insert(key, row);
        })?;
        let mut before: HashMap<PairKey, PairBefore> = HashMap::new();
        if let Some(stretch) = against {
            self.stats(stretch, Needs::Statistics, matches, |key, stats| {
                before.insert(key, query::pair_before(&stats));
            })?;
        }
        let row = |key: &PairKey| {
            let none = || query::pair_row(key, &PairStats::default(), &self.matches);
            let row = rows.remove(key).unwrap_or_else(none);
            let beyond = self.beyond.get(key).map(|beyond| BeyondUsual {
                client_ns_total: beyond.client_ns,
                gap_ns_total: beyond.gap_ns,
                since_unix_ms: beyond.since_unix_ms,
            });
            PairRow { beyond, before: against.map(|_| before.remove(key).unwrap_or_default()), ..row }
        };
        Ok(shown.iter().map(row).collect())
    }

    /// Adds the time lost, and what clients waited, per step to the rows of these keys.
    fn add_steps(
        &self,
        shown: &[PairKey],
        rows: &mut [PairRow],
        (from_s, to_s): (u64, u64),
        step_s: u64,
    ) -> Result<(), HistoryError> {
        let by = self.table.by;
        let first_s = from_s - from_s % step_s;
        let steps = ((to_s - first_s) / step_s + 1) as usize;
        let places: HashMap<&PairKey, usize> = shown.iter().zip(0..).collect();
        let place = |key: &PairKey| match by {
            By::Kept => places.get(key).copied(),
            by => places.get(&by.group(key.clone())).copied(),
        };
        let matches = |key: &PairKey| (by == By::Kept || self.filter.matches(key)) && place(key).is_some();
        for row in rows.iter_mut() {
            row.lost_ns_by_step = Some(vec![0; steps]);
            row.client_ns_by_step = Some(vec![0; steps]);
        }
        let minutes = self.source.gaps(matches)?;
        minutes.lost((from_s, to_s), step_s, &matches, &mut |key, at, lost| {
            let step = (at.saturating_sub(first_s) / step_s) as usize;
            let Some(row) = place(key).and_then(|at| rows.get_mut(at)) else { return };
            let client_ns = u64::try_from(lost.client_ns).unwrap_or(u64::MAX);
            let parts =
                [(&mut row.lost_ns_by_step, nanoseconds(lost)), (&mut row.client_ns_by_step, client_ns)];
            for (series, ns) in parts {
                if let Some(slot) = series.as_mut().and_then(|series| series.get_mut(step)) {
                    *slot = slot.saturating_add(ns);
                }
            }
        })?;
        Ok(())
    }
}

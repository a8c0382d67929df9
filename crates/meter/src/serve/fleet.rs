//! The table of pairs as it is asked for: filtered, grouped, sorted, in pages, beside an earlier stretch of time; and
//! the time that all of them lost, step by step.

use super::api::{Api, Problem, covered};
use crate::history::{Cancel, HistoryError, Lost, UnwrittenMinutes, View, step_for};
use crate::query::{self, Matches};
use crate::report::*;
use axum::http::StatusCode;
use serde::Deserialize;
use spangap_model::{KeptCall, PairKey, PairStats};
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Pairs in an answer at most: about 40 MB.
const MAX_PAIRS: usize = 20_000;
/// Steps of one timeline at most.
const MAX_STEPS: u64 = 1_500;
/// Steps of a timeline unless told otherwise.
const DEFAULT_STEPS: u64 = 120;
/// Steps beside a row at most, and rows that have them at most.
const MAX_ROW_STEPS: u64 = 60;
const MAX_ROWS_WITH_STEPS: usize = 256;
/// What stands for every service in a group.
const EVERY: &str = "*";

/// Which pairs are asked for. What is left out lets everything through.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Filter {
    /// Words that all occur in the pair's names, in any case.
    q: Option<String>,
    /// On either side.
    service: Option<String>,
    client: Option<String>,
    server: Option<String>,
    method: Option<String>,
}

impl Filter {
    /// Whether a pair's names pass.
    pub fn matches(&self, key: &PairKey) -> bool {
        let is = |asked: &Option<String>, name: &str| asked.as_deref().is_none_or(|asked| asked == name);
        if !is(&self.client, &key.client) || !is(&self.server, &key.server) {
            return false;
        }
        if self.service.as_deref().is_some_and(|service| *key.client != *service && *key.server != *service) {
            return false;
        }
        if self.method.is_some() && key.method.as_deref() != self.method.as_deref() {
            return false;
        }
        let Some(words) = self.q.as_deref() else { return true };
        let names = format!("{} {} {}", key.client, key.server, key.method.as_deref().unwrap_or_default());
        let names = names.to_lowercase();
        words.split_whitespace().all(|word| names.contains(&word.to_lowercase()))
    }
}

/// What a row stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum By {
    /// What the meter keeps apart: `--by`.
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

/// How the table is asked for, beside the [`Filter`].
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Table {
    /// A host that one of the worst calls ran on.
    node: Option<String>,
    /// How one of the worst calls, or of those counted apart, ended.
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
    /// The stretch to compare with.
    fn against(&self) -> Result<Option<(u64, u64)>, Problem> {
        let wrong = |what: String| Problem(StatusCode::BAD_REQUEST, what);
        match (self.against_from, self.against_to) {
            (None, None) => Ok(None),
            (Some(from), Some(to)) if from <= to => Ok(Some((from, to))),
            (Some(from), Some(to)) => Err(wrong(format!("against_from {from} lies after against_to {to}"))),
            _ => Err(wrong("expected both of against_from and against_to, or neither".into())),
        }
    }

    /// Whether the worst calls say which rows pass.
    fn asks_for_worst(&self) -> bool {
        self.node.is_some() || self.status.is_some()
    }

    fn passes(&self, row: &PairRow) -> bool {
        let node = self.node.as_deref().is_none_or(|node| {
            let is = |host: &Option<String>| host.as_deref() == Some(node);
            row.worst.iter().any(|call| is(&call.client_host) || is(&call.server_host))
        });
        let status = self.status.as_deref().is_none_or(|status| {
            row.negative_by_status.contains_key(status) || row.worst.iter().any(|call| call.status == status)
        });
        node && status
    }

    /// Largest first, but of names the first letter; equal ones by time lost and then by name.
    fn compare(&self, a: &PairRow, b: &PairRow, seconds: (f64, f64)) -> Ordering {
        let names = |row: &PairRow| (row.client.clone(), row.server.clone(), row.method.clone());
        let number = |row: &PairRow| -> f64 {
            match self.sort {
                Sort::Lost | Sort::Pair => row.lost_ns_total as f64,
                Sort::Calls => row.calls as f64,
                Sort::GapP50 => row.gap.p50_ns as f64,
                Sort::GapP99 => row.gap.p99_ns as f64,
                Sort::ClientP99 => row.client_p99_ns as f64,
                Sort::ServerP99 => row.server_p99_ns as f64,
                Sort::Negative => row.negative as f64,
                Sort::Attempts => row.attempts_over_one as f64,
                Sort::Match => {
                    row.client_match_ratio.unwrap_or(2.0).min(row.server_match_ratio.unwrap_or(2.0))
                }
                Sort::Change => {
                    let before = row.before.as_ref().map_or(0, |before| before.lost_ns_total);
                    row.lost_ns_total as f64 / seconds.0 - before as f64 / seconds.1
                }
            }
        };
        let natural = match self.sort {
            Sort::Pair => names(a).cmp(&names(b)),
            _ => number(b).total_cmp(&number(a)),
        };
        let asked = if self.order == Some(Order::Ascending) { natural.reverse() } else { natural };
        asked.then_with(|| b.lost_ns_total.cmp(&a.lost_ns_total)).then_with(|| names(a).cmp(&names(b)))
    }
}

/// A row that may be shown, with what its worst calls would be made of.
struct Kept {
    row: PairRow,
    worst: Vec<KeptCall>,
}

/// The table of one stretch of time.
pub(super) async fn pairs(
    api: &Api,
    (from_s, to_s): (u64, u64),
    filter: Filter,
    table: Table,
) -> Result<PairsReport, Problem> {
    let against = table.against()?;
    api.query(move |api, cancel| {
        let overview = api.meter.overview();
        let matches = Matches::new(&overview);
        let (view, memory) = api.store.view(cancel, |_| true)?;
        let mut rows: Vec<Kept> = Vec::new();
        let mut matching = Matching::default();
        let keep = |rows: &mut Vec<Kept>, matching: &mut Matching, key: &PairKey, stats: PairStats| {
            matching.of_pairs += 1;
            let mut row = query::row_without_worst(key, &stats, &matches);
            if table.asks_for_worst() {
                row.worst = query::worst_rows(&stats.worst);
            }
            if table.passes(&row) {
                matching.pairs += 1;
                matching.calls += row.calls;
                matching.lost_ns_total = matching.lost_ns_total.saturating_add(row.lost_ns_total);
                rows.push(Kept { row, worst: stats.worst });
            }
        };
        let mut groups: HashMap<PairKey, PairStats> = HashMap::new();
        let reached = view.pairs(from_s, to_s, &memory, |key, stats| match table.by {
            _ if !filter.matches(&key) => matching.of_pairs += 1,
            By::Kept => keep(&mut rows, &mut matching, &key, stats),
            by => groups.entry(by.group(key)).or_default().merge(&stats),
        })?;
        for (key, stats) in groups {
            keep(&mut rows, &mut matching, &key, stats);
        }
        if let Some(stretch) = against {
            let before = before(&view, &memory, stretch, &filter, table.by)?;
            matching.lost_before_ns_total = Some(before.values().map(|one| one.lost_ns_total).sum());
            put_beside(&mut rows, before, &matches, table.node.is_none() && table.status.is_none());
            matching.pairs = rows.len() as u64;
        }
        let length = |from: u64, to: u64| (to.saturating_sub(from)).max(60) as f64;
        let seconds = (length(from_s, to_s), against.map_or(1.0, |(from, to)| length(from, to)));
        rows.sort_by(|a, b| table.compare(&a.row, &b.row, seconds));
        let last = table.offset.unwrap_or(0).saturating_add(table.top.unwrap_or(MAX_PAIRS).min(MAX_PAIRS));
        let left_out = rows.len().saturating_sub(last) as u64;
        rows.truncate(last);
        rows.drain(..table.offset.unwrap_or(0).min(rows.len()));
        let shown = |kept: Kept| PairRow { worst: query::worst_rows(&kept.worst), ..kept.row };
        let mut rows: Vec<PairRow> = rows.into_iter().map(shown).collect();
        let step_s = match table.steps {
            None => None,
            Some(_) if rows.len() > MAX_ROWS_WITH_STEPS => None,
            Some(steps) => {
                let step_s = step_for(from_s, to_s, steps.min(MAX_ROW_STEPS));
                add_steps(&mut rows, &view, &memory, (from_s, to_s), step_s, &filter, table.by)?;
                Some(step_s)
            }
        };
        Ok(PairsReport {
            pairs: rows,
            // A page is what was asked for; only what no page could show is left out.
            pairs_left_out: (left_out > 0 && table.top.is_none()).then_some(left_out),
            covered_from_unix_s: covered(reached, from_s),
            matching: Some(matching),
            against_unix_s: against.map(|(from, to)| [from, to]),
            step_s,
            ..query::pairs_report([], &overview, from_s, to_s)
        })
    })
    .await
}

/// Every pair of the stretch that is compared with.
fn before(
    view: &View,
    memory: &UnwrittenMinutes,
    (from_s, to_s): (u64, u64),
    filter: &Filter,
    by: By,
) -> Result<HashMap<PairKey, PairBefore>, HistoryError> {
    let of = |stats: &PairStats| PairBefore {
        calls: stats.calls(),
        gap: query::quantiles(&stats.gap),
        client_duration: query::quantiles(&stats.client),
        server_duration: query::quantiles(&stats.server),
        lost_ns_total: u64::try_from(stats.gap.sum_ns()).unwrap_or(u64::MAX),
    };
    let mut found = HashMap::new();
    let mut groups: HashMap<PairKey, PairStats> = HashMap::new();
    view.pairs(from_s, to_s, memory, |key, stats| {
        if !filter.matches(&key) {
        } else if by == By::Kept {
            found.insert(key, of(&stats));
        } else {
            groups.entry(by.group(key)).or_default().merge_distributions(&stats);
        }
    })?;
    found.extend(groups.into_iter().map(|(key, stats)| (key, of(&stats))));
    Ok(found)
}

fn key_of(row: &PairRow) -> PairKey {
    PairKey {
        client: row.client.as_str().into(),
        server: row.server.as_str().into(),
        method: row.method.as_deref().map(Into::into),
    }
}

/// Puts what was before beside the rows; a pair that has had no call since gets a row of its own.
fn put_beside(
    rows: &mut Vec<Kept>,
    mut before: HashMap<PairKey, PairBefore>,
    matches: &Matches,
    with_ended: bool,
) {
    for Kept { row, .. } in rows.iter_mut() {
        row.before = Some(before.remove(&key_of(row)).unwrap_or_default());
    }
    if with_ended {
        rows.extend(before.into_iter().map(|(key, was)| {
            let row = query::row_without_worst(&key, &PairStats::default(), matches);
            Kept { row: PairRow { before: Some(was), ..row }, worst: Vec::new() }
        }));
    }
}

fn add_steps(
    rows: &mut [PairRow],
    view: &View,
    memory: &UnwrittenMinutes,
    (from_s, to_s): (u64, u64),
    step_s: u64,
    filter: &Filter,
    by: By,
) -> Result<(), HistoryError> {
    let first_s = from_s - from_s % step_s;
    let steps = ((to_s - first_s) / step_s + 1) as usize;
    let mut series: HashMap<PairKey, Vec<u64>> =
        rows.iter().map(|row| (key_of(row), vec![0; steps])).collect();
    let shown = |key: &PairKey| filter.matches(key) && series.contains_key(&by.group(key.clone()));
    let wanted: std::collections::HashSet<PairKey> = match by {
        By::Kept => series.keys().cloned().collect(),
        _ => Default::default(),
    };
    let mut parts: Vec<(PairKey, usize, u64)> = Vec::new();
    let matches = |key: &PairKey| if by == By::Kept { wanted.contains(key) } else { shown(key) };
    view.lost((from_s, to_s), step_s, matches, memory, |key, at, lost| {
        let step = (at.saturating_sub(first_s) / step_s) as usize;
        let lost_ns = u64::try_from(lost.gap_ns).unwrap_or(u64::MAX);
        parts.push((by.group(key.clone()), step, lost_ns));
    })?;
    for (key, step, lost_ns) in parts {
        if let Some(slot) = series.get_mut(&key).and_then(|series| series.get_mut(step)) {
            *slot = slot.saturating_add(lost_ns);
        }
    }
    for row in rows {
        row.lost_ns_by_step = series.remove(&key_of(row));
    }
    Ok(())
}

/// How long the steps of a timeline are.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Steps {
    steps: Option<u64>,
}

/// Time lost by all pairs that pass, step by step.
pub(super) async fn timeline(
    api: &Api,
    (from_s, to_s): (u64, u64),
    filter: Filter,
    steps: Steps,
) -> Result<Timeline, Problem> {
    let step_s = step_for(from_s, to_s, steps.steps.unwrap_or(DEFAULT_STEPS).min(MAX_STEPS));
    api.query(move |api: &Api, cancel: &Arc<Cancel>| {
        let (view, memory) = api.store.view_of_gaps(cancel, |key| filter.matches(key))?;
        let mut points: BTreeMap<u64, Lost> = BTreeMap::new();
        let matches = |key: &PairKey| filter.matches(key);
        let reached = view.lost((from_s, to_s), step_s, matches, &memory, |_, at, lost| {
            points.entry(at).or_default().add(lost);
        })?;
        let point = |(unix_s, lost): (u64, Lost)| TimelinePoint {
            unix_s,
            calls: lost.calls,
            lost_ns_total: u64::try_from(lost.gap_ns).unwrap_or(u64::MAX),
        };
        Ok(Timeline {
            from_unix_s: from_s,
            to_unix_s: to_s,
            covered_from_unix_s: covered(reached, from_s),
            step_s,
            points: points.into_iter().map(point).collect(),
        })
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(client: &str, server: &str, method: Option<&str>) -> PairKey {
        PairKey { client: client.into(), server: server.into(), method: method.map(Into::into) }
    }

    #[test]
    fn every_word_of_a_search_must_occur() {
        let pair = key("Frontend", "shop/checkout", Some("Cart.Add"));
        let search = |q: &str| Filter { q: Some(q.into()), ..Filter::default() }.matches(&pair);
        for found in ["", "front", "CHECK cart", "add  frontend"] {
            assert!(search(found), "{found:?}");
        }
        for missing in ["backend", "front redis", "cart.remove"] {
            assert!(!search(missing), "{missing:?}");
        }
    }

    #[test]
    fn a_service_passes_on_either_side_and_a_name_only_on_its_own() {
        let pair = key("a", "b", None);
        let with = |filter: Filter| filter.matches(&pair);
        let is = |name: &str| Some(name.to_string());
        assert!(with(Filter { service: is("a"), ..Filter::default() }));
        assert!(with(Filter { service: is("b"), ..Filter::default() }));
        assert!(!with(Filter { service: is("c"), ..Filter::default() }));
        assert!(!with(Filter { client: is("b"), ..Filter::default() }));
        assert!(!with(Filter { method: is("m"), ..Filter::default() }));
    }
}

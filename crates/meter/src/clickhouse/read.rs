//! Answers the API's questions from what all meters have sent.

use super::ClickHouse;
use super::columns::{date_time, pair_id, read_names, read_sums, sums};
use super::cover::{Sender, condition};
use super::rowbinary::Answer;
use crate::history::{
    Buckets, Cancel, Covered, HistoryError, Lost, MAX_POINTS, Minutes, Needs, OverTime, SHOWN, Step, Worst,
    covered, decode_worst, end_of, keep_worst,
};
use crate::report::{MeterReach, OfMeters};
use spangap_model::{KeptCall, PairKey, PairStats};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Minutes whose worst calls one statement asks for.
const MINUTES_AT_ONCE: usize = 500;
/// All conditions are on columns of the key. Rows that replace each other are alike in these: they may be left out before
/// the others are merged, which ClickHouse does with FINAL only if it is told to.
const FROM: &str = "FROM spangap_pairs FINAL PREWHERE";
/// Rows with the same key have the same start, and so are in the same partition.
const SETTINGS: &str = "SETTINGS do_not_merge_across_partitions_select_final = 1";

/// What one meter has sent of a time range.
type There = Vec<(u64, Buckets)>;

/// Where the worst calls of a pair and minute of one meter are.
type Place = ([u8; 16], u64, u32);

/// The minutes of all meters as of one moment, without those that are still open or not sent yet.
#[derive(Clone, Debug)]
pub struct AllMinutes {
    shared: Arc<ClickHouse>,
    cancel: Arc<Cancel>,
    senders: Arc<BTreeMap<u64, Sender>>,
}

fn damaged(what: &str) -> HistoryError {
    HistoryError::Shared(format!("the answer with {what} ends within a row, or has an impossible value"))
}

/// A literal of SQL, of hex digits alone.
fn literal(id: &[u8; 16]) -> String {
    let digits: String = id.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    format!("'{digits}'")
}

fn literals<'a>(ids: impl IntoIterator<Item = &'a [u8; 16]>) -> String {
    ids.into_iter().map(literal).collect::<Vec<_>>().join(", ")
}

impl AllMinutes {
    /// Asks which meters there are.
    pub(super) fn open(shared: Arc<ClickHouse>, cancel: Arc<Cancel>) -> Result<AllMinutes, HistoryError> {
        let mut senders: BTreeMap<u64, Sender> = BTreeMap::new();
        let query = "SELECT meter, step_s, min(start), max(start), argMax(name, start) FROM spangap_intervals \
                     GROUP BY meter, step_s";
        let bytes = shared.select(query)?;
        let mut answer = Answer::new(&bytes);
        while !answer.is_empty() {
            let mut row = || {
                let meter = answer.u64()?;
                let step = step_of(answer.u32()?)?;
                let ends = [answer.u32()?, answer.u32()?].map(u64::from);
                Some((meter, step, ends, answer.text()?))
            };
            let (meter, step, [first_s, last_s], name) = row().ok_or_else(|| damaged("the meters"))?;
            let sender = senders.entry(meter).or_default();
            sender.first_s[step as usize] = Some(first_s);
            sender.last_s[step as usize] = Some(last_s);
            if step == Step::Minute || sender.name.is_empty() {
                sender.name = name;
            }
        }
        Ok(AllMinutes { shared, cancel, senders: Arc::new(senders) })
    }

    /// Whose minutes these are, for the answer.
    pub fn of_meters(&self) -> OfMeters {
        let mut reach: BTreeMap<&str, u64> = BTreeMap::new();
        for sender in self.senders.values() {
            let to_s = sender.last_s[Step::Minute as usize].map_or(0, end_of);
            let known = reach.entry(&sender.name).or_default();
            *known = to_s.max(*known);
        }
        let meters: Vec<MeterReach> =
            reach.into_iter().map(|(name, to_unix_s)| MeterReach { name: name.into(), to_unix_s }).collect();
        let note = match meters.len() {
            0 => "no meter has sent a closed minute to ClickHouse yet".into(),
            1 => "minutes of one meter, as far as they are closed and in ClickHouse".into(),
            meters => format!("minutes of {meters} meters, as far as they are closed and in ClickHouse"),
        };
        OfMeters { meters, note }
    }

    fn select(&self, query: &str) -> Result<Vec<u8>, HistoryError> {
        if self.cancel.is_cancelled() {
            return Err(HistoryError::Cancelled);
        }
        Ok(self.shared.select(query)?)
    }

    /// What each meter has sent of a range.
    fn there(&self, from_s: u64, to_s: u64) -> Result<There, HistoryError> {
        let query = format!(
            "SELECT DISTINCT meter, step_s, start FROM spangap_intervals WHERE start BETWEEN {} AND {}",
            date_time(Step::Day.start(from_s)),
            date_time(end_of(to_s) - 1)
        );
        let bytes = self.select(&query)?;
        let mut answer = Answer::new(&bytes);
        let mut starts: HashMap<u64, [BTreeSet<u64>; 4]> = HashMap::new();
        while !answer.is_empty() {
            let mut row = || Some((answer.u64()?, step_of(answer.u32()?)?, answer.u32()?));
            let (meter, step, start_s) = row().ok_or_else(|| damaged("the intervals"))?;
            starts.entry(meter).or_default()[step as usize].insert(start_s.into());
        }
        let buckets = |(meter, sender): (&u64, &Sender)| {
            (*meter, sender.buckets(starts.remove(meter).unwrap_or_default()))
        };
        Ok(self.senders.iter().map(buckets).collect())
    }

    /// Names of all pairs there are.
    fn names(&self) -> Result<HashMap<[u8; 16], PairKey>, HistoryError> {
        let bytes = self.select("SELECT DISTINCT pair, client, server, method FROM spangap_names")?;
        let mut answer = Answer::new(&bytes);
        let mut names = HashMap::new();
        while !answer.is_empty() {
            let mut row = || Some((answer.fixed::<16>()?, read_names(&mut answer)?));
            let (id, key) = row().ok_or_else(|| damaged("the names"))?;
            names.insert(id, key);
        }
        Ok(names)
    }

    /// Names of the matching pairs, and a condition that selects them.
    fn matching(
        &self,
        matches: &dyn Fn(&PairKey) -> bool,
    ) -> Result<(HashMap<[u8; 16], PairKey>, String), HistoryError> {
        let mut names = self.names()?;
        let all = names.len();
        names.retain(|_, key| matches(key));
        let condition = match names.len() {
            0 => String::new(),
            some if some < all => format!(" AND pair IN ({})", literals(names.keys())),
            _ => String::new(),
        };
        Ok((names, condition))
    }

    /// The rows of a whole range, as a condition, and from when on it is covered.
    fn whole(&self, (from_s, to_s): (u64, u64)) -> Result<(Option<String>, Covered), HistoryError> {
        let from_s = Step::Minute.start(from_s);
        let there = self.there(from_s, to_s)?;
        let covers: Vec<(u64, Vec<(Step, u64)>)> =
            there.iter().map(|(meter, buckets)| (*meter, buckets.cover(from_s, end_of(to_s)).rows)).collect();
        Ok((
            condition(covers.iter().map(|(meter, rows)| (*meter, &rows[..]))),
            reached(&there, &covers, from_s),
        ))
    }

    /// The same for points of `step_s`, none of whose rows extends beyond its point.
    fn by_step(&self, there: &There, (from_s, to_s): (u64, u64), step_s: u64) -> (Option<String>, Covered) {
        let start_of = |unix_s: u64| unix_s - unix_s % step_s;
        let (mut covers, mut parts_of) = (Vec::new(), Vec::new());
        for (meter, buckets) in there {
            let whole = buckets.cover(from_s, end_of(to_s)).rows;
            let mut parts: BTreeSet<(u64, Step)> = BTreeSet::new();
            if let (Some((_, first_s)), Some((last, last_s))) = (whole.first(), whole.last()) {
                let mut begin_s = start_of(*first_s);
                while begin_s < last_s + last.seconds() {
                    let until_s = (begin_s + step_s).min(end_of(to_s));
                    let rows = buckets.cover(from_s.max(begin_s), until_s).rows;
                    // A coarser row that replaces dropped finer ones counts in the point in which it starts.
                    parts.extend(
                        rows.into_iter().filter(|(_, at)| start_of(*at) == begin_s).map(|(s, at)| (at, s)),
                    );
                    begin_s += step_s;
                }
            }
            parts_of.push((*meter, parts.into_iter().map(|(at, step)| (step, at)).collect::<Vec<_>>()));
            covers.push((*meter, whole));
        }
        let rows = condition(parts_of.iter().map(|(meter, rows)| (*meter, &rows[..])));
        (rows, reached(there, &covers, from_s))
    }

    /// The largest gaps that these rows list: where the calls are, and the gap.
    fn tops(&self, rows: &str, gaps: &str, limit: &str) -> Result<Vec<(Place, u64)>, HistoryError> {
        let query = format!(
            "SELECT pair, meter, at, gap FROM spangap_pairs FINAL ARRAY JOIN top_gap_ns AS gap, top_start AS at \
             PREWHERE {rows}{gaps} ORDER BY gap DESC, at LIMIT {limit} {SETTINGS}"
        );
        let bytes = self.select(&query)?;
        let mut answer = Answer::new(&bytes);
        let mut tops = Vec::new();
        while !answer.is_empty() {
            let mut row = || Some(((answer.fixed::<16>()?, answer.u64()?, answer.u32()?), answer.u64()?));
            tops.push(row().ok_or_else(|| damaged("the largest gaps"))?);
        }
        Ok(tops)
    }

    /// The worst calls of these minutes.
    fn calls_at(
        &self,
        places: &BTreeSet<Place>,
        mut each: impl FnMut([u8; 16], Vec<KeptCall>),
    ) -> Result<(), HistoryError> {
        let places: Vec<&Place> = places.iter().collect();
        for some in places.chunks(MINUTES_AT_ONCE) {
            let starts: BTreeSet<u32> = some.iter().map(|(.., start_s)| *start_s).collect();
            let starts: Vec<String> = starts.iter().map(u32::to_string).collect();
            let tuples: Vec<String> = some
                .iter()
                .map(|(pair, meter, start_s)| format!("({start_s}, {}, {meter})", literal(pair)))
                .collect();
            let query = format!(
                "SELECT pair, calls FROM spangap_calls FINAL PREWHERE start IN ({}) \
                 AND (toUInt32(start), pair, meter) IN ({}) {SETTINGS}",
                starts.join(", "),
                tuples.join(", ")
            );
            let bytes = self.select(&query)?;
            let mut answer = Answer::new(&bytes);
            while !answer.is_empty() {
                let mut row = || Some((answer.fixed::<16>()?, answer.string()?));
                let (pair, calls) = row().ok_or_else(|| damaged("worst calls"))?;
                each(pair, decode_worst(calls).ok_or_else(|| damaged("worst calls"))?);
            }
        }
        Ok(())
    }
}

fn step_of(seconds: u32) -> Option<Step> {
    Step::ALL.into_iter().find(|step| step.seconds() == u64::from(seconds))
}

/// The first second that the rows of all meters cover together: that of the meter that covers least.
fn reached(there: &There, covers: &[(u64, Vec<(Step, u64)>)], from_s: u64) -> Covered {
    let each = there.iter().zip(covers).filter(|(_, (_, rows))| !rows.is_empty());
    let each = each.map(|((_, buckets), (_, rows))| covered(buckets, rows, from_s).from_unix_s);
    Covered { from_unix_s: each.max().unwrap_or(from_s) }
}

impl Minutes for AllMinutes {
    fn pairs_of(
        &self,
        range: (u64, u64),
        needs: Needs,
        matches: &dyn Fn(&PairKey) -> bool,
        each: &mut dyn FnMut(PairKey, PairStats),
    ) -> Result<Covered, HistoryError> {
        let (rows, reached) = self.whole(range)?;
        let Some(rows) = rows else { return Ok(reached) };
        let (mut names, of_pairs) = self.matching(matches)?;
        if names.is_empty() {
            return Ok(reached);
        }
        let mut calls: HashMap<[u8; 16], PairStats> = HashMap::new();
        if needs == Needs::WorstCalls {
            let tops = self.tops(&format!("{rows}{of_pairs}"), "", &format!("{SHOWN} BY pair"))?;
            let places = tops.into_iter().map(|(place, _)| place);
            let places = places.filter(|(pair, ..)| names.contains_key(pair)).collect();
            self.calls_at(&places, |pair, worst| {
                calls.entry(pair).or_default().merge(&PairStats { worst, ..PairStats::default() });
            })?;
        }
        let query = format!("SELECT pair, {} {FROM} {rows}{of_pairs} GROUP BY pair {SETTINGS}", sums(needs));
        let bytes = self.select(&query)?;
        let mut answer = Answer::new(&bytes);
        while !answer.is_empty() {
            let mut row = || Some((answer.fixed::<16>()?, read_sums(&mut answer, needs)?));
            let (pair, mut stats) = row().ok_or_else(|| damaged("the pairs"))?;
            if let Some(key) = names.remove(&pair)
                && (!stats.is_empty() || matches!(needs, Needs::Distribution(_)))
            {
                stats.worst = calls.remove(&pair).map(|of_pair| of_pair.worst).unwrap_or_default();
                each(key, stats);
            }
        }
        Ok(reached)
    }

    fn pair(&self, key: &PairKey, range: (u64, u64)) -> Result<PairStats, HistoryError> {
        let mut found = PairStats::default();
        self.pairs_of(range, Needs::Statistics, &|other| other == key, &mut |_, stats| found = stats)?;
        Ok(found)
    }

    fn over_time(&self, key: &PairKey, (from_s, to_s): (u64, u64)) -> Result<OverTime, HistoryError> {
        let from_s = Step::Minute.start(from_s);
        let there = self.there(from_s, to_s)?;
        let firsts =
            there.iter().filter_map(|(_, buckets)| Some(buckets.cover(from_s, end_of(to_s)).rows.first()?.1));
        let first_s = firsts.min().map_or(from_s, |first_s| from_s.max(first_s));
        let fits = |step: &&Step| to_s.saturating_sub(first_s) / step.seconds() <= MAX_POINTS;
        let fitting = Step::ALL.iter().find(fits).copied().unwrap_or(Step::Day);
        let finest = there.iter().map(|(_, buckets)| buckets.finest_since(first_s)).max();
        let step = finest.map_or(fitting, |finest| fitting.max(finest));
        let step_s = step.seconds();
        let (rows, covered) = self.by_step(&there, (from_s, to_s), step_s);
        let mut found = OverTime { points: BTreeMap::new(), total: PairStats::default(), step, covered };
        let Some(rows) = rows else { return Ok(found) };
        let rows = format!("{rows} AND pair = {}", literal(&pair_id(key)));
        let at = format!("intDiv(toUInt32(start), {step_s}) * {step_s}");
        let query = format!(
            "SELECT toUInt64({at}) AS at, {} {FROM} {rows} GROUP BY at {SETTINGS}",
            sums(Needs::Statistics)
        );
        let bytes = self.select(&query)?;
        let mut answer = Answer::new(&bytes);
        while !answer.is_empty() {
            let mut row = || Some((answer.u64()?, read_sums(&mut answer, Needs::Statistics)?));
            let (at, stats) = row().ok_or_else(|| damaged("a pair over time"))?;
            found.total.merge(&stats);
            found.points.insert(at, (stats, false));
        }
        let tops = self.tops(&rows, "", &SHOWN.to_string())?;
        self.calls_at(&tops.into_iter().map(|(place, _)| place).collect(), |_, worst| {
            found.total.merge(&PairStats { worst, ..PairStats::default() });
        })?;
        Ok(found)
    }

    fn lost(
        &self,
        (from_s, to_s): (u64, u64),
        step_s: u64,
        matches: &dyn Fn(&PairKey) -> bool,
        each: &mut dyn FnMut(&PairKey, u64, Lost),
    ) -> Result<Covered, HistoryError> {
        let from_s = Step::Minute.start(from_s);
        let there = self.there(from_s, to_s)?;
        let (rows, reached) = self.by_step(&there, (from_s, to_s), step_s);
        let Some(rows) = rows else { return Ok(reached) };
        let (names, of_pairs) = self.matching(matches)?;
        if names.is_empty() {
            return Ok(reached);
        }
        let query = format!(
            "SELECT pair, toUInt64(intDiv(toUInt64(toUInt32(start)), {step_s})) AS at, sum(gap_count), sum(gap_sum_ns), \
             sum(client_sum_ns) {FROM} {rows}{of_pairs} GROUP BY pair, at {SETTINGS}"
        );
        let bytes = self.select(&query)?;
        let mut answer = Answer::new(&bytes);
        while !answer.is_empty() {
            let mut row = || {
                let (pair, at) = (answer.fixed::<16>()?, answer.u64()?);
                Some((
                    pair,
                    at,
                    Lost { calls: answer.u64()?, gap_ns: answer.u128()?, client_ns: answer.u128()? },
                ))
            };
            let (pair, at, lost) = row().ok_or_else(|| damaged("the time lost"))?;
            if let Some(key) = names.get(&pair) {
                each(key, at * step_s, lost);
            }
        }
        Ok(reached)
    }

    fn worst(
        &self,
        range: (u64, u64),
        matches: &dyn Fn(&PairKey) -> bool,
        gap_ns: RangeInclusive<u64>,
        limit: usize,
    ) -> Result<Worst, HistoryError> {
        let mut found = Worst { calls: Vec::new(), floor_ns: 0 };
        let (Some(rows), _) = self.whole(range)? else { return Ok(found) };
        let (names, of_pairs) = self.matching(matches)?;
        if names.is_empty() {
            return Ok(found);
        }
        let bytes = self.select(&format!("SELECT max(worst_floor_ns) {FROM} {rows}{of_pairs} {SETTINGS}"))?;
        found.floor_ns = Answer::new(&bytes).u64().ok_or_else(|| damaged("the floor"))?;
        let gaps = format!(" WHERE gap BETWEEN {} AND {}", gap_ns.start(), gap_ns.end());
        let tops = self.tops(&format!("{rows}{of_pairs}"), &gaps, &limit.to_string())?;
        let places = tops.into_iter().map(|(place, _)| place);
        let places = places.filter(|(pair, ..)| names.contains_key(pair)).collect();
        self.calls_at(&places, |pair, calls| {
            let Some(key) = names.get(&pair) else { return };
            let calls = calls.into_iter().filter(|call| gap_ns.contains(&call.gap_ns));
            found.calls.extend(calls.map(|call| (key.clone(), call)));
        })?;
        keep_worst(&mut found.calls, limit);
        Ok(found)
    }

    fn call(
        &self,
        trace_id: &[u8; 16],
        client_span_id: Option<&[u8; 8]>,
    ) -> Result<Option<(PairKey, KeptCall)>, HistoryError> {
        let query = format!(
            "SELECT client, server, method, calls FROM spangap_calls \
             WHERE has(trace_ids, toFixedString({}, 16)) ORDER BY start DESC LIMIT 20",
            literal(trace_id)
        );
        let bytes = self.select(&query)?;
        let mut answer = Answer::new(&bytes);
        while !answer.is_empty() {
            let mut row = || Some((read_names(&mut answer)?, answer.string()?));
            let (key, calls) = row().ok_or_else(|| damaged("a call"))?;
            let calls = decode_worst(calls).ok_or_else(|| damaged("a call"))?;
            let is_it = |call: &KeptCall| {
                call.trace_id == *trace_id && client_span_id.is_none_or(|id| call.client_span_id == *id)
            };
            if let Some(call) = calls.into_iter().find(is_it) {
                return Ok(Some((key, call)));
            }
        }
        Ok(None)
    }
}

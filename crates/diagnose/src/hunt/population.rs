//! Kinds of calls, which are compared only among themselves: same method, same size class, and same instruments,
//! because a leg known only for some calls would look like an excess of theirs. A new connection or a retry does not
//! make a kind: its cost has its own line in the sheet.

use super::account::Account;
use super::logical::Logical;
use super::{Question, Slower};
use spangap_model::evidence::CallRecord;
use spangap_model::{Leg, Legs};
use std::collections::BTreeMap;

/// Fewer calls of a kind have no median worth the name.
pub const LEAST: usize = 8;
/// Slow calls are those with the largest excess that together have this much of all of it, and those half as slow.
const MOST_OF_EXCESS: f64 = 0.8;
/// The excess has to be that of so many calls at least, (sum x)^2 / sum x^2: one outlier is a story of its own.
pub const EFFECTIVE: f64 = 4.0;
/// It has to be at least this much of what such calls take anyway.
const LEAST_OF_MEDIAN: f64 = 0.05;
/// And so many times the spread of the pair's quicker half, median to 10th percentile: a tail of the same noise is less.
const SPREADS: f64 = 4.0;
/// Few calls that take so much of all time are not nothing.
const MUCH: f64 = 0.2;
/// So many times the median of others is much slower.
const MUCH_SLOWER: f64 = 2.0;
/// What a tap and a timer cannot tell from nothing, nanoseconds.
const RESOLUTION_NS: f64 = 20_000.0;

/// What makes calls comparable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    method: Option<String>,
    /// Size of both messages by powers of eight.
    size: u32,
    /// Whether begin and end at the client, begin and end at the server, and both taps are known.
    seen: [bool; 4],
    /// Whether it is a [stream](is_stream).
    streams: bool,
}

impl Kind {
    /// The same of any size.
    pub fn of_any_size(&self) -> Kind {
        Kind { size: 0, ..self.clone() }
    }
}

/// A call beside others of its kind.
pub struct Row<'a> {
    /// The call.
    pub call: &'a Logical<'a>,
    /// Its sheet.
    pub account: &'a Account,
    /// Its kind.
    pub stratum: usize,
    /// What it took beyond the median of its kind, nanoseconds.
    pub beyond_ns: i64,
}

/// What is usual in a kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usual {
    /// Median duration, nanoseconds.
    pub median_ns: u64,
    /// From the 10th percentile to the median, nanoseconds.
    pub spread_ns: u64,
}

/// All calls in question.
pub struct Population<'a> {
    /// All of them, in order of time.
    pub rows: Vec<Row<'a>>,
    /// Those of kinds too rare to have a median: they are slow beside nothing.
    pub set_aside: usize,
    /// Time of all calls that the rows stand for, nanoseconds.
    pub total_ns: f64,
    /// What is usual in each kind.
    pub usual: BTreeMap<usize, Usual>,
    /// The number of each kind; those too rare have zero.
    pub kinds: BTreeMap<Kind, usize>,
}

/// The slow calls.
pub struct Slow<'p, 'a> {
    /// The largest excess first.
    pub rows: Vec<&'p Row<'a>>,
    /// Excess of all calls that they stand for, nanoseconds.
    pub beyond_ns: f64,
    /// How many these are.
    pub calls: f64,
    /// Whether they stand out from the spread that calls have anyway. Where they do not, only what holds calls up one by one
    /// can be told from that spread.
    pub stands_out: bool,
    sums: Sums,
}

impl Slow<'_, '_> {
    /// Whether this share of the excess would still be slow by itself.
    pub fn stands_out_with(&self, share: f64) -> bool {
        let rest = Sums { beyond: self.sums.beyond * share, ..self.sums };
        rest.is_worth_it() && rest.stands_out()
    }
}

impl<'a> Population<'a> {
    /// Sorts calls into kinds.
    pub fn of(calls: &'a [Logical<'a>], accounts: &'a [Account]) -> Population<'a> {
        let kinds = kinds(calls);
        let mut counts: BTreeMap<&Kind, usize> = BTreeMap::new();
        for kind in &kinds {
            *counts.entry(kind).or_default() += 1;
        }
        // Kinds that are too rare by themselves are compared with each other.
        let common = counts.iter().filter(|(_, count)| **count >= LEAST);
        let numbers: BTreeMap<Kind, usize> =
            common.zip(1..).map(|((kind, _), number)| ((*kind).clone(), number)).collect();
        let strata: Vec<usize> = kinds.iter().map(|kind| numbers.get(kind).copied().unwrap_or(0)).collect();
        let mut durations: BTreeMap<usize, Vec<(u64, f64)>> = BTreeMap::new();
        for (call, stratum) in calls.iter().zip(&strata) {
            durations.entry(*stratum).or_default().push((call.duration_ns, call.weight));
        }
        let rare = durations.get(&0).map_or(0, Vec::len);
        let set_aside = if rare < LEAST { rare } else { 0 };
        let usual: BTreeMap<usize, Usual> =
            durations.into_iter().map(|(stratum, of)| (stratum, Usual::of(of))).collect();
        let row = |((call, account), stratum): ((&'a Logical<'a>, &'a Account), usize)| {
            let median = usual.get(&stratum).map_or(0, |usual| usual.median_ns);
            let beyond = i64::try_from(call.duration_ns).unwrap_or(i64::MAX) - median as i64;
            // What is compared with nothing is not slow by comparison.
            let beyond_ns = if stratum == 0 && set_aside > 0 { 0 } else { beyond };
            Row { call, account, stratum, beyond_ns }
        };
        let rows: Vec<Row<'a>> = calls.iter().zip(accounts).zip(strata).map(row).collect();
        let total_ns = rows.iter().map(|row| row.call.weight * row.call.duration_ns as f64).sum();
        Population { rows, set_aside, total_ns, usual, kinds: numbers }
    }

    /// How many calls the rows stand for.
    pub fn calls(&self) -> f64 {
        self.rows.iter().map(|row| row.call.weight).sum()
    }

    /// What a call takes, nanoseconds: the median of all that are not streams. A method that is slow by design is one of many.
    pub fn median_ns(&self) -> u64 {
        let calls = self.rows.iter().filter(|row| !is_stream(row.call.record));
        quantile(calls.map(|row| (row.call.duration_ns, row.call.weight)).collect(), 0.5)
    }

    /// Whether all calls are streams.
    pub fn are_streams(&self) -> bool {
        self.rows.iter().all(|row| is_stream(row.call.record))
    }

    /// Whether a call is an ordinary one of its kind.
    pub fn is_ordinary(row: &Row<'_>) -> bool {
        row.beyond_ns <= 0
    }

    /// Calls that stand out and are too few to say why, with what they take beyond others, nanoseconds: of one call's time
    /// anything may own most by chance.
    pub fn few<'p>(&'p self) -> Option<Slow<'p, 'a>> {
        let mut rows: Vec<&Row<'a>> = self.rows.iter().filter(|row| row.beyond_ns > 0).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.beyond_ns));
        rows.truncate(most_of_it(&rows));
        let sums = self.sums(&rows);
        let is_much = sums.beyond >= MUCH * self.total_ns;
        (sums.beyond > 0.0 && is_much && sums.is_worth_it() && sums.stands_out()).then_some(Slow {
            rows,
            beyond_ns: sums.beyond,
            calls: sums.calls,
            stands_out: true,
            sums,
        })
    }

    fn sums(&self, rows: &[&Row<'_>]) -> Sums {
        let mut sums = Sums::default();
        for row in rows {
            sums.add(row, self.usual.get(&row.stratum).copied().unwrap_or_default());
        }
        sums
    }

    /// Where calls of some kinds stand out, those of kinds that differ as much anyway do not belong to them.
    fn leave_out_spread(&self, rows: &mut Vec<&Row<'a>>) {
        let mut by_kind: BTreeMap<usize, Vec<&Row<'a>>> = BTreeMap::new();
        for row in &*rows {
            by_kind.entry(row.stratum).or_default().push(row);
        }
        by_kind.retain(|_, of| self.sums(of).stands_out());
        if !by_kind.is_empty() {
            rows.retain(|row| by_kind.contains_key(&row.stratum));
        }
    }

    /// The calls that are slow beside others of their kind; `None` where too few are, or not by enough.
    pub fn slow<'p>(&'p self, question: &Question<'_>) -> Option<Slow<'p, 'a>> {
        let mut rows: Vec<&Row<'a>> = self.rows.iter().filter(|row| row.beyond_ns > 0).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.beyond_ns));
        let over_ns = match question.slower {
            Some(Slower::Over(ns)) => Some(ns),
            Some(Slower::Quantile(share)) => Some(quantile(
                self.rows.iter().map(|row| (row.call.duration_ns, row.call.weight)).collect(),
                share,
            )),
            None => None,
        };
        match over_ns {
            Some(ns) => rows.retain(|row| row.call.duration_ns >= ns),
            None => rows.truncate(most_of_it(&rows)),
        }
        // Who asks for calls by their duration has said what slow is.
        let is_asked = over_ns.is_some();
        if !is_asked {
            self.leave_out_spread(&mut rows);
        }
        let sums = self.sums(&rows);
        let is_worth_it = is_asked || sums.is_worth_it();
        (effective(&rows, |row| row.beyond_ns as f64) >= EFFECTIVE && is_worth_it).then_some(Slow {
            rows,
            beyond_ns: sums.beyond,
            calls: sums.calls,
            stands_out: is_asked || sums.stands_out(),
            sums,
        })
    }
}

/// How many of the slowest have most of all excess. Those nearly as slow as the last one belong to them: a cut between two
/// causes would leave one of them out.
fn most_of_it(rows: &[&Row<'_>]) -> usize {
    let of = |row: &&Row<'_>| row.call.weight * row.beyond_ns as f64;
    let all: f64 = rows.iter().map(of).sum();
    let (mut sum, mut enough_ns) = (0.0, 0);
    for (place, row) in rows.iter().enumerate() {
        if sum >= MOST_OF_EXCESS * all && row.beyond_ns < enough_ns / 2 {
            return place;
        }
        if sum < MOST_OF_EXCESS * all {
            enough_ns = row.beyond_ns;
        }
        sum += of(row);
    }
    rows.len()
}

#[derive(Clone, Copy, Default)]
struct Sums {
    calls: f64,
    beyond: f64,
    medians: f64,
    spreads: f64,
}

impl Sums {
    fn add(&mut self, row: &Row<'_>, usual: Usual) {
        let (weight, beyond) = (row.call.weight, row.beyond_ns as f64);
        self.calls += weight;
        self.beyond += weight * beyond;
        self.medians += weight * usual.median_ns as f64;
        self.spreads += weight * usual.spread_ns as f64;
    }

    fn is_worth_it(&self) -> bool {
        self.beyond >= LEAST_OF_MEDIAN * self.medians && self.beyond >= RESOLUTION_NS * self.calls
    }

    fn stands_out(&self) -> bool {
        self.beyond >= SPREADS * self.spreads
    }
}

/// Of how many calls a time is, as if all of them had the same of it.
pub fn effective(rows: &[&Row<'_>], of: impl Fn(&Row<'_>) -> f64) -> f64 {
    let (mut sum, mut squares) = (0.0, 0.0);
    for row in rows {
        let time = of(row);
        sum += row.call.weight * time;
        squares += row.call.weight * time * time;
    }
    if squares > 0.0 { sum * sum / squares } else { 0.0 }
}

/// Whether so many of the calls make up their time that it can be said of all what it consists of: not a few of many.
pub fn are_many(rows: &[&Row<'_>]) -> bool {
    let effective = effective(rows, |row| row.call.duration_ns as f64);
    let calls: f64 = rows.iter().map(|row| row.call.weight).sum();
    effective >= EFFECTIVE.min(calls / 2.0)
}

/// Whether a call is one whose messages go on for as long as it does: it is meant to last. Its server works while it sends, or
/// while it still receives, for half of the call or longer. A server also begins while a single large request still arrives, which
/// takes as long as the way to it does.
pub fn is_stream(call: &CallRecord) -> bool {
    let [receives, sends] =
        [Leg::ServerHostIn, Leg::ServerHostOut].map(|leg| call.leg_ns(Legs::one(leg)).min(0));
    let receives = if call.request_bytes > AT_ONCE { 0 } else { receives };
    2 * (receives + sends).unsigned_abs() >= call.duration_ns && call.duration_ns > 0
}

/// A request of more bytes arrives in several pieces, whatever its protocol: the first window of HTTP/2, and more than TCP begins with.
const AT_ONCE: u64 = 64 << 10;

impl Usual {
    fn of(durations: Vec<(u64, f64)>) -> Usual {
        let median_ns = quantile(durations.clone(), 0.5);
        Usual { median_ns, spread_ns: median_ns.saturating_sub(quantile(durations, 0.1)) }
    }
}

/// Whether a call has no answer on the wire.
fn is_unanswered(call: &CallRecord) -> bool {
    call.legs.iter().any(|leg| leg.legs == Legs::one(Leg::NoResponse))
}

/// Whether its answer has no body: an error, most often, which is no size class of its own.
fn is_empty(call: &CallRecord) -> bool {
    call.response_bytes.unwrap_or(0) == 0
}

/// The kinds of calls. One that was tried again is beside those that were not, whatever is known of its last attempt alone;
/// and one that was not answered beside those that were.
fn kinds(calls: &[Logical<'_>]) -> Vec<Kind> {
    let own: Vec<Kind> = calls.iter().map(|call| kind(call.record)).collect();
    let mut at_once: BTreeMap<(&Option<String>, u32), BTreeMap<&Kind, usize>> = BTreeMap::new();
    let mut of_method: BTreeMap<&Option<String>, BTreeMap<&Kind, usize>> = BTreeMap::new();
    let answered = |call: &Logical<'_>| call.attempts == 1 && !is_unanswered(call.record);
    for (_, kind) in calls.iter().zip(&own).filter(|(call, _)| answered(call)) {
        *at_once.entry((&kind.method, kind.size)).or_default().entry(kind).or_default() += 1;
        *of_method.entry(&kind.method).or_default().entry(kind).or_default() += 1;
    }
    let usual = |kind: &Kind| {
        let same = at_once.get(&(&kind.method, kind.size))?;
        same.iter().max_by_key(|(_, count)| **count).map(|(kind, _)| (*kind).clone())
    };
    let like_others = like_others(calls, &own);
    // The size of an answer that did not come is not known.
    let of_any_size = |kind: &Kind| {
        let same = of_method.get(&kind.method)?;
        same.iter().max_by_key(|(_, count)| **count).map(|(kind, _)| (*kind).clone())
    };
    let of = |(call, kind): (&Logical<'_>, &Kind)| match call.attempts {
        1 if is_unanswered(call.record) || is_empty(call.record) => {
            of_any_size(kind).unwrap_or_else(|| kind.clone())
        }
        1 => like_others.get(kind).unwrap_or(kind).clone(),
        _ => usual(kind).unwrap_or_else(|| kind.clone()),
    };
    calls.iter().zip(&own).map(of).collect()
}

/// Kinds of calls that were seen by fewer instruments than most of their method and size, and are much slower: what keeps spans
/// from being found may be that the calls are slow (several at a time fit, an export is cut), and beside each other alone they
/// would not stand out. Each with the kind that they are compared with.
fn like_others(calls: &[Logical<'_>], own: &[Kind]) -> BTreeMap<Kind, Kind> {
    let mut durations: BTreeMap<&Kind, Vec<(u64, f64)>> = BTreeMap::new();
    for (call, kind) in calls.iter().zip(own).filter(|(call, _)| call.attempts == 1) {
        durations.entry(kind).or_default().push((call.duration_ns, call.weight));
    }
    let medians: BTreeMap<&Kind, (usize, u64)> =
        durations.into_iter().map(|(kind, of)| (kind, (of.len(), quantile(of, 0.5)))).collect();
    let more_seen = |kind: &Kind, other: &Kind| {
        let same = (&kind.method, kind.size, kind.streams) == (&other.method, other.size, other.streams);
        same && kind.seen != other.seen && kind.seen.iter().zip(other.seen).all(|(own, other)| other || !*own)
    };
    let mut like = BTreeMap::new();
    for (kind, (count, median)) in &medians {
        let others = medians.iter().filter(|(other, (more, _))| more_seen(kind, other) && more > count);
        let most = others.max_by_key(|(_, (count, _))| *count);
        if let Some((other, _)) = most.filter(|(_, (_, usual))| *median as f64 > MUCH_SLOWER * *usual as f64)
        {
            like.insert((*kind).clone(), (*other).clone());
        }
    }
    like
}

/// The kind of a call.
pub fn kind(call: &CallRecord) -> Kind {
    let bytes = call.request_bytes + call.response_bytes.unwrap_or(0);
    let known = |leg: Leg| call.legs.iter().any(|own| own.legs == Legs::one(leg));
    let spans = [known(Leg::ClientAppOut) && known(Leg::ClientAppIn), known(Leg::ServerApp)];
    let taps = call.seen_in.map(|capture| capture.is_some());
    Kind {
        method: call.method.clone(),
        size: (u64::BITS - bytes.leading_zeros()) / 3,
        seen: [spans[0], spans[1], taps[0], taps[1]],
        streams: is_stream(call),
    }
}

/// The value below which this share of the weight lies.
pub fn quantile(mut values: Vec<(u64, f64)>, share: f64) -> u64 {
    values.sort_unstable_by_key(|(value, _)| *value);
    let all: f64 = values.iter().map(|(_, weight)| weight).sum();
    let mut sum = 0.0;
    for (value, weight) in &values {
        sum += weight;
        if sum > share * all {
            return *value;
        }
    }
    values.last().map_or(0, |(value, _)| *value)
}

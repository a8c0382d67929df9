//! A balance sheet, not a vote: every nanosecond of the excess has an owner or is unexplained, and only what owns most of it
//! for certain is named.
//!
//! Two questions are asked of the same calls. *Why are the slow ones slow?* compares slow calls with ordinary ones of their
//! own kind ([`population`]), so that what both have (a slow method, think time, a long way) explains nothing. *Why is
//! everything slow?* has nothing to compare with, and says what the time of all calls consists of. Each call's time is laid
//! to owners first ([`account`]), then the groups are compared ([`shares`]), then the verdict is read off ([`verdict`]).

pub mod account;
pub mod population;
pub mod shares;
pub mod verdict;

use account::{Account, account};
use population::{Population, Row};
use shares::{Share, Weighed, shares};
use spangap_model::evidence::{CallRecord, Evidence};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};
use std::collections::BTreeMap;
pub use verdict::{Hunt, Kind};

/// Whose a stretch of a call's time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// Something that takes time, as an instrument showed it.
    Culprit(Culprit),
    /// Nobody that was shown: the time passed in these legs.
    Place(Legs),
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Why the slow calls are slower than the others of their kind.
    Slow,
    /// What all calls spend their time on.
    All,
}

/// A question and what the sheet says to it.
pub struct Answered {
    /// Which.
    pub question: Question,
    /// What each owner has of the time in question, the most first.
    pub shares: Vec<(Owner, Share)>,
    /// Mean time in question of a call in question, nanoseconds.
    pub mean_ns: u64,
    /// Calls in question.
    pub calls: usize,
    /// Time in question of all calls in question, as a share of all time in calls.
    pub of_all: f64,
    /// Trace ids of the calls that have most of it.
    pub trace_ids: Vec<String>,
    /// Whether half of the calls in question carry a large message.
    pub large: bool,
}

/// A message of this many bytes is large.
const LARGE_BYTES: u64 = 256 << 10;
/// Trace ids shown.
const TRACES: usize = 5;

/// Asks both questions of the evidence, and says what it comes to.
pub fn hunt(evidence: &Evidence) -> Hunt {
    let calls: Vec<&CallRecord> = evidence.measured().collect();
    let hosts = recorded(&calls);
    let accounts: Vec<Account> = calls.iter().map(|call| named(account(call), hosts)).collect();
    let population = Population::of(&calls, &accounts);
    let slow = slow(&population);
    let all = all(&population);
    verdict::of(evidence, &population, slow, all)
}

/// Which hosts were recorded, by [`Side::index`].
fn recorded(calls: &[&CallRecord]) -> [bool; 2] {
    let mut hosts = [false; 2];
    for leg in calls.iter().flat_map(|call| &call.legs).filter(|leg| leg.host.is_some()) {
        let client = matches!(leg.legs.first, Leg::ClientAppOut | Leg::ClientAppIn);
        hosts[usize::from(!client)] = true;
    }
    hosts
}

/// Names what only one thing can own: the path between two taps, and an application whose host was recorded and is cleared.
fn named(account: Account, hosts: [bool; 2]) -> Account {
    let mut named = Account::new();
    for (owner, ns) in account {
        let of = |cause, side: Side| match hosts[side.index()] {
            true => Owner::Culprit(Culprit::at(cause, side)),
            false => owner,
        };
        let owner = match owner {
            Owner::Place(legs) if legs.first == legs.last => match legs.first {
                Leg::RequestWire | Leg::ResponseWire => Owner::Culprit(Culprit::of(Cause::NetworkDelay)),
                Leg::ServerApp => of(Cause::ServerApp, Side::Server),
                Leg::ServerHostIn => of(Cause::ServerQueue, Side::Server),
                Leg::ClientAppOut | Leg::ClientAppIn => of(Cause::ClientApp, Side::Client),
                _ => owner,
            },
            owner => owner,
        };
        *named.entry(owner).or_default() += ns;
    }
    named
}

/// Why the slow ones are slow; `None` where too few are, or not by enough.
fn slow(population: &Population<'_>) -> Option<Answered> {
    let slow = population.slow()?;
    let mut weighed: Vec<(i64, Weighed<'_>)> = Vec::new();
    let mut by_stratum: BTreeMap<usize, usize> = BTreeMap::new();
    for row in &slow.rows {
        *by_stratum.entry(row.stratum).or_default() += 1;
        weighed.push((row.call.start_unix_ns, Weighed { account: row.account, weight: 1.0 }));
    }
    for (stratum, count) in &by_stratum {
        let ordinary = || population.rows.iter().filter(|row| row.stratum == *stratum && row.beyond_ns <= 0);
        let weight = -(*count as f64) / ordinary().count().max(1) as f64;
        for row in ordinary() {
            weighed.push((row.call.start_unix_ns, Weighed { account: row.account, weight }));
        }
    }
    weighed.sort_by_key(|(at, _)| *at);
    let weighed: Vec<Weighed<'_>> = weighed.into_iter().map(|(_, weighed)| weighed).collect();
    Some(answered(Question::Slow, &weighed, &slow.rows, slow.beyond_ns, population))
}

/// What all calls spend their time on.
fn all(population: &Population<'_>) -> Option<Answered> {
    let mut rows: Vec<&Row<'_>> = population.rows.iter().collect();
    rows.sort_by_key(|row| row.call.start_unix_ns);
    let weighed: Vec<Weighed<'_>> =
        rows.iter().map(|row| Weighed { account: row.account, weight: 1.0 }).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.call.duration_ns));
    (!rows.is_empty()).then(|| answered(Question::All, &weighed, &rows, population.total_ns, population))
}

fn answered(
    question: Question,
    weighed: &[Weighed<'_>],
    rows: &[&Row<'_>],
    ns: u64,
    population: &Population<'_>,
) -> Answered {
    let mut shares: Vec<(Owner, Share)> = shares(weighed).into_iter().collect();
    shares.sort_by(|(_, one), (_, other)| other.mid.total_cmp(&one.mid));
    let is_large =
        |row: &&&Row<'_>| row.call.request_bytes.max(row.call.response_bytes.unwrap_or(0)) >= LARGE_BYTES;
    Answered {
        question,
        shares,
        mean_ns: ns / rows.len().max(1) as u64,
        calls: rows.len(),
        of_all: ns as f64 / population.total_ns.max(1) as f64,
        trace_ids: rows.iter().filter_map(|row| row.call.trace_id.clone()).take(TRACES).collect(),
        large: 2 * rows.iter().filter(is_large).count() >= rows.len().max(1),
    }
}

#[cfg(test)]
mod tests;

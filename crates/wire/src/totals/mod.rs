//! Sums over calls: by connection, by pair of hosts, overall.

pub(crate) mod accum;

use crate::align::Clock;
use crate::join::links::Link;
use crate::segment::Endpoint;
use crate::tcp::ConnectionFacts;
use accum::Accum;
use rustc_hash::{FxHashMap, FxHashSet};
use spangap_model::{Cause, Histogram, Legs, Side};
use std::collections::BTreeMap;

/// Maximum connections listed; beyond it, those with the least time in calls are only counted.
const MAX_CONNECTIONS: usize = 10_000;
/// Maximum pairs of hosts listed; the calls of others count only in the overall sums.
const MAX_PAIRS: usize = 10_000;

/// Time of one leg, summed over calls. The true sum lies within `bound_ns` of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegSum {
    /// The leg or legs.
    pub legs: Legs,
    /// Nanoseconds.
    pub total_ns: i64,
    /// Uncertainty of the sum in either direction.
    pub bound_ns: u64,
}

/// Time of one cause, summed over calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CauseSum {
    /// The cause.
    pub cause: Cause,
    /// The end responsible, if the cause has one.
    pub side: Option<Side>,
    /// Calls for which the cause is shown.
    pub calls: u64,
    /// Calls for which it is only possible.
    pub possible: u64,
    /// Their cost, as far as the wire shows it, nanoseconds.
    pub cost_ns: u64,
}

/// Sums over some calls.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// Calls.
    pub calls: u64,
    /// Calls seen at only one end, by end.
    pub one_end: [u64; 2],
    /// Failed calls: gRPC status other than OK, HTTP 5xx, reset, connection closed.
    pub failed: u64,
    /// Calls still in flight at the end of the capture.
    pub unfinished: u64,
    /// Calls that ended, or were still open at the end of the capture, without any byte of a response.
    pub unanswered: u64,
    /// Completed calls of a protocol with statuses whose status could not be read.
    pub status_unknown: u64,
    /// Calls by HTTP status, unless a gRPC status decides.
    pub http_statuses: BTreeMap<u16, u64>,
    /// Calls whose end was cut off by the snap length.
    pub cut_by_snap: u64,
    /// Durations.
    pub durations: Histogram,
    /// Time by leg, in order.
    pub legs: Vec<LegSum>,
    /// Time by cause: shown before possible, then by descending cost.
    pub causes: Vec<CauseSum>,
}

impl Sums {
    /// Adds the sums over other calls.
    pub(crate) fn add(&mut self, other: &Sums) {
        self.calls += other.calls;
        self.one_end.iter_mut().zip(other.one_end).for_each(|(mine, theirs)| *mine += theirs);
        self.failed += other.failed;
        self.unfinished += other.unfinished;
        self.unanswered += other.unanswered;
        self.status_unknown += other.status_unknown;
        self.cut_by_snap += other.cut_by_snap;
        accum::add_counts(&mut self.http_statuses, &other.http_statuses);
        self.durations.merge(&other.durations);
        other.legs.iter().for_each(|leg| accum::add_sum(&mut self.legs, *leg));
        self.legs.sort_by_key(|sum| sum.legs);
        for sum in &other.causes {
            match self.causes.iter_mut().find(|known| (known.cause, known.side) == (sum.cause, sum.side)) {
                Some(known) => {
                    known.calls += sum.calls;
                    known.possible += sum.possible;
                    known.cost_ns = known.cost_ns.saturating_add(sum.cost_ns);
                }
                None => self.causes.push(*sum),
            }
        }
        accum::by_weight(&mut self.causes);
    }
}

/// A connection, as seen by the captures at both ends.
#[derive(Clone, Debug)]
pub struct ConnectionTotals {
    /// Number in the report, from 1.
    pub number: u32,
    /// The captures in which it was looked up.
    pub captures: [u8; 2],
    /// Facts of the connection from each of them.
    pub seen: [Option<ConnectionFacts>; 2],
    /// The capture nearer to the client; `None` while unknown (one capture, or no calls in both).
    pub client_capture: Option<u8>,
    /// Sums over its calls.
    pub sums: Sums,
    /// Statements about the connection as a whole, in sentences.
    pub notes: Vec<String>,
}

impl ConnectionTotals {
    /// Facts of the connection from one capture.
    pub fn seen_by(&self, capture: u8) -> Option<&ConnectionFacts> {
        let place = self.captures.iter().position(|of| *of == capture)?;
        self.seen[place].as_ref()
    }
}

/// All calls from one host to one server.
#[derive(Clone, Debug)]
pub struct PairTotals {
    /// Client's address; the port is zero, since it stands for all ports.
    pub client: Endpoint,
    /// Server's address and port.
    pub server: Endpoint,
    /// Connections.
    pub connections: u64,
    /// Sums over its calls.
    pub sums: Sums,
}

/// A finished connection.
#[derive(Debug)]
struct Listed {
    link: Link,
    notes: Vec<String>,
}

#[derive(Debug, Default)]
struct PairAccum {
    connections: u64,
    sums: Accum,
}

/// Sums over all finished connections.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    all: Accum,
    pairs: FxHashMap<([u8; 16], Endpoint), PairAccum>,
    /// Connections of pairs beyond the maximum.
    pub pairs_left_out: u64,
    listed: Vec<Listed>,
    connections_left_out: u64,
}

/// [`Totals`] once the clocks are known.
pub(crate) struct Finished {
    pub sums: Sums,
    pub pairs: Vec<PairTotals>,
    pub connections: Vec<ConnectionTotals>,
    pub connections_left_out: u64,
    /// Number in the report and [`Link::least_path_ns`], by [`Link::key`].
    pub numbers: FxHashMap<u32, (u32, Option<u64>)>,
    /// Links, by [`Link::key`], with a single call that opened its own connection, where no other call of the
    /// pair did so.
    pub reconnects: FxHashSet<u32>,
}

impl Totals {
    /// Adds a finished connection.
    pub fn take(&mut self, mut link: Link, notes: Vec<String>) {
        self.all.add(&link.sums);
        let inner = std::mem::take(&mut link.inner);
        link.sums.add(&inner);
        if link.sums.calls == 0 {
            return;
        }
        if let Some(key) = pair_of(&link) {
            if self.pairs.len() < MAX_PAIRS || self.pairs.contains_key(&key) {
                let pair = self.pairs.entry(key).or_default();
                pair.connections += 1;
                pair.sums.add(&link.sums);
            } else {
                self.pairs_left_out += 1;
            }
        }
        self.list(link, notes);
    }

    /// Lists a connection.
    pub fn list(&mut self, link: Link, notes: Vec<String>) {
        self.listed.push(Listed { link, notes });
        if self.listed.len() >= 2 * MAX_CONNECTIONS {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        self.listed.sort_by_key(|listed| (std::cmp::Reverse(listed.link.sums.total_ns()), listed.link.key));
        self.connections_left_out += self.listed.len().saturating_sub(MAX_CONNECTIONS) as u64;
        self.listed.truncate(MAX_CONNECTIONS);
    }

    /// A single connection for one call does not make a pattern: it may be a reconnect. Its recorded cost stays
    /// only if a CLIENT span shows that the call paid it.
    fn drop_reconnects(&mut self) -> FxHashSet<u32> {
        let mut reconnects = FxHashSet::default();
        for Listed { link, .. } in &mut self.listed {
            let Some(sum) = link.sums.of_cause(Cause::ConnectionPerCall).filter(|sum| sum.cost_ns == 0)
            else {
                continue;
            };
            let Some(pair) = pair_of(link).and_then(|key| self.pairs.get_mut(&key)) else { continue };
            let all = pair.sums.of_cause(Cause::ConnectionPerCall);
            if all.is_none_or(|all| all.calls + all.possible != 1) {
                continue;
            }
            link.sums.take_back(sum);
            pair.sums.take_back(sum);
            self.all.take_back(sum);
            reconnects.insert(link.key);
        }
        reconnects
    }

    /// The final sums.
    pub fn finish(mut self, clock: Option<&Clock>, resolution_ns: u32) -> Finished {
        self.shorten();
        let reconnects = self.drop_reconnects();
        let mut numbers = FxHashMap::default();
        let mut connections = Vec::with_capacity(self.listed.len());
        for (i, Listed { link, notes }) in self.listed.into_iter().enumerate() {
            let number = i as u32 + 1;
            numbers.insert(link.key, (number, link.least_path_ns));
            let client_capture = link.client_capture().map(|capture| capture as u8);
            let sums = link.sums.finish(clock, resolution_ns);
            let (captures, seen) = ([0, 1], link.facts);
            connections.push(ConnectionTotals { number, captures, seen, client_capture, sums, notes });
        }
        let mut pairs: Vec<PairTotals> = Vec::with_capacity(self.pairs.len());
        for ((address, server), pair) in self.pairs {
            let client = Endpoint { address, port: 0 };
            let sums = pair.sums.finish(clock, resolution_ns);
            pairs.push(PairTotals { client, server, connections: pair.connections, sums });
        }
        pairs.sort_by_key(|pair| (std::cmp::Reverse(pair.sums.durations.sum_ns()), pair.client, pair.server));
        Finished {
            sums: self.all.finish(clock, resolution_ns),
            pairs,
            connections,
            connections_left_out: self.connections_left_out,
            numbers,
            reconnects,
        }
    }
}

/// Client's address, and server.
fn pair_of(link: &Link) -> Option<([u8; 16], Endpoint)> {
    let facts = link.facts[link.client_capture().unwrap_or(0)].as_ref().or(link.facts[1].as_ref())?;
    let [client, server] = facts.ends;
    Some((client.address, server))
}

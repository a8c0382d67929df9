//! The sheet of one call: every nanosecond has one owner, which is either a culprit or the place where the
//! time passed.

use super::Owner;
use super::logical::Logical;
use super::turns::{Turns, between_threads};
use crate::claims::{Rank, counts, host_of, is_clients_own, is_place, lost_of, of_host, rank};
use spangap_model::evidence::{
    CallRecord, Certainty, Finding, HopPlace, HostPart, HostTime, Instrument, LegRecord, Missing,
};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};
use std::collections::BTreeMap;

/// Nanoseconds by owner, which sum to exactly the call's duration.
pub type Account = BTreeMap<Owner, i64>;

/// Which leg of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// One of its own legs, by index.
    Leg(usize),
    /// A leg over all hops, by index in its path.
    Step(usize),
}

/// The unclaimed part of a leg.
struct Free {
    owner: Owner,
    hop: u8,
    /// Index among the call's own legs, if it is one of them.
    place: Option<usize>,
    /// Index in the path of a call through proxies.
    step: Option<usize>,
    /// Unclaimed intervals, in nanoseconds since the call began.
    stretches: Vec<(i64, i64)>,
    /// Unclaimed time, nanoseconds. Less than the sum of the intervals if a claim did not say when it was;
    /// negative in a negative leg, which has no interval.
    ns: i64,
}

impl Free {
    fn is_at(&self, at: At) -> bool {
        match at {
            At::Leg(place) => self.place == Some(place),
            At::Step(step) => self.step == Some(step),
        }
    }

    /// Takes up to `ns`, within an interval if that is known. Returns how much it took.
    fn take(&mut self, ns: i64, within: Option<(i64, i64)>) -> i64 {
        let most = ns.min(self.ns).max(0);
        let Some((from, to)) = within else {
            self.ns -= most;
            return most;
        };
        let mut left = most;
        let mut rest = Vec::with_capacity(self.stretches.len() + 1);
        for &(begin, end) in &self.stretches {
            let (first, last) = (begin.max(from), end.min(to));
            let taken = (last - first).min(left).max(0);
            if taken == 0 {
                rest.push((begin, end));
                continue;
            }
            left -= taken;
            rest.extend(
                [(begin, first), (first + taken, end)].into_iter().filter(|(begin, end)| begin < end),
            );
        }
        self.stretches = rest;
        let taken = most - left;
        self.ns -= taken;
        taken
    }
}

/// A claim to some of a call's time.
struct Claim {
    rank: Rank,
    owner: Owner,
    ns: i64,
    /// Interval that contains it, since the call began; `None` if unknown.
    within: Option<(i64, i64)>,
    /// Leg that contains it; `None` for any.
    leg: Option<At>,
    /// Hop that contains it; `None` for any.
    hop: Option<u8>,
}

/// The sheet of a call with all its attempts.
pub fn of_logical(call: &Logical<'_>, turns: &Turns) -> Account {
    let retries = Culprit::of(Cause::Retries);
    let earlier = call.retried.map(|(from, to)| Claim {
        rank: Rank::Attempts,
        owner: Owner::Culprit(retries),
        ns: to - from,
        within: Some((from, to)),
        leg: None,
        hop: None,
    });
    let waited = queued(call).chain(in_turn(call));
    let mut account = assigned(call.record, earlier.into_iter().chain(waited), turns);
    // Causes that delayed an attempt with a span of its own keep their time; the time between attempts
    // belongs to retrying.
    for attempt in &call.earlier {
        for (owner, ns) in assigned(attempt, std::iter::empty(), turns) {
            *account.entry(owner).or_default() += ns;
        }
    }
    let ns = |duration_ns: u64| i64::try_from(duration_ns).unwrap_or(i64::MAX);
    let attempts = call.earlier.iter().map(|attempt| ns(attempt.duration_ns)).sum::<i64>();
    let between = ns(call.duration_ns) - ns(call.record.duration_ns) - attempts;
    if between != 0 {
        *account.entry(Owner::Culprit(retries)).or_default() += between;
    }
    account
}

/// Assigns a call's time to owners. The most specific claim is served first, and no claim gets more than is left.
pub fn account(call: &CallRecord) -> Account {
    assigned(call, std::iter::empty(), &Turns::default())
}

/// Claims to the time before a server's thread began on the call: for the queue, and for causes that delayed
/// the thread's other calls meanwhile. They rank below everything known about the thread itself.
fn queued<'c>(call: &'c Logical<'_>) -> impl Iterator<Item = Claim> + 'c {
    let record = call.record;
    let is_direct = record.path.is_empty();
    let before = Legs::one(Leg::ServerHostIn);
    let place = match is_direct {
        true => record.legs.iter().position(|leg| leg.legs == before).map(At::Leg),
        false => record
            .path
            .iter()
            .rposition(|step| step.place == HopPlace::Leg(before) && step.hop > 0)
            .map(At::Step),
    };
    let handed_on: i64 = call.queued.behind.iter().map(|(_, ns)| ns).sum();
    // Behind a proxy, a queue remains a place: the proxy decides how many calls each server gets.
    let queue = (QUEUE, if is_direct { call.queued.ns - handed_on } else { 0 });
    let claim = move |(culprit, ns): (Culprit, i64)| {
        Some(Claim {
            rank: Rank::Own,
            owner: Owner::Culprit(culprit),
            ns,
            within: None,
            leg: Some(place?),
            hop: None,
        })
    };
    let all = call.queued.behind.iter().copied().chain([queue]);
    all.filter(|(_, ns)| *ns > 0).filter_map(claim)
}

/// The claim of a connection's other responses to the time in which this one waited for the client to read
/// it.
fn in_turn(call: &Logical<'_>) -> Option<Claim> {
    let leg = call.record.legs.iter().rposition(|leg| leg.legs == Legs::one(Leg::ClientAppIn))?;
    (call.in_turn_ns > 0).then_some(Claim {
        rank: Rank::Behind,
        owner: Owner::Culprit(Culprit::at(Cause::SharedConnection, Side::Client)),
        ns: call.in_turn_ns,
        within: None,
        leg: Some(At::Leg(leg)),
        hop: None,
    })
}

/// The queue of calls in front of the server's threads.
pub const QUEUE: Culprit = Culprit::at(Cause::ServerQueue, Side::Server);

fn assigned(call: &CallRecord, more: impl IntoIterator<Item = Claim>, turns: &Turns) -> Account {
    let mut free = if call.path.is_empty() { free(&call.legs) } else { over_hops(call) };
    let mut account = Account::new();
    let mut claims: Vec<Claim> =
        call.findings.iter().filter_map(|finding| of_finding(finding, call)).collect();
    let own =
        |(place, leg): (usize, &LegRecord)| of_host_time(At::Leg(place), leg.legs, leg.host.as_ref(), turns);
    claims.extend(call.legs.iter().enumerate().flat_map(own));
    claims.extend(call.path.iter().enumerate().flat_map(|(step, leg)| match leg.place {
        // What a proxy does on its way to the next server is its own time, not that of a client.
        HopPlace::Leg(legs) if host_of(legs) == Side::Server => {
            of_host_time(At::Step(step), legs, leg.host.as_ref(), turns)
        }
        _ => Vec::new(),
    }));
    claims.extend(more);
    // Bytes that came twice at the server's tap reached its socket late because the first copy was dropped, by whatever.
    if came_twice(call) {
        let late = Owner::Culprit(Culprit::at(Cause::SoftirqLate, Side::Server));
        claims
            .iter_mut()
            .filter(|claim| claim.owner == late)
            .for_each(|claim| claim.owner = Owner::Lost(Side::Client));
    }
    claims.sort_by_key(|claim| (claim.rank, std::cmp::Reverse(claim.ns)));
    for claim in claims {
        let mut left = claim.ns;
        // Events that packets show without a time are less likely in the middle of the server's work.
        let is_late = |free: &Free| {
            claim.leg.is_none()
                && claim.within.is_none()
                && free.owner == Owner::Place(Legs::one(Leg::ServerApp))
        };
        for late in [false, true] {
            for free in free.iter_mut().filter(|free| is_late(free) == late) {
                let elsewhere = claim.leg.is_some_and(|leg| !free.is_at(leg))
                    || claim.hop.is_some_and(|hop| free.hop != hop);
                if elsewhere {
                    continue;
                }
                let taken = free.take(left, claim.within);
                left -= taken;
                if taken > 0 {
                    *account.entry(claim.owner).or_default() += taken;
                }
            }
        }
    }
    for free in &free {
        *account.entry(free.owner).or_default() += free.ns;
    }
    let known: i64 = account.values().sum();
    // Time outside the known legs has no narrower place than the whole call.
    let unknown = i64::try_from(call.duration_ns).unwrap_or(i64::MAX).saturating_sub(known);
    if unknown != 0 {
        *account.entry(Owner::Place(ALL)).or_default() += unknown;
    }
    account.retain(|_, ns| *ns != 0);
    account
}

/// All of a call.
pub const ALL: Legs = Legs { first: Leg::ClientAppOut, last: Leg::ClientAppIn };
/// From the client's host onwards, and back to it.
pub const BEYOND_CLIENT: Legs = Legs { first: Leg::RequestWire, last: Leg::ResponseWire };

/// The time axis on which legs follow each other.
struct Row(i64);

impl Row {
    fn next(&mut self, owner: Owner, hop: u8, place: Option<usize>, ns: i64) -> Free {
        let from = self.0;
        self.0 += ns;
        let stretches = if ns > 0 { vec![(from, self.0)] } else { Vec::new() };
        Free { owner, hop, place, step: None, stretches, ns }
    }
}

fn free(legs: &[LegRecord]) -> Vec<Free> {
    let mut row = Row(0);
    let one = |(place, leg): (usize, &LegRecord)| row.next(Owner::Place(leg.legs), 0, Some(place), leg.ns);
    legs.iter().enumerate().map(one).collect()
}

/// The legs over all hops. If the proxy may itself have waited for another host, its time is a place, not a
/// culprit.
fn over_hops(call: &CallRecord) -> Vec<Free> {
    let waited =
        call.findings.iter().any(|finding| finding.culprit.cause == Cause::Proxy && !finding.is_shown());
    let mut row = Row(0);
    let mut over = Vec::with_capacity(call.path.len());
    for (step, leg) in call.path.iter().enumerate() {
        let owner = match leg.place {
            HopPlace::Leg(legs) if leg.hop == 0 => Owner::Place(legs),
            HopPlace::Leg(legs) => Owner::Hop(leg.hop, legs),
            HopPlace::BetweenAttempts => Owner::Culprit(Culprit::of(Cause::Retries)),
            HopPlace::Proxy if !waited => Owner::Culprit(Culprit::of(Cause::Proxy)),
            HopPlace::Proxy | HopPlace::ProxyOrWire => Owner::Place(BEYOND_CLIENT),
        };
        let place = match leg.place {
            HopPlace::Leg(legs) if leg.hop == 0 => call.legs.iter().position(|own| own.legs == legs),
            _ => None,
        };
        over.push(Free { step: Some(step), ..row.next(owner, leg.hop, place, leg.ns) });
    }
    over
}

/// Whether the server's tap alone shows that bytes of a call came twice before its host took them.
fn came_twice(call: &CallRecord) -> bool {
    let open = Certainty::Possible(Missing::SentOnce);
    call.findings.iter().any(|finding| finding.certainty == open)
}

fn of_finding(finding: &Finding, call: &CallRecord) -> Option<Claim> {
    // Findings of a recording are taken from the legs, which have them in full.
    let from_host = finding.instrument == Instrument::HostRecording;
    if from_host || is_place(finding.culprit.cause) || !counts(finding, call) {
        return None;
    }
    // A proxy's time is a leg of the path; in a call without a path, its position would be unknown.
    if finding.culprit.cause == Cause::Proxy && !call.path.is_empty() {
        return None;
    }
    let within = finding.when.map(|when| {
        (
            when.from_unix_ns.saturating_sub(call.start_unix_ns),
            when.to_unix_ns.saturating_sub(call.start_unix_ns),
        )
    });
    // A segment retransmitted in vain because it is too large for the path was not lost by chance.
    let too_large =
        call.findings.iter().find(|other| other.culprit.cause == Cause::PathMtu && other.is_shown());
    // A kernel whose accept queue is full drops what comes on connections that it could not open. Where a span tells what the
    // opening took, that queue has a claim of its own.
    let no_room = call.findings.iter().find(|other| {
        other.culprit.cause == Cause::AcceptOverflow && other.is_shown() && other.cost_ns.is_none()
    });
    let culprit = match (too_large, no_room) {
        (Some(too_large), _) if matches!(finding.culprit.cause, Cause::Rto | Cause::TailLoss) => {
            too_large.culprit
        }
        (_, Some(no_room)) if finding.culprit.cause == Cause::ReceiverDrop => no_room.culprit,
        _ => finding.culprit,
    };
    // The client of a connection behind a proxy is the proxy.
    let is_proxys = finding.hop.is_some_and(|hop| hop > 0) && culprit.side == Some(Side::Client);
    let culprit = if is_proxys { Culprit::of(culprit.cause) } else { culprit };
    let owner = match lost_of(finding) {
        // Behind a proxy, it is no leg of the call's own.
        Some(_) if finding.hop.is_some_and(|hop| hop > 0) => return None,
        Some(sender) if culprit == finding.culprit => Owner::Lost(sender),
        _ => Owner::Culprit(culprit),
    };
    Some(Claim {
        rank: rank(finding.culprit.cause)?,
        owner,
        ns: i64::try_from(finding.cost_ns?).unwrap_or(i64::MAX),
        // An interval that the clocks place outside the call belongs to another clock's time.
        within: within.filter(|(from, to)| {
            finding.hop.is_none() && to > from && *to > 0 && *from < call.duration_ns as i64
        }),
        leg: None,
        hop: finding.hop.filter(|_| !call.path.is_empty()),
    })
}

fn of_host_time(at: At, legs: Legs, host: Option<&HostTime>, turns: &Turns) -> Vec<Claim> {
    let is_own_leg = matches!(at, At::Leg(_));
    let of_part = |part: &HostPart| {
        let ns = i64::try_from(part.ns).unwrap_or(i64::MAX);
        let (rank, owner) = match of_host(part, legs) {
            Some(culprit) => (Rank::Host, Owner::Culprit(culprit)),
            None if turns.is_lock(part, legs) => {
                (Rank::Host, Owner::Culprit(Culprit::at(Cause::Lock, Side::Server)))
            }
            None if is_own_leg && legs == Legs::one(Leg::ServerApp) && between_threads(part).is_some() => {
                (Rank::Own, Owner::Between(legs))
            }
            None if is_clients_own(part, legs) => {
                (Rank::Own, Owner::Culprit(Culprit::at(Cause::ClientApp, Side::Client)))
            }
            None => return None,
        };
        Some(Claim { rank, owner, ns, within: None, leg: Some(at), hop: None })
    };
    host.iter().flat_map(|host| &host.parts).filter_map(of_part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_model::evidence::{Interval, Scope};
    use spangap_model::{Doing, Side};

    const MS: i64 = 1_000_000;

    fn leg(leg: Leg, ms: i64) -> LegRecord {
        LegRecord { legs: Legs::one(leg), ns: ms * MS, bound_ns: 0, host: None }
    }

    fn finding(cause: Cause, ms: u64, when: Option<(i64, i64)>) -> Finding {
        Finding {
            hop: None,
            culprit: Culprit::of(cause),
            certainty: Certainty::Shown,
            instrument: Instrument::Packets,
            scope: Scope::Call,
            when: when
                .map(|(from, to)| Interval { from_unix_ns: 1_000 + from * MS, to_unix_ns: 1_000 + to * MS }),
            cost_ns: Some(ms * MS as u64),
            note: String::new(),
            proofs: Vec::new(),
        }
    }

    fn call(legs: Vec<LegRecord>, findings: Vec<Finding>) -> CallRecord {
        let ns: i64 = legs.iter().map(|leg| leg.ns).sum();
        CallRecord { start_unix_ns: 1_000, duration_ns: ns as u64, legs, findings, ..CallRecord::default() }
    }

    #[test]
    fn a_claim_takes_what_is_free_where_it_was() {
        let legs = vec![leg(Leg::ClientSend, 10), leg(Leg::RequestWire, 5), leg(Leg::ServerApp, 20)];
        // Held from 4 to 12 ms: 6 ms of the sending, 2 ms of the path.
        let account = account(&call(legs, vec![finding(Cause::Rto, 8, Some((4, 12)))]));
        let of = |owner| account.get(&owner).copied().unwrap_or(0) / MS;
        assert_eq!(of(Owner::Culprit(Culprit::of(Cause::Rto))), 8);
        assert_eq!(of(Owner::Place(Legs::one(Leg::ClientSend))), 4);
        assert_eq!(of(Owner::Place(Legs::one(Leg::RequestWire))), 3);
        assert_eq!(of(Owner::Place(Legs::one(Leg::ServerApp))), 20);
    }

    #[test]
    fn nothing_is_owned_twice_and_all_of_it_is_owned() {
        let mut served = leg(Leg::ServerApp, 20);
        let part = HostPart {
            doing: Doing::Stopped,
            behind: None,
            waited_for: None,
            woken_by: None,
            waker: None,
            ns: 15_000_000,
        };
        served.host = Some(HostTime { parts: vec![part], ..HostTime::default() });
        let both = vec![finding(Cause::Rto, 12, None), finding(Cause::HeadOfLine, 30, None)];
        let account = account(&call(vec![served, leg(Leg::ResponseWire, -1)], both));
        assert_eq!(account.values().sum::<i64>(), 19 * MS);
        assert_eq!(account[&Owner::Culprit(Culprit::of(Cause::Rto))], 12 * MS);
        // The loss came first, so the stop gets the rest.
        assert_eq!(account[&Owner::Culprit(Culprit::at(Cause::Stopped, Side::Server))], 8 * MS);
        assert!(!account.contains_key(&Owner::Culprit(Culprit::of(Cause::HeadOfLine))));
    }
}

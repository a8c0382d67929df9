//! The sheet of one call: every nanosecond has one owner, a culprit or the place where it passed.

use super::Owner;
use super::logical::Logical;
use super::turns::{Turns, between_threads};
use crate::claims::{Rank, counts, is_clients_own, is_place, of_host, rank};
use spangap_model::evidence::{CallRecord, Finding, HopPlace, Instrument, LegRecord};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};
use std::collections::BTreeMap;

/// Nanoseconds by owner; they sum to the call's duration exactly.
pub type Account = BTreeMap<Owner, i64>;

/// What of a leg nobody has claimed yet.
struct Free {
    owner: Owner,
    hop: u8,
    /// Place among the legs of the call, where it is one of them.
    place: Option<usize>,
    /// Stretches since the call began that nobody has claimed, nanoseconds.
    stretches: Vec<(i64, i64)>,
    /// What is not claimed, nanoseconds; less than the stretches where a claim did not say when. Below zero in a leg that
    /// is, which has no stretch.
    ns: i64,
}

impl Free {
    /// Takes up to `ns`, from what lies within a stretch where that is known. How much.
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
    /// The stretch that it lies in, since the call began; `None` where that is not known.
    within: Option<(i64, i64)>,
    /// The leg that it lies in, by place; `None` for any.
    leg: Option<usize>,
    /// The hop that it lies in; `None` for any.
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
    let mut account = laid(call.record, earlier.into_iter().chain(waited), turns);
    let whole = i64::try_from(call.duration_ns).unwrap_or(i64::MAX);
    let record = i64::try_from(call.record.duration_ns).unwrap_or(i64::MAX);
    if whole != record {
        *account.entry(Owner::Culprit(retries)).or_default() += whole - record;
    }
    account
}

/// Lays a call's time to its owners: the most particular claim first, none gets more than is left.
pub fn account(call: &CallRecord) -> Account {
    laid(call, std::iter::empty(), &Turns::default())
}

/// What other calls that the same threads had in hand have of the time before this one was begun with, and what these waited for
/// themselves, after all that is known of these threads.
fn queued<'c>(call: &'c Logical<'_>) -> impl Iterator<Item = Claim> + 'c {
    let place = call.record.legs.iter().position(|leg| leg.legs == Legs::one(Leg::ServerHostIn));
    let handed_on: i64 = call.queued.behind.iter().map(|(_, ns)| ns).sum();
    let queue = (QUEUE, call.queued.ns - handed_on);
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

/// What other responses of its connection have of the time in which this one waited to be handed over.
fn in_turn(call: &Logical<'_>) -> Option<Claim> {
    let leg = call.record.legs.iter().rposition(|leg| leg.legs == Legs::one(Leg::ClientAppIn))?;
    (call.in_turn_ns > 0).then_some(Claim {
        rank: Rank::Behind,
        owner: Owner::Culprit(Culprit::at(Cause::SharedConnection, Side::Client)),
        ns: call.in_turn_ns,
        within: None,
        leg: Some(leg),
        hop: None,
    })
}

/// Calls that wait for the server's threads.
pub const QUEUE: Culprit = Culprit::at(Cause::ServerQueue, Side::Server);

fn laid(call: &CallRecord, more: impl IntoIterator<Item = Claim>, turns: &Turns) -> Account {
    let mut free = if call.path.is_empty() { free(&call.legs) } else { over_hops(call) };
    let mut account = Account::new();
    let mut claims: Vec<Claim> =
        call.findings.iter().filter_map(|finding| of_finding(finding, call)).collect();
    claims.extend(call.legs.iter().enumerate().flat_map(|(place, leg)| of_leg(place, leg, turns)));
    claims.extend(more);
    claims.sort_by_key(|claim| (claim.rank, std::cmp::Reverse(claim.ns)));
    for claim in claims {
        let mut left = claim.ns;
        // What packets show without saying when is less likely in the middle of the server's work.
        let is_late = |free: &Free| {
            claim.leg.is_none()
                && claim.within.is_none()
                && free.owner == Owner::Place(Legs::one(Leg::ServerApp))
        };
        for late in [false, true] {
            for free in free.iter_mut().filter(|free| is_late(free) == late) {
                let elsewhere = claim.leg.is_some_and(|leg| free.place != Some(leg))
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
    // A call whose legs are not known passed somewhere.
    let unknown = i64::try_from(call.duration_ns).unwrap_or(i64::MAX).saturating_sub(known);
    if unknown != 0 {
        *account.entry(Owner::Place(ALL)).or_default() += unknown;
    }
    account.retain(|_, ns| *ns != 0);
    account
}

/// All of a call.
pub const ALL: Legs = Legs { first: Leg::ClientAppOut, last: Leg::ClientAppIn };
/// From the client's host and back to it.
pub const BEYOND_CLIENT: Legs = Legs { first: Leg::RequestWire, last: Leg::ResponseWire };

/// Legs one after the other, each where the ones before it end.
struct Row(i64);

impl Row {
    fn next(&mut self, owner: Owner, hop: u8, place: Option<usize>, ns: i64) -> Free {
        let from = self.0;
        self.0 += ns;
        let stretches = if ns > 0 { vec![(from, self.0)] } else { Vec::new() };
        Free { owner, hop, place, stretches, ns }
    }
}

fn free(legs: &[LegRecord]) -> Vec<Free> {
    let mut row = Row(0);
    let one = |(place, leg): (usize, &LegRecord)| row.next(Owner::Place(leg.legs), 0, Some(place), leg.ns);
    legs.iter().enumerate().map(one).collect()
}

/// The legs over all hops. Where the proxy itself waited for somebody, which is then only possible, its time is a place.
fn over_hops(call: &CallRecord) -> Vec<Free> {
    let waited =
        call.findings.iter().any(|finding| finding.culprit.cause == Cause::Proxy && !finding.is_shown());
    let mut row = Row(0);
    let mut over = Vec::with_capacity(call.path.len());
    for leg in &call.path {
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
        over.push(row.next(owner, leg.hop, place, leg.ns));
    }
    over
}

fn of_finding(finding: &Finding, call: &CallRecord) -> Option<Claim> {
    // What a recording shows is taken from the legs, where it stands in full.
    let from_host = finding.instrument == Instrument::HostRecording;
    if from_host || is_place(finding.culprit.cause) || !counts(finding, call) {
        return None;
    }
    // The time of a proxy is a leg of the path; of a call without one, nobody knows where it would lie.
    if finding.culprit.cause == Cause::Proxy && !call.path.is_empty() {
        return None;
    }
    let within = finding.when.map(|when| {
        (
            when.from_unix_ns.saturating_sub(call.start_unix_ns),
            when.to_unix_ns.saturating_sub(call.start_unix_ns),
        )
    });
    // What is sent again in vain, as it is too large for the path, is not lost by chance.
    let too_large =
        call.findings.iter().find(|other| other.culprit.cause == Cause::PathMtu && other.is_shown());
    let culprit = match too_large {
        Some(too_large) if matches!(finding.culprit.cause, Cause::Rto | Cause::TailLoss) => too_large.culprit,
        _ => finding.culprit,
    };
    Some(Claim {
        rank: rank(finding.culprit.cause)?,
        owner: Owner::Culprit(culprit),
        ns: i64::try_from(finding.cost_ns?).unwrap_or(i64::MAX),
        // A stretch that clocks put outside of the call is where it was by another clock.
        within: within.filter(|(from, to)| {
            finding.hop.is_none() && to > from && *to > 0 && *from < call.duration_ns as i64
        }),
        leg: None,
        hop: finding.hop.filter(|_| !call.path.is_empty()),
    })
}

fn of_leg<'c>(place: usize, leg: &'c LegRecord, turns: &'c Turns) -> impl Iterator<Item = Claim> + 'c {
    leg.host.iter().flat_map(|host| &host.parts).filter_map(move |part| {
        let ns = i64::try_from(part.ns).unwrap_or(i64::MAX);
        let (rank, owner) = match of_host(part, leg.legs) {
            Some(culprit) => (Rank::Host, Owner::Culprit(culprit)),
            None if turns.is_lock(part, leg.legs) => {
                (Rank::Host, Owner::Culprit(Culprit::at(Cause::Lock, Side::Server)))
            }
            None if leg.legs == Legs::one(Leg::ServerApp) && between_threads(part).is_some() => {
                (Rank::Own, Owner::Between(leg.legs))
            }
            None if is_clients_own(part, leg.legs) => {
                (Rank::Own, Owner::Culprit(Culprit::at(Cause::ClientApp, Side::Client)))
            }
            None => return None,
        };
        Some(Claim { rank, owner, ns, within: None, leg: Some(place), hop: None })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_model::evidence::{Certainty, HostPart, HostTime, Interval, Scope};
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
        // Held from 4 to 12 ms: 6 ms of the sending, 2 of the way.
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
        // The loss was first, so that the stop has what is left.
        assert_eq!(account[&Owner::Culprit(Culprit::at(Cause::Stopped, Side::Server))], 8 * MS);
        assert!(!account.contains_key(&Owner::Culprit(Culprit::of(Cause::HeadOfLine))));
    }
}

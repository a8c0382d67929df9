//! The sheet of one call: every nanosecond of it has one owner, a culprit or the place where it passed.

use super::Owner;
use crate::claims::{counts, is_place, of_host};
use spangap_model::evidence::{CallRecord, Finding, Instrument, LegRecord};
use spangap_model::{Cause, Culprit, Leg, Legs};
use std::collections::BTreeMap;

/// Nanoseconds by owner; they sum to the call's duration exactly.
pub type Account = BTreeMap<Owner, i64>;

/// What of a leg nobody has claimed yet.
struct Free {
    legs: Legs,
    /// Begin and end since the call began, nanoseconds.
    from_ns: i64,
    to_ns: i64,
    ns: i64,
}

/// A claim to some of a call's time.
struct Claim {
    rank: u8,
    culprit: Culprit,
    ns: i64,
    /// The stretch that it lies in, since the call began; `None` where that is not known.
    within: Option<(i64, i64)>,
    /// The leg that it lies in, by place; `None` for any.
    leg: Option<usize>,
}

/// Lays a call's time to its owners: the most particular claim first, none gets more than is left.
pub fn account(call: &CallRecord) -> Account {
    let mut free = free(&call.legs);
    let mut account = Account::new();
    let mut claims: Vec<Claim> =
        call.findings.iter().filter_map(|finding| of_finding(finding, call)).collect();
    claims.extend(call.legs.iter().enumerate().flat_map(|(place, leg)| of_leg(place, leg)));
    claims.sort_by_key(|claim| (claim.rank, std::cmp::Reverse(claim.ns)));
    for claim in claims {
        let mut left = claim.ns;
        for (place, free) in free.iter_mut().enumerate() {
            if claim.leg.is_some_and(|leg| leg != place) {
                continue;
            }
            let most = match claim.within {
                Some((from, to)) => (free.to_ns.min(to) - free.from_ns.max(from)).max(0),
                None => i64::MAX,
            };
            let taken = left.min(most).min(free.ns).max(0);
            free.ns -= taken;
            left -= taken;
            if taken > 0 {
                *account.entry(Owner::Culprit(claim.culprit)).or_default() += taken;
            }
        }
    }
    for free in &free {
        *account.entry(Owner::Place(free.legs)).or_default() += free.ns;
    }
    // A call whose legs are not known passed somewhere.
    let known: i64 = call.legs.iter().map(|leg| leg.ns).sum();
    let unknown = i64::try_from(call.duration_ns).unwrap_or(i64::MAX).saturating_sub(known);
    if unknown != 0 {
        *account.entry(Owner::Place(ALL)).or_default() += unknown;
    }
    account.retain(|_, ns| *ns != 0);
    account
}

/// All of a call.
pub const ALL: Legs = Legs { first: Leg::ClientAppOut, last: Leg::ClientAppIn };

fn free(legs: &[LegRecord]) -> Vec<Free> {
    let mut at = 0;
    let one = |leg: &LegRecord| {
        let from_ns = at;
        at += leg.ns;
        Free { legs: leg.legs, from_ns, to_ns: at.max(from_ns), ns: leg.ns }
    };
    legs.iter().map(one).collect()
}

fn of_finding(finding: &Finding, call: &CallRecord) -> Option<Claim> {
    // What a recording shows is taken from the legs, where it stands in full.
    let from_host = finding.instrument == Instrument::HostRecording;
    if from_host || is_place(finding.culprit.cause) || !counts(finding, call) {
        return None;
    }
    let within = finding.when.map(|when| {
        (
            when.from_unix_ns.saturating_sub(call.start_unix_ns),
            when.to_unix_ns.saturating_sub(call.start_unix_ns),
        )
    });
    // What a wait behind others, or for a new connection, has inside of it comes first.
    let behind = matches!(
        finding.culprit.cause,
        Cause::HeadOfLine | Cause::BatchedArrival | Cause::ConnectionPerCall | Cause::SharedConnection
    );
    Some(Claim {
        rank: if behind { 2 } else { 0 },
        culprit: finding.culprit,
        ns: i64::try_from(finding.cost_ns?).unwrap_or(i64::MAX),
        // A stretch that clocks put outside of the call is where it was by another clock.
        within: within.filter(|(from, to)| to > from && *to > 0 && *from < call.duration_ns as i64),
        leg: None,
    })
}

fn of_leg(place: usize, leg: &LegRecord) -> impl Iterator<Item = Claim> + '_ {
    leg.host.iter().flat_map(|host| &host.parts).filter_map(move |part| {
        let ns = i64::try_from(part.ns).unwrap_or(i64::MAX);
        Some(Claim { rank: 1, culprit: of_host(part, leg.legs)?, ns, within: None, leg: Some(place) })
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
            ns: 15_000_000,
        };
        served.host = Some(HostTime { threads: Vec::new(), parts: vec![part] });
        let both = vec![finding(Cause::Rto, 12, None), finding(Cause::HeadOfLine, 30, None)];
        let account = account(&call(vec![served, leg(Leg::ResponseWire, -1)], both));
        assert_eq!(account.values().sum::<i64>(), 19 * MS);
        assert_eq!(account[&Owner::Culprit(Culprit::of(Cause::Rto))], 12 * MS);
        // The loss was first, so that the stop has what is left.
        assert_eq!(account[&Owner::Culprit(Culprit::at(Cause::Stopped, Side::Server))], 8 * MS);
        assert!(!account.contains_key(&Owner::Culprit(Culprit::of(Cause::HeadOfLine))));
    }
}

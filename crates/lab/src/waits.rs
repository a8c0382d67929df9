//! Faults that keep one side from running for a while: their common part, and the cost of these intervals to
//! each call.

use crate::LabError;
use crate::calls::{Call, Calls};
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario};
use crate::stage::Stage;
use crate::truth::{Active, Affected, FaultReport};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};
use std::time::Duration;

/// The part of such a fault that is common to both sides.
pub struct Wait {
    pub cause: Cause,
    pub parameters: &'static [Parameter],
    /// Text of its page.
    pub page: Page,
    pub make: fn(&mut Stage<'_>, &Case<'_>) -> Result<FaultReport, LabError>,
}

/// The part that differs between the sides.
pub struct SideText {
    /// Name of the scenario.
    pub name: &'static str,
    /// Description in one line.
    pub title: &'static str,
    /// Difference of its near miss, in one line.
    pub near_miss: &'static str,
}

impl Wait {
    /// Its scenario on a side: at the server anything on its host may take longer, at the client what follows
    /// the arrival of the response.
    pub const fn at(self, side: Side, words: SideText) -> Scenario {
        let (leg, near_culprit, near_leg) = match side {
            // In the near miss, only the server's think time is left of a call.
            Side::Client => (
                Legs::one(Leg::ClientAppIn),
                Culprit::at(Cause::ServerApp, Side::Server),
                Some(Legs::one(Leg::ServerApp)),
            ),
            Side::Server => {
                (Legs { first: Leg::ServerHostIn, last: Leg::ServerHostOut }, Culprit::NOTHING, None)
            }
        };
        Scenario {
            name: words.name,
            title: words.title,
            culprit: Culprit::at(self.cause, side),
            also_right: &[],
            leg: Some(leg),
            parameters: self.parameters,
            near_miss: NearMiss { title: words.near_miss, culprit: near_culprit, leg: near_leg },
            page: self.page,
            make: self.make,
        }
    }
}

/// Think time of the server: for the client's side so long that there are always calls waiting for their
/// response.
pub fn think(side: Side) -> Duration {
    match side {
        Side::Client => Duration::from_millis(20),
        Side::Server => Duration::ZERO,
    }
}

/// What [`affected`] does, as a sentence for the truth.
pub fn rule(side: Side) -> &'static str {
    match side {
        Side::Client => {
            "calls whose response was sent (end of the SERVER span) and not yet taken (end of the CLIENT span) while the \
             fault was there for 5 ms and more; cost: how long both held, which is the most that the fault can have taken"
        }
        Side::Server => {
            "calls that were under way while the fault was there for 5 ms and more; cost: how long both held, which is the \
             most that the fault can have taken"
        }
    }
}

/// Shorter times, in nanoseconds, are lost in the normal operation of the scheduler.
const LEAST_NS: u64 = 5_000_000;

/// Calls that had to wait for a side that did not run in these intervals.
pub fn affected(calls: &Calls, side: Side, active: &[Active]) -> Vec<Affected> {
    let cost = |call: &Call| -> u64 {
        let from = wanted_from(call, side);
        active.iter().map(|one| one.overlap_ns(from, call.end_unix_ns)).sum()
    };
    let costs = calls.all.iter().map(|call| (call, cost(call))).filter(|(_, ns)| *ns >= LEAST_NS);
    costs.map(|(call, ns)| Affected { trace_id: call.trace_id.clone(), cost_ns: Some(ns) }).collect()
}

/// An actor's intervals within the measured phase.
pub fn within(calls: &Calls, stretches: Vec<Active>) -> Vec<Active> {
    let measured = calls.whole();
    let seen = |one: &Active| measured.iter().any(|all| all.overlap_ns(one.from_unix_ns, one.to_unix_ns) > 0);
    stretches.into_iter().filter(seen).collect()
}

/// Time from which on the call needed that side: at the server the whole call, at the client from the response
/// on.
fn wanted_from(call: &Call, side: Side) -> u64 {
    match (side, call.server.last()) {
        (Side::Client, Some((_, end))) => *end,
        _ => call.start_unix_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_is_needed_once_the_response_arrived() {
        const MS: u64 = 1_000_000;
        let call = |id: &str, start: u64, end: u64, server: (u64, u64)| Call {
            trace_id: id.into(),
            start_unix_ns: start * MS,
            end_unix_ns: end * MS,
            ok: true,
            server: vec![(server.0 * MS, server.1 * MS)],
        };
        let all = vec![call("a", 100, 150, (101, 120)), call("b", 110, 130, (111, 129))];
        let calls = Calls { all, server_only: 0 };
        let active = [Active { from_unix_ns: 90 * MS, to_unix_ns: 128 * MS }];
        let costs = |side| -> Vec<(String, Option<u64>)> {
            let affected = affected(&calls, side, &active);
            affected.into_iter().map(|one| (one.trace_id, one.cost_ns)).collect()
        };
        assert_eq!(costs(Side::Client), [("a".to_owned(), Some(8 * MS))]);
        assert_eq!(costs(Side::Server), [("a".to_owned(), Some(28 * MS)), ("b".to_owned(), Some(18 * MS))]);
    }
}

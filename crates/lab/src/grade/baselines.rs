//! Two naive judges as a baseline. Both consider only the slowest tenth of the calls.

use super::conclusion::{Conclusion, Kind};
use spangap_model::evidence::{CallRecord, Evidence};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};
use std::collections::BTreeMap;

/// Names.
pub const NAMES: [&str; 2] = ["longest leg", "first finding"];

/// Conclusions of both, in the order of [`NAMES`].
pub fn conclude(evidence: &Evidence) -> [Conclusion; 2] {
    let mut calls: Vec<&CallRecord> = evidence.measured().collect();
    calls.sort_by_key(|call| std::cmp::Reverse(call.duration_ns));
    calls.truncate(calls.len().div_ceil(10));
    [longest_leg(&calls), first_finding(&calls)]
}

/// Blames the usual cause of the leg that takes the most time.
fn longest_leg(slow: &[&CallRecord]) -> Conclusion {
    let mut sums: BTreeMap<Legs, i64> = BTreeMap::new();
    for leg in slow.iter().flat_map(|call| &call.legs) {
        *sums.entry(leg.legs).or_default() += leg.ns;
    }
    let Some((legs, _)) = sums.into_iter().max_by_key(|(_, ns)| *ns) else {
        return Conclusion::of(Kind::Unknown);
    };
    let culprit = match legs.first {
        _ if legs.first != legs.last => return Conclusion::place(legs),
        Leg::RequestWire | Leg::ResponseWire => Culprit::of(Cause::NetworkDelay),
        Leg::ServerApp => Culprit::at(Cause::ServerApp, Side::Server),
        Leg::ServerHostIn => Culprit::at(Cause::ServerQueue, Side::Server),
        Leg::ClientAppOut | Leg::ClientAppIn => Culprit::at(Cause::ClientApp, Side::Client),
        _ => return Conclusion::place(legs),
    };
    Conclusion::named(culprit)
}

/// Blames the most frequent first finding.
fn first_finding(slow: &[&CallRecord]) -> Conclusion {
    let mut counts: BTreeMap<Culprit, usize> = BTreeMap::new();
    for finding in slow.iter().filter_map(|call| call.findings.first()) {
        *counts.entry(finding.culprit).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map_or_else(|| Conclusion::of(Kind::Nothing), |(culprit, _)| Conclusion::named(culprit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_model::evidence::{Certainty, Finding, Instrument, LegRecord, Scope};

    fn call(duration_ns: u64, legs: &[(Leg, i64)], finding: Option<Cause>) -> CallRecord {
        let leg =
            |(leg, ns): &(Leg, i64)| LegRecord { legs: Legs::one(*leg), ns: *ns, bound_ns: 0, host: None };
        let found = |cause| Finding {
            hop: None,
            culprit: Culprit::of(cause),
            certainty: Certainty::Shown,
            instrument: Instrument::Packets,
            scope: Scope::Call,
            when: None,
            cost_ns: None,
            note: String::new(),
            proofs: Vec::new(),
        };
        CallRecord {
            duration_ns,
            legs: legs.iter().map(leg).collect(),
            findings: finding.map(found).into_iter().collect(),
            ..CallRecord::default()
        }
    }

    #[test]
    fn they_look_at_slow_calls_alone() {
        let mut calls: Vec<CallRecord> =
            (0..18).map(|_| call(10, &[(Leg::ServerApp, 10)], Some(Cause::Rto))).collect();
        calls.push(call(100, &[(Leg::RequestWire, 60), (Leg::ServerApp, 40)], Some(Cause::SynLoss)));
        calls.push(call(90, &[(Leg::ServerApp, 10), (Leg::RequestWire, 80)], None));
        let evidence = Evidence { calls, ..Evidence::default() };
        let [leg, finding] = conclude(&evidence);
        assert_eq!((leg.words(), finding.words()), ("network-delay".to_owned(), "syn-loss".to_owned()));
        let [leg, finding] = conclude(&Evidence::default());
        assert_eq!((leg.kind, finding.kind), (Kind::Unknown, Kind::Nothing));
    }
}

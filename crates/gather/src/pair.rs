//! The calls of one pair among all that its two hosts captured. The evidence of a case may have packets of every connection: what
//! the services send to their meter, what the agents say, and what people ask them, each of which may last far longer than the
//! pair's calls.

use spangap_model::evidence::{CallRecord, Evidence};
use spangap_model::{Leg, Legs};
use std::collections::BTreeSet;

/// Leaves out calls to servers that no call with a span goes to, and says how many. All spans must be of the pair; without any, or
/// none that belongs to a captured call, all calls stay.
pub fn leave_out_others(evidence: &mut Evidence) {
    let has_span = |call: &&CallRecord| {
        let known = |leg: Leg| call.legs.iter().any(|own| own.legs == Legs::one(leg));
        known(Leg::ClientAppOut) || known(Leg::ServerApp)
    };
    let servers: BTreeSet<String> =
        evidence.calls.iter().filter(has_span).filter_map(|call| call.server.clone()).collect();
    if servers.is_empty() {
        return;
    }
    let is_of_pair = |call: &CallRecord| call.server.as_ref().is_none_or(|server| servers.contains(server));
    let others = evidence.calls.iter().filter(|call| !is_of_pair(call)).map(CallRecord::weight).sum::<f64>();
    if others == 0.0 {
        return;
    }
    evidence.matching_calls = evidence.matching_calls.saturating_sub(others.round() as u64);
    evidence.calls.retain(is_of_pair);
    if let Some(packets) = evidence.coverage.first_mut() {
        packets.cannot.push(format!(
            "{others:.0} calls to other servers are left out: no span of the pair belongs to any call there"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_model::evidence::{Coverage, Instrument, LegRecord};

    fn to(server: &str, legs: &[Leg], stands_for: Option<f64>) -> CallRecord {
        let leg = |leg: &Leg| LegRecord { legs: Legs::one(*leg), ns: 1, bound_ns: 0, host: None };
        let legs = legs.iter().map(leg).collect();
        CallRecord { server: Some(server.into()), legs, stands_for, ..CallRecord::default() }
    }

    fn left(calls: Vec<CallRecord>, matching_calls: u64) -> (u64, Vec<String>, usize) {
        let coverage = vec![Coverage {
            instrument: Instrument::Packets,
            source: "client.pcapng".into(),
            side: None,
            when: None,
            seen: 5,
            lost: 0,
            cannot: Vec::new(),
        }];
        let mut evidence = Evidence { matching_calls, calls, coverage, ..Evidence::default() };
        leave_out_others(&mut evidence);
        let servers = evidence.calls.into_iter().filter_map(|call| call.server).collect();
        (evidence.matching_calls, servers, evidence.coverage[0].cannot.len())
    }

    #[test]
    fn what_a_host_sends_to_its_meter_is_not_of_the_pair() {
        let calls = vec![
            to("10.0.0.2:50051", &[Leg::ClientAppOut, Leg::RequestWire], None),
            // Of the same server, and its span was lost.
            to("10.0.0.2:50051", &[Leg::RequestWire], None),
            // Another replica, whose spans are kept.
            to("10.0.0.3:50051", &[Leg::ServerApp], None),
            to("10.0.0.9:4317", &[Leg::NoResponse], None),
            to("10.0.0.9:4318", &[Leg::RequestWire], Some(9.0)),
        ];
        let kept = ["10.0.0.2:50051", "10.0.0.2:50051", "10.0.0.3:50051"].map(String::from).to_vec();
        assert_eq!(left(calls, 13), (3, kept, 1));
    }

    #[test]
    fn without_any_span_all_calls_stay() {
        let calls = vec![to("a:1", &[Leg::RequestWire], None), to("b:2", &[Leg::RequestWire], None)];
        assert_eq!(left(calls, 2), (2, vec!["a:1".into(), "b:2".into()], 0));
    }
}

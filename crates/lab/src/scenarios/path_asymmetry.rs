//! One way takes much longer than the other.

use crate::LabError;
use crate::hosts::line::{Line, Way};
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::{Affected, FaultReport};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

pub const PATH_ASYMMETRY: Scenario = Scenario {
    name: "path-asymmetry",
    title: "requests take 40 ms to the server, responses 2 ms back",
    culprit: Culprit::of(Cause::PathAsymmetry),
    // Unless the clocks are known to agree, only the sum of both directions can be determined.
    also_right: &[Culprit::of(Cause::NetworkDelay)],
    leg: Some(Legs::one(Leg::RequestWire)),
    parameters: &[
        Parameter { name: "there", what: "delay to the server", default: Value::Duration(40_000_000) },
        Parameter { name: "back", what: "delay to the client", default: Value::Duration(2_000_000) },
        Parameter { name: "rate", what: "calls per second", default: Value::Number(20) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(3_000_000_000) },
    ],
    near_miss: NearMiss {
        title: "both ways take 21 ms, and the server's clock is 19 ms ahead: the same picture from outside",
        culprit: Culprit::of(Cause::NetworkDelay),
        leg: Some(Legs { first: Leg::RequestWire, last: Leg::ResponseWire }),
    },
    page: Page {
        what: "The two directions take different paths: a request needs 40 ms, a response 2 ms. The round trip does not show \
               it, and neither does any pair of clocks that were set over the same path: what is asked over a path whose two \
               ways differ gives an offset that is wrong by half of the difference.",
        real_life: "Routing decides for each direction by itself, so that over the internet the two ways often are not the \
                    same; after a failover one of them may go around the world. Links with a slow upstream (ADSL, cable) are \
                    asymmetric by design, and so is a path where only one direction has a full queue.",
        sources: &[
            (
                "Time Synchronization Errors Caused by Network Asymmetries (Meinberg)",
                "https://kb.meinbergglobal.com/kb/time_sync/time_synchronization_errors_caused_by_network_asymmetries",
            ),
            ("NTP and asymmetric routes", "https://blog.des.no/2012/07/ntp-and-asymmetric-routes/"),
        ],
        made: "The delay line takes 40 ms in one direction and 2 ms in the other. Both hosts have one clock, so that spans and \
               captures show each way as it is. The near miss has the same round trip with equal halves, and a server whose \
               clock is ahead by half of the difference: every time that is recorded on both hosts reads the same. The two \
               can be told apart only by knowing how far apart the clocks may be.",
        cure: "Compare the routes of both directions (`traceroute` from both ends) and have the long one changed. To see it \
               at all, the clocks need a source that does not go over this path: GPS, PTP of the provider.",
    },
    make,
};

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let (there, back) = (case.duration("there"), case.duration("back"));
    let mean = (there + back) / 2;
    let [to_server, to_client] = if case.near_miss { [mean, mean] } else { [there, back] }.map(Way::of_delay);
    stage.line(&Line { to_server, to_client, seed: stage.seed() })?;
    if case.near_miss {
        let half = (there.as_nanos() as i64 - back.as_nanos() as i64) / 2;
        stage.clock(Side::Server, half, 0.0);
    }
    stage.serve(&Serve::stack("rust"))?;
    stage.call(&Tank::stack("rust", case.duration("duration")).rate(case.number("rate")))?;
    let calls = stage.end()?;
    stage.end_line()?;

    // Both ends of these spans are in this machine's clock.
    let both = calls.all.iter().filter_map(|call| call.server.first().map(|server| (call, *server)));
    let ways: Vec<(f64, f64)> = both
        .map(|(call, (start, end))| {
            (start as f64 - call.start_unix_ns as f64, call.end_unix_ns as f64 - end as f64)
        })
        .collect();
    let median = |of: fn(&(f64, f64)) -> f64| {
        let mut all: Vec<f64> = ways.iter().map(of).collect();
        all.sort_unstable_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(0.0)
    };
    let (request_ns, response_ns) = (median(|way| way.0), median(|way| way.1));
    let expected = (case.number("rate") as f64 * case.duration("duration").as_secs_f64()).floor();
    let difference_ns = there.as_nanos() as f64 - back.as_nanos() as f64;
    let mut acted = FaultReport::default();
    acted.at_least("calls", calls.all.len() as f64, expected * 0.9);
    let waits = calls.gap_quantile_ns(0.5) as f64;
    acted.at_least("median of both ways together, ns", waits, (there + back).as_nanos() as f64);
    let what = "median of the request's way beyond that of the response's, ns";
    if case.near_miss {
        acted.at_most(what, (request_ns - response_ns).abs(), 0.3 * difference_ns);
        acted.affected_rule = "no call is affected by a way that is longer than the other".into();
        return Ok(acted);
    }
    acted.at_least(what, request_ns - response_ns, 0.7 * difference_ns);
    acted.active = calls.whole();
    let affected = |call: &crate::calls::Call| Affected {
        trace_id: call.trace_id.clone(),
        cost_ns: Some((there.saturating_sub(back)).as_nanos() as u64),
    };
    acted.affected = calls.all.iter().map(affected).collect();
    acted.affected_rule = "every call, by what the long way takes beyond the short one".into();
    Ok(acted)
}

//! The way between the hosts takes long, always as long.

use crate::LabError;
use crate::hosts::line::{Line, Way};
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::{Affected, FaultReport};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

pub const NETWORK_DELAY: Scenario = Scenario {
    name: "network-delay",
    title: "every packet takes 20 ms to the other host, both ways",
    culprit: Culprit::of(Cause::NetworkDelay),
    also_right: &[],
    leg: Some(Legs { first: Leg::RequestWire, last: Leg::ResponseWire }),
    parameters: &[
        Parameter {
            name: "delay",
            what: "how long a packet takes, each way",
            default: Value::Duration(20_000_000),
        },
        Parameter { name: "rate", what: "calls per second", default: Value::Number(20) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(3_000_000_000) },
    ],
    near_miss: NearMiss {
        title: "the path is short, and the server's application takes as long",
        culprit: Culprit::at(Cause::ServerApp, Side::Server),
        leg: Some(Legs::one(Leg::ServerApp)),
    },
    page: Page {
        what: "Client and server are far apart. A request needs 20 ms to get there and its response 20 ms to get back, \
               so that no call takes less than 40 ms, however fast the server is. Nothing is lost and nothing waits in a \
               queue: the time is that of the path, the same for every call. More bandwidth does not change it.",
        real_life: "A client in another region or availability zone than its server, traffic that takes a detour through \
                    a gateway or a VPN, a failover that has moved one side away. 20 ms each way are about 4,000 km of \
                    fibre.",
        sources: &[
            (
                "Understanding Latency (Apple, Networking Concepts)",
                "https://developer.apple.com/library/archive/documentation/NetworkingInternet/Conceptual/NetworkingConcepts/UnderstandingLatency/UnderstandingLatency.html",
            ),
            ("It's the latency, stupid!", "https://blog.forret.com/2004/11/01/its-the-latency-stupid/"),
        ],
        made: "The delay line forwards every packet 20 ms after it came, in both directions and in order. The client calls \
               at a rate at which no call overlaps the next. The near miss has the line without a delay and a server \
               that takes 40 ms for each call, so that the client sees the same latency.",
        cure: "Move the two closer together, or make fewer calls: batch them, make them at the same time instead of one \
               after the other, cache what they return.",
    },
    make,
};

/// Median time on the way without a delay, even with other load on the machine.
const SHORT_NS: f64 = 15e6;

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let delay = case.duration("delay");
    let round_trip_ns = 2 * delay.as_nanos() as u64;
    let way = if case.near_miss { Way::default() } else { Way::of_delay(delay) };
    stage.line(&Line { to_server: way.clone(), to_client: way, seed: stage.seed() })?;
    let serve = Serve::stack("rust");
    stage.serve(&if case.near_miss { serve.think(2 * delay) } else { serve })?;
    stage.call(&Tank::stack("rust", case.duration("duration")).rate(case.number("rate")))?;
    let calls = stage.end()?;
    stage.end_line()?;

    let expected = (case.number("rate") as f64 * case.duration("duration").as_secs_f64()).floor();
    let (gap_ns, took_ns) = (calls.gap_quantile_ns(0.5) as f64, calls.quantile_ns(0.5) as f64);
    let mut acted = FaultReport::default();
    acted.at_least("calls", calls.all.len() as f64, expected * 0.9);
    acted.at_least("median of the calls, ns", took_ns, round_trip_ns as f64);
    if case.near_miss {
        acted.at_most("median of what the client waited beyond the server's own time, ns", gap_ns, SHORT_NS);
        acted.affected_rule = "no call is affected by the path; all are as slow as the server".into();
        return Ok(acted);
    }
    let fastest_ns = calls.gap_quantile_ns(0.0) as f64;
    acted.at_least(
        "least that a client waited beyond the server's own time, ns",
        fastest_ns,
        round_trip_ns as f64,
    );
    acted.at_most("median of the server's own time, ns", took_ns - gap_ns, SHORT_NS);
    acted.active = calls.whole();
    let affected = |call: &crate::calls::Call| Affected {
        trace_id: call.trace_id.clone(),
        cost_ns: Some(round_trip_ns),
    };
    acted.affected = calls.all.iter().map(affected).collect();
    acted.affected_rule = "every call, by the delay of both ways".into();
    Ok(acted)
}

//! Every call opens a connection of its own.

use crate::LabError;
use crate::hosts::line::{Line, Way};
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::{Affected, FaultReport};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

pub const CONNECTION_PER_CALL: Scenario = Scenario {
    name: "connection-per-call",
    title: "every call opens a connection first: a round trip more, and nothing else is waited for",
    culprit: Culprit::at(Cause::ConnectionPerCall, Side::Client),
    also_right: &[],
    leg: Some(Legs::one(Leg::ClientAppOut)),
    parameters: &[
        Parameter { name: "rate", what: "calls per second", default: Value::Number(50) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(3_000_000_000) },
        Parameter {
            name: "delay",
            what: "time of a packet on its way",
            default: Value::Duration(10_000_000),
        },
    ],
    near_miss: NearMiss {
        title: "sixteen connections to the same server, opened before the first call: each is used for many",
        culprit: Culprit::of(Cause::NetworkDelay),
        leg: Some(Legs { first: Leg::RequestWire, last: Leg::ResponseWire }),
    },
    page: Page {
        what: "Before the first byte of the request can leave, a connection has to be there: SYN, SYN/ACK, a round trip, \
and with TLS one or two more. A program that makes a channel for each call pays that every time, and what the new connection \
has to learn again besides: its congestion window, its header table, the sizes of its windows. The SERVER span knows nothing \
of it, since it begins with the request.",
        real_life: "A channel or client object made in the handler of each request; a pool of connections that is too small \
or closes idle ones at once; a proxy or a server that answers every request with `Connection: close`; lambda functions that \
start cold.",
        sources: &[
            ("gRPC: Performance Best Practices", "https://grpc.io/docs/guides/performance/"),
            (
                "Microsoft: Performance best practices with gRPC, on reusing channels",
                "https://docs.microsoft.com/en-us/aspnet/core/grpc/performance?view=aspnetcore-3.1",
            ),
        ],
        made: "A line of 10 ms each way; the tank opens a connection for each call and closes it afterwards, within the \
CLIENT span. The kernel of the client's host counts the connections that it opened. In the near miss the calls go over \
sixteen connections that are open before the first of them.",
        cure: "Make the channel once and keep it; a pool of connections as large as the calls under way need; keep-alive \
longer than the pauses between calls.",
    },
    make,
};

/// Connections of the near miss.
const KEPT: u64 = 16;
/// Connections that the programs open besides those of calls: to collectors, and to query usage and presence.
const BESIDE: u64 = 20;

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let delay = case.duration("delay");
    let round_trip_ns = 2 * delay.as_nanos() as u64;
    let way = || Way { delay, ..Way::default() };
    stage.line(&Line { to_server: way(), to_client: way(), seed: stage.seed() })?;
    stage.serve(&Serve::stack("rust"))?;
    let before = stage.tcp(Side::Client)?;
    let channels = if case.near_miss { format!("pool:{KEPT}") } else { "per-call".into() };
    let tank = Tank::stack("rust", case.duration("duration")).rate(case.number("rate"));
    stage.call(&tank.with(&["--channels", &channels]))?;
    let calls = stage.end()?;
    let opened = stage.tcp(Side::Client)?.grew(&before, "Tcp.ActiveOpens");
    stage.end_line()?;

    let all = calls.all.len() as f64;
    let mut acted = FaultReport { active: calls.whole(), ..FaultReport::default() };
    acted.at_least("calls", all, 10.0);
    acted.at_most("calls that failed", calls.all.iter().filter(|call| !call.ok).count() as f64, 0.0);
    let opened_is = "connections that the client's host opened (Tcp.ActiveOpens)";
    if case.near_miss {
        acted.at_least(opened_is, opened, KEPT as f64);
        acted.at_most("the same, of all programs", opened, (KEPT + BESIDE) as f64);
        let median = calls.quantile_ns(0.5) as f64;
        acted.at_least("median of the calls, ns", median, round_trip_ns as f64);
        acted.at_most("the same, no second round trip", median, round_trip_ns as f64 * 1.75);
        acted.affected_rule = "every call takes one round trip".into();
    } else {
        acted.at_least(opened_is, opened, all);
        let twice = calls.over_ns(2 * round_trip_ns - 1).count() as f64;
        acted.at_least("calls that took two round trips or more", twice, all * 0.99);
        acted.affected_rule = "every call waits one round trip for its connection".into();
    }
    acted.affected = calls
        .all
        .iter()
        .map(|call| Affected { trace_id: call.trace_id.clone(), cost_ns: Some(round_trip_ns) })
        .collect();
    Ok(acted)
}

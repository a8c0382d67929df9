//! The client's stack serves the calls of one connection one after the other.

use crate::LabError;
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::shim::{Cost, Shim};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::{Affected, FaultReport};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

pub const SHARED_CONNECTION: Scenario = Scenario {
    name: "shared-connection",
    title: "all calls of the client share a connection, which costs it time for each response, one after the other",
    culprit: Culprit::at(Cause::SharedConnection, Side::Client),
    // Without a second connection to compare with, it is the client's own time.
    also_right: &[Culprit::at(Cause::ClientApp, Side::Client)],
    leg: Some(Legs::one(Leg::ClientAppIn)),
    parameters: &[
        Parameter { name: "in-flight", what: "calls under way at any time", default: Value::Number(8) },
        Parameter { name: "cost", what: "time for a response", default: Value::Duration(2_000_000) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(3_000_000_000) },
    ],
    near_miss: NearMiss {
        title: "the same client and the same cost for each response, with a connection for each call under way",
        // What a response costs is the client's own time; no call waits for that of another.
        culprit: Culprit::at(Cause::ClientApp, Side::Client),
        leg: Some(Legs::one(Leg::ClientAppIn)),
    },
    page: Page {
        what: "HTTP/2 lets many calls share a connection, and most stacks serve a connection on one thread at a time: they \
read, decode and hand over its responses one after the other, and write its requests in batches. Where that takes longer \
than the network, calls wait for each other inside the client: with N under way each takes N times as long as one alone. \
Neither a CPU nor the network nor the server is busy, and a stream limit is not reached. More threads do not help, another \
connection does.",
        real_life: "Load generators and clients with few servers, on fast networks. YDB's benchmark became slower the fewer \
nodes a cluster had, with idle machines at both ends; users of gRPC C++, of tonic and of Triton's client found the same.",
        sources: &[
            (
                "The Surprising gRPC Client Bottleneck in Low-Latency Networks",
                "https://blog.ydb.tech/the-surprising-grpc-client-bottleneck-in-low-latency-networks-and-how-to-get-around-it-69d6977a1d02",
            ),
            (
                "grpc#21332: performance limitation of one client process",
                "https://github.com/grpc/grpc/issues/21332",
            ),
            (
                "grpc-rust#607: Achieving better throughput with tonic clients",
                "https://github.com/grpc/grpc-rust/issues/607",
            ),
            ("gRPC: Performance Best Practices", "https://grpc.io/docs/guides/performance"),
        ],
        made: "On few CPUs the natural cost is small. So the lab adds one: a library preloaded into the client's program \
(tonic) sleeps after each read, in proportion to the bytes it brought, 2 ms for a response. It burns no CPU and holds up \
that connection alone. The near miss has the same library and as many calls under way, each on a connection of its own: it \
still costs the client 2 ms a call, and no more.",
        cure: "More connections: channels with different arguments, or a pool of them.",
    },
    make,
};

/// Payload of a response, and what comes with it on the wire: frame headers, header fields, trailers.
const RESPONSE_BYTES: u64 = 1000;
const AROUND_IT_BYTES: u64 = 50;

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let (in_flight, cost) = (case.number("in-flight"), case.duration("cost"));
    let shim = Shim {
        cost: Some(Cost { time: cost, bytes: RESPONSE_BYTES + AROUND_IT_BYTES }),
        ..Shim::at(Side::Client)
    };
    stage.cable()?;
    stage.serve(&Serve::stack("rust").with(&["--response-bytes", &RESPONSE_BYTES.to_string()]))?;
    let channels = if case.near_miss { "per-worker" } else { "shared" };
    // A thread for each connection: while one sleeps, the others are not held up.
    let tank = Tank::stack("rust", case.duration("duration"))
        .in_flight(in_flight)
        .with(&["--channels", channels, "--threads", &in_flight.max(1).to_string()])
        .around(shim.apply(stage, Default::default())?);
    stage.call(&tank)?;
    let calls = stage.end()?;
    let whole = calls.whole();
    let mut pauses = shim.log(stage)?;
    pauses.retain(|one| whole.iter().any(|all| all.overlap_ns(one.from_unix_ns, one.to_unix_ns) > 0));

    let own_ns = cost.as_nanos() as u64;
    let alone_ns = own_ns as f64;
    let together_ns = alone_ns * in_flight as f64;
    let paused_ns: u64 = pauses.iter().map(|one| one.overlap_ns(0, u64::MAX)).sum();
    let report = stage.tank_report()?;
    let connections = report["runs"][0]["sockets"]["most_at_once"].as_f64().unwrap_or(0.0);
    let mut acted = FaultReport::default();
    acted.at_least(
        "time that the client spent on a response, ns",
        paused_ns as f64 / calls.all.len().max(1) as f64,
        alone_ns * 0.9,
    );
    let median = calls.quantile_ns(0.5) as f64;
    if case.near_miss {
        acted.at_least("connections, as the kernel shows them", connections, in_flight as f64);
        acted.at_most("median of the calls, ns", median, together_ns * 0.6);
        acted.affected = calls
            .all
            .iter()
            .map(|call| Affected { trace_id: call.trace_id.clone(), cost_ns: Some(own_ns) })
            .collect();
        acted.affected_rule = "every call; the cost is what its own response costs the client".into();
        acted.active = whole;
        return Ok(acted);
    }
    acted.at_most("connections, as the kernel shows them", connections, 1.0);
    acted.at_least("median of the calls, ns", median, together_ns * 0.8);
    acted.affected = calls
        .during(&pauses, own_ns * 2)
        .into_iter()
        .map(|call| Affected { cost_ns: call.cost_ns.map(|ns| ns - own_ns), ..call })
        .collect();
    acted.affected_rule =
        "calls during which the client spent the time of two responses or more on their connection, by its \
own log; the cost is that time without their own response's"
            .into();
    acted.active = whole;
    Ok(acted)
}

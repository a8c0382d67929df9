//! Calls wait in the server before its application takes them.

use crate::LabError;
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::{Affected, FaultReport};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};
use std::time::Duration;

pub const SERVER_QUEUE: Scenario = Scenario {
    name: "server-queue",
    title: "the server has two workers: calls wait in its queue, and its spans do not have that time",
    culprit: Culprit::at(Cause::ServerQueue, Side::Server),
    also_right: &[],
    leg: Some(Legs::one(Leg::ServerHostIn)),
    parameters: &[
        Parameter { name: "workers", what: "calls handled at a time", default: Value::Number(2) },
        Parameter { name: "think", what: "time of the application", default: Value::Duration(10_000_000) },
        Parameter { name: "in-flight", what: "calls under way at any time", default: Value::Number(8) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(3_000_000_000) },
    ],
    near_miss: NearMiss {
        title: "two at a time as well, but by the limit of streams: they wait in the client",
        culprit: Culprit::of(Cause::StreamLimit),
        leg: Some(Legs::one(Leg::ClientAppOut)),
    },
    page: Page {
        what: "The server handles two calls at a time, each for 10 ms, and has eight. Six wait in its queue, 30 ms each. \
               Tracing begins the SERVER span where the handler begins, so that the server's own figures are good: \
               10 ms, every time. On the wire the server is silent for 40 ms.",
        real_life: "A pool of threads with a fixed size and a queue before it, as in gRPC's Python server, in many Java \
                    servers, and before every connection pool. A thread that waits for a database is not free for \
                    anyone else, so that a little more load, or a slightly slower database, fills the queue.",
        sources: &[
            (
                "gRPC Python: without a free thread the server queues the call until one is",
                "https://github.com/grpc/grpc/issues/7052",
            ),
            (
                "A thread pool that had been one thread, with calls in its queue",
                "https://github.com/world-federation-of-advertisers/cross-media-measurement/issues/4397",
            ),
            (
                "AWS Well-Architected, REL05-BP04: fail fast and limit queues",
                "https://docs.aws.amazon.com/wellarchitected/2022-03-31/framework/rel_mitigate_interaction_failure_fail_fast.html",
            ),
        ],
        made: "The target of the stack rust takes 10 ms for every call and handles two at a time (`target --workers 2`); \
               the tank keeps eight under way. In a queue served in order each call waits for six others, which is \
               three times the think time. The near miss announces a limit of two streams instead: the same latency, \
               but the six wait in the client, and the server has never more than two.",
        cure: "More workers where the handler only waits; where it works, fewer calls or more servers. A short queue that \
               refuses at once serves those who still wait for an answer.",
    },
    make,
};

/// How much of what has to come out a busy machine may leave: its timers are late, never early.
const SHARE: f64 = 0.9;
/// How much longer than it has to be a median may come out.
const SLACK: Duration = Duration::from_millis(10);

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let (workers, in_flight) = (case.number("workers").max(1), case.number("in-flight"));
    let think = case.duration("think");
    let limit = if case.near_miss { "--max-streams" } else { "--workers" };
    stage.cable()?;
    stage.serve(&Serve::stack("rust").think(think).with(&[limit, &workers.to_string()]))?;
    stage.call(&Tank::stack("rust", case.duration("duration")).in_flight(in_flight))?;
    let calls = stage.end()?;
    let mut acted = FaultReport::default();
    let think_ns = think.as_nanos() as f64;
    let whole_ns = think_ns * in_flight as f64 / workers as f64;
    let wait_ns = (whole_ns - think_ns).max(0.0);
    acted.at_least("median of the calls, ns", calls.quantile_ns(0.5) as f64, whole_ns * SHARE);
    let outside = calls.gap_quantile_ns(0.5) as f64;
    acted.at_least("median of what is outside of the SERVER span, ns", outside, wait_ns * SHARE);
    let most = think_ns + SLACK.as_nanos() as f64;
    acted.at_most("median of the SERVER spans, ns", calls.server_quantile_ns(0.5) as f64, most);
    acted.at_most("calls that failed", calls.all.iter().filter(|call| !call.ok).count() as f64, 0.0);
    acted.at_most("SERVER spans at the same time", calls.most_served_at_once() as f64, workers as f64);
    let at_once = stage.target_peak()?;
    let what = "calls under way at the target at once";
    if case.near_miss {
        acted.at_most(what, at_once, workers as f64);
        acted.affected_rule = "every call waits in the client until one of the streams is free".into();
    } else {
        acted.at_least(what, at_once, in_flight as f64);
        acted.affected_rule =
            "every call waits in the server's queue; in a closed loop each finds as many before it".into();
    }
    // Timers of a busy machine are late, and everybody behind waits for that, too.
    acted.affected = calls
        .all
        .iter()
        .map(|call| Affected { trace_id: call.trace_id.clone(), cost_ns: call.until_served_ns() })
        .collect();
    acted.active = calls.whole();
    Ok(acted)
}

//! The server's limit of concurrent streams: calls beyond it wait in the client.

use crate::LabError;
use crate::calls::Call;
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::{Affected, FaultReport};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};
use std::time::Duration;

pub const STREAM_LIMIT: Scenario = Scenario {
    name: "stream-limit",
    title: "the server allows 20 streams on a connection, and there are 40 calls: half of them wait in the client",
    culprit: Culprit::of(Cause::StreamLimit),
    also_right: &[],
    leg: Some(Legs::one(Leg::ClientAppOut)),
    parameters: &[
        Parameter { name: "limit", what: "streams that the server allows", default: Value::Number(20) },
        Parameter { name: "in-flight", what: "calls under way at any time", default: Value::Number(40) },
        Parameter { name: "think", what: "time of the application", default: Value::Duration(20_000_000) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(3_000_000_000) },
    ],
    near_miss: NearMiss {
        title: "one call fewer than the limit allows, and as slow because the application is",
        culprit: Culprit::at(Cause::ServerApp, Side::Server),
        leg: Some(Legs::one(Leg::ServerApp)),
    },
    page: Page {
        what: "An HTTP/2 server says how many streams it allows on a connection at a time. A client that has more calls \
               keeps the others back until a stream ends. Nothing fails and nothing is logged: the span of the client \
               begins, and its request leaves 20 ms later, right after the end of another call's response. The server, \
               which has no more calls than it allows, sees nothing of it.",
        real_life: "Most servers announce 100 or so. It is reached by a service that calls another one over a single \
                    channel, first at peak load, or when the callee becomes slower: calls under way are rate times \
                    latency. Long-lived streams, such as watches, take their places for good.",
        sources: &[
            ("RFC 9113, 5.1.2: Stream Concurrency", "https://www.rfc-editor.org/rfc/rfc9113#section-5.1.2"),
            (
                "gRPC: Performance Best Practices, on the limit of concurrent streams",
                "https://grpc.io/docs/guides/performance",
            ),
            (
                "Let's Encrypt: RPCs delayed by seconds on the client's side at peak load",
                "https://github.com/letsencrypt/boulder/pull/3642",
            ),
            (
                "grpc-go: calls late by 90 s and more, above 250 at a time",
                "https://github.com/grpc/grpc-go/issues/1986",
            ),
        ],
        made: "The target of the stack rust announces a limit of 20 and takes 20 ms for a call; the tank keeps 40 under way \
               on one connection. Each waits for another one's end: 40 ms, half of it before its request is sent. In \
               the near miss 19 calls are under way and the application takes 40 ms: as slow, with nearly all \
               streams in use, and no call waits for one.",
        cure: "More connections (a pool of channels), a higher limit at the server, or fewer calls at a time.",
    },
    make,
};

/// How much of what has to come out a busy machine may leave: its timers are late, never early.
const SHARE: f64 = 0.9;
/// How much longer than it has to be a median may come out.
const SLACK: Duration = Duration::from_millis(15);

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let (limit, most) = (case.number("limit").max(2), case.number("in-flight"));
    let think_ns = case.duration("think").as_nanos() as f64;
    let whole_ns = think_ns * most as f64 / limit as f64;
    let (in_flight, think) = match case.near_miss {
        true => (limit - 1, Duration::from_nanos(whole_ns as u64)),
        false => (most, case.duration("think")),
    };
    stage.cable()?;
    stage.serve(&Serve::stack("rust").think(think).with(&["--max-streams", &limit.to_string()]))?;
    stage.call(&Tank::stack("rust", case.duration("duration")).in_flight(in_flight))?;
    let calls = stage.end()?;
    let mut acted = FaultReport::default();
    acted.at_least("median of the calls, ns", calls.quantile_ns(0.5) as f64, whole_ns * SHARE);
    acted.at_most("calls that failed", calls.all.iter().filter(|call| !call.ok).count() as f64, 0.0);
    let outside = calls.gap_quantile_ns(0.5) as f64;
    let at_once = stage.target_peak()?;
    let (outside_is, at_once_is) =
        ("median of what is outside of the SERVER span, ns", "calls under way at the target at once");
    if case.near_miss {
        acted.at_most(outside_is, outside, SLACK.as_nanos() as f64);
        acted.at_most(at_once_is, at_once, in_flight as f64);
        acted.affected_rule = "every call takes the think time".into();
        acted.affected = calls.each_costs(Some(whole_ns as u64));
    } else {
        let wait_ns = (whole_ns - think_ns).max(0.0);
        acted.at_least(outside_is, outside, wait_ns * SHARE);
        acted.at_least(at_once_is, at_once, limit as f64);
        acted.at_most("the same, and no more than the limit", at_once, limit as f64);
        let span_ns = calls.server_quantile_ns(0.5) as f64;
        acted.at_most("median of the SERVER spans, ns", span_ns, think_ns + SLACK.as_nanos() as f64);
        acted.affected_rule = "every call waits for a stream, until its SERVER span begins".into();
        let waited =
            |call: &Call| Affected { trace_id: call.trace_id.clone(), cost_ns: call.until_served_ns() };
        acted.affected = calls.all.iter().map(waited).collect();
    }
    acted.active = calls.whole();
    Ok(acted)
}

//! The server's application takes the time.

use crate::LabError;
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::FaultReport;
use spangap_model::{Cause, Culprit, Leg, Legs, Side};
use std::time::Duration;

pub const SERVER_APP: Scenario = Scenario {
    name: "server-app",
    title: "the server's application takes its time for each call",
    culprit: Culprit::at(Cause::ServerApp, Side::Server),
    also_right: &[],
    leg: Some(Legs::one(Leg::ServerApp)),
    parameters: &[
        Parameter { name: "think", what: "time of the application", default: Value::Duration(25_000_000) },
        Parameter { name: "in-flight", what: "calls under way at any time", default: Value::Number(5) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(3_000_000_000) },
    ],
    near_miss: NearMiss {
        title: "as slow and as many, but the application is quick and takes one call at a time: the others wait",
        culprit: Culprit::at(Cause::ServerQueue, Side::Server),
        leg: Some(Legs::one(Leg::ServerHostIn)),
    },
    page: Page {
        what: "The handler of the call takes 25 ms: it computes, asks a database, waits for a lock. The server's own span \
               has that time, so that this is the one kind of delay which needs no packets to be found; the packets say \
               the same, for the server is silent between the request's last byte and the response's first.",
        real_life: "The most frequent cause of all. A handler that asks a database once for each row of a list instead \
                    of once is the classic: every query is quick, and the sum is not. What makes it worth a scenario \
                    is the opposite error: the server's span alone is often blamed for what was waiting before it.",
        sources: &[
            (
                "productcatalogservice: P99 of a gRPC endpoint, one query per row",
                "https://github.com/davidstanke/microservices-demo/issues/30",
            ),
            (
                "OpenTelemetry: a SERVER span covers the handling on the server's side",
                "https://app.unpkg.com/@opentelemetry/api@1.4.1/files/build/esm/trace/span_kind.d.ts",
            ),
        ],
        made: "The target of the stack rust takes the think time for every call (a timer, no CPU); the tank keeps five \
               calls under way. The near miss has the same five, one worker and a fifth of the think time: the client \
               sees the same latency and the same throughput, and each SERVER span has only a fifth of it.",
        cure: "Make the handler quicker, or make fewer calls. Nothing on the way helps.",
    },
    make,
};

/// How much longer than it has to be a median may come out on a busy machine.
const SLACK: Duration = Duration::from_millis(10);

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let (think, in_flight) = (case.duration("think"), case.number("in-flight").max(2));
    // As long for the client: it waits for those before it instead.
    let share = think / in_flight as u32;
    let serve = match case.near_miss {
        true => Serve::stack("rust").think(share).with(&["--workers", "1"]),
        false => Serve::stack("rust").think(think),
    };
    stage.cable()?;
    stage.serve(&serve)?;
    stage.call(&Tank::stack("rust", case.duration("duration")).in_flight(in_flight))?;
    let calls = stage.end()?;
    let mut acted = FaultReport::default();
    let think_ns = think.as_nanos() as u64;
    acted.at_least("calls", calls.all.len() as f64, in_flight as f64);
    acted.at_least("median of the calls, ns", calls.quantile_ns(0.5) as f64, think_ns as f64 * 0.95);
    acted.at_most("calls that failed", calls.all.iter().filter(|call| !call.ok).count() as f64, 0.0);
    let spans = calls.server_quantile_ns(0.5);
    if case.near_miss {
        let most = (share + SLACK).as_nanos() as f64;
        acted.at_most("median of the SERVER spans, ns", spans as f64, most);
        acted.at_most("SERVER spans at the same time", calls.most_served_at_once() as f64, 1.0);
        acted.affected_rule = "every call waits until those before it are answered".into();
        acted.affected = calls.each_costs(Some((think - share).as_nanos() as u64));
    } else {
        acted.at_least("shortest SERVER span, ns", calls.server_quantile_ns(0.0) as f64, think_ns as f64);
        let outside = calls.gap_quantile_ns(0.5) as f64;
        acted.at_most("median of what is outside of the SERVER span, ns", outside, SLACK.as_nanos() as f64);
        let at_once = stage.target_peak()?;
        acted.at_least("calls under way at the target at once", at_once, in_flight as f64);
        acted.affected_rule = "every call takes the think time".into();
        acted.affected = calls.each_costs(Some(think_ns));
    }
    acted.active = calls.whole();
    Ok(acted)
}

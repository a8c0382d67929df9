//! Long streams next to short calls: nothing is wrong.

use crate::LabError;
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::FaultReport;
use spangap_model::Culprit;

pub const LONG_STREAMS: Scenario = Scenario {
    name: "long-streams",
    title: "responses that are streamed for a second and a half, beside short calls: nothing is wrong",
    culprit: Culprit::NOTHING,
    also_right: &[],
    leg: None,
    parameters: &[
        Parameter { name: "rate", what: "short calls per second", default: Value::Number(50) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(4_000_000_000) },
        Parameter { name: "streams", what: "streams under way at any time", default: Value::Number(3) },
        Parameter { name: "length", what: "how long a stream is", default: Value::Duration(1_500_000_000) },
    ],
    near_miss: NearMiss {
        title: "the same short calls, and no stream",
        culprit: Culprit::NOTHING,
        leg: None,
    },
    page: Page {
        what: "A stream that a client watches stays open for as long as somebody watches: its span is long, its response comes in \
pieces with pauses between them. It is by far the slowest call of its pair, and it waits for nothing.",
        real_life: "Watches, subscriptions, server-sent events, tails of logs; a pair whose p99 is ten minutes.",
        sources: &[
            ("gRPC: core concepts, server streaming", "https://grpc.io/docs/what-is-grpc/core-concepts/"),
            (
                "Kubernetes API concepts: efficient detection of changes",
                "https://kubernetes.io/docs/reference/using-api/api-concepts/",
            ),
        ],
        made: "A client and a server in Python. Three responses at a time come in pieces, every 50 ms, for 1.5 s; short calls go on \
other connections. In the near miss there are only these.",
        cure: "None is needed. Exclude streams from the slow calls, or compare them with other streams.",
    },
    make,
};

/// The most that half of the short calls take.
const FAST_NS: f64 = 10e6;

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let length = case.duration("length");
    let tank = Tank::python(case.duration("duration")).rate(case.number("rate"));
    let streams = case.number("streams").max(1).to_string();
    stage.cable()?;
    stage.serve(&Serve::python(&["--slow", &length.as_secs_f64().to_string()]))?;
    stage.call(&if case.near_miss { tank } else { tank.with(&["--streams", &streams]) })?;
    let calls = stage.end()?;

    let long = calls.over_ns(length.as_nanos() as u64 - 1).count() as f64;
    let mut acted = FaultReport { affected_rule: "no call is affected".into(), ..FaultReport::default() };
    acted.at_least("calls", calls.all.len() as f64, 20.0);
    acted.at_most("calls that failed", calls.all.iter().filter(|call| !call.ok).count() as f64, 0.0);
    acted.at_most("median of the calls, ns", calls.quantile_ns(0.5) as f64, FAST_NS);
    let what = "calls that take as long as a stream";
    match case.near_miss {
        true => acted.at_most(what, long, 0.0),
        false => acted.at_least(what, long, 2.0),
    }
    Ok(acted)
}

//! Calls that are made again after a pause.

use crate::LabError;
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::python::cost;
use crate::stage::{Serve, Stage, Tank};
use crate::truth::FaultReport;
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

pub const BACK_OFF: Scenario = Scenario {
    name: "back-off",
    title: "one call in eight fails at once; the client waits 60 ms before it retries",
    culprit: Culprit::of(Cause::Retries),
    also_right: &[],
    leg: None,
    parameters: &[
        Parameter { name: "rate", what: "calls per second", default: Value::Number(50) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(4_000_000_000) },
        Parameter { name: "pause", what: "before another attempt", default: Value::Duration(60_000_000) },
        Parameter { name: "every", what: "one call in this many fails", default: Value::Number(8) },
    ],
    near_miss: NearMiss {
        title: "as many calls take as long in the server, and are made once",
        culprit: Culprit::at(Cause::ServerApp, Side::Server),
        leg: Some(Legs::one(Leg::ServerApp)),
    },
    page: Page {
        what: "A client waits before it retries a failed call, so that a server in trouble is not asked the same thing by \
everybody at once. Whoever waits for the answer waits for the pause, too. Both attempts are fast, in the server and on the wire; \
between them there is nothing at all.",
        real_life: "Exponential back-off with a first pause of 100 ms, in libraries and service configs; an error of one in a \
thousand calls that becomes the p99.9.",
        sources: &[
            (
                "AWS: Timeouts, retries, and backoff with jitter",
                "https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/",
            ),
            ("gRPC: retry", "https://grpc.io/docs/guides/retry/"),
        ],
        made: "A server in Python that fails every eighth call at its first attempt with 503, at once; a client in Python that \
retries after 60 ms, under the same span. In the near miss every eighth call takes 60 ms in the server.",
        cure: "Find out why attempts fail. A first pause as short as the calls are; a hedge instead of a pause.",
    },
    make,
};

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let (pause, every) = (case.duration("pause"), case.number("every").max(2).to_string());
    let seconds = pause.as_secs_f64().to_string();
    let tank = Tank::python(case.duration("duration")).rate(case.number("rate"));
    stage.cable()?;
    match case.near_miss {
        true => stage.serve(&Serve::python(&["--pause", &seconds, "--every", &every]))?,
        false => stage.serve(&Serve::python(&["--fail", &every]))?,
    }
    let again = ["--attempts", "3", "--back-off", &seconds];
    stage.call(&if case.near_miss { tank } else { tank.with(&again) })?;
    let calls = stage.end()?;

    let pause_ns = pause.as_nanos() as u64;
    let several = calls.all.iter().filter(|call| call.server.len() > 1).count() as f64;
    let mut acted = FaultReport::default();
    acted.at_least("calls", calls.all.len() as f64, 20.0);
    acted.at_most("calls that failed", calls.all.iter().filter(|call| !call.ok).count() as f64, 0.0);
    let several_are = "calls with several SERVER spans";
    if case.near_miss {
        acted.at_most(several_are, several, 0.0);
        let long = calls.all.iter().filter(|call| call.server_ns() >= pause_ns);
        acted.affected = long
            .map(|call| crate::truth::Affected { trace_id: call.trace_id.clone(), cost_ns: Some(pause_ns) })
            .collect();
        acted.at_least("SERVER spans as long as a pause", acted.affected.len() as f64, 4.0);
        acted.affected_rule = "calls whose SERVER span is as long as a pause".into();
        acted.active = calls.whole();
        return Ok(acted);
    }
    (acted.active, acted.affected) = cost(&stage.waits(Side::Client, "retry")?, &calls, pause_ns);
    acted.at_least(several_are, several, 4.0);
    acted.at_least("calls that paused, as the client timed it", acted.affected.len() as f64, 4.0);
    acted.affected_rule =
        "calls that were retried, by the time until the next attempt began, as the client timed it".into();
    Ok(acted)
}

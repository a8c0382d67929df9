//! Calls that are made several times.

use crate::LabError;
use crate::calls::{Call, quantile};
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::{Affected, FaultReport};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

pub const RETRIES: Scenario = Scenario {
    name: "retries",
    title: "one call in four fails twice and succeeds the third time: the client waits three times as long",
    culprit: Culprit::of(Cause::Retries),
    also_right: &[],
    leg: None,
    parameters: &[
        Parameter { name: "rate", what: "calls per second", default: Value::Number(50) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(3_000_000_000) },
        Parameter { name: "think", what: "time of an attempt", default: Value::Duration(30_000_000) },
        Parameter { name: "failed", what: "attempts of a call that fail", default: Value::Number(2) },
        Parameter { name: "every", what: "one call in this many fails", default: Value::Number(4) },
    ],
    near_miss: NearMiss {
        title: "calls that take as long as three attempts, and are made once",
        culprit: Culprit::at(Cause::ServerApp, Side::Server),
        leg: Some(Legs::one(Leg::ServerApp)),
    },
    page: Page {
        what: "A failed call is retried by the client's library, or by a proxy on the way. For the caller it is one \
call, and it takes as long as all its attempts, with the pauses between them. The server sees several, and each is as \
fast as ever. Where attempts fail because the server is overloaded, they are the load that keeps it so: a storm.",
        real_life: "Retry policies in service configs and meshes, each layer with its own, so that three times three make \
nine; timeouts shorter than what the call takes; hedging. Traces show several SERVER spans under one CLIENT span.",
        sources: &[
            (
                "grpc-go: the example of retries",
                "https://github.com/grpc/grpc-go/blob/master/examples/features/retry/README.md",
            ),
            ("What is a retry storm?", "https://jeffbailey.us/blog/2025/12/16/what-is-a-retry-storm"),
        ],
        made: "The target thinks for 30 ms and then fails the first two attempts of every fourth call with UNAVAILABLE; the \
tank makes up to three attempts, at once, with the same trace context. In the near miss the target thinks for 90 ms and fails \
nothing.",
        cure: "Find out why attempts fail: the retry is not the cause, it hides it. A budget for retries, pauses that grow \
with some chance in them, and retries in one layer only.",
    },
    make,
};

/// How much longer than it has to a median may take.
const SLACK_NS: u64 = 20_000_000;

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let (think, failed, every) = (case.duration("think"), case.number("failed"), case.number("every").max(1));
    let attempts = failed + 1;
    let longest = think * u32::try_from(attempts).unwrap_or(u32::MAX);
    let serve = match case.near_miss {
        true => Serve::stack("rust").think(longest),
        false => {
            Serve::stack("rust").think(think).with(&["--fail", &format!("UNAVAILABLE:{failed}/{every}")])
        }
    };
    stage.cable()?;
    stage.serve(&serve)?;
    let tank = Tank::stack("rust", case.duration("duration")).rate(case.number("rate"));
    stage.call(&tank.with(&["--attempts", &attempts.to_string()]))?;
    let calls = stage.end()?;

    let all = calls.all.len() as f64;
    let several = || calls.all.iter().filter(|call| call.server.len() > 1);
    let count = |of: usize| calls.all.iter().filter(|call| call.server.len() == of).count() as f64;
    let (several_are, longest_ns) = ("calls with several SERVER spans", longest.as_nanos() as u64);
    let mut acted = FaultReport::default();
    acted.at_least("calls", all, 10.0);
    acted.at_most("calls that failed", calls.all.iter().filter(|call| !call.ok).count() as f64, 0.0);
    if case.near_miss {
        acted.at_most(several_are, several().count() as f64, 0.0);
        acted.at_least("median of the calls, ns", calls.quantile_ns(0.5) as f64, longest_ns as f64);
        acted.affected_rule = "every call takes the think time, once".into();
        acted.affected = calls.all.iter().map(|call| affected(call, longest_ns)).collect();
        acted.active = calls.whole();
        return Ok(acted);
    }
    // Those of the warm-up take part in the count, and so do those that ended the counting.
    acted.at_least(several_are, several().count() as f64, all / every as f64 * 0.9);
    acted.at_least("calls with one SERVER span", count(1), (all - all / every as f64) * 0.9);
    acted.at_most(
        "calls with more attempts than were to fail",
        all - count(1) - count(attempts as usize),
        0.0,
    );
    let long = several().filter(|call| call.duration_ns() >= longest_ns).count() as f64;
    acted.at_least(
        "calls with several that took as long as all their attempts",
        long,
        several().count() as f64,
    );
    let once = calls.all.iter().filter(|call| call.server.len() == 1).map(Call::duration_ns).collect();
    let usual_ns = think.as_nanos() as u64 + SLACK_NS;
    acted.at_most("median of the calls with one, ns", quantile(once, 0.5) as f64, usual_ns as f64);
    acted.affected = several().map(|call| affected(call, call.made_again_ns())).collect();
    acted.affected_rule =
        "calls with several SERVER spans, by the time from the begin of the first one to that of the last; \
                           each attempt before the last takes the think time"
            .into();
    acted.active = calls.whole();
    Ok(acted)
}

fn affected(call: &Call, cost_ns: u64) -> Affected {
    Affected { trace_id: call.trace_id.clone(), cost_ns: Some(cost_ns) }
}

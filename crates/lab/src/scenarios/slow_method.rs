//! A method that is slow by design, next to a fast one: nothing is wrong.

use crate::LabError;
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::FaultReport;
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

pub const SLOW_METHOD: Scenario = Scenario {
    name: "slow-method",
    title: "one call in ten is of a method that takes 40 ms by design; the others take none: nothing is wrong",
    culprit: Culprit::NOTHING,
    also_right: &[],
    leg: None,
    parameters: &[
        Parameter { name: "rate", what: "calls per second", default: Value::Number(60) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(4_000_000_000) },
        Parameter { name: "slow", what: "time of the slow method", default: Value::Duration(40_000_000) },
        Parameter {
            name: "every",
            what: "one call in this many is of that method",
            default: Value::Number(10),
        },
    ],
    near_miss: NearMiss {
        title: "all calls are of one method, of which one in ten takes 40 ms longer",
        culprit: Culprit::at(Cause::ServerApp, Side::Server),
        leg: Some(Legs::one(Leg::ServerApp)),
    },
    page: Page {
        what: "A service has methods that take microseconds and methods that take long because they do a lot. Its slowest calls \
are of the latter, always, and that is no fault. Looking for what the slow calls have in common finds the method, and puts the \
blame on the server.",
        real_life: "A search among look-ups by id, a report among writes, a health check among everything else.",
        sources: &[
            (
                "Google SRE book: monitoring distributed systems",
                "https://sre.google/sre-book/monitoring-distributed-systems/",
            ),
            (
                "Gil Tene: How NOT to Measure Latency",
                "https://www.infoq.com/presentations/latency-response-time/",
            ),
        ],
        made: "A client and a server in Python. One call in ten goes to /slow, which sleeps for 40 ms. In the near miss all go to \
/fast, of which one in ten sleeps as long.",
        cure: "None is needed. Compare calls with their own kind.",
    },
    make,
};

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let (slow, every) = (case.duration("slow"), case.number("every").max(2).to_string());
    let seconds = slow.as_secs_f64().to_string();
    let tank = Tank::python(case.duration("duration")).rate(case.number("rate"));
    stage.cable()?;
    match case.near_miss {
        true => stage.serve(&Serve::python(&["--pause", &seconds, "--every", &every]))?,
        false => stage.serve(&Serve::python(&["--slow", &seconds]))?,
    }
    stage.call(&if case.near_miss { tank } else { tank.with(&["--slow-every", &every]) })?;
    let calls = stage.end()?;

    let slow_ns = slow.as_nanos() as u64;
    let took_it = |call: &&crate::calls::Call| call.server_ns() >= slow_ns;
    let mut acted = FaultReport::default();
    acted.at_least("calls", calls.all.len() as f64, 20.0);
    acted.at_most("calls that failed", calls.all.iter().filter(|call| !call.ok).count() as f64, 0.0);
    let long = calls.all.iter().filter(took_it).count() as f64;
    acted.at_least("SERVER spans that take the time of the slow ones", long, 4.0);
    acted.at_most("the same, as a share of all", long / calls.all.len().max(1) as f64, 0.4);
    acted.at_most("median of the calls, ns", calls.quantile_ns(0.5) as f64, slow_ns as f64 * 0.8);
    if case.near_miss {
        let affected = calls.all.iter().filter(took_it);
        acted.affected = affected
            .map(|call| crate::truth::Affected { trace_id: call.trace_id.clone(), cost_ns: Some(slow_ns) })
            .collect();
        acted.affected_rule = "calls whose SERVER span takes the time of the slow ones".into();
        acted.active = calls.whole();
    } else {
        acted.affected_rule = "no call is affected: each takes what its method takes".into();
    }
    Ok(acted)
}

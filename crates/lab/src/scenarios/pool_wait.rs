//! Calls wait in the client until one of its pooled connections is free.

use crate::LabError;
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::python::cost;
use crate::stage::{Serve, Stage, Tank};
use crate::truth::FaultReport;
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

pub const POOL_WAIT: Scenario = Scenario {
    name: "pool-wait",
    title: "the client has three connections, and more calls under way than that: a call waits until one is free",
    culprit: Culprit::at(Cause::PoolWait, Side::Client),
    also_right: &[],
    leg: Some(Legs::one(Leg::ClientAppOut)),
    parameters: &[
        Parameter { name: "rate", what: "calls per second", default: Value::Number(90) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(4_000_000_000) },
        Parameter { name: "think", what: "time of the server", default: Value::Duration(25_000_000) },
        Parameter { name: "pool", what: "connections of the client", default: Value::Number(3) },
    ],
    near_miss: NearMiss {
        title: "the same calls, and a connection for each",
        culprit: Culprit::at(Cause::ServerApp, Side::Server),
        leg: Some(Legs::one(Leg::ServerApp)),
    },
    page: Page {
        what: "Over HTTP/1.1 a connection carries one call at a time, so clients keep a pool of them. With all of them in use a \
call waits in the client, before the first byte leaves. The server sees calls that are as fast as ever, and never many at once.",
        real_life: "A default of two connections for each host, or of ten for a database; a pool sized for the mean, and one slow \
backend that holds all of it.",
        sources: &[
            (
                "HikariCP: About Pool Sizing",
                "https://github.com/brettwooldridge/HikariCP/wiki/About-Pool-Sizing",
            ),
            (
                "Requests: advanced usage, blocking pools",
                "https://requests.readthedocs.io/en/latest/user/advanced/",
            ),
        ],
        made: "A client in Python with 48 threads and a pool of three connections, a server that thinks for 25 ms. Calls come at \
random at 90 a second, three quarters of what three connections can carry. The client times how long each waits for a \
connection. The near miss has a connection for each thread.",
        cure: "As many connections as calls that are under way when the server is slow; a limit on calls that fails fast; HTTP/2.",
    },
    make,
};

/// Shorter waits do not count.
const LEAST_NS: u64 = 1_000_000;

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let think = case.duration("think");
    let seconds = think.as_secs_f64().to_string();
    let tank = Tank::python(case.duration("duration")).rate(case.number("rate"));
    let pool = case.number("pool").max(1).to_string();
    stage.cable()?;
    stage.serve(&Serve::python(&["--think", &seconds]))?;
    stage.call(&if case.near_miss { tank } else { tank.with(&["--pool", &pool]) })?;
    let calls = stage.end()?;
    let waits = stage.waits(Side::Client, "pool")?;

    let (active, affected) = cost(&waits, &calls, LEAST_NS);
    let all = calls.all.len() as f64;
    let mut acted = FaultReport { active, affected, ..FaultReport::default() };
    acted.at_least("calls", all, 20.0);
    acted.at_most("calls that failed", calls.all.iter().filter(|call| !call.ok).count() as f64, 0.0);
    acted.at_least("median of the calls, ns", calls.quantile_ns(0.5) as f64, think.as_nanos() as f64);
    let waited = "calls that waited for a connection, as the client timed it";
    if case.near_miss {
        acted.at_most(waited, acted.affected.len() as f64, all * 0.02);
        acted.affected_rule = "every call takes the think time".into();
        acted.affected = calls.each_costs(Some(think.as_nanos() as u64));
        acted.active = calls.whole();
        return Ok(acted);
    }
    acted.at_least(waited, acted.affected.len() as f64, (all * 0.05).max(5.0));
    acted.affected_rule =
        "calls that waited for a connection for 1 ms and more, as the client timed it".into();
    Ok(acted)
}

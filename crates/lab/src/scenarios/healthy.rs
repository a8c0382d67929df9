//! Nothing is wrong.

use crate::LabError;
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::{Acted, Culprit};

/// The scenario.
pub const HEALTHY: Scenario = Scenario {
    name: "healthy",
    title: "nothing is wrong: a call now and then, each answered at once",
    culprit: Culprit::NOTHING,
    also_right: &[],
    leg: None,
    parameters: &[
        Parameter { name: "rate", what: "calls per second", default: Value::Number(100) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(3_000_000_000) },
    ],
    near_miss: NearMiss {
        title: "a call every 50 ms: CPUs fall asleep in between, and each call is a little slower",
        culprit: Culprit::NOTHING,
        leg: None,
    },
    page: Page { what: "", real_life: "", sources: &[], made: "", cure: "" },
    make,
};

/// A median that no fault of the lab leaves that low.
const FAST_NS: u64 = 5_000_000;

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<Acted, LabError> {
    let rate = if case.near_miss { 20 } else { case.number("rate") };
    stage.cable()?;
    stage.serve(&Serve::stack("rust"))?;
    stage.call(&Tank::stack("rust", case.duration("duration")).rate(rate))?;
    let calls = stage.end()?;
    let mut acted = Acted { affected_rule: "no call is affected".into(), ..Acted::default() };
    let expected = (rate as f64 * case.duration("duration").as_secs_f64()).floor();
    acted.at_least("calls", calls.all.len() as f64, expected * 0.9);
    acted.at_most("median of the calls, ns", calls.quantile_ns(0.5) as f64, FAST_NS as f64);
    acted.at_most("calls that failed", calls.all.iter().filter(|call| !call.ok).count() as f64, 0.0);
    Ok(acted)
}

//! Calls wait for a lock that something else in their server holds.

use crate::LabError;
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::python::cost;
use crate::stage::{Serve, Stage, Tank};
use crate::truth::FaultReport;
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

pub const LOCK: Scenario = Scenario {
    name: "lock",
    title: "housekeeping in the server holds the lock that every call takes, for 40 ms, four times a second",
    culprit: Culprit::at(Cause::Lock, Side::Server),
    also_right: &[],
    leg: Some(Legs::one(Leg::ServerApp)),
    parameters: &[
        Parameter { name: "rate", what: "calls per second", default: Value::Number(80) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(4_000_000_000) },
        Parameter {
            name: "hold",
            what: "how long the lock is held, every 250 ms",
            default: Value::Duration(40_000_000),
        },
    ],
    near_miss: NearMiss {
        title: "the same housekeeping, which takes no lock",
        culprit: Culprit::NOTHING,
        leg: None,
    },
    page: Page {
        what: "A call needs something that only one thread may touch at a time, and another thread holds it: it writes a report, \
rebuilds a table, waits for a disk, and does not let go meanwhile. The thread of the call sleeps until then. No CPU is busy, no \
packet is late, and the call's own work takes as long as ever.",
        real_life: "A cache that is rebuilt under its lock, a logger that flushes under one, a metric that is scraped, a map that \
grows. The lock is often in a library.",
        sources: &[
            ("futex(2)", "https://man7.org/linux/man-pages/man2/futex.2.html"),
            ("Brendan Gregg: Off-CPU Analysis", "https://www.brendangregg.com/offcpuanalysis.html"),
        ],
        made: "A server in Python with a thread for each connection. A separate thread takes the lock four times a second and \
sleeps while it holds it; every call takes the lock, too, and times its own wait. In the near miss neither takes it.",
        cure: "Do the slow part before taking the lock; a lock for each part of the data; readers that need none.",
    },
    make,
};

/// Shorter waits do not count.
const LEAST_NS: u64 = 1_000_000;

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let hold = case.duration("hold");
    let seconds = hold.as_secs_f64().to_string();
    let serve = Serve::python(&["--hold", &seconds]);
    stage.cable()?;
    stage.serve(&if case.near_miss { serve } else { serve.with(&["--lock"]) })?;
    stage.call(&Tank::python(case.duration("duration")).rate(case.number("rate")))?;
    let calls = stage.end()?;
    let waits = stage.waits(Side::Server, "")?;

    let (active, affected) = cost(&waits, &calls, LEAST_NS);
    let slow = calls.over_ns_but(hold.as_nanos() as u64 / 2, stage.pauses()).count() as f64;
    let mut acted = FaultReport { active, affected, ..FaultReport::default() };
    acted.at_least("calls", calls.all.len() as f64, 20.0);
    acted.at_most("calls that failed", calls.all.iter().filter(|call| !call.ok).count() as f64, 0.0);
    let waited = acted.affected.len() as f64;
    if case.near_miss {
        acted.at_most("calls that waited for the lock, as the server timed it", waited, 0.0);
        acted.at_most("calls over half of a hold", slow, calls.all.len() as f64 * 0.05);
        acted.affected_rule = "no call is affected".into();
        return Ok(acted);
    }
    acted.at_least("calls that waited for the lock, as the server timed it", waited, 5.0);
    let longest = acted.affected.iter().filter_map(|call| call.cost_ns).max().unwrap_or(0);
    acted.at_least("the longest of these waits, ns", longest as f64, hold.as_nanos() as f64 * 0.5);
    acted.affected_rule = "calls that waited for the lock for 1 ms and more, as the server timed it".into();
    Ok(acted)
}

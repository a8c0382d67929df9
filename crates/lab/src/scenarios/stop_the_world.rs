//! The server's garbage collector stops the thread that serves.

use crate::LabError;
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::{Active, FaultReport};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

pub const STOP_THE_WORLD: Scenario = Scenario {
    name: "stop-the-world",
    title: "the garbage collector of a server in Node stops its only thread twice a second",
    culprit: Culprit::at(Cause::ServerQueue, Side::Server),
    // Calls that the server already has wait there.
    also_right: &[Culprit::at(Cause::ServerApp, Side::Server)],
    leg: Some(Legs { first: Leg::ServerHostIn, last: Leg::ServerHostOut }),
    parameters: &[
        Parameter { name: "rate", what: "calls per second", default: Value::Number(60) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(4_000_000_000) },
        Parameter {
            name: "objects",
            what: "thousands of objects that the server keeps",
            default: Value::Number(150),
        },
    ],
    near_miss: NearMiss {
        title: "the same server with the same objects, without collections",
        culprit: Culprit::NOTHING,
        leg: None,
    },
    page: Page {
        what: "A runtime with a garbage collector stops the threads of its program, or one thread that does everything, while it \
looks at what is still in use. Requests that come meanwhile are in the socket, with no SERVER span yet; those under way \
continue when it is over. The CPU is busy with the process's own work, so that the scheduler shows nothing wrong.",
        real_life: "A large cache in the heap of a service, a burst of garbage after a batch, a heap close to its limit. Any long \
task on an event loop gives the same picture: a large JSON document, a regular expression that backtracks.",
        sources: &[
            ("V8: trash talk, the Orinoco garbage collector", "https://v8.dev/blog/trash-talk"),
            (
                "Node.js: don't block the event loop",
                "https://nodejs.org/en/learn/asynchronous-work/dont-block-the-event-loop",
            ),
        ],
        made: "A server in Node that keeps 150,000 objects in a map and, every 500 ms, has its garbage collected in full \
(`--expose-gc`), timing that itself. A client in Python calls it. In the near miss nothing is collected.",
        cure: "Less in the heap, or outside of it; a collector that works concurrently with the program; several processes; long tasks on \
threads of their own.",
    },
    make,
};

/// Shorter collections do not count as pauses.
const LEAST_NS: u64 = 5_000_000;

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let objects = (case.number("objects") * 1_000).to_string();
    let collect = if case.near_miss { "no" } else { "yes" };
    stage.cable()?;
    stage.serve(&Serve::node(&["--objects", &objects, "--collect", collect]))?;
    stage.call(&Tank::python(case.duration("duration")).rate(case.number("rate")))?;
    let calls = stage.end()?;
    let pauses = stage.waits(Side::Server, "gc")?;

    let active = |wait: &crate::stage::python::Wait| Active {
        from_unix_ns: wait.from_unix_ns,
        to_unix_ns: wait.to_unix_ns,
    };
    let active: Vec<Active> =
        pauses.iter().map(active).filter(|pause| pause.length_ns() >= LEAST_NS).collect();
    let longest = active.iter().map(Active::length_ns).max().unwrap_or(0) as f64;
    let mut acted = FaultReport { affected: calls.during(&active, LEAST_NS / 2), ..FaultReport::default() };
    acted.at_least("calls", calls.all.len() as f64, 20.0);
    acted.at_most("calls that failed", calls.all.iter().filter(|call| !call.ok).count() as f64, 0.0);
    let count = active.len() as f64;
    acted.active = active;
    if case.near_miss {
        acted.at_most("pauses of 5 ms and more, as the server timed them", count, 0.0);
        acted.affected_rule = "no call is affected".into();
        return Ok(acted);
    }
    acted.at_least("pauses of 5 ms and more, as the server timed them", count, 4.0);
    acted.at_least("the longest of them, ns", longest, 2.0 * LEAST_NS as f64);
    acted.at_least("calls under way in one", acted.affected.len() as f64, 4.0);
    acted.affected_rule =
        "calls under way while the collector was at work, by how long they were, as the server timed it"
            .into();
    Ok(acted)
}

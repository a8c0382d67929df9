//! A process is stopped, again and again, as by a debugger, a snapshot or a collector of garbage.

use crate::LabError;
use crate::actors::stretches;
use crate::scenario::{Case, Page, Parameter, Scenario, Value};
use crate::stage::{Apart, Serve, Stage, Tank};
use crate::truth::{Active, FaultReport};
use crate::waits::{self, SideText, Wait};
use spangap_model::{Cause, Side};
use std::time::Duration;

/// At the client.
pub const CLIENT: Scenario = STOPPED.at(
    Side::Client,
    SideText {
        name: "stopped-client",
        title: "the client's process is stopped for 60 ms, twice a second",
        near_miss: "another process on the client's host and CPU is stopped as often, one that no call waits for",
    },
);

/// At the server.
pub const SERVER: Scenario = STOPPED.at(
    Side::Server,
    SideText {
        name: "stopped-server",
        title: "the server's process is stopped for 60 ms, twice a second",
        near_miss: "another process on the server's host and CPU is stopped as often, one that no call waits for",
    },
);

const STOPPED: Wait = Wait { cause: Cause::Stopped, parameters: PARAMETERS, page: PAGE, make };

const PARAMETERS: &[Parameter] = &[
    Parameter { name: "rate", what: "calls per second", default: Value::Number(100) },
    Parameter { name: "duration", what: "measured time", default: Value::Duration(3_000_000_000) },
    Parameter {
        name: "stop",
        what: "how long the process is stopped, every 500 ms",
        default: Value::Duration(60_000_000),
    },
];

const PAGE: Page = Page {
    what: "No thread of the process runs for a while, whatever there is to do and however free the CPUs are. The kernel \
carries on without it: packets arrive and are acknowledged, and wait in the socket. When the process continues, everything \
that has come meanwhile is served at once.",
    real_life: "Garbage collectors that stop the world, debuggers and profilers that attach, checkpoints, frozen control \
groups, snapshots and migrations of virtual machines. The program itself does not notice, and its own timers often do not, either.",
    sources: &[
        (
            "Martin Kleppmann: How to do distributed locking",
            "https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html",
        ),
        (
            "Designing Data-Intensive Applications: Process Pauses",
            "https://m.ebrary.net/64828/computer_science/process_pauses",
        ),
    ],
    made: "SIGSTOP to the process of that side, and SIGCONT 60 ms later, twice a second. The times are those at which the \
kernel showed it stopped. Both ends are in the class SCHED_FIFO, each on a CPU of its own: no other thread holds them up. In \
the near miss the same happens to a process that takes no part in any call.",
    cure: "A collector that does not stop the world, or a smaller heap; no profilers that stop the process in production; a \
second server to ask when the first is late.",
};

const EVERY: &str = "500ms";
/// A call that takes this much longer than the server thinks was held up by something.
const SLOW: Duration = Duration::from_millis(15);

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let side = case.scenario.culprit.side.expect("it is of a side");
    let think = waits::think(side);
    let apart = Apart::find_in_real_time()?;
    stage.cable()?;
    stage.serve(&Serve::stack("rust").think(think).around(apart.calm(Side::Server)))?;
    let tank = Tank::stack("rust", case.duration("duration")).rate(case.number("rate"));
    stage.call(&tank.around(apart.calm(Side::Client)))?;
    let whom = match (case.near_miss, side) {
        // Busy now and then, as programs are; at a higher priority than this machine's other work, or it
        // could not even be stopped on time.
        (true, _) => stage.actor(side, &apart.behind(side), "hog", &["--on", "2ms", "--every", "40ms"])?,
        (false, Side::Client) => stage.client_pid(),
        (false, Side::Server) => stage.server_pid(),
    };
    let (pid, stop) = (whom.to_string(), case.parameters()["stop"].clone());
    let around = apart.calm(side.other());
    stage.actor(side, &around, "pause", &["--pid", &pid, "--on", &stop, "--every", EVERY])?;
    let calls = stage.end()?;
    let stops = waits::within(&calls, stretches(&stage.end_actor("pause")?));

    let slow = calls.over_ns_but((think + SLOW).as_nanos() as u64, stage.pauses()).count() as f64;
    let expected = case.duration("duration").as_millis() as f64 / 500.0;
    let length = stops.iter().map(Active::length_ns).min().unwrap_or(0);
    let mut acted = FaultReport::default();
    acted.at_least("times that the process was seen stopped", stops.len() as f64, expected / 2.0);
    acted.at_least("the shortest of them, ns", length as f64, case.duration("stop").as_nanos() as f64 * 0.9);
    let slow_calls = format!("calls over {} ms", (think + SLOW).as_millis());
    if case.near_miss {
        acted.at_most(slow_calls, slow, calls.all.len() as f64 * 0.05);
        acted.affected_rule = "no call is affected".into();
        return Ok(acted);
    }
    acted.at_least(slow_calls, slow, expected);
    acted.affected = waits::affected(&calls, side, &stops);
    acted.affected_rule = waits::rule(side).into();
    acted.active = stops;
    Ok(acted)
}

//! A busy neighbour on the same CPU: threads that could run wait until it is done.

use crate::LabError;
use crate::actors::stretches;
use crate::counters::{Watch, run_delay_ns};
use crate::scenario::{Case, Page, Parameter, Scenario, Value};
use crate::stage::{Apart, Serve, Stage, Tank};
use crate::truth::{Active, FaultReport};
use crate::waits::{self, SideText, Wait};
use spangap_model::{Cause, Side};
use std::time::Duration;

/// At the client.
pub const CLIENT: Scenario = RUN_QUEUE.at(
    Side::Client,
    SideText {
        name: "run-queue-client",
        title: "a neighbour takes the client's CPU for 35 ms, four times a second",
        near_miss: "the same neighbour on the same CPU, at the lowest priority: it yields whenever the client wants to run",
    },
);

/// At the server.
pub const SERVER: Scenario = RUN_QUEUE.at(
    Side::Server,
    SideText {
        name: "run-queue-server",
        title: "a neighbour takes the server's CPU for 35 ms, four times a second",
        near_miss: "the same neighbour on the same CPU, at the lowest priority: it yields whenever the server wants to run",
    },
);

const RUN_QUEUE: Wait = Wait { cause: Cause::RunQueue, parameters: PARAMETERS, page: PAGE, make };

const PARAMETERS: &[Parameter] = &[
    Parameter { name: "rate", what: "calls per second", default: Value::Number(100) },
    Parameter { name: "duration", what: "measured time", default: Value::Duration(3_000_000_000) },
    Parameter {
        name: "burst",
        what: "how long the neighbour runs, every 250 ms",
        default: Value::Duration(35_000_000),
    },
];

const PAGE: Page = Page {
    what: "The response, or the request, is there, and the thread that is to take it is awake and wants to run. Its CPU is \
busy with another thread that the scheduler prefers, so it waits in the run queue. No counter of the program itself shows this \
time: it is neither at work nor asleep.",
    real_life: "Programs packed onto one machine: a neighbour's batch job, a backup, log shipping, a real-time task, or \
threads pinned to a CPU on which others run, too. Netflix watches for it on every host of its container platform.",
    sources: &[
        (
            "Netflix: Noisy Neighbor Detection with eBPF",
            "https://netflixtechblog.com/noisy-neighbor-detection-with-ebpf-64b1f4b3bbdd",
        ),
        (
            "sched(7): overview of CPU scheduling",
            "https://manpages.ubuntu.com/manpages/bionic/man7/sched.7.html",
        ),
    ],
    made: "Each side has a CPU of its own, where it takes precedence over everything but the neighbour: all three are in the class \
SCHED_FIFO. On one of the two CPUs the neighbour spins for 35 ms, four times a second, which is little enough for the kernel to \
permit it. In the near miss it does so with niceness 19 instead.",
    cure: "A CPU that is the application's alone (cpusets, isolated CPUs); a lower priority or another CPU for the neighbour; \
fewer programs on the machine.",
};

const EVERY: &str = "250ms";
/// A call that takes this much longer than the server thinks was held up by something.
const SLOW: Duration = Duration::from_millis(10);

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let side = case.scenario.culprit.side.expect("it is of a side");
    let think = waits::think(side);
    let apart = Apart::find_in_real_time()?;
    stage.cable()?;
    stage.serve(&Serve::stack("rust").think(think).around(apart.calm(Side::Server)))?;
    let tank = Tank::stack("rust", case.duration("duration")).rate(case.number("rate"));
    stage.call(&tank.around(apart.calm(Side::Client)))?;
    let victim = if side == Side::Client { stage.client_pid() } else { stage.server_pid() };
    let waited = Watch::start(move || run_delay_ns(victim));
    let beside = if case.near_miss { apart.nicest(side) } else { apart.first(side) };
    let burst = case.parameters()["burst"].clone();
    stage.actor(side, &beside, "hog", &["--on", &burst, "--every", EVERY])?;
    let calls = stage.end()?;
    let bursts = waits::within(&calls, stretches(&stage.end_actor("hog")?));
    let waited = waited.end().grew(&until_counted(&bursts));

    let slow = calls.over_ns_but((think + SLOW).as_nanos() as u64, stage.pauses()).count() as f64;
    let expected = case.duration("duration").as_millis() as f64 / 250.0;
    let burned: f64 = bursts.iter().map(Active::length_ns).map(|ns| ns as f64).sum();
    let mut acted = FaultReport::default();
    acted.at_least("bursts of the neighbour", bursts.len() as f64, expected / 2.0);
    let share = "time that threads of the program waited for a CPU in the bursts (schedstat), as a share of the bursts";
    let slow_calls = format!("calls over {} ms", (think + SLOW).as_millis());
    if case.near_miss {
        acted.at_most(share, waited / burned, 0.25);
        acted.at_most(slow_calls, slow, calls.all.len() as f64 * 0.05);
        acted.affected_rule = "no call is affected".into();
        return Ok(acted);
    }
    acted.at_least(share, waited / burned, 0.5);
    acted.at_least(slow_calls, slow, expected / 2.0);
    acted.affected = waits::affected(&calls, side, &bursts);
    acted.affected_rule = waits::rule(side).into();
    acted.active = bursts;
    Ok(acted)
}

/// A wait is counted when it is over.
fn until_counted(bursts: &[Active]) -> Vec<Active> {
    const AFTER_NS: u64 = 15_000_000;
    let later = |one: &Active| Active { to_unix_ns: one.to_unix_ns + AFTER_NS, ..*one };
    bursts.iter().map(later).collect()
}

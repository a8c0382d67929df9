//! A control group uses up its CPU quota: everybody in it is kept from running until the period is over.

use crate::LabError;
use crate::actors::stretches;
use crate::counters::Watch;
use crate::scenario::{Case, Page, Parameter, Scenario, Value};
use crate::stage::traffic::text;
use crate::stage::{Apart, Quota, Serve, Stage, Tank};
use crate::truth::FaultReport;
use crate::waits::{self, SideText, Wait};
use spangap_model::{Cause, Side};
use std::time::Duration;

/// At the client.
pub const CLIENT: Scenario = CPU_QUOTA.at(
    Side::Client,
    SideText {
        name: "cpu-quota-client",
        title: "the client shares a CPU quota with a program that uses it up again and again",
        near_miss: "the client has the same quota to itself: an equally busy program on its CPU is outside the group, at a lower priority",
    },
);

/// At the server.
pub const SERVER: Scenario = CPU_QUOTA.at(
    Side::Server,
    SideText {
        name: "cpu-quota-server",
        title: "the server shares a CPU quota with a program that uses it up again and again",
        near_miss: "the server has the same quota to itself: an equally busy program on its CPU is outside the group, at a lower priority",
    },
);

const CPU_QUOTA: Wait = Wait { cause: Cause::CpuQuota, parameters: PARAMETERS, page: PAGE, make };

const PARAMETERS: &[Parameter] = &[
    Parameter { name: "rate", what: "calls per second", default: Value::Number(100) },
    Parameter { name: "duration", what: "measured time", default: Value::Duration(3_000_000_000) },
    Parameter {
        name: "quota",
        what: "CPU time of the group in each 100 ms",
        default: Value::Duration(20_000_000),
    },
    Parameter {
        name: "burst",
        what: "how long the program beside wants the CPU, every 270 ms",
        default: Value::Duration(50_000_000),
    },
];

const PAGE: Page = Page {
    what: "A control group may use so much CPU time in each period, 20 ms of every 100 ms here. Once its programs have \
used that up, none of them runs until the next period begins, even if CPUs are idle: whatever arrives meanwhile waits, up to \
80 ms. The CPU use of the group, averaged over seconds, may be far below its limit all the while.",
    real_life: "Containers with a CPU limit. A runtime that collects garbage on many threads at once, a sidecar, or a batch \
job in the same container spends the quota in a few milliseconds, and the requests of the next tens of milliseconds pay.",
    sources: &[
        ("Linux: CFS Bandwidth Control", "https://docs.kernel.org/scheduler/sched-bwc.html"),
        (
            "kubernetes#67577: CFS quotas can lead to unnecessary throttling",
            "https://github.com/kubernetes/kubernetes/issues/67577",
        ),
    ],
    made: "The program of that side starts in a control group with a quota (cpu.cfs_quota_us, or cpu.max), on a CPU of \
its own. Beside it in the group a program burns CPU for 50 ms, every 270 ms. The other end is in the class SCHED_FIFO: nothing \
holds it up. The near miss has the same group and the same bursts, by a program that is outside the group and has a lower priority.",
    cure: "A higher limit, or none; fewer threads that burn at once; a quota that may be saved up (cpu.max.burst, \
cpu.cfs_burst_us); what burns, in a group of its own.",
};

const PERIOD: Duration = Duration::from_millis(100);
/// No multiple of the period, so that bursts begin anywhere in it.
const EVERY: Duration = Duration::from_millis(270);
/// A call that takes this much longer than the server thinks was held up by something.
const SLOW: Duration = Duration::from_millis(20);

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let side = case.scenario.culprit.side.expect("it is of a side");
    let think = waits::think(side);
    let apart = Apart::find_in_real_time()?;
    stage.cable()?;
    let group = stage.cgroup(side.name(), Quota { time: case.duration("quota"), period: PERIOD })?;
    // A quota does not hold for the class SCHED_FIFO: within the group weight has to do.
    let around = |end| if end == side { group.around(apart.around(end)) } else { apart.calm(end) };
    stage.serve(&Serve::stack("rust").think(think).around(around(Side::Server)))?;
    let tank = Tank::stack("rust", case.duration("duration")).rate(case.number("rate"));
    stage.call(&tank.around(around(Side::Client)))?;
    let (periods, time) = (group.clone(), group.clone());
    let throttled = Watch::start(move || periods.throttled());
    let throttled_ns = Watch::start(move || time.throttled_ns());
    let beside = if case.near_miss { apart.nicest(side) } else { around(side) };
    let burst = case.parameters()["burst"].clone();
    stage.actor(side, &beside, "hog", &["--on", &burst, "--every", &text(EVERY)])?;
    let calls = stage.end()?;
    let (throttled, throttled_ns) = (throttled.end(), throttled_ns.end());
    let bursts = waits::within(&calls, stretches(&stage.end_actor("hog")?));

    let measured = calls.whole();
    let periods = throttled.grew(&measured);
    let slow = calls.over_ns_but((think + SLOW).as_nanos() as u64, stage.pauses()).count() as f64;
    let expected = case.duration("duration").as_secs_f64() / EVERY.as_secs_f64();
    let mut acted = FaultReport::default();
    acted.at_least("bursts of the program beside", bursts.len() as f64, (expected / 2.0).floor());
    let used_up = "periods in which the group used up its quota (nr_throttled)";
    let slow_calls = format!("calls over {} ms", (think + SLOW).as_millis());
    if case.near_miss {
        acted.at_most(used_up, periods, (expected / 3.0).floor());
        acted.at_most(slow_calls, slow, calls.all.len() as f64 * 0.05);
        acted.affected_rule = "no call is affected".into();
        return Ok(acted);
    }
    acted.at_least(used_up, periods, (expected * 0.6).floor());
    acted.at_least(
        "time in which the group was kept from running, ns",
        throttled_ns.grew(&measured),
        (expected * 1e7).floor(),
    );
    acted.at_least(slow_calls, slow, (expected / 3.0).floor());
    acted.affected = waits::affected(&calls, side, &bursts);
    acted.affected_rule = waits::rule(side).into();
    acted.active = bursts;
    Ok(acted)
}

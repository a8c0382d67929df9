//! Softirqs for packets that the application does not care about, on the application's CPU.

use crate::LabError;
use crate::actors::stretches;
use crate::calls::{Call, Calls};
use crate::counters::{Watch, rx_packets, softirq_ns};
use crate::hosts::{SECOND_BROADCAST, SECOND_DEVICE};
use crate::scenario::{Case, Page, Parameter, Scenario, Value};
use crate::stage::traffic::text;
use crate::stage::{Apart, Serve, Stage, Tank};
use crate::truth::{Active, Affected, FaultReport};
use crate::waits::{self, SideText, Wait};
use spangap_model::{Cause, Side};
use std::time::Duration;

/// At the client.
pub const CLIENT: Scenario = SOFTIRQ.at(
    Side::Client,
    SideText {
        name: "softirq-client",
        title: "packets of another device are handled on the client's CPU, some 20 ms of work at once",
        near_miss: "the same packets on the same host, handled on a CPU where neither end runs",
    },
);

/// At the server.
pub const SERVER: Scenario = SOFTIRQ.at(
    Side::Server,
    SideText {
        name: "softirq-server",
        title: "packets of another device are handled on the server's CPU, some 20 ms of work at once",
        near_miss: "the same packets on the same host, handled on a CPU where neither end runs",
    },
);

const SOFTIRQ: Wait = Wait { cause: Cause::SoftirqOnCpu, parameters: PARAMETERS, page: PAGE, make };

const PARAMETERS: &[Parameter] = &[
    Parameter { name: "rate", what: "calls per second", default: Value::Number(100) },
    Parameter { name: "duration", what: "measured time", default: Value::Duration(4_000_000_000) },
    Parameter {
        name: "packets",
        what: "broadcast packets at once, every 50 ms; more than 900 overflow the kernel's queue, which the calls share",
        default: Value::Number(700),
    },
    Parameter {
        name: "listeners",
        what: "sockets that each of them is handed to: the work of one packet",
        default: Value::Number(600),
    },
];

const PAGE: Page = Page {
    what: "Packets are handled in softirqs, which come before every thread, whatever its priority. Where many packets \
arrive at a CPU at once, the application's thread on that CPU stands still until they are done, and so do the application's own \
packets, which are in the same queue behind them. Profilers of the application see nothing of it, and its CPU time may even \
include it.",
    real_life: "A NIC whose interrupts go to the CPUs of the application; steering in software (RPS) that spreads packets \
over all CPUs; a feed or broadcast that many sockets of a host receive. At GitHub, work of the kernel on a CPU delayed the packets \
that were to be handled there.",
    sources: &[
        (
            "Linux: Scaling in the Linux Networking Stack (RPS)",
            "https://docs.kernel.org/networking/scaling.html",
        ),
        (
            "RSS, IRQ affinity and RPS on Linux",
            "https://andreaskaris.github.io/blog/networking/rss-irq-affinity-and-rps",
        ),
        (
            "GitHub: Debugging network stalls on Kubernetes",
            "https://github.blog/2019-11-21-debugging-network-stalls-on-kubernetes/",
        ),
    ],
    made: "The hosts have a second cable. 700 broadcast packets come over it every 50 ms, in every other half second, and \
RPS of the device has them handled on the CPU of one end. On that host 600 sockets listen to them, and nobody reads them, so that \
each packet is some 30 us of work. Both ends are in the class SCHED_FIFO: no thread holds them up. In the near miss both ends \
run on one CPU, and the packets are handled on the other.",
    cure: "Interrupts and RPS of devices with much traffic to CPUs of their own, away from the application; `spangap isolate` \
does that.",
};

const PORT: &str = "5500";
/// Between two bursts of packets.
const APART: Duration = Duration::from_millis(50);
/// The flood comes in the second half of each.
const EVERY: Duration = Duration::from_secs(1);
/// How much later calls are to be.
const LATER_NS: f64 = 5e6;

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let side = case.scenario.culprit.side.expect("it is of a side");
    let think = waits::think(side);
    let apart = Apart::find_in_real_time()?;
    stage.cable()?;
    let cpu = if case.near_miss { apart.of(side.other()) } else { apart.of(side) };
    stage.hosts().second_cable(side, cpu)?;
    // In the near miss both ends are on one CPU, which leaves the other to the packets.
    let around = |end| apart.calm(if case.near_miss { side } else { end });
    stage.serve(&Serve::stack("rust").think(think).around(around(Side::Server)))?;
    let tank = Tank::stack("rust", case.duration("duration")).rate(case.number("rate"));
    stage.call(&tank.around(around(Side::Client)))?;
    let elsewhere = apart.behind(side.other());
    let [packets, sockets] = ["packets", "listeners"].map(|name| case.number(name).to_string());
    let listens = stage.actor(side, &elsewhere, "audience", &["--port", PORT, "--sockets", &sockets])?;
    let received = Watch::start(move || rx_packets(listens, SECOND_DEVICE));
    let own = apart.of(side);
    let [on_own, on_chosen] = [own, cpu].map(|cpu| Watch::start(move || softirq_ns(cpu)));
    let address = format!("{SECOND_BROADCAST}:{PORT}");
    let [between, on, every] = [APART, EVERY / 2, EVERY].map(text);
    let burst = ["--to", &address, "--packets", &packets, "--apart", &between];
    let flood = [&burst[..], &["--on", &on, "--every", &every]].concat();
    stage.actor(side.other(), &elsewhere, "flood", &flood)?;
    let calls = stage.end()?;
    let flooded = waits::within(&calls, stretches(&stage.end_actor("flood")?));
    let [received, on_own, on_chosen] = [received.end(), on_own.end(), on_chosen.end()];

    let flood_ns: f64 = flooded.iter().map(|one| one.length_ns() as f64).sum();
    let (quiet, busy) = apart_by(&calls, &flooded);
    let later = busy.quantile_ns(0.9) as f64 - quiet.quantile_ns(0.9) as f64;
    let sent = case.number("packets") as f64 * flood_ns / APART.as_nanos() as f64;
    let mut acted = FaultReport::default();
    acted.at_least(
        "packets that the device received, as a share of those sent",
        received.grew(&flooded) / sent,
        0.5,
    );
    let share = |cpu: usize| format!("time of softirqs on CPU {cpu} while packets came, as a share");
    acted.at_least(share(cpu), on_chosen.grew(&flooded) / flood_ns, 0.1);
    let how = "90th percentile of the calls while packets came, beyond that of the others, ns";
    if case.near_miss {
        acted.at_most(share(own), on_own.grew(&flooded) / flood_ns, 0.08);
        acted.at_most(how, later, LATER_NS);
        acted.affected_rule = "no call is affected".into();
        return Ok(acted);
    }
    acted.at_least(how, later, LATER_NS);
    let usual = quiet.quantile_ns(0.9) + LATER_NS as u64;
    let affected = busy.over_ns(usual);
    acted.affected =
        affected.map(|call| Affected { trace_id: call.trace_id.clone(), cost_ns: None }).collect();
    acted.affected_rule =
        "calls while packets came that took 5 ms more than nine in ten of the calls of the same run \
        while none came; how much of that is the softirqs' is not known by construction"
            .into();
    acted.active = flooded;
    Ok(acted)
}

/// Calls that none of these stretches touches, and those that are within one.
fn apart_by(calls: &Calls, stretches: &[Active]) -> (Calls, Calls) {
    let overlap = |call: &Call| -> u64 {
        stretches.iter().map(|one| one.overlap_ns(call.start_unix_ns, call.end_unix_ns)).sum()
    };
    let (mut quiet, mut busy) = (Calls::default(), Calls::default());
    for call in &calls.all {
        match overlap(call) {
            0 => quiet.all.push(call.clone()),
            ns if ns == call.duration_ns() => busy.all.push(call.clone()),
            _ => {}
        }
    }
    (quiet, busy)
}

//! The client's application does something else while the response is there.

use crate::LabError;
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::shim::{LateRead, LateReads, Shim};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::FaultReport;
use spangap_model::{Cause, Culprit, Leg, Legs, Side};
use std::collections::HashSet;

pub const CLIENT_APP: Scenario = Scenario {
    name: "client-app",
    title: "the response is at the client's host; its application reads it late",
    culprit: Culprit::at(Cause::ClientApp, Side::Client),
    also_right: &[],
    leg: Some(Legs::one(Leg::ClientAppIn)),
    parameters: &[
        Parameter { name: "rate", what: "calls per second", default: Value::Number(20) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(4_000_000_000) },
        Parameter { name: "pause", what: "how late a read comes", default: Value::Duration(40_000_000) },
        Parameter {
            name: "period",
            what: "in each of these stretches one read comes late",
            // No multiple of the time between two calls, so that it does not end between the packets of one.
            default: Value::Duration(180_000_000),
        },
    ],
    near_miss: NearMiss {
        title: "the same pauses in the server's application, before it reads requests",
        culprit: Culprit::at(Cause::ServerQueue, Side::Server),
        leg: Some(Legs::one(Leg::ServerHostIn)),
    },
    page: Page {
        what: "The response has arrived, and the kernel holds it for the client's program. Its thread does something else: it \
runs a callback that takes long, writes a log, waits for a lock. Until it reads, the call goes on for the client, and \
going by the client's figures, one would blame the server or the network. The server's span is short, the packets are prompt \
at both ends, and no CPU is short.",
        real_life: "Programs with one thread for all sockets: Node.js, asyncio, games. A callback that blocks makes every \
response that comes meanwhile late, by its client's clock alone.",
        sources: &[
            (
                "Mudlet#10108: getNetworkLatency() no longer reports a busy client as network lag",
                "https://github.com/Mudlet/Mudlet/pull/10108",
            ),
            (
                "How API latencies may mislead in nodejs",
                "https://akshitb.medium.com/how-api-latencies-may-mislead-in-nodejs-5958b1b6a7cb",
            ),
        ],
        made: "A library is preloaded into the client's program: in each period it makes one read for which data is there \
sleep first. No CPU is burned. At this rate no two responses are pending at once. The near miss has the same library in the server's \
program, so that requests wait before the server's span begins.",
        cure: "Read on a thread of its own; take long work off the thread that reads. Off-CPU stacks of that thread show \
what it waits for instead.",
    },
    make,
};

/// Equal parts of a pause: a call that coincides with one of them is affected, and one that is as long as all but
/// one spent most of the pause.
const PARTS: u64 = 4;

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let (pause, period) = (case.duration("pause"), case.duration("period"));
    let side = if case.near_miss { Side::Server } else { Side::Client };
    let shim = Shim { late: Some(LateRead { pause, every: LateReads::Period(period) }), ..Shim::at(side) };
    let mut serve = Serve::stack("rust");
    let mut tank = Tank::stack("rust", case.duration("duration")).rate(case.number("rate"));
    stage.cable()?;
    match side {
        Side::Client => tank = tank.around(shim.apply(stage, Default::default())?),
        Side::Server => serve = serve.around(shim.apply(stage, Default::default())?),
    }
    stage.serve(&serve)?;
    stage.call(&tank)?;
    let calls = stage.end()?;

    let pause_ns = pause.as_nanos() as u64;
    let most_ns = pause_ns - pause_ns / PARTS;
    let whole = calls.whole();
    let mut acted = FaultReport { active: shim.log(stage)?, ..FaultReport::default() };
    acted.active.retain(|one| whole.iter().any(|all| all.overlap_ns(one.from_unix_ns, one.to_unix_ns) > 0));
    let pauses = acted.active.len() as f64;
    // A period ends with the first read after it, and the next one begins then.
    let between_ns = period.as_nanos() as f64 + 1e9 / case.number("rate") as f64;
    let expected = case.duration("duration").as_nanos() as f64 / between_ns;
    acted.at_least(format!("pauses of the {}'s program", side.name()), pauses, (expected * 0.7).floor());
    // Calls that something else of this machine held up prove nothing, either way.
    let paused = calls.during(&acted.active, most_ns);
    let paused: HashSet<&str> = paused.iter().map(|call| call.trace_id.as_str()).collect();
    let slow: Vec<_> = calls.all.iter().filter(|call| paused.contains(call.trace_id.as_str())).collect();
    let most_ms = most_ns / 1_000_000;
    acted.at_least(format!("calls with {most_ms} ms of a pause, or more"), slow.len() as f64, pauses * 0.8);
    // Both programs read one clock: the kernel's of this machine.
    let mut after: Vec<u64> = Vec::new();
    let mut before: Vec<u64> = Vec::new();
    for call in &slow {
        if let Some((start, end)) = call.server.first() {
            before.push(start.saturating_sub(call.start_unix_ns));
            after.push(call.end_unix_ns.saturating_sub(*end));
        }
    }
    let (late, prompt) = if case.near_miss { (before, after) } else { (after, before) };
    let over = |times: &[u64], ns: u64| times.iter().filter(|time| **time > ns).count() as f64;
    let [long, short] = if case.near_miss {
        ["before the server's span began", "after the server's span had ended"]
    } else {
        ["after the server's span had ended", "before the server's span began"]
    };
    acted.at_least(
        format!("of these, calls that spent most of a pause {long}"),
        over(&late, most_ns),
        slow.len() as f64 * 0.8,
    );
    acted.at_most(format!("and calls that did {short}"), over(&prompt, most_ns), slow.len() as f64 * 0.1);
    acted.affected = calls.during(&acted.active, pause_ns / PARTS);
    acted.affected_rule = format!(
        "calls during which the {}'s program was paused for a quarter of a pause or more, by its own log; the cost is for how long",
        side.name()
    );
    Ok(acted)
}

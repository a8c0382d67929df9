//! The server accepts connections more slowly than they come, and its queue for them is short.

use crate::LabError;
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::shim::Shim;
use crate::stage::{Serve, Stage, Surroundings, Tank};
use crate::truth::{Affected, FaultReport};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

pub const ACCEPT_OVERFLOW: Scenario = Scenario {
    name: "accept-overflow",
    title: "the server accepts more slowly than connections come: the queue is full, SYNs are dropped, and sent again a second later",
    culprit: Culprit::at(Cause::AcceptOverflow, Side::Server),
    also_right: &[],
    leg: Some(Legs::one(Leg::ClientAppOut)),
    parameters: &[
        Parameter {
            name: "rate",
            what: "calls per second, each with a connection",
            default: Value::Number(60),
        },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(3_000_000_000) },
        Parameter {
            name: "pause",
            what: "time that the server takes to accept a connection",
            default: Value::Duration(25_000_000),
        },
        Parameter { name: "backlog", what: "connections that may wait", default: Value::Number(2) },
    ],
    near_miss: NearMiss {
        title: "connections are accepted late, too, but as fast as they come, and there is room: all wait a little, none is dropped",
        culprit: Culprit::at(Cause::ServerQueue, Side::Server),
        leg: Some(Legs::one(Leg::ServerHostIn)),
    },
    page: Page {
        what: "The kernel completes the handshake and puts the connection into a queue, where the application takes it by \
accept. When the queue is full, the kernel drops the SYN of the next connection without a word. The client believes that it \
was lost on the way and sends it again after a second, and so on. The call takes a second or several; the network lost \
nothing, and the server has never heard of it.",
        real_life: "A server with one thread that accepts, busy with something else; a backlog that was left at 5 or \
128; a burst of connections after a restart of many clients, or because each call has its own. The counters \
ListenOverflows and ListenDrops say so, and `ss -lnt` shows the queue.",
        sources: &[
            (
                "Analyzing TCP Connection Queue Overflows Using netstat and Linux Kernel Source",
                "https://besthub.dev/articles/analyzing-tcp-connection-queue-overflows-using-netstat-and-linux-kernel-source-7ddb742de19e",
            ),
            (
                "How can I monitor the length of the accept queue?",
                "https://unix.stackexchange.com/questions/328746/how-can-i-monitor-the-length-of-the-accept-queue",
            ),
        ],
        made: "A library preloaded into the target gives listen a backlog of 2 and sleeps 25 ms before each accept: at most \
40 connections a second, of 60 that the tank opens. The kernel of the server's host counts the overflows. In the near miss \
the sleep is half as long and the backlog 128.",
        cure: "Accept in a thread that does nothing else; a larger backlog and net.core.somaxconn; fewer connections, each \
kept for many calls.",
    },
    make,
};

/// A SYN is sent again after a second: a connection that takes this long had one dropped. The queue itself
/// takes far less.
const DROPPED_NS: u64 = 950_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// Room for all connections that there are.
const ROOM: u32 = 128;
/// So that some serve while one accepts.
const THREADS: &str = "3";

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let (rate, duration, pause) = (case.number("rate"), case.duration("duration"), case.duration("pause"));
    let (pause, backlog) = match case.near_miss {
        true => (pause / 2, ROOM),
        false => (pause, u32::try_from(case.number("backlog")).unwrap_or(u32::MAX)),
    };
    stage.cable()?;
    let shim = Shim { backlog: Some(backlog), accept_pause: Some(pause), ..Shim::at(Side::Server) };
    let around = shim.apply(stage, Surroundings::default())?;
    stage.serve(&Serve::stack("rust").with(&["--threads", THREADS]).around(around))?;
    let before = stage.tcp(Side::Server)?;
    stage.call(&Tank::stack("rust", duration).rate(rate).with(&["--channels", "per-call"]))?;
    let calls = stage.end()?;
    let after = stage.tcp(Side::Server)?;
    let pauses = shim.log(stage)?;

    let all = calls.all.len() as f64;
    let overflows = after.grew(&before, "TcpExt.ListenOverflows");
    let dropped = || calls.over_ns(DROPPED_NS);
    let overflows_are = "SYNs for which the queue had no room (TcpExt.ListenOverflows)";
    let dropped_are = "calls that took 950 ms or more";
    let mut acted = FaultReport::default();
    acted.at_least("connections that were accepted late", pauses.len() as f64, all / 2.0);
    if case.near_miss {
        acted.at_most(overflows_are, overflows, 0.0);
        acted.at_most(dropped_are, dropped().count() as f64, all * 0.02);
        let median = calls.gap_quantile_ns(0.5) as f64;
        acted.at_least(
            "median of the time outside the server's span, ns",
            median,
            pause.as_nanos() as f64 * 0.9,
        );
        acted.affected_rule = "every call waits for its connection to be accepted".into();
        acted.affected = calls.all.iter().map(|call| affected(&call.trace_id, None)).collect();
        acted.active = calls.whole();
        return Ok(acted);
    }
    // What comes beyond what is accepted, less what waits.
    let beyond = (rate as f64 - 1.0 / pause.as_secs_f64()) * duration.as_secs_f64();
    acted.at_least(overflows_are, overflows, beyond / 2.0);
    acted.at_least(dropped_are, dropped().count() as f64, beyond / 2.0);
    acted.affected = dropped()
        .map(|call| {
            // Each SYN is sent again after whole seconds, and the rest is less than one.
            let seconds = (call.duration_ns() + SECOND_NS - DROPPED_NS) / SECOND_NS;
            affected(&call.trace_id, Some(seconds * SECOND_NS))
        })
        .collect();
    acted.affected_rule = "calls of 950 ms and more: a dropped SYN is sent again after whole seconds".into();
    acted.active = calls.whole();
    Ok(acted)
}

fn affected(trace_id: &str, cost_ns: Option<u64>) -> Affected {
    Affected { trace_id: trace_id.to_owned(), cost_ns }
}

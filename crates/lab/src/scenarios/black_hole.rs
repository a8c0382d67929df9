//! A flow that something on the way has forgotten: its packets are lost, all of them, and new connections work.

use crate::LabError;
use crate::hosts::line::{Direct, Fate, Line, Loss, Way};
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::python::cost;
use crate::stage::{Serve, Stage, Tank};
use crate::truth::FaultReport;
use spangap_model::{Cause, Culprit, Leg, Legs, Side};
use std::time::Duration;

pub const BLACK_HOLE: Scenario = Scenario {
    name: "black-hole",
    title: "now and then the path forgets a connection: it delivers nothing more of it, and the client gives up and opens another",
    culprit: Culprit::of(Cause::BlackHole),
    // What the client does about it is the same time, seen from there.
    also_right: &[Culprit::of(Cause::Retries)],
    leg: Some(Legs { first: Leg::ClientAppOut, last: Leg::RequestWire }),
    parameters: &[
        Parameter { name: "rate", what: "calls per second", default: Value::Number(60) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(4_000_000_000) },
        Parameter {
            name: "every",
            what: "requests, of which one finds its connection forgotten",
            default: Value::Number(20),
        },
        Parameter {
            name: "timeout",
            what: "after which the client gives an attempt up",
            default: Value::Duration(400_000_000),
        },
    ],
    near_miss: NearMiss {
        title: "the path delivers all of it, and the server takes nearly as long for as many calls",
        culprit: Culprit::at(Cause::ServerApp, Side::Server),
        leg: Some(Legs::one(Leg::ServerApp)),
    },
    page: Page {
        what: "Something on the way keeps a table of connections, and an entry of it is lost: what comes for that connection is \
dropped without a word. The client's TCP sends again and again, for a quarter of an hour if nobody stops it; the server sees an idle \
connection. Only a time-out of the client ends it, and the next attempt, on a new connection, takes as long as ever.",
        real_life: "Load balancers and NAT that forget idle connections, a firewall that was restarted, a node behind a service \
address that went away, `nf_conntrack_tcp_timeout_established`.",
        sources: &[
            (
                "Cloudflare: When TCP sockets refuse to die",
                "https://blog.cloudflare.com/when-tcp-sockets-refuse-to-die/",
            ),
            ("gRPC: keepalive", "https://grpc.io/docs/guides/keepalive/"),
        ],
        made: "A client and a server in Python. With every 20th request the delay line begins to lose all that comes from the \
client on that connection. The client gives up an attempt after 400 ms, and makes another on a new connection; it times the first one. In \
the near miss the server takes 300 ms for every 20th call.",
        cure: "Keepalives (of TCP, or PINGs of HTTP/2) more often than the path forgets, TCP_USER_TIMEOUT, a deadline for each \
attempt; a reset sent by the device that forgot.",
    },
    make,
};

/// What the server takes for some calls in the near miss: less than the client's patience.
const PAUSE: Duration = Duration::from_millis(300);

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let every = case.number("every").max(3);
    let seconds = case.duration("timeout").as_secs_f64().to_string();
    let numbers: Vec<u64> = (1..=500).map(|n| n * every).collect();
    let to_server = match case.near_miss {
        true => Way::default(),
        false => Way { hole: numbers, ..Way::default() },
    };
    let pause = PAUSE.as_secs_f64().to_string();
    let serve = match case.near_miss {
        true => Serve::python(&["--pause", &pause, "--every", &every.to_string()]),
        false => Serve::python(&[]),
    };
    let tank = Tank::python(case.duration("duration")).rate(case.number("rate"));
    stage.logged_line(&Line { to_server, to_client: Way::default(), seed: stage.seed() })?;
    stage.serve(&serve)?;
    stage.call(&tank.with(&["--timeout", &seconds, "--attempts", "3"]))?;
    let calls = stage.end()?;
    let waits = stage.waits(Side::Client, "retry")?;
    let passed = stage.end_logged_line()?;

    let (active, affected) = cost(&waits, &calls, case.duration("timeout").as_nanos() as u64 / 2);
    let in_hole = |fate: &Fate| matches!(fate, Fate::Dropped { because: Loss::Hole, .. });
    let lost = passed.count(Direct::A, &calls, in_hole) as f64;
    let mut acted = FaultReport { active, affected, ..FaultReport::default() };
    acted.at_least("calls", calls.all.len() as f64, 20.0);
    acted.at_most("calls that failed", calls.all.iter().filter(|call| !call.ok).count() as f64, 0.0);
    let given_up = "calls of which the client gave up an attempt, as it timed it";
    let (packets, count) = ("packets of forgotten connections that were lost", acted.affected.len() as f64);
    if case.near_miss {
        acted.at_most(given_up, count, 0.0);
        acted.at_most(packets, lost, 0.0);
        let slow = calls.over_ns(PAUSE.as_nanos() as u64 - 1).count() as f64;
        acted.at_least("calls that take as long as the server pauses", slow, 3.0);
        acted.affected = calls.each_costs(Some(PAUSE.as_nanos() as u64));
        acted.affected.retain(|one| {
            calls
                .all
                .iter()
                .any(|call| call.trace_id == one.trace_id && call.duration_ns() >= PAUSE.as_nanos() as u64)
        });
        acted.active = calls.whole();
        acted.affected_rule = "calls that take as long as the server pauses for every 20th".into();
        return Ok(acted);
    }
    acted.at_least(given_up, count, 4.0);
    acted.at_least(packets, lost, 2.0 * count);
    acted.affected_rule =
        "calls of which the client gave up an attempt, by the time until its next one".into();
    Ok(acted)
}

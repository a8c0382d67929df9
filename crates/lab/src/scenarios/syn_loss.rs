//! The first packet of a connection is lost, and it opens a second later.

use crate::LabError;
use crate::hosts::line::{Count, Direct, Line, Way};
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::FaultReport;
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

pub const SYN_LOSS: Scenario = Scenario {
    name: "syn-loss",
    title: "each call opens a connection, and now and then the SYN of one is lost: the call takes a second longer",
    culprit: Culprit::of(Cause::SynLoss),
    also_right: &[],
    leg: Some(Legs::one(Leg::ClientAppOut)),
    parameters: &[
        Parameter { name: "every", what: "SYNs, of which one is lost", default: Value::Number(25) },
        Parameter {
            name: "delay",
            what: "how long a packet takes, each way",
            default: Value::Duration(5_000_000),
        },
        Parameter { name: "in-flight", what: "calls under way at any time", default: Value::Number(4) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(4_000_000_000) },
    ],
    near_miss: NearMiss {
        title: "each call opens a connection, and no SYN is lost",
        culprit: Culprit::of(Cause::ConnectionPerCall),
        leg: Some(Legs::one(Leg::ClientAppOut)),
    },
    page: Page {
        what: "A connection begins with a SYN. When it is lost the kernel knows nothing of the path yet and waits a whole second \
               before it sends another one, then another second or two, depending on its version. Whatever waits for the connection \
               waits for that, too. On the connection itself, once it is there, everything is fast: spans show a call that took more \
               than a second, and a server that knows nothing of it.",
        real_life: "A race in the address translation of Linux used to drop SYNs of containers that opened connections to the same \
                    address at the same time; a full table of connections in a firewall, a SYN rate limit, or a server whose \
                    queue of connections is full look the same from the client. It hits clients that open many connections.",
        sources: &[
            (
                "A reason for unexplained connection timeouts on Kubernetes/Docker",
                "https://tech.xing.com/a-reason-for-unexplained-connection-timeouts-on-kubernetes-docker-abd041cf7e02",
            ),
            ("RFC 6298: Computing TCP's Retransmission Timer", "https://www.rfc-editor.org/rfc/rfc6298"),
        ],
        made: "The tank opens a connection for each call. The delay line takes 5 ms each way and loses every 25th SYN to the server. \
               Its log says when which SYN was lost and when it came again. The near miss loses none.",
        cure: "Find who drops it: `nstat TcpExtListenDrops` on the server, `conntrack -S` on whatever translates addresses, counters \
               of firewalls. And keep connections: a client that opens one a minute seldom meets it.",
    },
    make,
};

/// Without a loss, no connection is this slow, even with other load on the machine.
const FAST_NS: u64 = 700_000_000;

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let every = case.number("every").max(2);
    let delay = Way::of_delay(case.duration("delay"));
    let drop = if case.near_miss { Vec::new() } else { (1..=1000).map(|n| n * every).collect() };
    let to_server = Way { count: Count::Syn, drop, ..delay.clone() };
    stage.logged_line(&Line { to_server, to_client: delay, seed: stage.seed() })?;
    stage.serve(&Serve::stack("rust"))?;
    let tank = Tank::stack("rust", case.duration("duration")).in_flight(case.number("in-flight"));
    stage.call(&tank.with(&["--channels", "per-call"]))?;
    let before = stage.tcp(Side::Client)?;
    stage.wait_for_tank()?;
    let client = stage.tcp(Side::Client)?;
    let calls = stage.end()?;
    let passed = stage.end_logged_line()?;

    let mut acted = FaultReport::default();
    acted.at_least("calls", calls.all.len() as f64, 20.0);
    let opened = client.grew(&before, "Tcp.ActiveOpens");
    acted.at_least("connections that the client opened (ActiveOpens)", opened, 0.9 * calls.all.len() as f64);
    let again = client.grew(&before, "TcpExt.TCPSynRetrans");
    let slow = calls.over_ns_but(FAST_NS, stage.pauses()).count() as f64;
    if case.near_miss {
        acted.at_most("SYNs that the client sent again (TCPSynRetrans)", again, 0.0);
        // If the machine stalls once, all calls under way are late.
        acted.at_most("calls over 700 ms", slow, case.number("in-flight") as f64);
        acted.affected_rule = "no call is affected by a loss".into();
        return Ok(acted);
    }
    let lost = passed.lost(Direct::A, &calls);
    acted.at_least("calls whose SYN was lost and came again", lost.len() as f64, 3.0);
    acted.at_least("SYNs that the client sent again (TCPSynRetrans)", again, lost.len() as f64);
    acted.at_least("calls over 700 ms", slow, lost.len() as f64);
    acted.active = lost.iter().map(|held| held.active).collect();
    acted.affected = lost.iter().map(|held| held.affected(Some(held.ns()))).collect();
    acted.affected_rule =
        "the call under way from before a SYN was lost until it had come to the line again, by that time"
            .into();
    Ok(acted)
}

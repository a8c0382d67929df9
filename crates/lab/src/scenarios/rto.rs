//! A response is lost, and the kernel waits for its retransmission timer.

use crate::LabError;
use crate::hosts::line::{Direct, Line, Way};
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::FaultReport;
use spangap_model::{Cause, Culprit, Leg, Legs, Side};
use std::time::Duration;

pub const RTO: Scenario = Scenario {
    name: "rto",
    title: "now and then the end of a response is lost, and sent again by the retransmission timer after 200 ms and more",
    culprit: Culprit::of(Cause::Rto),
    // On the wire the timer and the probe of a single packet are the same: both come after 200 ms and two round trips or so.
    also_right: &[Culprit::of(Cause::TailLoss)],
    leg: Some(Legs::one(Leg::ResponseWire)),
    parameters: &[
        Parameter {
            name: "every",
            what: "responses, of which one loses its end",
            default: Value::Number(15),
        },
        Parameter {
            name: "delay",
            what: "how long a packet takes, each way",
            default: Value::Duration(5_000_000),
        },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(4_000_000_000) },
    ],
    near_miss: NearMiss {
        title: "the same packets are held up for 150 ms by the path, and none is lost",
        culprit: Culprit::of(Cause::NetworkJitter),
        leg: Some(Legs::one(Leg::ResponseWire)),
    },
    page: Page {
        what: "The last packet of a response is lost. Nothing else is in flight that could tell the sender, so it waits for its \
               retransmission timer: a round trip and its variation, but on Linux at least 200 ms. Calls that take 10 ms take 20 \
               times as long when it happens, and the timer doubles if the packet is lost again.",
        real_life: "A single packet that a switch drops while many servers answer at the same moment (incast), a link that loses a \
                    packet in ten thousand, hosts where tail loss probes are off or cannot be used. The figure of 200 ms in the \
                    slowest calls is its mark.",
        sources: &[
            (
                "Safe and Effective Fine-grained TCP Retransmissions for Datacenter Communication",
                "https://www.microsoft.com/en-us/research/publication/safe-effective-fine-grained-tcp-retran/",
            ),
            ("RFC 6298: Computing TCP's Retransmission Timer", "https://www.rfc-editor.org/rfc/rfc6298"),
            (
                "TCP Retransmission May Be Misleading",
                "https://arthurchiao.art/blog/tcp-retransmission-may-be-misleading",
            ),
        ],
        made: "The delay line takes 5 ms each way and loses the last packet, the one with the status, of every 15th response. Tail loss probes \
               are off on both hosts (net.ipv4.tcp_early_retrans = 0, each host has its own). One call is under way at any time. \
               The near miss holds the same packets for 150 ms, which is less than the timer.",
        cure: "Find where packets are lost. Allow tail loss probes; where the path is known to be short, a smaller minimum timer \
               (`ip route change ... rto_min 20ms`) makes each loss cheaper.",
    },
    make,
};

/// How long the near miss holds a response: a delay of the size of the fault's, below its timer.
const HELD: Duration = Duration::from_millis(150);

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let delay = case.duration("delay");
    let every = case.number("every").max(3);
    let numbers: Vec<u64> = (1..=500).map(|n| n * every).collect();
    // The trailers have 10 bytes and a packet of their own; if the packet before were lost, they would reveal
    // the loss.
    let way = Way { most_bytes: 100, ..Way::of_delay(delay) };
    let to_client = match case.near_miss {
        true => Way { late: numbers, late_by: HELD, ..way },
        false => Way { drop: numbers, ..way },
    };
    stage.logged_line(&Line { to_server: Way::of_delay(delay), to_client, seed: stage.seed() })?;
    for side in [Side::Client, Side::Server] {
        stage.setting(side, "net/ipv4/tcp_early_retrans", "0")?;
    }
    stage.serve(&Serve::stack("rust"))?;
    let before = stage.tcp(Side::Server)?;
    let tank = Tank::stack("rust", case.duration("duration")).in_flight(1);
    stage.call(&tank.with(&["--response-bytes", "300"]))?;
    stage.wait_for_tank()?;
    let server = stage.tcp(Side::Server)?;
    let calls = stage.end()?;
    let passed = stage.end_logged_line()?;

    let timeouts = server.grew(&before, "TcpExt.TCPTimeouts");
    let sent_again = server.grew(&before, "Tcp.RetransSegs");
    let mut acted = FaultReport::default();
    acted.at_least("calls", calls.all.len() as f64, 20.0);
    if case.near_miss {
        let late = passed.late(Direct::B, HELD.as_nanos() as u64 / 2, &calls);
        acted.at_least("calls whose response was held up", late.len() as f64, 5.0);
        let slow = calls.over_ns(HELD.as_nanos() as u64).count();
        acted.at_least("calls that took longer than a response is held up", slow as f64, 5.0);
        acted.at_most("segments that the server sent again (RetransSegs)", sent_again, 1.0);
        acted.active = late.iter().map(|held| held.active).collect();
        acted.affected = late.iter().map(|held| held.affected(Some(held.ns()))).collect();
        acted.affected_rule = "the calls whose response the line held up, by how long it did".into();
        return Ok(acted);
    }
    let lost = passed.lost(Direct::B, &calls);
    let mut after: Vec<u64> = lost.iter().map(|held| held.ns()).collect();
    after.sort_unstable();
    let least_ns = after.first().copied().unwrap_or(0) as f64;
    acted.at_least("calls whose response was lost and came again", lost.len() as f64, 5.0);
    acted.at_least("retransmission timeouts of the server (TCPTimeouts)", timeouts, lost.len() as f64);
    let probes = server.grew(&before, "TcpExt.TCPLossProbes");
    acted.at_most("tail loss probes of the server (TCPLossProbes)", probes, 0.0);
    acted.at_least("least time until what was lost came again, ns", least_ns, 150e6);
    acted.active = lost.iter().map(|held| held.active).collect();
    acted.affected = lost.iter().map(|held| held.affected(Some(held.ns()))).collect();
    acted.affected_rule =
        "the call whose response was lost, by the time until the same bytes came to the line again".into();
    Ok(acted)
}

//! A segment in the middle of a response is lost, and the following ones reveal it.

use crate::LabError;
use crate::hosts::line::{Direct, Fate, Line, Way};
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::FaultReport;
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

pub const FAST_RETRANSMIT: Scenario = Scenario {
    name: "fast-retransmit",
    title: "now and then one segment of a large response is lost, and sent again after a round trip",
    culprit: Culprit::of(Cause::FastRetransmit),
    also_right: &[],
    leg: Some(Legs { first: Leg::ServerSend, last: Leg::ResponseWire }),
    parameters: &[
        Parameter {
            name: "every",
            what: "full segments to the client, of which one is lost",
            default: Value::Number(150),
        },
        Parameter {
            name: "delay",
            what: "how long a packet takes, each way",
            default: Value::Duration(10_000_000),
        },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(4_000_000_000) },
    ],
    near_miss: NearMiss {
        title: "the same segments come after the one that follows them: out of order, and none is lost",
        // What is left is the way, which every call of both takes.
        culprit: Culprit::of(Cause::NetworkDelay),
        leg: Some(Legs { first: Leg::RequestWire, last: Leg::ResponseWire }),
    },
    page: Page {
        what: "One segment of a response is lost on its way. Those behind it arrive, and the receiver says so at once in \
               selective acknowledgments. The sender considers the missing one lost and sends it again, about one round trip \
               after it was first sent. Until then the receiver can hand nothing that lies behind the hole to its \
               application. The sender also roughly halves its rate, which can slow the calls after this one.",
        real_life: "Any path that loses a packet now and then under load: a switch whose buffer overflows for a moment, a \
                    policer, a damaged cable or optic. Large responses are hit, because they have many packets, of which others \
                    follow the lost one. With 20 ms of round trip it costs that much; within a data centre hardly anything.",
        sources: &[
            (
                "RFC 8985: The RACK-TLP Loss Detection Algorithm for TCP",
                "https://datatracker.ietf.org/doc/draft-ietf-tcpm-rack",
            ),
            (
                "TCP Retransmission May Be Misleading",
                "https://arthurchiao.art/blog/tcp-retransmission-may-be-misleading",
            ),
        ],
        made: "Responses have 40 kB. The delay line takes 10 ms each way, and of all full segments to the client it loses \
               every 150th. Its log says when which bytes were lost and when they came again. One call is under way at any time. \
               The near miss exchanges each of these segments with the one that follows it.",
        cure: "Find where packets are lost (counters of NICs, switches, policers, `ethtool -S`) and stop it. Within the \
               application's reach, only a shorter path makes it cheaper.",
    },
    make,
};

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let delay = case.duration("delay");
    let every = case.number("every").max(10);
    let numbers: Vec<u64> = (1..=500).map(|n| n * every).collect();
    let way = Way { least_bytes: 1400, ..Way::of_delay(delay) };
    let to_client = if case.near_miss { Way { swap: numbers, ..way } } else { Way { drop: numbers, ..way } };
    stage.logged_line(&Line { to_server: Way::of_delay(delay), to_client, seed: stage.seed() })?;
    stage.serve(&Serve::stack("rust"))?;
    let before = [stage.tcp(Side::Server)?];
    let tank = Tank::stack("rust", case.duration("duration")).in_flight(1);
    stage.call(&tank.with(&["--response-bytes", "40000"]))?;
    let client_before = stage.tcp(Side::Client)?;
    stage.wait_for_tank()?;
    let (server, client) = (stage.tcp(Side::Server)?, stage.tcp(Side::Client)?);
    let calls = stage.end()?;
    let passed = stage.end_logged_line()?;

    let sent_again = server.grew(&before[0], "Tcp.RetransSegs");
    let mut acted = FaultReport::default();
    acted.at_least("calls", calls.all.len() as f64, 20.0);
    if case.near_miss {
        let swapped = passed.count(Direct::B, &calls, |fate| matches!(fate, Fate::Swapped { .. })) as f64;
        acted.at_least("segments that came after the one that follows them", swapped, 5.0);
        let out_of_order = client.grew(&client_before, "TcpExt.TCPOFOQueue");
        acted.at_least(
            "segments that the client's kernel got out of order (TCPOFOQueue)",
            out_of_order,
            0.8 * swapped,
        );
        acted.at_most("segments that the server sent again (RetransSegs)", sent_again, 2.0 + 0.2 * swapped);
        let round_trip_ns = 2.0 * delay.as_nanos() as f64;
        acted.at_least("median of the calls, ns", calls.quantile_ns(0.5) as f64, round_trip_ns);
        acted.affected_rule =
            "no call is affected: the hole is filled at once; the way itself takes as long for every call"
                .into();
        return Ok(acted);
    }
    let lost = passed.lost(Direct::B, &calls);
    let mut after: Vec<u64> = lost.iter().map(|held| held.ns()).collect();
    after.sort_unstable();
    let median_ns = after.get(after.len() / 2).copied().unwrap_or(0) as f64;
    let round_trip_ns = 2.0 * delay.as_nanos() as f64;
    acted.at_least(
        "calls during which a segment of their response was lost and came again",
        lost.len() as f64,
        5.0,
    );
    let fast = server.grew(&before[0], "TcpExt.TCPFastRetrans");
    acted.at_least("fast retransmissions of the server (TCPFastRetrans)", fast, 0.8 * lost.len() as f64);
    let timeouts = server.grew(&before[0], "TcpExt.TCPTimeouts");
    acted.at_most(
        "retransmission timeouts of the server (TCPTimeouts)",
        timeouts,
        1.0 + 0.2 * lost.len() as f64,
    );
    acted.at_least("median time until what was lost came again, ns", median_ns, 0.9 * round_trip_ns);
    acted.at_most("and", median_ns, 5.0 * round_trip_ns);
    acted.active = lost.iter().map(|held| held.active).collect();
    // Others were still to come when it was lost; how long the call would have taken is not known.
    acted.affected = lost.iter().map(|held| held.affected(None)).collect();
    acted.affected_rule =
        "the call under way when a segment was lost, until the same bytes came again".into();
    Ok(acted)
}

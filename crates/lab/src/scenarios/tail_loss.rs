//! The last segment of a response is lost: nothing follows that could reveal it, so a probe has to.

use crate::LabError;
use crate::hosts::line::{Direct, Fate, Line, Way};
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::FaultReport;
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

pub const TAIL_LOSS: Scenario = Scenario {
    name: "tail-loss",
    title: "now and then the last segment of a response is lost, and a tail loss probe sends it again",
    culprit: Culprit::of(Cause::TailLoss),
    also_right: &[],
    leg: Some(Legs::one(Leg::ResponseWire)),
    parameters: &[
        Parameter {
            name: "every",
            what: "responses, of which one loses its last segment",
            default: Value::Number(15),
        },
        Parameter {
            name: "delay",
            what: "how long a packet takes, each way",
            default: Value::Duration(4_000_000),
        },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(4_000_000_000) },
    ],
    near_miss: NearMiss {
        title: "the same segments come twice: at the receiver it looks as if they had been sent again",
        // What is left is the way, which every call of both takes.
        culprit: Culprit::of(Cause::NetworkDelay),
        leg: Some(Legs { first: Leg::RequestWire, last: Leg::ResponseWire }),
    },
    page: Page {
        what: "The last segment of a response is lost. Nothing follows it, so that the receiver cannot tell that something is \
               missing, and the sender hears nothing from which it could conclude it. After about two round trips without an \
               answer the kernel sends the last segment again, as a probe. Here the probe is what was missing. Without \
               probes it would have taken the retransmission timer, at least 200 ms.",
        real_life: "Calls are short: most of what a path loses of them is at the end of a request or a response, so that most of \
                    their losses are repaired by probes or by the timer. In good networks nearly all retransmissions that the \
                    kernel counts are probes, most of them for nothing.",
        sources: &[
            (
                "Tail Loss Probe (TLP): An Algorithm for Fast Recovery of Tail Losses",
                "https://datatracker.ietf.org/doc/draft-dukkipati-tcpm-tcp-loss-probe/",
            ),
            (
                "RFC 8985: The RACK-TLP Loss Detection Algorithm for TCP",
                "https://datatracker.ietf.org/doc/draft-ietf-tcpm-rack",
            ),
            (
                "TCP Retransmission May Be Misleading",
                "https://arthurchiao.art/blog/tcp-retransmission-may-be-misleading",
            ),
        ],
        made: "Responses have 20 kB: thirteen full segments and one that is not. The delay line takes 4 ms each way, and of \
               the ones that are not full it loses every 15th. Its log says when which bytes were lost and when they came again. One \
               call is under way at any time. The near miss lets each of these segments come twice.",
        cure: "Find where packets are lost. Where the kernel has no probes (net.ipv4.tcp_early_retrans = 0, no SACK), allow them.",
    },
    make,
};

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let delay = case.duration("delay");
    let every = case.number("every").max(4);
    let numbers: Vec<u64> = (1..=500).map(|n| n * every).collect();
    // What is not full and has more than a header: the end of a response.
    let way = Way { least_bytes: 200, most_bytes: 1400, ..Way::of_delay(delay) };
    let to_client = if case.near_miss { Way { twice: numbers, ..way } } else { Way { drop: numbers, ..way } };
    stage.logged_line(&Line { to_server: Way::of_delay(delay), to_client, seed: stage.seed() })?;
    stage.serve(&Serve::stack("rust"))?;
    let server_before = stage.tcp(Side::Server)?;
    let tank = Tank::stack("rust", case.duration("duration")).in_flight(1);
    stage.call(&tank.with(&["--response-bytes", "20000"]))?;
    let client_before = stage.tcp(Side::Client)?;
    stage.wait_for_tank()?;
    let (server, client) = (stage.tcp(Side::Server)?, stage.tcp(Side::Client)?);
    let calls = stage.end()?;
    let passed = stage.end_logged_line()?;

    let mut acted = FaultReport::default();
    acted.at_least("calls", calls.all.len() as f64, 20.0);
    if case.near_miss {
        let twice = passed.count(Direct::B, &calls, |fate| matches!(fate, Fate::Twice { .. })) as f64;
        acted.at_least("segments that came twice", twice, 5.0);
        let told = client.grew(&client_before, "TcpExt.TCPDSACKOldSent");
        acted.at_least("segments that the client's kernel got twice (TCPDSACKOldSent)", told, 0.8 * twice);
        // Where the machine has other work a probe goes for nothing now and then.
        let sent_again = server.grew(&server_before, "Tcp.RetransSegs");
        acted.at_most("segments that the server sent again (RetransSegs)", sent_again, 3.0 + 0.4 * twice);
        let round_trip_ns = 2.0 * delay.as_nanos() as f64;
        acted.at_least("median of the calls, ns", calls.quantile_ns(0.5) as f64, round_trip_ns);
        acted.affected_rule = "no call is affected: the first of the two is in time; the way itself takes as long for every call".into();
        return Ok(acted);
    }
    let lost = passed.lost(Direct::B, &calls);
    let mut after: Vec<u64> = lost.iter().map(|held| held.ns()).collect();
    after.sort_unstable();
    let median_ns = after.get(after.len() / 2).copied().unwrap_or(0) as f64;
    acted.at_least(
        "calls during which the end of their response was lost and came again",
        lost.len() as f64,
        5.0,
    );
    let probes = server.grew(&server_before, "TcpExt.TCPLossProbes");
    acted.at_least("tail loss probes of the server (TCPLossProbes)", probes, 0.9 * lost.len() as f64);
    let mended = server.grew(&server_before, "TcpExt.TCPLossProbeRecovery");
    acted.at_least("losses that a probe has mended (TCPLossProbeRecovery)", mended, 0.6 * lost.len() as f64);
    let timeouts = server.grew(&server_before, "TcpExt.TCPTimeouts");
    acted.at_most(
        "retransmission timeouts of the server (TCPTimeouts)",
        timeouts,
        1.0 + 0.2 * lost.len() as f64,
    );
    // A probe goes after twice the smoothed round trip.
    acted.at_least(
        "median time until what was lost came again, ns",
        median_ns,
        3.0 * delay.as_nanos() as f64,
    );
    acted.active = lost.iter().map(|held| held.active).collect();
    acted.affected = lost.iter().map(|held| held.affected(Some(held.ns()))).collect();
    acted.affected_rule =
        "the call under way when the last segment of a response was lost, by the time until the same bytes \
                           came to the line again"
            .into();
    Ok(acted)
}

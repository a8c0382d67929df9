//! Packets are larger than the path carries, and the message that would report it is filtered.

use crate::LabError;
use crate::hosts::line::{Direct, Fate, Line, Loss, Way};
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::{Active, Affected, FaultReport};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

pub const PATH_MTU: Scenario = Scenario {
    name: "path-mtu",
    title: "the path carries packets of 1,300 bytes, and the server is not told: its large responses stall on each connection",
    culprit: Culprit::of(Cause::PathMtu),
    also_right: &[],
    leg: Some(Legs::one(Leg::ResponseWire)),
    parameters: &[
        Parameter { name: "rate", what: "calls per second", default: Value::Number(60) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(4_000_000_000) },
        Parameter {
            name: "every",
            what: "calls, of which one has a response that takes several packets",
            default: Value::Number(6),
        },
        Parameter { name: "bytes", what: "of such a response", default: Value::Number(6_000) },
        Parameter { name: "calls", what: "for which a connection is used", default: Value::Number(9) },
    ],
    near_miss: NearMiss {
        title: "the same calls over a path that carries 1,500 bytes",
        culprit: Culprit::NOTHING,
        leg: None,
    },
    page: Page {
        what: "A tunnel or an overlay takes some bytes of each packet, so that the path carries less than its ends believe. The \
router in front of it drops what is larger and says so by ICMP, which a firewall filters. Handshakes and small calls go through; the \
first large message of a connection hangs, sent again and again in the same size. With `tcp_mtu_probing` a kernel tries smaller \
segments after some time-outs; without it the connection is dead.",
        real_life: "VPNs, VXLAN and PPPoE with the MTU of Ethernet at both ends; security groups without ICMP; pods whose interface \
has a larger MTU than the node's.",
        sources: &[
            (
                "RFC 2923: TCP Problems with Path MTU Discovery",
                "https://datatracker.ietf.org/doc/html/rfc2923",
            ),
            (
                "Cloudflare: Path MTU discovery in practice",
                "https://blog.cloudflare.com/path-mtu-discovery-in-practice/",
            ),
        ],
        made: "The delay line loses packets of IP beyond 1,300 bytes on their way to the client, without an ICMP message. The server's kernel \
probes (`tcp_mtu_probing` = 1, after one time-out: `tcp_retries1` = 1). Every sixth response has 6 kB; the client, in Python, opens a new \
connection after nine calls.",
        cure: "Let ICMP type 3 code 4 (IPv6: type 2) pass; the MTU of the overlay on the interfaces; clamp the MSS at tunnels \
(`TCPMSS --clamp-mss-to-pmtu`); net.ipv4.tcp_mtu_probing = 1.",
    },
    make,
};

/// What the path carries.
const LARGEST_BYTES: u64 = 1_300;
/// The timer that sends again goes off no sooner.
const LEAST_NS: u64 = 190_000_000;

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let [every, bytes, calls] = ["every", "bytes", "calls"].map(|name| case.number(name).max(1).to_string());
    let to_client = match case.near_miss {
        true => Way::default(),
        false => Way { largest_bytes: LARGEST_BYTES, ..Way::default() },
    };
    stage.logged_line(&Line { to_server: Way::default(), to_client, seed: stage.seed() })?;
    stage.setting(Side::Server, "net/ipv4/tcp_mtu_probing", "1")?;
    stage.setting(Side::Server, "net/ipv4/tcp_retries1", "1")?;
    stage.serve(&Serve::python(&["--large", &bytes, "--every", &every]))?;
    let before = stage.tcp(Side::Server)?;
    let tank = Tank::python(case.duration("duration")).rate(case.number("rate"));
    stage.call(&tank.with(&["--reconnect", &calls]))?;
    stage.wait_for_tank()?;
    let server = stage.tcp(Side::Server)?;
    let calls = stage.end()?;
    let passed = stage.end_logged_line()?;

    let too_large = |fate: &Fate| matches!(fate, Fate::Dropped { because: Loss::TooLarge, .. });
    let lost: Vec<u64> = passed
        .entries
        .iter()
        .filter(|entry| entry.way == Direct::B && too_large(&entry.fate))
        .map(|entry| entry.unix_ns)
        .collect();
    let stalled = calls.over_ns(LEAST_NS).filter_map(|call| {
        let within = || lost.iter().filter(|at| (call.start_unix_ns..=call.end_unix_ns).contains(at));
        Some((call, Active { from_unix_ns: *within().min()?, to_unix_ns: call.end_unix_ns }))
    });
    let stalled: Vec<_> = stalled.collect();
    let mut acted = FaultReport::default();
    acted.at_least("calls", calls.all.len() as f64, 20.0);
    acted.at_most("calls that failed", calls.all.iter().filter(|call| !call.ok).count() as f64, 0.0);
    let packets = "packets that were too large for the path";
    let slow = "calls over 190 ms during which such a packet was lost";
    if case.near_miss {
        acted.at_most(packets, lost.len() as f64, 0.0);
        let again = "segments that the server sent again (RetransSegs)";
        acted.at_most(again, server.grew(&before, "Tcp.RetransSegs"), 0.05 * calls.all.len() as f64);
        acted.affected_rule = "no call is affected".into();
        return Ok(acted);
    }
    acted.at_least(packets, lost.len() as f64, 10.0);
    acted.at_least(slow, stalled.len() as f64, 5.0);
    acted.active = stalled.iter().map(|(_, active)| *active).collect();
    acted.affected = stalled
        .iter()
        .map(|(call, active)| Affected {
            trace_id: call.trace_id.clone(),
            cost_ns: Some(active.to_unix_ns - active.from_unix_ns),
        })
        .collect();
    acted.affected_rule =
        "calls over 190 ms during which a packet was too large, by the time from the first such packet to their end".into();
    Ok(acted)
}

//! A small write waits for the acknowledgement of the previous one, which the other end delays.

use crate::LabError;
use crate::hosts::{self, DEVICE, ip};
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::{Affected, FaultReport};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

/// At the client: its requests.
pub const CLIENT: Scenario = Scenario {
    name: "nagle-client",
    title: "the client writes a request in two parts without TCP_NODELAY: the second waits for a delayed ACK",
    culprit: Culprit::at(Cause::NagleDelayedAck, Side::Client),
    also_right: &[],
    leg: Some(Legs::one(Leg::ClientSend)),
    parameters: PARAMETERS,
    near_miss: NearMiss {
        title: "the same client without TCP_NODELAY; the server acknowledges at once",
        culprit: Culprit::NOTHING,
        leg: None,
    },
    page: Page {
        what: "Nagle's algorithm holds a small segment back as long as anything sent before is not acknowledged. Delayed \
acknowledgement holds an ACK back, in the hope that it can travel with data: 40 ms on Linux. A client that writes the \
HEADERS of a request and then its DATA meets both: the DATA waits for the ACK of the HEADERS, and the server has nothing \
to send before it has the DATA. So every call takes 40 ms longer, on an idle machine and network, and fewer calls per \
second make it worse, not better.",
        real_life: "Libraries set TCP_NODELAY for gRPC, so it comes back with hand-made transports: a proxy, a socket that \
was opened elsewhere, a builder with an unexpected default. The AWS SDK for Rust had it in its default HTTPS client.",
        sources: &[
            (
                "smithy-rs#4677: TCP_NODELAY default applies to default_https_client",
                "https://github.com/smithy-lang/smithy-rs/pull/4677",
            ),
            (
                "Marc Brooker: It's always TCP_NODELAY. Every damn time.",
                "https://brooker.co.za/blog/2024/05/09/nagle.html",
            ),
            ("RFC 896: Congestion Control in IP/TCP Internetworks", "https://www.rfc-editor.org/rfc/rfc896"),
            ("tcp(7)", "https://man7.org/linux/man-pages/man7/tcp.7.html"),
        ],
        made: "tonic, which writes HEADERS and DATA apart, with TCP_NODELAY switched off (`spangap tank --nodelay off`). The \
near miss has the same client; the route of the server's host says `quickack 1`, so that ACKs are not delayed.",
        cure: "TCP_NODELAY on the client's socket; one write for a whole request. `spangap sockets list` shows who lacks it.",
    },
    make,
};

/// At the server: its responses.
pub const SERVER: Scenario = Scenario {
    name: "nagle-server",
    title: "the server writes a response in two parts without TCP_NODELAY: the second waits for a delayed ACK",
    culprit: Culprit::at(Cause::NagleDelayedAck, Side::Server),
    also_right: &[],
    leg: Some(Legs::one(Leg::ServerSend)),
    parameters: PARAMETERS,
    near_miss: NearMiss {
        title: "the same server without TCP_NODELAY; the client acknowledges at once",
        culprit: Culprit::NOTHING,
        leg: None,
    },
    page: Page {
        what: "The same as with requests, the other way round: a server without TCP_NODELAY writes the beginning of a response, \
then its end. That waits until the client acknowledges the beginning, which it puts off for 40 ms, unless it sends its next \
request before: that takes the ACK along, and every response is one request behind. So the calls take 40 ms, or as long as the \
time between two of them if that is less. The server's own figures show nothing: it wrote everything at once.",
        real_life: "Hand-written servers on plain sockets, and small HTTP servers that write head and body apart.",
        sources: &[
            (
                "async-h1#199: Server response sending triggers Nagle's algorithm/delayed ACK interaction",
                "https://github.com/http-rs/async-h1/issues/199",
            ),
            ("uhttpd#34: set TCP_NODELAY on accepted sockets", "https://github.com/openwrt/uhttpd/pull/34"),
            ("RFC 896: Congestion Control in IP/TCP Internetworks", "https://www.rfc-editor.org/rfc/rfc896"),
        ],
        made: "tonic as the server, with responses of 1000 bytes: it writes HEADERS and message, then the trailers that end the \
call. TCP_NODELAY is switched off (`spangap target --nodelay off`), at a rate at which the delayed ACK comes before the next request. The near miss has the same server; the \
route of the client's host says `quickack 1`.",
        cure: "TCP_NODELAY on the sockets that the server accepts; one write for a whole response.",
    },
    make,
};

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "rate",
        what: "calls per second; from 25 on the next call brings the ACK earlier",
        default: Value::Number(20),
    },
    Parameter { name: "duration", what: "measured time", default: Value::Duration(4_000_000_000) },
];

/// Between a call that is not held and the shortest time for which Linux delays an ACK, 40 ms.
const HELD_NS: u64 = 30_000_000;

/// What tonic writes apart from the trailers behind it, and does not fill a segment.
const RESPONSE_BYTES: &str = "1000";

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let side = case.scenario.culprit.side.expect("it is of a side");
    let off = |end: Side| ["--nodelay", if end == side { "off" } else { "on" }];
    let rate = case.number("rate");
    stage.cable()?;
    if case.near_miss {
        acknowledge_at_once(stage, side.other())?;
    }
    let mut serve = Serve::stack("rust").with(&off(Side::Server));
    if side == Side::Server {
        serve = serve.with(&["--response-bytes", RESPONSE_BYTES]);
    }
    stage.serve(&serve)?;
    let before = stage.tcp(side.other())?;
    stage.call(&Tank::stack("rust", case.duration("duration")).rate(rate).with(&off(Side::Client)))?;
    let calls = stage.end()?;
    let after = stage.tcp(side.other())?;

    let measured = calls.all.len() as f64;
    let expected = (rate as f64 * case.duration("duration").as_secs_f64()).floor();
    let held = calls.over_ns_but(HELD_NS, stage.pauses()).count() as f64;
    let mut acted = FaultReport::default();
    acted.at_least("calls", measured, expected * 0.9);
    let over = "calls over 30 ms";
    let delayed = format!(
        "ACKs that the {}'s kernel delayed until its timer ran out (TcpExt.DelayedACKs)",
        side.other().name()
    );
    if case.near_miss {
        acted.at_most(over, held, expected * 0.1);
        acted.at_most(delayed, after.grew(&before, "TcpExt.DelayedACKs"), expected * 0.3);
        acted.affected_rule = "no call is affected".into();
    } else {
        // Not nearly all: where the machine holds up a call, the next one brings the ACK for it.
        acted.at_least(over, held, expected * 0.5);
        acted.at_least(delayed, after.grew(&before, "TcpExt.DelayedACKs"), expected * 0.5);
        acted.affected = calls
            .over_ns(HELD_NS)
            .map(|call| Affected { trace_id: call.trace_id.clone(), cost_ns: None })
            .collect();
        acted.affected_rule =
            "calls over 30 ms: a hold lasts until the other end's delayed ACK, which comes after 40 ms"
                .into();
        acted.active = calls.whole();
    }
    if side == Side::Client {
        let off = stage.tank_report()?["runs"][0]["sockets"]["nodelay_off"].as_f64().unwrap_or(0.0);
        acted.at_least("connections without TCP_NODELAY, as the kernel shows them", off, 1.0);
    }
    Ok(acted)
}

fn acknowledge_at_once(stage: &Stage<'_>, side: Side) -> Result<(), LabError> {
    let own = [hosts::CLIENT, hosts::SERVER][side.index()];
    let network = "10.88.0.0/24";
    let host = stage.hosts().name(side);
    ip(&[
        "-n", host, "route", "change", network, "dev", DEVICE, "proto", "kernel", "scope", "link", "src",
        own, "quickack", "1",
    ])?;
    Ok(())
}

//! Requests that are larger than the windows of HTTP/2, over a line that takes its time.

use crate::LabError;
use crate::hosts::line::{Line, Way};
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::FaultReport;
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

pub const FLOW_CONTROL: Scenario = Scenario {
    name: "flow-control",
    title: "requests of 400 KB into windows of 64 KiB: the client waits a round trip for every window",
    culprit: Culprit::at(Cause::FlowControl, Side::Server),
    also_right: &[],
    leg: Some(Legs::one(Leg::ClientSend)),
    parameters: &[
        Parameter { name: "request-bytes", what: "payload of a request", default: Value::Number(400_000) },
        Parameter {
            name: "window",
            what: "bytes that the server lets a call send ahead",
            default: Value::Number(65_536),
        },
        Parameter {
            name: "delay",
            what: "time of a packet on its way",
            default: Value::Duration(10_000_000),
        },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(4_000_000_000) },
    ],
    near_miss: NearMiss {
        title: "the same requests over the same line, with windows of 4 MiB: a request goes out as a whole",
        culprit: Culprit::of(Cause::NetworkDelay),
        leg: Some(Legs { first: Leg::RequestWire, last: Leg::ResponseWire }),
    },
    page: Page {
        what: "HTTP/2 limits how many bytes a sender may have in flight for a stream, and for a connection: the receiver opens \
the window again by a WINDOW_UPDATE when it has taken them. A window that is smaller than what the path holds is used up at \
once, and then nothing moves until the update has come back: a round trip for every window, however fast the network is. TCP's \
own window is wide open meanwhile.",
        real_life: "The default of HTTP/2 is 65,535 bytes for streams and connections; libraries that leave it, or that \
estimate too slowly, are an order of magnitude slower between regions than within one. Large requests, uploads and streams of \
responses show it; small calls never do.",
        sources: &[
            (
                "IBM HTTP Server cookbook: HTTP/2, flow control (RFC 9113)",
                "https://publib.boulder.ibm.com/httpserv/cookbook/Applications-HTTP2_Standard.html",
            ),
            (
                "swift-nio-http2: windows by the bandwidth-delay product",
                "https://githubissues.com/apple/swift-nio-http2/453",
            ),
        ],
        made: "A line of 10 ms each way; the target announces windows of 64 KiB for streams and connections, and the tank \
sends 400 KB with each call, one after the other over one connection: seven windows, so six round trips more than the one \
that every call takes. In the near miss the windows are 4 MiB.",
        cure: "Larger initial windows at the receiver, or a library that estimates what the path holds; several connections \
do not help a single large message.",
    },
    make,
};

/// Windows of the near miss: larger than any request.
const WIDE: u64 = 4 << 20;

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let (bytes, delay) = (case.number("request-bytes"), case.duration("delay"));
    let round_trip_ns = 2 * delay.as_nanos() as u64;
    let window = if case.near_miss { WIDE.max(bytes * 2) } else { case.number("window") };
    let way = || Way { delay, ..Way::default() };
    stage.line(&Line { to_server: way(), to_client: way(), seed: stage.seed() })?;
    stage.serve(&Serve::stack("rust").with(&["--window", &window.to_string()]))?;
    // What the client's host sends is more: raw ping-pong over its own loopback.
    let before = stage.tcp(Side::Server)?;
    let tank = Tank::stack("rust", case.duration("duration")).in_flight(1);
    stage.call(&tank.with(&["--request-bytes", &bytes.to_string()]))?;
    let calls = stage.end()?;
    let came = stage.tcp(Side::Server)?.grew(&before, "IpExt.InOctets");
    stage.end_line()?;

    let all = calls.all.len() as f64;
    // A window may be sent at once, and each further one after an update: a round trip later.
    let windows = bytes.div_ceil(case.number("window").max(1));
    let waits_ns = (windows - 1) * round_trip_ns;
    let mut acted = FaultReport { active: calls.whole(), ..FaultReport::default() };
    acted.at_least("calls", all, 8.0);
    acted.at_most("calls that failed", calls.all.iter().filter(|call| !call.ok).count() as f64, 0.0);
    acted.at_least("bytes that came to the server's host", came, all * bytes as f64);
    if case.near_miss {
        let median = calls.quantile_ns(0.5);
        acted.at_least("median of the calls, ns", median as f64, round_trip_ns as f64);
        let half_ns = round_trip_ns + waits_ns / 2;
        acted.at_most(
            "the same, not half of what the small windows would take",
            median as f64,
            half_ns as f64,
        );
        acted.affected_rule = "every call takes one round trip".into();
        acted.affected = calls.each_costs(Some(round_trip_ns));
    } else {
        let waited = calls.over_ns(waits_ns + round_trip_ns - 1).count() as f64;
        acted.at_least(format!("calls that took {windows} round trips or more"), waited, all * 0.95);
        // At which points the server opens its window again is its own choice, so that no single call's wait is known.
        acted.affected_rule =
            "every call waits a round trip or so for each window but the first, and one for its response"
                .into();
        acted.affected = calls.each_costs(None);
    }
    Ok(acted)
}

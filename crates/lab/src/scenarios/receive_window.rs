//! The receiver's TCP window is closed until its application reads.

use crate::LabError;
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::shim::{LateRead, LateReads, Shim};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::FaultReport;
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

/// At the client: responses do not fit.
pub const CLIENT: Scenario = Scenario {
    name: "receive-window-client",
    title: "large responses, a small receive buffer at the client, and an application that reads late: the window closes",
    culprit: Culprit::at(Cause::ReceiveWindow, Side::Client),
    also_right: &[Culprit::at(Cause::ClientApp, Side::Client)],
    leg: Some(Legs::one(Leg::ServerSend)),
    parameters: PARAMETERS,
    near_miss: NearMiss {
        title: "the same responses into as small a buffer, which the client's application reads at once",
        culprit: Culprit::NOTHING,
        leg: None,
    },
    page: PAGE,
    make,
};

/// At the server: requests do not fit.
pub const SERVER: Scenario = Scenario {
    name: "receive-window-server",
    title: "large requests, a small receive buffer at the server, and an application that reads late: the window closes",
    culprit: Culprit::at(Cause::ReceiveWindow, Side::Server),
    // A server's span may begin with the first bytes of the request.
    also_right: &[Culprit::at(Cause::ServerQueue, Side::Server), Culprit::at(Cause::ServerApp, Side::Server)],
    leg: Some(Legs::one(Leg::ClientSend)),
    parameters: PARAMETERS,
    near_miss: NearMiss {
        title: "the same requests into as small a buffer, which the server's application reads at once",
        culprit: Culprit::NOTHING,
        leg: None,
    },
    page: PAGE,
    make,
};

const PARAMETERS: &[Parameter] = &[
    Parameter { name: "rate", what: "calls per second", default: Value::Number(5) },
    Parameter { name: "duration", what: "measured time", default: Value::Duration(4_000_000_000) },
    Parameter { name: "bytes", what: "payload that does not fit, a call", default: Value::Number(200_000) },
    Parameter { name: "buffer", what: "SO_RCVBUF of the receiver, bytes", default: Value::Number(16_384) },
    Parameter {
        name: "pause",
        what: "how late every second read comes",
        default: Value::Duration(10_000_000),
    },
];

const PAGE: Page = Page {
    what: "TCP lets the sender have as many bytes under way as the receiver has room for. While the receiver's application \
does not read, its kernel's buffer fills, the window that it advertises shrinks to nothing, and the sender stops: what is \
left of the message waits in the sender's kernel, or in its program. When the application has read, a window update lets the \
next part out. So a message takes as long as its reader, in steps as large as the buffer, and the sender's host looks slow.",
    real_life: "Consumers that are slower than what they asked for: a client that handles each chunk before it reads the next, \
a server that writes uploads to a slow disk, a program that waits for a lock or is short of CPU. Small buffers, set by hand or \
by memory limits, make it happen sooner.",
    sources: &[
        (
            "RFC 9293: Transmission Control Protocol, section 3.8.6",
            "https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6",
        ),
        (
            "Linux: SNMP counters (TcpExtTCPToZeroWindowAdv)",
            "https://docs.kernel.org/networking/snmp_counter.html",
        ),
        (
            "websocket-sharp#600: Clients suddenly stop receiving messages",
            "https://github.com/sta/websocket-sharp/issues/600",
        ),
        (
            "How to troubleshoot TCP zero window events with ss and tcpdump",
            "https://how2.sh/posts/how-to-troubleshoot-tcp-zero-window-events-with-ss-and-tcpdump",
        ),
    ],
    made: "A library is preloaded into the receiver's program (tonic): it sets SO_RCVBUF before the connection opens, and \
makes every second read for which data is there sleep first. HTTP/2's own windows are a megabyte and more, so that TCP's \
closes first. The near miss has the same buffer and the same messages, and no sleep: the window closes again and again, for \
microseconds.",
    cure: "Read earlier: a thread that only reads, bounded work per chunk. Then buffers that the kernel may grow by itself, \
which setting SO_RCVBUF switches off.",
};

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let side = case.scenario.culprit.side.expect("it is of a side");
    let (pause, bytes) = (case.duration("pause"), case.number("bytes").to_string());
    let late = LateRead { pause, every: LateReads::Reads(2) };
    let shim = Shim {
        late: (!case.near_miss).then_some(late),
        receive_buffer: Some(case.number("buffer").try_into().unwrap_or(u32::MAX)),
        ..Shim::at(side)
    };
    let mut serve = Serve::stack("rust");
    let mut tank = Tank::stack("rust", case.duration("duration")).rate(case.number("rate"));
    stage.cable()?;
    let around = shim.apply(stage, Default::default())?;
    match side {
        Side::Client => tank = tank.around(around).with(&["--response-bytes", &bytes]),
        Side::Server => {
            serve = serve.around(around);
            tank = tank.with(&["--request-bytes", &bytes]);
        }
    }
    stage.serve(&serve)?;
    let before = stage.tcp(side)?;
    stage.call(&tank)?;
    let calls = stage.end()?;
    let after = stage.tcp(side)?;
    let whole = calls.whole();
    let mut pauses = shim.log(stage)?;
    pauses.retain(|one| whole.iter().any(|all| all.overlap_ns(one.from_unix_ns, one.to_unix_ns) > 0));

    let number = calls.all.len() as f64;
    let pause_ns = pause.as_nanos() as u64;
    let expected = case.number("rate") as f64 * case.duration("duration").as_secs_f64();
    let mut acted = FaultReport::default();
    acted.at_least(
        "calls that ended well",
        calls.all.iter().filter(|call| call.ok).count() as f64,
        expected * 0.8,
    );
    let closed =
        after.grew(&before, "TcpExt.TCPToZeroWindowAdv") + after.grew(&before, "TcpExt.TCPWantZeroWindowAdv");
    let what = format!(
        "windows that the {}'s kernel closed, or would have (TcpExt.TCPToZeroWindowAdv, TCPWantZeroWindowAdv)",
        side.name()
    );
    let median = calls.quantile_ns(0.5) as f64;
    if case.near_miss {
        acted.at_least(what, closed, 1.0);
        acted.at_most("median of the calls, ns", median, pause_ns as f64 * 2.0);
        acted.affected_rule = "no call is affected".into();
        return Ok(acted);
    }
    acted.at_least(what, closed, number);
    acted.at_least("pauses of a call", pauses.len() as f64 / number.max(1.0), 4.0);
    acted.at_least("median of the calls, ns", median, pause_ns as f64 * 4.0);
    acted.affected = calls.during(&pauses, pause_ns);
    acted.affected_rule = format!(
        "calls during which the {}'s program slept before a read for as long as a pause or more, by its own log; the cost is for how long",
        side.name()
    );
    acted.active = pauses;
    Ok(acted)
}

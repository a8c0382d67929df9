//! Calls that open a connection with TLS first.

use crate::LabError;
use crate::hosts::line::{Line, Way};
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::python::cost;
use crate::stage::{Serve, Stage, Tank};
use crate::truth::FaultReport;
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

pub const TLS_HANDSHAKE: Scenario = Scenario {
    name: "tls-handshake",
    title: "a connection is left after ten calls: one call in ten opens another one, with a TLS handshake",
    culprit: Culprit::of(Cause::TlsHandshake),
    // What the handshake costs it costs because the connection is new.
    also_right: &[Culprit::at(Cause::ConnectionPerCall, Side::Client)],
    leg: Some(Legs::one(Leg::ClientAppOut)),
    parameters: &[
        Parameter { name: "rate", what: "calls per second", default: Value::Number(50) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(4_000_000_000) },
        Parameter { name: "calls", what: "calls of a connection", default: Value::Number(10) },
        Parameter {
            name: "delay",
            what: "how long a packet takes, each way",
            default: Value::Duration(10_000_000),
        },
    ],
    near_miss: NearMiss {
        title: "the same over the same line, with connections that stay open",
        culprit: Culprit::of(Cause::NetworkDelay),
        leg: Some(Legs { first: Leg::RequestWire, last: Leg::ResponseWire }),
    },
    page: Page {
        what: "Before the first byte of a call a new connection takes a round trip for TCP, and with TLS 1.3 another one for \
the handshake, two with TLS 1.2, besides milliseconds of CPU at both ends for the signature. A call that finds an open connection \
pays nothing of this.",
        real_life: "Balancers that close connections after a number of requests, servers with a short idle timeout, clients that \
create a new session for each task, a mesh whose certificates turn over every hour.",
        sources: &[
            ("RFC 8446: TLS 1.3", "https://www.rfc-editor.org/rfc/rfc8446"),
            (
                "nginx: keepalive_requests",
                "https://nginx.org/en/docs/http/ngx_http_core_module.html#keepalive_requests",
            ),
        ],
        made: "A client and a server in Python with TLS and a certificate made for the run, over a line of 10 ms each way. The \
client leaves a connection after ten calls, and times how long each opening takes, TCP and TLS.",
        cure: "Keep connections; open the next one before it is needed; TLS 1.3 and resumption.",
    },
    make,
};

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let delay = case.duration("delay");
    let way = || Way { delay, ..Way::default() };
    stage.line(&Line { to_server: way(), to_client: way(), seed: stage.seed() })?;
    stage.certificate()?;
    stage.serve(&Serve::python(&["--certificate", "certificate.pem", "--key", "key.pem"]))?;
    let tank = Tank::python(case.duration("duration")).rate(case.number("rate")).with(&["--tls"]);
    let reconnect = case.number("calls").max(1).to_string();
    stage.call(&if case.near_miss { tank } else { tank.with(&["--reconnect", &reconnect]) })?;
    let calls = stage.end()?;
    stage.end_line()?;
    let waits = stage.waits(Side::Client, "tls")?;

    let round_trip_ns = 2 * delay.as_nanos() as u64;
    let (active, affected) = cost(&waits, &calls, round_trip_ns);
    let all = calls.all.len() as f64;
    let mut acted = FaultReport { active, affected, ..FaultReport::default() };
    acted.at_least("calls", all, 20.0);
    acted.at_most("calls that failed", calls.all.iter().filter(|call| !call.ok).count() as f64, 0.0);
    let shook = "measured calls with a handshake of a round trip or more, as the client timed it";
    if case.near_miss {
        // Each thread opens its connection at its first call.
        acted.at_most(shook, acted.affected.len() as f64, all * 0.2);
        acted.at_least("median of the calls, ns", calls.quantile_ns(0.5) as f64, round_trip_ns as f64);
        acted.affected = calls.each_costs(Some(round_trip_ns));
        acted.active = calls.whole();
        acted.affected_rule = "every call takes one round trip".into();
        return Ok(acted);
    }
    acted.at_least(shook, acted.affected.len() as f64, (all / (3 * case.number("calls")) as f64).max(4.0));
    acted.affected_rule =
        "calls that opened a connection, by how long that took for TCP and TLS, as the client timed it"
            .into();
    Ok(acted)
}

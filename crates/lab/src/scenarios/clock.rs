//! The server's clock is ahead and gains; nothing else is wrong.

use crate::LabError;
use crate::calls::Calls;
use crate::hosts::line::{Line, Way};
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::{Affected, FaultReport};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

pub const CLOCK: Scenario = Scenario {
    name: "clock",
    title: "the server's clock is 30 ms ahead and gains 50 ppm; no call takes longer than it has to",
    culprit: Culprit::NOTHING,
    also_right: &[Culprit::of(Cause::Clock), Culprit::at(Cause::Clock, Side::Server)],
    leg: None,
    parameters: &[
        Parameter { name: "rate", what: "calls per second", default: Value::Number(100) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(3_000_000_000) },
        Parameter {
            name: "offset",
            what: "what the server's clock is ahead; of the near miss: what both ways take together",
            default: Value::Duration(30_000_000),
        },
        Parameter {
            name: "skew-ppm",
            what: "what the server's clock gains, millionths; nothing in the near miss",
            default: Value::Number(50),
        },
    ],
    near_miss: NearMiss {
        title: "the clocks agree, and each way takes 15 ms: SERVER spans begin as late after their CLIENT spans",
        culprit: Culprit::of(Cause::NetworkDelay),
        leg: Some(Legs { first: Leg::RequestWire, last: Leg::ResponseWire }),
    },
    page: Page {
        what: "Each host stamps its spans and packets by its own clock. When the server's is ahead, every SERVER span \
seems to begin long after its CLIENT span, and often to end after it, too: the request seems to take that much longer, and the \
response to arrive before it was sent. How long each half took is still right, and so is their difference; only the split of \
the difference into the way there and the way back is not.\n\n\
A clock that also gains makes the picture change slowly, as if the network became slower by the minute.",
        real_life: "Virtual machines that were paused, hosts whose NTP cannot reach its servers, two sites with different \
sources of time, a browser or a phone as the client. Tracing systems shift child spans into their parents for display, which \
hides a delay that is real as well as one that is not.",
        sources: &[
            (
                "Jaeger: Clock Skew Adjuster considered harmful",
                "https://github.com/jaegertracing/jaeger/issues/1459",
            ),
            (
                "Zipkin: spans are shifted to the left, their relative time is negative",
                "https://github.com/openzipkin/zipkin/issues/968",
            ),
            (
                "Grafana: adjust client/server span times to account for clock skew",
                "https://github.com/grafana/grafana/issues/93060",
            ),
            (
                "Elastic APM: time shifting in distributed tracing",
                "https://github.com/elastic/kibana/issues/24072",
            ),
        ],
        made: "A kernel has one clock for all its network namespaces, so the run is made as a healthy one. Afterwards what \
was recorded on the server's host is rewritten as its clock would have shown it: the times of spans, of packets, and of the \
recording of the host, whose CLOCK_MONOTONIC gains as well. The near miss has a line that takes 15 ms each way, and \
leaves the clocks alone.",
        cure: "Synchronise the clocks (chrony, PTP). To read what is there already, take durations of one host alone, or let \
`spangap gaps` and `spangap dissect` bound the offset from every request and response: neither can arrive before it was sent.",
    },
    make,
};

/// A median that no fault of the lab leaves that low.
const FAST_NS: f64 = 5e6;

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let (rate, duration, offset) = (case.number("rate"), case.duration("duration"), case.duration("offset"));
    let offset_ns = offset.as_nanos() as u64;
    if case.near_miss {
        let [to_server, to_client] = [Way::of_delay(offset / 2), Way::of_delay(offset / 2)];
        stage.line(&Line { to_server, to_client, seed: stage.seed() })?;
    } else {
        stage.cable()?;
        stage.clock(Side::Server, offset_ns.cast_signed(), case.number("skew-ppm") as f64);
    }
    stage.serve(&Serve::stack("rust"))?;
    stage.call(&Tank::stack("rust", duration).rate(rate))?;
    let calls = stage.end()?;
    if case.near_miss {
        stage.end_line()?;
    }
    let mut acted = FaultReport::default();
    let expected = (rate as f64 * duration.as_secs_f64()).floor();
    acted.at_least("calls", calls.all.len() as f64, expected * 0.9);
    acted.at_most("calls that failed", calls.all.iter().filter(|call| !call.ok).count() as f64, 0.0);
    if case.near_miss {
        acted.active = calls.whole();
        let cost_ns = Some(offset_ns);
        acted.affected =
            calls.all.iter().map(|call| Affected { trace_id: call.trace_id.clone(), cost_ns }).collect();
        acted.affected_rule = "every call took the line, there and back".into();
        acted.at_least("fastest of the calls, ns", fastest_ns(&calls) as f64, offset_ns as f64);
        acted.at_least(
            "SERVER span begins after its CLIENT span, least, ns",
            behind_ns(&calls),
            offset_ns as f64 / 2.0,
        );
        let after =
            calls.all.iter().filter(|call| call.server.iter().any(|(_, end)| *end > call.end_unix_ns));
        acted.at_most("SERVER spans that end after their CLIENT span", after.count() as f64, 0.0);
    } else {
        acted.affected_rule = "no call is affected: only its times are told by another clock".into();
        acted.at_most("median of the calls, ns", calls.quantile_ns(0.5) as f64, FAST_NS);
    }
    Ok(acted)
}

fn fastest_ns(calls: &Calls) -> u64 {
    calls.all.iter().map(crate::calls::Call::duration_ns).min().unwrap_or(0)
}

/// The least that a SERVER span begins after its CLIENT span.
fn behind_ns(calls: &Calls) -> f64 {
    let pairs = calls.all.iter().filter_map(|call| Some((call.start_unix_ns, call.server.first()?.0)));
    let behind = pairs.map(|(client, server)| server as f64 - client as f64);
    behind.fold(f64::INFINITY, f64::min)
}

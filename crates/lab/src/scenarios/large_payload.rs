//! The size of the response takes the time.

use crate::LabError;
use crate::calls::Calls;
use crate::folder;
use crate::hosts::{DEVICE, ip};
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::FaultReport;
use spangap_model::{Cause, Culprit, Leg, Legs, Side};
use std::time::Duration;

pub const LARGE_PAYLOAD: Scenario = Scenario {
    name: "large-payload",
    title: "every response has 16 MiB: to write, copy, send and read them takes the time",
    culprit: Culprit::of(Cause::LargePayload),
    also_right: &[],
    leg: Some(Legs { first: Leg::ServerHostOut, last: Leg::ClientAppIn }),
    parameters: &[
        Parameter { name: "mib", what: "size of a response, MiB", default: Value::Number(16) },
        Parameter { name: "rate", what: "calls per second", default: Value::Number(2) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(2_000_000_000) },
    ],
    near_miss: NearMiss {
        title: "responses of 50 KiB, and an application that takes its time",
        culprit: Culprit::at(Cause::ServerApp, Side::Server),
        leg: Some(Legs::one(Leg::ServerApp)),
    },
    page: Page {
        what: "A message is assembled in memory before its first byte is sent, and is whole in memory again before the \
               client sees any of it. In between it is copied several times, cut into HTTP/2 frames, and held up \
               whenever a window of flow control is used up. All of that grows with the size and happens outside of \
               the server's span, which ends when the handler has returned.",
        real_life: "A list that has grown with its users, a file in a field of bytes, a report without pages. It begins \
                    small, and nobody decides that it becomes large. The limit of 4 MB that gRPC sets for what it \
                    receives is then raised rather than heeded.",
        sources: &[
            (
                "Protocol Buffers: Techniques, Large Data Sets",
                "https://protobuf.dev/programming-guides/techniques",
            ),
            (
                "ASP.NET Core: gRPC services and large binary payloads",
                "https://github.com/dotnet/AspNetCore.Docs/pull/24250",
            ),
            (
                "grpc-go: where the time of a message of 1 MB goes on one host",
                "https://github.com/grpc/grpc-go/issues/5676",
            ),
        ],
        made: "The target of the stack rust answers with 16 MiB, twice a second, over a virtual cable that is as quick as \
               memory; that they were sent is read off the client's network device. The near miss has responses of \
               50 KiB, also large enough for several packets, and a think time that makes it slow.",
        cure: "Send less (pages, fields, deltas), or in parts (a stream of messages), or by another way, with the call \
               carrying only where it is.",
    },
    make,
};

/// Minimum for the median: the fault acts even on a fast machine.
const SLOW: Duration = Duration::from_millis(10);
/// Think time of the near miss.
const THINK: Duration = Duration::from_millis(40);
/// Response of the near miss, bytes.
const SMALL_BYTES: u64 = 50 << 10;

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let large_bytes = case.number("mib") << 20;
    let (bytes, think) = if case.near_miss { (SMALL_BYTES, THINK) } else { (large_bytes, Duration::ZERO) };
    let serve = Serve::stack("rust").think(think).with(&["--response-bytes", &bytes.to_string()]);
    stage.cable()?;
    stage.serve(&serve)?;
    let before = received_bytes(stage)?;
    stage.call(&Tank::stack("rust", case.duration("duration")).rate(case.number("rate")))?;
    let calls = stage.end()?;
    let received = received_bytes(stage)? - before;
    // The device has counted those of warming up, too.
    let [client, server] = [Side::Client, Side::Server].map(|side| stage.file(folder::spans(side)));
    let made = Calls::read(&client, &server, 0)?.all.len().max(1);
    let per_call = received as f64 / made as f64;

    let mut acted = FaultReport::default();
    acted.at_least("calls", calls.all.len() as f64, 2.0);
    acted.at_most("calls that failed", calls.all.iter().filter(|call| !call.ok).count() as f64, 0.0);
    acted.at_least("median of the calls, ns", calls.quantile_ns(0.5) as f64, SLOW.as_nanos() as f64);
    let spans = calls.server_quantile_ns(0.5) as f64;
    let outside = calls.gap_quantile_ns(0.5) as f64;
    acted.at_least("bytes that the client's device received for a call", per_call, bytes as f64);
    if case.near_miss {
        acted.at_most(
            "the same, and no more than a sixteenth of the large",
            per_call,
            large_bytes as f64 / 16.0,
        );
        acted.at_least("median of the SERVER spans, ns", spans, THINK.as_nanos() as f64);
        acted.at_most("median of what is outside of it, ns", outside, THINK.as_nanos() as f64 / 2.0);
        acted.affected_rule = "every call takes the think time".into();
        acted.affected = calls.each_costs(Some(THINK.as_nanos() as u64));
    } else {
        acted.at_least("median of what is outside of the SERVER span, ns", outside, SLOW.as_nanos() as f64);
        acted.at_most("median of the SERVER spans, ns", spans, outside / 2.0);
        acted.affected_rule =
            "every call has a large response; what its size costs depends on the machine".into();
        acted.affected = calls.each_costs(None);
    }
    acted.active = calls.whole();
    Ok(acted)
}

/// What the client's network device has received since it was made, bytes.
fn received_bytes(stage: &Stage<'_>) -> Result<u64, LabError> {
    let host = stage.hosts().name(Side::Client);
    let shown = ip(&["-n", host, "-json", "-statistics", "link", "show", "dev", DEVICE])?;
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap_or_default();
    let bytes = shown[0]["stats64"]["rx"]["bytes"].as_u64();
    bytes.ok_or_else(|| LabError::program("ip link", format!("no bytes received in {shown}")))
}

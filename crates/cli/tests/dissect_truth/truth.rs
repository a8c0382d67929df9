//! When the bytes of each call passed the taps, according to tshark.

use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

/// Times at one tap, Unix nanoseconds: first and last frame of the request, first and last of the response.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub request: Option<(i64, i64)>,
    pub response: Option<(i64, i64)>,
}

/// Calls at one tap, by the client's port and the HTTP/2 stream.
pub type Tap = HashMap<(u16, u32), Seen>;

/// Reads a capture with tshark. Correct as long as no frame straddles segments, that is, for small calls.
pub fn tap(capture: &Path, server_port: u16) -> Tap {
    const FIELDS: [&str; 5] =
        ["frame.time_epoch", "tcp.srcport", "tcp.dstport", "http2.type", "http2.streamid"];
    let done = Command::new("tshark")
        .arg("-r")
        .arg(capture)
        .args(["-d", &format!("tcp.port=={server_port},http2"), "-Y", "http2.streamid", "-T", "fields"])
        .args(FIELDS.iter().flat_map(|field| ["-e", field]))
        .output()
        .expect("tshark starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut tap = Tap::new();
    for line in String::from_utf8_lossy(&done.stdout).lines() {
        let [time, from, to, types, streams] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("tshark says {line:?}")
        };
        let (from, to): (u16, u16) = (from.parse().expect("a port"), to.parse().expect("a port"));
        let time = nanoseconds(time);
        let (types, streams): (Vec<&str>, Vec<&str>) =
            (types.split(',').collect(), streams.split(',').collect());
        assert_eq!(types.len(), streams.len(), "{line}");
        for (kind, stream) in types.iter().zip(streams) {
            // DATA, HEADERS and CONTINUATION belong to the call, all other frames to the connection.
            if !matches!(*kind, "0" | "1" | "9") {
                continue;
            }
            let stream = stream.parse().expect("a stream");
            let port = if to == server_port { from } else { to };
            let seen = tap.entry((port, stream)).or_default();
            let part = if to == server_port { &mut seen.request } else { &mut seen.response };
            *part = Some((part.map_or(time, |(first, _)| first), time));
        }
    }
    tap
}

/// `1700000000.123456789` in nanoseconds.
fn nanoseconds(text: &str) -> i64 {
    let (seconds, fraction) = text.split_once('.').expect("a fraction");
    assert_eq!(fraction.len(), 9, "{text}");
    seconds.parse::<i64>().expect("seconds") * 1_000_000_000 + fraction.parse::<i64>().expect("nanoseconds")
}

/// The legs of a call in order; each begins at the moment of its index.
const LEGS: [&str; 9] = [
    "client_app_out",
    "client_send",
    "request_wire",
    "server_host_in",
    "server_app",
    "server_host_out",
    "server_send",
    "response_wire",
    "client_app_in",
];

/// Compares every listed call that both taps saw with the times of the taps, which share one clock. Returns
/// how many legs between the two ends were compared, and the widest of their bounds.
pub fn hold(report: &Value, client: &Tap, server: &Tap) -> (usize, u64) {
    let (mut compared, mut widest) = (0, 0);
    for call in crate::calls(report) {
        let port = call["client"].as_str().and_then(|text| text.rsplit(':').next()?.parse().ok());
        let (Some(port), Some(stream)) = (port, call["stream_id"].as_u64()) else { continue };
        let key: (u16, u32) = (port, stream as u32);
        let (Some(client), Some(server)) = (client.get(&key), server.get(&key)) else { continue };
        let (Some(sent), Some(arrived)) = (client.request, server.request) else { continue };
        let (Some(returned), Some(answered)) = (client.response, server.response) else { continue };
        let moment = |number: usize| match number {
            1 => Some(sent.0),
            2 => Some(sent.1),
            3 => Some(arrived.1),
            6 => Some(answered.0),
            7 => Some(answered.1),
            8 => Some(returned.1),
            _ => None,
        };
        for leg in call["legs"].as_array().expect("a list of legs") {
            let name = leg["leg"].as_str().expect("a name");
            let place = |name: &str| LEGS.iter().position(|leg| *leg == name).expect("a known leg");
            let first = place(name.split('+').next().expect("a first"));
            let last = place(name.split('+').next_back().expect("a last"));
            let (Some(from), Some(to)) = (moment(first), moment(last + 1)) else { continue };
            let (ns, bound) = (leg["ns"].as_i64().expect("ns"), leg["bound_ns"].as_u64().expect("bound_ns"));
            assert!(
                (to - from - ns).unsigned_abs() <= bound,
                "{name} took {} ns by the taps; dissect says {ns} +- {bound} in {call:#}",
                to - from
            );
            if name.contains("_wire") {
                compared += 1;
                widest = widest.max(bound);
            }
        }
    }
    (compared, widest)
}

/// Violations of what must hold for any report: legs sum to the call, no cause costs more than it took, and
/// packets named as evidence exist in the file.
pub fn contradictions(report: &Value) -> Vec<String> {
    let packets: Vec<u64> = report["captures"]
        .as_array()
        .expect("captures")
        .iter()
        .map(|capture| capture["packets"].as_u64().expect("a number of packets"))
        .collect();
    let mut wrong = Vec::new();
    for call in crate::calls(report) {
        let name = format!("stream {} of {}", call["stream_id"], call["client"]);
        let duration = call["duration_ns"].as_u64().expect("a duration");
        let legs = call["legs"].as_array().expect("legs");
        let sum: i64 = legs.iter().filter_map(|leg| leg["ns"].as_i64()).sum();
        if sum as u64 != duration {
            wrong.push(format!("the legs of {name} sum to {sum} ns, it took {duration}"));
        }
        for finding in call["findings"].as_array().expect("findings") {
            if finding["cost_ns"].as_u64().is_some_and(|cost| cost > duration) {
                wrong.push(format!(
                    "{name} took {duration} ns, {} {} of it",
                    finding["cause"], finding["cost_ns"]
                ));
            }
            for packet in finding["evidence"].as_array().expect("evidence") {
                let capture = packet["capture"].as_u64().expect("a capture") as usize;
                let number = packet["packet"].as_u64().expect("a packet");
                if !(1..=packets[capture]).contains(&number) {
                    wrong.push(format!("{name}: there is no packet {number}: {finding}"));
                }
            }
        }
    }
    wrong
}

/// Fails if there are any.
pub fn consistent(report: &Value) {
    let wrong = contradictions(report);
    assert!(wrong.is_empty(), "{} contradictions, first {}", wrong.len(), wrong[0]);
}

/// The clock offset as an interval, and the time of the first capture that it is given for.
pub fn clock(report: &Value) -> Option<(i64, i64, i64)> {
    let of = |key: &str| report["clock"][key].as_i64();
    Some((of("offset_low_ns")?, of("offset_high_ns")?, of("at_unix_ns")?))
}

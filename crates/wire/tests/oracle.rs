//! The calls of every HTTP/2 capture in `fixtures/captures`, packet by packet, against tshark.

use spangap_model::Side;
use spangap_wire::exchange::{Exchange, Mark, Part};
use spangap_wire::source::Capture;
use spangap_wire::tap::Tap;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The servers' port.
const SERVER_PORT: u16 = 50051;

/// A packet with payload, as tshark shows it.
#[derive(Clone, Copy, Debug)]
struct Packet {
    time_ns: i64,
    seq: u32,
    len: u32,
}

/// One direction of a stream: the packets in which its frames were complete, and their bytes of DATA.
#[derive(Clone, Copy, Debug)]
struct Frames {
    first: u64,
    last: u64,
    body_bytes: u64,
}

/// A capture as shown by tshark: streams by the client's port, their number and the sender.
#[derive(Debug, Default)]
struct Shown {
    packets: HashMap<u64, Packet>,
    streams: BTreeMap<(u16, u32), [Option<Frames>; 2]>,
}

fn shown(capture: &Path) -> Shown {
    const FIELDS: [&str; 9] = [
        "frame.number",
        "frame.time_epoch",
        "tcp.srcport",
        "tcp.dstport",
        "tcp.seq_raw",
        "tcp.len",
        "http2.type",
        "http2.streamid",
        "http2.length",
    ];
    let done = Command::new("tshark")
        .arg("-r")
        .arg(capture)
        .args(["-d", &format!("tcp.port=={SERVER_PORT},http2"), "-o", "tcp.reassemble_out_of_order:TRUE"])
        .args(["-Y", "tcp.len > 0", "-T", "fields"])
        .args(FIELDS.iter().flat_map(|field| ["-e", field]))
        .output()
        .expect("tshark starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut shown = Shown::default();
    for line in String::from_utf8_lossy(&done.stdout).lines() {
        let [number, time, from, to, seq, len, kinds, streams, lengths] =
            line.split('\t').collect::<Vec<_>>()[..]
        else {
            panic!("tshark says {line:?}")
        };
        let number: u64 = number.parse().expect("a number");
        let (seconds, fraction) = time.split_once('.').expect("a fraction");
        let time_ns = seconds.parse::<i64>().expect("seconds") * 1_000_000_000
            + fraction.parse::<i64>().expect("nanoseconds");
        let packet =
            Packet { time_ns, seq: seq.parse().expect("a number"), len: len.parse().expect("a length") };
        shown.packets.insert(number, packet);
        let (from, to): (u16, u16) = (from.parse().expect("a port"), to.parse().expect("a port"));
        let (port, side) = if to == SERVER_PORT { (from, Side::Client) } else { (to, Side::Server) };
        let list = |text: &str| -> Vec<u64> {
            text.split(',')
                .filter(|text| !text.is_empty())
                .map(|text| text.parse().expect("a number"))
                .collect()
        };
        let (kinds, streams, lengths) = (list(kinds), list(streams), list(lengths));
        assert_eq!((kinds.len(), kinds.len()), (streams.len(), lengths.len()), "{line}");
        for ((kind, stream), length) in kinds.into_iter().zip(streams).zip(lengths) {
            // DATA, HEADERS, CONTINUATION.
            if !matches!(kind, 0 | 1 | 9) {
                continue;
            }
            let frames = &mut shown.streams.entry((port, stream as u32)).or_default()[side.index()];
            let frames = frames.get_or_insert(Frames { first: number, last: number, body_bytes: 0 });
            frames.last = number;
            frames.body_bytes += if kind == 0 { length } else { 0 };
        }
    }
    shown
}

/// The exchanges of a capture, by the client's port and the stream.
fn exchanges(capture: &Path) -> BTreeMap<(u16, u32), Vec<Exchange>> {
    let mut tap = Tap::default();
    let mut capture = Capture::open(capture).expect("a capture");
    let (mut exchanges, mut ended) = (Vec::new(), Vec::new());
    while let Some(packet) = capture.next() {
        tap.packet(&packet);
        tap.take_exchanges(&mut exchanges);
        tap.take_ended(&mut ended);
    }
    tap.finish();
    tap.take_exchanges(&mut exchanges);
    tap.take_ended(&mut ended);
    ended.extend(tap.connections());
    let ports: HashMap<u32, u16> =
        ended.iter().map(|facts| (facts.id, facts.ends[Side::Client.index()].port)).collect();
    let mut by_stream: BTreeMap<_, Vec<Exchange>> = BTreeMap::new();
    for exchange in exchanges {
        by_stream.entry((ports[&exchange.connection], exchange.stream_id)).or_default().push(exchange);
    }
    by_stream
}

/// Compares one direction of a stream with its frames; for a stream of several turns, the first and last of all.
fn compare(
    [first, last]: [&Part; 2],
    turns: bool,
    frames: Frames,
    body_bytes: u64,
    shown: &Shown,
) -> Result<(), String> {
    let carries = |mark: Mark, offset: u64| {
        let Some(packet) = shown.packets.get(&mark.packet) else {
            return Err(format!("packet {} has no payload", mark.packet));
        };
        if packet.time_ns != mark.seen_ns {
            return Err(format!("packet {} was at {}, not {}", mark.packet, packet.time_ns, mark.seen_ns));
        }
        if (offset as u32).wrapping_sub(packet.seq) >= packet.len {
            return Err(format!("{packet:?}, number {}, does not carry byte {}", mark.packet, offset as u32));
        }
        Ok(())
    };
    carries(first.first, first.start)?;
    carries(last.last, last.end - 1)?;
    // tshark shows a frame where it was complete: its last byte is there, and its first byte not later.
    if first.first.ready_packet > frames.first {
        return Err(format!("begins in packet {}, tshark: {}", first.first.ready_packet, frames.first));
    }
    // The last turn of a stream ends with its message; the stream ends after it.
    let ended =
        if turns { last.last.ready_packet <= frames.last } else { last.last.ready_packet == frames.last };
    if !ended {
        return Err(format!("ends in packet {}, tshark: {}", last.last.ready_packet, frames.last));
    }
    if body_bytes != frames.body_bytes {
        return Err(format!("{body_bytes} bytes of DATA, tshark: {}", frames.body_bytes));
    }
    Ok(())
}

/// The differences between tshark and us.
fn differences(capture: &Path) -> Vec<String> {
    let shown = shown(capture);
    let ours = exchanges(capture);
    let mut differences = Vec::new();
    for stream in ours.keys().filter(|stream| !shown.streams.contains_key(stream)) {
        differences.push(format!("{stream:?}: tshark has no such stream"));
    }
    for (stream, sides) in &shown.streams {
        let Some(turns) = ours.get(stream) else {
            differences.push(format!("{stream:?}: not found"));
            continue;
        };
        let (Some(first), Some(last)) = (turns.first(), turns.last()) else { continue };
        let mut note = |what: &str, result: Result<(), String>| {
            if let Err(why) = result {
                differences.push(format!("{stream:?} {what}: {why}"));
            }
        };
        if let Some(frames) = sides[Side::Client.index()] {
            let body = turns.iter().map(|turn| turn.request.body_bytes).sum();
            note("request", compare([&first.request, &last.request], first.turn > 0, frames, body, &shown));
        }
        let responses: Vec<&Part> = turns.iter().filter_map(|turn| turn.response.as_ref()).collect();
        match (sides[Side::Server.index()], &responses[..]) {
            (Some(frames), [first, .., last]) => {
                let body = responses.iter().map(|part| part.body_bytes).sum();
                note("response", compare([first, last], turns[0].turn > 0, frames, body, &shown));
            }
            (Some(frames), [only]) => {
                note("response", compare([only; 2], turns[0].turn > 0, frames, only.body_bytes, &shown));
            }
            (None, []) => {}
            (frames, parts) => note("response", Err(format!("{} parts, tshark: {frames:?}", parts.len()))),
        }
    }
    differences
}

/// HTTP/2 from its beginning, in clear text, with whole packets, so that tshark and we have all data. Both ends
/// if the path changed something, else the client's.
fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures");
    let mut fixtures: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the folder of captures")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let other = [
                "raw-",
                "http1-",
                "tls",
                "receive-window-",
                "nagle-client-raw",
                "dns",
                "pool-",
                "path-",
                // tshark decodes port 8080 as HTTP/1.
                "flow-control-http2",
                "README",
            ];
            // Clients of other protocols that give up.
            let silent = [
                "timeout-http1",
                "timeout-tls",
                "timeout-turns",
                "black-hole",
                "late-answer",
                "server-ends",
                "still-open",
            ];
            let less = ["-mid-joined", "-snap-"];
            let both =
                ["rto", "tail", "fast", "loss", "head", "reordered", "duplicated", "flow", "super", "large"];
            let end = name.contains(".client.") || both.iter().any(|begin| name.starts_with(begin));
            name.contains(".pcapng")
                && end
                && !other.iter().chain(&silent).any(|begin| name.starts_with(begin))
                && !less.iter().any(|part| name.contains(part))
        })
        .collect();
    fixtures.sort();
    assert!(fixtures.len() > 60, "captures are missing: {fixtures:?}");
    fixtures
}

#[test]
fn calls_match_tshark() {
    if !std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|at| at.join("tshark").exists()))
    {
        println!("not run: no program tshark");
        return;
    }
    let (mut failed, mut streams) = (Vec::new(), 0);
    for fixture in fixtures() {
        let name = fixture.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let differences = differences(&fixture);
        streams += exchanges(&fixture).len();
        if let [first, ..] = &differences[..] {
            failed.push(format!("{name}: {} differences, first {first}", differences.len()));
        }
    }
    assert!(failed.is_empty(), "{} of the captures:\n{}", failed.len(), failed.join("\n"));
    println!("{streams} streams compared");
}

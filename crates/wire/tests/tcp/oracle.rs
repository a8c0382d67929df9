//! The captures under `fixtures/captures`, compared with tshark's view of the same packets.

use crate::made::*;
use spangap_model::Side;
use spangap_wire::decode::Decoder;
use spangap_wire::source::Capture;
use spangap_wire::tcp::connection::{Connection, Shared};
use spangap_wire::tcp::flows::Flows;
use spangap_wire::tcp::{ConnectionFacts, Kind};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Maximum streams of one capture that are compared byte by byte.
const STREAMS: usize = 8;

/// The cases with notable TCP behaviour, by the prefix of their names: tshark takes half a second to start.
const CASES: [&str; 20] = [
    "any-device",
    "cpp-async-mid",
    "duplicated",
    "fast-retransmit",
    "flow-control-slow",
    "go-mid-joined",
    "go-snap",
    "head-of-line-loss",
    "http1-pipelined",
    "late-not-lost",
    "loss",
    "many-connections",
    "receive-window",
    "reordered",
    "rto",
    "rust-stream",
    "super-frames",
    "syn",
    "tail-loss",
    "vxlan",
];

/// Captures of the fixtures, as files that any tshark can read.
fn captures(scratch: &Path) -> Vec<(String, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures");
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<(String, PathBuf)> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_str()?.to_owned();
            if !CASES.iter().any(|case| name.starts_with(case)) {
                return None;
            }
            if let Some(plain) = name.strip_suffix(".zst") {
                let bytes = zstd::decode_all(std::fs::File::open(&path).ok()?).ok()?;
                let copy = scratch.join(plain);
                std::fs::write(&copy, bytes).ok()?;
                return Some((name, copy));
            }
            (name.contains(".pcap")).then_some((name, path))
        })
        .collect();
    files.sort();
    files
}

/// Result for a capture: the kind of each packet, its connections, and the input of their parsers.
type Made = (BTreeMap<u64, Kind>, Vec<ConnectionFacts>, BTreeMap<u32, Vec<Told>>);

fn read(path: &Path) -> Made {
    take_told();
    let mut capture = Capture::open(path).expect("a capture");
    let (mut decoder, mut flows, mut shared) =
        (Decoder::default(), Flows::<Recorder>::default(), Shared::default());
    let mut kinds = BTreeMap::new();
    while let Some(packet) = capture.next() {
        if let Ok(segment) = decoder.decode(&packet) {
            kinds.insert(segment.packet, flows.segment(&segment, &mut shared));
        }
    }
    flows.finish(&mut shared);
    let mut facts = Vec::new();
    flows.take_ended(&mut facts);
    facts.extend(flows.live().into_iter().map(Connection::facts));
    (kinds, facts, take_told().into_iter().collect())
}

/// tshark's view: its flags by packet, and the bytes of each stream by the address and port of the sender.
struct Theirs {
    flags: BTreeMap<u64, BTreeSet<&'static str>>,
    streams: Vec<BTreeMap<String, Vec<u8>>>,
}

const FLAGS: [&str; 9] = [
    "retransmission",
    "fast_retransmission",
    "spurious_retransmission",
    "out_of_order",
    "duplicate_ack",
    "keep_alive",
    "zero_window_probe",
    "lost_segment",
    "zero_window",
];

fn tshark(path: &Path) -> Option<Theirs> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(path).args(["-o", "tcp.relative_sequence_numbers:FALSE", "-T", "fields"]);
    command.args(["-e", "frame.number"]);
    FLAGS.iter().for_each(|flag| {
        command.args(["-e", &format!("tcp.analysis.{flag}")]);
    });
    (0..STREAMS).for_each(|stream| {
        command.args(["-z", &format!("follow,tcp,raw,{stream}")]);
    });
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut theirs = Theirs { flags: BTreeMap::new(), streams: Vec::new() };
    let mut nodes = [String::new(), String::new()];
    let mut following = false;
    for line in text.lines() {
        if line.starts_with("====") {
            following = !following;
        } else if !following {
            let mut cells = line.split('\t');
            let Some(number) = cells.next().and_then(|number| number.parse().ok()) else { continue };
            let set = FLAGS.iter().zip(cells).filter(|(_, cell)| !cell.is_empty()).map(|(flag, _)| *flag);
            theirs.flags.insert(number, set.collect());
        } else if let Some(node) = line.strip_prefix("Node 0: ") {
            nodes[0] = node.to_owned();
        } else if let Some(node) = line.strip_prefix("Node 1: ") {
            nodes[1] = node.to_owned();
            theirs.streams.push(nodes.iter().map(|node| (node.clone(), Vec::new())).collect());
        } else if !line.contains(':') {
            let node = &nodes[usize::from(line.starts_with('\t'))];
            let hex = line.trim().as_bytes().chunks(2);
            let bytes = hex.filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
            if let Some(stream) = theirs.streams.last_mut() {
                stream.entry(node.clone()).or_default().extend(bytes);
            }
        }
    }
    Some(theirs)
}

#[test]
fn tshark_agrees_on_every_capture() {
    let scratch = tempfile::tempdir().expect("a folder");
    let captures = captures(scratch.path());
    if captures.is_empty() {
        return println!("not run: fixtures/captures is empty");
    }
    let (mut compared, mut resent, mut bytes) = (0, 0, 0);
    let mut differences = Vec::new();
    for (name, path) in &captures {
        let Some(theirs) = tshark(path) else {
            return println!("not run: tshark is not there, or cannot read {name}");
        };
        let (kinds, facts, told) = read(path);
        for (number, kind) in &kinds {
            let empty = BTreeSet::new();
            let flags = theirs.flags.get(number).unwrap_or(&empty);
            let again = FLAGS[..4].iter().any(|flag| flags.contains(flag));
            let ours = matches!(kind, Kind::Resent | Kind::Fill);
            resent += usize::from(ours);
            // tshark has no flag for a packet captured twice, nor for a probe without a byte; and it reports a
            // gap once, even at a segment without payload.
            let gap = theirs.flags.range(number.saturating_sub(5)..=*number);
            let gap = gap.into_iter().any(|(_, flags)| flags.contains("lost_segment"));
            let alike = match kind {
                Kind::Handshake => true,
                Kind::Duplicate => again || flags.contains("duplicate_ack") || flags.is_empty(),
                Kind::Resent | Kind::Fill => again,
                Kind::KeepAlive => flags.contains("keep_alive"),
                Kind::WindowProbe => flags.contains("keep_alive") || flags.contains("zero_window_probe"),
                Kind::Ahead => gap && !again,
                Kind::New => !again && !flags.contains("lost_segment"),
                Kind::BareAck | Kind::WindowUpdate => !again && !flags.contains("duplicate_ack"),
                Kind::RepeatedAck | Kind::Reset => !again,
            };
            let missed =
                flags.contains("duplicate_ack") && !matches!(kind, Kind::RepeatedAck | Kind::Duplicate);
            if !alike || missed {
                differences.push(format!("{name} packet {number}: {kind:?}, tshark: {flags:?}"));
            }
        }
        for facts in &facts {
            let ends = facts.ends.map(|end| end.to_string());
            let stream =
                |theirs: &&BTreeMap<String, Vec<u8>>| ends.iter().all(|end| theirs.contains_key(end));
            let told = told.get(&facts.id).map(Vec::as_slice).unwrap_or_default();
            let cut = told.iter().any(|told| matches!(told, Told::Hole(..)));
            let Some(theirs) = theirs.streams.iter().find(stream).filter(|_| !cut) else { continue };
            for side in [Side::Client, Side::Server] {
                let ours: Vec<u8> = stream_bytes(told, side);
                bytes += ours.len();
                compared += 1;
                if ours != theirs[&ends[side.index()]] {
                    let lengths = (ours.len(), theirs[&ends[side.index()]].len());
                    differences.push(format!("{name} {ends:?} {side:?}: other bytes, {lengths:?} of them"));
                }
            }
        }
    }
    println!("{} captures, {compared} streams, {bytes} bytes, {resent} sent again", captures.len());
    assert!(compared > 0 && resent > 0);
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

fn stream_bytes(told: &[Told], side: Side) -> Vec<u8> {
    stream(told, side).0.into_iter().flat_map(|(_, bytes)| bytes).collect()
}

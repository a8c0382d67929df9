//! Header fields and bodies of real gRPC traffic, compared with tshark; and a check that a connection joined
//! anywhere yields the same fields or reports them as unknown.

use spangap_model::{Cause, Side};
use spangap_wire::app::Observer;
use spangap_wire::source::Capture;
use spangap_wire::tap::{Harvest, Known, Tap};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

/// The listening port of every server in the fixtures.
const SERVER_PORT: u16 = 50051;
/// Captures without loss, of every stack.
const CLEAN: &[&str] = &[
    "go-unary",
    "go-stream",
    "rust-unary",
    "rust-stream",
    "cpp-async-unary",
    "cpp-async-stream",
    "cpp-sync-unary",
    "cpp-callback-one",
    "cpp-to-go",
    "go-to-rust",
    "rust-to-cpp",
    "python-unary",
    "flow-control-small",
    "stream-limit",
];

/// Client port, stream, whether the client sent it.
type Key = (u32, u32, bool);
type Fields = Vec<(String, String)>;

/// Data of one side on one stream.
#[derive(Clone, Debug, Default, PartialEq)]
struct StreamData {
    /// Header blocks: fields, and the number of unknown ones.
    blocks: Vec<(Fields, u32)>,
    body: Vec<u8>,
}

type Everything = BTreeMap<Key, StreamData>;

/// A fixture as a file that tshark can read: compressed ones are unpacked into `directory`.
fn fixture(name: &str, directory: &Path) -> PathBuf {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/captures"));
    let packed = folder.join(format!("{name}.pcapng.zst"));
    if !packed.exists() {
        return folder.join(format!("{name}.pcapng"));
    }
    let unpacked = directory.join(format!("{name}.pcapng"));
    let bytes = zstd::decode_all(std::fs::File::open(packed).expect("it exists")).expect("zstd");
    std::fs::write(&unpacked, bytes).expect("a file in a temporary folder");
    unpacked
}

#[derive(Clone, Default)]
struct Watcher(Arc<Mutex<Everything>>);

impl Observer for Watcher {
    fn headers(
        &mut self,
        connection: u32,
        stream: u32,
        from: Side,
        fields: &[(Vec<u8>, Vec<u8>)],
        unknown: u32,
    ) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields = fields.iter().map(|(name, value)| (text(name), text(value))).collect();
        let mut all = self.0.lock().expect("nobody panicked");
        all.entry((connection, stream, from == Side::Client)).or_default().blocks.push((fields, unknown));
    }
    fn body(&mut self, connection: u32, stream: u32, from: Side, bytes: &[u8]) {
        let mut all = self.0.lock().expect("nobody panicked");
        all.entry((connection, stream, from == Side::Client)).or_default().body.extend(bytes);
    }
    fn end(&mut self, _: u32, _: u32, _: Side) {}
}

/// Our reading of a capture, without its first `skipped` packets.
fn ours(file: &Path, skipped: usize) -> Everything {
    let watcher = Watcher::default();
    let mut tap = Tap::with_observer(Box::new(watcher.clone()));
    let mut capture = Capture::open(file).expect("the fixture is there");
    let mut ended = Vec::new();
    let mut number = 0;
    while let Some(packet) = capture.next() {
        number += 1;
        if number > skipped {
            tap.packet(&packet);
        }
    }
    tap.finish();
    let mut connections = tap.connections();
    tap.take_ended(&mut ended);
    connections.extend(ended);
    // By the client's port, which is unique in a fixture.
    let ports: BTreeMap<u32, u32> = connections
        .iter()
        .map(|facts| {
            let [one, other] = facts.ends.map(|end| end.port);
            (facts.id, u32::from(if one == SERVER_PORT { other } else { one }))
        })
        .collect();
    let all = watcher.0.lock().expect("nobody panicked");
    // Without a handshake, the sides may be swapped; the sender of requests shows it.
    let has = |data: &StreamData, names: [&str; 2]| {
        data.blocks.iter().flat_map(|block| &block.0).any(|field| names.contains(&&*field.0))
    };
    let turned: BTreeSet<u32> = all
        .iter()
        .filter(|((_, _, client), data)| {
            has(data, if *client { [":status", "grpc-status"] } else { [":path", ":method"] })
        })
        .map(|((id, _, _), _)| *id)
        .collect();
    let key = |(id, stream, client): Key| (ports[&id], stream, client != turned.contains(&id));
    all.iter().map(|(named, data)| (key(*named), data.clone())).collect()
}

/// The value of an attribute of a PDML element on one line.
fn attribute(line: &str, name: &str) -> Option<String> {
    let start = line.find(&format!(" {name}=\""))? + name.len() + 3;
    let text = &line[start..];
    let text = &text[..text.find('"')?];
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#x27;", "'"), ("&amp;", "&")];
    Some(entities.iter().fold(text.to_string(), |text, (entity, is)| text.replace(entity, is)))
}

/// tshark's reading.
fn theirs(file: &Path) -> Result<Everything, String> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args([
        "-d",
        &format!("tcp.port=={SERVER_PORT},http2"),
        "--disable-protocol",
        "grpc",
    ]);
    command.args(["--disable-protocol", "protobuf", "-Y", "http2", "-T", "pdml"]);
    let output = command.output().map_err(|error| format!("tshark: {error}"))?;
    if !output.status.success() {
        return Err(format!("tshark: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let mut all = Everything::new();
    let (mut port, mut client, mut stream, mut kind, mut name) = (0, false, 0, String::new(), String::new());
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Some(field) = attribute(line, "name").filter(|_| line.contains("<field ")) else { continue };
        let show = || attribute(line, "show").unwrap_or_default();
        match field.as_str() {
            "tcp.srcport" => {
                port = show().parse().map_err(|_| line.to_string())?;
                client = port != u32::from(SERVER_PORT);
            }
            "tcp.dstport" if !client => port = show().parse().map_err(|_| line.to_string())?,
            "http2.type" => kind = show(),
            "http2.streamid" => {
                stream = show().parse().map_err(|_| line.to_string())?;
                if kind == "1" {
                    all.entry((port, stream, client)).or_default().blocks.push((Vec::new(), 0));
                }
            }
            "http2.header.name" => name = show(),
            "http2.header.value" => {
                let data = all.entry((port, stream, client)).or_default();
                if let Some((fields, _)) = data.blocks.last_mut() {
                    fields.push((name.clone(), show()));
                }
            }
            "http2.data.data" => {
                let hex = attribute(line, "value").unwrap_or_default();
                let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap_or_default();
                let bytes = (0..hex.len() / 2).map(|at| digit(at * 2));
                all.entry((port, stream, client)).or_default().body.extend(bytes);
            }
            _ => {}
        }
    }
    Ok(all)
}

#[test]
fn fields_and_bodies_match_tshark() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let (mut blocks, mut body_bytes) = (0, 0);
    for name in CLEAN {
        for end in ["client", "server"] {
            let file = fixture(&format!("{name}.{end}"), directory.path());
            let theirs = match theirs(&file) {
                Ok(theirs) => theirs,
                Err(why) => return println!("not run: comparison with tshark: {why}"),
            };
            let ours = ours(&file, 0);
            assert!(!theirs.is_empty(), "{name}.{end}: tshark sees HTTP/2");
            for (key, data) in &theirs {
                let got = ours.get(key).unwrap_or_else(|| panic!("{name}.{end}: {key:?} is missing"));
                assert_eq!(got.blocks, data.blocks, "{name}.{end} {key:?}");
                assert!(got.body == data.body, "{name}.{end} {key:?}: bodies differ");
                blocks += data.blocks.len();
                body_bytes += data.body.len();
            }
            assert_eq!(ours.len(), theirs.len(), "{name}.{end}");
        }
    }
    assert!(blocks > 1000, "only {blocks} header blocks");
    println!("{blocks} header blocks and {body_bytes} bytes of bodies as tshark shows them");
}

#[test]
fn joined_anywhere_fields_are_correct_or_unknown() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let (mut known, mut unknown) = (0, 0);
    for name in ["go-unary", "rust-unary", "cpp-async-unary", "python-unary", "cpp-async-stream"] {
        let file = fixture(&format!("{name}.client"), directory.path());
        let whole = ours(&file, 0);
        for skipped in (1..400).step_by(9) {
            for (key, data) in ours(&file, skipped) {
                let full =
                    whole.get(&key).unwrap_or_else(|| panic!("{name} from {skipped}: {key:?} is made up"));
                assert!(full.body.ends_with(&data.body), "{name} from {skipped}: the body of {key:?}");
                assert!(data.blocks.len() <= full.blocks.len(), "{name} from {skipped}: {key:?}");
                let same = full.blocks.iter().rev().zip(data.blocks.iter().rev());
                for ((fields, _), (seen, missing)) in same {
                    let mut rest = fields.iter();
                    assert!(
                        seen.iter().all(|field| rest.any(|other| other == field)),
                        "{name} from {skipped}: {key:?} said {fields:?}, read as {seen:?}"
                    );
                    // A block that could not be read counts as one field.
                    assert!(seen.len() + *missing as usize <= fields.len(), "{name} from {skipped}: {key:?}");
                    known += seen.len();
                    unknown += *missing as usize;
                }
            }
        }
    }
    // Fields that a client indexed earlier are never sent again.
    assert!(known > unknown, "{known} fields known, {unknown} unknown");
    println!("{known} fields known, {unknown} unknown");
}

/// Number of a capture's calls that an episode of this cause delayed.
fn held_up(file: &Path, cause: Cause) -> usize {
    let mut tap = Tap::default();
    let mut capture = Capture::open(file).expect("the fixture is there");
    let (mut known, mut harvest, mut held) = (Known::default(), Harvest::default(), 0);
    let mut take = |tap: &mut Tap| {
        tap.harvest(&mut harvest);
        known.take(&mut harvest);
        harvest.ended.clear();
        let by = |exchange: &_| known.episodes_of(exchange).iter().any(|episode| episode.cause == cause);
        held += harvest.exchanges.drain(..).filter(by).count();
    };
    while let Some(packet) = capture.next() {
        tap.packet(&packet);
        take(&mut tap);
    }
    tap.finish();
    take(&mut tap);
    held
}

#[test]
fn causes_that_only_http2_shows_are_found_and_their_near_misses_are_not() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let cases = [
        (Cause::FlowControl, "flow-control", 5),
        (Cause::FlowControl, "flow-control-request", 4),
        (Cause::FlowControl, "flow-control-slow-reader", 5),
        (Cause::FlowControl, "flow-control-near", 0),
        (Cause::FlowControl, "flow-control-small", 0),
        (Cause::FlowControl, "rust-stream", 0),
        (Cause::StreamLimit, "stream-limit", 100),
        (Cause::StreamLimit, "stream-limit-go", 100),
        (Cause::StreamLimit, "stream-limit-near", 0),
        (Cause::HeadOfLine, "head-of-line-large", 3),
        (Cause::HeadOfLine, "flow-control-near", 0),
        (Cause::HeadOfLine, "rust-unary", 0),
    ];
    let mut wrong = Vec::new();
    for (cause, name, at_least) in cases {
        for end in ["client", "server"] {
            let held = held_up(&fixture(&format!("{name}.{end}"), directory.path()), cause);
            println!("{cause} in {name}.{end}: {held} calls, expected {at_least}");
            if (at_least == 0 && held > 0) || held < at_least {
                wrong.push(format!("{cause} in {name}.{end}: {held} calls, not {at_least}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

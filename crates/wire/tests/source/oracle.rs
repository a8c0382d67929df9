//! Compares our reading of packets with tshark's.

use crate::cases;
use spangap_wire::decode::{Decoder, Unparsed};
use spangap_wire::segment::Segment;
use spangap_wire::source::Capture;
use std::path::{Path, PathBuf};
use std::process::Command;

const FIELDS: [&str; 25] = [
    "frame.number",
    "frame.time_epoch",
    "frame.cap_len",
    "frame.len",
    "ip.src",
    "ip.dst",
    "ipv6.src",
    "ipv6.dst",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.seq_raw",
    "tcp.ack_raw",
    "tcp.len",
    "tcp.flags",
    "tcp.window_size_value",
    "ip.id",
    "tcp.options.mss_val",
    "tcp.options.wscale.shift",
    "tcp.options.timestamp.tsval",
    "tcp.options.timestamp.tsecr",
    "tcp.options.sack_le",
    "tcp.options.sack_re",
    "tcp.payload",
    "icmp.type",
    "tcp.hdr_len",
];

/// One line of tshark's output: all occurrences of each field.
struct Row(Vec<String>);

impl Row {
    fn text(&self, name: &str) -> &str {
        let at = FIELDS.iter().position(|field| *field == name).expect("a field asked for");
        self.0.get(at).map_or("", String::as_str)
    }

    /// The innermost occurrence.
    fn last(&self, name: &str) -> &str {
        self.text(name).rsplit(',').next().unwrap_or("")
    }

    fn number(&self, name: &str) -> Option<u64> {
        let text = self.last(name);
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        }
    }

    fn numbers(&self, name: &str) -> Vec<u32> {
        self.text(name).split(',').filter_map(|number| number.parse().ok()).collect()
    }

    fn time_ns(&self) -> i64 {
        let text = self.last("frame.time_epoch");
        let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
        let fraction = format!("{fraction:0<9}");
        seconds.parse::<i64>().expect("seconds") * 1_000_000_000
            + fraction[..9].parse::<i64>().expect("nanoseconds")
    }
}

fn tshark(file: &Path) -> Result<Vec<Row>, String> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(file).args(["-T", "fields", "-E", "occurrence=a", "-E", "separator=/t"]);
    command.args(["-o", "tcp.relative_sequence_numbers:FALSE", "-o", "tcp.desegment_tcp_streams:FALSE"]);
    // Its dissectors for payloads only cost time.
    command.args(["-d", "udp.port==8472,vxlan", "-d", "tcp.port==7001,data", "--disable-protocol", "http2"]);
    FIELDS.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let output = command.output().map_err(|error| format!("tshark: {error}"))?;
    if !output.status.success() {
        return Err(format!("tshark: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let rows = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(rows.lines().map(|line| Row(line.split('\t').map(str::to_string).collect())).collect())
}

/// Reads `file` both ways; returns the number of matching segments.
fn compare(name: &str, file: &Path) -> Result<u64, String> {
    let rows = tshark(file)?;
    let mut capture = Capture::open(file).expect("a capture");
    let (mut decoder, mut segments) = (Decoder::default(), 0);
    for row in &rows {
        let packet = capture.next().unwrap_or_else(|| panic!("{name}: too few packets"));
        let at = format!("{name}, packet {}", packet.number);
        assert_eq!(Some(packet.number), row.number("frame.number"), "{at}");
        assert_eq!(packet.time_ns, row.time_ns(), "{at}");
        assert_eq!(Some(packet.data.len() as u64), row.number("frame.cap_len"), "{at}");
        assert_eq!(Some(u64::from(packet.wire_len)), row.number("frame.len"), "{at}");
        match decoder.decode(&packet) {
            Ok(segment) => {
                same(&at, &segment, row);
                segments += 1;
            }
            // tshark shows parts of a header that is cut.
            Err(Unparsed::Cut) => assert!(packet.data.len() < packet.wire_len as usize, "{at}"),
            Err(why) => {
                let quoted = !row.text("icmp.type").is_empty();
                assert!(
                    quoted || row.text("tcp.srcport").is_empty(),
                    "{at}: {why:?}, and tshark sees a segment"
                );
            }
        }
    }
    assert!(capture.next().is_none(), "{name}: tshark reads {} packets", rows.len());
    let reading = capture.reading();
    assert_eq!(reading.bytes, reading.packet_bytes + reading.overhead_bytes, "{name}: {reading:?}");
    assert_eq!(reading.damaged_places, 0, "{name}: {:?}", reading.damage);
    Ok(segments)
}

fn same(at: &str, segment: &Segment<'_>, row: &Row) {
    let v4 = segment.source.ip().is_ipv4();
    let [source, destination] = if v4 { ["ip.src", "ip.dst"] } else { ["ipv6.src", "ipv6.dst"] };
    assert_eq!(segment.source.ip().to_string(), row.last(source), "{at}");
    assert_eq!(segment.destination.ip().to_string(), row.last(destination), "{at}");
    let payload: String = segment.payload.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(payload, row.last("tcp.payload"), "{at}");
    let options = &segment.options;
    let sack: Vec<(u32, u32)> = options.sack[..usize::from(options.sack_count)].to_vec();
    let theirs = row.numbers("tcp.options.sack_le").into_iter().zip(row.numbers("tcp.options.sack_re"));
    assert_eq!(sack, theirs.collect::<Vec<_>>(), "{at}");
    let ours = [
        ("tcp.srcport", Some(u64::from(segment.source.port))),
        ("tcp.dstport", Some(u64::from(segment.destination.port))),
        ("tcp.seq_raw", Some(u64::from(segment.seq))),
        ("tcp.ack_raw", Some(u64::from(segment.ack))),
        ("tcp.len", Some(u64::from(segment.payload_len))),
        ("tcp.window_size_value", Some(u64::from(segment.window))),
        ("tcp.options.mss_val", options.mss.map(u64::from)),
        ("tcp.options.wscale.shift", options.window_scale.map(u64::from)),
        ("tcp.options.timestamp.tsval", options.timestamps.map(|(value, _)| u64::from(value))),
        ("tcp.options.timestamp.tsecr", options.timestamps.map(|(_, echo)| u64::from(echo))),
    ];
    for (field, ours) in ours {
        assert_eq!(ours, row.number(field), "{at}: {field}");
    }
    // Without the bits that RFC 3168 and later ones took from the reserved ones.
    assert_eq!(Some(u64::from(segment.flags.0)), row.number("tcp.flags").map(|flags| flags & 0xff), "{at}");
    if v4 {
        assert_eq!(Some(u64::from(segment.ip_id)), row.number("ip.id"), "{at}");
    }
}

#[test]
fn every_format_link_and_tunnel_is_read_as_tshark_reads_it() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in cases::all() {
        let file = folder.path().join("case");
        std::fs::write(&file, &bytes).expect("a file");
        match compare(&name, &file) {
            Ok(segments) => assert!(segments > 0, "{name}: no segment"),
            Err(why) if why.contains("No such file") => {
                return println!("not run: comparison with tshark: {why}");
            }
            Err(why) => panic!("{name}: {why}"),
        }
    }
}

#[test]
fn real_captures_are_read_as_tshark_reads_them() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures");
    let files = std::fs::read_dir(&folder).map(|entries| entries.flatten().map(|entry| entry.path()));
    let mut files: Vec<PathBuf> = files.into_iter().flatten().collect();
    // Both ends saw nearly the same, and each run of tshark is slow.
    files.retain(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.contains(".pcap") && !name.contains(".server.")
    });
    files.sort();
    if files.is_empty() {
        return println!(
            "not run: comparison with tshark on real captures: no captures in {}",
            folder.display()
        );
    }
    let mut segments = 0;
    for file in &files {
        match compare(&file.display().to_string(), file) {
            Ok(agree) => segments += agree,
            Err(why) if why.contains("No such file") => {
                return println!("not run: comparison with tshark: {why}");
            }
            Err(why) => panic!("{}: {why}", file.display()),
        }
    }
    println!("{} captures, {segments} segments as tshark sees them", files.len());
    assert!(segments > 0);
}

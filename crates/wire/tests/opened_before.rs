//! Slices of connections whose SYNs passed long before: real captures, cut after the handshake, with the SYNs
//! prepended and without them.

use spangap_model::Cause;
use spangap_model::evidence::Certainty;
use spangap_wire::dissect::{Dissection, Settings, dissect};
use spangap_wire::packet::Packet;
use spangap_wire::source::write::{Origin, PcapngWriter};
use spangap_wire::source::{Capture, Opening};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// A client's sockets without `TCP_NODELAY`, and a server that delays its ACKs: every call waits for one.
const NAME: &str = "nagle-client";
/// The handshake, and a call or two.
const CUT: u64 = 16;
const HOUR_NS: i64 = 3_600_000_000_000;

fn fixture(end: &str) -> PathBuf {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/captures"));
    folder.join(format!("{NAME}.{end}.pcapng"))
}

/// The SYN flag of a packet over Ethernet and IPv4.
fn is_syn(packet: &Packet<'_>) -> bool {
    let ip = &packet.data[14..];
    ip[9] == 6 && ip[usize::from(ip[0] & 15) * 4 + 13] & 2 != 0
}

/// The fixture without its beginning, in a separate file; the SYNs selected by `keep` come first, dated an
/// hour earlier.
fn slice(into: &Path, end: &str, keep: impl Fn(usize) -> bool) -> PathBuf {
    let mut capture = Capture::open(&fixture(end)).expect("a fixture");
    let (mut syns, mut rest) = (Vec::new(), Vec::new());
    while let Some(packet) = capture.next() {
        if is_syn(&packet) {
            syns.push(Opening {
                time_ns: packet.time_ns - HOUR_NS,
                link: packet.link,
                wire_len: packet.wire_len,
                told_by_kernel: syns.len() > 1,
                data: packet.data.into(),
            });
        }
        if packet.number > CUT {
            rest.push((packet.time_ns, packet.link, packet.wire_len, packet.data.to_vec()));
        }
    }
    assert_eq!(syns.len(), 2, "one connection");
    let origin = Origin { interface: "any", link: rest[0].1, snap_bytes: 0, comment: "" };
    let path = into.join(format!("{end}.pcapng"));
    let file = std::fs::File::create(&path).expect("a file");
    let mut writer = PcapngWriter::create(file, &origin).expect("written");
    for (_, syn) in syns.iter().enumerate().filter(|(nth, _)| keep(*nth)) {
        writer.opening(syn).expect("written");
    }
    for (time_ns, link, wire_len, data) in &rest {
        let packet =
            Packet { number: 0, time_ns: *time_ns, interface: 0, link: *link, wire_len: *wire_len, data };
        writer.packet(&packet).expect("written");
    }
    writer.finish(rest[rest.len() - 1].0, rest.len() as u64, 0).expect("written");
    path
}

fn dissected(ends: &[&str], keep: impl Fn(usize) -> bool) -> Dissection {
    let folder = tempfile::tempdir().expect("a folder");
    let open = |end: &&str| Capture::open(&slice(folder.path(), end, &keep)).expect("a capture");
    let settings = Settings { slowest: 1_000, ..Settings::default() };
    let dissection = dissect(ends.iter().map(open).collect(), &settings, &mut |_| ControlFlow::Continue(()));
    dissection.expect("files can be read twice")
}

/// Number of calls for which Nagle's algorithm is shown, and for which it is merely possible.
fn nagle(dissection: &Dissection) -> (usize, usize) {
    let with = |shown: bool| {
        let has = |call: &&spangap_wire::call::Call| {
            call.findings.iter().any(|finding| {
                finding.cause == Cause::NagleDelayedAck && (finding.certainty == Certainty::Shown) == shown
            })
        };
        dissection.calls.iter().filter(has).count()
    };
    (with(true), with(false))
}

#[test]
fn syns_from_before_tell_what_they_told() {
    for ends in [&["client"][..], &["server"], &["client", "server"]] {
        let (shown, possible) = nagle(&dissected(ends, |_| false));
        assert_eq!(shown, 0, "{ends:?}: a window whose scale is not known had room");
        assert!(possible >= 5, "{ends:?}: {possible}");
        let with = dissected(ends, |_| true);
        let (shown, possible) = nagle(&with);
        // The window of a peer is unknown before its first header, whatever the scale.
        assert!(shown >= 5 && possible <= 1, "{ends:?}: {shown} shown, {possible} possible");
    }
}

#[test]
fn half_of_a_handshake_says_less_than_both() {
    for only in [0, 1] {
        let (shown, _) = nagle(&dissected(&["client"], |nth| nth == only));
        assert_eq!(shown, 0, "scaling needs the option in both, and only {only} was kept");
    }
}

/// They passed, but not within this capture: neither the capture nor any call begins with them.
#[test]
fn syns_from_before_are_no_packets_of_the_capture() {
    let (without, with) = (dissected(&["client"], |_| false), dissected(&["client"], |_| true));
    let calls = |dissection: &Dissection| {
        let of = |call: &spangap_wire::call::Call| (call.duration_ns, call.start_ns);
        dissection.calls.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(calls(&without), calls(&with));
    let folder = tempfile::tempdir().expect("a folder");
    let mut capture = Capture::open(&slice(folder.path(), "client", |_| true)).expect("a capture");
    let first = capture.next().expect("a packet");
    // Packet numbers match those of other readers, which count the SYNs.
    assert_eq!(first.number, 3);
    let first_ns = first.time_ns;
    while capture.next().is_some() {}
    let reading = capture.reading();
    assert_eq!(reading.first_ns, Some(first_ns));
    assert_eq!(reading.bytes, reading.packet_bytes + reading.overhead_bytes + reading.damaged_bytes);
    assert_eq!((reading.damaged_places, capture.openings().len()), (0, 2));
    let again = capture.bookmarks().reopen_at(1).expect("a file").next().map(|packet| packet.number);
    assert_eq!(again, Some(3));
}

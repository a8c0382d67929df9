//! Captures masked as an agent masks them: every call of real traffic stays what it was, and nothing of the
//! messages' content remains.

mod mutated;

use proptest::prelude::*;
use spangap_wire::app::http2::huffman;
use spangap_wire::dissect::{Dissection, Settings, dissect};
use spangap_wire::mask::Masker;
use spangap_wire::packet::Packet;
use spangap_wire::source::Capture;
use spangap_wire::source::write::{Origin, PcapngWriter};
use std::io::Cursor;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

fn fixtures() -> Vec<(String, [PathBuf; 2])> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures");
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .expect("the fixtures")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".json").map(str::to_owned))
        .collect();
    names.sort();
    let file = |name: &str, end: &str| {
        let stored =
            ["pcapng", "pcapng.zst", "pcap"].map(|suffix| folder.join(format!("{name}.{end}.{suffix}")));
        stored.into_iter().find(|path| path.exists())
    };
    let both = |name: String| {
        let ends = [file(&name, "client")?, file(&name, "server")?];
        Some((name, ends))
    };
    names.into_iter().filter_map(both).collect()
}

type Stored = Vec<(i64, spangap_wire::packet::LinkType, u32, Vec<u8>)>;

fn packets(path: &Path) -> Stored {
    let mut capture = Capture::open(path).expect("a capture");
    let mut all = Vec::new();
    while let Some(packet) = capture.next() {
        all.push((packet.time_ns, packet.link, packet.wire_len, packet.data.to_vec()));
    }
    all
}

fn masked(packets: &Stored) -> (Stored, u64) {
    let mut masker = Masker::default();
    for (number, (time_ns, link, wire_len, data)) in packets.iter().enumerate() {
        let number = number as u64 + 1;
        masker.see(&Packet {
            number,
            time_ns: *time_ns,
            interface: 0,
            link: *link,
            wire_len: *wire_len,
            data,
        });
    }
    let mut kept = Stored::new();
    for (time_ns, link, wire_len, data) in packets {
        let mut data = data.clone();
        if masker.mask(&mut data) {
            kept.push((*time_ns, *link, *wire_len, data));
        }
    }
    (kept, masker.left_out)
}

fn file(packets: &Stored) -> Vec<u8> {
    let link = packets.first().map_or(spangap_wire::packet::LinkType::ETHERNET, |packet| packet.1);
    let origin = Origin { interface: "any", link, snap_bytes: 0, comment: "" };
    let mut writer = PcapngWriter::create(Vec::new(), &origin).expect("memory");
    for (time_ns, link, wire_len, data) in packets {
        let packet =
            Packet { number: 0, time_ns: *time_ns, interface: 0, link: *link, wire_len: *wire_len, data };
        writer.packet(&packet).expect("memory");
    }
    writer.finish(0, packets.len() as u64, 0).expect("memory")
}

fn dissected(files: [Vec<u8>; 2]) -> Dissection {
    let settings = Settings { slowest: 100_000, ..Settings::default() };
    let open = |bytes| Capture::from_reader("made".into(), Box::new(Cursor::new(bytes))).expect("a capture");
    dissect(files.map(open).into(), &settings, &mut |_| ControlFlow::Continue(()))
        .expect("the captures can be read")
}

/// Every call with its exchanges, legs and findings, as text.
fn calls(dissection: &Dissection) -> Vec<String> {
    dissection.calls.iter().map(|call| format!("{call:?}")).collect()
}

#[test]
fn every_call_of_every_fixture_stays_what_it_was() {
    let mut compared = 0;
    let mut wrong = Vec::new();
    for (name, ends) in fixtures() {
        let whole = ends.map(|end| packets(&end));
        // A fragment has no TCP header that would say where to mask.
        let both = [masked(&whole[0]), masked(&whole[1])];
        if both.iter().any(|(kept, _)| kept.is_empty()) {
            continue;
        }
        let kept = |all: &Stored, kept: &Stored| -> Stored {
            let times: std::collections::HashSet<_> = kept.iter().map(|packet| packet.0).collect();
            all.iter().filter(|packet| times.contains(&packet.0)).cloned().collect()
        };
        let before = dissected([file(&kept(&whole[0], &both[0].0)), file(&kept(&whole[1], &both[1].0))]);
        let after = dissected([file(&both[0].0), file(&both[1].0)]);
        let (before, after) = (calls(&before), calls(&after));
        compared += before.len();
        if before != after {
            let differ = before.iter().zip(&after).find(|(before, after)| before != after);
            wrong.push(format!("{name}: {} calls, {} after; {differ:?}", before.len(), after.len()));
        }
    }
    assert!(wrong.is_empty(), "{} fixtures differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 8_000, "{compared} calls");
}

/// HAProxy passes connections on, with headers of both versions, to HTTP/1 and gRPC.
#[test]
fn calls_behind_the_header_of_a_proxy_stay_what_they_were() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/strangers/proxy-headers.pcapng.zst");
    let whole = packets(&path);
    let (kept, left_out) = masked(&whole);
    assert_eq!((kept.len(), left_out), (whole.len(), 0));
    let before = calls(&dissected([file(&whole), file(&whole)]));
    let after = calls(&dissected([file(&kept), file(&kept)]));
    assert!(before.len() >= 40 && before == after, "{} calls, {} after", before.len(), after.len());
    // The client's address, as the headers say it.
    let has = |packets: &Stored, part: &[u8]| {
        packets.iter().any(|packet| {
            packet.3.get(40..).is_some_and(|rest| rest.windows(part.len()).any(|at| at == part))
        })
    };
    assert!(has(&whole, b"PROXY TCP4 10.77.1.1 ") && has(&kept, b"PROXY TCP4 00.00.0.0 "));
}

const SECRET: &[u8] = b"hunter2-Tr0ub4dor&3";

/// An HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A literal with a name of its own, indexed or not, Huffman-coded or not.
fn literal(first: u8, name: &[u8], value: &[u8], coded: bool) -> Vec<u8> {
    let mut field = vec![first];
    for text in [name, value] {
        let code = if coded { huffman::encode(text) } else { text.to_vec() };
        assert!(code.len() < 127);
        field.push(code.len() as u8 | u8::from(coded) << 7);
        field.extend(code);
    }
    field
}

const TRACEPARENT: &[u8] = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Both directions of a connection that carries the secret in every possible place.
fn http2_with_secrets() -> [Vec<u8>; 2] {
    let mut client = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    client.extend(frame(4, 0, 0, &[]));
    let mut server = frame(4, 0, 0, &[]);
    for (call, coded) in [(0u32, false), (1, true), (2, false), (3, true)] {
        let stream = 2 * call + 1;
        let query = [b"/shop.v1.Cart/Add?key=", SECRET].concat();
        let inserted = if call < 2 { 0x40 } else { 0x10 };
        let block = [
            vec![0x83, 0x86],
            literal(inserted, b":path", &query, coded),
            literal(inserted, b"content-type", b"application/grpc", coded),
            literal(inserted, b"authorization", SECRET, coded),
            literal(0x40, b"cookie", &[b"session=", SECRET].concat(), coded),
            literal(0, b"traceparent", TRACEPARENT, coded),
            literal(0, b"grpc-timeout", SECRET, coded),
            literal(0, b"x-request-id", &[SECRET, b"\x01"].concat(), coded),
        ]
        .concat();
        // In two parts, the first one with padding that contains the secret.
        let (begin, rest) = block.split_at(block.len() / 2);
        client.extend(frame(1, 0x8, stream, &[&[SECRET.len() as u8], begin, SECRET].concat()));
        client.extend(frame(9, 0x4, stream, rest));
        let message = [&[0, 0, 0, 0, SECRET.len() as u8], SECRET].concat();
        client.extend(frame(0, 1, stream, &message));
        client.extend(frame(6, 0, 0, &SECRET[..8]));
        let head = [
            vec![0x88],
            literal(0x40, b"content-type", b"application/grpc", coded),
            literal(0x40, b"set-cookie", SECRET, coded),
        ]
        .concat();
        server.extend(frame(1, 4, stream, &head));
        server.extend(frame(0, 0x8, stream, &[&[SECRET.len() as u8], &message[..], SECRET].concat()));
        let trailers =
            [literal(0, b"grpc-status", b"13", coded), literal(0, b"grpc-message", SECRET, coded)].concat();
        server.extend(frame(1, 5, stream, &trailers));
        server.extend(frame(0xbe, 0, 0, SECRET));
    }
    server.extend(frame(7, 0, 0, &[&[0; 8][..], SECRET].concat()));
    [client, server]
}

fn http1_with_secrets() -> [Vec<u8>; 2] {
    let text = |pieces: &[&[u8]]| pieces.concat();
    let length = SECRET.len().to_string();
    let client = text(&[
        b"GET /cart?key=",
        SECRET,
        b" HTTP/1.1\r\nHost: ",
        SECRET,
        b"\r\nAuthorization: Bearer ",
        SECRET,
        b"\r\n folded: ",
        SECRET,
        b"\r\nCookie:",
        SECRET,
        b"\r\ntraceparent: ",
        TRACEPARENT,
        b"\r\n\r\n",
        b"POST /cart HTTP/1.1\r\nContent-Length: ",
        length.as_bytes(),
        b"\r\n\r\n",
        SECRET,
        b"HEAD http://user:",
        SECRET,
        b"@host/ HTTP/1.1\r\nno-colon-",
        SECRET,
        b"\r\n\r\n",
        b"POST /chunks HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n13;ext=",
        SECRET,
        b"\r\n",
        SECRET,
        b"\r\n0\r\nTrailer: ",
        SECRET,
        b"\r\n\r\n",
    ]);
    let server = text(&[
        b"HTTP/1.1 200 ",
        SECRET,
        b"\r\nSet-Cookie: ",
        SECRET,
        b"\r\nContent-Length: ",
        length.as_bytes(),
        b"\r\n\r\n",
        SECRET,
        b"HTTP/1.1 204 No\r\nLocation: /?",
        SECRET,
        b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 7000\r\n\r\n",
        b"HTTP/1.1 500 OK\r\nServer: ",
        SECRET,
        b"\r\n\r\nuntil it ends ",
        SECRET,
    ]);
    [client, server]
}

/// Both behind the header of a proxy, of either version.
fn behind_a_proxy(binary: bool) -> [Vec<u8>; 2] {
    let length = [SECRET.len() as u8];
    let (header, [client, server]) = match binary {
        false => ([b"PROXY UNKNOWN ", SECRET, b"\r\n"].concat(), http1_with_secrets()),
        true => ([b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0", &length[..], SECRET].concat(), http2_with_secrets()),
    };
    [[header, client].concat(), server]
}

/// A segment of TCP over IPv4, without a link header. `back`: from the server.
fn segment(back: bool, seq: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((40 + payload.len() as u16).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    let ends = [([10, 0, 0, 1], 40_000u16), ([10, 0, 0, 2], 50_051)];
    let (from, to) = if back { (ends[1], ends[0]) } else { (ends[0], ends[1]) };
    packet.extend(from.0);
    packet.extend(to.0);
    packet.extend(from.1.to_be_bytes());
    packet.extend(to.1.to_be_bytes());
    packet.extend(seq.to_be_bytes());
    packet.extend([0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    packet.extend(payload);
    packet
}

/// How a conversation reached the tap.
#[derive(Clone, Debug)]
struct Way {
    /// Lengths of the segments, repeated cyclically.
    lengths: Vec<usize>,
    /// Segments before the first one that the tap saw; zero if the SYN was seen.
    joined_at: usize,
    /// One segment in this many is missed, and another one is seen twice.
    lost: usize,
    twice: usize,
}

fn conversation(both: &[Vec<u8>; 2], way: &Way) -> Stored {
    let mut packets = Vec::new();
    let link = spangap_wire::packet::LinkType::RAW;
    let mut put = |time: usize, data: Vec<u8>| {
        packets.push((1_700_000_000_000_000_000 + 1000 * time as i64, link, data.len() as u32, data))
    };
    let mut time = 0;
    if way.joined_at == 0 {
        put(0, segment(false, 999, 0x02, &[]));
        put(1, segment(true, 4_294_967_000, 0x12, &[]));
    }
    for (side, bytes) in both.iter().enumerate() {
        let (mut at, mut number) = (0, 0);
        let base = if side == 1 { 4_294_967_001u32 } else { 1000 };
        while at < bytes.len() {
            let len = way.lengths[number % way.lengths.len()].min(bytes.len() - at);
            number += 1;
            time += 2;
            let data = segment(side == 1, base.wrapping_add(at as u32), 0x18, &bytes[at..at + len]);
            at += len;
            if number <= way.joined_at || number % way.lost == 0 {
                continue;
            }
            put(time, data.clone());
            if number % way.twice == 0 {
                put(time + 1, data);
            }
        }
    }
    packets
}

/// Whether it contains the secret, in plain text or in HPACK's Huffman code.
fn has_secret(bytes: &[u8]) -> bool {
    let bits = |bytes: &[u8]| -> Vec<u8> {
        bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect()
    };
    // Even eight consecutive letters of it are too many.
    SECRET.windows(8).any(|part| {
        let code = bits(&huffman::encode(part));
        let length = part.iter().map(|byte| huffman::bits(*byte)).sum::<usize>();
        let all = bits(bytes);
        bytes.windows(8).any(|window| window == part)
            || all.windows(length).any(|window| window == &code[..length])
    })
}

fn ways() -> impl Strategy<Value = Way> {
    (prop::collection::vec(1usize..300, 1..6), 0usize..4, 3usize..200, 2usize..9)
        .prop_map(|(lengths, joined_at, lost, twice)| Way { lengths, joined_at, lost, twice })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn no_secret_is_left_however_it_is_cut(way in ways(), which in 0usize..5) {
        let both = match which {
            0 => http2_with_secrets(),
            1 => http1_with_secrets(),
            2 | 3 => behind_a_proxy(which == 3),
            _ => [[b"*2\r\n$3\r\nGET\r\n$19\r\n", SECRET, b"\r\n"].concat(), [b"$19\r\n", SECRET, b"\r\n"].concat()],
        };
        let before = conversation(&both, &way);
        let (after, left_out) = masked(&before);
        prop_assert_eq!((after.len(), left_out), (before.len(), 0));
        for side in [0, 1] {
            let from = [10, 0, 0, 1 + side];
            let payload: Vec<u8> = after.iter().filter(|packet| packet.3[12..16] == from).flat_map(|packet| packet.3[40..].to_vec()).collect();
            prop_assert!(!has_secret(&payload), "{:?} of side {side}: {}", way, String::from_utf8_lossy(&payload));
        }
        for (one, other) in before.iter().zip(&after) {
            prop_assert_eq!((one.3.len(), &one.3[..40]), (other.3.len(), &other.3[..40]));
        }
    }

    #[test]
    fn any_bytes_are_masked_without_a_panic(client in prop::collection::vec(any::<u8>(), 0..400), way in ways(), begin in 0usize..3) {
        let begin: &[u8] = [&b""[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"][begin];
        let both = [[begin, &client].concat(), client];
        let before = conversation(&both, &way);
        prop_assert_eq!(masked(&before).0.len(), before.len());
    }
}

/// One changed byte can change names and lengths, and turn a body and what follows it into a head. Each byte
/// is changed once.
#[test]
fn no_secret_of_http1_is_left_whichever_byte_is_another_one() {
    let way = Way { lengths: vec![700], joined_at: 0, lost: 1000, twice: 1000 };
    let both = http1_with_secrets();
    let mut kept = Vec::new();
    for side in [0, 1] {
        for place in 0..both[side].len() {
            let mut changed = both.clone();
            changed[side][place] ^= [1, 2, 4, 8, 16, 32, 64, 128, 255][place % 9];
            let before = conversation(&changed, &way);
            let (after, _) = masked(&before);
            assert!(before.iter().zip(&after).all(|(one, other)| one.3.len() == other.3.len()));
            let payload: Vec<u8> = after.iter().flat_map(|packet| packet.3[40..].to_vec()).collect();
            if SECRET.windows(8).any(|part| payload.windows(8).any(|window| window == part)) {
                kept.push((side, both[side][place] as char, place));
            }
        }
    }
    // Without its question mark, a query is part of the path.
    assert_eq!(kept, [(0, '?', 9)], "side and byte");
}

#[test]
fn the_secret_would_be_found_and_what_is_needed_is() {
    let way = Way { lengths: vec![1400], joined_at: 0, lost: 1000, twice: 1000 };
    for (both, needed) in [
        (
            http2_with_secrets(),
            &[&b"/shop.v1.Cart/Add?"[..], TRACEPARENT, b"grpc-message", b"application/grpc"][..],
        ),
        (
            http1_with_secrets(),
            &[&b"GET /cart?"[..], TRACEPARENT, b"POST /chunks HTTP/1.1\r\n", b"HTTP/1.1 500 "][..],
        ),
    ] {
        let before = conversation(&both, &way);
        let text =
            |packets: &Stored| packets.iter().flat_map(|packet| packet.3[40..].to_vec()).collect::<Vec<u8>>();
        assert!(has_secret(&text(&before)));
        let after = text(&masked(&before).0);
        for needed in needed {
            // What follows the query is not part of it.
            let needed = needed.strip_suffix(b"?").unwrap_or(needed);
            assert!(
                after.windows(needed.len()).any(|window| window == needed),
                "{} is gone",
                String::from_utf8_lossy(needed)
            );
        }
    }
}

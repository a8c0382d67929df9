//! Metadata in pcapng, compression, reading a second time.

use crate::cases::{BIG, LITTLE, all, ethernet_frames, records};
use crate::files::{self, Interface, Kind, Record};
use crate::frames::{self, Tcp};
use spangap_wire::source::{Capture, SourceError};
use std::io::{Cursor, Write};

/// Number, time, link, length, bytes of every packet.
pub type Packets = Vec<(u64, i64, u16, u32, Vec<u8>)>;

pub fn rest(capture: &mut Capture) -> Packets {
    let mut packets = Vec::new();
    while let Some(packet) = capture.next() {
        packets.push((packet.number, packet.time_ns, packet.link.0, packet.wire_len, packet.data.to_vec()));
    }
    packets
}

pub fn read(bytes: &[u8]) -> (Packets, Capture) {
    let mut capture = Capture::from_bytes("a capture".into(), bytes.to_vec()).expect("a capture");
    (rest(&mut capture), capture)
}

fn small(count: u64) -> Vec<Record> {
    (0..count)
        .map(|at| Record::new(0, 1_700_000_000_000_000_000 + at * 1000, at.to_le_bytes().to_vec()))
        .collect()
}

#[test]
fn drops_are_the_last_totals_of_every_interface_and_section() {
    for order in [LITTLE, BIG] {
        let interfaces = [Interface::new(1, None), Interface::new(1, None)];
        let one = files::pcapng(order, &interfaces, &small(1));
        let (_, capture) = read(&one);
        assert_eq!(capture.reading().dropped, None, "nothing says whether packets were dropped");
        let mut file = one.clone();
        file.extend(files::statistics(order, 0, 1, 2));
        file.extend(files::statistics(order, 1, 0, 5));
        file.extend(files::statistics(order, 0, 10, 2));
        file.extend(&one);
        file.extend(files::statistics(order, 1, 100, 0));
        let (packets, capture) = read(&file);
        assert_eq!((packets.len(), capture.reading().dropped), (2, Some(12 + 5 + 100)));
    }
}

#[test]
fn drops_recorded_on_packets_count_without_totals() {
    let interfaces = [Interface::new(1, None)];
    let mut file = files::pcapng(LITTLE, &interfaces, &[]);
    let record = &small(1)[0];
    let option = [files::option(LITTLE, 4, &LITTLE.long(7)), vec![0; 4]].concat();
    file.extend(files::packet(LITTLE, &interfaces, record, &option));
    file.extend(files::old_packet(LITTLE, &interfaces, record, 2));
    file.extend(files::old_packet(LITTLE, &interfaces, record, u16::MAX));
    assert_eq!(read(&file).1.reading().dropped, Some(9));
    file.extend(files::statistics(LITTLE, 0, 9, 0));
    assert_eq!(read(&file).1.reading().dropped, Some(9));
}

#[test]
fn keys_are_delivered_as_lines() {
    let mut file = files::pcapng(BIG, &[Interface::new(1, None)], &[]);
    file.extend(files::secrets(BIG, b"CLIENT_RANDOM 01 02"));
    file.extend(files::secrets(BIG, b"CLIENT_RANDOM 03 04\n"));
    assert_eq!(read(&file).1.key_log(), b"CLIENT_RANDOM 01 02\nCLIENT_RANDOM 03 04\n");
}

#[test]
fn packets_without_a_time_are_counted_and_keep_their_number() {
    let interfaces = [Interface { snaplen: 96, ..Interface::new(1, None) }];
    let mut file = files::pcapng(LITTLE, &interfaces, &small(1));
    file.extend(files::simple_packet(LITTLE, b"no time"));
    file.extend(files::packet(LITTLE, &interfaces, &small(1)[0], &[]));
    let (packets, capture) = read(&file);
    assert_eq!(packets.iter().map(|packet| packet.0).collect::<Vec<_>>(), [1, 3]);
    let reading = capture.reading();
    assert_eq!((reading.packets, reading.without_time, reading.damaged_places), (2, 1, 0));
}

#[test]
fn the_coarsest_clock_is_the_resolution() {
    for (resolution, expected_ns) in
        [(None, 1000), (Some(0), 1_000_000_000), (Some(9), 1), (Some(12), 1), (Some(0x80 | 10), 976_563)]
    {
        let interfaces = [Interface::new(1, Some(9)), Interface::new(1, resolution)];
        let (_, capture) = read(&files::pcapng(LITTLE, &interfaces, &[]));
        assert_eq!(capture.reading().resolution_ns, expected_ns, "{resolution:?}");
    }
}

#[test]
fn clocks_finer_than_nanoseconds_are_exact() {
    let record = Record::new(0, 15_000_000_000 + 999_999_999, b"late".to_vec());
    for resolution in [12, 18, 0x80 | 60] {
        let interfaces = [Interface::new(1, Some(resolution))];
        let (packets, _) = read(&files::pcapng(LITTLE, &interfaces, std::slice::from_ref(&record)));
        assert_eq!(packets[0].1, 15_999_999_999, "{resolution}");
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("memory")
}

#[test]
fn compressed_files_of_several_parts_are_read_completely() {
    for (name, file) in all() {
        let (expected, plain) = read(&file);
        let (first, second) = file.split_at(file.len() / 3);
        for (suffix, stored) in [
            ("gzip", [gzip(first), gzip(second)].concat()),
            ("zstd", [&[0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9][..], &zstd(first), &zstd(second)].concat()),
        ] {
            let (packets, capture) = read(&stored);
            assert!(packets == expected, "{name}, {suffix}");
            let reading = capture.reading();
            assert_eq!(reading.format, format!("{}, {suffix}", plain.reading().format));
            assert_eq!(
                (reading.stored_bytes, reading.stored_total_bytes),
                (stored.len() as u64, Some(stored.len() as u64))
            );
            assert_eq!((reading.bytes, reading.damaged_places), (file.len() as u64, 0));
        }
    }
}

#[test]
fn a_truncated_compressed_file_gives_its_readable_part() {
    let file = files::pcap(LITTLE, Kind::Nanos, 1, &small(100_000));
    for stored in [gzip(&file), zstd(&file)] {
        let (packets, capture) = read(&stored[..stored.len() * 3 / 4]);
        assert!((1000..100_000).contains(&packets.len()), "{} packets", packets.len());
        let reading = capture.reading();
        assert!(
            reading.damage.iter().any(|damage| damage.what.contains("reading failed")),
            "{:?}",
            reading.damage
        );
        assert_eq!(reading.bytes, reading.packet_bytes + reading.overhead_bytes + reading.damaged_bytes);
    }
}

#[test]
fn a_capture_can_be_reopened_at_any_packet() {
    let folder = tempfile::tempdir().expect("a folder");
    let interfaces = [Interface::new(1, Some(9))];
    let two = Interface::new(101, Some(6));
    let mut file = files::pcapng(LITTLE, &interfaces, &small(5000));
    file.extend(files::pcapng(BIG, &[two, interfaces[0]], &small(5000)));
    file.extend(files::simple_packet(BIG, b"no time"));
    file.extend(
        small(20_000).iter().flat_map(|record| files::packet(BIG, &[two, interfaces[0]], record, &[])),
    );
    let plain = files::pcap(BIG, Kind::Micros, 1, &small(30_000));
    for stored in [file.clone(), plain, gzip(&file)] {
        let path = folder.path().join("capture");
        std::fs::write(&path, &stored).expect("a file");
        let mut capture = Capture::open(&path).expect("a capture");
        let all = rest(&mut capture);
        for number in [1, 2, 4095, 4096, 4097, 4098, 5000, 5001, 9999, 10_000, 10_001, 10_002, 20_000, 30_000]
        {
            let mut again = capture.bookmarks().reopen_at(number).expect("the same file");
            let from = all.partition_point(|packet| packet.0 < number);
            assert_eq!(again.next().map(|packet| packet.number), all.get(from).map(|packet| packet.0));
            assert!(rest(&mut again) == all[from + 1..], "from packet {number}");
            let reading = again.reading();
            assert_eq!(reading.bytes, reading.packet_bytes + reading.overhead_bytes + reading.damaged_bytes);
        }
        let mut beyond = capture.bookmarks().reopen_at(1_000_000).expect("the same file");
        assert!(beyond.next().is_none());
    }
}

#[test]
fn bookmarks_stay_few_in_a_large_capture() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("capture");
    let count = 4096 * 1024 + 10_000;
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).expect("a file"));
    file.write_all(&files::pcap(LITTLE, Kind::Nanos, 101, &[])).expect("a file");
    for at in 0..count {
        let words = [1_700_000_000, at % 1_000_000, 1, 1_u32];
        words.iter().for_each(|word| file.write_all(&word.to_le_bytes()).expect("a file"));
        file.write_all(&[at as u8]).expect("a file");
    }
    file.into_inner().expect("a file");
    let mut capture = Capture::open(&path).expect("a capture");
    while capture.next().is_some() {}
    assert_eq!(capture.reading().packets, u64::from(count));
    for number in [1, 8192, 8193, 2_000_000, count] {
        let mut again = capture.bookmarks().reopen_at(u64::from(number)).expect("the same file");
        let packet = again.next().expect("a packet");
        assert_eq!((packet.number, packet.data), (u64::from(number), &[(number - 1) as u8][..]));
        let bytes = again.reading().bytes;
        assert!(bytes <= 2 * 4096 * 17, "read {bytes} bytes to get to packet {number}");
    }
}

#[test]
fn a_pipe_is_read_incrementally_and_only_once() {
    let frames = ethernet_frames();
    let file = files::pcap(LITTLE, Kind::Micros, 1, &records(0, &frames));
    let mut capture = Capture::from_reader("-".into(), Box::new(Cursor::new(file))).expect("a capture");
    assert_eq!(rest(&mut capture).len(), frames.len());
    assert_eq!((capture.reading().stored_total_bytes, capture.reading().file.as_str()), (None, "-"));
    assert!(matches!(capture.bookmarks().reopen_at(1), Err(SourceError::NotTwice { .. })));
}

#[test]
fn packets_cut_by_the_snap_length_are_counted() {
    let frame = frames::ethernet(&[], &Tcp::default().ip());
    let record = Record::new(0, 1_700_000_000_000_000_000, frame);
    let file = files::pcap(LITTLE, Kind::Micros, 1, &[record.clone().cut(60), record]);
    assert_eq!(read(&file).1.reading().cut, 1);
}

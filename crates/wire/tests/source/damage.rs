//! Damaged files: intact parts are read, damage is recorded, and nothing panics, hangs or grows.

use crate::cases::{BIG, LITTLE, short};
use crate::features::read;
use crate::files::{self, Interface, Kind, Order, Record};
use spangap_wire::decode::Decoder;
use spangap_wire::source::{Capture, MAX_DAMAGE};

/// Reads everything and checks the consistency of the counts; returns packets and segments.
pub fn survive(bytes: &[u8]) -> (u64, u64) {
    let Ok(mut capture) = Capture::from_bytes("damaged".into(), bytes.to_vec()) else { return (0, 0) };
    let (mut decoder, mut packets, mut packet_bytes, mut segments, mut number) =
        (Decoder::default(), 0, 0, 0, 0);
    while let Some(packet) = capture.next() {
        assert!(packet.number > number && packet.wire_len as usize >= packet.data.len());
        number = packet.number;
        packets += 1;
        packet_bytes += packet.data.len() as u64;
        segments += u64::from(decoder.decode(&packet).is_ok_and(|segment| {
            assert!(segment.payload.len() <= segment.payload_len as usize);
            true
        }));
    }
    let reading = capture.reading();
    assert_eq!((reading.packets, reading.packet_bytes), (packets, packet_bytes));
    assert_eq!(reading.bytes, packet_bytes + reading.overhead_bytes + reading.damaged_bytes, "{reading:?}");
    assert_eq!(reading.damage.len() as u64, reading.damaged_places.min(MAX_DAMAGE as u64));
    if !reading.format.contains(", ") {
        assert_eq!(reading.bytes, bytes.len() as u64, "not read to the end");
    }
    (packets, segments)
}

fn record(at: u64) -> Record {
    Record::new(0, 1_700_000_000_000_000_000 + at * 1_000_000, vec![at as u8; 60 + at as usize % 7])
}

fn orders() -> [Order; 2] {
    [LITTLE, BIG]
}

type Writer<'a> = &'a dyn Fn(&[Record]) -> Vec<u8>;

/// The same ten packets in both formats, with the offset of each packet's record, and the end.
fn formats() -> Vec<(Vec<u8>, Vec<usize>)> {
    let records: Vec<_> = (0..10).map(record).collect();
    let mut files = Vec::new();
    for order in orders() {
        let writers: [Writer<'_>; 2] =
            [&|records| files::pcap(order, Kind::Micros, 1, records), &|records| {
                files::pcapng(order, &[Interface::new(1, None)], records)
            }];
        for writer in writers {
            let starts = (0..=records.len()).map(|count| writer(&records[..count]).len()).collect();
            files.push((writer(&records), starts));
        }
    }
    files
}

#[test]
fn packets_before_and_after_damage_are_read() {
    for (file, starts) in formats() {
        let (whole, _) = read(&file);
        // Garbage between two records.
        let mut damaged = file.clone();
        damaged.splice(starts[4]..starts[4], [0xee; 333]);
        let (packets, capture) = read(&damaged);
        assert!(packets == whole, "{:?}", capture.reading());
        let reading = capture.reading();
        assert_eq!((reading.damaged_places, reading.damaged_bytes), (1, 333), "{:?}", reading.damage);
        assert_eq!(reading.damage[0].offset, starts[4] as u64);
        // An impossible length in the header of the fourth record.
        let mut damaged = file.clone();
        let length = if reading.format == "pcap" { 8 } else { 4 };
        damaged[starts[3] + length..starts[3] + length + 4].fill(0xff);
        let (packets, capture) = read(&damaged);
        let before_and_after: Vec<_> =
            whole[..3].iter().chain(&whole[4..]).map(|packet| packet.4.clone()).collect();
        assert!(
            packets.iter().map(|packet| packet.4.clone()).eq(before_and_after),
            "{:?}",
            capture.reading()
        );
        let reading = capture.reading();
        assert_eq!((reading.damaged_places, reading.damaged_bytes), (1, (starts[4] - starts[3]) as u64));
        // Zeros at the end, as left by a file system after a crash.
        let mut damaged = file.clone();
        damaged.extend([0; 4096]);
        let (packets, capture) = read(&damaged);
        assert!(packets == whole);
        assert_eq!((capture.reading().damaged_places, capture.reading().damaged_bytes), (1, 4096));
    }
}

#[test]
fn a_file_cut_anywhere_gives_every_complete_packet() {
    for (file, starts) in formats() {
        for end in starts[0]..file.len() {
            let (packets, capture) = read(&file[..end]);
            let whole = starts.partition_point(|start| *start <= end) - 1;
            assert_eq!(packets.len(), whole, "{end} bytes of {}", file.len());
            let reading = capture.reading();
            assert_eq!(reading.damaged_bytes, (end - starts[whole]) as u64);
            assert_eq!(reading.damaged_places, u64::from(end != starts[whole]));
        }
    }
}

#[test]
fn messages_state_what_was_found_and_expected() {
    let file = files::pcap(LITTLE, Kind::Micros, 1, &[record(1), record(2)]);
    let (_, capture) = read(&file[..file.len() - 5]);
    let damage = &capture.reading().damage[0];
    assert_eq!(damage.offset, 24 + 16 + 61);
    assert_eq!(
        damage.what,
        "the file ends after 57 bytes of a packet; expected 62; 73 bytes to the end of the file were left out"
    );
}

#[test]
fn every_case_survives_being_cut_anywhere() {
    for file in short() {
        for end in (0..file.len().min(1000)).chain((1000..file.len()).step_by(13)) {
            survive(&file[..end]);
        }
    }
}

/// A generator with a seed: xorshift64*.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % sides.max(1)
    }
}

/// Changes a few places: bits, bytes, lengths, pieces removed, duplicated or moved.
pub fn mutate(bytes: &mut Vec<u8>, dice: &mut Dice) {
    for _ in 0..=dice.roll(6) {
        let at = dice.roll(bytes.len());
        let len = dice.roll(40).min(bytes.len() - at);
        match dice.roll(7) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << dice.roll(8),
            1 => bytes[at..at + len].fill([0, 0xff, 0x7f, 0x80][dice.roll(4)]),
            2 => drop(bytes.drain(at..at + len)),
            3 => {
                let piece = bytes[at..at + len].to_vec();
                let to = dice.roll(bytes.len() + 1);
                bytes.splice(to..to, piece);
            }
            4 if bytes.len() - at >= 4 => {
                let word = [0, 1, 0xffff, 0x00ff_ffff, 0x0100_0000, 0x7fff_ffff, u32::MAX][dice.roll(7)];
                let word = if dice.roll(2) == 0 { word.to_be() } else { word.to_le() };
                bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
            }
            5 => bytes.truncate(bytes.len() - dice.roll(bytes.len() / 2 + 1)),
            _ => {
                let garbage: Vec<u8> = (0..len).map(|_| dice.roll(256) as u8).collect();
                bytes.splice(at..at, garbage);
            }
        }
    }
}

#[test]
fn mutated_files_are_survived() {
    let mut bases = short();
    bases.extend(formats().into_iter().map(|(file, _)| file));
    let (mut dice, mut packets, mut segments) = (Dice(0x5eed), 0, 0);
    for case in 0..40_000 {
        let mut bytes = bases[case % bases.len()].clone();
        mutate(&mut bytes, &mut dice);
        let (more_packets, more_segments) = survive(&bytes);
        packets += more_packets;
        segments += more_segments;
    }
    println!("{packets} packets, {segments} segments in 40000 mutated files");
    assert!(segments > 40_000, "so much damage that nothing was read: {segments}");
}

#[test]
fn random_bytes_behind_a_header_are_survived() {
    let mut dice = Dice(0xf00d);
    for (file, _) in formats() {
        for _ in 0..300 {
            let mut bytes = file[..file.len() / 2].to_vec();
            bytes.extend((0..5000).map(|_| dice.roll(256) as u8));
            survive(&bytes);
        }
    }
}

#[test]
fn a_record_of_absurd_length_takes_no_memory() {
    // Would be gigabytes if it were believed.
    for length in [u32::MAX, 0x7fff_ffff, 0x1000_0000] {
        let mut file = files::pcap(LITTLE, Kind::Micros, 1, &[record(1)]);
        for word in [1_700_000_000, 1, length, length] {
            file.extend_from_slice(&LITTLE.word(word));
        }
        assert_eq!(survive(&file).0, 1);
        let mut file = files::pcapng(LITTLE, &[Interface::new(1, None)], &[record(1)]);
        file.extend(LITTLE.word(6));
        file.extend(LITTLE.word(length & !3));
        file.extend([0; 64]);
        assert_eq!(survive(&file).0, 1);
    }
}

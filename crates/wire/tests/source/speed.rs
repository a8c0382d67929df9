//! How fast it is, printed: `cargo test --release -p spangap-wire --test source -- --ignored --nocapture speed`.

use crate::cases::LITTLE;
use crate::files::{self, Interface, Kind, Record};
use crate::frames::{self, Tcp};
use spangap_wire::decode::Decoder;
use spangap_wire::source::Capture;
use std::time::Instant;

/// Nanoseconds per packet and gigabytes per second of reading alone, and with decoding; the best of some rounds.
fn measure(name: &str, file: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("capture");
    std::fs::write(&path, file).expect("a file");
    for decode in [false, true] {
        let mut best_ns = u128::MAX;
        let mut packets = 0;
        for _ in 0..7 {
            let mut capture = Capture::open(&path).expect("a capture");
            let (mut decoder, mut sum) = (Decoder::default(), 0_u64);
            let begun = Instant::now();
            while let Some(packet) = capture.next() {
                if !decode {
                    sum += packet.data.len() as u64;
                } else if let Ok(segment) = decoder.decode(&packet) {
                    sum += u64::from(segment.seq)
                        + segment.payload.len() as u64
                        + u64::from(segment.source.port);
                }
            }
            best_ns = best_ns.min(begun.elapsed().as_nanos());
            packets = capture.reading().packets;
            assert!(std::hint::black_box(sum) > 0);
        }
        let each_ns = best_ns as f64 / packets as f64;
        let rate = file.len() as f64 / best_ns as f64;
        let what = if decode { "read and decoded" } else { "read" };
        println!("{name}, {what}: {each_ns:.1} ns per packet, {rate:.2} GB/s");
    }
}

#[test]
#[ignore = "a measurement, not a check"]
fn speed() {
    let records = |payload: usize, count: u64| {
        let record = |at: u64| {
            let tcp = Tcp { seq: at as u32, payload: vec![7; payload], ..Tcp::default() };
            Record::new(0, 1_700_000_000_000_000_000 + at * 1000, frames::ethernet(&[], &tcp.ip()))
        };
        (0..count).map(record).collect::<Vec<_>>()
    };
    for (size, payload, count) in
        [("small", 60, 1_000_000), ("large", 1448, 300_000), ("super", 30_000, 20_000)]
    {
        let records = records(payload, count);
        measure(&format!("{size} pcap"), &files::pcap(LITTLE, Kind::Nanos, 1, &records));
        measure(&format!("{size} pcapng"), &files::pcapng(LITTLE, &[Interface::new(1, Some(9))], &records));
    }
}

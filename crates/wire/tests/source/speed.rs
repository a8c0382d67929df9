//! How fast it is, printed: `cargo test --release -p spangap-wire --test source -- --ignored --nocapture speed`.

use crate::cases::LITTLE;
use crate::files::{self, Interface, Kind, Record};
use crate::frames::{self, Tcp};
use spangap_wire::decode::Decoder;
use spangap_wire::packet::{LinkType, Packet};
use spangap_wire::source::Capture;

/// CPU time of this thread, nanoseconds: what other programs do meanwhile is left out (proc(5), schedstat).
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}

/// Nanoseconds per packet and gigabytes per second of reading alone, and with decoding; the best of some rounds.
fn measure(name: &str, file: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("capture");
    std::fs::write(&path, file).expect("a file");
    for decode in [false, true] {
        let mut best_ns = u64::MAX;
        let mut packets = 0;
        for _ in 0..9 {
            let mut capture = Capture::open(&path).expect("a capture");
            let (mut decoder, mut sum) = (Decoder::default(), 0_u64);
            let begun_ns = cpu_ns();
            while let Some(packet) = capture.next() {
                if !decode {
                    sum += packet.data.len() as u64;
                } else if let Ok(segment) = decoder.decode(&packet) {
                    sum += u64::from(segment.seq)
                        + segment.payload.len() as u64
                        + u64::from(segment.source.port);
                }
            }
            best_ns = best_ns.min(cpu_ns() - begun_ns);
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

#[test]
#[ignore = "a measurement, not a check"]
fn speed_of_decoding() {
    let frame =
        |at: u32| frames::ethernet(&[], &Tcp { seq: at, payload: vec![7; 60], ..Tcp::default() }.ip());
    let frames: Vec<_> = (0..1000).map(frame).collect();
    let (mut decoder, mut best_ns, mut sum) = (Decoder::default(), u64::MAX, 0_u64);
    for _ in 0..100 {
        let begun_ns = cpu_ns();
        for _ in 0..100 {
            for (number, data) in frames.iter().enumerate() {
                let wire_len = data.len() as u32;
                let packet =
                    Packet { number: number as u64, time_ns: 1, link: LinkType::ETHERNET, wire_len, data };
                let segment = decoder.decode(std::hint::black_box(&packet));
                sum += std::hint::black_box(&segment).as_ref().map_or(0, |segment| u64::from(segment.seq));
            }
        }
        best_ns = best_ns.min(cpu_ns() - begun_ns);
    }
    assert!(sum > 0);
    println!("decoding alone: {:.1} ns per packet", best_ns as f64 / 100_000.0);
}

//! Real captures with changed bytes, processed by a whole tap: no panic, no endless loop, nothing goes backwards.

use spangap_wire::source::Capture;
use spangap_wire::tap::{Harvest, Known, Tap};
use std::path::Path;

const CASES: u64 = 20_000;
/// Length of the used beginning of a capture: some 30 packets.
const BYTES: usize = 6_000;

/// Seeded random numbers (Marsaglia's xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit.max(1)
    }
}

#[test]
fn captures_with_changed_bytes_are_survived() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures");
    let names = [
        "any-device.client.pcapng",
        "duplicated.server.pcapng",
        "go-mid-joined.client.pcapng",
        "rto-request.server.pcapng",
    ];
    let originals: Vec<Vec<u8>> = names
        .iter()
        .filter_map(|name| std::fs::read(folder.join(name)).ok())
        .map(|bytes| bytes[..bytes.len().min(BYTES)].to_vec())
        .collect();
    if originals.is_empty() {
        return println!("not run: fixtures/captures has none of {names:?}");
    }
    let mut segments = 0;
    for case in 1..=CASES {
        let mut random = Random(case.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut bytes = originals[random.below(originals.len())].clone();
        for _ in 0..=random.below(8) {
            let at = random.below(bytes.len());
            match random.below(3) {
                0 => bytes[at] = random.below(256) as u8,
                1 => bytes[at] ^= 1 << random.below(8),
                _ => bytes[at] = [0, 0xff, 0x80, 1][random.below(4)],
            }
        }
        let reader = Box::new(std::io::Cursor::new(bytes));
        let Ok(mut capture) = Capture::from_reader("changed".into(), reader) else { continue };
        let mut tap = Tap::default();
        while let Some(packet) = capture.next() {
            tap.packet(&packet);
        }
        tap.finish();
        let (mut known, mut harvest) = (Known::default(), Harvest::default());
        tap.harvest(&mut harvest);
        known.take(&mut harvest);
        segments += tap.counts().segments;
        for exchange in harvest.exchanges {
            assert!(exchange.request.first.ready_ns >= exchange.request.first.seen_ns, "case {case}");
            known.episodes_of(&exchange);
        }
    }
    assert!(segments > CASES, "most of them could be read: {segments}");
}

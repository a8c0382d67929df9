//! A capture as a tap with another clock would have written it.

use std::path::Path;

/// A wrong clock: off by `offset_ns` at `from_ns`, and by this many parts per million more from there on.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub from_ns: i64,
    pub offset_ns: i64,
    pub skew_ppm: i64,
}

impl Clock {
    /// How far it is off at a time of the right clock.
    pub fn off_ns(self, at_ns: i64) -> i64 {
        self.offset_ns + ((at_ns - self.from_ns) as i128 * self.skew_ppm as i128 / 1_000_000) as i64
    }
}

/// Gives every packet of a pcapng file the time that the clock would have shown. The file must be as dumpcap
/// writes it: this machine's byte order, in nanoseconds.
pub fn write(from: &Path, to: &Path, clock: Clock) {
    let stored = std::fs::read(from).expect("the capture");
    let mut bytes = if from.extension().is_some_and(|end| end == "zst") {
        zstd::decode_all(&stored[..]).expect("zstd")
    } else {
        stored
    };
    let word =
        |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    assert_eq!(word(&bytes, 8), 0x1a2b_3c4d, "a section of this machine's byte order");
    let (mut at, mut packets) = (0, 0);
    while at + 12 <= bytes.len() {
        let (kind, length) = (word(&bytes, at), word(&bytes, at + 4) as usize);
        // Interface description: if_tsresol is option 9, one byte, here 9 for nanoseconds.
        if kind == 1 {
            let options = &bytes[at + 16..at + length - 4];
            assert!(options.windows(5).any(|option| option == [9, 0, 1, 0, 9]), "nanoseconds");
        }
        // Enhanced packet block: the time follows the interface, upper half first.
        if kind == 6 {
            let time = i64::from(word(&bytes, at + 12)) << 32 | i64::from(word(&bytes, at + 16));
            let shown = time + clock.off_ns(time);
            bytes[at + 12..at + 16].copy_from_slice(&((shown >> 32) as u32).to_ne_bytes());
            bytes[at + 16..at + 20].copy_from_slice(&(shown as u32).to_ne_bytes());
            packets += 1;
        }
        at += length;
    }
    assert!(packets > 0 && at == bytes.len(), "{}: {packets} packets, {at} bytes", from.display());
    std::fs::write(to, bytes).expect("the rewritten capture");
}

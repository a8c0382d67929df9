#![no_main]

use libfuzzer_sys::fuzz_target;
use spangap_bench::raw::frame::{Head, MAX_HEAD_BYTES, Skipping};

/// Every frame of the stream and how it ended, if it arrives in pieces of `piece` bytes.
fn read(stream: &[u8], piece: usize) -> (Vec<Head>, Option<String>) {
    let (mut frames, mut heads, mut kept) = (Skipping::default(), Vec::new(), Vec::new());
    for piece in stream.chunks(piece) {
        kept.extend_from_slice(piece);
        let mut left = &kept[..];
        loop {
            match frames.next(&mut left) {
                Ok(Some((head, times))) => heads.extend((0..times).map(|_| head)),
                Ok(None) => break,
                Err(error) => return (heads, Some(error.to_string())),
            }
        }
        assert!(left.len() < MAX_HEAD_BYTES, "only the beginning of a head is left behind");
        kept = left.to_vec();
    }
    (heads, None)
}

fuzz_target!(|stream: &[u8]| {
    if let Ok(Some((head, head_bytes))) = Head::parse(stream) {
        let mut written = Vec::new();
        head.encode(&mut written);
        assert_eq!(written, stream[..head_bytes], "what is accepted is written the same");
    }
    let whole = read(stream, usize::MAX);
    for piece in [1, 7, 64] {
        assert_eq!(read(stream, piece), whole, "pieces of {piece} bytes");
    }
});

//! Any bytes as consecutive header blocks: decoding ends, stays within bounds, and does not depend on an
//! observer.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spangap_wire::app::Texts;
use spangap_wire::app::http2::hpack::{Decoder, plausible};

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let mut texts = Texts::default();
    let mut watched = Decoder::new(first & 1 == 0);
    let mut plain = Decoder::new(first & 1 == 0);
    for block in rest.split(|byte| *byte == 0xa5) {
        let mut fields = Vec::new();
        let seen = watched.decode(block, &mut texts, Some(&mut fields));
        let head = plain.decode(block, &mut texts, None);
        // An unwanted value is not decoded, so its errors go unnoticed.
        if let (Ok(seen), Ok(head)) = (&seen, &head) {
            assert_eq!(seen, head);
        } else {
            watched.forget();
            plain.forget();
        }
        if seen.is_ok() && !block.is_empty() {
            plausible(block);
        }
    }
    assert!(watched.memory_bytes() <= (2 << 20) + 8 * bytes.len());
});

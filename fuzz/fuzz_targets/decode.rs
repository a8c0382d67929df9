#![no_main]

use libfuzzer_sys::fuzz_target;
use spangap_wire::decode::Decoder;
use spangap_wire::packet::{LinkType, Packet};

// Packets one after the other, each after its length and a link type; fragments may form datagrams.
fuzz_target!(|bytes: &[u8]| {
    const LINKS: [u16; 9] = [0, 1, 12, 101, 108, 113, 228, 229, 276];
    let (mut decoder, mut left, mut number) = (Decoder::default(), bytes, 0);
    while let [len, link, more, rest @ ..] = left {
        let (data, after) = rest.split_at(rest.len().min(usize::from(*len)));
        left = after;
        number += 1;
        let link = LinkType(LINKS[usize::from(*link) % LINKS.len()]);
        let wire_len = data.len() as u32 + u32::from(*more);
        if let Ok(segment) = decoder.decode(&Packet { number, time_ns: number as i64, interface: 0, link, wire_len, data })
        {
            assert!(segment.payload.len() <= segment.payload_len as usize);
            assert!(usize::from(segment.options.sack_count) <= segment.options.sack.len());
            assert_eq!(segment.packet, number);
        }
    }
});

#![no_main]

use libfuzzer_sys::fuzz_target;
use spangap_wire::source::{Capture, MAX_DAMAGE};

// Whatever a capture contains, every byte is accounted for, and reading ends.
fuzz_target!(|bytes: &[u8]| {
    let Ok(mut capture) = Capture::from_bytes("input".into(), bytes.to_vec()) else { return };
    let (mut number, mut packets, mut packet_bytes) = (0, 0, 0);
    while let Some(packet) = capture.next() {
        assert!(packet.number > number && packet.wire_len as usize >= packet.data.len());
        number = packet.number;
        packets += 1;
        packet_bytes += packet.data.len() as u64;
    }
    let reading = capture.reading();
    assert_eq!((reading.packets, reading.packet_bytes), (packets, packet_bytes));
    assert_eq!(reading.bytes, packet_bytes + reading.overhead_bytes + reading.damaged_bytes);
    assert_eq!(reading.damage.len() as u64, reading.damaged_places.min(MAX_DAMAGE as u64));
});

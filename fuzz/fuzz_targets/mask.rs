#![no_main]

use libfuzzer_sys::fuzz_target;
use spangap_wire::mask::Masker;
use spangap_wire::source::Capture;

// Masks any bytes as a capture: packets keep their lengths, also when masked twice.
fuzz_target!(|bytes: &[u8]| {
    let Ok(mut capture) = Capture::from_bytes("input".into(), bytes.to_vec()) else { return };
    let mut masker = Masker::default();
    let mut packets = Vec::new();
    while let Some(packet) = capture.next() {
        masker.see(&packet);
        packets.push(packet.data.to_vec());
    }
    for mut packet in packets {
        let length = packet.len();
        masker.mask(&mut packet);
        assert_eq!(packet.len(), length);
    }
});

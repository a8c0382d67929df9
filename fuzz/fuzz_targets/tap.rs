//! Any bytes as a capture, through a whole tap: no panic, no endless loop, no memory beyond its bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spangap_wire::source::Capture;
use spangap_wire::tap::Tap;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut capture) = Capture::from_reader("fuzz".into(), Box::new(std::io::Cursor::new(bytes.to_vec()))) else {
        return;
    };
    let mut tap = Tap::default();
    let (mut exchanges, mut ended) = (Vec::new(), Vec::new());
    while let Some(packet) = capture.next() {
        tap.packet(&packet);
        tap.take_exchanges(&mut exchanges);
        tap.take_ended(&mut ended);
    }
    tap.finish();
    tap.take_exchanges(&mut exchanges);
    for exchange in &exchanges {
        assert!(exchange.request.first.ready_ns >= exchange.request.first.seen_ns);
        tap.episodes_of(exchange);
    }
    tap.connections();
});

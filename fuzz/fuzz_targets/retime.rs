#![no_main]

use libfuzzer_sys::fuzz_target;
use spangap_model::Clock;
use spangap_wire::source::Capture;
use spangap_wire::source::retime::retime;

const CLOCK: Clock = Clock { offset_ns: 30_000_000, skew_ppm: 50.0, since_unix_ns: 1_700_000_000_000_000_000 };

// Either a capture is refused, or the result has the same packets by the other clock, in units of their
// interface.
fuzz_target!(|bytes: &[u8]| {
    let mut moved = Vec::new();
    let Ok(packets) = retime("input", bytes, &mut moved, &CLOCK) else { return };
    assert_eq!(moved.len(), bytes.len());
    let read = |bytes: Vec<u8>| Capture::from_bytes("input".into(), bytes).expect("it begins like one");
    let (mut before, mut after) = (read(bytes.to_vec()), read(moved));
    let mut found = 0;
    loop {
        let (one, other) = (before.next(), after.next());
        let (Some(one), Some(other)) = (&one, &other) else {
            assert!(one.is_none() && other.is_none());
            break;
        };
        found += 1;
        assert_eq!((one.number, one.link, one.data), (other.number, other.link, other.data));
        let expected = CLOCK.at(one.time_ns).expect("it was accepted");
        let unit_ns = i64::from(before.reading().resolution_ns);
        assert!((other.time_ns - expected).abs() <= unit_ns, "{} is not {expected}", other.time_ns);
    }
    let whole = before.reading().damaged_places == 0;
    assert!(!whole || found == packets);
});

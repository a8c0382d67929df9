//! Any bytes as a host recording: no panic, no endless loop; everything readable comes before the error;
//! reading twice gives the same result.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spangap_host::recording::Recording;
use std::io::Cursor;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut recording) = Recording::from_reader("fuzz".into(), Cursor::new(bytes)) else { return };
    let mut first = Vec::new();
    let result = recording.read(&mut |event| first.push(*event));
    let mut events = first.iter();
    let again = recording.read(&mut |event| assert_eq!(Some(event), events.next()));
    assert_eq!(events.next(), None);
    assert_eq!(result.is_err(), again.is_err());
    for event in &first {
        if let Some((unix_ns, _)) = recording.unix_ns(event.time_ns) {
            recording.mono_ns(unix_ns);
        }
    }
});

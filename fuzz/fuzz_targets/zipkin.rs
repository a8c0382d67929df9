#![no_main]

use libfuzzer_sys::fuzz_target;
use spangap_fuzz::read;

fuzz_target!(|json: &[u8]| {
    read(&[b"[{", json].concat(), true);
    read(&[b"[[{", json].concat(), true);
});

#![no_main]

use libfuzzer_sys::fuzz_target;
use spangap_fuzz::read;

fuzz_target!(|json: &[u8]| {
    read(&[b"{\"data\":", json].concat(), true);
    read(&[b"{\"data\":[{\"spans\":[", json].concat(), true);
});

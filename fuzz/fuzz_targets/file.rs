#![no_main]

use libfuzzer_sys::fuzz_target;
use spangap_fuzz::read;

fuzz_target!(|bytes: &[u8]| {
    read(bytes, false);
    read(&[&(bytes.len() as u32).to_be_bytes()[..], bytes].concat(), false);
});

#![no_main]

use libfuzzer_sys::fuzz_target;
use spangap_fuzz::pieces;
use spangap_wire::app::http1::Http1;

fuzz_target!(|input: &[u8]| pieces(Http1::default(), input));

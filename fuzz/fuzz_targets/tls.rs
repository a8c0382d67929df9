#![no_main]

use libfuzzer_sys::fuzz_target;
use spangap_fuzz::pieces;
use spangap_wire::app::tls::Tls;

fuzz_target!(|input: &[u8]| pieces(Tls::within(1, 0), input));

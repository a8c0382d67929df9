#![no_main]

use libfuzzer_sys::fuzz_target;
use spangap_fuzz::pieces;
use spangap_wire::app::conversation::Conversation;

fuzz_target!(|input: &[u8]| pieces(Conversation::default(), input));

#![no_main]

use libfuzzer_sys::fuzz_target;
use spangap_bench::stream_limit::{limit_in, settings_length};

fuzz_target!(|bytes: &[u8]| {
    let Some((header, rest)) = bytes.split_first_chunk::<9>() else { return };
    if let Ok(length) = settings_length(header) {
        assert!(length <= 16_384 && length % 6 == 0);
        if let Some(settings) = rest.get(..length) {
            let limit = limit_in(settings);
            let is_setting = |value: u32| {
                settings.chunks_exact(6).any(|setting| setting[..2] == [0, 3] && setting[2..] == value.to_be_bytes())
            };
            assert!(limit.is_none_or(is_setting));
        }
    }
});

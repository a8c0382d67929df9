//! Figures for human readers. Durations are in `model::duration`.

use spangap_model::count::grouped;
use spangap_model::duration::format_ns;

/// `1 call`, `1,204 calls`, `2 queries`, `3 more processes`: the last word of the noun has the plural.
pub fn counted(number: impl TryInto<u64>, noun: &str) -> String {
    // Fails only for negative or 128-bit numbers, which are not counts.
    match number.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {noun}"),
        number => format!("{} {}", grouped(number), plural(noun)),
    }
}

/// `calls` from `call`, for regular nouns.
pub fn plural(noun: &str) -> String {
    let sibilant = ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end));
    match noun.strip_suffix('y') {
        Some(head) if !head.ends_with(['a', 'e', 'o', 'u']) => format!("{head}ies"),
        _ if sibilant => format!("{noun}es"),
        _ => format!("{noun}s"),
    }
}

/// Nanoseconds, possibly negative.
pub fn signed(ns: i64) -> String {
    format!("{}{}", if ns < 0 { "-" } else { "" }, format_ns(ns.unsigned_abs()))
}

/// A figure with its bound: `1.20 ms ± 30.0 us`; omits a bound that would not change the digits shown.
pub fn bounded(ns: i64, bound_ns: u64) -> String {
    match bound_ns {
        bound if bound == 0 || bound.saturating_mul(2_000) <= ns.unsigned_abs() => signed(ns),
        _ => format!("{} ± {}", signed(ns), format_ns(bound_ns)),
    }
}

/// A share from 0 to 1 with a precision of a tenth of a percent: `0.0 %`, `<0.1 %`, `3.3 %`, `97 %`. A non-zero
/// share never reads as zero.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        share if share.abs() >= 9.95 => format!("{share:.0} %"),
        share if share.abs() >= 0.05 || share == 0.0 => format!("{share:.1} %"),
        _ => "<0.1 %".into(),
    }
}

/// A share of something rare but important, such as lost packets: `0 %`, `<0.01 %`, `0.02 %`, `3.3 %`, `97 %`.
pub fn small_percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".into(),
        share if share < 0.01 => "<0.01 %".into(),
        share if share < 0.095 => format!("{share:.2} %"),
        _ => percent(share),
    }
}

/// A share in three columns without the sign, for table cells: `0`, `<1`, `12`.
pub fn whole_percent(share: f64) -> String {
    match share * 100.0 {
        none if none <= 0.0 => "0".into(),
        little if little < 0.5 => "<1".into(),
        some => format!("{some:.0}"),
    }
}

/// A part of a whole in the format of [`percent`]; empty if the whole is 0.
pub fn percent_of(part: impl Into<i128>, whole: u64) -> String {
    if whole == 0 { String::new() } else { percent(part.into() as f64 / whole as f64) }
}

/// A rate in at most five columns: `0`, `0.2`, `812`, `12.3k`, `1.2M`.
pub fn rate(per_s: f64) -> String {
    match per_s {
        none if none <= 0.0 => "0".into(),
        little if little < 0.095 => "<0.1".into(),
        some if some < 9.95 => format!("{some:.1}"),
        some if some < 9_999.5 => format!("{some:.0}"),
        many if many < 99_950.0 => format!("{:.1}k", many / 1e3),
        many if many < 999_500.0 => format!("{:.0}k", many / 1e3),
        many if many < 99.5e6 => format!("{:.1}M", many / 1e6),
        many => format!("{:.0}M", many / 1e6),
    }
}

/// Bytes on a link, `43 B`, `1.2 MB`: decimal, like link rates.
pub fn bytes_on_link(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} B"),
        10_000..=9_999_999 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// Bytes in a buffer, `9999`, `64.0 KiB`: binary, like buffer sizes; three significant digits.
pub fn bytes_in_memory(bytes: u64) -> String {
    let (value, unit) = match bytes {
        0..=9_999 => return bytes.to_string(),
        10_000..=1_023_999 => (bytes as f64 / 1024.0, "KiB"),
        1_024_000..=1_048_575_999 => (bytes as f64 / 1_048_576.0, "MiB"),
        _ => (bytes as f64 / 1_073_741_824.0, "GiB"),
    };
    match value {
        value if value < 9.995 => format!("{value:.2} {unit}"),
        value if value < 99.95 => format!("{value:.1} {unit}"),
        value => format!("{value:.0} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nouns_have_their_plural() {
        let of_two = ["call", "day", "query", "process", "stretch", "more run", "CPU"];
        assert_eq!(
            of_two.map(|noun| counted(2_u64, noun)),
            ["2 calls", "2 days", "2 queries", "2 processes", "2 stretches", "2 more runs", "2 CPUs"]
        );
        assert_eq!([counted(1_usize, "call"), counted(0_u32, "call")], ["1 call", "0 calls"]);
        assert_eq!(counted(1_234_567_u64, "call"), "1,234,567 calls");
    }

    #[test]
    fn times_and_their_bounds() {
        assert_eq!(signed(-1_500), "-1.50 us");
        assert_eq!(bounded(40_000_000, 0), "40.0 ms");
        assert_eq!(bounded(46_100_000, 23_050), "46.1 ms");
        assert_eq!(bounded(46_100_000, 23_051), "46.1 ms ± 23.1 us");
        assert_eq!(bounded(52_000, 3_000), "52.0 us ± 3.00 us");
    }

    #[test]
    fn shares() {
        let shares = [0.0, 0.000_01, 0.000_2, 0.001, 0.033, 0.97, -0.2];
        assert_eq!(shares.map(percent), ["0.0 %", "<0.1 %", "<0.1 %", "0.1 %", "3.3 %", "97 %", "-20 %"]);
        assert_eq!(
            shares.map(|share| small_percent(share.abs())),
            ["0 %", "<0.01 %", "0.02 %", "0.1 %", "3.3 %", "97 %", "20 %"]
        );
        assert_eq!([0.0, 0.001, 0.124, 1.0].map(whole_percent), ["0", "<1", "12", "100"]);
        assert_eq!(
            [percent_of(97_u64, 100), percent_of(-20_i64, 100), percent_of(1_u64, 0)],
            ["97 %", "-20 %", ""]
        );
    }

    #[test]
    fn rates_and_bytes() {
        assert_eq!(
            [0.0, 0.01, 0.2, 812.4, 12_345.0, 1_204_000.0].map(rate),
            ["0", "<0.1", "0.2", "812", "12.3k", "1.2M"]
        );
        assert_eq!([43, 1_500_000, 12_000_000].map(bytes_on_link), ["43 B", "1500.0 kB", "12.0 MB"]);
        assert_eq!([9_999, 65_536, 4 << 20].map(bytes_in_memory), ["9999", "64.0 KiB", "4.00 MiB"]);
    }

    proptest! {
        #[test]
        fn rates_fit_into_five_columns(per_s in 0.0_f64..9e8) {
            prop_assert!(rate(per_s).len() <= 5, "{}", rate(per_s));
        }
    }
}

//! Points in time in UTC, and coarse durations.

use jiff::Timestamp;
use spangap_model::duration::SECOND;

/// A time in a format of `strftime`.
fn formatted(unix_ns: i64, format: &str) -> String {
    let moment = Timestamp::from_nanosecond(unix_ns.into());
    // 64 bits of nanoseconds end in the year 2262, a timestamp in the year 9999.
    moment.expect("64 bits of nanoseconds are a timestamp").strftime(format).to_string()
}

/// `2026-02-28`, UTC.
pub fn date(unix_ns: i64) -> String {
    formatted(unix_ns, "%Y-%m-%d")
}

/// `16:32:09.123456`, UTC, cut to microseconds.
pub fn time_of_day(unix_ns: i64) -> String {
    formatted(unix_ns, "%H:%M:%S%.6f")
}

/// `2026-02-28 16:32:09`, UTC.
pub fn date_and_second(unix_ns: i64) -> String {
    formatted(unix_ns, "%Y-%m-%d %H:%M:%S")
}

/// `40 s`, `3 min`, `5 h`, `2 days`: a duration to one figure.
pub fn span(ns: u64) -> String {
    match ns / SECOND {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7_199 => format!("{} min", seconds / 60),
        seconds @ 7_200..=172_799 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// `3 min ago`.
pub fn ago(then_unix_ns: u64, now_unix_ns: u64) -> String {
    match now_unix_ns.checked_sub(then_unix_ns) {
        // The clock was set back in between.
        None => "in the future, by this clock,".into(),
        Some(ns) => format!("{} ago", span(ns)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc() {
        assert_eq!((date(0).as_str(), time_of_day(0).as_str()), ("1970-01-01", "00:00:00.000000"));
        // `date -u -d @1709251199` says Thu Feb 29 23:59:59 UTC 2024.
        let leap = 1_709_251_199_123_456_789;
        assert_eq!((date(leap).as_str(), time_of_day(leap).as_str()), ("2024-02-29", "23:59:59.123456"));
        assert_eq!(date_and_second(leap), "2024-02-29 23:59:59");
        assert_eq!((date(-1).as_str(), time_of_day(-1).as_str()), ("1969-12-31", "23:59:59.999999"));
        // `date -u -d @4107542400` says Mon Mar 1 2100: no leap year.
        assert_eq!(date((4_107_542_400 - 1) * SECOND as i64), "2100-02-28");
        assert_eq!([i64::MIN, i64::MAX].map(date), ["1677-09-21", "2262-04-11"]);
    }

    #[test]
    fn long_times_are_one_figure() {
        assert_eq!([119, 120, 7_200, 172_800].map(|s| span(s * SECOND)), ["119 s", "2 min", "2 h", "2 days"]);
        assert_eq!(ago(SECOND, 41 * SECOND), "40 s ago");
        assert_eq!(ago(SECOND + 1, SECOND), "in the future, by this clock,");
    }
}

//! Figures and names as people read them.

use spangap_model::count::grouped;
use spangap_model::duration::{SECOND, format_ns};
use spangap_model::{Leg, Legs, Side, WaitReason};

/// `1 call`, `2 calls`.
pub(super) fn plural(count: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// Nanoseconds that may be below zero.
pub(super) fn signed(ns: i64) -> String {
    format!("{}{}", if ns < 0 { "-" } else { "" }, format_ns(ns.unsigned_abs()))
}

/// A figure with its bound: `1.20 ms ± 30.0 us`; a bound that would not change the digits shown is left out.
pub(super) fn bounded(ns: i64, bound_ns: u64) -> String {
    match bound_ns {
        bound if bound == 0 || bound.saturating_mul(2_000) <= ns.unsigned_abs() => signed(ns),
        _ => format!("{} ± {}", signed(ns), format_ns(bound_ns)),
    }
}

/// `43 B`, `1.2 MB`: decimal, as link rates are.
pub(super) fn bytes(count: u64) -> String {
    match count {
        0..=9_999 => format!("{count} B"),
        10_000..=9_999_999 => format!("{:.1} kB", count as f64 / 1e3),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}

/// A share of a whole in per cent; empty when there is no whole.
pub(super) fn percent(part: i64, whole: u64) -> String {
    if whole == 0 {
        return String::new();
    }
    let share = 100.0 * part as f64 / whole as f64;
    match share {
        share if share.abs() >= 9.95 => format!("{share:.0} %"),
        share if share.abs() >= 0.05 || part == 0 => format!("{share:.1} %"),
        _ => "<0.1 %".into(),
    }
}

/// What a host did in a part of a leg, in words: `could run, waited behind stress (pid 812)`.
pub(super) fn part_words(part: &super::HostPartReport) -> String {
    let by = |word: &str| part.behind.as_ref().map_or(String::new(), |behind| format!(" {word} {behind}"));
    match part.doing {
        "running" => "running".into(),
        "interrupted" => format!("interrupted{}", by("by")),
        "runnable" => format!("could run, waited{}", by("behind")),
        "throttled" => "out of CPU quota".into(),
        "stopped" => "stopped".into(),
        "blocked" => {
            let reason = WaitReason::ALL.into_iter().find(|reason| Some(reason.name()) == part.waited_for);
            let what = reason.map_or(String::new(), |reason| format!(": waited for {}", reason.words()));
            let waker = part.woken_by.as_ref().map_or(String::new(), |waker| format!(", woken by {waker}"));
            format!("blocked{what}{waker}")
        }
        "softirq_late" => format!("data at the tap, not yet at the socket{}", by("behind")),
        _ => "not known".into(),
    }
}

/// What happens in a leg, in words.
pub(super) fn leg_words(legs: Legs) -> String {
    if legs.first == legs.last {
        let words = match legs.first {
            Leg::ClientAppOut => "client: application to wire",
            Leg::ClientSend => "client: sending the request",
            Leg::RequestWire => "network: request",
            Leg::ServerHostIn => "server: wire to application",
            Leg::ServerApp => "server: application",
            Leg::ServerHostOut => "server: application to wire",
            Leg::ServerSend => "server: sending the response",
            Leg::ResponseWire => "network: response",
            Leg::ClientAppIn => "client: wire to application",
            Leg::NoResponse => "server: no response",
        };
        return words.into();
    }
    let all = [
        (Leg::ServerHostIn, Leg::ServerHostOut, "server: host and application"),
        (Leg::RequestWire, Leg::ResponseWire, "network and server"),
        (Leg::RequestWire, Leg::ServerHostOut, "network, server, until the response begins"),
        (Leg::RequestWire, Leg::ServerSend, "network and server, until the response is sent"),
    ];
    match all.iter().find(|(first, last, _)| (*first, *last) == (legs.first, legs.last)) {
        Some((.., words)) => (*words).into(),
        None => format!("{} … {}", leg_words(Legs::one(legs.first)), leg_words(Legs::one(legs.last))),
    }
}

/// ` (client side)`, or nothing.
pub(super) fn at_side(side: Option<Side>) -> String {
    side.map_or(String::new(), |side| format!(", {} side", side.name()))
}

/// Days since 1970-01-01 as year, month, day: the Gregorian calendar repeats every 146,097 days.
fn civil(days: i64) -> (i64, i64, i64) {
    // Counted from 0000-03-01, so that the leap day is the last of its year.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year + era * 400 + next, month, of_month)
}

/// `2026-02-28`, UTC.
pub(super) fn date(unix_ns: i64) -> String {
    let (year, month, day) = civil(unix_ns.div_euclid(86_400 * SECOND as i64));
    format!("{year:04}-{month:02}-{day:02}")
}

/// `16:32:09.123456`, UTC, cut to microseconds.
pub(super) fn time_of_day(unix_ns: i64) -> String {
    let ns = unix_ns.rem_euclid(86_400 * SECOND as i64);
    let s = ns / SECOND as i64;
    let us = ns % SECOND as i64 / 1_000;
    format!("{:02}:{:02}:{:02}.{us:06}", s / 3_600, s / 60 % 60, s % 60)
}

/// Breaks text at spaces so that no line is longer than `width` (a longer word stands alone); lines after the first
/// begin with `indent` spaces.
pub(super) fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let words = text.trim_start_matches(' ');
    let before = text.len() - words.len();
    let (mut lines, mut line, mut used) = (String::new(), " ".repeat(before), 0);
    for word in words.split(' ') {
        let len = word.chars().count();
        if used > indent && used + 1 + len > width {
            lines.push_str(line.trim_end());
            lines.push('\n');
            line = " ".repeat(indent);
            used = indent;
        } else if used > 0 {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += len + if used == 0 { before } else { 0 };
    }
    lines + &line
}

/// The text if it fits, else its end after `…`: the end of a method tells more than its package.
pub(super) fn shortened(text: &str, width: usize) -> String {
    let len = text.chars().count();
    if len <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().skip(len + 1 - width.max(1)).collect();
    format!("…{kept}")
}

/// Columns as wide as their widest cell; the first `left` columns stand to the left, the others to the right.
pub(super) fn aligned(rows: &[Vec<String>], left: &[usize]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let cell_width =
        |row: &Vec<String>, column: usize| row.get(column).map_or(0, |cell| cell.chars().count());
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().map(|row| cell_width(row, column)).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if left.contains(&column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
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
        assert_eq!(date(-1), "1969-12-31");
        // `date -u -d @4107542400` says Mon Mar 1 2100: no leap year.
        assert_eq!(date((4_107_542_400 - 1) * SECOND as i64), "2100-02-28");
    }

    #[test]
    fn figures() {
        assert_eq!(plural(1, "call"), "1 call");
        assert_eq!(plural(1_234_567, "call"), "1,234,567 calls");
        assert_eq!(signed(-1_500), "-1.50 us");
        assert_eq!(bounded(40_000_000, 0), "40.0 ms");
        assert_eq!(bounded(46_100_000, 23_050), "46.1 ms");
        assert_eq!(bounded(46_100_000, 23_051), "46.1 ms ± 23.1 us");
        assert_eq!(bounded(52_000, 3_000), "52.0 us ± 3.00 us");
        assert_eq!(percent(1, 100_000), "<0.1 %");
        assert_eq!(percent(0, 100), "0.0 %");
        assert_eq!(percent(97, 100), "97 %");
        assert_eq!(bytes(1_500_000), "1500.0 kB");
    }

    #[test]
    fn lines_keep_to_the_width() {
        let text = wrapped("one two three four five", 10, 2);
        assert_eq!(text, "one two\n  three\n  four\n  five");
        assert_eq!(wrapped("  one two three", 9, 4), "  one two\n    three");
        assert_eq!(wrapped("incomprehensibilities", 5, 2), "incomprehensibilities");
        assert_eq!(shortened("/a.very.long.Service/Method", 8), "…/Method");
        assert_eq!(shortened("/S/M", 8), "/S/M");
    }
}

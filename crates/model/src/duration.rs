//! Durations in human notation: `250us`, `10ms`, `1.5s`, `1m`.

/// Nanoseconds per second.
pub const SECOND: u64 = 1_000_000_000;
/// Nanoseconds per millisecond.
pub const MILLISECOND: u64 = 1_000_000;

/// Parses a duration such as `250us`, `10ms`, `1.5s`, `1m`, `2h`, `14d` to nanoseconds.
///
/// # Errors
/// A sentence with the expected form, if the number or the unit is invalid.
pub fn parse_ns(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor: f64 = match unit.trim() {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        "d" => 86400e9,
        _ => {
            return Err(format!(
                "{text:?} is not a duration: expected a number and a unit, such as 250us, 10ms, 1m"
            ));
        }
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("{text:?} is not a duration: expected a number before {unit:?}"))?;
    Ok((number * factor).round() as u64)
}

/// Formats nanoseconds with three significant digits and a unit: `843 ns`, `12.3 us`, `1.05 ms`, `2.00 s`.
pub fn format_ns(ns: u64) -> String {
    let (value, unit) = match ns {
        0..=999 => return format!("{ns} ns"),
        1_000..=999_499 => (ns as f64 / 1e3, "us"),
        999_500..=999_499_999 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    match value {
        v if v < 9.995 => format!("{v:.2} {unit}"),
        v if v < 99.95 => format!("{v:.1} {unit}"),
        v => format!("{v:.0} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        assert_eq!(parse_ns("250us"), Ok(250_000));
        assert_eq!(parse_ns("10ms"), Ok(10_000_000));
        assert_eq!(parse_ns("1.5s"), Ok(1_500_000_000));
        assert_eq!(parse_ns("1m"), Ok(60 * SECOND));
        assert!(parse_ns("10").unwrap_err().contains("unit"));
        assert!(parse_ns("ms").is_err());
    }

    #[test]
    fn writes_three_digits() {
        assert_eq!(format_ns(843), "843 ns");
        assert_eq!(format_ns(12_345), "12.3 us");
        assert_eq!(format_ns(999_600), "1.00 ms");
        assert_eq!(format_ns(2 * SECOND), "2.00 s");
        assert_eq!(format_ns(123_456_789), "123 ms");
    }
}

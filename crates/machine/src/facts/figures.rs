//! Numbers in the kernel's format, and small files that hold little else: one number, or lines of a name and a
//! number (`cpu.stat`, `memory.events`).

use crate::{FactError, Known};
use std::collections::BTreeMap;

/// Larger counts are treated as errors: in ticks or microseconds they are centuries. Sums and products of
/// smaller ones fit into 64 bits. A kernel counter that dropped below zero appears as such a number.
const TOO_MUCH: u64 = 1 << 53;
/// The same for nanoseconds: nine years on one CPU.
const TOO_MUCH_NS: u64 = 1 << 58;

/// A count of occurrences, ticks or microseconds: only digits.
pub fn count(word: &str) -> Option<u64> {
    digits(word).filter(|count| *count < TOO_MUCH)
}

/// A figure in nanoseconds.
pub fn nanoseconds(word: &str) -> Option<u64> {
    digits(word).filter(|ns| *ns < TOO_MUCH_NS)
}

/// Bytes from a size such as `2048 kB`, by which the kernel means KiB.
pub fn kib(size: &str) -> Option<u64> {
    count(size.strip_suffix("kB")?.trim_end())?.checked_mul(1024)
}

fn digits(word: &str) -> Option<u64> {
    // `parse` would also accept a sign.
    word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok())?
}

/// Parses a file with a single number.
///
/// # Errors
/// Any other text, or a number out of range.
pub fn number<T: std::str::FromStr>(path: &str, text: &str) -> Known<T> {
    text.trim().parse().map_err(|_| FactError::malformed(path, 0, text, "a number"))
}

/// Parses lines of a name and a number. Ignores lines of another form.
pub fn keyed(text: &str) -> BTreeMap<&str, u64> {
    let pair = |line| {
        let (name, value): (&str, &str) = str::split_once(line, char::is_whitespace)?;
        Some((name, nanoseconds(value.trim())?))
    };
    text.lines().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_kernel_writes_them() {
        let stat = keyed("usage_usec 3\nnr_periods 10\nnr_throttled 8\nthrottled_usec 412000\nname only\n");
        assert_eq!((stat["nr_periods"], stat["throttled_usec"], stat.len()), (10, 412_000, 4));
        assert_eq!(number::<i64>("/p", "-1\n"), Ok(-1));
        for bad in ["max\n", "", "1 2"] {
            assert!(number::<i64>("/p", bad).is_err(), "{bad}");
        }
        assert_eq!((count("7"), count("+7"), count("-7"), count("")), (Some(7), None, None, None));
        assert_eq!(
            (kib("2048 kB"), kib("2048"), kib("-1 kB"), kib("kB")),
            (Some(2048 << 10), None, None, None)
        );
        // Negative steal time, as produced by some hypervisors.
        assert_eq!((count("18446744073709551615"), nanoseconds("18446744073709551615")), (None, None));
    }
}

//! `/proc/net/dev`: traffic counters of each interface in a network namespace.

use super::figures::count;
use crate::{FactError, Known};
use std::collections::BTreeMap;

/// File name in `/proc/net` and in a process's `net` folder.
pub const NAME: &str = "dev";

/// Packets received by each interface, by name.
///
/// # Errors
/// A malformed line.
pub fn rx_packets(path: &str, text: &str) -> Known<BTreeMap<String, u64>> {
    const HEADING: usize = 2;
    let line = |(at, line): (usize, &str)| {
        let bad = || FactError::malformed(path, at, line, "an interface, a colon, and 16 figures");
        let (name, figures) = line.split_once(':').ok_or_else(bad)?;
        // Older kernels write no blank between the colon and the first figure.
        let figures: Vec<u64> =
            figures.split_whitespace().map(count).collect::<Option<_>>().ok_or_else(bad)?;
        let &[_bytes, packets, ..] = figures.as_slice() else { return Err(bad()) };
        (figures.len() == 16).then(|| (name.trim().to_owned(), packets)).ok_or_else(bad)
    };
    text.lines().enumerate().skip(HEADING).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_by_name() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
            lo: 13629504663 22523402    0    0    0     0          0         0 13629504663 22523402    0    0    0     0       0          0\n  \
            eth0:1500 2 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
        let read = rx_packets("/proc/net/dev", text).unwrap();
        assert_eq!(read, [("eth0".to_owned(), 2), ("lo".to_owned(), 22_523_402)].into());
        let error = rx_packets("/proc/net/dev", "a\nb\n eth0: 1 2\n").unwrap_err().to_string();
        assert!(error.starts_with("/proc/net/dev, line 3: found \"eth0: 1 2\""), "{error}");
    }
}

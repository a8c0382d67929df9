//! Parser for the log of `shim.c`.

use crate::truth::Active;

/// A parsed log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Log {
    /// Number of programs that loaded it and used the port.
    pub(super) loaded: u64,
    /// Pauses that it made.
    pub(super) pauses: Vec<Active>,
    /// Sizes of receive buffers, as accepted by the kernel.
    pub(super) buffers: Vec<u64>,
    /// Backlogs that it set.
    pub(super) backlogs: Vec<u64>,
    /// Whether the log was full.
    pub(super) full: bool,
}

/// Parses it, ignoring an incomplete last line.
///
/// # Errors
/// A malformed line, with its number.
pub(super) fn parse(text: &str) -> Result<Log, String> {
    let mut log = Log::default();
    let whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    for (number, line) in whole.enumerate() {
        let mut words = line.split(' ');
        let word = words.next().unwrap_or_default();
        let figures: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
        match (word, figures.as_deref()) {
            ("loaded", Some([_pid])) => log.loaded += 1,
            ("pause", Some(&[from_unix_ns, to_unix_ns])) => {
                log.pauses.push(Active { from_unix_ns, to_unix_ns })
            }
            ("buffer", Some(&[bytes])) => log.buffers.push(bytes),
            ("backlog", Some(&[backlog])) => log.backlogs.push(backlog),
            ("full", Some([])) => log.full = true,
            _ => return Err(format!("line {}: expected `pause FROM TO` or its like: {line:?}", number + 1)),
        }
    }
    Ok(log)
}

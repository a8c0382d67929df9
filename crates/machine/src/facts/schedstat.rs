//! `/proc/PID/task/TID/schedstat`: run time and run-queue wait of a thread.

use super::figures::nanoseconds;
use crate::{FactError, Known};

/// File name in the folder of a process (for its first thread) or thread.
pub const NAME: &str = "schedstat";

/// Scheduler statistics of a thread since it started, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sched {
    /// Time on a CPU.
    pub run_ns: u64,
    /// Time waiting on a run queue.
    pub wait_ns: u64,
}

/// Parses it.
///
/// # Errors
/// Malformed. A kernel without `CONFIG_SCHED_INFO` lacks the file, or fills it with zeros.
pub fn parse(path: &str, text: &str) -> Known<Sched> {
    let figures: Option<Vec<u64>> = text.split_whitespace().map(nanoseconds).collect();
    match figures.as_deref() {
        Some(&[run_ns, wait_ns, _]) => Ok(Sched { run_ns, wait_ns }),
        _ => Err(FactError::malformed(path, 0, text, "3 figures: nanoseconds run, waited, and a count")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any(run_ns in 0_u64..1 << 58, wait_ns in 0_u64..1 << 58, slices in 0_u64..1 << 40) {
            let read = parse("/p", &format!("{run_ns} {wait_ns} {slices}\n"));
            prop_assert_eq!(read, Ok(Sched { run_ns, wait_ns }));
        }
    }

    #[test]
    fn other_texts_are_told() {
        for bad in ["", "1 2\n", "1 2 3 4\n", "1 -2 3\n"] {
            assert!(parse("/p", bad).is_err(), "{bad}");
        }
    }
}

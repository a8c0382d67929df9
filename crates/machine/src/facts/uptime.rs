//! `/proc/uptime`, `/proc/loadavg`: uptime and load of the machine.

use crate::{FactError, Known};

/// Path of the uptime.
pub const UPTIME: &str = "/proc/uptime";
/// Path of the load.
pub const LOADAVG: &str = "/proc/loadavg";

/// Seconds since boot, in steps of 10 ms.
///
/// # Errors
/// Malformed.
pub fn uptime_s(path: &str, text: &str) -> Known<f64> {
    let seconds = text.split_whitespace().next().and_then(|word| word.parse().ok());
    let seconds = seconds.filter(|seconds: &f64| seconds.is_finite() && *seconds >= 0.0);
    seconds.ok_or_else(|| FactError::malformed(path, 0, text, "seconds since boot"))
}

/// The load of the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Averages of 1, 5 and 15 minutes.
    pub averages: [f64; 3],
    /// Number of existing threads.
    pub threads: usize,
    /// Id of the newest thread or process, in the reader's pid namespace; `None` if the file ends before it.
    pub newest_id: Option<u32>,
}

/// Parses `0.50 1.00 2.00 1/234 5678`.
///
/// # Errors
/// Malformed.
pub fn load(path: &str, text: &str) -> Known<Load> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let parsed = || {
        let &[one, five, fifteen, threads, ..] = words.as_slice() else { return None };
        let average = |word: &str| word.parse().ok().filter(|load: &f64| load.is_finite() && *load >= 0.0);
        let averages = [average(one)?, average(five)?, average(fifteen)?];
        let newest_id = words.get(4).map(|word| word.parse().ok());
        let newest_id = newest_id.map_or(Some(None), |id: Option<u32>| id.map(Some))?;
        Some(Load { averages, threads: threads.split_once('/')?.1.parse().ok()?, newest_id })
    };
    parsed().ok_or_else(|| FactError::malformed(path, 0, text, "three averages, and RUNNING/THREADS"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_and_malformed_ones() {
        assert_eq!(uptime_s(UPTIME, "12691.86 3733.51\n"), Ok(12691.86));
        for bad in ["", "up\n", "-1 0\n", "NaN 1\n", "inf 1\n"] {
            assert!(uptime_s(UPTIME, bad).is_err(), "{bad}");
        }
        let read = load(LOADAVG, "0.50 1.00 2.00 1/234 5678\n");
        assert_eq!(read, Ok(Load { averages: [0.5, 1.0, 2.0], threads: 234, newest_id: Some(5678) }));
        assert_eq!(load(LOADAVG, "0.50 1.00 2.00 1/234\n").map(|load| load.newest_id), Ok(None));
        for bad in
            ["", "0.50 1.00 2.00\n", "0.50 x 2.00 1/2 3\n", "0.50 1.00 2.00 1 3\n", "0.50 1.00 2.00 1/2 x\n"]
        {
            assert!(load(LOADAVG, bad).is_err(), "{bad}");
        }
    }
}

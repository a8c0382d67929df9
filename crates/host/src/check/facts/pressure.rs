//! Pressure stall information: `/proc/pressure/*`, and `*.pressure` of a cgroup.

use super::super::{FactError, Known};
use spangap_machine::facts::figures::count;
use std::collections::BTreeMap;

/// Pressure on a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// Percentage of the last 10 s in which at least one task was stalled.
    pub some_avg10: f64,
    /// Time in which at least one task was stalled, in microseconds since boot.
    pub some_us: u64,
    /// Time in which all tasks were stalled. `None` where the kernel does not report it (CPU pressure of the
    /// whole machine before Linux 5.13).
    pub full_us: Option<u64>,
}

/// Parses a pressure file.
///
/// # Errors
/// A line has an unexpected form.
pub fn parse(path: &str, text: &str) -> Known<Pressure> {
    let mut pressure = Pressure::default();
    let mut seen = false;
    for (at, line) in text.lines().enumerate() {
        let bad = || FactError::malformed(path, at, line, "some avg10=0.00 ... total=0");
        let mut words = line.split_whitespace();
        let kind = words.next();
        let figures: BTreeMap<&str, &str> = words.filter_map(|word| word.split_once('=')).collect();
        let figure = |name: &str| figures.get(name).copied().ok_or_else(bad);
        let total = count(figure("total")?).ok_or_else(bad)?;
        match kind {
            Some("some") => {
                pressure.some_avg10 = figure("avg10")?.parse().map_err(|_| bad())?;
                pressure.some_us = total;
                seen = true;
            }
            Some("full") => pressure.full_us = Some(total),
            _ => return Err(bad()),
        }
    }
    if seen { Ok(pressure) } else { Err(FactError::malformed(path, 0, text, "a line that begins with some")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*|(some|full)( (avg10|total)=[0-9.]{0,5}){0,3}\n") {
            let _ = parse("/p", &text);
        }
    }

    #[test]
    fn as_the_kernel_writes_it() {
        let text = "some avg10=1.50 avg60=0.90 avg300=3.02 total=120\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(parse("/p", text), Ok(Pressure { some_avg10: 1.5, some_us: 120, full_us: Some(7) }));
        assert!(parse("/p", "some avg10=1 avg60=1\n").unwrap_err().to_string().contains("line 1"));
    }
}

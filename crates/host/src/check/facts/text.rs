//! Small files: `key value` lines, the two-line tables of `/proc/net`, pressure, a single number.

use super::super::{FactError, Known};
use std::collections::BTreeMap;

/// Figures from here on are taken for mistakes: microseconds of 285 years. Sums and products of others fit.
const TOO_MUCH: u64 = 1 << 53;
/// The same for nanoseconds: nine years on one CPU.
const TOO_MUCH_NS: u64 = 1 << 58;

/// Reads a figure that counts occurrences, ticks or microseconds.
pub fn count(word: &str) -> Option<u64> {
    word.parse().ok().filter(|count| *count < TOO_MUCH)
}

/// Reads a figure in nanoseconds.
pub fn nanoseconds(word: &str) -> Option<u64> {
    word.parse().ok().filter(|ns| *ns < TOO_MUCH_NS)
}

/// Reads lines of a name and a number, such as `cpu.stat`. Lines of another form are of no interest.
pub fn keyed(text: &str) -> BTreeMap<&str, u64> {
    let pair = |line: &'_ str| {
        let (name, value) = line.split_once(char::is_whitespace)?;
        Some((name.len(), nanoseconds(value.trim())?))
    };
    text.lines().filter_map(|line| pair(line).map(|(len, value)| (&line[..len], value))).collect()
}

/// Reads one number.
///
/// # Errors
/// Another text.
pub fn number(path: &str, text: &str) -> Known<i64> {
    text.trim().parse().map_err(|_| FactError::malformed(path, 0, text, "a number"))
}

/// Reads `/proc/net/netstat` or `/proc/net/snmp`: names such as `TcpExt.ListenDrops`. Counters wrap like the
/// kernel's; a figure below zero (`MaxConn`) is left out.
///
/// # Errors
/// A pair of lines that do not belong together.
pub fn counters(path: &str, text: &str) -> Known<BTreeMap<String, u64>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut all = BTreeMap::new();
    for (at, pair) in lines.chunks(2).enumerate() {
        let bad = |line: &str| {
            FactError::malformed(path, at * 2, line, "a line of names and one of figures, alike")
        };
        let &[names, figures] = pair else { return Err(bad(pair.first().unwrap_or(&""))) };
        let (Some((group, names)), Some((same, figures))) = (names.split_once(':'), figures.split_once(':'))
        else {
            return Err(bad(names));
        };
        let (names, figures): (Vec<_>, Vec<_>) =
            (names.split_whitespace().collect(), figures.split_whitespace().collect());
        if group != same || names.len() != figures.len() {
            return Err(bad(pair.first().unwrap_or(&"")));
        }
        for (name, figure) in names.iter().zip(figures) {
            if let Ok(figure) = figure.parse() {
                all.insert(format!("{group}.{name}"), figure);
            }
        }
    }
    Ok(all)
}

/// Pressure on a resource: how long work waited for it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// Share of the last 10 s in which some task waited, in percent.
    pub some_avg10: f64,
    /// Time in which some task waited, in microseconds, since boot.
    pub some_us: u64,
    /// Time in which all waited. `None` where the kernel does not tell (the whole machine's CPU before Linux 5.13).
    pub full_us: Option<u64>,
}

/// Reads `/proc/pressure/cpu` or `cpu.pressure`.
///
/// # Errors
/// The line that is of another form.
pub fn pressure(path: &str, text: &str) -> Known<Pressure> {
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
        fn counters_are_read_as_the_kernel_writes_them(groups in prop::collection::btree_map("[A-Z][a-z]{1,6}", prop::collection::btree_map("[A-Z][A-Za-z]{1,8}", any::<u64>(), 1..6), 0..4)) {
            let mut text = String::new();
            let mut expected = BTreeMap::new();
            for (group, figures) in &groups {
                let names: Vec<&str> = figures.keys().map(String::as_str).collect();
                let values: Vec<String> = figures.values().map(u64::to_string).collect();
                text += &format!("{group}: {}\n{group}: {}\n", names.join(" "), values.join(" "));
                expected.extend(figures.iter().map(|(name, value)| (format!("{group}.{name}"), *value)));
            }
            prop_assert_eq!(counters("/proc/net/netstat", &text), Ok(expected));
        }

        #[test]
        fn no_text_panics(text in "\\PC*|(some|full)( (avg10|total)=[0-9.]{0,5}){0,3}\n|A:( B){0,3}\nA:( [0-9-]{1,3}){0,3}") {
            let _ = (keyed(&text), counters("/p", &text), pressure("/p", &text), number("/p", &text));
        }
    }

    #[test]
    fn as_the_kernel_writes_them() {
        let stat = keyed("usage_usec 3\nnr_periods 10\nnr_throttled 8\nthrottled_usec 412000\n");
        assert_eq!((stat["nr_periods"], stat["throttled_usec"]), (10, 412_000));
        let tcp = counters("/p", "Tcp: MaxConn OutSegs\nTcp: -1 7\n").unwrap();
        assert_eq!(tcp.into_iter().collect::<Vec<_>>(), [("Tcp.OutSegs".to_owned(), 7)]);
        let text = "some avg10=1.50 avg60=0.90 avg300=3.02 total=120\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(pressure("/p", text), Ok(Pressure { some_avg10: 1.5, some_us: 120, full_us: Some(7) }));
        assert!(pressure("/p", "some avg10=1 avg60=1\n").unwrap_err().to_string().contains("line 1"));
        assert!(counters("/p", "Tcp: A B\nTcp: 1\n").unwrap_err().to_string().contains("alike"));
        assert!(number("/p", "max\n").is_err());
    }
}

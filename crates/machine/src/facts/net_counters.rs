//! `/proc/net/netstat` and `/proc/net/snmp`: TCP and IP counters of a network namespace, as pairs of lines:
//! names, then figures.

use crate::{FactError, Known};
use std::collections::BTreeMap;

/// Linux's own counters (`TcpExt`, `IpExt`); also in a process's folder.
pub const NETSTAT: &str = "netstat";
/// Standard counters (`Ip`, `Tcp`, `Udp`).
pub const SNMP: &str = "snmp";

/// Parses one of the files, or both concatenated: names such as `TcpExt.ListenDrops`. Counters wrap like the
/// kernel's. A negative figure is not a count (`MaxConn` is -1 for no limit), and is left out.
///
/// # Errors
/// A pair of lines does not belong together.
pub fn parse(path: &str, text: &str) -> Known<BTreeMap<String, u64>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut all = BTreeMap::new();
    for (at, pair) in lines.chunks(2).enumerate() {
        let bad = |line: &str| {
            FactError::malformed(path, at * 2, line, "a line of names and one of figures, alike")
        };
        let &[names, figures] = pair else { return Err(bad(pair.first().unwrap_or(&""))) };
        let (Some((group, words)), Some((same, figures))) = (names.split_once(':'), figures.split_once(':'))
        else {
            return Err(bad(names));
        };
        let (words, figures): (Vec<_>, Vec<_>) =
            (words.split_whitespace().collect(), figures.split_whitespace().collect());
        if group != same || words.len() != figures.len() {
            return Err(bad(names));
        }
        for (word, figure) in words.iter().zip(figures) {
            match (figure.parse::<u64>(), figure.parse::<i64>()) {
                (Ok(count), _) => drop(all.insert(format!("{group}.{word}"), count)),
                (_, Ok(_)) => {}
                _ => return Err(bad(names)),
            }
        }
    }
    Ok(all)
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
            prop_assert_eq!(parse("/proc/net/netstat", &text), Ok(expected));
        }
    }

    #[test]
    fn pairs_of_lines() {
        let text = "TcpExt: A B\nTcpExt: 1 2\nTcp: MaxConn OutSegs\nTcp: -1 18446744073709551615\n";
        let all: Vec<_> = parse("/p", text).unwrap().into_iter().collect();
        let named = |name: &str, count| (name.to_owned(), count);
        assert_eq!(all, [named("Tcp.OutSegs", u64::MAX), named("TcpExt.A", 1), named("TcpExt.B", 2)]);
        assert!(parse("/p", "Tcp: A B\nTcp: 1\n").unwrap_err().to_string().contains("alike"));
        for bad in ["Tcp: A\n", "Tcp: A\nUdp: 1\n", "Tcp: A\nTcp: x\n", "nonsense\nTcp: 1\n"] {
            assert!(parse("/p", bad).is_err(), "{bad}");
        }
    }
}

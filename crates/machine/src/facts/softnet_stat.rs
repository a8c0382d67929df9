//! `/proc/net/softnet_stat`: the receive backlog of each CPU, in hexadecimal.
//!
//! Every kernel writes at least 9 columns. Linux 2.6.35 added packets steered by RPS, 3.11 the flow limit, 5.10
//! the backlog length and the CPU's number, later versions more. Counters wrap at 32 bits.

use crate::{FactError, Known};
use spangap_model::Cpus;
use std::collections::BTreeMap;

/// The same in every network namespace: its counters are those of the CPUs.
pub const PATH: &str = "/proc/net/softnet_stat";

/// Receive backlog counters of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Softnet {
    /// Packets processed.
    pub processed: u64,
    /// Packets dropped because the backlog was full.
    pub dropped: u64,
    /// Times that NET_RX stopped with work left.
    pub time_squeeze: u64,
    /// Times that other CPUs steered packets here (RPS); `None` before Linux 2.6.35.
    pub received_rps: Option<u64>,
    /// Packets dropped by the flow limit; `None` before Linux 3.11.
    pub flow_limit: Option<u64>,
}

/// Parses it. Lines without a CPU number (before Linux 5.10) belong to the `online` CPUs, in order.
///
/// # Errors
/// A malformed line, or one whose CPU is unknown: more lines than online CPUs, or no known online CPUs.
pub fn parse(path: &str, text: &str, online: &Cpus) -> Known<BTreeMap<u32, Softnet>> {
    const LEAST: usize = 9;
    const CPU: usize = 12;
    let mut all = BTreeMap::new();
    let mut online = online.iter();
    for (at, line) in text.lines().enumerate() {
        let bad = |expected| FactError::malformed(path, at, line, expected);
        let figures: Result<Vec<u32>, _> =
            line.split_whitespace().map(|word| u32::from_str_radix(word, 16)).collect();
        let figures = figures.ok().filter(|figures| figures.len() >= LEAST);
        let figures = figures.ok_or_else(|| bad("hexadecimal figures, at least 9"))?;
        let figure = |at: usize| figures.get(at).copied();
        let cpu = figure(CPU).or_else(|| online.next());
        let softnet = Softnet {
            processed: u64::from(figures[0]),
            dropped: u64::from(figures[1]),
            time_squeeze: u64::from(figures[2]),
            received_rps: figure(9).map(u64::from),
            flow_limit: figure(10).map(u64::from),
        };
        all.insert(cpu.ok_or_else(|| bad("no more lines than CPUs are online"))?, softnet);
    }
    if all.is_empty() { Err(FactError::malformed(path, 0, text, "a line for each CPU")) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn of_any_kernel(rows in prop::collection::vec(any::<[u32; 11]>(), 1..8), columns in 9_usize..=15) {
            let online: Cpus = (0..rows.len() as u32).map(|cpu| cpu * 2).collect();
            let mut text = String::new();
            for (row, cpu) in rows.iter().zip(online.iter()) {
                let words = row.iter().copied().chain([0, cpu, 0, 0]).take(columns);
                text += &words.map(|word| format!("{word:08x} ")).collect::<String>();
                text += "\n";
            }
            let read = parse(PATH, &text, &online).unwrap();
            prop_assert_eq!(read.keys().copied().collect::<Cpus>(), online);
            for (softnet, row) in read.values().zip(&rows) {
                prop_assert_eq!((softnet.processed, softnet.dropped), (u64::from(row[0]), u64::from(row[1])));
                prop_assert_eq!(softnet.time_squeeze, u64::from(row[2]));
                prop_assert_eq!(softnet.flow_limit, (columns > 10).then_some(u64::from(row[10])));
            }
        }
    }

    #[test]
    fn older_lines_are_of_online_cpus_in_order() {
        let online: Cpus = [0, 2].into_iter().collect();
        let text = "1 5 0 0 0 0 0 0 0 0 0\n1 6 0 0 0 0 0 0 0 0 0\n";
        let dropped = |text: &str| {
            let read = parse(PATH, text, &online)?;
            Ok(read.into_iter().map(|(cpu, softnet)| (cpu, softnet.dropped)).collect::<Vec<_>>())
        };
        assert_eq!(dropped(text), Ok(vec![(0, 5), (2, 6)]));
        let three = "1 5 0 0 0 0 0 0 0 0 0\n".repeat(3);
        for bad in ["", "x", "1 2 3", &three, "1 5 0 0 0 0 0 0 0 0 0 0 100000000"] {
            let error = dropped(bad);
            assert!(matches!(&error, Err(FactError::Malformed { .. })), "{bad}: {error:?}");
        }
        // With CPU numbers, the online CPUs are not needed.
        let six = "024023e1 00000000 00000006 00000000 00000000 00000000 00000000 00000000 00000000 000bd987 00000000 \
                   00000000 00000001 00000000 00000000\n";
        assert_eq!(parse(PATH, six, &Cpus::default()).unwrap()[&1].time_squeeze, 6);
    }
}

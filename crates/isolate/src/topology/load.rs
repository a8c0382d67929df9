//! What each CPU did since boot, and which of them the scheduler balances between.

use super::irqs::table;
use super::reading::{Reading, count};
use super::{Cpu, CpuLoad};
use spangap_machine::{FactError, Known};
use spangap_model::Cpus;
use std::collections::BTreeMap;

const SOFTIRQS: &str = "/proc/softirqs";

/// Reads what each online CPU did.
pub(super) fn read(reading: &mut Reading, cpus: &[Cpu]) -> Vec<CpuLoad> {
    let times = reading.needed("/proc/stat", stat).unwrap_or_default();
    let online: Vec<u32> = cpus.iter().map(|cpu| cpu.number).collect();
    let softnet = reading
        .needed("/proc/net/softnet_stat", |path, text| softnet(path, text, &online))
        .unwrap_or_default();
    let softirqs = reading.needed(SOFTIRQS, table);
    let vector = |name: &str| {
        let found = softirqs.as_ref().and_then(|table| {
            let row = table.rows.iter().find(|row| row.name == name)?;
            Some(table.by_cpu(row, cpus))
        });
        found.unwrap_or_else(|| vec![0; cpus.len()])
    };
    let (rx, tx) = (vector("NET_RX"), vector("NET_TX"));
    let load = online.iter().zip(rx).zip(tx).map(|((cpu, net_rx), net_tx)| {
        let (dropped, squeezed) = softnet.get(cpu).copied().unwrap_or_default();
        CpuLoad {
            net_rx,
            net_tx,
            backlog_dropped: dropped,
            time_squeeze: squeezed,
            ..times.get(cpu).copied().unwrap_or(CpuLoad { cpu: *cpu, ..CpuLoad::default() })
        }
    });
    let load = load.collect();
    reading.unknown.extend(softirqs.into_iter().flat_map(|table| table.bad));
    load
}

/// Reads `/proc/stat`.
fn stat(path: &str, text: &str) -> Known<BTreeMap<u32, CpuLoad>> {
    let mut all = BTreeMap::new();
    for (at, line) in text.lines().enumerate() {
        let bad = || FactError::malformed(path, at, line, "cpuN and at least 8 figures in ticks");
        let mut words = line.split_whitespace();
        let number = words.next().and_then(|name| name.strip_prefix("cpu")).filter(|cpu| !cpu.is_empty());
        let Some(number) = number else { continue };
        let cpu = number.parse().map_err(|_| bad())?;
        let figures: Vec<u64> = words.map(count).collect::<Option<_>>().ok_or_else(bad)?;
        let &[user, nice, system, idle, iowait, irq, softirq, steal, ..] = figures.as_slice() else {
            return Err(bad());
        };
        let load = CpuLoad {
            cpu,
            tasks_ticks: user.saturating_add(nice).saturating_add(system),
            softirq_ticks: softirq,
            irq_ticks: irq,
            steal_ticks: steal,
            idle_ticks: idle.saturating_add(iowait),
            ..CpuLoad::default()
        };
        all.insert(cpu, load);
    }
    if all.is_empty() {
        return Err(FactError::malformed(path, 0, text, "lines cpu0, cpu1, ..."));
    }
    Ok(all)
}

/// Reads `/proc/net/softnet_stat`: packets dropped and times squeezed, by CPU. Lines have the CPU's number since Linux
/// 5.10; before, they are those of online CPUs in order.
fn softnet(path: &str, text: &str, online: &[u32]) -> Known<BTreeMap<u32, (u64, u64)>> {
    let mut all = BTreeMap::new();
    for (at, line) in text.lines().enumerate() {
        let bad = || FactError::malformed(path, at, line, "hexadecimal figures, at least 9");
        let figures: Result<Vec<u64>, _> =
            line.split_whitespace().map(|word| u64::from_str_radix(word, 16)).collect();
        let figures = figures.map_err(|_| bad())?;
        if figures.len() < 9 {
            return Err(bad());
        }
        let cpu = match figures.get(12) {
            Some(cpu) => u32::try_from(*cpu).map_err(|_| bad())?,
            None => *online.get(at).ok_or_else(bad)?,
        };
        all.insert(cpu, (figures[1], figures[2]));
    }
    Ok(all)
}

/// Reads `/proc/schedstat`: a CPU that has lines `domain` is balanced with others.
pub(super) fn balanced(reading: &mut Reading) -> Option<Cpus> {
    reading.parsed("/proc/schedstat", |path, text| {
        let mut cpu = None;
        let (mut seen, mut balanced) = (0, Vec::new());
        for (at, line) in text.lines().enumerate() {
            let word = line.split_whitespace().next().unwrap_or_default();
            if let Some(number) = word.strip_prefix("cpu") {
                let bad = |_| FactError::malformed(path, at, line, "cpuN and its figures");
                cpu = Some(number.parse::<u32>().map_err(bad)?);
                seen += 1;
            } else if word.starts_with("domain") {
                let bad = || FactError::malformed(path, at, line, "cpuN before its first domain");
                balanced.push(cpu.ok_or_else(bad)?);
            }
        }
        if seen == 0 {
            return Err(FactError::malformed(path, 0, text, "lines cpu0, cpu1, ..., with domain0 below"));
        }
        Ok(balanced.into_iter().collect())
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read, told};
    use super::*;

    const CPUS: &str = "=== /sys/devices/system/cpu/online\n0,2\n";

    #[test]
    fn all_tables_by_cpu() {
        let machine = read(&format!(
            "{CPUS}=== /proc/stat\ncpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 40 5 6 7 8 0 0\ncpu2 10 0 0 1 1 0 0 0 0 0\nctxt 5\n\
             === /proc/softirqs\n  CPU0 CPU2\n NET_TX: 1 2\n NET_RX: 30 40\n\
             === /proc/net/softnet_stat\n1 a 2 0 0 0 0 0 0 0 0 0 2 0 0\n1 0 b 0 0 0 0 0 0 0 0 0 0 0 0\n"
        ));
        let zero = CpuLoad {
            cpu: 0,
            tasks_ticks: 6,
            softirq_ticks: 7,
            irq_ticks: 6,
            steal_ticks: 8,
            idle_ticks: 45,
            net_rx: 30,
            net_tx: 1,
            backlog_dropped: 0,
            time_squeeze: 11,
        };
        assert_eq!(machine.load[0], zero);
        let two = machine.load[1];
        assert_eq!(
            (two.cpu, two.tasks_ticks, two.net_rx, two.backlog_dropped, two.time_squeeze),
            (2, 10, 40, 10, 2)
        );
    }

    #[test]
    fn older_lines_of_softnet_are_of_online_cpus_in_order() {
        let text = "1 5 0 0 0 0 0 0 0 0 0\n1 6 0 0 0 0 0 0 0 0 0\n";
        let expected = BTreeMap::from([(0, (5, 0)), (2, (6, 0))]);
        assert_eq!(softnet("/proc/net/softnet_stat", text, &[0, 2]), Ok(expected));
        for bad in ["x", "1 2 3", "1 5 0 0 0 0 0 0 0 0 0\n1 5 0 0 0 0 0 0 0 0 0\n1 5 0 0 0 0 0 0 0 0 0\n"] {
            assert!(softnet("/proc/net/softnet_stat", bad, &[0, 2]).is_err(), "{bad}");
        }
    }

    #[test]
    fn balanced_is_who_has_domains_in_each_version() {
        for (version, name) in [(15, ""), (16, ""), (17, "MC ")] {
            let machine = read(&format!(
                "=== /proc/schedstat\nversion {version}\ntimestamp 5\ncpu0 0 0 0\ndomain0 {name}05 0 0\n\
                 domain1 {name}0f 0 0\ncpu1 0 0 0\ncpu2 0 0 0\ndomain0 {name}05 0 0\n"
            ));
            assert_eq!(machine.balanced.unwrap().to_string(), "0,2");
        }
        assert_eq!(read(CPUS).balanced, None);
    }

    #[test]
    fn nonsense_is_told_and_the_cpus_are_still_there() {
        let machine = read(&format!(
            "{CPUS}=== /proc/stat\ncpu0 1 2\n=== /proc/softirqs\nnonsense\n=== /proc/net/softnet_stat\nzz\n\
             === /proc/schedstat\ndomain0 1\n"
        ));
        assert_eq!(machine.load.iter().map(|load| load.cpu).collect::<Vec<_>>(), [0, 2]);
        for path in
            ["/proc/stat, line 1", "/proc/softirqs, line 1", "softnet_stat, line 1", "schedstat, line 1"]
        {
            assert_eq!(told(&machine, path).len(), 1, "{path}: {:?}", machine.unknown);
        }
        let long = stat("/proc/stat", "cpu0 18446744073709551615 1 1 1 1 1 1 1\n").unwrap();
        assert_eq!(long[&0].tasks_ticks, u64::MAX);
    }
}

//! Load of each CPU since boot, and which CPUs the scheduler balances.

use super::reading::Reading;
use super::{Cpu, CpuLoad};
use spangap_machine::FactError;
use spangap_machine::facts::{cpu_table, softnet_stat, stat};
use spangap_model::Cpus;

/// Reads the load of each online CPU.
pub(super) fn read(reading: &mut Reading, cpus: &[Cpu]) -> Vec<CpuLoad> {
    let online: Cpus = cpus.iter().map(|cpu| cpu.number).collect();
    let mut stat = reading.needed(stat::PATH, stat::parse).unwrap_or_default();
    let softnet = reading.needed(softnet_stat::PATH, |path, text| softnet_stat::parse(path, text, &online));
    let softnet = softnet.unwrap_or_default();
    let mut softirqs = reading.needed(cpu_table::SOFTIRQS, cpu_table::parse).unwrap_or_default();
    let vector = |name: &str, cpu| softirqs.row(name).map_or(0, |row| row.on(cpu));
    let load = online.iter().map(|cpu| {
        let times = stat.cpus.get(&cpu).copied().unwrap_or_default();
        let softnet = softnet.get(&cpu).copied().unwrap_or_default();
        CpuLoad {
            cpu,
            tasks_ticks: times.busy,
            softirq_ticks: times.softirq,
            irq_ticks: times.irq,
            steal_ticks: times.steal,
            idle_ticks: times.idle,
            net_rx: vector("NET_RX", cpu),
            net_tx: vector("NET_TX", cpu),
            backlog_dropped: softnet.dropped,
            time_squeeze: softnet.time_squeeze,
        }
    });
    let load = load.collect();
    reading.unknown.append(&mut stat.bad);
    reading.unknown.append(&mut softirqs.bad);
    load
}

/// From `/proc/schedstat`: a CPU that has `domain` lines is balanced with others.
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
    fn balanced_cpus_have_domains_in_each_version() {
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
    fn malformed_files_do_not_hide_cpus() {
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
        let long = read(&format!(
            "{CPUS}=== /proc/stat\ncpu0 18446744073709551615 1 1 1 1 1 1 1\ncpu2 5 0 0 0 0 0 0 0\n"
        ));
        assert_eq!(told(&long, "/proc/stat, line 1").len(), 1);
        assert_eq!((long.load[0].tasks_ticks, long.load[1].tasks_ticks), (0, 5));
    }
}

//! Tables of the kernel with a figure per CPU: `/proc/interrupts`, `/proc/softirqs`, `/proc/stat`, `softnet_stat`.

use super::super::{Cpus, FactError, Known};
use super::text;
use std::collections::BTreeMap;

/// A line of `/proc/interrupts` or `/proc/softirqs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// `146`, `LOC`, `NET_RX`.
    pub name: String,
    /// What is written behind the figures: controller and devices.
    pub label: String,
    /// How often, by CPU, since boot.
    pub counts: BTreeMap<u32, u64>,
}

/// Reads `/proc/interrupts` or `/proc/softirqs`.
///
/// # Errors
/// The line that is of another form.
pub fn per_cpu(path: &str, table: &str) -> Known<Vec<Row>> {
    let heading = table.lines().next().unwrap_or_default();
    let cpus: Option<Vec<u32>> =
        heading.split_whitespace().map(|word| word.strip_prefix("CPU")?.parse().ok()).collect();
    let cpus = cpus
        .filter(|cpus| !cpus.is_empty())
        .ok_or_else(|| FactError::malformed(path, 0, heading, "a heading of CPUs: CPU0 CPU1"))?;
    let rows = table.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty());
    let read = |(at, line): (usize, &str)| {
        let bad = || FactError::malformed(path, at, line, "a name, a colon, and a figure per CPU");
        let (name, rest) = line.split_once(':').ok_or_else(bad)?;
        let mut rest = rest.trim_start();
        let mut counts = BTreeMap::new();
        for cpu in &cpus {
            let word = rest.split_whitespace().next().unwrap_or_default();
            let Some(count) = text::count(word) else { break };
            counts.insert(*cpu, count);
            rest = rest[word.len()..].trim_start();
        }
        // `ERR:` and `MIS:` have one figure for all.
        if counts.is_empty() {
            return Err(bad());
        }
        Ok(Row { name: name.trim().to_owned(), label: rest.trim_end().to_owned(), counts })
    };
    rows.map(read).collect()
}

/// What a CPU did, in ticks of 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// In programs, and in kernel on their behalf.
    pub busy: u64,
    /// Idle, also while something waits for a disk.
    pub idle: u64,
    /// In interrupt handlers.
    pub irq: u64,
    /// In softirqs.
    pub softirq: u64,
    /// Kept away by the hypervisor.
    pub steal: u64,
}

impl Times {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.busy + self.idle + self.irq + self.softirq + self.steal
    }

    /// What came since.
    pub fn since(&self, before: &Times) -> Times {
        Times {
            busy: self.busy.saturating_sub(before.busy),
            idle: self.idle.saturating_sub(before.idle),
            irq: self.irq.saturating_sub(before.irq),
            softirq: self.softirq.saturating_sub(before.softirq),
            steal: self.steal.saturating_sub(before.steal),
        }
    }

    /// Together.
    pub fn plus(&self, other: &Times) -> Times {
        Times {
            busy: self.busy + other.busy,
            idle: self.idle + other.idle,
            irq: self.irq + other.irq,
            softirq: self.softirq + other.softirq,
            steal: self.steal + other.steal,
        }
    }
}

/// Reads `/proc/stat`.
///
/// # Errors
/// A line of a CPU that is of another form.
pub fn stat(path: &str, table: &str) -> Known<BTreeMap<u32, Times>> {
    let mut all = BTreeMap::new();
    for (at, line) in table.lines().enumerate() {
        let bad = || FactError::malformed(path, at, line, "cpuN and at least 8 figures in ticks");
        let mut words = line.split_whitespace();
        let Some(cpu) = words.next().and_then(|name| name.strip_prefix("cpu")).filter(|cpu| !cpu.is_empty())
        else {
            continue;
        };
        let cpu = cpu.parse().map_err(|_| bad())?;
        let figures: Option<Vec<u64>> = words.map(text::count).collect();
        let figures = figures.ok_or_else(bad)?;
        let &[user, nice, system, idle, iowait, irq, softirq, steal, ..] = figures.as_slice() else {
            return Err(bad());
        };
        all.insert(
            cpu,
            Times { busy: user + nice + system, idle: idle.saturating_add(iowait), irq, softirq, steal },
        );
    }
    if all.is_empty() {
        return Err(FactError::malformed(path, 0, table, "lines cpu0, cpu1, ..."));
    }
    Ok(all)
}

/// What a CPU's queue of received packets has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Softnet {
    /// Packets.
    pub processed: u64,
    /// Packets dropped because its backlog was full.
    pub dropped: u64,
    /// Times NET_RX stopped with work left.
    pub time_squeeze: u64,
    /// Packets that other CPUs handed over (RPS); `None` before Linux 2.6.35.
    pub received_rps: Option<u64>,
    /// Packets dropped by the flow limit; `None` before Linux 3.11.
    pub flow_limit: Option<u64>,
}

/// Reads `/proc/net/softnet_stat`. Lines without a CPU's number (before Linux 5.10) are those of `online`, in order.
///
/// # Errors
/// The line that is of another form.
pub fn softnet(path: &str, text: &str, online: &Cpus) -> Known<BTreeMap<u32, Softnet>> {
    let mut all = BTreeMap::new();
    for ((at, line), online) in
        text.lines().enumerate().zip(online.iter().map(Some).chain(std::iter::repeat(None)))
    {
        let bad = || FactError::malformed(path, at, line, "at least 3 hexadecimal figures");
        let figures: Result<Vec<u32>, _> =
            line.split_whitespace().map(|word| u32::from_str_radix(word, 16)).collect();
        let figures = figures.map_err(|_| bad())?;
        let &[processed, dropped, time_squeeze, ..] = figures.as_slice() else { return Err(bad()) };
        let figure = |at: usize| figures.get(at).copied();
        let cpu = figure(12).or(online).unwrap_or(at as u32);
        let softnet = Softnet {
            processed: u64::from(processed),
            dropped: u64::from(dropped),
            time_squeeze: u64::from(time_squeeze),
            received_rps: figure(9).map(u64::from),
            flow_limit: figure(10).map(u64::from),
        };
        all.insert(cpu, softnet);
    }
    if all.is_empty() { Err(FactError::malformed(path, 0, text, "a line per CPU")) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_the_kernel_writes_is_read(
            cpus in prop::collection::btree_set(0_u32..200, 1..6),
            rows in prop::collection::vec(("[A-Z]{3}|[0-9]{1,3}", prop::collection::vec(0_u64..1 << 53, 6), "[A-Za-z][A-Za-z0-9 -]{0,20}[a-z]"), 0..6),
        ) {
            let mut text: String = cpus.iter().map(|cpu| format!("       CPU{cpu}")).collect();
            text.push('\n');
            for (name, counts, label) in &rows {
                let counts: String = counts.iter().take(cpus.len()).map(|count| format!(" {count:10}")).collect();
                text += &format!(" {name}:{counts}  {label}\n");
            }
            let expected: Vec<Row> = rows.iter().map(|(name, counts, label)| Row {
                name: name.clone(), label: label.clone(), counts: cpus.iter().copied().zip(counts.iter().copied()).collect(),
            }).collect();
            prop_assert_eq!(per_cpu("/proc/interrupts", &text), Ok(expected));
        }

        #[test]
        fn softnet_of_any_kernel(rows in prop::collection::vec(any::<[u32; 11]>(), 1..8), columns in 3_usize..=15) {
            let online: Cpus = (0..rows.len() as u32).map(|cpu| cpu * 2).collect();
            let mut text = String::new();
            for (row, cpu) in rows.iter().zip(online.iter()) {
                let words = row.iter().copied().chain([0, cpu, 0, 0]).take(columns);
                text += &words.map(|word| format!("{word:08x} ")).collect::<String>();
                text += "\n";
            }
            let read = softnet("/proc/net/softnet_stat", &text, &online).unwrap();
            prop_assert_eq!(read.keys().copied().collect::<Cpus>(), online);
            for (softnet, row) in read.values().zip(&rows) {
                prop_assert_eq!(softnet.time_squeeze, u64::from(row[2]));
                prop_assert_eq!(softnet.flow_limit, (columns > 10).then_some(u64::from(row[10])));
            }
        }

        #[test]
        fn no_text_panics(text in "\\PC*|(cpu[0-9]{0,2}( [0-9]{1,3}){0,9}\n){0,3}|( CPU[0-9]+){0,3}\n\\PC*:( [0-9]+){0,4}\\PC*") {
            let _ = (per_cpu("/p", &text), stat("/p", &text), softnet("/p", &text, &Cpus::default()));
        }
    }

    #[test]
    fn interrupts_with_a_cpu_offline_and_lines_with_one_figure() {
        let text = "            CPU0       CPU2       \n  24:          1          7  IO-APIC   5-edge      eth0-rx-0\n ERR:          3\n";
        let rows = per_cpu("/proc/interrupts", text).unwrap();
        assert_eq!(rows[0].counts, [(0, 1), (2, 7)].into());
        assert_eq!((rows[0].label.as_str(), rows[1].counts[&0]), ("IO-APIC   5-edge      eth0-rx-0", 3));
        let error = per_cpu("/proc/interrupts", "CPU0\nnonsense\n").unwrap_err().to_string();
        assert_eq!(
            error,
            "/proc/interrupts, line 2: found \"nonsense\", expected a name, a colon, and a figure per CPU"
        );
    }

    #[test]
    fn times_of_cpus() {
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\nintr 5\n";
        let times = stat("/proc/stat", text).unwrap();
        assert_eq!(times, [(0, Times { busy: 6, idle: 9, irq: 6, softirq: 7, steal: 8 })].into());
        assert_eq!(times[&0].total(), 36);
        assert!(stat("/proc/stat", "cpu0 1 2\n").unwrap_err().to_string().contains("line 1"));
    }
}

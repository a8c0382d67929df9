//! Interrupts: how many came where, and where they may go.

use super::reading::{Reading, count};
use super::{Cpu, Irq};
use spangap_machine::{FactError, Known};

const INTERRUPTS: &str = "/proc/interrupts";

/// A line of `/proc/interrupts` or `/proc/softirqs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// `146`, `LOC`, `NET_RX`.
    pub name: String,
    /// How many, in the order of the columns.
    pub counts: Vec<u64>,
    /// What is written behind: controller and names.
    pub rest: String,
}

/// A table with a column for each online CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// CPU of each column.
    pub cpus: Vec<u32>,
    /// Its lines; those of another form are left out.
    pub rows: Vec<Row>,
    /// The lines that were left out.
    pub bad: Vec<FactError>,
}

impl Table {
    /// The counts of a line in the order of other CPUs; 0 for one that has no column.
    pub fn by_cpu(&self, row: &Row, cpus: &[Cpu]) -> Vec<u64> {
        let mut columns = vec![0; self.cpus.iter().max().map_or(0, |last| *last as usize + 1)];
        for (cpu, count) in self.cpus.iter().zip(&row.counts) {
            columns[*cpu as usize] = *count;
        }
        cpus.iter().map(|cpu| columns.get(cpu.number as usize).copied().unwrap_or(0)).collect()
    }
}

/// Reads a table whose heading names the CPUs.
pub(super) fn table(path: &str, text: &str) -> Known<Table> {
    let heading = text.lines().next().unwrap_or_default();
    let number =
        |word: &str| word.strip_prefix("CPU")?.parse().ok().filter(|cpu| *cpu <= u32::from(u16::MAX));
    let cpus: Option<Vec<u32>> = heading.split_whitespace().map(number).collect();
    let cpus = cpus
        .filter(|cpus| !cpus.is_empty())
        .ok_or_else(|| FactError::malformed(path, 0, heading, "a heading of CPUs, CPU0 CPU1"))?;
    let mut table = Table { cpus, rows: Vec::new(), bad: Vec::new() };
    for (at, line) in text.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty()) {
        match row(line, table.cpus.len()) {
            Some(row) => table.rows.push(row),
            None => {
                let expected = "a name, a colon, and a count for each CPU";
                table.bad.push(FactError::malformed(path, at, line, expected));
            }
        }
    }
    Ok(table)
}

fn row(line: &str, columns: usize) -> Option<Row> {
    let (name, mut rest) = line.split_once(':')?;
    let name = name.trim();
    let mut counts = Vec::new();
    while counts.len() < columns {
        let trimmed = rest.trim_start();
        let word = trimmed.split_whitespace().next().filter(|word| !word.is_empty());
        let Some((word, number)) = word.and_then(|word| Some((word, count(word)?))) else { break };
        counts.push(number);
        rest = &trimmed[word.len()..];
    }
    // `ERR:` and `MIS:` have one figure for all; an interrupt has one for each CPU.
    let whole = counts.len() == columns || (count(name).is_none() && !counts.is_empty());
    whole.then(|| Row { name: name.to_owned(), counts, rest: rest.trim_end().to_owned() })
}

/// Who asked for an interrupt. The kernel writes two blanks before the names, after controller, number and trigger.
fn names(rest: &str) -> &str {
    rest.rsplit_once("  ").map_or(rest, |(_, names)| names).trim()
}

/// Reads all interrupts that have a number.
pub(super) fn read(reading: &mut Reading, cpus: &[Cpu]) -> Vec<Irq> {
    let Some(mut table) = reading.needed(INTERRUPTS, table) else { return Vec::new() };
    reading.unknown.append(&mut table.bad);
    let numbered = table.rows.iter().filter_map(|row| Some((row.name.parse().ok()?, row)));
    let mut irqs: Vec<Irq> = numbered
        .map(|(number, row): (u32, &Row)| Irq {
            number,
            name: names(&row.rest).to_owned(),
            affinity: reading.list(&format!("/proc/irq/{number}/smp_affinity_list")),
            effective: reading.list(&format!("/proc/irq/{number}/effective_affinity_list")),
            counts: table.by_cpu(row, cpus),
        })
        .collect();
    irqs.sort_by_key(|irq| irq.number);
    irqs.dedup_by_key(|irq| irq.number);
    irqs
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read, told};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tables_are_read_as_they_are_written(
            cpus in prop::collection::btree_set(0_u32..400, 1..40),
            rows in prop::collection::vec(("[0-9]{1,3}|[A-Z]{3}", prop::collection::vec(any::<u64>(), 40)), 0..6),
        ) {
            let mut text: String = cpus.iter().map(|cpu| format!(" CPU{cpu:<8}")).collect();
            for (name, counts) in &rows {
                text += &format!("\n{name:>4}:");
                text.extend(counts.iter().take(cpus.len()).map(|count| format!(" {count:>10}")));
                text += "   PCI-MSI 5-edge      eth0-TxRx-1";
            }
            let table = table("/proc/interrupts", &text).unwrap();
            prop_assert_eq!(&table.bad, &Vec::new());
            prop_assert_eq!(table.cpus, cpus.iter().copied().collect::<Vec<_>>());
            for (read, (name, counts)) in table.rows.iter().zip(&rows) {
                prop_assert_eq!((&read.name, &read.counts[..]), (name, &counts[..cpus.len()]));
                prop_assert_eq!(names(&read.rest), "eth0-TxRx-1");
            }
        }
    }

    #[test]
    fn columns_are_online_cpus_and_names_come_last() {
        let machine = read(
            "=== /sys/devices/system/cpu/online\n0,2\n=== /proc/interrupts\n           CPU0       CPU2\n\
             146:   3   4   PCI-MSI 1-edge      eth0-TxRx-0\n 9:   1   2   IO-APIC   9-fasteoi   acpi, eth 1\n\
             30:   5   6     GICv3  27 Level     arch_timer\n31: 7 8   xen-dyn   -event     eth0-q0-tx\n\
             LOC:   7   8   Local timer interrupts\nERR:   0\n\
             === /proc/irq/146/smp_affinity_list\n0-2\n=== /proc/irq/146/effective_affinity_list\n2\n",
        );
        let shown: Vec<(u32, &str, &[u64])> =
            machine.irqs.iter().map(|irq| (irq.number, irq.name.as_str(), irq.counts.as_slice())).collect();
        assert_eq!(
            shown,
            [
                (9, "acpi, eth 1", &[1, 2][..]),
                (30, "arch_timer", &[5, 6]),
                (31, "eth0-q0-tx", &[7, 8]),
                (146, "eth0-TxRx-0", &[3, 4])
            ]
        );
        let irq = &machine.irqs[3];
        assert_eq!(irq.affinity.as_ref().unwrap().to_string(), "0-2");
        assert_eq!(irq.effective.as_ref().unwrap().to_string(), "2");
    }

    #[test]
    fn lines_cut_off_are_told_and_the_rest_is_read() {
        let machine = read(
            "=== /sys/devices/system/cpu/online\n0-1\n\
             === /proc/interrupts\n CPU0 CPU1\n 5: 1 2 x  a\nnonsense\n 6: 1\n",
        );
        assert_eq!(machine.irqs.len(), 1);
        assert_eq!(
            told(&machine, "/proc/interrupts, "),
            [
                "/proc/interrupts, line 3: found \"nonsense\", expected a name, a colon, and a count for each CPU",
                "/proc/interrupts, line 4: found \"6: 1\", expected a name, a colon, and a count for each CPU",
            ]
        );
        for heading in ["", "nonsense", "CPU0 CPUx", "CPU99999999999"] {
            assert!(table("/proc/interrupts", heading).is_err(), "{heading}");
        }
    }
}

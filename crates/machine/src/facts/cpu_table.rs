//! `/proc/interrupts` and `/proc/softirqs`: a heading of CPUs, then a line per interrupt or vector.
//!
//! The heading names the CPUs of the columns, which need not start at 0 or be contiguous: `interrupts` has
//! online CPUs, `softirqs` all possible ones.

use super::figures::count;
use crate::{FactError, Known};
use std::collections::BTreeMap;

/// Hardware interrupts, a line each.
pub const INTERRUPTS: &str = "/proc/interrupts";
/// Softirqs, a line per vector.
pub const SOFTIRQS: &str = "/proc/softirqs";

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// `146`, `LOC`, `NET_RX`.
    pub name: String,
    /// Counts by CPU since boot. `ERR` and `MIS` have a single figure for the whole machine, stored at the
    /// first CPU.
    pub counts: BTreeMap<u32, u64>,
    /// Text after the figures: controller, trigger and devices.
    pub label: String,
}

impl Row {
    /// Devices of the interrupt, such as `eth0-TxRx-1` or `acpi, i8042`; empty if there are none.
    ///
    /// The kernel writes two blanks before the names, after controller, number and trigger.
    pub fn devices(&self) -> String {
        let (head, tail) = self.label.rsplit_once("  ").unwrap_or(("", &self.label));
        let behind = |text: &str| {
            let words: Vec<&str> = text.split_whitespace().collect();
            let trigger = words.iter().position(|word| is_trigger(word))?;
            Some(words[trigger + 1..].join(" "))
        };
        match behind(tail) {
            // Only the trigger precedes it, so this is not a device name.
            Some(names) if behind(head).is_none() => names,
            _ => tail.trim().to_owned(),
        }
    }

    /// Count on this CPU; 0 for a CPU without a column.
    pub fn on(&self, cpu: u32) -> u64 {
        self.counts.get(&cpu).copied().unwrap_or(0)
    }
}

/// `5-edge` on x86, `Level` elsewhere.
fn is_trigger(word: &str) -> bool {
    let kinds = ["-edge", "-level", "-fasteoi", "-event"];
    kinds.iter().any(|kind| word.ends_with(kind)) || matches!(word, "Edge" | "Level")
}

/// The whole table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Its lines, except for malformed ones.
    pub rows: Vec<Row>,
    /// Errors of the malformed lines.
    pub bad: Vec<FactError>,
}

impl Table {
    /// All lines, for callers that need them complete.
    ///
    /// # Errors
    /// The first malformed line.
    pub fn whole(self) -> Known<Vec<Row>> {
        self.bad.into_iter().next().map_or(Ok(self.rows), Err)
    }

    /// The line with this name.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }
}

/// Parses a table.
///
/// # Errors
/// The heading names no CPUs.
pub fn parse(path: &str, text: &str) -> Known<Table> {
    let heading = text.lines().next().unwrap_or_default();
    let number =
        |word: &str| word.strip_prefix("CPU")?.parse().ok().filter(|cpu| *cpu <= u32::from(u16::MAX));
    let cpus: Option<Vec<u32>> = heading.split_whitespace().map(number).collect();
    let cpus = cpus
        .filter(|cpus| !cpus.is_empty())
        .ok_or_else(|| FactError::malformed(path, 0, heading, "a heading of CPUs, CPU0 CPU1"))?;
    let mut table = Table::default();
    for (at, line) in text.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty()) {
        match row(line, &cpus) {
            Some(row) => table.rows.push(row),
            None => {
                let expected = "a name, a colon, and a count for each CPU";
                table.bad.push(FactError::malformed(path, at, line, expected));
            }
        }
    }
    Ok(table)
}

fn row(line: &str, cpus: &[u32]) -> Option<Row> {
    let (name, mut rest) = line.split_once(':')?;
    let name = name.trim();
    let mut counts = BTreeMap::new();
    for cpu in cpus {
        rest = rest.trim_start();
        let word = rest.split_whitespace().next().unwrap_or_default();
        let Some(number) = count(word) else { break };
        counts.insert(*cpu, number);
        rest = &rest[word.len()..];
    }
    // `ERR:` and `MIS:` have a single figure; an interrupt has one per CPU.
    let whole = counts.len() == cpus.len() || (count(name).is_none() && !counts.is_empty());
    whole.then(|| Row { name: name.to_owned(), counts, label: rest.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tables_are_read_as_they_are_written(
            cpus in prop::collection::btree_set(0_u32..400, 1..40),
            rows in prop::collection::vec(("[0-9]{1,3}|[A-Z]{3}", prop::collection::vec(0_u64..1 << 53, 40), "[A-Za-z][A-Za-z0-9 -]{0,20}[a-z]"), 0..6),
        ) {
            let mut text: String = cpus.iter().map(|cpu| format!(" CPU{cpu:<8}")).collect();
            for (name, counts, label) in &rows {
                text += &format!("\n{name:>4}:");
                text.extend(counts.iter().take(cpus.len()).map(|count| format!(" {count:>10}")));
                text += &format!("   {label} 5-edge      eth0-TxRx-1");
            }
            let table = parse(INTERRUPTS, &text).unwrap();
            prop_assert_eq!(&table.bad, &Vec::new());
            prop_assert_eq!(table.rows.len(), rows.len());
            for (read, (name, counts, label)) in table.rows.iter().zip(&rows) {
                prop_assert_eq!((&read.name, read.devices()), (name, "eth0-TxRx-1".to_owned()));
                prop_assert!(read.label.starts_with(label.as_str()));
                let expected = cpus.iter().copied().zip(counts.iter().copied()).collect();
                prop_assert_eq!(&read.counts, &expected);
            }
        }
    }

    #[test]
    fn a_cpu_is_offline_and_some_lines_have_one_figure() {
        let text = "            CPU0       CPU2       \n  24:          1          7  IO-APIC   5-edge      eth0-rx-0\n ERR:          3\n";
        let rows = parse(INTERRUPTS, text).unwrap().whole().unwrap();
        assert_eq!(rows[0].counts, [(0, 1), (2, 7)].into());
        assert_eq!((rows[0].on(2), rows[0].on(1)), (7, 0));
        assert_eq!((rows[0].label.as_str(), rows[1].counts[&0]), ("IO-APIC   5-edge      eth0-rx-0", 3));
    }

    #[test]
    fn truncated_lines_are_reported_and_the_rest_is_read() {
        let table = parse(INTERRUPTS, " CPU0 CPU1\n 5: 1 2 x  a\nnonsense\n 6: 1\n 7: 1 -2 x  b\n").unwrap();
        assert_eq!((table.rows.len(), table.bad.len()), (1, 3));
        assert_eq!(
            table.whole().unwrap_err().to_string(),
            "/proc/interrupts, line 3: found \"nonsense\", expected a name, a colon, and a count for each CPU"
        );
        for heading in ["", "nonsense", "CPU0 CPUx", "CPU99999999999"] {
            assert!(parse(INTERRUPTS, heading).is_err(), "{heading}");
        }
    }

    #[test]
    fn devices_of_interrupts() {
        for (label, devices) in [
            ("IO-APIC   5-edge      ACPI:Ged", "ACPI:Ged"),
            ("PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0", "virtio2-input.0"),
            ("IR-PCI-MSI 524288-edge      eth0-TxRx-0, other thing", "eth0-TxRx-0, other thing"),
            ("IO-APIC   9-fasteoi   acpi, eth 1", "acpi, eth 1"),
            // Linux 2.6
            ("PCI-MSI-edge      eth0", "eth0"),
            // Xen, and ARM, which have no number before the trigger, or one separated from it.
            ("xen-dyn   -event     eth0-q0-tx", "eth0-q0-tx"),
            ("GICv3  27 Level     arch_timer", "arch_timer"),
            // These have no devices.
            ("IO-APIC   2-edge", ""),
            ("GICv3  27 Level", ""),
            ("PCI-MSI 1-edge eth0 1", "eth0 1"),
            ("", ""),
        ] {
            let row = Row { name: "1".into(), counts: BTreeMap::new(), label: label.into() };
            assert_eq!(row.devices(), devices, "{label}");
        }
    }
}

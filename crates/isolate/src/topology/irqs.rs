//! Interrupts: counts per CPU, and affinities.

use super::reading::Reading;
use super::{Cpu, Irq};
use spangap_machine::facts::cpu_table::{self, Row};

/// Reads all numbered interrupts.
pub(super) fn read(reading: &mut Reading, cpus: &[Cpu]) -> Vec<Irq> {
    let Some(mut table) = reading.needed(cpu_table::INTERRUPTS, cpu_table::parse) else { return Vec::new() };
    reading.unknown.append(&mut table.bad);
    let numbered = table.rows.iter().filter_map(|row| Some((row.name.parse().ok()?, row)));
    let mut irqs: Vec<Irq> = numbered
        .map(|(number, row): (u32, &Row)| Irq {
            number,
            name: row.devices(),
            affinity: reading.list(&format!("/proc/irq/{number}/smp_affinity_list")),
            effective: reading.list(&format!("/proc/irq/{number}/effective_affinity_list")),
            counts: cpus.iter().map(|cpu| row.on(cpu.number)).collect(),
        })
        .collect();
    irqs.sort_by_key(|irq| irq.number);
    irqs.dedup_by_key(|irq| irq.number);
    irqs
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read, told};

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
    fn truncated_lines_are_reported_and_the_rest_is_read() {
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
    }
}

//! Services that move interrupts and tasks: irqbalance and tuned.

use super::owner::unit;
use super::reading::Reading;
use super::tasks::Tasks;
use super::{Irqbalance, Tuned};
use spangap_machine::facts::process_cgroup::{self, Membership};
use spangap_machine::{FactError, Known};

const SETUP: &str = "/irqbalance/setup";

/// A running irqbalance.
pub(super) fn irqbalance(reading: &mut Reading, tasks: &Tasks) -> Option<Irqbalance> {
    let pid = process(tasks, "irqbalance")?;
    let cgroup = reading.parsed(&format!("/proc/{pid}/{}", process_cgroup::NAME), process_cgroup::parse);
    let unit = unit_of(&cgroup.unwrap_or_default());
    Some(Irqbalance { pid, banned: reading.parsed(SETUP, banned), unit })
}

/// A running tuned.
pub(super) fn tuned(reading: &mut Reading, tasks: &Tasks) -> Option<Tuned> {
    let pid = process(tasks, "tuned")?;
    let profile = reading.text("/etc/tuned/active_profile").map(|profile| profile.trim().to_owned());
    Some(Tuned { pid, profile: profile.filter(|profile| !profile.is_empty()) })
}

fn process(tasks: &Tasks, name: &str) -> Option<u32> {
    tasks.processes.iter().find(|(_, comm)| comm == name).map(|(pid, _)| *pid)
}

/// The service that a process belongs to: in version 2, or in systemd's own hierarchy of version 1.
fn unit_of(all: &[Membership]) -> Option<String> {
    let its = all.iter().filter(|one| one.is_v2() || one.has("name=systemd"));
    its.filter_map(|one| unit(&one.path)).find(|unit| unit.ends_with(".service"))
}

/// Parses irqbalance's response to `setup`: `SLEEP 10 IRQ 41 LOAD 0 DIFF 0 CLASS 5 BANNED 00000000`, the
/// interrupts that it leaves alone.
fn banned(path: &str, text: &str) -> Known<Vec<u32>> {
    let bad = || FactError::malformed(path, 0, text, "SLEEP, interrupts and BANNED, as irqbalance answers");
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.first() != Some(&"SLEEP") || !words.contains(&"BANNED") {
        return Err(bad());
    }
    let numbers = words.windows(2).filter(|pair| pair[0] == "IRQ").map(|pair| pair[1].parse());
    let mut numbers = numbers.collect::<Result<Vec<u32>, _>>().map_err(|_| bad())?;
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read, told};
    use super::*;

    const STAT: &str = "S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7 0 0";

    #[test]
    fn running_services_with_units_and_settings() {
        let machine = read(&format!(
            "=== /proc/812/stat\n812 (irqbalance) {STAT}\n=== /proc/812/cgroup\n3:cpuset:/\n\
             1:name=systemd:/system.slice/irqbalance.service\n0::/system.slice/irqbalance.service\n\
             === {SETUP}\nSLEEP 10 IRQ 148 LOAD 12 DIFF 0 CLASS 5 IRQ 9 LOAD 0 DIFF 0 CLASS 0 BANNED 00000000,00000000\n\
             === /proc/900/comm\ntuned\n=== /etc/tuned/active_profile\nnetwork-latency\n"
        ));
        let irqbalance = machine.irqbalance.unwrap();
        assert_eq!((irqbalance.pid, irqbalance.banned), (812, Some(vec![9, 148])));
        assert_eq!(irqbalance.unit.as_deref(), Some("irqbalance.service"));
        assert_eq!(machine.tuned, Some(Tuned { pid: 900, profile: Some("network-latency".into()) }));
    }

    #[test]
    fn silent_and_missing_irqbalance() {
        let machine =
            read(&format!("=== /proc/5/stat\n5 (irqbalance) {STAT}\n=== /proc/5/cgroup\n0::/user.slice\n"));
        assert_eq!(machine.irqbalance, Some(Irqbalance { pid: 5, banned: None, unit: None }));
        assert_eq!(read("=== /proc/5/comm\nirqbalance-ui\n").irqbalance, None);
        for bad in ["", "SLEEP 10", "SLEEP 10 IRQ x BANNED 0", "BANNED 0"] {
            let machine = read(&format!("=== /proc/5/comm\nirqbalance\n=== {SETUP}\n{bad}\n"));
            assert_eq!(
                (machine.irqbalance.clone().unwrap().banned, told(&machine, SETUP).len()),
                (None, 1),
                "{bad}"
            );
        }
    }
}

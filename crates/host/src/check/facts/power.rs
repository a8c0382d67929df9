//! Power management of CPUs: idle states and frequencies.

use super::super::{Cpus, FactError, Host, Known};
use spangap_machine::facts::figures;
use std::collections::BTreeMap;

/// An idle state of a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleState {
    /// `C6`.
    pub name: String,
    /// Exit latency in microseconds, as reported by the driver or firmware.
    pub exit_us: u64,
    /// Whether the state is disabled.
    pub disabled: bool,
    pub folder: String,
}

/// Idle-state management.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idle {
    /// Driver that provides the states: `intel_idle`, `acpi_idle`, `haltpoll`.
    pub driver: String,
    /// Governor that chooses among them: `menu`, `teo`.
    pub governor: String,
    /// States of one representative CPU, the deepest last.
    pub states: Vec<IdleState>,
}

/// Reads the idle states of one CPU; all CPUs of a machine are assumed alike.
///
/// # Errors
/// The machine has no cpuidle, or its files cannot be read.
pub fn idle(host: &Host, cpu: u32) -> Known<Idle> {
    let word = |file: &str| Ok::<_, FactError>(host.read(file)?.trim().to_owned());
    let driver = word("/sys/devices/system/cpu/cpuidle/current_driver")?;
    let governor = word("/sys/devices/system/cpu/cpuidle/current_governor_ro")
        .or_else(|_| word("/sys/devices/system/cpu/cpuidle/current_governor"))?;
    let at = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle");
    let mut states = Vec::new();
    for name in host.list(&at)?.iter().filter(|name| name.starts_with("state")) {
        let folder = format!("{at}/{name}");
        let number = |file: &str| host.parsed::<i64>(&format!("{folder}/{file}"), figures::number);
        let state = IdleState {
            name: word(&format!("{folder}/name"))?,
            exit_us: u64::try_from(number("latency")?).unwrap_or(0),
            disabled: number("disable")? != 0,
            folder: folder.clone(),
        };
        states.push(state);
    }
    Ok(Idle { driver, governor, states })
}

/// For each idle state, by folder name: entries and microseconds of residency, summed over these CPUs.
///
/// # Errors
/// A counter cannot be read.
pub fn idle_spent(host: &Host, cpus: &Cpus) -> Known<BTreeMap<String, (u64, u64)>> {
    let mut spent: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for cpu in cpus.iter() {
        let at = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle");
        for state in host.list(&at)? {
            let number = |file: &str| {
                host.parsed::<i64>(&format!("{at}/{state}/{file}"), figures::number)
                    .map(|figure| figure.max(0) as u64)
            };
            let (usage, time_us) = (number("usage")?, number("time")?);
            let sum = spent.entry(state.clone()).or_default();
            *sum = (sum.0.saturating_add(usage), sum.1.saturating_add(time_us));
        }
    }
    Ok(spent)
}

/// Frequency limits of a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frequency {
    pub cpu: u32,
    /// `intel_pstate`, `acpi-cpufreq`, `amd-pstate-epp`.
    pub driver: String,
    /// `performance`, `powersave`, `schedutil`.
    pub governor: String,
    /// Energy-performance preference, where the hardware picks the frequency.
    pub epp: Option<String>,
    /// Configured maximum, in kHz.
    pub limit_khz: u64,
    /// Hardware maximum, in kHz.
    pub top_khz: u64,
}

/// Reads the frequency limits of these CPUs.
///
/// # Errors
/// The machine has no cpufreq, or its files cannot be read.
pub fn frequencies(host: &Host, cpus: &Cpus) -> Known<Vec<Frequency>> {
    let one = |cpu| {
        let at = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq");
        let word = |file: &str| Ok::<_, FactError>(host.read(&format!("{at}/{file}"))?.trim().to_owned());
        let number = |file: &str| {
            host.parsed::<i64>(&format!("{at}/{file}"), figures::number).map(|figure| figure.max(0) as u64)
        };
        Ok(Frequency {
            cpu,
            driver: word("scaling_driver")?,
            governor: word("scaling_governor")?,
            epp: word("energy_performance_preference").ok(),
            limit_khz: number("scaling_max_freq")?,
            top_khz: number("cpuinfo_max_freq")?,
        })
    };
    cpus.iter().map(one).collect()
}

/// Whether turbo is enabled, and the file that says so.
pub fn turbo(host: &Host) -> Option<(&'static str, bool)> {
    let said = |path: &'static str, on: &str| Some((path, host.read(path).ok()?.trim() == on));
    said("/sys/devices/system/cpu/intel_pstate/no_turbo", "0")
        .or_else(|| said("/sys/devices/system/cpu/cpufreq/boost", "1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_machine::Kept;

    #[test]
    fn idle_states_and_their_residency() {
        let tree = "=== /sys/devices/system/cpu/cpuidle/current_driver\nintel_idle\n\
                    === /sys/devices/system/cpu/cpuidle/current_governor\nmenu\n\
                    === /sys/devices/system/cpu/cpu[0-1]/cpuidle/state0/name\nPOLL\n=== /sys/devices/system/cpu/cpu[0-1]/cpuidle/state0/latency\n0\n\
                    === /sys/devices/system/cpu/cpu[0-1]/cpuidle/state0/disable\n0\n=== /sys/devices/system/cpu/cpu[0-1]/cpuidle/state0/usage\n3\n\
                    === /sys/devices/system/cpu/cpu[0-1]/cpuidle/state0/time\n5\n";
        let host = Host::kept(Kept::parse(tree).unwrap());
        let idle = idle(&host, 1).unwrap();
        assert_eq!(
            (idle.driver.as_str(), idle.governor.as_str(), idle.states[0].exit_us),
            ("intel_idle", "menu", 0)
        );
        assert_eq!(idle_spent(&host, &[0, 1].into_iter().collect()).unwrap()["state0"], (6, 10));
        assert!(frequencies(&host, &[0].into_iter().collect()).unwrap_err().is_absent());
        assert_eq!(turbo(&host), None);
    }
}

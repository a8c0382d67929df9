//! Boot settings: isolated CPUs, and those without ticks or callbacks.

use super::Boot;
use super::reading::Reading;
use spangap_machine::facts::{boot_id, system_name};
use spangap_machine::{FactError, Known};
use spangap_model::Cpus;

const CMDLINE: &str = "/proc/cmdline";

/// Reads the settings.
pub(super) fn read(reading: &mut Reading, online: &Cpus) -> Boot {
    let cmdline = reading.needed(CMDLINE, |_, text| Ok(text.trim().to_owned())).unwrap_or_default();
    let option = |reading: &mut Reading, name: &str| {
        let value = value_of(&cmdline, name)?;
        reading.keep(cpus_of(name, value, online))
    };
    // The kernel's own interpretation of the options takes precedence.
    let isolated = reading.list("/sys/devices/system/cpu/isolated");
    let nohz_full = reading.list("/sys/devices/system/cpu/nohz_full");
    Boot {
        id: reading.needed(boot_id::PATH, boot_id::parse).unwrap_or_default(),
        kernel: reading.needed(system_name::KERNEL, system_name::parse).unwrap_or_default(),
        isolated: isolated.or_else(|| option(reading, "isolcpus")).unwrap_or_default(),
        nohz_full: nohz_full.or_else(|| option(reading, "nohz_full")).unwrap_or_default(),
        rcu_nocbs: option(reading, "rcu_nocbs").unwrap_or_default(),
        irqaffinity: option(reading, "irqaffinity"),
    }
}

/// Value of the last such option; the kernel treats `-` as `_`.
fn value_of<'a>(cmdline: &'a str, name: &str) -> Option<&'a str> {
    // Options after `--` are for the init process.
    let ours = cmdline.split_whitespace().take_while(|word| *word != "--");
    ours.filter_map(|word| word.split_once('='))
        .filter(|(key, _)| *key == name)
        .last()
        .map(|(_, value)| value)
}

/// CPUs of an option: a list in which `all` is every CPU and `N` the last one. `isolcpus` may begin with flags,
/// and isolates from the scheduler if `domain` is one of them, or if there are none.
fn cpus_of(name: &str, value: &str, online: &Cpus) -> Known<Cpus> {
    let bad = || {
        let found = format!("{name}={value}");
        FactError::malformed(CMDLINE, 0, &found, "a list of CPUs, such as 2-5,8")
    };
    let is_flag = |part: &&str| name == "isolcpus" && matches!(*part, "nohz" | "domain" | "managed_irq");
    let parts: Vec<&str> = value.split(',').collect();
    let flags: Vec<&str> = parts.iter().copied().take_while(is_flag).collect();
    if !flags.is_empty() && !flags.contains(&"domain") {
        return Ok(Cpus::default());
    }
    let last = online.iter().last().unwrap_or(0).to_string();
    let mut cpus = Cpus::default();
    for part in &parts[flags.len()..] {
        let these = match *part {
            "all" => online.clone(),
            part => every_few(&part.replace('N', &last)).ok_or_else(bad)?,
        };
        cpus = cpus.either(&these);
    }
    Ok(cpus)
}

/// `0-31`, or `0-31:2/8`: two of each eight.
fn every_few(range: &str) -> Option<Cpus> {
    let Some((range, groups)) = range.split_once(':') else { return Cpus::parse_list(range) };
    let (used, of) = groups.split_once('/')?;
    let (used, of): (u32, u32) = (used.parse().ok()?, of.parse().ok().filter(|of| *of > 0)?);
    let cpus = Cpus::parse_list(range)?;
    let first = cpus.iter().next()?;
    Some(cpus.iter().filter(|cpu| (cpu - first) % of < used).collect())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read, told};
    use super::*;

    #[test]
    fn kernel_files_precede_the_command_line() {
        let options = "=== /sys/devices/system/cpu/online\n0-15\n=== /proc/sys/kernel/random/boot_id\n77-aa\n\
            === /proc/sys/kernel/osrelease\n6.1.0\n\
            === /proc/cmdline\nquiet isolcpus=nohz,domain,2-5 nohz_full=2-N rcu_nocbs=all irqaffinity=0,1 -- rcu_nocbs=9\n";
        let boot = read(options).boot;
        assert_eq!((boot.id.as_str(), boot.kernel.as_str()), ("77-aa", "6.1.0"));
        assert_eq!((boot.isolated.to_string(), boot.nohz_full.to_string()), ("2-5".into(), "2-15".into()));
        assert_eq!(boot.rcu_nocbs.len(), 16);
        assert_eq!(boot.irqaffinity.unwrap().to_string(), "0-1");
        let own = read(&format!(
            "{options}=== /sys/devices/system/cpu/isolated\n\n=== /sys/devices/system/cpu/nohz_full\n(null)\n"
        ));
        assert!(own.boot.isolated.is_empty() && own.boot.nohz_full.is_empty());
    }

    #[test]
    fn forms_of_lists() {
        let online = Cpus::parse_list("0-7").unwrap();
        let of = |name, value| cpus_of(name, value, &online).map(|cpus| cpus.to_string());
        assert_eq!(of("isolcpus", "1,3-4"), Ok("1,3-4".into()));
        assert_eq!(of("isolcpus", "managed_irq,1"), Ok("".into()));
        assert_eq!(of("isolcpus", "managed_irq,domain,1"), Ok("1".into()));
        assert_eq!(of("rcu_nocbs", "0-7:1/4,N"), Ok("0,4,7".into()));
        for bad in ["x", "1-", "5-3", "0-3:1/0", "0-3:/", "domain,1"] {
            assert!(of("nohz_full", bad).is_err(), "{bad}");
        }
        let machine = read("=== /proc/cmdline\nisolcpus=nonsense\n");
        assert_eq!(
            told(&machine, "/proc/cmdline"),
            ["/proc/cmdline, line 1: found \"isolcpus=nonsense\", expected a list of CPUs, such as 2-5,8"]
        );
    }
}

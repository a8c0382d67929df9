//! CPUs run slower than they could.

use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::{Trap, counted};
use spangap_model::Cause;

pub const TRAP: Trap = Trap { name: "cpu-frequency", causes: &[Cause::ServerApp, Cause::ClientApp], look };

/// A limit below this share of the hardware maximum was set deliberately.
const LIMITED: f64 = 0.98;

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    let frequencies = match &look.frequencies {
        Ok(frequencies) => frequencies,
        Err(error) if error.is_absent() && look.virtual_machine => {
            return Err(NoVerdict::from(
                "this is a virtual machine: the hypervisor controls the frequency, and it is not visible here",
            ));
        }
        Err(error) if error.is_absent() => return Err(NoVerdict::from("there is no cpufreq here")),
        Err(error) => return Err(NoVerdict::from(error)),
    };
    let Some(first) = frequencies.first() else { return Err(NoVerdict::from("no CPU to look at")) };
    let at = |cpu: u32, file: &str| format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/{file}");
    // With these drivers `powersave` is the normal governor, and the energy preference decides.
    let by_hardware = |driver: &str| driver == "intel_pstate" || driver == "amd-pstate-epp";
    let slow: Vec<_> = frequencies
        .iter()
        .filter(|cpu| match (by_hardware(&cpu.driver), cpu.governor.as_str()) {
            (_, "performance") => false,
            (true, _) => cpu.epp.as_deref() != Some("performance"),
            (false, governor) => matches!(governor, "powersave" | "conservative" | "ondemand" | "schedutil"),
        })
        .collect();
    let limited: Vec<_> =
        frequencies.iter().filter(|cpu| (cpu.limit_khz as f64) < LIMITED * cpu.top_khz as f64).collect();
    let turbo_off = look.turbo.is_some_and(|(_, on)| !on);
    let saving = slow.iter().any(|cpu| {
        cpu.governor == "powersave"
            && (!by_hardware(&cpu.driver) || cpu.epp.as_deref().is_some_and(|epp| epp.contains("power")))
    });
    let found = if saving || !limited.is_empty() {
        Some(Severity::Medium)
    } else if !slow.is_empty() || turbo_off {
        Some(Severity::Low)
    } else {
        None
    };
    let preference =
        |epp: &Option<String>| epp.as_ref().map_or(String::new(), |epp| format!(", preference {epp}"));
    let shown = slow.first().copied().unwrap_or(first);
    let mut said = vec![format!(
        "governor {}{} on {}",
        shown.governor,
        preference(&shown.epp),
        counted(if slow.is_empty() { frequencies.len() } else { slow.len() }, "CPU")
    )];
    if let Some(cpu) = limited.first() {
        said.push(format!(
            "at most {} of {} MHz on {}",
            cpu.limit_khz / 1000,
            cpu.top_khz / 1000,
            counted(limited.len(), "CPU")
        ));
    }
    if turbo_off {
        said.push("turbo off".to_owned());
    }
    let mut judged = FindingDraft::when(found, said.join("; "))
        .evidence(format!("driver {}, governor {}{}", shown.driver, shown.governor, preference(&shown.epp)), at(shown.cpu, "scaling_governor"))
        .means("an idle CPU starts slow and takes milliseconds to speed up; short bursts of calls end before that");
    if let Some(cpu) = limited.first() {
        judged = judged
            .evidence(
                format!("scaling_max_freq {} kHz, the hardware can {} kHz", cpu.limit_khz, cpu.top_khz),
                at(cpu.cpu, "scaling_max_freq"),
            )
            .fix(format!("cpupower frequency-set --max {}kHz", cpu.top_khz));
    }
    if let Some((path, false)) = look.turbo {
        let on = if path.ends_with("no_turbo") { 0 } else { 1 };
        judged = judged.evidence("turbo is switched off", path).fix(format!("echo {on} > {path}"));
    }
    if !slow.is_empty() {
        judged = judged.fix("cpupower frequency-set --governor performance  # until boot");
    }
    Ok(judged)
}

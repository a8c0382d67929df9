//! A clock that takes long to read.

use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::Trap;
use spangap_model::Cause;

pub const TRAP: Trap = Trap { name: "clock-source", causes: &[Cause::ServerApp, Cause::ClientApp], look };

const CURRENT: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Clocks that user space reads without a system call, in about ten nanoseconds.
const QUICK: &[&str] = &["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    let name = look.clocksource.as_ref()?.as_str();
    let found = if QUICK.contains(&name) {
        None
    } else if matches!(name, "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies") {
        Some(Severity::Medium)
    } else {
        Some(Severity::Low)
    };
    Ok(FindingDraft::when(found, name)
        .evidence(format!("current clocksource {name}"), CURRENT)
        .means("every reading of the clock is a system call, and with hpet or acpi_pm one to two microseconds; RPC libraries read it many times per call")
        .fix("cat /sys/devices/system/clocksource/clocksource0/available_clocksource; dmesg | grep -i -E 'tsc|clocksource'  # why not tsc")
        .fix(format!("echo tsc > {CURRENT}  # if it is available; boot with tsc=reliable if the kernel rejected it \
        wrongly")))
}

//! Settings that survive a reboot, and those that cannot be changed at run time. For the reader to make.

use super::draft::Draft;
use super::{IrqbalancePolicy, Permanent, Weight};

/// Adds the settings.
pub(super) fn plan(draft: &mut Draft<'_>) {
    systemd(draft);
    irqbalance(draft);
    queues(draft);
    kernel(draft);
}

/// Separated by blanks, as systemd writes lists.
fn blanks(list: &str) -> String {
    list.replace(',', " ")
}

fn systemd(draft: &mut Draft<'_>) {
    if !draft.policy.cpusets {
        return;
    }
    draft.permanent.push(Permanent {
        whose: "systemd".into(),
        place: "/etc/systemd/system.conf.d/spangap.conf, from the next boot on; containers are not affected"
            .into(),
        text: format!("[Manager]\nCPUAffinity={}", blanks(&draft.home().to_string())),
    });
}

fn irqbalance(draft: &mut Draft<'_>) {
    let Some(irqbalance) = &draft.topology.irqbalance else { return };
    if draft.policy.irqbalance == IrqbalancePolicy::Stop {
        let unit = irqbalance.unit.clone().unwrap_or_else(|| "irqbalance".into());
        let text = format!("systemctl disable {unit}");
        draft.permanent.push(Permanent { whose: "irqbalance".into(), place: "run".into(), text });
        return;
    }
    let devices: Vec<String> = draft.lanes.iter().filter_map(|lane| lane.interface.pci.clone()).collect();
    if devices.is_empty() {
        return;
    }
    let cases = devices.iter().map(|device| format!("*/{device}*")).collect::<Vec<_>>().join("|");
    draft.permanent.push(Permanent {
        whose: "irqbalance".into(),
        place: "/etc/irqbalance-spangap, executable".into(),
        text: format!(
            "#!/bin/sh\n# $1: folder of the device in sysfs\ncase \"$1\" in {cases}) echo ban=true ;; esac"
        ),
    });
    draft.permanent.push(Permanent {
        whose: "irqbalance".into(),
        place: "/etc/default/irqbalance, or /etc/sysconfig/irqbalance".into(),
        text: format!(
            "IRQBALANCE_BANNED_CPULIST={}\nIRQBALANCE_ARGS=--policyscript=/etc/irqbalance-spangap",
            draft.net
        ),
    });
}

fn queues(draft: &mut Draft<'_>) {
    let rules: Vec<String> = draft
        .lanes
        .iter()
        .filter(|lane| draft.policy.queues && lane.interface.queues.is_some_and(|queues| queues.most > 0))
        .map(|lane| {
            let name = &lane.interface.name;
            format!(
                "ACTION==\"add\", SUBSYSTEM==\"net\", KERNEL==\"{name}\", RUN+=\"/usr/sbin/ethtool -L {name} combined {}\"",
                lane.queues
            )
        })
        .collect();
    if !rules.is_empty() {
        let place = "/etc/udev/rules.d/90-spangap.rules".into();
        draft.permanent.push(Permanent { whose: "queues".into(), place, text: rules.join("\n") });
    }
}

fn kernel(draft: &mut Draft<'_>) {
    let boot = &draft.topology.boot;
    let mut missing = Vec::new();
    if !draft.app.without(&boot.nohz_full).is_empty() {
        missing.push("timer ticks (nohz_full)");
    }
    if !draft.app.without(&boot.rcu_nocbs).is_empty() {
        missing.push("callbacks of RCU (rcu_nocbs)");
    }
    if !missing.is_empty() {
        let text = format!(
            "{} are set at boot: applications on {} keep those of their CPUs.",
            capital(&missing.join(" and ")),
            draft.app
        );
        draft.note(Weight::Impossible, text);
    }
    let text = format!(
        "Interrupts that the kernel manages itself (queues of NVMe and other storage) cannot be moved off {}.",
        draft.net.words()
    );
    draft.note(Weight::Impossible, text);
    // RPS does not steer packets to CPUs isolated at boot.
    let hands_on = draft.lanes.iter().any(|lane| lane.queues < lane.cpus.len());
    let isolated =
        if hands_on { String::new() } else { format!(" isolcpus=managed_irq,domain,{}", draft.net) };
    draft.permanent.push(Permanent {
        whose: "kernel command line".into(),
        place: "the boot loader, such as GRUB_CMDLINE_LINUX in /etc/default/grub; then plan again with --net-cpus as a list"
            .into(),
        text: format!("irqaffinity={}{isolated}", draft.home()),
    });
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

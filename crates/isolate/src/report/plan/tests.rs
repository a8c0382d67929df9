use super::*;
use crate::place::Place;
use crate::plan::{Change, IrqbalancePolicy, Note, Policy};
use spangap_model::Cpus;

fn change(part: Part, path: String, from: &str, to: &str) -> Change {
    let (from, to, why) = (Some(from.to_owned()), to.to_owned(), "for a reason".to_owned());
    Change { part, place: Place::file(path), from, to, otherwise: None, why, needed: part == Part::Cpusets }
}

fn plan(changes: Vec<Change>) -> Plan {
    let cpus = |list| Cpus::parse_list(list).unwrap();
    Plan {
        format: Plan::FORMAT.into(),
        boot_id: "x".into(),
        policy: Policy {
            interfaces: vec!["eth0".into()],
            net_cpus: NetCpus::Auto,
            queues: false,
            cpusets: true,
            irqbalance: IrqbalancePolicy::Ban,
        },
        net_cpus: cpus("1"),
        app_cpus: cpus("0,2-255"),
        choice: vec!["because".into()],
        changes,
        planned_again_after_queues: false,
        notes: vec![Note { weight: Weight::Warning, text: "Mind this.".into() }],
        permanent: Vec::new(),
        before: None,
    }
}

#[test]
fn two_thousand_cgroups_are_one_line() {
    let group = |at| format!("/sys/fs/cgroup/cpuset/kubepods/burstable/pod{at}/c{at}/cpuset.cpus");
    let mut changes: Vec<Change> =
        (0..2_000).map(|at| change(Part::Cpusets, group(at), "0-255", "0,2-255")).collect();
    changes.push(change(
        Part::Cpusets,
        "/sys/fs/cgroup/cpuset/kubepods/cpuset.cpus".into(),
        "0-255",
        "0,2-255",
    ));
    let text = text(&plan(changes), "the next command", 100);
    assert!(text.lines().count() < 20, "{text}");
    assert!(text.contains("Cgroups (2,001 changes)"), "{text}");
    assert!(
        text.contains("- 0-255  + 0,2-255  /sys/fs/cgroup/cpuset/kubepods/.../cpuset.cpus of 2,000 cgroups"),
        "{text}"
    );
    assert!(text.contains("- 0-255  + 0,2-255  /sys/fs/cgroup/cpuset/kubepods/cpuset.cpus"), "{text}");
    assert!(!text.contains("the kernel may refuse it"), "{text}");
    assert!(text.ends_with("\nNext\n  the next command\n"), "{text}");
}

#[test]
fn many_interrupts_are_a_line_for_each_cpu() {
    let irq = |at: u32| {
        let path = format!("/proc/irq/{}/smp_affinity_list", 100 + at);
        change(Part::Irqs, path, &at.to_string(), &(at % 2 + 1).to_string())
    };
    let few = text(&plan((0..4).map(irq).collect()), "", 100);
    assert!(few.contains("? - 3  + 2  /proc/irq/103/smp_affinity_list  for a reason\n"), "{few}");
    let many = text(&plan((0..64).map(irq).collect()), "", 100);
    assert_eq!(many.matches("? - various  + ").count(), 2, "{many}");
    assert!(many.contains("+ 2  /proc/irq/{101,103,"), "{many}");
    assert!(many.contains("? the kernel may refuse this"), "{many}");
}

#[test]
fn refusals_with_their_rules_and_what_helps() {
    let refusal = |help: Option<&str>| Refusal {
        rule: "a-rule",
        why: "it is so".into(),
        help: help.map(str::to_owned),
    };
    let text = refused_text(&[refusal(Some("do that")), refusal(None)], 100);
    assert_eq!(text, "  * it is so (a-rule)\n      help: do that\n  * it is so (a-rule)\n");
    let refused = serde_json::to_value(Refused { refused: &[refusal(None)] }).unwrap();
    assert_eq!(
        refused,
        serde_json::json!({"refused": [{"rule": "a-rule", "why": "it is so", "help": null}]})
    );
}

#[test]
fn no_changes_are_reported() {
    assert!(
        text(&plan(Vec::new()), "", 100).contains("Nothing to change: everything is already as planned.")
    );
}

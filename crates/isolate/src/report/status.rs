//! The applied plan as text for a terminal. In JSON, the status itself is printed.

use crate::plan::Part;
use crate::verify::status::{Applied, PartStanding, Status};
use spangap_report::figures::counted;
use spangap_report::times::{ago, span};
use spangap_report::wrap::{NARROWEST, wrap_strictly};
use std::fmt::Write;

/// The applied plan, its state, and who undid what; `now_unix_ns` is the current time, `rollback` the command
/// that undoes it.
pub fn text(status: &Status, now_unix_ns: u64, rollback: &str, width: usize) -> String {
    let width = width.max(NARROWEST);
    let mut text = String::new();
    wrap_strictly(&mut text, "", &heading(status, now_unix_ns, rollback), width);
    let Some(plan) = &status.plan else { return text };
    if status.state == Applied::AnotherBoot {
        return text;
    }
    let interfaces = plan.interfaces.join(", ");
    let _ = writeln!(text);
    wrap_strictly(
        &mut text,
        "  plan       ",
        &format!("{interfaces} on {}, the rest {}", plan.net_cpus.words(), plan.app_cpus),
        width,
    );
    if let Some(guard) = status.guard {
        let words = match guard.alive {
            true => format!("process {}, undoes it unless confirmed", guard.pid),
            false => {
                format!(
                    "process {} has exited: nothing undoes it automatically, `{rollback}` does",
                    guard.pid
                )
            }
        };
        wrap_strictly(&mut text, "  guard      ", &words, width);
    }
    let (held, all) = status.held();
    let parts: Vec<String> = status.parts.iter().map(part).collect();
    wrap_strictly(&mut text, "  read back  ", &format!("{held} of {all} values as written"), width);
    for part in parts {
        wrap_strictly(&mut text, "             ", &part, width);
    }
    if let Some(journal) = &status.journal {
        wrap_strictly(&mut text, "  journal    ", &journal.display().to_string(), width);
    }
    let mut section = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            let _ = writeln!(text, "\n{title}");
        }
        for line in lines {
            wrap_strictly(&mut text, "  * ", &line, width);
        }
    };
    section("Unreadable in the journal", status.damage.iter().map(ToString::to_string).collect());
    section("No longer as written", status.drift.iter().map(|drift| drift.words()).collect());
    section("New cgroups with CPUs of the network", status.came.clone());
    let unreadable = status.unreadable.iter().map(|one| format!("{}: {}", one.place, one.why));
    section("Not readable", unreadable.collect());
    let refused = status.refused.iter().map(|refused| format!("{}: {}", refused.place, refused.why));
    section("Refused by the kernel, and not needed", refused.collect());
    if let Some(undone) = &status.rolled_back {
        section("Left by the undo", undone.left.iter().map(ToString::to_string).collect());
    }
    text
}

/// The overall state in a sentence.
fn heading(status: &Status, now: u64, rollback: &str) -> String {
    let begun = status.begun_unix_ns.map_or_else(String::new, |then| ago(then, now));
    let applied = status.applied_unix_ns.map_or(begun.clone(), |then| ago(then, now));
    match status.state {
        Applied::Nothing => match &status.rolled_back {
            None => "Nothing is applied.".into(),
            Some(undone) => {
                let left = match undone.left.len() {
                    0 => String::new(),
                    left => format!(", except for {} that others had changed", counted(left, "value")),
                };
                let when = ago(undone.time_unix_ns, now);
                format!("Nothing is applied. The last plan was undone {when} by {}{left}.", undone.by)
            }
        },
        Applied::Unfinished => {
            format!("Begun {begun} and not finished{}: `{rollback}` undoes it.", until(status, now))
        }
        Applied::Waiting => format!("Applied {applied}, not confirmed{}.", until(status, now)),
        Applied::Applied => format!("Applied {applied}, until `{rollback}` or the next boot."),
        Applied::Confirmed => {
            let confirmed = status.confirmed_unix_ns.map_or(String::new(), |then| ago(then, now));
            format!("Applied {applied}, confirmed {confirmed}: it stays until `{rollback}` or the next boot.")
        }
        Applied::RolledBack => {
            let undone = status.rolled_back.as_ref();
            let (when, by) = undone.map_or(("", ""), |undone| ("", undone.by.as_str()));
            let when = undone.map_or(when.to_owned(), |undone| ago(undone.time_unix_ns, now));
            let left = undone.map_or(0, |undone| undone.left.len());
            if left == 0 {
                return format!(
                    "Undone {when} by {by}, except for what its damaged journal does not tell: `{rollback}` lists it."
                );
            }
            format!(
                "Undone {when} by {by}, except for {} that others had changed: `{rollback} --force` restores these \
                 too.",
                counted(left, "value")
            )
        }
        Applied::AnotherBoot => {
            format!(
                "Applied {applied}, before this machine's last boot: nothing of it is left, and there is nothing to \
                 undo."
            )
        }
    }
}

fn until(status: &Status, now: u64) -> String {
    match status.until_unix_ns {
        None => String::new(),
        Some(then) if then <= now => ": its time is over".into(),
        Some(then) => format!(": undone in about {}", span(then - now)),
    }
}

fn part(part: &PartStanding) -> String {
    let name = match part.part {
        Part::Irqbalance => "irqbalance",
        Part::Queues => "queues",
        Part::Irqs => "interrupts",
        Part::Steering => "steering",
        Part::Cpusets => "cpusets",
        Part::Tasks => "pinned threads",
    };
    let counts = [
        (part.held, "as written"),
        (part.changed, "changed by somebody"),
        (part.before, "as before"),
        (part.gone, "gone"),
        (part.unknown, "not readable"),
        (part.refused, "refused"),
    ];
    let counts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    format!("{name}: {}", counts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;
    use crate::verify::drift::{Drift, Originator};
    use crate::verify::status::{Guard, Refused, RolledBack, Summary};
    use spangap_model::Cpus;
    use spangap_model::duration::SECOND;

    const NOW: u64 = 1_000_000 * SECOND;
    const UNDO: &str = "spangap isolate rollback";

    fn waiting() -> Status {
        let place = Place::file("/proc/irq/40/smp_affinity_list");
        Status {
            state: Applied::Waiting,
            journal: Some("/var/lib/spangap/isolate/open.journal".into()),
            plan: Some(Summary {
                interfaces: vec!["eth0".into()],
                net_cpus: Cpus::parse_list("1,49").unwrap(),
                app_cpus: Cpus::parse_list("0,2-48").unwrap(),
            }),
            begun_unix_ns: Some(NOW - 21 * SECOND),
            applied_unix_ns: Some(NOW - 20 * SECOND),
            until_unix_ns: Some(NOW + 39 * SECOND),
            guard: Some(Guard { pid: 7, alive: true }),
            parts: vec![PartStanding {
                part: Part::Irqs,
                held: 3,
                before: 0,
                changed: 1,
                gone: 0,
                unknown: 0,
                refused: 1,
            }],
            refused: vec![Refused { place: place.clone(), why: "Input/output error".into() }],
            drift: vec![Drift {
                place,
                wanted: "1".into(),
                found: Some("0-95".into()),
                who: Originator::Irqbalance,
                certain: false,
                why: "which runs (process 812) and does not leave IRQ 40 alone".into(),
            }],
            came: vec!["/sys/fs/cgroup/cpuset/docker/abc".into()],
            ..Status::nothing(None)
        }
    }

    #[test]
    fn applied_values_and_originators_of_drift() {
        let expected = "\
Applied 20 s ago, not confirmed: undone in about 39 s.

  plan       eth0 on CPUs 1,49, the rest 0,2-48
  guard      process 7, undoes it unless confirmed
  read back  3 of 4 values as written
             interrupts: 3 as written, 1 changed by somebody, 1 refused
  journal    /var/lib/spangap/isolate/open.journal

No longer as written
  * /proc/irq/40/smp_affinity_list is \"0-95\", was set to \"1\": probably irqbalance, which runs
    (process 812) and does not leave IRQ 40 alone

New cgroups with CPUs of the network
  * /sys/fs/cgroup/cpuset/docker/abc

Refused by the kernel, and not needed
  * /proc/irq/40/smp_affinity_list: Input/output error
";
        assert_eq!(text(&waiting(), NOW, UNDO, 100), expected);
        let mut dead = waiting();
        dead.guard = Some(Guard { pid: 7, alive: false });
        assert!(
            text(&dead, NOW, UNDO, 100).contains("process 7 has exited: nothing undoes it automatically")
        );
    }

    #[test]
    fn each_state_in_a_sentence() {
        let of = |state, change: fn(&mut Status)| {
            let mut status = Status { state, ..waiting() };
            change(&mut status);
            heading(&status, NOW, UNDO)
        };
        assert_eq!(heading(&Status::nothing(None), NOW, UNDO), "Nothing is applied.");
        let undone = RolledBack {
            time_unix_ns: NOW - 300 * SECOND,
            by: "guard: not confirmed in time".into(),
            left: vec![],
        };
        let nothing = Status { rolled_back: Some(undone), ..Status::nothing(None) };
        let words = "Nothing is applied. The last plan was undone 5 min ago by guard: not confirmed in time.";
        assert_eq!(heading(&nothing, NOW, UNDO), words);
        assert!(
            of(Applied::Unfinished, |_| {})
                .starts_with("Begun 21 s ago and not finished: undone in about 39 s: ")
        );
        assert!(
            of(Applied::Waiting, |status| status.until_unix_ns = Some(NOW)).ends_with("its time is over.")
        );
        assert!(
            of(Applied::Confirmed, |status| status.confirmed_unix_ns = Some(NOW))
                .contains("confirmed 0 s ago")
        );
        assert!(of(Applied::AnotherBoot, |_| {}).contains("before this machine's last boot"));
        assert!(of(Applied::Applied, |_| {}).contains("until `spangap isolate rollback` or the next boot"));
        let left = of(Applied::RolledBack, |status| {
            let left = vec![Place::BannedIrqs];
            status.rolled_back = Some(RolledBack { time_unix_ns: NOW, by: "rollback".into(), left });
        });
        assert!(left.contains("except for 1 value that others had changed"), "{left}");
    }
}

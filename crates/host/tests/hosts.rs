//! Every machine of `fixtures/hosts`, with its complete list of findings.

use proptest::prelude::*;
use spangap_host::check::{self, Connection, Counters, Inspection, Severity, TcpSockets, TrapVerdict};
use spangap_host::report::check::CheckReport;
use spangap_machine::{Host, parse_readings};
use spangap_model::evidence::{Certainty, Missing, Proof, Scope, Testimony};
use spangap_model::{Cause, Culprit};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn machines() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts");
    let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).collect()
}

fn look(machine: &Path, pids: &[u32]) -> Inspection {
    let text = fs::read_to_string(machine.join("machine.txt")).unwrap();
    let (first, second) =
        parse_readings(&text).unwrap_or_else(|error| panic!("{}: {error}", machine.display()));
    let before = first.map(|first| Counters::read(&Host::kept(first), pids));
    Inspection::read(&Host::kept(second), before, pids)
        .unwrap_or_else(|error| panic!("{}: {error}", machine.display()))
}

fn expected(machine: &Path) -> (Vec<u32>, BTreeSet<String>) {
    let text = fs::read_to_string(machine.join("expected.txt")).unwrap();
    let (head, rest) = text.split_once('\n').unwrap();
    let pids = head.strip_prefix("pid ").map(|pid| pid.parse().unwrap());
    (pids.into_iter().collect(), rest.lines().map(str::to_owned).collect())
}

#[test]
fn each_machine_has_these_findings_and_no_others() {
    let mut seen = 0;
    let mut wrong = Vec::new();
    for machine in machines() {
        let (pids, expected) = expected(&machine);
        let findings = check::findings(&look(&machine, &pids));
        let found = findings.iter().filter_map(|finding| match finding.verdict {
            TrapVerdict::Fine => None,
            TrapVerdict::CannotTell => Some(format!("cannot-tell {}", finding.trap)),
            TrapVerdict::Trap(severity) => Some(format!("{} {}", severity.name(), finding.trap)),
        });
        let found: BTreeSet<String> = found.collect();
        let report = CheckReport::new(&look(&machine, &pids), &findings).text(100);
        if found != expected {
            let (more, less) = (found.difference(&expected), expected.difference(&found));
            let (more, less): (Vec<_>, Vec<_>) = (more.collect(), less.collect());
            wrong.push(format!("{}\n{report}\nnot expected {more:?}, missing {less:?}\n", machine.display()));
        }
        seen += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen >= 8, "{seen} machines");
}

#[test]
fn every_trap_has_evidence_a_meaning_and_a_remedy_on_every_machine() {
    let mut traps = BTreeSet::new();
    for machine in machines() {
        let (pids, _) = expected(&machine);
        for finding in check::findings(&look(&machine, &pids)) {
            let at = format!("{}: {finding:?}", machine.display());
            assert!(!finding.summary.is_empty() && !finding.summary.ends_with('.'), "{at}");
            if matches!(finding.verdict, TrapVerdict::Trap(_)) {
                traps.insert(finding.trap);
                assert!(
                    !finding.means.is_empty() && !finding.fix.is_empty() && !finding.evidence.is_empty(),
                    "{at}"
                );
                assert!(finding.evidence.iter().all(|evidence| evidence.path.starts_with('/')), "{at}");
            }
        }
    }
    // Findings about sockets have a test of their own.
    let never: Vec<&str> = check::names().filter(|name| !traps.contains(name)).collect();
    assert_eq!(never, ["tcp-nodelay", "unsent-data"], "shown on no machine");
}

#[test]
fn sockets_are_judged_only_if_read() {
    let machine = machines().into_iter().find(|machine| machine.ends_with("crowded-cpu")).unwrap();
    let (pids, _) = expected(&machine);
    let connection = |port: u16, nodelay: Option<bool>, unsent_bytes: Option<u64>| Connection {
        pid: pids[0],
        local: ([10, 0, 0, 1], port).into(),
        peer: ([10, 0, 0, 2], 443).into(),
        nodelay,
        unsent_bytes,
        unacknowledged: Some(3),
    };
    let judged = |connections: Vec<Connection>| {
        let mut look = look(&machine, &pids);
        look.sockets = Some(Ok(TcpSockets { connections, listening: Vec::new() }));
        let findings = check::findings(&look);
        let of = |trap: &str| findings.iter().find(|finding| finding.trap == trap).unwrap().clone();
        (of("tcp-nodelay"), of("unsent-data"))
    };
    let (nodelay, unsent) =
        judged(vec![connection(1, Some(true), Some(100)), connection(2, Some(true), Some(0))]);
    assert_eq!((nodelay.verdict, unsent.verdict), (TrapVerdict::Fine, TrapVerdict::Fine));
    let (nodelay, unsent) = judged(vec![
        connection(1, Some(true), Some(1 << 20)),
        connection(2, Some(false), Some(0)),
        connection(3, None, None),
    ]);
    assert_eq!(nodelay.verdict, TrapVerdict::Trap(Severity::Medium));
    assert_eq!((nodelay.summary.as_str(), nodelay.evidence.len()), ("off on 1 of 3 connections", 1));
    assert_eq!(nodelay.unknown, ["TCP_NODELAY of 1 connection is hidden"]);
    assert_eq!(unsent.verdict, TrapVerdict::Trap(Severity::Low));
    assert_eq!(unsent.summary, "1024 KiB are waiting in 1 connection right now");
    let (nodelay, unsent) = judged(vec![connection(1, None, None)]);
    assert_eq!((nodelay.verdict, unsent.verdict), (TrapVerdict::CannotTell, TrapVerdict::CannotTell));
}

#[test]
fn without_a_process_each_machine_is_judged_as_a_whole() {
    for machine in machines() {
        let findings = check::findings(&look(&machine, &[]));
        assert_eq!(findings.len(), check::names().count());
        let of = |trap: &str| findings.iter().find(|finding| finding.trap == trap).unwrap().verdict;
        assert_eq!(of("run-queue-wait"), TrapVerdict::CannotTell);
        assert!(!matches!(of("nic-irqs"), TrapVerdict::Trap(_)), "interrupts have to go somewhere");
    }
}

#[test]
fn text_stays_within_its_columns() {
    for machine in machines() {
        let (pids, _) = expected(&machine);
        let look = look(&machine, &pids);
        let text = CheckReport::new(&look, &check::findings(&look)).text(100);
        for line in text.lines() {
            // Commands are not wrapped, and a single word cannot be.
            let command =
                line.starts_with("  fix") || (line.starts_with("        ") && line.contains(['/', ';']));
            assert!(line.chars().count() <= 100 || command, "{}: {line:?}", machine.display());
        }
    }
}

/// Before Kubernetes 1.18, the kubelet's state identified containers by their id alone.
#[test]
fn the_kubelets_older_state_is_understood() {
    let machine = machines().into_iter().find(|machine| machine.ends_with("kubernetes-static")).unwrap();
    let (pids, _) = expected(&machine);
    let text = fs::read_to_string(machine.join("machine.txt")).unwrap();
    let judged = |state: &str| {
        let line =
            |line: &str| if line.starts_with("{\"policyName\"") { state.to_owned() } else { line.to_owned() };
        let text: String = text.lines().map(|old| line(old) + "\n").collect();
        let (_, second) = parse_readings(&text).unwrap();
        let look = Inspection::read(&Host::kept(second), None, &pids).unwrap();
        let findings = check::findings(&look);
        findings.into_iter().find(|finding| finding.trap == "container-cpus").unwrap()
    };
    let process = judged(r#"{"policyName":"none","defaultCpuSet":"","checksum":1}"#);
    let cgroup = &text[text.find(&format!("=== /proc/{}/cgroup", pids[0])).unwrap()..];
    let cgroup = cgroup.lines().nth(1).unwrap();
    let id = cgroup.rsplit(['/', '-']).next().unwrap().trim_end_matches(".scope");
    let all = "0-1023";
    let state = |id: &str| {
        format!(r#"{{"policyName":"static","defaultCpuSet":"","entries":{{"{id}":"{all}"}},"checksum":1}}"#)
    };
    assert_eq!(process.verdict, TrapVerdict::Trap(Severity::Low));
    let others = judged(&state("0123456789abcdef"));
    assert_eq!(others.verdict, TrapVerdict::Trap(Severity::High), "{others:?}");
    assert!(others.summary.contains("gave exclusively to another container"), "{others:?}");
    let own = judged(&state(id));
    assert_eq!(own.verdict, TrapVerdict::Fine, "{id}: {own:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Files of another kernel, truncated or with other figures: each is reported or judged, and none crashes
    /// the program.
    #[test]
    fn arbitrary_files_are_survived(
        which: prop::sample::Index,
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..6, any::<u64>()), 1..40),
    ) {
        let machines = machines();
        let machine = which.get(&machines);
        let (pids, _) = expected(machine);
        let text = fs::read_to_string(machine.join("machine.txt")).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for (at, how, figure) in changes {
            let at = at.index(lines.len());
            // Paths are not changed: the program looks files up by them.
            if lines[at].starts_with("===") || lines[at].starts_with("#####") {
                continue;
            }
            let words: Vec<&str> = lines[at].split(' ').collect();
            let word = figure as usize % words.len();
            lines[at] = match how {
                0 => String::new(),
                1 => words[..word].join(" "),
                2 => words.iter().enumerate().map(|(n, old)| if n == word { figure.to_string() } else { (*old).to_owned() }).collect::<Vec<_>>().join(" "),
                3 => words.iter().enumerate().map(|(n, old)| if n == word { "-7".to_owned() } else { (*old).to_owned() }).collect::<Vec<_>>().join(" "),
                4 => lines[at].replace(|c: char| c.is_ascii_digit(), "9"),
                _ => lines[at].replace(' ', ","),
            };
        }
        let (first, second) = parse_readings(&(lines.join("\n") + "\n")).unwrap();
        let before = first.map(|first| Counters::read(&Host::kept(first), &pids));
        // If a process's own files are damaged, the error names the line.
        if let Ok(look) = Inspection::read(&Host::kept(second), before, &pids) {
            let findings = check::findings(&look);
            prop_assert_eq!(findings.len(), check::names().count());
            CheckReport::new(&look, &findings).text(100);
        }
    }
}

#[test]
fn a_rising_counter_shows_a_cause_and_a_setting_makes_it_possible() {
    let of = |name: &str| {
        let machine = machines().into_iter().find(|machine| machine.ends_with(name)).unwrap();
        let look = look(&machine, &expected(&machine).0);
        check::evidence(&look, &check::findings(&look))
    };
    let certainty = |testimony: &Testimony, cause: Cause| -> Vec<Certainty> {
        let its = testimony.findings.iter().filter(|finding| finding.culprit == Culprit::of(cause));
        its.map(|finding| finding.certainty).collect()
    };
    let possible = Certainty::Possible(Missing::MetByCalls);
    let throttled = of("throttled-container");
    assert_eq!(certainty(&throttled, Cause::CpuQuota), [Certainty::Shown]);
    let quota = throttled.findings.iter().find(|finding| finding.culprit.cause == Cause::CpuQuota).unwrap();
    assert!(matches!(quota.scope, Scope::Process { pid: 900, .. }), "{:?}", quota.scope);
    assert!(
        quota
            .proofs
            .iter()
            .any(|proof| matches!(proof, Proof::Value { place, .. } if place.ends_with("/cpu.stat"))),
        "{:?}",
        quota.proofs
    );
    assert_eq!(certainty(&of("overflowing-listener"), Cause::AcceptOverflow), [Certainty::Shown]);
    assert_eq!(certainty(&of("overflowing-listener"), Cause::SynLoss), [possible], "its neighbour");
    assert_eq!(certainty(&of("short-of-memory"), Cause::Stopped), [Certainty::Shown]);
    assert_eq!(certainty(&of("steal-vm"), Cause::Steal), [Certainty::Shown]);
    // Deep sleep states are a setting, and softirqs on CPUs that a process may use need not have delayed it.
    let ccx = of("amd-ccx");
    assert_eq!(certainty(&ccx, Cause::IdleWake), [possible]);
    assert!(certainty(&ccx, Cause::SoftirqOnCpu).iter().all(|certainty| *certainty == possible));
    assert!(certainty(&ccx, Cause::CpuQuota).is_empty());
}

#[test]
fn coverage_counts_unreadable_facts_with_reasons() {
    for machine in machines() {
        let look = look(&machine, &expected(&machine).0);
        let findings = check::findings(&look);
        let testimony = check::evidence(&look, &findings);
        let [coverage] = testimony.coverage.as_slice() else { panic!("one look") };
        let untold = findings.iter().filter(|finding| finding.verdict == TrapVerdict::CannotTell).count();
        assert_eq!((coverage.seen + coverage.lost, coverage.lost), (findings.len() as u64, untold as u64));
        assert!(coverage.cannot.len() >= untold && coverage.cannot.iter().all(|why| why.ends_with('.')));
        // A single reading has no increase.
        let text = fs::read_to_string(machine.join("machine.txt")).unwrap();
        let (_, second) = parse_readings(&text).unwrap();
        let once = Inspection::read(&Host::kept(second), None, &look.pids).unwrap();
        let shown = check::evidence(&once, &check::findings(&once)).findings;
        let shown: Vec<Cause> =
            shown.iter().filter(|finding| finding.is_shown()).map(|finding| finding.culprit.cause).collect();
        let stopped = machine.ends_with("short-of-memory").then_some(Cause::Stopped);
        assert_eq!(shown, Vec::from_iter(stopped), "{}", machine.display());
    }
}

//! `spangap host thieves` on the running kernel, under deliberate faults: each is named, and nothing else is
//! blamed.
//!
//! All tests run their target on the same CPU, so they run one after the other. Other programs may run on
//! this machine at the same time; about these, the tests assert only what the kernel's own accounts confirm.

mod faults;
mod healthy;
mod isolated;
mod programs;
mod softirqs;
mod waits;

use programs::Program;
use serde_json::Value;
use spangap_host::kernel::Kernel;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The CPU of the targets, and the only other CPU in use.
pub const CPU: usize = 1;
/// See [`CPU`].
pub const OTHER_CPU: usize = 0;

/// One test at a time, or the reason why none can run.
pub fn turn() -> Result<MutexGuard<'static, ()>, String> {
    static TURN: Mutex<()> = Mutex::new(());
    let kernel = Kernel::look();
    if !kernel.lost().is_empty() {
        return Err(format!("this kernel or user cannot tell everything: {}", kernel.lost().join("; ")));
    }
    for program in ["taskset", "chrt", "nice", "ip", "dd"] {
        if !has(program) {
            return Err(format!("{program} is not there"));
        }
    }
    let allowed = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = allowed.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(str::trim);
    if !allowed.is_some_and(|list| list.starts_with("0-")) {
        return Err(format!("needs the CPUs 0 and 1, may use {allowed:?}"));
    }
    Ok(TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Waits for its turn, or prints why it cannot run and ends the test.
#[macro_export]
macro_rules! turn_or_return {
    () => {
        match $crate::turn() {
            Ok(turn) => turn,
            Err(why) => return eprintln!("not run: {why}"),
        }
    };
}

fn has(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|at| at.join(program).exists()))
}

/// The verb, away from the target's CPU, at the nice value of a flood: it would hardly run beside one
/// otherwise.
pub fn thieves(arguments: &[&str]) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &OTHER_CPU.to_string(), "nice", "-n", "-20", env!("CARGO_BIN_EXE_spangap")]);
    command.args(["host", "thieves"]).args(arguments).stdin(Stdio::null());
    command
}

/// Its report on a process, as JSON.
pub fn report(pid: u32, arguments: &[&str]) -> Value {
    json(thieves(&["--json", "--pid", &pid.to_string()]).args(arguments))
}

/// Its output, which must be JSON.
pub fn json(command: &mut Command) -> Value {
    let done = command.output().expect("spangap starts");
    let complaint = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {} {complaint}", done.status);
    let report = serde_json::from_slice(&done.stdout).expect("JSON");
    eprintln!("{}", summary(&report));
    report
}

/// A summary for the output of a failed test.
fn summary(report: &Value) -> String {
    let Some(takers) = report["takers"].as_array() else { return String::new() };
    let taker = |taker: &Value| format!("{} {}", taker["name"], taker["total_ns"]);
    let takers: Vec<String> = takers.iter().take(8).map(taker).collect();
    format!("{} {} takers {}: {}", report["conclusions"], report["did"], takers.len(), takers.join(", "))
}

/// A count or a time in a report.
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Checks what must hold of any report: every nanosecond of every thread is reported once, with its taker.
pub fn sums_are_exact(report: &Value) {
    let did = |of: &Value| -> [u64; 8] {
        let names =
            ["running", "interrupted", "runnable", "throttled", "stopped", "blocked", "unknown", "unseen"];
        names.map(|name| number(&of[format!("{name}_ns")]))
    };
    let threads = report["threads"].as_array().expect("threads");
    let duration = number(&report["duration_ns"]);
    for thread in threads {
        assert_eq!(did(thread).iter().sum::<u64>(), number(&thread["sum_ns"]), "{thread}");
        assert_eq!(number(&thread["sum_ns"]), duration, "{thread}");
    }
    let all = did(&report["did"]);
    assert_eq!(all.iter().sum::<u64>(), duration * threads.len() as u64);
    let [running, interrupted, runnable, throttled, stopped, ..] = all;
    assert_eq!(number(&report["denied_ns"]), interrupted + runnable + throttled + stopped);
    assert_eq!(number(&report["wanted_ns"]), running + number(&report["denied_ns"]));
    let takers = report["takers"].as_array().expect("takers");
    let taken = |key: &str| takers.iter().map(|taker| number(&taker[key])).sum::<u64>();
    assert_eq!(taken("total_ns"), number(&report["denied_ns"]));
    assert_eq!((taken("while_runnable_ns"), taken("while_running_ns")), (runnable, interrupted));
}

/// What the kernel counts while a report is made.
pub struct Counted {
    /// How long threads of the target waited on run queues, in nanoseconds.
    pub waited_ns: u64,
    /// Softirqs of the CPU, by vector.
    softirqs: BTreeMap<String, u64>,
}

impl Counted {
    /// The counts until now.
    pub fn of(target: &Program) -> Counted {
        let table = std::fs::read_to_string("/proc/softirqs").expect("softirqs");
        let vectors = table.lines().filter_map(|line| line.split_once(':'));
        let on_cpu = |counts: &str| counts.split_ascii_whitespace().nth(CPU)?.parse().ok();
        let softirqs = vectors.filter_map(|(name, counts)| Some((name.trim().to_owned(), on_cpu(counts)?)));
        Counted { waited_ns: target.accounts().1, softirqs: softirqs.collect() }
    }

    /// The counts since then.
    pub fn since(self, target: &Program) -> Counted {
        let now = Counted::of(target);
        let softirqs = now.softirqs.into_iter().map(|(name, count)| {
            let before = self.softirqs.get(&name).copied().unwrap_or_default();
            (name, count - before)
        });
        Counted { waited_ns: now.waited_ns - self.waited_ns, softirqs: softirqs.collect() }
    }
}

/// Anything blamed besides `cause` must be in the kernel's own counts around the whole run.
pub fn nothing_else_is_blamed(report: &Value, cause: &str, counted: &Counted) {
    for other in report["causes"].as_array().expect("causes") {
        let ns = number(&other["ns"]);
        match other["cause"].as_str().expect("a name") {
            name if name == cause => {}
            "run-queue" => {
                let waited_ns = counted.waited_ns;
                assert!(ns <= waited_ns, "{other}, but the kernel counted {waited_ns} ns of waits")
            }
            // Other programs of the machine use disks and networks.
            "softirq-on-cpu" => {
                let takers = report["takers"].as_array().expect("takers").iter();
                for taker in
                    takers.filter(|taker| taker["cause"] == "softirq-on-cpu" && taker["blamed"] == true)
                {
                    let counted = counted.softirqs.get(taker["name"].as_str().expect("a name"));
                    // One may have begun before.
                    let most = counted.map_or(0, |counted| counted + 1);
                    assert!(number(&taker["count"]) <= most, "{taker}, but the kernel counted {counted:?}");
                }
            }
            "steal" => assert!(Path::new("/proc/stat").exists() && ns > 0),
            _ => panic!("{other} is blamed, too"),
        }
    }
}

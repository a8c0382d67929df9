//! Quotas, stops and neighbours.

use crate::programs::{Program, wait_until};
use crate::{
    CPU, Counted, json, nothing_else_is_blamed, number, report, sums_are_exact, thieves, turn_or_return,
};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A cgroup with a quota, removed when dropped; its processes must be dropped first.
struct Quota(PathBuf);

impl Quota {
    /// 5 ms of CPU time in each 100 ms.
    fn new() -> Result<Quota, String> {
        let name = format!("spangap-truth-{}", std::process::id());
        let (version_1, version_2) = (Path::new("/sys/fs/cgroup/cpu"), Path::new("/sys/fs/cgroup"));
        let is_version_1 = version_1.join("cpu.cfs_period_us").exists() || version_1.join("tasks").exists();
        let root = if is_version_1 { version_1 } else { version_2 };
        let group = root.join(name);
        fs::create_dir(&group).map_err(|error| format!("{}: {error}", group.display()))?;
        let quota = Quota(group);
        let write = |file: PathBuf, text: &str| {
            fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))
        };
        if is_version_1 {
            write(quota.0.join("cpu.cfs_period_us"), "100000")?;
            write(quota.0.join("cpu.cfs_quota_us"), "5000")?;
        } else {
            write(root.join("cgroup.subtree_control"), "+cpu")?;
            write(quota.0.join("cpu.max"), "5000 100000")?;
        }
        Ok(quota)
    }

    fn add(&self, program: &Program) {
        fs::write(self.0.join("cgroup.procs"), program.pid().to_string()).expect("it moves");
    }

    /// How often the quota was used up.
    fn used_up(&self) -> u64 {
        let text = fs::read_to_string(self.0.join("cpu.stat")).expect("cpu.stat");
        let count = text.lines().find_map(|line| line.strip_prefix("nr_throttled "));
        count.expect("a count").trim().parse().expect("a number")
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // The kernel may take a moment to release the last process.
        let deadline = Instant::now() + Duration::from_secs(10);
        while fs::remove_dir(&self.0).is_err() && Instant::now() < deadline {
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
    }
}

/// The working thread.
fn worker(report: &Value) -> &Value {
    let threads = report["threads"].as_array().expect("threads");
    threads.iter().max_by_key(|thread| number(&thread["running_ns"])).expect("a thread")
}

/// The taker with this process id.
fn of_pid(report: &Value, pid: u32) -> &Value {
    let takers = report["takers"].as_array().expect("takers");
    let taker = takers.iter().find(|taker| taker["pid"] == pid);
    taker.unwrap_or_else(|| panic!("pid {pid} is not among the takers: {takers:#?}"))
}

#[test]
fn a_used_up_quota_is_named() {
    let _turn = turn_or_return!();
    let quota = match Quota::new() {
        Ok(quota) => quota,
        Err(why) => return eprintln!("not run: no cgroup with a quota can be made: {why}"),
    };
    let target = Program::target(&["nice", "-n", "-20"]);
    quota.add(&target);
    let before = quota.used_up();
    wait_until("the quota is used up", || quota.used_up() > before);
    let (counted, around) = (quota.used_up(), Counted::of(&target));
    let report = report(target.pid(), &["--duration", "3s"]);
    let (counted, around) = (quota.used_up() - counted, around.since(&target));
    sums_are_exact(&report);
    assert_eq!(report["culprit"]["cause"], "cpu-quota");
    assert_eq!(report["causes"][0]["cause"], "cpu-quota");
    nothing_else_is_blamed(&report, "cpu-quota", &around);
    let taker = &report["takers"][0];
    assert_eq!(taker["kind"], "quota");
    // The kernel counted every reported throttling; its count includes those before and after.
    let count = number(&taker["count"]);
    assert!(count >= 10 && count <= counted + 1, "{count} times, of {counted} counted");
    assert_eq!(number(&taker["total_ns"]), number(&report["did"]["throttled_ns"]));

    let group = format!("/{}", quota.0.file_name().and_then(|name| name.to_str()).expect("a name"));
    let by_group = json(&mut thieves(&["--json", "--cgroup", &group, "--duration", "1s"]));
    sums_are_exact(&by_group);
    assert_eq!(by_group["culprit"]["cause"], "cpu-quota");
    assert_eq!(by_group["pids"], serde_json::json!([target.pid()]));
    let path = quota.0.display().to_string();
    // The exit code must follow from the report itself: on a busy machine, an interrupt may well take some of
    // the little time that the quota leaves.
    for fail_on in ["cpu-quota,stopped", "stopped,softirq-on-cpu", "stopped"] {
        let arguments = ["--json", "--cgroup", &path, "--duration", "500ms", "--fail-on", fail_on];
        let done = thieves(&arguments).stderr(Stdio::null()).output().expect("spangap starts");
        let report: Value = serde_json::from_slice(&done.stdout).expect("JSON");
        let causes = report["causes"].as_array().expect("causes");
        let named = |name: &str| causes.iter().any(|cause| cause["cause"] == name);
        let code = if fail_on.split(',').any(named) { 3 } else { 0 };
        assert_eq!(done.status.code(), Some(code), "--fail-on {fail_on}: {causes:#?}");
        assert!(named("cpu-quota") && !named("stopped"), "{causes:#?}");
    }
}

#[test]
fn stops_are_named() {
    let _turn = turn_or_return!();
    let target = Program::target(&["nice", "-n", "-20"]);
    let around = Counted::of(&target);
    let pid = target.pid();
    let looking = std::thread::spawn(move || report(pid, &["--duration", "3s"]));
    const PHASE: Duration = Duration::from_millis(20);
    let mut stopped = Duration::ZERO;
    let pass = |phase: Duration| {
        let until = Instant::now() + phase;
        wait_until("a phase is over", || Instant::now() >= until);
    };
    while !looking.is_finished() {
        let began = Instant::now();
        target.signal("STOP");
        wait_until("it is stopped", || target.state() == Some('T'));
        pass(PHASE);
        target.signal("CONT");
        wait_until("it goes on", || target.state() != Some('T'));
        stopped += began.elapsed();
        pass(PHASE);
    }
    let report = looking.join().expect("a report");
    let around = around.since(&target);
    sums_are_exact(&report);
    assert_eq!(report["culprit"]["cause"], "stopped");
    nothing_else_is_blamed(&report, "stopped", &around);
    let told = number(&worker(&report)["stopped_ns"]);
    assert!(u128::from(told) <= stopped.as_nanos(), "{told} ns stopped, but only for {stopped:?}");
    // Half of the observed time, minus what the signals took to arrive.
    assert!(told * 5 > number(&report["duration_ns"]), "{told} ns stopped");
}

/// The neighbour comes first if it can be nobody else: by the kernel's account, it ran for most of the time in which the target
/// waited. On a busy machine, another session's programs may have as much of the CPU, whatever the weight of this one.
fn comes_first(report: &Value, neighbour: &Program, ran_ns: u64, waited_ns: u64) {
    // The kernel brings a running thread's account up to date at its ticks.
    const TICK_NS: u64 = 10_000_000;
    let total = number(&of_pid(report, neighbour.pid())["total_ns"]);
    assert!(total <= ran_ns + TICK_NS, "it took {total} ns, but the kernel counted {ran_ns}");
    if ran_ns * 2 <= waited_ns {
        eprintln!("not run: who of the neighbours comes first: others than ours had most of the CPU");
        return;
    }
    assert_eq!(report["culprit"]["name"], format!("dd (pid {})", neighbour.pid()));
    assert_eq!(report["takers"][0]["pid"], neighbour.pid());
}

#[test]
fn a_busy_neighbour_is_named() {
    let _turn = turn_or_return!();
    let target = Program::target(&["nice", "-n", "0"]);
    let neighbour = Program::neighbour("-15");
    let (began, counted, ran_before) = (Instant::now(), Counted::of(&target), neighbour.accounts().0);
    let report = report(target.pid(), &["--duration", "3s"]);
    let (counted, ran) = (counted.since(&target), neighbour.accounts().0 - ran_before);
    let (waited, around) = (counted.waited_ns, began.elapsed().as_nanos() as u64);
    sums_are_exact(&report);
    assert_eq!(report["culprit"]["cause"], "run-queue");
    comes_first(&report, &neighbour, ran, waited);
    nothing_else_is_blamed(&report, "run-queue", &counted);
    let did = |what: &str| number(&report["did"][format!("{what}_ns")]);
    let runnable = did("runnable");
    assert!(runnable <= waited, "runnable for {runnable} ns, but the kernel counted {waited}");
    // Everything that the kernel counted is reported, except what happened before and after the observation.
    // A single thread works.
    let outside = around - number(&report["duration_ns"]);
    let told = runnable + did("unknown") + did("unseen") + outside;
    assert!(told >= waited, "{told} ns told, but the kernel counted {waited} ns of waits");
}

#[test]
fn the_nicer_of_two_neighbours_takes_less() {
    let _turn = turn_or_return!();
    let target = Program::target(&["nice", "-n", "0"]);
    // More aggressive than anything else that may run here, so which of the two takes more does not depend on
    // the machine's other users.
    let (nice, rude) = (Program::neighbour("0"), Program::neighbour("-20"));
    let (counted, ran_before) = (Counted::of(&target), rude.accounts().0);
    let report = report(target.pid(), &["--duration", "4s"]);
    let (counted, ran) = (counted.since(&target), rude.accounts().0 - ran_before);
    sums_are_exact(&report);
    comes_first(&report, &rude, ran, counted.waited_ns);
    let total = |program: &Program| number(&of_pid(&report, program.pid())["total_ns"]);
    assert!(total(&nice) > 0 && total(&nice) * 3 < total(&rude), "{} {}", total(&nice), total(&rude));
    let cpus = json(&mut thieves(&["--json", "--cpus", &CPU.to_string(), "--duration", "2s"]));
    let users = cpus["users"].as_array().expect("users");
    // Somebody else may have most of the CPU: a weight counts among the programs of one session (`sched_autogroup_enabled`).
    let had: Vec<u64> = users.iter().map(|user| number(&user["total_ns"])).collect();
    assert!(had.is_sorted_by(|more, less| more >= less), "{users:#?}");
    let place = |program: &Program| users.iter().position(|user| user["pid"] == program.pid());
    assert!(place(&rude).is_some_and(|rude| place(&nice).is_none_or(|nice| rude < nice)), "{users:#?}");
    let cpu = &cpus["cpus"][0];
    let parts = ["tasks_ns", "softirq_ns", "hardirq_ns", "idle_ns", "unknown_ns"];
    let sum: u64 = parts.iter().map(|part| number(&cpu[part])).sum();
    assert_eq!(sum, number(&cpus["duration_ns"]));
}

#[test]
fn a_recording_gives_the_same_result() {
    let _turn = turn_or_return!();
    let folder = tempfile::tempdir().expect("a folder");
    let (recording, page) = (folder.path().join("host.rec"), folder.path().join("thieves.html"));
    let (file, page_file) = (recording.to_str().expect("a path"), page.to_str().expect("a path"));
    let target = Program::target(&["nice", "-n", "0"]);
    let neighbour = Program::neighbour("-15");
    let pid = target.pid().to_string();
    let mut record = Command::new(env!("CARGO_BIN_EXE_spangap"));
    record.args(["host", "record", "--pid", &pid, "--duration", "2s", "--write", file]);
    let done = record.output().expect("spangap starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    drop(target);

    let arguments = ["--json", "--recording", file, "--pid", &pid, "--html", page_file];
    let report = json(&mut thieves(&arguments));
    sums_are_exact(&report);
    let name = format!("dd (pid {})", neighbour.pid());
    assert_eq!(report["culprit"]["name"], name);
    assert_eq!(report, json(&mut thieves(&arguments)), "a recording says the same each time");
    let html = fs::read_to_string(&page).expect("a page");
    let (_, rest) = html.split_once("<script type=\"application/json\" id=\"data\">").expect("its document");
    let document: Value =
        serde_json::from_str(rest.split_once("</script>").expect("its end").0).expect("JSON");
    let windows = document["report"]["windows"].as_array().expect("windows").clone();
    let behind = Value::from(format!("behind {name}"));
    let pieces = |window: &Value| window["pieces"].as_array().expect("pieces").clone();
    assert!(windows.iter().flat_map(pieces).any(|piece| piece["who"] == behind), "{document:#}");
    for window in &windows {
        let drawn: u64 = pieces(window).iter().map(|piece| number(&piece["ns"])).sum();
        assert_eq!(drawn, number(&window["duration_ns"]), "all of it is drawn");
    }
    // Namespaces are only names, and links that begin with # or data: stay within the page.
    let inside = ["http://www.w3.org/", "url(\"#", "url(#", "href=\"data:"];
    let fetched = inside.iter().fold(html, |page, inside| page.replace(inside, ""));
    for needle in ["http:", "https:", "src=", "href=", "url(", "@import"] {
        assert!(!fetched.contains(needle), "{needle}");
    }
    let picture = folder.path().join("thieves.svg");
    let drawn = ["--json", "--recording", file, "--svg", picture.to_str().expect("a path")];
    assert_eq!(
        report,
        json(&mut thieves(&drawn)),
        "the processes that were recorded, unless others are named"
    );
    let svg = fs::read_to_string(&picture).expect("a picture");
    assert!(svg.starts_with("<svg") && svg.contains(&format!("behind {name}")), "{svg}");
    let missing = thieves(&["--recording", file, "--pid", "4194999"]).output().expect("spangap starts");
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("is not in the recording"));
}

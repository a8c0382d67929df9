//! Why threads slept and who woke them, by `host offcpu`, and which processes were halted before it started.

use crate::programs::{Program, wait_until};
use crate::{report, thieves, turn_or_return};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PLAIN: [&str; 2] = ["nice", "-n"];

fn play(role: &str) -> Program {
    Program::play(role, &[PLAIN[0], PLAIN[1], "0"])
}

/// Its report on a process.
fn offcpu(pid: u32) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spangap"));
    command
        .args(["host", "offcpu", "--json", "--duration", "1s", "--pid", &pid.to_string()])
        .stdin(Stdio::null());
    let done = command.output().expect("spangap starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let report: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let rows: Vec<String> = rows(&report)
        .iter()
        .map(|row| format!("{} {} {}", row["reason"], row["sum_ns"], row["waker"]))
        .collect();
    eprintln!("{} {rows:#?}", report["reasons"]["conclusions"]);
    report
}

fn rows(report: &Value) -> &Vec<Value> {
    report["reasons"]["waits"].as_array().expect("reasons")
}

/// The first reason named must be this one, and its waker must satisfy the condition.
fn named_first(report: &Value, reason: &str, waker: impl Fn(&str) -> bool) {
    let first = rows(report).first().expect("a reason");
    assert_eq!(first["reason"], reason, "{:#?}", rows(report));
    assert!(waker(first["waker"].as_str().unwrap_or_default()), "{first}");
}

fn concluded(report: &Value, begin: &str) {
    let first = report["reasons"]["conclusions"][0].as_str().expect("a conclusion");
    assert!(first.starts_with(begin), "{first}");
}

#[test]
fn a_contended_mutex_is_named_with_its_releaser() {
    let _turn = turn_or_return!();
    let program = play("lock");
    let report = offcpu(program.pid());
    let pid = format!("(pid {}, thread ", program.pid());
    named_first(&report, "lock", |waker| waker.starts_with("lock-") && waker.contains(&pid));
    concluded(&report, "lock: its threads waited");
}

#[test]
fn a_c_mutex_is_a_lock_and_a_python_mutex_a_futex_with_its_holder() {
    let _turn = turn_or_return!();
    let folder = tempfile::tempdir().expect("a folder");
    let (source, binary) = (folder.path().join("lock.c"), folder.path().join("lock"));
    fs::write(
        &source,
        "#include <pthread.h>\n#include <unistd.h>\nstatic pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;\n\
         static void *h(void *a) { for (;;) { pthread_mutex_lock(&m); usleep(5000); pthread_mutex_unlock(&m); usleep(100); } }\n\
         int main(void) { pthread_t t; pthread_create(&t, 0, h, 0); pthread_create(&t, 0, h, 0); char c; read(0, &c, 1); }\n",
    )
    .expect("a source");
    match Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&binary).arg(&source).status() {
        Ok(status) if status.success() => {
            let program = Program::start(&mut Command::new(&binary));
            wait_until("its threads run", || threads(program.pid()) == 3);
            let report = offcpu(program.pid());
            named_first(&report, "lock", |waker| waker.contains(&format!("(pid {}, thread ", program.pid())));
            concluded(&report, "lock: its threads waited");
        }
        _ => eprintln!("not run: the C program, as there is no compiler cc"),
    }
    let script = "import sys, threading, time\nl = threading.Lock()\ndef hold():\n  while True:\n    with l: time.sleep(0.005)\n\
                  for _ in range(2): threading.Thread(target=hold, daemon=True).start()\nsys.stdin.read()\n";
    if Command::new("python3").arg("-V").stdout(Stdio::null()).status().is_err() {
        return eprintln!("not run: the Python program, as there is no python3");
    }
    let program = Program::start(Command::new("python3").args(["-c", script]));
    wait_until("its threads run", || threads(program.pid()) == 3);
    // To the kernel, its locks are semaphores, so it cannot know who holds one.
    named_first(&offcpu(program.pid()), "futex", |waker| {
        waker.contains(&format!("(pid {}, thread ", program.pid()))
    });
}

/// musl's condition variables wait on a futex with the value of a contended mutex.
#[test]
fn an_idle_pool_of_musl_waits_for_work_and_its_contended_mutex_for_a_lock() {
    let _turn = turn_or_return!();
    if Command::new("musl-gcc").arg("--version").stdout(Stdio::null()).status().is_err() {
        return eprintln!("not run: there is no musl-gcc");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let head = "#include <pthread.h>\n#include <unistd.h>\n\
         static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;\nstatic pthread_cond_t c = PTHREAD_COND_INITIALIZER;\n";
    let main = "int main(void) { pthread_t t; for (int i = 0; i < 3; i++) pthread_create(&t, 0, h, 0);\n\
         for (;;) { usleep(3000); pthread_cond_broadcast(&c); } }\n";
    let idle = "static void *h(void *a) { pthread_mutex_lock(&m); for (;;) pthread_cond_wait(&c, &m); }\n";
    let held = "static void *h(void *a) { for (;;) { pthread_mutex_lock(&m); usleep(5000); pthread_mutex_unlock(&m); usleep(100); } }\n";
    for (work, reason) in [(idle, "futex"), (held, "lock")] {
        let (source, binary) = (folder.path().join("pool.c"), folder.path().join(reason));
        fs::write(&source, format!("{head}{work}{main}")).expect("a source");
        let built =
            Command::new("musl-gcc").args(["-O1", "-static", "-o"]).arg(&binary).arg(&source).status();
        assert!(built.expect("musl-gcc starts").success());
        let program = Program::start(&mut Command::new(&binary));
        wait_until("its threads run", || threads(program.pid()) == 4);
        let report = offcpu(program.pid());
        let ns = |reason: &str| -> u64 {
            let of = rows(&report).iter().filter(|row| row["reason"] == reason);
            of.filter_map(|row| row["sum_ns"].as_u64()).sum()
        };
        let other = if reason == "lock" { "futex" } else { "lock" };
        assert!(ns(reason) > 10 * ns(other), "{reason} {}, {other} {}", ns(reason), ns(other));
    }
}

fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

#[test]
fn an_fsync_is_named() {
    let _turn = turn_or_return!();
    let folder = tempfile::tempdir().expect("a folder");
    let program = play(&format!("fsync {}", folder.path().join("file").display()));
    let report = offcpu(program.pid());
    if !rows(&report).iter().any(|row| row["state"] == "D") {
        return eprintln!("not run: {} is on no disk: an fsync does not wait there", folder.path().display());
    }
    named_first(&report, "fsync", |_| true);
    assert_eq!(rows(&report)[0]["state"], "D");
}

#[test]
fn a_contended_lock_on_a_file_is_named_with_who_lets_go_of_it() {
    let _turn = turn_or_return!();
    let folder = tempfile::tempdir().expect("a folder");
    let role = format!("flock {}", folder.path().join("file").display());
    let [program, other] = [play(&role), play(&role)];
    let report = offcpu(program.pid());
    let pid = format!("(pid {}", other.pid());
    named_first(&report, "file-lock", |waker| waker.contains(&pid));
    concluded(&report, "file-lock: its threads waited");
}

#[test]
fn who_reads_a_pipe_waits_for_who_writes_it() {
    let _turn = turn_or_return!();
    let program = play("pipe");
    let children = format!("/proc/{0}/task", program.pid());
    let child = || -> Option<u32> {
        let mut threads = fs::read_dir(&children).ok()?.flatten();
        threads.find_map(|thread| {
            fs::read_to_string(thread.path().join("children")).ok()?.split_whitespace().next()?.parse().ok()
        })
    };
    wait_until("the reader is there", || child().is_some_and(|pid| comm(pid) == "cat"));
    let report = offcpu(child().expect("a child"));
    named_first(&report, "pipe-read", |waker| waker.contains(&format!("(pid {})", program.pid())));
    concluded(&report, "none: nothing held up its threads");
}

fn comm(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// Waiting for work, or for a requested time, is nobody's fault. Waiting for pages of its code that a full
/// machine dropped is.
#[test]
fn idle_threads_are_not_delayed() {
    let _turn = turn_or_return!();
    let program = play("idle");
    let report = offcpu(program.pid());
    let blamed: Vec<&Value> =
        rows(&report).iter().filter(|row| row["worth_mention"] == true).map(|row| &row["reason"]).collect();
    let by_the_machine = ["page-fault", "disk", "reclaim", "kernel-lock"];
    assert!(
        blamed.iter().all(|reason| by_the_machine.contains(&reason.as_str().unwrap_or_default())),
        "{blamed:?}"
    );
    let told: Vec<&Value> = rows(&report).iter().map(|row| &row["reason"]).collect();
    assert!(
        told.iter().any(|reason| **reason == "poll" || **reason == "socket-read" || **reason == "sleep"),
        "{told:?}"
    );
}

#[test]
fn a_process_stopped_earlier_is_reported() {
    let _turn = turn_or_return!();
    let target = Program::target(&["nice", "-n", "0"]);
    target.signal("STOP");
    wait_until("it is stopped", || target.state() == Some('T'));
    let pid = target.pid().to_string();
    let report = report(target.pid(), &["--duration", "300ms"]);
    let words = report["conclusions"][0].as_str().expect("a conclusion");
    assert!(
        words.contains("was stopped by a signal from before this check began until after it ended"),
        "{words}"
    );
    assert!(words.contains(&format!("kill -CONT {pid}")), "{words}");
    assert_eq!(
        (&report["culprit"]["cause"], &report["causes"][0]["cause"]),
        (&"stopped".into(), &"stopped".into())
    );
    let mut command = thieves(&["--pid", &pid, "--duration", "100ms", "--fail-on", "stopped"]);
    assert_eq!(command.stdout(Stdio::null()).status().expect("spangap starts").code(), Some(3));
    let offcpu = offcpu(target.pid());
    assert_eq!(
        (&offcpu["halted"][0]["by"], &offcpu["reasons"]["asleep"][0]["reason"]),
        (&"stopped".into(), &"stopped".into())
    );
    target.signal("CONT");
}

/// A frozen cgroup, thawed and removed when dropped; its processes must be dropped first.
struct Freezer(PathBuf, &'static str, &'static str);

impl Drop for Freezer {
    fn drop(&mut self) {
        wait_until("the cgroup is gone", || fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}

#[test]
fn a_process_frozen_earlier_is_reported() {
    let _turn = turn_or_return!();
    let name = format!("spangap-frozen-{}", std::process::id());
    let (old, new) = (Path::new("/sys/fs/cgroup/freezer"), Path::new("/sys/fs/cgroup"));
    let freezer = match old.join("tasks").exists() {
        true => Freezer(old.join(&name), "freezer.state", "FROZEN"),
        false => Freezer(new.join(&name), "cgroup.freeze", "1"),
    };
    if let Err(error) = fs::create_dir(&freezer.0) {
        return eprintln!("not run: no cgroup can be made: {error}");
    }
    let target = Program::target(&["nice", "-n", "0"]);
    fs::write(freezer.0.join("cgroup.procs"), target.pid().to_string()).expect("it moves");
    let Freezer(group, file, frozen) = &freezer;
    fs::write(group.join(file), frozen).expect("it freezes");
    let shown = if *frozen == "1" { ("cgroup.events", "frozen 1") } else { (*file, "FROZEN") };
    wait_until("it is frozen", || {
        fs::read_to_string(group.join(shown.0)).is_ok_and(|text| text.contains(shown.1))
    });
    let report = report(target.pid(), &["--duration", "300ms"]);
    fs::write(group.join(file), if *frozen == "1" { "0" } else { "THAWED" }).expect("it thaws");
    let words = report["conclusions"][0].as_str().expect("a conclusion");
    assert!(
        words.contains("was frozen") && words.contains("from before this check began until after it ended"),
        "{words}"
    );
    assert_eq!(report["culprit"]["cause"], "stopped");
    drop(target);
}

/// A cgroup with this memory limit, removed when dropped; its processes must be dropped first.
struct Limit(PathBuf);

impl Drop for Limit {
    fn drop(&mut self) {
        wait_until("the cgroup is gone", || fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}

#[test]
fn major_faults_under_a_memory_limit_are_named() {
    let _turn = turn_or_return!();
    let root = Path::new("/sys/fs/cgroup/memory");
    if !root.join("memory.limit_in_bytes").exists() {
        return eprintln!("not run: no controller of memory of version 1 is mounted");
    }
    let limit = Limit(root.join(format!("spangap-limit-{}", std::process::id())));
    if let Err(error) = fs::create_dir(&limit.0) {
        return eprintln!("not run: no cgroup can be made: {error}");
    }
    fs::write(limit.0.join("memory.limit_in_bytes"), "33554432").expect("a limit");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("large");
    let script = "import mmap, os, sys\nf = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n\
         for _ in range(128): os.write(f, b'x' * (1 << 20))\nos.fsync(f)\nos.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)\n\
         m = mmap.mmap(f, 128 << 20, prot=mmap.PROT_READ)\nm.madvise(mmap.MADV_RANDOM)\nprint('ready', flush=True)\nat = 0\n\
         while True:\n  m[at]; at = (at + 40503 * 4096) % (128 << 20)\n";
    let within = "echo $$ > \"$0\" && exec python3 -c \"$1\" \"$2\"";
    let mut command = Command::new("sh");
    command.args(["-c", within]).arg(limit.0.join("cgroup.procs")).arg(script).arg(&file);
    let program = Program::start(&mut command);
    let majors = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", program.pid())).unwrap_or_default();
        let fields =
            stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().nth(9).map(str::to_owned);
        fields.and_then(|majors| majors.parse::<u64>().ok()).unwrap_or(0)
    };
    wait_until("pages are read from the disk", || majors() > 500);
    let report = offcpu(program.pid());
    let first = &rows(&report)[0];
    assert!(["page-fault", "reclaim"].contains(&first["reason"].as_str().unwrap_or_default()), "{first}");
    assert_eq!((&first["worth_mention"], &first["state"]), (&Value::Bool(true), &"D".into()));
    assert!(rows(&report).iter().any(|row| row["reason"] == "page-fault"), "{:#?}", rows(&report));
    drop(program);
}

//! Threads with known behaviour: switches compared with `/proc/PID/status`, waits with `/proc/PID/schedstat`.

use super::{own_tid, while_streaming};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use spangap_host::event::{Event, Left, What};
use spangap_host::probes::intervals::{Settings, monotonic_ns};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The kernel's counts for the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    at_ns: u64,
    switches: u64,
    waited_ns: u64,
}

impl Counted {
    /// Reads until nothing happens between two readings.
    fn now() -> Counted {
        loop {
            let before = Counted::read();
            let after = Counted { at_ns: before.at_ns, ..Counted::read() };
            if before == after {
                return after;
            }
        }
    }

    fn read() -> Counted {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let counts = |name| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().parse::<u64>().unwrap()
        };
        let switches = counts("voluntary_ctxt_switches:") + counts("nonvoluntary_ctxt_switches:");
        let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        let waited_ns = stat.split_whitespace().nth(1).unwrap().parse().unwrap();
        Counted { at_ns: monotonic_ns(), switches, waited_ns }
    }
}

fn pin_to(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).unwrap();
}

fn spin(duration: Duration) {
    let began = Instant::now();
    while began.elapsed() < duration {
        std::hint::spin_loop();
    }
}

/// Switches from and to a thread between two moments: how it left, and how long it had waited.
fn of(events: &[Event], tid: u32, from_ns: u64, to_ns: u64) -> (Vec<Left>, Vec<u64>) {
    let (mut left, mut came) = (Vec::new(), Vec::new());
    for event in events.iter().filter(|event| (from_ns..to_ns).contains(&event.time_ns)) {
        if let What::Switch { prev, left: how, next, waited_ns, .. } = event.what {
            if prev == tid {
                left.push(how);
            }
            if next == tid {
                came.push(waited_ns);
            }
        }
    }
    (left, came)
}

/// Sleeps, spins, is moved, and has a neighbour; returns the kernel's counts from before and after.
fn sleep_and_spin() -> (u32, Counted, Counted) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        // On the same CPU, so that there is something to wait for.
        scope.spawn(|| {
            pin_to(0);
            while !done.load(Ordering::Relaxed) {
                spin(Duration::from_micros(100));
            }
        });
        pin_to(0);
        let before = Counted::now();
        for round in 0..ROUNDS {
            // Occasionally long enough for the neighbour to get its turn.
            spin(Duration::from_micros(if round % 30 == 0 { 20_000 } else { 200 }));
            thread::park_timeout(Duration::from_micros(300));
            if round % 50 == 49 {
                // Moved while it waits or runs: what it waited elsewhere counts, too.
                pin_to(usize::from(round % 100 == 49));
            }
        }
        let after = Counted::now();
        done.store(true, Ordering::Relaxed);
        (own_tid(), before, after)
    })
}

const ROUNDS: usize = 300;
/// Maximum runs of the test; the reason is given there.
const ATTEMPTS: usize = 20;

#[test]
fn switches_and_waits_match_the_kernels_counts() {
    if thread::available_parallelism().unwrap().get() < 2 {
        eprintln!("not run: needs two CPUs");
        return;
    }
    for _ in 0..ATTEMPTS {
        let Some((events, ended, (tid, before, after))) =
            while_streaming(&Settings::default(), sleep_and_spin)
        else {
            return;
        };
        assert_eq!(ended.counts.lost, 0);
        let (left, came) = of(&events, tid, before.at_ns, after.at_ns);
        assert_eq!(left.len() as u64, after.switches - before.switches);
        let blocked = left.iter().filter(|how| **how == Left::Blocked).count();
        assert!((ROUNDS..).contains(&blocked), "{blocked}");
        assert!(left.contains(&Left::Runnable), "the neighbour was let in");
        // Some kernels for virtual machines omit switches away from threads of their own for every listener,
        // perf included. The missing ones are switches from such a thread to ours, so our thread's count does
        // not have them.
        if came.len() < left.len() {
            eprintln!("this kernel left out {} switches to the thread", left.len() - came.len());
            continue;
        }
        assert_eq!(came.len(), left.len(), "it runs at both ends");
        let waited: u64 = came.iter().sum();
        // The kernel's account ends a wait at the last update of the run queue's clock, which may be a little
        // before the thread runs, so it is smaller by that much.
        let account = after.waited_ns - before.waited_ns;
        assert!(waited * 100 > account * 99, "{waited} ns, the kernel has {account}");
        let all_ns = after.at_ns - before.at_ns;
        assert!(
            waited < all_ns - ROUNDS as u64 * 200_000,
            "it ran, and was blocked: {waited} of {all_ns} ns"
        );
        assert!(waited > 0, "the neighbour ran");
        return;
    }
    eprintln!("not run: this kernel left out switches in each of {ATTEMPTS} attempts");
}

/// A process that is killed when the test ends.
pub(super) struct Process(Child);

impl Process {
    pub fn start(command: &str, arguments: &[&str]) -> Process {
        let child = Command::new(command).args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        Process(child.unwrap())
    }

    pub fn tid(&self) -> u32 {
        self.0.id()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Waits until `/proc/PID/stat` shows this state.
    pub fn wait_for_state(&self, state: char) {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.tid())).unwrap();
            let found = stat.rsplit_once(") ").unwrap().1.chars().next();
            if found == Some(state) {
                return;
            }
            assert!(Instant::now() < deadline, "{stat}: expected {state}");
            thread::yield_now();
        }
    }

    /// Closes its standard input, so that it ends by itself.
    fn end(mut self) -> u32 {
        drop(self.0.stdin.take());
        let tid = self.tid();
        self.0.wait().unwrap();
        tid
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // If the test passed, it has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_stopped_process_is_reported_by_name() {
    let work = || {
        let began = monotonic_ns();
        let cat = Process::start("cat", &[]);
        cat.wait_for_state('S');
        cat.signal(Signal::STOP);
        cat.wait_for_state('T');
        cat.signal(Signal::CONT);
        cat.wait_for_state('S');
        (began, cat.end())
    };
    let Some((events, ended, (began, tid))) = while_streaming(&Settings::default(), work) else { return };
    let (left, _) = of(&events, tid, began, u64::MAX);
    let how: Vec<Left> = left.into_iter().filter(|how| *how != Left::Runnable).collect();
    assert!(how.contains(&Left::Stopped), "{how:?}");
    assert_eq!(how.last(), Some(&Left::Ended), "{how:?}");
    assert_eq!(how.iter().filter(|how| **how == Left::Ended).count(), 1);
    let task = ended.names.task(tid).expect("it was told of");
    assert_eq!((task.comm.as_str(), task.tgid), ("cat", tid), "the name that exec gave it");
    let own = ended.names.task(std::process::id()).expect("this process");
    assert_eq!(task.cgroup_id, own.cgroup_id, "the program and /proc agree");
    assert!(task.cgroup_id == 0 || ended.names.cgroup(task.cgroup_id).is_some());
}

/// A cgroup of the `cpu` controller, version 1.
struct Quota(std::path::PathBuf);

impl Quota {
    fn new(quota_us: u32) -> Option<Quota> {
        let path =
            std::path::PathBuf::from(format!("/sys/fs/cgroup/cpu/spangap-test-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let quota = Quota(path);
        // A quota this small in a period this long is used up even by a thread that gets a fiftieth of a CPU,
        // and a thread that was off the CPU when it was used up gets its turn within the period, and is
        // stopped then.
        fs::write(quota.0.join("cpu.cfs_period_us"), "500000").ok()?;
        fs::write(quota.0.join("cpu.cfs_quota_us"), quota_us.to_string()).ok()?;
        Some(quota)
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // Its process is exiting; removal succeeds once the kernel has released it.
        let deadline = Instant::now() + Duration::from_secs(10);
        while fs::remove_dir(&self.0).is_err() && Instant::now() < deadline {
            thread::yield_now();
        }
    }
}

#[test]
fn a_process_out_of_quota_is_throttled() {
    let Some(quota) = Quota::new(4000) else {
        eprintln!("not run: needs root and the cpu controller of cgroup version 1 at /sys/fs/cgroup/cpu");
        return;
    };
    let group = fs::metadata(&quota.0).map(|folder| std::os::unix::fs::MetadataExt::ino(&folder)).unwrap();
    let throttled = || {
        let stat = fs::read_to_string(quota.0.join("cpu.stat")).unwrap();
        let line = stat.lines().find_map(|line| line.strip_prefix("nr_throttled ")).unwrap();
        line.parse::<u64>().unwrap()
    };
    let work = || {
        let spinner = Process::start("sh", &["-c", "while :; do :; done"]);
        fs::write(quota.0.join("tasks"), spinner.tid().to_string()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(120);
        while throttled() < 10 && Instant::now() < deadline {
            thread::park_timeout(Duration::from_millis(5));
        }
        (spinner.tid(), throttled())
    };
    let Some((events, ended, (tid, times))) = while_streaming(&Settings::default(), work) else { return };
    let (left, came) = of(&events, tid, 0, u64::MAX);
    let throttles = left.iter().filter(|how| **how == Left::Throttled).count() as u64;
    // The kernel counts periods in which the group was throttled on a CPU, with or without the thread on it.
    assert!(throttles >= 5 && throttles <= times + 5, "{throttles} of {times}");
    // With a quota of a hundredth, most of the period remains when the thread is stopped.
    let longest = *came.iter().max().unwrap();
    assert!(longest > 5_000_000, "{longest}");
    assert_eq!(ended.names.task(tid).map(|task| task.cgroup_id), Some(group));
    assert!(ended.names.cgroup(group).is_some_and(|path| path.contains("spangap-test-")));
}

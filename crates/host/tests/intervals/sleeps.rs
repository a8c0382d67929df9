//! Threads that sleep for a known reason: told by the system call or by the kernel stack, and right either way.

use super::threads::Process;
use super::{own_tid, while_streaming};
use rustix::process::{Pid, Signal};
use spangap_host::event::{Event, What};
use spangap_host::names::Names;
use spangap_host::probes::intervals::{Settings, Waits};
use spangap_host::symbols::Symbols;
use spangap_model::WaitReason;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Far longer than any wait below, even where the machine pauses.
const PATIENCE: Duration = Duration::from_secs(120);

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::park_timeout(Duration::from_millis(1));
    }
}

/// Waits until a thread of this process is asleep in a system call.
fn wait_for_sleep_in(tid: u32, call: i64) {
    let at = format!("/proc/self/task/{tid}");
    wait_until(&format!("thread {tid} sleeps in call {call}"), || {
        // `running`, or the number of the call and its arguments.
        let in_call = fs::read_to_string(format!("{at}/syscall")).unwrap_or_default();
        let stat = fs::read_to_string(format!("{at}/stat")).unwrap_or_default();
        in_call.split(' ').next() == Some(&call.to_string())
            && stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
    });
}

fn reasons(events: &[Event], names: &Names, tid: u32) -> BTreeSet<&'static str> {
    let told = events.iter().filter_map(|event| match &event.what {
        What::Woken(woken) if woken.tid == tid => Some(names.reason(&woken.sleep).0.name()),
        _ => None,
    });
    told.collect()
}

/// A thread that says its id and then sleeps.
fn sleeper(ids: &Sender<u32>, sleep: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    let ids = ids.clone();
    thread::spawn(move || {
        ids.send(own_tid()).unwrap();
        sleep();
    })
}

#[test]
fn each_sleep_has_its_own_reason() {
    let work = || {
        let (ids, id) = channel();
        let mut told = Vec::new();
        let parked = sleeper(&ids, thread::park);
        let tid = id.recv().unwrap();
        wait_for_sleep_in(tid, libc::SYS_futex);
        parked.thread().unpark();
        parked.join().unwrap();
        told.push((tid, WaitReason::Futex));

        // These sleeps are what is looked at; nobody waits for a condition with them. A single one may be over before it
        // has begun, if the thread loses its CPU on the way.
        let two_ms = rustix::time::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        let seen = Arc::new(AtomicBool::new(false));
        let until_seen = Arc::clone(&seen);
        let sleeping = sleeper(&ids, move || {
            while !until_seen.load(Ordering::Relaxed) {
                let _ = rustix::thread::nanosleep(&two_ms);
            }
        });
        let tid = id.recv().unwrap();
        wait_for_sleep_in(tid, libc::SYS_nanosleep);
        seen.store(true, Ordering::Relaxed);
        sleeping.join().unwrap();
        told.push((tid, WaitReason::Sleep));

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = sleeper(&ids, move || drop(listener.accept().unwrap()));
        let tid = id.recv().unwrap();
        wait_for_sleep_in(tid, libc::SYS_accept4);
        let connected = TcpStream::connect(address).unwrap();
        accepting.join().unwrap();
        drop(connected);
        told.push((tid, WaitReason::Accept));

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut writes = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut reads, _) = listener.accept().unwrap();
        let reading = sleeper(&ids, move || assert_eq!(reads.read(&mut [0; 8]).unwrap(), 1));
        let tid = id.recv().unwrap();
        wait_for_sleep_in(tid, libc::SYS_recvfrom);
        writes.write_all(b"x").unwrap();
        reading.join().unwrap();
        told.push((tid, WaitReason::SocketRead));

        // What a read waits for depends on the file: the stack tells it.
        let (mut reads, mut writes) = std::io::pipe().unwrap();
        let reading = sleeper(&ids, move || assert_eq!(reads.read(&mut [0; 8]).unwrap(), 1));
        let tid = id.recv().unwrap();
        wait_for_sleep_in(tid, libc::SYS_read);
        writes.write_all(b"x").unwrap();
        reading.join().unwrap();
        told.push((tid, WaitReason::PipeRead));
        told
    };
    if fs::read_to_string("/proc/thread-self/syscall").is_err() {
        return eprintln!("not run: this kernel does not tell a thread's system call");
    }
    let settings = Settings { tgids: vec![std::process::id()], waits: Waits::Only, ..Settings::default() };
    let Some((events, ended, told)) = while_streaming(&settings, work) else { return };
    let nameless = Symbols::read().why_none().is_some();
    for (tid, reason) in told {
        if reason == WaitReason::PipeRead && nameless {
            continue;
        }
        let found = reasons(&events, &ended.names, tid);
        assert!(found.contains(reason.name()), "{reason}: {found:?}");
    }
}

/// The unified hierarchy of cgroups, mounted for this test, with a cgroup that is removed in the end.
struct Freezer {
    mounted: PathBuf,
    group: PathBuf,
}

impl Freezer {
    fn new() -> Option<Freezer> {
        // Never removed recursively: below it are the cgroups of the whole machine.
        let mounted = tempfile::tempdir().unwrap().keep();
        let group = mounted.join(format!("spangap-frozen-{}", std::process::id()));
        let freezer = Freezer { mounted, group };
        let done = Command::new("mount").args(["-t", "cgroup2", "none"]).arg(&freezer.mounted).output();
        let there = done.is_ok_and(|done| done.status.success()) && fs::create_dir(&freezer.group).is_ok();
        (there && freezer.group.join("cgroup.freeze").exists()).then_some(freezer)
    }

    fn freeze(&self, frozen: bool) {
        fs::write(self.group.join("cgroup.freeze"), if frozen { "1" } else { "0" }).unwrap();
        let shown = format!("frozen {}", u8::from(frozen));
        wait_until(&shown, || {
            fs::read_to_string(self.group.join("cgroup.events")).is_ok_and(|text| text.contains(&shown))
        });
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while self.group.exists() && fs::remove_dir(&self.group).is_err() && Instant::now() < deadline {
            thread::park_timeout(Duration::from_millis(5));
        }
        // Nothing is mounted if that was refused.
        let _ = Command::new("umount").arg("--lazy").arg(&self.mounted).output();
        let _ = fs::remove_dir(&self.mounted);
    }
}

/// A frozen thread sleeps as interruptibly as in the system call that it came from, and its registers still show that call.
#[test]
fn a_frozen_thread_does_not_seem_to_be_in_its_call() {
    let Some(freezer) = Freezer::new() else {
        return eprintln!("not run: needs root and the unified hierarchy of cgroups");
    };
    let sleeps = Process::start("sleep", &["1000"]);
    let (tid, group): (u32, &Path) = (sleeps.tid(), &freezer.group);
    sleeps.wait_for_state('S');
    fs::write(group.join("cgroup.procs"), tid.to_string()).unwrap();
    let work = || {
        freezer.freeze(true);
        freezer.freeze(false);
        let pid = Pid::from_raw(tid as i32).unwrap();
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
    };
    let settings = Settings { tgids: vec![tid], waits: Waits::Only, ..Settings::default() };
    let Some((events, ended, ())) = while_streaming(&settings, work) else { return };
    if Symbols::read().why_none().is_some() {
        return eprintln!("not run: the kernel's functions have no names");
    }
    let found = reasons(&events, &ended.names, tid);
    assert!(found.contains(WaitReason::Frozen.name()), "{found:?}");
}

//! `spangap isolate guard`: the process that undoes a plan that nobody confirms, and how it is started and ended.
//!
//! It is started before the first change, in a session of its own and without a terminal, and says one line when it is
//! ready. It outlives the tool that started it. Time is CLOCK_BOOTTIME: that of a machine that sleeps counts too.

use super::folder::WhereArgs;
use super::rollback;
use crate::Outcome;
use crate::signals::{ASKED_OR_LEFT, Caught};
use anyhow::{Context, bail};
use clap::Args;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, setsid};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use spangap_isolate::journal::{Head, Journal};
use spangap_isolate::kernel;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

/// Undo a plan at a time unless it is confirmed; started by `isolate apply`
#[derive(Args, Debug)]
pub struct GuardArgs {
    #[command(flatten)]
    place: WhereArgs,
    /// When, by CLOCK_BOOTTIME
    #[arg(long, value_name = "NS")]
    until_ns: u64,
}

const READY: &str = "ready";
/// What it signs with.
const NOT_CONFIRMED: &str = "guard: not confirmed in time";
const TOLD_TO_END: &str = "guard: told to end before it was confirmed";

/// The guard's own part.
pub fn run(args: GuardArgs) -> anyhow::Result<Outcome> {
    // Neither a Ctrl-C nor the end of the terminal is meant for it.
    setsid().context("cannot leave the session")?;
    std::env::set_current_dir("/").context("cannot leave the folder")?;
    let mut place = args.place.find()?;
    // Another plan may be applied by then, with a guard of its own.
    let (path, guarded) = place.folder.open()?.context("there is no journal to guard")?;
    place.of_journal(&path, &guarded)?;
    let in_time = wait(args.until_ns)?;
    let lock = place.folder.lock()?;
    let Some((path, journal)) = place.folder.open()? else { return Ok(Outcome::Done) };
    let over = journal.confirmed().is_some() || journal.rolled_back().is_some();
    if !is_same(&journal.head, &guarded.head) || over {
        return Ok(Outcome::Done);
    }
    let by = if in_time { TOLD_TO_END } else { NOT_CONFIRMED };
    rollback::undo(&place, &lock, &path, &journal, by, false, &mut |_| {})?;
    Ok(Outcome::Done)
}

fn is_same(one: &Head, other: &Head) -> bool {
    (one.time_unix_ns, &one.boot_id, &one.root) == (other.time_unix_ns, &other.boot_id, &other.root)
}

/// Until the time; `true` when a signal came before. Says that it is ready once no signal can be missed, and then
/// nothing more: whoever listened may be gone, and so may the terminal.
fn wait(until_ns: u64) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot wait")?.block_on(async {
        let mut asked = Caught::new(ASKED_OR_LEFT)?;
        let timer = timer(until_ns)?;
        let (over, time) = tokio::sync::oneshot::channel();
        let wait = move || {
            // Nobody waits for it any more after a signal.
            let _ = over.send(rustix::io::read(&timer, &mut [0_u8; 8]));
        };
        thread::Builder::new().name("timer".into()).spawn(wait).context("cannot start a thread")?;
        writeln!(io::stdout(), "{READY}").context("nobody listens")?;
        tokio::select! {
            over = time => over.context("cannot wait")?.context("cannot wait").map(|_| false),
            () = asked.first() => Ok(true),
        }
    })
}

/// A timer that runs out at this time.
fn timer(until_ns: u64) -> anyhow::Result<rustix::fd::OwnedFd> {
    let timer =
        timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC).context("cannot make a timer")?;
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    let at = Timespec {
        tv_sec: i64::try_from(until_ns / 1_000_000_000).context("--until-ns: out of range")?,
        // A time of zero would be no time at all.
        tv_nsec: (until_ns % 1_000_000_000).max(1) as _,
    };
    let when = Itimerspec { it_interval: never, it_value: at };
    timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &when).context("cannot set a timer")?;
    Ok(timer)
}

/// Time of the clock that no one sets, and that also runs while the machine sleeps.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A guard that was started.
pub struct Guard {
    child: Child,
    /// When it was started, ticks since boot.
    pub start_ticks: u64,
}

impl Guard {
    /// Starts one over the open journal of a folder, and waits until it is ready.
    pub fn start(folder: &Path, until_ns: u64) -> anyhow::Result<Guard> {
        let mut child = Command::new("/proc/self/exe")
            .arg0("spangap")
            .args(["isolate", "guard", "--until-ns", &until_ns.to_string(), "--journal"])
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start the process that undoes it unless it is confirmed")?;
        let mut line = String::new();
        let out = child.stdout.take().context("it has no standard output")?;
        BufReader::new(out).read_line(&mut line).context("cannot hear the guard")?;
        if line.trim_end() != READY {
            let mut said = String::new();
            let told = child.stderr.take().map(|mut err| err.read_to_string(&mut said));
            let status = child.wait();
            bail!("the guard did not become ready ({status:?}): {} {told:?}", said.trim());
        }
        let start_ticks = kernel::started(child.id()).context("cannot look at the guard")?;
        let start_ticks = start_ticks.context("the guard ended at once")?;
        Ok(Guard { child, start_ticks })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has it end, and waits for that. Only after the journal is closed: else it would undo what is in it.
    pub fn end(mut self) {
        signal_to_end(self.pid(), self.start_ticks);
        // It is ours, and nobody else waits for it.
        let _ = self.child.wait();
    }
}

/// Has the guard of a journal look into it now: confirmed, or undone, it ends.
pub fn end(journal: &Journal) {
    if let Some((pid, start_ticks)) = journal.guard() {
        signal_to_end(pid, start_ticks);
    }
}

fn signal_to_end(pid: u32, start_ticks: u64) {
    let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    // Taken hold of first: after that its id cannot become another's.
    let Ok(process) = pidfd_open(id, PidfdFlags::empty()) else { return };
    if matches!(kernel::started(pid), Ok(Some(ticks)) if ticks == start_ticks) {
        // One that has ended has done its work.
        let _ = pidfd_send_signal(&process, Signal::TERM);
    }
}

//! The guard: a process that undoes a change when its time is over, whatever happens to the tool that made it.
//!
//! It starts before the first change and prints a line when it is ready. Times are on CLOCK_BOOTTIME, which
//! nobody can set, and which advances during suspend. A process is identified by its id and start time, and
//! pinned by a pidfd before it is sent a signal, because ids are reused.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use spangap_machine::facts::process_stat;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

/// Printed when the guard can no longer miss an event.
pub const READY: &str = "ready";

/// The current time on CLOCK_BOOTTIME.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A timer that becomes readable at this time.
///
/// # Errors
/// The kernel has none, or the time is out of range.
pub fn timer(until_ns: u64) -> io::Result<OwnedFd> {
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
    let at = Timespec {
        tv_sec: i64::try_from(until_ns / 1_000_000_000).map_err(io::Error::other)?,
        // A zero time would disarm the timer.
        tv_nsec: (until_ns % 1_000_000_000).max(1) as _,
    };
    let when = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
    timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &when)?;
    Ok(timer)
}

/// Waits until a timer fires.
///
/// # Errors
/// It cannot be read.
pub fn wait(timer: &OwnedFd) -> io::Result<()> {
    rustix::io::retry_on_intr(|| rustix::io::read(timer, &mut [0_u8; 8]))?;
    Ok(())
}

/// Start time of a process, in ticks since boot: together with the id, it identifies a process forever. `None`
/// if it does not exist.
///
/// # Errors
/// `/proc` is unreadable or malformed.
pub fn start_ticks(pid: u32) -> io::Result<Option<u64>> {
    Ok(process_stat::of(pid).map_err(io::Error::other)?.map(|stat| stat.start_ticks))
}

/// Identity of a process, distinct from any later one with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id, which another process may get later.
    pub pid: u32,
    /// Start time, in ticks since boot.
    pub start_ticks: u64,
}

impl Process {
    /// The process that currently has this id; `None` if there is none.
    ///
    /// # Errors
    /// `/proc` is unreadable.
    pub fn of(pid: u32) -> io::Result<Option<Process>> {
        Ok(start_ticks(pid)?.map(|start_ticks| Process { pid, start_ticks }))
    }

    /// Whether it is still running.
    pub fn is_alive(&self) -> bool {
        matches!(start_ticks(self.pid), Ok(Some(ticks)) if ticks == self.start_ticks)
    }

    /// Waits for its end, whichever process started it.
    ///
    /// # Errors
    /// The kernel does not report it.
    pub fn wait_for_its_end(&self) -> io::Result<()> {
        let Some(id) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
        let process = match pidfd_open(id, PidfdFlags::empty()) {
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            process => process?,
        };
        // The pidfd comes first: after that, the id cannot be reused.
        if self.is_alive() {
            let mut ended = [PollFd::new(&process, PollFlags::IN)];
            rustix::io::retry_on_intr(|| poll(&mut ended, None))?;
        }
        Ok(())
    }

    /// Sends SIGTERM. Returns `false` if it has already ended.
    pub fn ask_to_end(&self) -> bool {
        let Some(id) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return false };
        // The pidfd comes first: after that, the id cannot be reused.
        let Ok(process) = pidfd_open(id, PidfdFlags::empty()) else { return false };
        self.is_alive() && pidfd_send_signal(&process, Signal::TERM).is_ok()
    }
}

/// Reason for a missing guard.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// It cannot be started, or its output cannot be read.
    #[error("cannot start the process that undoes it in time")]
    Start(#[from] io::Error),
    /// It ended before it was ready.
    #[error("the process that undoes it in time did not become ready ({status}){said}")]
    NotReady {
        /// How it ended.
        status: ExitStatus,
        /// Its output, after a colon.
        said: String,
    },
}

/// A running guard that is ready.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    out: BufReader<ChildStdout>,
    process: Process,
}

impl Guard {
    /// Starts a guard, and waits until it is ready. Reads its standard output throughout, and its standard
    /// error until it is ready.
    ///
    /// # Errors
    /// It does not start, or ends before it is ready.
    pub fn start(command: &mut Command) -> Result<Guard, GuardError> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut out =
            BufReader::new(child.stdout.take().ok_or_else(|| io::Error::other("no standard output"))?);
        let mut line = String::new();
        let heard = out.read_line(&mut line);
        let started = start_ticks(child.id());
        match (heard, started) {
            (Ok(_), Ok(Some(start_ticks))) if line.trim_end() == READY => {
                let process = Process { pid: child.id(), start_ticks };
                Ok(Guard { child, out, process })
            }
            (heard, started) => {
                // Whatever it is, it is not a guard.
                let _ = child.kill();
                let mut said = String::new();
                let _ = child.stderr.take().map(|mut err| err.read_to_string(&mut said));
                let status = child.wait()?;
                heard?;
                started?;
                let said = if said.is_empty() { line } else { said };
                let said = match said.trim() {
                    "" => String::new(),
                    said => format!(": {said}"),
                };
                Err(GuardError::NotReady { status, said })
            }
        }
    }

    /// Identity of its process.
    pub fn process(&self) -> Process {
        self.process
    }

    /// Next line of its output; `None` if it has ended.
    ///
    /// # Errors
    /// Its output cannot be read.
    pub fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        let read = self.out.read_line(&mut line)?;
        Ok((read > 0).then(|| line.trim_end().to_owned()))
    }

    /// The child process, with its standard input if that is a pipe: for a guard that uses it as its life line.
    pub fn into_child(self) -> Child {
        self.child
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_distinguished_from_a_reused_id() {
        let own = Process::of(std::process::id()).expect("/proc is there").expect("this one runs");
        assert!(own.is_alive());
        let another = Process { start_ticks: own.start_ticks + 1, ..own };
        // Otherwise it would end this process.
        assert!(!another.is_alive() && !another.ask_to_end());
        assert_eq!(Process::of(u32::MAX).expect("/proc is there"), None);
        assert!(!Process { pid: u32::MAX, start_ticks: 0 }.ask_to_end());
    }

    #[test]
    fn ready_and_failing_guards() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdin(Stdio::null());
            Guard::start(&mut command)
        };
        let mut guard = shell("echo ready; echo done; exec sleep 1000").expect("it is ready");
        assert_eq!(guard.line().expect("it is heard").as_deref(), Some("done"));
        let process = guard.process();
        assert!(process.ask_to_end());
        guard.wait().expect("it is ours");
        assert!(!process.is_alive() && !process.ask_to_end());
        for script in ["echo why not >&2; exit 7", "echo why not; exec sleep 1000"] {
            let said = shell(script).expect_err("it is not ready").to_string();
            assert!(said.ends_with(": why not"), "{said}");
        }
    }

    #[test]
    fn a_timer_runs_out_at_its_time() {
        let until = now_ns() + 2_000_000;
        wait(&timer(until).expect("a timer")).expect("it runs out");
        assert!(now_ns() >= until);
        wait(&timer(0).expect("a timer")).expect("it has run out");
        assert!(timer(u64::MAX).is_ok());
    }
}

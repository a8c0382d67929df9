//! The process that undoes a change when its time is over, whatever becomes of the tool that made it.
//!
//! It is started before the first change and says one line when it is ready. Time is CLOCK_BOOTTIME: nobody sets it, and
//! that of a machine that sleeps counts too. A process is named by its id and the moment of its start, and taken hold of
//! before it is sent a signal: an id is used again.

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

/// What it says when nothing that happens from then on escapes it.
pub const READY: &str = "ready";

/// Time of the clock that no one sets, and that also runs while the machine sleeps.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A timer that can be read once this time is over.
///
/// # Errors
/// When the kernel has none, or the time is out of its range.
pub fn timer(until_ns: u64) -> io::Result<OwnedFd> {
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
    let at = Timespec {
        tv_sec: i64::try_from(until_ns / 1_000_000_000).map_err(io::Error::other)?,
        // A time of zero would be no time at all.
        tv_nsec: (until_ns % 1_000_000_000).max(1) as _,
    };
    let when = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
    timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &when)?;
    Ok(timer)
}

/// Waits until a timer has run out.
///
/// # Errors
/// When it cannot be read.
pub fn wait(timer: &OwnedFd) -> io::Result<()> {
    rustix::io::retry_on_intr(|| rustix::io::read(timer, &mut [0_u8; 8]))?;
    Ok(())
}

/// When a process was started, in ticks since boot: with its id, this names it for good. `None`: there is none.
///
/// # Errors
/// When `/proc` cannot be read, or has another form.
pub fn start_ticks(pid: u32) -> io::Result<Option<u64>> {
    Ok(process_stat::of(pid).map_err(io::Error::other)?.map(|stat| stat.start_ticks))
}

/// One process, and no other that gets its id later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// When it was started, ticks since boot.
    pub start_ticks: u64,
}

impl Process {
    /// The one that has this id now; `None`: there is none.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn of(pid: u32) -> io::Result<Option<Process>> {
        Ok(start_ticks(pid)?.map(|start_ticks| Process { pid, start_ticks }))
    }

    /// Whether it is still there.
    pub fn is_alive(&self) -> bool {
        matches!(start_ticks(self.pid), Ok(Some(ticks)) if ticks == self.start_ticks)
    }

    /// Waits for its end, whoever has started it.
    ///
    /// # Errors
    /// When the kernel cannot tell.
    pub fn wait_for_its_end(&self) -> io::Result<()> {
        let Some(id) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
        let process = match pidfd_open(id, PidfdFlags::empty()) {
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            process => process?,
        };
        // Taken hold of first: after that its id cannot become another's.
        if self.is_alive() {
            let mut ended = [PollFd::new(&process, PollFlags::IN)];
            rustix::io::retry_on_intr(|| poll(&mut ended, None))?;
        }
        Ok(())
    }

    /// Asks it to end. `false`: it has ended.
    pub fn ask_to_end(&self) -> bool {
        let Some(id) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return false };
        // Taken hold of first: after that its id cannot become another's.
        let Ok(process) = pidfd_open(id, PidfdFlags::empty()) else { return false };
        self.is_alive() && pidfd_send_signal(&process, Signal::TERM).is_ok()
    }
}

/// Why there is no guard.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// It cannot be started, or heard.
    #[error("cannot start the process that undoes it in time")]
    Start(#[from] io::Error),
    /// It ended before it was ready.
    #[error("the process that undoes it in time did not become ready ({status}){said}")]
    NotReady {
        /// How it ended.
        status: ExitStatus,
        /// What it said, after a colon.
        said: String,
    },
}

/// A guard that was started, and is ready.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    out: BufReader<ChildStdout>,
    process: Process,
}

impl Guard {
    /// Starts one, and waits until it is ready. Its standard output is read here, its standard error until it is ready.
    ///
    /// # Errors
    /// When it does not start, or ends before it is ready.
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
                // Whatever it is, it is no guard.
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

    /// Which process it is.
    pub fn process(&self) -> Process {
        self.process
    }

    /// The next line that it says; `None`: it has ended.
    ///
    /// # Errors
    /// When it cannot be heard.
    pub fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        let read = self.out.read_line(&mut line)?;
        Ok((read > 0).then(|| line.trim_end().to_owned()))
    }

    /// The process alone, with its standard input if that is a pipe: for a guard whose life line that is.
    pub fn into_child(self) -> Child {
        self.child
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_another_with_its_id() {
        let own = Process::of(std::process::id()).expect("/proc is there").expect("this one runs");
        assert!(own.is_alive());
        let another = Process { start_ticks: own.start_ticks + 1, ..own };
        // Else it would end this one.
        assert!(!another.is_alive() && !another.ask_to_end());
        assert_eq!(Process::of(u32::MAX).expect("/proc is there"), None);
        assert!(!Process { pid: u32::MAX, start_ticks: 0 }.ask_to_end());
    }

    #[test]
    fn one_that_is_ready_and_some_that_are_not() {
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

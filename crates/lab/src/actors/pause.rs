//! `pause`: repeatedly stops a process by SIGSTOP and continues it by SIGCONT. Prints each stop as a line of
//! JSON: from when the kernel shows the process stopped until SIGCONT.

use super::{life_line, over_within, say};
use crate::LabError;
use crate::host_clock::now_unix_ns;
use crate::truth::Active;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use spangap_machine::facts::process_stat;
use std::time::{Duration, Instant};

/// Time limit for a process to stop.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// Arguments of the actor.
#[derive(Clone, Copy, Debug)]
pub struct Pause {
    pub pid: Pid,
    /// Length of a stop.
    pub on: Duration,
    /// Time between two stops.
    pub every: Duration,
}

/// Runs until standard input or the process ends, and then continues the process.
pub(super) fn act(Pause { pid, on, every }: Pause) -> Result<(), LabError> {
    let failed =
        |error: Errno| LabError::program("pause", format!("process {}: {error}", pid.as_raw_nonzero()));
    let process = Stopped(pidfd_open(pid, PidfdFlags::empty()).map_err(failed)?);
    let life = life_line();
    println!("ready");
    let begun = Instant::now();
    for number in 1_u32.. {
        if over_within(&life, (begun + every * number).saturating_duration_since(Instant::now())) {
            break;
        }
        match pidfd_send_signal(&process.0, Signal::STOP) {
            Err(Errno::SRCH) => break,
            sent => sent.map_err(failed)?,
        }
        let Some(from_unix_ns) = stopped(pid) else { break };
        let over = over_within(&life, on);
        let to_unix_ns = now_unix_ns();
        match process.go_on() {
            Err(Errno::SRCH) => break,
            sent => sent.map_err(failed)?,
        }
        say(&Active { from_unix_ns, to_unix_ns });
        if over {
            break;
        }
    }
    Ok(())
}

/// A process that is never left stopped, whatever happens here.
struct Stopped(OwnedFd);

impl Stopped {
    fn go_on(&self) -> Result<(), Errno> {
        pidfd_send_signal(&self.0, Signal::CONT)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.go_on();
    }
}

/// When the process was observed stopped; `None` if it has ended, or does not stop.
fn stopped(pid: Pid) -> Option<u64> {
    let id = pid.as_raw_nonzero().get().unsigned_abs();
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let stat = process_stat::of(id).ok()??;
        match stat.state {
            'T' => return Some(now_unix_ns()),
            _ if stat.is_dead() => return None,
            _ => std::thread::sleep(LOOK_EVERY),
        }
    }
    None
}

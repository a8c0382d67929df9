//! Programs of a run: started with the run's mark, listened to, ended.

use crate::LabError;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(3);

/// A program that runs. Its standard input is a pipe that ends with this value; it is killed then.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Program {
    /// Starts it; what it prints goes into files in `folder`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(name: &str, mut command: Command, folder: &std::path::Path) -> Result<Program, LabError> {
        let [out, err] = ["out", "err"].map(|ending| folder.join(format!("{name}.{ending}")));
        let create = |path: &PathBuf| File::create(path).map_err(LabError::file("make", path));
        command
            .stdin(Stdio::piped())
            .stdout(create(&out)?)
            .stderr(create(&err)?)
            // A Ctrl-C at the terminal is for the lab, which ends its programs in order.
            .process_group(0);
        let child = command.spawn().map_err(|error| {
            LabError::program(name, format!("cannot start {}: {error}", command.get_program().display()))
        })?;
        Ok(Program { name: name.to_owned(), child, out, err })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed to standard output so far.
    pub fn out(&self) -> String {
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// What it has printed to standard error so far.
    pub fn err(&self) -> String {
        fs::read_to_string(&self.err).unwrap_or_default()
    }

    /// Waits for a line that begins so, on either; what follows.
    ///
    /// # Errors
    /// When it ends before, or says nothing in time.
    pub fn says(
        &mut self,
        beginning: &str,
        patience: Duration,
        interrupted: &AtomicBool,
    ) -> Result<String, LabError> {
        let begun = Instant::now();
        loop {
            let ended = self.child.try_wait().ok().flatten();
            let (out, err) = (self.out(), self.err());
            // Only whole lines.
            let lines = out.split_inclusive('\n').chain(err.split_inclusive('\n'));
            let mut found = lines.filter_map(|line| line.strip_prefix(beginning)?.strip_suffix('\n'));
            if let Some(rest) = found.next() {
                return Ok(rest.to_owned());
            }
            if let Some(status) = ended {
                return Err(self.failed(format!("ended before it said {beginning:?} ({status})")));
            }
            if begun.elapsed() > patience {
                return Err(self.failed(format!("has not said {beginning:?} within {patience:?}")));
            }
            pause(interrupted)?;
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it does not end in time, or ends otherwise than with 0.
    pub fn wait(&mut self, patience: Duration, interrupted: &AtomicBool) -> Result<(), LabError> {
        let begun = Instant::now();
        loop {
            match self.ended()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(self.failed(format!("ended with {status}"))),
                None if begun.elapsed() > patience => {
                    return Err(self.failed(format!("has not ended within {patience:?}")));
                }
                None => pause(interrupted)?,
            }
        }
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// When that cannot be known.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, LabError> {
        self.child.try_wait().map_err(|error| LabError::program(&self.name, error.to_string()))
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) {
            // One that has ended needs none.
            let _ = kill_process(pid, signal);
        }
    }

    /// Ends it by a signal, and waits.
    ///
    /// # Errors
    /// As [`Program::wait`].
    pub fn end(&mut self, signal: Signal, patience: Duration) -> Result<(), LabError> {
        self.signal(signal);
        self.wait(patience, &AtomicBool::new(false))
    }

    /// Ends it by the end of its standard input, and waits.
    ///
    /// # Errors
    /// As [`Program::wait`].
    pub fn let_go(&mut self, patience: Duration) -> Result<(), LabError> {
        drop(self.child.stdin.take());
        self.wait(patience, &AtomicBool::new(false))
    }

    fn failed(&self, why: String) -> LabError {
        let said = [self.err(), self.out()].map(|text| text.lines().last().unwrap_or_default().to_owned());
        let said = said.into_iter().find(|line| !line.is_empty());
        LabError::program(
            &self.name,
            match said {
                Some(line) => format!("{why}: {line}"),
                None => why,
            },
        )
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail when it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until there is an answer.
///
/// # Errors
/// When there is none in time, or it is interrupted.
pub fn until<T>(
    what: &str,
    patience: Duration,
    interrupted: &AtomicBool,
    mut ask: impl FnMut() -> Option<T>,
) -> Result<T, LabError> {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return Ok(answer);
        }
        if begun.elapsed() > patience {
            return Err(LabError::program(what, format!("not within {patience:?}")));
        }
        pause(interrupted)?;
    }
}

fn pause(interrupted: &AtomicBool) -> Result<(), LabError> {
    if interrupted.load(Relaxed) {
        return Err(LabError::Interrupted);
    }
    std::thread::sleep(LOOK_EVERY);
    Ok(())
}

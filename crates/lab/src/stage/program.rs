//! Programs of a run: started with the run's marker, listened to, ended.

use crate::LabError;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Polling interval of conditions.
const LOOK_EVERY: Duration = Duration::from_millis(3);
/// Time limit for a killed program to end.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// A running program. Its standard input is a pipe that closes on drop, when it is also killed.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Program {
    /// Starts a program with its output going to files in `folder`.
    ///
    /// # Errors
    /// It cannot be started.
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

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Standard output so far.
    pub fn out(&self) -> String {
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// Standard error so far.
    pub fn err(&self) -> String {
        fs::read_to_string(&self.err).unwrap_or_default()
    }

    /// Waits for a line with this prefix on either output, and returns the rest of it.
    ///
    /// # Errors
    /// The program ends before, or prints none in time.
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
            // Only complete lines.
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
    /// It does not end in time, or its exit code is not 0.
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

    /// Exit status, if it has ended.
    ///
    /// # Errors
    /// The status is unavailable.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, LabError> {
        self.child.try_wait().map_err(|error| LabError::program(&self.name, error.to_string()))
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) {
            // An ended program needs no signal.
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

    /// Ends it by closing its standard input, and waits.
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
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // It leads a process group: everything it has started ends, too.
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let begun = Instant::now();
        // One that cannot end yet, because its control group is frozen, is left to the journal.
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < KILLED_WITHIN {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Waits until there is a value.
///
/// # Errors
/// There is none in time, or the wait is interrupted.
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

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_machine::facts::process_stat;
    use std::path::Path;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn shell(script: &str, folder: &Path) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Program::start("shell", command, folder).expect("it starts")
    }

    fn state(pid: &str) -> Option<char> {
        let pid = pid.parse().expect("it is the number of a process");
        Some(process_stat::of(pid).ok()??.state)
    }

    #[test]
    fn program_output_is_read_in_lines_and_stdin_ends_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let go_on = AtomicBool::new(false);
        let mut program = shell("printf 'listening on '; printf '7\\n'; cat; echo over >&2", folder.path());
        assert_eq!(program.says("listening on ", PATIENCE, &go_on).expect("it does"), "7");
        assert!(program.ended().expect("it is ours").is_none());
        program.let_go(PATIENCE).expect("it ends well");
        assert_eq!((program.out().as_str(), program.err().as_str()), ("listening on 7\n", "over\n"));
    }

    #[test]
    fn one_that_fails_is_quoted() {
        let folder = tempfile::tempdir().expect("a folder");
        let go_on = AtomicBool::new(false);
        let mut program = shell("echo 'no such thing' >&2; exit 3", folder.path());
        let said = program.says("ready", PATIENCE, &go_on).expect_err("it never says so").to_string();
        assert!(said.starts_with("shell: ended before") && said.ends_with(": no such thing"), "{said}");
        let said = program.wait(PATIENCE, &go_on).expect_err("it failed").to_string();
        assert!(said.contains("exit status: 3"), "{said}");
    }

    #[test]
    fn an_interrupt_ends_the_waiting_not_the_program() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut program = shell("echo ready; cat", folder.path());
        program.says("ready", PATIENCE, &AtomicBool::new(false)).expect("it does");
        let interrupted = program.wait(PATIENCE, &AtomicBool::new(true));
        assert!(matches!(interrupted, Err(LabError::Interrupted)), "{interrupted:?}");
        program.let_go(PATIENCE).expect("it still runs");
    }

    #[test]
    fn drop_ends_a_stopped_program_and_its_children() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut program = shell("sleep 1000 & echo child $!; kill -STOP $$; wait", folder.path());
        let child = program.says("child ", PATIENCE, &AtomicBool::new(false)).expect("it does");
        let pid = program.pid().to_string();
        let stopped = || (state(&pid) == Some('T')).then_some(());
        until("stopped", PATIENCE, &AtomicBool::new(false), stopped).expect("it stops itself");
        drop(program);
        assert_eq!(state(&pid), None);
        let ended = || matches!(state(&child), None | Some('Z' | 'X')).then_some(());
        until("its child ended", PATIENCE, &AtomicBool::new(false), ended).expect("it was killed, too");
    }
}

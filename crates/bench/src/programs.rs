//! Client and target programs: lookup, start and end.

use crate::contract::{Stack, TargetStack};
use crate::tank::cpus::{Cpus, CpusError};
use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Environment variable with the folder of the programs.
pub const FOLDER_VARIABLE: &str = "SPANGAP_CLIENTS";

/// Lookup of the programs.
#[derive(Clone, Debug)]
pub struct Programs {
    spangap: PathBuf,
    folders: Vec<PathBuf>,
}

/// A stack whose program is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Stack.
    pub stack: String,
    /// Program.
    pub program: &'static str,
    /// Folders that were searched.
    pub folders: Vec<PathBuf>,
}

impl std::error::Error for Missing {}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folders: Vec<_> = self.folders.iter().map(|folder| folder.display().to_string()).collect();
        let Missing { stack, program, .. } = self;
        write!(f, "stack {stack} is not available: no program {program} in {}", folders.join(", "))?;
        write!(
            f,
            " (`make clients` builds it and says what it needs; {FOLDER_VARIABLE} names another folder)"
        )
    }
}

impl Programs {
    /// Programs of the running binary: in the folder named by `SPANGAP_CLIENTS`, else beside the binary.
    ///
    /// # Errors
    /// The system does not report the binary's path.
    pub fn of_this_binary() -> io::Result<Self> {
        std::env::current_exe().map(Self::of)
    }

    /// The same for the binary at `spangap`.
    pub fn of(spangap: PathBuf) -> Self {
        let folders = match std::env::var_os(FOLDER_VARIABLE) {
            Some(folder) => vec![folder.into()],
            None => {
                let beside = spangap.parent().unwrap_or(Path::new("."));
                ["clients", "../clients", "../libexec/spangap"].map(|folder| beside.join(folder)).into()
            }
        };
        Programs { spangap, folders }
    }

    /// Client program of `stack`.
    ///
    /// # Errors
    /// It does not exist.
    pub fn client(&self, stack: Stack) -> Result<PathBuf, Missing> {
        match stack {
            Stack::Raw | Stack::Rust => Ok(self.spangap.clone()),
            Stack::CppSync | Stack::CppAsync | Stack::CppCallback => self.find(stack.name(), "spangap-cpp"),
            Stack::Go => self.find(stack.name(), "spangap-go"),
        }
    }

    /// Target program of `stack`; `rust` and `raw` are served by this binary itself.
    ///
    /// # Errors
    /// It does not exist.
    pub fn target(&self, stack: TargetStack) -> Result<PathBuf, Missing> {
        match stack {
            TargetStack::Raw | TargetStack::Rust => Ok(self.spangap.clone()),
            TargetStack::Cpp => self.find(stack.name(), "spangap-cpp"),
            TargetStack::Go => self.find(stack.name(), "spangap-go"),
        }
    }

    fn find(&self, stack: &str, program: &'static str) -> Result<PathBuf, Missing> {
        let found = self.folders.iter().map(|folder| folder.join(program)).find(|path| path.is_file());
        found.ok_or_else(|| Missing { stack: stack.into(), program, folders: self.folders.clone() })
    }
}

/// A running program. Dropping it kills the process.
pub struct RunningProgram {
    child: Child,
    life_line: Option<ChildStdin>,
    lines: Receiver<io::Result<String>>,
}

fn spawn(program: &Path, verb: &str, flags: &[String]) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.arg(verb).args(flags).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
}

/// What a running program sent while it was listened to.
#[derive(Debug)]
pub enum ProgramOutput {
    /// A line of its standard output.
    Line(String),
    /// Its standard output ended, with the error if there was one.
    End(Option<io::Error>),
    /// Nothing.
    Silence,
}

impl RunningProgram {
    /// Starts `program verb flags...` in a process group of its own, so that Ctrl-C reaches only this process.
    /// It inherits the calling thread's CPU affinity.
    ///
    /// # Errors
    /// No process or thread can be started.
    pub fn start(program: &Path, verb: &str, flags: &[String]) -> io::Result<Self> {
        spawn(program, verb, flags).and_then(Self::listen_to)
    }

    /// The same on these CPUs, which the listening thread does not share, so that it does not disturb the
    /// program.
    ///
    /// # Errors
    /// This process may not use all of them; the inner result is as above.
    pub fn start_on(
        cpus: &Cpus,
        program: &Path,
        verb: &str,
        flags: &[String],
    ) -> Result<io::Result<Self>, CpusError> {
        let spawned = cpus.run(|| spawn(program, verb, flags))?;
        Ok(spawned.and_then(Self::listen_to))
    }

    fn listen_to(mut child: Child) -> io::Result<Self> {
        let life_line = child.stdin.take();
        let stdout = child.stdout.take();
        let (said, lines) = channel();
        let mut running = RunningProgram { child, life_line, lines };
        let thread = std::thread::Builder::new().name("listener".into()).spawn(move || {
            let Some(stdout) = stdout else { return };
            for line in BufReader::new(stdout).lines() {
                let over = line.is_err();
                if said.send(line).is_err() || over {
                    return;
                }
            }
        });
        match thread {
            Ok(_) => Ok(running),
            Err(error) => {
                running.end_now();
                Err(error)
            }
        }
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next line, for `patience` at most.
    pub fn listen(&self, patience: Duration) -> ProgramOutput {
        match self.lines.recv_timeout(patience) {
            Ok(Ok(line)) => ProgramOutput::Line(line),
            Ok(Err(error)) => ProgramOutput::End(Some(error)),
            Err(RecvTimeoutError::Disconnected) => ProgramOutput::End(None),
            Err(RecvTimeoutError::Timeout) => ProgramOutput::Silence,
        }
    }

    /// Writes a line to its standard input.
    ///
    /// # Errors
    /// It does not read any more.
    pub fn say(&mut self, line: &str) -> io::Result<()> {
        match &mut self.life_line {
            Some(life_line) => writeln!(life_line, "{line}"),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Takes its standard input, for a caller that ends it by dropping it instead of listening.
    pub fn take_life_line(&mut self) -> Option<ChildStdin> {
        self.life_line.take()
    }

    /// Closes its standard input: it shall stop, report and exit.
    pub fn let_go(&mut self) {
        self.life_line = None;
    }

    /// Waits for the end of the process.
    ///
    /// # Errors
    /// The kernel does not report it.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.let_go();
        self.child.wait()
    }

    /// Kills it if it is still running.
    pub fn end_now(&mut self) {
        // Both fail if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        self.end_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> RunningProgram {
        RunningProgram::start(Path::new("/bin/sh"), "-c", &[script.into()]).unwrap()
    }

    fn line(running: &RunningProgram) -> String {
        match running.listen(Duration::from_secs(60)) {
            ProgramOutput::Line(line) => line,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn program_exchanges_messages() {
        let mut running = shell("echo ready; read word; echo \"got $word\"; cat; exit 3");
        assert_eq!(line(&running), "ready");
        running.say("go").unwrap();
        assert_eq!(line(&running), "got go");
        assert_eq!(running.wait().unwrap().code(), Some(3));
        assert!(matches!(running.listen(Duration::from_secs(60)), ProgramOutput::End(None)));
    }

    #[test]
    fn a_program_does_not_outlive_its_owner() {
        let running = shell("echo $$; exec sleep 1000");
        let process = format!("/proc/{}", line(&running));
        drop(running);
        assert!(!Path::new(&process).exists());
    }

    #[test]
    fn listener_of_a_confined_program_uses_all_cpus() {
        let all = Cpus::of_this_thread().unwrap();
        if all.count() < 2 {
            println!("not run: this process has a single CPU");
            return;
        }
        let first: Cpus = all.to_string().split([',', '-']).next().unwrap().parse().unwrap();
        let allowed = |status: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            line.expect("a line of the kernel").trim().to_owned()
        };
        let script = "grep Cpus_allowed_list /proc/self/status; cat";
        let running =
            RunningProgram::start_on(&first, Path::new("/bin/sh"), "-c", &[script.into()]).unwrap().unwrap();
        assert_eq!(allowed(&line(&running)), first.to_string());
        let threads = std::fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path());
        let read = |thread: &Path, file: &str| std::fs::read_to_string(thread.join(file)).unwrap_or_default();
        let listeners = threads.filter(|thread| read(thread, "comm").trim() == "listener");
        // Connections of other tests may end meanwhile.
        let statuses: Vec<_> =
            listeners.map(|thread| read(&thread, "status")).filter(|s| !s.is_empty()).collect();
        assert!(!statuses.is_empty());
        for status in statuses {
            assert_eq!(allowed(&status), all.to_string());
        }
    }

    #[test]
    fn missing_program_is_reported_with_a_remedy() {
        let folders = vec![PathBuf::from("/nowhere")];
        let programs = Programs { spangap: "/bin/spangap".into(), folders };
        assert_eq!(programs.client(Stack::Raw), Ok("/bin/spangap".into()));
        let missing = programs.client(Stack::CppSync).unwrap_err().to_string();
        for part in ["cpp-sync", "spangap-cpp", "/nowhere", "make clients"] {
            assert!(missing.contains(part), "{missing}");
        }
        assert!(programs.target(TargetStack::Go).is_err());
    }
}

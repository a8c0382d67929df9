//! The binary as a process: its output, its addresses, its end.

use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time limit for any one condition; far more than it needs on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Polls until there is an answer.
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
}

/// Lines of a pipe as they arrive; threads may share it.
type Lines = Mutex<Receiver<String>>;

/// A running process, killed if the test ends first.
pub struct Program {
    child: Child,
    out: Lines,
    err: Lines,
}

/// What remains of a process that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// The lines of standard output that have not been read.
    pub out: Vec<String>,
    /// The same of standard error.
    pub err: Vec<String>,
}

impl Program {
    /// Starts `spangap` with these arguments.
    pub fn start(arguments: &[&str]) -> Program {
        Program::start_with(arguments, |_| ())
    }

    /// The same with further settings before the start, such as variables.
    pub fn start_with(arguments: &[&str], set: impl FnOnce(&mut Command)) -> Program {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spangap"));
        command.args(arguments);
        set(&mut command);
        Program::spawn(command)
    }

    /// Starts a command that becomes `spangap`.
    pub fn spawn(mut command: Command) -> Program {
        command.stdin(Stdio::null());
        Program::piped(command)
    }

    /// The same with a standard input that closes when dropped.
    pub fn spawn_with_input(mut command: Command) -> (Program, ChildStdin) {
        command.stdin(Stdio::piped());
        let mut program = Program::piped(command);
        let input = program.child.stdin.take().expect("it is piped");
        (program, input)
    }

    fn piped(mut command: Command) -> Program {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let out = lines_of(child.stdout.take().expect("it is piped"));
        let err = lines_of(child.stderr.take().expect("it is piped"));
        Program { child, out, err }
    }

    /// The next line of standard output; `None` at its end.
    pub fn line(&self) -> Option<String> {
        next(&self.out)
    }

    /// The next line of standard error; `None` at its end.
    pub fn error_line(&self) -> Option<String> {
        next(&self.err)
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, by name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.id().to_string()]).status();
        assert!(sent.expect("kill is there").success());
    }

    /// Waits for its end, as long as it says something on either stream.
    pub fn wait(mut self) -> Ended {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        while let Some(line) = next_unless(&self.out, || {
            let heard = err.len();
            err.extend(self.err.lock().unwrap_or_else(PoisonError::into_inner).try_iter());
            err.len() > heard
        }) {
            out.push(line);
        }
        err.extend(std::iter::from_fn(|| self.error_line()));
        Ended { code: self.child.wait().expect("it can be waited for").code(), out, err }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines_of(pipe: impl std::io::Read + Send + 'static) -> Lines {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        let read = std::io::BufRead::lines(std::io::BufReader::new(pipe));
        read.map_while(Result::ok).for_each(|line| drop(sender.send(line)));
    });
    Mutex::new(lines)
}

fn next(lines: &Lines) -> Option<String> {
    next_unless(lines, || false)
}

/// The next line; `None` at the end. Silence is an error unless `lives` knows of a sign of life since it was last asked.
fn next_unless(lines: &Lines, mut lives: impl FnMut() -> bool) -> Option<String> {
    loop {
        match lines.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(PATIENCE) {
            Ok(line) => return Some(line),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {
                assert!(lives(), "neither a line nor the end within {PATIENCE:?}")
            }
        }
    }
}

/// Addresses that let the system choose the ports.
pub const FREE_PORTS: [&str; 6] =
    ["--otlp-grpc", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0", "--http", "127.0.0.1:0"];

/// A meter that is ready.
pub struct Meter {
    pub program: Program,
    pub otlp_grpc: SocketAddr,
    pub otlp_http: SocketAddr,
    pub http: SocketAddr,
}

impl Meter {
    /// `spangap meter` on free ports.
    pub fn start(arguments: &[&str]) -> Meter {
        Meter::ready(Program::start(&[&["meter"], &FREE_PORTS[..], arguments].concat()))
    }

    /// Waits for the readiness lines of a started program.
    pub fn ready(program: Program) -> Meter {
        let mut lines = Vec::new();
        loop {
            match program.line() {
                Some(line) if line == "ready" => break,
                Some(line) => lines.push(line),
                None => panic!("ended before it was ready: {:#?}", (lines, program.wait())),
            }
        }
        let address = |name: &str| {
            let line = lines.iter().find_map(|line| line.strip_prefix(name));
            let address = line.and_then(|rest| rest.trim_end_matches('/').parse().ok());
            address.unwrap_or_else(|| panic!("no address after {name:?} in {lines:?}"))
        };
        let (otlp_grpc, otlp_http) = (address("otlp/grpc "), address("otlp/http "));
        let http = address(match lines.iter().any(|line| line.starts_with("page https://")) {
            true => "page https://",
            false => "page http://",
        });
        Meter { program, otlp_grpc, otlp_http, http }
    }

    /// Asks it to stop, and waits for that.
    pub fn stop(self) -> Ended {
        self.program.signal("TERM");
        self.program.wait()
    }
}

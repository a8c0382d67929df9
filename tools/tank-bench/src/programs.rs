//! Starts the measured programs, each pinned, and reads their output.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::Serialize;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A program failed to start or to do its work.
    #[error("{program}: {reason}")]
    Program {
        /// The program with its arguments.
        program: String,
        /// What happened instead.
        reason: String,
    },
}

/// One run of one program.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    /// Successful calls.
    pub calls: f64,
    /// Wall time.
    pub seconds: f64,
    /// CPU time of the client.
    pub cpu_s: f64,
    /// Median latency, if the program reports it.
    pub p50_ns: Option<f64>,
}

/// CPUs available to this process.
pub fn usable_cpus() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None);
    set.map(|set| (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
        .unwrap_or_default()
}

/// Paths, CPUs and duration of runs.
pub struct Bench {
    /// The binary.
    pub spangap: PathBuf,
    /// Folder of the baseline programs.
    pub baselines: PathBuf,
    /// Length of a run.
    pub seconds: f64,
    /// CPU of the serving end.
    pub target_cpu: Option<usize>,
    /// CPU of the calling end.
    pub client_cpu: Option<usize>,
}

/// `program`, pinned to one CPU.
fn pinned(program: &Path, cpu: Option<usize>) -> Command {
    match cpu {
        Some(cpu) => {
            let mut command = Command::new("taskset");
            command.arg("-c").arg(cpu.to_string()).arg(program);
            command
        }
        None => Command::new(program),
    }
}

fn failed(command: &Command, reason: impl ToString) -> BenchError {
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let program = format!("{} {}", command.get_program().to_string_lossy(), words.join(" "));
    BenchError::Program { program, reason: reason.to_string() }
}

/// CPU time of all terminated children.
fn children_cpu_s() -> f64 {
    // Fails only for an unknown `who`.
    getrusage(UsageWho::RUSAGE_CHILDREN)
        .map_or(0.0, |usage| (usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6)
}

/// Runs a client to its end; returns its standard output and CPU time.
pub fn output(mut command: Command) -> Result<(String, f64), BenchError> {
    let before = children_cpu_s();
    let output = command.stdin(Stdio::null()).output().map_err(|error| failed(&command, error))?;
    let cpu_s = children_cpu_s() - before;
    if !output.status.success() {
        return Err(failed(
            &command,
            format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()),
        ));
    }
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), cpu_s))
}

/// A number inside a JSON document.
pub fn number(document: &Value, pointer: &str) -> Option<f64> {
    document.pointer(pointer).and_then(Value::as_f64)
}

impl Bench {
    /// A pinned client.
    pub fn client(&self, program: &Path) -> Command {
        pinned(program, self.client_cpu)
    }

    /// A baseline program, if it is built.
    pub fn baseline(&self, name: &str) -> Option<PathBuf> {
        Some(self.baselines.join(name)).filter(|path| path.is_file())
    }

    /// Starts `spangap target`.
    pub fn target(&self, stack: &str) -> Result<Target, BenchError> {
        self.target_with(stack, &[])
    }

    /// Starts `spangap target` with further flags.
    pub fn target_with(&self, stack: &str, flags: &[&str]) -> Result<Target, BenchError> {
        let mut command = pinned(&self.spangap, self.target_cpu);
        command.args(["target", "--listen", "127.0.0.1:0", "--stack", stack]).args(flags);
        Target::start(command)
    }

    /// `spangap tank` in a closed loop, with all its accounting.
    pub fn tank(&self, target: &Target, flags: &[&str], in_flight: u32) -> Result<Sample, BenchError> {
        let mut command = self.client(&self.spangap);
        command.args(["tank", target.address(), "--warmup", "500ms", "--json"]).args(flags);
        command.arg("--inflight").arg(in_flight.to_string());
        command.arg("--duration").arg(format!("{}ms", (self.seconds * 1e3) as u64));
        let words = failed(&command, "no figures in its report");
        let (report, _) = output(command)?;
        let report: Value = serde_json::from_str(&report).unwrap_or_default();
        let run = &report["runs"][0];
        let field = |name| number(run, name);
        match (field("/ok"), field("/duration_s"), field("/cpu_client_s")) {
            (Some(calls), Some(seconds), Some(cpu_s)) => {
                Ok(Sample { calls, seconds, cpu_s, p50_ns: field("/latency_from_send/p50_ns") })
            }
            _ => Err(words),
        }
    }

    /// A baseline program, which prints calls, seconds and CPU seconds as JSON.
    pub fn plain(&self, program: &Path, arguments: &[&str], in_flight: u32) -> Result<Sample, BenchError> {
        let mut command = self.client(program);
        command.args(arguments).arg(in_flight.to_string()).arg("0.5").arg(self.seconds.to_string());
        let words = failed(&command, "no figures in its output");
        let (line, _) = output(command)?;
        let figures: Value = serde_json::from_str(line.trim()).unwrap_or_default();
        let field = |name| number(&figures, name);
        match (field("/calls"), field("/seconds"), field("/cpu_s")) {
            (Some(calls), Some(seconds), Some(cpu_s)) => {
                Ok(Sample { calls, seconds, cpu_s, p50_ns: field("/p50_ns") })
            }
            _ => Err(words),
        }
    }

    /// Lateness of an open loop of 1,000 calls per second: p50, p99, maximum; and p99 of exact sleeps of 1 ms
    /// just before.
    pub fn lateness(&self, target: &Target, stack: &str) -> Result<[f64; 4], BenchError> {
        let mut command = self.client(&self.spangap);
        command.args([
            "tank",
            target.address(),
            "--stack",
            stack,
            "--rate",
            "1000",
            "--duration",
            "10s",
            "--json",
        ]);
        let words = failed(&command, "no lateness in its report");
        let (report, _) = output(command)?;
        let report: Value = serde_json::from_str(&report).unwrap_or_default();
        let figures = [
            "/runs/0/lateness/p50_ns",
            "/runs/0/lateness/p99_ns",
            "/runs/0/lateness/max_ns",
            "/noise/timer_lateness/p99_ns",
        ];
        match figures.map(|pointer| number(&report, pointer)) {
            [Some(p50), Some(p99), Some(max), Some(timer_p99)] => Ok([p50, p99, max, timer_p99]),
            _ => Err(words),
        }
    }
}

/// A server, stopped on drop.
pub struct Target {
    child: Child,
    address: String,
}

impl Target {
    fn start(mut command: Command) -> Result<Target, BenchError> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(&command, error))?;
        let mut line = String::new();
        let read = child.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
        let address = line.trim().strip_prefix("listening on ").map(str::to_owned);
        let mut target = Target { child, address: String::new() };
        match (read, address) {
            (Some(Ok(_)), Some(address)) => target.address = address,
            _ => return Err(failed(&command, format!("expected `listening on ADDRESS`, got {line:?}"))),
        }
        Ok(target)
    }

    /// The server of the C ping-pong.
    pub fn start_plain(bench: &Bench, program: &Path) -> Result<Target, BenchError> {
        let mut command = pinned(program, bench.target_cpu);
        command.args(["server", "0"]);
        Target::start(command)
    }

    /// `HOST:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// `PORT`.
    pub fn port(&self) -> &str {
        self.address.rsplit(':').next().unwrap_or_default()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Both fail if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! The workload: `perf bench sched pipe`, two processes on one CPU that wake each other alternately.

use crate::BenchError;
use serde::Serialize;
use std::process::{Child, Command, Stdio};

/// The ping-pong with this many turns on a CPU.
pub fn command(cpu: u32, loops: u32) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu.to_string(), "perf", "bench", "-f", "simple", "sched", "pipe", "-l"]);
    command.arg(loops.to_string()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// Cost of a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Took {
    /// Duration by its own clock, seconds.
    pub wall_s: f64,
    /// CPU time of its processes, seconds: it includes BPF programs at its switches, but not other processes
    /// on that CPU.
    pub cpu_s: f64,
}

pub fn run(cpu: u32, loops: u32) -> Result<Took, BenchError> {
    let program = || "perf bench sched pipe".to_string();
    let before = cpu_of_children()?;
    let output =
        command(cpu, loops).output().map_err(|error| BenchError::Start { program: program(), error })?;
    let cpu_s = cpu_of_children()? - before;
    let text = String::from_utf8_lossy(&output.stdout);
    let wall_s = text.trim().parse().map_err(|_| BenchError::Output {
        program: program(),
        expected: "seconds",
        found: text.trim().to_string(),
    })?;
    Ok(Took { wall_s, cpu_s })
}

/// CPU time of all terminated children and their descendants, seconds.
fn cpu_of_children() -> Result<f64, BenchError> {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN)
        .map_err(|error| BenchError::Start { program: "getrusage".into(), error: error.into() })?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// A ping-pong that runs until dropped.
pub struct Endless(Child);

impl Endless {
    pub fn start(cpu: u32) -> Result<Endless, BenchError> {
        let mut command = command(cpu, 1_000_000_000);
        // The other half ends too when it finds the pipe closed.
        let child = command.stdout(Stdio::null()).spawn();
        child
            .map(Endless)
            .map_err(|error| BenchError::Start { program: "perf bench sched pipe".into(), error })
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        // `perf` forks the other half, which would continue to wait: both are ours.
        let children = format!("/proc/{0}/task/{0}/children", self.0.id());
        let children = std::fs::read_to_string(children).unwrap_or_default();
        let _ = self.0.kill();
        for child in children.split_whitespace() {
            let _ = Command::new("kill").args(["-s", "KILL", child]).status();
        }
        let _ = self.0.wait();
    }
}

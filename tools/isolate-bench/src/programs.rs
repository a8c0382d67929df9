//! Runs programs and reads their output.

use crate::BenchError;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A program that is killed on drop.
#[derive(Debug)]
pub struct Running(Child);

/// Cost of a command.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// Wall time, seconds.
    pub wall_s: f64,
    /// CPU time including its terminated children, seconds.
    pub cpu_s: f64,
}

fn name(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Runs a command to its end; returns its output and cost.
pub fn run(command: &mut Command) -> Result<(String, Took), BenchError> {
    let before = cpu_of_children();
    let began = Instant::now();
    let done = command.stdin(Stdio::null()).output();
    let wall_s = began.elapsed().as_secs_f64();
    let cpu_s = (cpu_of_children() - before).as_secs_f64();
    let done = done.map_err(|error| BenchError::Start { program: name(command), error })?;
    if !done.status.success() {
        let found = format!("{}: {}", done.status, String::from_utf8_lossy(&done.stderr).trim());
        return Err(BenchError::Output { program: name(command), expected: "to end well", found });
    }
    Ok((String::from_utf8_lossy(&done.stdout).into_owned(), Took { wall_s, cpu_s }))
}

/// Runs a command and parses its output as JSON.
pub fn json(command: &mut Command) -> Result<Value, BenchError> {
    let (text, _) = run(command)?;
    serde_json::from_str(&text).map_err(|_| BenchError::Output {
        program: name(command),
        expected: "JSON",
        found: text.chars().take(200).collect(),
    })
}

/// A number inside a document.
pub fn number(document: &Value, pointer: &str) -> Result<f64, BenchError> {
    document.pointer(pointer).and_then(Value::as_f64).ok_or_else(|| BenchError::Output {
        program: "a report".into(),
        expected: "a number",
        found: format!("none at {pointer}"),
    })
}

/// CPU time of all terminated children and their descendants.
fn cpu_of_children() -> Duration {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN);
    // Never fails for the own process.
    let Ok(usage) = usage else { return Duration::ZERO };
    let time =
        |time: nix::sys::time::TimeVal| Duration::new(time.tv_sec() as u64, time.tv_usec() as u32 * 1000);
    time(usage.user_time()) + time(usage.system_time())
}

impl Running {
    pub fn start(command: &mut Command) -> Result<Running, BenchError> {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| BenchError::Start { program: name(command), error })?;
        Ok(Running(child))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// The first line of its output.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        if let Some(out) = self.0.stdout.take() {
            // A program that has ended writes nothing.
            let _ = BufReader::new(out).read_line(&mut line);
        }
        line
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

//! Cost of `spangap capture` for the captured programs: raw ping-pong over loopback with and without it,
//! alternating.

use crate::measure::{MeasureError, Spread};
use serde::Serialize;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Results.
#[derive(Debug, Default, Serialize)]
pub struct Overhead {
    /// Calls in flight.
    pub in_flight: u32,
    /// Ratio of calls per second with capture to calls per second without, pair by pair.
    pub throughput_ratios: Vec<f64>,
    /// Ratio of the median latency with capture to that without.
    pub p50_ratios: Vec<f64>,
    /// Packets that passed the filter, in all runs.
    pub received: u64,
    /// Packets dropped for lack of room.
    pub dropped: u64,
    /// CPU time of the capturing process per packet, nanoseconds, run by run.
    pub cpu_ns_per_packet: Vec<f64>,
}

/// A child that is killed when this is dropped.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have exited by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Unexpected output of a program.
pub fn wrong(what: impl Into<String>) -> MeasureError {
    MeasureError::Output { program: "spangap".into(), what: what.into() }
}

/// Starts spangap with its output in pipes.
pub fn start(spangap: &Path, arguments: &[&str]) -> Result<Running, MeasureError> {
    let mut command = Command::new(spangap);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command
        .spawn()
        .map_err(|error| MeasureError::Start { program: spangap.display().to_string(), error })?;
    Ok(Running(child))
}

/// The first line, and the pipe, which must stay open for its writer.
pub fn first_line<T: Read>(from: Option<T>) -> Result<(String, BufReader<T>), MeasureError> {
    let mut pipe = BufReader::new(from.ok_or_else(|| wrong("expected a pipe"))?);
    let mut line = String::new();
    pipe.read_line(&mut line).map_err(|error| wrong(error.to_string()))?;
    Ok((line, pipe))
}

/// Measures pairs of runs with `in_flight` calls in flight.
///
/// # Errors
/// [`MeasureError`], also without the privilege to capture.
pub fn overhead(spangap: &Path, folder: &Path, in_flight: u32, pairs: u32) -> Result<Overhead, MeasureError> {
    let mut target = start(spangap, &["target", "--stack", "raw", "--listen", "127.0.0.1:0"])?;
    let (line, _open) = first_line(target.0.stdout.take())?;
    let address = match serde_json::from_str::<Value>(&line) {
        Ok(ready) => ready["listening"].as_str().map(str::to_owned),
        Err(_) => line.trim_end().strip_prefix("listening on ").map(str::to_owned),
    };
    let address = address.ok_or_else(|| wrong(format!("expected the target's address, found {line:?}")))?;
    let mut overhead = Overhead { in_flight, ..Overhead::default() };
    for _ in 0..pairs {
        let without = ping_pong(spangap, &address, in_flight)?;
        let port = address.rsplit(':').next().unwrap_or_default();
        let (with, capture) = captured(spangap, folder, &format!("tcp port {port}"), || {
            ping_pong(spangap, &address, in_flight)
        })?;
        overhead.received += capture.received;
        overhead.dropped += capture.dropped;
        overhead.cpu_ns_per_packet.push(capture.cpu_ns as f64 / capture.received.max(1) as f64);
        overhead.throughput_ratios.push(with.0 / without.0);
        overhead.p50_ratios.push(with.1 / without.1);
    }
    Ok(overhead)
}

/// Figures of one capture.
pub struct Captured {
    /// Packets that passed the filter, including dropped ones.
    pub received: u64,
    /// Packets dropped for lack of room.
    pub dropped: u64,
    /// CPU time of the process, nanoseconds.
    pub cpu_ns: u64,
}

/// Captures on loopback while `traffic` runs.
pub fn captured<T>(
    spangap: &Path,
    folder: &Path,
    filter: &str,
    traffic: impl FnOnce() -> Result<T, MeasureError>,
) -> Result<(T, Captured), MeasureError> {
    let file = folder.join("overhead.pcapng").display().to_string();
    let arguments =
        ["capture", "--interface", "lo", "--filter", filter, "--ring", "64MiB", "--write", &file, "--json"];
    let mut capture = start(spangap, &arguments)?;
    let (line, _open) = first_line(capture.0.stderr.take())?;
    if !line.starts_with("capturing ") {
        return Err(wrong(line.trim_end()));
    }
    let figures = traffic()?;
    let told = Command::new("kill").args(["-s", "INT", &capture.0.id().to_string()]).status();
    told.map_err(|error| MeasureError::Start { program: "kill".into(), error })?;
    let mut text = String::new();
    let mut stdout = capture.0.stdout.take().ok_or_else(|| wrong("no standard output"))?;
    stdout.read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?;
    let report: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let number =
        |key: &str| report[key].as_u64().ok_or_else(|| wrong(format!("expected {key} in capture's report")));
    let [received, dropped, cpu_ns] = [number("received")?, number("dropped")?, number("cpu_ns")?];
    Ok((figures, Captured { received, dropped, cpu_ns }))
}

/// Calls per second, and the median latency.
fn ping_pong(spangap: &Path, address: &str, in_flight: u32) -> Result<(f64, f64), MeasureError> {
    let in_flight = in_flight.to_string();
    let arguments = [
        "tank",
        address,
        "--stack",
        "raw",
        "--inflight",
        &in_flight,
        "--duration",
        "2s",
        "--warmup",
        "200ms",
        "--json",
    ];
    let mut tank = start(spangap, &arguments)?;
    let mut text = String::new();
    let mut stdout = tank.0.stdout.take().ok_or_else(|| wrong("no standard output"))?;
    stdout.read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?;
    let report: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let run = &report["runs"][0];
    let figures = run["throughput_per_s"].as_f64().zip(run["latency"]["p50_ns"].as_f64());
    figures.ok_or_else(|| wrong("expected throughput_per_s and latency.p50_ns in tank's report"))
}

impl Overhead {
    /// Throughput, latency, CPU time: median, minimum and maximum of each.
    pub fn spreads(&self) -> [Option<Spread>; 3] {
        [&self.throughput_ratios, &self.p50_ratios, &self.cpu_ns_per_packet]
            .map(|values| Spread::of(values.iter().copied()))
    }
}

//! Dissect on real, call-dense traffic of several stacks, recorded at the time of measurement: the most costly
//! patterns (several frames in a packet, episodes with every call) do not occur in synthetic captures.

use crate::bench::{Plan, read_only_of};
use crate::measure::{Cost, MeasureError, Spread, run};
use crate::overhead::{Running, first_line, start, wrong};
use serde::Serialize;
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Dissect on one stack's traffic.
#[derive(Debug, Serialize)]
pub struct RealRow {
    /// The calling program.
    pub name: &'static str,
    /// Calls found by dissect.
    pub calls: u64,
    /// Packets of the capture.
    pub packets: u64,
    /// Bytes of the capture.
    pub bytes: u64,
    /// Runs of dissect.
    pub dissect: Vec<Cost>,
    /// Runs that only read every byte: the floor.
    pub read: Vec<Cost>,
    /// Instructions of one run in user space; absent if the machine does not count them.
    pub instructions: Option<u64>,
}

impl RealRow {
    /// Rate of `count` per second of CPU time.
    pub fn per_cpu_s(&self, count: u64) -> Option<Spread> {
        Spread::of(self.dissect.iter().map(|cost| count as f64 / cost.cpu_s))
    }

    /// CPU time over that of reading alone, run by run.
    pub fn over_reading(&self) -> Option<Spread> {
        Spread::of(self.dissect.iter().zip(&self.read).map(|(ours, read)| ours.cpu_s / read.cpu_s.max(1e-4)))
    }
}

/// A load: its name, the program, and its arguments, in which `{address}`, `{body}` and `{calls}` are replaced.
struct Load {
    name: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
    /// Arguments of the target.
    target: &'static [&'static str],
}

const METHOD: &str = "spangap.ping.v1.Ping/Ping";

const fn tank(name: &'static str, arguments: &'static [&'static str]) -> Load {
    Load { name, program: "spangap", arguments, target: &[] }
}

const LOADS: &[Load] = &[
    tank(
        "tonic, 4 connections",
        &[
            "tank",
            "{address}",
            "--stack",
            "rust",
            "--channels",
            "pool:4",
            "--inflight",
            "64",
            "--duration",
            "3s",
            "--json",
        ],
    ),
    tank(
        "go, 1 connection",
        &["tank", "{address}", "--stack", "go", "--inflight", "64", "--duration", "3s", "--json"],
    ),
    tank(
        "c++, 1 connection",
        &["tank", "{address}", "--stack", "cpp-async", "--inflight", "64", "--duration", "3s", "--json"],
    ),
    Load {
        name: "ghz, 16 connections",
        program: "ghz",
        arguments: &[
            "--insecure",
            "--call",
            METHOD,
            "-d",
            "{}",
            "--connections",
            "16",
            "-c",
            "256",
            "-n",
            "{calls}",
            "{address}",
        ],
        target: &[],
    },
    Load {
        name: "ghz, at the stream limit",
        program: "ghz",
        arguments: &[
            "--insecure",
            "--call",
            METHOD,
            "-d",
            "{}",
            "--connections",
            "16",
            "-c",
            "256",
            "-n",
            "{calls}",
            "{address}",
        ],
        target: &["--max-streams", "8"],
    },
    Load {
        name: "h2load, 4 connections",
        program: "h2load",
        arguments: &[
            "-c",
            "4",
            "-m",
            "32",
            "-n",
            "{calls}",
            "-d",
            "{body}",
            "-H",
            "content-type: application/grpc",
            "-H",
            "te: trailers",
            "http://{address}/spangap.ping.v1.Ping/Ping",
        ],
        target: &[],
    },
];

/// Records and measures each load; programs that are not installed are reported and skipped.
///
/// # Errors
/// Those of dissect. A load that cannot be recorded is not an error.
pub fn real(plan: &Plan, say: &mut dyn FnMut(&str)) -> Result<Vec<RealRow>, MeasureError> {
    let calls = (100_000.0 * plan.scale).max(100.0) as u64;
    let mut rows = Vec::new();
    for load in LOADS {
        say(load.name);
        let file = plan.folder.join("real.pcapng");
        match record(plan, load, calls, &file) {
            Ok(()) => rows.push(row(plan, load.name, &file)?),
            Err(error) => say(&format!("not run: {}: {error}", load.name)),
        }
    }
    Ok(rows)
}

/// Captures the load's calls over loopback, without truncation.
fn record(plan: &Plan, load: &Load, calls: u64, file: &Path) -> Result<(), MeasureError> {
    let mut target = start(&plan.spangap, &[&["target", "--listen", "127.0.0.1:0"], load.target].concat())?;
    let (line, _out) = first_line(target.0.stdout.take())?;
    let address = match serde_json::from_str::<Value>(&line) {
        Ok(ready) => ready["listening"].as_str().map(str::to_owned),
        Err(_) => line.trim_end().strip_prefix("listening on ").map(str::to_owned),
    };
    let address = address.ok_or_else(|| wrong(format!("expected the target's address, found {line:?}")))?;
    let filter = format!("tcp port {}", address.rsplit(':').next().unwrap_or_default());
    let path = file.display().to_string();
    let arguments =
        ["capture", "--interface", "lo", "--filter", &filter, "--ring", "1GiB", "--write", &path, "--json"];
    let mut capture = start(&plan.spangap, &arguments)?;
    let (line, _err) = first_line(capture.0.stderr.take())?;
    if !line.starts_with("capturing ") {
        return Err(wrong(line.trim_end()));
    }
    called(plan, load, calls, &address)?;
    let told = Command::new("kill").args(["-s", "INT", &capture.0.id().to_string()]).status();
    told.map_err(|error| MeasureError::Start { program: "kill".into(), error })?;
    let mut text = String::new();
    let mut stdout = capture.0.stdout.take().ok_or_else(|| wrong("no standard output"))?;
    stdout.read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?;
    let report: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    match report["dropped"].as_u64() {
        Some(0) => Ok(()),
        dropped => Err(wrong(format!("expected a capture of all packets, {dropped:?} were dropped"))),
    }
}

fn called(plan: &Plan, load: &Load, calls: u64, address: &str) -> Result<(), MeasureError> {
    // An empty gRPC message is five zero bytes.
    let body = plan.folder.join("empty-message.bin");
    std::fs::write(&body, [0; 5]).map_err(|error| MeasureError::File { path: body.clone(), error })?;
    let program = match load.program {
        "spangap" => plan.spangap.clone(),
        // Tools fetched by `make bench` are not in every PATH.
        other => Some(PathBuf::from("target/tools/bin").join(other))
            .filter(|path| path.exists())
            .unwrap_or(other.into()),
    };
    let filled = |argument: &&str| {
        let text = argument.replace("{address}", address).replace("{calls}", &calls.to_string());
        text.replace("{body}", &body.display().to_string())
    };
    let mut command = Command::new(&program);
    command
        .args(load.arguments.iter().map(filled))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let failed = |error| MeasureError::Start { program: program.display().to_string(), error };
    let mut running = Running(command.spawn().map_err(failed)?);
    let status = running.0.wait().map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    Err(MeasureError::Failed { program: program.display().to_string(), status: status.to_string() })
}

fn row(plan: &Plan, name: &'static str, file: &Path) -> Result<RealRow, MeasureError> {
    let output = plan.folder.join("dissect.json");
    let command: Vec<String> =
        [&plan.spangap.display().to_string(), "dissect", "--json", &file.display().to_string()]
            .map(str::to_owned)
            .into();
    let (mut dissect, mut read) = (Vec::new(), Vec::new());
    for _ in 0..plan.runs {
        read.push(read_only_of(plan, &[file.to_owned()])?);
        dissect.push(run(&command, &output)?);
    }
    let file_error = |path: &Path| {
        let path = path.to_owned();
        move |error| MeasureError::File { path, error }
    };
    let text = std::fs::read(&output).map_err(file_error(&output))?;
    let document: Value = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    let count = |place: &str| {
        document
            .pointer(place)
            .and_then(Value::as_u64)
            .ok_or_else(|| wrong(format!("expected {place} of dissect")))
    };
    Ok(RealRow {
        name,
        calls: count("/totals/calls")?,
        packets: count("/capture/packets")?,
        bytes: std::fs::metadata(file).map_err(file_error(file))?.len(),
        dissect,
        read,
        instructions: instructions(&command),
    })
}

/// Counted by the CPU, if perf is installed and permitted.
fn instructions(command: &[String]) -> Option<u64> {
    let counted = Command::new("perf")
        .args(["stat", "-x", ",", "-e", "instructions:u", "--"])
        .args(command)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&counted.stderr);
    said.lines().find(|line| line.contains("instructions"))?.split(',').next()?.parse().ok()
}

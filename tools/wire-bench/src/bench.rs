//! The measurements: dissect on small and large calls, compared with reading the bytes alone, and with tshark.

use crate::generate::{Traffic, Truth, generate};
use crate::measure::{Cost, MeasureError, Spread, run};
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Read};
use std::path::{Path, PathBuf};

/// Parameters of the measurement.
pub struct Plan {
    /// The binary.
    pub spangap: PathBuf,
    /// Folder for the captures.
    pub folder: PathBuf,
    /// Runs of each command; tshark runs once for every two of them.
    pub runs: u32,
    /// Scale: 1.0 means 2.5 million packets of small calls, and 2 GB of large ones.
    pub scale: f64,
}

/// Dissect on one kind of traffic.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Description of the traffic.
    pub name: &'static str,
    /// True figures of the traffic.
    pub truth: Truth,
    /// Runs of dissect.
    pub dissect: Vec<Cost>,
    /// Runs that only read every byte.
    pub read: Vec<Cost>,
    /// The legs reported by dissect, and whether the truth lies within their bounds.
    pub legs: Vec<LegCheck>,
    /// tshark's runs on a part of the same kind of traffic.
    pub tshark: Vec<Cost>,
    /// Number of packets in that part.
    pub tshark_packets: u64,
}

/// A sum over all calls: reported and true.
#[derive(Debug, Serialize)]
pub struct LegCheck {
    pub leg: String,
    /// Reported time, nanoseconds.
    pub said_ns: i64,
    pub bound_ns: u64,
    pub true_ns: i64,
}

impl LegCheck {
    /// Whether the truth lies within the bound.
    pub fn holds(&self) -> bool {
        self.said_ns.abs_diff(self.true_ns) <= self.bound_ns
    }
}

impl Row {
    /// Packets per second of CPU time.
    pub fn packets_per_cpu_s(&self) -> Option<Spread> {
        Spread::of(self.dissect.iter().map(|cost| self.truth.packets as f64 / cost.cpu_s))
    }

    /// Bytes of capture per second of CPU time.
    pub fn bytes_per_cpu_s(&self) -> Option<Spread> {
        Spread::of(self.dissect.iter().map(|cost| self.truth.bytes as f64 / cost.cpu_s))
    }

    /// CPU time over that of reading alone, run by run.
    pub fn over_reading(&self) -> Option<Spread> {
        Spread::of(self.dissect.iter().zip(&self.read).map(|(ours, read)| ours.cpu_s / read.cpu_s))
    }

    /// Packets per CPU second, as a multiple of tshark's.
    pub fn over_tshark(&self) -> Option<Spread> {
        let theirs = Spread::of(self.tshark.iter().map(|cost| self.tshark_packets as f64 / cost.cpu_s))?;
        let ours = self.packets_per_cpu_s()?;
        Some(Spread {
            median: ours.median / theirs.median,
            min: ours.min / theirs.max,
            max: ours.max / theirs.min,
        })
    }

    /// The same for wall time: medians only.
    pub fn over_tshark_wall(&self) -> Option<f64> {
        let theirs = Spread::of(self.tshark.iter().map(|cost| self.tshark_packets as f64 / cost.wall_s))?;
        let ours = Spread::of(self.dissect.iter().map(|cost| self.truth.packets as f64 / cost.wall_s))?;
        Some(ours.median / theirs.median)
    }
}

/// Clock of the server's captures, so that dissect has to derive the legs.
const OFFSET_NS: i64 = 3_700_000_000;
const SKEW_PPM: f64 = 23.0;

fn small(calls: u64) -> Traffic {
    Traffic {
        calls,
        connections: 16,
        in_flight: 4,
        request_bytes: 32,
        response_bytes: 32,
        segment_bytes: 1448,
        offset_ns: OFFSET_NS,
        skew_ppm: SKEW_PPM,
        seed: 7,
    }
}

/// Measures everything.
///
/// # Errors
/// [`MeasureError`]
pub fn bench(plan: &Plan, say: &mut dyn FnMut(&str)) -> Result<Vec<Row>, MeasureError> {
    let scaled = |n: f64| (n * plan.scale).max(10.0) as u64;
    let many = Traffic { connections: 4096, in_flight: 1, ..small(scaled(500_000.0)) };
    let large = Traffic { response_bytes: 1 << 20, request_bytes: 1 << 10, ..small(scaled(1_000.0)) };
    let kinds = [
        ("small calls, 16 connections", small(scaled(500_000.0))),
        ("small calls, 4096 connections", many),
        ("1 MiB responses, 1448-byte segments", large.clone()),
        ("1 MiB responses, super-frames", Traffic { segment_bytes: 64_000, ..large }),
    ];
    let mut rows = Vec::new();
    for (name, traffic) in kinds {
        say(name);
        rows.push(row(plan, name, &traffic, say)?);
    }
    Ok(rows)
}

/// Memory on the same traffic, once at normal length and once ten times as long: capture size and peak, bytes.
///
/// # Errors
/// [`MeasureError`]
pub fn memory(plan: &Plan) -> Result<[(u64, u64); 2], MeasureError> {
    let calls = (200_000.0 * plan.scale).max(10.0) as u64;
    let mut peaks = [(0, 0); 2];
    for (n, factor) in [1, 10].into_iter().enumerate() {
        let traffic = small(calls * factor);
        let folder = plan.folder.join("memory");
        let truth = write(&traffic, &folder)?;
        peaks[n] = (truth.bytes, dissect(plan, &folder)?.0.peak_bytes);
    }
    Ok(peaks)
}

fn row(
    plan: &Plan,
    name: &'static str,
    traffic: &Traffic,
    say: &mut dyn FnMut(&str),
) -> Result<Row, MeasureError> {
    let folder = plan.folder.join("traffic");
    let truth = write(traffic, &folder)?;
    let part = plan.folder.join("part");
    // tshark is slow: a part that is large enough to make its start-up negligible.
    let part_calls = if traffic.response_bytes > 1000 { 60 } else { 30_000 };
    let part_truth = write(&Traffic { calls: part_calls.min(traffic.calls), ..traffic.clone() }, &part)?;
    let has_tshark = run(&["tshark".into(), "--version".into()], &plan.folder.join("version")).is_ok();
    if !has_tshark {
        say("not run: tshark, the peer, is not installed");
    }
    let mut row = Row {
        name,
        truth,
        dissect: Vec::new(),
        read: Vec::new(),
        legs: Vec::new(),
        tshark: Vec::new(),
        tshark_packets: part_truth.packets,
    };
    for n in 0..plan.runs {
        row.read.push(read_only(plan, &folder)?);
        let (cost, document) = dissect(plan, &folder)?;
        row.dissect.push(cost);
        if n == 0 {
            row.legs = check_legs(&document, &row.truth)?;
        }
        if has_tshark && n % 2 == 0 {
            row.tshark.push(tshark(plan, &part)?);
        }
    }
    Ok(row)
}

fn write(traffic: &Traffic, folder: &Path) -> Result<Truth, MeasureError> {
    let file_error = |error| MeasureError::File { path: folder.to_owned(), error };
    std::fs::create_dir_all(folder).map_err(file_error)?;
    let open =
        |name: &str| File::create(folder.join(name)).map(|file| BufWriter::with_capacity(1 << 20, file));
    let client = open("client.pcap").map_err(file_error)?;
    let server = open("server.pcap").map_err(file_error)?;
    generate(traffic, client, server).map_err(file_error)
}

fn arguments(words: &[&str], paths: &[PathBuf]) -> Vec<String> {
    let words = words.iter().map(|word| word.to_string());
    words.chain(paths.iter().map(|path| path.display().to_string())).collect()
}

fn dissect(plan: &Plan, folder: &Path) -> Result<(Cost, serde_json::Value), MeasureError> {
    let output = plan.folder.join("dissect.json");
    let spangap = plan.spangap.display().to_string();
    let paths = [folder.join("client.pcap"), folder.join("server.pcap")];
    let cost = run(&arguments(&[&spangap, "dissect", "--json"], &paths), &output)?;
    let text = std::fs::read(&output).map_err(|error| MeasureError::File { path: output, error })?;
    let document = serde_json::from_slice(&text)
        .map_err(|error| MeasureError::Output { program: spangap, what: error.to_string() })?;
    Ok((cost, document))
}

/// Reads both files and adds up every byte: the lower bound for any tool.
fn read_only(plan: &Plan, folder: &Path) -> Result<Cost, MeasureError> {
    read_only_of(plan, &[folder.join("client.pcap"), folder.join("server.pcap")])
}

/// The same for any files.
///
/// # Errors
/// [`MeasureError`]
pub fn read_only_of(plan: &Plan, paths: &[PathBuf]) -> Result<Cost, MeasureError> {
    let me = std::env::current_exe();
    let me = me.map_err(|error| MeasureError::Start { program: "wire-bench".into(), error })?;
    run(&arguments(&[&me.display().to_string(), "read"], paths), &plan.folder.join("read"))
}

/// Adds up every byte of some files.
///
/// # Errors
/// Those of the files.
pub fn read(paths: &[PathBuf]) -> Result<u64, MeasureError> {
    let mut sum = 0u64;
    let mut buffer = vec![0; 1 << 20];
    for path in paths {
        let file_error = |error| MeasureError::File { path: path.clone(), error };
        let mut file = File::open(path).map_err(file_error)?;
        loop {
            let length = file.read(&mut buffer).map_err(file_error)?;
            if length == 0 {
                break;
            }
            sum += buffer[..length].iter().map(|byte| *byte as u64).sum::<u64>();
        }
    }
    Ok(sum)
}

/// Extracts the fields that give the same rows, from both captures in sequence.
fn tshark(plan: &Plan, folder: &Path) -> Result<Cost, MeasureError> {
    let mut total = Cost { cpu_s: 0.0, wall_s: 0.0, peak_bytes: 0 };
    for name in ["client.pcap", "server.pcap"] {
        let path = folder.join(name).display().to_string();
        let words = [
            "tshark",
            "-r",
            &path,
            "-d",
            "tcp.port==50051,http2",
            "-Y",
            "http2",
            "-T",
            "fields",
            "-e",
            "frame.number",
            "-e",
            "frame.time_epoch",
            "-e",
            "tcp.stream",
            "-e",
            "http2.streamid",
            "-e",
            "http2.type",
            "-e",
            "http2.header.name",
            "-e",
            "http2.header.value",
            "-e",
            "http2.flags",
        ];
        let cost = run(&arguments(&words, &[]), &plan.folder.join("tshark"))?;
        total.cpu_s += cost.cpu_s;
        total.wall_s += cost.wall_s;
        total.peak_bytes = total.peak_bytes.max(cost.peak_bytes);
    }
    Ok(total)
}

fn check_legs(document: &serde_json::Value, truth: &Truth) -> Result<Vec<LegCheck>, MeasureError> {
    let wrong = |what: String| MeasureError::Output { program: "spangap dissect".into(), what };
    let calls = document["totals"]["calls"].as_u64();
    if calls != Some(truth.calls) {
        return Err(wrong(format!("expected {} calls in totals.calls, found {calls:?}", truth.calls)));
    }
    let legs = document["totals"]["legs"].as_array();
    let legs = legs.ok_or_else(|| wrong("expected the array totals.legs".into()))?;
    let server = "server_host_in+server_app+server_host_out";
    let truths = [
        ("request_wire", truth.request_wire_ns),
        (server, truth.server_ns),
        ("response_wire", truth.response_wire_ns),
    ];
    let check = |(name, true_ns): (&str, i64)| {
        let found = legs.iter().find(|leg| leg["leg"] == name);
        let found = found.ok_or_else(|| wrong(format!("expected the leg {name}, found none")))?;
        let said = found["total_ns"].as_i64().zip(found["bound_ns"].as_u64());
        let (said_ns, bound_ns) =
            said.ok_or_else(|| wrong(format!("expected total_ns and bound_ns of {name}")))?;
        Ok(LegCheck { leg: name.into(), said_ns, bound_ns, true_ns })
    };
    truths.into_iter().map(check).collect()
}

//! Only the walk of dissect, in this process and without a report: for `make bench-check`, which counts its
//! instructions and compares its time with that of reading the same packets.

use serde::Serialize;
use spangap_wire::dissect::{Dissection, Settings, dissect};
use spangap_wire::source::{Capture, SourceError};
use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Readings per walk, so that the clock can resolve both times.
const READINGS: u32 = 20;

/// Size of the captures, and the ratio of each walk's time to a reading's.
#[derive(Debug, Serialize)]
pub struct Walked {
    /// Packets in the captures.
    pub packets: u64,
    /// Calls found.
    pub calls: u64,
    /// Ratio of the CPU time of each walk to that of a reading right before it.
    pub ratios: Vec<f64>,
}

/// Walks the captures as one body of traffic. callgrind is told to collect the instructions of this function.
///
/// # Errors
/// If one of them cannot be opened.
#[inline(never)]
pub fn walk_once(paths: &[PathBuf]) -> Result<Dissection, SourceError> {
    // What is counted here is counted of this thread.
    let settings = Settings { slowest: 10, in_turn: true, ..Settings::default() };
    dissect(open(paths)?, &settings, &mut |_| ControlFlow::Continue(()))
}

fn open(paths: &[PathBuf]) -> Result<Vec<Capture>, SourceError> {
    paths.iter().map(|path| Capture::open(path)).collect()
}

/// Reads every packet without examining it.
#[inline(never)]
fn read(paths: &[PathBuf]) -> Result<u64, SourceError> {
    let mut packets = 0;
    for mut capture in open(paths)? {
        while let Some(packet) = capture.next() {
            packets += 1;
            black_box(packet.data);
        }
    }
    Ok(packets)
}

/// CPU time of this thread (proc(5), schedstat).
fn cpu_ns() -> u64 {
    // The kernel updates the figure when it schedules; otherwise it is as old as the last tick.
    std::thread::yield_now();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Walks and reads alternately; without rounds, it walks once.
///
/// # Errors
/// If a capture cannot be opened.
pub fn walk(paths: &[PathBuf], rounds: u32) -> Result<Walked, SourceError> {
    let mut walked = Walked { packets: 0, calls: walk_once(paths)?.sums.calls, ratios: Vec::new() };
    walked.packets = read(paths)?;
    for _ in 0..rounds {
        let begun_ns = cpu_ns();
        for _ in 0..READINGS {
            black_box(read(paths)?);
        }
        let read_ns = cpu_ns();
        black_box(walk_once(paths)?);
        let walk_ns = cpu_ns() - read_ns;
        walked.ratios.push(walk_ns as f64 * f64::from(READINGS) / (read_ns - begun_ns).max(1) as f64);
    }
    Ok(walked)
}

/// Decompresses captures, so that no walk includes the decompression.
///
/// # Errors
/// If a file cannot be read or written.
pub fn unpack(paths: &[PathBuf], folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    std::fs::create_dir_all(folder)?;
    let one = |path: &PathBuf| {
        let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".zst")) else {
            return Ok(path.clone());
        };
        let to = folder.join(name);
        std::fs::write(&to, zstd::decode_all(std::fs::File::open(path)?)?)?;
        Ok(to)
    };
    paths.iter().map(one).collect()
}

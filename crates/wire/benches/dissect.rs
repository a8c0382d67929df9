//! CPU time of dissect per packet, call and byte, compared with reading alone: `cargo bench -p spangap-wire
//! --bench dissect -- [--rounds N] CAPTURE...`, where `A,B` are both ends of the same calls. Without captures, it
//! uses those of `fixtures/strangers` that are dense with calls. To count its instructions, run `valgrind
//! --tool=callgrind --toggle-collect=dissect::once target/release/deps/dissect-* --rounds 1 CAPTURE`.

use rustix::time::{ClockId, clock_gettime};
use spangap_wire::dissect::{Dissection, Settings, dissect};
use spangap_wire::source::Capture;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// CPU time of this thread until now, nanoseconds.
fn cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec.unsigned_abs() * 1_000_000_000 + used.tv_nsec.unsigned_abs()
}

/// The captures that are dense with calls, one program per entry.
fn dense() -> Vec<Vec<PathBuf>> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/strangers"));
    let files = std::fs::read_dir(folder).expect("the fixtures are there");
    let mut paths: Vec<PathBuf> = files.map(|entry| entry.expect("an entry").path()).collect();
    let is_dense = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("dense-") && name.ends_with(".zst")
    };
    paths.retain(is_dense);
    paths.sort();
    paths.into_iter().map(|path| vec![path]).collect()
}

fn open(paths: &[PathBuf]) -> Vec<Capture> {
    paths.iter().map(|path| Capture::open(path).expect("a capture")).collect()
}

#[inline(never)]
fn once(paths: &[PathBuf]) -> Dissection {
    let settings = Settings { slowest: 10, ..Settings::default() };
    dissect(open(paths), &settings, &mut |_| ControlFlow::Continue(())).expect("read twice")
}

/// Reads everything without examining it: packets and their bytes.
#[inline(never)]
fn read(paths: &[PathBuf]) -> (u64, u64) {
    let (mut packets, mut bytes) = (0, 0);
    for mut capture in open(paths) {
        while let Some(packet) = capture.next() {
            packets += 1;
            bytes += std::hint::black_box(packet.data).len() as u64;
        }
    }
    (packets, bytes)
}

fn timed<T>(best_ns: &mut u64, run: impl FnOnce() -> T) -> T {
    let before = cpu_ns();
    let made = run();
    *best_ns = (*best_ns).min(cpu_ns() - before);
    made
}

fn main() {
    let mut rounds = 5;
    let mut captures: Vec<Vec<PathBuf>> = Vec::new();
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--rounds" => rounds = arguments.next().and_then(|count| count.parse().ok()).expect("--rounds N"),
            paths => captures.push(paths.split(',').map(PathBuf::from).collect()),
        }
    }
    if captures.is_empty() {
        captures = dense();
    }
    println!(
        "{:40} {:>9} {:>9} {:>7} {:>7} {:>8} {:>9}",
        "least CPU time of the rounds", "packets", "calls", "ns/pkt", "ns/call", "MB/s", "x reading"
    );
    for paths in &captures {
        let (mut whole_ns, mut read_ns) = (u64::MAX, u64::MAX);
        let (mut packets, mut bytes, mut calls) = (0, 0, 0);
        for _ in 0..rounds {
            (packets, bytes) = timed(&mut read_ns, || read(paths));
            calls = timed(&mut whole_ns, || once(paths)).sums.calls;
        }
        let each = |count: u64| whole_ns as f64 / count.max(1) as f64;
        println!(
            "{:40} {packets:9} {calls:9} {:7.0} {:7.0} {:8.0} {:9.1}",
            paths[0].file_name().map(Path::new).map_or(String::new(), |name| name.display().to_string()),
            each(packets),
            each(calls),
            bytes as f64 * 1e3 / whole_ns as f64,
            whole_ns as f64 / read_ns.max(1) as f64,
        );
    }
}

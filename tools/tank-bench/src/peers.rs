//! Other load generators.

use crate::programs::{Bench, BenchError, Sample, number, output};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A load generator.
pub struct Peer {
    /// Name of its program.
    pub name: &'static str,
    arguments: fn(&mut Command, &str, u32, f64),
    /// Extracts calls and seconds from its output.
    read: fn(&str) -> Option<(f64, f64)>,
}

/// Each makes unary gRPC calls with empty messages over one connection; fortio supports only the health
/// check.
pub const ALL: &[Peer] = &[
    Peer { name: "ghz", arguments: ghz, read: read_ghz },
    Peer { name: "fortio", arguments: fortio, read: read_fortio },
    Peer { name: "h2load", arguments: h2load, read: read_h2load },
];

/// The program, in the folder of tools or in PATH.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = PathBuf::from("target/tools/bin");
    std::iter::once(own)
        .chain(std::env::split_paths(&path))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

impl Peer {
    /// One run. The CPU time is that of the whole process, including its start: these programs do not report
    /// it.
    pub fn run(
        &self,
        bench: &Bench,
        program: &Path,
        address: &str,
        in_flight: u32,
    ) -> Result<Sample, BenchError> {
        let mut command = bench.client(program);
        (self.arguments)(&mut command, address, in_flight, bench.seconds);
        let (printed, cpu_s) = output(command)?;
        match (self.read)(&printed) {
            Some((calls, seconds)) => Ok(Sample { calls, seconds, cpu_s, p50_ns: None }),
            None => Err(BenchError::Program {
                program: self.name.into(),
                reason: format!("no figures in {printed:?}"),
            }),
        }
    }
}

fn ghz(command: &mut Command, address: &str, in_flight: u32, seconds: f64) {
    command.args([
        "--insecure",
        "--call",
        "spangap.ping.v1.Ping/Ping",
        "-d",
        "{}",
        "--connections",
        "1",
        "-O",
        "json",
    ]);
    command.args(["-c", &in_flight.to_string(), "-z", &format!("{seconds}s"), address]);
}

fn read_ghz(printed: &str) -> Option<(f64, f64)> {
    let report: Value = serde_json::from_str(printed).ok()?;
    let ok = number(&report, "/statusCodeDistribution/OK")?;
    Some((ok, number(&report, "/total")? / 1e9))
}

fn fortio(command: &mut Command, address: &str, in_flight: u32, seconds: f64) {
    command.args([
        "load",
        "-grpc",
        "-health",
        "-qps",
        "0",
        "-c",
        "1",
        "-s",
        &in_flight.to_string(),
        "-json",
        "-",
        "-quiet",
    ]);
    command.args(["-t", &format!("{seconds}s"), address]);
}

fn read_fortio(printed: &str) -> Option<(f64, f64)> {
    let report: Value = serde_json::from_str(&printed[printed.find('{')?..]).ok()?;
    let calls = number(&report, "/DurationHistogram/Count")?;
    Some((calls, number(&report, "/ActualDuration")? / 1e9))
}

fn h2load(command: &mut Command, address: &str, in_flight: u32, seconds: f64) {
    // An empty gRPC message is five zero bytes; h2load accepts a body only from a file.
    // It takes no fractions of a second.
    let duration = format!("{}ms", (seconds * 1e3) as u64);
    command.args(["-c", "1", "-t", "1", "-m", &in_flight.to_string(), "-D", &duration]);
    command.args(["-d", concat!(env!("CARGO_MANIFEST_DIR"), "/empty-message.bin")]);
    command.args(["-H", "content-type: application/grpc", "-H", "te: trailers"]);
    command.arg(format!("http://{address}/spangap.ping.v1.Ping/Ping"));
}

fn read_h2load(printed: &str) -> Option<(f64, f64)> {
    // `finished in 2.00s, 61234.50 req/s, …` and `requests: N total, N started, N done, N succeeded, …`
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let finished = words(printed.lines().find(|line| line.starts_with("finished in"))?);
    let requests = words(printed.lines().find(|line| line.starts_with("requests:"))?);
    let at = requests.iter().position(|word| word.starts_with("succeeded"))?;
    let succeeded: f64 = requests.get(at.checked_sub(1)?)?.parse().ok()?;
    let text = finished.get(2)?.trim_end_matches(',');
    let seconds = match text.strip_suffix("ms") {
        Some(ms) => ms.parse::<f64>().ok()? / 1e3,
        None => text.strip_suffix('s')?.parse().ok()?,
    };
    Some((succeeded, seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_peers_is_parsed() {
        let h2load = "starting...\nfinished in 2.00s, 61234.50 req/s, 2.1MB/s\n\
                      requests: 122469 total, 122485 started, 122469 done, 122460 succeeded, 9 failed, 0 errored\n";
        assert_eq!(read_h2load(h2load), Some((122460.0, 2.0)));
        assert_eq!(
            read_h2load("finished in 12.5ms, 1 req/s\nrequests: 1 total, 1 succeeded,"),
            Some((1.0, 0.0125))
        );
        assert_eq!(read_h2load("nothing"), None);
        assert_eq!(
            read_ghz(r#"{"total": 2000000000, "statusCodeDistribution": {"OK": 7, "UNAVAILABLE": 1}}"#),
            Some((7.0, 2.0))
        );
        assert_eq!(
            read_fortio("log\n{\"ActualDuration\": 3000000000, \"DurationHistogram\": {\"Count\": 9}}"),
            Some((9.0, 3.0))
        );
    }
}

//! The meter as a separate process: started on a core, queried, stopped.

use crate::BenchError;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use rustix::process::{Pid, Signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::de::DeserializeOwned;
use spangap_meter::report::{Coverage, PairsReport};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Timeout of an API request.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Timeout of a stop, after which the meter is killed with a message.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// A running meter, stopped on drop.
pub struct MeterProcess {
    child: Child,
    /// Address of OTLP over gRPC.
    pub otlp_grpc: SocketAddr,
    /// Address of OTLP over HTTP.
    pub otlp_http: SocketAddr,
    /// Address of the API.
    pub http: SocketAddr,
    // Its history, removed with it.
    _data: TempDir,
}

/// Busy processes, stopped on drop.
pub struct Neighbours(Vec<Child>);

impl Neighbours {
    /// Starts `count` of them on the caller's core.
    ///
    /// # Errors
    /// There is no shell.
    pub fn start(count: usize) -> Result<Neighbours, BenchError> {
        let mut neighbours = Neighbours(Vec::new());
        for _ in 0..count {
            let child = Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn();
            let failed = |error| BenchError::Program {
                program: "sh".into(),
                reason: format!("does not start: {error}"),
            };
            neighbours.0.push(child.map_err(failed)?);
        }
        Ok(neighbours)
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// CPU time of a process in user and kernel mode, microseconds. The kernel counts it in ticks of 10 ms.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime {
    /// In user mode.
    pub user_us: u64,
    /// In kernel mode.
    pub system_us: u64,
}

impl CpuTime {
    /// Sum of both.
    pub fn total_us(self) -> u64 {
        self.user_us + self.system_us
    }
}

/// Pins the calling thread, and all that it starts from now on, to one core. Runs unpinned without the
/// permission.
pub fn pin_to(cpu: usize) -> bool {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).is_ok()
}

/// The cores available to this process.
pub fn usable_cpus() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

impl MeterProcess {
    /// Starts `binary meter` on free ports with further arguments on the caller's core, and waits until it is
    /// ready.
    ///
    /// # Errors
    /// It does not start, or ends before it is ready; its own message is on standard error.
    pub fn start<S: AsRef<OsStr>>(binary: &Path, arguments: &[S]) -> Result<MeterProcess, BenchError> {
        let data = TempDir::new().map_err(BenchError::file(std::env::temp_dir()))?;
        MeterProcess::start_over(binary, data, arguments)
    }

    /// Like [`MeterProcess::start`], with an existing history.
    ///
    /// # Errors
    /// As [`MeterProcess::start`].
    pub fn start_over<S: AsRef<OsStr>>(
        binary: &Path,
        data: TempDir,
        arguments: &[S],
    ) -> Result<MeterProcess, BenchError> {
        let program = || format!("{} meter", binary.display());
        let failed = |reason: String| BenchError::Program { program: program(), reason };
        let mut command = Command::new(binary);
        command.args([
            "meter",
            "--otlp-grpc",
            "127.0.0.1:0",
            "--otlp-http",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
        ]);
        command.arg("--data").arg(data.path()).args(arguments);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(format!("does not start: {error}")))?;
        let lines = child.stdout.take().map(BufReader::new);
        let mut addresses = [None; 3];
        match lines.map(|lines| read_ready(lines, &mut addresses)) {
            Some(Some(rest)) => drain(rest),
            _ => {
                let _ = child.kill();
                let status = child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
                return Err(failed(format!("ended before it was ready: {status}")));
            }
        }
        let [Some(otlp_grpc), Some(otlp_http), Some(http)] = addresses else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(failed(format!("did not say where it listens: found {addresses:?}")));
        };
        Ok(MeterProcess { child, otlp_grpc, otlp_http, http, _data: data })
    }

    /// CPU time used so far.
    ///
    /// # Errors
    /// The process is gone.
    pub fn cpu_time(&self) -> Result<CpuTime, BenchError> {
        let text = self.proc("stat")?;
        let fields: Vec<u64> = text
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0))
            .collect();
        let tick_us = 1_000_000 / rustix::param::clock_ticks_per_second().max(1);
        // Fields 14 and 15 of proc(5), counted from the third.
        let at = |field: usize| fields.get(field - 3).copied().unwrap_or(0) * tick_us;
        Ok(CpuTime { user_us: at(14), system_us: at(15) })
    }

    /// Current and peak resident memory in bytes.
    ///
    /// # Errors
    /// The process is gone.
    pub fn resident_bytes(&self) -> Result<(u64, u64), BenchError> {
        let text = self.proc("status")?;
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
        };
        Ok((value("VmRSS:"), value("VmHWM:")))
    }

    fn proc(&self, name: &str) -> Result<String, BenchError> {
        let path = format!("/proc/{}/{name}", self.child.id());
        std::fs::read_to_string(&path).map_err(BenchError::file(path))
    }

    /// `GET /api/v1/pairs`.
    ///
    /// # Errors
    /// The meter does not answer, or with something else.
    pub async fn pairs(&self) -> Result<PairsReport, BenchError> {
        self.get("/api/v1/pairs").await
    }

    /// `GET /api/v1/coverage`.
    ///
    /// # Errors
    /// The meter does not answer, or with something else.
    pub async fn coverage(&self) -> Result<Coverage, BenchError> {
        self.get("/api/v1/coverage").await
    }

    /// `GET` of any path with a JSON answer.
    ///
    /// # Errors
    /// The meter does not answer, or with something else.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, BenchError> {
        let body = self.read(path, None).await?;
        serde_json::from_slice(&body).map_err(BenchError::peer(format!("http://{}{path}", self.http)))
    }

    /// The body of a `GET`, in this coding.
    ///
    /// # Errors
    /// The meter does not answer, or not with all of it.
    pub async fn read(&self, path: &str, coding: Option<&'static str>) -> Result<Bytes, BenchError> {
        let request = http::Request::get(path).header("accept-encoding", coding.unwrap_or("identity"));
        let answer = exchange(self.http, request.body(Full::default())).await;
        answer.map_err(BenchError::peer(format!("http://{}{path}", self.http)))
    }

    /// Sends spans over HTTP.
    ///
    /// # Errors
    /// The meter refuses them.
    pub async fn export(&self, spans: Vec<u8>) -> Result<(), BenchError> {
        let request = http::Request::post("/v1/traces").header("content-type", "application/x-protobuf");
        let answer = exchange(self.otlp_http, request.body(Full::from(spans))).await;
        answer.map(drop).map_err(BenchError::peer(format!("http://{}/v1/traces", self.otlp_http)))
    }
}

impl Drop for MeterProcess {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        let asked = Instant::now();
        while asked.elapsed() < STOP_WITHIN {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                _ => return,
            }
        }
        eprintln!("{} does not stop within {STOP_WITHIN:?} of SIGTERM: killed", self.child.id());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads up to the line `ready`; `None` if the output ends before.
fn read_ready(
    mut lines: BufReader<ChildStdout>,
    addresses: &mut [Option<SocketAddr>; 3],
) -> Option<BufReader<ChildStdout>> {
    const NAMES: [&str; 3] = ["otlp/grpc ", "otlp/http ", "page http://"];
    let mut line = String::new();
    while lines.read_line(&mut line).ok()? > 0 {
        let text = line.trim();
        for (name, address) in NAMES.iter().zip(addresses.iter_mut()) {
            if let Some(rest) = text.strip_prefix(name) {
                *address = rest.trim_end_matches('/').parse().ok();
            }
        }
        if text == "ready" {
            return Some(lines);
        }
        line.clear();
    }
    None
}

/// Keeps the pipe open and empty, so that the meter never blocks on it.
fn drain(mut rest: BufReader<ChildStdout>) {
    std::thread::spawn(move || std::io::copy(&mut rest, &mut std::io::sink()));
}

/// One request on a connection of its own.
async fn exchange(
    address: SocketAddr,
    request: Result<http::Request<Full<Bytes>>, http::Error>,
) -> Result<Bytes, String> {
    let answer = async {
        let text = |error: hyper::Error| error.to_string();
        let mut request = request.map_err(|error| error.to_string())?;
        let host = http::HeaderValue::from_str(&address.to_string()).map_err(|error| error.to_string())?;
        request.headers_mut().insert("host", host);
        let stream = tokio::net::TcpStream::connect(address).await.map_err(|e| e.to_string())?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
        tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(text)?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(text)?.to_bytes();
        match status.is_success() {
            true => Ok(body),
            false => Err(format!("status {status}: {}", String::from_utf8_lossy(&body))),
        }
    };
    let answer = tokio::time::timeout(ANSWER_WITHIN, answer).await;
    answer.unwrap_or_else(|_| Err(format!("no answer within {ANSWER_WITHIN:?}")))
}

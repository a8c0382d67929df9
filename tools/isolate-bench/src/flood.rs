//! A ping-pong on one CPU, and a flood whose packets are handled there: before and after `isolate apply`.
//!
//! Two network namespaces are connected by two veth pairs. One carries the calls, the other a flood of
//! packets that nobody reads; software steering (RPS) makes the CPU of the ping-pong handle these, as a NIC's
//! interrupt would.

use crate::BenchError;
use crate::programs::{Running, json, number, run};
use crate::spread::Spread;
use serde::Serialize;
use std::path::Path;
use std::process::Command;

/// CPU of the ping-pong.
const CPU: usize = 1;
/// CPU of the flood and, after `apply`, of the interrupts.
const OTHER_CPU: usize = 0;
const ADDRESS: &str = "10.211.79.2";
const PORT: &str = "50055";

/// Measurements of the ping-pong in one state, over all rounds.
#[derive(Debug, Serialize)]
pub struct State {
    /// Name in words.
    pub name: &'static str,
    /// 99th percentile of the latency, nanoseconds.
    pub p99_ns: Spread,
    /// 99.9th percentile.
    pub p999_ns: Spread,
    /// CPU time of both ends per call, nanoseconds, including softirqs that interrupt them.
    pub cpu_per_call_ns: Spread,
}

/// All measurements.
#[derive(Debug, Serialize)]
pub struct Flood {
    /// The states, in the order of each round.
    pub states: Vec<State>,
    /// p99 with the flood divided by p99 after `apply`, per round.
    pub gain: Spread,
    /// Its minimum.
    pub goal: f64,
    /// Attribution of `host thieves` to the flood's device: its share of the time that the target wanted,
    /// before and after.
    pub blamed: Result<[f64; 2], String>,
}

const STATES: [&str; 4] = ["quiet", "flooded", "flooded, applied", "flooded, rolled back"];

/// Why it cannot be run here.
pub fn why_not() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("network namespaces need root".into());
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    (cpus < 2).then(|| "it takes two CPUs".into())
}

/// Two hosts with two links, removed on drop.
struct Hosts {
    client: String,
    server: String,
}

/// The namespaces, the target, and paths.
struct Bench<'a> {
    spangap: &'a Path,
    hosts: Hosts,
    target: Running,
    folder: tempfile::TempDir,
    seconds: u64,
}

/// Measures all states for some seconds each, in several rounds.
pub fn measure(spangap: &Path, rounds: usize, seconds: u64) -> Result<Flood, BenchError> {
    let hosts = Hosts::new()?;
    let mut command = hosts.on(&hosts.server, "taskset");
    command.args(["-c", &CPU.to_string()]).arg(spangap);
    command.args(["target", "--stack", "raw", "--listen", &format!("{ADDRESS}:{PORT}")]);
    let mut target = Running::start(&mut command)?;
    let line = target.line();
    if !line.starts_with("listening on ") {
        return Err(BenchError::Output { program: "target".into(), expected: "to listen", found: line });
    }
    let folder =
        tempfile::tempdir().map_err(|error| BenchError::File { path: std::env::temp_dir(), error })?;
    let bench = Bench { spangap, hosts, target, folder, seconds };
    let mut taken: [Vec<[f64; 3]>; 4] = Default::default();
    for round in 0..rounds {
        bench.hosts.steer(CPU)?;
        taken[0].push(bench.ping_pong()?);
        let _flood = bench.flood()?;
        taken[1].push(bench.ping_pong()?);
        bench.apply()?;
        let applied = bench.ping_pong();
        bench.rollback()?;
        taken[2].push(applied?);
        taken[3].push(bench.ping_pong()?);
        eprintln!("round {} of {rounds} done", round + 1);
    }
    let states = STATES.iter().zip(&taken).map(|(&name, taken)| State {
        name,
        p99_ns: Spread::of(taken.iter().map(|one| one[0])),
        p999_ns: Spread::of(taken.iter().map(|one| one[1])),
        cpu_per_call_ns: Spread::of(taken.iter().map(|one| one[2])),
    });
    Ok(Flood {
        states: states.collect(),
        gain: Spread::of(taken[1].iter().zip(&taken[2]).map(|(before, after)| before[0] / after[0])),
        goal: 2.0,
        blamed: bench.blamed().map_err(|error| error.to_string()),
    })
}

impl Bench<'_> {
    fn verb(&self, arguments: &[&str]) -> Command {
        let mut command = self.hosts.on(&self.hosts.server, self.spangap.to_str().unwrap_or_default());
        command.args(arguments);
        command
    }

    /// Sends packets as fast as one CPU can.
    fn flood(&self) -> Result<Running, BenchError> {
        const SEND: &str = "import socket\nout = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
            out.connect((\"10.211.80.2\", 9))\nwhile True:\n    try: out.send(b\"x\" * 64)\n    except OSError: pass";
        let mut command = self.hosts.on(&self.hosts.client, "taskset");
        Running::start(command.args(["-c", &OTHER_CPU.to_string(), "python3", "-c", SEND]))
    }

    fn tank(&self, seconds: u64) -> Command {
        let mut command = self.hosts.on(&self.hosts.client, self.spangap.to_str().unwrap_or_default());
        command.args(["tank", &format!("{ADDRESS}:{PORT}"), "--stack", "raw", "--rate", "1000", "--json"]);
        command.args(["--cpus", &CPU.to_string(), "--duration", &format!("{seconds}s"), "--warmup", "500ms"]);
        command
    }

    /// p99, p99.9 and CPU time of a call, nanoseconds.
    fn ping_pong(&self) -> Result<[f64; 3], BenchError> {
        let report = json(&mut self.tank(self.seconds))?;
        let of = |key: &str| number(&report, &format!("/runs/0/{key}"));
        let cpu_s = of("cpu_client_s")? + of("cpu_target_s").unwrap_or(0.0);
        Ok([of("latency/p99_ns")?, of("latency/p999_ns")?, cpu_s * 1e9 / of("calls")?])
    }

    fn journal(&self) -> String {
        self.folder.path().join("journal").display().to_string()
    }

    fn apply(&self) -> Result<(), BenchError> {
        let plan = self.folder.path().join("plan.json").display().to_string();
        let net = format!("cpu:{OTHER_CPU}");
        let policy = ["--interface", "noise", "--net-cpus", &net, "--no-cpusets", "--write", &plan];
        run(self.verb(&["isolate", "plan"]).args(policy))?;
        run(&mut self.verb(&["isolate", "apply", &plan, "--no-confirm", "--journal", &self.journal()]))?;
        Ok(())
    }

    fn rollback(&self) -> Result<(), BenchError> {
        run(&mut self.verb(&["isolate", "rollback", "--journal", &self.journal()])).map(drop)
    }

    /// The share of the flood's device in the time that the target wanted of its CPU, before and after.
    fn blamed(&self) -> Result<[f64; 2], BenchError> {
        self.hosts.steer(CPU)?;
        let _flood = self.flood()?;
        let before = self.share()?;
        self.apply()?;
        let after = self.share();
        self.rollback()?;
        Ok([before, after?])
    }

    fn share(&self) -> Result<f64, BenchError> {
        let _calls = Running::start(&mut self.tank(self.seconds + 2))?;
        let pid = self.target.pid().to_string();
        let duration = format!("{}s", self.seconds);
        // It observes the whole kernel, independent of namespaces.
        let report = json(Command::new(self.spangap).args([
            "host",
            "thieves",
            "--pid",
            &pid,
            "--duration",
            &duration,
            "--json",
        ]))?;
        let takers = report["takers"].as_array().into_iter().flatten();
        let of_device =
            takers.filter(|taker| taker["name"].as_str().is_some_and(|name| name.contains("noise")));
        let taken: u64 = of_device.filter_map(|taker| taker["total_ns"].as_u64()).sum();
        Ok(taken as f64 / number(&report, "/wanted_ns")?)
    }
}

impl Hosts {
    fn new() -> Result<Hosts, BenchError> {
        let me = std::process::id();
        let hosts =
            Hosts { client: format!("isolate-bench-c-{me}"), server: format!("isolate-bench-s-{me}") };
        let Hosts { client, server } = &hosts;
        ip(&["netns", "add", client])?;
        ip(&["netns", "add", server])?;
        for (near, far, net) in [("tank", "target", "10.211.79"), ("flood", "noise", "10.211.80")] {
            ip(&[
                "link", "add", near, "netns", client, "type", "veth", "peer", "name", far, "netns", server,
            ])?;
            ip(&["-n", client, "addr", "add", &format!("{net}.1/24"), "dev", near])?;
            ip(&["-n", server, "addr", "add", &format!("{net}.2/24"), "dev", far])?;
            ip(&["-n", client, "link", "set", near, "up"])?;
            ip(&["-n", server, "link", "set", far, "up"])?;
        }
        for name in [client, server] {
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        Ok(hosts)
    }

    fn on(&self, host: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", host, program]);
        command
    }

    /// Steers the flood's packets to a CPU.
    fn steer(&self, cpu: usize) -> Result<(), BenchError> {
        let write = format!("echo {:x} >/sys/class/net/noise/queues/rx-0/rps_cpus", 1 << cpu);
        run(self.on(&self.server, "sh").args(["-c", &write])).map(drop)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // Namespaces may not have been created.
        let _ = ip(&["netns", "del", &self.client]);
        let _ = ip(&["netns", "del", &self.server]);
    }
}

fn ip(arguments: &[&str]) -> Result<(), BenchError> {
    run(Command::new("ip").args(arguments)).map(drop)
}

//! The tools: how to start each, detect that it is active, and stop it.

use crate::{BenchError, Row};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Timeout of a tool's start and end.
const PATIENCE: Duration = Duration::from_secs(30);
/// A tool attaches its programs one by one; after this long without an addition, all are attached.
const ALL_THERE: Duration = Duration::from_millis(300);
const POLL: Duration = Duration::from_millis(10);
/// Unit of CPU time in `/proc`.
const TICKS_PER_S: f64 = 100.0;
/// What the kernel charges for any program where contexts are switched.
pub const FLOOR: &str = "an empty program";

/// An observing tool.
#[derive(Debug)]
pub struct Observer {
    /// Its command, shortened.
    pub name: String,
    command: Vec<String>,
    ours: bool,
    goal: Option<f64>,
}

/// An active tool, stopped on drop.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    began: Instant,
    used: f64,
}

/// All tools.
pub fn all(spangap: &Path) -> Vec<Observer> {
    let spangap = spangap.display().to_string();
    let me = std::process::id().to_string();
    let file = std::env::temp_dir().join(format!("spangap-host-bench-{me}.rec")).display().to_string();
    let ours = |name: &str, goal, arguments: &[&str]| Observer {
        name: name.into(),
        command: std::iter::once(spangap.as_str())
            .chain(arguments.iter().copied())
            .map(String::from)
            .collect(),
        ours: true,
        goal,
    };
    let theirs = |name: &str, arguments: &[&str]| Observer {
        name: format!("{name} {}", arguments.join(" ")).trim_end().to_string(),
        command: std::iter::once(name).chain(arguments.iter().copied()).map(String::from).collect(),
        ours: false,
        goal: None,
    };
    let bench = std::env::current_exe().unwrap_or_default().display().to_string();
    let floor = Observer {
        name: FLOOR.into(),
        command: vec![bench, "--floor".into(), "sched_switch".into()],
        ours: false,
        goal: None,
    };
    vec![
        floor,
        ours("host offcpu", Some(1.10), &["host", "offcpu", "--duration", "600s"]),
        // The process that waits for the runs is not part of them.
        ours(
            "offcpu, no reasons, no match",
            Some(1.04),
            &["host", "offcpu", "--pid", &me, "--no-reasons", "--duration", "600s"],
        ),
        ours("host offcpu, no match", Some(1.04), &["host", "offcpu", "--pid", &me, "--duration", "600s"]),
        ours("host record", Some(1.12), &["host", "record", "--pid", &me, "--write", &file]),
        ours("host thieves", None, &["host", "thieves", "--pid", &me, "--duration", "600s"]),
        theirs("cpudist", &["-O"]),
        theirs("runqlat", &[]),
        theirs("offcputime", &[]),
    ]
}

impl Observer {
    /// A row without runs.
    pub fn row(&self) -> Row {
        let Observer { name, ours, goal, .. } = self;
        Row {
            name: name.clone(),
            ours: *ours,
            goal: *goal,
            ratios: Vec::new(),
            wall_ratios: Vec::new(),
            own_cpu: Vec::new(),
            not_run: None,
        }
    }

    /// Starts it, and waits until its programs are attached.
    pub fn start(&self) -> Result<Running, BenchError> {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child =
            command.spawn().map_err(|error| BenchError::Start { program: self.command[0].clone(), error })?;
        let mut running = Running { name: self.name.clone(), child, began: Instant::now(), used: 0.0 };
        let (mut attached, mut since) = (0, Instant::now());
        while attached == 0 || since.elapsed() < ALL_THERE {
            running.must_go_on()?;
            let now = links(running.child.id());
            if now != attached {
                (attached, since) = (now, Instant::now());
            }
            std::thread::park_timeout(POLL);
        }
        running.began = Instant::now();
        running.used = cpu_s(running.child.id());
        Ok(running)
    }
}

impl Running {
    fn wrong(&self, expected: &'static str, found: impl Into<String>) -> BenchError {
        BenchError::Output { program: self.name.clone(), expected, found: found.into() }
    }

    fn must_go_on(&mut self) -> Result<(), BenchError> {
        match self.child.try_wait() {
            Ok(None) if self.began.elapsed() < PATIENCE => Ok(()),
            Ok(None) => Err(self.wrong("programs in the kernel", "none within 30 s")),
            Ok(Some(status)) => Err(self.wrong("to go on until it is told to end", status.to_string())),
            Err(error) => Err(self.wrong("a child of ours", error.to_string())),
        }
    }

    /// Stops it. Returns the CPU time of its process as a share of one CPU.
    pub fn stop(mut self) -> Result<f64, BenchError> {
        let share = (cpu_s(self.child.id()) - self.used) / self.began.elapsed().as_secs_f64();
        // The tools end in order at an interrupt. The floor does not handle it, and ignores it where a script in the background
        // started the benchmark.
        let signal = if self.name == FLOOR { "TERM" } else { "INT" };
        let told = Command::new("kill").args(["-s", signal, &self.child.id().to_string()]).status();
        told.map_err(|error| BenchError::Start { program: "kill".into(), error })?;
        let told = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if told.elapsed() > PATIENCE {
                return Err(self.wrong("its end within 30 s", "none"));
            }
            std::thread::park_timeout(POLL);
        }
        Ok(share)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, or could not be signalled.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Number of descriptors of a process for attached programs.
fn links(pid: u32) -> usize {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let targets = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets
        .filter(|target| {
            ["bpf_link", "bpf-link", "perf_event"].iter().any(|kind| target.to_string_lossy().contains(kind))
        })
        .count()
}

/// CPU time of a process so far, seconds.
fn cpu_s(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // After the name, which may contain any character: user and system time are the 12th and 13th field.
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11).take(2);
    fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_S
}

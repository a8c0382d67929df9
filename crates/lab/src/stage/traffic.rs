//! Server and client of a scenario.

use super::{BEHIND_PORT, PORT};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Surroundings of a program: its CPUs, priority, control group and environment.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// CPUs, in the syntax of `taskset -c`.
    pub cpus: Option<String>,
    /// Niceness.
    pub nice: Option<i32>,
    /// Priority in the real-time class SCHED_FIFO.
    pub fifo: Option<u32>,
    /// Folder of its control group.
    pub cgroup: Option<PathBuf>,
    /// Variables of its environment.
    pub environment: Vec<(String, String)>,
}

impl Surroundings {
    /// Runs on these CPUs.
    pub fn on_cpus(cpus: &str) -> Surroundings {
        Surroundings { cpus: Some(cpus.to_owned()), ..Surroundings::default() }
    }

    /// Command prefix of a program: each word is a program that executes the next. `namespace` is the host.
    pub(super) fn command(&self, namespace: &str, program: &Path) -> Command {
        let mut words: Vec<String> = Vec::new();
        let mut push = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
        if let Some(group) = &self.cgroup {
            // Before `ip`, which mounts another /sys over the one with control groups.
            let group = group.join("cgroup.procs");
            push(&["sh", "-c", "echo $$ >\"$0\" && exec \"$@\"", &group.display().to_string()]);
        }
        push(&["ip", "netns", "exec", namespace]);
        if let Some(cpus) = &self.cpus {
            push(&["taskset", "-c", cpus]);
        }
        if let Some(nice) = self.nice {
            push(&["nice", "-n", &nice.to_string()]);
        }
        if let Some(fifo) = self.fifo {
            push(&["chrt", "-f", &fifo.to_string()]);
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(program);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// A target.
#[derive(Clone, Debug)]
pub struct Serve {
    pub(super) arguments: Vec<String>,
    pub(super) around: Surroundings,
    /// The program, if it is not `spangap target`.
    pub(super) script: Option<Script>,
    /// Listening port.
    pub(super) port: u16,
}

/// A script as the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    Python,
    Node,
}

impl Serve {
    /// A stack of `spangap target`.
    pub fn stack(stack: &str) -> Serve {
        let arguments = vec!["--stack".into(), stack.into()];
        Serve { arguments, around: Surroundings::default(), script: None, port: PORT }
    }

    /// The server in Python, with its arguments.
    pub fn python(arguments: &[&str]) -> Serve {
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        Serve { arguments, around: Surroundings::default(), script: Some(Script::Python), port: PORT }
    }

    /// The server in Node, with its arguments.
    pub fn node(arguments: &[&str]) -> Serve {
        Serve { script: Some(Script::Node), ..Serve::python(arguments) }
    }

    /// Behind the proxy of [`super::Stage::proxy`]. Only for a script.
    pub fn behind_proxy(self) -> Serve {
        Serve { port: BEHIND_PORT, ..self }
    }

    /// Adds arguments of `spangap target`.
    pub fn with(mut self, arguments: &[&str]) -> Serve {
        self.arguments.extend(arguments.iter().map(|word| (*word).to_owned()));
        self
    }

    /// Sets the time that each call takes.
    pub fn think(self, time: Duration) -> Serve {
        self.with(&["--think", &text(time)])
    }

    /// Sets the surroundings.
    pub fn around(mut self, around: Surroundings) -> Serve {
        self.around = around;
        self
    }
}

#[derive(Clone, Debug)]
pub struct Tank {
    pub(super) stack: String,
    pub(super) arguments: Vec<String>,
    pub(super) warmup: Duration,
    pub(super) duration: Duration,
    pub(super) around: Surroundings,
    /// Whether it is the client in Python.
    pub(super) python: bool,
}

impl Tank {
    /// A stack of `spangap tank`, for this duration after a warm-up of one second.
    pub fn stack(stack: &str, duration: Duration) -> Tank {
        let (warmup, around) = (Duration::from_secs(1), Surroundings::default());
        Tank { stack: stack.into(), arguments: Vec::new(), warmup, duration, around, python: false }
    }

    /// The client in Python, with its arguments.
    pub fn python(duration: Duration) -> Tank {
        Tank { python: true, ..Tank::stack("python", duration) }
    }

    /// Adds arguments of `spangap tank`.
    pub fn with(mut self, arguments: &[&str]) -> Tank {
        self.arguments.extend(arguments.iter().map(|word| (*word).to_owned()));
        self
    }

    /// Open loop: this many calls per second.
    pub fn rate(self, per_s: u64) -> Tank {
        self.with(&["--rate", &per_s.to_string()])
    }

    /// Closed loop: this many calls in flight.
    pub fn in_flight(self, calls: u64) -> Tank {
        self.with(&["--inflight", &calls.to_string()])
    }

    /// Sets the warm-up. Recordings of the client begin within it.
    pub fn warmup(mut self, warmup: Duration) -> Tank {
        self.warmup = warmup;
        self
    }

    /// Sets the surroundings.
    pub fn around(mut self, around: Surroundings) -> Tank {
        self.around = around;
        self
    }
}

/// In the syntax of `spangap`.
pub fn text(duration: Duration) -> String {
    format!("{}us", duration.as_micros())
}

//! What serves and what calls, as a scenario asks for it.

use super::PORT;
use super::between::BEHIND_PORT;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What surrounds a program: where it may run, and under which conditions.
#[derive(Clone, Debug, Default)]
pub struct Around {
    /// CPUs, as `taskset -c` takes them.
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

impl Around {
    /// Runs on these CPUs.
    pub fn on_cpus(cpus: &str) -> Around {
        Around { cpus: Some(cpus.to_owned()), ..Around::default() }
    }

    /// The words in front of a program: each is a program that becomes the next one. `namespace` is the host.
    pub(super) fn command(&self, namespace: &str, program: &Path) -> Command {
        let mut words: Vec<String> = Vec::new();
        let mut push = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
        if let Some(group) = &self.cgroup {
            // Before `ip`, which puts another /sys over the one with control groups.
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
    pub(super) around: Around,
    /// The program, where it is none of `spangap target`.
    pub(super) script: Option<Script>,
    /// Where it listens.
    pub(super) port: u16,
}

/// A server as people write them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    Python,
    Node,
}

impl Serve {
    /// Of a stack of `spangap target`.
    pub fn stack(stack: &str) -> Serve {
        let arguments = vec!["--stack".into(), stack.into()];
        Serve { arguments, around: Around::default(), script: None, port: PORT }
    }

    /// The server in Python, with these arguments of its own.
    pub fn python(arguments: &[&str]) -> Serve {
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        Serve { arguments, around: Around::default(), script: Some(Script::Python), port: PORT }
    }

    /// The server in Node, with these arguments of its own.
    pub fn node(arguments: &[&str]) -> Serve {
        Serve { script: Some(Script::Node), ..Serve::python(arguments) }
    }

    /// Behind the proxy of [`super::Stage::proxy`]. Only of a script.
    pub fn behind_proxy(self) -> Serve {
        Serve { port: BEHIND_PORT, ..self }
    }

    /// With more arguments of `spangap target`.
    pub fn with(mut self, arguments: &[&str]) -> Serve {
        self.arguments.extend(arguments.iter().map(|word| (*word).to_owned()));
        self
    }

    /// That takes so long for each call.
    pub fn think(self, time: Duration) -> Serve {
        self.with(&["--think", &text(time)])
    }

    /// Under these conditions.
    pub fn around(mut self, around: Around) -> Serve {
        self.around = around;
        self
    }
}

/// A tank.
#[derive(Clone, Debug)]
pub struct Tank {
    pub(super) stack: String,
    pub(super) arguments: Vec<String>,
    pub(super) warmup: Duration,
    pub(super) duration: Duration,
    pub(super) around: Around,
    /// Whether it is the client in Python.
    pub(super) python: bool,
}

impl Tank {
    /// Of a stack of `spangap tank`, for so long after a second of warming up.
    pub fn stack(stack: &str, duration: Duration) -> Tank {
        let (warmup, around) = (Duration::from_secs(1), Around::default());
        Tank { stack: stack.into(), arguments: Vec::new(), warmup, duration, around, python: false }
    }

    /// The client in Python, with arguments of its own.
    pub fn python(duration: Duration) -> Tank {
        Tank { python: true, ..Tank::stack("python", duration) }
    }

    /// With more arguments of `spangap tank`.
    pub fn with(mut self, arguments: &[&str]) -> Tank {
        self.arguments.extend(arguments.iter().map(|word| (*word).to_owned()));
        self
    }

    /// So many calls a second, whatever becomes of those before.
    pub fn rate(self, per_s: u64) -> Tank {
        self.with(&["--rate", &per_s.to_string()])
    }

    /// So many calls under way at any time.
    pub fn in_flight(self, calls: u64) -> Tank {
        self.with(&["--inflight", &calls.to_string()])
    }

    /// With another time to warm up. Recordings of the client begin within it.
    pub fn warmup(mut self, warmup: Duration) -> Tank {
        self.warmup = warmup;
        self
    }

    /// Under these conditions.
    pub fn around(mut self, around: Around) -> Tank {
        self.around = around;
        self
    }
}

/// As `spangap` takes durations.
pub fn text(duration: Duration) -> String {
    format!("{}us", duration.as_micros())
}

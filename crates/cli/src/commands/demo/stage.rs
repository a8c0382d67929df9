//! Two hosts on this machine with an agent each, a target and a tank, undone however it ends.

use super::door::{self, INSIDE};
use super::fault::{Fault, RATE, TANKS};
use anyhow::Context;
use rustix::process::Signal;
use spangap_lab::hosts::{self, Hosts};
use spangap_lab::stage::{PATIENCE, PORT, Program};
use spangap_lab::undo::Undo;
use spangap_lab::undo::journal::MARK;
use spangap_model::Side;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

/// Where journals are, as those of the lab.
const STATE: &str = "/run/spangap/lab";

/// All of it. What runs is killed when this is dropped; [`Stage::end`] undoes the rest.
pub struct Stage {
    /// The two hosts.
    pub hosts: Hosts,
    /// Set by Ctrl-C.
    pub interrupted: Arc<AtomicBool>,
    spangap: PathBuf,
    programs: Vec<(&'static str, Program)>,
    folder: TempDir,
    undo: Undo,
}

impl Stage {
    /// Two hosts, and a way from each to the meter.
    pub fn make(meter: SocketAddr, interrupted: Arc<AtomicBool>) -> anyhow::Result<Stage> {
        let spangap = std::env::current_exe().context("cannot find this program's own file")?;
        let folder =
            tempfile::Builder::new().prefix("spangap-demo-").tempdir().context("cannot make a folder")?;
        let mut undo = Undo::kept(Path::new(STATE), &spangap)?;
        let hosts = Hosts::make(&mut undo)?;
        let stage = Stage { hosts, interrupted, spangap, programs: Vec::new(), folder, undo };
        stage.hosts.cable()?;
        for side in Side::ALL {
            door::open(stage.hosts.name(side), meter)?;
        }
        Ok(stage)
    }

    /// `spangap` on a host, with programs in front of it.
    pub fn on(&self, side: Side, around: &[&str], arguments: &[&str]) -> Command {
        // Into the network namespace alone: `ip netns exec` would hide the names of control groups.
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.hosts.name(side))).args(around);
        command.arg(&self.spangap).args(arguments).env(MARK, self.undo.id());
        command
    }

    fn start(&mut self, name: &'static str, command: Command) -> anyhow::Result<&mut Program> {
        let program = Program::start(name, command, self.folder.path())?;
        self.programs.push((name, program));
        let (_, program) = self.programs.last_mut().context("it has just been put there")?;
        Ok(program)
    }

    /// An agent on each host.
    pub fn agents(&mut self) -> anyhow::Result<()> {
        let meter = format!("http://{INSIDE}");
        for (side, name) in Side::ALL.into_iter().zip(["agent-client", "agent-server"]) {
            // Both share this machine, and the rest of it is not theirs.
            let arguments = ["agent", "--meter", &meter, "--memory", "128MiB", "--cpu", "25%"];
            let (audit, journal) = (format!("{name}.audit.jsonl"), format!("{name}.journals"));
            let mut command = self.on(side, &[], &arguments);
            command.args(["--allow", "sockets", "--audit"]).arg(self.folder.path().join(audit));
            command.arg("--journal").arg(self.folder.path().join(journal));
            self.start(name, command)?;
        }
        Ok(())
    }

    /// Target and tanks.
    pub fn calls(&mut self, fault: Fault) -> anyhow::Result<()> {
        let (tank, target) = fault.arguments();
        let (meter, listen) = (format!("http://{INSIDE}"), format!("0.0.0.0:{PORT}"));
        let arguments = [&["target", "--listen", &listen, "--otlp", &meter], target].concat();
        let command = self.on(Side::Server, fault.around_target(), &arguments);
        let interrupted = self.interrupted.clone();
        self.start("target", command)?.says("listening on ", PATIENCE, &interrupted)?;
        let address = format!("{}:{PORT}", hosts::SERVER);
        let arguments = ["tank", &address, "--otlp", &meter, "--rate", RATE];
        for name in TANKS {
            let command = self.on(Side::Client, &[], &[&arguments[..], tank].concat());
            self.start(name, command)?;
        }
        Ok(())
    }

    /// One of the lab's small programs, on the server's host.
    pub fn actor(&mut self, around: &[&str], arguments: &[&str]) -> anyhow::Result<()> {
        let command = self.on(Side::Server, around, &[&["lab", "actor"], arguments].concat());
        let interrupted = self.interrupted.clone();
        self.start("fault", command)?.says("ready", PATIENCE, &interrupted)?;
        Ok(())
    }

    fn pid(&self, name: &str) -> anyhow::Result<u32> {
        let found = self.programs.iter().find(|(of, _)| *of == name);
        found.map(|(_, program)| program.pid()).with_context(|| format!("there is no {name}"))
    }

    /// The process that serves: every program in front of it becomes the next one.
    pub fn target_pid(&self) -> anyhow::Result<u32> {
        self.pid("target")
    }

    /// What a program of the stage has complained about, in a line; nothing while it runs.
    pub fn ended(&mut self) -> Option<String> {
        self.programs.iter_mut().find_map(|(name, program)| {
            let status = program.ended().ok()??;
            let said = program.err();
            let last = said.lines().last().unwrap_or("without a word").to_owned();
            Some(format!("{name} has ended ({status}): {last}"))
        })
    }

    /// Ends all, the fault first, and undoes what was made.
    pub fn end(mut self) -> anyhow::Result<()> {
        while let Some((_, mut program)) = self.programs.pop() {
            // Actors end with their standard input, the others by a signal; one that does neither is killed.
            if program.let_go(std::time::Duration::from_millis(500)).is_err() {
                let _ = program.end(Signal::TERM, std::time::Duration::from_secs(5));
            }
        }
        self.undo.everything()?;
        Ok(())
    }
}

//! Two hosts on this machine with an agent each, a target and a tank, undone however it ends.

use super::door::{self, INSIDE};
use super::fault::{Fault, Link, Scene};
use crate::temporary::Temporary;
use anyhow::Context;
use rustix::process::Signal;
use spangap_lab::hosts::{self, DEVICE, Hosts};
use spangap_lab::stage::cgroup::Group;
use spangap_lab::stage::{Apart, PATIENCE, PORT, Program};
use spangap_lab::undo::MARK;
use spangap_lab::undo::Undo;
use spangap_model::Side;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Where journals are, as those of the lab.
const STATE: &str = "/run/spangap/lab";
/// Puts the `/sys` of this network namespace over the one that is there, with the control groups of that one: they are on
/// descriptor 9. For the agent of the server's host, which may be told to change where packets are handled.
const OWN_SYS: &str = "exec 9</sys/fs/cgroup && mount -t sysfs sysfs /sys && \
    mount --no-canonicalize --rbind /proc/self/fd/9 /sys/fs/cgroup && exec 9<&- && exec \"$@\"";
/// The line between the hosts, where there is one.
const LINE: &str = "line";

/// All of it. What runs is killed when this is dropped; [`Stage::end`] undoes the rest.
pub struct Stage {
    /// The two hosts.
    pub hosts: Hosts,
    /// What is made of this machine.
    pub undo: Undo,
    /// The control group of what runs on the server's host, if it is to be in one.
    pub group: Option<Group>,
    /// Variables of each tank.
    pub tank_environment: Vec<(String, String)>,
    interrupted: Arc<AtomicBool>,
    spangap: PathBuf,
    apart: Apart,
    programs: Vec<(String, Program)>,
    folder: Temporary,
}

impl Stage {
    /// Two hosts, and a way from each to the meter.
    pub fn make(meter: SocketAddr, fault: Fault, interrupted: Arc<AtomicBool>) -> anyhow::Result<Stage> {
        let spangap = std::env::current_exe().context("cannot find this program's own file")?;
        let folder = Temporary::new("spangap.demo-").context("cannot make a folder")?;
        let scene = fault.scene();
        let apart = if scene.real_time { Apart::find_in_real_time() } else { Apart::find() }?;
        let mut undo = Undo::kept(Path::new(STATE), &spangap)?;
        let hosts = Hosts::make(&mut undo)?;
        let (programs, tank_environment) = (Vec::new(), Vec::new());
        let mut stage = Stage {
            hosts,
            undo,
            group: None,
            tank_environment,
            interrupted,
            spangap,
            apart,
            programs,
            folder,
        };
        match scene.link {
            Link::Cable => stage.hosts.cable()?,
            Link::Line(usual) => {
                stage.hosts.tun()?;
                stage.line(usual)?;
            }
        }
        for side in Side::ALL {
            door::open(stage.hosts.name(side), meter)?;
        }
        fault.prepare(&mut stage)?;
        Ok(stage)
    }

    /// Folder for the files of the programs and of others.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Number of the CPU that is a side's where the ends are apart.
    pub fn cpu(&self, side: Side) -> usize {
        self.apart.of(side)
    }

    /// A line between the hosts with these flags, replacing the current one.
    pub fn line(&mut self, flags: &[&str]) -> anyhow::Result<()> {
        if let Some(at) = self.programs.iter().position(|(name, _)| name == LINE) {
            let (_, mut before) = self.programs.remove(at);
            before.let_go(PATIENCE)?;
        }
        // A network that waits for a CPU would be slower than requested.
        let mut command = Command::new("chrt");
        command.args(["-f", "6"]).arg(&self.spangap).args(["lab", "actor", "line"]).args(flags);
        for side in Side::ALL {
            command.args([self.hosts.name(side), DEVICE]);
        }
        command.env(MARK, self.undo.id());
        let interrupted = self.interrupted.clone();
        self.start(LINE, command)?.says("ready", PATIENCE, &interrupted)?;
        Ok(())
    }

    /// `spangap` on a host, with programs in front of it.
    pub fn on(&self, side: Side, around: &[&str], arguments: &[&str]) -> Command {
        // Into the network namespace alone: `ip netns exec` would hide the names of control groups.
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.hosts.name(side))).args(around);
        command.arg(&self.spangap).args(arguments).env(MARK, self.undo.id());
        command
    }

    fn start(&mut self, name: &str, command: Command) -> anyhow::Result<&mut Program> {
        let program =
            Program::start(&format!("{name}-{}", self.programs.len()), command, self.folder.path())?;
        self.programs.push((name.to_owned(), program));
        let (_, program) = self.programs.last_mut().context("it has just been put there")?;
        Ok(program)
    }

    /// An agent on each host.
    pub fn agents(&mut self) -> anyhow::Result<()> {
        let meter = format!("http://{INSIDE}");
        for (side, name) in Side::ALL.into_iter().zip(["agent-client", "agent-server"]) {
            // Both share this machine, and the rest of it is not theirs.
            let arguments = ["agent", "--meter", &meter, "--cpu", "25%"];
            let (audit, journal) = (format!("{name}.audit.jsonl"), format!("{name}.journals"));
            let mut command = self.on(side, &["unshare", "--mount", "sh", "-c", OWN_SYS, "sh"], &arguments);
            command.args(["--allow", "sockets,isolate", "--audit"]).arg(self.folder.path().join(audit));
            command.arg("--journal").arg(self.folder.path().join(journal));
            self.start(name, command)?;
        }
        Ok(())
    }

    /// Target and tanks.
    pub fn calls(&mut self, scene: &Scene) -> anyhow::Result<()> {
        let (meter, listen) = (format!("http://{INSIDE}"), format!("0.0.0.0:{PORT}"));
        let arguments = [&["target", "--listen", &listen, "--otlp", &meter], scene.target].concat();
        let around = self.around(Side::Server, scene);
        let around: Vec<&str> = around.iter().map(String::as_str).collect();
        let command = self.on(Side::Server, &around, &arguments);
        let interrupted = self.interrupted.clone();
        self.start("target", command)?.says("listening on ", PATIENCE, &interrupted)?;
        for _ in 0..scene.tanks {
            self.tank("tank", scene.load, scene)?;
        }
        Ok(())
    }

    /// A tank that calls the target in this way.
    pub fn tank(&mut self, name: &str, how: &[&str], scene: &Scene) -> anyhow::Result<()> {
        let (meter, address) = (format!("http://{INSIDE}"), format!("{}:{PORT}", hosts::SERVER));
        let arguments = [&["tank", &address, "--otlp", &meter], how, scene.tank].concat();
        let around = self.around(Side::Client, scene);
        let around: Vec<&str> = around.iter().map(String::as_str).collect();
        let mut command = self.on(Side::Client, &around, &arguments);
        command.envs(self.tank_environment.iter().map(|(name, value)| (name, value)));
        self.start(name, command)?;
        Ok(())
    }

    /// One of the lab's small programs, on a host.
    pub fn actor(&mut self, side: Side, around: &[&str], arguments: &[&str]) -> anyhow::Result<()> {
        let command = self.on(side, around, &[&["lab", "actor"], arguments].concat());
        let interrupted = self.interrupted.clone();
        self.start("fault", command)?.says("ready", PATIENCE, &interrupted)?;
        Ok(())
    }

    /// The process of the first program of this name: every program in front of it becomes the next one.
    pub fn pid(&self, name: &str) -> anyhow::Result<u32> {
        let found = self.programs.iter().find(|(of, _)| *of == name);
        found.map(|(_, program)| program.pid()).with_context(|| format!("there is no {name}"))
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
            if program.let_go(Duration::from_millis(500)).is_err() {
                let _ = program.end(Signal::TERM, Duration::from_secs(5));
            }
        }
        self.undo.everything()?;
        Ok(())
    }
}

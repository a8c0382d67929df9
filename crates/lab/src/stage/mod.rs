//! The stage of a scenario: two hosts, a target, a tank, and all recordings.
//!
//! A scenario uses it in this order: [`Stage::cable`] (or another link), [`Stage::serve`], [`Stage::call`], its
//! own fault, [`Stage::end`].

pub mod cgroup;
pub mod cpus;
mod priority;
pub mod program;
pub mod python;
mod settings;
mod third_party;
pub mod traffic;
mod variation;

pub use cgroup::{Group, Quota};
pub use cpus::Apart;
pub use program::Program;
pub use settings::RunSettings;
pub use traffic::{Serve, Surroundings, Tank};

use crate::LabError;
use crate::calls::Calls;
use crate::counters::{Tcp, Watch, run_delay_ns};
use crate::folder::{self, Recorded};
use crate::host_clock::{HostClock, now_unix_ns};
use crate::hosts::{self, Hosts};
use crate::pauses::Witness;
use crate::truth::{Active, LineKind, MachineNoise, Second};
use crate::undo::MARK;
use crate::undo::Undo;
use rustix::process::Signal;
use spangap_model::Side;
use spangap_model::duration::format_ns;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Port of the target, on the server's host.
pub const PORT: u16 = 50051;
/// Port of the target behind a proxy on its host.
pub const BEHIND_PORT: u16 = 50053;
/// Time limit for actions that are immediate on a machine that is not overloaded.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Destination of spans, on either host.
const COLLECTOR: &str = "127.0.0.1:4317";

/// A recording program per side, and the start of its recording.
type BothSides = [Option<(Program, u64)>; 2];

/// One run. Programs not ended by [`Stage::end`] are killed on drop.
pub struct Stage<'a> {
    settings: &'a RunSettings<'a>,
    /// Changes to the machine. Owned by the run, which undoes them after the programs of this stage have ended.
    pub undo: &'a mut Undo,
    /// Files of this run.
    folder: PathBuf,
    pub(crate) hosts: Option<Hosts>,
    /// Implementation of the line between the hosts, if there is one.
    pub(crate) line: Option<LineKind>,
    target: Option<Program>,
    tank: Option<(Program, Duration)>,
    client: Option<u32>,
    collectors: BothSides,
    captures: BothSides,
    recordings: BothSides,
    actors: Vec<(String, Program)>,
    /// Background noise.
    ambient: Vec<Program>,
    /// Process of the proxy in front of the target, if there is one.
    proxy: Option<u32>,
    /// The program of the second fault, and later its effects: when, and on which calls.
    stops: Option<Program>,
    stopped: Option<Vec<Active>>,
    second: Option<(Second, u64)>,
    /// Run-queue waits of the client, of the server, and of the line.
    waits: Option<[Option<Watch>; 3]>,
    beside: Option<MachineNoise>,
    not_recorded: Vec<String>,
    recorded: Vec<Recorded>,
    clocks: Vec<HostClock>,
    began_unix_ns: u64,
    witness: Option<Witness>,
    pauses: Vec<Active>,
}

impl<'a> Stage<'a> {
    /// An empty stage over an existing folder.
    pub(crate) fn new(settings: &'a RunSettings<'a>, undo: &'a mut Undo, folder: PathBuf) -> Stage<'a> {
        Stage {
            settings,
            undo,
            folder,
            hosts: None,
            line: None,
            target: None,
            tank: None,
            client: None,
            collectors: BothSides::default(),
            captures: BothSides::default(),
            recordings: BothSides::default(),
            actors: Vec::new(),
            ambient: Vec::new(),
            proxy: None,
            stops: None,
            stopped: None,
            second: None,
            waits: None,
            beside: None,
            not_recorded: Vec::new(),
            recorded: Vec::new(),
            clocks: settings.clocks.clone(),
            began_unix_ns: now_unix_ns(),
            witness: None,
            pauses: Vec::new(),
        }
    }

    /// Two hosts with a cable between them.
    ///
    /// # Errors
    /// They cannot be created.
    pub fn cable(&mut self) -> Result<(), LabError> {
        let hosts = Hosts::make(self.undo)?;
        hosts.cable()?;
        self.hosts = Some(hosts);
        Ok(())
    }

    /// The hosts.
    ///
    /// # Panics
    /// The scenario has created none: a bug in its own file.
    pub fn hosts(&self) -> &Hosts {
        self.hosts.as_ref().expect("a scenario makes its hosts first")
    }

    /// A file of this run.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Seed of random choices.
    pub fn seed(&self) -> u64 {
        self.settings.seed
    }

    /// Sets the clock of a host: `offset_ns` ahead of this machine's at the start of the run, with a drift of
    /// `skew_ppm` from then on. Recordings of the host are rewritten at the end; the scenario itself, the calls
    /// that [`Stage::end`] returns and the truth stay in this machine's clock. The user's setting takes
    /// precedence.
    pub fn clock(&mut self, side: Side, offset_ns: i64, skew_ppm: f64) {
        if !self.clocks.iter().any(|one| one.side == side) {
            self.clocks.push(HostClock { side, offset_ns, skew_ppm });
        }
    }

    /// Clocks that differ.
    pub fn clocks(&self) -> &[HostClock] {
        &self.clocks
    }

    /// When the run began, nanoseconds since 1970.
    pub fn began_unix_ns(&self) -> u64 {
        self.began_unix_ns
    }

    /// A command on a host.
    pub fn on(&self, side: Side, around: &Surroundings, program: &Path) -> Command {
        let mut command = around.command(self.hosts().name(side), program);
        command.env(MARK, self.undo.id());
        command
    }

    /// The same, for `spangap` itself.
    fn spangap_on(&self, side: Side, around: &Surroundings, arguments: &[&str]) -> Command {
        let mut command = self.on(side, around, &self.settings.spangap);
        command.args(arguments);
        command
    }

    /// Starts the target on the server's host; from here on, spans, packets and the host are recorded.
    ///
    /// # Errors
    /// The target does not listen.
    pub fn serve(&mut self, serve: &Serve) -> Result<(), LabError> {
        (self.settings.say)("starting what serves and what records");
        let serve = &self.serve_as_drawn(serve);
        let mut target = match serve.script {
            Some(script) => self.start_script(serve, script)?,
            None => {
                let (listen, otlp) = (format!("{}:{PORT}", hosts::SERVER), format!("http://{COLLECTOR}"));
                let words = ["target", "--listen", &listen, "--otlp", &otlp];
                let mut command = self.spangap_on(Side::Server, &serve.around, &words);
                command.args(&serve.arguments);
                Program::start("target", command, &self.folder)?
            }
        };
        // All at once: each takes a while to start, and none depends on another.
        let mut started = Vec::new();
        for side in [Side::Server, Side::Client] {
            // A program that writes its spans itself sends none.
            let collector = if serve.script.is_some() { None } else { Some(self.collect(side)?) };
            started.push((side, collector, self.capture(side)?));
        }
        for (side, collector, mut capture) in started {
            if let Some(mut collector) = collector {
                collector.says("ready", PATIENCE, &self.settings.interrupted)?;
                self.collectors[side.index()] = Some((collector, now_unix_ns()));
            }
            capture.says("capturing ", PATIENCE, &self.settings.interrupted)?;
            self.captures[side.index()] = Some((capture, now_unix_ns()));
        }
        target.says("listening on ", PATIENCE, &self.settings.interrupted)?;
        let pid = if serve.script.is_some() { target.pid() } else { served_by(&target, &serve.arguments)? };
        priority::shipping(pid, &serve.around)?;
        self.target = Some(target);
        self.record(Side::Server, pid)
    }

    /// Starts the calls from the client's host. Returns once the client runs and is recorded, still in its
    /// warm-up.
    ///
    /// # Errors
    /// The tank does not get that far.
    pub fn call(&mut self, tank: &Tank) -> Result<(), LabError> {
        self.witness = Some(Witness::start());
        let tank = &self.tank_as_drawn(tank);
        let client = match tank.python {
            true => {
                let mut program = self.start_python_client(tank)?;
                program.says("calling", PATIENCE, &self.settings.interrupted)?;
                let pid = program.pid();
                self.tank = Some((program, tank.warmup + tank.duration));
                Some(pid)
            }
            false => self.start_tank(tank)?,
        };
        let Some(client) = client else { return self.wait_for_tank() };
        self.client = Some(client);
        self.record(Side::Client, client)?;
        let line = self.actors.iter().find(|(name, _)| name == "line").map(|(_, program)| program.pid());
        let watch = |pid| Watch::start(move || run_delay_ns(pid));
        self.waits = Some([Some(client), Some(self.server_pid()), line].map(|pid| pid.map(watch)));
        self.make_noise()?;
        let ns = u64::try_from((tank.warmup + tank.duration).as_nanos()).unwrap_or(u64::MAX);
        (self.settings.say)(&format!("calling for {}", format_ns(ns)));
        Ok(())
    }

    /// Starts the tank, and waits for its client program; `None` if it has ended before.
    fn start_tank(&mut self, tank: &Tank) -> Result<Option<u32>, LabError> {
        let address = format!("{}:{PORT}", hosts::SERVER);
        let (warmup, duration) = (traffic::text(tank.warmup), traffic::text(tank.duration));
        let otlp = format!("http://{COLLECTOR}");
        // Nobody reads what raw ping-pong would take here, and everything is being recorded meanwhile.
        let arguments = ["tank", &address, "--stack", &tank.stack, "--otlp", &otlp, "--json", "--no-floor"];
        let mut command = self.spangap_on(Side::Client, &tank.around, &arguments);
        command.args(["--warmup", &warmup, "--duration", &duration]).args(&tank.arguments);
        let program = Program::start("tank", command, &self.folder)?;
        let pid = program.pid();
        self.tank = Some((program, tank.warmup + tank.duration));
        let told = format!("--target={address}");
        let client = program::until("the client of the tank", PATIENCE, &self.settings.interrupted, || {
            // It ended before it called; the wait for its end reports why.
            if !Path::new(&format!("/proc/{pid}")).exists() {
                return Some(None);
            }
            children(pid).into_iter().find(|child| arguments_of(*child).contains(&told)).map(Some)
        })?;
        if client.is_some() {
            priority::conductor(pid, &tank.around)?;
        }
        Ok(client)
    }

    /// Process id of the serving program.
    ///
    /// # Panics
    /// Nothing serves yet: a bug of the scenario.
    pub fn server_pid(&self) -> u32 {
        let target = self.target.as_ref().expect("a scenario serves first");
        children(target.pid()).into_iter().next().unwrap_or(target.pid())
    }

    /// Process id of the calling program.
    ///
    /// # Panics
    /// Nothing calls yet: a bug of the scenario.
    pub fn client_pid(&self) -> u32 {
        self.client.expect("a scenario calls first")
    }

    /// TCP counters of a host, even if nothing runs there any more.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn tcp(&self, side: Side) -> Result<Tcp, LabError> {
        Tcp::of_host(self.hosts().name(side))
    }

    /// Starts an actor (`actors/`) on a host, and waits until it prints `ready`. It runs until
    /// [`Stage::end_actor`], or the end.
    ///
    /// # Errors
    /// It does not become ready, or the calls have ended by then.
    pub fn actor(
        &mut self,
        side: Side,
        around: &Surroundings,
        name: &str,
        arguments: &[&str],
    ) -> Result<u32, LabError> {
        let mut command = self.spangap_on(side, around, &["lab", "actor", name]);
        command.args(arguments);
        let number = self.actors.len();
        let mut program = Program::start(&format!("{name}-{number}"), command, &self.folder)?;
        if let Err(error) = program.says("ready", PATIENCE, &self.settings.interrupted) {
            let is_over = self.client.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
            return Err(if is_over { LabError::TooLate { actor: name.to_owned() } } else { error });
        }
        let pid = program.pid();
        self.actors.push((name.to_owned(), program));
        Ok(pid)
    }

    /// Ends an actor, and returns its output.
    ///
    /// # Errors
    /// It fails.
    pub fn end_actor(&mut self, name: &str) -> Result<String, LabError> {
        let at = self.actors.iter().position(|(other, _)| other == name);
        let (_, mut program) = self.actors.remove(at.expect("a scenario ends what it has started"));
        program.let_go(PATIENCE)?;
        Ok(program.out())
    }

    /// Waits for the tank, ends everything in order, and reads the spans. Actors keep running.
    ///
    /// # Errors
    /// A program fails.
    pub fn end(&mut self) -> Result<Calls, LabError> {
        self.wait_for_tank()?;
        self.pauses = self.witness.take().map(Witness::end).unwrap_or_default();
        (self.settings.say)("ending what records");
        self.end_noise()?;
        self.end_recordings()?;
        let tank = self.tank_report()?;
        let from = tank["runs"][0]["start_unix_ns"].as_u64().unwrap_or(0);
        let calls = Calls::read(&self.file(folder::CLIENT_SPANS), &self.file(folder::SERVER_SPANS), from)?;
        self.remember_second(&calls);
        self.remember_waits(&calls);
        Ok(calls)
    }

    /// Ends the recordings of packets and hosts, then the target, whose last spans are still to be collected.
    fn end_recordings(&mut self) -> Result<(), LabError> {
        let ends = now_unix_ns();
        for (program, _) in self.recordings.iter_mut().chain(&mut self.captures).flatten() {
            program.signal(Signal::INT);
        }
        if let Some(target) = &self.target {
            target.signal(Signal::INT);
        }
        let never = AtomicBool::new(false);
        for (program, _) in self.recordings.iter_mut().chain(&mut self.captures).flatten() {
            program.wait(PATIENCE, &never)?;
        }
        if let Some(target) = &mut self.target {
            target.wait(PATIENCE, &never)?;
        }
        for (collector, _) in self.collectors.iter_mut().flatten() {
            collector.let_go(PATIENCE)?;
        }
        for side in [Side::Client, Side::Server] {
            let (at, collected) = (side.index(), now_unix_ns());
            for (programs, file, to_unix_ns) in [
                (&self.collectors, folder::spans(side), collected),
                (&self.captures, folder::capture(side), ends),
                (&self.recordings, folder::recording(side), ends),
            ] {
                let from = programs[at].as_ref().map(|(_, from_unix_ns)| *from_unix_ns);
                self.recorded.extend(from.map(|from_unix_ns| Recorded {
                    file: file.into(),
                    from_unix_ns,
                    to_unix_ns,
                }));
            }
        }
        Ok(())
    }

    /// The tank's report.
    ///
    /// # Errors
    /// It is not JSON.
    pub fn tank_report(&self) -> Result<serde_json::Value, LabError> {
        let path = self.file(folder::TANK);
        let text = fs::read(&path).map_err(LabError::file("read", &path))?;
        serde_json::from_slice(&text)
            .map_err(|error| LabError::program("tank", format!("no report: {error}")))
    }

    /// Maximum number of calls in progress at the target, handled or not, by its own count.
    ///
    /// # Errors
    /// The tank's report lacks it.
    pub fn target_peak(&self) -> Result<f64, LabError> {
        let report = self.tank_report()?;
        let peak = report["runs"][0]["streams"]["target_peak_in_progress"].as_f64();
        peak.ok_or_else(|| {
            LabError::program("tank", "the report lacks the target's own count of calls at once")
        })
    }

    /// Waits for the tank. Everything else keeps running, so that counters can still be read.
    ///
    /// # Errors
    /// It fails.
    pub fn wait_for_tank(&mut self) -> Result<(), LabError> {
        let (tank, duration) = self.tank.as_mut().expect("a scenario calls before it ends");
        tank.wait(*duration + PATIENCE, &self.settings.interrupted)?;
        let path = self.folder.join(folder::TANK);
        fs::write(&path, tank.out()).map_err(LabError::file("write", &path))
    }

    fn collect(&self, side: Side) -> Result<Program, LabError> {
        let arguments = ["lab", "actor", "collect", "--listen", COLLECTOR, "--write", folder::spans(side)];
        let mut command = self.spangap_on(side, &Surroundings::default(), &arguments);
        command.current_dir(&self.folder);
        Program::start(&format!("collect-{}", side.name()), command, &self.folder)
    }

    fn capture(&self, side: Side) -> Result<Program, LabError> {
        // Includes DNS lookups, like an observer who does not know the fault.
        let mut filter = format!("tcp port {PORT} or udp port 53");
        let mut interface = hosts::DEVICE;
        // Who runs a proxy captures on both sides of it.
        if side == Side::Server && self.proxy.is_some() {
            filter += &format!(" or tcp port {BEHIND_PORT}");
            interface = "any";
        }
        let file = folder::capture(side);
        let mut arguments = vec!["capture", "--interface", interface, "--filter", &filter];
        arguments.extend(["--snap", "256KiB", "--write", file]);
        let mut command = self.spangap_on(side, &Surroundings::default(), &arguments);
        command.current_dir(&self.folder);
        Program::start(&format!("capture-{}", side.name()), command, &self.folder)
    }

    /// A kernel that does not permit the recording is not an error: it is noted.
    fn record(&mut self, side: Side, pid: u32) -> Result<(), LabError> {
        let file = folder::recording(side);
        // Enters only the network namespace: `ip netns exec` would hide the names of control groups.
        let space = format!("--net=/run/netns/{}", self.hosts().name(side));
        let mut command = Command::new("nsenter");
        command.arg(space).arg(&self.settings.spangap).env(MARK, self.undo.id());
        // The recording contains the command line, which must not reveal the run's folder and scenario.
        command.current_dir(&self.folder);
        command.args(["host", "record", "--write", file]);
        let proxy = self.proxy.filter(|_| side == Side::Server);
        for pid in std::iter::once(pid).chain(proxy) {
            command.args(["--pid", &pid.to_string()]);
        }
        let mut program = Program::start(&format!("record-{}", side.name()), command, &self.folder)?;
        match program.says("recording into ", PATIENCE, &self.settings.interrupted) {
            Ok(_) => self.recordings[side.index()] = Some((program, now_unix_ns())),
            Err(LabError::Interrupted) => return Err(LabError::Interrupted),
            Err(error) => self.not_recorded.push(format!("{file}: {error}")),
        }
        Ok(())
    }

    /// Pauses of this machine during the calls; available once [`Stage::end`] has ended them.
    pub fn pauses(&self) -> &[Active] {
        &self.pauses
    }

    /// Recordings with their times by this machine's clock; available once [`Stage::end`] has ended them.
    pub fn recorded(&self) -> &[Recorded] {
        &self.recorded
    }

    /// Missing recordings, and why.
    pub fn not_recorded(&self) -> &[String] {
        &self.not_recorded
    }
}

/// `spangap target` itself, or the program that it has started for other stacks.
fn served_by(target: &Program, arguments: &[String]) -> Result<u32, LabError> {
    let own = ["rust", "raw"].iter().any(|stack| arguments.iter().any(|word| word == stack));
    if own {
        return Ok(target.pid());
    }
    let child = children(target.pid()).into_iter().next();
    child.ok_or_else(|| LabError::program("target", "has started no program that serves"))
}

/// Children of all threads of a process.
pub fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn arguments_of(pid: u32) -> Vec<String> {
    let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    text.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

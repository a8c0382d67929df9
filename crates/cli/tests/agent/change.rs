//! Orders to an agent, on a real kernel: sockets of a real client are changed and restored, whichever process
//! is killed meanwhile.

use crate::meter::Meter;
use crate::stage::{CLIENT, Ending, SERVER, Stage, until};
use serde_json::Value;
use spangap_fleet::v1::{
    Connection, Endpoint, Look, Order, SetNodelay, Socket, Stage as Of, Undo, from_meter, order,
};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const CONNECTIONS: usize = 4;

/// A client with connections to a target, an agent beside it, and a meter that gives orders.
pub struct Scene {
    pub stage: Stage,
    meter: Option<Meter>,
    agent: Option<Ending>,
    pub tank: Option<Ending>,
    _target: Ending,
    port: u32,
    session: u64,
    folder: tempfile::TempDir,
    /// The agent's `--allow` flags, if it may change anything.
    allow: &'static str,
}

/// Local ends of the client's sockets with TCP_NODELAY on.
type On = BTreeSet<String>;

impl Scene {
    fn new(allow: bool) -> Option<Scene> {
        Scene::with(if allow { "sockets" } else { "" })
    }

    pub fn with(allow: &'static str) -> Option<Scene> {
        let stage = Stage::new()?;
        let folder = tempfile::tempdir().expect("a folder");
        let meter = Meter::start();
        let (target, address) = stage.target();
        let tank = stage.tank(&address, CONNECTIONS as u32);
        let port = address.rsplit(':').next().expect("a port").parse().expect("a number");
        let mut scene = Scene {
            stage,
            meter: Some(meter),
            agent: None,
            tank: Some(tank),
            _target: target,
            port,
            session: 0,
            folder,
            allow,
        };
        scene.start_agent(!allow.is_empty());
        until("the tank's connections", || (scene.sockets().len() == CONNECTIONS).then_some(()));
        assert_eq!(scene.on(), On::new());
        Some(scene)
    }

    pub fn start_agent(&mut self, allow: bool) {
        let (audit, journals) = (self.path("audit.jsonl"), self.path("journals"));
        let flags = ["--allow", self.allow, "--audit", &audit, "--journal", &journals];
        let port = self.meter().port;
        self.agent = Some(self.stage.agent("client", port, if allow { &flags } else { &[] }));
        // The previous agent's hello is still recorded.
        let hello = until("a new session", || {
            let hello = self.meter().attached(self.netns());
            (hello.session != self.session).then_some(hello)
        });
        self.session = hello.session;
        let mut allows: Vec<&str> = if allow { self.allow.split(',').collect() } else { vec![] };
        allows.sort_unstable();
        assert_eq!(hello.allows, allows);
    }

    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("text").to_owned()
    }

    pub fn meter(&self) -> &Meter {
        self.meter.as_ref().expect("it is there")
    }

    pub fn netns(&self) -> u64 {
        self.stage.netns("client")
    }

    /// The client's sockets, as the kernel reports them.
    fn sockets(&self) -> Vec<Value> {
        let output = self
            .stage
            .on("client", env!("CARGO_BIN_EXE_spangap"))
            .args(["sockets", "list", "--json", "--port", &self.port.to_string()])
            .output()
            .expect("it starts");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let sockets = report["sockets"].as_array().expect("sockets").iter();
        let server = format!("{SERVER}:{}", self.port);
        sockets.filter(|one| one["peer"] == server && one["state"] == "established").cloned().collect()
    }

    fn on(&self) -> On {
        let sockets = self.sockets();
        let on = sockets.iter().filter(|socket| socket["nodelay"] == true);
        on.map(|socket| socket["local"].as_str().expect("an end").to_owned()).collect()
    }

    pub fn order(&self, id: u64, what: order::What) -> Order {
        Order {
            id,
            case: "20261122-tank-target".into(),
            asked_by: "a test".into(),
            server: Some(Endpoint { address: SERVER.into(), port: self.port }),
            accepted: false,
            what: Some(what),
        }
    }

    fn set(&self, id: u64, sockets: &[Socket], for_ms: u32) -> Order {
        let connections = sockets.iter().filter_map(|socket| socket.connection.clone()).collect();
        self.order(id, order::What::Nodelay(SetNodelay { connections, for_ms }))
    }

    /// The sockets that can be changed, once the actuator is ready.
    pub fn look(&self, id: u64) -> Vec<Socket> {
        let mut id = id * 1_000;
        until("the actuator", || {
            id += 1;
            let looked = self.meter().order(self.netns(), self.order(id, order::What::Look(Look {})));
            (looked.stage() == Of::Looked).then_some(looked.sockets)
        })
    }

    /// Changes half of the connections for this long.
    fn changed(&self, id: u64, for_ms: u32) -> On {
        let there = self.look(id);
        assert_eq!(there.len(), CONNECTIONS);
        let half = &there[..CONNECTIONS / 2];
        let report = self.meter().order(self.netns(), self.set(id, half, for_ms));
        assert_eq!((report.stage(), report.error.as_str()), (Of::Changed, ""), "{report:?}");
        assert!(report.sockets.iter().all(|socket| socket.not_changed.is_empty() && socket.pid > 0));
        let meant: On = half.iter().map(|one| one.connection.clone().expect("ends").local).collect();
        meant
    }

    pub fn audit(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path("audit.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("a line is whole")).collect()
    }

    /// Checks that nothing is changed, and that no journal claims otherwise.
    fn all_is_undone(&self) {
        until("the undo", || self.on().is_empty().then_some(()));
        until("the end of the journal", || {
            journals(Path::new(&self.path("journals"))).is_empty().then_some(())
        });
        until("the line of the undo", || {
            self.audit().iter().any(|line| line["event"] == "undone").then_some(())
        });
    }

    /// The agent's process.
    pub fn agent(&self) -> u32 {
        self.agent.as_ref().expect("it is there").0.id()
    }

    /// Ends the meter.
    pub fn end_meter(&mut self) {
        self.meter.take().expect("it is there").end();
    }

    /// Process id of the agent's actuator.
    pub fn actuator(&self) -> u32 {
        child(self.agent(), "agent-actuator")
    }
}

fn journals(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|ending| ending == "journal")).collect()
}

/// A child of this process whose command line contains this word.
pub fn child(of: u32, word: &str) -> u32 {
    until(word, || {
        let tasks = std::fs::read_dir(format!("/proc/{of}/task")).ok()?.flatten();
        let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        let lists: Vec<String> = lists.collect();
        let mut children = lists.iter().flat_map(|list| list.split_whitespace());
        children.find_map(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            line.split(|byte| *byte == 0).any(|one| one == word.as_bytes()).then(|| pid.parse().ok())?
        })
    })
}

pub fn kill(pid: u32) {
    let done = Command::new("kill").args(["-s", "KILL", &pid.to_string()]).status().expect("kill starts");
    assert!(done.success());
}

#[test]
fn without_allow_no_message_makes_an_agent_change_anything() {
    let Some(scene) = Scene::new(false) else { return };
    let sockets: Vec<Socket> = scene
        .sockets()
        .iter()
        .map(|socket| {
            let end = |name: &str| socket[name].as_str().expect("an end").to_owned();
            Socket {
                connection: Some(Connection { local: end("local"), peer: end("peer") }),
                ..Socket::default()
            }
        })
        .collect();
    let orders = [scene.order(1, order::What::Look(Look {})), scene.set(2, &sockets, 10_000)];
    for order in orders {
        let report = scene.meter().order(scene.netns(), order);
        assert!(report.stage() == Of::Refused && report.error.contains("--allow"), "{report:?}");
    }
    scene.meter().send(scene.netns(), from_meter::What::Undo(Undo { order: 0 }));
    // The answer to the fourth shows that it has read the first three.
    assert_eq!(scene.meter().order(scene.netns(), scene.set(3, &sockets, 1)).stage(), Of::Refused);
    assert_eq!(scene.on(), On::new());
    assert!(scene.audit().is_empty() && journals(Path::new(&scene.path("journals"))).is_empty());
}

#[test]
fn changes_are_made_undone_in_time_and_logged() {
    let Some(scene) = Scene::new(true) else { return };
    let meant = scene.changed(1, 60_000);
    assert_eq!(scene.on(), meant);
    assert_eq!(journals(Path::new(&scene.path("journals"))).len(), 1);
    scene.meter().send(scene.netns(), from_meter::What::Undo(Undo { order: 1 }));
    let undone = scene.meter().reported(scene.netns(), 1, Of::Undone);
    assert_eq!((undone.sockets.len(), undone.error.as_str()), (CONNECTIONS / 2, ""), "{undone:?}");
    scene.all_is_undone();
    // Nobody orders the second one's end.
    scene.changed(2, 500);
    let undone = scene.meter().reported(scene.netns(), 2, Of::Undone);
    assert!(undone.sockets.iter().all(|socket| socket.not_changed.is_empty()), "{undone:?}");
    scene.all_is_undone();
    let audit = scene.audit();
    let events: Vec<&str> = audit.iter().map(|line| line["event"].as_str().expect("text")).collect();
    assert_eq!(events, ["ordered", "changed", "undone", "ordered", "changed", "undone"]);
    for line in &audit {
        let order = &line["order"];
        assert_eq!((&order["case"], &order["asked_by"]), (&"20261122-tank-target".into(), &"a test".into()));
        assert!(order["what"]["option"] == "TCP_NODELAY" && line["unix_ms"].is_u64(), "{line:#}");
        assert_eq!(line["sockets"].as_array().map(Vec::len), Some(CONNECTIONS / 2), "{line:#}");
    }
}

#[test]
fn orders_for_foreign_connections_are_refused_and_logged() {
    let Some(scene) = Scene::new(true) else { return };
    let there = scene.look(1);
    let mut mixed = there.clone();
    mixed.push(Socket {
        connection: Some(Connection { local: format!("{CLIENT}:22"), peer: "10.215.0.9:22".into() }),
        ..Socket::default()
    });
    let report = scene.meter().order(scene.netns(), scene.set(2, &mixed, 10_000));
    assert!(report.stage() == Of::Refused && report.error.contains("10.215.0.9:22"), "{report:?}");
    let gone = Socket {
        connection: Some(Connection {
            local: format!("{CLIENT}:1"),
            peer: format!("{SERVER}:{}", scene.port),
        }),
        ..Socket::default()
    };
    let report = scene.meter().order(scene.netns(), scene.set(3, &[gone], 10_000));
    assert!(
        report.stage() == Of::Refused && report.gone && report.error.contains("none of these"),
        "{report:?}"
    );
    let report = scene.meter().order(scene.netns(), scene.set(4, &there, 61_000));
    assert!(report.stage() == Of::Refused && report.error.contains("at most 60s"), "{report:?}");
    assert_eq!(scene.on(), On::new());
    assert_eq!(scene.audit().iter().filter(|line| line["event"] == "refused").count(), 3);
}

#[test]
fn nothing_is_changed_without_an_audit_log() {
    let Some(mut scene) = Scene::new(true) else { return };
    let there = scene.look(1);
    drop(scene.agent.take());
    let log = scene.path("audit.jsonl");
    let _ = std::fs::remove_file(&log);
    std::fs::create_dir(&log).expect("a folder in its place");
    scene.start_agent(true);
    scene.look(2);
    let report = scene.meter().order(scene.netns(), scene.set(3, &there, 10_000));
    assert!(report.stage() == Of::Refused && report.error.contains("audit log"), "{report:?}");
    assert_eq!(scene.on(), On::new());
}

/// So long that within a test's patience only a process that notices the death undoes it.
const LONG_MS: u32 = 60_000;

#[test]
fn everything_is_undone_whichever_process_is_killed() {
    let Some(mut scene) = Scene::new(true) else { return };
    let agent = |scene: &Scene| scene.agent();
    // Kill the agent: its actuator notices.
    scene.changed(1, LONG_MS);
    kill(agent(&scene));
    scene.all_is_undone();
    scene.start_agent(true);
    // Kill the actuator: the agent starts another one, which undoes what it finds.
    scene.changed(2, LONG_MS);
    kill(scene.actuator());
    let report = scene.meter().reported(scene.netns(), 2, Of::Refused);
    assert!(report.error.contains("the actuator has exited"), "{report:?}");
    scene.all_is_undone();
    // Kill the guard: the actuator undoes the change in time.
    scene.changed(3, LONG_MS);
    kill(child(scene.actuator(), "keep"));
    assert_eq!(scene.meter().reported(scene.netns(), 3, Of::Undone).error, "");
    scene.all_is_undone();
    // Kill agent and actuator: the guard remains, and waits until the time is up.
    scene.changed(4, 3_000);
    let pids = [scene.actuator(), agent(&scene)];
    pids.into_iter().for_each(kill);
    scene.all_is_undone();
    scene.start_agent(true);
    // Kill all three: the journal remains, for the next start.
    let meant = scene.changed(5, LONG_MS);
    let pids = [child(scene.actuator(), "keep"), scene.actuator(), agent(&scene)];
    // The last one first, because each would notice the death of the one before it.
    Command::new("kill").args(["-s", "STOP", &pids[1].to_string()]).status().expect("kill starts");
    pids.into_iter().for_each(kill);
    assert_eq!(scene.on(), meant);
    scene.start_agent(true);
    scene.all_is_undone();
    // Kill the meter: nobody can tell the agent to end the change.
    scene.look(6);
    scene.changed(6, LONG_MS);
    scene.meter.take().expect("it is there").end();
    scene.all_is_undone();
}

#[test]
fn connections_that_end_during_a_change_are_not_failures() {
    let Some(mut scene) = Scene::new(true) else { return };
    scene.changed(1, LONG_MS);
    assert!(scene.tank.take().expect("it runs").end("TERM").is_some());
    until("the end of the connections", || scene.sockets().is_empty().then_some(()));
    scene.meter().send(scene.netns(), from_meter::What::Undo(Undo { order: 1 }));
    let undone = scene.meter().reported(scene.netns(), 1, Of::Undone);
    assert!(undone.error.is_empty() && undone.sockets.iter().all(|socket| !socket.not_changed.is_empty()));
    scene.all_is_undone();
}

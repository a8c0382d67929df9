//! A run killed at many moments, with and without its keeper: nothing is left.

use crate::process::{Ended, Program, until};
use crate::scene::{Scene, changed, keepers, kill, masks, processes, words};
use crate::undo::{Change, undone_wherever_it_is_killed};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// When to kill a run: as soon as this condition holds.
type Moment = (&'static str, fn(&Scene, &str) -> bool);

const MOMENTS: &[Moment] = &[
    ("its keeper is there", |_, _| true),
    ("its journal is there", |scene, _| !scene.journals().is_empty()),
    ("its folder is written down", |scene, id| lines(scene, id) >= 2),
    ("the client's names are written down", |scene, id| lines(scene, id) >= 3),
    ("the client's namespace is written down", |scene, id| lines(scene, id) >= 4),
    ("the client's namespace is there", |_, id| namespace(id, "client")),
    ("the server's names are written down", |scene, id| lines(scene, id) >= 5),
    ("the server's namespace is there", |_, id| namespace(id, "server")),
    ("somebody collects", |scene, id| says(scene, id, "collect-server", "ready")),
    ("the target listens", |scene, id| says(scene, id, "target", "listening on ")),
    ("the tank runs", |_, id| runs(id, "tank")),
    ("the client is recorded", |scene, id| says(scene, id, "record-client", "recording into ")),
    ("the spans are being written", |scene, id| scene.work(id).join("client.spans.json").exists()),
    ("its folder is whole", |scene, _| scene.out().exists()),
];

/// The same for a run with a netem line.
const ON_THE_PATH: &[Moment] = &[
    ("the path's namespace is written down", |scene, id| lines(scene, id) >= 7),
    ("the path's namespace is there", |_, id| namespace(id, "path")),
    ("both ways are delayed", |_, id| delays(id) == 2),
    ("the tank runs", |_, id| runs(id, "tank")),
];

fn lines(scene: &Scene, id: &str) -> usize {
    let journal = fs::read(scene.state().join(format!("{id}.journal"))).unwrap_or_default();
    journal.iter().filter(|byte| **byte == b'\n').count()
}

fn namespace(id: &str, side: &str) -> bool {
    Path::new(&format!("/run/netns/lab-{id}-{side}")).exists()
}

fn says(scene: &Scene, id: &str, program: &str, words: &str) -> bool {
    ["out", "err"].iter().any(|ending| {
        let path = scene.work(id).join(format!("{program}.{ending}"));
        fs::read_to_string(path).unwrap_or_default().contains(words)
    })
}

/// Whether a program of the run, with its marker in its environment, is running this verb.
fn runs(id: &str, verb: &str) -> bool {
    let mark = format!("SPANGAP_LAB={id}");
    processes().into_iter().any(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        words(pid).iter().any(|word| word == verb)
            && environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    })
}

/// Number of netem queues on the path.
fn delays(id: &str) -> usize {
    let shown = Command::new("tc").args(["-n", &format!("lab-{id}-path"), "qdisc", "show"]).output();
    String::from_utf8_lossy(&shown.expect("tc is there").stdout).matches("netem").count()
}

/// Starts a run and stops it at a moment; returns its id.
fn at(scene: &Scene, moment: &Moment) -> (Program, String) {
    stopped(scene, scene.start(), moment)
}

fn stopped(scene: &Scene, run: Program, (name, holds): &Moment) -> (Program, String) {
    let id = until("a keeper", || scene.id());
    until(name, || holds(scene, &id).then_some(()));
    run.signal("STOP");
    (run, id)
}

#[test]
fn a_killed_run_is_undone_by_its_keeper() {
    let before = masks();
    for moment in MOMENTS {
        let Some(scene) = Scene::new() else { return };
        let (run, id) = at(&scene, moment);
        run.signal("KILL");
        assert_eq!(run.wait().code, None);
        until(moment.0, || scene.left(&id).is_empty().then_some(()));
        let cleaned = scene.clean(&[]);
        assert_eq!((cleaned.code, cleaned.out), (Some(0), vec!["nothing was left".to_owned()]));
        println!("killed when {}: nothing is left", moment.0);
    }
    assert_eq!(changed(&before), [""; 0]);
}

/// A run with its id, to be killed.
struct Run {
    scene: Scene,
    /// From before it.
    masks: BTreeMap<PathBuf, String>,
    id: Option<String>,
}

impl Change for Run {
    type Point = When;

    fn state(&mut self) -> Vec<String> {
        let left = self.id.iter().flat_map(|id| self.scene.left(id));
        // Journals are counted.
        changed(&self.masks).into_iter().chain(left.filter(|left| !left.ends_with(".journal"))).collect()
    }

    fn killed_at(&mut self, When(moment): &When) {
        let (run, id) = at(&self.scene, moment);
        keepers(&self.scene.state()).into_iter().for_each(|keeper| kill(keeper, "KILL"));
        run.signal("KILL");
        run.wait();
        // A killed process is there until it gets a CPU to end on.
        until("its keeper has ended", || keepers(&self.scene.state()).is_empty().then_some(()));
        self.id = Some(id);
    }

    fn open_journals(&self) -> usize {
        self.scene.journals().len()
    }

    fn undo(&self) -> Program {
        self.scene.start_clean(&["--json"])
    }

    fn undone(&self, said: &Ended) -> usize {
        let said: Value = serde_json::from_str(&said.out.join(
            "
",
        ))
        .expect("JSON");
        said["runs"].as_array().expect("a list").len()
    }
}

/// A moment by its name.
struct When(&'static Moment);

impl fmt::Debug for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.0)
    }
}

#[test]
fn a_run_killed_with_its_keeper_is_cleaned() {
    let new = || Some(Run { scene: Scene::new()?, masks: masks(), id: None });
    undone_wherever_it_is_killed(new, MOMENTS.iter().map(When));
}

#[test]
fn a_killed_run_with_netem_is_undone_by_its_keeper() {
    const TRIAL: &str = "tc qdisc add dev lo root netem delay 1ms && ip link add name path type bridge";
    let tried = Command::new("unshare").args(["--net", "sh", "-c", TRIAL]).output();
    if !tried.is_ok_and(|output| output.status.success()) {
        println!("not run: it takes root and a kernel with netem and bridges");
        return;
    }
    for moment in ON_THE_PATH {
        let Some(scene) = Scene::new() else { return };
        let (run, id) = stopped(&scene, scene.start_one("network-delay"), moment);
        run.signal("KILL");
        run.wait();
        until(moment.0, || scene.left(&id).is_empty().then_some(()));
        println!("killed when {}: nothing is left", moment.0);
    }
}

#[test]
fn a_run_ends_without_its_keeper() {
    let Some(scene) = Scene::new() else { return };
    let (run, id) = at(&scene, &MOMENTS[5]);
    keepers(&scene.state()).into_iter().for_each(|keeper| kill(keeper, "KILL"));
    run.signal("CONT");
    run.signal("TERM");
    let ended = run.wait();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(scene.left(&id), [""; 0]);
}

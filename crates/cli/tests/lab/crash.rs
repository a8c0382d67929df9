//! A run is killed at many moments, with and without its keeper: nothing is left.

use crate::process::until;
use crate::scene::{Scene, keepers, kill, masks, processes, words};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// When a run is killed: as soon as this holds.
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

/// A program of the run, which has its mark in its environment.
fn runs(id: &str, verb: &str) -> bool {
    let mark = format!("SPANGAP_LAB={id}");
    processes().into_iter().any(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        words(pid).iter().any(|word| word == verb)
            && environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    })
}

/// Starts a run and stops it at a moment; what it is called.
fn at(scene: &Scene, (name, holds): &Moment) -> (crate::process::Program, String) {
    let run = scene.start();
    let id = until("a keeper", || scene.id());
    until(name, || holds(scene, &id).then_some(()));
    run.signal("STOP");
    (run, id)
}

#[test]
fn killed_at_any_moment_its_keeper_undoes_it() {
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
    assert_eq!(masks(), before);
}

#[test]
fn killed_with_its_keeper_it_is_cleaned() {
    let before = masks();
    for moment in MOMENTS {
        let Some(scene) = Scene::new() else { return };
        let (run, id) = at(&scene, moment);
        keepers(&scene.state()).into_iter().for_each(|keeper| kill(keeper, "KILL"));
        run.signal("KILL");
        run.wait();
        let journals = scene.journals().len();
        // A program that was just being started has the journal open a moment longer.
        let cleaned = until("free to be cleaned", || {
            let cleaned = scene.clean(&["--json"]);
            assert_eq!(cleaned.code, Some(0), "{cleaned:?}");
            let cleaned: Value = serde_json::from_str(&cleaned.out.join("\n")).expect("JSON");
            cleaned["going_on"].as_array().expect("a list").is_empty().then_some(cleaned)
        });
        assert_eq!(cleaned["runs"].as_array().map(Vec::len), Some(journals), "{cleaned:#}");
        assert_eq!(scene.left(&id), [""; 0], "{}: {cleaned:#}", moment.0);
        let again = scene.clean(&[]);
        assert_eq!((again.code, again.out), (Some(0), vec!["nothing was left".to_owned()]));
        println!("killed with its keeper when {}: {}", moment.0, cleaned["runs"]);
    }
    assert_eq!(masks(), before);
}

#[test]
fn a_keeper_that_is_gone_is_not_missed_by_a_run_that_ends() {
    let Some(scene) = Scene::new() else { return };
    let (run, id) = at(&scene, &MOMENTS[5]);
    keepers(&scene.state()).into_iter().for_each(|keeper| kill(keeper, "KILL"));
    run.signal("CONT");
    run.signal("TERM");
    let ended = run.wait();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(scene.left(&id), [""; 0]);
}

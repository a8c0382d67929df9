//! A run is asked to end: it undoes everything, says so, and exits with code 1.

use crate::process::{Ended, until};
use crate::scene::Scene;
use std::process::{Command, Stdio};

fn interrupted(ended: &Ended) {
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let last = ended.err.last().expect("a line");
    assert_eq!(last, "spangap: interrupted; everything is undone", "{ended:?}");
}

fn listens(scene: &Scene, id: &str) -> bool {
    scene.work(id).join("target.out").exists()
}

#[test]
fn every_terminating_signal_ends_a_run() {
    for signal in ["INT", "TERM", "HUP"] {
        let Some(scene) = Scene::new() else { return };
        let run = scene.start();
        let id = until("a keeper", || scene.id());
        until("a target", || listens(&scene, &id).then_some(()));
        run.signal(signal);
        interrupted(&run.wait());
        assert_eq!(scene.left(&id), [""; 0], "{signal}");
        assert!(!scene.out().exists());
    }
}

#[test]
fn repeated_signals_do_not_break_the_undo() {
    let Some(scene) = Scene::new() else { return };
    let run = scene.start();
    let id = until("a keeper", || scene.id());
    until("a target", || listens(&scene, &id).then_some(()));
    let pid = run.id();
    // Repeated until it is a zombie.
    let signals = ["INT", "TERM", "HUP"];
    for signal in signals.iter().cycle() {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("nobody has waited for it");
        if stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')) {
            break;
        }
        run.signal(signal);
    }
    interrupted(&run.wait());
    assert_eq!(scene.left(&id), [""; 0]);
}

#[test]
fn a_run_whose_terminal_goes_away_is_undone() {
    let Some(scene) = Scene::new() else { return };
    let command = format!(
        "{} lab run healthy --state {} --out {}",
        env!("CARGO_BIN_EXE_spangap"),
        scene.state().display(),
        scene.out().display()
    );
    // `script` provides the terminal.
    let terminal = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    let Ok(mut terminal) = terminal else {
        println!("not run: there is no program script");
        return;
    };
    let id = until("a keeper", || scene.id());
    until("a target", || listens(&scene, &id).then_some(()));
    terminal.kill().expect("it runs");
    terminal.wait().expect("it ends");
    until("nothing left", || scene.left(&id).is_empty().then_some(()));
    assert!(!scene.out().exists());
}

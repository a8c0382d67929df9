//! `lab clean`: killed runs are removed, running ones stay, and whatever cannot be removed is reported.

use crate::process::until;
use crate::scene::{Scene, keepers, kill};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

const ID: &str = "0a0b0c0d0e";

/// The journal of a killed run that had made one folder.
fn left_behind(scene: &Scene, id: &str) -> (PathBuf, PathBuf) {
    let folder = scene.folder.path().join(format!("made.{id}"));
    fs::create_dir_all(folder.join("deep")).expect("it is ours");
    fs::create_dir_all(scene.state()).expect("it is ours");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("the kernel has one");
    let head = serde_json::json!({ "boot_id": boot.trim() });
    let made = serde_json::json!({ "made": "folder", "path": folder });
    let journal = scene.state().join(format!("{id}.journal"));
    fs::write(&journal, format!("{head}\n{made}\n")).expect("it is ours");
    (journal, folder)
}

#[test]
fn a_running_run_is_left_alone_and_named() {
    let Some(scene) = Scene::new() else { return };
    let (_, folder) = left_behind(&scene, ID);
    let run = scene.start();
    let id = until("a keeper", || scene.id());
    until("its namespace", || PathBuf::from(format!("/run/netns/lab-{id}-client")).exists().then_some(()));
    let cleaned = scene.clean(&[]);
    assert_eq!(cleaned.code, Some(0), "{cleaned:?}");
    let text = cleaned.out.join("\n");
    assert!(text.contains(&format!("{id}.journal: still running")), "{text}");
    assert!(text.contains(&format!("removed: folder {}", folder.display())), "{text}");
    assert!(!folder.exists());
    // This test does not ask whether the machine was quiet enough for a healthy run: if not, the exit code is
    // 1.
    let ended = run.wait();
    assert!(matches!(ended.code, Some(0 | 1)) && scene.out().join("truth.json").exists(), "{ended:?}");
    assert_eq!(scene.left(&id), [""; 0]);
}

#[test]
fn unreadable_journals_are_named_and_others_cleaned() {
    let Some(scene) = Scene::new() else { return };
    let (journal, folder) = left_behind(&scene, ID);
    let whole = fs::read_to_string(&journal).expect("it is text");
    for (text, line, removed) in [
        (whole.replace("\"folder\"", "\"moon\""), 2, false),
        (whole.replace("boot_id", "shoe_id"), 1, true),
        (whole.replace(&folder.display().to_string(), "/"), 2, false),
        (whole.clone() + "{}\n", 3, true),
    ] {
        fs::create_dir_all(&folder).expect("it is ours");
        fs::write(&journal, &text).expect("it is ours");
        let (_, other) = left_behind(&scene, "ffffffffff");
        let cleaned = scene.clean(&["--json"]);
        assert_eq!(cleaned.code, Some(1), "{cleaned:?}");
        let said = cleaned.err.join("\n");
        assert!(
            said.contains(&format!("damaged: {}", journal.display())) && said.contains("--forget"),
            "{said}"
        );
        let cleaned: Value = serde_json::from_str(&cleaned.out.join("\n")).expect("JSON");
        assert_eq!(cleaned["runs"][0]["unreadable"][0]["line"], line, "{cleaned:#}");
        assert_eq!(cleaned["runs"][1]["removed"][0]["made"], "folder", "{cleaned:#}");
        assert!(folder.exists() != removed && !other.exists(), "{cleaned:#}");
        assert_eq!(fs::read_to_string(&journal).expect("it is left as it is"), text);
    }
    // After `--forget` the journal is set aside, and blocks nothing.
    let forgotten = scene.clean(&["--forget"]);
    assert_eq!((forgotten.code, journal.exists()), (Some(0), false), "{forgotten:?}");
    assert!(journal.with_extension("damaged-1").exists());
    fs::create_dir_all(&folder).expect("it is ours");
    // Cut off within its last line: that change was not made.
    fs::write(&journal, &whole[..whole.len() - 1]).expect("it is ours");
    assert_eq!(scene.clean(&[]).code, Some(0));
    assert!(folder.exists() && !journal.exists());
}

#[test]
fn cleaning_does_not_disturb_a_keeper() {
    let Some(scene) = Scene::new() else { return };
    let run = scene.start();
    let id = until("a keeper", || scene.id());
    until("a target", || scene.work(&id).join("target.out").exists().then_some(()));
    let keeper = keepers(&scene.state())[0];
    kill(keeper, "STOP");
    run.signal("KILL");
    run.wait();
    // The keeper does not know yet: `clean` comes first, and the keeper finds nothing to do.
    let cleaned = until("free to be cleaned", || {
        let cleaned = scene.clean(&[]);
        assert_eq!(cleaned.code, Some(0), "{cleaned:?}");
        scene.journals().is_empty().then_some(cleaned)
    });
    assert!(cleaned.out.iter().any(|line| line.contains("removed: namespace")), "{cleaned:?}");
    kill(keeper, "CONT");
    until("nothing left", || scene.left(&id).is_empty().then_some(()));
}

//! The tool is killed, its keeper is killed, its journal is damaged: what was changed is set back, or nothing is touched.

use crate::process::until;
use crate::{Scene, error};
use std::process::Command;

fn pids_of_keepers(journal_folder: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").expect("/proc is there");
    let ids = processes.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_keeper = |id: &String| {
        let line = std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let words: Vec<&str> = line.split('\0').collect();
        words.contains(&"keep") && words.iter().any(|word| word.starts_with(journal_folder))
    };
    ids.filter(|id| id.parse::<u32>().is_ok()).filter(is_keeper).collect()
}

fn kill(pid: &str) {
    assert!(Command::new("kill").args(["-KILL", pid]).status().expect("kill is there").success());
}

#[test]
fn killed_at_any_moment_its_undo_restores_everything() {
    const CONNECTIONS: usize = 400;
    let Some(mut scene) = Scene::new(CONNECTIONS) else { return };
    scene.program.say("[x.setsockopt(6, 1, i % 3 == 0) for i, x in enumerate(c)]");
    let values = "''.join(str(x.getsockopt(6, 1)) for x in c)";
    let before = scene.program.say(values);
    let mut seen = Vec::new();
    // When the journal shows up, and after so many lines of changes.
    for lines in [None, Some(1), Some(2), Some(40), Some(150), Some(260)] {
        let tool = scene.start(&["nodelay=on"]);
        match lines {
            None => until("a journal", || (!scene.journals().is_empty()).then_some(())),
            Some(lines) => (0..lines).for_each(|_| assert!(tool.line().is_some())),
        }
        tool.signal("KILL");
        let ended = tool.wait();
        seen.push(scene.on());
        let journals = scene.journals().len();
        assert_eq!(journals, 1, "{ended:?}");
        let undone = scene.undo_all();
        assert_eq!(undone.code, Some(0), "{undone:?}");
        assert_eq!((scene.program.say(values), scene.journals().len()), (before.clone(), 0));
    }
    println!("connections with TCP_NODELAY when the tool was killed: {seen:?} of {CONNECTIONS}");
}

#[test]
fn killed_with_a_time_its_keeper_sets_back() {
    let Some(mut scene) = Scene::new(50) else { return };
    let tool = scene.start(&["nodelay=on", "--for", "5s"]);
    until("changed", || (scene.on() == 50).then_some(()));
    tool.signal("KILL");
    // Its standard output ends with the keeper, which holds nothing else of it.
    tool.wait();
    until("set back", || (scene.on() == 0).then_some(()));
    until("journal removed", || scene.journals().is_empty().then_some(()));
    until("keeper ended", || pids_of_keepers(scene.folder()).is_empty().then_some(()));
}

#[test]
fn with_its_keeper_killed_the_tool_sets_back_itself() {
    let Some(mut scene) = Scene::new(5) else { return };
    let tool = scene.start(&["nodelay=on", "--for", "2h"]);
    until("changed", || (scene.on() == 5).then_some(()));
    let keepers = pids_of_keepers(scene.folder());
    let [keeper] = keepers.as_slice() else { panic!("one keeper, not {keepers:?}") };
    kill(keeper);
    let ended = tool.wait();
    assert_eq!((ended.code, scene.on(), scene.journals().len()), (Some(0), 0, 0), "{ended:?}");
}

#[test]
fn with_both_killed_the_undo_is_still_there() {
    let Some(mut scene) = Scene::new(5) else { return };
    let tool = scene.start(&["nodelay=on", "--for", "2h"]);
    until("changed", || (scene.on() == 5).then_some(()));
    // The tool first: it would set back what its keeper no longer can.
    tool.signal("KILL");
    pids_of_keepers(scene.folder()).iter().for_each(|keeper| kill(keeper));
    tool.wait();
    assert_eq!(scene.on(), 5);
    let undone = scene.undo_all();
    assert_eq!((undone.code, scene.on(), scene.journals().len()), (Some(0), 0, 0), "{undone:?}");
}

#[test]
fn a_damaged_journal_is_named_and_nothing_is_touched() {
    let Some(mut scene) = Scene::new(5) else { return };
    assert_eq!(scene.run(&["nodelay=on"]).code, Some(0));
    let path = scene.journals().remove(0);
    let whole = std::fs::read_to_string(&path).expect("it is text");
    let cut = &whole[..whole.len() / 2];
    let odd = whole.replacen("\"old\":false", "\"old\":perhaps", 1);
    for (damaged, line) in [(cut, cut.lines().count()), (&odd, 2), ("", 1)] {
        std::fs::write(&path, damaged).expect("it can be written");
        let said = error(&scene.undo_all());
        let place = format!("{} is damaged at line {line}", path.display());
        assert!(said.contains(&place), "{said}, expected {place}");
        assert_eq!((scene.on(), scene.journals().len()), (5, 1));
    }
    std::fs::write(&path, &whole).expect("it can be written");
    assert_eq!((scene.undo_all().code, scene.on()), (Some(0), 0));
}

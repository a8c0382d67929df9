//! The tool is killed, its keeper is killed, or its journal is damaged: changes are undone, or nothing is
//! touched.

use crate::process::{self, Ended, until};
use crate::undo::{Change, undone_wherever_it_is_killed};
use crate::{Scene, error, json};
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

const CONNECTIONS: usize = 400;

impl Change for Scene {
    /// After this many lines of changes; `None`: as soon as its journal appears.
    type Point = Option<usize>;

    fn state(&mut self) -> Vec<String> {
        vec![self.program.say("''.join(str(x.getsockopt(6, 1)) for x in c)")]
    }

    fn killed_at(&mut self, lines: &Option<usize>) {
        let tool = self.start(&["nodelay=on"]);
        match lines {
            None => until("a journal", || (!self.journals().is_empty()).then_some(())),
            Some(lines) => (0..*lines).for_each(|_| assert!(tool.line().is_some())),
        }
        tool.signal("KILL");
        let ended = tool.wait();
        assert_eq!(self.journals().len(), 1, "{ended:?}");
        println!("connections with TCP_NODELAY when the tool was killed: {} of {CONNECTIONS}", self.on());
    }

    fn open_journals(&self) -> usize {
        self.journals().len()
    }

    fn undo(&self) -> process::Program {
        process::Program::start(&["sockets", "undo", "--all", "--json", "--journal", self.folder()])
    }

    fn undone(&self, said: &Ended) -> usize {
        let said = json(said);
        let journals = said["journals"].as_array().expect("a list");
        journals.iter().filter(|journal| journal["not_there"] != true).count()
    }
}

#[test]
fn undo_restores_everything_after_a_kill_at_any_moment() {
    let new = || {
        let mut scene = Scene::new(CONNECTIONS)?;
        scene.program.say("[x.setsockopt(6, 1, i % 3 == 0) for i, x in enumerate(c)]");
        Some(scene)
    };
    undone_wherever_it_is_killed(new, [None, Some(1), Some(2), Some(40), Some(150), Some(260)]);
}

#[test]
fn the_keeper_restores_on_time_after_a_kill() {
    let Some(mut scene) = Scene::new(50) else { return };
    let tool = scene.start(&["nodelay=on", "--for", "5s"]);
    until("changed", || (scene.on() == 50).then_some(()));
    tool.signal("KILL");
    // The keeper holds the tool's standard output open until it ends, and none of its other files.
    tool.wait();
    until("set back", || (scene.on() == 0).then_some(()));
    until("journal removed", || scene.journals().is_empty().then_some(()));
    until("keeper ended", || pids_of_keepers(scene.folder()).is_empty().then_some(()));
}

#[test]
fn the_tool_restores_if_its_keeper_is_killed() {
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
fn undo_works_after_both_are_killed() {
    let Some(mut scene) = Scene::new(5) else { return };
    let tool = scene.start(&["nodelay=on", "--for", "2h"]);
    until("changed", || (scene.on() == 5).then_some(()));
    // The tool first: it would undo what its keeper no longer can.
    tool.signal("KILL");
    pids_of_keepers(scene.folder()).iter().for_each(|keeper| kill(keeper));
    tool.wait();
    assert_eq!(scene.on(), 5);
    let undone = scene.undo_all();
    assert_eq!((undone.code, scene.on(), scene.journals().len()), (Some(0), 0, 0), "{undone:?}");
}

#[test]
fn readable_parts_of_a_damaged_journal_are_restored() {
    let Some(mut scene) = Scene::new(5) else { return };
    assert_eq!(scene.run(&["nodelay=on"]).code, Some(0));
    let path = scene.journals().remove(0);
    let whole = std::fs::read(&path).expect("it is there");
    let ends: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] == b'\n').collect();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 2;
        bytes
    };
    let last = ends[5] + 3;
    for (damaged, set_back, line) in [
        (flipped(3), 5, 0),
        (flipped(ends[0] - 30), 5, 0),
        (flipped(ends[0] + 20), 4, 2),
        (flipped(ends[4] - 2), 4, 5),
        (flipped(last), 5, 7),
        (whole[..ends[2] + 9].to_vec(), 2, 4),
        (whole[..ends[3] + 1].to_vec(), 3, 5),
    ] {
        scene.program.say("[x.setsockopt(6, 1, 1) for x in c]");
        std::fs::write(&path, &damaged).expect("it can be written");
        let undone = scene.undo_all();
        assert_eq!(scene.on(), 5 - set_back, "{undone:?}");
        if line == 0 {
            assert_eq!((undone.code, scene.journals().len()), (Some(0), 0), "{undone:?}");
            continue;
        }
        let named = format!("damaged: line {line}, bytes ");
        assert!(undone.out.iter().any(|said| said.starts_with(&named)), "{named}: {undone:?}");
        let said = error(&undone);
        assert!(said.contains("is damaged") && said.contains("--forget"), "{said}");
        // One of the sockets may be among those that it no longer reports.
        if set_back < 5 {
            let again = error(&scene.run(&["nodelay=off"]));
            assert!(again.contains("is damaged at line"), "{again}");
        }
        let forgotten = scene.spangap_undo(&["--forget"]);
        assert_eq!((forgotten.code, scene.journals().len()), (Some(0), 0), "{forgotten:?}");
        let kept = path.with_extension("damaged-1");
        assert_eq!(std::fs::read(&kept).expect("it is kept"), damaged);
        std::fs::remove_file(kept).expect("it is ours");
    }
    std::fs::write(&path, "").expect("it can be written");
    let said = error(&scene.undo_all());
    assert!(said.contains(&format!("{} is damaged at line 1", path.display())), "{said}");
    assert_eq!(scene.spangap_undo(&["--forget"]).code, Some(0));
    assert!(scene.journals().is_empty());
}

//! `apply` killed or interrupted exactly at a write: everything done until then is undone from the journal
//! alone.

use crate::fifo::Fifo;
use crate::undo::{Change, undone_wherever_it_is_killed};
use crate::{ARTICLE, Copy, Ended, Program, assert_same, error, guards, no_guard, signal, text};

/// Starts `apply` and stops it just before it writes this file.
fn stopped_at(copy: &Copy, path: &str, more: &[&str]) -> (Program, Fifo) {
    let fifo = Fifo::in_place_of(copy.real(path));
    let tool = copy.start(more);
    fifo.until_written_by(tool.id());
    (tool, fifo)
}

impl Change for Copy {
    /// The file that it is about to write.
    type Point = String;

    fn state(&mut self) -> Vec<String> {
        self.tree().into_iter().map(|(path, text)| format!("{}: {text}", path.display())).collect()
    }

    fn killed_at(&mut self, path: &String) {
        let (tool, fifo) = stopped_at(self, path, &["--no-confirm"]);
        tool.signal("KILL");
        tool.wait();
        fifo.remove();
        let confirmed = error(&self.verb("confirm", &[]));
        assert!(confirmed.contains("apply did not finish"), "{path}: {confirmed}");
    }

    fn open_journals(&self) -> usize {
        usize::from(self.journal().exists())
    }

    fn undo(&self) -> Program {
        Program::start(&["isolate", "rollback", "--root", text(&self.root())])
    }

    fn undone(&self, said: &Ended) -> usize {
        usize::from(said.out != ["Nothing is applied."])
    }
}

#[test]
fn the_rollback_restores_everything_after_a_kill_at_a_write() {
    let files: Vec<String> = Copy::of(ARTICLE).files_of_plan().into_iter().map(|(path, _)| path).collect();
    let writes = files.len();
    assert!(writes > 8, "{files:?}");
    let halves = undone_wherever_it_is_killed(|| Some(Copy::of(ARTICLE)), files);
    assert!(halves.is_some_and(|halves| halves >= writes - 1), "it was killed in the middle: {halves:?}");
}

#[test]
fn the_guard_restores_everything_after_a_kill_at_a_write() {
    let copy = Copy::of(ARTICLE);
    let before = copy.tree();
    let path = copy.files_of_plan().pop().expect("a file").0;
    let (tool, fifo) = stopped_at(&copy, &path, &["--confirm-within", "2h"]);
    let journals = copy.journal().parent().expect("a folder").to_owned();
    let guards = guards(&journals);
    let [guard] = guards.as_slice() else { panic!("one guard, not {guards:?}") };
    tool.signal("KILL");
    tool.wait();
    fifo.remove();
    assert_ne!(copy.tree(), before);
    // As when its time is up: it then reads the journal.
    signal(*guard, "TERM");
    no_guard(&journals);
    assert_same(&before, &copy.tree(), "guard");
    assert!(!copy.journal().exists());
    assert!(copy.last_journal().contains("guard: told to exit before it was confirmed"));
}

#[test]
fn a_killed_rollback_is_finished_by_the_next_one() {
    let copy = Copy::of(ARTICLE);
    let before = copy.tree();
    let files = copy.files_of_plan();
    copy.applied(&["--no-confirm"]);
    for (path, _) in [&files[files.len() - 1], &files[files.len() / 2], &files[0]] {
        let fifo = Fifo::in_place_of(copy.real(path));
        let root = copy.root();
        let tool = Program::start(&["isolate", "rollback", "--root", text(&root)]);
        fifo.until_written_by(tool.id());
        tool.signal("KILL");
        tool.wait();
        fifo.remove();
    }
    assert_ne!(copy.tree(), before);
    let back = copy.verb("rollback", &[]);
    assert_eq!(back.code, Some(0), "{back:?}");
    assert_same(&before, &copy.tree(), "in pieces");
}

#[test]
fn an_interrupted_apply_undoes_its_changes_and_says_so() {
    for (name, at) in [("INT", 0), ("TERM", 5), ("HUP", 9)] {
        let copy = Copy::of(ARTICLE);
        let before = copy.tree();
        let path = copy.files_of_plan().remove(at).0;
        let (tool, mut fifo) = stopped_at(&copy, &path, &["--confirm-within", "2h"]);
        tool.signal(name);
        fifo.until_ended(tool.id());
        let ended = tool.wait();
        fifo.remove();
        let said = error(&ended);
        assert!(said.contains("interrupted") && said.contains("everything is as before"), "{name}: {said}");
        assert_same(&before, &copy.tree(), name);
        assert!(!copy.journal().exists());
        no_guard(copy.journal().parent().expect("a folder"));
    }
}

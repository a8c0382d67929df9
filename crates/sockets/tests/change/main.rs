//! Changes to live sockets of other processes, and their undo: together they change nothing.

#[path = "../list/program.rs"]
mod program;

use program::Program;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use spangap_sockets::{
    Asked, ChangeOutcome, ChangeRequest, Folder, Journal, LockedJournal, Plan, Undone, apply, list, undo,
};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const CONNECTIONS: usize = 12;

/// A program with connections, and a folder for journals.
struct Scene {
    program: Program,
    pid: u32,
    port: u16,
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Option<Scene> {
        let mut program = Program::start(&[])?;
        let port = program.connect_to_itself("127.0.0.1", "127.0.0.1", CONNECTIONS);
        let pid = program.pid();
        Some(Scene { program, pid, port, folder: tempfile::tempdir().unwrap() })
    }

    /// TCP_NODELAY of both ends of every connection, as their owner reads it.
    fn values(&mut self) -> String {
        self.program.say("''.join(str(x.getsockopt(6, 1)) for x in c + a)")
    }

    fn set(&mut self, values: &[bool]) {
        let values: Vec<_> = values.iter().map(|on| i32::from(*on).to_string()).collect();
        self.program.say(&format!("[x.setsockopt(6, 1, on) for x, on in zip(c, [{}])]", values.join(",")));
    }

    fn wanted(&self, value: bool, half: bool) -> ChangeRequest {
        let of = Asked { pids: vec![self.pid], ..Asked::default() };
        ChangeRequest { of, peer: None, peer_port: Some(self.port), value, half }
    }

    fn plan(&self, value: bool, half: bool) -> Plan {
        let wanted = self.wanted(value, half);
        wanted.plan(&list(&wanted.of).unwrap())
    }

    fn write(&self, under: &str, plan: &Plan) -> LockedJournal {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        let journal = Journal::new(plan.change.clone(), time, None).unwrap();
        Folder::new(self.folder.path().join(under)).write(&journal).unwrap()
    }

    /// Makes the planned changes; returns the journal.
    fn change(&self, plan: &Plan) -> PathBuf {
        let held = apply(self.write("j", plan), |_| true).unwrap().expect("something was changed");
        held.path().to_owned()
    }

    fn fd(&mut self, at: usize) -> u64 {
        self.program.number(&format!("c[{at}].fileno()"))
    }
}

/// Rewrites a journal without its checksums, as earlier versions wrote it.
fn rewrite(path: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| line.split('\t').next().unwrap().replace(from, to) + "\n");
    let other: String = lines.collect();
    assert_ne!(other, text);
    std::fs::write(path, other).unwrap();
}

fn undo_journal(path: &Path) -> Undone {
    undo(LockedJournal::take(path).unwrap().expect("the journal is there")).unwrap()
}

fn became(undone: &Undone) -> Vec<&ChangeOutcome> {
    undone.sockets.iter().map(|change| &change.became).collect()
}

#[test]
fn a_change_and_its_undo_cancel_out() {
    let Some(scene) = Scene::new() else { return };
    let scene = std::cell::RefCell::new(scene);
    let inputs = (any::<[bool; CONNECTIONS]>(), any::<bool>(), any::<bool>());
    let result = TestRunner::new(Config::with_cases(40)).run(&inputs, |(values, value, half)| {
        // The runner requires a closure that changes nothing; the program is another process.
        let mut scene = scene.borrow_mut();
        scene.set(&values);
        let before = scene.values();
        let plan = scene.plan(value, half);
        let lacking = values.iter().filter(|on| **on != value).count();
        prop_assert_eq!(plan.change.len(), if half { lacking.div_ceil(2) } else { lacking });
        prop_assert_eq!(
            (plan.change.len() + plan.leave.len(), plan.already as usize),
            (lacking, CONNECTIONS - lacking)
        );
        if plan.change.is_empty() {
            return Ok(());
        }
        let path = scene.change(&plan);
        let after = scene.values();
        let changed = before.chars().zip(after.chars()).filter(|(before, after)| before != after).count();
        prop_assert_eq!(changed, plan.change.len());
        prop_assert_eq!(scene.plan(value, false).change.len(), lacking - changed);
        let undone = undo_journal(&path);
        prop_assert!(undone.journal_removed && !path.exists());
        prop_assert!(became(&undone).iter().all(|became| **became == ChangeOutcome::Changed), "{:?}", undone);
        prop_assert_eq!(scene.values(), before);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn changes_of_a_dead_tool_are_undone_repeatedly() {
    let Some(mut scene) = Scene::new() else { return };
    scene.set(&[false; CONNECTIONS]);
    let before = scene.values();
    // From just after the journal is written to after the last change.
    for changed in 0..=CONNECTIONS {
        let plan = scene.plan(true, false);
        assert_eq!(plan.change.len(), CONNECTIONS);
        let journal = scene.write("j", &plan);
        let path = journal.path().to_owned();
        drop(journal);
        // Makes part of the changes with another journal, so that its own stays as it was before the first
        // change.
        let part = Plan { change: plan.change[..changed].to_vec(), ..Plan::default() };
        drop(apply(scene.write("part", &part), |_| true).unwrap());
        std::fs::remove_dir_all(scene.folder.path().join("part")).unwrap();
        assert_eq!(scene.values().matches('1').count(), changed);
        let undone = undo_journal(&path);
        assert_eq!(undone.count(|became| *became == ChangeOutcome::Changed), changed as u64);
        assert_eq!(undone.count(|became| *became == ChangeOutcome::Already), (CONNECTIONS - changed) as u64);
        assert_eq!(scene.values(), before);
        assert!(LockedJournal::take(&path).unwrap().is_none(), "there is nothing left to do");
    }
}

#[test]
fn halves_alternate_deterministically() {
    let Some(mut scene) = Scene::new() else { return };
    scene.set(&[false; CONNECTIONS]);
    let (first, second) = (scene.plan(true, true), scene.plan(true, true));
    assert_eq!(first, second);
    let mut all: Vec<_> = first.change.iter().chain(&first.leave).map(|entry| entry.local).collect();
    all.sort();
    let changed: Vec<_> = first.change.iter().map(|entry| entry.local).collect();
    assert_eq!(changed, all.into_iter().step_by(2).collect::<Vec<_>>());
}

#[test]
fn a_reused_process_id_is_left_alone() {
    let Some(mut scene) = Scene::new() else { return };
    scene.set(&[false; CONNECTIONS]);
    let path = scene.change(&scene.plan(true, false));
    let text = std::fs::read_to_string(&path).unwrap();
    let start = text.split("\"start_ticks\":").nth(1).unwrap().split(',').next().unwrap();
    rewrite(&path, &format!("\"start_ticks\":{start}"), "\"start_ticks\":7");
    let undone = undo_journal(&path);
    let other = ChangeOutcome::Gone(format!("process {} is a different one now", scene.pid));
    assert_eq!(became(&undone), vec![&other; CONNECTIONS]);
    assert!(undone.journal_removed);
    assert_eq!(scene.values().matches('1').count(), CONNECTIONS, "nothing was touched");
}

#[test]
fn a_journal_from_before_a_reboot_changes_nothing() {
    let Some(mut scene) = Scene::new() else { return };
    scene.set(&[false; CONNECTIONS]);
    let path = scene.change(&scene.plan(true, false));
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    rewrite(&path, boot.trim(), "another");
    let undone = undo_journal(&path);
    assert_eq!(undone.count(|became| matches!(became, ChangeOutcome::Gone(_))), CONNECTIONS as u64);
    assert_eq!(scene.values().matches('1').count(), CONNECTIONS);
}

#[test]
fn moved_and_reused_descriptors_are_distinguished() {
    let Some(mut scene) = Scene::new() else { return };
    scene.set(&[false; CONNECTIONS]);
    let path = scene.change(&scene.plan(true, false));
    let fds = [scene.fd(0), scene.fd(1), scene.fd(2), scene.fd(3)];
    // The first moves to another descriptor, and the second takes its old one; the third is closed; the
    // fourth is restored.
    scene.program.say("globals().update(moved=c[0].dup())");
    scene.program.say(&format!("os.dup2({}, {})", fds[1], fds[0]));
    scene.program.say("c[2].close()");
    scene.program.say("c[3].setsockopt(6, 1, 0)");
    let undone = undo_journal(&path);
    let of = |fd: u64| &undone.sockets.iter().find(|change| change.fd == Some(fd as i32)).unwrap().became;
    assert_eq!((of(fds[0]), of(fds[1])), (&ChangeOutcome::Changed, &ChangeOutcome::Changed), "{undone:?}");
    assert_eq!((of(fds[2]), of(fds[3])), (&ChangeOutcome::Gone("closed".into()), &ChangeOutcome::Already));
    assert_eq!(scene.program.say("moved.getsockopt(6, 1)"), "0");
    assert!(undone.journal_removed);
}

#[test]
fn a_socket_passed_to_a_child_is_restored_there() {
    let Some(mut scene) = Scene::new() else { return };
    scene.set(&[false; CONNECTIONS]);
    // A fork holds the same sockets; both the list and the journal name it as well.
    let child = scene.program.number(
        "(lambda pid: pid if pid else os.execvp('sleep', ['sleep', '1000']))([[os.set_inheritable(x.fileno(), True) for x in c], os.fork()][1])",
    );
    while std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap().trim_end() != "sleep" {
        std::thread::yield_now();
    }
    let path = scene.change(&scene.plan(true, false));
    scene.program.say("[x.close() for x in c]");
    let undone = undo_journal(&path);
    assert_eq!(undone.count(|became| *became == ChangeOutcome::Changed), CONNECTIONS as u64, "{undone:?}");
    scene.program.say(&format!("os.kill({child}, 9), os.waitpid({child}, 0)"));
}

#[test]
fn a_tool_that_stops_halfway_drops_untouched_sockets() {
    let Some(mut scene) = Scene::new() else { return };
    scene.set(&[false; CONNECTIONS]);
    let mut count = 0;
    let held = apply(scene.write("j", &scene.plan(true, false)), |_| {
        count += 1;
        count < 5
    });
    let held = held.unwrap().unwrap();
    assert_eq!(held.journal().entries.len(), 5);
    assert_eq!(scene.values().matches('1').count(), 5);
    assert!(undo(held).unwrap().journal_removed);
    assert_eq!(scene.values().matches('1').count(), 0);
}

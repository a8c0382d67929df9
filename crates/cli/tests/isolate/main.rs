//! `spangap isolate` as a process: on copies of machines, and on this one in a network namespace of its own.

mod copy;
mod crash;
mod fifo;
mod guard;
mod live;
#[path = "../meter/process.rs"]
#[allow(dead_code)] // the meter's tests need more of it
mod process;
#[path = "../undo/mod.rs"]
mod undo;
mod verify;

use process::{Ended, Program, until};
use serde_json::Value;
use spangap_machine::Kept;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The article's server: two packages of 24 cores each, SMT, and a NIC with four queues.
const ARTICLE: (&str, &str) = ("article-2x24x2", "eth0");

/// A copy of a machine, and a plan for it.
struct Copy {
    folder: tempfile::TempDir,
}

/// Everything below a folder: the content of each file, the target of each link, and each folder.
type Tree = BTreeMap<PathBuf, String>;

impl Copy {
    /// One of the machines below `fixtures/isolate`, with a plan for its interface.
    fn of((machine, interface): (&str, &str)) -> Copy {
        let copy = Copy { folder: tempfile::tempdir().expect("a folder") };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/isolate").join(machine);
        let text = fs::read_to_string(path.join("machine.txt")).expect("the machine is there");
        unpack(&Kept::parse(&text).expect("it is a machine"), &copy.root());
        copy.plan(interface, &[]);
        copy
    }

    fn plan(&self, interface: &str, more: &[&str]) {
        let (root, plan) = (self.root(), self.plan_path());
        let arguments =
            ["isolate", "plan", "--interface", interface, "--root", text(&root), "--write", text(&plan)];
        let planned = spangap(&[&arguments, more].concat());
        assert_eq!(planned.code, Some(0), "{planned:?}");
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("machine")
    }

    fn plan_path(&self) -> PathBuf {
        self.folder.path().join("plan.json")
    }

    /// The real location of a path of the machine.
    fn real(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.real(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.real(path), text).unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// Where the journal is.
    fn journal(&self) -> PathBuf {
        self.real("/var/lib/spangap/isolate/open.journal")
    }

    fn last_journal(&self) -> String {
        fs::read_to_string(self.journal().with_file_name("last.journal")).expect("it was put aside")
    }

    /// All files of the machine except the journals.
    fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        look(&self.root(), &mut tree);
        tree.retain(|path, _| !path.starts_with(self.real("/var")));
        tree
    }

    fn verb(&self, verb: &str, more: &[&str]) -> Ended {
        let root = self.root();
        spangap(&[&["isolate", verb, "--root", text(&root)], more].concat())
    }

    fn apply(&self, more: &[&str]) -> Ended {
        self.start(more).wait()
    }

    fn start(&self, more: &[&str]) -> Program {
        let (root, plan) = (self.root(), self.plan_path());
        Program::start(&[&["isolate", "apply", text(&plan), "--root", text(&root)], more].concat())
    }

    /// Applies the plan; whether a guard waits depends on the arguments.
    fn applied(&self, more: &[&str]) -> Ended {
        let applied = self.apply(more);
        assert_eq!(applied.code, Some(0), "{applied:?}");
        applied
    }

    /// Existing files that the plan changes, with their content.
    fn files_of_plan(&self) -> Vec<(String, String)> {
        let plan: Value =
            serde_json::from_str(&fs::read_to_string(self.plan_path()).expect("a plan")).expect("JSON");
        let changes = plan["changes"].as_array().expect("changes");
        let file = |change: &Value| {
            let path = change["place"]["path"].as_str().filter(|_| change["place"]["kind"] == "file")?;
            Some((path.to_owned(), change["from"].as_str()?.to_owned()))
        };
        changes.iter().filter_map(file).filter(|(path, _)| self.real(path).is_file()).collect()
    }
}

/// Writes a saved machine below a folder: its files, folders, and links with their targets.
fn unpack(kept: &Kept, root: &Path) {
    let real = |path: &str| root.join(path.trim_matches('/'));
    let mut file: Option<PathBuf> = None;
    for line in kept.text().split_inclusive('\n') {
        let Some(head) = line.strip_prefix("=== ").map(str::trim_end) else {
            if let Some(path) = &file {
                let before = fs::read_to_string(path).unwrap_or_default();
                fs::write(path, before + line).expect("it is ours");
            }
            continue;
        };
        file = None;
        if let Some((path, to)) = head.split_once(" -> ") {
            let folder = real(path.rsplit_once('/').expect("absolute").0);
            fs::create_dir_all(folder.join(to)).or_else(|_| fs::create_dir_all(&folder)).expect("it is ours");
            std::os::unix::fs::symlink(to, real(path)).expect("it is ours");
        } else if let Some((path, _)) = head.split_once(" : ") {
            fs::create_dir_all(real(path)).expect("it is ours");
        } else if !head.contains(" ! ") {
            let path = real(head);
            fs::create_dir_all(path.parent().expect("a folder")).expect("it is ours");
            fs::write(&path, "").expect("it is ours");
            file = Some(path);
        }
    }
}

fn look(path: &Path, tree: &mut Tree) {
    let kind = fs::symlink_metadata(path).expect("it is there").file_type();
    if kind.is_symlink() {
        tree.insert(path.to_owned(), format!("-> {}", fs::read_link(path).expect("a link").display()));
    } else if kind.is_dir() {
        tree.insert(path.to_owned(), "a folder".to_owned());
        let entries = fs::read_dir(path).expect("a folder");
        entries.for_each(|entry| look(&entry.expect("an entry").path(), tree));
    } else {
        tree.insert(path.to_owned(), format!("= {}", fs::read_to_string(path).expect("a file")));
    }
}

/// Differences between two trees, in a few lines.
fn differences(one: &Tree, other: &Tree) -> Vec<String> {
    let paths: std::collections::BTreeSet<&PathBuf> = one.keys().chain(other.keys()).collect();
    let differs = paths.into_iter().filter(|path| one.get(*path) != other.get(*path));
    differs
        .map(|path| format!("{}: {:?}, {:?}", path.display(), one.get(path), other.get(path)))
        .take(10)
        .collect()
}

fn assert_same(one: &Tree, other: &Tree, when: &str) {
    let differences = differences(one, other);
    assert!(differences.is_empty(), "{when}: {differences:#?}");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

fn spangap(arguments: &[&str]) -> Ended {
    Program::start(arguments).wait()
}

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.out.join("\n")).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// The error of a failed verb, with all its lines.
fn error(ended: &Ended) -> String {
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let said = ended.err.join("\n");
    said.strip_prefix("spangap: ").unwrap_or_else(|| panic!("{said}")).to_owned()
}

/// Process ids of the guards of these journals.
fn guards(journals: &Path) -> Vec<u32> {
    let processes = fs::read_dir("/proc").expect("/proc is there");
    let ids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_guard = |id: &u32| {
        let line = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let words: Vec<&str> = line.split('\0').collect();
        words.contains(&"guard") && words.contains(&text(journals))
    };
    ids.filter(is_guard).collect()
}

fn signal(pid: u32, name: &str) {
    let sent = std::process::Command::new("kill").args(["-s", name, &pid.to_string()]).status();
    assert!(sent.expect("kill is there").success());
}

/// Waits until these journals have no guard.
fn no_guard(journals: &Path) {
    until("the guard has ended", || guards(journals).is_empty().then_some(()));
}

//! Removal of everything in a journal. Objects that no longer exist are not an error, so it can be repeated; an
//! object that cannot be removed does not prevent the others from being removed.

use super::MARK;
use super::journal::{CreatedObject, Journal, NAMES, id_of};
use super::processes::{Ended, Space, end_all, is_marked, members, others};
use crate::LabError;
use rustix::mount::{UnmountFlags, unmount};
use serde::Serialize;
use spangap_machine::facts::boot_id;
use spangap_machine::facts::process_status::{self, ProcessStatus};
use spangap_machine::read_here;
use spangap_undo::Damage;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time limit for killed processes to end.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Where `ip netns` has its namespaces.
const NAMESPACES: &str = "/run/netns";
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Result of undoing one run.
#[derive(Debug, Serialize)]
pub struct UndoReport {
    /// Its journal, which is gone if nothing is left.
    pub journal: PathBuf,
    /// Number of processes ended.
    pub processes: usize,
    /// Removed objects, the last first.
    pub removed: Vec<CreatedObject>,
    /// Objects that could not be removed.
    pub left: Vec<Remainder>,
    /// Unreadable parts of the journal: objects described there still exist.
    pub unreadable: Vec<Damage>,
    /// New path of the damaged journal.
    pub set_aside: Option<PathBuf>,
}

impl UndoReport {
    pub(super) fn of(journal: &Path) -> UndoReport {
        let (processes, removed, left, unreadable) = (0, Vec::new(), Vec::new(), Vec::new());
        UndoReport { journal: journal.to_owned(), processes, removed, left, unreadable, set_aside: None }
    }

    /// Whether nothing is left except what is unreadable in the journal.
    pub(super) fn but_for_damage(&self) -> bool {
        self.left.is_empty() && !self.unreadable.is_empty()
    }
}

/// An object that could not be removed.
#[derive(Debug, Serialize)]
pub struct Remainder {
    /// Description.
    pub what: String,
    /// Error of the kernel, or the event that did not happen in time.
    pub why: String,
}

/// Undoes the run of a journal whose lock the caller holds, and removes the journal if nothing is left and all
/// of it is readable.
pub(super) fn undo(path: &Path, patience: Duration) -> UndoReport {
    let mut undone = UndoReport::of(path);
    let journal = match (Journal::read(path), boot_id::here().map_err(LabError::from)) {
        (Ok(journal), Ok(boot_id)) => (journal, boot_id),
        // Nothing is touched: the objects are unknown.
        (Err(error), _) | (_, Err(error)) => {
            undone
                .left
                .push(Remainder { what: format!("journal {}", path.display()), why: error.to_string() });
            return undone;
        }
    };
    let (journal, boot_id) = journal;
    undone.unreadable = journal.lost().cloned().collect();
    let Journal { head, mut made, .. } = journal;
    let id = id_of(path).expect("it was read");
    // A journal without a boot id is assumed to be of this boot: every object carries the run's id.
    let same_boot = head.is_none_or(|head| head.boot_id == boot_id);
    if same_boot && !undone.unreadable.is_empty() {
        made.splice(
            0..0,
            namespaces_of(id).into_iter().filter(|found| !made.contains(found)).collect::<Vec<_>>(),
        );
    }
    let mut going = Removal { id, deadline: Instant::now() + patience, undone: &mut undone };
    if same_boot {
        // First: frozen processes cannot end.
        made.iter().for_each(|made| {
            if let CreatedObject::Cgroup { path } = made {
                thaw(path)
            }
        });
        going.end_marked();
    }
    for made in made.into_iter().rev().filter(|made| same_boot || made.outlives_a_boot()) {
        going.remove(made);
    }
    if same_boot {
        // Processes that were just being started.
        going.end_marked();
    }
    if undone.left.is_empty()
        && undone.unreadable.is_empty()
        && let Err(error) = fs::remove_file(path)
    {
        undone.left.push(Remainder { what: format!("journal {}", path.display()), why: error.to_string() });
    }
    undone
}

/// Namespaces of a run and their folders of names, found by the id in their names, for a damaged journal.
fn namespaces_of(id: &str) -> Vec<CreatedObject> {
    let named = |folder: &str| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with(&format!("lab-{id}-"))).collect::<Vec<String>>()
    };
    let names = named(NAMES).into_iter().map(|namespace| CreatedObject::Names { namespace });
    names.chain(named(NAMESPACES).into_iter().map(|name| CreatedObject::Namespace { name })).collect()
}

struct Removal<'a> {
    id: &'a str,
    deadline: Instant,
    undone: &'a mut UndoReport,
}

impl Removal<'_> {
    fn end_marked(&mut self) {
        let id = self.id;
        let meant = |pid: u32| is_marked(pid, id);
        let ended = end_all(self.deadline, others, meant);
        self.count(&ended, format!("processes with {MARK}={id} in their environment"));
    }

    fn count(&mut self, ended: &Ended, what: String) {
        self.undone.processes += ended.told.len();
        // The same one may have been examined before.
        self.undone.left.retain(|left| left.what != what);
        if !ended.left.is_empty() {
            let states: Vec<_> = ended.left.iter().map(|pid| format!("{pid} ({})", state(*pid))).collect();
            let why = format!("killed, and still there: {}", states.join(", "));
            self.undone.left.push(Remainder { what, why });
        }
    }

    fn remove(&mut self, made: CreatedObject) {
        let removed = match &made {
            CreatedObject::Namespace { name } => self.namespace(name),
            CreatedObject::Names { namespace } => self.names(namespace),
            CreatedObject::Cgroup { path } => self.cgroup(path),
            CreatedObject::Folder { path } => self.folder(path),
        };
        match removed {
            Ok(()) => self.undone.removed.push(made),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => self.undone.left.push(Remainder { what: made.to_string(), why: error.to_string() }),
        }
    }

    fn namespace(&mut self, name: &str) -> io::Result<()> {
        let file = Path::new(NAMESPACES).join(name);
        fs::symlink_metadata(&file)?;
        let space = Space::of(&file);
        // A file that refers to the machine's own namespace must not be emptied.
        let own = [Space::around(std::process::id()), Space::around(1)].contains(&space);
        if !own {
            let meant = |pid: u32| Space::around(pid) == space && space.is_some();
            let ended = end_all(self.deadline, others, meant);
            self.count(&ended, format!("processes in namespace {name}"));
        }
        // One that was being created has nothing mounted yet.
        let _ = unmount(&file, UnmountFlags::DETACH);
        fs::remove_file(&file)
    }

    fn names(&self, namespace: &str) -> io::Result<()> {
        let removed = self.folder(&Path::new(NAMES).join(namespace));
        // It exists for the folders inside; another run may still have some.
        let _ = fs::remove_dir(NAMES);
        removed
    }

    fn cgroup(&mut self, path: &Path) -> io::Result<()> {
        let entries = fs::read_dir(path)?;
        thaw(path);
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.cgroup(&entry.path())?;
            }
        }
        let ended = end_all(self.deadline, || members(path), |pid| members(path).contains(&pid));
        self.count(&ended, format!("processes in control group {}", path.display()));
        // The last process has ended, but remains a member for a moment.
        self.again_while(ErrorKind::ResourceBusy, || fs::remove_dir(path))
    }

    fn folder(&self, path: &Path) -> io::Result<()> {
        self.again_while(ErrorKind::DirectoryNotEmpty, || fs::remove_dir_all(path))
    }

    fn again_while(&self, kind: ErrorKind, remove: impl Fn() -> io::Result<()>) -> io::Result<()> {
        loop {
            match remove() {
                Err(error) if error.kind() == kind && Instant::now() < self.deadline => {
                    std::thread::sleep(LOOK_EVERY);
                }
                removed => return removed,
            }
        }
    }
}

/// Thaws a group, before its children. Each version has its own interface; a group without a freezer has none.
fn thaw(group: &Path) {
    let _ = write_into(&group.join("freezer.state"), "THAWED");
    let _ = write_into(&group.join("cgroup.freeze"), "0");
}

/// Writes to an existing file.
fn write_into(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

/// Its name and state, as `/proc` has them: `D (disk sleep)`.
fn state(pid: u32) -> String {
    let path = format!("/proc/{pid}/{}", process_status::NAME);
    let told = read_here(&path, |path, text| {
        let status = ProcessStatus::new(path, text);
        Ok(format!("{}, {}", status.name()?, status.field("State").unwrap_or("")))
    });
    // It has just ended.
    told.unwrap_or_else(|_| ", ".into())
}

//! From a journal back to the machine as it was. What is gone already is no error, so that it can be done again; what
//! cannot be removed does not keep the rest.

use super::journal::{Journal, MARK, Made, NAMES, id_of};
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

/// How long what was killed may take to end.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Where `ip netns` has its namespaces.
const NAMESPACES: &str = "/run/netns";
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What was done of one run.
#[derive(Debug, Serialize)]
pub struct Undone {
    /// Its journal. It is gone when nothing is left.
    pub journal: PathBuf,
    /// Processes that were ended.
    pub processes: usize,
    /// What was there and was removed, the last first.
    pub removed: Vec<Made>,
    /// What could not be removed.
    pub left: Vec<Left>,
    /// Of the journal, what cannot be read: things that it told of are still there.
    pub unreadable: Vec<Damage>,
    /// Where the damaged journal was put.
    pub set_aside: Option<PathBuf>,
}

impl Undone {
    pub(super) fn of(journal: &Path) -> Undone {
        let (processes, removed, left, unreadable) = (0, Vec::new(), Vec::new(), Vec::new());
        Undone { journal: journal.to_owned(), processes, removed, left, unreadable, set_aside: None }
    }

    /// Whether nothing of it is left but what its journal does not tell.
    pub(super) fn but_for_damage(&self) -> bool {
        self.left.is_empty() && !self.unreadable.is_empty()
    }
}

/// Something that could not be removed.
#[derive(Debug, Serialize)]
pub struct Left {
    /// What it is.
    pub what: String,
    /// What the kernel said, or what was waited for in vain.
    pub why: String,
}

/// Undoes the run of a journal whose lock the caller holds, and removes the journal if nothing is left and all of it can
/// be read.
pub(super) fn undo(path: &Path, patience: Duration) -> Undone {
    let mut undone = Undone::of(path);
    let journal = match (Journal::read(path), boot_id::here().map_err(LabError::from)) {
        (Ok(journal), Ok(boot_id)) => (journal, boot_id),
        // Nothing of it is touched: what it stands for is not known.
        (Err(error), _) | (_, Err(error)) => {
            undone.left.push(Left { what: format!("journal {}", path.display()), why: error.to_string() });
            return undone;
        }
    };
    let (journal, boot_id) = journal;
    undone.unreadable = journal.lost().cloned().collect();
    let Journal { head, mut made, .. } = journal;
    let id = id_of(path).expect("it was read");
    // One that does not tell is taken for one of this boot: everything of it bears the run's id.
    let same_boot = head.is_none_or(|head| head.boot_id == boot_id);
    if same_boot && !undone.unreadable.is_empty() {
        made.splice(
            0..0,
            namespaces_of(id).into_iter().filter(|found| !made.contains(found)).collect::<Vec<_>>(),
        );
    }
    let mut going = Going { id, deadline: Instant::now() + patience, undone: &mut undone };
    if same_boot {
        // First: what is frozen cannot end.
        made.iter().for_each(|made| {
            if let Made::Cgroup { path } = made {
                thaw(path)
            }
        });
        going.end_marked();
    }
    for made in made.into_iter().rev().filter(|made| same_boot || made.outlives_a_boot()) {
        going.remove(made);
    }
    if same_boot {
        // Whoever was being started meanwhile.
        going.end_marked();
    }
    if undone.left.is_empty()
        && undone.unreadable.is_empty()
        && let Err(error) = fs::remove_file(path)
    {
        undone.left.push(Left { what: format!("journal {}", path.display()), why: error.to_string() });
    }
    undone
}

/// Namespaces of a run, and their folders of names, by the id in their names: where the journal is damaged.
fn namespaces_of(id: &str) -> Vec<Made> {
    let named = |folder: &str| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with(&format!("lab-{id}-"))).collect::<Vec<String>>()
    };
    let names = named(NAMES).into_iter().map(|namespace| Made::Names { namespace });
    names.chain(named(NAMESPACES).into_iter().map(|name| Made::Namespace { name })).collect()
}

struct Going<'a> {
    id: &'a str,
    deadline: Instant,
    undone: &'a mut Undone,
}

impl Going<'_> {
    fn end_marked(&mut self) {
        let id = self.id;
        let meant = |pid: u32| is_marked(pid, id);
        let ended = end_all(self.deadline, others, meant);
        self.count(&ended, format!("processes with {MARK}={id} in their environment"));
    }

    fn count(&mut self, ended: &Ended, what: String) {
        self.undone.processes += ended.told.len();
        // The same may have been looked at before.
        self.undone.left.retain(|left| left.what != what);
        if !ended.left.is_empty() {
            let states: Vec<_> = ended.left.iter().map(|pid| format!("{pid} ({})", state(*pid))).collect();
            let why = format!("killed, and still there: {}", states.join(", "));
            self.undone.left.push(Left { what, why });
        }
    }

    fn remove(&mut self, made: Made) {
        let removed = match &made {
            Made::Namespace { name } => self.namespace(name),
            Made::Names { namespace } => self.names(namespace),
            Made::Cgroup { path } => self.cgroup(path),
            Made::Folder { path } => self.folder(path),
        };
        match removed {
            Ok(()) => self.undone.removed.push(made),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => self.undone.left.push(Left { what: made.to_string(), why: error.to_string() }),
        }
    }

    fn namespace(&mut self, name: &str) -> io::Result<()> {
        let file = Path::new(NAMESPACES).join(name);
        fs::symlink_metadata(&file)?;
        let space = Space::of(&file);
        // A file that stands for the machine's own namespace is nobody's to be emptied.
        let own = [Space::around(std::process::id()), Space::around(1)].contains(&space);
        if !own {
            let meant = |pid: u32| Space::around(pid) == space && space.is_some();
            let ended = end_all(self.deadline, others, meant);
            self.count(&ended, format!("processes in namespace {name}"));
        }
        // One that was being made has nothing mounted yet.
        let _ = unmount(&file, UnmountFlags::DETACH);
        fs::remove_file(&file)
    }

    fn names(&self, namespace: &str) -> io::Result<()> {
        let removed = self.folder(&Path::new(NAMES).join(namespace));
        // It is there for the folders inside; another run may still have some.
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
        // The last process has ended, and is a member for a moment longer.
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

/// Of a group, before those inside of it. Each version of control groups has its own way; one without a freezer has none.
fn thaw(group: &Path) {
    let _ = write_into(&group.join("freezer.state"), "THAWED");
    let _ = write_into(&group.join("cgroup.freeze"), "0");
}

/// Into a file that is there.
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

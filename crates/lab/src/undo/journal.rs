//! The journal of one run. The running process holds a lock on it; a journal without a lock belongs to a killed
//! run.
//!
//! The lock belongs to the open file, which a child inherits until its exec. So once another process gets the
//! lock, every program of a killed run carries the run's marker in its environment and can be found.

use super::keeper::Keeper;
use super::removal::{PATIENCE, undo};
use crate::LabError;
use serde::{Deserialize, Serialize};
use spangap_machine::facts::boot_id;
use spangap_undo::file::make;
use spangap_undo::journal::{head_line, line, parse};
use spangap_undo::{Appender, Damage, ParsedJournal};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Extension of a journal; the rest of its name is the run's id.
pub const ENDING: &str = "journal";
/// Folder where `ip netns exec` looks for the files of a host.
pub const NAMES: &str = "/etc/netns";

/// An object that would survive a killed run. Its name contains the run's id, so that nothing else is ever
/// mistaken for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "made", deny_unknown_fields)]
pub enum CreatedObject {
    /// A network namespace of `ip netns`, with everything inside: devices, routes, queueing disciplines,
    /// settings.
    Namespace { name: String },
    /// `hosts` and `resolv.conf` of a host, in its folder below `/etc/netns`.
    Names { namespace: String },
    /// A control group with its processes.
    Cgroup {
        /// Its folder.
        path: PathBuf,
    },
    /// A folder with its content.
    Folder {
        /// Which.
        path: PathBuf,
    },
}

impl CreatedObject {
    /// Whether it survives a reboot.
    pub fn outlives_a_boot(&self) -> bool {
        matches!(self, CreatedObject::Names { .. } | CreatedObject::Folder { .. })
    }

    /// Why it cannot belong to the run with this id.
    fn foreign(&self, id: &str) -> Option<String> {
        let name = match self {
            CreatedObject::Namespace { name } | CreatedObject::Names { namespace: name } => {
                if name.contains('/') {
                    return Some(format!("\"{name}\" is not the name of a namespace"));
                }
                name.clone()
            }
            CreatedObject::Cgroup { path } | CreatedObject::Folder { path } => {
                let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
                if !path.is_absolute() || !path.components().all(plain) {
                    return Some(format!("{} is not an absolute path without dots", path.display()));
                }
                path.file_name().unwrap_or_default().to_string_lossy().into_owned()
            }
        };
        (!name.contains(id)).then(|| format!("\"{name}\" does not contain the id of the run, {id}"))
    }
}

/// `namespace lab-0a-client`
impl fmt::Display for CreatedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CreatedObject::Namespace { name } => write!(f, "namespace {name}"),
            CreatedObject::Names { namespace } => write!(f, "folder {NAMES}/{namespace}"),
            CreatedObject::Cgroup { path } => write!(f, "control group {}", path.display()),
            CreatedObject::Folder { path } => write!(f, "folder {}", path.display()),
        }
    }
}

/// First line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    pub boot_id: String,
}

/// A parsed journal: lines with a checksum each, the head twice. Those of the previous version have no
/// checksums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    /// `None` for a run that was killed before it created anything.
    pub head: Option<Head>,
    /// Objects in the order of creation, as far as readable.
    pub made: Vec<CreatedObject>,
    /// Unreadable parts.
    pub damage: Vec<Damage>,
}

impl Journal {
    /// Parses a journal. A truncated last line describes something that was not created. A damaged line, or one
    /// that names a foreign object, counts as damage.
    ///
    /// # Errors
    /// The file name is not that of a run's journal.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Journal, LabError> {
        let id = id_of(path).ok_or_else(|| LabError::File {
            what: "understand",
            path: path.to_owned(),
            source: io::Error::other("the name of the file is not the id of a run: ten hexadecimal digits"),
        })?;
        if bytes.is_empty() {
            return Ok(Journal::default());
        }
        let ParsedJournal { head, records, mut damage, .. } = parse::<Head, CreatedObject>(bytes);
        let (own, foreign): (Vec<CreatedObject>, Vec<CreatedObject>) =
            records.into_iter().partition(|made| made.foreign(id).is_none());
        for made in foreign {
            let text = serde_json::to_string(&made).expect("it is plain data");
            let offset = bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap_or(0);
            let line = 1 + bytes[..offset].iter().filter(|byte| **byte == b'\n').count();
            damage.push(Damage::at(
                bytes,
                line,
                offset..offset + text.len(),
                made.foreign(id).unwrap_or_default(),
            ));
        }
        Ok(Journal { head, made: own, damage })
    }

    /// Unreadable parts that have no second copy.
    pub fn lost(&self) -> impl Iterator<Item = &Damage> {
        self.damage.iter().filter(|damage| damage.lost)
    }

    pub fn text(&self) -> String {
        self.head.iter().map(head_line).chain(self.made.iter().map(line)).collect()
    }

    pub(super) fn read(path: &Path) -> Result<Journal, LabError> {
        Journal::parse(path, &fs::read(path).map_err(LabError::file("read", path))?)
    }
}

/// Id of the run, if the file name is that of a journal.
pub(super) fn id_of(path: &Path) -> Option<&str> {
    let id = path.file_stem()?.to_str()?;
    (id.len() == 10 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))).then_some(id)
}

/// Undoes what a run created, on drop at the latest.
pub struct Undo {
    id: String,
    path: PathBuf,
    /// Open and locked. `None` once it is undone.
    journal: Option<Appender>,
    keeper: Option<Keeper>,
}

impl Undo {
    /// A new journal in the folder `state`, undone only by this process.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(state: &Path) -> Result<Undo, LabError> {
        let (id, path) = place(state)?;
        Ok(Undo { journal: Some(new(&path)?), id, path, keeper: None })
    }

    /// A new journal in the folder `state` with a keeper, so that it is undone even if this process is killed.
    /// `spangap` is the program whose `lab keeper` is started.
    ///
    /// # Errors
    /// It cannot be written, or the keeper does not start.
    pub fn kept(state: &Path, spangap: &Path) -> Result<Undo, LabError> {
        let (id, path) = place(state)?;
        // Before the journal: nothing else would undo a run killed in between.
        let keeper = Keeper::start(spangap, &path)?;
        Ok(Undo { journal: Some(new(&path)?), id, path, keeper: Some(keeper) })
    }

    /// Id of the run on this machine.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Call before something is created.
    ///
    /// # Errors
    /// It cannot be recorded, or its name does not contain the run's id: then it must not be created.
    pub fn about_to_make(&mut self, made: CreatedObject) -> Result<(), LabError> {
        if let Some(why) = made.foreign(&self.id) {
            return Err(LabError::program("the journal of the run", why));
        }
        let journal = self.journal.as_mut().expect("it is open until everything is undone");
        Ok(journal.write(&line(&made))?)
    }

    /// Undoes everything, and removes the journal.
    ///
    /// # Errors
    /// Something is left; then the journal stays, too, and the keeper keeps trying for a while.
    pub fn everything(mut self) -> Result<(), LabError> {
        self.end()
    }

    /// The remains of a killed run: the journal, without its lock.
    #[cfg(test)]
    pub(super) fn abandon(mut self) {
        self.journal = None;
    }

    fn end(&mut self) -> Result<(), LabError> {
        let Some(locked) = self.journal.take() else { return Ok(()) };
        let undone = undo(&self.path, PATIENCE);
        drop(locked);
        let keeper = self.keeper.take();
        if undone.left.is_empty() && undone.unreadable.is_empty() {
            // It finds nothing to do.
            if let Some(keeper) = keeper {
                keeper.end();
            }
            return Ok(());
        }
        let left = undone.left.iter().map(|left| format!("{}: {}", left.what, left.why));
        let damaged =
            undone.unreadable.iter().map(|damage| format!("journal {}, {damage}", self.path.display()));
        let left = left.chain(damaged);
        Err(LabError::Left(left.collect::<Vec<_>>().join("; ")))
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        // `spangap lab clean` can try again: the journal still exists.
        let _ = self.end();
    }
}

fn place(state: &Path) -> Result<(String, PathBuf), LabError> {
    fs::create_dir_all(state).map_err(LabError::file("make", state))?;
    // The process that undoes it may be in another folder.
    let state = fs::canonicalize(state).map_err(LabError::file("find", state))?;
    // Short, because names of namespaces are made of it.
    let id = format!("{:06x}{:04x}", std::process::id() & 0xff_ffff, fastrand::u16(..));
    let path = state.join(&id).with_extension(ENDING);
    Ok((id, path))
}

/// An empty journal, on disk and locked.
fn new(path: &Path) -> Result<Appender, LabError> {
    let text = head_line(&Head { boot_id: boot_id::here()? });
    let file = make(path, &text)?;
    Ok(Appender::new(path.to_owned(), file, &text))
}

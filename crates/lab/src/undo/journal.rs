//! The journal of one run. Whoever runs it holds a lock on it; one without a lock belongs to a run that was killed.
//!
//! The lock is one of the open file, which a child has too from its birth until it has become another program. So by the
//! time somebody else gets it, every program of a killed run has the run's mark in its environment and can be found.

use super::keeper::Keeper;
use super::removal::{PATIENCE, undo};
use crate::LabError;
use serde::{Deserialize, Serialize};
use spangap_machine::facts::boot_id;
use spangap_undo::file::make;
use spangap_undo::journal::{head_line, line, parse};
use spangap_undo::{Appender, Damage, Parsed};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Variable in the environment of every program that a run starts: the run's id. By it they are found again.
pub const MARK: &str = "SPANGAP_LAB";
/// Ending of a journal's name; the rest is the run's id.
pub const ENDING: &str = "journal";
/// Where `ip netns exec` looks for the files of a host.
pub const NAMES: &str = "/etc/netns";

/// Something that would stay when the run is killed. Its name has the run's id in it, so that nothing else is ever taken for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "made", deny_unknown_fields)]
pub enum Made {
    /// A network namespace of `ip netns`, with all that is inside: devices, routes, queueing disciplines, settings.
    Namespace {
        /// Its name.
        name: String,
    },
    /// `hosts` and `resolv.conf` of a host, in its folder below `/etc/netns`.
    Names {
        /// Name of the namespace.
        namespace: String,
    },
    /// A control group; its processes are ours.
    Cgroup {
        /// Its folder.
        path: PathBuf,
    },
    /// A folder of ours with all that is inside.
    Folder {
        /// Which.
        path: PathBuf,
    },
}

impl Made {
    /// Whether it is also there after another boot.
    pub fn outlives_a_boot(&self) -> bool {
        matches!(self, Made::Names { .. } | Made::Folder { .. })
    }

    /// Why this cannot be a thing of the run with this id.
    fn foreign(&self, id: &str) -> Option<String> {
        let name = match self {
            Made::Namespace { name } | Made::Names { namespace: name } => {
                if name.contains('/') {
                    return Some(format!("\"{name}\" is not the name of a namespace"));
                }
                name.clone()
            }
            Made::Cgroup { path } | Made::Folder { path } => {
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
impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Made::Namespace { name } => write!(f, "namespace {name}"),
            Made::Names { namespace } => write!(f, "folder {NAMES}/{namespace}"),
            Made::Cgroup { path } => write!(f, "control group {}", path.display()),
            Made::Folder { path } => write!(f, "folder {}", path.display()),
        }
    }
}

/// First line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The kernel's name for the time since it was started.
    pub boot_id: String,
}

/// A journal that was read: lines with a checksum each, the head twice. Those of the version before have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    /// `None` of a run that was killed before it made anything.
    pub head: Option<Head>,
    /// In the order in which it was made; as far as it can be read.
    pub made: Vec<Made>,
    /// What cannot be read.
    pub damage: Vec<Damage>,
}

impl Journal {
    /// What a journal says. A line that was cut short is something that was not made. One that is damaged, or that names
    /// a thing that cannot be the run's, is among the damage.
    ///
    /// # Errors
    /// When the file is not called like the journal of a run.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Journal, LabError> {
        let id = id_of(path).ok_or_else(|| LabError::File {
            what: "understand",
            path: path.to_owned(),
            source: io::Error::other("the name of the file is not the id of a run: ten hexadecimal digits"),
        })?;
        if bytes.is_empty() {
            return Ok(Journal::default());
        }
        let Parsed { head, records, mut damage, .. } = parse::<Head, Made>(bytes);
        let (own, foreign): (Vec<Made>, Vec<Made>) =
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

    /// What cannot be read and is not there a second time.
    pub fn lost(&self) -> impl Iterator<Item = &Damage> {
        self.damage.iter().filter(|damage| damage.lost)
    }

    /// The same as text.
    pub fn text(&self) -> String {
        self.head.iter().map(head_line).chain(self.made.iter().map(line)).collect()
    }

    pub(super) fn read(path: &Path) -> Result<Journal, LabError> {
        Journal::parse(path, &fs::read(path).map_err(LabError::file("read", path))?)
    }
}

/// The run that a journal is of, if it is called like one.
pub(super) fn id_of(path: &Path) -> Option<&str> {
    let id = path.file_stem()?.to_str()?;
    (id.len() == 10 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))).then_some(id)
}

/// Undoes what a run made, when it is dropped at the latest.
pub struct Undo {
    id: String,
    path: PathBuf,
    /// Open, and locked. `None` once it is undone.
    journal: Option<Appender>,
    keeper: Option<Keeper>,
}

impl Undo {
    /// A new journal in the folder `state`, which is undone by this process alone.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin(state: &Path) -> Result<Undo, LabError> {
        let (id, path) = place(state)?;
        Ok(Undo { journal: Some(new(&path)?), id, path, keeper: None })
    }

    /// A new journal in the folder `state`, with a keeper: it is undone even if this process is killed. `spangap` is the
    /// program whose `lab keeper` that is.
    ///
    /// # Errors
    /// When it cannot be written, or the keeper does not start.
    pub fn kept(state: &Path, spangap: &Path) -> Result<Undo, LabError> {
        let (id, path) = place(state)?;
        // Before the journal: one whose run is killed now has nobody else.
        let keeper = Keeper::start(spangap, &path)?;
        Ok(Undo { journal: Some(new(&path)?), id, path, keeper: Some(keeper) })
    }

    /// What the run is called on this machine.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// To be called before something is made.
    ///
    /// # Errors
    /// When it cannot be written down: then it must not be made. Also when its name has not the run's id in it.
    pub fn about_to_make(&mut self, made: Made) -> Result<(), LabError> {
        if let Some(why) = made.foreign(&self.id) {
            return Err(LabError::program("the journal of the run", why));
        }
        let journal = self.journal.as_mut().expect("it is open until everything is undone");
        Ok(journal.write(&line(&made))?)
    }

    /// Undoes everything, and removes the journal.
    ///
    /// # Errors
    /// When something stays; then the journal does, too, and the keeper goes on trying for a while.
    pub fn everything(mut self) -> Result<(), LabError> {
        self.end()
    }

    /// What a kill leaves: the journal, without its lock.
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
        // Another try is `spangap lab clean`; the journal is still there.
        let _ = self.end();
    }
}

fn place(state: &Path) -> Result<(String, PathBuf), LabError> {
    fs::create_dir_all(state).map_err(LabError::file("make", state))?;
    // Who undoes it may be elsewhere.
    let state = fs::canonicalize(state).map_err(LabError::file("find", state))?;
    // Short: names of namespaces are made of it.
    let id = format!("{:06x}{:04x}", std::process::id() & 0xff_ffff, fastrand::u16(..));
    let path = state.join(&id).with_extension(ENDING);
    Ok((id, path))
}

/// A journal with nothing in it, on disk and locked.
fn new(path: &Path) -> Result<Appender, LabError> {
    let text = head_line(&Head { boot_id: boot_id::here()? });
    let file = make(path, &text)?;
    Ok(Appender::new(path.to_owned(), file, &text))
}

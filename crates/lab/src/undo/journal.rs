//! The journal of one run. The running process holds a lock on it; a journal without a lock belongs to a killed
//! run.
//!
//! The lock belongs to the open file, which a child inherits until its exec. So once another process gets the
//! lock, every program of a killed run carries the run's marker in its environment and can be found.

use crate::LabError;
use serde::{Deserialize, Serialize};
use spangap_undo::journal::{head_line, line, parse};
use spangap_undo::{Damage, ParsedJournal};
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
    pub(super) fn foreign(&self, id: &str) -> Option<String> {
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

//! The hands: the one place through which a machine is changed.

mod ethtool;
mod files;
mod groups;
mod irqbalance;
mod live;
#[cfg(test)]
pub(crate) mod modelled;
mod processes;
mod service;
mod threads;
mod words;

pub use live::Live;

use crate::place::Place;
use crate::topology::Topology;
use spangap_machine::Host;
use std::fmt;
use std::io;

/// A machine that can be read and changed: this one, a copy of its files, or a modelled one in tests.
pub trait Kernel {
    /// Its files as they are now.
    fn files(&self) -> Host;

    /// What it is now, with the answers that are in no file.
    fn topology(&self) -> Topology {
        Topology::read(&self.files())
    }

    /// The value at a place; `None` when there is no such place (file, cgroup, thread).
    ///
    /// Of [`Place::Tasks`] it is `back` while the group they go to is not there, or has no task and they could be
    /// moved; else `moved`. `None`: the group that they come from is gone.
    ///
    /// # Errors
    /// What the kernel says.
    fn get(&self, place: &Place) -> Result<Option<String>, PlaceError>;

    /// Writes a value, as one write. Whether it was taken is known only by reading it back.
    ///
    /// A cgroup is removed by `gone`; its tasks are moved to its parent first. Tasks are moved by `moved` and `back`.
    ///
    /// # Errors
    /// What the kernel says.
    fn set(&self, place: &Place, text: &str) -> Result<Written, PlaceError>;
}

/// What a write did beyond the place's own value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Tasks that were moved.
    pub tasks_moved: u64,
    /// Tasks that could not be: kernel threads that are bound to their CPU.
    pub tasks_refused: u64,
}

/// Why a value cannot be read or written. In words it is the kernel's answer, and what that means here.
#[derive(Debug)]
pub struct PlaceError {
    /// What was tried: `read`, or `write "0-3" to`.
    pub what: String,
    /// Where.
    pub place: Place,
    /// What the kernel said.
    pub source: io::Error,
}

impl PlaceError {
    /// Reading failed.
    pub fn read(place: &Place, source: io::Error) -> PlaceError {
        PlaceError { what: "read".to_owned(), place: place.clone(), source }
    }

    /// Writing failed.
    pub fn write(place: &Place, text: &str, source: io::Error) -> PlaceError {
        PlaceError { what: format!("write {text:?} to"), place: place.clone(), source }
    }
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}", self.what, self.place, self.source)?;
        match words::meaning(&self.place, &self.source) {
            Some(meaning) => write!(f, ": {meaning}"),
            None => Ok(()),
        }
    }
}

// The kernel's answer is in the words already: as a source it would be said twice.
impl std::error::Error for PlaceError {}

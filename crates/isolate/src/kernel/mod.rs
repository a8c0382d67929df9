//! The only place through which a machine is changed.

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
    /// Its files in their current state.
    fn files(&self) -> Host;

    /// Its current topology, including what is in no file.
    fn topology(&self) -> Topology {
        Topology::read(&self.files())
    }

    /// The value at a place; `None` if the place (file, cgroup, thread) does not exist.
    ///
    /// For [`Place::Tasks`] the value is `back` while the destination does not exist, or has no tasks although
    /// some could be moved; otherwise it is `moved`. `None` if the original group is gone.
    ///
    /// # Errors
    /// Error of the kernel.
    fn get(&self, place: &Place) -> Result<Option<String>, PlaceError>;

    /// Writes a value in a single write. Only reading it back shows whether it was accepted.
    ///
    /// `gone` removes a cgroup after moving its tasks to the parent. `moved` and `back` move tasks.
    ///
    /// # Errors
    /// Error of the kernel.
    fn set(&self, place: &Place, text: &str) -> Result<WriteEffects, PlaceError>;
}

/// Effects of a write beyond the place's own value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteEffects {
    /// Tasks that were moved.
    pub tasks_moved: u64,
    /// Tasks that could not be moved: kernel threads bound to their CPU.
    pub tasks_refused: u64,
}

/// Error of reading or writing a value. Its message explains the kernel's error code for this place.
#[derive(Debug)]
pub struct PlaceError {
    /// The operation: `read`, or `write "0-3" to`.
    pub what: String,
    /// Where.
    pub place: Place,
    /// Error of the kernel.
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

// The message already contains the kernel's error: as a source it would appear twice.
impl std::error::Error for PlaceError {}

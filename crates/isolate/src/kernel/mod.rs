//! The hands: the one place through which a machine is changed.

use crate::place::Place;
use spangap_machine::Host;
use std::io;

/// A machine that can be read and changed: this one, a copy of its files, or a modelled one in tests.
pub trait Kernel {
    /// Its files as they are now.
    fn files(&self) -> Host;

    /// The value at a place; `None` when there is no such place (file, cgroup, thread).
    ///
    /// # Errors
    /// What the kernel says.
    fn get(&self, place: &Place) -> Result<Option<String>, PlaceError>;

    /// Writes a value, as one write. Whether it was taken is known only by reading it back.
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

/// Why a value cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {place}: {source}")]
pub struct PlaceError {
    /// What was tried: `read`, or `write "0-3" to`.
    pub what: String,
    /// Where.
    pub place: Place,
    /// What the kernel said.
    pub source: io::Error,
}

//! Shared parts of every change that can be undone: a journal that is on disk before the change, and readable
//! even if damaged in parts; and a process that undoes the change in time.
//!
//! [`seal`] gives each line a checksum; [`journal`] parses lines and reports unreadable bytes; [`audit`]
//! permanently records who changed what; [`file`] writes journals atomically, locks them and sets them aside;
//! [`guard`] starts, times and ends the process that undoes. The callers define what a change *is*: nothing
//! here changes a machine.

#![warn(missing_docs)]

pub mod audit;
pub mod file;
pub mod guard;
pub mod journal;
pub mod seal;

pub use file::{Appender, FileError, Lock};
pub use journal::{Damage, ParsedJournal};

//! What every change with a way back has in common: a journal that is on disk before the change is made, read back
//! although parts of it are damaged, and a process of its own that undoes the change in time.
//!
//! [`seal`] gives each line a checksum; [`journal`] reads lines back and says which bytes it could not make sense of;
//! [`audit`] writes down for good who changed what; [`file`] puts journals on disk, locks them and sets them aside; [`guard`] starts, times and ends the process that
//! undoes. What a change *is* is known to those who use this: nothing here changes a machine.

pub mod audit;
pub mod file;
pub mod guard;
pub mod journal;
pub mod seal;

pub use file::{Appender, FileError, Lock};
pub use journal::{Damage, Parsed};

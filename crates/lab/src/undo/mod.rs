//! Objects that a run creates on the machine: journaled before they are created, and removed from the journal
//! alone.
//!
//! Three processes can undo a run: the run itself; its [`keeper`], which outlives it if it is killed; and
//! `spangap lab clean`, if both were killed. Each must hold the lock of the journal, and check again after
//! waiting for it: a journal that is gone has been undone.

pub mod clean;
pub mod journal;
pub mod keeper;
mod on_drop;
mod processes;
mod removal;
#[cfg(test)]
mod tests;

pub use clean::{CleanReport, clean};
pub use journal::CreatedObject;
pub use on_drop::Undo;
pub use removal::{Remainder, UndoReport};

/// Environment variable with the run's id, set for every program that a run starts, by which they are found.
pub const MARK: &str = "SPANGAP_LAB";

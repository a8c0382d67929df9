//! What a run made of the machine: in a journal before it is made, and undone from the journal alone.
//!
//! Three can undo a run: the run itself, its [`keeper`], which outlives it when it is killed, and `spangap lab clean`, for when
//! both were killed. Whoever does holds the lock of the journal, and whoever has to wait for the lock looks again
//! afterwards: a journal that is gone has been undone.

pub mod clean;
pub mod journal;
pub mod keeper;
mod processes;
mod removal;
#[cfg(test)]
mod tests;

pub use clean::{Cleaned, clean};
pub use journal::{Made, Undo};
pub use removal::{Left, Undone};

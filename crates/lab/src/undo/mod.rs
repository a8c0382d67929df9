//! What a run made of the machine: in a journal before it is made, and undone from the journal alone.

pub mod clean;
pub mod journal;

pub use clean::{Cleaned, clean};
pub use journal::{Made, Undo};

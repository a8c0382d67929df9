//! A client program: one process for one run, that calls and does nothing else. `clients/CONTRACT.md` says what it
//! is told and what it says.
//!
//! [`session`] keeps what all stacks have in common: life line, phases, messages. [`tally`] counts calls,
//! [`records`] writes them to a file.

pub mod plan;
pub mod records;
mod reporter;
pub mod session;
pub mod tally;

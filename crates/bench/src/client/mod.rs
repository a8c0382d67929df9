//! A client program: one process for one run, that calls and does nothing else. `clients/CONTRACT.md` says what it
//! is told and what it says.
//!
//! [`session`] keeps what all stacks have in common: life line, phases, messages. [`tally`] counts calls,
//! [`records`] writes them to a file. Each stack has a module of its own.

mod grpc;
pub mod plan;
mod raw;
pub mod records;
mod reporter;
pub mod session;
pub mod tally;

use crate::connection::in_words;
use crate::contract::{ClientSettings, Stack};
use session::Session;
use std::io;

/// There was no run. The message `failed` has been said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failed(pub String);

/// What a stack cannot do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--{flag}={value}: {why}")]
pub struct Refused {
    /// Flag.
    pub flag: &'static str,
    /// As given.
    pub value: String,
    /// Why not, and what would be possible.
    pub why: String,
}

impl Refused {
    fn new(flag: &'static str, value: impl ToString, why: impl Into<String>) -> Self {
        Refused { flag, value: value.to_string(), why: why.into() }
    }
}

/// Looks whether the stack can do what it is told.
///
/// # Errors
/// When it cannot.
pub fn check(settings: &ClientSettings) -> Result<(), Refused> {
    match settings.stack {
        Stack::Rust => grpc::check(settings),
        Stack::Raw => raw::check(settings),
        other => Err(Refused::new("stack", other, "not a stack of this program: expected raw, rust")),
    }
}

/// Calls as [`check`]ed settings say, from `go` on the life line to the message `end`.
///
/// # Errors
/// When there is no run, such as for want of a target. Calls that fail are counted, they are no error.
pub fn run(
    settings: &ClientSettings,
    life_line: impl io::Read + Send + 'static,
    output: impl io::Write + Send + 'static,
) -> Result<(), Failed> {
    let session = Session::open(settings, life_line, output)?;
    let outcome = match settings.stack {
        Stack::Raw => raw::run(settings, &session).map_err(|error| in_words(&error)),
        _ => grpc::run(settings, &session).map_err(|error| in_words(&error)),
    };
    outcome.map_err(|why| session.failed(why))
}

//! A client program: one process for one run, which makes calls and does nothing else. `clients/CONTRACT.md`
//! specifies its flags and messages.
//!
//! [`session`] holds what all stacks share: life line, phases, messages. [`tally`] counts calls, and
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

/// There was no run; the message `failed` has been sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failed(pub String);

/// A setting that a stack does not support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--{flag}={value}: {why}")]
pub struct Refused {
    /// Flag.
    pub flag: &'static str,
    /// Value.
    pub value: String,
    /// Reason, and supported alternatives.
    pub why: String,
}

impl Refused {
    fn new(flag: &'static str, value: impl ToString, why: impl Into<String>) -> Self {
        Refused { flag, value: value.to_string(), why: why.into() }
    }
}

/// Checks that the stack supports the settings.
///
/// # Errors
/// It does not.
pub fn check(settings: &ClientSettings) -> Result<(), Refused> {
    match settings.stack {
        Stack::Rust => grpc::check(settings),
        Stack::Raw => raw::check(settings),
        other => Err(Refused::new("stack", other, "not a stack of this program: expected raw, rust")),
    }
}

/// Makes calls with [`check`]ed settings, from `go` on the life line to the message `end`.
///
/// # Errors
/// There is no run, for instance because the target is unreachable. Failed calls are counted and are not
/// errors.
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

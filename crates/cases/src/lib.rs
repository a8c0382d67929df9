//! Where agents, spans and verdicts meet: the host of a span, triggers of cases, their folders.
//!
//! [`server`] accepts agents, [`agents`] registers them, [`hosts`] matches spans to their hosts. [`watching`] and
//! [`trigger`] select pairs worth a case, [`cases`] opens it, [`pursuit`] fills its [`folder`] and asks for a
//! [`verdict`]; an [`experiment`] proves the verdict, or does not.

#![warn(missing_docs)]

pub mod agents;
pub mod api;
mod budget;
pub mod cases;
mod clocks;
pub mod experiment;
pub mod folder;
pub mod hosts;
mod nearest;
pub mod pursuit;
pub mod report;
mod run;
pub mod samples;
pub mod server;
pub mod slices;
pub mod trigger;
pub mod verdict;
pub mod watching;
pub mod whole;

use std::time::{SystemTime, UNIX_EPOCH};

/// Unix time by the wall clock, milliseconds.
pub fn now_unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

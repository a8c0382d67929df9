//! The keeper, `sockets keep`: a process that undoes a change of sockets when its time is over, whatever
//! happens to the tool. It starts before the first change, in a session of its own.

use crate::Undone;
use serde::{Deserialize, Serialize};
use spangap_undo::guard::{Guard, GuardError};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Final message of a keeper.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Farewell {
    /// Whether a signal came before the deadline.
    pub early: bool,
    /// Whether somebody else had undone the change.
    pub not_there: bool,
    /// Why it could not be undone.
    pub error: Option<String>,
    /// Result of the undo.
    pub undone: Option<Undone>,
    /// Start of the undo, in nanoseconds since 1970.
    #[serde(default)]
    pub begun_unix_ns: Option<u64>,
}

/// Where to record the undo, in addition to the journal.
#[derive(Clone, Copy, Debug)]
pub struct Audited<'a> {
    /// The audit log.
    pub log: &'a Path,
    /// The order, as one JSON object for the log.
    pub order: &'a str,
}

/// Reason for a missing final message.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// The keeper cannot be read or waited for.
    #[error("cannot hear the process that undoes the change")]
    Hear(#[from] io::Error),
    /// The keeper was killed.
    #[error("the process that undoes the change ended before its time")]
    Ended,
    /// The keeper sent something else.
    #[error("the process that undoes the change said: {0}")]
    Said(String),
}

/// Starts a keeper for a journal, and waits until it is ready. The deadline is on CLOCK_BOOTTIME.
///
/// # Errors
/// It does not become ready.
pub fn start(journal: &Path, until_ns: u64, audited: Option<Audited<'_>>) -> Result<Guard, GuardError> {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("spangap")
        .args(["sockets", "keep", "--until-ns", &until_ns.to_string(), "--journal"])
        .arg(journal)
        .stdin(Stdio::null());
    if let Some(Audited { log, order }) = audited {
        command.arg("--audit").arg(log).args(["--order", order]);
    }
    Guard::start(&mut command)
}

/// Waits for its end, and returns its final message.
///
/// # Errors
/// The message is missing or malformed.
pub fn farewell(mut keeper: Guard) -> Result<Farewell, KeeperError> {
    let line = keeper.line()?;
    keeper.wait()?;
    let line = line.ok_or(KeeperError::Ended)?;
    serde_json::from_str(&line).map_err(|_| KeeperError::Said(line))
}

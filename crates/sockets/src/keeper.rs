//! The process that undoes a change of sockets when its time is over, whatever becomes of who made it: this program's own
//! `sockets keep`. It is started before the first change, in a session of its own.

use crate::Undone;
use serde::{Deserialize, Serialize};
use spangap_undo::guard::{Guard, GuardError};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// What it says at its end.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Farewell {
    /// A signal came before the time.
    pub early: bool,
    /// Somebody else undid it.
    pub not_there: bool,
    /// Why it could not be undone.
    pub error: Option<String>,
    /// What was done.
    pub undone: Option<Undone>,
    /// When the undo began, nanoseconds since 1970.
    #[serde(default)]
    pub begun_unix_ns: Option<u64>,
}

/// Where the undo is to be written down, beside the journal.
#[derive(Clone, Copy, Debug)]
pub struct Audited<'a> {
    /// The audit log.
    pub log: &'a Path,
    /// What the line says of the order, as one JSON object.
    pub order: &'a str,
}

/// Why what it says at its end is not known.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// It cannot be heard or waited for.
    #[error("cannot hear the process that undoes the change")]
    Hear(#[from] io::Error),
    /// It was killed.
    #[error("the process that undoes the change ended before its time")]
    Ended,
    /// It says something else.
    #[error("the process that undoes the change said: {0}")]
    Said(String),
}

/// Starts one for a journal, and waits until it is ready. It undoes at a time of CLOCK_BOOTTIME.
///
/// # Errors
/// When it does not become ready.
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

/// Waits for its end: what it says.
///
/// # Errors
/// When it says nothing of use.
pub fn farewell(mut keeper: Guard) -> Result<Farewell, KeeperError> {
    let line = keeper.line()?;
    keeper.wait()?;
    let line = line.ok_or(KeeperError::Ended)?;
    serde_json::from_str(&line).map_err(|_| KeeperError::Said(line))
}

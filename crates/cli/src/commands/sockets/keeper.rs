//! The process that undoes a change when its time is over, whatever becomes of the tool that made it.
//!
//! It is started before the first change, in a session of its own, without a terminal. Its standard output is a pipe:
//! a line when it is ready, one when it is done. Time is CLOCK_BOOTTIME: that of a machine that sleeps counts too.

use super::undo;
use crate::Outcome;
use crate::guarded;
use anyhow::{Context, anyhow};
use clap::Args;
use serde::{Deserialize, Serialize};
use spangap_sockets::Undone;
use spangap_undo::guard::Guard;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Undo a change at a time; started by `sockets set --for`
#[derive(Args, Debug)]
pub struct KeepArgs {
    /// Which change
    #[arg(long)]
    journal: PathBuf,
    /// When, by CLOCK_BOOTTIME
    #[arg(long)]
    until_ns: u64,
}

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
}

/// The keeper's own part.
pub fn run(args: KeepArgs) -> anyhow::Result<Outcome> {
    guarded::apart()?;
    let early = guarded::wait(args.until_ns)?;
    let mut farewell = Farewell { early, ..Farewell::default() };
    match undo::now(&args.journal) {
        Ok(None) => farewell.not_there = true,
        Ok(undone) => farewell.undone = undone,
        Err(error) => farewell.error = Some(format!("{error:#}")),
    }
    // Whoever started it may be gone: then nobody is told.
    let _ = writeln!(io::stdout(), "{}", serde_json::to_string(&farewell)?);
    Ok(Outcome::Done)
}

/// Starts one, and waits until it is ready.
pub fn start(journal: &Path, until_ns: u64) -> anyhow::Result<Guard> {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("spangap")
        .args(["sockets", "keep", "--until-ns", &until_ns.to_string(), "--journal"])
        .arg(journal)
        .stdin(Stdio::null());
    Ok(Guard::start(&mut command)?)
}

/// Waits for its end: what it says, or why not.
pub fn farewell(mut keeper: Guard) -> anyhow::Result<Farewell> {
    let line = keeper.line().context("cannot hear the process that undoes the change")?;
    keeper.wait().context("cannot wait for the process that undoes the change")?;
    let line = line.ok_or_else(|| anyhow!("the process that undoes the change ended before its time"))?;
    serde_json::from_str(&line).with_context(|| format!("the process that undoes the change said: {line}"))
}

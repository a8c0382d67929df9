//! The process that undoes a change when its time is over, whatever becomes of the tool that made it.
//!
//! It is started before the first change, in a session of its own, without a terminal. Its standard output is a pipe:
//! a line when it is ready, one when it is done.

use super::undo;
use crate::Outcome;
use crate::signals::{ASKED_OR_LEFT, Caught};
use anyhow::{Context, anyhow, bail};
use clap::Args;
use rustix::process::{Signal, kill_process, setsid};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use spangap_sockets::Undone;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Undo a change at a time; started by `sockets set --for`
#[derive(Args, Debug)]
pub struct KeepArgs {
    /// Which change
    #[arg(long)]
    journal: PathBuf,
    /// When, by CLOCK_MONOTONIC
    #[arg(long)]
    until_ns: u64,
}

const READY: &str = "ready";

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
    // Neither a Ctrl-C nor the end of the terminal is meant for it.
    setsid().context("cannot leave the session")?;
    let folder = std::env::set_current_dir("/");
    folder.context("cannot leave the folder")?;
    let early = wait(args.until_ns)?;
    let mut farewell = Farewell { early, ..Farewell::default() };
    match undo::now(&args.journal) {
        Ok(None) => farewell.not_there = true,
        Ok(undone) => farewell.undone = undone,
        Err(error) => farewell.error = Some(format!("{error:#}")),
    }
    say(&serde_json::to_string(&farewell)?);
    Ok(Outcome::Done)
}

/// Whoever started it may be gone: then nobody is told.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Until the time, or a signal; says that it is ready once no signal can be missed.
fn wait(until_ns: u64) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot wait")?.block_on(async {
        let mut asked = Caught::new(ASKED_OR_LEFT)?;
        say(READY);
        let left = Duration::from_nanos(until_ns.saturating_sub(now_ns()));
        Ok(tokio::time::timeout(left, asked.first()).await.is_ok())
    })
}

/// Time of the clock that no one sets.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A keeper, seen from the tool that started it.
pub struct Keeper {
    child: Child,
    from: BufReader<ChildStdout>,
}

impl Keeper {
    /// Starts one, and waits until it is ready.
    pub fn start(journal: &Path, until_ns: u64) -> anyhow::Result<Keeper> {
        let mut child = Command::new("/proc/self/exe")
            .arg0("spangap")
            .args(["sockets", "keep", "--until-ns", &until_ns.to_string(), "--journal"])
            .arg(journal)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start the process that undoes the change")?;
        let from = child.stdout.take().context("it has no standard output")?;
        let mut keeper = Keeper { child, from: BufReader::new(from) };
        match keeper.line()?.as_deref() {
            Some(READY) => Ok(keeper),
            said => {
                let status = keeper.child.wait().map_err(anyhow::Error::from);
                bail!("the process that undoes the change said {said:?} and ended: {status:?}")
            }
        }
    }

    fn line(&mut self) -> anyhow::Result<Option<String>> {
        let mut line = String::new();
        let read =
            self.from.read_line(&mut line).context("cannot hear the process that undoes the change")?;
        Ok((read > 0).then(|| line.trim_end().to_owned()))
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end: what it says, or why not.
    pub fn farewell(mut self) -> anyhow::Result<Farewell> {
        let line = self.line()?;
        self.child.wait().context("cannot wait for the process that undoes the change")?;
        let line = line.ok_or_else(|| anyhow!("the process that undoes the change ended before its time"))?;
        serde_json::from_str(&line)
            .with_context(|| format!("the process that undoes the change said {line:?}"))
    }
}

/// Has a keeper undo at once. It is our child and not waited for yet: its id is no other process'.
pub fn hurry(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        // One that has ended has undone it.
        let _ = kill_process(pid, Signal::TERM);
    }
}

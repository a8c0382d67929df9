//! `spangap sockets keep`: the process that undoes a change when its time is over, whatever happens to the tool
//! that made it.
//!
//! It starts before the first change, in a session of its own, without a terminal. Its standard output is a
//! pipe: one line when it is ready, one when it is done. Times are on CLOCK_BOOTTIME, which advances during
//! suspend.

use super::undo;
use crate::Outcome;
use crate::guard_wait;
use clap::Args;
use spangap_sockets::keeper::Farewell;
use spangap_undo::audit;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

/// Undo a change at a time; started by `sockets set --for`, and by an agent's actuator
#[derive(Args, Debug)]
pub struct KeepArgs {
    /// Which change
    #[arg(long)]
    journal: PathBuf,
    /// When, by CLOCK_BOOTTIME
    #[arg(long)]
    until_ns: u64,
    /// Log to which the undo is added
    #[arg(long, requires = "order")]
    audit: Option<PathBuf>,
    /// What the log says of the order: a JSON object
    #[arg(long)]
    order: Option<String>,
}

/// The keeper process itself.
pub fn run(args: KeepArgs) -> anyhow::Result<Outcome> {
    guard_wait::apart()?;
    let early = guard_wait::wait(args.until_ns)?;
    let begun = UNIX_EPOCH.elapsed().unwrap_or_default();
    let mut farewell =
        Farewell { early, begun_unix_ns: Some(begun.as_nanos() as u64), ..Farewell::default() };
    match undo::now(&args.journal) {
        Ok(None) => farewell.not_there = true,
        Ok(undone) => farewell.undone = undone,
        Err(error) => farewell.error = Some(format!("{error:#}")),
    }
    if let (Some(log), Some(order)) = (&args.audit, &args.order) {
        let order: serde_json::Value = serde_json::from_str(order).unwrap_or_default();
        let line = serde_json::json!({
            "unix_ms": begun.as_millis() as u64,
            "event": "undone",
            "by": format!("guard {}", std::process::id()),
            "order": order,
            "early": early,
            "not_there": farewell.not_there,
            "error": farewell.error,
            "sockets": farewell.undone.as_ref().map(|undone| &undone.sockets),
        });
        if let Err(error) = audit::append(log, &line) {
            let error = format!("the audit log: {error}: {}", error.source);
            farewell.error = Some(farewell.error.map_or(error.clone(), |first| format!("{first}; {error}")));
        }
    }
    // If its parent is gone, nobody reads the result.
    let _ = writeln!(io::stdout(), "{}", serde_json::to_string(&farewell)?);
    Ok(Outcome::Done)
}

//! `spangap isolate guard`: the process that rolls back an unconfirmed plan, and how it is started.
//!
//! It starts before the first change, in a session of its own and without a terminal, and prints a line when it
//! is ready. It outlives the tool that started it. Times are on CLOCK_BOOTTIME, which advances during suspend.

use super::folder::WhereArgs;
use super::{now_unix_ns, rollback};
use crate::Outcome;
use crate::guard_wait;
use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};
use spangap_isolate::journal::{Head, HeadRead, Journal};
use spangap_undo::audit;
use spangap_undo::guard::{Guard, now_ns};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Undo a plan at a time unless it is confirmed; started by `isolate apply`
#[derive(Args, Debug)]
pub struct GuardArgs {
    #[command(flatten)]
    place: WhereArgs,
    /// When, by CLOCK_BOOTTIME
    #[arg(long, value_name = "NS")]
    until_ns: u64,
    #[command(flatten)]
    audit: AuditArgs,
}

/// Where to record the rollback, in addition to the journal: passed by an agent's actuator.
#[derive(Args, Clone, Debug, Default)]
pub struct AuditArgs {
    /// The audit log
    #[arg(long, value_name = "FILE", hide = true, requires = "order")]
    audit: Option<PathBuf>,
    /// What its line says of the order: one JSON object
    #[arg(long, value_name = "JSON", hide = true, requires = "audit", value_parser = object)]
    order: Option<Value>,
}

fn object(text: &str) -> Result<Value, String> {
    let parsed: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if parsed.is_object() { Ok(parsed) } else { Err("expected a JSON object".into()) }
}

/// Its name in the journal.
const NOT_CONFIRMED: &str = "guard: not confirmed in time";
const TOLD_TO_END: &str = "guard: told to exit before it was confirmed";

/// The guard process itself.
pub fn run(args: GuardArgs) -> anyhow::Result<Outcome> {
    guard_wait::apart()?;
    let mut place = args.place.find()?;
    // Another plan may be applied by then, with a guard of its own.
    let (path, guarded) = place.folder.open()?.context("there is no journal to guard")?;
    place.of_journal(&path, &guarded)?;
    let asked = guard_wait::wait(args.until_ns)?;
    let lock = place.folder.lock()?;
    let Some((path, journal)) = place.folder.open()? else { return Ok(Outcome::Done) };
    let over = journal.confirmed().is_some() || journal.rolled_back().is_some();
    if !is_same(&journal, &guarded.head) || over {
        return Ok(Outcome::Done);
    }
    let by = if asked { TOLD_TO_END } else { NOT_CONFIRMED };
    let undone = rollback::undo(&place, &lock, &path, &journal, by, false, &mut |_| {});
    let written = args.audit.audit.as_ref().map(|log| {
        let line = json!({
            "unix_ms": now_unix_ns() / 1_000_000,
            "event": "undone",
            "by": format!("guard {}", std::process::id()),
            "because": by,
            "order": args.audit.order,
            "undone": undone.as_ref().ok(),
            "error": undone.as_ref().err().map(|error| format!("{error:#}")),
        });
        audit::append(log, &line)
    });
    undone?;
    written.transpose()?;
    Ok(Outcome::Done)
}

/// Whether a journal belongs to the guarded plan. Even with a head damaged since, it names its guard.
fn is_same(journal: &Journal, guarded: &Head) -> bool {
    if journal.head_read == HeadRead::Lost {
        return journal.guard().is_some_and(|guard| guard.pid == std::process::id() && guard.is_alive());
    }
    let head = &journal.head;
    (head.time_unix_ns, &head.boot_id, &head.root) == (guarded.time_unix_ns, &guarded.boot_id, &guarded.root)
}

/// Starts a guard for the open journal of a folder, and waits until it is ready.
pub fn start(folder: &Path, confirm_within_ns: u64, audit: &AuditArgs) -> anyhow::Result<Guard> {
    let until_ns = now_ns().saturating_add(confirm_within_ns);
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("spangap")
        .args(["isolate", "guard", "--until-ns", &until_ns.to_string(), "--journal"])
        .arg(folder)
        .stdin(Stdio::null());
    if let AuditArgs { audit: Some(log), order: Some(order) } = audit {
        command.arg("--audit").arg(log).args(["--order", &order.to_string()]);
    }
    Ok(Guard::start(&mut command)?)
}

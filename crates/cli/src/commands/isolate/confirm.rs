//! `spangap isolate confirm`: lets an applied plan stay.

use super::folder::WhereArgs;
use super::{guard, namespace, now_unix_ns, print_json, print_text};
use crate::Outcome;
use anyhow::bail;
use clap::Args;
use serde_json::json;
use spangap_isolate::journal::{Journal, JournalError, Record};
use spangap_isolate::kernel::Kernel;
use spangap_isolate::rollback::{State, standing};
use std::path::Path;

const EXAMPLES: &str = "\
Examples:
  spangap isolate apply PLAN.json --confirm-within 60s && spangap isolate verify && spangap isolate confirm
      stays only if it holds; whoever locks themselves out has everything back after a minute

It stays until `spangap isolate rollback`, or the next boot.";

/// Let an applied plan stay
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ConfirmArgs {
    #[command(flatten)]
    place: WhereArgs,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Does it.
pub fn run(args: ConfirmArgs) -> anyhow::Result<Outcome> {
    let mut place = args.place.find()?;
    let Some((path, journal)) = place.folder.open()? else { return nothing(place.folder.path()) };
    place.of_journal(&path, &journal)?;
    place.needs_root("confirm")?;
    let lock = place.folder.lock()?;
    let Some((path, journal)) = place.folder.open()? else { return nothing(place.folder.path()) };
    let rollback = place.command("rollback");
    if journal.of_another_boot(&place.live.files()) {
        bail!(
            "it was applied in another run of this machine: there is nothing to confirm ({})",
            path.display()
        );
    }
    if let Some((_, by, left)) = journal.rolled_back() {
        let what = if left.is_empty() { "" } else { ", but for what others had changed" };
        bail!("it was undone by {by}{what}: nothing to confirm ({})", path.display());
    }
    if journal.applied().is_none() {
        bail!("apply did not get to its end: `{rollback}` first ({})", path.display());
    }
    let already = journal.confirmed().is_some();
    if !already {
        let confirmed = Record::Confirmed { time_unix_ns: now_unix_ns() };
        place.folder.append(&lock)?.write(&[confirmed])?;
    }
    drop(lock);
    guard::end(&journal);
    // From another network namespace its interfaces would pass for gone.
    let seen = place.root.is_some() || journal.head.net_namespace == namespace::own();
    let standing = if seen { standing(&place.live, &journal) } else { Vec::new() };
    let changed = standing.iter().filter(|one| one.state != State::Ours).count();
    if args.json {
        return print_json(&json!({
            "confirmed": true, "already": already, "journal": path, "values": seen.then_some(standing.len()), "not_as_written": seen.then_some(changed),
        }));
    }
    let what = if already { "Confirmed already" } else { "Confirmed" };
    let drift = match changed {
        0 => String::new(),
        changed => format!(
            "{changed} of {} values are not as they were written: `{}`\n",
            standing.len(),
            place.command("status")
        ),
    };
    print_text(&format!("{what}: it stays until `{rollback}`, or the next boot.\n{drift}"))
}

/// Why there is nothing to confirm.
fn nothing(folder: &Path) -> anyhow::Result<Outcome> {
    let last = folder.join("last.journal");
    let bytes = std::fs::read(&last).ok();
    let last: Option<Result<Journal, JournalError>> = bytes.map(|bytes| Journal::parse(&last, &bytes));
    match last.as_ref().and_then(|last| last.as_ref().ok()).and_then(Journal::rolled_back) {
        Some((_, by, _)) => bail!("nothing is applied: it was undone by {by}"),
        None => bail!("nothing is applied"),
    }
}

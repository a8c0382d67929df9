//! `spangap isolate confirm`: makes an applied plan permanent, if it holds.

use super::folder::{MachinePaths, WhereArgs, damaged, end_guard};
use super::verify::{Observation, observe};
use super::{namespace, now_unix_ns, print_json, print_text};
use crate::Outcome;
use crate::signals::{self, ASKED};
use crate::values::Duration;
use anyhow::{anyhow, bail};
use clap::Args;
use serde::Serialize;
use spangap_isolate::journal::{Head, Journal, JournalError, Record};
use spangap_isolate::kernel::Kernel;
use spangap_isolate::rollback::{State, standing};
use spangap_isolate::verify::effect::EffectVerdict;
use spangap_isolate::verify::status::Status;
use spangap_model::duration::format_ns;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  spangap isolate apply PLAN.json --confirm-within 60s && spangap isolate confirm
      keep it only if it holds; if you lock yourself out, you get everything back after a minute
  spangap isolate confirm --for 10s
      watch longer: interrupts of a quiet interface are rare
  spangap isolate confirm --no-verify
      keep it, whether it holds or not

Verifies first, as `spangap isolate verify` does. A plan that does not hold is not confirmed: the exit code is
1, and the plan is undone when its time is up. What cannot be determined (no packet arrived while watching) is
reported, and does not prevent confirmation. A confirmed plan stays until `spangap isolate rollback` or the
next boot.";

/// Keep an applied plan, if it holds
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ConfirmArgs {
    #[command(flatten)]
    place: WhereArgs,
    /// Do not verify that it holds
    #[arg(long)]
    no_verify: bool,
    /// How long to watch counters
    #[arg(long = "for", value_name = "DURATION", default_value = "2s", conflicts_with = "no_verify")]
    watch: Duration,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Result for scripts.
#[derive(Debug, Serialize)]
struct Report {
    confirmed: bool,
    /// Whether it was confirmed before.
    already: bool,
    journal: PathBuf,
    /// Verdict of the verification; null if it was skipped.
    verdict: Option<EffectVerdict>,
    /// The verdict in a sentence.
    summary: Option<String>,
    /// Number of values written; null if they are not visible from here.
    values: Option<usize>,
    /// Number of values that have changed since.
    not_as_written: Option<usize>,
}

/// Confirms the plan.
pub fn run(args: ConfirmArgs) -> anyhow::Result<Outcome> {
    let mut place = args.place.find()?;
    let Some((path, journal)) = place.folder.open()? else { return nothing(place.folder.path()) };
    place.of_journal(&path, &journal)?;
    place.needs_root("confirm")?;
    can_be_confirmed(&place, &path, &journal)?;
    let already = journal.confirmed().is_some();
    let mut report = Report {
        confirmed: already,
        already,
        journal: path,
        verdict: None,
        summary: None,
        values: None,
        not_as_written: None,
    };
    if !args.no_verify && !already {
        verify(&args, &place, &mut report)?;
    }
    let journal = confirm(&place, &journal.head, &mut report)?;
    end_guard(&journal);
    // From another network namespace, its interfaces would appear gone.
    if place.root.is_some() || journal.head.net_namespace == namespace::own() {
        let standing = standing(&place.live, &journal);
        report.values = Some(standing.len());
        report.not_as_written = Some(standing.iter().filter(|one| one.state != State::Ours).count());
    }
    if args.json { print_json(&report) } else { print_text(&words(&place, &report)) }
}

fn can_be_confirmed(place: &MachinePaths, path: &Path, journal: &Journal) -> anyhow::Result<()> {
    if journal.of_another_boot(&place.live.files()) {
        bail!(
            "it was applied before this machine's last boot: there is nothing to confirm ({})",
            path.display()
        );
    }
    if let Some((_, by, left)) = journal.rolled_back() {
        let what = if left.is_empty() { "" } else { ", except for what others had changed" };
        bail!("it was undone by {by}{what}: nothing to confirm ({})", path.display());
    }
    if !journal.is_whole() {
        bail!("{}: `{}` first", damaged(path, journal), place.command("rollback"));
    }
    if journal.applied().is_none() {
        bail!("apply did not finish: `{}` first ({})", place.command("rollback"), path.display());
    }
    Ok(())
}

/// Verifies that the plan holds. If it does not, it fails and confirms nothing.
fn verify(args: &ConfirmArgs, place: &MachinePaths, report: &mut Report) -> anyhow::Result<()> {
    // From here on, Ctrl-C only ends the wait.
    let stop = signals::flag(ASKED)?;
    let Observation { report: seen, .. } = observe(&args.place, args.watch, &stop)?;
    (report.verdict, report.summary) = (Some(seen.verdict), Some(seen.summary.clone()));
    let refused = if seen.interrupted {
        Some("interrupted while verifying".to_owned())
    } else {
        (seen.verdict == EffectVerdict::DoesNotHold).then(|| seen.summary.trim_end_matches('.').to_owned())
    };
    let Some(why) = refused else { return Ok(()) };
    if args.json {
        print_json(report)?;
    }
    let stays = match undone_in(&seen.status) {
        Some(within) => format!("it is undone in {within}"),
        None => "it stays, not confirmed".to_owned(),
    };
    Err(anyhow!(
        "not confirmed: {why}\n{stays}; `{}` undoes it now, `{}` keeps it anyway",
        place.command("rollback"),
        place.command("confirm --no-verify"),
    ))
}

/// Time until the guard rolls back.
fn undone_in(status: &Status) -> Option<String> {
    let guarded = status.guard.is_some_and(|guard| guard.alive);
    let until = status.until_unix_ns.filter(|_| guarded)?;
    let left = until.saturating_sub(now_unix_ns());
    Some(format_ns(left / 1_000_000_000 * 1_000_000_000))
}

/// Records the confirmation, if the plan is still the one that was verified.
fn confirm(place: &MachinePaths, looked_at: &Head, report: &mut Report) -> anyhow::Result<Journal> {
    let lock = place.folder.lock()?;
    let Some((path, journal)) = place.folder.open()? else {
        return nothing(place.folder.path());
    };
    can_be_confirmed(place, &path, &journal)?;
    if journal.head != *looked_at {
        bail!("another plan has been applied since: nothing was confirmed ({})", path.display());
    }
    report.already = journal.confirmed().is_some();
    if !report.already {
        place.folder.append(&lock)?.write(&[Record::Confirmed { time_unix_ns: now_unix_ns() }])?;
    }
    report.confirmed = true;
    Ok(journal)
}

fn words(place: &MachinePaths, report: &Report) -> String {
    let mut text = String::new();
    if let Some(summary) = &report.summary {
        text += &format!("{summary}\n");
    }
    let what = if report.already { "Confirmed already" } else { "Confirmed" };
    text += &format!("{what}: it stays until `{}`, or the next boot.\n", place.command("rollback"));
    if let (Some(values), Some(changed @ 1..)) = (report.values, report.not_as_written) {
        let status = place.command("status");
        text += &format!("{changed} of {values} values have changed since: `{status}`\n");
    }
    text
}

/// Why there is nothing to confirm.
fn nothing<T>(folder: &Path) -> anyhow::Result<T> {
    let last = folder.join("last.journal");
    let bytes = std::fs::read(&last).ok();
    let last: Option<Result<Journal, JournalError>> = bytes.map(|bytes| Journal::parse(&last, &bytes));
    match last.as_ref().and_then(|last| last.as_ref().ok()).and_then(Journal::rolled_back) {
        Some((_, by, _)) => bail!("nothing is applied: it was undone by {by}"),
        None => bail!("nothing is applied"),
    }
}

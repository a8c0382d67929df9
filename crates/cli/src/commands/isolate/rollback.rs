//! `spangap isolate rollback`, and the rollback that other verbs share.

use super::folder::{MachinePaths, WhereArgs, end_guard};
use super::namespace::{self, NamespaceEntry};
use super::{now_unix_ns, print_json, print_text, progress};
use crate::Outcome;
use crate::signals::{self, ASKED_OR_LEFT};
use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use spangap_isolate::journal::{Journal, JournalError, Lock, Record};
use spangap_isolate::place::Place;
use spangap_isolate::rollback::{RolledBack, Standing, State, rollback};
use spangap_report::figures::counted;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  spangap isolate rollback
      restore every value in reverse order, from the journal alone; also after `apply` was killed
  spangap isolate rollback --force
      also restore values that somebody else has changed since
  spangap isolate rollback --forget
      drop the journal and touch nothing: what is applied stays until the next boot; a damaged journal is renamed
      and kept
  ip netns exec NAME spangap isolate rollback
      for interfaces in a network namespace

A value is restored only if it is still the one that was written; any other is named and left alone, and the
journal stays. From a damaged journal, whatever can be read is undone; the rest is named with its place in the
file, and the journal stays until --forget. A second rollback does nothing. Exit code 1 if anything is left.";

/// Undo an applied plan, from its journal alone
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RollbackArgs {
    #[command(flatten)]
    place: WhereArgs,
    /// Also restore what somebody else has changed meanwhile
    #[arg(long, conflicts_with = "forget")]
    force: bool,
    /// Drop the journal and touch nothing
    #[arg(long)]
    forget: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Result for scripts.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// `nothing_applied`, `another_boot`, `forgotten`, `restored`, `left`.
    outcome: &'static str,
    /// New path of a damaged journal.
    set_aside: Option<PathBuf>,
    journal: Option<PathBuf>,
    rolled_back: Option<RolledBack>,
    /// Values left as they are when the journal is dropped.
    stays: Vec<Standing>,
}

/// Rolls back.
pub fn run(args: RollbackArgs) -> anyhow::Result<Outcome> {
    let mut place = args.place.find()?;
    // A check before taking the lock, which would create the folder.
    let opened = match place.folder.open() {
        Err(JournalError::Damaged { .. }) if args.forget => return forget_unread(&args, &place),
        opened => opened?,
    };
    let Some((path, journal)) = opened else { return nothing_applied(&args) };
    place.of_journal(&path, &journal)?;
    place.needs_root("rollback")?;
    let lock = place.folder.lock()?;
    let Some((path, journal)) = place.folder.open()? else { return nothing_applied(&args) };
    let mut report = Report { journal: Some(path.clone()), ..Report::default() };
    if journal.of_another_boot(&spangap_isolate::kernel::Kernel::files(&place.live)) {
        place.folder.close(&lock)?;
        report.outcome = "another_boot";
        return told(
            &args,
            &report,
            "It was applied before this machine's last boot: nothing to undo.\n".into(),
        );
    }
    if args.forget {
        return forget(&args, &place, &lock, &journal, report);
    }
    let journal = inside_its_namespace(&place, journal)?;
    // Once started, a rollback is completed: half of one helps nobody.
    let _ignored = signals::flag(ASKED_OR_LEFT)?;
    let bar = progress("undoing", journal.entries().count() as u64);
    let undone = undo(&place, &lock, &path, &journal, "rollback", args.force, &mut |_| bar.inc(1));
    bar.finish_and_clear();
    drop(lock);
    let undone = undone?;
    end_guard(&journal);
    let complete = undone.is_complete();
    report.outcome = if complete { "restored" } else { "left" };
    let mut text = words(&undone);
    if !complete {
        let _ = writeln!(text, "The journal stays: {}", path.display());
    }
    let damaged = undone.unreadable.iter().any(|damage| damage.lost);
    report.rolled_back = Some(undone);
    told(&args, &report, text)?;
    if complete {
        return Ok(Outcome::Done);
    }
    if damaged {
        bail!(
            "the journal is damaged: what can be read of it is undone; restore the rest by hand, then `{}`",
            place.command("rollback --forget")
        );
    }
    bail!(
        "not everything could be restored: `{}` also restores what others have changed",
        place.command("rollback --force")
    )
}

fn nothing_applied(args: &RollbackArgs) -> anyhow::Result<Outcome> {
    let report = Report { outcome: "nothing_applied", ..Report::default() };
    told(args, &report, "Nothing is applied.\n".into())
}

fn told(args: &RollbackArgs, report: &Report, text: String) -> anyhow::Result<Outcome> {
    if args.json { print_json(report) } else { print_text(&text) }
}

fn forget(
    args: &RollbackArgs,
    place: &MachinePaths,
    lock: &Lock,
    journal: &Journal,
    mut report: Report,
) -> anyhow::Result<Outcome> {
    let standing = spangap_isolate::rollback::standing(&place.live, journal);
    report.stays = standing.into_iter().filter(|one| one.state == State::Ours).collect();
    let mut text = format!("Forgotten: {} as written, until the next boot:\n", stay(report.stays.len()));
    for one in &report.stays {
        let (place, new) = (&one.entry.place, &one.entry.new);
        let before = one.entry.old.as_deref().map_or("not there".to_owned(), quoted_value);
        let _ = writeln!(text, "  {place} = {}, before: {before}", quoted_value(new));
    }
    if journal.is_whole() {
        place.folder.close(lock)?;
    } else {
        for damage in journal.lost() {
            let _ = writeln!(text, "  not readable  {damage}");
        }
        let aside = place.folder.set_aside(lock)?;
        let _ = writeln!(text, "The damaged journal is kept: {}", aside.display());
        report.set_aside = Some(aside);
    }
    end_guard(journal);
    report.outcome = "forgotten";
    told(args, &report, text)
}

/// Handles a journal that is entirely unreadable.
fn forget_unread(args: &RollbackArgs, place: &MachinePaths) -> anyhow::Result<Outcome> {
    place.needs_root("rollback")?;
    let aside = place.folder.set_aside(&place.folder.lock()?)?;
    let text = format!(
        "Forgotten: what was applied stays until the next boot; which values those are cannot be read.\n\
         The damaged journal is kept: {}\n",
        aside.display()
    );
    let report = Report { outcome: "forgotten", set_aside: Some(aside), ..Report::default() };
    told(args, &report, text)
}

/// A value for display; it may be empty.
pub fn quoted_value(value: &str) -> String {
    format!("\"{}\"", value.trim_end())
}

fn stay(count: usize) -> String {
    if count == 1 { "1 value stays".to_owned() } else { format!("{count} values stay") }
}

/// Interfaces can be changed only inside their network namespace. If that is gone, so are they.
fn inside_its_namespace(place: &MachinePaths, mut journal: Journal) -> anyhow::Result<Journal> {
    if place.root.is_some() {
        return Ok(journal);
    }
    namespace::cgroups_are_mounted(&journal)?;
    let of_interface =
        |record: &Record| matches!(record, Record::Change(entry) if namespace::is_of_interface(&entry.place));
    let count = journal.records.iter().filter(|record| of_interface(record)).count();
    let theirs = journal.head.net_namespace;
    if count == 0 || theirs.is_none() || theirs == namespace::own() {
        if count > 0 {
            namespace::sys_is_ours()?;
        }
        return Ok(journal);
    }
    match namespace::entered(theirs.unwrap_or_default()) {
        NamespaceEntry::By(before) => {
            bail!(
                "the plan was applied in another network namespace: `{before} {}`",
                place.command("rollback")
            )
        }
        NamespaceEntry::Gone => {
            journal.records.retain(|record| !of_interface(record));
            eprintln!(
                "The network namespace of the plan is gone, and with it {} of its interfaces.",
                counted(count, "value")
            );
            Ok(journal)
        }
    }
}

/// Undoes a journal, records that in it, and puts it aside if nothing is left.
pub fn undo(
    place: &MachinePaths,
    lock: &Lock,
    path: &Path,
    journal: &Journal,
    by: &str,
    force: bool,
    tell: &mut dyn FnMut(&Place),
) -> anyhow::Result<RolledBack> {
    // A later rollback learns of an interrupted one this way. A full disk must not prevent the rollback.
    let _ = place.folder.append(lock).and_then(|mut writer| writer.write(&[Record::Undoing]));
    let undone = rollback(&place.live, journal, force, tell);
    let failed = undone.failed.iter().map(|(place, _)| place);
    let left = undone.left.iter().map(|standing| &standing.entry.place).chain(failed).cloned().collect();
    let record = Record::RolledBack { time_unix_ns: now_unix_ns(), by: by.to_owned(), left };
    let noted = place.folder.append(lock).and_then(|mut writer| writer.write(&[record]));
    noted.with_context(|| {
        format!("everything is undone ({}), but that cannot be noted in {}", words(&undone), path.display())
    })?;
    if undone.is_complete() {
        place.folder.close(lock)?;
    }
    Ok(undone)
}

/// Result of a rollback, in words.
pub fn words(undone: &RolledBack) -> String {
    let mut text = format!("{} restored", counted(undone.restored.len(), "value"));
    if undone.before_already > 0 {
        let _ = write!(text, ", {} as before already", undone.before_already);
    }
    if !undone.gone.is_empty() {
        let _ = write!(text, ", {} gone", undone.gone.len());
    }
    if !undone.held_again.is_empty() {
        let _ = write!(text, ", {} set again that would have been lost by it", undone.held_again.len());
    }
    text += ".\n";
    for interface in &undone.spread_by_driver {
        let _ = writeln!(
            text,
            "  spread   {interface}: with the queues, its driver also reassigned the interrupts' CPUs"
        );
    }
    for group in &undone.widened {
        let _ = writeln!(text, "  widened  {group}: created since, with the narrowed set");
    }
    for place in &undone.gone {
        let _ = writeln!(text, "  gone     {place}");
    }
    for standing in &undone.left {
        let Standing { entry, state } = standing;
        let what = match state {
            State::Changed { found } => {
                let (found, new) = (quoted_value(found), quoted_value(&entry.new));
                format!("is {found}: somebody else changed it from {new}")
            }
            State::Unknown { why } => format!("cannot be read: {why}"),
            State::Ours => format!("is {}, as it was written", quoted_value(&entry.new)),
            State::Before => "is as before".to_owned(),
            State::Gone => "is gone".to_owned(),
        };
        let old = entry.old.as_deref().map_or("not there".to_owned(), quoted_value);
        let _ = writeln!(text, "  left     {} {what}; before it was {old}", entry.place);
    }
    for (place, why) in &undone.failed {
        let _ = writeln!(text, "  failed   {place}: {why}");
    }
    for damage in &undone.unreadable {
        let _ = writeln!(text, "  damaged  {damage}");
    }
    text
}

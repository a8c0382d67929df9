//! `spangap sockets undo`, and how an undo is reported.

use super::folder;
use crate::Outcome;
use crate::values::wrong_usage;
use anyhow::{Context, anyhow, bail};
use clap::Args;
use serde::Serialize;
use spangap_report::figures::counted;
use spangap_sockets::{Change, ChangeOutcome, JournalError, LockedJournal, Undone, undo};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  spangap sockets undo --journal /run/spangap/sockets/nodelay-1790000000000000000-812.journal
      the command that `spangap sockets set` printed
  spangap sockets undo --all
      everything that is still changed, even if the tool was killed

  spangap sockets undo --all --forget
      also rename damaged journals, once everything that can be read from them is restored

A socket is restored only if it is still the same one (process and its start, inode, both ends) and still has
the value that was set; any other is named and left alone. A journal is removed when nothing is left to do, so
the same undo can run twice. From a damaged one, whatever can be read is restored; the rest is named, and the
file stays until --forget: until then, no socket that may be one of the unreadable ones can be set.";

/// Undo what `sockets set` changed
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct UndoArgs {
    /// The change to undo; with --all, the folder to look in
    #[arg(long, value_name = "FILE|DIR", required_unless_present = "all")]
    journal: Option<PathBuf>,
    /// Every change that has not been undone yet
    #[arg(long)]
    all: bool,
    /// Rename damaged journals to get them out of the way; they are kept
    #[arg(long)]
    forget: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// One journal, for scripts.
#[derive(Debug, Serialize)]
struct JournalReport {
    journal: PathBuf,
    /// Whether the journal did not exist.
    not_there: bool,
    error: Option<String>,
    /// New path of a damaged journal.
    set_aside: Option<PathBuf>,
    #[serde(flatten)]
    undone: Undone,
}

/// Undoes the changes.
pub fn run(args: UndoArgs) -> anyhow::Result<Outcome> {
    let paths = match (args.all, args.journal) {
        (true, folder) => folder::of(folder)?.journals()?,
        (false, Some(path)) if path.is_dir() => {
            return Err(wrong_usage(format!(
                "{} is a folder: --all undoes the journals in it",
                path.display()
            ))
            .into());
        }
        (false, Some(path)) => vec![path],
        (false, None) => return Err(wrong_usage("expected --journal FILE or --all").into()),
    };
    let one = !args.all;
    let mut done = Vec::new();
    for journal in paths {
        let undone = undo_one(&journal);
        let not_there = matches!(undone, Ok(None));
        let damaged = is_damaged(&undone);
        let (undone, mut error) = match undone {
            Ok(undone) => (undone.unwrap_or_default(), None),
            Err(error) => (Undone::default(), Some(format!("{error:#}"))),
        };
        let mut set_aside = None;
        if args.forget && damaged {
            match spangap_sockets::set_aside(&journal) {
                Ok(path) => (set_aside, error) = (Some(path), None),
                Err(failed) => error = Some(format!("{:#}", anyhow!(failed))),
            }
        }
        if one && not_there && !is_of_ours(&journal) {
            bail!("{} is not there: expected a journal of `spangap sockets set`", journal.display());
        }
        done.push(JournalReport { journal, not_there, error, set_aside, undone });
    }
    if args.json {
        super::print_json(&serde_json::json!({ "journals": done }))?;
    } else {
        print(&done).or_else(super::seen_enough)?;
    }
    let failed: Vec<_> = done.iter().filter_map(|one| one.error.clone()).collect();
    if !failed.is_empty() {
        bail!("{}", failed.join("; "));
    }
    let mut left = done.iter().filter(|one| !one.not_there && !one.undone.journal_removed);
    match left.find(|one| one.set_aside.is_none() || one.undone.count(is_failed) > 0) {
        Some(left) if left.undone.count(is_failed) == 0 => Err(anyhow!(
            "journal {path} is damaged: what can be read of it is set back; `spangap sockets undo --journal {path} --forget` sets \
             it aside, and then `spangap sockets set` the rest",
            path = left.journal.display()
        )),
        Some(left) => Err(anyhow!("some sockets could not be set back; {} stays", left.journal.display())),
        None => Ok(Outcome::Done),
    }
}

fn is_failed(became: &ChangeOutcome) -> bool {
    matches!(became, ChangeOutcome::Failed(_))
}

/// Whether the journal is damaged, and nothing else is left to do.
fn is_damaged(undone: &anyhow::Result<Option<Undone>>) -> bool {
    match undone {
        Ok(Some(undone)) => {
            let lost = undone.unreadable.iter().any(|damage| damage.lost);
            lost && !undone.journal_removed && undone.count(is_failed) == 0
        }
        Ok(None) => false,
        Err(error) => matches!(error.downcast_ref(), Some(JournalError::Damaged { .. })),
    }
}

fn undo_one(journal: &Path) -> anyhow::Result<Option<Undone>> {
    let Some(held) = LockedJournal::take(journal)? else { return Ok(None) };
    Ok(Some(undo(held)?))
}

/// Whether a missing file may have been a journal.
fn is_of_ours(journal: &Path) -> bool {
    let name = journal.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("nodelay-") && name.ends_with(".journal")
}

fn print(done: &[JournalReport]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if done.is_empty() {
        writeln!(out, "Nothing to undo.")?;
    }
    for one in done {
        if one.not_there {
            writeln!(out, "{} is not there: it was undone already.", one.journal.display())?;
        } else if one.error.is_none() {
            print_undone(&mut out, &one.undone)?;
        }
        if let Some(path) = &one.set_aside {
            writeln!(out, "The damaged journal is kept: {}", path.display())?;
        }
    }
    Ok(())
}

/// Result of an undo, in words.
pub fn print_undone(out: &mut impl Write, undone: &Undone) -> io::Result<()> {
    for change in &undone.sockets {
        writeln!(out, "{}", change_line(change))?;
    }
    for damage in &undone.unreadable {
        writeln!(out, "damaged: {damage}")?;
    }
    let back = undone.count(|became| *became == ChangeOutcome::Changed);
    let already = undone.count(|became| *became == ChangeOutcome::Already);
    let gone = undone.count(|became| matches!(became, ChangeOutcome::Gone(_)));
    let failed = undone.count(|became| matches!(became, ChangeOutcome::Failed(_)));
    let mut text = format!("{} set back", counted(back, "connection"));
    for (count, what) in
        [(already, "had the old value already"), (gone, "gone"), (failed, "could not be set back")]
    {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    writeln!(out, "{text}.")
}

/// One socket and its outcome, as a line.
pub fn change_line(change: &Change) -> String {
    let word = |on| if on { "on" } else { "off" };
    let what = match &change.became {
        ChangeOutcome::Changed => format!("{} -> {}", word(!change.to), word(change.to)),
        ChangeOutcome::Already => format!("{} already", word(change.to)),
        ChangeOutcome::Gone(why) => format!("skipped: {why}"),
        ChangeOutcome::Failed(why) => format!("failed: {why}"),
    };
    let owner = match (&change.comm, change.pid, change.fd) {
        (Some(comm), Some(pid), Some(fd)) => format!("{comm} ({pid}) fd {fd}"),
        _ => "?".to_owned(),
    };
    format!("{} -> {}  {owner}  nodelay {what}", change.local, change.peer)
}

/// Undoes one journal for `sockets set`; `None` if somebody else has.
pub fn now(journal: &Path) -> anyhow::Result<Option<Undone>> {
    undo_one(journal).with_context(|| format!("cannot undo {}", journal.display()))
}

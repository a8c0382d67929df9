//! `spangap isolate status`: the applied plan, and who undid what.

use super::folder::WhereArgs;
use super::namespace::{self, NamespaceEntry};
use super::{now_unix_ns, print_json, print_text, seen_enough};
use crate::Outcome;
use crate::output::width;
use crate::signals::{self, ASKED};
use crate::values::{Duration, wrong_usage};
use anyhow::Context;
use clap::Args;
use spangap_isolate::journal::{Journal, JournalError};
use spangap_isolate::kernel::{Kernel, Live};
use spangap_isolate::place::Place;
use spangap_isolate::report::status::text;
use spangap_isolate::rollback::{State, standing};
use spangap_isolate::topology::Topology;
use spangap_isolate::verify::status::{Event, Open, Status, events};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  spangap isolate status
      what is applied and until when, which values have changed since, and who probably changed them
  spangap isolate status --watch --json >> drift.jsonl
      a line whenever something changes: irqbalance, the kubelet, a partition that the kernel made invalid, ...
  spangap isolate status --fail-on drift
      exit with 3 if any value has changed since, or a new cgroup has CPUs of the network

Changes nothing. Who changed a value is inferred from the programs that run, and reported as probable; only a
partition states its reason.";

/// Show what is applied, and which parts somebody has undone
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct StatusArgs {
    #[command(flatten)]
    place: WhereArgs,
    /// Keep watching, and print a line whenever something changes, until Ctrl-C
    #[arg(long)]
    watch: bool,
    /// Time between two checks of --watch
    #[arg(long, value_name = "DURATION", default_value = "1s", requires = "watch")]
    interval: Duration,
    /// Exit with 3 if this is found: drift (with --watch: at any check)
    #[arg(long, value_name = "WHAT", value_parser = ["drift"])]
    fail_on: Option<String>,
    /// Print one JSON document; with --watch JSON Lines, the first one the status
    #[arg(long)]
    json: bool,
}

/// Polling interval for Ctrl-C.
const NOTICED_WITHIN: std::time::Duration = std::time::Duration::from_millis(50);

/// Shows the status.
pub fn run(args: StatusArgs) -> anyhow::Result<Outcome> {
    let status = look(&args.place)?.status;
    let mut drifted = status.drifted();
    if args.watch {
        if args.interval.ns() == 0 {
            return Err(wrong_usage("--interval 0: expected a time above 0").into());
        }
        drifted |= watch(&args, status)?;
    } else if args.json {
        print_json(&status)?;
    } else {
        print_text(&words(&args, &status)?)?;
    }
    let found = args.fail_on.is_some() && drifted;
    Ok(if found { Outcome::Found } else { Outcome::Done })
}

fn words(args: &StatusArgs, status: &Status) -> anyhow::Result<String> {
    let rollback = args.place.find()?.command("rollback");
    Ok(text(status, now_unix_ns(), &rollback, width(100, 160)))
}

/// Result of one check; without an open journal the machine is not read.
pub struct StatusCheck {
    pub status: Status,
    /// The open journal, and the machine it belongs to.
    pub open: Option<(Journal, Live, Topology)>,
    /// How to enter the network namespace of its interfaces, if this process is in another one.
    pub elsewhere: Option<NamespaceEntry>,
}

/// Checks once.
pub fn look(place: &WhereArgs) -> anyhow::Result<StatusCheck> {
    let mut place = place.find()?;
    let Some((path, journal)) = place.folder.open()? else {
        let last = last(place.folder.path())?;
        return Ok(StatusCheck { status: Status::nothing(last.as_ref()), open: None, elsewhere: None });
    };
    place.of_journal(&path, &journal)?;
    let live = place.live;
    let another_boot = journal.of_another_boot(&live.files());
    let now = live.topology();
    let mut standings = if another_boot { Vec::new() } else { standing(&live, &journal) };
    let theirs = journal.head.net_namespace.filter(|_| place.root.is_none() && !another_boot);
    let elsewhere = theirs.filter(|theirs| namespace::own() != Some(*theirs)).map(namespace::entered);
    if let Some(elsewhere) = &elsewhere {
        for standing in standings.iter_mut().filter(|standing| is_of_namespace(&standing.entry.place)) {
            standing.state = State::Unknown { why: not_here(elsewhere) };
        }
    }
    let guard_alive = journal.guard().is_some_and(|guard| guard.is_alive());
    let open =
        Open { path: &path, journal: &journal, standings: &standings, now: &now, guard_alive, another_boot };
    let status = Status::new(&open);
    Ok(StatusCheck { status, open: Some((journal, live, now)), elsewhere })
}

/// Whether a place is visible only inside a network namespace.
fn is_of_namespace(place: &Place) -> bool {
    match place {
        Place::File { path } => path.starts_with("/sys/class/net/") || path.starts_with("/proc/sys/net/"),
        Place::Queues { .. } => true,
        _ => false,
    }
}

/// Why interfaces are not visible.
pub fn not_here(elsewhere: &NamespaceEntry) -> String {
    match elsewhere {
        NamespaceEntry::By(command) => {
            format!("its interfaces are in another network namespace: `{command} spangap isolate ...`")
        }
        NamespaceEntry::Gone => "the network namespace of its interfaces is gone, and they with it".into(),
    }
}

/// The journal of the previous plan, if readable.
fn last(folder: &Path) -> anyhow::Result<Option<Journal>> {
    let path = folder.join("last.journal");
    match std::fs::read(&path) {
        Ok(bytes) => match Journal::parse(&path, &bytes) {
            Ok(journal) => Ok(Some(journal)),
            Err(JournalError::Damaged { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Prints changes until Ctrl-C; returns whether any check found drift.
fn watch(args: &StatusArgs, first: Status) -> anyhow::Result<bool> {
    let stop = signals::flag(ASKED)?;
    let begin = match args.json {
        true => serde_json::to_string(&first)?,
        false => words(args, &first)?.trim_end().to_owned(),
    };
    let mut drifted = false;
    let mut before = first;
    let mut read = line(&begin)?;
    while read && wait(args.interval.std(), &stop) {
        let now = look(&args.place)?.status;
        for event in events(&before, &now, now_unix_ns()) {
            read = read && line(&said(&event, args.json)?)?;
        }
        drifted |= now.drifted();
        before = now;
    }
    Ok(drifted)
}

fn said(event: &Event, json: bool) -> anyhow::Result<String> {
    Ok(if json { serde_json::to_string(event)? } else { format!("{}: {}", event.event, event.words) })
}

/// Prints a line at once; returns whether the output is still open.
fn line(line: &str) -> anyhow::Result<bool> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) => seen_enough(error).map(|()| false),
    }
}

/// Waits for the time to pass; `false` if Ctrl-C came.
pub fn wait(time: std::time::Duration, stop: &AtomicBool) -> bool {
    let began = Instant::now();
    while !stop.load(Relaxed) {
        let Some(left) = time.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) else {
            return true;
        };
        std::thread::park_timeout(left.min(NOTICED_WITHIN));
    }
    false
}

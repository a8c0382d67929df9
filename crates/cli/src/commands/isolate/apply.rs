//! `spangap isolate apply`: executes a plan.

use super::folder::{MachinePaths, WhereArgs};
use super::guard::AuditArgs;
use super::{guard, namespace, now_unix_ns, print_json, print_text, progress, rollback};
use crate::Outcome;
use crate::signals::{self, ASKED_OR_LEFT};
use crate::values::{Duration, wrong_usage};
use anyhow::{Context, anyhow, bail};
use clap::Args;
use serde::Serialize;
use serde_json::Value;
use spangap_isolate::apply::{Applied, Step, apply};
use spangap_isolate::journal::{Head, Journal, Lock, Record, Writer, boot_id};
use spangap_isolate::kernel::Kernel;
use spangap_isolate::place::Place;
use spangap_isolate::plan::Plan;
use spangap_isolate::rollback::{RolledBack, Standing, State, standing};
use spangap_model::duration::format_ns;
use spangap_report::figures::counted;
use spangap_undo::guard::Guard;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

const EXAMPLES: &str = "\
Examples:
  spangap isolate plan --interface eth0 --write PLAN.json && spangap isolate apply PLAN.json
      apply; undone after a minute unless `spangap isolate confirm` comes first
  spangap isolate apply PLAN.json --confirm-within 5m --json
  spangap isolate apply PLAN.json --no-confirm
      keep it until `spangap isolate rollback`, or the next boot
  spangap isolate apply PLAN.json --root COPY
      on a copy of a machine

Every old value is in a journal on disk before the new one is written, and every new one is read back. If the
kernel refuses a required change, at Ctrl-C, or when the terminal closes, everything is undone. A separate
process that outlives this one undoes the plan when time is up; if both are killed, `spangap isolate rollback`
undoes it from the journal. Needs root.";

/// Apply a plan; it is undone automatically unless confirmed in time
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ApplyArgs {
    /// The plan, as written by `isolate plan --write`
    #[arg(value_name = "PLAN.json")]
    plan: PathBuf,
    /// Undo everything after this time, unless `isolate confirm` comes first
    #[arg(long, value_name = "DURATION", default_value = "60s", conflicts_with = "no_confirm")]
    confirm_within: Duration,
    /// Never undo automatically
    #[arg(long)]
    no_confirm: bool,
    #[command(flatten)]
    place: WhereArgs,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    audit: AuditArgs,
}

/// Result for scripts.
#[derive(Debug, Default, Serialize)]
struct Report {
    applied: bool,
    journal: PathBuf,
    changed: u64,
    already: u64,
    refused: Vec<Refused>,
    came_meanwhile: u64,
    /// Threads that ended and cgroups that vanished before they were changed.
    gone: Vec<Place>,
    planned_again: bool,
    tasks_moved: u64,
    tasks_refused: u64,
    /// Values that a final check found changed.
    not_as_written: Vec<Standing>,
    /// Time until the automatic rollback; null if there is none, or it has happened already.
    confirm_within_ns: Option<u64>,
    guard_pid: Option<u32>,
    error: Option<String>,
    rolled_back: Option<RolledBack>,
}

#[derive(Debug, Serialize)]
struct Refused {
    place: Place,
    why: String,
}

/// Applies the plan.
pub fn run(args: ApplyArgs) -> anyhow::Result<Outcome> {
    if !args.no_confirm && args.confirm_within.ns() == 0 {
        return Err(wrong_usage("--confirm-within: expected more than 0").into());
    }
    let place = args.place.find()?;
    let plan = read(&args.plan)?;
    place.needs_root("apply")?;
    is_of_this_machine(&place, &plan)?;
    // From here on, a Ctrl-C rolls back.
    let stop = signals::flag(ASKED_OR_LEFT)?;
    let lock = lock(&place, &stop)?;
    let confirm_within_ns = (!args.no_confirm).then(|| args.confirm_within.ns());
    let head = Head {
        format: Head::FORMAT.to_owned(),
        boot_id: plan.boot_id.clone(),
        net_namespace: if place.root.is_none() { namespace::own() } else { None },
        root: place.root.clone(),
        time_unix_ns: now_unix_ns(),
        confirm_within_ns,
        plan: plan.clone(),
    };
    let mut journal = place.folder.begin(&lock, &head)?;
    let arm = |ns| armed(&place, &mut journal, ns, &args.audit);
    let guard = match confirm_within_ns.map(arm).transpose() {
        Ok(guard) => guard,
        Err(error) => {
            // Nothing has been changed yet.
            place.folder.close(&lock)?;
            return Err(error);
        }
    };
    let mut report = Report { journal: journal.path().to_owned(), confirm_within_ns, ..Report::default() };
    report.guard_pid = guard.as_ref().map(|guard| guard.process().pid);
    match make_true(&place, &plan, &mut journal, &stop, &mut report) {
        Ok(()) => {
            drop(lock);
            done(&args, &place, &report)
        }
        Err(error) => {
            drop(journal);
            failed(&args, &place, lock, guard, report, &error)
        }
    }
}

/// Reads a plan.
fn read(path: &Path) -> anyhow::Result<Plan> {
    let shown = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read the plan {shown}"))?;
    let of_a_plan = || format!("{shown} is not a plan written by `spangap isolate plan --write`");
    let value: Value = serde_json::from_str(&text).with_context(of_a_plan)?;
    match value.get("format").and_then(Value::as_str) {
        Some(Plan::FORMAT) => {}
        Some(other) => bail!("{}: its format is {other:?}, expected {:?}", of_a_plan(), Plan::FORMAT),
        None => bail!("{}: it has no \"format\", expected {:?}", of_a_plan(), Plan::FORMAT),
    }
    // Parsed a second time from the text, to get the line of an error.
    serde_json::from_str(&text).with_context(of_a_plan)
}

fn is_of_this_machine(place: &MachinePaths, plan: &Plan) -> anyhow::Result<()> {
    let files = place.live.files();
    let boot = boot_id(&files).context("cannot read this machine's boot id")?;
    if boot != plan.boot_id {
        bail!(
            "the plan was made before this machine's last boot, or on another machine (boot id {} then, {boot} \
             now): plan again",
            plan.boot_id
        );
    }
    if place.root.is_none() {
        namespace::sys_is_ours()?;
    }
    for interface in &plan.policy.interfaces {
        if files.list(&format!("/sys/class/net/{interface}")).is_err() {
            bail!(
                "there is no interface {interface} in this network namespace: apply the plan in the one it was made \
                 in"
            );
        }
    }
    Ok(())
}

/// Waits while another process makes changes.
fn lock(place: &MachinePaths, stop: &AtomicBool) -> anyhow::Result<Lock> {
    const NOTICED_WITHIN: std::time::Duration = std::time::Duration::from_millis(50);
    let (to, locked) = channel();
    let folder = place.folder.clone();
    // Waiting for a lock cannot be interrupted: giving up leaves the thread behind.
    let wait = move || drop(to.send(folder.lock()));
    thread::Builder::new().name("lock".into()).spawn(wait).context("cannot start a thread")?;
    loop {
        match locked.recv_timeout(NOTICED_WITHIN) {
            Ok(lock) => return Ok(lock?),
            Err(RecvTimeoutError::Disconnected) => bail!("cannot lock {}", place.folder.path().display()),
            Err(RecvTimeoutError::Timeout) if stop.load(Relaxed) => {
                bail!("interrupted while another `spangap isolate` was running: nothing was changed")
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Starts the guard, and records its identity.
fn armed(
    place: &MachinePaths,
    journal: &mut Writer,
    confirm_within_ns: u64,
    audit: &AuditArgs,
) -> anyhow::Result<Guard> {
    let guard = guard::start(place.folder.path(), confirm_within_ns, audit)?;
    let spangap_undo::guard::Process { pid, start_ticks } = guard.process();
    let written = journal.write(&[Record::Guard { pid, start_ticks }]);
    written.map(|()| guard).map_err(Into::into)
}

fn make_true(
    place: &MachinePaths,
    plan: &Plan,
    journal: &mut Writer,
    stop: &AtomicBool,
    report: &mut Report,
) -> anyhow::Result<()> {
    let bar = progress("applying", plan.changes.len() as u64);
    let mut tell = |step: Step<'_>| match step {
        Step::Changed(..) | Step::AlreadySo(_) | Step::Refused(..) => bar.inc(1),
        Step::CameMeanwhile(_) => bar.inc_length(1),
        Step::PlannedAgain(plan) => {
            report.planned_again = true;
            bar.set_length(plan.changes.len() as u64);
        }
    };
    let applied = apply(&place.live, plan, journal, &|| stop.load(Relaxed), &mut tell);
    bar.finish_and_clear();
    let Applied { changed, already, refused, came_meanwhile, gone, tasks, .. } = applied?;
    journal.write(&[Record::Applied { time_unix_ns: now_unix_ns() }])?;
    (report.applied, report.changed, report.already) = (true, changed, already);
    report.gone = gone;
    (report.came_meanwhile, report.tasks_moved, report.tasks_refused) =
        (came_meanwhile, tasks.tasks_moved, tasks.tasks_refused);
    report.refused = refused.into_iter().map(|(place, why)| Refused { place, why }).collect();
    // Nobody else can have ended it: the folder is locked.
    let (_, journal) = place.folder.open()?.context("the journal is gone")?;
    report.not_as_written = standing(&place.live, &journal);
    report.not_as_written.retain(|one| one.state != State::Ours);
    Ok(())
}

fn done(args: &ApplyArgs, place: &MachinePaths, report: &Report) -> anyhow::Result<Outcome> {
    if args.json {
        return print_json(report);
    }
    let mut text = format!("Applied: {} changed", counted(report.changed, "value"));
    if report.already > 0 {
        let _ = write!(text, ", {} so already", report.already);
    }
    if report.came_meanwhile > 0 {
        let _ = write!(text, ", {} new since the plan", counted(report.came_meanwhile, "cgroup"));
    }
    text += ".\n";
    if report.planned_again {
        text += "Planned again for the interrupts as they are after the change of the number of queues.\n";
    }
    if report.tasks_moved + report.tasks_refused > 0 {
        let _ = writeln!(
            text,
            "{} moved; {} of the kernel stay, bound to their CPUs.",
            counted(report.tasks_moved, "task"),
            counted(report.tasks_refused, "thread")
        );
    }
    for place in &report.gone {
        let _ = writeln!(text, "  gone before              {place}");
    }
    for refused in &report.refused {
        // An error of the kernel names the place; a mismatch on read-back does not.
        let place = refused.place.to_string();
        let place = if refused.why.contains(&place) { String::new() } else { place + ": " };
        let _ = writeln!(text, "  not needed, and refused  {place}{}", refused.why);
    }
    for one in &report.not_as_written {
        let _ = writeln!(text, "  changed since            {}", drifted(one));
    }
    text += &next(place, report.confirm_within_ns);
    print_text(&text)
}

fn drifted(one: &Standing) -> String {
    let (place, new) = (&one.entry.place, &one.entry.new);
    match &one.state {
        State::Ours => format!("{place}: {new:?}"),
        State::Before => format!("{place}: as before, not {new:?}"),
        State::Changed { found } => format!("{place}: {found:?}, not {new:?}"),
        State::Gone => format!("{place}: gone"),
        State::Unknown { why } => format!("{place}: {why}"),
    }
}

/// What the user should do next.
fn next(place: &MachinePaths, confirm_within_ns: Option<u64>) -> String {
    let mut lines = vec![(place.command("verify"), "whether it holds, and what it achieves".to_owned())];
    match confirm_within_ns {
        Some(ns) => lines.push((
            place.command("confirm"),
            format!("keeps it if it holds; otherwise it is undone {} after it began", format_ns(ns)),
        )),
        None => lines.push((place.command("status"), "who undid what since".to_owned())),
    }
    lines.push((place.command("rollback"), "undoes it".to_owned()));
    let width = lines.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
    let lines = lines.iter().map(|(command, what)| format!("  {command:width$}  {what}\n"));
    format!("Next:\n{}", lines.collect::<String>())
}

/// Rolls back everything done before the error, and reports both.
fn failed(
    args: &ApplyArgs,
    place: &MachinePaths,
    lock: Lock,
    guard: Option<Guard>,
    mut report: Report,
    why: &anyhow::Error,
) -> anyhow::Result<Outcome> {
    let why = format!("{why:#}");
    let undone = undo(place, &lock, &why);
    let undone = match undone {
        Ok(undone) => undone,
        // The guard stays: it tries again when the time is over.
        Err(error) => bail!(
            "{why}; and it could not be undone: {error:#}; the old values are in {}, for `{}`",
            report.journal.display(),
            place.command("rollback")
        ),
    };
    drop(lock);
    if let Some(guard) = guard {
        guard.process().ask_to_end();
        // It is our child, and nobody else waits for it.
        let _ = guard.wait();
    }
    let complete = undone.is_complete();
    report.confirm_within_ns = None;
    report.error = Some(why.clone());
    let words = rollback::words(&undone);
    report.rolled_back = Some(undone);
    if args.json {
        print_json(&report)?;
    }
    let after = if complete {
        format!("everything is as before: {}", words.trim_end())
    } else {
        format!("undone, except for: {words}The journal stays, for `{}`", place.command("rollback"))
    };
    Err(anyhow!("{why}\n{after}"))
}

fn undo(place: &MachinePaths, lock: &Lock, why: &str) -> anyhow::Result<RolledBack> {
    let (path, journal): (PathBuf, Journal) = place.folder.open()?.context("the journal is gone")?;
    let bar = progress("undoing", journal.entries().count() as u64);
    let undone =
        rollback::undo(place, lock, &path, &journal, &format!("apply: {why}"), false, &mut |_| bar.inc(1));
    bar.finish_and_clear();
    undone
}

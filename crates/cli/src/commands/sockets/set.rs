//! `spangap sockets set`.

use super::{folder, undo};
use crate::Outcome;
use crate::signals::{self, ASKED};
use crate::values::{Duration, wrong_usage};
use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use spangap_model::duration::format_ns;
use spangap_report::figures::counted;
use spangap_sockets::keeper::{self, Farewell, KeeperError};
use spangap_sockets::{
    Asked, Change, ChangeOutcome, ChangeRequest, Entry, Folder, Journal, Listing, LockedJournal, Plan,
    Undone, apply, list,
};
use spangap_undo::guard::{Guard, now_ns};
use std::collections::HashSet;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::thread;
use std::time::SystemTime;

const EXAMPLES: &str = "\
Examples:
  spangap sockets set --pid 812 --peer 10.0.0.7:50051 nodelay=on --for 30s
      for half a minute; restored then, at Ctrl-C, or if this tool is killed
  spangap sockets set --pid 812 --port 50051 nodelay=on --half --for 5m
      every second connection: both halves carry the same load at the same time
  spangap sockets set --pid 812 nodelay=on
      until you run the undo command that it prints

Connections opened later are not covered. No value changes before the old one is in a journal
(/run/spangap/sockets, or below XDG_RUNTIME_DIR); `spangap sockets undo --all` restores whatever a killed tool
left behind. A socket with a pending undo cannot be set again. Another user's process needs CAP_SYS_PTRACE.";

/// Change TCP_NODELAY of live sockets, with an undo
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct SetArgs {
    /// Connections of these processes
    #[arg(long, value_name = "PID", required = true, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pid: Vec<u32>,
    /// Connections to this host, or to this port of it
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    peer: Option<Peer>,
    /// Connections with this port at either end
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// What to set: nodelay=on or nodelay=off
    #[arg(value_name = "nodelay=on|off")]
    option: Setting,
    /// Every second connection only, so that both halves can be compared
    #[arg(long)]
    half: bool,
    /// Restore the old values after this time
    #[arg(long = "for", value_name = "DURATION")]
    lasts: Option<Duration>,
    /// Only say what would be changed
    #[arg(long)]
    dry_run: bool,
    /// Folder for the journal that undoes the change
    #[arg(long, value_name = "DIR")]
    journal: Option<PathBuf>,
    /// Print one JSON document, at the end
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug)]
struct Setting(bool);

impl std::str::FromStr for Setting {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "nodelay=on" => Ok(Setting(true)),
            "nodelay=off" => Ok(Setting(false)),
            _ => Err("expected nodelay=on or nodelay=off".to_owned()),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Peer(IpAddr, Option<u16>);

impl std::str::FromStr for Peer {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        let alone = bare.parse().map(|ip| Peer(ip, None));
        let with_port = || text.parse::<SocketAddr>().map(|both| Peer(both.ip(), Some(both.port())));
        alone
            .or_else(|_| with_port())
            .map_err(|_| "expected an address such as 10.0.0.7, 10.0.0.7:50051, [::1]:50051".to_owned())
    }
}

/// Result for scripts.
#[derive(Debug, Serialize)]
struct Report {
    wanted: ChangeRequest,
    dry_run: bool,
    /// With `dry_run` the planned changes, else null.
    would_change: Option<Vec<Entry>>,
    changes: Vec<Change>,
    /// With `half`, the unchanged half.
    left: Vec<Entry>,
    already: u64,
    not_readable: u64,
    not_readable_because: Option<String>,
    /// Journal for the undo; null once it is undone.
    journal: Option<PathBuf>,
    undo_command: Option<String>,
    interrupted: bool,
    undone: Option<Undone>,
    /// Connections opened since, which have not been changed.
    new_connections: Option<u64>,
}

/// Changes the sockets.
pub fn run(args: SetArgs) -> anyhow::Result<Outcome> {
    if args.lasts.is_some_and(|lasts| lasts.ns() == 0) {
        return Err(wrong_usage("--for: expected more than nothing").into());
    }
    let wanted = ChangeRequest {
        of: Asked { pids: args.pid.clone(), port: args.port, listening: false },
        peer: args.peer.map(|peer| peer.0),
        peer_port: args.peer.and_then(|peer| peer.1),
        value: args.option.0,
        half: args.half,
    };
    let folder = folder::of(args.journal.clone())?;
    let listing = list(&wanted.of)?;
    let plan = wanted.plan(&listing);
    check(&wanted, &plan, &listing)?;
    let mut report = Report::new(&wanted, &plan, args.dry_run);
    if args.dry_run || plan.change.is_empty() {
        return if args.json { super::print_json(&report) } else { print_plan(&plan, &wanted, args.dry_run) };
    }
    let told = if args.json { Progress::default() } else { Progress { lines: true } };
    let failed = change(&args, &wanted, &folder, plan, &listing, &mut report, &told)?;
    if args.json {
        super::print_json(&report)?;
    }
    match failed {
        Some(why) => bail!("{why}"),
        None => Ok(Outcome::Done),
    }
}

/// Prints progress, unless a single document is requested at the end.
#[derive(Default)]
struct Progress {
    lines: bool,
}

impl Progress {
    /// A closed output must not keep a change from being undone.
    fn say(&self, text: impl std::fmt::Display) {
        if self.lines {
            let _ = writeln!(io::stdout(), "{text}");
        }
    }
}

/// Writes the journal, starts the keeper, makes the changes and, with a time limit, waits for their end. `Some`
/// describes a failure.
fn change(
    args: &SetArgs,
    wanted: &ChangeRequest,
    folder: &Folder,
    plan: Plan,
    listing: &Listing,
    report: &mut Report,
    told: &Progress,
) -> anyhow::Result<Option<String>> {
    let interrupts = Interrupts::listen()?;
    let time =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).context("the clock is before 1970")?;
    let lasts_ns = args.lasts.map(Duration::ns);
    let journal = Journal::new(plan.change, time.as_nanos() as u64, lasts_ns)?;
    let held = folder.write(&journal)?;
    let path = held.path().to_owned();
    let until_ns = lasts_ns.map(|ns| now_ns().saturating_add(ns));
    let keeper = match until_ns.map(|until_ns| keeper::start(&path, until_ns, None)).transpose() {
        Ok(keeper) => keeper,
        Err(error) => {
            held.remove()?;
            return Err(anyhow::Error::new(error).context("nothing was changed"));
        }
    };
    let held = make_changes(held, &interrupts, report, told)?;
    let failed =
        report.changes.iter().filter(|change| matches!(change.became, ChangeOutcome::Failed(_))).count();
    let mut wrong = (failed > 0).then(|| format!("{failed} connections could not be changed"));
    tell_halves(report, told);
    let Some(held) = held else {
        if let Some(keeper) = keeper {
            keeper.process().ask_to_end();
            keeper::farewell(keeper)?;
        }
        told.say("Nothing was changed.");
        return Ok(wrong);
    };
    drop(held);
    told.say("Connections opened from now on are not covered.");
    match keeper {
        Some(keeper) => {
            told.say(format!(
                "It is set back in {}, or at Ctrl-C; by process {} if this one is killed.",
                format_ns(lasts_ns.unwrap_or(0)),
                keeper.process().pid
            ));
            let farewell = wait_for_end(keeper, &interrupts);
            wrong = at_the_end(farewell, &path, report, told)?.or(wrong);
            count_new(wanted, listing, report, told);
        }
        None if interrupts.came() => {
            report.undone = undo::now(&path)?;
        }
        None => {
            let command = undo_command(&path);
            told.say(format!("To set it back: {command}"));
            (report.journal, report.undo_command) = (Some(path), Some(command));
        }
    }
    report.interrupted = interrupts.came();
    if let (Some(undone), true) = (&report.undone, told.lines) {
        // See `Progress::say`.
        let _ = undo::print_undone(&mut io::stdout(), undone);
    }
    Ok(wrong)
}

fn make_changes(
    held: LockedJournal,
    interrupts: &Interrupts,
    report: &mut Report,
    told: &Progress,
) -> anyhow::Result<Option<LockedJournal>> {
    let changes = &mut report.changes;
    let held = apply(held, |change| {
        told.say(undo::change_line(change));
        changes.push(change.clone());
        !interrupts.came()
    })?;
    let changed = changes.iter().filter(|change| change.became == ChangeOutcome::Changed).count() as u64;
    let mut text = format!("{} changed", counted(changed, "connection"));
    if report.already > 0 {
        text += &format!(", {} had the value already", report.already);
    }
    if report.not_readable > 0 {
        let because = report.not_readable_because.as_deref().unwrap_or("why is not known");
        text += &format!(", {} cannot be borrowed ({because})", report.not_readable);
    }
    told.say(text + ".");
    Ok(held)
}

fn tell_halves(report: &Report, told: &Progress) {
    if report.wanted.half {
        let left = report.left.iter().map(|entry| format!("{} -> {}", entry.local, entry.peer));
        told.say(format!("Left as they are, to compare with: {}.", report.left.len()));
        left.for_each(|line| told.say(line));
    }
}

/// The keeper does the undo even if nothing goes wrong: there is one way, and it is always taken.
fn wait_for_end(keeper: Guard, interrupts: &Interrupts) -> Result<Farewell, KeeperError> {
    let process = keeper.process();
    let (ended, end) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let waits = scope.spawn(move || {
            let farewell = keeper::farewell(keeper);
            drop(ended);
            farewell
        });
        // Nothing is ever sent: the channel closes when the keeper has ended.
        while let Err(mpsc::RecvTimeoutError::Timeout) = end.recv_timeout(NOTICED_WITHIN) {
            if interrupts.came() {
                process.ask_to_end();
                break;
            }
        }
        // A panicked thread has received nothing.
        waits.join().unwrap_or(Err(KeeperError::Ended))
    })
}

/// Polling interval for Ctrl-C.
const NOTICED_WITHIN: std::time::Duration = std::time::Duration::from_millis(50);

fn at_the_end(
    farewell: Result<Farewell, KeeperError>,
    path: &Path,
    report: &mut Report,
    told: &Progress,
) -> anyhow::Result<Option<String>> {
    let undone = match farewell {
        Ok(Farewell { undone: Some(undone), .. }) => undone,
        Ok(Farewell { not_there: true, .. }) => {
            told.say("Somebody else has set it back.");
            return Ok(None);
        }
        // The keeper was killed, or failed: the undo happens here.
        Ok(Farewell { error, .. }) => {
            told.say(error.unwrap_or_default());
            undo::now(path)?.unwrap_or_default()
        }
        Err(error) => {
            told.say(format!("{error}: set back by this one"));
            undo::now(path)?.unwrap_or_default()
        }
    };
    let left = undone.count(|became| matches!(became, ChangeOutcome::Failed(_)));
    let unreadable = !undone.journal_removed && undone.unreadable.iter().any(|damage| damage.lost);
    report.undone = Some(undone);
    if unreadable {
        let command = undo_command(path);
        (report.journal, report.undo_command) = (Some(path.to_owned()), Some(command.clone()));
        return Ok(Some(format!("the journal was damaged meanwhile: `{command}` says what it still tells")));
    }
    if left > 0 {
        let command = undo_command(path);
        (report.journal, report.undo_command) = (Some(path.to_owned()), Some(command.clone()));
        return Ok(Some(format!("{left} connections could not be set back; try again: {command}")));
    }
    Ok(None)
}

/// Counts connections opened while others were changed.
fn count_new(wanted: &ChangeRequest, before: &Listing, report: &mut Report, told: &Progress) {
    let known: HashSet<u64> = before.sockets.iter().map(|socket| socket.inode).collect();
    // A process that has ended has no connections.
    let Ok(after) = list(&wanted.of) else { return };
    let new = after.sockets.iter().filter(|socket| wanted.covers(socket) && !known.contains(&socket.inode));
    let new = new.count() as u64;
    report.new_connections = Some(new);
    if new > 0 {
        told.say(format!("{} came meanwhile and not covered.", counted(new, "connection")));
    }
}

fn undo_command(path: &Path) -> String {
    format!("spangap sockets undo --journal {}", path.display())
}

/// Checks that there is something to do.
fn check(wanted: &ChangeRequest, plan: &Plan, listing: &Listing) -> anyhow::Result<()> {
    let found = plan.change.len() as u64 + plan.leave.len() as u64 + plan.already;
    if found > 0 {
        return Ok(());
    }
    if plan.not_readable > 0 {
        let because = plan.not_readable_because.as_deref().unwrap_or("why is not known");
        bail!("none of {} can be borrowed: {because}", counted(plan.not_readable, "connection"));
    }
    let mut peers: Vec<_> = listing.sockets.iter().filter_map(|socket| socket.peer).collect();
    peers.sort_unstable();
    peers.dedup();
    let named: Vec<_> = peers.iter().take(5).map(SocketAddr::to_string).collect();
    let more = if peers.len() > named.len() { ", ..." } else { "" };
    let pids: Vec<_> = wanted.of.pids.iter().map(u32::to_string).collect();
    let pids = pids.join(", ");
    match listing.sockets.len() as u64 {
        0 => {
            let all = list(&Asked { port: None, ..wanted.of.clone() })?.sockets.len() as u64;
            let port = wanted.of.port.map_or(String::new(), |port| format!(" on port {port}"));
            bail!("no connection matches: process {pids} has none{port}, {all} in all")
        }
        count => bail!(
            "no connection matches: process {pids} has {} to {}{more}",
            counted(count, "connection"),
            named.join(", ")
        ),
    }
}

fn print_plan(plan: &Plan, wanted: &ChangeRequest, dry_run: bool) -> anyhow::Result<Outcome> {
    let word = if wanted.value { "on" } else { "off" };
    let mut out = io::stdout().lock();
    let mut print = || -> io::Result<()> {
        for entry in &plan.change {
            writeln!(out, "{} -> {}  nodelay would be {word}", entry.local, entry.peer)?;
        }
        for entry in &plan.leave {
            writeln!(out, "{} -> {}  would be left as it is", entry.local, entry.peer)?;
        }
        if dry_run {
            writeln!(out, "{} would be changed.", counted(plan.change.len(), "connection"))?;
        }
        if plan.already > 0 {
            let had = counted(plan.already, "connection");
            writeln!(out, "{had} with nodelay={word} already: nothing to change, nothing to undo.")?;
        }
        Ok(())
    };
    print().or_else(super::seen_enough)?;
    Ok(Outcome::Done)
}

impl Report {
    fn new(wanted: &ChangeRequest, plan: &Plan, dry_run: bool) -> Report {
        Report {
            wanted: wanted.clone(),
            dry_run,
            would_change: dry_run.then(|| plan.change.clone()),
            changes: Vec::new(),
            left: plan.leave.clone(),
            already: plan.already,
            not_readable: plan.not_readable,
            not_readable_because: plan.not_readable_because.clone(),
            journal: None,
            undo_command: None,
            interrupted: false,
            undone: None,
            new_connections: None,
        }
    }
}

/// Ctrl-C and termination signals.
struct Interrupts(Arc<AtomicBool>);

impl Interrupts {
    fn listen() -> anyhow::Result<Interrupts> {
        Ok(Interrupts(signals::flag(ASKED)?))
    }

    fn came(&self) -> bool {
        self.0.load(Relaxed)
    }
}

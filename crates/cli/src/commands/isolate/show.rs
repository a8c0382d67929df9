//! `spangap isolate show`: the CPUs of a machine as a map.

use super::folder::WhereArgs;
use super::{print_json, print_text};
use crate::Outcome;
use crate::output::width;
use crate::report_page::Report;
use crate::signals::{self, ASKED};
use crate::values::{Duration, wrong_usage};
use crate::whole_file;
use anyhow::Context;
use clap::Args;
use spangap_isolate::kernel::{Kernel, Live};
use spangap_isolate::plan::{IrqbalancePolicy, NetCpus, Plan, Policy};
use spangap_isolate::report::show::page::ShowPage;
use spangap_isolate::report::show::{Circumstances, Reading, ShowReport, picture, text};
use spangap_isolate::topology::Topology;
use spangap_machine::facts::uptime;
use spangap_machine::{Host, Kept, parse_readings, write_readings};
use spangap_model::Cpus;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  spangap isolate show
      the CPUs with the interrupts and softirqs of 1 s, interfaces, cgroups, and programs that move interrupts
  spangap isolate show --interface eth0 --for 10s --html map.html
      watch for 10 s, and draw the map; outlines mark the CPUs that a plan for eth0 would take
  spangap isolate show --save host.txt; spangap isolate show --root host.txt --json
      keep what was read, to look at it elsewhere

Reads /proc and /sys twice; changes nothing. A copy with a single reading shows averages since boot.";

/// Draw the CPUs with what is on them: interrupts, softirqs, pods, slices
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ShowArgs {
    /// List only this interface; may be repeated, or a list
    #[arg(long, value_name = "IF", value_delimiter = ',')]
    interface: Vec<String>,
    /// How long to watch; Ctrl-C ends it early
    #[arg(long = "for", value_name = "DURATION", default_value = "1s")]
    watch: Duration,
    /// One row per core, however many there are
    #[arg(long)]
    all: bool,
    /// Show a copy: a folder with proc and sys inside, or a file of --save
    #[arg(long, value_name = "PATH", default_value = "/")]
    root: PathBuf,
    /// Where the journal of the applied plan is [default: ROOT/var/lib/spangap/isolate]
    #[arg(long, value_name = "DIR")]
    journal: Option<PathBuf>,
    /// Save everything that was read to one text file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Draw the map as an SVG picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Draw the map as a self-contained page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Polling interval for Ctrl-C.
const NOTICED_WITHIN: std::time::Duration = std::time::Duration::from_millis(50);
/// Width if the output is not a terminal.
const ELSEWHERE: usize = 100;

/// The machine at one moment.
struct Read {
    files: Host,
    topology: Topology,
    uptime_ns: Option<u64>,
}

/// Reads twice, and shows the result.
pub fn run(args: ShowArgs) -> anyhow::Result<Outcome> {
    // From here on, Ctrl-C only ends the wait.
    let stop = signals::flag(ASKED)?;
    let (before, now, interrupted) = readings(&args, &stop)?;
    for name in &args.interface {
        if now.topology.interface(name).is_none() {
            let names: Vec<&str> = now.topology.interfaces.iter().map(|one| one.name.as_str()).collect();
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let said = format!("--interface {name}: there is no such interface here: {there}");
            return Err(wrong_usage(said).into());
        }
    }
    if let Some(path) = &args.save {
        let first = before.as_ref().unwrap_or(&now).kept()?;
        write(path, &write_readings(&first, &now.kept()?))?;
    }
    let mut known =
        Circumstances { interfaces: args.interface.clone(), interrupted, ..Circumstances::default() };
    match applied(&args) {
        Ok(applied) => known.applied = applied,
        Err(error) => known.unknown.push(format!("what is applied: {error:#}")),
    }
    if known.applied.is_none() && !args.interface.is_empty() {
        known.planned = Some(Plan::new(&now.topology, &policy(&args.interface)));
    }
    let report = ShowReport::new(before.as_ref().map(Read::reading), now.reading(), &known);
    if let Some(path) = &args.svg {
        write(path, &picture::svg(&report))?;
    }
    if let Some(path) = &args.html {
        Report::IsolateShow { report: &ShowPage::new(&report) }.write(path)?;
    }
    match args.json {
        true => print_json(&report),
        false => print_text(&text::text(&report, width(ELSEWHERE, 160), args.all)),
    }
}

impl Read {
    fn live(live: &Live) -> Read {
        let files = live.files();
        Read::with(live.topology_of(&files), files)
    }

    fn kept_as_text(kept: Kept) -> Read {
        let files = Host::kept(kept);
        Read::with(Topology::read(&files), files)
    }

    fn with(topology: Topology, files: Host) -> Read {
        let uptime_ns = uptime_ns(&files);
        Read { files, topology, uptime_ns }
    }

    fn reading(&self) -> Reading<'_> {
        Reading { topology: &self.topology, uptime_ns: self.uptime_ns }
    }

    /// Everything that was read, including the responses that only a copy has as files.
    fn kept(&self) -> anyhow::Result<Kept> {
        let seen = self.files.seen();
        let mut text = seen.text();
        for interface in &self.topology.interfaces {
            let path = format!("/ethtool/{}", interface.name);
            if let Some(queues) = interface.queues
                && !seen.has(&path)
            {
                // Writing to a string cannot fail.
                let _ = write!(
                    text,
                    "=== {path}\nChannel parameters for {}:\nPre-set maximums:\nCombined:\t{}\n\
                     Current hardware settings:\nCombined:\t{}\n",
                    interface.name, queues.most, queues.now
                );
            }
        }
        let irqbalance = self.topology.irqbalance.as_ref().and_then(|running| running.banned.as_ref());
        if let Some(banned) = irqbalance.filter(|_| !seen.has(SETUP)) {
            let each = |irq: &u32| format!("IRQ {irq} LOAD 0 DIFF 0 CLASS 0 ");
            let banned: String = banned.iter().map(each).collect();
            let _ = write!(text, "=== {SETUP}\nSLEEP 10 {banned}BANNED 0\n");
        }
        Kept::parse(&text).context("what was read cannot be saved")
    }
}

/// Path of irqbalance's response in a copy.
const SETUP: &str = "/irqbalance/setup";

/// Uptime, in steps of 10 ms.
fn uptime_ns(files: &Host) -> Option<u64> {
    files.parsed(uptime::UPTIME, uptime::uptime_s).ok().map(|seconds| (seconds * 1e9) as u64)
}

/// The machine now, and before if there are two readings; and whether the wait between them was interrupted.
fn readings(args: &ShowArgs, stop: &AtomicBool) -> anyhow::Result<(Option<Read>, Read, bool)> {
    let root = &args.root;
    if root.is_file() {
        let text = fs::read_to_string(root).with_context(|| format!("cannot read {}", root.display()))?;
        let (before, now) =
            parse_readings(&text).with_context(|| format!("cannot read {}", root.display()))?;
        return Ok((before.map(Read::kept_as_text), Read::kept_as_text(now), false));
    }
    let found = WhereArgs { journal: args.journal.clone(), root: Some(root.clone()) }.find()?;
    if found.root.is_some() {
        // A copy does not change.
        return Ok((None, Read::live(&found.live), false));
    }
    let before = Read::live(&found.live);
    let interrupted = wait(args.watch, stop);
    Ok((Some(before), Read::live(&found.live), interrupted))
}

/// Waits for the time to pass, or for Ctrl-C; returns whether that came.
fn wait(watch: Duration, stop: &AtomicBool) -> bool {
    let began = Instant::now();
    while !stop.load(Relaxed) {
        let Some(left) = watch.std().checked_sub(began.elapsed()).filter(|left| !left.is_zero()) else {
            return false;
        };
        std::thread::park_timeout(left.min(NOTICED_WITHIN));
    }
    true
}

/// The network's CPUs in the applied plan.
fn applied(args: &ShowArgs) -> anyhow::Result<Option<Cpus>> {
    // A machine saved as text has no journal.
    let root = (!args.root.is_file()).then(|| args.root.clone());
    if root.is_none() && args.journal.is_none() {
        return Ok(None);
    }
    let open = WhereArgs { journal: args.journal.clone(), root }.find()?.folder.open()?;
    Ok(open.map(|(_, journal)| journal.head.plan.net_cpus))
}

/// The default policy of `plan`.
fn policy(interfaces: &[String]) -> Policy {
    Policy {
        interfaces: interfaces.to_vec(),
        net_cpus: NetCpus::Auto,
        queues: false,
        cpusets: true,
        irqbalance: IrqbalancePolicy::Ban,
    }
}

fn write(path: &Path, content: &str) -> anyhow::Result<()> {
    whole_file::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

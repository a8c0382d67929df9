//! `spangap host record`: who ran where and when, into a file.

use crate::Outcome;
use crate::signals::{self, ASKED};
use crate::values::Duration;
use anyhow::{Context, anyhow};
use clap::Args;
use indicatif::{HumanBytes, HumanCount, ProgressBar};
use serde::Serialize;
use spangap_bench::process::Used;
use spangap_host::halted;
use spangap_host::probes::cost::Cost;
use spangap_host::probes::intervals::{Settings, Waits};
use spangap_host::recording::{Kinds, Meta, RecordError, Recorded, Recorder};
use spangap_machine::Host;
use spangap_machine::facts::system_name;
use spangap_model::duration::format_ns;
use spangap_report::figures::percent;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  spangap host record --pid 4242 --write server.rec
      until Ctrl-C, on each host; run `spangap capture` next to it, and keep the service's spans
  spangap dissect client.pcapng server.pcapng --host client.rec --host server.rec
      what the threads did while a call passed through the two hosts
  spangap host record --pid 4242 --pid 4243 --duration 30s --write server.rec --json
      two processes, and figures for a script

Records all CPUs: each switch from one thread to another, with how the first left and how long the second had
waited; softirqs by interface, interrupts, stolen time; and for the given processes, which thread read or
wrote which byte of which TCP connection, and when it had arrived. Needs CAP_BPF and CAP_PERFMON (or root),
and a kernel with type information. The file is readable by its owner only; if the recorder is killed, all but
the last second is readable.";

/// Record who ran where and when, to be laid over calls by `spangap dissect --host`
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RecordArgs {
    /// Process whose reads and writes on TCP connections are also recorded; may be repeated
    #[arg(long, value_name = "PID", required = true)]
    pid: Vec<u32>,
    /// For how long [default: until Ctrl-C]
    #[arg(long, value_name = "DURATION")]
    duration: Option<Duration>,
    /// Where to write
    #[arg(long, short, value_name = "FILE")]
    write: PathBuf,
    /// Leave out why threads of these processes slept and who woke them: many sleeps need a kernel stack, which is most
    /// of the cost where threads read pipes or files hundreds of thousands of times a second
    #[arg(long)]
    no_reasons: bool,
    /// Print what was done as one JSON document
    #[arg(long)]
    json: bool,
}

/// Polling interval for Ctrl-C.
const POLL: std::time::Duration = std::time::Duration::from_millis(100);

/// Summary for scripts.
#[derive(Debug, Serialize)]
struct Report<'a> {
    file: String,
    file_bytes: u64,
    began_unix_ns: Option<i64>,
    wall_ns: u64,
    events: u64,
    events_per_s: f64,
    event_bytes: f64,
    /// Before compression.
    event_coded_bytes: f64,
    kinds: Kinds,
    lost: u64,
    /// Program runs that the kernel skipped: unobserved events.
    missed: u64,
    /// Events out of order, or not decoded: both are bugs of this program.
    late: u64,
    unknown: u64,
    /// Maximum fill level of a CPU's ring, as a share: at 1, events are lost.
    ring_fullest: f64,
    /// Error bound of an event's wall clock time.
    clock_bound_ns: Option<u64>,
    clock_steps: usize,
    lacks: &'a [String],
    /// Cost of the programs in the kernel; absent if it could not be sampled.
    probe_cost: Option<Cost>,
    /// CPU time of this process, without that of the programs.
    cpu_ns: u64,
}

/// Records until the time is over or Ctrl-C is pressed, and prints a summary.
pub fn run(args: RecordArgs) -> anyhow::Result<Outcome> {
    let tgids = super::processes::of_the_kernel("--pid", &args.pid)?;
    let stop = signals::flag(ASKED)?;
    let used = Used::so_far();
    let cannot_write = |error: io::Error| anyhow!("cannot write {}: {error}", args.write.display());
    let failed = |error: RecordError| match error {
        RecordError::Write(error) => cannot_write(error),
        error => error.into(),
    };
    let file = create(&args.write).map_err(cannot_write)?;
    let halted = halted::halted(&Host::below("/"), &tgids);
    for halted in &halted {
        let _gone = writeln!(io::stderr(), "{}. {}.", halted.sentence(), halted.remedy());
    }
    let waits = if args.no_reasons { Waits::No } else { Waits::Also };
    let settings = Settings { tgids, waits, ..Settings::default() };
    super::own_cpus::from_processes(&settings.tgids);
    let mut recorder = Recorder::start(&settings, &file, Meta { halted, ..meta() }).map_err(failed)?;
    let began = Instant::now();
    // Tells the parent that events are recorded from now on. A closed pipe is no reason to stop.
    let until =
        args.duration.map_or("Ctrl-C".into(), |duration| format!("{} are over", format_ns(duration.ns())));
    let _gone = writeln!(io::stderr(), "recording into {} until {until}", args.write.display());
    let bar = if io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    while !stop.load(Relaxed) {
        let left = args.duration.map(|duration| duration.std().saturating_sub(began.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            break;
        }
        recorder.poll(left.unwrap_or(POLL).min(POLL)).map_err(failed)?;
        let counts = recorder.counts();
        bar.set_message(format!(
            "{} events, {} lost, {}; Ctrl-C ends it",
            HumanCount(counts.events),
            HumanCount(counts.lost),
            HumanBytes(recorder.bytes())
        ));
        bar.tick();
    }
    bar.finish_and_clear();
    let (_, recorded) = recorder.finish().map_err(failed)?;
    let report = report(&args.write, &recorded, Used::so_far().since(used).cpu_ns);
    let output = match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&report)?),
        false => text(&report),
    };
    io::stdout().write_all(output.as_bytes()).context("cannot write to standard output")?;
    Ok(Outcome::Done)
}

/// Creates or truncates a file that only its owner can read.
fn create(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

fn meta() -> Meta {
    Meta {
        spangap: env!("CARGO_PKG_VERSION").into(),
        host: system_name::host_here(),
        kernel: system_name::kernel_here(),
        command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
        ..Meta::default()
    }
}

fn report<'a>(path: &Path, recorded: &'a Recorded, cpu_ns: u64) -> Report<'a> {
    let wall_ns = recorded.ended_ns - recorded.began_ns;
    let events = recorded.counts.events;
    let each = |bytes: u64| bytes as f64 / events.max(1) as f64;
    let begin = recorded.relation.unix_ns(recorded.began_ns);
    Report {
        file: path.display().to_string(),
        file_bytes: recorded.written.bytes,
        began_unix_ns: begin.map(|(unix_ns, _)| unix_ns),
        wall_ns,
        events,
        events_per_s: events as f64 * 1e9 / wall_ns.max(1) as f64,
        event_bytes: each(recorded.written.bytes),
        event_coded_bytes: each(recorded.written.event_bytes),
        kinds: recorded.kinds,
        lost: recorded.counts.lost,
        missed: recorded.counts.missed,
        late: recorded.counts.late,
        unknown: recorded.counts.unknown,
        ring_fullest: recorded.counts.fullest as f64 / recorded.ring_events as f64,
        clock_bound_ns: begin.map(|(_, bound)| bound),
        clock_steps: recorded.relation.steps(),
        lacks: &recorded.lacks,
        probe_cost: recorded.cost,
        cpu_ns,
    }
}

fn text(report: &Report<'_>) -> String {
    let count = |number: u64| HumanCount(number).to_string();
    let kinds = &report.kinds;
    let mut text = format!(
        "{}: {} events in {}, {} per second; {}, {:.1} bytes an event\n",
        report.file,
        count(report.events),
        format_ns(report.wall_ns),
        count(report.events_per_s as u64),
        HumanBytes(report.file_bytes),
        report.event_bytes,
    );
    text += &format!(
        "{} switches, {} softirqs, {} interrupts; of the processes' sockets: {} arrivals, {} reads, {} writes; of their threads {} sleeps\n",
        count(kinds.switches),
        count(kinds.softirqs),
        count(kinds.hardirqs),
        count(kinds.arrivals),
        count(kinds.reads),
        count(kinds.writes),
        count(kinds.wakeups),
    );
    text += &match report.lost {
        0 => format!("no event was lost; the rings were {} full at most\n", percent(report.ring_fullest)),
        lost => format!("{} events were lost, at {} places\n", count(lost), count(kinds.losses)),
    };
    if report.missed > 0 {
        text += &format!(
            "the kernel skipped {} runs of the programs; what they would have recorded is unknown\n",
            count(report.missed)
        );
    }
    if report.late + report.unknown > 0 {
        text +=
            &format!("{} events were out of order, {} were not understood\n", report.late, report.unknown);
    }
    if kinds.steal_ns > 0 {
        text += &format!("the hypervisor took {} of the CPUs' time\n", format_ns(kinds.steal_ns));
    }
    match (report.clock_bound_ns, report.clock_steps) {
        (Some(bound), 0) => text += &format!("times are wall clock times within {}\n", format_ns(bound)),
        (_, steps) => text += &format!("the wall clock was set {steps} times during the recording\n"),
    }
    text += &match &report.probe_cost {
        Some(cost) => format!("the programs took {cost}"),
        None => "the cost of the programs could not be sampled".into(),
    };
    text += &format!("; this process {} of CPU time\n", format_ns(report.cpu_ns));
    for lack in report.lacks {
        text += &format!("not known: {lack}\n");
    }
    text
}

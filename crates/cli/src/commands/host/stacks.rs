//! `spangap host stacks`: what the kernel does on the application's CPUs for others than the application.

use crate::Outcome;
use crate::report_page::Report;
use crate::signals::{self, ASKED};
use crate::values::{Duration, wrong_usage};
use crate::whole_file;
use anyhow::Context;
use clap::Args;
use spangap_bench::tank::cpus::Cpus;
use spangap_host::probes::stacks::{Settings, Stacks};
use spangap_host::report::flame::page::StacksPage;
use spangap_host::report::flame::{StacksReport, picture, text};
use spangap_machine::facts::cpu_list;
use spangap_machine::read_here;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  spangap host stacks --cpus 0-3 --not-pid 4242
      who else runs on the CPUs that process 4242 is pinned to, as call chains:
      e1000_clean <- __napi_poll <- net_rx_action
  spangap host stacks --not-pid $(pidof memcached) --svg stacks.svg --duration 30s
      all CPUs, and a flame graph in one file that any browser opens
  spangap host stacks --cpus 2 --folded - | flamegraph.pl >stacks.svg
      folded stacks for other tools

Samples of other processes, kernel threads, softirqs and interrupt handlers are kept, even those on the
application's time. The application's own time and idle time are only counted. Needs CAP_PERFMON (or
CAP_SYS_ADMIN), or kernel.perf_event_paranoid at 0 or less; no eBPF. Time spent with interrupts off shows up
where they are switched on again.";

/// Sample the kernel stacks on given CPUs that are not the application's
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct StacksArgs {
    /// CPUs to look at: a list such as 0,2-3, or node:N [default: all]
    #[arg(long, value_name = "CPUS")]
    cpus: Option<Cpus>,
    /// The application: a process whose own time is not kept; may be repeated
    #[arg(long, value_name = "PID")]
    not_pid: Vec<u32>,
    /// Samples per second and CPU
    #[arg(long, value_name = "N", default_value_t = 999, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    hz: u32,
    /// For how long; Ctrl-C ends it early, with what was seen up to then
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    duration: Duration,
    /// Write folded stacks: one line each, `root;...;leaf count`; - is standard output
    #[arg(long, value_name = "FILE")]
    folded: Option<PathBuf>,
    /// Write a flame graph
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write a page with the flame graph and the summary
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Polling interval for Ctrl-C and the rings.
const POLL: std::time::Duration = std::time::Duration::from_millis(100);

/// Samples until the time is over or Ctrl-C is pressed, and prints the result.
pub fn run(args: StacksArgs) -> anyhow::Result<Outcome> {
    let folded_to_output = args.folded.as_deref() == Some(Path::new("-"));
    if folded_to_output && args.json {
        return Err(wrong_usage("--folded - and --json both want standard output").into());
    }
    let settings = Settings {
        cpus: cpus(args.cpus.as_ref())?,
        not_tgids: super::processes::processes("--not-pid", &args.not_pid)?,
        hz: args.hz,
    };
    let stop = signals::flag(ASKED)?;
    let mut stacks = Stacks::start(&settings)?;
    let began = Instant::now();
    if io::stderr().is_terminal() {
        let cpus = settings.cpus.iter().copied().collect::<spangap_model::Cpus>();
        eprintln!("sampling CPU {cpus}; Ctrl-C ends it");
    }
    while !stop.load(Relaxed) {
        let Some(left) = args.duration.std().checked_sub(began.elapsed()) else { break };
        stacks.poll(left.min(POLL))?;
    }
    let report = StacksReport::new(&stacks.finish()?);
    let folded = || {
        let lines = picture::folded(&report);
        lines.iter().map(|line| format!("{line}\n")).collect::<String>()
    };
    let output = match () {
        () if args.json => format!("{}\n", serde_json::to_string_pretty(&report)?),
        () if folded_to_output => folded(),
        () => text::text(&report),
    };
    io::stdout().write_all(output.as_bytes()).context("cannot write to standard output")?;
    if let Some(path) = args.folded.as_deref().filter(|_| !folded_to_output) {
        write(path, &folded())?;
    }
    if let Some(path) = &args.svg {
        write(path, &picture::svg(&report).context("cannot draw the flame graph")?)?;
    }
    if let Some(path) = &args.html {
        Report::Stacks { report: &StacksPage::new(&report) }.write(path)?;
    }
    Ok(Outcome::Done)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    whole_file::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The requested CPUs, all of which must be online.
pub fn cpus(wanted: Option<&Cpus>) -> anyhow::Result<Vec<u32>> {
    let online = read_here(cpu_list::ONLINE, cpu_list::list)?;
    let Some(wanted) = wanted else { return Ok(online.iter().collect()) };
    let wanted: Vec<u32> = wanted.numbers().map(|cpu| cpu as u32).collect();
    if let Some(missing) = wanted.iter().find(|cpu| !online.contains(**cpu)) {
        return Err(
            wrong_usage(format!("--cpus: CPU {missing} is not online: expected some of {online}")).into()
        );
    }
    Ok(wanted)
}

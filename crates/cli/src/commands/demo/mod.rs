//! `spangap demo`: the meter with a tank and a target to measure, in one command. As root on two hosts, with a fault.

mod begin;
mod door;
mod fault;
mod sign;
mod stage;
mod whole;

use super::gaps::table;
use super::meter::{MeterArgs, announce};
use super::target::Readiness;
use crate::Outcome;
use crate::signals::{self, ASKED_OR_LEFT};
use anyhow::{Context, bail};
use clap::Args;
use fault::Fault;
use rustix::process::{Pid, Signal, kill_process};
use spangap_lab::{LabError, hosts};
use spangap_meter::engine::Meter;
use spangap_meter::query;
use spangap_meter::serve::Addresses;
use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use whole::Whole;

/// Show how a slow call is found and explained: as root with a fault between two hosts, otherwise a meter with a pair to measure
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo spangap demo
      two hosts (network namespaces), each with an agent, calls between them, and a fault after 45 s; a case
      opens by itself, its verdict is printed next to the truth, and Enter (or the end of standard input)
      tries the remedy, where there is one, on half of the connections
  sudo spangap demo --auto --fault stopped
      another fault, without asking; exit code 1 if the verdict is wrong or the remedy is not proven
  spangap demo --interval 10ms --think 2ms
      no fault: one call every 10 ms to a server that takes 2 ms; the page is at http://127.0.0.1:7070/

Everything it changes on this machine is undone when it ends, however it ends.")]
pub struct DemoArgs {
    /// Only the pair, without hosts and faults: time between two calls [default: 10ms]
    #[arg(long, value_name = "DURATION")]
    interval: Option<String>,
    /// Only the pair: how long the target takes for a call [default: 2ms]
    #[arg(long, value_name = "DURATION")]
    think: Option<String>,
    /// What goes wrong; needs root [default: nagle]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["interval", "think", "no_pair"])]
    fault: Option<Fault>,
    /// Apply the remedy without asking, and exit when done; needs root
    #[arg(long, conflicts_with_all = ["interval", "think", "no_pair"])]
    auto: bool,
    /// Do not start the pair: only the meter and the table, for your own exporters
    #[arg(long)]
    no_pair: bool,
    #[command(flatten)]
    meter: MeterArgs,
}

/// How often the table is drawn: in place on a terminal, else one below the other.
const REDRAW: Duration = Duration::from_secs(1);
const REPRINT: Duration = Duration::from_secs(10);

/// Runs until Ctrl-C or SIGTERM, or until all is shown.
pub fn run(args: DemoArgs) -> anyhow::Result<Outcome> {
    let only_pair = args.no_pair || args.interval.is_some() || args.think.is_some();
    let hosts = if only_pair { None } else { Some(hosts::needs()) };
    match hosts {
        Some(Ok(())) => return with_hosts(args),
        Some(Err(error)) if args.fault.is_some() || args.auto => return Err(error.into()),
        Some(Err(error)) => {
            let why = match error {
                LabError::Unavailable { why, .. } => why,
                other => other.to_string(),
            };
            eprintln!(
                "spangap: left out: two hosts with an agent each, a fault between them, the case that opens by itself, \
                 its verdict, and the remedy tried on half of the connections: {why}"
            );
        }
        None => {}
    }
    let service = args.meter.start()?;
    let meter = service.meter.clone();
    // The pair starts once the addresses are known, on a thread of its own: it waits for the target.
    let (ready, is_ready) = mpsc::channel::<Addresses>();
    let (stop, stopped) = mpsc::channel::<()>();
    let display = std::thread::spawn(move || -> anyhow::Result<()> {
        let Ok(addresses) = is_ready.recv() else { return Ok(()) };
        let pair = match args.no_pair {
            true => None,
            false => Some(Pair::start(
                addresses.otlp_grpc,
                args.interval.as_deref().unwrap_or("10ms"),
                args.think.as_deref().unwrap_or("2ms"),
            )?),
        };
        introduce(&addresses, pair.as_ref());
        show_until(&stopped, &meter)?;
        drop(pair);
        Ok(())
    });
    let served = service.run(
        move |addresses| _ = ready.send(*addresses),
        |interrupted| async move {
            let pair_failed = async {
                while !display.is_finished() {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            };
            tokio::select! {
                () = interrupted => {}
                () = pair_failed => {}
            }
            // The pair ends first, so that its last spans still reach the meter.
            drop(stop);
            tokio::task::block_in_place(|| display.join())
                .unwrap_or_else(|_| bail!("the table's thread panicked"))
        },
    );
    served?;
    Ok(Outcome::Done)
}

/// The whole of it, on two hosts.
fn with_hosts(args: DemoArgs) -> anyhow::Result<Outcome> {
    // Before anything is made: a Ctrl-C ends what was begun in order.
    let interrupted = signals::flag(ASKED_OR_LEFT)?;
    let service = args.meter.start()?;
    let (meter, cases) = (service.meter.clone(), service.cases.clone());
    let (ready, is_ready) = mpsc::channel::<(Addresses, tokio::runtime::Handle)>();
    let (stop, stopped) = mpsc::channel::<()>();
    let (fault, auto, asked) = (args.fault.unwrap_or(Fault::Nagle), args.auto, interrupted.clone());
    let shown = std::thread::spawn(move || -> anyhow::Result<()> {
        let Ok((addresses, runtime)) = is_ready.recv() else { return Ok(()) };
        announce(&addresses);
        let sign = RefCell::default();
        Whole { addresses, meter, cases, runtime, fault, auto, interrupted: asked, stopped, sign }.show()
    });
    let served = service.run(
        move |addresses| _ = ready.send((*addresses, tokio::runtime::Handle::current())),
        |_| async move {
            let mut look = tokio::time::interval(Duration::from_millis(100));
            while !shown.is_finished() {
                look.tick().await;
            }
            drop(stop);
            tokio::task::block_in_place(|| shown.join())
                .unwrap_or_else(|_| bail!("the thread that shows it panicked"))
        },
    );
    served?;
    Ok(Outcome::Done)
}

/// Tank and target as processes of their own, ended when this is dropped.
struct Pair {
    target: Child,
    /// Held open: the target tells at its end what it served.
    _target_says: BufReader<ChildStdout>,
    target_address: String,
    tank: Child,
}

impl Pair {
    fn start(otlp: SocketAddr, interval: &str, think: &str) -> anyhow::Result<Pair> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let otlp = format!("http://{otlp}");
        let mut target = Command::new(&program)
            .args(["target", "--listen", "127.0.0.1:0", "--with-parent", "--think", think, "--otlp", &otlp])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the target")?;
        let mut line = String::new();
        let out = target.stdout.take().context("the target has no output")?;
        let mut target_says = BufReader::new(out);
        target_says.read_line(&mut line).context("cannot read from the target")?;
        let Some(target_address) = Readiness::address(&line) else {
            end(&mut target);
            bail!("the target did not start: see its message above");
        };
        let tank = Command::new(&program)
            .args(["tank", &target_address, "--with-parent", "--interval", interval, "--otlp", &otlp])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match tank {
            Ok(tank) => Ok(Pair { target, _target_says: target_says, target_address, tank }),
            Err(error) => {
                end(&mut target);
                Err(error).context("cannot start the tank")
            }
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        end(&mut self.tank);
        end(&mut self.target);
    }
}

/// Asks a process to end, and waits: it sends its last spans first, for three seconds at most.
fn end(process: &mut Child) {
    if let Some(pid) = i32::try_from(process.id()).ok().and_then(Pid::from_raw) {
        // It may have ended by itself, of the same Ctrl-C.
        let _ = kill_process(pid, Signal::TERM);
    }
    let _ = process.wait();
}

fn introduce(addresses: &Addresses, pair: Option<&Pair>) {
    announce(addresses);
    eprintln!();
    eprintln!("  page          http://{}/", addresses.http);
    eprintln!(
        "  your spans    OTLP/gRPC http://{}   OTLP/HTTP http://{}",
        addresses.otlp_grpc, addresses.otlp_http
    );
    if let Some(pair) = pair {
        let (tank, target) = (pair.tank.id(), pair.target.id());
        eprintln!("  measured now  tank (pid {tank}) -> target (pid {target}, {})", pair.target_address);
    }
    eprintln!("  Ctrl-C stops everything");
    eprintln!();
}

fn show_until(stopped: &mpsc::Receiver<()>, meter: &Arc<Meter>) -> io::Result<()> {
    let (on_terminal, begun) = (io::stdout().is_terminal(), Instant::now());
    let (mut lines, mut is_first) = (0, true);
    let pause = |is_first| if on_terminal || is_first { REDRAW } else { REPRINT };
    while stopped.recv_timeout(pause(is_first)) == Err(RecvTimeoutError::Timeout) {
        // The first calls are shown at once.
        if is_first && !on_terminal && meter.overview().accounting.joined == 0 && begun.elapsed() < REPRINT {
            continue;
        }
        is_first = false;
        let text = render(meter)?;
        let mut out = io::stdout().lock();
        if on_terminal && lines > 0 {
            // Back to the table's first line, and clear from there.
            write!(out, "\x1b[{lines}A\x1b[J")?;
        }
        out.write_all(&text)?;
        out.flush()?;
        lines = text.iter().filter(|byte| **byte == b'\n').count();
    }
    Ok(())
}

/// Rows of the table on a terminal.
const ROWS: usize = 15;

fn render(meter: &Meter) -> io::Result<Vec<u8>> {
    let (totals, overview) = (meter.totals(), meter.overview());
    let mut report = query::pairs_report(totals.iter().map(|(key, stats)| (key, stats)), &overview, 0, 0);
    let all = report.pairs.len();
    report.pairs.truncate(ROWS);
    let mut text = Vec::new();
    if report.pairs.is_empty() {
        writeln!(text, "No call has both of its spans yet; exporters send every few seconds.")?;
    } else {
        table::print_pairs(&mut text, &report.pairs)?;
    }
    if all > ROWS {
        writeln!(text, "… and {} more on the page", all - ROWS)?;
    }
    let spans = &overview.accounting;
    let matched = spans.match_ratio().map_or("-".to_owned(), |ratio| format!("{:.1} %", 100.0 * ratio));
    writeln!(
        text,
        "spans: {} received, {} joined, {} waiting, {} client-only, {} server-only, {} evicted; matched {matched}\n",
        spans.received,
        spans.joined,
        spans.pending,
        spans.expired_client_only,
        spans.expired_server_only,
        spans.evicted
    )?;
    Ok(text)
}

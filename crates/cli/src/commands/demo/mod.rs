//! `spangap demo`: the meter with a tank and a target to measure, in one command.

use super::gaps::table;
use super::meter::{MeterArgs, announce};
use super::target::Readiness;
use crate::Outcome;
use anyhow::{Context, bail};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use spangap_meter::engine::Meter;
use spangap_meter::query;
use spangap_meter::serve::Addresses;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Run the meter with a ping-pong pair that sends it spans, until Ctrl-C
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  spangap demo
      one call every 10 ms, a server that takes 2 ms, the page at http://127.0.0.1:7070/
  spangap demo --interval 1ms --think 500us
  spangap demo --data ./history")]
pub struct DemoArgs {
    /// Time between two calls
    #[arg(long, value_name = "DURATION", default_value = "10ms")]
    interval: String,
    /// How long the target takes for a call
    #[arg(long, value_name = "DURATION", default_value = "2ms")]
    think: String,
    /// Do not start the pair: only the meter and the table, for your own exporters
    #[arg(long)]
    no_pair: bool,
    #[command(flatten)]
    meter: MeterArgs,
}

/// How often the table is drawn: in place on a terminal, else one below the other.
const REDRAW: Duration = Duration::from_secs(1);
const REPRINT: Duration = Duration::from_secs(10);

/// Runs until Ctrl-C or SIGTERM.
pub fn run(args: DemoArgs) -> anyhow::Result<Outcome> {
    let service = args.meter.start()?;
    let meter = service.meter.clone();
    // The pair starts once the addresses are known, on a thread of its own: it waits for the target.
    let (ready, is_ready) = mpsc::channel::<Addresses>();
    let (stop, stopped) = mpsc::channel::<()>();
    let display = std::thread::spawn(move || -> anyhow::Result<()> {
        let Ok(addresses) = is_ready.recv() else { return Ok(()) };
        let pair = match args.no_pair {
            true => None,
            false => Some(Pair::start(addresses.otlp_grpc, &args.interval, &args.think)?),
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
    let on_terminal = io::stdout().is_terminal();
    let mut lines = 0;
    while stopped.recv_timeout(if on_terminal { REDRAW } else { REPRINT }) == Err(RecvTimeoutError::Timeout) {
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
        writeln!(text, "No call with both of its spans yet; exporters send every few seconds.")?;
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

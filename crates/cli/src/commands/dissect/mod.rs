//! `spangap dissect`: from captures to where each call's time went.

mod captures;
mod lines;
mod pipe;

use crate::Outcome;
use crate::output;
use crate::report_page::Report;
use crate::signals::{self, ASKED};
use crate::values::{Duration, wrong_usage};
use anyhow::{Context, bail};
use captures::{Opened, not_over_a_capture, open_all};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lines::Lines;
use spangap_model::Cause;
use spangap_wire::dissect::{Dissection, Progress, Settings};
use spangap_wire::ladder::{Ladder, ladder_of};
use spangap_wire::report::{DissectPage, DissectReport, Extras, ladder_text, table};
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

const EXAMPLES: &str = "\
Examples:
  spangap dissect client.pcap server.pcap
      both ends of the same traffic, in either order: the slowest calls and what took their time
  spangap dissect client.pcap server.pcap --spans traces.json --html report.html
      split the ends into host and application, and write a page for the incident report
  spangap dissect client.pcap proxy=in.pcap proxy=out.pcap server.pcap
      calls through a proxy captured on both sides: one call over all hops
  spangap dissect server.pcap --trace-id 4bf92f3577b34da6a3ce929d0e0e4736
      one trace, from one end
  spangap dissect client.pcap server.pcap --spans traces.json --host client.rec --host server.rec
      split the time on a host by what its threads did: blocked, runnable behind whom, running
  spangap dissect client.pcap server.pcap --calls calls.jsonl
      every call as a line of JSON, however many there are
  tcpdump -i any -w - port 50051 | spangap dissect - --over 20ms
      from a pipe, until Ctrl-C

A call's time is split into legs, in this order; the name in JSON is in brackets:
  client: application to wire     CLIENT span begins -> first request byte (client_app_out)
  client: sending the request     first -> last request byte (client_send)
  network: request                last request byte: client's tap -> server's tap (request_wire)
  server: wire to application     request complete -> SERVER span begins (server_host_in)
  server: application             the SERVER span, once the request is complete (server_app)
  server: application to wire     SERVER span ends -> first response byte (server_host_out)
  server: sending the response    first -> last response byte (server_send)
  network: response               last response byte: server's tap -> client's tap (response_wire)
  client: wire to application     response complete -> CLIENT span ends (client_app_in)
  server: no response             request at the server -> the call was given up (no_response)
Application legs need --spans, network legs need both captures. Legs that cannot be told apart are
one leg under all their names. The legs of a call add up to its duration exactly, and each states
how far off it may be: the clocks of two hosts are never assumed to agree.

dissect follows calls through proxies: it links a call to the one that passes it on by trace context,
x-request-id or trace id, otherwise by content and times if only one fits. Between the legs of the two come
  proxy: request                  request complete at the proxy -> first byte passed on (proxy_request)
  proxy: retry                    end of an attempt -> start of the next one (proxy_retry)
  proxy: response                 response complete at the proxy -> first byte passed on (proxy_response)

A tap sits where packets leave or enter the host's kernel: a sender's qdisc and NIC, and a
receiver's NIC and interrupts, belong to the network's legs.";

/// Show where each call's time went, from packet captures
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DissectArgs {
    /// Captures (pcap, pcapng, .gz, .zst) of one end, of the client's and the server's end of the same traffic, or also of
    /// proxies between them, in any order; `-` is standard input. NAME=FILE names one: `client` and `server` say at which
    /// end it was taken, and captures of the same name share one host and one clock
    #[arg(required = true, value_name = "[NAME=]CAPTURE", num_args = 1..=MAX_CAPTURES)]
    captures: Vec<Named>,
    /// Files with the spans of these calls (OTLP, Jaeger, Zipkin), to split the ends into host and application
    #[arg(long, value_name = "FILE")]
    spans: Vec<PathBuf>,
    /// Recordings of `spangap host record` from one end or both, to split the legs on a host
    #[arg(long, value_name = "FILE")]
    host: Vec<PathBuf>,
    /// Only calls of this trace, however its id was encoded on the wire: 32 or 16 hex digits
    #[arg(long, value_name = "HEX")]
    trace_id: Vec<TraceId>,
    /// Number of calls shown, slowest first [default: 10; with --trace-id 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    slowest: Option<u32>,
    /// Also write every call, not only those shown: one line of JSON each, with the keys of a call in --json, in the order
    /// in which the calls ended; `-` is standard output, instead of the report. --over and --trace-id apply, --slowest
    /// does not. Reads the captures twice, and a pipe through a temporary file
    #[arg(long, value_name = "FILE")]
    calls: Option<PathBuf>,
    /// Only calls that took at least this long
    #[arg(long, value_name = "DURATION")]
    over: Option<Duration>,
    /// Number of calls shown packet by packet [default: 1; with --trace-id 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000))]
    ladders: Option<u32>,
    /// TLS keys, in the format of SSLKEYLOGFILE
    #[arg(long, value_name = "FILE")]
    keylog: Option<PathBuf>,
    /// All captures were taken on one host and share its clock
    #[arg(long)]
    same_clock: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Also write a self-contained page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Exit with code 3 when one of these causes is shown for any call
    #[arg(long, value_name = "CAUSE", value_delimiter = ',', value_parser = cause)]
    fail_on: Vec<Cause>,
}

/// Maximum number of captures.
const MAX_CAPTURES: usize = 16;

/// A capture, and what it was named.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    name: Option<String>,
    path: PathBuf,
}

impl std::str::FromStr for Named {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let named = text.split_once('=').filter(|(name, path)| {
            let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
            !path.is_empty() && !name.is_empty() && name.chars().all(plain) && !Path::new(text).exists()
        });
        Ok(match named {
            Some((name, path)) => Named { name: Some(name.to_owned()), path: path.into() },
            None => Named { name: None, path: text.into() },
        })
    }
}

/// A trace id as users copy it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TraceId([u8; 16]);

impl std::str::FromStr for TraceId {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a trace id: expected 32 or 16 hex digits");
        let bare = text.trim().trim_start_matches("0x");
        let digits: Vec<u8> = bare
            .chars()
            .filter(|letter| *letter != '-')
            .map(|letter| letter.to_digit(16).map(|digit| digit as u8))
            .collect::<Option<_>>()
            .ok_or_else(wrong)?;
        if !matches!(digits.len(), 16 | 32) || digits.iter().all(|digit| *digit == 0) {
            return Err(wrong());
        }
        let mut id = [0; 16];
        let from = 16 - digits.len() / 2;
        for (byte, pair) in id[from..].iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Ok(TraceId(id))
    }
}

fn cause(name: &str) -> Result<Cause, String> {
    Cause::of_name(name).ok_or_else(|| {
        let names: Vec<&str> = Cause::ALL.iter().map(|cause| cause.name()).collect();
        format!("{name:?} is not a cause: expected one of {}", names.join(", "))
    })
}

/// Reads, dissects, prints.
pub fn run(args: DissectArgs) -> anyhow::Result<Outcome> {
    let stop = signals::flag(ASKED)?;
    let names = named(&args.captures)?;
    let paths: Vec<PathBuf> = args.captures.iter().map(|capture| capture.path.clone()).collect();
    let lines_only = args.calls.as_ref().is_some_and(|path| path.as_os_str() == "-");
    if lines_only && args.json {
        let words = "--json and --calls - both write to standard output; expected --calls FILE";
        return Err(wrong_usage(words).into());
    }
    if let Some(path) = &args.html {
        not_over_a_capture("--html", path, &paths)?;
    }
    let every = args.calls.as_deref().map(|path| Lines::create(path, &paths)).transpose()?;
    let Opened { captures, copies: _copies, interrupted } = open_all(&paths, args.calls.is_some(), &stop)?;
    let trace_ids: Vec<[u8; 16]> = args.trace_id.iter().map(|id| id.0).collect();
    let read = spangap_gather::spans::read_all(&args.spans, &trace_ids, false, &stop)?;
    let key_log = args.keylog.as_deref().map(key_log).transpose()?.unwrap_or_default();
    let traced = !trace_ids.is_empty();
    let settings = Settings {
        slowest: args.slowest.unwrap_or(if traced { 100 } else { 10 }) as usize,
        sample: 0,
        over_ns: args.over.map(Duration::ns),
        trace_ids,
        spans: read.spans,
        key_log,
        same_clock: args.same_clock,
        names,
        presumed_end: None,
        // Threads that take turns on one processor would only wait for one another.
        in_turn: std::thread::available_parallelism().is_ok_and(|processors| processors.get() == 1),
    };
    let bar = ProgressBar::hidden();
    let mut on_progress = |progress| {
        show(&bar, progress);
        if stop.load(Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let mut dissection =
        spangap_gather::dissection(captures, &args.host, read.caveats, &settings, &mut on_progress)?;
    dissection.interrupted |= interrupted;
    // What was read until Ctrl-C is written; a second Ctrl-C ends that.
    stop.store(false, Relaxed);
    let written =
        every.map(|lines| lines.write(&mut dissection, &settings, &args.host, &stop, &mut on_progress));
    bar.finish_and_clear();

    for warning in &dissection.warnings {
        eprintln!("spangap: warning: {warning}");
    }
    let wanted = args.ladders.unwrap_or(if traced { 10 } else { 1 }) as usize;
    let extras = Extras { command: Some(command()), ladders: ladders(&mut dissection, wanted) };
    let report = DissectReport::new(&dissection, &settings, &extras);
    if let Some(path) = &args.html {
        Report::Dissect { report: &DissectPage::new(&report) }.write(path)?;
    }
    let printed = match args.json {
        _ if lines_only => Ok(()),
        true => print_json(&report),
        false => print_text(&report),
    };
    match printed {
        // The reader has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        other => other.context("cannot write to standard output")?,
    }
    written.transpose()?;
    let found = |cause: &Cause| {
        // Host recordings apply only to the calls shown.
        let mut findings = report.calls.iter().flat_map(|call| &call.findings);
        report.totals.causes.iter().any(|sum| sum.cause == *cause && sum.calls > 0)
            || findings.any(|finding| finding.culprit.cause == *cause && finding.is_shown())
    };
    Ok(if args.fail_on.iter().any(found) { Outcome::Found } else { Outcome::Done })
}

/// The names of the captures. Each end of the calls can have only one capture, unless one host took several.
fn named(captures: &[Named]) -> anyhow::Result<Vec<Option<String>>> {
    let names: Vec<Option<String>> = captures.iter().map(|capture| capture.name.clone()).collect();
    if let [Some(first), Some(second)] = &names[..]
        && first == second
        && ["client", "server"].contains(&first.as_str())
    {
        let words = format!("both captures are named {first}: expected client=FILE server=FILE");
        return Err(wrong_usage(words).into());
    }
    Ok(names)
}

/// Ladders of the slowest calls, read from the captures a second time. A capture that cannot be read twice
/// has none, and the report says so.
fn ladders(dissection: &mut Dissection, wanted: usize) -> BTreeMap<usize, Ladder> {
    let mut ladders = BTreeMap::new();
    for (place, call) in dissection.calls.iter().take(wanted).enumerate() {
        match ladder_of(dissection, call) {
            Ok(ladder) if ladder.rungs.is_empty() => {}
            Ok(ladder) => drop(ladders.insert(place, ladder)),
            Err(error) => {
                dissection.caveats.push(format!("No calls are shown packet by packet: {error}."));
                break;
            }
        }
    }
    ladders
}

fn key_log(path: &Path) -> anyhow::Result<Vec<u8>> {
    let bytes =
        std::fs::read(path).with_context(|| format!("cannot read the TLS keys ({})", path.display()))?;
    let known = |line: &[u8]| {
        let label = line.split(|byte| *byte == b' ').next().unwrap_or_default();
        label == b"CLIENT_RANDOM" || label.ends_with(b"_SECRET") || label.ends_with(b"_SECRET_0")
    };
    if !bytes.split(|byte| *byte == b'\n').any(known) {
        bail!(
            "{}: no TLS keys: found no line that begins with CLIENT_RANDOM or CLIENT_TRAFFIC_SECRET_0; expected a \
             file in the format of SSLKEYLOGFILE",
            path.display()
        );
    }
    Ok(bytes)
}

/// Reading a capture of this size takes long enough to show progress.
const PROGRESS_FROM_BYTES: u64 = 64 << 20;

fn show(bar: &ProgressBar, progress: Progress) {
    let Some(total_bytes) = progress.total_bytes.filter(|total| *total >= PROGRESS_FROM_BYTES) else {
        return;
    };
    if bar.length().is_none() && io::stderr().is_terminal() {
        let style = ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {eta}, {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_length(total_bytes);
        bar.set_draw_target(ProgressDrawTarget::stderr());
    }
    bar.set_position(progress.bytes);
    bar.set_message(format!("{} calls", progress.calls));
}

fn print_json(report: &DissectReport) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    serde_json::to_writer_pretty(&mut out, report)?;
    writeln!(out)?;
    out.flush()
}

fn print_text(report: &DissectReport) -> io::Result<()> {
    let width = output::width(120, 200);
    let mut text = table::write(report, width);
    for (place, _) in report.calls.iter().enumerate().filter(|(_, call)| call.ladder.is_some()) {
        text += "\n";
        text += &ladder_text::write(report, place, width);
    }
    let words = table::write_conclusions(report, width);
    if !words.is_empty() {
        text += "\n";
        text += &words;
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The command line, to be typed again.
fn command() -> String {
    let quoted = |argument: std::ffi::OsString| {
        let argument = argument.to_string_lossy().into_owned();
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,@%+".contains(letter);
        match !argument.is_empty() && argument.chars().all(plain) {
            true => argument,
            false => format!("'{}'", argument.replace('\'', "'\\''")),
        }
    };
    let arguments = std::env::args_os().skip(1).map(quoted);
    std::iter::once("spangap".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_ids_in_the_forms_people_copy() {
        let full = TraceId(*b"\x4b\xf9\x2f\x35\x77\xb3\x4d\xa6\xa3\xce\x92\x9d\x0e\x0e\x47\x36");
        for text in [
            "4bf92f3577b34da6a3ce929d0e0e4736",
            "4BF92F3577B34DA6A3CE929D0E0E4736",
            "4bf92f35-77b3-4da6-a3ce-929d0e0e4736",
            " 0x4bf92f3577b34da6a3ce929d0e0e4736 ",
        ] {
            assert_eq!(text.parse(), Ok(full), "{text}");
        }
        let short: TraceId = "a3ce929d0e0e4736".parse().expect("64 bits");
        assert_eq!((&short.0[..8], &short.0[8..]), (&[0; 8][..], &full.0[8..]));
        for text in ["", "abc", "zz", "00000000000000000000000000000000", "4bf92f3577b34da6a3ce929d0e0e473"] {
            assert!(text.parse::<TraceId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_capture_may_have_a_name() {
        let named = |text: &str| text.parse::<Named>().map(|of| (of.name, of.path)).expect("never fails");
        assert_eq!(named("proxy=in.pcap"), (Some("proxy".into()), PathBuf::from("in.pcap")));
        assert_eq!(named("a/b=c.pcap"), (None, PathBuf::from("a/b=c.pcap")));
        assert_eq!(named("-"), (None, PathBuf::from("-")));
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("client=1.pcap");
        std::fs::write(&file, b"").expect("written");
        assert_eq!(named(&file.to_string_lossy()), (None, file));
    }

    #[test]
    fn causes_by_their_names() {
        assert_eq!(cause("nagle-delayed-ack"), Ok(Cause::NagleDelayedAck));
        assert!(cause("nagle").expect_err("none").contains("expected one of none, nagle-delayed-ack"));
    }
}

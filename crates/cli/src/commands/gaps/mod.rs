//! `spangap gaps`: the meter's analysis over files.

mod apart;
pub mod table;

use super::meter::{By, SizeOrNone};
use crate::Outcome;
use crate::report_page::Report;
use crate::values::Size;
use anyhow::{Context, anyhow, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use spangap_meter::engine::{Meter, Settings};
use spangap_meter::explain::{Explanation, explain};
use spangap_meter::ingest::delivery::FileReport;
use spangap_meter::ingest::file::{Input, Progress, ReadError, read};
use spangap_meter::ingest::origins::Limits as OriginLimits;
use spangap_meter::query::pairs_report;
use spangap_meter::report::{PairsReport, Quantiles, Skipped};
use spangap_meter::samples::Drawn;
use spangap_model::PairKey;
use std::collections::HashMap;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

const EXAMPLES: &str = "\
Examples:
  spangap gaps traces.json
      rank pairs of services by the time lost between client and server
  kubectl exec deploy/collector -- cat /data/traces.jsonl | spangap gaps --by method -
      from the Collector's file exporter, with one row per method
  spangap gaps --explain traces.json
      what sets the slow calls of each pair apart: a node, a version, a size, any attribute of both spans
  spangap gaps --explain --html gaps.html traces.json
      the same as a page: legs, distributions and worst calls of each pair, in one file that opens offline
  spangap gaps --json day/*.jsonl.zst | jq '.pairs[0].worst'
      the worst calls, with trace ids, of the pair that lost most

Formats, recognised by content: OTLP JSON (a document, or one per line), OTLP protobuf (bare, or
length-prefixed as the Collector's file exporter writes it), Jaeger JSON as its UI exports it,
Zipkin JSON v2; each also as .gz or .zst. The spans of one call may be in different files.
Whatever cannot be read is skipped, named and counted.
With --by, a node is k8s.node.name, else host.id, else host.name; a pod k8s.pod.name, else k8s.pod.uid,
else container.id; a zone cloud.availability_zone; a version service.version. The row then says
service@node, or service@? where the resource of the spans states none.";

/// Gap of a call: duration of its CLIENT span minus duration of its SERVER span
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct GapsArgs {
    /// Files of spans; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// What a row represents
    #[arg(long, value_enum, default_value_t = By::Pair)]
    by: By,
    /// Number of rows, most time lost first [default: 20; with --json all]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Also say what sets the slow calls of each pair shown apart from the others, among all attributes of their spans
    #[arg(long)]
    explain: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Also write a self-contained page to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Exclude and count calls with a larger response, or `none`
    #[arg(long, value_name = "SIZE", default_value = "100KiB")]
    exclude_response_over: SizeOrNone,
    /// Attribute with a response's size, besides the message events; may be repeated
    /// [default: the http.response.* and rpc.*.size attributes, and the header content-length]
    #[arg(long, value_name = "NAME")]
    response_size_attribute: Option<Vec<String>>,
    /// Memory for spans waiting for their mate; when it is full, the oldest are evicted and counted
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    max_pending_bytes: Size,
}

/// A file of this size takes long enough to show progress.
const PROGRESS_FROM_BYTES: u64 = 64 << 20;
/// Calls per sample of a pair with --explain; there are no senders to keep up with here.
const SAMPLED_CALLS: usize = 512;
/// Memory for whole spans waiting for their mates, which may be far apart in files.
const KEEP_BYTES_TO_EXPLAIN: u64 = 512 << 20;
/// Memory for whole spans in samples.
const SAMPLE_BYTES: u64 = 1 << 30;
/// Maximum delay until the reader notices an interrupt; a read that waits for input does not notice it.
const STOPS_WITHIN: Duration = Duration::from_millis(500);

/// Messages of the reading thread and the signal's thread.
enum ReaderMessage {
    Read(Input, Result<FileReport, ReadError>),
    AllRead,
    Interrupted,
}

/// What was read and skipped.
#[derive(Default)]
pub struct Reading {
    /// Formats of the files, in the given order.
    pub formats: Vec<String>,
    /// Number of files, including standard input, that were at least partly read.
    pub files: usize,
    /// Skipped places.
    pub skipped: Vec<Skipped>,
    /// Number of skipped places, including those without a record.
    pub skipped_places: u64,
    /// Spans known to be lost in them.
    pub skipped_spans: u64,
    /// Files that could not be read at all.
    pub failed: Vec<ReadError>,
    /// Whether Ctrl-C came before the end.
    pub interrupted: bool,
}

/// Reads all files, joins their spans, prints the table.
pub fn run(args: GapsArgs) -> anyhow::Result<Outcome> {
    let inputs: Vec<Input> = args.files.into_iter().map(Input::from_argument).collect();
    if inputs.iter().filter(|input| **input == Input::Stdin).count() > 1 {
        bail!("standard input can be read once: \"-\" was given more than once");
    }
    if let Some(page) = &args.html {
        not_over(page, &inputs)?;
    }
    let of = inputs.iter().map(Input::name).collect::<Vec<_>>().join(", ");
    let SizeOrNone(exclude_over) = args.exclude_response_over;
    let usual = Settings::default();
    let meter = Arc::new(Meter::new(Settings {
        // Mates may be anywhere in the files, so only memory limits how long a span waits.
        join_ttl_ms: None,
        max_pending_bytes: args.max_pending_bytes.bytes(),
        exclude_response_over: exclude_over.map(Size::bytes),
        grouping: args.by.into(),
        response_size_attributes: args.response_size_attribute.unwrap_or(usual.response_size_attributes),
        // Nothing becomes idle in files.
        origin_limits: OriginLimits { bytes: 1 << 30, ..usual.origin_limits },
        sampled_calls: if args.explain { SAMPLED_CALLS } else { 0 },
        keep_bytes: if args.explain { KEEP_BYTES_TO_EXPLAIN } else { usual.keep_bytes },
        sample_bytes: SAMPLE_BYTES,
        ..Settings::default()
    }));

    let (news, told) = channel();
    tell_of_interrupt(news.clone())?;
    let stop = Arc::new(AtomicBool::new(false));
    let (readers_meter, told_to_stop) = (meter.clone(), stop.clone());
    thread::Builder::new()
        .name("reader".into())
        .spawn(move || read_all(&inputs, &readers_meter, &told_to_stop, &news))
        .context("cannot start a thread")?;
    let reading = follow(&told, &stop);
    meter.finish();

    let overview = meter.overview();
    let totals = meter.totals();
    let pairs = totals.iter().map(|(key, stats)| (key, stats));
    let mut report = pairs_report(pairs, &overview, 0, 0);
    let all_pairs = report.pairs.len();
    report.pairs.truncate(args.top.unwrap_or(if args.json { usize::MAX } else { 20 }));
    for row in &mut report.pairs {
        // Spans of a file do not arrive over time, so there is no time between mates to report.
        row.mate_delay = Quantiles::default();
    }
    report.skipped = reading.skipped.clone();
    report.explain = args.explain.then(|| explanations(&meter, &report));
    if reading.files > 0 || reading.interrupted {
        if let Some(path) = &args.html {
            let title = format!("spangap gaps: {of}");
            Report::Gaps { of: &of, title, of_pairs: all_pairs, report: &report }.write(path)?;
        }
        let mut out = BufWriter::new(io::stdout().lock());
        let printed = match args.json {
            true => print_json(&mut out, &report),
            false => table::print(&mut out, &report, all_pairs, &overview, &reading).and_then(|()| {
                report.explain.iter().flatten().try_for_each(|one| apart::print(&mut out, one))
            }),
        };
        match printed.and_then(|()| out.flush()) {
            // The reader has closed the pipe.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            other => other.context("cannot write to standard output")?,
        }
    }
    failure_of(reading)
}

/// Pairs of the spans in these files.
///
/// # Errors
/// A file cannot be read.
pub fn pairs_of(files: &[PathBuf]) -> anyhow::Result<PairsReport> {
    let meter = Meter::new(Settings { join_ttl_ms: None, ..Settings::default() });
    for file in files {
        let mut sink = |request: &[u8]| meter.ingest(request, 0).map(|ingested| ingested.spans);
        read(&Input::Path(file.clone()), &mut sink, &mut |_| ControlFlow::Continue(()))?;
    }
    meter.finish();
    let totals = meter.totals();
    Ok(pairs_report(totals.iter().map(|(key, stats)| (key, stats)), &meter.overview(), 0, 0))
}

/// Refuses to write the page over an input.
fn not_over(page: &Path, inputs: &[Input]) -> anyhow::Result<()> {
    let Ok(page) = page.canonicalize() else { return Ok(()) };
    let is_page = |input: &&Input| matches!(input, Input::Path(path) if path.canonicalize().ok().as_ref() == Some(&page));
    match inputs.iter().find(is_page) {
        Some(input) => bail!("--html {}: is an input; expected another file", input.name()),
        None => Ok(()),
    }
}

/// Explanation of the slow calls of each pair in the report.
fn explanations(meter: &Meter, report: &PairsReport) -> Vec<Explanation> {
    let mut samples: HashMap<PairKey, Vec<Drawn>> = meter.samples(|_| true).into_iter().collect();
    let rows = report.pairs.iter().filter_map(|row| {
        let key = PairKey {
            client: row.client.as_str().into(),
            server: row.server.as_str().into(),
            method: row.method.as_deref().map(Into::into),
        };
        samples.remove(&key).map(|drawn| explain(&key, &drawn))
    });
    rows.collect()
}

/// The first unreadable file fails the verb; the others are reported before it.
fn failure_of(reading: Reading) -> anyhow::Result<Outcome> {
    let mut failed = reading.failed.into_iter();
    let Some(first) = failed.next() else { return Ok(Outcome::Done) };
    for error in failed {
        eprintln!("spangap: {error}");
    }
    Err(anyhow!(first))
}

fn print_json(out: &mut impl Write, report: &PairsReport) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    writeln!(out)
}

/// Sends [`ReaderMessage::Interrupted`] when Ctrl-C is pressed.
fn tell_of_interrupt(news: Sender<ReaderMessage>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot wait for signals")?;
    // Registered here and now: a Ctrl-C before the thread runs counts too.
    let entered = runtime.enter();
    let mut interrupts = signal(SignalKind::interrupt()).context("cannot wait for signals")?;
    drop(entered);
    let wait = move || {
        if runtime.block_on(interrupts.recv()).is_some() {
            // The receiver is gone once everything has been printed.
            let _ = news.send(ReaderMessage::Interrupted);
        }
    };
    thread::Builder::new().name("signals".into()).spawn(wait).context("cannot start a thread")?;
    Ok(())
}

/// Reads the files in sequence; an error in one does not stop the others.
fn read_all(inputs: &[Input], meter: &Meter, stop: &AtomicBool, news: &Sender<ReaderMessage>) {
    for input in inputs {
        let bar = ProgressBar::hidden();
        let mut sink = |request: &[u8]| meter.ingest(request, 0).map(|ingested| ingested.spans);
        let report = read(input, &mut sink, &mut |progress| {
            show(&bar, input, progress);
            if stop.load(Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        bar.finish_and_clear();
        // The receiver is gone if a read took too long after an interrupt.
        if news.send(ReaderMessage::Read(input.clone(), report)).is_err() || stop.load(Relaxed) {
            break;
        }
    }
    let _ = news.send(ReaderMessage::AllRead);
}

fn show(bar: &ProgressBar, input: &Input, progress: Progress) {
    let Some(total_bytes) = progress.total_bytes.filter(|total| *total >= PROGRESS_FROM_BYTES) else {
        return;
    };
    if bar.length().is_none() && io::stderr().is_terminal() {
        let style = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} {eta}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(input.name());
        bar.set_length(total_bytes);
        bar.set_draw_target(ProgressDrawTarget::stderr());
    }
    bar.set_position(progress.bytes);
}

/// Collects the threads' messages until everything is read. After Ctrl-C it stops the reader, and waits for it
/// unless its input blocks.
fn follow(told: &Receiver<ReaderMessage>, stop: &AtomicBool) -> Reading {
    let mut reading = Reading::default();
    loop {
        let news = match reading.interrupted {
            false => told.recv().ok(),
            true => told.recv_timeout(STOPS_WITHIN).ok(),
        };
        match news {
            Some(ReaderMessage::Read(_, Ok(report))) => reading.add(report),
            Some(ReaderMessage::Read(input, Err(error))) => reading.add_failed(&input, error),
            Some(ReaderMessage::Interrupted) => {
                reading.interrupted = true;
                stop.store(true, Relaxed);
            }
            Some(ReaderMessage::AllRead) | None => return reading,
        }
    }
}

impl Reading {
    fn add_failed(&mut self, input: &Input, error: ReadError) {
        let (file, reason) = (input.name(), error.to_string());
        let reason = reason.strip_prefix(&format!("{file}: ")).unwrap_or(&reason).to_owned();
        self.skipped_places += 1;
        self.skipped.push(Skipped { file, place: "all of it".into(), reason, spans: None });
        self.failed.push(error);
    }

    fn add(&mut self, report: FileReport) {
        self.files += 1;
        if !self.formats.contains(&report.format) {
            self.formats.push(report.format);
        }
        let unrecorded = report.skipped_places - report.skipped.len() as u64;
        let recorded_spans: u64 = report.skipped.iter().filter_map(|skipped| skipped.spans).sum();
        let file = report.skipped.first().map(|skipped| skipped.file.clone());
        self.skipped_places += report.skipped_places;
        self.skipped_spans += report.skipped_spans;
        self.skipped.extend(report.skipped);
        if unrecorded > 0 {
            self.skipped.push(Skipped {
                file: file.unwrap_or_default(),
                place: "further on".into(),
                reason: format!("{unrecorded} more places were skipped, and only counted"),
                spans: Some(report.skipped_spans - recorded_spans),
            });
        }
    }
}

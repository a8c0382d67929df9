//! `spangap hunt`: from recorded files to a verdict.

pub mod experiment;
mod live;
pub mod meter;
mod terminal;
mod text;
mod trace;

use crate::Outcome;
use crate::output::{print_text, width};
use crate::report_page::Report;
use crate::signals::{self, ASKED};
use crate::values::Duration;
use anyhow::{Context, bail};
use clap::Args;
use experiment::{ExperimentChoice, Mode};
use serde::Serialize;
use spangap_diagnose::hunt::{Hunt, Question, Slower, hunt_aloud};
use spangap_gather::{Sources, Wanted, evidence};
use spangap_model::evidence::Evidence;
use spangap_report::wrap::wrapped;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use terminal::Terminal;

const EXAMPLES: &str = "\
Examples:
  spangap hunt lab-rto-1
      a folder with captures and, where there are any, files of spans and recordings of hosts
  spangap hunt client.pcapng server.pcapng traces.json client.rec server.rec --json
      the same, file by file; each is recognised by its content
  spangap hunt today --method /shop.Cart/Get --over 20ms
      why calls of one method take 20 ms or longer, where others of their kind do not
  spangap hunt today --against last-week --html verdict.html
      why everything takes longer than it did; as a page, too
  spangap hunt lab-rto-1 --perfetto calls.perfetto-trace
      also the slowest calls with both hosts on one timeline, to open at ui.perfetto.dev or in a copy of it

  spangap hunt 'frontend->customer' --meter http://127.0.0.1:7070
      the calls of a pair that a meter sees now: opens a case, asks the agents on both hosts, reports its progress,
      and gives a verdict as for a folder
  spangap hunt 'frontend->customer' --meter http://127.0.0.1:7070 --experiment auto --json
      also try the remedy, if there is one that can be undone: proven, refuted or undecided, in the same document

A culprit is named only if even the lower bound of its share is most of the time that slow calls take beyond
others of their kind. Otherwise hunt names the place where that time passed, or neither. Exit code 0 means that
it reached a verdict, whichever.";

/// Find what makes calls slow: attribute their excess time to causes, and name a culprit if one accounts for most of it
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct HuntArgs {
    /// Folder, or files: captures (pcap, pcapng), spans (OTLP, Jaeger, Zipkin), recordings of `spangap host record`,
    /// what other verbs print with --json. With --meter a pair of services
    #[arg(required_unless_present = "capture", value_name = "FOLDER|FILE|CLIENT->SERVER")]
    sources: Vec<PathBuf>,
    /// A file to read as a capture, whatever its content looks like
    #[arg(long, value_name = "FILE")]
    capture: Vec<PathBuf>,
    /// A file to read as spans, whatever its content looks like
    #[arg(long, value_name = "FILE")]
    spans: Vec<PathBuf>,
    /// A file to read as a host's recording, whatever its content looks like
    #[arg(long, value_name = "FILE")]
    host: Vec<PathBuf>,
    /// Only calls of this method, such as `/shop.Cart/Get`
    #[arg(long)]
    method: Option<String>,
    /// Slow calls are those at or above this quantile of the durations, such as 0.99 [default: those that stand out]
    #[arg(long, value_name = "SHARE", conflicts_with = "over", value_parser = share)]
    quantile: Option<f64>,
    /// Slow calls are those that take at least this long [default: those that stand out]
    #[arg(long, value_name = "DURATION")]
    over: Option<Duration>,
    /// Only calls that begin at least this long after the first one
    #[arg(long, value_name = "DURATION")]
    from: Option<Duration>,
    /// Only calls that begin less than this long after the first one
    #[arg(long, value_name = "DURATION")]
    to: Option<Duration>,
    /// Explain how much longer all calls take than those of this folder or capture [default: the folder `before` in
    /// FOLDER, if there is one]
    #[arg(long, value_name = "FOLDER|FILE")]
    against: Option<PathBuf>,
    /// URL of a meter's page: ask that meter, and the agents connected to it
    #[arg(long, value_name = "URL", conflicts_with_all = ["capture", "spans", "host", "quantile", "over", "from", "to", "against", "perfetto"])]
    meter: Option<String>,
    /// File with a token of the role `capture`, where the meter wants one
    #[arg(long, value_name = "FILE", requires = "meter")]
    token_file: Option<PathBuf>,
    /// Authorities to verify the meter's certificate with (PEM), for an `https` URL [default: those that this host
    /// trusts]
    #[arg(long, value_name = "FILE", requires = "meter")]
    tls_ca: Option<PathBuf>,
    /// Try the remedy on the live pair, for some seconds at a time, on half of the connections or for half of the time,
    /// and undo each change; the calls without it are the control. Needs a token of the role `change` [default: ask at
    /// a terminal, none elsewhere]
    #[arg(long, value_name = "MODE", value_enum)]
    experiment: Option<Mode>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Also write the verdict as a page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also write the 200 slowest calls as a trace for Perfetto: legs, spans, packets and threads of both hosts on one
    /// timeline, each with how far the clocks may be off
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
}

fn share(text: &str) -> Result<f64, String> {
    let share: Option<f64> = text.parse().ok().filter(|share| (0.0..1.0).contains(share));
    share.ok_or_else(|| {
        format!("{text:?} is not a quantile: expected a number from 0 to below 1, such as 0.99")
    })
}

/// Gathers evidence, judges it, prints the verdict.
pub fn run(args: HuntArgs) -> anyhow::Result<Outcome> {
    if let Some(url) = &args.meter {
        return at_meter(&args, url);
    }
    if let [one] = &args.sources[..]
        && !one.exists()
        && one.to_str().is_some_and(|text| live::pair(text).is_some())
    {
        bail!("{}: there is no such file; a pair of services needs --meter URL", one.display());
    }
    let stop = signals::flag(ASKED)?;
    let sources = sources(&args)?;
    for (flag, path) in [("--html", &args.html), ("--perfetto", &args.perfetto)] {
        path.as_deref().map_or(Ok(()), |path| not_over(flag, path, &sources))?;
    }
    let mut terminal = Terminal::new(!args.json);
    let evidence = gathered(&sources, &mut terminal, &stop)?;
    let before = match &args.sources[..] {
        [one] => spangap_gather::before(one),
        _ => None,
    };
    let reference = match args.against.as_ref().or(before.as_ref()) {
        Some(path) => Some(
            gathered(&of_path(path)?, &mut terminal, &stop)
                .with_context(|| format!("reference {}", path.display()))?,
        ),
        None => None,
    };
    let question = question(&args, &evidence, reference.as_ref())?;
    let hunt = hunt_aloud(&evidence, &question, &mut |step| terminal.hears(step));
    if let Some(path) = &args.perfetto {
        terminal.works("reading again for the trace");
        trace::write(path, &sources, &mut |progress| terminal.reads(&sources, progress), &stop)?;
    }
    terminal.ends();
    experiment::none_of_files(ExperimentChoice::new(args.experiment, args.json), &hunt);
    told(&args, &hunt, &sources.folder.display().to_string())
}

/// Hunts for a pair at a meter.
fn at_meter(args: &HuntArgs, url: &str) -> anyhow::Result<Outcome> {
    let named = match &args.sources[..] {
        [one] => one.to_str().and_then(live::pair),
        _ => None,
    };
    let Some(pair) = named else {
        bail!(
            "with --meter: expected one pair of services, such as 'frontend->customer', quoted for the shell"
        );
    };
    let of = format!("{} -> {} at {url}", pair.client, pair.server);
    let mut case =
        live::hunt(pair, args.method.as_deref(), url, args.token_file.as_ref(), args.tls_ca.as_ref())?;
    let terminal = Terminal::new(!args.json);
    terminal.crosses_off(&case.hunt.cleared);
    terminal.ends();
    // People read the verdict before they decide; a JSON document includes the result.
    if !args.json {
        print_text(&text::write(&case.hunt, width(100, 140)))?;
    }
    let tried = experiment::of_case(&case, ExperimentChoice::new(args.experiment, args.json));
    if let Ok(Some(tried)) = &tried {
        case.document["experiments"] =
            serde_json::to_value([experiment::documented(tried)]).context("it is plain data")?;
        if !args.json {
            let lines: Vec<String> =
                experiment::outcome(tried).iter().map(|line| wrapped(line, width(100, 140), 2)).collect();
            print_text(&format!("\n{}\n", lines.join("\n")))?;
        }
    }
    page(args, &case.hunt, &case.document, &of)?;
    if args.json {
        document(&case.document)?;
    }
    match tried? {
        Some(tried) if !tried.undone => bail!(
            "the host has not confirmed the undo of every change; its guard undoes what is left within a minute"
        ),
        _ => Ok(Outcome::Done),
    }
}

/// Prints the verdict, and writes its page.
fn told(args: &HuntArgs, hunt: &Hunt, of: &str) -> anyhow::Result<Outcome> {
    page(args, hunt, hunt, of)?;
    match args.json {
        true => document(hunt),
        false => print_text(&text::write(hunt, width(100, 140))),
    }
}

fn page(args: &HuntArgs, hunt: &Hunt, document: &impl Serialize, of: &str) -> anyhow::Result<()> {
    let Some(path) = &args.html else { return Ok(()) };
    let report = &serde_json::to_value(document).context("a verdict is plain data")?;
    Report::Hunt { of, title: &text::title(hunt), report }.write(path)
}

fn document(document: &impl Serialize) -> anyhow::Result<Outcome> {
    print_text(&(serde_json::to_string_pretty(document).context("a verdict is plain data")? + "\n"))
}

/// Times are relative to the first call, so that nobody has to write timestamps.
fn question<'e>(
    args: &HuntArgs,
    evidence: &Evidence,
    against: Option<&'e Evidence>,
) -> anyhow::Result<Question<'e>> {
    let first_unix_ns = evidence.measured().map(|call| call.start_unix_ns).min();
    let at = |since: Option<Duration>| Some(first_unix_ns?.saturating_add_unsigned(since?.ns()));
    let slower = match (args.quantile, args.over) {
        (Some(share), _) => Some(Slower::Quantile(share)),
        (_, Some(over)) => Some(Slower::Over(over.ns())),
        _ => None,
    };
    let question = Question {
        method: args.method.clone(),
        slower,
        from_unix_ns: at(args.from),
        to_unix_ns: at(args.to),
        against,
    };
    if let Some(method) = &args.method
        && !evidence.calls.iter().any(|call| call.method.as_ref() == Some(method))
    {
        let mut known: Vec<&str> = evidence.calls.iter().filter_map(|call| call.method.as_deref()).collect();
        known.sort_unstable();
        known.dedup();
        known.truncate(8);
        bail!("--method {method}: no call has it; expected one such as {}", known.join(", "));
    }
    Ok(question)
}

/// Ignored files that are named; of a folder with many others, the rest are counted.
const IGNORED_NAMED: usize = 5;

fn gathered(sources: &Sources, terminal: &mut Terminal, stop: &AtomicBool) -> anyhow::Result<Evidence> {
    for other in sources.others.iter().take(IGNORED_NAMED) {
        eprintln!("spangap: {}: ignored: not a capture, spans or a recording", other.display());
    }
    if let more @ 1.. = sources.others.len().saturating_sub(IGNORED_NAMED) {
        eprintln!("spangap: {more} more ignored for the same reason");
    }
    terminal.begins(sources);
    let mut on_progress = |progress| {
        terminal.reads(sources, progress);
        match stop.load(Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let evidence = evidence(sources, Wanted::FOR_A_HUNT, &mut on_progress, stop)?;
    terminal.has_read(sources);
    Ok(evidence)
}

fn sources(args: &HuntArgs) -> anyhow::Result<Sources> {
    let mut sources = match &args.sources[..] {
        [one] => of_path(one)?,
        several => {
            let mut sources = Sources::default();
            for path in several {
                sources.folder.clone_from(path);
                sources.add(path.clone())?;
            }
            sources
        }
    };
    sources.captures.extend(args.capture.iter().cloned());
    sources.spans.extend(args.spans.iter().cloned());
    sources.recordings.extend(args.host.iter().cloned());
    if let Some(first) = args.capture.first().filter(|_| args.sources.is_empty()) {
        sources.folder.clone_from(first);
    }
    Ok(sources)
}

fn of_path(path: &Path) -> anyhow::Result<Sources> {
    if path.is_dir() {
        return Ok(Sources::of_folder(path)?);
    }
    let mut sources = Sources { folder: path.to_owned(), ..Sources::default() };
    sources.add(path.to_owned())?;
    Ok(sources)
}

fn not_over(flag: &str, page: &Path, sources: &Sources) -> anyhow::Result<()> {
    let read = [&sources.captures, &sources.spans, &sources.recordings, &sources.documents];
    let same =
        |path: &&PathBuf| path.canonicalize().ok().is_some_and(|path| page.canonicalize().ok() == Some(path));
    if let Some(path) = read.into_iter().flatten().chain(&sources.tank).find(same) {
        bail!("{flag} {}: is {}, an input; expected another file", page.display(), path.display());
    }
    Ok(())
}

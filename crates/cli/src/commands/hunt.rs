//! `spangap hunt`: from recorded files to a verdict.

use crate::Outcome;
use crate::output::print_text;
use crate::signals::{self, ASKED};
use anyhow::Context;
use clap::Args;
use spangap_diagnose::hunt::{Hunt, Kind, hunt};
use spangap_gather::{Sources, Wanted, evidence};
use spangap_model::duration::format_ns;
use spangap_report::wrap::wrapped;
use std::fmt::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

const EXAMPLES: &str = "\
Examples:
  spangap hunt lab-rto-1
      a folder with captures, and with files of spans and recordings of hosts where there are any
  spangap hunt client.pcapng server.pcapng traces.json client.rec server.rec --json
      the same, file by file; what each one is, its content tells

A culprit is named only when even the lower bound of its share is most of what slow calls take beyond others of
their kind; otherwise the place where the time passed is, or neither. Exit code 0 says that a verdict was reached,
whatever it is.";

/// Calls looked at one by one.
const CALLS: usize = 10_000;
/// Calls drawn at random beside these.
const SAMPLE: usize = 10_000;
/// Columns of the bar of a whole share.
const BAR: usize = 30;
/// Lines of the sheet shown; the JSON has all.
const LINES: usize = 8;

/// Lay what slow calls take too long to whoever owns it, and name a culprit where one owns most of it
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct HuntArgs {
    /// Folder, or files: captures (pcap, pcapng), spans (OTLP, Jaeger, Zipkin), recordings of `spangap host record`,
    /// a report of `spangap tank --json`
    #[arg(required = true, value_name = "FOLDER|FILE")]
    sources: Vec<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Gathers, judges, prints.
pub fn run(args: HuntArgs) -> anyhow::Result<Outcome> {
    let stop = signals::flag(ASKED)?;
    let sources = sources(&args.sources)?;
    for other in &sources.others {
        eprintln!("spangap: {}: not looked at: neither a capture, spans nor a recording", other.display());
    }
    let mut on_progress = |_| match stop.load(Relaxed) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let evidence = evidence(&sources, Wanted { calls: CALLS, sample: SAMPLE }, &mut on_progress, &stop)?;
    let hunt = hunt(&evidence);
    match args.json {
        true => print_text(&(serde_json::to_string_pretty(&hunt).context("a verdict is plain data")? + "\n")),
        false => print_text(&text(&hunt)),
    }
}

fn sources(paths: &[PathBuf]) -> anyhow::Result<Sources> {
    if let [folder] = paths
        && folder.is_dir()
    {
        return Ok(Sources::of_folder(folder)?);
    }
    let mut sources = Sources::default();
    for path in paths {
        sources.folder.clone_from(path);
        sources.add(path.clone())?;
    }
    Ok(sources)
}

fn text(hunt: &Hunt) -> String {
    let mut out = String::new();
    let title = match hunt.verdict {
        Kind::One => "One culprit",
        Kind::Several => "Several culprits",
        Kind::Place => "The place, not the cause",
        Kind::Nothing => "Nothing stands out",
        Kind::Unknown => "Unknown",
    };
    let names: Vec<String> = hunt.culprits.iter().map(|one| one.culprit.to_string()).collect();
    let names = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
    let _ = writeln!(out, "{title}{names}\n{}\n", wrapped(&hunt.words, 100, 0));
    for line in hunt.sheet.iter().filter(|line| line.share.mid.abs() >= 0.005).take(LINES) {
        let who = match (&line.culprit, &line.leg) {
            (Some(culprit), _) => culprit.to_string(),
            (None, Some(leg)) => format!("unexplained, in {leg}"),
            (None, None) => "unexplained".into(),
        };
        let of = |share: f64| ((share.clamp(0.0, 1.0) * BAR as f64).round() as usize).min(BAR);
        let (low, high) = (of(line.share.low), of(line.share.high));
        let bar = format!("{}{}{}", "█".repeat(low), "▒".repeat(high - low), " ".repeat(BAR - high));
        let sign = if line.ns < 0 { "-" } else { "" };
        let _ = writeln!(
            out,
            "  {bar} {:>4.0} % ({:.0} to {:.0} %)  {sign}{} a call  {who}",
            line.share.mid * 100.0,
            line.share.low * 100.0,
            line.share.high * 100.0,
            format_ns(line.ns.unsigned_abs()),
        );
    }
    let seen = &hunt.coverage;
    let _ = writeln!(
        out,
        "\nSeen: {} of {} calls, {:.0} % of their time in legs of its own or owned; {} are of kinds too rare to compare.",
        seen.looked_at,
        seen.calls,
        seen.with_legs * 100.0,
        seen.set_aside
    );
    for one in hunt.culprits.iter().filter(|one| !one.remedy.is_empty()) {
        let _ = writeln!(out, "{}", wrapped(&format!("Remedy ({}): {}", one.culprit, one.remedy), 100, 2));
    }
    if !hunt.beside.is_empty() {
        let _ = writeln!(out, "Other instruments, of the hosts and not of these calls:");
    }
    for finding in hunt.beside.iter().take(LINES) {
        let sure = if finding.is_shown() { "" } else { "possible: " };
        let note = if finding.note.is_empty() { String::new() } else { format!(": {}", finding.note) };
        let line = format!("  {sure}{} ({}){note}", finding.culprit, finding.instrument);
        let _ = writeln!(out, "{}", wrapped(&line, 100, 4));
    }
    for next in &hunt.look_next {
        let _ = writeln!(out, "{}", wrapped(next, 100, 2));
    }
    if !hunt.trace_ids.is_empty() {
        let _ = writeln!(out, "Calls that it rests on: {}", hunt.trace_ids.join(", "));
    }
    out
}

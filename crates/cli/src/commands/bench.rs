//! `spangap bench`: evaluates results of tank.

use crate::values::wrong_usage;
use crate::{Outcome, report_page};
use anyhow::{Context, anyhow, bail};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use spangap_bench::compare::arms::ArmPair;
use spangap_bench::compare::{ArmVerdict, Comparison, Metric, compare};
use spangap_bench::report::fields::Field;
use spangap_bench::report::{RunFinding, Standing, TankReport};
use spangap_model::duration::format_ns;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Compare results of spangap tank, or show them again
#[derive(Args, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    verb: BenchVerb,
}

#[derive(Subcommand, Debug)]
enum BenchVerb {
    Compare(CompareArgs),
    Show(ShowArgs),
    Check(CheckArgs),
    Figure(FigureArgs),
}

/// Check whether runs show a cause; fail with the reason if they do not
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  spangap tank HOST:50051 --nodelay off,on --rate 10,100,1000 --json > runs.json
  spangap bench check runs.json --shows nagle-delayed-ack
      exit code 0 and the evidence, or exit code 1 and what the runs show instead")]
struct CheckArgs {
    /// What `spangap tank --json` printed, once or several times
    #[arg(value_name = "FILE", required = true)]
    file: PathBuf,
    /// The cause, by the name that findings have
    #[arg(long, value_name = "CAUSE", required = true, value_parser = PossibleValuesParser::new(FINDABLE))]
    shows: String,
}

/// Causes that runs can show.
const FINDABLE: [&str; 5] =
    ["nagle-delayed-ack", "stream-limit", "shared-connection", "cpu-saturated", "idle-wake"];

/// Print one figure of the runs, for scripts: nanoseconds, calls per second, or seconds of CPU per call
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  spangap bench figure runs.json throughput --pick max")]
struct FigureArgs {
    /// What `spangap tank --json` printed, once or several times
    #[arg(value_name = "FILE", required = true)]
    file: PathBuf,
    /// Which figure
    #[arg(value_name = "FIGURE", value_parser = PossibleValuesParser::new(Metric::ALL.map(Metric::name)))]
    figure: String,
    /// Of several runs, which
    #[arg(long, value_enum, value_name = "min|max", default_value = "max", hide_possible_values = true)]
    pick: Pick,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Pick {
    Min,
    Max,
}

/// Show results that `spangap tank --json` printed as a table, or as a page
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  spangap bench show runs.json
  spangap bench show runs.json --html runs.html")]
struct ShowArgs {
    /// What `spangap tank --json` printed, once or several times
    #[arg(value_name = "FILE", required = true)]
    file: PathBuf,
    /// Write a page that opens offline, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print all documents of the file as one
    #[arg(long)]
    json: bool,
}

/// Say whether B differs from A, by how much, and how sure that is
///
/// Each run is one measurement. A verdict needs several of each arm, taken in turn, so that a drift of the machine affects
/// both alike; with fewer there are figures but no verdict.
#[derive(Args, Debug)]
#[command(after_help = "\
A file holds what `spangap tank --json` printed: one document, or several one after the other. So two builds \
that cannot run at once are measured in turn:
  for i in 1 2 3 4 5; do
    start-old; spangap tank server:50051 --inflight 8 --json >> A.json; stop
    start-new; spangap tank server:50051 --inflight 8 --json >> B.json; stop
  done
  spangap bench compare A.json B.json

Both arms in one file:
  spangap tank server:50051 --channels shared,distinct --inflight 1..64 --repeat 5 --json > runs.json
  spangap bench compare runs.json --by channels

Ratios are B / A: the Hodges-Lehmann estimate, each with its own exact 95 % interval from the Mann-Whitney test. \
A verdict must also survive correction for all comparisons made: the Westfall-Young step-down procedure keeps \
the chance that any verdict in the table is a false alarm at 5 % or less.

Exit code 3 with --fail-on slower: B is slower in throughput, p50, p99 or p99.9, by a verdict.")]
struct CompareArgs {
    /// A and B; with --by one file that holds both
    #[arg(value_name = "FILE", required = true, num_args = 1..=2)]
    files: Vec<PathBuf>,
    /// Compare runs that differ in this
    #[arg(long, value_name = "FIELD", value_parser = PossibleValuesParser::new(Field::ALL.map(Field::name)))]
    by: Option<String>,
    /// Figures to compare; fewer comparisons are easier to tell from chance
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = PossibleValuesParser::new(Metric::ALL.map(Metric::name)))]
    metric: Vec<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Exit with 3 when this is found
    #[arg(long, value_enum, value_name = "FINDING")]
    fail_on: Option<FailOn>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FailOn {
    /// B has less throughput or more latency than A
    Slower,
}

/// Runs `spangap bench`.
pub fn run(args: BenchArgs) -> anyhow::Result<Outcome> {
    match args.verb {
        BenchVerb::Compare(args) => run_compare(args),
        BenchVerb::Show(args) => run_show(args),
        BenchVerb::Check(args) => run_check(&args),
        BenchVerb::Figure(args) => run_figure(&args),
    }
}

fn run_check(args: &CheckArgs) -> anyhow::Result<Outcome> {
    let report = read(&args.file)?;
    let wanted = |finding: &&RunFinding| finding.cause.name() == args.shows;
    let found = report.findings.iter().filter(wanted).find(|finding| finding.standing == Standing::Shown);
    let Some(shown) = found else {
        let possible = report.findings.iter().find(wanted);
        let instead = possible.map_or_else(
            || format!("instead, the runs show: {}", report.verdict),
            |finding| {
                format!("it is possible, but not shown: {} ({})", finding.says, finding.rests_on.join("; "))
            },
        );
        bail!(
            "{} does not show {}: {instead} This machine kept a thread that never sleeps from running for {} in {}.",
            args.file.display(),
            args.shows,
            format_ns(report.noise.longest_pause_ns),
            format_ns(report.noise.watched_ns)
        );
    };
    let evidence = shown.rests_on.iter().map(|line| format!("\n  {line}"));
    print_text(&format!("{}: {}{}", args.shows, shown.says, evidence.collect::<String>()))?;
    Ok(Outcome::Done)
}

fn run_figure(args: &FigureArgs) -> anyhow::Result<Outcome> {
    let report = read(&args.file)?;
    let metric = Metric::ALL.into_iter().find(|metric| metric.name() == args.figure);
    let values = report.runs.iter().filter_map(|run| metric.and_then(|metric| metric.of(run)));
    let picked = match args.pick {
        Pick::Min => values.reduce(f64::min),
        Pick::Max => values.reduce(f64::max),
    };
    let value = picked.with_context(|| format!("no run of {} has {}", args.file.display(), args.figure))?;
    print_text(&value.to_string())?;
    Ok(Outcome::Done)
}

fn print_text(text: &str) -> anyhow::Result<()> {
    match writeln!(io::stdout().lock(), "{text}") {
        // The reader has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to standard output"),
    }
}

fn run_show(args: ShowArgs) -> anyhow::Result<Outcome> {
    let report = read(&args.file)?;
    if let Some(path) = &args.html {
        report_page::write_tank(path, &report)?;
    }
    let text = if args.json { serde_json::to_string(&report)? } else { report.to_string() };
    print_text(text.trim_end())?;
    Ok(Outcome::Done)
}

fn run_compare(args: CompareArgs) -> anyhow::Result<Outcome> {
    let field = args.by.and_then(|name| Field::ALL.into_iter().find(|field| field.name() == name));
    let (a, b);
    let pairs = match (args.files.as_slice(), field) {
        ([file], Some(field)) => {
            a = read(file)?;
            ArmPair::by_field(&a, field)
        }
        ([first, second], None) => {
            (a, b) = (read(first)?, read(second)?);
            let name = |file: &Path| file.display().to_string();
            vec![ArmPair::of_reports((name(first), &a), (name(second), &b))]
        }
        (_, None) => {
            let why = "one file has nothing to compare with: expected a second one, or --by FIELD";
            return Err(wrong_usage(why).into());
        }
        (_, Some(_)) => {
            let why = "--by compares runs within one file: expected a single file, or two files without --by";
            return Err(wrong_usage(why).into());
        }
    };
    let chosen =
        |metric: &Metric| args.metric.is_empty() || args.metric.iter().any(|name| name == metric.name());
    let metrics: Vec<Metric> = Metric::ALL.into_iter().filter(chosen).collect();
    let comparison = compare(&pairs, &metrics);
    match print(&comparison, args.json) {
        // The reader has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        other => other.context("cannot write to standard output")?,
    }
    Ok(match args.fail_on {
        Some(FailOn::Slower) if found_slower(&comparison) => Outcome::Found,
        _ => Outcome::Done,
    })
}

fn print(comparison: &Comparison, json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match json {
        true => {
            serde_json::to_writer_pretty(&mut out, comparison)?;
            writeln!(out)
        }
        false => write!(out, "{comparison}"),
    }
}

/// Prints the reason for the exit code on standard error.
fn found_slower(comparison: &Comparison) -> bool {
    let mut found = false;
    for (_, row) in comparison.rows_with(ArmVerdict::Slower) {
        eprintln!("spangap: slower: {} ({}, {})", row.words, row.metric.name(), row.point);
        found = true;
    }
    found
}

/// Combines all documents of a file into one report.
pub(super) fn read(file: &Path) -> anyhow::Result<TankReport> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut all: Option<TankReport> = None;
    for report in serde_json::Deserializer::from_str(&text).into_iter() {
        let report: TankReport = report
            .map_err(|error| anyhow!("{} is not a result of spangap tank --json: {error}", file.display()))?;
        match &mut all {
            Some(all) => {
                all.runs.extend(report.runs);
                all.not_run.extend(report.not_run);
                all.warnings.extend(report.warnings);
            }
            None => all = Some(report),
        }
    }
    // Combined documents may show more than each alone, and older ones contain no findings.
    if let Some(all) = &mut all {
        all.conclude();
    }
    all.with_context(|| format!("{} is not a result of spangap tank --json: it is empty", file.display()))
}

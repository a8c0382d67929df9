//! `make bench-tank`: compares `spangap tank` with the plainest equivalent programs, and with its peers.
//!
//! Every row is a ratio of two programs that ran alternately against one target, each end on its own CPU.

mod figures;
mod peers;
mod programs;

use clap::{Parser, ValueEnum};
use figures::{Figures, Lateness, Metric, Row};
use programs::{Bench, BenchError, Sample, Target, usable_cpus};
use std::path::PathBuf;
use std::process::ExitCode;

/// Calls under way at peers.
const PEERS_IN_FLIGHT: u32 = 16;

/// Measures tank against baselines and peers.
#[derive(Parser, Debug)]
struct Args {
    /// Only these cases
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Case>,
    /// Runs of each program in a row, taken in turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// Seconds of each run
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Calls under way, for the cases that compare throughput
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 16, 64])]
    inflight: Vec<u32>,
    /// The binary
    #[arg(long, default_value = "target/dist/spangap")]
    spangap: PathBuf,
    /// Folder of the baseline programs
    #[arg(long, default_value = "target/baseline")]
    baselines: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Case {
    /// `raw` against a C ping-pong
    Raw,
    /// `cpp-*` against hand-written loops over the same library
    Cpp,
    /// `go` against a hand-written loop over the same library
    Go,
    /// `rust` against plain loops over tonic, and over the HTTP/2 library below it; that against h2load
    Rust,
    /// `rust` against ghz, fortio and h2load
    Peers,
    /// How late an open loop sends
    Lateness,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match measure(&args) {
        Ok(figures) if args.json => println!("{}", figures.json()),
        Ok(figures) => print!("{figures}"),
        Err(error) => {
            eprintln!("spangap-tank-bench: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn measure(args: &Args) -> Result<Figures, BenchError> {
    let cpus = usable_cpus();
    let pinned = cpus.len() >= 2;
    let bench = Bench {
        spangap: args.spangap.clone(),
        baselines: args.baselines.clone(),
        seconds: args.seconds,
        target_cpu: pinned.then(|| cpus[0]),
        client_cpu: pinned.then(|| cpus[1]),
    };
    let mut figures = Figures::default();
    if !pinned {
        figures.not_run.push("pinning: there is one CPU, both ends share it".into());
    }
    let wanted = |case| args.only.is_empty() || args.only.contains(&case);
    if wanted(Case::Raw) {
        raw(args, &bench, &mut figures)?;
    }
    if wanted(Case::Cpp) {
        for stack in ["cpp-sync", "cpp-async", "cpp-callback"] {
            let baseline = format!("grpc_{}", stack.trim_start_matches("cpp-"));
            against_baseline(args, &bench, &mut figures, stack, "cpp", &baseline)?;
        }
    }
    if wanted(Case::Go) {
        against_baseline(args, &bench, &mut figures, "go", "go", "go_plain")?;
    }
    if wanted(Case::Rust) {
        against_plain_rust(args, &bench, &mut figures)?;
    }
    if wanted(Case::Peers) {
        against_peers(args, &bench, &mut figures)?;
    }
    if wanted(Case::Lateness) {
        for stack in ["raw", "rust", "cpp-sync", "cpp-async", "cpp-callback", "go"] {
            lateness(&bench, &mut figures, stack)?;
        }
    }
    figures.judge();
    Ok(figures)
}

/// Runs two programs in turn; the order alternates between pairs, so that drift favours neither.
fn in_turn(
    runs: u32,
    mut ours: impl FnMut() -> Result<Sample, BenchError>,
    mut theirs: impl FnMut() -> Result<Sample, BenchError>,
) -> Result<(Vec<Sample>, Vec<Sample>), BenchError> {
    let (mut our_samples, mut their_samples) = (Vec::new(), Vec::new());
    for run in 0..runs {
        if run % 2 == 0 {
            our_samples.push(ours()?);
            their_samples.push(theirs()?);
        } else {
            their_samples.push(theirs()?);
            our_samples.push(ours()?);
        }
    }
    Ok((our_samples, their_samples))
}

fn raw(args: &Args, bench: &Bench, figures: &mut Figures) -> Result<(), BenchError> {
    let Some(baseline) = bench.baseline("pingpong") else {
        figures.not_run.push("raw: the baseline pingpong is not built".into());
        return Ok(());
    };
    // Each client uses a server of its own kind: the two have different frames.
    let target = bench.target_with("raw", &["--response-bytes", "56"])?;
    let plain = Target::start_plain(bench, &baseline)?;
    for &in_flight in &[1, 8, 64] {
        eprintln!("raw, {in_flight} in flight");
        let (ours, theirs) = in_turn(
            args.runs,
            || bench.tank(&target, &["--stack", "raw", "--request-bytes", "56"], in_flight),
            || bench.plain(&baseline, &["client", "127.0.0.1", plain.port()], in_flight),
        )?;
        figures.rows.push(Row {
            ours: "raw".into(),
            theirs: "C ping-pong".into(),
            in_flight,
            metric: Metric::Throughput,
            goal: Some(0.9),
            our_samples: ours,
            their_samples: theirs,
        });
    }
    Ok(())
}

fn against_baseline(
    args: &Args,
    bench: &Bench,
    figures: &mut Figures,
    stack: &str,
    target_stack: &str,
    baseline: &str,
) -> Result<(), BenchError> {
    let Some(program) = bench.baseline(baseline) else {
        figures.not_run.push(format!("{stack}: the baseline {baseline} is not built"));
        return Ok(());
    };
    let target = match bench.target(target_stack) {
        Ok(target) => target,
        Err(error) => {
            figures.not_run.push(format!("{stack}: {error}"));
            return Ok(());
        }
    };
    for &in_flight in &args.inflight {
        eprintln!("{stack}, {in_flight} in flight");
        let (ours, theirs) = in_turn(
            args.runs,
            || bench.tank(&target, &["--stack", stack], in_flight),
            || bench.plain(&program, &[target.address()], in_flight),
        )?;
        let goal = (stack != "go").then_some(0.95);
        figures.rows.push(Row {
            ours: stack.into(),
            theirs: baseline.into(),
            in_flight,
            metric: Metric::Throughput,
            goal,
            our_samples: ours,
            their_samples: theirs,
        });
    }
    Ok(())
}

fn against_plain_rust(args: &Args, bench: &Bench, figures: &mut Figures) -> Result<(), BenchError> {
    let plain = std::env::current_exe().map(|own| own.with_file_name("spangap-tank-plain"));
    let Some(plain) = plain.ok().filter(|file| file.is_file()) else {
        figures.not_run.push("rust: spangap-tank-plain is not beside this program".into());
        return Ok(());
    };
    let target = bench.target("rust")?;
    for (library, goal) in [("tonic", Some(0.95)), ("h2", None)] {
        for &in_flight in &args.inflight {
            eprintln!("rust against {library}, {in_flight} in flight");
            let (ours, theirs) = in_turn(
                args.runs,
                || bench.tank(&target, &["--stack", "rust"], in_flight),
                || bench.plain(&plain, &[library, target.address()], in_flight),
            )?;
            figures.rows.push(Row {
                ours: "rust".into(),
                theirs: format!("plain {library}"),
                in_flight,
                metric: Metric::CallsPerCpuSecond,
                goal,
                our_samples: ours,
                their_samples: theirs,
            });
        }
    }
    let h2load = peers::ALL.iter().find(|peer| peer.name == "h2load");
    let Some((h2load, program)) = h2load.and_then(|peer| Some((peer, peers::find(peer.name)?))) else {
        figures.not_run.push("plain h2 against h2load: no program h2load".into());
        return Ok(());
    };
    eprintln!("plain h2 against h2load");
    let (ours, theirs) = in_turn(
        args.runs,
        || bench.plain(&plain, &["h2", target.address()], PEERS_IN_FLIGHT),
        || h2load.run(bench, &program, target.address(), PEERS_IN_FLIGHT),
    )?;
    figures.rows.push(Row {
        ours: "plain h2".into(),
        theirs: "h2load".into(),
        in_flight: PEERS_IN_FLIGHT,
        metric: Metric::CallsPerCpuSecond,
        goal: None,
        our_samples: ours,
        their_samples: theirs,
    });
    Ok(())
}

fn against_peers(args: &Args, bench: &Bench, figures: &mut Figures) -> Result<(), BenchError> {
    let target = bench.target("rust")?;
    for peer in peers::ALL {
        let Some(program) = peers::find(peer.name) else {
            figures.not_run.push(format!(
                "rust against {0}: no program {0} (scripts/setup.sh bench brings it)",
                peer.name
            ));
            continue;
        };
        eprintln!("rust against {}", peer.name);
        let (ours, theirs) = in_turn(
            args.runs,
            || bench.tank(&target, &["--stack", "rust"], PEERS_IN_FLIGHT),
            || peer.run(bench, &program, target.address(), PEERS_IN_FLIGHT),
        )?;
        let goal = (peer.name == "ghz").then_some(5.0);
        figures.rows.push(Row {
            ours: "rust".into(),
            theirs: peer.name.into(),
            in_flight: PEERS_IN_FLIGHT,
            metric: Metric::CallsPerCpuSecond,
            goal,
            our_samples: ours,
            their_samples: theirs,
        });
    }
    Ok(())
}

fn lateness(bench: &Bench, figures: &mut Figures, stack: &'static str) -> Result<(), BenchError> {
    let target_stack = if stack == "raw" { "raw" } else { "rust" };
    eprintln!("lateness of {stack}");
    match bench.target(target_stack).and_then(|target| bench.lateness(&target, stack)) {
        Ok([p50_ns, p99_ns, max_ns, timer_p99_ns]) => {
            figures.lateness.push(Lateness { stack, p50_ns, p99_ns, max_ns, timer_p99_ns });
        }
        Err(error) => figures.not_run.push(format!("lateness of {stack}: {error}")),
    }
    Ok(())
}

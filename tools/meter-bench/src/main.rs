//! `make bench`: measures `spangap meter` against its goals.

mod args;
mod figures;

use args::{Args, Case};
use clap::Parser;
use figures::{Figures, Spread, TruthFigure};
use spangap_meter_bench::BenchError;
use spangap_meter_bench::cases::queue::Costs;
use spangap_meter_bench::cases::truth::Arrival;
use spangap_meter_bench::cases::{
    Bench, crowd, history, lanes, lock, memory, overload, samples, spool, throughput, truth,
};
use spangap_meter_bench::floor;
use spangap_meter_bench::gapload::Gapload;
use spangap_meter_bench::generate::{Shape, generate};
use spangap_meter_bench::payload::{Protocol, Wire};
use spangap_meter_bench::process::usable_cpus;
use spangap_meter_bench::truth::Truth;
use spangap_meter_bench::workload::Workload;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

const GZIP_GRPC: Wire = Wire { protocol: Protocol::Grpc, gzip: true };
const GZIP_HTTP: Wire = Wire { protocol: Protocol::Http, gzip: true };
/// Spans per request of an SDK, and of an agent that merges the batches of its node.
const SDK_BATCH: usize = 512;
const AGENT_BATCH: usize = 8192;

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(folder) = &args.write_history {
        return match history::write(folder, args.pairs, args.hours, args.history_bytes.unwrap_or(u64::MAX)) {
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("spangap-meter-bench: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let measured = match runtime {
        Ok(runtime) => runtime.block_on(measure(&args)),
        Err(error) => {
            eprintln!("spangap-meter-bench: {error}");
            return ExitCode::FAILURE;
        }
    };
    match measured {
        Ok(figures) if args.json => println!("{}", figures.json()),
        Ok(figures) => print!("{figures}"),
        Err(error) => {
            eprintln!("spangap-meter-bench: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Source of workloads: the workload tool, or the internal generator.
struct Source {
    tool: Option<Gapload>,
    spans: u64,
}

impl Source {
    fn make(&self, batch: usize, missing_servers: f64) -> Result<(Arc<Workload>, Truth), BenchError> {
        let (workload, truth) = match &self.tool {
            None => generate(&Shape { spans: self.spans, batch, missing_servers, seed: 1 }),
            Some(tool) => {
                let (spans, missing) = (self.spans.to_string(), missing_servers.to_string());
                let name = format!("spans-{spans}-batch-{batch}-missing-{missing}");
                let batch = batch.to_string();
                // An agent merges the batches of the SDKs on its node.
                let kind = if batch == AGENT_BATCH.to_string() { "-agent" } else { "-batch" };
                tool.generate(&name, &["-spans", &spans, kind, &batch, "-orphan", &missing])?
            }
        };
        Ok((Arc::new(workload), truth))
    }
}

async fn measure(args: &Args) -> Result<Figures, BenchError> {
    let cpus = usable_cpus();
    let pinned = cpus.len() >= 2;
    let bench = Bench {
        binary: args.meter.clone(),
        meter_cpu: pinned.then(|| cpus[0]),
        load_cpu: pinned.then(|| cpus[1]),
    };
    let mut figures = Figures::default();
    if !pinned {
        figures.not_run.push("pinning: this process may use one core only".into());
    }
    let tool = Gapload::build(&args.workload, &args.folder);
    if let Err(reason) = &tool {
        figures.not_run.push(format!("the workload tool: {reason}; the generator in here takes its place"));
    }
    let source = Source { tool: tool.ok(), spans: args.spans };
    let (sdk, sdk_truth) = source.make(SDK_BATCH, 0.0)?;
    if args.runs(Case::Cpu) {
        let (agent, _) = source.make(AGENT_BATCH, 0.0)?;
        figures.floor = Some(bench.on_meter_cpu(|| floor::measure(&sdk)).into());
        let rows = [
            (&sdk, Wire::GRPC),
            (&sdk, Wire::HTTP),
            (&sdk, GZIP_GRPC),
            (&sdk, GZIP_HTTP),
            (&agent, Wire::GRPC),
            (&agent, Wire::HTTP),
        ];
        let mut runs = vec![Vec::new(); rows.len()];
        // Interleaved, so that speed changes of the machine affect all rows.
        for number in 1..=args.runs {
            for ((workload, wire), runs) in rows.iter().zip(&mut runs) {
                eprintln!(
                    "run {number} of {}: {}, {} batches",
                    args.runs,
                    wire.name(),
                    workload.batches.len()
                );
                runs.push(throughput::run(&bench, workload, *wire, args.passes).await?);
            }
        }
        for ((workload, wire), runs) in rows.iter().zip(runs) {
            let batch = if Arc::ptr_eq(workload, &agent) { AGENT_BATCH } else { SDK_BATCH };
            figures.add_throughput(wire.name(), batch, runs);
        }
    }
    if args.runs(Case::Truth) {
        let (missing, missing_truth) = source.make(SDK_BATCH, 0.1)?;
        let variants = [
            ("truth: one pass", &sdk, &sdk_truth, Arrival::InOrder),
            ("truth: random order", &sdk, &sdk_truth, Arrival::Shuffled),
            ("truth: every batch twice", &sdk, &sdk_truth, Arrival::Twice),
            ("truth: 10 % of servers missing", &missing, &missing_truth, Arrival::InOrder),
        ];
        for (case, workload, truth, arrival) in variants {
            eprintln!("{case}");
            let differences = truth::run(&bench, workload, truth, arrival, Wire::GRPC).await?;
            figures.truth.push(TruthFigure { case, differences });
        }
    }
    if args.runs(Case::Memory) {
        eprintln!("memory: {} pending spans", args.pending);
        figures.memory = Some(memory::run(&bench, args.pending).await?);
    }
    if args.runs(Case::Overload) {
        eprintln!("overload: {} s at twice what it takes beside busy neighbours", args.seconds);
        let duration = Duration::from_secs(args.seconds);
        figures.overload = Some(overload::run(&bench, &sdk, duration).await?);
    }
    if args.runs(Case::Crowd) {
        figures.crowds = crowd::run(&bench).await?;
    }
    if args.runs(Case::History) {
        eprintln!("history: {} h of {} pairs", args.hours, args.pairs);
        figures.history = Some(history::run(&bench, args.pairs, args.hours).await?);
    }
    if args.runs(Case::Samples) {
        eprintln!("samples: {} rounds with and without", args.rounds);
        figures.samples = Some(bench.on_meter_cpu(|| samples::run(&sdk, args.rounds)));
    }
    if args.runs(Case::Lock) {
        eprintln!("lock: {} rounds", args.rounds);
        figures.lock = Some(bench.on_meter_cpu(|| lock::run(&sdk, args.rounds)));
    }
    if args.runs(Case::Lanes) {
        eprintln!("lanes: {} rounds", args.rounds);
        let lock = bench.on_meter_cpu(|| lock::run(&sdk, args.rounds));
        let costs = Costs { free_us: lock.walk_us_per_span, locked_us: lock.locked_us_per_span };
        figures.lanes = Some(lanes::run(&sdk, args.rounds, &cpus, costs));
    }
    if args.runs(Case::Spool) {
        for gzip in [false, true] {
            eprintln!("spool: {} rounds with and without{}", args.rounds, if gzip { ", gzip" } else { "" });
            // On all CPUs: the spool has its own thread.
            figures.spool.push(spool::run(&sdk, args.rounds, gzip, &args.folder)?);
        }
    }
    figures.judge();
    Ok(figures)
}

impl From<floor::Floor> for figures::FloorFigure {
    fn from(floor: floor::Floor) -> Self {
        figures::FloorFigure { touch_us_per_span: floor.touch_us, walk_us_per_span: floor.walk_us }
    }
}

impl Spread {
    /// Median, minimum and maximum of some runs.
    fn of(values: impl Iterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        Spread { median: at(sorted.len() / 2), min: at(0), max: at(sorted.len().saturating_sub(1)) }
    }
}

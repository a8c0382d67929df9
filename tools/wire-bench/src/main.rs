//! `make bench-dissect`: generates captures with known truth, and measures dissect on them.

mod bench;
mod flood;
mod frames;
mod generate;
mod hunt;
mod measure;
mod mutate;
mod overhead;
mod real;
mod retime;
mod table;
mod walk;

use clap::{Args, Parser, Subcommand};
use generate::Traffic;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Makes captures whose truth is known, and measures dissect on them.
#[derive(Parser, Debug)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Write both ends of made-up gRPC traffic: client.pcap, server.pcap, truth.json
    Generate(GenerateArgs),
    /// Measure dissect on made-up traffic, beside reading the bytes alone and beside tshark
    Bench(BenchArgs),
    /// Only dissect on real traffic of several stacks, recorded now
    Real(BenchArgs),
    /// Measure hunt on about 100 MB of captures, recordings and spans that the lab records now; as root
    Hunt(HuntArgs),
    /// Only what capture costs those who are captured, and whether it keeps up with a flood
    Overhead(BenchArgs),
    /// Rewrite the times of an Ethernet capture, as if its host's clock had been another
    Retime(RetimeArgs),
    /// Dissect damaged captures by the thousand: none may end it
    Mutate(MutateArgs),
    #[command(hide = true)]
    Once {
        costs: PathBuf,
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// Walk captures in this process, beside reading them alone; prints JSON
    #[command(hide = true)]
    Walk(WalkArgs),
    #[command(hide = true)]
    Read { paths: Vec<PathBuf> },
}

#[derive(Args, Debug)]
struct GenerateArgs {
    /// Folder of the three files
    out: PathBuf,
    #[arg(long, default_value_t = 100_000)]
    calls: u64,
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Calls under way on each connection
    #[arg(long, default_value_t = 4)]
    inflight: u32,
    #[arg(long, default_value_t = 32)]
    request_bytes: usize,
    #[arg(long, default_value_t = 32)]
    response_bytes: usize,
    /// Longest payload of a packet
    #[arg(long, default_value_t = 1448)]
    segment_bytes: usize,
    /// Clock of the server minus clock of the client
    #[arg(long, default_value_t = 0, allow_hyphen_values = true)]
    offset_ns: i64,
    /// How much faster the server's clock runs
    #[arg(long, default_value_t = 0.0, allow_hyphen_values = true)]
    skew_ppm: f64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args, Debug)]
struct BenchArgs {
    /// The binary
    #[arg(long, default_value = "target/dist/spangap")]
    spangap: PathBuf,
    /// Where captures are made, up to 5 GB at a time
    #[arg(long, default_value = "target/wire-bench")]
    folder: PathBuf,
    /// Runs of each command, taken in turn
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Size of the captures: 1 is 2.5 million packets of small calls, 2 GB of large ones
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct HuntArgs {
    #[command(flatten)]
    bench: BenchArgs,
    /// A run of the lab that is there already
    #[arg(long, value_name = "FOLDER")]
    on: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct MutateArgs {
    /// Captures to damage
    #[arg(default_value = "fixtures/captures")]
    folder: PathBuf,
    #[arg(long, default_value_t = 100_000)]
    files: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args, Debug)]
struct WalkArgs {
    /// Captures of the same traffic, one end or both
    paths: Vec<PathBuf>,
    /// Walks that are timed, each beside readings
    #[arg(long, default_value_t = 0)]
    rounds: u32,
    /// Where compressed captures are unpacked first
    #[arg(long, default_value = "target/wire-bench/walk")]
    folder: PathBuf,
}

#[derive(Args, Debug)]
struct RetimeArgs {
    from: PathBuf,
    to: PathBuf,
    #[arg(long, default_value_t = 0, allow_hyphen_values = true)]
    offset_ns: i64,
    #[arg(long, default_value_t = 0.0, allow_hyphen_values = true)]
    skew_ppm: f64,
}

fn main() -> ExitCode {
    let result: Result<(), Box<dyn std::error::Error>> = match Cli::parse().verb {
        Verb::Generate(args) => generate(&args).map_err(Into::into),
        Verb::Bench(args) => measure(&args).map_err(Into::into),
        Verb::Real(args) => real_rows(&args).map(|rows| print!("{}", table::real(&rows))).map_err(Into::into),
        Verb::Hunt(args) => hunted(&args).map_err(Into::into),
        Verb::Overhead(args) => overheads(&args)
            .map(|(found, flood)| print!("{}", table::capture(&found, flood.as_ref())))
            .map_err(Into::into),
        Verb::Retime(args) => retime::retime(&args.from, &args.to, args.offset_ns, args.skew_ppm)
            .map(|packets| println!("{packets} packets"))
            .map_err(Into::into),
        Verb::Mutate(args) => mutate::mutate(&args.folder, args.files, args.seed)
            .map(|outcome| println!("{outcome:?}"))
            .map_err(Into::into),
        Verb::Walk(args) => walked(&args),
        Verb::Once { costs, command } => measure::once(&costs, &command).map_err(Into::into),
        Verb::Read { paths } => bench::read(&paths).map(|sum| println!("{sum}")).map_err(Into::into),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wire-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn walked(args: &WalkArgs) -> Result<(), Box<dyn std::error::Error>> {
    let paths = walk::unpack(&args.paths, &args.folder)?;
    println!("{}", serde_json::to_string(&walk::walk(&paths, args.rounds)?)?);
    Ok(())
}

fn plan(args: &BenchArgs) -> Result<bench::Plan, measure::MeasureError> {
    let plan = bench::Plan {
        spangap: args.spangap.clone(),
        folder: args.folder.clone(),
        runs: args.runs.max(1),
        scale: args.scale,
    };
    std::fs::create_dir_all(&plan.folder)
        .map_err(|error| measure::MeasureError::File { path: plan.folder.clone(), error })?;
    Ok(plan)
}

/// Dissect on traffic that is recorded now.
fn real_rows(args: &BenchArgs) -> Result<Vec<real::RealRow>, measure::MeasureError> {
    real::real(&plan(args)?, &mut |what| eprintln!("wire-bench: {what}"))
}

fn hunted(args: &HuntArgs) -> Result<(), measure::MeasureError> {
    let plan = plan(&args.bench)?;
    let folder = match &args.on {
        Some(folder) => folder.clone(),
        None => hunt::record(&plan, &mut |what| eprintln!("wire-bench: {what}"))?,
    };
    let row = hunt::row(&plan, &folder)?;
    match args.bench.json {
        true => println!("{}", serde_json::json!(row)),
        false => print!("{}", row.text()),
    }
    Ok(())
}

fn measure(args: &BenchArgs) -> Result<(), measure::MeasureError> {
    let plan = plan(args)?;
    let real = real_rows(args)?;
    let rows = bench::bench(&plan, &mut |what| eprintln!("wire-bench: {what}"))?;
    eprintln!("wire-bench: memory");
    let memory = bench::memory(&plan)?;
    let (overheads, flood) = overheads(args)?;
    if args.json {
        println!("{}", table::json(&rows, &real, memory, &overheads, flood.as_ref()));
    } else {
        print!("{}", table::real(&real));
        print!("{}", table::text(&rows, memory));
        print!("{}", table::capture(&overheads, flood.as_ref()));
    }
    Ok(())
}

/// Cost of capturing; empty, with a message, if this process may not capture.
fn overheads(
    args: &BenchArgs,
) -> Result<(Vec<overhead::Overhead>, Option<flood::Flood>), measure::MeasureError> {
    std::fs::create_dir_all(&args.folder)
        .map_err(|error| measure::MeasureError::File { path: args.folder.clone(), error })?;
    let mut overheads = Vec::new();
    for in_flight in [1, 16] {
        eprintln!("wire-bench: ping-pong with and without capture, {in_flight} in flight");
        match overhead::overhead(&args.spangap, &args.folder, in_flight, args.runs.max(1)) {
            Ok(overhead) => overheads.push(overhead),
            Err(error) => eprintln!("not run: {error}"),
        }
    }
    eprintln!("wire-bench: capture of 200,000 packets a second");
    let flood = flood::flood(&args.spangap, &args.folder, args.runs.max(1));
    let flood = flood.inspect_err(|error| eprintln!("not run: {error}")).ok();
    Ok((overheads, flood))
}

fn generate(args: &GenerateArgs) -> std::io::Result<()> {
    std::fs::create_dir_all(&args.out)?;
    let traffic = Traffic {
        calls: args.calls,
        connections: args.connections,
        in_flight: args.inflight,
        request_bytes: args.request_bytes,
        response_bytes: args.response_bytes,
        segment_bytes: args.segment_bytes,
        offset_ns: args.offset_ns,
        skew_ppm: args.skew_ppm,
        seed: args.seed,
    };
    let truth = write(&traffic, &args.out)?;
    println!("{}", serde_json::to_string(&truth)?);
    Ok(())
}

/// Writes both captures and their truth to a folder.
fn write(traffic: &Traffic, folder: &Path) -> std::io::Result<generate::Truth> {
    let open =
        |name: &str| File::create(folder.join(name)).map(|file| BufWriter::with_capacity(1 << 20, file));
    let truth = generate::generate(traffic, open("client.pcap")?, open("server.pcap")?)?;
    std::fs::write(folder.join("truth.json"), serde_json::to_vec_pretty(&truth)?)?;
    Ok(truth)
}

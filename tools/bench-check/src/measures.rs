//! The measurements: the benchmarks' own programs, in their shortest form.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Instructions of dissect on real captures, by callgrind
    Instructions,
    /// Time of dissect beside reading the same packets
    Dissect,
    /// Time of dissect beside tshark
    Tshark,
    /// Instructions of gaps, and of hunt beside dissect on the same packets
    Hunt,
    /// Time of the meter beside the bare walk, and of the walk beside reading bytes
    Meter,
    /// Tank beside the plainest loop in C
    Tank,
    /// A switch-bound load with the host probes and without
    Host,
}

impl Kind {
    /// All parts.
    pub const ALL: [Kind; 7] =
        [Kind::Instructions, Kind::Dissect, Kind::Tshark, Kind::Hunt, Kind::Meter, Kind::Tank, Kind::Host];

    /// Name for progress messages.
    pub fn words(self) -> &'static str {
        match self {
            Kind::Instructions => "instructions of dissect",
            Kind::Dissect => "dissect beside reading",
            Kind::Tshark => "dissect beside tshark",
            Kind::Hunt => "instructions of gaps and hunt",
            Kind::Meter => "the meter beside the walk",
            Kind::Tank => "tank beside a loop in C",
            Kind::Host => "host probes",
        }
    }
}

/// A figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// Instructions per packet, call or run.
    Instructions(f64),
    /// Ratios, one per round.
    Ratios(Vec<f64>),
}

/// A figure with its name.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Its name, which is stable between commits.
    pub name: String,
    /// The figure; `None` if it could not be measured.
    pub value: Option<Value>,
    /// Whether a larger one is a slower program.
    pub larger_is_slower: bool,
    /// Why it could not be measured.
    pub not_run: Option<String>,
}

/// Paths of the programs, and the number of rounds.
pub struct Programs {
    /// Folder of the binary and of the benchmarks' programs.
    pub folder: PathBuf,
    /// Folder of the baselines.
    pub baselines: PathBuf,
    /// Rounds per ratio.
    pub rounds: u32,
}

/// Captures of six programs with a high density of calls.
const DENSE: [&str; 6] = ["cpp", "go", "h2load", "java", "nginx", "node"];
/// Two captures, one per end.
const BOTH_ENDS: [&str; 2] = [
    "fixtures/captures/head-of-line-large.client.pcapng.zst",
    "fixtures/captures/head-of-line-large.server.pcapng.zst",
];
/// The function whose instructions are counted.
const WALK: &str = "*walk::walk_once*";

fn dense(name: &str) -> String {
    format!("fixtures/strangers/dense-{name}.pcapng.zst")
}

/// Measures one part.
pub fn measure(kind: Kind, programs: &Programs) -> Vec<Measured> {
    match kind {
        Kind::Instructions => instructions(programs),
        Kind::Dissect => DENSE.iter().map(|name| beside_reading(programs, name)).collect(),
        Kind::Tshark => vec![beside_tshark(programs)],
        Kind::Hunt => hunt(programs),
        Kind::Meter => meter(programs),
        Kind::Tank => tank(programs),
        Kind::Host => host(programs),
    }
}

fn figure(name: impl Into<String>, larger_is_slower: bool, value: Result<Value, String>) -> Measured {
    let (value, not_run) = match value {
        Ok(value) => (Some(value), None),
        Err(why) => (None, Some(why)),
    };
    Measured { name: name.into(), value, larger_is_slower, not_run }
}

/// A command's standard output and standard error.
fn said(program: &Path, arguments: &[&str]) -> Result<(String, String), String> {
    let name = program.display();
    let output =
        Command::new(program).args(arguments).output().map_err(|error| format!("{name}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    if !output.status.success() {
        let last = err.lines().last().unwrap_or_default();
        return Err(format!("{name}: {}: {last}", output.status));
    }
    Ok((out, err))
}

fn json(program: &Path, arguments: &[&str]) -> Result<Json, String> {
    let (out, _) = said(program, arguments)?;
    serde_json::from_str(&out).map_err(|error| format!("{}: {error}", program.display()))
}

/// Instructions of a command, or of one of its functions.
fn counted(command: &[&str], function: Option<&str>) -> Result<(f64, String), String> {
    let mut arguments = vec!["--tool=callgrind".to_owned(), "--callgrind-out-file=/dev/null".to_owned()];
    arguments.extend(function.map(|name| format!("--toggle-collect={name}")));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(command.iter().copied()).collect();
    let (out, err) = said(Path::new("valgrind"), &arguments)?;
    let count = err.lines().rev().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    let count = count.filter(|count: &f64| *count > 0.0);
    Ok((count.ok_or("valgrind: expected a line `Collected : `, and more than 0")?, out))
}

fn instructions(programs: &Programs) -> Vec<Measured> {
    let bench = programs.folder.join("spangap-wire-bench").display().to_string();
    let mut measured = Vec::new();
    let mut one = |name: String, paths: &[String]| {
        let mut command = vec![bench.as_str(), "walk"];
        command.extend(paths.iter().map(String::as_str));
        let found = counted(&command, Some(WALK)).and_then(|(count, out)| {
            let walked: Json = serde_json::from_str(&out).map_err(|error| error.to_string())?;
            let of = |key: &str| walked[key].as_f64().filter(|n| *n > 0.0).ok_or(format!("no {key}"));
            Ok((count / of("packets")?, count / of("calls")?))
        });
        let (packet, call) = (found.clone().map(|found| found.0), found.map(|found| found.1));
        let instructions = |count: Result<f64, String>| count.map(Value::Instructions);
        measured.push(figure(format!("{name}, instructions a packet"), true, instructions(packet)));
        measured.push(figure(format!("{name}, instructions a call"), true, instructions(call)));
    };
    for name in DENSE {
        one(format!("dissect dense-{name}"), &[dense(name)]);
    }
    one("dissect both ends".to_owned(), &BOTH_ENDS.map(str::to_owned));
    measured
}

fn beside_reading(programs: &Programs, name: &str) -> Measured {
    let rounds = programs.rounds.to_string();
    let path = dense(name);
    let found = json(&programs.folder.join("spangap-wire-bench"), &["walk", &path, "--rounds", &rounds]);
    figure(
        format!("dissect dense-{name} / reading"),
        true,
        found.and_then(|walked| ratios(&walked["ratios"])),
    )
}

fn ratios(of: &Json) -> Result<Value, String> {
    let list = of.as_array().ok_or("expected a list of ratios")?;
    let list: Option<Vec<f64>> = list.iter().map(|n| n.as_f64().filter(|n| *n > 0.0)).collect();
    list.filter(|list| !list.is_empty()).map(Value::Ratios).ok_or("expected ratios above 0".into())
}

/// CPU time of a command, seconds.
fn cpu_s(programs: &Programs, command: &[&str]) -> Result<f64, String> {
    let costs = std::env::temp_dir().join(format!("spangap-bench-check-{}.json", std::process::id()));
    let path = costs.display().to_string();
    let mut arguments = vec!["once", &path, "--"];
    arguments.extend(command);
    let done = said(&programs.folder.join("spangap-wire-bench"), &arguments);
    let text = done.and_then(|_| std::fs::read_to_string(&costs).map_err(|error| error.to_string()));
    let _ = std::fs::remove_file(&costs);
    let cost: Json = serde_json::from_str(&text?).map_err(|error| error.to_string())?;
    cost["cpu_s"].as_f64().filter(|s| *s > 0.0).ok_or(format!("{}: no CPU time", command[0]))
}

fn beside_tshark(programs: &Programs) -> Measured {
    let spangap = programs.folder.join("spangap").display().to_string();
    let path = dense("cpp");
    let ours = [spangap.as_str(), "dissect", &path, "--json"];
    let fields = ["-e", "frame.time_epoch", "-e", "tcp.stream", "-e", "http2.streamid"];
    let theirs = [&["tshark", "-r", &path, "-Y", "http2", "-T", "fields"][..], &fields].concat();
    let round = |_| Ok(cpu_s(programs, &theirs)? / cpu_s(programs, &ours)?);
    let found: Result<Vec<f64>, String> = (0..programs.rounds).map(round).collect();
    figure("tshark / dissect", false, found.map(Value::Ratios))
}

fn hunt(programs: &Programs) -> Vec<Measured> {
    let spangap = programs.folder.join("spangap").display().to_string();
    let count =
        |command: &[&str]| counted(&[&[spangap.as_str()], command].concat(), None).map(|(count, _)| count);
    // The start of the program is part of all of them.
    let start = count(&["--version"]);
    let own = |whole: Result<f64, String>| Ok((whole? - start.clone()?).max(1.0));
    let gaps = own(count(&["gaps", "fixtures/spans/otlp.pb", "--json"]));
    let both = own(count(&["dissect", BOTH_ENDS[0], BOTH_ENDS[1], "--json"]));
    let hunted = folder_of_both_ends()
        .and_then(|folder| own(count(&["hunt", &folder.display().to_string(), "--json"])));
    let ratio = hunted.and_then(|hunted| Ok(hunted / both.clone()?));
    vec![
        figure("gaps otlp.pb, instructions", true, gaps.map(Value::Instructions)),
        figure("dissect --json of both ends, instructions", true, both.map(Value::Instructions)),
        figure("hunt / dissect of both ends, instructions", true, ratio.map(Value::Instructions)),
    ]
}

/// A folder with only the two captures, as hunt requires.
fn folder_of_both_ends() -> Result<PathBuf, String> {
    let folder = PathBuf::from("target/bench-check/hunt");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for path in BOTH_ENDS {
        let name = if path.contains(".client.") { "client.pcapng.zst" } else { "server.pcapng.zst" };
        std::fs::copy(path, folder.join(name)).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(folder)
}

fn meter(programs: &Programs) -> Vec<Measured> {
    let spangap = programs.folder.join("spangap").display().to_string();
    let bench = programs.folder.join("spangap-meter-bench");
    let arguments = [
        "--meter",
        &spangap,
        "--only",
        "cpu",
        "--runs",
        "1",
        "--passes",
        "1",
        "--spans",
        "65536",
        // The benchmark's internal generator, even if the workload tool is available: figures of different
        // workloads are not comparable.
        "--workload",
        "none",
        "--json",
    ];
    let round = |_| {
        let found = json(&bench, &arguments)?;
        let of = |value: &Json, what: &str| value.as_f64().ok_or(format!("meter-bench: no {what}"));
        let walk = of(&found["floor"]["walk_us_per_span"], "walk")?;
        let touch = of(&found["floor"]["touch_us_per_span"], "reading")?;
        let rows = found["throughput"].as_array().ok_or("meter-bench: no rows")?;
        let grpc = rows.iter().find(|row| row["wire"] == "grpc").ok_or("meter-bench: no row of gRPC")?;
        Ok((of(&grpc["cpu_us_per_span"]["median"], "row of gRPC")? / walk, walk / touch))
    };
    let found: Result<Vec<(f64, f64)>, String> = (0..programs.rounds).map(round).collect();
    let of = |part: fn(&(f64, f64)) -> f64| {
        found.clone().map(|rounds| Value::Ratios(rounds.iter().map(part).collect()))
    };
    vec![
        figure("meter over gRPC / walk", true, of(|round| round.0)),
        figure("walk / reading bytes", true, of(|round| round.1)),
    ]
}

fn tank(programs: &Programs) -> Vec<Measured> {
    let spangap = programs.folder.join("spangap").display().to_string();
    let baselines = programs.baselines.display().to_string();
    let runs = programs.rounds.to_string();
    let found = json(
        &programs.folder.join("spangap-tank-bench"),
        &[
            "--only",
            "raw",
            "--runs",
            &runs,
            "--seconds",
            "0.3",
            "--spangap",
            &spangap,
            "--baselines",
            &baselines,
            "--json",
        ],
    );
    let of = |in_flight: u64| -> Result<Value, String> {
        let found = found.as_ref().map_err(String::clone)?;
        let rows = found["rows"].as_array().ok_or("tank-bench: no rows")?;
        let row = rows.iter().find(|row| row["in_flight"] == in_flight);
        let row = row.ok_or_else(|| format!("tank-bench: {}", found["not_run"]))?;
        let per_cpu_s = |sample: &Json| Some(sample["calls"].as_f64()? / sample["cpu_s"].as_f64()?);
        let samples =
            |key: &str| -> Option<Vec<f64>> { row[key].as_array()?.iter().map(per_cpu_s).collect() };
        let both = samples("our_samples").zip(samples("their_samples"));
        let (ours, theirs) = both.ok_or("tank-bench: expected calls and cpu_s in each sample")?;
        Ok(Value::Ratios(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect()))
    };
    vec![
        figure("raw tank / C loop, calls per CPU second", false, of(8)),
        figure("raw tank / C loop, 1 in flight, calls per CPU second", false, of(1)),
    ]
}

fn host(programs: &Programs) -> Vec<Measured> {
    let spangap = programs.folder.join("spangap").display().to_string();
    let rounds = programs.rounds.to_string();
    let found = json(
        &programs.folder.join("spangap-host-bench"),
        &[
            "--spangap",
            &spangap,
            "--rounds",
            &rounds,
            "--loops",
            "30000",
            "--flood-s",
            "0",
            "--only",
            "host",
            "--json",
        ],
    );
    let names = ["host offcpu", "host offcpu, no match", "host record", "host thieves"];
    let one = |name: &str| {
        let value = found.clone().and_then(|found| {
            let rows = found["rows"].as_array().ok_or("host-bench: no rows")?.clone();
            let row = rows.iter().find(|row| row["name"] == name).ok_or(format!("host-bench: no {name}"))?;
            match row["not_run"].as_str() {
                Some(why) => Err(why.to_owned()),
                None => ratios(&row["ratios"]),
            }
        });
        figure(format!("{name} / nothing"), true, value)
    };
    names.into_iter().map(one).collect()
}

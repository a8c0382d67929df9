//! `plan`, `apply` and `rollback` on a copy of a large machine, compared with the same reads and writes
//! alone.

use crate::programs::{Took, json, run};
use crate::spread::Spread;
use crate::{BenchError, copy};
use serde::Serialize;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// One verb on the copy.
#[derive(Debug, Serialize)]
pub struct Verb {
    /// `plan`, `apply` or `rollback`.
    pub name: &'static str,
    /// Maximum duration, seconds.
    pub goal_s: Option<f64>,
    /// Wall time, seconds.
    pub wall_s: Spread,
    /// CPU time, seconds.
    pub cpu_s: Spread,
    /// Wall time of the same file reads and writes alone, seconds.
    pub floor_s: Spread,
    /// Description of those reads and writes.
    pub floor: &'static str,
}

/// Results on one copy.
#[derive(Debug, Serialize)]
pub struct Scale {
    /// Version of the cpusets.
    pub version: u32,
    pub cpus: usize,
    pub containers: usize,
    pub files: usize,
    /// Number of planned changes.
    pub changes: usize,
    /// Results by verb.
    pub verbs: Vec<Verb>,
}

const GOALS_S: [(&str, Option<f64>, &str); 3] = [
    ("plan", Some(1.0), "every file of the copy read once"),
    (
        "apply",
        Some(3.0),
        "as many files read, written and read again, a line each appended to one file, one fsync",
    ),
    ("rollback", None, "as many files read, written and read again, a line appended, one fsync"),
];

/// Measures several rounds.
pub fn measure(
    spangap: &Path,
    version: u32,
    cpus: usize,
    containers: usize,
    rounds: usize,
) -> Result<Scale, BenchError> {
    let folder =
        tempfile::tempdir().map_err(|error| BenchError::File { path: std::env::temp_dir(), error })?;
    let root = folder.path().join("copy");
    copy::write(&root, version, cpus, containers)?;
    let plan = folder.path().join("plan.json");
    let all = files(&root)?;
    let verb = |arguments: &[&str]| {
        let mut command = Command::new(spangap);
        command.arg("isolate").args(arguments).arg("--root").arg(&root);
        command
    };
    let mut taken: [Vec<(Took, f64)>; 3] = Default::default();
    let mut changes = 0;
    for round in 0..rounds {
        let began = Instant::now();
        all.iter().try_for_each(|file| fs::read(file).map(drop).map_err(failed(file)))?;
        let floor = began.elapsed().as_secs_f64();
        let (_, took) = run(verb(&["plan", "--interface", "eth0"]).arg("--write").arg(&plan))?;
        taken[0].push((took, floor));
        let document = json(Command::new("cat").arg(&plan))?;
        changes = document["changes"].as_array().map_or(0, Vec::len);
        let places = written(&root, &document);
        let floor = plainly(&places, changes, &folder.path().join("journal"))?;
        let (_, took) = run(verb(&["apply", "--no-confirm"]).arg(&plan))?;
        taken[1].push((took, floor));
        let floor = plainly(&places, 1, &folder.path().join("journal"))?;
        let (_, took) = run(&mut verb(&["rollback"]))?;
        taken[2].push((took, floor));
        eprintln!("version {version}: round {} of {rounds} done", round + 1);
    }
    let verbs = GOALS_S.iter().zip(&taken).map(|(&(name, goal_s, floor), taken)| Verb {
        name,
        goal_s,
        wall_s: Spread::of(taken.iter().map(|(took, _)| took.wall_s)),
        cpu_s: Spread::of(taken.iter().map(|(took, _)| took.cpu_s)),
        floor_s: Spread::of(taken.iter().map(|(_, floor)| *floor)),
        floor,
    });
    Ok(Scale { version, cpus, containers, files: all.len(), changes, verbs: verbs.collect() })
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> BenchError + use<> {
    let path = path.to_owned();
    move |error| BenchError::File { path, error }
}

/// All files below a folder; links are not followed.
fn files(folder: &Path) -> Result<Vec<PathBuf>, BenchError> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(failed(&folder))? {
            let entry = entry.map_err(failed(&folder))?;
            let kind = entry.file_type().map_err(failed(&entry.path()))?;
            match kind.is_dir() {
                true => folders.push(entry.path()),
                false if kind.is_file() => found.push(entry.path()),
                false => {}
            }
        }
    }
    Ok(found)
}

/// The existing files of a copy that a plan writes.
fn written(root: &Path, plan: &serde_json::Value) -> Vec<PathBuf> {
    let places = plan["changes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|change| change["place"]["path"].as_str());
    places.map(|path| root.join(path.trim_start_matches('/'))).filter(|file| file.is_file()).collect()
}

/// Reads each file, writes the same content, and reads it again; appends `lines` lines to another file with a
/// single sync.
fn plainly(files: &[PathBuf], lines: usize, journal: &Path) -> Result<f64, BenchError> {
    let began = Instant::now();
    let mut out = fs::OpenOptions::new().create(true).append(true).open(journal).map_err(failed(journal))?;
    for _ in 0..lines {
        out.write_all(&[b'x'; 200]).map_err(failed(journal))?;
    }
    for file in files {
        let text = fs::read(file).map_err(failed(file))?;
        fs::write(file, &text).map_err(failed(file))?;
        fs::read(file).map_err(failed(file))?;
    }
    out.sync_all().map_err(failed(journal))?;
    Ok(began.elapsed().as_secs_f64())
}

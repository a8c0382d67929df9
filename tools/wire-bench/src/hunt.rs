//! `make bench-hunt`: `spangap hunt` on a folder that the lab recorded, compared with walking its packets alone
//! and with reading its bytes alone.

use crate::bench::{Plan, read_only_of};
use crate::measure::{Cost, MeasureError, Spread, run};
use crate::overhead::wrong;
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The goal: captures and recordings of this size ...
const BYTES: f64 = 100e6;
/// ... in this CPU time, seconds.
const WITHIN_S: f64 = 5.0;

/// Result for one folder.
#[derive(Debug, Serialize)]
pub struct HuntRow {
    pub folder: PathBuf,
    /// Size of everything that `hunt` reads in it, bytes: captures, recordings of hosts, spans.
    pub bytes: u64,
    /// Calls that it saw.
    pub calls: u64,
    pub verdict: String,
    /// Runs of `hunt`.
    pub hunt: Vec<Cost>,
    /// Runs of `dissect` only on its captures, without spans and recordings: the floor.
    pub walk: Vec<Cost>,
    /// Runs that only read every byte of all files.
    pub read: Vec<Cost>,
}

impl HuntRow {
    fn cpu_s(&self, of: &[Cost]) -> Option<Spread> {
        Spread::of(of.iter().map(|cost| cost.cpu_s))
    }

    /// CPU seconds, scaled to the size in the goal.
    fn scaled_s(&self) -> f64 {
        self.cpu_s(&self.hunt)
            .map_or(f64::INFINITY, |spread| spread.median * BYTES / self.bytes.max(1) as f64)
    }

    /// Ratio of CPU time to that of other runs, run by run.
    fn over(&self, others: &[Cost]) -> Option<Spread> {
        Spread::of(self.hunt.iter().zip(others).map(|(ours, other)| ours.cpu_s / other.cpu_s.max(1e-3)))
    }

    /// The result as text; the last line says whether the goal is met.
    pub fn text(&self) -> String {
        let spread = |spread: Option<Spread>| {
            spread
                .map_or_else(|| "-".into(), |of| format!("{:.2} ({:.2} to {:.2})", of.median, of.min, of.max))
        };
        let peak = self.hunt.iter().map(|cost| cost.peak_bytes).max().unwrap_or(0);
        let met = if self.scaled_s() <= WITHIN_S { "PASS" } else { "SHORT" };
        format!(
            "hunt {}: {:.0} MB, {} calls, verdict {}\n\
             CPU seconds          {}\n\
             of dissect alone     {}\n\
             of reading alone     {}\n\
             times dissect alone  {}\n\
             times reading alone  {}\n\
             peak memory          {:.0} MB\n\
             {met} {:.2} CPU seconds for {:.0} MB, the goal is {WITHIN_S:.0}\n",
            self.folder.display(),
            self.bytes as f64 / 1e6,
            self.calls,
            self.verdict,
            spread(self.cpu_s(&self.hunt)),
            spread(self.cpu_s(&self.walk)),
            spread(self.cpu_s(&self.read)),
            spread(self.over(&self.walk)),
            spread(self.over(&self.read)),
            peak as f64 / 1e6,
            self.scaled_s(),
            BYTES / 1e6,
        )
    }
}

/// Lets the lab record a fault: 2,000 calls a second for as long as about 100 MB take. Needs root.
///
/// # Errors
/// If the lab fails.
pub fn record(plan: &Plan, say: &mut dyn FnMut(&str)) -> Result<PathBuf, MeasureError> {
    let folder = plan.folder.join("recorded");
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(MeasureError::File { path: folder, error });
        }
        _ => {}
    }
    let seconds = (18.0 * plan.scale).max(2.0).round();
    say(&format!("the lab records {seconds} s of 2,000 calls a second"));
    let program = plan.spangap.display().to_string();
    let failed = |error| MeasureError::Start { program: program.clone(), error };
    let status = Command::new(&plan.spangap)
        .args(["lab", "run", "stopped-server", "--set", "rate=2000"])
        .args(["--set", &format!("duration={seconds}s"), "--out"])
        .arg(&folder)
        .stdout(Stdio::null())
        .status()
        .map_err(failed)?;
    match status.success() {
        true => Ok(folder),
        false => Err(MeasureError::Failed { program, status: status.to_string() }),
    }
}

/// Runs hunt on a folder of a lab run, with the lab's file names.
///
/// # Errors
/// If one of the programs fails.
pub fn row(plan: &Plan, folder: &Path) -> Result<HuntRow, MeasureError> {
    let all = |names: &[&str]| -> Vec<PathBuf> {
        names.iter().map(|name| folder.join(name)).filter(|path| path.exists()).collect()
    };
    let captures = all(&["client.pcapng", "server.pcapng"]);
    let others = all(&["client.host", "server.host", "client.spans.json", "server.spans.json"]);
    let files = [captures.clone(), others].concat();
    let size = |path: &PathBuf| {
        let size = std::fs::metadata(path).map(|file| file.len());
        size.map_err(|error| MeasureError::File { path: path.clone(), error })
    };
    let bytes = files.iter().map(size).sum::<Result<u64, _>>()?;
    let program = plan.spangap.display().to_string();
    let command = |verb: &str, paths: &[PathBuf]| -> Vec<String> {
        let paths = paths.iter().map(|path| path.display().to_string());
        [program.clone(), verb.into(), "--json".into()].into_iter().chain(paths).collect()
    };
    let (hunt, walk) = (command("hunt", &[folder.to_owned()]), command("dissect", &captures));
    let output = plan.folder.join("hunt.json");
    let mut costs: [Vec<Cost>; 3] = Default::default();
    for _ in 0..plan.runs {
        costs[1].push(run(&walk, &plan.folder.join("walk.json"))?);
        costs[2].push(read_only_of(plan, &files)?);
        costs[0].push(run(&hunt, &output)?);
    }
    let text = std::fs::read(&output).map_err(|error| MeasureError::File { path: output, error })?;
    let document: Value = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    let calls = document["excess"]["calls"].as_u64().filter(|calls| *calls > 0);
    let [hunt, walk, read] = costs;
    Ok(HuntRow {
        folder: folder.to_owned(),
        bytes,
        calls: calls.ok_or_else(|| wrong("expected a verdict about some calls".to_owned()))?,
        verdict: document["verdict"].as_str().unwrap_or("?").to_owned(),
        hunt,
        walk,
        read,
    })
}

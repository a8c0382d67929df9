//! What the page of a scenario shows of each instrument: the part of its report that tells most, from the values of the report.

use crate::commands::{bench, gaps, host};
use anyhow::Context;
use serde_json::Value;
use spangap_bench::report::CallsInShort;
use spangap_lab::folder;
use spangap_lab::page::{InstrumentOutput, LegTotal};
use spangap_model::Side;
use spangap_wire::dissect::Settings;
use spangap_wire::report::{DissectReport, Extras, table};
use spangap_wire::source::Capture;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Maximum number of lines per instrument.
const MOST_LINES: usize = 40;
/// Columns of the page.
const WIDTH: usize = 120;
/// Maximum number of takers of a CPU.
const MOST_TAKERS: usize = 5;
/// Captures in the folder of a run.
const CAPTURES: [&str; 2] = ["client.pcapng", "server.pcapng"];

/// The run of a folder, dissected, and the command that does so.
pub struct Dissected {
    command: String,
    report: DissectReport,
}

impl Dissected {
    /// Reads everything in the folder that `dissect` reads; recordings exist only where the kernel permits them.
    pub fn of(folder: &Path) -> anyhow::Result<Dissected> {
        let mut words = vec!["dissect", CAPTURES[0], CAPTURES[1]];
        words.extend(["--spans", folder::CLIENT_SPANS, "--spans", folder::SERVER_SPANS]);
        let recordings = Side::ALL.map(folder::recording);
        let recordings: Vec<&str> =
            recordings.into_iter().filter(|name| folder.join(name).exists()).collect();
        words.extend(recordings.iter().flat_map(|name| ["--host", name]));
        let path = |name: &str| folder.join(name);
        let spans = [folder::CLIENT_SPANS, folder::SERVER_SPANS].map(path);
        let read = spangap_gather::spans::read_all(&spans, &[], false, &AtomicBool::new(false))?;
        let captures = CAPTURES.map(path).iter().map(|path| Capture::open(path)).collect::<Result<_, _>>()?;
        let settings = Settings { slowest: 1, spans: read.spans, ..Settings::default() };
        let recordings: Vec<PathBuf> = recordings.into_iter().map(path).collect();
        let go_on = &mut |_| ControlFlow::Continue(());
        let dissection = spangap_gather::dissection(captures, &recordings, read.caveats, &settings, go_on)?;
        let report = DissectReport::new(&dissection, &settings, &Extras::default());
        Ok(Dissected { command: words.join(" "), report })
    }

    /// Calls that it shows.
    pub fn calls(&self) -> u64 {
        self.report.totals.calls
    }

    /// Total time of all calls in each leg.
    pub fn legs(&self) -> Vec<LegTotal> {
        let legs = self.report.totals.legs.iter();
        legs.map(|leg| LegTotal { leg: leg.leg.to_string(), total_ns: leg.total_ns }).collect()
    }
}

/// Of each instrument, for both folders.
pub fn of_instruments(
    folders: [&PathBuf; 2],
    dissected: &[Dissected; 2],
) -> anyhow::Result<Vec<InstrumentOutput>> {
    let spans = [folder::CLIENT_SPANS, folder::SERVER_SPANS];
    let mut shown =
        vec![both(&format!("gaps {}", spans.join(" ")), folders.map(|folder| gap_table(folder)))?];
    if folders.iter().all(|folder| is_of_tank(folder)) {
        shown.push(both(
            &format!("bench show {}", folder::TANK),
            folders.map(|folder| calls_of_tank(folder)),
        )?);
    }
    let legs = [&dissected[0], &dissected[1]].map(|one| Ok(table::pairs_in_short(&one.report, WIDTH)));
    shown.push(both(&dissected[0].command, legs)?);
    shown.retain(|one| !one.fault.trim().is_empty() || !one.near_miss.trim().is_empty());
    Ok(shown)
}

/// Of the recording of a host, and the command that shows it.
pub fn of_host(folders: [&PathBuf; 2], recording: &str) -> anyhow::Result<InstrumentOutput> {
    let shown = folders.map(|folder| host::thieves::in_short(&folder.join(recording), MOST_TAKERS));
    both(&format!("host thieves --recording {recording}"), shown)
}

fn both(command: &str, shown: [anyhow::Result<String>; 2]) -> anyhow::Result<InstrumentOutput> {
    let [fault, near_miss] = shown.map(|text| text.map(|text| first_lines(&text)));
    Ok(InstrumentOutput {
        command: format!("spangap {command}"),
        fault: fault?,
        near_miss: near_miss?,
        picture: None,
    })
}

fn first_lines(text: &str) -> String {
    text.lines().take(MOST_LINES).map(|line| format!("{line}\n")).collect()
}

fn gap_table(folder: &Path) -> anyhow::Result<String> {
    let spans = [folder::CLIENT_SPANS, folder::SERVER_SPANS].map(|name| folder.join(name));
    let mut table = Vec::new();
    gaps::table::print_pairs(&mut table, &gaps::pairs_of(&spans)?.pairs)?;
    String::from_utf8(table).context("the table is not UTF-8")
}

fn calls_of_tank(folder: &Path) -> anyhow::Result<String> {
    let report = bench::read(&folder.join(folder::TANK))?;
    Ok(report.runs.iter().map(|run| CallsInShort(run).to_string()).collect())
}

/// Whether the report is tank's. A third-party client reports only what the lab needs.
fn is_of_tank(folder: &Path) -> bool {
    let text = fs::read(folder.join(folder::TANK)).unwrap_or_default();
    let report: Value = serde_json::from_slice(&text).unwrap_or_default();
    report["runs"][0]["repeat"].is_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_reports_are_cut() {
        let text = "a line\n".repeat(MOST_LINES + 3);
        assert_eq!(first_lines(&text).lines().count(), MOST_LINES);
        assert_eq!(first_lines("one\ntwo"), "one\ntwo\n");
    }
}

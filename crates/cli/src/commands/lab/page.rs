//! `spangap lab page`: describes a scenario, and a real run of it as seen by every instrument.

use crate::Outcome;
use crate::args::wrong_usage;
use crate::output::print_text;
use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;
use spangap_lab::calls::Calls;
use spangap_lab::folder;
use spangap_lab::page::{InstrumentOutput, LegTotal, PictureRun, markdown, picture};
use spangap_lab::scenario::{NEAR_MISS, Scenario};
use spangap_lab::scenarios;
use spangap_lab::truth::Truth;
use spangap_model::Cause;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const EXAMPLES: &str = "\
Examples:
  spangap lab run nagle-client --out bad && spangap lab run nagle-client-near-miss --out good
  spangap lab page bad good --write docs
      write docs/nagle-client.md and docs/nagle-client.svg; if a host is to blame, also docs/SCENARIO-host.svg";

/// Write the page of a scenario from a run of it and one of its near miss
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PageArgs {
    /// Folder of a run with the fault
    fault: PathBuf,
    /// Folder of a run of its near miss
    near_miss: PathBuf,
    /// Folder for SCENARIO.md and its pictures
    #[arg(long, short, value_name = "DIR")]
    write: PathBuf,
}

/// Maximum number of lines per instrument.
const MOST_LINES: usize = 40;

/// Writes the page.
pub fn run(args: PageArgs) -> anyhow::Result<Outcome> {
    let folders = [&args.fault, &args.near_miss];
    let truths = [truth(&args.fault)?, truth(&args.near_miss)?];
    let [fault, near_miss] = &truths;
    if fault.near_miss || !near_miss.near_miss || fault.scenario != near_miss.scenario {
        return Err(wrong_usage("expected a run of a scenario, then one of its near miss").into());
    }
    let name = &fault.scenario;
    let Some((scenario, _)) = scenarios::find(name) else { bail!("there is no scenario {name} any more") };
    let calls = [calls(folders[0])?, calls(folders[1])?];
    let documents = [dissected(folders[0])?, dissected(folders[1])?];
    let seen = |at: usize, name: &str| PictureRun {
        name: name.to_owned(),
        truth: &truths[at],
        calls: &calls[at].all,
        legs: legs(&documents[at]),
        dissected_calls: documents[at]["totals"]["calls"].as_u64().unwrap_or(0),
    };
    let drawn = picture(&seen(0, name), &seen(1, &format!("{name}{NEAR_MISS}")));
    let shown = instruments(folders)?;
    let write = std::path::absolute(&args.write).context("no such folder")?;
    fs::create_dir_all(&write).with_context(|| format!("cannot make {}", write.display()))?;
    let file = format!("{name}.svg");
    let host = match of_a_host(scenario) {
        Some(recording) if folders.iter().all(|folder| folder.join(recording).exists()) => {
            Some(host(folders, recording, &write, name)?)
        }
        _ => None,
    };
    let page = markdown(scenario, &file, [fault, near_miss], &shown, host.as_ref());
    for (name, text) in [(file, drawn), (format!("{name}.md"), page)] {
        let path = write.join(&name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        print_text(&format!("{}\n", args.write.join(name).display()))?;
    }
    Ok(Outcome::Done)
}

/// The recording of the host to blame, if a host is.
fn of_a_host(scenario: &Scenario) -> Option<&'static str> {
    let host = [Cause::CpuQuota, Cause::RunQueue, Cause::SoftirqOnCpu, Cause::Stopped];
    let side = scenario.culprit.side.filter(|_| host.contains(&scenario.culprit.cause));
    side.map(folder::recording)
}

/// What that recording shows in both runs, and a picture of the run with the fault, stored next to the page.
fn host(
    folders: [&PathBuf; 2],
    recording: &'static str,
    write: &Path,
    name: &str,
) -> anyhow::Result<InstrumentOutput> {
    let words = ["host", "thieves", "--recording", recording];
    let shown = both(folders, |_| words.to_vec(), who_had_the_cpu)?;
    let file = format!("{name}-host.svg");
    let path = write.join(&file);
    let path = path.to_str().with_context(|| format!("{}: expected a name in UTF-8", path.display()))?;
    // Long enough to show the time before and after.
    ask(folders[0], &[&words[..], &["--windows", "2", "--window", "150ms", "--svg", path]].concat())?;
    Ok(InstrumentOutput { picture: Some(file), ..shown })
}

fn truth(folder: &Path) -> anyhow::Result<Truth> {
    let path = folder.join(folder::TRUTH);
    let text = fs::read(&path)
        .with_context(|| format!("cannot read {}: is this the folder of a run?", path.display()))?;
    serde_json::from_slice(&text)
        .with_context(|| format!("{} is not a truth file of this version", path.display()))
}

fn calls(folder: &Path) -> anyhow::Result<Calls> {
    let report = folder.join(folder::TANK);
    let text = fs::read(&report).with_context(|| format!("cannot read {}", report.display()))?;
    let tank: Value =
        serde_json::from_slice(&text).with_context(|| format!("{} is not a report", report.display()))?;
    let from = tank["runs"][0]["start_unix_ns"].as_u64().unwrap_or(0);
    Ok(Calls::read(&folder.join(folder::CLIENT_SPANS), &folder.join(folder::SERVER_SPANS), from)?)
}

/// Arguments of `dissect` for everything in a folder; recordings exist only where the kernel permits them.
fn dissect(folder: &Path) -> Vec<&'static str> {
    let mut words = vec!["dissect", "client.pcapng", "server.pcapng"];
    words.extend(["--spans", folder::CLIENT_SPANS, "--spans", folder::SERVER_SPANS]);
    for recording in ["client.host", "server.host"] {
        if folder.join(recording).exists() {
            words.extend(["--host", recording]);
        }
    }
    words
}

fn dissected(folder: &Path) -> anyhow::Result<Value> {
    let mut words = dissect(folder);
    words.extend(["--json", "--slowest", "1"]);
    serde_json::from_str(&ask(folder, &words)?).context("dissect printed no JSON")
}

fn legs(document: &Value) -> Vec<LegTotal> {
    let legs = document["totals"]["legs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let total = |leg: &Value| {
        Some(LegTotal { leg: leg["leg"].as_str()?.to_owned(), total_ns: leg["total_ns"].as_i64()? })
    };
    legs.iter().filter_map(total).collect()
}

/// Output of spangap in a folder.
fn ask(folder: &Path, words: &[&str]) -> anyhow::Result<String> {
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let output = Command::new(program).args(words).current_dir(folder).output();
    let output = output.with_context(|| format!("cannot start spangap {}", words[0]))?;
    if !output.status.success() {
        bail!(
            "spangap {} in {}: {}",
            words[0],
            folder.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether the report is tank's. A third-party client reports only what the lab needs.
fn is_of_tank(folder: &Path) -> bool {
    let text = fs::read(folder.join(folder::TANK)).unwrap_or_default();
    let report: Value = serde_json::from_slice(&text).unwrap_or_default();
    report["runs"][0]["repeat"].is_u64()
}

/// Output of each instrument for both folders, cut to the most informative part.
fn instruments(folders: [&PathBuf; 2]) -> anyhow::Result<Vec<InstrumentOutput>> {
    let gaps = ["gaps", folder::CLIENT_SPANS, folder::SERVER_SPANS];
    let tank = ["bench", "show", folder::TANK];
    let mut shown = vec![both(folders, |_| gaps.to_vec(), |text| paragraph(text, "CLIENT"))?];
    if folders.iter().all(|folder| is_of_tank(folder)) {
        let lines = |text: &str| from(text, "calls ", &["latency: from when", "client "]);
        shown.push(both(folders, |_| tank.to_vec(), lines)?);
    }
    shown.extend([both(folders, dissect, |text| {
        from(text, "Where the time of all calls went", &["    connection "])
    })?]);
    shown.retain(|one| !one.fault.trim().is_empty() || !one.near_miss.trim().is_empty());
    Ok(shown)
}

fn both(
    folders: [&PathBuf; 2],
    words: impl Fn(&Path) -> Vec<&'static str>,
    cut: impl Fn(&str) -> String,
) -> anyhow::Result<InstrumentOutput> {
    let [fault, near_miss] = folders.map(|folder| ask(folder, &words(folder)).map(|text| cut(&text)));
    Ok(InstrumentOutput {
        command: format!("spangap {}", words(folders[0]).join(" ")),
        fault: fault?,
        near_miss: near_miss?,
        picture: None,
    })
}

/// Maximum number of takers of a CPU.
const MOST_TAKERS: usize = 5;

/// Of the verb's report: what the threads did, who took most, and what comes first in its verdict.
fn who_had_the_cpu(text: &str) -> String {
    let did = paragraph(text, "  What its threads did");
    let takers: String = paragraph(text, "  Who had the CPU")
        .lines()
        .take(MOST_TAKERS + 1)
        .map(|line| format!("{line}\n"))
        .collect();
    let mut words = text.lines().skip_while(|line| !line.starts_with("In words")).skip(1);
    // What goes on is indented as deep; the next one begins with its cause, or as a note.
    let begins = |line: &str| line.trim_start().split_once(": ").is_some_and(|(word, _)| !word.contains(' '));
    let mut verdict: Vec<&str> = words.next().into_iter().collect();
    verdict.extend(words.take_while(|line| !line.is_empty() && !begins(line)));
    [did, takers, verdict.join("\n")].join("\n")
}

/// The paragraph that begins so.
fn paragraph(text: &str, beginning: &str) -> String {
    let lines = text.lines().skip_while(|line| !line.starts_with(beginning));
    lines.take_while(|line| !line.is_empty()).take(MOST_LINES).map(|line| format!("{line}\n")).collect()
}

/// From the line that begins so to the first that begins with one of `ends`.
fn from(text: &str, beginning: &str, ends: &[&str]) -> String {
    let lines = text.lines().skip_while(|line| !line.starts_with(beginning));
    let until = lines.take_while(|line| !ends.iter().any(|end| line.starts_with(end)));
    until.take(MOST_LINES).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts() {
        let text = "head\nA 1\nb\n\nA 2\nend\n";
        assert_eq!(paragraph(text, "A"), "A 1\nb\n");
        assert_eq!(from(text, "A", &["end"]), "A 1\nb\n\nA 2\n");
        assert_eq!(from(text, "Z", &[]), "");
        let rows: String = (1..9).map(|number| format!("  taker {number}\n")).collect();
        let text = format!(
            "web\n\n  What its threads did\n  running\n\n  Who had the CPU\n{rows}\nWorst windows\n  x\n\nIn words\n  \
             run-queue: it waited\n  for long.\n  softirq-on-cpu: some\n  Note: what\n"
        );
        let rows = rows.lines().take(MOST_TAKERS).collect::<Vec<_>>().join("\n");
        let expected = format!(
            "  What its threads did\n  running\n\n  Who had the CPU\n{rows}\n\n  run-queue: it waited\n  for long."
        );
        assert_eq!(who_had_the_cpu(&text), expected);
    }
}

//! `spangap lab page`: describes a scenario, and a real run of it as seen by every instrument.

use super::excerpts::{self, Dissected};
use crate::Outcome;
use crate::output::print_text;
use crate::values::wrong_usage;
use crate::whole_file;
use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;
use spangap_lab::calls::Calls;
use spangap_lab::folder;
use spangap_lab::page::{InstrumentOutput, PictureRun, markdown, picture};
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
    let dissected = [Dissected::of(folders[0])?, Dissected::of(folders[1])?];
    let seen = |at: usize, name: &str| PictureRun {
        name: name.to_owned(),
        truth: &truths[at],
        calls: &calls[at].all,
        legs: dissected[at].legs(),
        dissected_calls: dissected[at].calls(),
    };
    let drawn = picture(&seen(0, name), &seen(1, &format!("{name}{NEAR_MISS}")));
    let shown = excerpts::of_instruments(folders, &dissected)?;
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
        whole_file::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
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
    let shown = excerpts::of_host(folders, recording)?;
    let file = format!("{name}-host.svg");
    let path = write.join(&file);
    let path = path.to_str().with_context(|| format!("{}: expected a name in UTF-8", path.display()))?;
    // Long enough to show the time before and after.
    let words = ["host", "thieves", "--recording", recording, "--windows", "2", "--window", "150ms"];
    ask(folders[0], &[&words[..], &["--svg", path]].concat())?;
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

/// Runs spangap in a folder.
fn ask(folder: &Path, words: &[&str]) -> anyhow::Result<()> {
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
    Ok(())
}

//! `spangap lab judge`: what is to blame in a run's folder, by what `dissect` and `gaps` say of it.

use crate::Outcome;
use crate::output::print_text;
use anyhow::{Context, bail};
use clap::Args;
use serde::de::DeserializeOwned;
use spangap_lab::folder;
use spangap_lab::grade::judge::{Evidence, judge};
use spangap_model::Side;
use std::path::{Path, PathBuf};
use std::process::Command;

const EXAMPLES: &str = "\
Examples:
  spangap lab judge lab-nagle-client-1
      {\"culprit\":\"nagle-delayed-ack\",\"side\":\"client\",\"leg\":\"client_send\",\"why\":\"it explains 91 % of ...\"}";

/// Say what is to blame in the folder of a run: what `spangap lab grade` asks
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct JudgeArgs {
    /// Folder of a run; its truth is not looked at
    folder: PathBuf,
}

/// Slow calls beyond these would not change a verdict.
const CALLS: &str = "2000";

/// Judges.
pub fn run(args: JudgeArgs) -> anyhow::Result<Outcome> {
    let there = |name: &str| Some(args.folder.join(name)).filter(|path| path.is_file());
    let sides = [Side::Client, Side::Server];
    let captures: Vec<PathBuf> = sides.iter().filter_map(|side| there(folder::capture(*side))).collect();
    let spans: Vec<PathBuf> = sides.iter().filter_map(|side| there(folder::spans(*side))).collect();
    let hosts: Vec<PathBuf> = sides.iter().filter_map(|side| there(folder::recording(*side))).collect();
    if captures.is_empty() {
        bail!("{}: expected a run's folder, with client.pcapng or server.pcapng", args.folder.display());
    }
    let mut dissect = vec!["dissect".into(), "--json".into(), "--slowest".into(), CALLS.into()];
    dissect.extend(["--ladders".into(), "0".into()]);
    dissect.extend(captures);
    dissect.extend(spans.iter().flat_map(|file| ["--spans".into(), file.clone()]));
    dissect.extend(hosts.into_iter().flat_map(|file| ["--host".into(), file]));
    let mut evidence = Evidence { dissect: spangap(&dissect)?, ..Evidence::default() };
    if !spans.is_empty() {
        let gaps: Vec<PathBuf> = ["gaps".into(), "--json".into()].into_iter().chain(spans).collect();
        evidence.gaps = spangap(&gaps)?;
    }
    if let Some(tank) = there(folder::TANK) {
        evidence.tank = Some(document(&read(&tank)?, &tank.display().to_string())?);
    }
    print_text(&(judge(&evidence).text() + "\n"))
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn document<T: DeserializeOwned>(text: &[u8], name: &str) -> anyhow::Result<T> {
    serde_json::from_slice(text).with_context(|| format!("cannot understand what {name} says"))
}

/// What another verb of this program prints.
fn spangap<T: DeserializeOwned>(arguments: &[PathBuf]) -> anyhow::Result<T> {
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let name = format!("spangap {}", arguments[0].display());
    let output =
        Command::new(program).args(arguments).output().with_context(|| format!("cannot start {name}"))?;
    if !output.status.success() {
        bail!("{name} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    document(&output.stdout, &name)
}

//! Shifts packets and host recordings of a run to the clock of their host.

use anyhow::Context;
use spangap_host::recording::Recording;
use spangap_lab::clocks::Recorded;
use spangap_model::Clock;
use spangap_wire::source;
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Rewrites a file of the run; the error is a sentence.
pub fn retime(kind: Recorded, path: &Path, clock: &Clock) -> Result<(), String> {
    rewrite(kind, path, clock).map_err(|error| format!("{error:#}"))
}

fn rewrite(kind: Recorded, path: &Path, clock: &Clock) -> anyhow::Result<()> {
    let name = path.display().to_string();
    let mut other = path.as_os_str().to_owned();
    other.push(".retimed");
    let other = Path::new(&other);
    // With the permissions of the file that it replaces.
    let to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(other);
    let mut to = BufWriter::new(to.with_context(|| format!("cannot make {}", other.display()))?);
    match kind {
        Recorded::Packets => {
            let from = BufReader::new(File::open(path).with_context(|| format!("cannot open {name}"))?);
            source::retime::retime(&name, from, &mut to, clock)?;
        }
        Recorded::Host => {
            Recording::open(path)?.retime(clock, &mut to)?;
        }
    }
    to.into_inner().context("cannot write")?;
    fs::rename(other, path).with_context(|| format!("cannot replace {name}"))
}

//! The folder of a run: its files by name.

pub mod machine;
mod readme;

pub use machine::{Machine, NotRecorded, Recorded};
pub use readme::{look_at, looks};

use crate::LabError;
use crate::truth::Truth;
use serde::Serialize;
use serde::de::DeserializeOwned;
use spangap_model::Side;
use std::fs;
use std::path::{Path, PathBuf};

pub const TRUTH: &str = "truth.json";
/// Spans of the client, OTLP JSON.
pub const CLIENT_SPANS: &str = "client.spans.json";
/// Spans of the server, OTLP JSON.
pub const SERVER_SPANS: &str = "server.spans.json";
/// The tank's report.
pub const TANK: &str = "tank.json";
/// The machine, and the missing recordings.
pub const MACHINE: &str = "machine.json";
/// For people: a description, and the command that repeats the run.
pub const README: &str = "README";

/// Folder of the [`EVIDENCE`] of an earlier window, where one was recorded.
pub use spangap_gather::BEFORE;

/// Files that may be missing, if the kernel does not permit the recording.
pub const RECORDED: [&str; 6] =
    [CLIENT_SPANS, SERVER_SPANS, "client.pcapng", "server.pcapng", "client.host", "server.host"];

/// Everything that a user could have, and nothing else: what a judge sees.
pub const EVIDENCE: [&str; 8] = [
    CLIENT_SPANS,
    SERVER_SPANS,
    "client.pcapng",
    "server.pcapng",
    TANK,
    "client.host",
    "server.host",
    MACHINE,
];

/// Spans of a side.
pub fn spans(side: Side) -> &'static str {
    [CLIENT_SPANS, SERVER_SPANS][side.index()]
}

/// Packets of a side.
pub fn capture(side: Side) -> &'static str {
    ["client.pcapng", "server.pcapng"][side.index()]
}

/// Host recording of a side.
pub fn recording(side: Side) -> &'static str {
    ["client.host", "server.host"][side.index()]
}

/// Reads a JSON file.
///
/// # Errors
/// It does not exist, or has another form.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, LabError> {
    let text = fs::read(path).map_err(LabError::file("read", path))?;
    serde_json::from_slice(&text)
        .map_err(|error| LabError::file("understand", path)(std::io::Error::other(error)))
}

/// Writes a JSON file.
///
/// # Errors
/// It cannot be written.
pub fn write_json(path: &Path, document: &impl Serialize) -> Result<(), LabError> {
    let text = serde_json::to_vec(document).expect("it is plain data");
    fs::write(path, text).map_err(LabError::file("write", path))
}

/// Writes the describing files, and removes what does not belong in a run's folder: output of programs, logs of
/// actors.
pub(crate) fn finish(work: &Path, truth: &Truth, title: &str, machine: &Machine) -> Result<(), LabError> {
    let pretty = |document: serde_json::Result<String>| document.expect("it is plain data") + "\n";
    for (name, text) in [
        (TRUTH, pretty(serde_json::to_string_pretty(truth))),
        (MACHINE, pretty(serde_json::to_string_pretty(machine))),
        (README, readme::text(truth, title, machine)),
    ] {
        let path = work.join(name);
        fs::write(&path, text).map_err(LabError::file("write", &path))?;
    }
    for path in entries(work)? {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !EVIDENCE.contains(&name) && ![TRUTH, README].contains(&name) {
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(LabError::file("remove", &path))?;
        }
    }
    Ok(())
}

/// Moves the evidence of an earlier window, a run of its own, into the folder of the run that followed it.
pub(crate) fn keep_earlier(earlier: &Path, work: &Path) -> Result<(), LabError> {
    let before = work.join(BEFORE);
    fs::create_dir(&before).map_err(LabError::file("make", &before))?;
    for path in EVIDENCE.iter().map(|file| earlier.join(file)).filter(|path| path.exists()) {
        let to = before.join(path.file_name().unwrap_or_default());
        fs::rename(&path, &to).map_err(LabError::file("make", &to))?;
    }
    Ok(())
}

/// Moves the output of a failed run to a separate folder, for diagnosis. `None` if there was none.
pub(crate) fn keep_logs(work: &Path, id: &str) -> Result<Option<PathBuf>, LabError> {
    let said = entries(work)?.into_iter().filter(|path| {
        let log =
            path.extension().is_some_and(|ending| ["out", "err", "log"].iter().any(|known| ending == *known));
        log && path.metadata().is_ok_and(|metadata| metadata.len() > 0)
    });
    let said: Vec<PathBuf> = said.collect();
    if said.is_empty() {
        return Ok(None);
    }
    let kept = std::env::temp_dir().join(format!("spangap-lab-{id}"));
    fs::create_dir(&kept).map_err(LabError::file("make", &kept))?;
    for path in said {
        let to = kept.join(path.file_name().unwrap_or_default());
        fs::copy(&path, &to).map_err(LabError::file("copy", &path))?;
    }
    Ok(Some(kept))
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, LabError> {
    let entries = fs::read_dir(folder).map_err(LabError::file("read", folder))?;
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(LabError::file("read", folder))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_a_failed_run_are_kept_and_nothing_else() {
        let work = tempfile::tempdir().expect("a folder");
        for (name, text) in [("tank.err", "no"), ("tank.out", ""), ("client.pcapng", "packets")] {
            fs::write(work.path().join(name), text).expect("a file");
        }
        let id = format!("test-{}", std::process::id());
        let kept = keep_logs(work.path(), &id).expect("kept").expect("something was said");
        assert_eq!(entries(&kept).expect("a folder"), [kept.join("tank.err")]);
        assert_eq!(fs::read_to_string(kept.join("tank.err")).expect("a file"), "no");
        fs::remove_dir_all(kept).expect("it is there");
    }
}

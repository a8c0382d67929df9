//! The folder of a run: what is in it, by name.

use crate::LabError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use spangap_model::Side;
use std::fs;
use std::path::Path;

/// What was the matter.
pub const TRUTH: &str = "truth.json";
/// Spans of the client, OTLP JSON.
pub const CLIENT_SPANS: &str = "client.spans.json";
/// Spans of the server, OTLP JSON.
pub const SERVER_SPANS: &str = "server.spans.json";
/// What the tank reported.
pub const TANK: &str = "tank.json";
/// What the machine was, and what could not be recorded.
pub const MACHINE: &str = "machine.json";
/// For people: what this is, and the command that makes it again.
pub const README: &str = "README";

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

/// Reads a file of JSON.
///
/// # Errors
/// When it is not there, or is something else.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, LabError> {
    let text = fs::read(path).map_err(LabError::file("read", path))?;
    serde_json::from_slice(&text)
        .map_err(|error| LabError::file("understand", path)(std::io::Error::other(error)))
}

/// Writes a file of JSON.
///
/// # Errors
/// When it cannot be written.
pub fn write_json(path: &Path, document: &impl Serialize) -> Result<(), LabError> {
    let text = serde_json::to_vec(document).expect("it is plain data");
    fs::write(path, text).map_err(LabError::file("write", path))
}

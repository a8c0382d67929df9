//! Runs the instruments over recordings and joins their results: captures, files of spans, recordings of hosts, a
//! tank's report and saved documents of other instruments, from a folder or one by one, become one [`Evidence`].
//!
//! All joins live here: packets with spans ([`spans`]), legs with recordings ([`hosts`]). Nothing here judges;
//! `diagnose` does, from the values alone.

mod documents;
pub mod ends;
pub mod hosts;
pub mod perfetto;
mod sources;
pub mod spans;
mod tank;
pub mod tracks;
pub mod whole;

pub use sources::Sources;

use spangap_host::recording::RecordingError;
use spangap_meter::ingest::file::ReadError;
use spangap_model::evidence::Evidence;
pub use spangap_wire::dissect::Progress;
use spangap_wire::dissect::{Dissection, OnProgress, Settings, dissect};
use spangap_wire::source::{Capture, SourceError};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// Why nothing could be gathered.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    // Whoever prints an error prints its sources behind it: one that says its reason itself has none.
    /// A capture cannot be read.
    #[error(transparent)]
    Capture(#[from] SourceError),
    /// A file of spans cannot be read.
    #[error(transparent)]
    Spans(#[from] ReadError),
    /// Standard input was given as a file of spans.
    #[error("--spans: standard input is for a capture; expected the name of a file")]
    SpansFromStdin,
    /// A recording of a host cannot be read.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A file or folder cannot be looked at.
    #[error("{path}: {error}", path = .0.display(), error = .1)]
    Io(PathBuf, io::Error),
    /// A tank's report is none.
    #[error("{path}: not a report of `spangap tank --json`: {error}", path = .0.display(), error = .1)]
    Tank(PathBuf, serde_json::Error),
    /// What an instrument saved cannot be read.
    #[error("{path}: not the --json output of an instrument: {error}", path = .0.display(), error = .1)]
    Document(PathBuf, serde_json::Error),
    /// There is nothing to go by.
    #[error("{}: expected captures of one end or both, such as client.pcapng and server.pcapng", .0.display())]
    NoCapture(PathBuf),
}

/// What is gathered of recorded files.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Calls looked at one by one, the slowest.
    pub calls: usize,
    /// Calls beside these, drawn at random from all others.
    pub sample: usize,
}

impl Wanted {
    /// What a verdict rests on: slow calls, and ordinary ones to compare them with.
    pub const FOR_A_HUNT: Wanted = Wanted { calls: 10_000, sample: 10_000 };
}

/// Reads captures and lays beside their calls what spans and hosts say of them: what `dissect` reports.
///
/// # Errors
/// When one of the files cannot be read, or not twice where it has to be.
pub fn dissection(
    captures: Vec<Capture>,
    recordings: &[PathBuf],
    span_caveats: Vec<String>,
    settings: &Settings,
    on_progress: &mut OnProgress<'_>,
) -> Result<Dissection, GatherError> {
    let mut dissection = dissect(captures, settings, on_progress)?;
    dissection.caveats.extend(span_caveats);
    hosts::lay(&mut dissection, recordings)?;
    Ok(dissection)
}

/// Gathers all that the sources tell of the calls between their ends.
///
/// # Errors
/// When a source cannot be read, or there is no capture among them.
pub fn evidence(
    sources: &Sources,
    wanted: Wanted,
    on_progress: &mut OnProgress<'_>,
    stop: &AtomicBool,
) -> Result<Evidence, GatherError> {
    if sources.captures.is_empty() {
        return Err(GatherError::NoCapture(sources.folder.clone()));
    }
    let read = spans::read_all(&sources.spans, &[], true, stop)?;
    let captures = sources.captures.iter().map(|path| Capture::open(path)).collect::<Result<_, _>>()?;
    let settings =
        Settings { slowest: wanted.calls, sample: wanted.sample, spans: read.spans, ..Settings::default() };
    let dissection = dissection(captures, &sources.recordings, read.caveats, &settings, on_progress)?;
    let mut evidence = spangap_wire::report::evidence(&dissection);
    if let Some(meter) = read.joined {
        let seen = spangap_meter::evidence::evidence(&meter, &sources.names_of_spans());
        evidence.spans = Some(seen.counts);
        evidence.findings.extend(seen.findings);
        evidence.coverage.push(seen.coverage);
    }
    tank::leave_out_its_own(&mut evidence);
    if let Some(path) = &sources.tank {
        evidence.measured_from_unix_ns = tank::measured_from(path)?;
    }
    for path in sources.documents.iter().chain(&sources.tank) {
        if let Some(testimony) = documents::testimony(path)? {
            evidence.hear(testimony);
        }
    }
    Ok(evidence)
}

//! Runs the instruments over recordings and joins their results. Captures, files of spans, recordings of
//! hosts, a tank's report and saved documents of other instruments, from a folder or listed individually,
//! become one [`Evidence`].
//!
//! All joins are in this crate: packets with spans ([`spans`]), legs with recordings ([`hosts`]). Nothing
//! here judges; `diagnose` does, from the values alone.

#![warn(missing_docs)]

mod covered;
mod documents;
pub mod ends;
pub mod hosts;
mod lone;
mod pair;
pub mod perfetto;
mod sources;
pub mod spans;
mod tank;
pub mod tracks;
pub mod whole;

pub use sources::{BEFORE, Sources, before};

use spangap_host::recording::RecordingError;
use spangap_meter::ingest::file::ReadError;
use spangap_model::Side;
use spangap_model::evidence::Evidence;
pub use spangap_wire::dissect::Progress;
use spangap_wire::dissect::{Dissection, OnProgress, Settings, dissect};
use spangap_wire::source::{Capture, SourceError};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// Why evidence cannot be gathered.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    // Errors are printed with their sources, so a variant whose text contains the reason must not have one.
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
    /// A file or folder cannot be inspected.
    #[error("{path}: {error}", path = .0.display(), error = .1)]
    Io(PathBuf, io::Error),
    /// A tank's report is invalid.
    #[error("{path}: not a report of `spangap tank --json`: {error}", path = .0.display(), error = .1)]
    Tank(PathBuf, serde_json::Error),
    /// A document of an instrument cannot be read.
    #[error("{path}: not the --json output of an instrument: {error}", path = .0.display(), error = .1)]
    Document(PathBuf, serde_json::Error),
    /// There is no capture.
    #[error("{}: expected captures of one end or both, such as client.pcapng and server.pcapng", .0.display())]
    NoCapture(PathBuf),
}

/// Amount of evidence from recorded files.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Number of calls to examine individually, the slowest.
    pub calls: usize,
    /// Number of further calls, drawn at random from all others.
    pub sample: usize,
}

impl Wanted {
    /// The basis of a verdict: slow calls, and ordinary ones for comparison.
    pub const FOR_A_HUNT: Wanted = Wanted { calls: 10_000, sample: 10_000 };
}

/// Reads captures and joins their calls with spans and hosts: the report of `dissect`.
///
/// # Errors
/// When a file cannot be read, or not twice where that is necessary.
pub fn dissection(
    captures: Vec<Capture>,
    recordings: &[PathBuf],
    span_caveats: Vec<String>,
    settings: &Settings,
    on_progress: &mut OnProgress<'_>,
) -> Result<Dissection, GatherError> {
    joined(dissect(captures, settings, on_progress)?, recordings, span_caveats, settings)
}

/// What captures show, with spans and hosts.
fn joined(
    mut dissection: Dissection,
    recordings: &[PathBuf],
    span_caveats: Vec<String>,
    settings: &Settings,
) -> Result<Dissection, GatherError> {
    dissection.caveats.extend(span_caveats);
    dissection.caveats.extend(spans::unmatched(&dissection, &settings.spans));
    hosts::split_legs(&mut dissection, recordings)?;
    Ok(dissection)
}

/// Gathers all evidence of the sources about the calls between their ends.
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
    let open = || sources.captures.iter().map(|path| Capture::open(path)).collect::<Result<Vec<_>, _>>();
    let mut settings =
        Settings { slowest: wanted.calls, sample: wanted.sample, spans: read.spans, ..Settings::default() };
    let mut dissected = dissect(open()?, &settings, on_progress)?;
    if dissected.captures.len() == 1 && dissected.presumed > 0 {
        settings.presumed_end = lone::end_of_recordings(&dissected, &sources.recordings)?;
        if settings.presumed_end == Some(Side::Server) {
            dissected = dissect(open()?, &settings, on_progress)?;
        }
    }
    let dissection = joined(dissected, &sources.recordings, read.caveats, &settings)?;
    let mut evidence = spangap_wire::report::evidence(&dissection);
    evidence.unplaced = spans::unplaced(&dissection, &settings.spans);
    if let Some(meter) = read.joined {
        let seen = spangap_meter::evidence::evidence(&meter, &sources.names_of_spans());
        evidence.spans = Some(seen.counts);
        evidence.findings.extend(seen.findings);
        evidence.coverage.push(seen.coverage);
    }
    // Relative to the folder: shorter, and the answer about a case must not reveal where the meter's files are.
    let folder = sources.folder.join("").display().to_string();
    for one in &mut evidence.coverage {
        one.source = one.source.replace(&folder, "");
        one.cannot.iter_mut().for_each(|limit| *limit = limit.replace(&folder, ""));
    }
    tank::leave_out_its_own(&mut evidence);
    if sources.case.is_some() {
        pair::leave_out_others(&mut evidence);
    }
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

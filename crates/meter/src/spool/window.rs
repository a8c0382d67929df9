//! All spans that arrived in a window, in order of arrival, as a Parquet file: written as it is read, in bounded memory.

use super::Spool;
use super::segment::{Blocks, SegmentError};
use super::table::Table;
use super::traces::resources;
use crate::ingest::wire::WalkError;
use parquet::errors::ParquetError;
use std::io::{self, Write};

/// Reasons why spans may be missing that are repeated.
const MOST_REASONS: usize = 8;

/// What is told in the file's metadata, under these keys.
const WINDOW: &str = "spangap.arrived_unix_ms";
const INCOMPLETE: &str = "spangap.incomplete";

/// A window of time, in Unix milliseconds, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First arrival.
    pub from_unix_ms: u64,
    /// Last arrival.
    pub to_unix_ms: u64,
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Spans.
    pub spans: u64,
    /// Reasons why spans may be missing.
    pub incomplete: Vec<String>,
}

/// Why a block ends the reading of its segment, or the whole export.
enum Stop {
    Otlp,
    Out(io::Error),
}

impl From<WalkError> for Stop {
    fn from(_: WalkError) -> Stop {
        Stop::Otlp
    }
}

fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(inner) => io::Error::other(inner),
        },
        error => io::Error::other(error),
    }
}

impl Spool {
    /// Writes all kept spans that arrived in the window to `out`. Spans are kept in blocks of requests, half a second or less each:
    /// a block that overlaps the window is written as a whole. A span that was sent twice is there twice.
    ///
    /// What cannot be read is left out, and said in the file's metadata and in what is returned.
    ///
    /// # Errors
    /// When `out` fails.
    pub fn export(&self, window: Window, out: impl Write + Send) -> io::Result<Exported> {
        let mut table = Table::new(out).map_err(io_error)?;
        let mut exported = Exported::default();
        let mut undecoded = 0;
        for (number, path) in self.store.between(window.from_unix_ms, window.to_unix_ms) {
            let read = self.export_segment(&path, window, &mut table, &mut undecoded)?;
            let Err(error) = read else { continue };
            if error.is_damage() {
                self.store.set_aside(number, &error);
            }
            let why = match error.is_gone() {
                true => "the oldest spans were dropped meanwhile".to_owned(),
                false => error.to_string(),
            };
            if exported.incomplete.len() < MOST_REASONS && !exported.incomplete.contains(&why) {
                exported.incomplete.push(why);
            }
        }
        if undecoded > 0 {
            exported.incomplete.push(format!("{undecoded} resources with their spans cannot be decoded"));
        }
        table.say(WINDOW, &format!("{} to {}", window.from_unix_ms, window.to_unix_ms));
        if !exported.incomplete.is_empty() {
            table.say(INCOMPLETE, &exported.incomplete.join("; "));
        }
        exported.spans = table.finish().map_err(io_error)?;
        Ok(exported)
    }

    /// The outer error is that of the output.
    fn export_segment<W: Write + Send>(
        &self,
        path: &std::path::Path,
        window: Window,
        table: &mut Table<W>,
        undecoded: &mut u64,
    ) -> io::Result<Result<(), SegmentError>> {
        let mut blocks = match Blocks::open(path) {
            Ok(blocks) => blocks,
            Err(error) => return Ok(Err(error)),
        };
        loop {
            let block = blocks.next(|head| {
                head.first_unix_ms <= window.to_unix_ms && head.last_unix_ms() >= window.from_unix_ms
            });
            let plain = match block {
                Ok(Some(plain)) => plain,
                Ok(None) => return Ok(Ok(())),
                Err(error) => return Ok(Err(error)),
            };
            let added =
                resources(&plain, |of_resource| table.add(&of_resource).map_err(|e| Stop::Out(io_error(e))));
            match added {
                Ok(count) => *undecoded += count,
                Err(Stop::Otlp) => *undecoded += 1,
                Err(Stop::Out(error)) => return Err(error),
            }
        }
    }
}

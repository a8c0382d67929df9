//! Positions from which a capture can be read again.

use super::{Capture, Format, SourceError};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::PathBuf;

/// Maximum bookmarks; beyond it, every other one is dropped, so that a large capture has at least half as many.
const MAX_BOOKMARKS: usize = 1024;
/// Initial number of packets between bookmarks.
const FIRST_SPACING: u64 = 4096;

#[derive(Clone, Debug)]
struct Bookmark {
    /// Number of the packet before it.
    number: u64,
    offset: u64,
    format: Format,
}

/// Positions for reading a capture a second time, by packet number. They are recorded during the first reading.
///
/// An uncompressed file is reopened near the packet; a compressed one is read again from its beginning; a pipe or
/// another reader cannot be read twice.
#[derive(Clone, Debug)]
pub struct Bookmarks {
    file: String,
    path: Option<PathBuf>,
    places: Vec<Bookmark>,
    spacing: u64,
}

impl Bookmarks {
    pub(super) fn new(file: String, path: Option<PathBuf>) -> Bookmarks {
        Bookmarks { file, path, places: Vec::new(), spacing: FIRST_SPACING }
    }

    /// Records that the packet after `number` begins at `offset`; returns the packet after which to record the
    /// next one.
    #[cold]
    pub(super) fn note(&mut self, number: u64, offset: u64, format: &Format) -> u64 {
        if self.places.len() >= MAX_BOOKMARKS {
            let mut nth = 0;
            self.places.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
            self.spacing *= 2;
        }
        if self.path.is_some() {
            self.places.push(Bookmark { number, offset, format: format.clone() });
        }
        number + self.spacing
    }

    /// Opens the capture again, so that the next packet is number `packet`, or the first one after it if that one
    /// is not delivered. The counts of [`Capture::reading`] then begin at the bookmark.
    ///
    /// # Errors
    /// [`SourceError::NotTwice`] if it is not a file; otherwise as [`Capture::open`].
    pub fn reopen_at(&self, packet: u64) -> Result<Capture, SourceError> {
        let Some(path) = &self.path else { return Err(SourceError::NotTwice { file: self.file.clone() }) };
        let after = self.places.partition_point(|place| place.number < packet);
        let mut capture = match after.checked_sub(1).and_then(|at| self.places.get(at)) {
            None => Capture::open_as(self.file.clone(), path)?,
            Some(place) => {
                let io = |error| SourceError::Io { file: self.file.clone(), error };
                let mut file = File::open(path).map_err(io)?;
                let total = file.metadata().map_err(io)?.len();
                file.seek(SeekFrom::Start(place.offset)).map_err(io)?;
                let format = place.format.clone();
                Capture::in_the_middle(
                    self.file.clone(),
                    path,
                    Box::new(file),
                    total,
                    place.offset,
                    format,
                    place.number,
                )
            }
        };
        capture.skip_to(packet);
        Ok(capture)
    }
}

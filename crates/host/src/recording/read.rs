//! Reading a recording.

use super::code::Decoder;
use super::{End, HEADER, Kind, MAGIC, MAX_PAYLOAD, Meta, Reading, Relation, VERSION};
use crate::event::Event;
use crate::names::Names;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use zstd::bulk::Decompressor;

/// Why a recording cannot be read, or not any further.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be opened or read.
    #[error("{path}: {source}")]
    Io {
        /// Which file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// It is another kind of file.
    #[error("{path}: not a recording of `spangap host record`: expected it to begin with \"spangap host\"")]
    Foreign {
        /// Which file.
        path: String,
    },
    /// It was written by another version.
    #[error("{path}: is a recording of format {found}, expected 1 to {VERSION}")]
    Version {
        /// Which file.
        path: String,
        /// The format it has.
        found: u32,
    },
    /// It ends in the middle: the recorder was killed, or the file was truncated.
    #[error("{path}: ends at byte {offset}, expected {expected}")]
    Cut {
        /// Which file.
        path: String,
        /// Offset of the incomplete record.
        offset: u64,
        /// What should be there.
        expected: &'static str,
    },
    /// The content of a record is invalid.
    #[error("{path}: damaged at byte {offset}: found {found}, expected {expected}")]
    Damaged {
        /// Which file.
        path: String,
        /// Offset of the record.
        offset: u64,
        /// What is there.
        found: String,
        /// What should be there.
        expected: &'static str,
    },
}

/// A recording: its facts are known at once, its events are read as a stream.
#[derive(Debug)]
pub struct Recording<R: Read + Seek = BufReader<File>> {
    path: String,
    from: R,
    bytes: u64,
    meta: Meta,
    names: Names,
    relation: Relation,
    end: Option<End>,
    first_events: u64,
    /// End of the last readable record.
    readable: u64,
    cut: Option<(u64, &'static str)>,
    /// The first record other than events that could not be read: where it is, what is there, and what should
    /// be.
    damage: Option<(u64, String, &'static str)>,
}

struct Header {
    kind: u8,
    raw: u32,
    length: u32,
}

impl Recording {
    /// Opens a file. A truncated file is opened up to its end: see [`cut`](Self::cut).
    pub fn open(path: &Path) -> Result<Recording, RecordingError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|source| RecordingError::Io { path: name.clone(), source })?;
        Recording::from_reader(name, BufReader::with_capacity(1 << 18, file))
    }
}

impl<R: Read + Seek> Recording<R> {
    /// Reads everything but the events from anything seekable; errors name it by `path`.
    pub fn from_reader(path: String, from: R) -> Result<Recording<R>, RecordingError> {
        let mut recording = Recording {
            path,
            from,
            bytes: 0,
            meta: Meta::default(),
            names: Names::default(),
            relation: Relation::default(),
            end: None,
            first_events: 0,
            readable: 0,
            cut: None,
            damage: None,
        };
        recording.survey()?;
        Ok(recording)
    }

    /// Its name in errors.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// What was recorded.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Names of everything in it.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// How it ended; `None` if the recorder was killed.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// The relation of the clocks.
    pub fn relation(&self) -> &Relation {
        &self.relation
    }

    /// Size of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What is missing at its end, if it was truncated or the recorder was killed.
    pub fn cut(&self) -> Option<RecordingError> {
        self.cut.map(|(offset, expected)| RecordingError::Cut { path: self.path.clone(), offset, expected })
    }

    /// A time of the events in nanoseconds since 1970, and its error bound.
    pub fn unix_ns(&self, mono_ns: u64) -> Option<(i64, u64)> {
        self.relation.unix_ns(mono_ns)
    }

    /// A time in nanoseconds since 1970 in the time of the events, and its error bound.
    pub fn mono_ns(&self, unix_ns: i64) -> Option<(u64, u64)> {
        self.relation.mono_ns(unix_ns)
    }

    /// Delivers all events from the first on, as often as requested. Events before a damaged place come
    /// first, then the error. A recording that merely ends early is not an error: see [`cut`](Self::cut).
    pub fn read(&mut self, on: &mut dyn FnMut(&Event)) -> Result<(), RecordingError> {
        let mut offset = self.first_events;
        let mut unpacker = Unpacker::new().map_err(|source| self.io(source))?;
        self.seek(offset)?;
        while offset < self.readable {
            let header = self.header(offset)?;
            if header.kind == Kind::Events as u8 {
                let payload = self.payload(offset, &header, &mut unpacker)?;
                for event in Decoder::new(payload) {
                    let event = event.map_err(|wrong| RecordingError::Damaged {
                        path: self.path.clone(),
                        offset,
                        found: format!("something else at byte {} of its events", wrong.at),
                        expected: wrong.expected,
                    })?;
                    on(&event);
                }
            } else {
                // Short, so reading on is cheaper than seeking, which discards the read-ahead.
                let mut rest = (&mut self.from).take(header.length.into());
                io::copy(&mut rest, &mut io::sink()).map_err(|source| self.io(source))?;
            }
            offset += HEADER as u64 + u64::from(header.length);
        }
        match &self.damage {
            Some((offset, found, expected)) => Err(self.damaged(*offset, found.clone(), expected)),
            None => Ok(()),
        }
    }

    /// Delivers all records after the first, with their kind and place, including those that
    /// [`read`](Self::read) and the survey skip.
    pub(super) fn records(
        &mut self,
        mut on: impl FnMut(u8, u64, &[u8]) -> Result<(), RecordingError>,
    ) -> Result<(), RecordingError> {
        let mut offset = self.first_events;
        let mut unpacker = Unpacker::new().map_err(|source| self.io(source))?;
        self.seek(offset)?;
        while offset < self.readable {
            let header = self.header(offset)?;
            let payload = self.payload(offset, &header, &mut unpacker)?;
            on(header.kind, offset, payload)?;
            offset += HEADER as u64 + u64::from(header.length);
        }
        Ok(())
    }

    /// Goes through all records without decoding those of events.
    fn survey(&mut self) -> Result<(), RecordingError> {
        self.bytes = self.from.seek(SeekFrom::End(0)).map_err(|source| self.io(source))?;
        self.seek(0)?;
        let mut begin = [0; MAGIC.len() + 4];
        match self.from.read_exact(&mut begin) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(RecordingError::Foreign { path: self.path.clone() });
            }
            done => done.map_err(|source| self.io(source))?,
        }
        let (magic, version) = begin.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(RecordingError::Foreign { path: self.path.clone() });
        }
        let found = u32::from_le_bytes(version.try_into().expect("four bytes"));
        if !(1..=VERSION).contains(&found) {
            return Err(RecordingError::Version { path: self.path.clone(), found });
        }
        let mut offset = begin.len() as u64;
        let mut unpacker = Unpacker::new().map_err(|source| self.io(source))?;
        let header = self.whole(offset)?.ok_or(self.cut_at(offset, "what was recorded"))?;
        if header.kind != Kind::Meta as u8 {
            let found = format!("a record of kind {}", header.kind);
            return Err(self.damaged(offset, found, "what was recorded"));
        }
        self.meta = self.json(offset, &header, &mut unpacker)?;
        offset += HEADER as u64 + u64::from(header.length);
        self.first_events = offset;
        loop {
            self.readable = offset;
            if offset == self.bytes {
                if self.end.is_none() {
                    self.cut = Some((offset, "another record: the recorder was killed"));
                }
                return Ok(());
            }
            // An invalid header is left to `read`, which first delivers what comes before it.
            let header = match self.whole(offset) {
                Ok(Some(header)) => header,
                Ok(None) => {
                    self.cut = Some((offset, "a whole record"));
                    return Ok(());
                }
                Err(RecordingError::Damaged { .. }) => {
                    self.readable = self.bytes;
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            let read = match header.kind {
                kind if kind == Kind::Names as u8 => {
                    self.json(offset, &header, &mut unpacker).map(|names| self.names.absorb(names))
                }
                kind if kind == Kind::Clocks as u8 => self
                    .json::<Reading>(offset, &header, &mut unpacker)
                    .map(|reading| self.relation.add(reading)),
                kind if kind == Kind::End as u8 => {
                    self.json(offset, &header, &mut unpacker).map(|end| self.end = Some(end))
                }
                _ => Ok(()),
            };
            offset += HEADER as u64 + u64::from(header.length);
            self.seek(offset)?;
            match read {
                Ok(()) => {}
                // No reason to hide what else there is.
                Err(RecordingError::Damaged { offset, found, expected, .. }) => {
                    self.damage.get_or_insert((offset, found, expected));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The header at `offset` if its record is complete, with the file positioned behind the header.
    fn whole(&mut self, offset: u64) -> Result<Option<Header>, RecordingError> {
        if self.bytes - offset < HEADER as u64 {
            return Ok(None);
        }
        let header = self.header(offset)?;
        let end = offset + HEADER as u64 + u64::from(header.length);
        Ok((end <= self.bytes).then_some(header))
    }

    fn header(&mut self, offset: u64) -> Result<Header, RecordingError> {
        let mut bytes = [0; HEADER];
        self.from.read_exact(&mut bytes).map_err(|source| self.io(source))?;
        let [kind, a, b, c, d, rest @ ..] = bytes;
        let header = Header { kind, raw: u32::from_le_bytes([a, b, c, d]), length: u32::from_le_bytes(rest) };
        if header.raw > MAX_PAYLOAD || header.length > MAX_PAYLOAD + MAX_PAYLOAD / 128 + 1024 {
            let found = format!("a record of {} bytes", header.raw.max(header.length));
            return Err(self.damaged(offset, found, "one of at most 64 MiB"));
        }
        Ok(header)
    }

    fn payload<'a>(
        &mut self,
        offset: u64,
        header: &Header,
        unpacker: &'a mut Unpacker,
    ) -> Result<&'a [u8], RecordingError> {
        let mut limited = (&mut self.from).take(header.length.into());
        unpacker.packed.clear();
        limited.read_to_end(&mut unpacker.packed).map_err(|source| self.io(source))?;
        unpacker.raw.clear();
        unpacker.raw.reserve(header.raw as usize);
        match unpacker.zstd.decompress_to_buffer(&unpacker.packed, &mut unpacker.raw) {
            Ok(bytes) if bytes == header.raw as usize => Ok(&unpacker.raw),
            Ok(bytes) => Err(self.damaged(offset, format!("{bytes} bytes"), "as many as its header says")),
            Err(error) => Err(self.damaged(offset, error.to_string(), "a zstd frame with its checksum")),
        }
    }

    fn json<T: DeserializeOwned>(
        &mut self,
        offset: u64,
        header: &Header,
        unpacker: &mut Unpacker,
    ) -> Result<T, RecordingError> {
        let payload = self.payload(offset, header, unpacker)?;
        serde_json::from_slice(payload)
            .map_err(|error| self.damaged(offset, error.to_string(), "JSON of a known shape"))
    }

    fn seek(&mut self, offset: u64) -> Result<(), RecordingError> {
        self.from.seek(SeekFrom::Start(offset)).map(|_| ()).map_err(|source| self.io(source))
    }

    fn io(&self, source: io::Error) -> RecordingError {
        RecordingError::Io { path: self.path.clone(), source }
    }

    fn cut_at(&self, offset: u64, expected: &'static str) -> RecordingError {
        RecordingError::Cut { path: self.path.clone(), offset, expected }
    }

    fn damaged(&self, offset: u64, found: String, expected: &'static str) -> RecordingError {
        RecordingError::Damaged { path: self.path.clone(), offset, found, expected }
    }
}

/// Decompresses; its memory grows to the largest record.
struct Unpacker {
    zstd: Decompressor<'static>,
    packed: Vec<u8>,
    raw: Vec<u8>,
}

impl Unpacker {
    fn new() -> io::Result<Unpacker> {
        Ok(Unpacker { zstd: Decompressor::new()?, packed: Vec::new(), raw: Vec::new() })
    }
}

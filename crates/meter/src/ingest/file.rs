//! Files of spans, in whatever format: what they are shows in their first bytes, not in their names.
//!
//! Understood are OTLP JSON (documents, or one a line as the Collector's file exporter writes them), OTLP
//! protobuf (bare, or with lengths as the Collector's file exporter writes it), Jaeger JSON and Zipkin JSON v2;
//! any of them compressed with gzip or zstd, several compressed pieces one after the other included.
//!
//! Whatever can be read counts: what cannot is skipped, recorded with its place, and counted.

use super::delivery::{Delivery, Detail, FileReport, Sink};
use super::documents;
use super::framing::{self, Framing, ZSTD_MAGIC};
use super::source::Source;
use super::times::{HalfTimes, TimesReader};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::ControlFlow;
use std::path::PathBuf;

const FORMATS: &str = "OTLP JSON (a document, or one a line), OTLP protobuf (bare, or with 4-byte lengths as the \
                       Collector's file exporter writes it), Jaeger JSON or Zipkin JSON v2, each also as .gz or .zst";

/// Where spans come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A file.
    Path(PathBuf),
    /// Standard input.
    Stdin,
}

impl Input {
    /// As an argument names it: `-` is standard input.
    pub fn from_argument(argument: PathBuf) -> Input {
        if argument.as_os_str() == "-" { Input::Stdin } else { Input::Path(argument) }
    }

    /// The name in reports and errors.
    pub fn name(&self) -> String {
        match self {
            Input::Path(path) => path.display().to_string(),
            Input::Stdin => "-".into(),
        }
    }
}

/// How far reading has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read, as they are stored.
    pub bytes: u64,
    /// Size of the input, where it is known.
    pub total_bytes: Option<u64>,
}

/// Is told how far reading has come, and may end it.
pub type OnProgress<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// Nothing of the input could be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The operating system said no.
    #[error("{file}: {error}")]
    Io {
        /// Its name.
        file: String,
        /// Why.
        error: io::Error,
    },
    /// It is compressed, and the compression is damaged from the start.
    #[error("{file}: cannot decompress: {error}")]
    Compression {
        /// Its name.
        file: String,
        /// Why.
        error: io::Error,
    },
    /// It is none of the formats.
    #[error("{file}: not a file of spans: found {found}; expected {FORMATS}")]
    UnknownFormat {
        /// Its name.
        file: String,
        /// What was seen.
        found: String,
    },
}

/// Whether a file that begins so holds spans as OTLP protobuf, where nobody has said what it holds.
pub fn is_otlp_protobuf(start: &[u8]) -> bool {
    framing::is_otlp(start)
}

/// Reads one input to its end. Requests go to `sink` as OTLP protobuf, of bounded size, in the input's order.
///
/// # Errors
/// [`ReadError`] when nothing of it can be read. What cannot be read after that is in the report.
pub fn read(
    input: &Input,
    sink: &mut Sink<'_>,
    on_progress: &mut OnProgress<'_>,
) -> Result<FileReport, ReadError> {
    read_detail(input, Detail::Whole, sink, on_progress)
}

/// Reads one input to its end for the times of its CLIENT and SERVER spans. Of spans in OTLP JSON, nothing else is looked at.
///
/// # Errors
/// As [`read`].
pub fn read_times(
    input: &Input,
    each: &mut dyn FnMut(HalfTimes),
    on_progress: &mut OnProgress<'_>,
) -> Result<FileReport, ReadError> {
    let mut reader = TimesReader::default();
    let mut sink = |request: &[u8]| reader.read(request, each);
    read_detail(input, Detail::Times, &mut sink, on_progress)
}

fn read_detail(
    input: &Input,
    detail: Detail,
    sink: &mut Sink<'_>,
    on_progress: &mut OnProgress<'_>,
) -> Result<FileReport, ReadError> {
    let io_error = |error| ReadError::Io { file: input.name(), error };
    match input {
        Input::Path(path) => {
            let file = File::open(path).map_err(io_error)?;
            let meta = file.metadata().map_err(io_error)?;
            if meta.is_dir() {
                let why = "is a folder: name the files in it";
                return Err(io_error(io::Error::new(io::ErrorKind::IsADirectory, why)));
            }
            let total_bytes = meta.is_file().then_some(meta.len());
            read_detail_from(input.name(), Box::new(file), total_bytes, detail, sink, on_progress)
        }
        Input::Stdin => {
            let reader = Box::new(io::stdin().lock());
            read_detail_from(input.name(), reader, None, detail, sink, on_progress)
        }
    }
}

/// The same for anything that can be read; `file` is what it is called in reports and errors.
///
/// # Errors
/// As [`read`].
pub fn read_from<'a>(
    file: String,
    reader: Box<dyn Read + 'a>,
    total_bytes: Option<u64>,
    sink: &mut Sink<'_>,
    on_progress: &mut OnProgress<'_>,
) -> Result<FileReport, ReadError> {
    read_detail_from(file, reader, total_bytes, Detail::Whole, sink, on_progress)
}

fn read_detail_from<'a>(
    file: String,
    reader: Box<dyn Read + 'a>,
    total_bytes: Option<u64>,
    detail: Detail,
    sink: &mut Sink<'_>,
    on_progress: &mut OnProgress<'_>,
) -> Result<FileReport, ReadError> {
    let stored = Cell::new(0);
    let mut on_read = || on_progress(Progress { bytes: stored.get(), total_bytes });
    let mut reader = BufReader::with_capacity(64 << 10, Counting { reader, count: &stored });
    let start = first_bytes(&mut reader).map_err(|error| ReadError::Io { file: file.clone(), error })?;
    let compression = Compression::detect(&start);
    let reader = compression.open(Box::new(io::Cursor::new(start).chain(reader)));
    let reader = reader.map_err(|error| ReadError::Compression { file: file.clone(), error })?;

    let mut source = Source::new(reader, &mut on_read);
    let mut delivery = Delivery::new(file.clone(), sink);
    delivery.detail = detail;
    delivery.decompressed = compression != Compression::None;
    source.fill(4096);
    let (mut source, format) = if starts_json(source.rest()) {
        let (source, kind) = documents::read(source, &mut delivery);
        (source, kind.map(|kind| kind.name()))
    } else {
        match framing::detect(source.rest()) {
            Some(Framing::Bare) => {
                framing::bare(&mut source, &mut delivery);
                (source, Ok("OTLP protobuf"))
            }
            Some(Framing::LengthPrefixed) => {
                framing::length_prefixed(&mut source, &mut delivery);
                (source, Ok("OTLP protobuf with lengths"))
            }
            None => {
                let found = first_bytes_in_words(source.rest());
                (source, Err(found))
            }
        }
    };
    let damage = source.damage.take();
    let nothing = source.offset() == 0 && source.rest().is_empty();
    if let Some(error) = damage {
        if nothing || format.is_err() {
            return Err(match compression {
                Compression::None => ReadError::Io { file, error },
                _ => ReadError::Compression { file, error },
            });
        }
        let place = match compression {
            Compression::None => format!("offset {}", stored.get()),
            _ => format!("offset {} (decompressed)", source.offset() + source.rest().len() as u64),
        };
        delivery.skip_somewhere(place, format!("reading ended here: {error}"), None);
    }
    let format = format.map_err(|found| ReadError::UnknownFormat { file, found })?;
    let mut report = delivery.report;
    report.format = format!("{format}{}", compression.name());
    report.bytes = source.offset();
    Ok(report)
}

/// Reads enough to tell how the input is compressed.
fn first_bytes(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::with_capacity(4);
    reader.take(4).read_to_end(&mut start)?;
    Ok(start)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    fn detect(start: &[u8]) -> Compression {
        match start {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            _ if start == ZSTD_MAGIC => Compression::Zstd,
            // A skippable frame, as seekable zstd files may start with.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Compression::Zstd,
            _ => Compression::None,
        }
    }

    fn open<'a>(self, reader: Box<dyn Read + 'a>) -> io::Result<Box<dyn Read + 'a>> {
        Ok(match self {
            Compression::None => reader,
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(BufReader::new(reader))),
            Compression::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::new(reader)?;
                // `zstd --long=31` writes windows that a decoder refuses unless told otherwise.
                decoder.window_log_max(31)?;
                Box::new(decoder)
            }
        })
    }

    fn name(self) -> &'static str {
        match self {
            Compression::None => "",
            Compression::Gzip => ", gzip",
            Compression::Zstd => ", zstd",
        }
    }
}

/// Whether a text starts as a JSON object or array does. Protobuf may start with a newline and a brace too,
/// so the byte after the brace has to fit as well.
fn starts_json(start: &[u8]) -> bool {
    let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
    let mut bytes = start.iter().skip_while(is_blank);
    match bytes.next() {
        Some(b'{') => matches!(bytes.find(|byte| !is_blank(byte)), None | Some(b'"' | b'}')),
        Some(b'[') => matches!(bytes.find(|byte| !is_blank(byte)), None | Some(b'{' | b'[' | b']')),
        _ => false,
    }
}

fn first_bytes_in_words(start: &[u8]) -> String {
    if start.is_empty() {
        return "nothing: it is empty".into();
    }
    let start = &start[..start.len().min(16)];
    let captures: [&[u8]; 5] =
        [b"\n\r\r\n", b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d"];
    if captures.iter().any(|magic| start.starts_with(magic)) {
        return "a packet capture: `spangap dissect` reads it".into();
    }
    match std::str::from_utf8(start) {
        Ok(text) if !text.contains(|c: char| c.is_control() && !c.is_whitespace()) => {
            format!("text that starts with {text:?}")
        }
        _ => {
            let hex: Vec<String> = start.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("bytes that start with {}", hex.join(" "))
        }
    }
}

struct Counting<'c, R> {
    reader: R,
    count: &'c Cell<u64>,
}

impl<R: Read> Read for Counting<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buf)?;
        self.count.set(self.count.get() + read as u64);
        Ok(read)
    }
}

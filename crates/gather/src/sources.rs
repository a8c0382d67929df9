//! File types, detected by content, not by name.

use crate::{GatherError, documents};
use spangap_host::recording;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Number of bytes examined per file.
const SNIFFED_BYTES: u64 = 4_096;

/// Name of a folder within a folder: what was recorded of the same calls before anything was wrong.
pub const BEFORE: &str = "before";

/// The folder in a folder that has what was recorded [before](BEFORE); `None` if there is none.
pub fn before(folder: &Path) -> Option<PathBuf> {
    Some(folder.join(BEFORE)).filter(|before| before.is_dir())
}

/// Files recorded from the same traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// The folder that they were found in.
    pub folder: PathBuf,
    /// Captures of packets: pcap, pcapng, also compressed.
    pub captures: Vec<PathBuf>,
    /// Files of spans.
    pub spans: Vec<PathBuf>,
    /// Recordings of hosts.
    pub recordings: Vec<PathBuf>,
    /// The report of the tank that made the load.
    pub tank: Option<PathBuf>,
    /// Saved documents of other instruments.
    pub documents: Vec<PathBuf>,
    /// The report of the case that the files belong to: then all spans are of one pair.
    pub case: Option<PathBuf>,
    /// Other files.
    pub others: Vec<PathBuf>,
}

/// Type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Capture,
    Spans,
    Recording,
    Tank,
    Document,
    Case,
    Other,
}

impl Sources {
    /// All files directly in a folder, in the order of their names.
    ///
    /// # Errors
    /// When the folder or a file in it cannot be read.
    pub fn of_folder(folder: &Path) -> Result<Sources, GatherError> {
        let cannot = |error| GatherError::Io(folder.to_owned(), error);
        let mut files: Vec<PathBuf> = Vec::new();
        for entry in folder.read_dir().map_err(cannot)? {
            let path = entry.map_err(cannot)?.path();
            if path.is_file() {
                files.push(path);
            }
        }
        files.sort();
        let mut sources = Sources { folder: folder.to_owned(), ..Sources::default() };
        for file in files {
            sources.add(file)?;
        }
        Ok(sources)
    }

    /// Adds a file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn add(&mut self, file: PathBuf) -> Result<(), GatherError> {
        let kind = kind(&file).map_err(|error| GatherError::Io(file.clone(), error))?;
        match kind {
            Kind::Capture => self.captures.push(file),
            Kind::Spans => self.spans.push(file),
            Kind::Recording => self.recordings.push(file),
            Kind::Document => self.documents.push(file),
            Kind::Tank if self.tank.is_none() => self.tank = Some(file),
            Kind::Case if self.case.is_none() => self.case = Some(file),
            Kind::Tank | Kind::Case | Kind::Other => self.others.push(file),
        }
        Ok(())
    }

    /// Names of the span files, for people.
    pub fn names_of_spans(&self) -> String {
        self.spans.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    }
}

fn kind(path: &Path) -> std::io::Result<Kind> {
    let mut begin = Vec::new();
    File::open(path)?.take(SNIFFED_BYTES).read_to_end(&mut begin)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    Ok(kind_of(&name, &begin))
}

fn kind_of(name: &str, begin: &[u8]) -> Kind {
    const GZIP: &[u8] = &[0x1f, 0x8b];
    const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
    if begin.starts_with(recording::MAGIC) {
        return Kind::Recording;
    }
    if spangap_wire::source::is_capture(begin) {
        return Kind::Capture;
    }
    if begin.starts_with(GZIP) || begin.starts_with(ZSTD) {
        // The type of compressed content is unknown without decompressing it, so the name decides.
        return match name {
            name if name.contains(".pcap") || name.contains(".cap.") => Kind::Capture,
            name if name.contains("spans") || name.contains("trace") || name.contains(".json") => Kind::Spans,
            _ => Kind::Other,
        };
    }
    if documents::is_one(begin) {
        return Kind::Document;
    }
    let has = |key: &str| begin.windows(key.len()).any(|window| window == key.as_bytes());
    let first = begin.iter().find(|byte| !byte.is_ascii_whitespace());
    if !matches!(first, Some(b'{' | b'[')) {
        return if spangap_meter::ingest::file::is_otlp_protobuf(begin) { Kind::Spans } else { Kind::Other };
    }
    if ["\"pair\"", "\"trigger\"", "\"opened_unix_ms\""].into_iter().all(has) {
        return Kind::Case;
    }
    if has("\"resourceSpans\"") || has("\"resource_spans\"") || has("\"traceId\"") || has("\"traceID\"") {
        return Kind::Spans;
    }
    if has("\"runs\"") && has("\"stack\"") { Kind::Tank } else { Kind::Other }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_by_what_is_in_them() {
        for (name, begin, expected) in [
            ("x", &b"\xd4\xc3\xb2\xa1\x02\x00\x04\x00"[..], Kind::Capture),
            ("x", b"\x0a\x0d\x0d\x0a\x1c\x00\x00\x00\x4d\x3c\x2b\x1a", Kind::Capture),
            ("x", b"spangap host\x02\x00\x00\x00", Kind::Recording),
            ("x", b" {\"resourceSpans\":[]}", Kind::Spans),
            ("x", b"[{\"traceId\":\"1\"}]", Kind::Spans),
            ("a.pcap.gz", b"\x1f\x8b\x08", Kind::Capture),
            ("spans.json.zst", b"\x28\xb5\x2f\xfd", Kind::Spans),
            ("x", b"{\n \"runs\": [{\"stack\": \"rust\"}]}", Kind::Tank),
            ("x", b"{\n \"evidence\": {\n  \"version\": 1,", Kind::Document),
            ("truth.json", b"{\"culprit\": \"rto\"}", Kind::Other),
            (
                "x",
                b"{\"id\":\"7\",\"pair\":{},\"state\":\"open\",\"trigger\":{},\"opened_unix_ms\":1",
                Kind::Case,
            ),
            ("spans.pb", b"\x0a\x30\x0a\x18\x0a\x16\x0a\x0cservice.name\x12\x06\x0a\x04shop", Kind::Spans),
            ("x", b"\0\0\0\x32\x0a\x30\x0a\x18\x0a\x16\x0a\x0cservice.name\x12\x06", Kind::Spans),
            ("x", b"\0\0\x10\0\x28\xb5\x2f\xfd", Kind::Spans),
            ("notes", b"\nX\nlines that begin as a message might", Kind::Other),
            ("README", b"how it was made", Kind::Other),
            ("empty", b"", Kind::Other),
        ] {
            assert_eq!(kind_of(name, begin), expected, "{name} {:?}", String::from_utf8_lossy(begin));
        }
    }
}

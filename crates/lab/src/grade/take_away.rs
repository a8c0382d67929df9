//! Removal of evidence: the same run as recorded by somebody with fewer instruments.

use super::blind::{self, Means};
use crate::{LabError, folder};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use spangap_model::Side;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Evidence to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TakeAway {
    /// Recordings of both hosts.
    Hosts,
    /// Spans of both ends.
    Spans,
    /// Recordings of one host: its packets and threads. Its spans stay.
    End(Side),
    /// Bytes of each packet beyond [`SNAP`].
    Snap,
    /// Nine of ten traces, the same ones on both sides, like a head-based sampler.
    NineOfTen,
    /// The earlier window, where there is one.
    Before,
}

/// Bytes per packet with a short snap length: the default of agents.
pub const SNAP: usize = 512;
/// One in this many traces is kept.
const KEPT_ONE_IN: u64 = 10;

impl TakeAway {
    /// All of them.
    pub const ALL: [TakeAway; 7] = [
        TakeAway::Hosts,
        TakeAway::Spans,
        TakeAway::End(Side::Client),
        TakeAway::End(Side::Server),
        TakeAway::Snap,
        TakeAway::NineOfTen,
        TakeAway::Before,
    ];

    /// Name.
    pub fn name(self) -> &'static str {
        match self {
            TakeAway::Hosts => "hosts",
            TakeAway::Spans => "spans",
            TakeAway::End(Side::Client) => "client",
            TakeAway::End(Side::Server) => "server",
            TakeAway::Snap => "snap",
            TakeAway::NineOfTen => "spans-10%",
            TakeAway::Before => "before",
        }
    }

    /// Shows the evidence of a run in a new folder below `scratch`, without what is removed.
    ///
    /// # Errors
    /// Reading or writing fails.
    pub fn show(self, run: &Path, scratch: &Path, number: usize, means: Means) -> Result<PathBuf, LabError> {
        let shown = blind::show(run, scratch, number, means)?;
        let before = shown.join(folder::BEFORE);
        if self == TakeAway::Before && before.is_dir() {
            fs::remove_dir_all(&before).map_err(LabError::file("remove", &before))?;
        }
        // Who lacks an instrument lacked it before.
        for folder in [&shown, &before].into_iter().filter(|folder| folder.is_dir()) {
            self.removed_from(folder)?;
        }
        Ok(shown)
    }

    fn removed_from(self, from: &Path) -> Result<(), LabError> {
        let remove = |names: &[&str]| -> Result<(), LabError> {
            for path in names.iter().map(|name| from.join(name)).filter(|path| path.exists()) {
                fs::remove_file(&path).map_err(LabError::file("remove", &path))?;
            }
            Ok(())
        };
        match self {
            TakeAway::Hosts => remove(&Side::ALL.map(folder::recording))?,
            TakeAway::Spans => remove(&Side::ALL.map(folder::spans))?,
            TakeAway::End(side) => remove(&[folder::capture(side), folder::recording(side)])?,
            TakeAway::Snap => {
                for path in Side::ALL.map(|side| from.join(folder::capture(side))) {
                    if path.exists() {
                        let whole = fs::read(&path).map_err(LabError::file("read", &path))?;
                        let short = snapped(&whole, SNAP)
                            .map_err(|why| LabError::file("understand", &path)(std::io::Error::other(why)))?;
                        blind::replace(&path, &short)?;
                    }
                }
            }
            TakeAway::Before => {}
            TakeAway::NineOfTen => {
                for path in Side::ALL.map(|side| from.join(folder::spans(side))) {
                    if path.exists() {
                        let mut document: ExportTraceServiceRequest = folder::read_json(&path)?;
                        keep_some(&mut document);
                        let text = serde_json::to_vec(&document).expect("it is plain data");
                        blind::replace(&path, &text)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for TakeAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TakeAway {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || TakeAway::ALL.map(TakeAway::name).join(", ");
        TakeAway::ALL
            .into_iter()
            .find(|one| one.name() == text)
            .ok_or_else(|| format!("expected one of: {}", names()))
    }
}

/// Keeps one in ten traces by id alone, so that both sides keep the same ones.
fn keep_some(document: &mut ExportTraceServiceRequest) {
    let kept = |id: &[u8]| {
        // FNV-1a: spreads sequential ids as well as random ones.
        let hash = id.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        (hash >> 32) % KEPT_ONE_IN == 0
    };
    for scope in document.resource_spans.iter_mut().flat_map(|resource| &mut resource.scope_spans) {
        scope.spans.retain(|span| kept(&span.trace_id));
    }
}

/// Enhanced packet blocks of pcapng.
const PACKET: u32 = 6;
/// Bytes of such a block before its packet, including the length field at its end.
const BEFORE: usize = 28;

/// A capture with packets truncated to this many bytes, as if recorded so. The input was written by `spangap
/// capture` on this machine: pcapng, little-endian.
fn snapped(whole: &[u8], snap: usize) -> Result<Vec<u8>, String> {
    let mut short = Vec::with_capacity(whole.len());
    let mut at = 0;
    while at < whole.len() {
        let word = |offset: usize| -> Result<u32, String> {
            let bytes = whole.get(at + offset..at + offset + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_le_bytes).ok_or_else(|| format!("offset {at}: the capture ends in a block"))
        };
        let (kind, length) = (word(0)?, word(4)? as usize);
        let block = whole.get(at..at + length).filter(|block| block.len() >= 12 && block.len() % 4 == 0);
        let block = block.ok_or_else(|| format!("offset {at}: a block of {length} bytes"))?;
        at += length;
        if kind != PACKET {
            short.extend(block);
            continue;
        }
        let captured = block.get(20..24).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
        let captured =
            captured.ok_or_else(|| format!("offset {at}: a packet block of {length} bytes"))? as usize;
        let options = BEFORE + captured.next_multiple_of(4);
        let (Some(packet), Some(options)) =
            (block.get(BEFORE..BEFORE + captured.min(snap)), block.get(options..length - 4))
        else {
            return Err(format!("offset {at}: a packet of {captured} bytes in a block of {length}"));
        };
        let padded = packet.len().next_multiple_of(4);
        let length = (BEFORE + padded + options.len() + 4) as u32;
        short.extend(&block[..4]);
        short.extend(length.to_le_bytes());
        short.extend(&block[8..20]);
        short.extend((packet.len() as u32).to_le_bytes());
        short.extend(&block[24..BEFORE]);
        short.extend(packet);
        short.resize(short.len() + padded - packet.len(), 0);
        short.extend(options);
        short.extend(length.to_le_bytes());
    }
    Ok(short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};

    fn packet(bytes: &[u8], options: &[u8]) -> Vec<u8> {
        let padded = bytes.len().next_multiple_of(4);
        let length = (BEFORE + padded + options.len() + 4) as u32;
        let words = [PACKET, length, 0, 7, 8, bytes.len() as u32, 1_500];
        let mut block: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        block.extend(bytes);
        block.resize(BEFORE + padded, 0);
        block.extend(options);
        block.extend(length.to_le_bytes());
        block
    }

    #[test]
    fn only_packets_are_truncated() {
        let other = [5_u32, 12, 12].map(u32::to_le_bytes).concat();
        let options = [1; 8];
        let whole = [other.clone(), packet(&[9; 11], &options), packet(&[9; 3], &[]), other.clone()].concat();
        let expected = [other.clone(), packet(&[9; 6], &options), packet(&[9; 3], &[]), other].concat();
        assert_eq!(snapped(&whole, 6), Ok(expected));
        assert_eq!(snapped(&whole, 64), Ok(whole.clone()));
        for end in 1..whole.len() {
            // A truncated capture is reported, or ends between two blocks.
            let _ = snapped(&whole[..end], 6);
        }
        assert!(snapped(&whole[..whole.len() - 2], 6).is_err());
    }

    #[test]
    fn both_ends_keep_the_same_traces() {
        let spans = |kind: i32| -> Vec<Vec<u8>> {
            let span = |n: u16| Span { trace_id: n.to_be_bytes().repeat(8), kind, ..Span::default() };
            let spans = ScopeSpans { spans: (0..2_000).map(span).collect(), ..ScopeSpans::default() };
            let resource = ResourceSpans { scope_spans: vec![spans], ..ResourceSpans::default() };
            let mut document = ExportTraceServiceRequest { resource_spans: vec![resource] };
            keep_some(&mut document);
            let spans = &document.resource_spans[0].scope_spans[0].spans;
            spans.iter().map(|span| span.trace_id.clone()).collect()
        };
        let kept = spans(3);
        assert_eq!(kept, spans(2));
        assert!((120..280).contains(&kept.len()), "{} of 2,000", kept.len());
    }

    #[test]
    fn removed_evidence_is_missing_and_the_rest_is_there() {
        let root = tempfile::tempdir().expect("a folder");
        let run = root.path().join("run");
        fs::create_dir(&run).expect("a folder");
        for file in folder::EVIDENCE {
            fs::write(run.join(file), "{}").expect("a file");
        }
        let left = |what: TakeAway, number| -> Vec<&str> {
            let shown = what.show(&run, root.path(), number, Means::Link).expect("a copy");
            folder::EVIDENCE.into_iter().filter(|file| !shown.join(file).exists()).collect()
        };
        assert_eq!(left(TakeAway::Hosts, 1), ["client.host", "server.host"]);
        assert_eq!(left(TakeAway::Spans, 2), ["client.spans.json", "server.spans.json"]);
        assert_eq!(left(TakeAway::End(Side::Server), 3), ["server.pcapng", "server.host"]);
        let before = |shown: &Path| {
            let there = |file: &&str| shown.join(folder::BEFORE).join(file).exists();
            folder::EVIDENCE.into_iter().filter(there).count()
        };
        fs::create_dir(run.join(folder::BEFORE)).expect("a folder");
        for file in folder::EVIDENCE {
            fs::write(run.join(folder::BEFORE).join(file), "{}").expect("a file");
        }
        let shown = TakeAway::Hosts.show(&run, root.path(), 4, Means::Link).expect("a copy");
        assert_eq!(before(&shown), folder::EVIDENCE.len() - 2);
        let shown = TakeAway::Before.show(&run, root.path(), 5, Means::Link).expect("a copy");
        assert!(!shown.join(folder::BEFORE).exists() && shown.join("server.host").exists());
        for one in TakeAway::ALL {
            assert_eq!(one.name().parse(), Ok(one));
        }
        assert!("everything".parse::<TakeAway>().is_err_and(|why| why.contains("spans-10%")));
    }
}

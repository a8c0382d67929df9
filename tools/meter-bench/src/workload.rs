//! Batches of spans, encoded once and sent many times with fresh ids.
//!
//! A workload file (`GAPLOAD1`) consists of the magic, a `u32` length and that much JSON; then for each batch
//! `u32` bytes, `u32` spans, `u64` time, and an encoded `ExportTraceServiceRequest`. All numbers are
//! little-endian.

use crate::BenchError;
use std::path::Path;

const MAGIC: &[u8] = b"GAPLOAD1";
const BATCH_HEADER: usize = 16;

/// One export request.
pub struct SpanBatch {
    /// Encoded `ExportTraceServiceRequest`.
    pub bytes: Vec<u8>,
    pub spans: u64,
    /// Offsets of the trace ids, span ids and parents' span ids in `bytes`.
    ids: Vec<u32>,
}

/// Batches in the order in which exporters would send them.
pub struct Workload {
    pub batches: Vec<SpanBatch>,
}

impl SpanBatch {
    /// A batch from an encoded request; `None` if it is invalid.
    pub fn new(bytes: Vec<u8>) -> Option<SpanBatch> {
        let mut found = Ids::default();
        find_ids(&bytes, 0, Level::Request, &mut found)?;
        Some(SpanBatch { bytes, spans: found.spans, ids: found.at })
    }

    /// A copy with the ids of pass `pass`: equal ids stay equal, and different passes share none. Pass 0 is
    /// the unchanged batch.
    pub fn of_pass(&self, pass: u32) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        self.patch(pass, &mut bytes);
        bytes
    }

    /// Changes the ids in `bytes`, a copy of this batch, to those of pass `pass`.
    pub fn patch(&self, pass: u32, bytes: &mut [u8]) {
        // An odd factor keeps different passes different and spreads them over all bits.
        let mask = pass.wrapping_mul(0x9e37_79b1).to_le_bytes();
        for at in &self.ids {
            let at = *at as usize;
            for (byte, mask) in bytes[at..at + 4].iter_mut().zip(mask) {
                *byte ^= mask;
            }
        }
    }
}

impl Workload {
    /// Reads a workload file.
    ///
    /// # Errors
    /// The file, and the offset of the error.
    pub fn read(path: &Path) -> Result<Workload, BenchError> {
        let data = std::fs::read(path).map_err(BenchError::file(path))?;
        let wrong = |offset, expected| BenchError::Format { path: path.into(), offset, expected };
        let word = |at: usize| {
            let bytes = data.get(at..at + 4).and_then(|b| b.try_into().ok());
            bytes.map(u32::from_le_bytes).ok_or(wrong(at, "four bytes of a length"))
        };
        if !data.starts_with(MAGIC) {
            return Err(wrong(0, "the magic GAPLOAD1"));
        }
        let mut at = MAGIC.len() + 4 + word(MAGIC.len())? as usize;
        let mut batches = Vec::new();
        while at < data.len() {
            let (len, spans) = (word(at)? as usize, word(at + 4)?);
            let start = at + BATCH_HEADER;
            let bytes = data.get(start..start + len).ok_or(wrong(start, "a whole batch"))?;
            let batch = SpanBatch::new(bytes.into()).ok_or(wrong(start, "an ExportTraceServiceRequest"))?;
            if batch.spans != u64::from(spans) {
                return Err(wrong(at + 4, "the number of spans in the batch"));
            }
            batches.push(batch);
            at = start + len;
        }
        Ok(Workload { batches })
    }

    pub fn spans(&self) -> u64 {
        self.batches.iter().map(|batch| batch.spans).sum()
    }

    /// Number of bytes in all requests.
    pub fn bytes(&self) -> u64 {
        self.batches.iter().map(|batch| batch.bytes.len() as u64).sum()
    }
}

#[derive(Default)]
struct Ids {
    at: Vec<u32>,
    spans: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Request,
    ResourceSpans,
    ScopeSpans,
    Span,
}

fn find_ids(bytes: &[u8], base: usize, level: Level, found: &mut Ids) -> Option<()> {
    let mut at = 0;
    while at < bytes.len() {
        let tag = varint(bytes, &mut at)?;
        match tag & 7 {
            0 => drop(varint(bytes, &mut at)?),
            1 => at += 8,
            5 => at += 4,
            2 => {
                let len = usize::try_from(varint(bytes, &mut at)?).ok()?;
                let inside = bytes.get(at..at.checked_add(len)?)?;
                let next = match (level, tag >> 3) {
                    (Level::Request, 1) => Some(Level::ResourceSpans),
                    (Level::ResourceSpans, 2) => Some(Level::ScopeSpans),
                    (Level::ScopeSpans, 2) => Some(Level::Span),
                    _ => None,
                };
                if let Some(next) = next {
                    found.spans += u64::from(next == Level::Span);
                    find_ids(inside, base + at, next, found)?;
                } else if level == Level::Span && matches!((tag >> 3, len), (1, 16) | (2 | 4, 8)) {
                    found.at.push(u32::try_from(base + at).ok()?);
                }
                at += len;
            }
            _ => return None,
        }
    }
    (at == bytes.len()).then_some(())
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Shape, generate};
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use prost::Message;
    use std::collections::HashSet;

    fn ids(bytes: &[u8]) -> Vec<(Vec<u8>, Vec<u8>, Vec<u8>)> {
        let request = ExportTraceServiceRequest::decode(bytes).expect("a request");
        let scopes = request.resource_spans.into_iter().flat_map(|r| r.scope_spans);
        scopes.flat_map(|s| s.spans).map(|s| (s.trace_id, s.span_id, s.parent_span_id)).collect()
    }

    #[test]
    fn passes_differ_in_ids_and_keep_the_joins() {
        let (workload, _) = generate(&Shape { spans: 2048, ..Shape::default() });
        let all = |pass| -> Vec<_> { workload.batches.iter().flat_map(|b| ids(&b.of_pass(pass))).collect() };
        let clients =
            |pass| -> HashSet<_> { all(pass).into_iter().map(|(trace, span, _)| (trace, span)).collect() };
        let joined = |pass| {
            let clients = clients(pass);
            all(pass)
                .into_iter()
                .filter(|(trace, _, parent)| clients.contains(&(trace.clone(), parent.clone())))
                .count()
        };
        assert_eq!(all(0).len() as u64, workload.spans());
        assert!(joined(0) > 500);
        assert_eq!(joined(0), joined(7));
        assert!(clients(0).is_disjoint(&clients(7)));
    }

    #[test]
    fn a_file_survives_a_round_trip_and_a_truncated_one_is_refused() {
        let (workload, _) = generate(&Shape { spans: 1024, ..Shape::default() });
        let mut data = b"GAPLOAD1\x02\0\0\0{}".to_vec();
        for batch in &workload.batches {
            data.extend((batch.bytes.len() as u32).to_le_bytes());
            data.extend((batch.spans as u32).to_le_bytes());
            data.extend([0; 8]);
            data.extend(&batch.bytes);
        }
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), &data).expect("to write it");
        let read = Workload::read(file.path()).expect("a workload");
        assert_eq!((read.spans(), read.bytes()), (workload.spans(), workload.bytes()));

        std::fs::write(file.path(), &data[..data.len() - 1]).expect("to write it");
        let error = Workload::read(file.path()).err().expect("an error").to_string();
        assert!(error.contains("expected a whole batch"), "{error}");
    }
}

//! The captured bytes of one direction of a connection, and the part of them that may be shown.

use crate::app::proxy_header::{self, ProxyHeader};
use std::collections::BTreeMap;

/// Contiguous bytes.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// Offset of the first.
    pub at: u64,
    /// Original bytes.
    pub bytes: Vec<u8>,
    /// Masked bytes: zeros unless shown to be harmless.
    pub masked: Vec<u8>,
    /// Starts of segments.
    pub segments: Vec<usize>,
}

impl Run {
    /// Keeps bytes unmasked.
    pub fn show(&mut self, from: usize, to: usize) {
        self.masked[from..to].copy_from_slice(&self.bytes[from..to]);
    }

    /// The range of the segment that begins at `segments[place]`.
    pub fn segment(&self, place: usize) -> std::ops::Range<usize> {
        self.segments[place]..self.segments.get(place + 1).copied().unwrap_or(self.bytes.len())
    }
}

/// One direction.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Whether its first byte is known, because its SYN was seen.
    pub from_start: bool,
    /// Sequence number and offset of the latest bytes.
    last: Option<(u32, u64)>,
    /// Length of a proxy's header that was taken off its beginning.
    taken: u64,
    /// Pieces in order, without overlaps.
    pieces: BTreeMap<u64, Vec<u8>>,
    pub runs: Vec<Run>,
}

/// Offset of the first byte seen, with room for earlier ones.
const FIRST: u64 = 1 << 40;

impl Stream {
    /// A direction without any bytes yet.
    pub fn new(from_start: bool) -> Stream {
        Stream { from_start, ..Stream::default() }
    }

    /// Offset of a sequence number.
    pub fn offset(&mut self, seq: u32) -> u64 {
        let (last, at) = *self.last.get_or_insert((seq, FIRST));
        let offset = at.wrapping_add_signed(i64::from(seq.wrapping_sub(last) as i32));
        self.last = Some((seq, offset));
        offset
    }

    /// Adds bytes. Existing bytes take precedence.
    pub fn put(&mut self, mut offset: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let before = self.pieces.range(..=offset).next_back();
            let covered = before.map_or(0, |(at, piece)| (at + piece.len() as u64).saturating_sub(offset));
            let skip = usize::try_from(covered).unwrap_or(usize::MAX).min(bytes.len());
            (offset, bytes) = (offset + skip as u64, &bytes[skip..]);
            if skip > 0 {
                continue;
            }
            let next = self.pieces.range(offset..).next().map_or(u64::MAX, |(at, _)| *at);
            let len = usize::try_from(next - offset).unwrap_or(usize::MAX).min(bytes.len());
            self.pieces.insert(offset, bytes[..len].to_vec());
            (offset, bytes) = (offset + len as u64, &bytes[len..]);
        }
    }

    /// Joins the pieces to runs. Nothing can be added afterwards.
    pub fn join(&mut self) {
        for (at, piece) in std::mem::take(&mut self.pieces) {
            if self.runs.last().is_none_or(|run| run.at + run.bytes.len() as u64 != at) {
                self.runs.push(Run { at, ..Run::default() });
            }
            if let Some(run) = self.runs.last_mut() {
                run.segments.push(run.bytes.len());
                run.bytes.extend(piece);
            }
        }
        self.runs.iter_mut().for_each(|run| run.masked = vec![0; run.bytes.len()]);
    }

    /// Its first bytes, if known.
    pub fn begin(&self) -> Option<&[u8]> {
        let first = self.runs.first()?;
        (self.from_start && first.at == FIRST + self.taken).then_some(&first.bytes)
    }

    /// Takes the header of a proxy off its beginning, masked; the rest begins after it.
    pub fn take_proxy_header(&mut self) -> Option<Run> {
        let begin = self.begin().unwrap_or_default();
        let ProxyHeader::Len(len) = proxy_header::look(begin) else { return None };
        let first = self.runs.first_mut()?;
        let rest = first.bytes.split_off(len);
        let segments = first.segments.iter().filter_map(|at| at.checked_sub(len)).collect();
        let next = Run { at: first.at + len as u64, masked: vec![0; rest.len()], bytes: rest, segments };
        first.masked = proxy_header::without_addresses(&first.bytes);
        let header = std::mem::replace(first, next);
        self.taken = len as u64;
        if first.bytes.is_empty() {
            self.runs.remove(0);
        } else if first.segments.first() != Some(&0) {
            // The header and what follows came in one segment.
            first.segments.insert(0, 0);
        }
        Some(header)
    }

    /// Puts back what was taken off.
    pub fn put_back(&mut self, header: Option<Run>) {
        self.runs.splice(0..0, header);
    }

    /// Replaces bytes that were added at `offset` by the part of them that may be shown.
    pub fn masked(&self, mut offset: u64, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let after = self.runs.partition_point(|run| run.at <= offset);
            let run = after.checked_sub(1).map(|place| &self.runs[place]);
            let within = run.and_then(|run| Some((run, usize::try_from(offset - run.at).ok()?)));
            let Some((run, from)) = within.filter(|(run, from)| *from < run.bytes.len()) else {
                bytes.fill(0);
                return;
            };
            let len = bytes.len().min(run.bytes.len() - from);
            let (head, rest) = bytes.split_at_mut(len);
            for (place, byte) in head.iter_mut().enumerate() {
                // A retransmission with other content: nobody has examined that.
                let same = *byte == run.bytes[from + place];
                *byte = if same { run.masked[from + place] } else { 0 };
            }
            (offset, bytes) = (offset + len as u64, rest);
        }
    }
}

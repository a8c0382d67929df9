//! Reassembles datagrams from their fragments, in bounded memory.

use super::ip::Ip;
use super::link::Bytes;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Maximum incomplete datagrams at once; the oldest is dropped for a new one.
const MAX_DATAGRAMS: usize = 1024;
/// Maximum fragments of one datagram: 64 KiB in pieces of the smallest payload that every host must accept (RFC
/// 791: 68 bytes, 48 of them payload).
const MAX_PIECES: usize = 1366;
/// A datagram's fragments arrive within this time, or belong to different datagrams (RFC 8200, 4.5).
const PATIENCE_NS: u64 = 60_000_000_000;
/// Maximum size of a datagram.
const MAX_DATAGRAM_BYTES: u32 = 65_535;

/// Statistics of fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentCounts {
    /// Fragments seen.
    pub seen: u64,
    /// Datagrams reassembled.
    pub datagrams: u64,
    /// Duplicate fragments.
    pub repeated: u64,
    /// Datagrams rejected, because two fragments overlap or contradict each other (RFC 5722).
    pub refused: u64,
    /// Datagrams dropped while incomplete: expired, or evicted.
    pub given_up: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    source: [u8; 16],
    destination: [u8; 16],
    network: u32,
    id: u32,
    protocol: u8,
}

#[derive(Debug)]
struct Piece {
    offset: u32,
    /// Length on the wire, and the captured bytes.
    len: u32,
    bytes: Box<[u8]>,
}

#[derive(Debug)]
struct Datagram {
    begun_ns: i64,
    serial: u64,
    /// By offset, without overlaps.
    pieces: Vec<Piece>,
    /// Length on the wire so far, and in total once the last fragment was seen.
    bytes: u32,
    total: Option<u32>,
    /// Two fragments contradict each other: all of it is discarded.
    refused: bool,
}

/// Incomplete datagrams.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    datagrams: FxHashMap<Key, Datagram>,
    /// In order of their first fragment, including those finished since.
    order: VecDeque<(Key, u64)>,
    serial: u64,
    pub counts: FragmentCounts,
}

impl Fragments {
    /// Adds a fragment. If it completes its datagram, stores that in `whole` and returns the packet as if it had
    /// never been fragmented; if the capture cut a fragment, the payload ends there.
    pub fn add<'a>(
        &mut self,
        ip: &Ip<'_>,
        network: u32,
        now_ns: i64,
        whole: &'a mut Vec<u8>,
    ) -> Option<Ip<'a>> {
        let place = ip.fragment?;
        self.counts.seen += 1;
        let Ip { source, destination, protocol, id, .. } = *ip;
        let key = Key { source, destination, network, id: place.id, protocol };
        if self.datagrams.get(&key).is_some_and(|old| now_ns.abs_diff(old.begun_ns) > PATIENCE_NS) {
            self.give_up(&key);
        }
        if !self.datagrams.contains_key(&key) {
            self.begin(key, now_ns);
        }
        let datagram = self.datagrams.get_mut(&key)?;
        if datagram.refused {
            return None;
        }
        match datagram.add(place.offset, place.more, ip.payload) {
            Added::Stored => {}
            Added::Repeated => self.counts.repeated += 1,
            Added::Contradicts => {
                // It stays as a marker until it expires, so that its other fragments do not start a new datagram.
                datagram.refused = true;
                datagram.pieces = Vec::new();
                self.counts.refused += 1;
            }
        }
        if datagram.total != Some(datagram.bytes) || datagram.refused {
            return None;
        }
        let datagram = self.datagrams.remove(&key)?;
        self.counts.datagrams += 1;
        whole.clear();
        for piece in &datagram.pieces {
            whole.extend_from_slice(&piece.bytes);
            if piece.bytes.len() < piece.len as usize {
                break;
            }
        }
        let payload = Bytes { data: whole, wire_len: datagram.bytes };
        Some(Ip { source, destination, protocol, id, fragment: None, payload })
    }

    fn begin(&mut self, key: Key, now_ns: i64) {
        // Finished datagrams leave stale entries in the order, which are skipped here; their number is bounded,
        // too.
        while self.datagrams.len() >= MAX_DATAGRAMS || self.order.len() >= 4 * MAX_DATAGRAMS {
            let Some((oldest, serial)) = self.order.pop_front() else { break };
            if self.datagrams.get(&oldest).is_some_and(|datagram| datagram.serial == serial) {
                self.give_up(&oldest);
            }
        }
        self.serial += 1;
        let serial = self.serial;
        self.order.push_back((key, serial));
        let (pieces, bytes) = (Vec::new(), 0);
        let datagram = Datagram { begun_ns: now_ns, serial, pieces, bytes, total: None, refused: false };
        self.datagrams.insert(key, datagram);
    }

    fn give_up(&mut self, key: &Key) {
        if self.datagrams.remove(key).is_some_and(|datagram| !datagram.refused) {
            self.counts.given_up += 1;
        }
    }
}

enum Added {
    Stored,
    Repeated,
    Contradicts,
}

impl Datagram {
    fn add(&mut self, offset: u32, more: bool, payload: Bytes<'_>) -> Added {
        let (len, end) = (payload.wire_len, u64::from(offset) + u64::from(payload.wire_len));
        // All but the last have a length in multiples of eight, since offsets are.
        if end > u64::from(MAX_DATAGRAM_BYTES) || len == 0 || (more && !len.is_multiple_of(8)) {
            return Added::Contradicts;
        }
        let end = end as u32;
        let at = self.pieces.partition_point(|piece| piece.offset < offset);
        let next = self.pieces.get(at);
        if next.is_some_and(|next| next.offset == offset && next.len == len) {
            let same = next.is_some_and(|next| *next.bytes == *payload.data);
            return if same { Added::Repeated } else { Added::Contradicts };
        }
        let before = at.checked_sub(1).and_then(|at| self.pieces.get(at));
        let overlaps = next.is_some_and(|next| next.offset < end)
            || before.is_some_and(|before| before.offset + before.len > offset);
        let beyond = if more {
            self.total.is_some_and(|total| end > total)
        } else {
            self.total.is_some() || self.pieces.last().is_some_and(|last| last.offset + last.len > end)
        };
        if overlaps || beyond || self.pieces.len() >= MAX_PIECES {
            return Added::Contradicts;
        }
        if !more {
            self.total = Some(end);
        }
        self.bytes += len;
        self.pieces.insert(at, Piece { offset, len, bytes: payload.data.into() });
        Added::Stored
    }
}

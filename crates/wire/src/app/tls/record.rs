//! Splits a stream of bytes into records (RFC 8446, 5.1).

use crate::app::{Look, Spoken};
use crate::exchange::Mark;
use crate::tcp::{Chunk, Hole};
use spangap_model::Side;

/// Content type of ChangeCipherSpec.
pub const CHANGE_CIPHER: u8 = 20;
/// Content type of the handshake.
pub const HANDSHAKE: u8 = 22;
/// Content type of application data and, in TLS 1.3, of everything encrypted.
pub const APPLICATION_DATA: u8 = 23;

const HEADER_BYTES: usize = 5;

/// Maximum payload: 2^14 plus the maximum expansion of a TLS 1.2 cipher.
const MAX_PAYLOAD_BYTES: usize = (1 << 14) + 2048;

/// A complete record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The sender.
    pub from: Side,
    /// Stream offset of its header.
    pub offset: u64,
    /// Type, version, length.
    pub header: &'a [u8; HEADER_BYTES],
    /// The rest.
    pub payload: &'a [u8],
    /// Marks of its bytes, each valid from an offset in the record.
    marks: &'a [(usize, Mark)],
}

/// Bytes of a record that share a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Number of bytes.
    pub len: usize,
    /// When they were seen, and when the whole record was ready.
    pub at: Mark,
}

impl Record<'_> {
    /// Content type.
    pub fn kind(&self) -> u8 {
        self.header[0]
    }

    /// Length on the wire.
    pub fn len(&self) -> u64 {
        (HEADER_BYTES + self.payload.len()) as u64
    }

    /// Mark of its last byte.
    pub fn last(&self) -> Mark {
        self.marks.last().map_or(Mark::default(), |(_, mark)| *mark)
    }

    /// Marks of `len` bytes of the payload, starting at `skip`. All are ready when the record is; the last one
    /// was seen when the record's last byte was, since it cannot be decrypted earlier.
    pub fn pieces(&self, skip: usize, len: usize) -> impl Iterator<Item = Piece> {
        let (marks, last) = (self.marks, self.last());
        let mut done = 0;
        std::iter::from_fn(move || {
            if done >= len {
                return None;
            }
            let at = HEADER_BYTES + skip + done;
            let next = marks.partition_point(|(from, _)| *from <= at);
            let mut mark = marks.get(next.checked_sub(1)?)?.1;
            let mut piece = marks.get(next).map_or(len - done, |(from, _)| (from - at).min(len - done));
            if done + piece == len && next < marks.len() {
                // Its end is in a later packet.
                if piece > 1 { piece -= 1 } else { mark = last }
            }
            done += piece;
            Some(Piece {
                len: piece,
                at: Mark { ready_ns: last.ready_ns, ready_packet: last.ready_packet, ..mark },
            })
        })
    }
}

/// The next item.
#[derive(Debug)]
pub enum Found<'a> {
    /// Nothing yet.
    Nothing,
    /// A whole record.
    Whole(Record<'a>),
    /// Application data of this size, whose bytes follow as they arrive.
    Begins(usize),
    /// Bytes of it.
    Part(Chunk<'a>),
    /// Number of unusable bytes: of a record with missing bytes, or after one.
    Skipped(u64),
    /// The bytes are not records.
    Lost,
}

/// Extent of missing bytes.
#[derive(Clone, Copy, Debug)]
pub enum Missing {
    /// Bytes of a record that is already skipped.
    Inside,
    /// Exactly one record.
    Record(Hole),
    /// An unknown number of records.
    Unknown(Hole),
}

/// One side's records.
#[derive(Debug, Default)]
pub struct Records {
    /// Start of an incomplete record.
    held: Vec<u8>,
    /// Whether `held` was delivered.
    complete: bool,
    marks: Vec<(usize, Mark)>,
    offset: u64,
    place: Place,
}

#[derive(Clone, Copy, Debug, Default)]
enum Place {
    #[default]
    Record,
    /// Remaining bytes of application data that is not collected.
    Through(usize),
    /// Remaining bytes of a record with missing bytes.
    Skip(usize),
    Lost,
}

/// Length of a payload; `None` if this is not a header.
fn payload_bytes(header: &[u8; HEADER_BYTES]) -> Option<usize> {
    let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
    let known = (CHANGE_CIPHER..=24).contains(&header[0]) && header[1] == 3 && header[2] <= 4;
    (known && len <= MAX_PAYLOAD_BYTES).then_some(len)
}

impl Records {
    /// The next item, and the number of bytes of `chunk` that it consumes. `through`: application data is not
    /// collected.
    pub fn next<'a>(&'a mut self, chunk: Chunk<'a>, through: bool) -> (usize, Found<'a>) {
        let bytes = chunk.bytes;
        match &mut self.place {
            Place::Record => {}
            Place::Through(left) | Place::Skip(left) => {
                let used = (*left).min(bytes.len());
                *left -= used;
                let (rest, part) = (*left, matches!(self.place, Place::Through(_)));
                if rest == 0 {
                    self.place = Place::Record;
                }
                let found = if part {
                    Found::Part(Chunk { bytes: &bytes[..used], ..chunk })
                } else {
                    Found::Skipped(used as u64)
                };
                return (used, found);
            }
            Place::Lost if bytes.len() >= HEADER_BYTES && matches!(looks_like(bytes, true), Look::Is(_)) => {
                self.place = Place::Record;
            }
            Place::Lost => return (bytes.len(), Found::Skipped(bytes.len() as u64)),
        }
        if std::mem::take(&mut self.complete) {
            self.held.clear();
            self.held.shrink_to(MAX_PAYLOAD_BYTES);
        }
        if self.held.is_empty() {
            (self.offset, self.marks) = (chunk.offset, std::mem::take(&mut self.marks));
            self.marks.clear();
            if let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() {
                match payload_bytes(header) {
                    None => return self.lose(bytes.len()),
                    Some(len) if through && header[0] == APPLICATION_DATA => {
                        return self.through(HEADER_BYTES, len);
                    }
                    Some(len) if len <= rest.len() => {
                        self.marks.push((0, chunk.at));
                        let (from, offset, payload) = (chunk.from, chunk.offset, &rest[..len]);
                        let record = Record { from, offset, header, payload, marks: &self.marks };
                        return (HEADER_BYTES + len, Found::Whole(record));
                    }
                    Some(_) => {}
                }
            }
        }
        self.collect(chunk, through)
    }

    fn collect<'a>(&'a mut self, chunk: Chunk<'a>, through: bool) -> (usize, Found<'a>) {
        let held = self.held.len();
        let whole = match self.held.first_chunk().map(payload_bytes) {
            None => HEADER_BYTES,
            Some(None) => return self.lose(chunk.bytes.len()),
            Some(Some(len)) => HEADER_BYTES + len,
        };
        let used = (whole - held).min(chunk.bytes.len());
        if self.marks.last().is_none_or(|(_, mark)| *mark != chunk.at) {
            self.marks.push((held, chunk.at));
        }
        self.held.extend_from_slice(&chunk.bytes[..used]);
        let Some((header, _)) = self.held.split_first_chunk::<HEADER_BYTES>() else {
            return (used, Found::Nothing);
        };
        let (kind, len) = match payload_bytes(header) {
            Some(len) => (header[0], len),
            None => return self.lose(used),
        };
        if through && kind == APPLICATION_DATA && self.held.len() == HEADER_BYTES {
            return self.through(used, len);
        }
        if self.held.len() < HEADER_BYTES + len {
            return (used, Found::Nothing);
        }
        self.complete = true;
        let Some((header, payload)) = self.held.split_first_chunk() else { return (used, Found::Nothing) };
        (
            used,
            Found::Whole(Record {
                from: chunk.from,
                offset: self.offset,
                header,
                payload,
                marks: &self.marks,
            }),
        )
    }

    fn through(&mut self, used: usize, len: usize) -> (usize, Found<'static>) {
        self.held.clear();
        self.place = if len == 0 { Place::Record } else { Place::Through(len) };
        (used, Found::Begins(len))
    }

    fn lose(&mut self, used: usize) -> (usize, Found<'static>) {
        self.held = Vec::new();
        self.place = Place::Lost;
        (used, Found::Lost)
    }

    /// Skips missing bytes.
    pub fn hole(&mut self, hole: &Hole) -> Missing {
        let len = usize::try_from(hole.len).unwrap_or(usize::MAX);
        if std::mem::take(&mut self.complete) {
            self.held.clear();
        }
        match &mut self.place {
            Place::Through(left) | Place::Skip(left) if len <= *left => {
                *left -= len;
                if *left == 0 {
                    self.place = Place::Record;
                }
                return Missing::Inside;
            }
            Place::Record if self.held.len() >= HEADER_BYTES => {
                let whole = self.held.first_chunk().and_then(payload_bytes).unwrap_or(0) + HEADER_BYTES;
                let left = whole.saturating_sub(self.held.len());
                if len <= left {
                    self.held.clear();
                    self.place = if len == left { Place::Record } else { Place::Skip(left - len) };
                    return Missing::Record(Hole { offset: self.offset, len: whole as u64, ..*hole });
                }
            }
            _ => {}
        }
        let offset = if self.held.is_empty() { hole.offset } else { self.offset };
        self.held.clear();
        self.place = Place::Lost;
        Missing::Unknown(Hole { offset, len: hole.offset + hole.len - offset, ..*hole })
    }

    /// Memory use in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.held.capacity() + self.marks.capacity() * std::mem::size_of::<(usize, Mark)>()
    }
}

/// Whether bytes begin with a record: a ClientHello or, if `joined`, any.
pub fn looks_like(bytes: &[u8], joined: bool) -> Look {
    let (mut rest, mut records) = (bytes, 0);
    loop {
        let fits = |at: usize, test: &dyn Fn(u8) -> bool| rest.get(at).is_none_or(|byte| test(*byte));
        let hello = fits(0, &|b| b == HANDSHAKE) && fits(5, &|b| b == 1) && fits(9, &|b| b == 3);
        let any = joined && fits(0, &|b| (CHANGE_CIPHER..=APPLICATION_DATA).contains(&b));
        if !(hello || any) || !fits(1, &|b| b == 3) || !fits(2, &|b| b <= 4) {
            return Look::Unknown;
        }
        let Some(header) = rest.first_chunk::<HEADER_BYTES>() else {
            return if records > 0 { Look::Is(Spoken::Tls) } else { Look::More };
        };
        let Some(len) = payload_bytes(header).filter(|len| *len > 0) else { return Look::Unknown };
        if !joined {
            return if rest.len() > 9 { Look::Is(Spoken::Tls) } else { Look::More };
        }
        records += 1;
        match rest.get(HEADER_BYTES + len..) {
            None | Some([]) => return Look::Is(Spoken::Tls),
            Some(after) => rest = after,
        }
    }
}

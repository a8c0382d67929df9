//! A block: requests written to disk together, some hundred kilobytes, after a head with their description
//! and checksum.
//!
//! A concatenation of OTLP requests is one OTLP request, and so is a concatenation of gzip members or zstd
//! frames once decompressed: requests that arrive compressed are stored unchanged, and only the others are
//! compressed here.

use crate::ingest::wire::WalkError;
use crc32fast::Hasher;
use std::io::{self, Read};

/// Size of a head on disk.
pub const HEAD_BYTES: usize = 40;
/// Blocks begin at multiples of this, so that their offsets fit into an index entry.
pub const ALIGN: usize = 16;
const MAGIC: u32 = 0x4b4c_4253;
/// Measured on OTLP of many services: the weakest level is hardly faster, and needs twice the space.
const ZSTD_LEVEL: i32 = -3;
/// Largest window of an incoming zstd frame, as a power of two; the receiver refuses larger ones.
const ZSTD_WINDOW_LOG: u32 = 23;

/// Compression of a request or of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// None; only for requests.
    Plain,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

/// Content of a block's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Compression of the payload.
    pub coding: Coding,
    /// Length of the payload in bytes.
    pub len: u32,
    /// Length of the decompressed payload in bytes.
    pub plain_len: u32,
    /// Number of spans.
    pub spans: u32,
    /// Arrival of its first request, Unix milliseconds.
    pub first_unix_ms: u64,
    /// Time from the first to the last arrival.
    pub lasted_ms: u32,
}

/// Why bytes are not a block.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// The file ends within it.
    #[error("the file ends within a block")]
    Torn,
    /// There is no head, or an incomplete one.
    #[error("no head of a block where one is expected")]
    NoHead,
    /// The checksum does not match.
    #[error("the checksum of a block is {found:08x}, expected {expected:08x}")]
    Checksum {
        /// Checksum of the bytes.
        found: u32,
        /// Checksum in the head.
        expected: u32,
    },
    /// The payload cannot be decompressed.
    #[error("a block cannot be decompressed: {0}")]
    Compressed(io::Error),
    /// The payload is not OTLP.
    #[error(transparent)]
    Otlp(#[from] WalkError),
}

impl Head {
    /// Distance in bytes from the start of the block to the start of the next.
    pub fn whole_len(&self) -> usize {
        (HEAD_BYTES + self.len as usize).next_multiple_of(ALIGN)
    }

    /// Arrival of its last request, Unix milliseconds.
    pub fn last_unix_ms(&self) -> u64 {
        self.first_unix_ms.saturating_add(self.lasted_ms.into())
    }

    /// Appends the block to `out`.
    pub fn write(&self, payload: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.len.to_le_bytes());
        out.extend_from_slice(&self.plain_len.to_le_bytes());
        out.extend_from_slice(&self.spans.to_le_bytes());
        out.extend_from_slice(&self.lasted_ms.to_le_bytes());
        out.extend_from_slice(&self.first_unix_ms.to_le_bytes());
        let coding = match self.coding {
            Coding::Plain => 0u64,
            Coding::Gzip => 1,
            Coding::Zstd => 2,
        };
        out.extend_from_slice(&coding.to_le_bytes());
        let sum = checksum(&out[start..], payload);
        out[start + 4..start + 8].copy_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(payload);
        out.resize(start + self.whole_len(), 0);
    }

    /// Decodes a head, and returns the expected checksum of head and payload.
    ///
    /// # Errors
    /// When there is none.
    pub fn read(bytes: &[u8; HEAD_BYTES]) -> Result<(Head, u32), BlockError> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if word(0) != MAGIC {
            return Err(BlockError::NoHead);
        }
        let coding = match long(32) {
            0 => Coding::Plain,
            1 => Coding::Gzip,
            2 => Coding::Zstd,
            _ => return Err(BlockError::NoHead),
        };
        let head = Head {
            coding,
            len: word(8),
            plain_len: word(12),
            spans: word(16),
            first_unix_ms: long(24),
            lasted_ms: word(20),
        };
        Ok((head, word(4)))
    }
}

/// Checksum of a head, without its checksum field, and a payload.
fn checksum(head: &[u8], payload: &[u8]) -> u32 {
    let mut sum = Hasher::new();
    sum.update(&head[8..HEAD_BYTES]);
    sum.update(payload);
    sum.finalize()
}

/// Head and payload of the block at the beginning of `bytes`.
///
/// # Errors
/// When the block is incomplete or damaged.
pub fn split(bytes: &[u8]) -> Result<(Head, &[u8]), BlockError> {
    let first = bytes.first_chunk::<HEAD_BYTES>().ok_or(BlockError::Torn)?;
    let (head, expected) = Head::read(first)?;
    let payload = bytes.get(HEAD_BYTES..HEAD_BYTES + head.len as usize).ok_or(BlockError::Torn)?;
    let found = checksum(first, payload);
    if found != expected {
        return Err(BlockError::Checksum { found, expected });
    }
    Ok((head, payload))
}

/// The decompressed requests of a block.
///
/// # Errors
/// When they cannot be decompressed.
pub fn plain(head: &Head, payload: &[u8]) -> Result<Vec<u8>, BlockError> {
    let mut plain = Vec::with_capacity(head.plain_len as usize);
    // Bounds the output by the declared length, whatever the content.
    let most = u64::from(head.plain_len);
    let read = match head.coding {
        Coding::Plain => {
            plain.extend_from_slice(payload);
            Ok(0)
        }
        Coding::Gzip => flate2::bufread::MultiGzDecoder::new(payload).take(most).read_to_end(&mut plain),
        Coding::Zstd => zstd::stream::read::Decoder::with_buffer(payload).and_then(|mut decoder| {
            decoder.window_log_max(ZSTD_WINDOW_LOG)?;
            decoder.take(most).read_to_end(&mut plain)
        }),
    };
    read.map_err(BlockError::Compressed)?;
    Ok(plain)
}

/// Compresses requests that arrived uncompressed.
pub struct Packer(zstd::bulk::Compressor<'static>);

impl Packer {
    /// A packer with its tables.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub fn new() -> io::Result<Packer> {
        zstd::bulk::Compressor::new(ZSTD_LEVEL).map(Packer)
    }

    /// Compresses into `out`, replacing its content.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn pack(&mut self, plain: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        out.clear();
        out.reserve(zstd::zstd_safe::compress_bound(plain.len()));
        self.0.compress_to_buffer(plain, out).map(|_| ())
    }
}

impl std::fmt::Debug for Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Packer").field(&ZSTD_LEVEL).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn head(coding: Coding, payload: &[u8], plain_len: usize) -> Head {
        Head {
            coding,
            len: payload.len() as u32,
            plain_len: plain_len as u32,
            spans: 3,
            first_unix_ms: 1_700_000_000_123,
            lasted_ms: 77,
        }
    }

    #[test]
    fn blocks_survive_a_round_trip_in_every_coding_and_in_sequence() {
        let text = b"requests one after the other ".repeat(40);
        let gzip = |bytes: &[u8]| {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(bytes).unwrap();
            gzip.finish().unwrap()
        };
        let mut packed = Vec::new();
        Packer::new().unwrap().pack(&text, &mut packed).unwrap();
        let frames = [zstd::encode_all(&text[..100], 3).unwrap(), zstd::encode_all(&text[100..], 1).unwrap()];
        let members = [gzip(&text[..7]), gzip(&text[7..])];
        for (coding, payload) in [
            (Coding::Plain, text.clone()),
            (Coding::Gzip, members.concat()),
            (Coding::Zstd, frames.concat()),
            (Coding::Zstd, packed),
        ] {
            let head = head(coding, &payload, text.len());
            let mut out = Vec::new();
            head.write(&payload, &mut out);
            assert_eq!((out.len(), out.len() % ALIGN), (head.whole_len(), 0));
            let (read, found) = split(&out).unwrap();
            assert_eq!((read, found), (head, &payload[..]));
            assert_eq!(plain(&read, found).unwrap(), text, "{coding:?}");
        }
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let payload = b"some payload";
        let mut whole = Vec::new();
        head(Coding::Plain, payload, payload.len()).write(payload, &mut whole);
        let used = HEAD_BYTES + payload.len();
        for bit in 0..8 * used {
            let mut changed = whole.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(split(&changed).is_err(), "bit {bit}");
        }
        for cut in 0..used {
            assert!(matches!(split(&whole[..cut]), Err(BlockError::Torn)), "cut at {cut}");
        }
    }

    #[test]
    fn decompression_stops_at_the_declared_length() {
        let bomb = zstd::encode_all(&vec![0u8; 10 << 20][..], 1).unwrap();
        assert_eq!(plain(&head(Coding::Zstd, &bomb, 1000), &bomb).unwrap().len(), 1000);
    }
}

//! Files of a slice, cut into separately compressed pieces, and reassembled within bounds.

use crate::v1::SlicePiece;
use std::io;

/// Packets, as pcapng.
pub const CAPTURE: &str = "capture.pcapng";
/// Packets as they passed next to the server, where the two ends of one host are told apart; the others passed next to
/// the client.
pub const CAPTURE_AT_SERVER: &str = "capture.server.pcapng";
/// Activity of scheduler and interrupts: a file of `host record`.
pub const RECORDING: &str = "host.rec";
/// The machine.
pub const MACHINE: &str = "machine.json";
/// The relevant sockets, in the format of `sockets list --json`.
pub const SOCKETS: &str = "sockets.json";
/// Known traps, in the format of `host check --json`.
pub const CHECK: &str = "check.json";
/// All permitted file names of a slice. Nothing that an agent sends becomes another file name.
pub const FILES: [&str; 6] = [CAPTURE, CAPTURE_AT_SERVER, RECORDING, MACHINE, SOCKETS, CHECK];

/// Maximum decompressed size of a piece.
pub const PIECE_BYTES: usize = 1 << 20;
/// Fast, and about a third of the size for packets without payload.
const LEVEL: i32 = 3;

/// Why a piece is rejected.
#[derive(Debug, thiserror::Error)]
pub enum SliceError {
    /// The name is not in [`FILES`].
    #[error("a file named {0:?}; expected one of {FILES:?}")]
    Name(String),
    /// A completed file continues.
    #[error("{0} continues after another file began; expected one file after the other")]
    Mixed(&'static str),
    /// Not a zstd frame of at most [`PIECE_BYTES`].
    #[error("{file}: a piece at byte {at} cannot be decompressed to {PIECE_BYTES} bytes at most: {reason}")]
    Piece {
        /// The file.
        file: &'static str,
        /// Offset in the decompressed file.
        at: u64,
        /// The error of zstd.
        reason: io::Error,
    },
    /// The slice exceeds its limit.
    #[error("more than the {limit} bytes allowed in a slice, in {file}")]
    TooLong {
        /// The file.
        file: &'static str,
        /// The limit.
        limit: u64,
    },
}

/// The next piece of a file, from at most [`PIECE_BYTES`] of it.
///
/// # Errors
/// Those of zstd.
pub fn piece(ask: u64, file: &'static str, bytes: &[u8]) -> io::Result<SlicePiece> {
    let zstd = zstd::bulk::compress(bytes, LEVEL)?;
    Ok(SlicePiece { ask, file: file.into(), zstd: zstd.into() })
}

/// A file in pieces.
pub fn pieces(ask: u64, file: &'static str, bytes: &[u8]) -> impl Iterator<Item = io::Result<SlicePiece>> {
    bytes.chunks(PIECE_BYTES).map(move |bytes| piece(ask, file, bytes))
}

/// Reassembles the pieces of one slice within its limit.
#[derive(Debug)]
pub struct Gathering {
    limit: u64,
    taken: u64,
    /// Files begun, with their current sizes; the last one is still open.
    files: Vec<(&'static str, u64)>,
}

impl Gathering {
    /// Accepts at most `limit` decompressed bytes in total.
    pub fn new(limit: u64) -> Gathering {
        Gathering { limit, taken: 0, files: Vec::new() }
    }

    /// Decodes a piece; returns its bytes and the file to append them to.
    ///
    /// # Errors
    /// When the piece violates a rule; the slice is invalid from then on.
    pub fn take(&mut self, piece: &SlicePiece) -> Result<(&'static str, Vec<u8>), SliceError> {
        let known = FILES.into_iter().find(|name| *name == piece.file);
        let file = known.ok_or_else(|| SliceError::Name(piece.file.chars().take(64).collect()))?;
        if self.files.last().is_none_or(|(last, _)| *last != file) {
            if self.files.iter().any(|(name, _)| *name == file) {
                return Err(SliceError::Mixed(file));
            }
            self.files.push((file, 0));
        }
        let at = self.files.last().map_or(0, |(_, bytes)| *bytes);
        let bytes = zstd::bulk::decompress(&piece.zstd, PIECE_BYTES).map_err(|reason| SliceError::Piece {
            file,
            at,
            reason,
        })?;
        self.taken += bytes.len() as u64;
        if self.taken > self.limit {
            return Err(SliceError::TooLong { file, limit: self.limit });
        }
        if let Some((_, length)) = self.files.last_mut() {
            *length += bytes.len() as u64;
        }
        Ok((file, bytes))
    }

    /// Files begun, with their decompressed sizes.
    pub fn files(&self) -> &[(&'static str, u64)] {
        &self.files
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn gather(limit: u64, pieces: &[SlicePiece]) -> Result<Vec<(&'static str, Vec<u8>)>, SliceError> {
        let mut gathering = Gathering::new(limit);
        let mut files: Vec<(&'static str, Vec<u8>)> = Vec::new();
        for piece in pieces {
            let (name, bytes) = gathering.take(piece)?;
            match files.last_mut() {
                Some((last, all)) if *last == name => all.extend(bytes),
                _ => files.push((name, bytes)),
            }
        }
        Ok(files)
    }

    fn all_pieces(file: &'static str, bytes: &[u8]) -> Vec<SlicePiece> {
        pieces(7, file, bytes).collect::<io::Result<_>>().expect("memory can be compressed")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn files_survive_cutting_and_reassembly(length in 0usize..(3 * PIECE_BYTES), seed in any::<u8>()) {
            let bytes: Vec<u8> = (0..length).map(|i| (i as u8).wrapping_mul(seed)).collect();
            let all = [all_pieces(CAPTURE, &bytes), all_pieces(MACHINE, b"{}")].concat();
            let files = gather(u64::MAX, &all).expect("they keep the rules");
            let capture = files.iter().find(|(name, _)| *name == CAPTURE).map_or(&[][..], |(_, bytes)| bytes);
            prop_assert_eq!(capture, &bytes[..]);
        }

        #[test]
        fn arbitrary_pieces_are_refused_or_bounded(zstd in prop::collection::vec(any::<u8>(), 0..200)) {
            let piece = SlicePiece { ask: 1, file: CAPTURE.into(), zstd: zstd.into() };
            if let Ok((_, bytes)) = Gathering::new(u64::MAX).take(&piece) {
                prop_assert!(bytes.len() <= PIECE_BYTES);
            }
        }
    }

    #[test]
    fn a_bomb_is_refused_before_it_is_unpacked() {
        let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 19).expect("memory compresses");
        assert!(bomb.len() < 64 << 10, "{} bytes are no bomb", bomb.len());
        let piece = SlicePiece { ask: 1, file: CAPTURE.into(), zstd: bomb.into() };
        assert!(matches!(Gathering::new(u64::MAX).take(&piece), Err(SliceError::Piece { .. })));
    }

    #[test]
    fn a_slice_ends_at_its_limit() {
        let all = all_pieces(CAPTURE, &[1; 3000]);
        assert!(matches!(gather(2999, &all), Err(SliceError::TooLong { limit: 2999, .. })));
        assert!(gather(3000, &all).is_ok());
    }

    #[test]
    fn a_name_of_the_agents_own_is_refused() {
        for name in ["../../etc/passwd", "truth.json", "", "capture.pcapng\0"] {
            let piece = SlicePiece { ask: 1, file: name.into(), ..all_pieces(MACHINE, b"{}").remove(0) };
            assert!(matches!(gather(1 << 20, &[piece]), Err(SliceError::Name(_))), "{name}");
        }
    }

    #[test]
    fn files_are_not_mixed() {
        let (capture, machine) = (all_pieces(CAPTURE, b"a"), all_pieces(MACHINE, b"b"));
        let all = [capture.clone(), machine, capture].concat();
        assert!(matches!(gather(1 << 20, &all), Err(SliceError::Mixed(CAPTURE))));
    }
}

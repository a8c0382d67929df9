//! Sends the files of a slice in pieces, as they are written: a whole file need not be in memory once more.

use spangap_fleet::slice::{PIECE_BYTES, piece, pieces};
use spangap_fleet::v1::{FromAgent, SlicePiece, from_agent::What};
use std::io::{self, Write};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::mpsc;

/// Why a slice is unavailable or incomplete.
pub(crate) enum Broken {
    /// The requester is gone.
    Gone,
    /// Reason in words.
    Because(String),
}

/// The way to the requester of a slice.
pub(crate) struct Stream<'a> {
    /// Number of the request.
    pub ask: u64,
    pub to: &'a mpsc::Sender<FromAgent>,
    pub cancelled: &'a AtomicBool,
}

impl Stream<'_> {
    /// Sends a whole file.
    pub fn send(&self, name: &'static str, bytes: &[u8]) -> Result<(), Broken> {
        pieces(self.ask, name, bytes).try_for_each(|piece| self.deliver(piece))
    }

    /// Begins a file, which is sent as it is written.
    pub fn file(&self, name: &'static str) -> File<'_> {
        File { stream: self, name, next: Vec::with_capacity(PIECE_BYTES), broken: None }
    }

    fn deliver(&self, piece: io::Result<SlicePiece>) -> Result<(), Broken> {
        if self.cancelled.load(Relaxed) {
            return Err(Broken::Because("cancelled".into()));
        }
        let piece = piece.map_err(|error| Broken::Because(error.to_string()))?;
        self.to.blocking_send(FromAgent { what: Some(What::Piece(piece)) }).map_err(|_| Broken::Gone)
    }
}

/// A file that is sent as it is written. After the first piece that cannot be sent, writing fails, and [`File::end`] says why.
pub(crate) struct File<'a> {
    stream: &'a Stream<'a>,
    name: &'static str,
    next: Vec<u8>,
    broken: Option<Broken>,
}

impl File<'_> {
    /// Sends the rest.
    pub fn end(mut self) -> Result<(), Broken> {
        if !self.next.is_empty() {
            self.deliver();
        }
        self.broken.map_or(Ok(()), Err)
    }

    fn deliver(&mut self) {
        if self.broken.is_none() {
            self.broken = self.stream.deliver(piece(self.stream.ask, self.name, &self.next)).err();
        }
        self.next.clear();
    }
}

impl Write for File<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.next.len() == PIECE_BYTES {
            self.deliver();
        }
        if self.broken.is_some() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let taken = bytes.len().min(PIECE_BYTES - self.next.len());
        self.next.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_fleet::slice::{CAPTURE, Gathering};

    /// Writes these bytes in parts of a length, and returns what arrived.
    fn arrived(bytes: &[u8], part: usize) -> Vec<u8> {
        let (to, mut from) = mpsc::channel(64);
        let stream = Stream { ask: 1, to: &to, cancelled: &AtomicBool::new(false) };
        let mut file = stream.file(CAPTURE);
        bytes.chunks(part).for_each(|part| file.write_all(part).expect("it is received"));
        assert!(file.end().is_ok());
        drop(to);
        let mut gathering = Gathering::new(u64::MAX);
        let mut all = Vec::new();
        while let Some(FromAgent { what: Some(What::Piece(piece)) }) = from.blocking_recv() {
            all.extend(gathering.take(&piece).expect("a piece").1);
        }
        all
    }

    #[test]
    fn what_is_written_arrives() {
        for (length, part) in
            [(0, 7), (1, 7), (PIECE_BYTES, 1000), (PIECE_BYTES + 1, 4096), (3 * PIECE_BYTES, 2 << 20)]
        {
            let bytes: Vec<u8> = (0..length).map(|at| (at / 3) as u8).collect();
            assert!(arrived(&bytes, part) == bytes, "{length} bytes in parts of {part}");
        }
    }

    #[test]
    fn after_the_requester_has_gone_writing_fails() {
        let (to, from) = mpsc::channel(1);
        drop(from);
        let stream = Stream { ask: 1, to: &to, cancelled: &AtomicBool::new(false) };
        let mut file = stream.file(CAPTURE);
        let error = file.write_all(&vec![0; 2 * PIECE_BYTES]).expect_err("nobody receives it");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        assert!(matches!(file.end(), Err(Broken::Gone)));
    }

    #[test]
    fn a_cancelled_file_ends_with_the_reason() {
        let (to, _from) = mpsc::channel(1);
        let stream = Stream { ask: 1, to: &to, cancelled: &AtomicBool::new(true) };
        let mut file = stream.file(CAPTURE);
        file.write_all(b"few").expect("it waits for more");
        assert!(matches!(file.end(), Err(Broken::Because(why)) if why == "cancelled"));
    }
}

//! A pipe of packets that Ctrl-C ends: what was read until then is printed.

use anyhow::Context;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// Bytes read from a pipe at once.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces read ahead.
const PIECES: usize = 8;
/// How long an interrupt may go unnoticed while a pipe delivers nothing.
const NOTICED_WITHIN: Duration = Duration::from_millis(100);

/// A pipe whose reader stops waiting for its writer once `stop` is set.
pub struct Pipe {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    read: usize,
    stop: Arc<AtomicBool>,
}

impl Pipe {
    /// Reads `from` in a separate thread.
    pub fn new(from: impl Read + Send + 'static, stop: Arc<AtomicBool>) -> anyhow::Result<Pipe> {
        let (to, pieces) = sync_channel(PIECES);
        thread::Builder::new()
            .name("pipe".into())
            .spawn(move || feed(from, &to))
            .context("cannot start a thread")?;
        Ok(Pipe { pieces, piece: Vec::new(), read: 0, stop })
    }
}

fn feed(mut from: impl Read, to: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        let sent = match from.read(&mut piece) {
            Ok(0) => return,
            Ok(len) => {
                piece.truncate(len);
                to.send(Ok(piece))
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                // The reader reports it, or is gone.
                let _ = to.send(Err(error));
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.read == self.piece.len() {
            match self.pieces.recv_timeout(NOTICED_WITHIN) {
                Ok(piece) => (self.piece, self.read) = (piece?, 0),
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
                Err(RecvTimeoutError::Timeout) if self.stop.load(Relaxed) => return Ok(0),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        let rest = &self.piece[self.read..];
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        self.read += len;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_gives_what_was_written_and_then_its_end() {
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8).collect();
        let mut pipe = Pipe::new(io::Cursor::new(bytes.clone()), Arc::default()).expect("a thread");
        let mut read = Vec::new();
        pipe.read_to_end(&mut read).expect("all of it");
        assert!(read == bytes);
    }

    #[test]
    fn an_interrupt_ends_a_pipe_that_gives_nothing() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let mut pipe = Pipe::new(reader, Arc::new(AtomicBool::new(true))).expect("a thread");
        assert_eq!(pipe.read(&mut [0; 16]).expect("an end"), 0);
        drop(writer);
    }
}

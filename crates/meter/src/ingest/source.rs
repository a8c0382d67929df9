//! The bytes of an input through a sliding window, with the offset and the line of each.

use std::fmt;
use std::io::{self, Read};
use std::ops::ControlFlow;

/// Bytes per read.
const CHUNK: usize = 64 << 10;

/// Place in an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of bytes before it, after decompression.
    pub offset: u64,
    /// Its line, from 1; `None` where the input has no lines.
    pub line: Option<u64>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}, offset {}", self.offset),
            None => write!(f, "offset {}", self.offset),
        }
    }
}

/// A reader with a window of bytes that have been read and not yet consumed.
pub struct Source<'a> {
    reader: Box<dyn Read + 'a>,
    on_read: &'a mut dyn FnMut() -> ControlFlow<()>,
    /// Bytes `start..end` are read but not consumed.
    window: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
    line: u64,
    ended: bool,
    /// Error that ended reading before the end of the input.
    pub damage: Option<io::Error>,
}

impl<'a> Source<'a> {
    /// `on_read` is called after every read; if it breaks, the input ends there.
    pub fn new(reader: Box<dyn Read + 'a>, on_read: &'a mut dyn FnMut() -> ControlFlow<()>) -> Self {
        Source {
            reader,
            on_read,
            window: Vec::new(),
            start: 0,
            end: 0,
            offset: 0,
            line: 1,
            ended: false,
            damage: None,
        }
    }

    /// Content of the window.
    #[inline]
    pub fn rest(&self) -> &[u8] {
        &self.window[self.start..self.end]
    }

    /// Reads more into the window; `false` if no bytes came.
    pub fn more(&mut self) -> bool {
        if self.ended {
            return false;
        }
        // Moving the rest to the front costs its length, so it is moved only if that frees at least as much.
        if self.start >= self.end - self.start {
            self.window.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.window.len() - self.end < CHUNK {
            let mut larger = vec![0; (self.window.len() * 2).max(self.end + CHUNK)];
            larger[..self.end].copy_from_slice(&self.window[..self.end]);
            self.window = larger;
        }
        let read = loop {
            match self.reader.read(&mut self.window[self.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let read = read.unwrap_or_else(|error| {
            self.damage = Some(error);
            0
        });
        self.end += read;
        self.ended = read == 0;
        if (self.on_read)().is_break() {
            self.ended = true;
            self.damage = Some(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
        }
        read > 0
    }

    /// Reads until the window contains `len` bytes; `false` if the input ends before.
    pub fn fill(&mut self, len: usize) -> bool {
        while self.rest().len() < len {
            if !self.more() {
                return false;
            }
        }
        true
    }

    /// Consumes and returns the first `len` bytes of the window.
    #[inline]
    pub fn consume(&mut self, len: usize) -> &[u8] {
        let bytes = &self.window[self.start..self.start + len];
        self.offset += len as u64;
        self.line += memchr::memchr_iter(b'\n', bytes).count() as u64;
        self.start += len;
        bytes
    }

    /// Place of the window's start.
    pub fn place(&self) -> Place {
        Place { offset: self.offset, line: Some(self.line) }
    }

    /// Bytes consumed so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_slides_and_counts_lines() {
        let text: Vec<u8> = (0..200_000).flat_map(|i| format!("{i}\n").into_bytes()).collect();
        let mut go_on = || ControlFlow::Continue(());
        let mut source = Source::new(Box::new(&text[..]), &mut go_on);
        let mut seen = Vec::new();
        while source.fill(1) {
            let len = source.rest().len().min(1000);
            seen.extend_from_slice(source.consume(len));
        }
        assert_eq!(seen, text);
        assert_eq!(source.place(), Place { offset: text.len() as u64, line: Some(200_001) });
        assert!(source.window.len() < 1 << 20);
    }

    #[test]
    fn on_read_can_end_the_input() {
        let text = vec![0u8; 10 << 20];
        let mut reads = 0;
        let mut twice = || {
            reads += 1;
            if reads < 2 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let mut source = Source::new(Box::new(&text[..]), &mut twice);
        assert!(!source.fill(text.len()));
        assert_eq!(source.damage.as_ref().map(|e| e.kind()), Some(io::ErrorKind::Interrupted));
    }
}

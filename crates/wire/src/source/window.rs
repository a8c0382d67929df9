//! A sliding window over the input: packets are borrowed from it, and only the read itself copies data.

use std::io::{ErrorKind, Read};

/// Read size: large enough that a read costs nothing per packet, small enough to stay in a cache.
const READ_BYTES: usize = 1 << 20;
/// Initial read size, since many captures are small.
const FIRST_READ_BYTES: usize = 1 << 16;

/// The window. Positions in it are valid until the next call of [`Window::has`].
pub(super) struct Window {
    reader: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset in the input of the first byte of `buffer`.
    base: u64,
    ended: bool,
    error: Option<std::io::Error>,
}

impl Window {
    /// A window over everything that `reader` yields; its first byte has this offset.
    pub fn new(reader: Box<dyn Read + Send>, offset: u64) -> Window {
        Window {
            reader,
            buffer: vec![0; FIRST_READ_BYTES],
            start: 0,
            end: 0,
            base: offset,
            ended: false,
            error: None,
        }
    }

    /// Whether `bytes` more bytes exist; reads more input if they are not in the window yet.
    #[inline]
    pub fn has(&mut self, bytes: usize) -> bool {
        self.end - self.start >= bytes || self.fill(bytes)
    }

    /// The unread bytes in the window.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Recently skipped bytes, by their distance from the end of the skipped part.
    #[inline]
    pub fn behind(&self, distance: usize, len: usize) -> &[u8] {
        let from = self.start.saturating_sub(distance);
        self.buffer.get(from..from + len).unwrap_or_default()
    }

    /// Advances by `bytes`, which [`Window::has`] confirmed.
    #[inline]
    pub fn skip(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.end - self.start);
        self.start = self.end.min(self.start + bytes);
    }

    /// Skips the remaining input.
    pub fn skip_rest(&mut self) {
        while self.has(1) {
            self.start = self.end;
        }
    }

    /// Offset in the input of the next byte.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.base + self.start as u64
    }

    /// Why reading ended early; returned once.
    pub fn take_error(&mut self) -> Option<std::io::Error> {
        self.error.take()
    }

    #[cold]
    fn fill(&mut self, bytes: usize) -> bool {
        if !self.ended && self.start + bytes > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.base += self.start as u64;
            self.end -= self.start;
            self.start = 0;
            // Twice what is needed, so that advancing byte by byte does not move everything each time.
            let wanted = READ_BYTES.min(4 * self.buffer.len()).max(2 * bytes);
            if wanted > self.buffer.len() {
                self.buffer.resize(wanted, 0);
            }
        }
        while !self.ended && self.end - self.start < bytes {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.error = Some(error);
                    self.ended = true;
                }
            }
        }
        self.end - self.start >= bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Yields at most three bytes at a time.
    struct Dribble(Vec<u8>, usize);

    impl Read for Dribble {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let read = into.len().min(3).min(self.0.len() - self.1);
            into[..read].copy_from_slice(&self.0[self.1..self.1 + read]);
            self.1 += read;
            Ok(read)
        }
    }

    #[test]
    fn every_byte_is_delivered_once_and_in_order() {
        let input: Vec<u8> =
            (0..5_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut window = Window::new(Box::new(std::io::Cursor::new(input.clone())), 7);
        let (mut seen, mut step) = (Vec::new(), 1);
        while window.has(step) {
            seen.extend_from_slice(&window.bytes()[..step]);
            window.skip(step);
            assert_eq!(window.offset(), 7 + seen.len() as u64);
            assert_eq!(window.behind(step, step), &seen[seen.len() - step..]);
            step = (step * 7 + 3) % 1_500_000 + 1;
        }
        let left = seen.len();
        assert_eq!(&input[..left], &seen[..]);
        window.skip_rest();
        assert_eq!(window.offset(), 7 + input.len() as u64);
    }

    #[test]
    fn short_reads_are_repeated() {
        let mut window = Window::new(Box::new(Dribble((0..100).collect(), 0)), 0);
        assert!(window.has(50));
        window.skip(50);
        assert!(window.has(50) && !window.has(51));
        assert_eq!(window.bytes()[0], 50);
    }
}

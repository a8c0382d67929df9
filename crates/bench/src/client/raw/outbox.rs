//! Requests on their way to a socket that may accept them only in part.

use crate::raw::frame::{Context, HEADER_BYTES, Head, MAX_HEAD_BYTES};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::io;
use std::os::fd::AsFd;

/// Maximum number of bytes encoded ahead of the socket.
const BATCH_BYTES: usize = 256 << 10;

/// Identical requests except for their trace contexts. Only a bounded part of them is encoded at any time.
pub struct Outbox {
    request: Head,
    split: bool,
    bytes: Vec<u8>,
    sent: usize,
    /// End of the write that contains only the header.
    cut: usize,
    /// Payload bytes still owed by the latest encoded request.
    owed_bytes: u32,
    queued: u64,
}

impl Outbox {
    /// `split`: the header of each request is written separately.
    pub fn new(request: Head, split: bool) -> Self {
        Outbox { request, split, bytes: Vec::new(), sent: 0, cut: 0, owed_bytes: 0, queued: 0 }
    }

    /// Drops everything after the connection was lost.
    pub fn clear(&mut self) {
        *self = Outbox::new(self.request, self.split);
    }

    /// Adds requests to send.
    pub fn push(&mut self, requests: u64) {
        self.queued += requests;
    }

    /// Requests not encoded at all: the latest ones pushed.
    pub fn queued(&self) -> u64 {
        self.queued
    }

    /// Removes requests that are not encoded at all.
    pub fn retract(&mut self, requests: u64) {
        self.queued -= requests;
    }

    /// Whether the socket has accepted everything.
    pub fn is_empty(&self) -> bool {
        self.sent == self.bytes.len() && self.owed_bytes == 0 && self.queued == 0
    }

    /// Sends as much as the socket accepts without blocking. `context` is called for each request as it is
    /// encoded, with the number of requests still queued, itself included.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn flush(
        &mut self,
        socket: impl AsFd,
        mut context: impl FnMut(u64) -> Option<Context>,
    ) -> io::Result<()> {
        loop {
            if self.sent == self.bytes.len() {
                self.encode(&mut context);
                if self.bytes.is_empty() {
                    return Ok(());
                }
            }
            let end = if self.sent < self.cut { self.cut } else { self.bytes.len() };
            match send(&socket, &self.bytes[self.sent..end], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => self.sent += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn encode(&mut self, context: &mut impl FnMut(u64) -> Option<Context>) {
        self.bytes.clear();
        self.sent = 0;
        self.cut = 0;
        self.pay();
        while self.queued > 0 && self.bytes.len() < BATCH_BYTES && self.owed_bytes == 0 {
            let at = self.bytes.len();
            let context = context(self.queued);
            if context.is_none() && !self.split {
                let frame_bytes = MAX_HEAD_BYTES + self.request.payload_bytes as usize;
                let whole = self.queued.min(((BATCH_BYTES - at) / frame_bytes) as u64);
                self.request.encode_frames(whole, &mut self.bytes);
                self.queued -= whole;
                if whole > 0 {
                    continue;
                }
            }
            Head { context, ..self.request }.encode(&mut self.bytes);
            self.queued -= 1;
            self.owed_bytes = self.request.payload_bytes;
            self.pay();
            if self.split {
                // Bytes of the previous request would be written together with its header.
                if at == 0 {
                    self.cut = HEADER_BYTES;
                }
                break;
            }
        }
    }

    fn pay(&mut self) {
        let part = (self.owed_bytes as usize).min(BATCH_BYTES.saturating_sub(self.bytes.len()));
        self.bytes.resize(self.bytes.len() + part, 0);
        self.owed_bytes -= part as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::frame::Skipping;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    fn context(queued: u64) -> Option<Context> {
        Some(Context { trace_id: u128::from(queued).to_be_bytes(), span_id: [1; 8] })
    }

    #[test]
    fn requests_pass_a_narrow_socket_in_order() {
        for (payload_bytes, requests) in [(0, 50_000), (100, 20_000), (3_000_000, 5)] {
            let (here, mut there) = UnixStream::pair().unwrap();
            let mut outbox = Outbox::new(Head::ping(payload_bytes), false);
            outbox.push(requests + 1);
            outbox.retract(1);
            let reading = std::thread::spawn(move || {
                let (mut frames, mut kept, mut heads) = (Skipping::default(), Vec::new(), Vec::new());
                let mut piece = vec![0; 100_000];
                loop {
                    let read = there.read(&mut piece).unwrap();
                    if read == 0 {
                        return heads;
                    }
                    kept.extend_from_slice(&piece[..read]);
                    let mut left = &kept[..];
                    while let Some((head, times)) = frames.next(&mut left).unwrap() {
                        heads.extend((0..times).map(|_| head));
                    }
                    kept = left.to_vec();
                }
            });
            while !outbox.is_empty() {
                outbox.flush(&here, context).unwrap();
                assert!(outbox.bytes.len() < BATCH_BYTES + 100);
            }
            drop(here);
            let expected: Vec<Head> = (1..=requests)
                .rev()
                .map(|n| Head { context: context(n), ..Head::ping(payload_bytes) })
                .collect();
            assert!(reading.join().unwrap() == expected, "{payload_bytes}");
        }
    }

    #[test]
    fn split_requests_are_written_in_two_parts() {
        // Sockets that preserve the boundaries of writes.
        let kind = rustix::net::SocketType::SEQPACKET;
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let (here, there) =
            rustix::net::socketpair(rustix::net::AddressFamily::UNIX, kind, flags, None).unwrap();
        let mut outbox = Outbox::new(Head::ping(20), true);
        outbox.push(3);
        outbox.flush(&here, context).unwrap();
        assert!(outbox.is_empty());
        let mut piece = [0; 1000];
        let sizes: Vec<usize> = (0..6)
            .map(|_| rustix::net::recv(&there, &mut piece, rustix::net::RecvFlags::DONTWAIT).unwrap().0)
            .collect();
        assert_eq!(sizes, [8, 44, 8, 44, 8, 44]);
    }
}

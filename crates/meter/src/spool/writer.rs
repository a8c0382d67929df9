//! The writing thread: requests become blocks, blocks are appended to the current segment, full segments get
//! their index.

use super::block::{Coding, Head, Packer};
use super::store::{Current, Store};
use super::{Losses, Now, Request};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Decompressed size at which a block is written, and thereby the minimum work of a look-up. Larger blocks do
/// not compress better, and do not fit into the CPU's caches.
const BLOCK_BYTES: usize = 256 << 10;
/// Size at which a block of compressed requests is written.
const COMPRESSED_BLOCK_BYTES: usize = 64 << 10;
/// Maximum wait of a block's first request.
const BLOCK_TIME: Duration = Duration::from_millis(500);

/// Messages to the thread.
#[derive(Debug)]
pub enum Message {
    /// A request to keep.
    Keep(Request),
    /// Write everything received so far to disk, then reply.
    Flush(Sender<()>),
}

/// Summary of received requests, without their bytes.
#[derive(Debug)]
struct Arrived {
    coding: Coding,
    plain_len: usize,
    spans: u32,
    first_unix_ms: u64,
    last_unix_ms: u64,
}

impl Arrived {
    /// Whether it has reached a `parts`-th of the block size.
    fn is_block(&self, bytes: usize, parts: usize) -> bool {
        self.plain_len >= BLOCK_BYTES / parts
            || (self.coding != Coding::Plain && bytes >= COMPRESSED_BLOCK_BYTES / parts)
    }
}

/// Requests of one coding that will form one block.
#[derive(Debug)]
struct Builder {
    arrived: Arrived,
    bytes: Vec<u8>,
    digests: Vec<u64>,
    begun: Option<Instant>,
}

impl Builder {
    fn new(coding: Coding) -> Builder {
        let arrived = Arrived { coding, plain_len: 0, spans: 0, first_unix_ms: 0, last_unix_ms: 0 };
        Builder { arrived, bytes: Vec::new(), digests: Vec::new(), begun: None }
    }

    fn add(&mut self, request: &Request) {
        let arrived = &mut self.arrived;
        if self.begun.is_none() {
            self.begun = Some(Instant::now());
            (arrived.first_unix_ms, arrived.last_unix_ms) = (request.unix_ms, request.unix_ms);
        }
        arrived.last_unix_ms = arrived.last_unix_ms.max(request.unix_ms);
        arrived.spans += request.spans;
        arrived.plain_len += request.plain_len as usize;
        self.bytes.extend_from_slice(&request.bytes);
        self.digests.extend_from_slice(&request.digests);
    }

    fn is_whole(&self) -> bool {
        self.arrived.is_block(self.bytes.len(), 1)
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.digests.clear();
        // The bound for requests of minimum size.
        self.digests.shrink_to(BLOCK_BYTES / 64);
        (self.arrived.spans, self.arrived.plain_len, self.begun) = (0, 0, None);
    }
}

/// The state of the thread.
#[derive(Debug)]
pub struct Writer {
    /// Destination of blocks.
    pub store: Arc<Store>,
    /// Lost spans by reason.
    pub losses: Arc<Losses>,
    /// Bytes of queued requests.
    pub queued_bytes: Arc<AtomicU64>,
    /// The current time.
    pub now: Now,
    builders: [Builder; 3],
    current: Option<Current>,
    packer: Packer,
    packed: Vec<u8>,
    block: Vec<u8>,
}

impl Writer {
    /// A writer without pending requests.
    pub fn new(
        store: Arc<Store>,
        losses: Arc<Losses>,
        queued_bytes: Arc<AtomicU64>,
        now: Now,
        packer: Packer,
    ) -> Writer {
        Writer {
            store,
            losses,
            queued_bytes,
            now,
            builders: [Coding::Plain, Coding::Gzip, Coding::Zstd].map(Builder::new),
            current: None,
            packer,
            packed: Vec::new(),
            block: Vec::new(),
        }
    }

    /// Runs until all senders are gone; then writes the rest to disk.
    pub fn run(mut self, messages: &Receiver<Message>) {
        loop {
            match messages.recv_timeout(BLOCK_TIME) {
                Ok(Message::Keep(request)) => self.keep(&request),
                Ok(Message::Flush(done)) => {
                    (0..self.builders.len()).for_each(|at| self.write(at));
                    // The waiting caller may be gone.
                    let _ = done.send(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            for at in 0..self.builders.len() {
                let builder = &self.builders[at];
                if builder.is_whole() || builder.begun.is_some_and(|begun| begun.elapsed() >= BLOCK_TIME) {
                    self.write(at);
                }
            }
            self.store.drop_old((self.now)());
        }
        (0..self.builders.len()).for_each(|at| self.write(at));
        if let Some(current) = self.current.take()
            && let Err((error, _)) = self.store.seal(current)
        {
            // The next start creates the index.
            self.losses.set_problem(Some(error.to_string()));
        }
    }

    fn keep(&mut self, request: &Request) {
        let arrived = Arrived {
            coding: request.coding,
            plain_len: request.plain_len as usize,
            spans: request.spans,
            first_unix_ms: request.unix_ms,
            last_unix_ms: request.unix_ms,
        };
        if arrived.is_block(request.bytes.len(), 2) {
            // Written directly: copying it to join a few more requests is not worthwhile.
            self.write_block(&arrived, &request.bytes, &request.digests);
        } else {
            let at = match request.coding {
                Coding::Plain => 0,
                Coding::Gzip => 1,
                Coding::Zstd => 2,
            };
            self.builders[at].add(request);
        }
        self.queued_bytes.fetch_sub(request.weight(), Relaxed);
    }

    /// Writes the pending block of one builder.
    fn write(&mut self, at: usize) {
        if self.builders[at].begun.is_none() {
            return;
        }
        let empty = Builder::new(self.builders[at].arrived.coding);
        let mut builder = std::mem::replace(&mut self.builders[at], empty);
        self.write_block(&builder.arrived, &builder.bytes, &builder.digests);
        builder.clear();
        self.builders[at] = builder;
    }

    fn write_block(&mut self, arrived: &Arrived, bytes: &[u8], digests: &[u64]) {
        let mut packed = std::mem::take(&mut self.packed);
        let (coding, payload) = match arrived.coding {
            Coding::Plain if self.packer.pack(bytes, &mut packed).is_ok() => (Coding::Zstd, &packed[..]),
            coding => (coding, bytes),
        };
        let lengths = u32::try_from(payload.len()).ok().zip(u32::try_from(arrived.plain_len).ok());
        let head = lengths.map(|(len, plain_len)| Head {
            coding,
            len,
            plain_len,
            spans: arrived.spans,
            first_unix_ms: arrived.first_unix_ms,
            lasted_ms: u32::try_from(arrived.last_unix_ms - arrived.first_unix_ms).unwrap_or(u32::MAX),
        });
        match head.filter(|head| head.whole_len() as u64 <= self.store.most_block_bytes()) {
            Some(head) => {
                let mut block = std::mem::take(&mut self.block);
                block.clear();
                head.write(payload, &mut block);
                self.append(&head, &block, digests);
                block.shrink_to(4 * BLOCK_BYTES);
                self.block = block;
            }
            None => _ = self.losses.too_large.fetch_add(arrived.spans.into(), Relaxed),
        }
        packed.shrink_to(4 * BLOCK_BYTES);
        self.packed = packed;
    }

    fn append(&mut self, head: &Head, block: &[u8], digests: &[u64]) {
        let spans = u64::from(head.spans);
        let (len, words) = (block.len() as u64, digests.len());
        if self.current.as_ref().is_some_and(|current| self.store.is_full(current, len, words, (self.now)()))
        {
            self.seal();
        }
        if !self.store.make_room(len, words, self.current.as_ref()) {
            self.losses.too_large.fetch_add(spans, Relaxed);
            return;
        }
        // If others filled the disk, the oldest segment is dropped, once per block.
        for gave_way in [false, true] {
            match self.try_append(head, block, digests) {
                Ok(()) => {
                    self.losses.set_problem(None);
                    return;
                }
                Err(error) => {
                    if gave_way || !self.store.give_way(self.current.as_ref()) {
                        self.losses.disk.fetch_add(spans, Relaxed);
                        self.losses.set_problem(Some(error));
                        return;
                    }
                }
            }
        }
    }

    fn try_append(&mut self, head: &Head, block: &[u8], digests: &[u64]) -> Result<(), String> {
        let mut current = match self.current.take() {
            Some(current) => current,
            None => self.store.begin().map_err(|error| error.to_string())?,
        };
        match self.store.append(&mut current, head, block, digests) {
            Ok(()) => {
                self.current = Some(current);
                Ok(())
            }
            Err((error, usable)) => {
                // A segment that cannot even be truncated is left to the next start, which truncates it.
                self.current = usable.then_some(current);
                Err(error.to_string())
            }
        }
    }

    fn seal(&mut self) {
        let Some(mut current) = self.current.take() else { return };
        // Unlike a block, an index is worth more than one old segment: without it the whole segment would be
        // lost.
        while let Err((error, unsealed)) = self.store.seal(current) {
            self.losses.set_problem(Some(error.to_string()));
            if !self.store.give_way(Some(&unsealed)) {
                // In memory it would grow without a limit.
                self.store.discard(unsealed);
                return;
            }
            current = unsealed;
        }
    }
}

//! All spans of the recent past, on disk: every accepted request as it arrived, indexed by trace.
//!
//! Receiving threads hand requests over without a copy: the bytes, and a digest of each trace id. If the
//! queue is full, the request is counted as not kept; the meter's own figures still include it. One thread
//! writes blocks ([`block`]) into segments ([`segment`]), which have an index ([`index`]) and are dropped as
//! a whole, oldest first ([`store`]). One trace is found by the index ([`traces`]), all spans of a time by
//! reading blocks in order ([`window`]).

pub mod block;
pub mod index;
pub mod jaeger;
pub mod segment;
pub mod store;
pub mod table;
pub mod traces;
pub mod window;
pub mod writer;

use crate::ingest::walk::SpanFacts;
use crate::report::Note;
use block::{Coding, Packer};
use bytes::Bytes;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use store::Store;
use traces::{MOST_BYTES, MOST_SPANS, Trace};
use writer::{Message, Writer};

/// Maximum number of blocks read for one trace.
const MOST_BLOCKS: usize = 4_000;

/// Maximum number of bytes decompressed for one trace.
const MOST_PLAIN_BYTES: usize = 1 << 30;

/// Location and limits.
#[derive(Clone, Debug)]
pub struct SpoolSettings {
    /// The folder, for exclusive use.
    pub folder: PathBuf,
    /// Retention in milliseconds.
    pub keep_ms: u64,
    /// Maximum bytes of all files together.
    pub max_bytes: u64,
    /// Maximum bytes of requests waiting to be written.
    pub queue_bytes: u64,
}

/// Why spans cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// The folder cannot be used.
    #[error("the folder of spans {path}: {reason}", path = path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The reason.
        reason: io::Error,
    },
    /// Another process uses the folder.
    #[error("the folder of spans {path} is in use by another process", path = path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The thread cannot be created, or there is no memory for it.
    #[error("the thread that writes spans cannot start: {0}")]
    Thread(io::Error),
}

/// An accepted request.
#[derive(Debug)]
pub struct Request {
    /// The bytes as received.
    pub bytes: Bytes,
    /// Their compression.
    pub coding: Coding,
    /// Length when decompressed.
    pub plain_len: u32,
    /// Digests of its trace ids, from [`Spool::digests`].
    pub digests: Vec<u64>,
    /// Number of spans.
    pub spans: u32,
    /// Arrival, Unix milliseconds.
    pub unix_ms: u64,
}

impl Request {
    fn weight(&self) -> u64 {
        (self.bytes.len() + self.digests.len() * size_of::<u64>() + size_of::<Request>()) as u64
    }
}

/// Spans kept and lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpoolFigures {
    /// Spans on disk.
    pub spans: u64,
    /// Bytes on disk, including the index.
    pub bytes: u64,
    /// Their limit.
    pub bytes_limit: u64,
    /// Files.
    pub segments: u64,
    /// Arrival of the oldest span, Unix milliseconds; `None` if there is none.
    pub from_unix_ms: Option<u64>,
    /// Bytes of requests waiting to be written.
    pub queued_bytes: u64,
    /// Their limit.
    pub queued_bytes_limit: u64,
    /// Spans not kept because requests arrived faster than they could be written.
    pub not_kept_queue: u64,
    /// Spans not kept because of a disk error.
    pub not_kept_disk: u64,
    /// Spans not kept because their block exceeds the limit.
    pub not_kept_large: u64,
    /// Spans dropped because of their age, or to make room for newer ones.
    pub forgotten_spans: u64,
    /// Damaged segments moved aside.
    pub damaged_segments: u64,
    /// Notes for readers.
    pub notes: Vec<Note>,
}

/// Spans not kept, by reason.
#[derive(Debug, Default)]
pub struct Losses {
    /// The queue was full.
    pub queue: AtomicU64,
    /// The disk returned an error.
    pub disk: AtomicU64,
    /// They exceeded the limits.
    pub too_large: AtomicU64,
    problem: Mutex<Option<String>>,
}

impl Losses {
    /// Sets why the last block could not be written; `None` if it could.
    fn set_problem(&self, problem: Option<String>) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }
}

/// Current time, Unix milliseconds.
#[derive(Clone)]
pub struct Now(Arc<dyn Fn() -> u64 + Send + Sync>);

impl std::ops::Deref for Now {
    type Target = dyn Fn() -> u64 + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl std::fmt::Debug for Now {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Now").field(&self()).finish()
    }
}

/// Result of a look-up of a trace.
#[derive(Debug)]
pub struct Kept {
    /// Its spans; empty if none is kept.
    pub trace: Trace,
    /// Reasons why spans may be missing.
    pub incomplete: Vec<String>,
}

/// The store of recent spans.
#[derive(Debug)]
pub struct Spool {
    store: Arc<Store>,
    losses: Arc<Losses>,
    queued_bytes: Arc<AtomicU64>,
    queue_bytes: u64,
    to_writer: Mutex<Option<Sender<Message>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Spool {
    /// Opens the folder and starts the writing thread.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub fn open(
        settings: SpoolSettings,
        now: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<Spool, SpoolError> {
        let now = Now(Arc::new(now));
        let queue_bytes = settings.queue_bytes;
        let store = Arc::new(Store::open(settings, now())?);
        let (losses, queued_bytes) = (Arc::<Losses>::default(), Arc::<AtomicU64>::default());
        let packer = Packer::new().map_err(SpoolError::Thread)?;
        let writer = Writer::new(store.clone(), losses.clone(), queued_bytes.clone(), now, packer);
        let (to_writer, messages) = mpsc::channel();
        let thread = std::thread::Builder::new().name("spool".into());
        let thread = thread.spawn(move || writer.run(&messages)).map_err(SpoolError::Thread)?;
        Ok(Spool {
            store,
            losses,
            queued_bytes,
            queue_bytes,
            to_writer: Mutex::new(Some(to_writer)),
            writer: Mutex::new(Some(thread)),
        })
    }

    /// Digests of the traces of these spans, for a [`Request`].
    pub fn digests(&self, spans: &[SpanFacts]) -> Vec<u64> {
        let digester = self.store.digester;
        let mut last = [0; 2];
        let mut digests = Vec::with_capacity(spans.len());
        for span in spans {
            if span.trace != [0; 2] && span.trace != last {
                last = span.trace;
                digests.push(digester.digest(last));
            }
        }
        digests
    }

    /// Queues a request, or counts it as not kept; never blocks.
    pub fn keep(&self, request: Request) {
        let (weight, spans) = (request.weight(), u64::from(request.spans));
        let queued = self.queued_bytes.fetch_add(weight, Relaxed) + weight;
        let to_writer = self.to_writer.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = match &*to_writer {
            Some(to) if queued <= self.queue_bytes => to.send(Message::Keep(request)).is_ok(),
            _ => false,
        };
        if !sent {
            self.queued_bytes.fetch_sub(weight, Relaxed);
            self.losses.queue.fetch_add(spans, Relaxed);
        }
    }

    /// Waits until all requests queued before can be found.
    pub fn flush(&self) {
        let (done, flushed) = mpsc::channel();
        let to_writer = self.to_writer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if to_writer.is_some_and(|to| to.send(Message::Flush(done)).is_ok()) {
            // Without an answer, the thread has ended after writing everything.
            let _ = flushed.recv();
        }
    }

    /// Writes the queued requests, and seals the last segment.
    pub fn stop(&self) {
        drop(self.to_writer.lock().unwrap_or_else(PoisonError::into_inner).take());
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The thread has printed its own panic.
        writer.map(JoinHandle::join);
    }

    /// All kept spans of a trace.
    pub fn find(&self, trace_id: &[u8; 16]) -> Kept {
        let (places, problems) = self.store.places(traces::words(*trace_id));
        let mut kept = Kept { trace: Trace::default(), incomplete: Vec::new() };
        let problem = |kept: &mut Kept, segment, error: segment::SegmentError| {
            if error.is_damage() {
                self.store.set_aside(segment, &error);
            }
            // A file dropped meanwhile was too old.
            if !error.is_gone() {
                kept.incomplete.push(error.to_string());
            }
        };
        problems.into_iter().for_each(|(segment, error)| problem(&mut kept, segment, error));
        if places.len() > MOST_BLOCKS {
            kept.incomplete
                .push(format!("{} blocks have spans of it; the first {MOST_BLOCKS} were read", places.len()));
        }
        let mut plain_bytes = 0;
        for place in places.into_iter().take(MOST_BLOCKS) {
            let read = segment::read_block(&place.path, place.offset);
            let added = read.and_then(|plain| {
                plain_bytes += plain.len();
                kept.trace.add(trace_id, &plain).map_err(|error| segment::SegmentError::Damaged {
                    path: place.path.clone(),
                    offset: place.offset,
                    reason: error.to_string(),
                })
            });
            if let Err(error) = added {
                problem(&mut kept, place.segment, error);
            }
            if kept.trace.cut {
                kept.incomplete.push(format!(
                    "it has more than {MOST_SPANS} spans, or {} MiB of them",
                    MOST_BYTES >> 20
                ));
                break;
            }
            if plain_bytes > MOST_PLAIN_BYTES {
                kept.incomplete
                    .push(format!("only the first {} MiB of requests were searched", MOST_PLAIN_BYTES >> 20));
                break;
            }
        }
        kept
    }

    /// Spans kept and lost.
    pub fn figures(&self) -> SpoolFigures {
        let mut figures = SpoolFigures {
            queued_bytes: self.queued_bytes.load(Relaxed),
            queued_bytes_limit: self.queue_bytes,
            not_kept_queue: self.losses.queue.load(Relaxed),
            not_kept_disk: self.losses.disk.load(Relaxed),
            not_kept_large: self.losses.too_large.load(Relaxed),
            ..SpoolFigures::default()
        };
        let problem = self.losses.problem.lock().unwrap_or_else(PoisonError::into_inner).clone();
        figures.notes.extend(problem.map(Note::wrong));
        self.store.fill(&mut figures);
        figures
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.stop();
    }
}

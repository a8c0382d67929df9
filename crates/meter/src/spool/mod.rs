//! All spans of the recent past, on disk: every accepted request as it arrived, indexed by trace.
//!
//! The threads that receive hand a request over without copying it: its bytes and a digest of each trace id in it. When the
//! queue is full the request is counted as not kept; the meter's own figures have it all the same. One thread writes blocks
//! ([`block`]) into segments ([`segment`]), which have an index ([`index`]) and are dropped whole, oldest first ([`store`]).

pub mod block;
pub mod index;
pub mod jaeger;
pub mod segment;
pub mod store;
pub mod traces;
pub mod writer;

use crate::ingest::walk::SpanFacts;
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

/// Blocks that are read for one trace at most.
const MOST_BLOCKS: usize = 4_000;

/// Bytes that are decompressed for one trace at most.
const MOST_PLAIN_BYTES: usize = 1 << 30;

/// How much is kept, and where.
#[derive(Clone, Debug)]
pub struct SpoolSettings {
    /// The folder; nobody else may use it.
    pub folder: PathBuf,
    /// How long, in milliseconds.
    pub keep_ms: u64,
    /// Bytes of all files together at most.
    pub max_bytes: u64,
    /// Bytes of requests on their way to the disk at most.
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
        /// Why.
        reason: io::Error,
    },
    /// Another process has it.
    #[error("the folder of spans {path} is in use by another process", path = path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// No thread, or no memory for one.
    #[error("the thread that writes spans cannot start: {0}")]
    Thread(io::Error),
}

/// A request that was taken.
#[derive(Debug)]
pub struct Request {
    /// As it came.
    pub bytes: Bytes,
    /// How it is compressed.
    pub coding: Coding,
    /// Its length when decompressed.
    pub plain_len: u32,
    /// Digests of the trace ids in it, from [`Spool::digests`].
    pub digests: Vec<u64>,
    /// How many spans.
    pub spans: u32,
    /// When it arrived, Unix milliseconds.
    pub unix_ms: u64,
}

impl Request {
    fn weight(&self) -> u64 {
        (self.bytes.len() + self.digests.len() * size_of::<u64>() + size_of::<Request>()) as u64
    }
}

/// What is kept, and what is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpoolFigures {
    /// Spans on disk.
    pub spans: u64,
    /// Bytes on disk, the index included.
    pub bytes: u64,
    /// Their limit.
    pub bytes_limit: u64,
    /// Files.
    pub segments: u64,
    /// When the oldest span arrived, Unix milliseconds; `None` while there is none.
    pub from_unix_ms: Option<u64>,
    /// Bytes of requests on their way to the disk.
    pub queued_bytes: u64,
    /// Their limit.
    pub queued_bytes_limit: u64,
    /// Spans not kept, because requests came faster than they could be written.
    pub not_kept_queue: u64,
    /// Spans not kept, because the disk refused them.
    pub not_kept_disk: u64,
    /// Spans not kept, because their block is larger than the limit allows.
    pub not_kept_large: u64,
    /// Spans dropped after their time, or to make room for newer ones.
    pub forgotten_spans: u64,
    /// Segments set aside because they were damaged.
    pub damaged_segments: u64,
    /// What a reader should know, in words.
    pub notes: Vec<String>,
}

/// Spans that are not kept, by reason.
#[derive(Debug, Default)]
pub struct Losses {
    /// The queue was full.
    pub queue: AtomicU64,
    /// The disk refused.
    pub disk: AtomicU64,
    /// Larger than what the limits allow.
    pub too_large: AtomicU64,
    problem: Mutex<Option<String>>,
}

impl Losses {
    /// Why the disk refused the last block; `None` when it took it.
    fn set_problem(&self, problem: Option<String>) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }
}

/// Tells the time, Unix milliseconds.
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

/// What was found of a trace.
#[derive(Debug)]
pub struct Kept {
    /// Its spans; none when nothing of it is kept.
    pub trace: Trace,
    /// Not all of its spans are here, and why.
    pub incomplete: Vec<String>,
}

/// The kept spans.
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
    /// Opens the folder and starts the thread that writes.
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

    /// Keeps a request, or counts that it is not kept; waits for nobody.
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

    /// Waits until everything that was kept before can be found.
    pub fn flush(&self) {
        let (done, flushed) = mpsc::channel();
        let to_writer = self.to_writer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if to_writer.is_some_and(|to| to.send(Message::Flush(done)).is_ok()) {
            // Without an answer the thread has ended, after it wrote everything.
            let _ = flushed.recv();
        }
    }

    /// Writes what is on its way, and ends the last segment.
    pub fn stop(&self) {
        drop(self.to_writer.lock().unwrap_or_else(PoisonError::into_inner).take());
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A panic there has been printed.
        writer.map(JoinHandle::join);
    }

    /// All spans of a trace that are kept.
    pub fn find(&self, trace_id: &[u8; 16]) -> Kept {
        let (places, problems) = self.store.places(traces::words(*trace_id));
        let mut kept = Kept { trace: Trace::default(), incomplete: Vec::new() };
        let problem = |kept: &mut Kept, segment, error: segment::SegmentError| {
            if error.is_damage() {
                self.store.set_aside(segment, &error);
            }
            // What was dropped meanwhile was too old.
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

    /// What is kept, and what is not.
    pub fn figures(&self) -> SpoolFigures {
        let mut figures = SpoolFigures {
            queued_bytes: self.queued_bytes.load(Relaxed),
            queued_bytes_limit: self.queue_bytes,
            not_kept_queue: self.losses.queue.load(Relaxed),
            not_kept_disk: self.losses.disk.load(Relaxed),
            not_kept_large: self.losses.too_large.load(Relaxed),
            ..SpoolFigures::default()
        };
        figures.notes.extend(self.losses.problem.lock().unwrap_or_else(PoisonError::into_inner).clone());
        self.store.fill(&mut figures);
        figures
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.stop();
    }
}

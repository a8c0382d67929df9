//! Where the batches of a capture come from: read when they are asked for, or ahead by a thread of their own.
//!
//! Batches are the same either way, and so is what is asked of a capture between two of them: its answers come from the
//! batches taken, not from its tap. So the result does not depend on which thread reads.

use super::reader::{Batch, Reader};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::thread::JoinHandle;

/// Batches handed over at once, so that threads seldom wait for one another.
const AT_ONCE: usize = 8;
/// As soon as they have this many exchanges, fewer.
const MOST_EXCHANGES: usize = 1024;
/// Memory of the batches that were read and not yet taken. While the clocks are unknown, one capture may be read for long
/// before the other's turn comes.
const MOST_BYTES: usize = 4 << 20;
/// What a batch counts for in addition to what is in it: packets without calls are not read ahead without end either.
const BATCH_BYTES: usize = 2048;
/// Emptied sheaves kept for their memory.
const MOST_SPARE: usize = 4;

/// The batches of one capture.
pub(super) enum Feed {
    /// Read here, each into the same batch.
    Here(Box<Reader>, Batch),
    /// Read ahead.
    Ahead(Ahead),
}

/// Batches handed over at once; those beyond `filled` only hold memory for later ones.
#[derive(Default)]
struct Sheaf {
    batches: Vec<Batch>,
    filled: usize,
    bytes: usize,
}

/// A thread that reads ahead.
pub(super) struct Ahead {
    sheaves: Receiver<Sheaf>,
    /// Emptied sheaves go back, for their memory and to let the thread go on.
    emptied: Sender<Sheaf>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Option<Reader>>,
    sheaf: Sheaf,
    /// How many of the sheaf's batches were taken.
    taken: usize,
}

impl Feed {
    pub fn here(reader: Reader) -> Feed {
        Feed::Here(Box::new(reader), Batch::default())
    }

    /// Reads ahead, if there can be a thread.
    pub fn ahead(reader: Reader) -> Feed {
        let (full, sheaves) = channel();
        let (emptied, empty) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        // The reader travels by a channel, so that it is still here if no thread starts.
        let (hand_over, handed_over) = channel::<Reader>();
        let stopped = Arc::clone(&stop);
        let work = move || {
            let reader = handed_over.recv().ok()?;
            Some(read_ahead(reader, &full, &empty, &stopped))
        };
        let Ok(thread) = std::thread::Builder::new().name("dissect".into()).spawn(work) else {
            return Feed::here(reader);
        };
        match hand_over.send(reader) {
            Ok(()) => {
                Feed::Ahead(Ahead { sheaves, emptied, stop, thread, sheaf: Sheaf::default(), taken: 0 })
            }
            Err(SendError(reader)) => Feed::here(reader),
        }
    }

    /// The next batch; to be returned with [`Feed::give_back`]. Not to be called after the one that is over.
    pub fn next(&mut self) -> Batch {
        match self {
            Feed::Here(reader, batch) => {
                let mut batch = std::mem::take(batch);
                reader.read(&mut batch);
                batch
            }
            Feed::Ahead(ahead) => ahead.next().unwrap_or_else(|| Batch { over: true, ..Batch::default() }),
        }
    }

    /// Takes an emptied batch back, for its memory.
    pub fn give_back(&mut self, mut emptied: Batch) {
        match self {
            Feed::Here(_, batch) => *batch = emptied,
            Feed::Ahead(ahead) => {
                let place = ahead.taken.checked_sub(1).and_then(|last| ahead.sheaf.batches.get_mut(last));
                place.into_iter().for_each(|place| *place = std::mem::take(&mut emptied));
            }
        }
    }

    /// Reads no further.
    pub fn stop(&self) {
        if let Feed::Ahead(ahead) = self {
            ahead.stop.store(true, Relaxed);
        }
    }

    /// A batch that was read ahead of the stop.
    pub fn left(&mut self) -> Option<Batch> {
        match self {
            Feed::Here(..) => None,
            Feed::Ahead(ahead) => ahead.next(),
        }
    }

    /// The reader, once nothing is left. A panic of its thread goes on here.
    pub fn reader(self) -> Option<Reader> {
        match self {
            Feed::Here(reader, _) => Some(*reader),
            Feed::Ahead(Ahead { thread, sheaves, emptied, .. }) => {
                // So that the thread waits for neither.
                drop((sheaves, emptied));
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
        }
    }
}

impl Ahead {
    /// The next batch; `None` when the thread has ended.
    fn next(&mut self) -> Option<Batch> {
        if self.taken >= self.sheaf.filled {
            // Before waiting for the next one: the thread may wait for this one. Or it has ended.
            let _ = self.emptied.send(std::mem::take(&mut self.sheaf));
            self.taken = 0;
            self.sheaf = self.sheaves.recv().ok()?;
        }
        let batch = self.sheaf.batches.get_mut(self.taken).filter(|_| self.taken < self.sheaf.filled)?;
        self.taken += 1;
        Some(std::mem::take(batch))
    }
}

/// Reads until the capture is over, nobody takes more, or it is to stop.
fn read_ahead(
    mut reader: Reader,
    full: &Sender<Sheaf>,
    empty: &Receiver<Sheaf>,
    stop: &AtomicBool,
) -> Reader {
    let (mut bytes, mut spare) = (0, Vec::new());
    loop {
        loop {
            let back = if bytes > MOST_BYTES { empty.recv().ok() } else { empty.try_recv().ok() };
            let Some(sheaf) = back else { break };
            bytes -= sheaf.bytes;
            spare.push(sheaf);
            spare.truncate(MOST_SPARE);
        }
        if bytes > MOST_BYTES || stop.load(Relaxed) {
            // Nobody takes more.
            return reader;
        }
        let mut sheaf = spare.pop().unwrap_or_default();
        let over = fill(&mut sheaf, &mut reader, stop);
        bytes += sheaf.bytes;
        if full.send(sheaf).is_err() || over || stop.load(Relaxed) {
            return reader;
        }
    }
}

/// Reads some batches; whether the capture is over.
fn fill(sheaf: &mut Sheaf, reader: &mut Reader, stop: &AtomicBool) -> bool {
    let (mut exchanges, mut over) = (0, false);
    (sheaf.filled, sheaf.bytes) = (0, 0);
    while !over && sheaf.filled < AT_ONCE && exchanges < MOST_EXCHANGES && !stop.load(Relaxed) {
        if sheaf.batches.len() == sheaf.filled {
            sheaf.batches.push(Batch::default());
        }
        let batch = &mut sheaf.batches[sheaf.filled];
        reader.read(batch);
        (over, exchanges) = (batch.over, exchanges + batch.harvest.exchanges.len());
        sheaf.filled += 1;
        sheaf.bytes += BATCH_BYTES + batch.harvest.memory_bytes();
    }
    over
}

#[cfg(test)]
mod tests {
    use super::super::reader::Reader;
    use super::*;
    use crate::dissect::search::Search;
    use crate::source::Capture;
    use std::io::{Cursor, Read};
    use std::sync::atomic::AtomicU64;

    const HEADER: &[u8] = b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\xff\xff\0\0\x01\0\0\0";
    const PACKET_BYTES: u64 = 16 + 14;

    /// Counts the bytes that were read of it.
    struct Counted(Cursor<Vec<u8>>, Arc<AtomicU64>);

    impl Read for Counted {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let read = self.0.read(into)?;
            self.1.fetch_add(read as u64, Relaxed);
            Ok(read)
        }
    }

    fn feed(packets: u32, ahead: bool) -> (Feed, Arc<AtomicU64>) {
        let mut file = HEADER.to_vec();
        for number in 0..packets {
            for word in [number, 0, 14, 14] {
                file.extend_from_slice(&word.to_le_bytes());
            }
            file.extend_from_slice(&[0; 14]);
        }
        let count = Arc::new(AtomicU64::new(0));
        let counted = Counted(Cursor::new(file), Arc::clone(&count));
        let capture = Capture::from_reader("noise".into(), Box::new(counted)).expect("a capture");
        let reader = Reader::new(capture, &[], None, Search::default());
        (if ahead { Feed::ahead(reader) } else { Feed::here(reader) }, count)
    }

    /// The number and the last time of each batch.
    fn all(feed: &mut Feed, mut each: impl FnMut(&Batch)) -> Vec<(u64, Option<i64>)> {
        let mut batches = Vec::new();
        loop {
            let batch = feed.next();
            each(&batch);
            batches.push((batch.progress.packets, batch.latest_ns));
            let over = batch.over;
            feed.give_back(batch);
            if over {
                return batches;
            }
        }
    }

    #[test]
    fn a_thread_reads_the_same_batches_and_gives_the_reader_back() {
        let (mut here, mut ahead) = (feed(3_000, false).0, feed(3_000, true).0);
        let batches = all(&mut here, |_| ());
        assert_eq!(all(&mut ahead, |_| ()), batches);
        assert_eq!(batches.len(), 24);
        assert!(ahead.left().is_none());
        assert_eq!(ahead.reader().expect("a reader").source.reading().packets, 3_000);
    }

    #[test]
    fn a_thread_does_not_read_far_ahead() {
        const PACKETS: u32 = 900_000;
        let (mut ahead, read) = feed(PACKETS, true);
        // A sheaf beyond the limit, the one that is taken from, and what is buffered of the file.
        let batches = MOST_BYTES / BATCH_BYTES + 2 * AT_ONCE;
        let most = batches as u64 * 128 * PACKET_BYTES + (4 << 20);
        let mut furthest = 0;
        all(&mut ahead, |batch| {
            furthest = furthest.max(read.load(Relaxed).saturating_sub(batch.progress.packets * PACKET_BYTES));
        });
        assert!((1..=most).contains(&furthest), "{furthest} bytes ahead, not up to {most}");
        assert!(most < u64::from(PACKETS) * PACKET_BYTES / 2);
    }

    #[test]
    fn a_stopped_thread_gives_what_it_has_read() {
        let (mut ahead, _) = feed(900_000, true);
        let first = ahead.next();
        let mut packets = first.progress.packets;
        ahead.give_back(first);
        ahead.stop();
        while let Some(batch) = ahead.left() {
            packets = batch.progress.packets;
            ahead.give_back(batch);
        }
        let read = ahead.reader().expect("a reader").source.reading().packets;
        assert_eq!(read, packets);
        assert!(read < 900_000, "{read}");
    }

    #[test]
    fn a_feed_that_nobody_takes_from_ends_its_thread() {
        let (feed, _) = feed(900_000, true);
        assert!(feed.reader().expect("a reader").source.reading().packets < 900_000);
    }
}

//! Writes a record for each call to a file, from a dedicated thread. No call waits for it: a record that finds
//! the queue full is counted and lost.

use crate::contract::record::{CallRecord, RECORD_BYTES};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Capacity of the queue, in records.
pub const QUEUE_RECORDS: usize = 65_536;
/// The writer is woken at this fill level, so calls rarely have to wake it.
const WAKE_AT_RECORDS: usize = QUEUE_RECORDS / 4;
/// Maximum time a record waits when there are few.
const LONGEST_WAIT: Duration = Duration::from_millis(20);

/// The queue and its writer.
pub struct Records(Arc<Shared>);

struct Shared {
    path: PathBuf,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Encoded records.
    bytes: Vec<u8>,
    /// Records that found the queue full, were queued, and were written; by warm-up and measured phase.
    refused: [u64; 2],
    taken: [u64; 2],
    stored: [u64; 2],
    failed: Option<String>,
    over: bool,
    written: bool,
}

impl Records {
    /// Opens the file and starts the writer. A FIFO is opened by the writer, since that waits for a reader.
    ///
    /// # Errors
    /// The file cannot be opened, or no thread can be started.
    pub fn create(path: &Path) -> io::Result<Self> {
        let is_fifo = std::fs::metadata(path).is_ok_and(|file| file.file_type().is_fifo());
        let file = if is_fifo { None } else { Some(File::create(path)?) };
        let queue = Queue { bytes: Vec::with_capacity(QUEUE_RECORDS * RECORD_BYTES), ..Queue::default() };
        let shared =
            Arc::new(Shared { path: path.into(), queue: Mutex::new(queue), changed: Condvar::new() });
        let for_thread = shared.clone();
        std::thread::Builder::new().name("records".into()).spawn(move || for_thread.run(file))?;
        Ok(Records(shared))
    }

    /// Queues a record, or counts it as dropped.
    pub fn push(&self, record: &CallRecord) {
        let mut queue = self.0.lock();
        if queue.failed.is_some() || queue.bytes.len() >= QUEUE_RECORDS * RECORD_BYTES {
            queue.refused[usize::from(record.measured)] += 1;
            return;
        }
        queue.taken[usize::from(record.measured)] += 1;
        queue.bytes.extend_from_slice(&record.encode());
        let wake = queue.bytes.len() == WAKE_AT_RECORDS * RECORD_BYTES;
        drop(queue);
        if wake {
            self.0.changed.notify_all();
        }
    }

    /// Records lost so far, of calls in the warm-up and in the measured phase.
    pub fn dropped(&self) -> [u64; 2] {
        let queue = self.0.lock();
        let lost = |of: usize| if queue.failed.is_some() { queue.taken[of] - queue.stored[of] } else { 0 };
        [0, 1].map(|of| queue.refused[of] + lost(of))
    }

    /// Waits until all records are written. Calls `patient` several times a second to decide whether to
    /// continue; what is unwritten when it returns false is counted as dropped. Returns why records could not
    /// be written, if so.
    pub fn finish(&self, mut patient: impl FnMut() -> bool) -> Option<String> {
        let mut queue = self.0.lock();
        queue.over = true;
        self.0.changed.notify_all();
        while !queue.written && patient() {
            queue =
                self.0.changed.wait_timeout(queue, LONGEST_WAIT).unwrap_or_else(PoisonError::into_inner).0;
        }
        if !queue.written && queue.failed.is_none() {
            queue.failed = Some("nobody reads".into());
        }
        let failed = queue.failed.as_ref();
        failed.map(|why| format!("cannot write records to {}: {why}", self.0.path.display()))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, file: Option<File>) {
        let written = file.map_or_else(|| File::create(&self.path), Ok).and_then(|file| self.write_to(file));
        let mut queue = self.lock();
        if let Err(error) = written {
            queue.failed = Some(error.to_string());
            queue.bytes = Vec::new();
        }
        queue.written = true;
        self.changed.notify_all();
    }

    fn write_to(&self, mut file: File) -> io::Result<()> {
        let mut batch = Vec::with_capacity(QUEUE_RECORDS * RECORD_BYTES);
        loop {
            let mut queue = self.lock();
            if queue.bytes.len() < WAKE_AT_RECORDS * RECORD_BYTES && !queue.over {
                let waited = self.changed.wait_timeout(queue, LONGEST_WAIT);
                queue = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            let over = queue.over;
            std::mem::swap(&mut queue.bytes, &mut batch);
            drop(queue);
            let mut written = 0;
            let outcome = write_counted(&mut file, &batch, &mut written);
            self.stored(&batch[..written]);
            outcome?;
            if over && batch.is_empty() {
                return Ok(());
            }
            batch.clear();
        }
    }

    fn stored(&self, bytes: &[u8]) {
        let mut queue = self.lock();
        for record in bytes.as_chunks::<RECORD_BYTES>().0 {
            queue.stored[usize::from(CallRecord::decode(record).measured)] += 1;
        }
    }
}

/// Writes all bytes, and reports how many were written even if that fails.
fn write_counted(file: &mut File, bytes: &[u8], written: &mut usize) -> io::Result<()> {
    while *written < bytes.len() {
        match file.write(&bytes[*written..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(more) => *written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn record(n: u64) -> CallRecord {
        CallRecord {
            trace_id: [1; 16],
            span_id: n.to_le_bytes(),
            parent_span_id: [0; 8],
            start_unix_ns: 1,
            duration_ns: 2,
            lateness_ns: 3,
            status: 0,
            measured: n.is_multiple_of(3),
            slow: false,
            stream: false,
            connection: 4,
        }
    }

    fn fifo(directory: &tempfile::TempDir) -> PathBuf {
        let path = directory.path().join("records");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
        path
    }

    #[test]
    fn a_file_has_every_record_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("records");
        let records = Records::create(&path).unwrap();
        let pushed: Vec<_> = (0..50_000).map(record).collect();
        pushed.iter().for_each(|record| records.push(record));
        assert_eq!(records.finish(|| true), None);
        let bytes = std::fs::read(&path).unwrap();
        let (read, rest) = bytes.as_chunks::<RECORD_BYTES>();
        assert!(rest.is_empty());
        assert_eq!(read.iter().map(CallRecord::decode).collect::<Vec<_>>(), pushed);
        assert_eq!(records.dropped(), [0, 0]);
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let directory = tempfile::tempdir().unwrap();
        let path = fifo(&directory);
        let records = Records::create(&path).unwrap();
        // Nobody reads yet, so nothing leaves the queue.
        let more = 999;
        (0..(QUEUE_RECORDS + more) as u64).for_each(|n| records.push(&record(n)));
        assert_eq!(records.dropped().iter().sum::<u64>(), more as u64);
        let mut read = Vec::new();
        let mut reader = File::open(&path).unwrap();
        let reading = std::thread::spawn(move || reader.read_to_end(&mut read).map(|_| read));
        assert_eq!(records.finish(|| true), None);
        assert_eq!(reading.join().unwrap().unwrap().len(), QUEUE_RECORDS * RECORD_BYTES);
    }

    #[test]
    fn without_a_reader_all_records_are_lost_and_counted() {
        let directory = tempfile::tempdir().unwrap();
        let records = Records::create(&fifo(&directory)).unwrap();
        (0..6).for_each(|n| records.push(&record(n)));
        let why = records.finish(|| false).unwrap();
        assert!(why.contains("nobody reads") && why.contains("records"), "{why}");
        assert_eq!(records.dropped(), [4, 2]);
    }

    #[test]
    fn closed_reader_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let path = fifo(&directory);
        let records = Records::create(&path).unwrap();
        drop(File::open(&path).unwrap());
        let mut pushed = 0;
        while records.dropped() == [0, 0] {
            records.push(&record(pushed));
            pushed += 1;
        }
        assert!(records.finish(|| true).unwrap().contains("Broken pipe"));
    }

    #[test]
    fn missing_folder_is_reported_at_once() {
        assert!(Records::create(Path::new("/nowhere/records")).is_err());
    }
}

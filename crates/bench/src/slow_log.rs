//! The log of slow calls: JSON Lines, written by a dedicated thread so that no call waits for the disk.

use crate::trace::Hex;
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

/// Capacity of the queue; further lines are dropped and counted.
const CAPACITY: usize = 16_384;

/// One line of the log. Times are of tank's wall clock; the duration is of its monotonic clock.
#[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize)]
pub struct SlowCall {
    /// Trace id, 32 hexadecimal digits.
    pub trace_id: String,
    /// The CLIENT span, 16 hexadecimal digits.
    pub span_id: String,
    /// gRPC status name.
    pub status: String,
    /// Due time.
    pub intended_unix_ns: u64,
    /// Time of the send.
    pub sent_unix_ns: u64,
    /// Time of the end.
    pub done_unix_ns: u64,
    /// Time from the send to the end.
    pub duration_ns: u64,
    /// Tank's address of the call's connection; null if there was none.
    pub local_addr: Option<SocketAddr>,
    /// The target's address.
    pub peer_addr: Option<SocketAddr>,
}

impl SlowCall {
    /// Ids in the format of the log.
    pub fn ids(trace_id: &[u8; 16], span_id: &[u8; 8]) -> (String, String) {
        (Hex(trace_id).to_string(), Hex(span_id).to_string())
    }
}

/// Fate of the log.
#[derive(Debug, Default)]
pub struct SlowLogEnd {
    /// Lines in the file.
    pub written: u64,
    /// Lines that found no room in the queue or could not be written.
    pub dropped: u64,
    /// First error of the file, if any.
    pub error: Option<io::Error>,
}

/// Writer of the log.
pub struct SlowLog {
    lines: SyncSender<SlowCall>,
    dropped: AtomicU64,
    thread: JoinHandle<SlowLogEnd>,
    path: PathBuf,
}

impl SlowLog {
    /// Creates or truncates the file.
    ///
    /// # Errors
    /// The file cannot be created, or the thread cannot be started.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = BufWriter::new(File::create(path)?);
        let (lines, queue) = sync_channel(CAPACITY);
        let thread =
            std::thread::Builder::new().name("slow-log".into()).spawn(move || write_all(file, &queue))?;
        Ok(SlowLog { lines, dropped: AtomicU64::new(0), thread, path: path.to_owned() })
    }

    /// Path of the log.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Queues one line; never waits.
    pub fn record(&self, call: SlowCall) {
        if self.lines.try_send(call).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes what is queued and closes the file.
    pub fn finish(self) -> SlowLogEnd {
        drop(self.lines);
        let mut end = self.thread.join().unwrap_or_default();
        end.dropped += self.dropped.into_inner();
        end
    }
}

fn write_all(mut file: BufWriter<File>, queue: &Receiver<SlowCall>) -> SlowLogEnd {
    let mut end = SlowLogEnd::default();
    loop {
        let next = match queue.try_recv() {
            Ok(call) => Ok(call),
            // The queue is empty: a reader that follows the file should see all lines so far.
            Err(TryRecvError::Empty) => {
                if let Err(error) = file.flush() {
                    end.error.get_or_insert(error);
                }
                queue.recv()
            }
            Err(TryRecvError::Disconnected) => break,
        };
        let Ok(call) = next else { break };
        let line = serde_json::to_string(&call).map_err(io::Error::from);
        match line.and_then(|line| writeln!(file, "{line}")) {
            Ok(()) => end.written += 1,
            Err(error) => {
                end.dropped += 1;
                end.error.get_or_insert(error);
            }
        }
    }
    if let Err(error) = file.flush() {
        end.error.get_or_insert(error);
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(duration_ns: u64) -> SlowCall {
        let (trace_id, span_id) = SlowCall::ids(&[0xab; 16], &[1; 8]);
        SlowCall {
            trace_id,
            span_id,
            status: "OK".into(),
            intended_unix_ns: 1,
            sent_unix_ns: 2,
            done_unix_ns: 2 + duration_ns,
            duration_ns,
            local_addr: Some("127.0.0.1:1".parse().unwrap()),
            peer_addr: None,
        }
    }

    #[test]
    fn every_line_is_one_call() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("slow.jsonl");
        let log = SlowLog::create(&path).unwrap();
        (0..100).for_each(|n| log.record(call(n)));
        let end = log.finish();
        assert_eq!((end.written, end.dropped), (100, 0));
        let text = std::fs::read_to_string(&path).unwrap();
        let back: Vec<SlowCall> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(back, (0..100).map(call).collect::<Vec<_>>());
        assert!(
            text.starts_with(
                r#"{"trace_id":"abababababababababababababababab","span_id":"0101010101010101","#
            )
        );
    }

    #[test]
    fn full_disk_is_reported() {
        let log = SlowLog::create(Path::new("/dev/full")).unwrap();
        (0..10).for_each(|n| log.record(call(n)));
        assert!(log.finish().error.is_some());
    }
}

//! Call records: from a program's FIFO into the slow log and the span exporter.

use crate::contract::message::Connection;
use crate::contract::record::{CallRecord, NO_CONNECTION, RECORD_BYTES};
use crate::otlp::{CallSpan, Method, Side, SpanSink};
use crate::slow_log::{SlowCall, SlowLog};
use crate::status::status_name;
use rustix::fs::{CWD, Mode, mkfifoat};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;
use tonic::Code;

/// Requested capacity of the FIFO, so that a client's writer rarely waits.
const FIFO_BYTES: usize = 1 << 20;
/// Size of a read.
const READ_BYTES: usize = 1024 * RECORD_BYTES;
/// A connection is announced on another pipe than the records that refer to it, possibly a little later.
const PATIENCE: Duration = Duration::from_secs(2);

/// A FIFO in a private folder; both are removed on drop.
pub struct Fifo {
    _folder: TempDir,
    path: PathBuf,
}

impl Fifo {
    /// Creates a FIFO.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn make() -> io::Result<Self> {
        let folder = TempDir::with_prefix("spangap-")?;
        let path = folder.path().join("records");
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR)?;
        Ok(Fifo { _folder: folder, path })
    }

    /// Path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Destinations of records.
#[derive(Clone, Default)]
pub struct Sinks {
    /// Slow calls.
    pub slow_log: Option<Arc<SlowLog>>,
    /// Spans of every call, on this side.
    pub spans: Option<(Side, SpanSink)>,
    /// Whether the calls are of the raw protocol.
    pub raw: bool,
    /// The method, unless it is one of the pings.
    pub other: Option<&'static str>,
}

/// Totals of a FIFO.
#[derive(Debug, Default)]
pub struct RecordsRead {
    /// Number of records.
    pub records: u64,
    /// Slow calls of the measured phase.
    pub slow: u64,
    /// Trailing bytes of an incomplete record.
    pub left_over: usize,
    /// Error before the end, if any.
    pub error: Option<io::Error>,
}

/// Connections announced by the client.
#[derive(Default)]
pub struct Connections {
    known: Mutex<HashMap<u16, Option<(SocketAddr, SocketAddr)>>>,
    told: Condvar,
}

impl Connections {
    fn known(&self) -> MutexGuard<'_, HashMap<u16, Option<(SocketAddr, SocketAddr)>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection.
    pub fn tell(&self, connection: Connection) {
        self.known().insert(connection.id, Some((connection.local, connection.peer)));
        self.told.notify_all();
    }

    /// Number of announced connections.
    pub fn count(&self) -> u64 {
        self.known().values().flatten().count() as u64
    }

    /// Addresses of a connection. Waits briefly if it has not been announced yet, but only once per connection.
    fn ends(&self, id: u16) -> Option<(SocketAddr, SocketAddr)> {
        if id == NO_CONNECTION {
            return None;
        }
        let missing = |known: &mut HashMap<u16, _>| !known.contains_key(&id);
        let (mut known, _) = self
            .told
            .wait_timeout_while(self.known(), PATIENCE, missing)
            .unwrap_or_else(PoisonError::into_inner);
        *known.entry(id).or_default()
    }
}

/// Reader thread of one run's records.
pub struct Reader {
    fifo: Fifo,
    /// A writer that never writes: without it the FIFO would report its end before the program opens it.
    held_open: File,
    thread: JoinHandle<RecordsRead>,
}

impl Reader {
    /// Starts the thread; the program may open the FIFO from now on.
    ///
    /// # Errors
    /// No FIFO can be created, or no thread can be started.
    pub fn start(sinks: Sinks, connections: Arc<Connections>) -> io::Result<Self> {
        let fifo = Fifo::make()?;
        // Opened for both at once, because each end would otherwise wait for the other.
        let both = OpenOptions::new().read(true).write(true).open(fifo.path())?;
        let file = File::open(fifo.path())?;
        let held_open = OpenOptions::new().write(true).open(fifo.path())?;
        drop(both);
        // If refused, it merely holds less.
        let _ = rustix::pipe::fcntl_setpipe_size(&file, FIFO_BYTES);
        let thread = std::thread::Builder::new().name("records".into()).spawn(move || {
            let mut read = RecordsRead::default();
            let result = read_all(file, &mut read, |record| sinks.take(&record, &connections));
            read.error = result.err();
            read
        })?;
        Ok(Reader { fifo, held_open, thread })
    }

    /// Path for the program to write to.
    pub fn path(&self) -> &Path {
        self.fifo.path()
    }

    /// Reads the rest; the program must have ended.
    pub fn finish(self) -> RecordsRead {
        drop(self.held_open);
        self.thread.join().unwrap_or_else(|_| RecordsRead {
            error: Some(io::Error::other("the thread that reads them panicked")),
            ..RecordsRead::default()
        })
    }
}

fn read_all(mut file: impl Read, read: &mut RecordsRead, mut take: impl FnMut(CallRecord)) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    let mut filled = 0;
    loop {
        let more = match file.read(&mut buffer[filled..]) {
            Ok(0) => return Ok(()),
            Ok(more) => more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        filled += more;
        let (records, rest) = buffer[..filled].as_chunks::<RECORD_BYTES>();
        for record in records {
            let record = CallRecord::decode(record);
            read.records += 1;
            read.slow += u64::from(record.slow && record.measured);
            take(record);
        }
        read.left_over = rest.len();
        buffer.copy_within(filled - read.left_over..filled, 0);
        filled = read.left_over;
    }
}

impl Sinks {
    fn take(&self, record: &CallRecord, connections: &Connections) {
        let slow = record.slow && record.measured;
        if self.spans.is_none() && !slow {
            return;
        }
        let ends = connections.ends(record.connection);
        if let Some((side, spans)) = &self.spans {
            let method = match self.other {
                Some(name) => Method::Other(name),
                None if self.raw => Method::RawPing,
                None => Method::grpc(record.stream),
            };
            spans.record(CallSpan::of_record(*side, method, record, ends));
        }
        if let Some(log) = self.slow_log.as_ref().filter(|_| slow) {
            let (local_addr, peer_addr) = ends.unzip();
            let (trace_id, span_id) = SlowCall::ids(&record.trace_id, &record.span_id);
            log.record(SlowCall {
                trace_id,
                span_id,
                status: status_name(Code::from(i32::from(record.status))).into(),
                intended_unix_ns: record.start_unix_ns.saturating_sub(record.lateness_ns),
                sent_unix_ns: record.start_unix_ns,
                done_unix_ns: record.start_unix_ns + record.duration_ns,
                duration_ns: record.duration_ns,
                local_addr,
                peer_addr,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    fn record(slow: bool, measured: bool, connection: u16) -> CallRecord {
        CallRecord {
            trace_id: [7; 16],
            span_id: [8; 8],
            parent_span_id: [0; 8],
            start_unix_ns: 1_000,
            duration_ns: 50,
            lateness_ns: 10,
            status: 4,
            measured,
            slow,
            stream: false,
            connection,
        }
    }

    /// Yields a few bytes at a time.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let size = self.1.min(buffer.len());
            self.0.read(&mut buffer[..size])
        }
    }

    proptest! {
        #[test]
        fn records_do_not_depend_on_how_the_bytes_come(
            kinds in prop::collection::vec(any::<(bool, bool, u16)>(), 0..60), at_once in 1usize..300, extra in 0usize..64,
        ) {
            let records: Vec<_> = kinds.into_iter().map(|(slow, measured, id)| record(slow, measured, id)).collect();
            let mut bytes: Vec<u8> = records.iter().flat_map(CallRecord::encode).collect();
            bytes.resize(bytes.len() + extra, 0);
            let (mut read, mut taken) = (RecordsRead::default(), Vec::new());
            read_all(Trickle(&bytes, at_once), &mut read, |record| taken.push(record)).unwrap();
            prop_assert_eq!((read.records, read.left_over), (records.len() as u64, extra));
            prop_assert_eq!(read.slow, records.iter().filter(|record| record.slow && record.measured).count() as u64);
            prop_assert_eq!(taken, records);
        }
    }

    #[test]
    fn slow_measured_calls_reach_the_log_with_the_ends_of_their_connection() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slow.jsonl");
        let log = Arc::new(SlowLog::create(&path).unwrap());
        let connections = Arc::new(Connections::default());
        let (local, peer) = ("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        connections.tell(Connection { id: 3, channel: None, local, peer });
        let sinks = Sinks { slow_log: Some(log.clone()), ..Sinks::default() };
        let reader = Reader::start(sinks, connections).unwrap();
        let mut client = OpenOptions::new().write(true).open(reader.path()).unwrap();
        for record in [record(true, true, 3), record(true, false, 3), record(true, true, NO_CONNECTION)] {
            client.write_all(&record.encode()).unwrap();
        }
        drop(client);
        let read = reader.finish();
        assert_eq!((read.records, read.slow, read.left_over), (3, 2, 0));
        assert!(read.error.is_none());
        assert_eq!(Arc::into_inner(log).unwrap().finish().written, 2);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<SlowCall> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0].local_addr, Some(local));
        assert_eq!((lines[0].intended_unix_ns, lines[0].done_unix_ns), (990, 1_050));
        assert_eq!(lines[0].status, "DEADLINE_EXCEEDED");
        assert_eq!((lines[1].local_addr, lines[1].peer_addr), (None, None));
    }

    #[test]
    fn a_client_that_never_writes_holds_nothing_up() {
        let reader = Reader::start(Sinks::default(), Arc::default()).unwrap();
        let path = reader.path().to_owned();
        assert_eq!(reader.finish().records, 0);
        assert!(!path.exists());
    }

    #[test]
    fn late_connection_message_is_waited_for() {
        let connections = Arc::new(Connections::default());
        let (local, peer) = ("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        let for_thread = connections.clone();
        let asking = std::thread::spawn(move || for_thread.ends(0));
        connections.tell(Connection { id: 0, channel: Some(0), local, peer });
        assert_eq!(asking.join().unwrap(), Some((local, peer)));
        assert_eq!(connections.count(), 1);
    }
}

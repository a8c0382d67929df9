//! All figures at one moment, the input of every exporter.

use crate::engine::Overview;
use crate::report::{ClickHouseCoverage, KafkaCoverage};
use crate::serve::places::PortFigures;
use crate::spool::SpoolFigures;
use spangap_model::{PairKey, PairStats};

/// All figures at one moment. The exporters are pure functions of it.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Every pair since the start of the process, never falling: from [`super::monotone::Monotone::raise`].
    /// The worst calls become exemplars.
    pub pairs: Vec<(PairKey, PairStats)>,
    /// Figures that do not belong to a single pair.
    pub overview: Overview,
    /// Requests refused because the meter was overloaded.
    pub refused_requests: u64,
    /// Requests that could not be decoded.
    pub invalid_requests: u64,
    /// Requests refused for reasons other than load or form, by reason.
    pub refusals: Vec<(&'static str, u64)>,
    /// Requests in progress.
    pub requests: RequestFigures,
    /// Connections by name of the port.
    pub ports: Vec<(&'static str, PortFigures)>,
    /// Start of the counts, Unix time.
    pub started_unix_ns: u64,
    /// Current Unix time.
    pub now_unix_ns: u64,
    /// Version of the program.
    pub version: &'static str,
    /// Figures of the process itself, where the system provides them.
    pub process: Option<ProcessFigures>,
    /// The stored history, if any.
    pub history: Option<HistoryFigures>,
    /// The store of all recent spans, if enabled.
    pub kept: Option<SpoolFigures>,
    /// The topic from which spans come, if any.
    pub kafka: Option<KafkaFigures>,
    /// The store of all meters' minutes, if any.
    pub clickhouse: Option<ClickHouseCoverage>,
}

/// A topic of Kafka.
#[derive(Clone, Debug, Default)]
pub struct KafkaFigures {
    /// Its figures.
    pub coverage: KafkaCoverage,
    /// The numbers of its partitions, as labels.
    pub numbers: Vec<String>,
}

impl From<KafkaCoverage> for KafkaFigures {
    fn from(coverage: KafkaCoverage) -> KafkaFigures {
        let numbers = coverage.partitions.iter().map(|partition| partition.partition.to_string()).collect();
        KafkaFigures { coverage, numbers }
    }
}

/// The byte budget of requests in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFigures {
    /// Bytes of requests in progress.
    pub bytes: u64,
    /// Their limit.
    pub bytes_limit: u64,
    /// Requests that missed their deadlines.
    pub slow: u64,
    /// Requests dropped while still arriving, because others needed their room.
    pub displaced: u64,
    /// Responses cut off because their readers were slow while others waited.
    pub displaced_answers: u64,
}

/// Figures of the process from the operating system.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessFigures {
    /// Resident memory.
    pub resident_bytes: u64,
    /// User and system CPU time.
    pub cpu_s: f64,
}

/// Figures of the stored history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryFigures {
    /// Bytes of the database, including its write-ahead log.
    pub bytes: u64,
    /// Rows of minutes removed since the start because of their age or the size of the database.
    pub pruned_rows: u64,
    /// Rows skipped since the start because they could not be decoded.
    pub damaged_rows: u64,
    /// Rows abandoned since the start because the database refused them for too long.
    pub unwritten_rows: u64,
    /// Limit of the bytes.
    pub bytes_limit: u64,
    /// Rows of closed minutes that wait in memory to be written.
    pub waiting_rows: u64,
    /// Memory of the waiting rows.
    pub waiting_bytes: u64,
}

//! All figures at one moment: what every exporter starts from.

use crate::engine::Overview;
use crate::serve::places::PortFigures;
use crate::spool::SpoolFigures;
use spangap_model::{PairKey, PairStats};

/// All figures at one moment. The exporters are pure functions of it.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Every pair since the start of the process, never falling: from [`super::monotone::Monotone::raise`].
    /// The worst calls of the statistics become exemplars.
    pub pairs: Vec<(PairKey, PairStats)>,
    /// What is not of one pair.
    pub overview: Overview,
    /// Requests refused because the meter was overloaded.
    pub refused_requests: u64,
    /// Requests that could not be decoded.
    pub invalid_requests: u64,
    /// What was refused for other reasons than load or form, by reason.
    pub refusals: Vec<(&'static str, u64)>,
    /// Requests in hand.
    pub requests: RequestFigures,
    /// Connections, by the name of their port.
    pub ports: Vec<(&'static str, PortFigures)>,
    /// When the counts began, Unix time.
    pub started_unix_ns: u64,
    /// Now, Unix time.
    pub now_unix_ns: u64,
    /// Version of the program.
    pub version: &'static str,
    /// The process itself, where the system tells.
    pub process: Option<ProcessFigures>,
    /// The stored history, if there is one.
    pub history: Option<HistoryFigures>,
    /// All spans of a short while, if they are kept.
    pub kept: Option<SpoolFigures>,
}

/// The byte budget of requests in hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFigures {
    /// Bytes of requests in hand.
    pub bytes: u64,
    /// Their limit.
    pub bytes_limit: u64,
    /// Requests that did not arrive within their deadlines.
    pub slow: u64,
    /// Requests dropped while they were still arriving, because others needed their room.
    pub displaced: u64,
    /// Answers cut off because their readers were slow and others waited.
    pub displaced_answers: u64,
}

/// Figures of the process, as the system tells them.
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
    /// Bytes of the database, its write-ahead log included.
    pub bytes: u64,
    /// Rows of minutes removed since the start because they were too old or the database too large.
    pub pruned_rows: u64,
    /// Rows met since the start that could not be decoded and were left out.
    pub damaged_rows: u64,
    /// Rows given up since the start because the database refused them for too long.
    pub unwritten_rows: u64,
    /// The bytes it is kept below.
    pub bytes_limit: u64,
    /// Rows of closed minutes that are not written yet and wait in memory.
    pub waiting_rows: u64,
    /// Memory that they take.
    pub waiting_bytes: u64,
}

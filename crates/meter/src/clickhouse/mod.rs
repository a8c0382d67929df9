//! `spangap meter --clickhouse`: the minutes of all meters in one place, and one view over them.
//!
//! A row of the history that has changed is in its outbox ([`crate::history`]). The thread `ship` sends it to ClickHouse,
//! where it replaces its earlier state; once all rows of an interval are there, `ship` says so. [`read`] answers the
//! API's questions from what all meters have sent, by the same trait as the history ([`crate::history::Minutes`]); [`cover`]
//! chooses the rows. [`spans`] finds whole traces in the Collector's table. docs/clickhouse.md states what is exact.

mod columns;
mod cover;
pub mod http;
mod read;
mod rowbinary;
pub mod settings;
mod ship;
mod spans;

use crate::history::{Cancel, History, HistoryError, Progress, Reader};
use crate::report::{ClickHouseCoverage, Note};
use crate::spool::Kept;
pub use columns::pair_id;
use http::{Refusal, Server};
pub use read::AllMinutes;
use settings::ClickHouseSettings;
use spangap_model::count::grouped;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use ureq::tls::RootCerts;

/// Statements that make the tables, if they are not there.
pub const SCHEMA: &str = include_str!("schema.sql");

/// Why minutes cannot be shared.
#[derive(Debug, thiserror::Error)]
pub enum ClickHouseError {
    /// The history lives in memory, or cannot be opened yet.
    #[error("clickhouse: rows are sent from the history, {0}")]
    NotStored(String),
    /// The history refuses.
    #[error(transparent)]
    History(#[from] HistoryError),
}

/// The store of all meters' minutes.
#[derive(Debug)]
pub struct ClickHouse {
    server: Server,
    /// URL and database, for readers.
    target: String,
    name: String,
    traces: String,
    reader: Reader,
    progress: Arc<Progress>,
    sent_rows: AtomicU64,
    failed_requests: AtomicU64,
    position: Mutex<ship::Position>,
    state: Mutex<State>,
}

/// What fails at the moment.
#[derive(Debug, Default)]
struct State {
    sending: Option<(String, u64)>,
    reading: Option<String>,
}

impl ClickHouse {
    /// Begins to mark the rows of the history that are to be sent. `host` names this meter unless the settings do;
    /// `password` is the content of the password file, and `roots` that of the file of authorities.
    ///
    /// # Errors
    /// The history is not a file, or refuses.
    pub fn open(
        settings: &ClickHouseSettings,
        password: Option<String>,
        roots: Option<RootCerts>,
        host: &str,
        history: &mut History,
    ) -> Result<ClickHouse, ClickHouseError> {
        if !history.is_stored() {
            return Err(ClickHouseError::NotStored("which is in memory only".into()));
        }
        let target = format!("{} {}", settings.url.0, settings.database.0);
        let Some(progress) = history.replicate(Some(&target))? else {
            return Err(ClickHouseError::NotStored("which marks none".into()));
        };
        Ok(ClickHouse {
            server: Server::new(settings, password, roots),
            target,
            name: settings.name.as_ref().map_or(host, |name| &name.0).into(),
            traces: settings.traces.0.clone(),
            reader: history.reader(),
            progress,
            sent_rows: AtomicU64::new(0),
            failed_requests: AtomicU64::new(0),
            position: Mutex::default(),
            state: Mutex::default(),
        })
    }

    /// Starts to send, until the handle is dropped. `unix_s` is the current time.
    pub fn start(
        self: &Arc<Self>,
        unix_s: impl Fn() -> u64 + Send + 'static,
        tell: impl Fn(&str) + Send + 'static,
    ) -> Sending {
        let (stop, stopped) = mpsc::channel();
        let shared = self.clone();
        std::thread::spawn(move || ship::run(&shared, &stopped, &unix_s, &tell));
        Sending { _stop: stop }
    }

    /// Sends one batch of rows that are marked in the history. Returns whether there may be more.
    ///
    /// # Errors
    /// When the history or ClickHouse refuses; the same rows are sent again next time.
    pub fn send(&self) -> Result<bool, HistoryError> {
        let mut position = self.position.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = ship::send(self, &mut position);
        if sent.is_err() {
            position.forget_tables();
        }
        sent
    }

    /// The minutes of all meters as of now.
    ///
    /// # Errors
    /// When ClickHouse does not answer.
    pub fn minutes(self: &Arc<Self>, cancel: &Arc<Cancel>) -> Result<AllMinutes, HistoryError> {
        let minutes = AllMinutes::open(self.clone(), cancel.clone());
        self.state().reading = match &minutes {
            Err(HistoryError::Shared(problem)) => Some(problem.clone()),
            _ => None,
        };
        minutes
    }

    /// The spans of a trace in the Collector's table; none if there is no such table.
    ///
    /// # Errors
    /// When ClickHouse does not answer.
    pub fn trace(&self, trace_id: &[u8; 16]) -> Result<Kept, HistoryError> {
        spans::find(self, trace_id)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn select(&self, query: &str) -> Result<Vec<u8>, Refusal> {
        self.server.select(query).inspect_err(|_| {
            self.failed_requests.fetch_add(1, Relaxed);
        })
    }

    /// What was sent, and what is to be sent.
    pub fn coverage(&self) -> ClickHouseCoverage {
        let state = self.state();
        ClickHouseCoverage {
            target: self.target.clone(),
            meter: self.name.clone(),
            sent_rows: self.sent_rows.load(Relaxed),
            unsent_rows: self.progress.unsent_rows(),
            lost_rows: self.progress.lost_rows(),
            failed_requests: self.failed_requests.load(Relaxed),
            problem: state.sending.as_ref().map(|(problem, _)| problem.clone()).or(state.reading.clone()),
        }
    }

    /// What readers of the coverage should know.
    pub fn notes(&self) -> Vec<Note> {
        let mut notes = vec![Note::caveat(
            "tables, time series and worst calls are those of all meters, as far as their minutes are closed and sent \
             (meters=this asks this meter alone, with its current minute); explanations, cases, match ratios and this \
             coverage are this meter's own",
        )];
        let unsent = grouped(self.progress.unsent_rows());
        let state = self.state();
        if let Some((problem, since)) = &state.sending {
            notes.push(Note::wrong(format!(
                "nothing can be sent since Unix time {since} ({problem}); {unsent} rows wait in the history"
            )));
        }
        if let Some(problem) = &state.reading {
            notes.push(Note::wrong(format!(
                "does not answer ({problem}): tables, time series and worst calls are this meter's own until it does"
            )));
        }
        let lost = self.progress.lost_rows();
        if lost > 0 {
            notes.push(Note::wrong(format!(
                "{} rows were dropped from the history, for age or size, or damaged before they could be sent",
                grouped(lost)
            )));
        }
        notes.into_iter().map(|note| note.about("ClickHouse")).collect()
    }
}

impl From<Refusal> for HistoryError {
    fn from(refusal: Refusal) -> HistoryError {
        HistoryError::Shared(refusal.to_string())
    }
}

/// The thread that sends. It ends when this is dropped, after the request that is under way, for which nobody waits: what is not known
/// to have arrived is sent after the next start.
#[derive(Debug)]
pub struct Sending {
    _stop: mpsc::Sender<()>,
}

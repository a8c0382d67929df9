//! Carries minutes from the engine to the history: closed ones for good, open ones every few seconds, so that
//! a kill loses seconds and not the minute.

use super::clock::Clock;
use crate::engine::Meter;
use crate::history::{CHECKPOINT, History, HistoryError, LastRun};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// How often the history is pruned, in checkpoints.
const PRUNE_EVERY: u32 = 60;

/// The history, shared between the recorder and queries.
#[derive(Debug)]
pub struct Store {
    history: Mutex<History>,
    last_run: LastRun,
    problem: Mutex<Option<String>>,
}

impl Store {
    /// The history. While it is held, no minute moves from the engine into it.
    pub fn lock(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the reader of the figures should know of the history, in words.
    pub fn notes(&self) -> Vec<String> {
        let history = self.lock();
        let mut notes = Vec::new();
        if self.last_run != LastRun::None {
            notes.push(format!("history: {}", self.last_run));
        }
        if !history.is_stored() {
            notes.push("history: in memory only, it ends with the process".into());
        }
        if history.damaged_rows > 0 {
            notes.push(format!("history: {} damaged rows were left out of answers", history.damaged_rows));
        }
        notes.extend(
            self.problem().clone().map(|problem| format!("not written at the last checkpoint: {problem}")),
        );
        notes
    }

    fn problem(&self) -> MutexGuard<'_, Option<String>> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One checkpoint. Minutes that cannot be written are tried again with the next one.
    fn checkpoint(&self, meter: &Meter, clock: &Clock) -> Result<(), HistoryError> {
        let mut history = self.lock();
        let taken = meter.take_minutes();
        let minutes = [taken.closed, taken.open].concat();
        history.checkpoint(clock.unix_s(), &minutes, &meter.overview().accounting)
    }
}

/// The thread that writes.
#[derive(Debug)]
pub struct Recorder {
    store: Arc<Store>,
    stop: mpsc::Sender<()>,
    thread: JoinHandle<()>,
    meter: Arc<Meter>,
    clock: Clock,
}

impl Recorder {
    /// Starts writing.
    pub fn start(meter: Arc<Meter>, clock: Clock, history: (History, LastRun)) -> Recorder {
        let store = Store { history: Mutex::new(history.0), last_run: history.1, problem: Mutex::default() };
        let store = Arc::new(store);
        let (stop, stopped) = mpsc::channel();
        let (its_store, its_meter) = (store.clone(), meter.clone());
        let thread = std::thread::spawn(move || {
            let mut checkpoints = 0u32;
            while stopped.recv_timeout(CHECKPOINT) == Err(RecvTimeoutError::Timeout) {
                checkpoints += 1;
                let mut done = its_store.checkpoint(&its_meter, &clock);
                if checkpoints.is_multiple_of(PRUNE_EVERY) {
                    done = done.and_then(|()| its_store.lock().prune(clock.unix_s()));
                }
                let problem = done.err().map(|e| e.to_string());
                let mut known = its_store.problem();
                if let Some(problem) = problem.as_ref().filter(|_| known.is_none()) {
                    super::tell(problem);
                }
                *known = problem;
            }
        });
        Recorder { store, stop, thread, meter, clock }
    }

    /// The history, for queries.
    pub fn store(&self) -> Arc<Store> {
        self.store.clone()
    }

    /// Writes the last minutes and marks the run as closed.
    ///
    /// # Errors
    /// When the database refuses.
    pub fn stop(self) -> Result<(), HistoryError> {
        drop(self.stop);
        // The thread ends by itself; had it panicked, what it had written is still there.
        let _ = self.thread.join();
        self.store.checkpoint(&self.meter, &self.clock)?;
        self.store.lock().close(self.clock.unix_s())
    }
}

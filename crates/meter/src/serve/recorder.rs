//! Transfers minutes from the engine to the history: closed ones once, open ones every few seconds, so that a
//! kill loses seconds rather than the minute. Until a minute is written, queries find it in memory.

use super::clock::Clock;
use crate::engine::partitions::PartitionMark;
use crate::engine::{Meter, PairMinute};
use crate::export::snapshot::HistoryFigures;
use crate::history::{
    CHECKPOINT, Cancel, Checkpoint, Counted, History, HistoryError, LastRun, MAX_WAITING_BYTES, Reader,
    SetAside, UnwrittenMinutes, View, Waiting,
};
use crate::report::{HistoryCoverage, HistorySteps, Note};
use spangap_model::{Accounting, PairKey};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Checkpoints between two prunings.
const PRUNE_EVERY: u32 = 60;
/// Maximum time for rollup and conversion between two checkpoints.
const MAINTAIN_WITHIN: Duration = Duration::from_secs(2);

/// A log from which spans come, and whose partitions move between meters. It hears how far a checkpoint has
/// counted before the checkpoint is written: see [`crate::kafka`].
pub trait Log: std::fmt::Debug + Send + Sync {
    /// Name of the log and of those who read it together.
    fn name(&self) -> &str;
    /// Name of this meter's history among them.
    fn reader(&self) -> &str;
    /// From where this meter counts partitions that it has taken over. Written before anything is committed.
    fn claims(&self) -> Vec<PartitionMark>;
    /// These are written.
    fn claimed(&self, claims: &[PartitionMark]);
    /// Takes note of a checkpoint that is about to be written.
    ///
    /// # Errors
    /// Why it does not: the checkpoint must not be written then.
    fn commit(&self, marks: &[PartitionMark]) -> Result<(), String>;
    /// The checkpoint is written.
    fn written(&self, marks: &[PartitionMark]);
}

/// What others ask of the recorder.
#[derive(Clone, Copy, Debug)]
enum Request {
    Checkpoint,
    Forget,
    Stop,
}

/// A request, and where its outcome goes.
type Asked = (Request, mpsc::Sender<Result<(), String>>);

/// Access to the recorder for the reader of a log.
#[derive(Clone, Debug)]
pub struct Requests(mpsc::Sender<Asked>);

impl Requests {
    /// Writes a checkpoint, and waits for it.
    ///
    /// # Errors
    /// Why it is not written; the next one may include it.
    pub fn checkpoint(&self) -> Result<(), String> {
        self.ask(Request::Checkpoint)
    }

    /// Forgets what was counted since the last checkpoint.
    ///
    /// # Errors
    /// When the history refuses.
    pub fn forget(&self) -> Result<(), String> {
        self.ask(Request::Forget)
    }

    fn ask(&self, request: Request) -> Result<(), String> {
        let (reply, answer) = mpsc::channel();
        let gone = || "the thread that writes the history has ended".to_string();
        self.0.send((request, reply)).map_err(|_| gone())?;
        answer.recv().unwrap_or_else(|_| Err(gone()))
    }
}

/// Access to the history for queries and figures. No lock in here is held while the database is read or
/// written.
#[derive(Debug)]
pub struct Store {
    meter: Arc<Meter>,
    reader: Reader,
    waiting: Mutex<Waiting>,
    state: Mutex<State>,
    log: Option<Arc<dyn Log>>,
}

/// As of the last checkpoint.
#[derive(Debug, Default)]
struct State {
    stored: bool,
    last_run: Option<LastRun>,
    figures: HistoryFigures,
    steps: Vec<HistorySteps>,
    set_aside: Vec<SetAside>,
    /// Minutes before this time are still in an older format.
    converting_before_s: Option<u64>,
    /// Why the last checkpoint failed, and since when all have failed.
    problem: Option<(String, u64)>,
    /// Damage found by a query.
    damage: Option<String>,
    /// Accounting of all spans.
    spans: Accounting,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    pub(crate) fn new(meter: Arc<Meter>, history: &History, log: Option<Arc<dyn Log>>) -> Store {
        let waiting = Waiting::new(history.generation(), MAX_WAITING_BYTES);
        let reader = history.reader();
        Store { meter, reader, waiting: Mutex::new(waiting), state: Mutex::default(), log }
    }

    /// A snapshot of the history, and the minutes not yet in it: no minute is in both or in neither. Open
    /// minutes are restricted to the matching `pairs`.
    ///
    /// # Errors
    /// When the database refuses.
    pub fn view(
        &self,
        cancel: &Arc<Cancel>,
        pairs: impl Fn(&PairKey) -> bool,
    ) -> Result<(View, UnwrittenMinutes), HistoryError> {
        self.view_with(cancel, || self.meter.open_minutes_of(&pairs))
    }

    /// Like [`Store::view`], for queries of gaps alone: open minutes contain nothing else.
    ///
    /// # Errors
    /// When the database refuses.
    pub fn view_of_gaps(
        &self,
        cancel: &Arc<Cancel>,
        pairs: impl Fn(&PairKey) -> bool,
    ) -> Result<(View, UnwrittenMinutes), HistoryError> {
        self.view_with(cancel, || self.meter.open_gaps_of(&pairs))
    }

    fn view_with(
        &self,
        cancel: &Arc<Cancel>,
        open: impl Fn() -> Vec<PairMinute>,
    ) -> Result<(View, UnwrittenMinutes), HistoryError> {
        loop {
            let view = self.reader.view(cancel.clone())?;
            let waiting = locked(&self.waiting);
            // Minutes that left memory after this snapshot was taken are in neither: take a newer snapshot.
            if waiting.written_until() > view.generation() {
                continue;
            }
            let unseen = waiting.batches().into_iter().filter(|batch| batch.generation > view.generation());
            let memory = UnwrittenMinutes {
                waiting: unseen.map(|batch| batch.minutes).collect(),
                // Under the lock, because the recorder takes minutes from the engine under it.
                open: open(),
            };
            return Ok((view, memory));
        }
    }

    /// Reports that a query found the database broken; the recorder then moves it aside.
    pub fn report(&self, error: &HistoryError) {
        if error.is_damage() {
            locked(&self.state).damage.get_or_insert_with(|| error.to_string());
        }
    }

    /// For queries that need no minutes.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Size and losses, as of the last checkpoint.
    pub fn figures(&self) -> HistoryFigures {
        let figures = locked(&self.state).figures;
        let waiting = locked(&self.waiting);
        HistoryFigures {
            damaged_rows: self.reader.damaged_rows(),
            unwritten_rows: waiting.lost_rows,
            waiting_rows: waiting.rows(),
            waiting_bytes: waiting.bytes(),
            ..figures
        }
    }

    /// Contents of the history, for the coverage.
    pub fn coverage(&self) -> HistoryCoverage {
        let figures = self.figures();
        let state = locked(&self.state);
        HistoryCoverage {
            stored: state.stored,
            bytes: figures.bytes,
            bytes_limit: figures.bytes_limit,
            steps: state.steps.clone(),
            waiting_rows: figures.waiting_rows,
            waiting_bytes: figures.waiting_bytes,
            waiting_bytes_limit: MAX_WAITING_BYTES,
            lost_rows: figures.unwritten_rows,
            damaged_rows: figures.damaged_rows,
            problem: state.problem.as_ref().map(|(problem, _)| problem.clone()),
        }
    }

    /// Why the history is incomplete; `None` if all is well.
    pub fn degraded(&self) -> Option<String> {
        let (problem, since) = locked(&self.state).problem.clone()?;
        let figures = self.figures();
        let lost = match figures.unwritten_rows {
            0 => "none lost yet".to_string(),
            rows => format!("{rows} lost"),
        };
        Some(format!(
            "history not written since Unix time {since} ({problem}); {} rows of closed minutes wait in memory, {lost}",
            figures.waiting_rows
        ))
    }

    /// Notes for readers on the history.
    pub fn notes(&self) -> Vec<Note> {
        let degraded = self.degraded();
        let figures = self.figures();
        let state = locked(&self.state);
        let mut notes = Vec::new();
        if let Some(last_run) = state.last_run.as_ref().filter(|run| **run != LastRun::None) {
            notes.push(Note::caveat(last_run.to_string()));
        }
        if !state.stored {
            notes.push(Note::caveat("in memory only, lost when the process exits"));
        }
        notes.extend(state.set_aside.iter().map(|aside| Note::wrong(aside.to_string())));
        if let Some(before_s) = state.converting_before_s {
            notes.push(Note::caveat(format!(
                "minutes before Unix time {before_s} are still being converted from an older format, and are \
                 missing in answers until then"
            )));
        }
        if figures.damaged_rows > 0 {
            let rows = figures.damaged_rows;
            notes.push(Note::wrong(format!("{rows} damaged rows were left out of answers")));
        }
        if figures.unwritten_rows > 0 {
            let rows = figures.unwritten_rows;
            notes.push(Note::wrong(format!("{rows} rows could not be written in time and are lost")));
        }
        let mut notes: Vec<Note> = notes.into_iter().map(|note| note.about("history")).collect();
        notes.extend(degraded.map(|degraded| Note::wrong(degraded).about("degraded")));
        notes
    }

    /// One checkpoint. Minutes that cannot be written stay in memory for the next one.
    pub(crate) fn checkpoint(&self, history: &mut History, clock: &Clock) -> Result<(), HistoryError> {
        let (taken, batches) = {
            let mut waiting = locked(&self.waiting);
            let mut taken = self.meter.take_minutes();
            waiting.push(std::mem::take(&mut taken.closed));
            (taken, waiting.batches())
        };
        if let Some(log) = &self.log {
            let claims = log.claims();
            if !claims.is_empty() {
                history.claim(&Counted { log: log.name(), reader: log.reader(), partitions: &claims })?;
                log.claimed(&claims);
            }
            log.commit(&taken.partitions).map_err(HistoryError::Source)?;
        }
        let checkpoint = Checkpoint {
            now_unix_s: clock.unix_s(),
            closed: &batches,
            open: &taken.open,
            settled_before_s: taken.settled_before_s,
            spans: &taken.spans,
            counted: self.log.as_ref().map(|log| Counted {
                log: log.name(),
                reader: log.reader(),
                partitions: &taken.partitions,
            }),
        };
        let damage = locked(&self.state).damage.take();
        if let Some(damage) = damage {
            self.set_aside(history, clock, damage)?;
        }
        match history.checkpoint(&checkpoint) {
            Err(error) if error.is_damage() => {
                self.set_aside(history, clock, error.to_string())?;
                history.checkpoint(&checkpoint)?;
            }
            done => done?,
        }
        // Minutes leave memory only after the database has them, and its generation tells readers.
        locked(&self.waiting).written(history.generation());
        locked(&self.state).spans = taken.spans;
        if let Some(log) = &self.log {
            log.written(&taken.partitions);
        }
        Ok(())
    }

    /// Goes back to the last checkpoint.
    pub(crate) fn forget(&self, history: &mut History) -> Result<(), HistoryError> {
        locked(&self.waiting).discard();
        history.close_open_minutes()?;
        let spans = locked(&self.state).spans;
        self.meter.forget_unwritten(&spans);
        if let Some(log) = &self.log {
            // A checkpoint may have been written although it was reported as failed.
            log.written(&history.counted(log.name(), log.reader())?.1);
        }
        Ok(())
    }

    fn set_aside(&self, history: &mut History, clock: &Clock, why: String) -> Result<(), HistoryError> {
        history.replace(clock.unix_s(), why)?;
        if let Some(aside) = history.set_aside().last() {
            super::notice::tell(aside);
        }
        Ok(())
    }

    /// A checkpoint, followed by the work that depends on it.
    fn round(&self, history: &mut History, clock: &Clock, prune: bool) -> Result<(), String> {
        let begun = Instant::now();
        let mut done = self.checkpoint(history, clock);
        if prune {
            done = done.and_then(|()| history.prune(clock.unix_s()));
        }
        while done.is_ok() && begun.elapsed() < MAINTAIN_WITHIN {
            match history.maintain() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => done = Err(error),
            }
        }
        if let Err(error) = &done {
            self.report(error);
        }
        let done = done.map_err(|error| error.to_string());
        self.publish(history, done.clone().err(), clock);
        done
    }

    fn publish(&self, history: &History, problem: Option<String>, clock: &Clock) {
        let figures = history.figures();
        let steps = history.steps();
        let converting = history.first_minutes_before_s();
        let mut state = locked(&self.state);
        state.stored = history.is_stored();
        state.last_run = Some(history.last_run().clone());
        state.figures = figures.unwrap_or(state.figures);
        if let Ok(steps) = steps {
            state.steps = steps;
        }
        state.converting_before_s = converting.unwrap_or(state.converting_before_s);
        state.set_aside = history.set_aside().to_vec();
        let since = state.problem.as_ref().map(|(_, since)| *since);
        match (&problem, since) {
            (Some(problem), None) => super::notice::tell(problem),
            (None, Some(_)) => super::notice::tell(&"writing the history works again"),
            _ => {}
        }
        state.problem = problem.map(|problem| (problem, since.unwrap_or(clock.unix_s())));
    }
}

/// The writing thread.
#[derive(Debug)]
pub struct Recorder {
    store: Arc<Store>,
    requests: Requests,
    thread: JoinHandle<History>,
    clock: Clock,
}

impl Recorder {
    /// Starts the thread.
    pub fn start(
        meter: Arc<Meter>,
        clock: Clock,
        mut history: History,
        log: Option<Arc<dyn Log>>,
    ) -> Recorder {
        let store = Arc::new(Store::new(meter, &history, log));
        history.set_aside().iter().for_each(|aside| super::notice::tell(aside));
        store.publish(&history, history.unopened().map(String::from), &clock);
        let (requests, asked) = mpsc::channel::<Asked>();
        let its_store = store.clone();
        let thread = std::thread::spawn(move || {
            let mut checkpoints = 0u32;
            loop {
                let (request, reply) = match asked.recv_timeout(CHECKPOINT) {
                    Err(RecvTimeoutError::Timeout) => (Request::Checkpoint, None),
                    Err(RecvTimeoutError::Disconnected) => break,
                    Ok((request, reply)) => (request, Some(reply)),
                };
                let done = match request {
                    Request::Stop => break,
                    Request::Forget => its_store.forget(&mut history).map_err(|error| error.to_string()),
                    Request::Checkpoint => {
                        checkpoints += 1;
                        its_store.round(&mut history, &clock, checkpoints.is_multiple_of(PRUNE_EVERY))
                    }
                };
                if let Some(reply) = reply {
                    let _ = reply.send(done);
                }
            }
            history
        });
        Recorder { store, requests: Requests(requests), thread, clock }
    }

    /// For the reader of a log.
    pub fn requests(&self) -> Requests {
        self.requests.clone()
    }

    /// The history for queries.
    pub fn store(&self) -> Arc<Store> {
        self.store.clone()
    }

    /// Writes the last minutes of a history that outlives the process, and marks the run as closed.
    ///
    /// # Errors
    /// When the database refuses.
    pub fn stop(self) -> Result<(), HistoryError> {
        let (reply, _) = mpsc::channel();
        let _ = self.requests.0.send((Request::Stop, reply));
        let Ok(mut history) = self.thread.join() else {
            // Its earlier writes are intact, and the next start closes the open minutes.
            super::notice::tell(&"the thread that writes the history has failed: its last minutes are lost");
            return Ok(());
        };
        if !history.is_stored() {
            // It ends with this process: nobody would read the last minutes.
            return Ok(());
        }
        let written = self.store.checkpoint(&mut history, &self.clock);
        if written.is_err() {
            let rows = locked(&self.store.waiting).rows();
            super::notice::tell(&format!(
                "the current minute and {rows} rows of closed minutes are lost: they were never written"
            ));
        }
        written.and_then(|()| history.close(self.clock.unix_s()))
    }
}

//! Writes the stream of events to a file, with everything needed to match it with calls later.

use super::{End, Meta, Reading, Relation, StepWatch, Writer, Written};
use crate::event::{Event, What};
use crate::kernel::ProbeError;
use crate::probes::cost::Cost;
use crate::probes::intervals::{Counts, Intervals, Settings};
use serde::Serialize;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Interval at which events, names and a reading of the clocks are written to the file: a kill loses this
/// much.
pub(super) const EVERY: Duration = Duration::from_secs(1);

/// Why recording cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The programs failed.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The file cannot be written.
    #[error("{0}")]
    Write(io::Error),
    /// Clock steps cannot be observed.
    #[error("cannot watch the clock: {0}")]
    Clock(io::Error),
}

/// A running recording.
pub struct Recorder<W: Write> {
    intervals: Intervals,
    sink: Sink<W>,
    steps: StepWatch,
    relation: Relation,
    saved: Instant,
}

/// Destination of the events.
struct Sink<W: Write> {
    writer: Writer<W>,
    kinds: Kinds,
    failed: Option<io::Error>,
}

impl<W: Write> Sink<W> {
    fn event(&mut self, event: &Event) {
        self.kinds.count(event);
        if self.failed.is_none() {
            self.failed = self.writer.event(event).err();
        }
    }

    fn check(&mut self) -> Result<(), RecordError> {
        self.failed.take().map_or(Ok(()), |error| Err(RecordError::Write(error)))
    }
}

/// Number of events by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Kinds {
    /// Switches from one thread to another.
    pub switches: u64,
    /// Softirqs, or pieces of them by interface.
    pub softirqs: u64,
    /// Runs of interrupt handlers.
    pub hardirqs: u64,
    /// Segments that arrived at sockets of watched processes.
    pub arrivals: u64,
    /// Reads of watched processes from sockets.
    pub reads: u64,
    /// Writes of watched processes to sockets.
    pub writes: u64,
    /// Sleeps of watched threads that ended.
    pub wakeups: u64,
    /// Places where events were lost.
    pub losses: u64,
    /// Time that the hypervisor gave to others, nanoseconds.
    pub steal_ns: u64,
}

impl Kinds {
    fn count(&mut self, event: &Event) {
        match event.what {
            What::Switch { .. } => self.switches += 1,
            What::Softirq { .. } => self.softirqs += 1,
            What::Hardirq { .. } => self.hardirqs += 1,
            What::Arrived(_) => self.arrivals += 1,
            What::Read { .. } => self.reads += 1,
            What::Wrote { .. } => self.writes += 1,
            What::Woken(_) => self.wakeups += 1,
            What::Lost { .. } => self.losses += 1,
            What::Steal { ns, .. } => self.steal_ns += ns,
        }
    }
}

/// What was recorded.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Start and end, nanoseconds of CLOCK_MONOTONIC.
    pub began_ns: u64,
    /// See there.
    pub ended_ns: u64,
    /// Events read from the rings, and events lost.
    pub counts: Counts,
    /// Of each kind.
    pub kinds: Kinds,
    /// Content of the file.
    pub written: Written,
    /// Capacity of one CPU's ring in events.
    pub ring_events: usize,
    /// What this kernel could not report, in sentences.
    pub lacks: Vec<String>,
    /// Cost of the programs, as far as it was sampled.
    pub cost: Option<Cost>,
    /// The relation of the clocks.
    pub relation: Relation,
}

impl<W: Write> Recorder<W> {
    /// Starts the stream and the file. Fills what only the stream knows into `meta`.
    pub fn start(settings: &Settings, to: W, meta: Meta) -> Result<Recorder<W>, RecordError> {
        let steps = StepWatch::new().map_err(RecordError::Clock)?;
        let intervals = Intervals::start(settings)?;
        let meta = Meta {
            began_ns: intervals.began_ns(),
            cpus: intervals.cpus() as u32,
            lacks: intervals.lacks().to_vec(),
            pids: settings.tgids.clone(),
            ..meta
        };
        let writer = Writer::new(to, &meta).map_err(RecordError::Write)?;
        let sink = Sink { writer, kinds: Kinds::default(), failed: None };
        let mut recorder =
            Recorder { intervals, sink, steps, relation: Relation::default(), saved: Instant::now() };
        recorder.save()?;
        Ok(recorder)
    }

    /// Processes what has arrived; waits for it at most `patience`.
    pub fn poll(&mut self, patience: Duration) -> Result<(), RecordError> {
        let sink = &mut self.sink;
        self.intervals.poll(patience, &mut |event| sink.event(event))?;
        self.sink.check()?;
        if self.saved.elapsed() >= EVERY { self.save() } else { Ok(()) }
    }

    /// Counts so far.
    pub fn counts(&self) -> Counts {
        self.intervals.counts()
    }

    /// Size of the file so far.
    pub fn bytes(&self) -> u64 {
        self.sink.writer.written().bytes
    }

    fn save(&mut self) -> Result<(), RecordError> {
        self.saved = Instant::now();
        let names = self.intervals.names().take_fresh();
        let writer = &mut self.sink.writer;
        writer.names(&names).map_err(RecordError::Write)?;
        note(writer, &self.steps, &mut self.relation)?;
        writer.flush().map_err(RecordError::Write)
    }

    /// Ends it; the file is complete afterwards.
    pub fn finish(mut self) -> Result<(W, Recorded), RecordError> {
        let (began_ns, ring_events) = (self.intervals.began_ns(), self.intervals.ring_events());
        let (lacks, cost) = (self.intervals.lacks().to_vec(), self.intervals.cost());
        let sink = &mut self.sink;
        let mut ended = self.intervals.stop(&mut |event| sink.event(event))?;
        sink.check()?;
        let Sink { mut writer, kinds, .. } = self.sink;
        writer.names(&ended.names.take_fresh()).map_err(RecordError::Write)?;
        note(&mut writer, &self.steps, &mut self.relation)?;
        let counts = ended.counts;
        let end = End { ended_ns: ended.ended_ns, events: counts.events, lost: counts.lost };
        let (to, written) = writer.finish(end).map_err(RecordError::Write)?;
        let recorded = Recorded {
            began_ns,
            ended_ns: ended.ended_ns,
            counts,
            kinds,
            written,
            ring_events,
            lacks,
            cost,
            relation: self.relation,
        };
        Ok((to, recorded))
    }
}

/// Writes a reading of the clocks to the file.
fn note<W: Write>(
    writer: &mut Writer<W>,
    steps: &StepWatch,
    relation: &mut Relation,
) -> Result<(), RecordError> {
    // Read before the clocks: the next reading reports a step in between.
    let stepped = steps.stepped().map_err(RecordError::Clock)?;
    let reading = Reading { stepped, ..Reading::take() };
    relation.add(reading);
    writer.clocks(&reading).map_err(RecordError::Write)
}

//! The latest part of the stream, kept in bounded memory; any part of it can become a file.
//!
//! Events are kept in segments of about a second, coded as in a file. What a segment needs besides its own
//! bytes, the names and the relation of the clocks, is kept once for all.

use super::recorder::{EVERY, RecordError};
use super::{End, Meta, Reading, Relation, StepWatch, Writer};
use crate::event::Tid;
use crate::kernel::ProbeError;
use crate::probes::cost::Cost;
use crate::probes::intervals::{Counts, Intervals, Settings};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::time::{Duration, Instant};

/// Segments between two checks for threads that have ended.
const FORGET_EVERY: u64 = 16;

/// A recording that forgets its oldest part when it exceeds its memory.
pub struct Rolling {
    intervals: Intervals,
    writer: Writer<Vec<u8>>,
    failed: Option<io::Error>,
    steps: StepWatch,
    meta: Meta,
    segments: VecDeque<Segment>,
    bytes: usize,
    most_bytes: usize,
    saved: Instant,
    /// Events up to this time are in segments, nanoseconds of CLOCK_MONOTONIC.
    settled_ns: u64,
    /// What all segments so far have told of, those forgotten included.
    told: Counts,
    closed: u64,
    /// Threads that are gone, and when that was noticed.
    ended: BTreeMap<Tid, u64>,
}

/// About a second of events.
struct Segment {
    /// Every event of this time is in it, or was lost and is counted; nanoseconds of CLOCK_MONOTONIC.
    from_ns: u64,
    to_ns: u64,
    events: u64,
    lost: u64,
    /// Complete records of a file.
    records: Vec<u8>,
    reading: Reading,
}

/// The part of the stream that is kept, or that a file made from it contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Start of the events, nanoseconds of CLOCK_MONOTONIC.
    pub from_ns: u64,
    /// Until when.
    pub to_ns: u64,
    /// Events in it.
    pub events: u64,
    /// Events of this time that found no room in the kernel's rings.
    pub lost: u64,
    /// Size of its events.
    pub bytes: u64,
    /// Requested segments that did not fit: the oldest ones.
    pub left_out: usize,
}

impl Rolling {
    /// Starts the stream. Keeps about `most_bytes` of coded events.
    pub fn start(settings: &Settings, meta: Meta, most_bytes: usize) -> Result<Rolling, RecordError> {
        let steps = StepWatch::new().map_err(RecordError::Clock)?;
        let mut intervals = Intervals::start(settings)?;
        let began_ns = intervals.began_ns();
        let meta = Meta {
            began_ns,
            cpus: intervals.cpus() as u32,
            lacks: intervals.lacks().to_vec(),
            pids: settings.tgids.clone(),
            ..meta
        };
        let mut writer = Writer::new(Vec::new(), &meta).map_err(RecordError::Write)?;
        // Each file made from a part has its own beginning.
        writer.take();
        intervals.names().take_fresh();
        Ok(Rolling {
            intervals,
            writer,
            failed: None,
            steps,
            meta,
            segments: VecDeque::new(),
            bytes: 0,
            most_bytes,
            saved: Instant::now(),
            settled_ns: began_ns,
            told: Counts::default(),
            closed: 0,
            ended: BTreeMap::new(),
        })
    }

    /// Processes what has arrived; waits for it at most `patience`.
    pub fn poll(&mut self, patience: Duration) -> Result<(), RecordError> {
        let (writer, failed) = (&mut self.writer, &mut self.failed);
        self.intervals.poll(patience, &mut |event| {
            if failed.is_none() {
                *failed = writer.event(event).err();
            }
        })?;
        self.failed.take().map_or(Ok(()), |error| Err(RecordError::Write(error)))?;
        if self.saved.elapsed() >= EVERY { self.close_segment() } else { Ok(()) }
    }

    /// From now on, follows the sockets of these processes, and of no others.
    pub fn watch(&mut self, tgids: &BTreeSet<u32>) -> Result<(), ProbeError> {
        self.intervals.watch(tgids)?;
        self.meta.pids = tgids.iter().copied().collect();
        Ok(())
    }

    /// Lets the programs rest, or record again: see [`Intervals::rest`].
    pub fn rest(&mut self, resting: bool) -> Result<(), ProbeError> {
        self.intervals.rest(resting)
    }

    /// Events received since the start, and events lost.
    pub fn counts(&self) -> Counts {
        self.intervals.counts()
    }

    /// What this kernel cannot report, in sentences.
    pub fn lacks(&self) -> &[String] {
        self.intervals.lacks()
    }

    /// Cost of the programs since the start, as far as it was sampled.
    pub fn cost(&mut self) -> Option<Cost> {
        self.intervals.cost()
    }

    /// Events that the programs have written so far, and those for which they found no room.
    pub fn written(&self) -> u64 {
        self.intervals.written()
    }

    /// What is kept.
    pub fn kept(&self) -> Part {
        let mut part = Part { from_ns: self.settled_ns, to_ns: self.settled_ns, ..Part::default() };
        if let Some(first) = self.segments.front() {
            part.from_ns = first.from_ns;
        }
        self.segments.iter().for_each(|segment| part.add(segment));
        part
    }

    /// A time of the events in nanoseconds since 1970, and its error bound.
    pub fn unix_ns(&self, mono_ns: u64) -> Option<(i64, u64)> {
        self.relation().unix_ns(mono_ns)
    }

    /// Everything up to this time is kept, nanoseconds since 1970; `None` while the clocks are not related
    /// yet.
    pub fn settled_unix_ns(&self) -> Option<i64> {
        self.unix_ns(self.intervals.settled_ns()).map(|(unix_ns, _)| unix_ns)
    }

    /// A file of what is kept between `from_unix_ns` and `to_unix_ns`, in whole segments, of at most about
    /// `most_bytes`. `None` if nothing is kept of it. `meta` may add what the recorder does not know.
    pub fn part(
        &mut self,
        (from_unix_ns, to_unix_ns): (i64, i64),
        most_bytes: usize,
        meta: impl FnOnce(Meta) -> Meta,
    ) -> Result<Option<(Vec<u8>, Part)>, RecordError> {
        self.close_segment()?;
        let relation = self.relation();
        let after = |mono_ns| relation.unix_ns(mono_ns).is_none_or(|(unix_ns, _)| unix_ns >= from_unix_ns);
        let before = |mono_ns| relation.unix_ns(mono_ns).is_none_or(|(unix_ns, _)| unix_ns <= to_unix_ns);
        let wanted: Vec<&Segment> =
            self.segments.iter().filter(|segment| after(segment.to_ns) && before(segment.from_ns)).collect();
        let mut bytes = 0;
        let fitting = wanted.iter().rev().take_while(|segment| {
            bytes += segment.records.len();
            bytes <= most_bytes
        });
        let left_out = wanted.len() - fitting.count();
        let chosen = &wanted[left_out..];
        let Some((first, last)) = chosen.first().zip(chosen.last()) else { return Ok(None) };
        let mut part = Part { from_ns: first.from_ns, to_ns: last.to_ns, left_out, ..Part::default() };
        chosen.iter().for_each(|segment| part.add(segment));
        let meta = meta(Meta { began_ns: part.from_ns, ..self.meta.clone() });
        let mut write = || {
            let mut writer = Writer::new(Vec::new(), &meta)?;
            writer.names(self.intervals.names())?;
            for segment in &self.segments {
                writer.clocks(&segment.reading)?;
            }
            for segment in chosen {
                writer.whole(&segment.records, segment.events)?;
            }
            writer.finish(End { ended_ns: part.to_ns, events: part.events, lost: part.lost })
        };
        let (file, _) = write().map_err(RecordError::Write)?;
        Ok(Some((file, part)))
    }

    fn relation(&self) -> Relation {
        let mut relation = Relation::default();
        self.segments.iter().for_each(|segment| relation.add(segment.reading));
        relation
    }

    fn close_segment(&mut self) -> Result<(), RecordError> {
        self.saved = Instant::now();
        self.writer.flush().map_err(RecordError::Write)?;
        // Read before the clocks: the next reading reports a step in between.
        let stepped = self.steps.stepped().map_err(RecordError::Clock)?;
        let reading = Reading { stepped, ..Reading::take() };
        self.intervals.names().take_fresh();
        let (now, told) = (self.intervals.counts(), self.told);
        self.told = now;
        let records = self.writer.take();
        let from_ns = self.settled_ns;
        let to_ns = self.intervals.settled_ns().max(from_ns);
        self.settled_ns = to_ns;
        let (events, lost) = (now.events - told.events, now.lost - told.lost);
        self.bytes += weight(&records);
        self.segments.push_back(Segment { from_ns, to_ns, events, lost, records, reading });
        while self.bytes > self.most_bytes && self.segments.len() > 1 {
            let oldest = self.segments.pop_front();
            self.bytes -= oldest.map_or(0, |segment| weight(&segment.records));
        }
        self.closed += 1;
        if self.closed.is_multiple_of(FORGET_EVERY) {
            self.forget();
        }
        Ok(())
    }

    /// Forgets the names of threads that had ended before the first segment.
    fn forget(&mut self) {
        let (now_ns, first_ns) = (self.settled_ns, self.segments.front().map_or(0, |first| first.from_ns));
        let names = self.intervals.names();
        let is_alive = |tid: Tid| std::fs::exists(format!("/proc/{tid}")).unwrap_or(true);
        let gone: BTreeSet<Tid> = names.tasks().map(|(tid, _)| tid).filter(|&tid| !is_alive(tid)).collect();
        self.ended.retain(|tid, _| gone.contains(tid));
        for tid in gone {
            let since_ns = *self.ended.entry(tid).or_insert(now_ns);
            if since_ns < first_ns {
                names.forget(tid);
                self.ended.remove(&tid);
            }
        }
        names.forget_empty_cgroups();
    }
}

impl Part {
    fn add(&mut self, segment: &Segment) {
        self.to_ns = segment.to_ns;
        self.events += segment.events;
        self.lost += segment.lost;
        self.bytes += segment.records.len() as u64;
    }
}

/// Memory used by a segment.
fn weight(records: &[u8]) -> usize {
    records.len() + size_of::<Segment>()
}

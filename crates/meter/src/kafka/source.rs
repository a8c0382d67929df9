//! The thread that reads: one membership of the group after the other.

use super::Kafka;
use super::apart::Apart;
use super::library::{Consumer, Polled, Rebalance, Received};
use super::member::Group;
use super::settings::Encoding;
use crate::engine::partitions::Message;
use crate::ingest::otlp_json;
use crate::report::{KafkaCoverage, KafkaPartition, Note};
use crate::serve::clock::Clock;
use crate::serve::notice::tell;
use crate::serve::recorder::Requests;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How long a poll waits.
const POLL_MS: u32 = 100;
/// Between looks at what is not messages.
const LOOK: Duration = Duration::from_millis(500);
/// Between looks at whether others went on after what was left unsettled.
const SETTLE: Duration = Duration::from_secs(5);
/// Between attempts to reach Kafka again, or to write what could not be written.
const AGAIN: Duration = Duration::from_secs(2);
/// Without a written checkpoint for so long, no more messages are read.
const UNWRITTEN: Duration = Duration::from_secs(20);
/// How long a revoked partition may wait for its minutes to be written.
const FLUSH: Duration = Duration::from_secs(15);
/// Closed minutes that wait for the recorder; it is asked to hurry.
const CLOSED_MINUTES: usize = 6;
/// A partition this far ahead of the slowest waits for it.
const AHEAD_MS: u64 = 10 * 60_000;
/// A partition that has brought nothing for so long, although it has more, is not waited for.
const STALLED: Duration = Duration::from_secs(30);
/// A timestamp this far in the future is a wrong clock, and no time to live by.
const FUTURE_MS: u64 = 60_000;
/// Calls looked at before it is said that their halves lie apart, and how often that is repeated.
const APART_CALLS: u64 = 50;
const APART_AGAIN: Duration = Duration::from_secs(3600);

/// What is known of an assigned partition besides its messages.
#[derive(Debug)]
struct Reading {
    /// The end reached, and since when nothing has followed.
    end: Option<(i64, Instant)>,
    asked: Instant,
    last: Instant,
    paused: bool,
}

impl Default for Reading {
    fn default() -> Reading {
        let now = Instant::now();
        Reading { end: None, asked: now, last: now, paused: false }
    }
}

/// The reader.
#[derive(Debug)]
pub struct Source {
    kafka: Arc<Kafka>,
    requests: Requests,
    clock: Clock,
    reading: BTreeMap<i32, Reading>,
    counts: KafkaCoverage,
    apart: Apart,
    said_apart: Option<Instant>,
    looked: Instant,
    settled: Instant,
    /// The latest minute of messages.
    minute: u64,
    /// Since the last attempt to write, while nothing is read because nothing can be written.
    held: Option<Instant>,
}

impl Source {
    pub(super) fn new(kafka: Arc<Kafka>, requests: Requests, clock: Clock) -> Source {
        Source {
            counts: kafka.figures(),
            kafka,
            requests,
            clock,
            reading: BTreeMap::new(),
            apart: Apart::default(),
            said_apart: None,
            looked: Instant::now(),
            settled: Instant::now(),
            minute: 0,
            held: None,
        }
    }

    /// Reads until it is asked to stop.
    pub fn run(&mut self) {
        let mut said = String::new();
        while !self.kafka.is_stopping() {
            let Err(problem) = self.membership() else { continue };
            if said != problem {
                tell(&format!("kafka: {problem}"));
                said = problem.clone();
            }
            self.counts.problem = Some(problem);
            self.publish(None);
            let until = Instant::now() + AGAIN;
            while Instant::now() < until && !self.kafka.is_stopping() {
                std::thread::park_timeout(Duration::from_millis(100));
            }
        }
    }

    /// One membership: pays debts, joins, reads; at its end all that is counted is written, or forgotten.
    fn membership(&mut self) -> Result<(), String> {
        let kafka = self.kafka.clone();
        let properties = kafka.settings.properties(kafka.password.as_deref());
        let consumer =
            Consumer::new(&kafka.library, &properties, &kafka.settings.topic.0, kafka.stop.clone());
        let consumer = Arc::new(consumer.map_err(|error| error.to_string())?);
        kafka.member.connect(Some(consumer.clone()));
        let done = self.pay(&consumer).and_then(|()| {
            consumer.subscribe()?;
            self.read(&consumer)
        });
        let done = done.and_then(|()| self.requests.checkpoint());
        // Nothing is committed after this, so nothing is written that others may count.
        kafka.member.connect(None);
        let forgotten = self.requests.forget();
        self.reading.clear();
        self.held = None;
        consumer.close();
        self.publish(None);
        done.and(forgotten)
    }

    /// Counts what an earlier run has committed and not written.
    fn pay(&mut self, consumer: &Consumer) -> Result<(), String> {
        let kafka = self.kafka.clone();
        for debt in kafka.member.debts()? {
            consumer.read(Some((debt.partition, debt.read_from)))?;
            loop {
                if kafka.is_stopping() {
                    return Err("stopped before all messages of the last run were counted".into());
                }
                match consumer.poll(POLL_MS) {
                    Some(Polled::Message(message)) if message.offset() < debt.until => self.message(&message),
                    Some(Polled::Message(_) | Polled::End { .. }) => break,
                    Some(Polled::Fatal(why)) => return Err(why),
                    Some(Polled::Problem(_)) | None => {}
                }
            }
            kafka.meter.partition_ends(debt.partition, debt.until, 0);
            self.requests.checkpoint()?;
            kafka.meter.close_partition(debt.partition);
        }
        consumer.read(None)
    }

    fn read(&mut self, consumer: &Consumer) -> Result<(), String> {
        self.counts.problem = None;
        while !self.kafka.is_stopping() {
            while let Some(rebalance) = consumer.rebalance() {
                self.counts.rebalances += 1;
                match rebalance {
                    Rebalance::Assigned(partitions) => self.assigned(consumer, &partitions)?,
                    Rebalance::Revoked(partitions) => self.revoked(consumer, &partitions)?,
                }
            }
            match consumer.poll(POLL_MS) {
                Some(Polled::Message(message)) => {
                    if let Some(reading) = self.reading.get_mut(&message.partition()) {
                        (reading.end, reading.last) = (None, Instant::now());
                    }
                    self.message(&message);
                    self.pass(message.time_ms());
                    if self.kafka.meter.closed_minutes() >= CLOSED_MINUTES
                        && self.requests.checkpoint().is_err()
                    {
                        self.hold(consumer);
                    }
                }
                Some(Polled::End { partition, offset }) => {
                    if let Some(reading) = self.reading.get_mut(&partition) {
                        reading.end = Some((offset, Instant::now()));
                        self.kafka.meter.partition_ends(partition, offset, 0);
                    }
                }
                Some(Polled::Problem(problem)) => {
                    if self.counts.problem.as_ref() != Some(&problem) {
                        tell(&format!("kafka: {problem}"));
                    }
                    self.counts.problem = Some(problem);
                }
                Some(Polled::Fatal(why)) => return Err(why),
                None => {}
            }
            if self.looked.elapsed() >= LOOK {
                self.looked = Instant::now();
                self.look(consumer)?;
            }
        }
        Ok(())
    }

    fn assigned(&mut self, consumer: &Consumer, partitions: &[i32]) -> Result<(), String> {
        let starts = match self.kafka.member.assigned(partitions) {
            Ok(starts) => starts,
            Err(problem) => {
                // The group waits for an answer, whatever it is.
                self.kafka.member.connect(None);
                return consumer.answer(&Rebalance::Assigned(partitions.to_vec())).and(Err(problem));
            }
        };
        consumer.assign(&starts)?;
        self.reading.extend(partitions.iter().map(|partition| (*partition, Reading::default())));
        if self.held.is_some() {
            consumer.pause(partitions, true);
        }
        Ok(())
    }

    /// The group waits: what was counted is written, and then others may have the partitions. If that does not
    /// succeed in time, it is forgotten, for others will count it.
    fn revoked(&mut self, consumer: &Consumer, partitions: &[i32]) -> Result<(), String> {
        let written = self.flush(consumer);
        match written {
            Ok(()) => self.kafka.member.revoked(partitions),
            // Nothing may be committed once others have the partitions.
            Err(_) => self.kafka.member.connect(None),
        }
        self.reading.retain(|partition, _| !partitions.contains(partition));
        let unassigned = consumer.unassign(partitions);
        written.and(unassigned)
    }

    fn flush(&self, consumer: &Consumer) -> Result<(), String> {
        let until = Instant::now() + FLUSH;
        loop {
            if consumer.is_lost() {
                return Err(
                    "the group took this meter for dead; it counts again from its last checkpoint".into()
                );
            }
            match self.requests.checkpoint() {
                Ok(()) => return Ok(()),
                Err(problem) if Instant::now() > until => {
                    return Err(format!(
                        "partitions were to be handed over, and their minutes not written: {problem}"
                    ));
                }
                Err(_) => {}
            }
        }
    }

    fn message(&mut self, received: &Received) {
        let (partition, offset) = (received.partition(), received.offset());
        self.counts.messages += 1;
        self.counts.bytes += received.payload().len() as u64;
        let now_ms = self.clock.unix_ms();
        let mut time_ms = received.time_ms();
        if time_ms.is_some_and(|ms| ms > now_ms + FUTURE_MS) {
            self.counts.future_timestamps += 1;
            time_ms = None;
        }
        let decoded = match (received.payload(), self.kafka.settings.encoding) {
            ([], _) => Err("it is empty".to_string()),
            (_, Encoding::OtlpProto) => Ok(None),
            (json, Encoding::OtlpJson) => {
                otlp_json::to_protobuf(json).map(Some).map_err(|error| error.to_string())
            }
        };
        let request = match &decoded {
            Ok(Some(protobuf)) => Some(protobuf.as_slice()),
            Ok(None) => Some(received.payload()),
            Err(_) => None,
        };
        let message = Message { partition, offset, time_ms, request };
        let apart = &mut self.apart;
        let done = self
            .kafka
            .meter
            .ingest_message(&message, self.clock.now_ms(), |spans| apart.look(partition, spans));
        let problem = decoded.err().or_else(|| done.err().map(|error| error.to_string()));
        if let Some(problem) = problem {
            self.counts.undecoded += 1;
            let topic = &self.counts.topic;
            let what =
                format!("message {offset} of {topic} partition {partition} cannot be decoded: {problem}");
            // The first is said, and then each time there are ten times as many.
            if self.counts.undecoded.to_string().trim_end_matches('0') == "1" {
                tell(&format!("kafka: {what} ({} so far)", self.counts.undecoded));
            }
            self.counts.last_undecoded = Some(what);
        }
    }

    /// Minutes close as the times of messages go on, however fast they are read.
    fn pass(&mut self, time_ms: Option<u64>) {
        let minute = time_ms.unwrap_or(0) / 60_000;
        if minute > self.minute {
            self.minute = minute;
            self.kafka.meter.tick(self.clock.now_ms());
        }
    }

    /// Reads no more until something can be written.
    fn hold(&mut self, consumer: &Consumer) {
        if self.held.is_none() {
            tell(&"kafka: nothing is read until what was counted can be written");
            self.held = Some(Instant::now());
            consumer.pause(&self.reading.keys().copied().collect::<Vec<_>>(), true);
            self.reading.values_mut().for_each(|reading| reading.paused = true);
        }
    }

    fn look(&mut self, consumer: &Consumer) -> Result<(), String> {
        if self.settled.elapsed() >= SETTLE {
            self.settled = Instant::now();
            if self.kafka.member.owes() == Ok(true) {
                return Err("another meter went on after messages that this one has yet to count; it leaves the group for that".into());
            }
        }
        if let Some(tried) = self.held {
            if tried.elapsed() < AGAIN {
                return Ok(());
            }
            self.held = Some(Instant::now());
            if self.requests.checkpoint().is_err() {
                return Ok(());
            }
            self.held = None;
            consumer.pause(&self.reading.keys().copied().collect::<Vec<_>>(), false);
            self.reading.values_mut().for_each(|reading| reading.paused = false);
        } else if self.kafka.member.unwritten_for() > UNWRITTEN {
            self.hold(consumer);
        }
        self.kafka.member.check_read_back();
        self.silence(consumer);
        self.align(consumer);
        self.publish(Some(consumer));
        let share = self.apart.share().filter(|share| *share > 0.01);
        let is_due = self.said_apart.is_none_or(|said| said.elapsed() > APART_AGAIN);
        if let Some(share) = share.filter(|_| is_due && self.apart.apart + self.apart.together > APART_CALLS)
        {
            self.said_apart = Some(Instant::now());
            tell(&apart_note(&self.counts.topic, share));
        }
        Ok(())
    }

    /// Halves age at the end of a partition, as long as the brokers confirm that it is the end.
    fn silence(&mut self, consumer: &Consumer) {
        let ttl = Duration::from_millis(self.kafka.meter.settings().join_ttl_ms.unwrap_or(u32::MAX).into());
        for (partition, reading) in &mut self.reading {
            let Some((offset, since)) = &mut reading.end else { continue };
            if since.elapsed() < ttl || reading.asked.elapsed() < ttl / 8 {
                continue;
            }
            reading.asked = Instant::now();
            match consumer.ends(*partition) {
                Ok((_, next)) if next <= *offset => {
                    let silent_ms = since.elapsed().as_millis() as u64;
                    self.kafka.meter.partition_ends(*partition, *offset, silent_ms);
                }
                // Something has been written since, or nobody knows.
                _ => *since = Instant::now(),
            }
        }
    }

    /// Partitions that are far ahead wait for the slowest, so that the minutes between them need not stay open.
    fn align(&mut self, consumer: &Consumer) {
        if self.held.is_some() {
            return;
        }
        let times: BTreeMap<i32, u64> = self
            .kafka
            .meter
            .partitions()
            .iter()
            .map(|figures| (figures.partition, figures.time_ms))
            .collect();
        let moves =
            |reading: &Reading| reading.end.is_none() && (reading.paused || reading.last.elapsed() < STALLED);
        let moving = self.reading.iter().filter(|(_, reading)| moves(reading));
        let slowest = moving.filter_map(|(partition, _)| times.get(partition)).filter(|ms| **ms > 0).min();
        let limit_ms = slowest.map_or(u64::MAX, |slowest| slowest + AHEAD_MS);
        for (partition, reading) in &mut self.reading {
            let is_ahead = times.get(partition).is_some_and(|ms| *ms > limit_ms);
            if is_ahead != reading.paused {
                reading.paused = is_ahead;
                consumer.pause(&[*partition], is_ahead);
            }
        }
    }

    fn publish(&mut self, consumer: Option<&Consumer>) {
        let (counts, of) = (&mut self.counts, &self.kafka.member.counts);
        counts.commits = of.commits.load(Relaxed);
        counts.failed_commits = of.failed_commits.load(Relaxed);
        counts.gone_messages = of.gone.load(Relaxed);
        counts.set_back_partitions = of.set_back.load(Relaxed);
        counts.unknown_parts = of.unknown.load(Relaxed);
        counts.differing_read_backs = of.differing.load(Relaxed);
        counts.late_attempts = self.kafka.meter.late_attempts();
        (counts.mates_apart, counts.mates_together) = (self.apart.apart, self.apart.together);
        counts.held = self.held.is_some();
        let ends: BTreeSet<i32> = self
            .reading
            .iter()
            .filter(|(_, reading)| reading.end.is_some())
            .map(|(partition, _)| *partition)
            .collect();
        let of_partition = |figures: &crate::engine::partitions::PartitionFigures| {
            let end = consumer.and_then(|consumer| consumer.heard_end(figures.partition));
            KafkaPartition {
                partition: figures.partition,
                next_offset: figures.next_offset.max(0) as u64,
                lag: end.map(|end| (end - figures.next_offset).max(0) as u64),
                time_unix_ms: figures.time_ms,
                messages: figures.messages,
                read_back: figures.read_back,
                is_reading_back: figures.is_reading_back,
                at_end: ends.contains(&figures.partition),
                paused: self.reading.get(&figures.partition).is_some_and(|reading| reading.paused),
                waiting: figures.waiting,
                taken_over: figures.taken_over,
                joined: figures.joined,
                unmatched: figures.unmatched,
            }
        };
        counts.partitions = self.kafka.meter.partitions().iter().map(of_partition).collect();
        *self.kafka.figures.lock().unwrap_or_else(PoisonError::into_inner) = counts.clone();
    }
}

/// What it means that halves lie apart, and what to do about it.
pub fn apart_note(topic: &str, share: f64) -> String {
    format!(
        "kafka: THE HALVES OF {:.0} % OF CALLS LIE IN DIFFERENT PARTITIONS of {topic}, and cannot join: partition by trace \
         id. In the Collector's kafka exporter that is partition_traces_by_id: true",
        100.0 * share
    )
}

/// What a reader of the coverage should know.
pub fn notes(figures: &KafkaCoverage) -> Vec<Note> {
    let calls = figures.mates_apart + figures.mates_together;
    let share = figures.mates_apart as f64 / calls.max(1) as f64;
    let mut notes = Vec::new();
    if calls > APART_CALLS && share > 0.01 {
        notes.push(Note::wrong(apart_note(&figures.topic, share)));
    }
    notes.extend(figures.problem.iter().map(|problem| Note::caveat(format!("kafka: {problem}"))));
    if figures.held {
        notes.push(Note::wrong("kafka: nothing is read until what was counted can be written"));
    }
    if figures.gone_messages > 0 {
        let gone = figures.gone_messages;
        notes.push(Note::wrong(format!(
            "kafka: {gone} messages were deleted by the brokers before they were counted"
        )));
    }
    let counted = [
        (figures.unknown_parts, "parts of partitions: whether they were counted is unknown"),
        (figures.set_back_partitions, "partitions were set back by somebody; nothing was counted twice here"),
        (figures.differing_read_backs, "partitions had other waiting halves after reading back than before"),
        (
            figures.late_attempts,
            "attempts at calls that an earlier run or another meter counts as calls with one attempt",
        ),
        (figures.future_timestamps, "messages have timestamps in the future: a producer's clock is wrong"),
    ];
    let counted = counted.into_iter().filter(|(count, _)| *count > 0);
    notes.extend(counted.map(|(count, what)| Note::caveat(format!("kafka: {count} {what}"))));
    if let Some(last) = &figures.last_undecoded {
        let passed_over = figures.undecoded;
        notes.push(Note::wrong(format!("kafka: {passed_over} messages were passed over; the last: {last}")));
    }
    notes
}

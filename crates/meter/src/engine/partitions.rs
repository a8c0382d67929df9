//! Spans that come from the partitions of a log (Kafka). Each partition has waiting halves and a time of its own.
//!
//! The time of a partition is the largest timestamp of its messages so far. What joins, and what expires, follows
//! from the sequence of its messages alone: neither the wall clock nor other partitions have a part in it. A
//! partition that is read again from far enough back therefore arrives at the same waiting halves: see
//! [`Meter::open_partition`].
//!
//! The partition's waiting halves take the place of the engine's own while one of its messages is processed, so
//! the join is the same code, and spans that arrive over the network pay nothing for it.
//!
//! A partition is in one lane as a whole, with all its traces, since it has a time of its own.

use super::ingest::BATCH;
use super::shard::Surroundings;
use super::{EXPIRE_AT_ONCE, Ingested, Lane, Meter};
use crate::entry::State as EntryState;
use crate::ingest::origins::Interned;
use crate::ingest::walk::{SpanFacts, walk};
use crate::ingest::wire::WalkError;
use crate::join::{Outcome, Retracted, id_of_call, waited_ms};
use crate::pending::{KeyMaker, Pending};
use crate::services::Services;
use rustc_hash::FxHashMap;
use spangap_model::Accounting;
use spangap_model::accounting::Malformed;
use std::mem::swap;
use std::sync::MutexGuard;

/// Pair of a joined call that this engine has not recorded, because an earlier run or another meter has.
const NOT_RECORDED: u32 = u32::MAX;
/// A partition this far behind the newest no longer keeps minutes open. Its calls are then added to minutes that
/// are already closed.
const MAX_SKEW_MS: u64 = 30 * 60_000;

/// A message of a partition.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Number of the partition.
    pub partition: i32,
    /// Offset in the partition.
    pub offset: i64,
    /// Timestamp in Unix milliseconds; `None` leaves the partition's time as it is.
    pub time_ms: Option<u64>,
    /// OTLP; `None` for a message that could not be decoded, which is passed over.
    pub request: Option<&'a [u8]>,
}

/// Where a partition begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// First message that will come.
    pub read_from: i64,
    /// First message that counts; those before it only rebuild the waiting halves.
    pub count_from: i64,
    /// The partition's time before the first message that counts; 0 if unknown.
    pub time_ms: u64,
}

/// How far a partition has been counted: stored together with the minutes that came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionMark {
    /// Number of the partition.
    pub partition: i32,
    /// The next message to count.
    pub next_offset: i64,
    /// The partition's time before that message.
    pub time_ms: u64,
    /// Halves waiting there.
    pub waiting: u64,
}

/// Figures of one partition since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionFigures {
    /// Number of the partition.
    pub partition: i32,
    /// The next message to read.
    pub next_offset: i64,
    /// Time of the partition, Unix milliseconds; 0 before its first message.
    pub time_ms: u64,
    /// Messages that counted.
    pub messages: u64,
    /// Messages read again.
    pub read_back: u64,
    /// Whether messages are still being read again.
    pub is_reading_back: bool,
    /// Halves waiting.
    pub waiting: u64,
    /// Halves that were waiting when the messages had been read again.
    pub taken_over: u64,
    /// Halves that found their mate.
    pub joined: u64,
    /// Halves that found no mate in time.
    pub unmatched: u64,
}

/// The partitions in a lane.
#[derive(Debug, Default)]
pub(super) struct Partitions {
    open: FxHashMap<i32, Box<Partition>>,
    newest_ms: u64,
    pub(super) handed_over: u64,
    pub(super) late_attempts: u64,
}

#[derive(Debug)]
struct Partition {
    pending: Pending,
    /// Silence at the end of the partition, beyond which time passes without messages.
    silent_ms: u64,
    read_back: Option<ReadBack>,
    figures: PartitionFigures,
}

/// Spans that an earlier run has counted are counted here, and forgotten.
#[derive(Debug, Default)]
struct ReadBack {
    until: i64,
    time_ms: u64,
    accounting: Accounting,
    malformed: Malformed,
    unmatched: Services,
}

impl Partition {
    /// Time that halves wait by.
    fn time_ms(&self, ttl_ms: u32) -> u64 {
        self.figures.time_ms + self.silent_ms.saturating_sub(ttl_ms as u64)
    }
}

impl Partitions {
    /// The time of the slowest partition, if any has one, and that of the fastest so far.
    fn times_ms(&self, ttl_ms: u32) -> (Option<u64>, u64) {
        let low = |partition: &Partition| match &partition.read_back {
            Some(back) => back.time_ms,
            None => partition.time_ms(ttl_ms),
        };
        let lows = self.open.values().map(|partition| low(partition)).filter(|ms| *ms > 0);
        (lows.min(), self.newest_ms)
    }

    /// Bytes of all waiting halves.
    pub(super) fn pending_bytes(&self) -> u64 {
        self.open.values().map(|partition| partition.pending.bytes() as u64).sum()
    }

    /// Marks the origins of waiting halves as in use: a partition that stands still keeps its halves.
    pub(super) fn touch_origins(&self, interned: &Interned, now_ms: u64) {
        for entry in self.open.values().flat_map(|partition| partition.pending.iter()) {
            if let EntryState::Waiting(half) = entry.state() {
                interned.touch(half.origin, now_ms);
            }
        }
    }

    /// In any order.
    pub(super) fn marks(&self) -> Vec<PartitionMark> {
        let counted = self.open.values().filter(|partition| partition.read_back.is_none());
        let mark = |partition: &Partition| {
            let PartitionFigures { partition, next_offset, time_ms, waiting, .. } = partition.figures;
            PartitionMark { partition, next_offset, time_ms, waiting }
        };
        counted.map(|partition| mark(partition)).collect()
    }
}

impl Meter {
    fn lane_of(&self, partition: i32) -> MutexGuard<'_, Lane> {
        self.lane(partition.unsigned_abs() as usize % self.lanes.len())
    }

    /// Minutes that end before this time can no longer change.
    pub(super) fn safe_ms_of_partitions(&self, ttl_ms: u32) -> u64 {
        let times = self.each_lane().map(|lane| lane.partitions.times_ms(ttl_ms));
        let (low_ms, newest_ms) = times.fold((None::<u64>, 0), |(low, newest), (low_here, newest_here)| {
            (low.into_iter().chain(low_here).min(), newest.max(newest_here))
        });
        match low_ms {
            Some(low) => low.max(newest_ms.saturating_sub(MAX_SKEW_MS)).saturating_sub(ttl_ms as u64),
            None => newest_ms + 60_000,
        }
    }

    /// Divides the memory of waiting halves evenly.
    fn divide(&self) {
        let open: usize = self.each_lane().map(|lane| lane.partitions.open.len()).sum();
        let share = self.settings.max_pending_bytes / open.max(1) as u64;
        for mut lane in self.each_lane() {
            let partitions = lane.partitions.open.values_mut();
            partitions.for_each(|partition| partition.pending.set_max_bytes(share));
        }
    }

    /// Opens a partition. If messages are read again from `read_from` on, `count_from` arrives at the halves that
    /// were waiting there, provided that the messages before `read_from` are older than twice the time to live:
    /// what an older half met has expired by then.
    pub fn open_partition(&self, partition: i32, at: Opening) {
        let back = ReadBack { until: at.count_from, time_ms: at.time_ms, ..ReadBack::default() };
        let opened = Partition {
            pending: Pending::new(self.settings.max_pending_bytes),
            silent_ms: 0,
            read_back: (at.read_from < at.count_from).then_some(back),
            figures: PartitionFigures {
                partition,
                next_offset: at.read_from,
                // Messages that are read again set it once more.
                time_ms: if at.read_from < at.count_from { 0 } else { at.time_ms },
                ..PartitionFigures::default()
            },
        };
        self.lane_of(partition).partitions.open.insert(partition, Box::new(opened));
        self.divide();
    }

    /// Processes the next message of an open partition; one that was processed before is passed over. `seen` gets
    /// the spans of a message that counts.
    ///
    /// # Errors
    /// When the request is not well-formed: none of its spans count, and the partition goes on after it.
    pub fn ingest_message(
        &self,
        message: &Message,
        now_ms: u64,
        seen: impl FnOnce(&[SpanFacts]),
    ) -> Result<Ingested, WalkError> {
        self.origins.set_now(now_ms);
        BATCH.with_borrow_mut(|(batch, _)| {
            batch.spans.clear();
            let request = message.request.unwrap_or_default();
            let walked = walk(request, &self.interest, &self.origins, batch);
            if walked.is_err() {
                batch.spans.clear();
            }
            let interned = self.origins.read();
            let around = Surroundings { interned: &interned, common: &self.common };
            let mut lane = self.lane_of(message.partition);
            let spans = batch.spans.len() as u64;
            let done = lane.with_partition(message.partition, |lane, partition| {
                if message.offset < partition.figures.next_offset {
                    return;
                }
                lane.end_read_back(partition, message.offset);
                if partition.read_back.is_none() {
                    seen(&batch.spans);
                }
                lane.process(partition, message, (&batch.spans, &self.keys), self.ttl_ms(), around);
                lane.end_read_back(partition, message.offset + 1);
            });
            batch.shrink();
            walked?;
            let spans = if done.is_some() { spans } else { 0 };
            Ok(Ingested { spans, malformed: Malformed::default() })
        })
    }

    /// Reports that nothing follows `next_offset` at the moment, and has not for `silent_ms`. After a time to live
    /// of silence, halves age without messages.
    pub fn partition_ends(&self, partition: i32, next_offset: i64, silent_ms: u64) {
        let interned = self.origins.read();
        self.lane_of(partition).with_partition(partition, |lane, partition| {
            lane.end_read_back(partition, next_offset);
            partition.silent_ms = silent_ms;
            if silent_ms > self.ttl_ms() as u64 && partition.read_back.is_none() {
                let now_ms = partition.time_ms(self.ttl_ms());
                lane.within(partition, |lane| lane.expire_to(now_ms, self.ttl_ms(), &interned));
            }
        });
    }

    /// Closes a partition that others will read on. Its waiting halves leave this engine uncounted.
    pub fn close_partition(&self, partition: i32) {
        let mut lane = self.lane_of(partition);
        let Some(partition) = lane.partitions.open.remove(&partition) else { return };
        if partition.read_back.is_none() {
            lane.leave(partition.figures.waiting);
        }
        drop(lane);
        self.divide();
    }

    /// Forgets whatever was counted since the last checkpoint, at which the spans were these, and closes all
    /// partitions.
    pub fn forget_unwritten(&self, spans: &Accounting) {
        // No minute closes meanwhile.
        let mut ledger = self.ledger();
        ledger.closed.clear();
        for mut lane in self.each_lane() {
            lane.stats.windows.forget_open();
            lane.partitions.open.clear();
            lane.of_partitions.join.accounting = Accounting::default();
        }
        // Only the sum over the lanes means anything.
        let mut first = self.lane(0);
        first.of_partitions.join.accounting = *spans;
        first.leave(spans.pending);
    }

    /// Figures of every open partition.
    pub fn partitions(&self) -> Vec<PartitionFigures> {
        let of = |partition: &Partition| PartitionFigures {
            is_reading_back: partition.read_back.is_some(),
            ..partition.figures
        };
        let mut figures = Vec::new();
        for lane in self.each_lane() {
            figures.extend(lane.partitions.open.values().map(|partition| of(partition)));
        }
        figures.sort_unstable_by_key(|figures| figures.partition);
        figures
    }

    /// Minutes that wait for a recorder.
    pub fn closed_minutes(&self) -> usize {
        self.ledger().closed.len()
    }

    /// Attempts after the first at calls that an earlier run or another meter has recorded: these calls are still
    /// counted as calls with one attempt.
    pub fn late_attempts(&self) -> u64 {
        self.each_lane().map(|lane| lane.partitions.late_attempts).sum()
    }

    fn ttl_ms(&self) -> u32 {
        self.settings.join_ttl_ms.unwrap_or(u32::MAX / 2)
    }
}

impl Lane {
    fn with_partition(&mut self, number: i32, work: impl FnOnce(&mut Lane, &mut Partition)) -> Option<()> {
        let mut partition = self.partitions.open.remove(&number)?;
        work(self, &mut partition);
        self.partitions.newest_ms = self.partitions.newest_ms.max(partition.figures.time_ms);
        self.partitions.open.insert(number, partition);
        Some(())
    }

    /// Exchanges the engine's waiting halves for those of the partition, and back. While messages are read again,
    /// the counts are others as well.
    fn swap(&mut self, partition: &mut Partition) {
        self.of_partitions.join.swap_pending(&mut partition.pending);
        if let Some(back) = &mut partition.read_back {
            swap(&mut self.of_partitions.join.accounting, &mut back.accounting);
            swap(&mut self.of_partitions.join.malformed, &mut back.malformed);
            swap(&mut self.of_partitions.join.unmatched, &mut back.unmatched);
        }
    }

    fn process(
        &mut self,
        partition: &mut Partition,
        message: &Message,
        (spans, keys): (&[SpanFacts], &KeyMaker),
        ttl_ms: u32,
        around: Surroundings<'_>,
    ) {
        let interned = around.interned;
        let counts = partition.read_back.is_none();
        let figures = &mut partition.figures;
        figures.next_offset = message.offset + 1;
        figures.time_ms = figures.time_ms.max(message.time_ms.unwrap_or(0));
        *(if counts { &mut figures.messages } else { &mut figures.read_back }) += 1;
        let now_ms = figures.time_ms;
        partition.silent_ms = 0;
        self.within(partition, |lane| {
            lane.expire_to(now_ms, ttl_ms, interned);
            let request = message.request.unwrap_or_default();
            for span in spans {
                let bytes = &request[span.offset as usize..(span.offset + span.len) as usize];
                let key = keys.key(keys.trace(span.trace), id_of_call(span));
                match lane.of_partitions.join.offer(span, key, bytes, now_ms as u32, interned) {
                    Outcome::Joined(call) if counts => {
                        let Lane { stats, of_partitions, .. } = lane;
                        stats.record(&mut of_partitions.join, call, span, bytes, now_ms, around);
                    }
                    Outcome::Joined(call) => {
                        lane.of_partitions.join.remember(call.position, NOT_RECORDED, 0, None)
                    }
                    Outcome::Retracted(call) if counts => lane.retract_if_recorded(call, span, now_ms),
                    Outcome::Retracted(_) | Outcome::Counted => {}
                }
            }
        });
    }

    /// Works on the waiting halves of a partition.
    fn within(&mut self, partition: &mut Partition, work: impl FnOnce(&mut Lane)) {
        self.swap(partition);
        let before = self.of_partitions.join.accounting;
        work(self);
        let after = self.of_partitions.join.accounting;
        self.swap(partition);
        let figures = &mut partition.figures;
        let unmatched = |a: &Accounting| a.expired_client_only + a.expired_server_only + a.evicted;
        figures.waiting = figures.waiting + after.pending - before.pending;
        if partition.read_back.is_none() {
            figures.joined += after.joined - before.joined;
            figures.unmatched += unmatched(&after) - unmatched(&before);
        }
    }

    /// The call is in a minute of this engine, unless its halves were read again, or its minute is closed.
    fn retract_if_recorded(&mut self, call: Retracted, attempt: &SpanFacts, now_ms: u64) {
        let first_ms = now_ms.saturating_sub(waited_ms(now_ms as u32, call.first_arrival_ms) as u64);
        if call.pair == NOT_RECORDED || first_ms < self.stats.windows.settled_ms() {
            self.partitions.late_attempts += 1;
        } else {
            self.stats.retract(call, attempt, now_ms);
        }
    }

    fn expire_to(&mut self, now_ms: u64, ttl_ms: u32, interned: &Interned) {
        while self.of_partitions.join.expire(now_ms as u32, ttl_ms, EXPIRE_AT_ONCE, interned) {}
    }

    /// Begins to count once all messages before `next_offset` have been read again. The halves that wait are now
    /// this engine's to account for.
    fn end_read_back(&mut self, partition: &mut Partition, next_offset: i64) {
        let Some(back) = partition.read_back.take_if(|back| next_offset >= back.until) else { return };
        let waiting = back.accounting.pending;
        self.of_partitions.join.accounting.received += waiting;
        self.of_partitions.join.accounting.pending += waiting;
        let figures = &mut partition.figures;
        figures.taken_over = waiting;
        figures.waiting = waiting;
        figures.next_offset = figures.next_offset.max(back.until);
        figures.time_ms = figures.time_ms.max(back.time_ms);
    }

    /// Halves leave without an outcome, and are no longer this engine's to account for.
    fn leave(&mut self, waiting: u64) {
        self.of_partitions.join.accounting.received -= waiting;
        self.of_partitions.join.accounting.pending -= waiting;
        self.partitions.handed_over += waiting;
    }
}

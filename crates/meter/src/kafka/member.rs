//! A meter as a member of its group: where it begins to count a partition, and what it tells the group.
//!
//! The order is: commit to the group, then write the minutes together with the same offsets. A meter that dies in
//! between finds, when it returns, that the next meter began after its last minutes: that part is its debt, which it
//! reads and counts before it joins the group again. What it had counted and not committed, the next meter counts.

use super::custody::{Custody, Part};
use super::settings::Start;
use crate::engine::Meter;
use crate::engine::partitions::{Opening, PartitionMark};
use crate::serve::notice::tell;
use crate::serve::recorder::Log;
use spangap_model::count::grouped;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What the group remembers of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// The committed offset.
    pub offset: Option<i64>,
    /// The text committed with it.
    pub text: String,
}

/// The group and its topic, as far as a member asks them.
pub trait Group: std::fmt::Debug + Send + Sync {
    /// What is committed, in the order of the partitions.
    ///
    /// # Errors
    /// When no broker answers in time.
    fn committed(&self, partitions: &[i32]) -> Result<Vec<Committed>, String>;
    /// Commits offsets with their texts.
    ///
    /// # Errors
    /// When the brokers refuse or do not answer; it may have taken effect all the same.
    fn commit(&self, offsets: &[(i32, i64, String)]) -> Result<(), String>;
    /// The first message with at least this timestamp.
    ///
    /// # Errors
    /// When no broker answers in time.
    fn offset_at(&self, partition: i32, time_ms: u64) -> Result<Option<i64>, String>;
    /// The oldest message, and the offset after the newest.
    ///
    /// # Errors
    /// When no broker answers in time.
    fn ends(&self, partition: i32) -> Result<(i64, i64), String>;
}

/// A part of a partition that this meter still has to count, although others have it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debt {
    /// The partition.
    pub partition: i32,
    /// First message to read.
    pub read_from: i64,
    /// The message after the last one to count.
    pub until: i64,
}

/// Counts since the start.
#[derive(Debug, Default)]
pub struct MemberCounts {
    /// Messages that were deleted before this meter could count them.
    pub gone: AtomicU64,
    /// Partitions whose committed offset somebody else has set back.
    pub set_back: AtomicU64,
    /// Parts of partitions of which it cannot be told whether they were counted.
    pub unknown: AtomicU64,
    /// Partitions that had other waiting halves after reading back than before.
    pub differing: AtomicU64,
    /// Commits.
    pub commits: AtomicU64,
    /// Commits that failed.
    pub failed_commits: AtomicU64,
}

/// The member. It lives as long as the process; the connection to the group may change.
#[derive(Debug)]
pub struct Member {
    log: String,
    reader: String,
    start: Start,
    ttl_ms: u64,
    meter: Arc<Meter>,
    state: Mutex<State>,
    /// Counts since the start.
    pub counts: MemberCounts,
}

#[derive(Debug, Default)]
struct State {
    group: Option<Arc<dyn Group>>,
    /// As stored in the history.
    counted: BTreeMap<i32, PartitionMark>,
    owned: BTreeMap<i32, Owned>,
    /// Partitions of debts, which are written and not committed.
    owed: BTreeSet<i32>,
    /// Partitions of which more may be committed than is written, and which others may have now: a debt, as soon as
    /// somebody else has committed.
    unsettled: BTreeSet<i32>,
    /// The first checkpoint since the last one that was written.
    unwritten_since: Option<Instant>,
}

#[derive(Debug)]
struct Owned {
    custody: Custody,
    committed: Option<i64>,
    /// Halves that should be waiting once all is read back.
    expected: Option<u64>,
    /// What the history has to say before anything is committed: that this meter counts from there.
    claim: Option<PartitionMark>,
}

impl Member {
    /// The member called `reader`, whose history has counted `counted` of the log.
    pub fn new(
        (log, reader): (String, String),
        counted: &[PartitionMark],
        start: Start,
        ttl_ms: u32,
        meter: Arc<Meter>,
    ) -> Member {
        let counted = counted.iter().map(|mark| (mark.partition, *mark)).collect();
        let state = Mutex::new(State { counted, ..State::default() });
        Member { log, reader, start, ttl_ms: ttl_ms as u64, meter, state, counts: MemberCounts::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Speaks to this group from now on; `None` for none. No partition is owned after it.
    pub fn connect(&self, group: Option<Arc<dyn Group>>) {
        let mut state = self.state();
        state.owned.clear();
        state.owed.clear();
        state.group = group;
    }

    fn group(&self) -> Result<Arc<dyn Group>, String> {
        self.state().group.clone().ok_or_else(|| "not connected to Kafka".into())
    }

    /// Parts that an earlier run committed and did not write. To be counted before the group is joined.
    ///
    /// # Errors
    /// When no broker answers.
    pub fn debts(&self) -> Result<Vec<Debt>, String> {
        let group = self.group()?;
        let counted: Vec<PartitionMark> = self.state().counted.values().copied().collect();
        let partitions: Vec<i32> = counted.iter().map(|mark| mark.partition).collect();
        if partitions.is_empty() {
            return Ok(Vec::new());
        }
        let mut debts = Vec::new();
        for (mark, committed) in counted.iter().zip(group.committed(&partitions)?) {
            if committed.offset.is_some_and(|offset| offset > mark.next_offset) {
                self.state().unsettled.insert(mark.partition);
            }
            let until = match Custody::read(&committed.text).part_of(&self.reader) {
                Part::Ended { from, until } if until > mark.next_offset.max(from) => until,
                Part::Unknown => {
                    self.counts.unknown.fetch_add(1, Relaxed);
                    tell(&format!(
                        "kafka: partition {} has changed hands too often since this meter had it: whether messages \
                         from offset {} on were counted is unknown",
                        mark.partition, mark.next_offset
                    ));
                    continue;
                }
                _ => continue,
            };
            let at = self.place(&*group, mark.partition, mark.next_offset, mark.time_ms)?;
            self.state().unsettled.remove(&mark.partition);
            if at.count_from >= until {
                continue;
            }
            tell(&format!(
                "kafka: partition {}: {} messages were committed and not written by the last run; counting them now",
                mark.partition,
                until - at.count_from
            ));
            self.state().owed.insert(mark.partition);
            self.meter.open_partition(mark.partition, at);
            debts.push(Debt { partition: mark.partition, read_from: at.read_from, until });
        }
        Ok(debts)
    }

    /// Whether there are debts since the group was joined: somebody has committed after what was left unsettled.
    ///
    /// # Errors
    /// When no broker answers.
    pub fn owes(&self) -> Result<bool, String> {
        let unsettled: Vec<PartitionMark> = {
            let state = self.state();
            let mine = state.unsettled.iter().filter(|partition| !state.owned.contains_key(partition));
            mine.filter_map(|partition| state.counted.get(partition)).copied().collect()
        };
        if unsettled.is_empty() {
            return Ok(false);
        }
        let partitions: Vec<i32> = unsettled.iter().map(|mark| mark.partition).collect();
        for (mark, committed) in unsettled.iter().zip(self.group()?.committed(&partitions)?) {
            match Custody::read(&committed.text).part_of(&self.reader) {
                Part::Ended { until, .. } if until > mark.next_offset => return Ok(true),
                Part::Ended { .. } => {
                    self.state().unsettled.remove(&mark.partition);
                }
                Part::Open | Part::Unknown => {}
            }
        }
        Ok(false)
    }

    /// Takes over partitions. Returns the first message to read of each.
    ///
    /// # Errors
    /// When no broker answers.
    pub fn assigned(&self, partitions: &[i32]) -> Result<Vec<(i32, i64)>, String> {
        let group = self.group()?;
        // Numbers have no holes: those below are partitions of the topic as well.
        let all: Vec<i32> = (0..=partitions.iter().copied().max().unwrap_or(-1)).collect();
        let committed = group.committed(&all)?;
        let is_new = committed.iter().all(|committed| committed.offset.is_none());
        for partition in partitions {
            let mine = self.state().counted.get(partition).copied();
            let part = Custody::read(&committed[*partition as usize].text).part_of(&self.reader);
            if let (Some(mine), Part::Ended { from, until }) = (mine, part)
                && until > mine.next_offset.max(from)
            {
                // Taken over, its row in the history would forget what it owes.
                return Err(format!("an earlier part of partition {partition} is yet to be counted"));
            }
        }
        let mut starts = Vec::new();
        for partition in partitions.iter().copied() {
            let committed = &committed[partition as usize];
            let custody = Custody::read(&committed.text);
            let mine = self.state().counted.get(&partition).copied();
            let owner = custody.owner();
            let is_mine = owner.is_none_or(|owner| owner == self.reader);
            let (from, time_ms, waiting) = match (mine, committed.offset) {
                (Some(mine), _) if is_mine => {
                    self.compare(&mine, committed.offset);
                    (mine.next_offset, mine.time_ms, Some(mine.waiting))
                }
                (_, Some(offset)) => (offset, custody.time_ms, owner.map(|_| custody.waiting)),
                (_, None) => {
                    let (oldest, next) = group.ends(partition)?;
                    // A partition that is added to a topic has nothing but what nobody has read.
                    let from = if is_new && self.start == Start::Latest { next } else { oldest };
                    (from, 0, None)
                }
            };
            let at = self.place(&*group, partition, from, time_ms)?;
            let mut custody = custody;
            custody.hand_to(&self.reader, at.count_from);
            let expected = waiting.filter(|_| at.read_from < at.count_from && at.count_from == from);
            {
                let mut state = self.state();
                state.owed.remove(&partition);
                // What this meter has committed and not written is settled when it is written, and not before: the partition may
                // be taken away again.
                if !is_mine {
                    state.unsettled.remove(&partition);
                }
                let next_offset = at.count_from;
                let claim = PartitionMark { partition, next_offset, time_ms, waiting: waiting.unwrap_or(0) };
                let claim = (mine != Some(claim)).then_some(claim);
                state.owned.insert(partition, Owned { custody, committed: None, expected, claim });
            }
            self.meter.open_partition(partition, at);
            starts.push((partition, at.read_from));
        }
        Ok(starts)
    }

    /// Says so when the committed offset is not where this meter, the last owner, has left it.
    fn compare(&self, mine: &PartitionMark, committed: Option<i64>) {
        if committed.is_some_and(|offset| offset < mine.next_offset) {
            self.counts.set_back.fetch_add(1, Relaxed);
            tell(&format!(
                "kafka: partition {}: somebody set the group back to offset {}; this history has counted it up to {} and \
                 counts nothing twice",
                mine.partition,
                committed.unwrap_or_default(),
                mine.next_offset
            ));
        }
    }

    /// Where to read in order to count from an offset.
    fn place(&self, group: &dyn Group, partition: i32, from: i64, time_ms: u64) -> Result<Opening, String> {
        let (oldest, _) = group.ends(partition)?;
        if oldest > from {
            self.counts.gone.fetch_add((oldest - from) as u64, Relaxed);
            tell(&format!(
                "kafka: partition {partition}: {} messages from offset {from} on were deleted before they were counted",
                grouped((oldest - from) as u64)
            ));
        }
        let count_from = from.max(oldest);
        let read_from = match time_ms {
            0 => count_from,
            // What a half that is read back may have met itself is older than that.
            _ => {
                let since_ms = time_ms.saturating_sub(2 * self.ttl_ms + 1_000);
                group
                    .offset_at(partition, since_ms)?
                    .unwrap_or(count_from)
                    .clamp(oldest.min(count_from), count_from)
            }
        };
        Ok(Opening { read_from, count_from, time_ms })
    }

    /// Leaves partitions to others. What was counted of them must be written.
    pub fn revoked(&self, partitions: &[i32]) {
        for partition in partitions {
            self.meter.close_partition(*partition);
            self.state().owned.remove(partition);
        }
    }

    /// Compares the halves that wait after reading back with those that waited when the partition was left.
    pub fn check_read_back(&self) {
        for figures in self.meter.partitions().iter().filter(|figures| !figures.is_reading_back) {
            let mut state = self.state();
            let expected = state.owned.get_mut(&figures.partition).and_then(|owned| owned.expected.take());
            if let Some(expected) = expected.filter(|expected| *expected != figures.taken_over) {
                self.counts.differing.fetch_add(1, Relaxed);
                tell(&format!(
                    "kafka: partition {}: {} halves wait after reading back, and {expected} waited before; the \
                     messages of others may be gone, or the memory was too small",
                    figures.partition, figures.taken_over
                ));
            }
        }
    }

    /// For how long no checkpoint has succeeded, since one was tried.
    pub fn unwritten_for(&self) -> Duration {
        self.state().unwritten_since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl Log for Member {
    fn name(&self) -> &str {
        &self.log
    }

    fn reader(&self) -> &str {
        &self.reader
    }

    fn claims(&self) -> Vec<PartitionMark> {
        self.state().owned.values().filter_map(|owned| owned.claim).collect()
    }

    fn claimed(&self, claims: &[PartitionMark]) {
        let mut state = self.state();
        for claim in claims {
            state.counted.insert(claim.partition, *claim);
            if let Some(owned) = state.owned.get_mut(&claim.partition) {
                owned.claim.take_if(|mine| mine == claim);
            }
        }
    }

    fn commit(&self, marks: &[PartitionMark]) -> Result<(), String> {
        let (group, offsets) = {
            let mut state = self.state();
            state.unwritten_since.get_or_insert_with(Instant::now);
            let is_ours = |mark: &PartitionMark| {
                state.owned.contains_key(&mark.partition) || state.owed.contains(&mark.partition)
            };
            if !marks.iter().all(is_ours) {
                return Err(
                    "kafka: a partition was taken from this meter; what it has counted of it is not written"
                        .into(),
                );
            }
            let changed = marks.iter().filter_map(|mark| {
                let owned = state.owned.get(&mark.partition)?;
                let custody =
                    Custody { time_ms: mark.time_ms, waiting: mark.waiting, ..owned.custody.clone() };
                (owned.committed != Some(mark.next_offset))
                    .then(|| (mark.partition, mark.next_offset, custody.to_string()))
            });
            (state.group.clone(), changed.collect::<Vec<_>>())
        };
        if offsets.is_empty() {
            return Ok(());
        }
        let group = group.ok_or("not connected to Kafka")?;
        if let Err(error) = group.commit(&offsets) {
            self.counts.failed_commits.fetch_add(1, Relaxed);
            self.state().unsettled.extend(offsets.iter().map(|(partition, ..)| *partition));
            return Err(format!("kafka: offsets are not committed, and so the minutes not written: {error}"));
        }
        self.counts.commits.fetch_add(1, Relaxed);
        let mut state = self.state();
        for (partition, offset, _) in offsets {
            if let Some(owned) = state.owned.get_mut(&partition) {
                owned.committed = Some(offset);
            }
        }
        Ok(())
    }

    fn written(&self, marks: &[PartitionMark]) {
        let mut state = self.state();
        state.unwritten_since = None;
        for mark in marks {
            if state.owned.contains_key(&mark.partition) {
                state.unsettled.remove(&mark.partition);
            }
        }
        state.counted.extend(marks.iter().map(|mark| (mark.partition, *mark)));
    }
}

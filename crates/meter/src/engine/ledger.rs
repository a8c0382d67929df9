//! What the lanes have to do together: minutes leave all of them at once, and all follow the same clock.
//!
//! Whoever moves or reads minutes holds the ledger, and then visits one lane after the other. So a reader never finds a minute
//! closed in one lane and open in another, and nobody ever holds the locks of two lanes.

use super::read::named;
use super::{
    CLOCK_STEP_MS, CLOSE_GRACE_MS, ClockStep, EXPIRE_AT_ONCE, IDLE_GRACE_MS, MAX_CLOSED_MINUTES,
    MAX_REPORTED_CLOCK_STEPS, Meter, Minutes, SWEEP_CROWDED_MS, SWEEP_MS,
};
use crate::join::{Asked, waited_ms};
use crate::peers::Expired;
use crate::services::Services;
use crate::window::{Minute, minute_of};
use spangap_model::{Accounting, PairStats};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Minutes for the recorder.
    pub(super) closed: VecDeque<Minute>,
    /// Statistics by pair number, of all closed minutes since the start.
    pub(super) totals: Vec<PairStats>,
    pub(super) minutes_dropped: u64,
    /// Unix time of the engine's millisecond 0.
    pub(super) unix_at_zero_ms: i64,
    /// Minutes before this engine time are closed.
    settled_ms: u64,
    pub(super) clock_steps: u64,
    pub(super) last_clock_steps: VecDeque<ClockStep>,
    last_sweep_ms: u64,
}

impl Ledger {
    pub(super) fn new(unix_at_zero_ms: i64) -> Ledger {
        Ledger { unix_at_zero_ms, ..Ledger::default() }
    }

    /// Takes over minutes that can no longer change.
    fn close(&mut self, minutes: Vec<Minute>, most: usize) {
        for closed in minutes {
            if self.totals.len() < closed.pairs.len() {
                self.totals.resize_with(closed.pairs.len(), PairStats::default);
            }
            for (total, stats) in self.totals.iter_mut().zip(&closed.pairs) {
                total.merge(stats);
            }
            if self.closed.len() >= most {
                self.closed.pop_front();
                self.minutes_dropped += 1;
            }
            self.closed.push_back(closed);
        }
    }
}

/// The minutes of all lanes, of which each may have a part.
fn together(parts: Vec<Minute>) -> Vec<Minute> {
    let mut minutes = BTreeMap::<u64, Minute>::new();
    for part in parts {
        match minutes.get_mut(&part.minute) {
            Some(minute) => minute.add(part),
            None => _ = minutes.insert(part.minute, part),
        }
    }
    minutes.into_values().collect()
}

impl Meter {
    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Advances the time: expires halves, closes minutes, removes idle origins. Call it several times a
    /// second.
    pub fn tick(&self, now_ms: u64) {
        self.origins.set_now(now_ms);
        let Some(ttl_ms) = self.settings.join_ttl_ms else { return };
        for number in 0..self.shards.len() {
            loop {
                let interned = self.origins.read();
                let mut shard = self.shard(number);
                let has_more = shard.join.expire(now_ms as u32, ttl_ms, EXPIRE_AT_ONCE, &interned);
                let asked = shard.join.take_asked();
                drop(shard);
                self.ask_peers(number, &asked, now_ms);
                if !has_more {
                    break;
                }
            }
            self.shard(number).mark_ring(now_ms);
        }
        self.settle_asked(now_ms, ttl_ms);
        let mut ledger = self.ledger();
        let safe_ms = match self.settings.partitioned {
            true => self.safe_ms_of_partitions(ttl_ms),
            false => now_ms.saturating_sub(ttl_ms as u64 + CLOSE_GRACE_MS),
        };
        ledger.settled_ms = safe_ms;
        let mut parts = Vec::new();
        for mut lane in self.each_lane() {
            lane.of_partitions.mark_ring(now_ms);
            lane.stats.samples.tick(now_ms);
            lane.stats.close_before(safe_ms, &mut parts);
        }
        let minutes = if self.lanes.len() > 1 { together(parts) } else { parts };
        // Whoever reads partitions waits for the recorder instead.
        let most = if self.settings.partitioned { usize::MAX } else { MAX_CLOSED_MINUTES };
        ledger.close(minutes, most);
        let since_ms = now_ms.saturating_sub(ledger.last_sweep_ms);
        drop(ledger);
        if self.origins.cluster().tick(now_ms) {
            self.origins.ask_again();
        }
        let is_crowded = since_ms >= SWEEP_CROWDED_MS && self.origins.read().is_crowded();
        if is_crowded || since_ms >= SWEEP_MS {
            self.forget_idle(now_ms, ttl_ms, is_crowded);
        }
    }

    /// Hands halves of a shard over that have expired.
    fn ask_peers(&self, shard: usize, asked: &[Asked], now_ms: u64) {
        let Some(mut peers) = self.peers().filter(|_| !asked.is_empty()) else { return };
        for half in asked {
            peers.add(Expired {
                key: half.key,
                side: half.side,
                shard: shard as u8,
                origin: half.origin,
                arrival_ms: now_ms.saturating_sub(waited_ms(now_ms as u32, half.arrival_ms).into()),
            });
        }
    }

    /// Counts the halves of which other meters have told what is to be known.
    fn settle_asked(&self, now_ms: u64, ttl_ms: u32) {
        let Some(mut peers) = self.peers() else { return };
        peers.expired_to(now_ms.saturating_sub(ttl_ms.into()));
        let mut settled = peers.settle(now_ms);
        drop(peers);
        settled.sort_by_key(|(half, _)| half.shard);
        let interned = self.origins.read();
        for of_shard in settled.chunk_by(|(one, _), (other, _)| one.shard == other.shard) {
            let mut shard = self.shard(of_shard[0].0.shard.into());
            for (half, fate) in of_shard {
                shard.join.settle(half.side, half.origin, *fate, &interned);
            }
        }
    }

    /// Removes what is idle. Nothing refers to an origin for longer than the time to live after its last
    /// span.
    fn forget_idle(&self, now_ms: u64, ttl_ms: u32, is_crowded: bool) {
        // No request is being processed meanwhile.
        let mut interned = self.origins.write();
        let mut ledger = self.ledger();
        ledger.last_sweep_ms = now_ms;
        let unix_ms = ledger.unix_at_zero_ms.saturating_add(now_ms as i64).max(0) as u64;
        if self.common.clocks.sweep(unix_ms, is_crowded) {
            self.each_lane().for_each(|mut lane| lane.stats.known_clocks.forget());
        }
        self.each_lane().for_each(|lane| lane.partitions.touch_origins(&interned, now_ms));
        // While others are asked for its mate, a half refers to its origin for longer.
        let needed_ms = self.peers().map_or(ttl_ms.into(), |peers| peers.patience_ms());
        let idle_ms =
            if is_crowded { needed_ms + IDLE_GRACE_MS } else { needed_ms + ttl_ms as u64 + SWEEP_MS };
        let mut live = interned.forget_idle(now_ms, idle_ms);
        if is_crowded {
            self.common.pairs().mark(&mut live);
            self.common.clocks.mark(&mut live);
            let forgotten = interned.forget_names(&live);
            let forget =
                |services: &mut Services| forgotten.iter().for_each(|number| services.forget(*number));
            self.each_shard().for_each(|mut shard| forget(&mut shard.join.unmatched));
            self.each_lane().for_each(|mut lane| {
                forget(&mut lane.of_partitions.join.unmatched);
                forget(&mut lane.stats.joined);
            });
        }
    }

    /// Sets the wall clock time at `now_ms`, the engine's own monotonic time. If the wall clock was set
    /// since, or the machine was suspended, minutes still in the engine are labelled with the new time.
    pub fn set_wall_clock(&self, now_ms: u64, unix_ms: u64) {
        let mut ledger = self.ledger();
        let unix_at_zero_ms = unix_ms as i64 - now_ms as i64;
        let by_ms = unix_at_zero_ms - ledger.unix_at_zero_ms;
        if by_ms.unsigned_abs() < CLOCK_STEP_MS {
            return;
        }
        ledger.unix_at_zero_ms = unix_at_zero_ms;
        if !self.settings.partitioned {
            self.each_lane().for_each(|mut lane| lane.stats.windows.set_wall_clock(now_ms, unix_at_zero_ms));
            ledger.closed.iter_mut().for_each(|minute| minute.rename(unix_at_zero_ms));
        }
        ledger.clock_steps += 1;
        ledger.last_clock_steps.push_back(ClockStep { unix_s: unix_ms / 1000, by_ms });
        if ledger.last_clock_steps.len() > MAX_REPORTED_CLOCK_STEPS {
            ledger.last_clock_steps.pop_front();
        }
    }

    /// Ends the input: waiting halves will find no mate and are counted as expired.
    pub fn finish(&self) {
        let interned = self.origins.read();
        self.each_shard().for_each(|mut shard| shard.join.expire_all(&interned));
    }

    /// Removes and returns the minutes closed since the last call, with a copy of the open ones.
    pub fn take_minutes(&self) -> Minutes {
        let mut ledger = self.ledger();
        let mut open = self.minutes_of_lanes();
        let (mut partitions, mut spans) = (Vec::new(), Accounting::default());
        for lane in self.each_lane() {
            // All three from one moment: the minutes have whatever was counted of the partitions, and nothing else.
            open.add(&lane.stats, PairStats::without_candidates, |_| true);
            partitions.extend(lane.partitions.marks());
            spans += lane.of_partitions.join.accounting;
        }
        self.each_shard().for_each(|shard| spans += shard.join.accounting);
        partitions.sort_unstable_by_key(|mark| mark.partition);
        let unix_at_zero_ms = if self.settings.partitioned { 0 } else { ledger.unix_at_zero_ms };
        let settled_before_s = minute_of(unix_at_zero_ms, ledger.settled_ms) * 60;
        let pairs = self.common.pairs();
        let mut closed = Vec::new();
        for minute in std::mem::take(&mut ledger.closed) {
            closed.extend(
                named(&minute, &pairs, PairStats::without_candidates, |_| true).map(|(_, minute)| minute),
            );
        }
        Minutes { closed, open: open.finished(), settled_before_s, partitions, spans }
    }
}

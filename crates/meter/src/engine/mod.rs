//! The meter's core: walk, join, statistics. It does no IO and reads no clock; the caller passes the time.

pub mod partitions;
mod read;
mod record;

use crate::candidates::Candidates;
use crate::cluster::{Cluster, Pod};
use crate::ingest::named::Named;
use crate::ingest::origins::{Limits, Origins};
use crate::ingest::semconv::{Interest, RESPONSE_SIZE_ATTRIBUTES};
use crate::ingest::walk::{Batch, SpanFacts, walk};
use crate::ingest::wire::WalkError;
use crate::join::{Join, Outcome, ServiceCounts};
use crate::offset::Offsets;
use crate::pairs::{Grouping, PairLimits, Pairs};
use crate::pending::Key;
use crate::samples::Samples;
use crate::usual::UsualOfPairs;
use crate::window::{Minute, Windows, minute_of};
use partitions::{PartitionMark, Partitions};
use spangap_model::accounting::Malformed;
use spangap_model::shared::Account;
use spangap_model::{Accounting, Histogram, PairKey, PairStats};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Prefetch distance in spans, ahead of the join: first the index slot, then its entry.
const SLOT_AHEAD: usize = 16;
const ENTRY_AHEAD: usize = 8;
/// Entries expired per acquisition of the lock.
const EXPIRE_AT_ONCE: usize = 16_384;
/// Delay before a minute closes, beyond its end plus the time to live, to allow for late ticks. Nothing in
/// the minute can change after its time to live.
const CLOSE_GRACE_MS: u64 = 2_000;
/// The engine follows a change of the wall clock of at least this size; smaller ones are drift and rounding.
const CLOCK_STEP_MS: u64 = 1_000;
/// Reported steps of the wall clock; earlier ones are only counted.
const MAX_REPORTED_CLOCK_STEPS: usize = 8;
/// Interval between removals of idle origins, normally and when room is short.
const SWEEP_MS: u64 = 60_000;
const SWEEP_CROWDED_MS: u64 = 1_000;
/// Delay before an idle origin is removed, beyond the time to live, to allow for late ticks. No half waits
/// past the time to live.
const IDLE_GRACE_MS: u64 = 5_000;
/// Closed minutes retained for a late recorder; beyond this the oldest are dropped and counted.
const MAX_CLOSED_MINUTES: usize = 8;

/// Validated settings of the engine.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long a half waits for its mate; `None` for no limit but memory.
    pub join_ttl_ms: Option<u32>,
    /// Limit of the store of pending halves.
    pub max_pending_bytes: u64,
    /// Size of the ring of complete spans.
    pub keep_bytes: u64,
    /// Byte limit of the complete spans of worst calls.
    pub worst_bytes: u64,
    /// Calls in each of the two samples of a pair; 0 disables sampling.
    pub sampled_calls: usize,
    /// Byte limit of the complete spans in the samples.
    pub sample_bytes: u64,
    /// Limits of resources, methods and names.
    pub origin_limits: Limits,
    /// Limits on the number of pairs.
    pub pair_limits: PairLimits,
    /// What one row represents.
    pub grouping: Grouping,
    /// Calls with a larger response are excluded and counted; `None` for no limit.
    pub exclude_response_over: Option<u64>,
    /// Attributes that contain the response size.
    pub response_size_attributes: Vec<String>,
    /// Unix time of the engine's millisecond 0, in milliseconds, until [`Meter::set_wall_clock`] changes it.
    pub epoch_unix_ms: u64,
    /// Spans come from the partitions of a log, which label minutes with the times of their messages.
    pub partitioned: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            join_ttl_ms: Some(15_000),
            max_pending_bytes: 1 << 30,
            keep_bytes: 24 << 20,
            worst_bytes: 256 << 20,
            sampled_calls: 64,
            sample_bytes: 64 << 20,
            origin_limits: Limits::default(),
            pair_limits: PairLimits { total: 10_000, per_client: 500 },
            grouping: Grouping::Pair,
            exclude_response_over: Some(100 << 10),
            response_size_attributes: RESPONSE_SIZE_ATTRIBUTES.map(String::from).into(),
            epoch_unix_ms: 0,
            partitioned: false,
        }
    }
}

/// Outcome of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ingested {
    /// Spans in the request.
    pub spans: u64,
    /// Spans among them that cannot be used.
    pub malformed: Malformed,
}

/// Figures that do not belong to a single pair.
#[derive(Clone, Debug)]
pub struct Overview {
    /// Where every span went.
    pub accounting: Accounting,
    /// Reasons for malformed spans.
    pub malformed: Malformed,
    /// Services with their counts.
    pub services: Vec<(Arc<str>, ServiceCounts)>,
    /// Delay between the arrivals of two mates, over all pairs.
    pub mate_delay: Histogram,
    /// Bytes of the pending store.
    pub pending_bytes: u64,
    /// Its limit.
    pub pending_bytes_limit: u64,
    /// Bytes of complete spans in the ring.
    pub whole_bytes: u64,
    /// Age of the oldest span still in the ring; `None` while the ring has never been full.
    pub whole_span_horizon_ms: Option<u64>,
    /// Waiting halves left to other meters with their partitions.
    pub handed_over: u64,
    /// Calls counted in the `other` pairs.
    pub calls_in_other: u64,
    /// Resources, methods and names rejected for lack of room.
    pub names_in_other: u64,
    /// Calls in the main distributions with unknown legs.
    pub calls_without_legs: u64,
    /// Calls with one attempt.
    pub calls_with_one_attempt: u64,
    /// Single-attempt calls for which neither span states the response size.
    pub calls_without_size: u64,
    /// Limit on the response size, above which calls are excluded; `None` for no limit.
    pub exclude_response_over: Option<u64>,
    /// Minutes that no recorder took in time; the totals include them, the history does not.
    pub minutes_dropped: u64,
    /// Unix time of the engine's millisecond 0, in milliseconds, by the current wall clock.
    pub epoch_unix_ms: i64,
    /// Number of times the wall clock was set since the start.
    pub clock_steps: u64,
    /// The most recent of these steps, oldest first.
    pub last_clock_steps: Vec<ClockStep>,
    /// Usage of every bounded store.
    pub limits: Vec<LimitFigures>,
}

/// A step of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockStep {
    /// Time of the step in Unix seconds, by the clock after the step.
    pub unix_s: u64,
    /// Size of the step in milliseconds; negative when the clock was set back.
    pub by_ms: i64,
}

/// Minutes handed to a recorder.
#[derive(Clone, Debug, Default)]
pub struct Minutes {
    /// Minutes that can no longer change, removed from the engine.
    pub closed: Vec<PairMinute>,
    /// Copies of the minutes that are still open.
    pub open: Vec<PairMinute>,
    /// Unix time in seconds: all minutes before it are closed, unless the wall clock is set back.
    pub settled_before_s: u64,
    /// How far each partition has been counted in these minutes.
    pub partitions: Vec<PartitionMark>,
    /// Accounting of all spans, at the same moment.
    pub spans: Accounting,
}

/// Usage of a bounded store, and the effects of its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitFigures {
    /// Name of the limited resource; its last word is the unit unless the store counts items.
    pub name: &'static str,
    /// Current usage.
    pub used: u64,
    /// Maximum usage.
    pub limit: u64,
    /// Items truncated to fit, since the start.
    pub cut: u64,
    /// Items removed to make room or because they were idle.
    pub forgotten: u64,
    /// Items rejected for lack of room.
    pub refused: u64,
}

/// Statistics of one pair in one minute.
#[derive(Clone, Debug)]
pub struct PairMinute {
    /// Start of the minute, Unix seconds.
    pub unix_s: u64,
    /// The pair.
    pub key: PairKey,
    /// Its statistics.
    pub stats: PairStats,
}

/// The engine, shared between threads. One lock, acquired once per request.
#[derive(Debug)]
pub struct Meter {
    settings: Settings,
    interest: Interest,
    origins: Origins,
    state: Mutex<State>,
    usual: Mutex<Arc<UsualOfPairs>>,
}

#[derive(Debug)]
struct State {
    join: Join,
    pairs: Pairs,
    windows: Windows,
    offsets: Offsets,
    closed: VecDeque<Minute>,
    calls_in_other: u64,
    calls_without_legs: u64,
    calls_with_one_attempt: u64,
    calls_without_size: u64,
    minutes_dropped: u64,
    /// Unix time of the engine's millisecond 0.
    unix_at_zero_ms: i64,
    /// Minutes before this engine time are closed.
    settled_ms: u64,
    clock_steps: u64,
    last_clock_steps: VecDeque<ClockStep>,
    /// Total bytes written to the ring at certain times; its age is derived from them.
    ring_marks: VecDeque<(u64, u64)>,
    last_sweep_ms: u64,
    /// Bytes of complete spans that belong to worst calls, wherever they are listed.
    worst: Account,
    worst_bytes: u64,
    worst_refused: u64,
    candidates: Candidates,
    samples: Samples,
    partitions: Partitions,
}

thread_local! {
    static BATCH: RefCell<(Batch, Vec<Key>)> = RefCell::default();
}

impl Meter {
    /// An empty meter.
    pub fn new(settings: Settings) -> Meter {
        let state = State {
            join: Join::new(settings.max_pending_bytes, settings.keep_bytes, settings.exclude_response_over),
            pairs: Pairs::new(settings.grouping, settings.pair_limits),
            windows: match settings.partitioned {
                true => Windows::of_messages(),
                false => Windows::new(settings.epoch_unix_ms as i64),
            },
            offsets: Offsets::default(),
            closed: VecDeque::new(),
            calls_in_other: 0,
            calls_without_legs: 0,
            calls_with_one_attempt: 0,
            calls_without_size: 0,
            minutes_dropped: 0,
            unix_at_zero_ms: settings.epoch_unix_ms as i64,
            settled_ms: 0,
            clock_steps: 0,
            last_clock_steps: VecDeque::new(),
            ring_marks: VecDeque::new(),
            last_sweep_ms: 0,
            worst: Account::default(),
            worst_bytes: settings.worst_bytes,
            worst_refused: 0,
            candidates: Candidates::default(),
            samples: Samples::new(settings.sampled_calls, settings.sample_bytes),
            partitions: Partitions::default(),
        };
        Meter {
            interest: Interest::new(
                settings.grouping == Grouping::Method,
                &settings.response_size_attributes,
            ),
            origins: Origins::new(settings.origin_limits, settings.grouping.part()),
            state: Mutex::new(state),
            usual: Mutex::default(),
            settings,
        }
    }

    /// The engine's settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic under the lock is a bug; the figures collected since are still the best available.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Processes one `ExportTraceServiceRequest`, received `now_ms` milliseconds after the epoch.
    ///
    /// # Errors
    /// When the request is not well-formed; none of it is counted then.
    pub fn ingest(&self, request: &[u8], now_ms: u64) -> Result<Ingested, WalkError> {
        self.ingest_seen(request, now_ms, |_| {})
    }

    /// Like [`Meter::ingest`]; passes each span of a well-formed request to `seen` before acquiring the lock.
    ///
    /// # Errors
    /// When the request is not well-formed.
    pub fn ingest_seen(
        &self,
        request: &[u8],
        now_ms: u64,
        seen: impl FnOnce(&[SpanFacts]),
    ) -> Result<Ingested, WalkError> {
        self.origins.set_now(now_ms);
        BATCH.with_borrow_mut(|(batch, keys)| {
            walk(request, &self.interest, &self.origins, batch)?;
            seen(&batch.spans);
            let interned = self.origins.read();
            let mut state = self.state();
            let before = state.join.malformed;
            keys.clear();
            keys.extend(batch.spans.iter().map(|span| state.join.key(span)));
            for (i, span) in batch.spans.iter().enumerate() {
                if let Some(key) = keys.get(i + SLOT_AHEAD) {
                    state.join.prefetch_slot(*key);
                }
                if let Some(key) = keys.get(i + ENTRY_AHEAD) {
                    state.join.prefetch_entry(*key);
                }
                let bytes = &request[span.offset as usize..(span.offset + span.len) as usize];
                match state.join.offer(span, keys[i], bytes, now_ms as u32, &interned) {
                    Outcome::Counted => {}
                    Outcome::Joined(call) => state.record(call, span, bytes, now_ms, &interned),
                    Outcome::Retracted(call) => state.retract(call, span, now_ms),
                }
            }
            let after = state.join.malformed;
            let spans = batch.spans.len() as u64;
            batch.shrink();
            keys.shrink_to(batch.spans.capacity());
            Ok(Ingested {
                spans,
                malformed: Malformed {
                    bad_id: after.bad_id - before.bad_id,
                    end_before_start: after.end_before_start - before.end_before_start,
                    no_time: after.no_time - before.no_time,
                    too_long: after.too_long - before.too_long,
                },
            })
        })
    }

    /// Advances the time: expires halves, closes minutes, removes idle origins. Call it several times a
    /// second.
    pub fn tick(&self, now_ms: u64) {
        self.origins.set_now(now_ms);
        let Some(ttl_ms) = self.settings.join_ttl_ms else { return };
        loop {
            let interned = self.origins.read();
            if !self.state().join.expire(now_ms as u32, ttl_ms, EXPIRE_AT_ONCE, &interned) {
                break;
            }
        }
        let mut state = self.state();
        state.mark_ring(now_ms);
        state.samples.tick(now_ms);
        let safe_ms = match self.settings.partitioned {
            true => state.partitions.safe_ms(ttl_ms),
            false => now_ms.saturating_sub(ttl_ms as u64 + CLOSE_GRACE_MS),
        };
        state.settled_ms = safe_ms;
        while let Some(mut closed) = state.windows.close_before(safe_ms) {
            state.candidates.minute_closed(&closed.pairs);
            closed.pairs.iter_mut().for_each(PairStats::drop_candidates);
            // Whoever reads partitions waits for the recorder instead.
            if state.closed.len() >= MAX_CLOSED_MINUTES && !self.settings.partitioned {
                state.closed.pop_front();
                state.minutes_dropped += 1;
            }
            state.closed.push_back(closed);
        }
        let since_ms = now_ms.saturating_sub(state.last_sweep_ms);
        drop(state);
        if self.origins.cluster().tick(now_ms) {
            self.origins.ask_again();
        }
        let is_crowded = since_ms >= SWEEP_CROWDED_MS && self.origins.read().is_crowded();
        if is_crowded || since_ms >= SWEEP_MS {
            self.forget_idle(now_ms, ttl_ms, is_crowded);
        }
    }

    /// The cluster's pods and nodes, for whoever asks its API.
    pub fn cluster(&self) -> &Cluster {
        self.origins.cluster()
    }

    /// The pod that the spans of an encoded resource come from, by the cluster's API.
    pub fn pod_of(&self, resource: &[u8]) -> Option<Arc<Pod>> {
        self.origins.found(&Named::read(resource))?.pod
    }

    /// Removes what is idle. Nothing refers to an origin for longer than the time to live after its last
    /// span.
    fn forget_idle(&self, now_ms: u64, ttl_ms: u32, is_crowded: bool) {
        let mut interned = self.origins.write();
        let mut state = self.state();
        state.last_sweep_ms = now_ms;
        let unix_ms = state.unix_at_zero_ms.saturating_add(now_ms as i64).max(0) as u64;
        state.offsets.sweep(unix_ms, is_crowded);
        state.partitions.touch_origins(&interned, now_ms);
        let idle_ms = if is_crowded { ttl_ms as u64 + IDLE_GRACE_MS } else { 2 * ttl_ms as u64 + SWEEP_MS };
        let mut live = interned.forget_idle(now_ms, idle_ms);
        if is_crowded {
            state.pairs.mark(&mut live);
            state.offsets.mark(&mut live);
            let forgotten = interned.forget_names(&live);
            forgotten.into_iter().for_each(|number| state.join.forget_service(number));
        }
    }

    /// Sets the wall clock time at `now_ms`, the engine's own monotonic time. If the wall clock was set
    /// since, or the machine was suspended, minutes still in the engine are labelled with the new time.
    pub fn set_wall_clock(&self, now_ms: u64, unix_ms: u64) {
        let mut state = self.state();
        let unix_at_zero_ms = unix_ms as i64 - now_ms as i64;
        let by_ms = unix_at_zero_ms - state.unix_at_zero_ms;
        if by_ms.unsigned_abs() < CLOCK_STEP_MS {
            return;
        }
        state.unix_at_zero_ms = unix_at_zero_ms;
        if !self.settings.partitioned {
            state.windows.set_wall_clock(now_ms, unix_at_zero_ms);
            state.closed.iter_mut().for_each(|minute| minute.rename(unix_at_zero_ms));
        }
        state.clock_steps += 1;
        state.last_clock_steps.push_back(ClockStep { unix_s: unix_ms / 1000, by_ms });
        if state.last_clock_steps.len() > MAX_REPORTED_CLOCK_STEPS {
            state.last_clock_steps.pop_front();
        }
    }

    /// Ends the input: waiting halves will find no mate and are counted as expired.
    pub fn finish(&self) {
        let interned = self.origins.read();
        self.state().join.expire_all(&interned);
    }

    /// Removes and returns the minutes closed since the last call, with a copy of the open ones.
    pub fn take_minutes(&self) -> Minutes {
        let mut state = self.state();
        let closed = std::mem::take(&mut state.closed);
        let named = |minute: &Minute| state.named(minute);
        Minutes {
            closed: closed.iter().flat_map(named).collect(),
            open: state.windows.open().flat_map(named).collect(),
            settled_before_s: minute_of(state.windows.unix_at_zero_ms(), state.settled_ms) * 60,
            partitions: state.partitions.marks(),
            spans: state.join.accounting,
        }
    }
}

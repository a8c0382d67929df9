//! The meter's core: walk, join, statistics. It does no IO and reads no clock; the caller passes the time.

mod ingest;
mod ledger;
pub mod partitions;
mod read;
mod record;
mod shard;
mod statistics;

use crate::cluster::{Cluster, Pod};
use crate::entry::MOST_LANES;
use crate::ingest::named::Named;
use crate::ingest::origins::{Limits, Origins};
use crate::ingest::semconv::{Interest, RESPONSE_SIZE_ATTRIBUTES};
use crate::pairs::{Grouping, PairLimits};
use crate::peers::Peers;
use crate::pending::{KeyMaker, Pending};
use crate::services::ServiceCounts;
use crate::usual::UsualOfPairs;
use ledger::Ledger;
use partitions::{PartitionMark, Partitions};
use shard::{Common, Shard, shards};
use spangap_model::accounting::Malformed;
use spangap_model::{Accounting, Histogram, PairKey, PairStats};
use statistics::Statistics;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    /// What meters share that tell each other which halves found no mate; `None` for a meter by itself.
    pub peers_secret: Option<Vec<u8>>,
    /// Threads that can join spans at once, up to [`MOST_LANES`](crate::entry::MOST_LANES).
    pub lanes: usize,
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
            peers_secret: None,
            lanes: 1,
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
    /// Whether other meters are asked for the mates of halves that found none here.
    pub asks_peers: bool,
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

/// What a thread that processes a request has to itself. On cache lines of its own: neighbours are in use by other cores.
#[derive(Debug)]
#[repr(align(128))]
struct Lane {
    stats: Statistics,
    partitions: Partitions,
    /// For spans of these partitions, whose minutes, offsets and counts must be of one moment.
    of_partitions: Shard,
}

impl Lane {
    fn new(number: u8, settings: &Settings, common: &Common, keys: KeyMaker) -> Lane {
        let keep_bytes = if settings.partitioned { settings.keep_bytes / settings.lanes as u64 } else { 0 };
        Lane {
            stats: Statistics::new(number, settings, common),
            partitions: Partitions::default(),
            of_partitions: Shard::new(settings, Pending::new(0), keep_bytes, keys),
        }
    }
}

/// The engine, shared between threads. Locks are acquired in this order: origins, ledger, one lane, one shard, pairs or clocks. That of
/// peers is the last: whoever holds it acquires no other.
#[derive(Debug)]
pub struct Meter {
    settings: Settings,
    interest: Interest,
    origins: Origins,
    keys: KeyMaker,
    ledger: Mutex<Ledger>,
    lanes: Box<[Mutex<Lane>]>,
    shards: Box<[Mutex<Shard>]>,
    common: Common,
    usual: Mutex<Arc<UsualOfPairs>>,
    peers: Option<Mutex<Peers>>,
}

impl Meter {
    /// An empty meter.
    pub fn new(settings: Settings) -> Meter {
        let settings = Settings { lanes: settings.lanes.clamp(1, MOST_LANES), ..settings };
        let ttl_ms = settings.join_ttl_ms.map_or(0, u64::from);
        let secret = settings.peers_secret.as_deref().filter(|_| ttl_ms > 0);
        let keys = secret.map_or_else(KeyMaker::new, KeyMaker::of_secret);
        let peers = secret.map(|secret| Mutex::new(Peers::new(secret, fastrand::u64(1..), ttl_ms)));
        let common = Common::new(&settings);
        let lane = |number| Mutex::new(Lane::new(number, &settings, &common, keys));
        Meter {
            interest: Interest::new(
                settings.grouping == Grouping::Method,
                &settings.response_size_attributes,
            ),
            origins: Origins::new(settings.origin_limits, settings.grouping.part()),
            ledger: Mutex::new(Ledger::new(settings.epoch_unix_ms as i64)),
            lanes: (0..settings.lanes as u8).map(lane).collect(),
            shards: shards(&settings, keys),
            keys,
            common,
            usual: Mutex::default(),
            peers,
            settings,
        }
    }

    /// The engine's settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The cluster's pods and nodes, for whoever asks its API.
    pub fn cluster(&self) -> &Cluster {
        self.origins.cluster()
    }

    /// The pod that the spans of an encoded resource come from, by the cluster's API.
    pub fn pod_of(&self, resource: &[u8]) -> Option<Arc<Pod>> {
        self.origins.found(&Named::read(resource))?.pod
    }

    /// Halves without a mate here and at other meters, if others are asked.
    pub fn peers(&self) -> Option<MutexGuard<'_, Peers>> {
        self.peers.as_ref().map(|peers| peers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    // A panic under a lock is a bug; the figures collected since are still the best available.
    fn shard(&self, number: usize) -> MutexGuard<'_, Shard> {
        self.shards[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lane(&self, number: usize) -> MutexGuard<'_, Lane> {
        self.lanes[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One after the other: nobody holds two.
    fn each_shard(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        (0..self.shards.len()).map(|number| self.shard(number))
    }

    /// One after the other: nobody holds two.
    fn each_lane(&self) -> impl Iterator<Item = MutexGuard<'_, Lane>> {
        (0..self.lanes.len()).map(|number| self.lane(number))
    }
}

//! The connections of a capture: finds the connection of a segment, creates new ones, forgets old ones.
//!
//! A connection is *followed* until it has been closed for a while, has been idle for very long, is replaced by
//! another between the same ports, or is evicted because there are too many. Then it has *departed*: it can still
//! be looked up by number until it has been taken as ended and the next batch is taken.

use super::connection::{Connection, Shared};
use super::roles::Roles;
use super::{ConnectionFacts, Kind};
use crate::app::Parser;
use crate::segment::{Endpoint, Segment};
use rustc_hash::FxHashMap;
use spangap_model::Side;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};

/// Maximum connections followed at once: enough for a busy proxy, and 0.8 GiB with what each takes when idle (3.3 KiB,
/// and its parser once there are bytes).
pub const MAX_CONNECTIONS: usize = 1 << 18;
/// Maximum closed connections that linger, so that late packets find their connection instead of creating a new
/// one.
pub const MAX_CLOSED: usize = 1 << 15;
/// How long a closed connection lingers, nanoseconds: TIME_WAIT of Linux (include/net/tcp.h, TCP_TIMEWAIT_LEN).
pub const LINGER_NS: i64 = 60_000_000_000;
/// Maximum idle time of a connection, nanoseconds: twice the time after which a keep-alive would have been sent
/// (tcp_keepalive_time, 2 h).
pub const IDLE_NS: i64 = 4 * 3600 * 1_000_000_000;
/// The same when only one side was seen, nanoseconds: SYNs are retransmitted for 127 s (tcp_syn_retries).
pub const HALF_OPEN_IDLE_NS: i64 = 300_000_000_000;
/// Maximum departed connections that wait to be taken; beyond it, the oldest are dropped.
pub const MAX_DEPARTED: usize = 1 << 15;
/// Maximum memory of all parsers together, bytes; beyond it, connections are evicted. Each parser is bounded by
/// itself; this limit is for very many of them.
pub const MAX_PARSER_BYTES: usize = 1 << 30;
/// Number of segments between two checks for idle connections.
const SWEEP_EVERY: u32 = 256;
/// Number of slots per check.
const SWEEP_SLOTS: usize = 8;
/// Slots sampled to find one to evict.
const EVICTION_SAMPLE: usize = 64;

/// Both ends of a connection, the smaller first, and the virtual network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    ends: [u128; 2],
    ports: u64,
}

impl Key {
    #[inline]
    pub(crate) fn of(a: &Endpoint, b: &Endpoint, network: u32) -> Key {
        let (first, second) = (u128::from_be_bytes(a.address), u128::from_be_bytes(b.address));
        let (low, high) = (u64::from(a.port), u64::from(b.port));
        let network = u64::from(network) << 32;
        if (first, low) <= (second, high) {
            Key { ends: [first, second], ports: network | low << 16 | high }
        } else {
            Key { ends: [second, first], ports: network | high << 16 | low }
        }
    }
}

impl std::hash::Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        for end in self.ends {
            state.write_u64(end as u64);
            state.write_u64((end >> 64) as u64);
        }
        state.write_u64(self.ports);
    }
}

/// A fast hash that cannot be attacked from outside: the author of a capture does not know the seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seed(u64);

impl Default for Seed {
    fn default() -> Seed {
        Seed(RandomState::new().hash_one(0))
    }
}

impl BuildHasher for Seed {
    type Hasher = Fold;
    fn build_hasher(&self) -> Fold {
        Fold { state: self.0, seed: self.0 | 1 }
    }
}

/// Folded multiplication of each word with the state.
pub(crate) struct Fold {
    state: u64,
    seed: u64,
}

impl Hasher for Fold {
    #[inline]
    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.state ^ word) * u128::from(0x9e37_79b9_7f4a_7c15_u64 ^ self.seed);
        self.state = (product as u64) ^ ((product >> 64) as u64) ^ self.seed.rotate_left(23);
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }
    fn finish(&self) -> u64 {
        self.state
    }
}

/// Number of connections, and why they were forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Connections seen.
    pub connections: u64,
    /// Forgotten before they ended, to make room.
    pub evicted: u64,
    /// Forgotten because they were idle for very long.
    pub expired: u64,
    /// Departed, then dropped before anyone took them as ended.
    pub untaken: u64,
}

/// All connections of a capture.
pub struct Flows<P> {
    by_key: HashMap<Key, u32, Seed>,
    by_id: FxHashMap<u32, u32>,
    slots: Vec<Option<Box<Connection<P>>>>,
    free: Vec<u32>,
    last: Option<(Key, u32)>,
    /// Lingering closed ones: slot, number, and time of closing.
    closed: VecDeque<(u32, u32, i64)>,
    /// Departed ones by number; those to be taken as ended, oldest first; and those taken by the last call.
    departed: FxHashMap<u32, Box<Connection<P>>>,
    untaken: VecDeque<u32>,
    taken: Vec<u32>,
    roles: Roles,
    until_sweep: u32,
    hand: usize,
    next_id: u32,
    parser_bytes: FxHashMap<u32, usize>,
    parsers_total: usize,
    limit: usize,
    /// Counts.
    pub counts: FlowCounts,
}

impl<P> Default for Flows<P> {
    fn default() -> Flows<P> {
        Flows {
            by_key: HashMap::default(),
            by_id: FxHashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            last: None,
            closed: VecDeque::new(),
            departed: FxHashMap::default(),
            untaken: VecDeque::new(),
            taken: Vec::new(),
            roles: Roles::default(),
            until_sweep: SWEEP_EVERY,
            hand: 0,
            next_id: 1,
            parser_bytes: FxHashMap::default(),
            parsers_total: 0,
            limit: MAX_CONNECTIONS,
            counts: FlowCounts::default(),
        }
    }
}

impl<P: Parser + Default> Flows<P> {
    /// With a limit other than [`MAX_CONNECTIONS`].
    pub fn with_limit(limit: usize) -> Flows<P> {
        Flows { limit: limit.max(1), ..Flows::default() }
    }

    /// Processes the next segment of the capture; returns its role in its connection.
    #[inline]
    pub fn segment(&mut self, segment: &Segment<'_>, shared: &mut Shared) -> Kind {
        let key = Key::of(&segment.source, &segment.destination, segment.network);
        let slot = match self.last {
            Some((last, slot)) if last == key => Some(slot),
            _ => self.by_key.get(&key).copied(),
        };
        let admitted =
            slot.filter(|slot| self.get(*slot).is_some_and(|connection| connection.admits(segment)));
        let slot = match admitted {
            Some(slot) => slot,
            None => self.begin(key, slot, segment, shared),
        };
        self.last = Some((key, slot));
        let mut kind = Kind::Duplicate;
        if let Some(connection) = self.slots.get_mut(slot as usize).and_then(Option::as_mut) {
            let was_closed = connection.closed();
            kind = connection.segment(segment, shared).kind;
            if connection.closed() && !was_closed {
                self.closed.push_back((slot, connection.id(), segment.time_ns));
            }
        }
        self.until_sweep -= 1;
        if self.until_sweep == 0 {
            self.until_sweep = SWEEP_EVERY;
            self.sweep(segment.time_ns, shared);
        }
        kind
    }

    #[inline]
    fn get(&self, slot: u32) -> Option<&Connection<P>> {
        self.slots.get(slot as usize)?.as_deref()
    }

    /// Creates a connection, and ends the previous one with the same key.
    #[cold]
    fn begin(&mut self, key: Key, old: Option<u32>, segment: &Segment<'_>, shared: &mut Shared) -> u32 {
        if let Some(old) = old {
            self.depart(old, shared);
        }
        while self.by_key.len() >= self.limit {
            self.make_room(segment.time_ns, shared);
        }
        let opened = shared.openings.take(&key, segment);
        let (from, known) = match opened.and_then(|opened| opened.server) {
            Some(server) if server == segment.source => (Side::Server, true),
            Some(_) => (Side::Client, true),
            None => self.roles.side(segment),
        };
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        if let Some(place) = self.slots.get_mut(slot as usize) {
            let mut connection = Box::new(Connection::new(id, segment, from, known));
            match opened {
                Some(opened) => connection.opened_before(&opened),
                None if known && from == Side::Client => connection.opened(segment, shared),
                None => {}
            }
            *place = Some(connection);
        }
        self.by_key.insert(key, slot);
        self.by_id.insert(id, slot);
        shared.news.changed.push(id);
        self.counts.connections += 1;
        slot
    }

    /// Makes room for one connection: evicts a closed one if there is one, else the longest idle of a sample.
    fn make_room(&mut self, now_ns: i64, shared: &mut Shared) {
        while let Some((slot, id, _)) = self.closed.pop_front() {
            if self.is_followed(slot, id) {
                return self.depart(slot, shared);
            }
        }
        let mut longest: Option<(i64, u32)> = None;
        for looked_at in 0..self.slots.len() {
            if looked_at >= EVICTION_SAMPLE && longest.is_some() {
                break;
            }
            self.hand = (self.hand + 1) % self.slots.len().max(1);
            let slot = self.hand as u32;
            let Some(connection) = self.get(slot) else { continue };
            let idle_ns = now_ns.saturating_sub(connection.last_ns());
            if longest.is_none_or(|(longest, _)| idle_ns > longest) {
                longest = Some((idle_ns, slot));
            }
        }
        let Some((_, slot)) = longest else { return };
        self.counts.evicted += 1;
        self.depart(slot, shared);
    }

    fn key_of(connection: &Connection<P>) -> Key {
        let [a, b] = connection.ends();
        Key::of(&a, &b, connection.network())
    }

    /// Whether this slot still holds the connection of this number.
    fn is_followed(&self, slot: u32, id: u32) -> bool {
        self.get(slot).is_some_and(|connection| connection.id() == id)
    }

    /// Ends a connection: no more segments will belong to it.
    fn depart(&mut self, slot: u32, shared: &mut Shared) {
        self.last = None;
        let Some(mut connection) = self.slots.get_mut(slot as usize).and_then(Option::take) else { return };
        connection.finish(shared);
        let key = Flows::key_of(&connection);
        self.by_key.remove(&key);
        shared.news.departed.push((connection.id(), key));
        self.by_id.remove(&connection.id());
        self.free.push(slot);
        let bytes = self.parser_bytes.remove(&slot).unwrap_or(0);
        self.parsers_total = self.parsers_total.saturating_sub(bytes);
        self.untaken.push_back(connection.id());
        self.departed.insert(connection.id(), connection);
        if self.untaken.len() > MAX_DEPARTED
            && let Some(oldest) = self.untaken.pop_front()
        {
            self.counts.untaken += 1;
            self.departed.remove(&oldest);
        }
    }

    /// Removes closed connections that have lingered long enough, and checks some others for idleness.
    #[cold]
    fn sweep(&mut self, now_ns: i64, shared: &mut Shared) {
        while let Some((slot, id, closed_ns)) = self.closed.front().copied() {
            let lingered = now_ns.saturating_sub(closed_ns) >= LINGER_NS || self.closed.len() > MAX_CLOSED;
            if !lingered {
                break;
            }
            self.closed.pop_front();
            if self.is_followed(slot, id) {
                self.depart(slot, shared);
            }
        }
        for _ in 0..SWEEP_SLOTS.min(self.slots.len()) {
            self.hand = (self.hand + 1) % self.slots.len().max(1);
            let slot = self.hand as u32;
            let Some(connection) = self.get(slot) else { continue };
            let idle_ns = now_ns.saturating_sub(connection.last_ns());
            let limit_ns = if connection.half_open() { HALF_OPEN_IDLE_NS } else { IDLE_NS };
            let bytes = connection.parser_bytes();
            let before = self.parser_bytes.insert(slot, bytes).unwrap_or(0);
            self.parsers_total = (self.parsers_total + bytes).saturating_sub(before);
            if idle_ns > limit_ns {
                self.counts.expired += 1;
                self.depart(slot, shared);
            } else if self.parsers_total > MAX_PARSER_BYTES {
                self.counts.evicted += 1;
                self.depart(slot, shared);
            }
        }
    }

    /// The capture ended: every connection flushes its data. They stay followed.
    pub fn finish(&mut self, shared: &mut Shared) {
        let mut order: Vec<(u32, u32)> = self.by_id.iter().map(|(id, slot)| (*id, *slot)).collect();
        order.sort_unstable();
        for (_, slot) in order {
            if let Some(connection) = self.slots.get_mut(slot as usize).and_then(Option::as_mut) {
                connection.finish(shared);
                connection.tell(shared);
            }
        }
    }

    /// Moves the facts of departed connections to `into`. The connections can be looked up until the next call.
    pub fn take_ended(&mut self, into: &mut Vec<ConnectionFacts>) {
        for id in self.taken.drain(..) {
            self.departed.remove(&id);
        }
        for id in self.untaken.drain(..) {
            if let Some(connection) = self.departed.get(&id) {
                into.push(connection.facts());
                self.taken.push(id);
            }
        }
    }

    /// A connection by number; `None` when it is forgotten.
    pub fn connection(&self, id: u32) -> Option<&Connection<P>> {
        match self.by_id.get(&id) {
            Some(slot) => self.get(*slot),
            None => self.departed.get(&id).map(Box::as_ref),
        }
    }

    /// A connection by number, while it is followed.
    pub fn followed(&self, id: u32) -> Option<&Connection<P>> {
        self.get(*self.by_id.get(&id)?)
    }

    /// Every connection followed now, in order of creation.
    pub fn live(&self) -> Vec<&Connection<P>> {
        let slots = self.by_key.values();
        let mut connections: Vec<_> = slots.filter_map(|slot| self.get(*slot)).collect();
        connections.sort_by_key(|connection| connection.id());
        connections
    }

    /// Connections in memory: followed, lingering and departed.
    pub fn in_memory(&self) -> usize {
        self.by_id.len() + self.departed.len()
    }
}

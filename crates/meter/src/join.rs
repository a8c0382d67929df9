//! The join: the state machine for spans that arrive at the pending store.
//!
//! The key of a call is (trace id, CLIENT span id), which the SERVER span carries as its parent. An entry
//! starts as one half. When the mate arrives, it becomes a joined call and stays until the end of its time to
//! live: a retransmitted span is then a duplicate, and a further SERVER span is an attempt, which retracts
//! the call from the main distributions. Each further attempt has its own entry, so that its retransmission
//! is recognised too.

use crate::entry::{Call, Entry, Key, MAX_DURATION_NS, Outline, State, Waiting};
use crate::ingest::origins::Interned;
use crate::ingest::semconv::SpanKind;
use crate::ingest::walk::SpanFacts;
use crate::keep::Keep;
use crate::peers::Fate;
use crate::pending::{KeyMaker, Pending, Position};
use crate::services::Services;
use crate::window::CallFigures;
use spangap_model::accounting::Malformed;
use spangap_model::{Accounting, CallStatus, Side};

/// One side of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Half {
    /// Start by its own host's clock.
    pub start_ns: u64,
    /// Duration.
    pub duration_ns: u64,
    /// Its origin.
    pub origin: u32,
    /// Position of its bytes; `None` for the half that has just arrived, whose bytes are in the request.
    pub kept: Option<u32>,
}

/// A call with both halves known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The call's entry, for [`Join::remember`].
    pub position: Position,
    /// Arrival of the first half, in milliseconds modulo 2^32.
    pub first_arrival_ms: u32,
    /// The CLIENT span.
    pub client: Half,
    /// The SERVER span.
    pub server: Half,
    /// Status according to the CLIENT span.
    pub status: CallStatus,
    /// Whether either side states a response over the limit.
    pub large: bool,
    /// Whether either side states the response size.
    pub sized: bool,
    /// Whether more than one SERVER span arrived before the CLIENT span.
    pub many_attempts: bool,
}

/// A joined call that turned out to have more than one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retracted {
    /// Arrival of the first half, in milliseconds modulo 2^32.
    pub first_arrival_ms: u32,
    /// Number of its pair.
    pub pair: u32,
    /// Number of the lane that has recorded it.
    pub lane: u8,
    /// The recorded figures.
    pub figures: CallFigures,
}

/// Work that remains after counting a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// None.
    Counted,
    /// Record the call, then [`Join::remember`] it.
    Joined(Joined),
    /// Retract the call from the distributions and count it as one with several attempts.
    Retracted(Retracted),
}

/// Milliseconds since an arrival. Requests are processed concurrently, so an earlier request may be processed
/// later; its mates have then waited for 0 ms, and not for nearly 2^32 ms.
#[inline]
pub fn waited_ms(now_ms: u32, arrival_ms: u32) -> u32 {
    let waited = now_ms.wrapping_sub(arrival_ms);
    if waited > u32::MAX / 2 { 0 } else { waited }
}

/// The span id in the key of a span's call.
#[inline]
pub fn id_of_call(span: &SpanFacts) -> u64 {
    if span.kind == SpanKind::Client { span.span } else { span.parent }
}

/// Mixed into the trace id of an attempt's own entry, so that it cannot collide with a call's key.
const ATTEMPT_SALT: u64 = 0x5bd1_e995_9d1b_54a5;

/// A half without a mate, of which other meters are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The call.
    pub key: Key,
    /// The half.
    pub side: Side,
    /// Its origin.
    pub origin: u32,
    /// Its arrival, in milliseconds modulo 2^32.
    pub arrival_ms: u32,
}

/// The join: pending halves, retained bytes, and the accounting of every span.
#[derive(Debug)]
pub struct Join {
    pending: Pending,
    keep: Keep,
    keys: KeyMaker,
    large_over: u64,
    /// Halves without a mate that are not counted as such before other meters were asked; they are still pending.
    asked: Option<Vec<Asked>>,
    /// Accounting of every span.
    pub accounting: Accounting,
    /// Reasons for malformed spans.
    pub malformed: Malformed,
    /// Spans without a mate by service; those with one are counted where their call is recorded.
    pub unmatched: Services,
}

impl Join {
    /// An empty join. Responses over `large_over` bytes mark a call as large; `None` for no limit. `keys` are those that
    /// [`Join::offer`] gets.
    pub fn new(pending: Pending, keep_bytes: u64, large_over: Option<u64>, keys: KeyMaker) -> Join {
        Join {
            pending,
            keep: Keep::new(keep_bytes),
            keys,
            large_over: large_over.unwrap_or(u64::MAX),
            asked: None,
            accounting: Accounting::default(),
            malformed: Malformed::default(),
            unmatched: Services::default(),
        }
    }

    /// The same, whose halves without a mate wait for [`Join::settle`] after they have expired.
    pub fn asking_others(self) -> Join {
        Join { asked: Some(Vec::new()), ..self }
    }

    /// Removes and returns the halves that have expired since the last call, if other meters are to be asked for their mates.
    pub fn take_asked(&mut self) -> Vec<Asked> {
        self.asked.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Counts a half of [`Join::take_asked`].
    pub fn settle(&mut self, side: Side, origin: u32, fate: Fate, names: &Interned) {
        self.accounting.pending -= 1;
        match (fate, side) {
            (Fate::Apart, _) => self.accounting.apart += 1,
            (Fate::Unresolved, _) => self.accounting.unresolved += 1,
            (Fate::Alone, Side::Client) => self.accounting.expired_client_only += 1,
            (Fate::Alone, Side::Server) => self.accounting.expired_server_only += 1,
        }
        if fate == Fate::Alone {
            self.count_unmatched(side, origin, names);
        }
    }

    /// The store of halves, for reports.
    pub fn pending(&self) -> &Pending {
        &self.pending
    }

    /// Exchanges the store of halves for another.
    pub fn swap_pending(&mut self, other: &mut Pending) {
        std::mem::swap(&mut self.pending, other);
    }

    /// The ring of complete spans.
    pub fn keep(&self) -> &Keep {
        &self.keep
    }

    /// Starts loading the index slot of a key that is needed soon.
    #[inline]
    pub fn prefetch_slot(&self, key: Key) {
        self.pending.prefetch_slot(key);
    }

    /// Starts loading the entry of a key that is needed next.
    #[inline]
    pub fn prefetch_entry(&self, key: Key) {
        self.pending.prefetch_entry(key);
    }

    /// Processes one span. `bytes` is its message, `now_ms` its arrival modulo 2^32.
    #[inline]
    pub fn offer(
        &mut self,
        span: &SpanFacts,
        key: Key,
        bytes: &[u8],
        now_ms: u32,
        names: &Interned,
    ) -> Outcome {
        self.accounting.received += 1;
        if !self.is_well_formed(span) {
            self.accounting.malformed += 1;
            return Outcome::Counted;
        }
        match span.kind {
            SpanKind::Other => {
                self.accounting.other_kind += 1;
                Outcome::Counted
            }
            SpanKind::Server if span.parent == 0 => {
                self.accounting.root += 1;
                Outcome::Counted
            }
            SpanKind::Client => self.offer_half(span, key, Side::Client, bytes, now_ms, names),
            SpanKind::Server => self.offer_half(span, key, Side::Server, bytes, now_ms, names),
        }
    }

    fn is_well_formed(&mut self, span: &SpanFacts) -> bool {
        let reason = if span.bad_id {
            &mut self.malformed.bad_id
        } else if span.start_ns == 0 || span.end_ns == 0 {
            &mut self.malformed.no_time
        } else if span.end_ns < span.start_ns {
            &mut self.malformed.end_before_start
        } else if span.end_ns - span.start_ns > MAX_DURATION_NS {
            &mut self.malformed.too_long
        } else {
            return true;
        };
        *reason += 1;
        false
    }

    #[inline]
    fn offer_half(
        &mut self,
        span: &SpanFacts,
        key: Key,
        side: Side,
        bytes: &[u8],
        now_ms: u32,
        names: &Interned,
    ) -> Outcome {
        let outline = self.outline(span, side);
        let Some(position) = self.pending.find(key) else {
            let server_tag = if side == Side::Server { self.keys.server_tag(span.span) } else { 0 };
            self.make_room(names);
            let half = Waiting {
                side,
                start_ns: span.start_ns,
                duration_ns: span.end_ns - span.start_ns,
                outline,
                origin: span.origin,
                server_tag,
                kept: self.keep.put(bytes),
                many_attempts: false,
            };
            self.pending.insert(key, Entry::waiting(&half, now_ms));
            self.accounting.pending += 1;
            return Outcome::Counted;
        };
        let entry = self.pending.get(position);
        let (state, first_arrival_ms) = (entry.state(), entry.arrival_ms());
        let known_tag = match state {
            State::Waiting(half) if half.side != side => {
                return self.joined(span, outline, position, half, first_arrival_ms);
            }
            State::Waiting(half) => half.server_tag,
            State::Call(call) => call.server_tag,
            State::Attempt => 0,
        };
        if side == Side::Client || known_tag == self.keys.server_tag(span.span) {
            self.accounting.duplicate += 1;
            return Outcome::Counted;
        }
        self.further_attempt(span, position, state, first_arrival_ms, now_ms, names)
    }

    #[inline]
    fn outline(&self, span: &SpanFacts, side: Side) -> Outline {
        // The CLIENT span determines the status; that of the SERVER span is dropped.
        let status = if side == Side::Client { span.status } else { CallStatus::UNSET };
        Outline::new(status, span.response_bytes > self.large_over, span.sized)
    }

    #[inline]
    fn joined(
        &mut self,
        span: &SpanFacts,
        outline: Outline,
        position: Position,
        waiting: Waiting,
        first_arrival_ms: u32,
    ) -> Outcome {
        let arriving = Half {
            start_ns: span.start_ns,
            duration_ns: span.end_ns - span.start_ns,
            origin: span.origin,
            kept: None,
        };
        let mate = Half {
            start_ns: waiting.start_ns,
            duration_ns: waiting.duration_ns,
            origin: waiting.origin,
            kept: Some(waiting.kept),
        };
        let (client, server, server_tag) = match waiting.side {
            Side::Server => (arriving, mate, waiting.server_tag),
            Side::Client => (mate, arriving, self.keys.server_tag(span.span)),
        };
        self.accounting.pending -= 1;
        self.accounting.joined += 2;
        let outline = outline.and(waiting.outline);
        self.pending.get_mut(position).join(client.duration_ns, server.duration_ns, outline, server_tag);
        Outcome::Joined(Joined {
            position,
            first_arrival_ms,
            client,
            server,
            status: outline.status(),
            large: outline.is_large(),
            sized: outline.is_sized(),
            many_attempts: waiting.many_attempts,
        })
    }

    /// Stores where a joined call was recorded, so that it can be retracted.
    #[inline]
    pub fn remember(&mut self, position: Position, pair: u32, lane: u8, request_leg_ns: Option<u64>) {
        self.pending.get_mut(position).recorded(pair, lane, request_leg_ns);
    }

    #[cold]
    fn further_attempt(
        &mut self,
        span: &SpanFacts,
        position: Position,
        present: State,
        first_arrival_ms: u32,
        now_ms: u32,
        names: &Interned,
    ) -> Outcome {
        let own_key =
            self.keys.key(self.keys.trace([span.trace[0] ^ ATTEMPT_SALT, span.trace[1]]), span.span);
        if self.pending.find(own_key).is_some() {
            self.accounting.duplicate += 1;
            return Outcome::Counted;
        }
        self.accounting.extra_attempts += 1;
        self.pending.get_mut(position).has_many_attempts();
        // Making room may evict the call's own entry: `present` contains all that is needed of it.
        self.make_room(names);
        self.pending.insert(own_key, Entry::attempt(now_ms));
        match present {
            State::Call(call) if !call.many_attempts => Outcome::Retracted(Retracted {
                first_arrival_ms,
                pair: call.pair,
                lane: call.lane,
                figures: figures(&call),
            }),
            _ => Outcome::Counted,
        }
    }

    #[inline]
    fn make_room(&mut self, names: &Interned) {
        while !self.pending.prepare() && self.evict_oldest(names) {}
    }

    /// Pops the oldest entry, before its time; false if there is none.
    fn evict_oldest(&mut self, names: &Interned) -> bool {
        let Some(entry) = self.pending.pop_oldest() else { return false };
        if self.forget(entry, names).is_some() {
            self.accounting.evicted += 1;
        }
        true
    }

    /// Gives up the oldest entries, as many as memory is allocated for at once.
    pub fn give_up_oldest(&mut self, names: &Interned) {
        let bytes = self.pending.bytes();
        while self.pending.bytes() >= bytes && self.evict_oldest(names) {
            self.pending.drop_spare();
        }
    }

    /// Counts a popped entry for its service; returns its side if it was a half without a mate.
    fn forget(&mut self, entry: Entry, names: &Interned) -> Option<Side> {
        let State::Waiting(half) = entry.state() else { return None };
        self.accounting.pending -= 1;
        self.count_unmatched(half.side, half.origin, names);
        Some(half.side)
    }

    fn count_unmatched(&mut self, side: Side, origin: u32, names: &Interned) {
        let counts = self.unmatched.of(names.origin(origin).service);
        match side {
            Side::Client => counts.client_unmatched += 1,
            Side::Server => counts.server_unmatched += 1,
        }
    }

    /// Pops up to `most` entries older than `ttl_ms`; true if there may be more.
    pub fn expire(&mut self, now_ms: u32, ttl_ms: u32, most: usize, names: &Interned) -> bool {
        for _ in 0..most {
            match self.pending.oldest() {
                Some(entry) if waited_ms(now_ms, entry.arrival_ms()) > ttl_ms => {}
                _ => return false,
            }
            if !self.expire_oldest(names) {
                return false;
            }
        }
        true
    }

    /// Pops everything.
    pub fn expire_all(&mut self, names: &Interned) {
        while self.expire_oldest(names) {}
    }

    /// Pops the oldest entry; false if there is none.
    fn expire_oldest(&mut self, names: &Interned) -> bool {
        let Some(entry) = self.pending.pop_oldest() else { return false };
        if let (Some(asked), State::Waiting(half)) = (&mut self.asked, entry.state()) {
            let (key, arrival_ms) = (entry.key(), entry.arrival_ms());
            asked.push(Asked { key, side: half.side, origin: half.origin, arrival_ms });
            return true;
        }
        match self.forget(entry, names) {
            Some(Side::Client) => self.accounting.expired_client_only += 1,
            Some(Side::Server) => self.accounting.expired_server_only += 1,
            None => {}
        }
        true
    }
}

/// The recorded figures of a call.
fn figures(call: &Call) -> CallFigures {
    CallFigures {
        client_ns: call.client_ns,
        server_ns: call.server_ns,
        status: call.outline.status(),
        large: call.outline.is_large(),
        sized: call.outline.is_sized(),
        request_leg_ns: call.request_leg_ns,
    }
}

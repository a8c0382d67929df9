//! An entry of the pending store, in 44 bytes.
//!
//! There may be twenty million entries at once, so three kinds share the same words: a waiting half, a joined
//! call, and a further attempt. Only this file knows the meaning of each word. Other code sees an entry as a
//! [`State`], of which the compiler loads only the fields in use.

use spangap_model::{CallStatus, Side};

/// Digest of a key: 64 bits compared in the entry, 31 in the index of [`Pending`](crate::pending::Pending).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key {
    pub(crate) digest: u64,
    pub(crate) tag: u32,
}

impl Key {
    /// As words, the lowest bit of the second of which is 1.
    pub fn words(self) -> (u64, u32) {
        (self.digest, self.tag)
    }

    /// Of [`Key::words`]; the lowest bit of the second does not matter.
    pub fn of_words(digest: u64, tag: u32) -> Key {
        Key { digest, tag: tag | 1 }
    }
}

/// One entry; [`Entry::state`] decodes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, packed(4))]
pub struct Entry {
    /// Half of the key; filled in when the entry is inserted.
    pub(crate) digest: u64,
    /// The other half of the key, filled in at the same time.
    pub(crate) tag: u32,
    /// 16 bits of flags above 48 bits of duration: of the half, or of the CLIENT span of a joined call.
    flags: u64,
    /// Waiting half: start time. Joined call: the SERVER span's duration below the upper 16 bits of the
    /// request leg.
    word: u64,
    arrival_ms: u32,
    /// Waiting half: origin. Joined call: pair.
    number: u32,
    server_tag: u32,
    /// Waiting half: position of the complete span. Joined call: lower 32 bits of the request leg.
    low: u32,
}

const _: () = assert!(size_of::<Entry>() == 44);

const DURATION_BITS: u32 = 48;
/// Maximum duration in an entry, in nanoseconds: 78 hours.
pub const MAX_DURATION_NS: u64 = (1 << DURATION_BITS) - 1;
const HAS_CLIENT: u64 = 1 << 48;
const HAS_SERVER: u64 = 1 << 49;
const MANY_ATTEMPTS: u64 = 1 << 50;
const LARGE: u64 = 1 << 51;
const ATTEMPT: u64 = 1 << 52;
const HAS_LEG: u64 = 1 << 53;
const STATUS_SHIFT: u32 = 54;
const STATUS: u64 = 0x3f << STATUS_SHIFT;
const SIZED: u64 = 1 << 60;
const LANE_SHIFT: u32 = 61;
/// Lanes that an entry can tell apart.
pub const MOST_LANES: usize = 1 << (u64::BITS - LANE_SHIFT);

/// Properties of a call besides its times: status, and whether the response is large.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outline(u64);

impl Outline {
    const ALL: u64 = LARGE | SIZED | STATUS;

    /// The outline from one span.
    #[inline]
    pub fn new(status: CallStatus, large: bool, sized: bool) -> Outline {
        let flag = |set, flag| if set { flag } else { 0 };
        Outline(flag(large, LARGE) | flag(sized, SIZED) | (status.code() as u64) << STATUS_SHIFT)
    }

    /// Combines the outlines of both spans, only one of which contains a status.
    #[inline]
    pub fn and(self, other: Outline) -> Outline {
        Outline(self.0 | other.0)
    }

    /// The status of the call.
    #[inline]
    pub fn status(self) -> CallStatus {
        CallStatus::from_code(((self.0 & STATUS) >> STATUS_SHIFT) as u8)
    }

    /// Whether the response is over the limit.
    #[inline]
    pub fn is_large(self) -> bool {
        self.0 & LARGE != 0
    }

    /// Whether the response size is known.
    #[inline]
    pub fn is_sized(self) -> bool {
        self.0 & SIZED != 0
    }
}

/// Decoded entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A half that waits for its mate.
    Waiting(Waiting),
    /// A joined call, retained so that retransmitted spans are recognised.
    Call(Call),
    /// A further SERVER span of a call, under its own key, retained for the same reason.
    Attempt,
}

/// A half that waits for its mate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Client or server half.
    pub side: Side,
    /// Start by its own host's clock, in Unix nanoseconds.
    pub start_ns: u64,
    /// Duration, at most [`MAX_DURATION_NS`].
    pub duration_ns: u64,
    /// Status and size according to this half.
    pub outline: Outline,
    /// Number of its origin.
    pub origin: u32,
    /// Digest of a SERVER span's own id, which distinguishes a retransmitted span from another attempt; 0 for
    /// a CLIENT span.
    pub server_tag: u32,
    /// Position of the complete span; see [`crate::keep`].
    pub kept: u32,
    /// Whether another SERVER span has arrived since.
    pub many_attempts: bool,
}

/// A joined call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Duration of the CLIENT span.
    pub client_ns: u64,
    /// Duration of the SERVER span.
    pub server_ns: u64,
    /// Status and size according to both halves.
    pub outline: Outline,
    /// Number of the pair that counts it.
    pub pair: u32,
    /// Number of the lane that counts it.
    pub lane: u8,
    /// Digest of the SERVER span's own id.
    pub server_tag: u32,
    /// The request leg in nanoseconds, if known.
    pub request_leg_ns: Option<u64>,
    /// Whether it has more than one SERVER span.
    pub many_attempts: bool,
}

impl Entry {
    /// A half that arrived at `arrival_ms`, in milliseconds modulo 2^32.
    #[inline]
    pub fn waiting(half: &Waiting, arrival_ms: u32) -> Entry {
        let side = if half.side == Side::Client { HAS_CLIENT } else { HAS_SERVER };
        let many = if half.many_attempts { MANY_ATTEMPTS } else { 0 };
        Entry {
            flags: side | many | half.outline.0 | half.duration_ns,
            word: half.start_ns,
            arrival_ms,
            number: half.origin,
            server_tag: half.server_tag,
            low: half.kept,
            ..Entry::default()
        }
    }

    /// A further attempt that arrived at `arrival_ms`.
    pub fn attempt(arrival_ms: u32) -> Entry {
        Entry { flags: ATTEMPT, arrival_ms, ..Entry::default() }
    }

    /// The key under which it was inserted.
    #[inline]
    pub fn key(&self) -> Key {
        Key::of_words(self.digest, self.tag)
    }

    /// Arrival of the first half, in milliseconds modulo 2^32.
    #[inline]
    pub fn arrival_ms(&self) -> u32 {
        self.arrival_ms
    }

    /// Decodes the entry.
    #[inline]
    pub fn state(&self) -> State {
        let flags = self.flags;
        let outline = Outline(flags & Outline::ALL);
        let many_attempts = flags & MANY_ATTEMPTS != 0;
        let side = match flags & (HAS_CLIENT | HAS_SERVER) {
            0 => return State::Attempt,
            HAS_CLIENT => Side::Client,
            HAS_SERVER => Side::Server,
            _ => {
                let leg_ns = (self.word >> DURATION_BITS) << 32 | self.low as u64;
                return State::Call(Call {
                    client_ns: flags & MAX_DURATION_NS,
                    server_ns: self.word & MAX_DURATION_NS,
                    outline,
                    pair: self.number,
                    lane: (flags >> LANE_SHIFT) as u8,
                    server_tag: self.server_tag,
                    request_leg_ns: (flags & HAS_LEG != 0).then_some(leg_ns),
                    many_attempts,
                });
            }
        };
        State::Waiting(Waiting {
            side,
            start_ns: self.word,
            duration_ns: flags & MAX_DURATION_NS,
            outline,
            origin: self.number,
            server_tag: self.server_tag,
            kept: self.low,
            many_attempts,
        })
    }

    /// Turns a waiting half into a joined call. [`Entry::recorded`] adds the pair and the leg.
    #[inline]
    pub fn join(&mut self, client_ns: u64, server_ns: u64, outline: Outline, server_tag: u32) {
        self.flags = HAS_CLIENT | HAS_SERVER | self.flags & MANY_ATTEMPTS | outline.0 | client_ns;
        self.word = server_ns;
        self.server_tag = server_tag;
    }

    /// Sets the pair and the lane that count the joined call. A leg of 2^48 ns or more does not fit; no call is that
    /// long.
    #[inline]
    pub fn recorded(&mut self, pair: u32, lane: u8, request_leg_ns: Option<u64>) {
        self.number = pair;
        self.flags |= (lane as u64) << LANE_SHIFT;
        if let Some(leg) = request_leg_ns {
            self.flags |= HAS_LEG;
            self.word |= leg >> 32 << DURATION_BITS;
            self.low = leg as u32;
        }
    }

    /// Marks the arrival of another SERVER span.
    pub fn has_many_attempts(&mut self) {
        self.flags |= MANY_ATTEMPTS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn waiting()(
            client: bool, start_ns: u64, duration_ns in 0..=MAX_DURATION_NS, status in 0u8..18, large: bool, sized: bool,
            origin: u32, server_tag: u32, kept: u32, many_attempts: bool,
        ) -> Waiting {
            let side = if client { Side::Client } else { Side::Server };
            let outline = Outline::new(CallStatus::from_code(status), large, sized);
            Waiting { side, start_ns, duration_ns, outline, origin, server_tag, kept, many_attempts }
        }
    }

    proptest! {
        /// All three kinds survive a round trip, and words of one kind do not leak into another.
        #[test]
        fn entries_survive_a_round_trip(
            half in waiting(), mate in waiting(), arrival_ms: u32, pair: u32, lane in 0..MOST_LANES as u8, leg in prop::option::of(0..=MAX_DURATION_NS),
        ) {
            let mut entry = Entry::waiting(&half, arrival_ms);
            prop_assert_eq!((entry.state(), entry.arrival_ms()), (State::Waiting(half), arrival_ms));
            prop_assert_eq!(Entry::attempt(arrival_ms).state(), State::Attempt);

            let outline = half.outline.and(mate.outline);
            prop_assert_eq!(outline.is_large(), half.outline.is_large() || mate.outline.is_large());
            prop_assert_eq!(outline.is_sized(), half.outline.is_sized() || mate.outline.is_sized());
            entry.join(half.duration_ns, mate.duration_ns, outline, mate.server_tag);
            entry.recorded(pair, lane, leg);
            let mut call = Call {
                client_ns: half.duration_ns,
                server_ns: mate.duration_ns,
                outline,
                pair,
                lane,
                server_tag: mate.server_tag,
                request_leg_ns: leg,
                many_attempts: half.many_attempts,
            };
            prop_assert_eq!((entry.state(), entry.arrival_ms()), (State::Call(call), arrival_ms));
            entry.has_many_attempts();
            call.many_attempts = true;
            prop_assert_eq!(entry.state(), State::Call(call));
        }

        #[test]
        fn every_status_survives_a_round_trip(status in 0u8..64) {
            let status = CallStatus::from_code(status);
            prop_assert_eq!(Outline::new(status, true, false).and(Outline::default()).status(), status);
        }
    }
}

//! The latest episodes of one connection, and those of them that concern an exchange.
//!
//! A busy connection has as many episodes as calls, and every call asks for its own: looking at all of them each time
//! would cost more than reading the packets. So episodes of a single stream are found by their stream, and those of
//! the whole connection by the time that a block of them spans.

use super::pools::GIVEN_ON_NS;
use crate::episode::Episode;
use crate::exchange::{Exchange, Protocol};
use crate::findings::is_loss;
use spangap_model::{Cause, Side};
use std::collections::{BTreeMap, VecDeque};

/// Number of episodes kept per connection, the latest. Each call may have one of its own, and asks for it when it is settled: half as
/// many calls may be joined and wait for that, beside those in flight and those that one capture is read ahead of the other.
pub const MAX_EPISODES: usize = 2048;
/// Episodes of one kind before the first call: a connection that is opened has one.
const MAX_OPENING: usize = 4;
/// A call that begins later after its connection was opened did not wait for that.
const SOON_NS: i64 = 1_000_000_000;
/// A call whose bytes waited for lost ones to be acknowledged begins within this after these were sent again: a round trip
/// at most.
const RECOVERED_NS: i64 = 250_000_000;
/// Episodes whose times are first checked together.
const BLOCK: u64 = 16;

/// The episodes of one connection, in the order in which they were found.
#[derive(Debug, Default)]
pub struct Episodes {
    shared: Shared,
    /// Those from before the first call: what a call waited for whose connection was not open yet.
    opening: Vec<(u64, Episode)>,
    /// Most connections have none of a single stream.
    streams: Option<Box<Streams>>,
    /// Number of the next one.
    next: u64,
    /// When bytes of the client that were lost were last sent again.
    lost_until_ns: Option<i64>,
}

/// Those that held up the whole connection.
#[derive(Debug, Default)]
struct Shared {
    episodes: VecDeque<(u64, Episode)>,
    blocks: VecDeque<Block>,
    /// How many were forgotten: the place of the oldest one that is left.
    forgotten: u64,
}

/// Those that held up a single stream.
#[derive(Debug, Default)]
struct Streams {
    episodes: BTreeMap<(u32, u64), Episode>,
    /// Their numbers and streams, oldest first.
    order: VecDeque<(u64, u32)>,
}

/// What the episodes of [`BLOCK`] places span.
#[derive(Clone, Copy, Debug)]
struct Block {
    from_ns: i64,
    to_ns: i64,
    /// The furthest end in it and in all before it: from block to block it never falls.
    reach_ns: i64,
}

impl Shared {
    fn push(&mut self, number: u64, episode: Episode) {
        let place = self.forgotten + self.episodes.len() as u64;
        let reach_ns = self.blocks.back().map_or(i64::MIN, |last| last.reach_ns).max(episode.to_ns);
        let span = Block { from_ns: episode.from_ns, to_ns: episode.to_ns, reach_ns };
        match self.blocks.back_mut() {
            Some(last) if !place.is_multiple_of(BLOCK) => {
                last.from_ns = last.from_ns.min(span.from_ns);
                last.to_ns = last.to_ns.max(span.to_ns);
                last.reach_ns = reach_ns;
            }
            _ => self.blocks.push_back(span),
        }
        self.episodes.push_back((number, episode));
    }

    fn forget_oldest(&mut self) {
        if self.episodes.pop_front().is_none() {
            return;
        }
        self.forgotten += 1;
        if self.forgotten.is_multiple_of(BLOCK) || self.episodes.is_empty() {
            self.blocks.pop_front();
        }
    }

    /// Shows those of the blocks that overlap the time from `begin_ns` to `end_ns`.
    #[inline]
    fn around<'a>(&'a self, begin_ns: i64, end_ns: i64, mut each: impl FnMut(&'a (u64, Episode))) {
        // The oldest block may have lost its first places.
        let lost = (self.forgotten % BLOCK) as usize;
        // Calls ask for what came about last.
        let first = self.blocks.partition_point(|block| block.reach_ns < begin_ns);
        for (place, block) in self.blocks.range(first..).enumerate() {
            if block.from_ns > end_ns || block.to_ns < begin_ns {
                continue;
            }
            let place = first + place;
            let begin = (place * BLOCK as usize).saturating_sub(lost);
            let end = ((place + 1) * BLOCK as usize - lost).min(self.episodes.len());
            self.episodes.range(begin..end).for_each(&mut each);
        }
    }
}

impl Episodes {
    /// Remembers one; the oldest is forgotten for it when there are too many.
    pub fn push(&mut self, episode: Episode) {
        let number = self.next;
        self.next += 1;
        if is_loss(episode.cause) && episode.sender == Side::Client {
            self.lost_until_ns = self.lost_until_ns.max(Some(episode.to_ns));
        }
        if episode.cause.is_of_opening() {
            if self.opening.len() < MAX_OPENING {
                self.opening.push((number, episode));
            }
            return;
        }
        if self.len() >= MAX_EPISODES {
            self.forget_oldest();
        }
        match episode.stream_id {
            None => self.shared.push(number, episode),
            Some(stream) => {
                let streams = self.streams.get_or_insert_default();
                streams.order.push_back((number, stream));
                streams.episodes.insert((stream, number), episode);
            }
        }
    }

    fn len(&self) -> usize {
        self.shared.episodes.len() + self.streams.as_ref().map_or(0, |streams| streams.order.len())
    }

    fn forget_oldest(&mut self) {
        let shared = self.shared.episodes.front().map(|(number, _)| *number);
        if let Some(streams) = &mut self.streams
            && let Some((number, stream)) = streams.order.front().copied()
            && shared.is_none_or(|shared| number < shared)
        {
            streams.order.pop_front();
            streams.episodes.remove(&(stream, number));
            return;
        }
        self.shared.forget_oldest();
    }

    /// All of them, in no order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Episode> {
        let streams = self.streams.iter_mut().flat_map(|streams| streams.episodes.values_mut());
        let opening = self.opening.iter_mut().map(|(_, episode)| episode);
        self.shared.episodes.iter_mut().map(|(_, episode)| episode).chain(streams).chain(opening)
    }

    /// Those that held up bytes of an exchange, oldest first: they overlap it in time, and the bytes are at or before
    /// its last one in their direction.
    pub fn of(&self, exchange: &Exchange) -> Vec<Episode> {
        if self.next == 0 {
            return Vec::new();
        }
        let begin_ns = exchange.request.first.seen_ns;
        let end_ns = exchange
            .response
            .map(|response| response.last.ready_ns.max(exchange.request.last.ready_ns))
            .or(exchange.ending.map(|ending| ending.at_ns))
            .unwrap_or(i64::MAX);
        let back_ns = match self.lost_until_ns {
            Some(until_ns) if begin_ns - until_ns <= RECOVERED_NS => RECOVERED_NS,
            _ => GIVEN_ON_NS,
        };
        let concerns = |episode: &Episode| {
            let part = match episode.sender {
                Side::Client => Some(exchange.request),
                Side::Server => exchange.response,
            };
            // A connection, or a place for a stream, became free before it was used.
            let given_on = matches!(episode.cause, Cause::PoolWait | Cause::StreamLimit)
                && part.is_some_and(|part| part.start == episode.start);
            // What was lost had to be acknowledged first.
            let behind = is_loss(episode.cause)
                && episode.sender == Side::Client
                && episode.end <= exchange.request.start
                && (0..=RECOVERED_NS).contains(&(begin_ns - episode.to_ns));
            episode.from_ns <= end_ns
                && (episode.to_ns >= begin_ns && episode.cause != Cause::PoolWait || given_on || behind)
                && part.is_none_or(|part| episode.start < part.end)
        };
        // Most calls have none, or one.
        let (mut first, mut more) = (None, Vec::new());
        let mut add = |number: u64, episode| match first {
            None => first = Some((number, episode)),
            Some(_) => more.push((number, episode)),
        };
        self.shared.around(begin_ns - back_ns, end_ns, |(number, episode)| {
            if concerns(episode) {
                add(*number, episode);
            }
        });
        let http2 = matches!(exchange.protocol, Protocol::Grpc | Protocol::Http2);
        if let Some(streams) = self.streams.as_ref().filter(|_| http2) {
            let own = (exchange.stream_id, 0)..=(exchange.stream_id, u64::MAX);
            for ((_, number), episode) in streams.episodes.range(own) {
                if concerns(episode) {
                    add(*number, episode);
                }
            }
        }
        for (number, episode) in &self.opening {
            if episode.to_ns <= begin_ns && begin_ns.saturating_sub(episode.to_ns) <= SOON_NS {
                add(*number, episode);
            }
        }
        let Some(first) = first else { return Vec::new() };
        if more.is_empty() {
            return vec![first.1.clone()];
        }
        more.push(first);
        more.sort_unstable_by_key(|(number, episode)| (episode.from_ns, *number));
        more.into_iter().map(|(_, episode)| episode.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::{Copies, PacketProofs};
    use crate::exchange::{Mark, Part};
    use proptest::prelude::*;
    use spangap_model::Cause;
    use spangap_model::evidence::Certainty;

    fn episode((from_ns, took_ns): (i64, i64), stream: Option<u32>, sender: Side, start: u64) -> Episode {
        Episode {
            cause: Cause::Rto,
            certainty: Certainty::Shown,
            side: None,
            sender,
            from_ns,
            to_ns: from_ns + took_ns,
            start,
            end: start + 1,
            stream_id: stream,
            copies: Copies::One,
            evidence: PacketProofs::default(),
        }
    }

    fn exchange(from_ns: i64, took_ns: i64, stream_id: u32, protocol: Protocol, end: u64) -> Exchange {
        let at = |ns| Mark { seen_ns: ns, ready_ns: ns, ..Mark::default() };
        let part = Part { first: at(from_ns), last: at(from_ns + took_ns), end, ..Part::default() };
        Exchange { stream_id, protocol, request: part, response: Some(part), ..Exchange::default() }
    }

    /// The definition, one after the other.
    fn plainly(all: &[Episode], exchange: &Exchange) -> Vec<Episode> {
        let streams = matches!(exchange.protocol, Protocol::Grpc | Protocol::Http2);
        let (begin, end) = (exchange.request.first.seen_ns, exchange.request.last.ready_ns);
        let latest = &all[all.len().saturating_sub(MAX_EPISODES)..];
        let mut found: Vec<Episode> = latest
            .iter()
            .filter(|held| held.from_ns <= end && held.to_ns >= begin && held.start < exchange.request.end)
            .filter(|held| held.stream_id.is_none_or(|id| streams && id == exchange.stream_id))
            .cloned()
            .collect();
        found.sort_by_key(|held| held.from_ns);
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn they_are_those_that_looking_at_all_gives(
            told in prop::collection::vec((0i64..3000, 0i64..400, prop::option::of(1u32..6), any::<bool>()), 0..2500),
            asked in prop::collection::vec((0i64..3000, 0i64..500, 1u32..6, any::<bool>(), 0u64..1500), 1..20),
        ) {
            let mut kept = Episodes::default();
            let mut all = Vec::new();
            for (start, (from_ns, took_ns, stream, client)) in (0..).zip(told) {
                let sender = if client { Side::Client } else { Side::Server };
                let one = episode((from_ns, took_ns), stream, sender, start);
                all.push(one.clone());
                kept.push(one);
            }
            for (from_ns, took_ns, stream, http2, end) in asked {
                let protocol = if http2 { Protocol::Http2 } else { Protocol::Turns };
                let exchange = exchange(from_ns, took_ns, stream, protocol, end);
                prop_assert_eq!(kept.of(&exchange), plainly(&all, &exchange));
            }
        }
    }

    #[test]
    fn what_became_free_before_a_call_is_of_the_call_that_took_it() {
        let mut kept = Episodes::default();
        for (cause, stream) in
            [(Cause::StreamLimit, Some(7)), (Cause::PoolWait, None), (Cause::FlowControl, Some(7))]
        {
            kept.push(Episode { cause, ..episode((1_000, 500), stream, Side::Client, 40) });
        }
        let of = |begin: i64, stream: u32, start: u64| {
            let mut exchange = exchange(begin, 100, stream, Protocol::Grpc, start + 9);
            exchange.request.start = start;
            kept.of(&exchange).iter().map(|episode| episode.cause).collect::<Vec<_>>()
        };
        assert_eq!(of(30_000, 7, 40), [Cause::StreamLimit, Cause::PoolWait]);
        assert_eq!(of(30_000, 7, 60), [], "another call of the stream's number");
        assert_eq!(of(30_000, 9, 40), [Cause::PoolWait]);
    }

    #[test]
    fn a_call_still_has_its_episode_when_all_that_may_settle_and_those_in_flight_have_theirs() {
        let mut kept = Episodes::default();
        for n in 0..1_024 + 200 {
            kept.push(episode((n, 10), Some(1 + n as u32), Side::Client, 0));
        }
        assert_eq!(kept.of(&exchange(5, 10, 1, Protocol::Grpc, 9)).len(), 1);
    }

    #[test]
    fn a_short_call_looks_at_few_of_many() {
        let mut kept = Episodes::default();
        for n in 0..5_000 {
            kept.push(episode((n * 100, 90), None, Side::Client, 0));
        }
        let mut around = 0;
        kept.shared.around(450_000, 450_200, |_| around += 1);
        assert!((3..=3 * BLOCK as usize).contains(&around), "{around} of {}", kept.len());
        assert_eq!(kept.of(&exchange(450_000, 200, 1, Protocol::Grpc, 9)).len(), 3);
        assert_eq!(
            (kept.len(), kept.shared.blocks.len() as u64),
            (MAX_EPISODES, MAX_EPISODES as u64 / BLOCK + 1)
        );
    }
}

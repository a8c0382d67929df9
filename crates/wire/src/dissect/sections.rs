//! Finds out which of several captures share connections, before three or more of them are dissected.
//!
//! A connection is the same in two captures if its addresses are or, behind an address translation, if a data
//! segment has the same sequence and acknowledgement numbers in both: 64 bits that the two ends chose at random.

use crate::decode::Decoder;
use crate::packet::Packet;
use crate::segment::{Endpoint, Flags, Segment};
use crate::source::Capture;
use rustc_hash::{FxHashMap, FxHashSet};
use spangap_model::Side;

/// Maximum connections examined per capture; those beyond are assumed to be in that capture only.
const MAX_CONNECTIONS: usize = 1 << 18;
/// Segments remembered per connection, by their numbers: those with the lowest hashes, which are the same in
/// every capture.
const SKETCH: usize = 8;

/// A connection by its addresses, in either direction.
type Key = (u32, Endpoint, Endpoint);

/// Captures that are dissected together: two with connections in common, or a single one.
#[derive(Debug, PartialEq)]
pub(super) struct Section {
    /// The captures by their given position, with the connections to read of each.
    pub parts: Vec<(usize, Option<Choice>)>,
}

/// Selects the connections of a capture that belong to a section.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Choice {
    listed: FxHashSet<Key>,
    /// Whether the listed connections belong to it, or all others.
    only: bool,
}

impl Choice {
    /// Whether a segment's connection belongs to it.
    pub fn takes(&self, segment: &Segment<'_>) -> bool {
        self.listed.contains(&key(segment)) == self.only
    }

    /// Whether packets without a connection belong to it.
    pub fn has_the_rest(&self) -> bool {
        !self.only
    }
}

/// How the captures belong together.
#[derive(Debug, Default)]
pub(super) struct Sections {
    /// Every capture is in at least one of them.
    pub all: Vec<Section>,
    /// Connections in three captures or more, of which the two at the ends count.
    pub between: u64,
}

/// Facts of a connection from one capture.
#[derive(Debug, Default)]
struct ConnectionSketch {
    sketch: Vec<u64>,
    syn_ns: Option<i64>,
    syn_ack_ns: Option<i64>,
    server: Option<Endpoint>,
}

/// Connections of one capture.
#[derive(Default)]
struct Survey {
    connections: FxHashMap<Key, ConnectionSketch>,
    decoder: Decoder,
}

fn key(segment: &Segment<'_>) -> Key {
    let (a, b) = (segment.source, segment.destination);
    (segment.network, a.min(b), a.max(b))
}

impl Survey {
    fn packet(&mut self, packet: &Packet<'_>) {
        let Ok(segment) = self.decoder.decode(packet) else { return };
        let (key, full) = (key(&segment), self.connections.len() >= MAX_CONNECTIONS);
        if full && !self.connections.contains_key(&key) {
            return;
        }
        let seen = self.connections.entry(key).or_default();
        let (syn, ack) = (segment.flags.has(Flags::SYN), segment.flags.has(Flags::ACK));
        match (syn, ack) {
            (true, false) => {
                seen.syn_ns.get_or_insert(segment.time_ns);
                seen.server = Some(segment.destination);
            }
            (true, true) => {
                seen.syn_ack_ns.get_or_insert(segment.time_ns);
                seen.server = Some(segment.source);
            }
            _ => {}
        }
        if ack && (syn || segment.payload_len > 0) {
            seen.note(u64::from(segment.seq) << 32 | u64::from(segment.ack));
        }
    }
}

impl ConnectionSketch {
    fn note(&mut self, numbers: u64) {
        // A bijection, so that equal hashes mean equal numbers.
        let hash = numbers.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        let place = self.sketch.partition_point(|known| *known < hash);
        if place < SKETCH && self.sketch.get(place) != Some(&hash) {
            self.sketch.insert(place, hash);
            self.sketch.truncate(SKETCH);
        }
    }

    /// Time from the SYN to its answer: the nearer to the client, the longer.
    fn answered_ns(&self) -> Option<i64> {
        Some(self.syn_ack_ns? - self.syn_ns?)
    }
}

/// Reads every capture to its end, and groups them. `captures` are read only for this.
pub(super) fn find(
    captures: Vec<Capture>,
    ends: &[Option<Side>],
    stop: &mut dyn FnMut() -> bool,
) -> Sections {
    let mut surveys = Vec::with_capacity(captures.len());
    for mut capture in captures {
        let mut survey = Survey::default();
        let mut packets = 0_u64;
        while let Some(packet) = capture.next() {
            survey.packet(&packet);
            packets += 1;
            if packets.is_multiple_of(1 << 16) && stop() {
                break;
            }
        }
        surveys.push(survey.connections);
    }
    sections(&surveys, ends)
}

/// A connection with the captures that have it, and its key in each.
type Places = Vec<(usize, Key)>;

fn sections(surveys: &[FxHashMap<Key, ConnectionSketch>], ends: &[Option<Side>]) -> Sections {
    let shared = shared(surveys);
    let mut found = Sections::default();
    // For connections in three or more captures, all to one server have the same two ends.
    let mut waits: FxHashMap<(Vec<usize>, Option<Endpoint>), Vec<i64>> = FxHashMap::default();
    let group = |places: &Places| {
        let of: Vec<usize> = places.iter().map(|(capture, _)| *capture).collect();
        let seen = places.iter().map(|(capture, key)| &surveys[*capture][key]);
        let server = seen.clone().find_map(|seen| seen.server);
        (of, server.map(|server| Endpoint { port: 0, ..server }))
    };
    for places in shared.iter().filter(|places| places.len() > 2) {
        found.between += 1;
        let (captures, server) = group(places);
        let sums = waits.entry((captures, server)).or_insert_with(|| vec![0; places.len()]);
        let answered: Option<Vec<i64>> =
            places.iter().map(|(capture, key)| surveys[*capture][key].answered_ns()).collect();
        for (sum, answered) in sums.iter_mut().zip(answered.unwrap_or_default()) {
            *sum += answered;
        }
    }
    // By capture: each shared connection, and the pair of captures that it is read from.
    let mut chosen: Vec<FxHashMap<Key, [usize; 2]>> = vec![FxHashMap::default(); surveys.len()];
    let mut sets: Vec<Vec<usize>> = Vec::new();
    for places in &shared {
        let pair = match places[..] {
            [(first, _), (second, _)] => [first, second],
            _ => outermost(&group(places).0, &waits[&group(places)], ends),
        };
        if !sets.contains(&pair.to_vec()) {
            sets.push(pair.to_vec());
        }
        for (capture, key) in places {
            chosen[*capture].insert(*key, pair);
        }
    }
    let alone = (0..surveys.len()).filter(|capture| !sets.iter().any(|set| set.contains(capture)));
    let alone: Vec<Vec<usize>> = alone.map(|capture| vec![capture]).collect();
    sets.extend(alone);
    sets.sort_unstable();
    for (place, set) in sets.iter().enumerate() {
        let part = |capture: usize| {
            // The first section of a capture also takes the connections that no other capture has.
            let first = sets.iter().position(|set| set.contains(&capture)) == Some(place);
            let belongs = |pair: &[usize; 2]| pair[..] == set[..];
            let listed =
                chosen[capture].iter().filter(|(_, pair)| belongs(pair) != first).map(|(key, _)| *key);
            let choice = Choice { only: !first, listed: listed.collect() };
            (capture, Some(choice).filter(|choice| choice.only || !choice.listed.is_empty()))
        };
        found.all.push(Section { parts: set.iter().map(|capture| part(*capture)).collect() });
    }
    found
}

/// Connections that at least two captures have.
fn shared(surveys: &[FxHashMap<Key, ConnectionSketch>]) -> Vec<Places> {
    let mut by_key: FxHashMap<Key, Places> = FxHashMap::default();
    for (capture, connections) in surveys.iter().enumerate() {
        for key in connections.keys() {
            by_key.entry(*key).or_default().push((capture, *key));
        }
    }
    let mut groups: Vec<Places> = by_key.into_values().collect();
    // Makes the order independent of the hasher.
    groups.sort_unstable();
    let mut by_segment: FxHashMap<u64, usize> = FxHashMap::default();
    for place in 0..groups.len() {
        let sketches: Vec<u64> = groups[place]
            .iter()
            .flat_map(|(capture, key)| surveys[*capture][key].sketch.iter().copied())
            .collect();
        let apart =
            |a: &Places, b: &Places| !a.iter().any(|(capture, _)| b.iter().any(|(of, _)| of == capture));
        let same = sketches
            .iter()
            .filter_map(|hash| by_segment.get(hash).copied())
            .find(|other| *other != place && apart(&groups[*other], &groups[place]));
        let into = same.unwrap_or(place);
        if into != place {
            let moved = std::mem::take(&mut groups[place]);
            groups[into].extend(moved);
            groups[into].sort_unstable();
        }
        for hash in sketches {
            by_segment.entry(hash).or_insert(into);
        }
    }
    groups.retain(|places| places.len() > 1);
    groups
}

/// The two captures at the ends of a connection: those with such names, else those with the longest and the
/// shortest wait for the answer to the SYN, else the first and the last one given.
fn outermost(captures: &[usize], waits: &[i64], ends: &[Option<Side>]) -> [usize; 2] {
    let named = |end: Side| captures.iter().copied().find(|capture| ends.get(*capture) == Some(&Some(end)));
    let waits = || captures.iter().copied().zip(waits.iter().copied());
    let told = waits().any(|(_, wait)| wait != 0);
    let (first, last) = (captures[0], captures[captures.len() - 1]);
    let by_wait = |far: i64| waits().find(|(_, wait)| *wait == far).map(|(capture, _)| capture);
    let longest = waits().map(|(_, wait)| wait).max().filter(|_| told).and_then(by_wait).unwrap_or(first);
    let client = named(Side::Client).unwrap_or(longest);
    let least = waits().filter(|(capture, _)| *capture != client).map(|(_, wait)| wait).min();
    let shortest = waits().find(|(capture, wait)| *capture != client && Some(*wait) == least);
    let shortest = shortest.filter(|_| told).map(|(capture, _)| capture);
    let fallback = if last == client { first } else { last };
    let server = named(Side::Server).filter(|server| *server != client).or(shortest).unwrap_or(fallback);
    [client.min(server), client.max(server)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(client: u8, server: u8, numbers: u64, waited_ns: i64) -> (Key, ConnectionSketch) {
        let (from, to) = (Endpoint::v4([10, 0, 0, client], 40_000), Endpoint::v4([10, 0, 0, server], 80));
        let mut seen = ConnectionSketch {
            syn_ns: Some(0),
            syn_ack_ns: Some(waited_ns),
            server: Some(to),
            ..ConnectionSketch::default()
        };
        seen.note(numbers);
        ((0, from.min(to), from.max(to)), seen)
    }

    fn captures(section: &Section) -> Vec<usize> {
        section.parts.iter().map(|part| part.0).collect()
    }

    #[test]
    fn a_proxy_between_and_its_capture_of_both_sides() {
        let client: FxHashMap<_, _> = [connection(1, 2, 7, 90)].into_iter().collect();
        let proxy: FxHashMap<_, _> =
            [connection(1, 2, 7, 10), connection(2, 3, 8, 90), connection(2, 9, 5, 1)].into_iter().collect();
        let server: FxHashMap<_, _> = [connection(2, 3, 8, 10)].into_iter().collect();
        let found = sections(&[server, proxy, client], &[None; 3]);
        assert_eq!(found.all.iter().map(captures).collect::<Vec<_>>(), [vec![0, 1], vec![1, 2]]);
        let choices: Vec<_> = found.all.iter().map(|section| &section.parts).collect();
        assert_eq!((&choices[0][0].1, &choices[1][1].1), (&None, &None));
        let (inner, outer) = (choices[0][1].1.as_ref().expect("one"), choices[1][0].1.as_ref().expect("one"));
        // Connections that only the proxy has go to its first section.
        assert!(!inner.only && inner.listed.len() == 1 && outer.only && outer.listed == inner.listed);
    }

    #[test]
    fn a_translated_connection_is_one_and_unrelated_captures_are_separate() {
        let outside: FxHashMap<_, _> = [connection(1, 2, 7, 90)].into_iter().collect();
        let inside: FxHashMap<_, _> = [connection(8, 9, 7, 10)].into_iter().collect();
        let stranger: FxHashMap<_, _> = [connection(5, 6, 99, 10)].into_iter().collect();
        let found = sections(&[outside, stranger, inside], &[None; 3]);
        assert_eq!(found.all.iter().map(captures).collect::<Vec<_>>(), [vec![0, 2], vec![1]]);
    }

    #[test]
    fn the_outer_two_of_three_taps_count() {
        let at = |waited| -> FxHashMap<_, _> { [connection(1, 2, 7, waited)].into_iter().collect() };
        let found = sections(&[at(50), at(10), at(90)], &[None; 3]);
        assert_eq!(
            (found.all.iter().map(captures).collect::<Vec<_>>(), found.between),
            (vec![vec![0], vec![1, 2]], 1)
        );
        // The capture taken in between has no part of it.
        assert_eq!(
            found.all[0].parts[0].1.as_ref().map(|choice| (choice.only, choice.listed.len())),
            Some((false, 1))
        );
        let ends = [Some(Side::Client), None, Some(Side::Server)];
        let found = sections(&[at(50), at(10), at(90)], &ends);
        assert!(found.all.iter().any(|section| captures(section) == [0, 2]));
    }
}

//! Names that a client looked up before it opened a connection: DNS over UDP (RFC 1035), from the same capture.
//!
//! A look-up ends with the last answer for its name, because a resolver asks for IPv4 and IPv6 addresses at once
//! and waits for both. Names that it tries in sequence (the suffixes of its search list) form one look-up. A
//! connection opened to one of the addresses right afterwards waited for the look-up; a cached answer leaves no
//! packet and takes no time.
//!
//! A name server that never answers leaves only queries, and the name is found elsewhere or not at all. Resolvers
//! time out after whole seconds. If a host opens a connection at such a time after most of its unanswered
//! queries, the connections waited for these queries. A single match is chance: any query may go unanswered next
//! to an unrelated connection.

use crate::causes::nanos;
use crate::decode::Datagram;
use crate::episode::{Copies, Episode, PacketProof, PacketProofs, What};
use rustc_hash::FxHasher;
use spangap_model::evidence::Certainty;
use spangap_model::{Cause, Side};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

/// UDP port of name servers.
pub const PORT: u16 = 53;
/// Maximum look-ups remembered; the latest stay.
const MOST: usize = 4096;
/// Number of recent look-ups that a packet is compared with.
const LOOKED_AT: usize = 256;
/// Maximum addresses per look-up.
const MOST_ADDRESSES: usize = 16;
/// A connection opened later than this is unrelated to the look-up.
const SOON_NS: i64 = 1_000_000_000;
/// Maximum time until the query for the next name of a search list.
const NEXT_NAME_NS: i64 = 50_000_000;
/// An unanswered query expires after this time.
const GIVEN_UP_NS: i64 = 60_000_000_000;

/// Unit of resolver timeouts (resolv.conf(5), `timeout`).
const TIMEOUT_UNIT_NS: i64 = 1_000_000_000;
/// Maximum time from a query's timeout to the connection.
const AFTER_GIVING_UP_NS: i64 = 60_000_000;
/// Matches that rule out chance: one in 17 unrelated moments fits.
const LEAST_GIVEN_UP: u64 = 3;

const ADDRESS: u16 = 1;
const ADDRESS_V6: u16 = 28;

/// A name, or several in sequence, that one host looked up.
#[derive(Clone, Debug)]
struct LookUp {
    client: [u8; 16],
    /// Hashes of the current name, and of its first label.
    name: u64,
    label: u64,
    asked: (i64, u64),
    answered: Option<(i64, u64)>,
    /// Queried address types that have no answer yet.
    open: Vec<u16>,
    queries: u64,
    addresses: Vec<[u8; 16]>,
}

/// Query of one socket until its answer: the socket distinguishes simultaneous look-ups of one name.
#[derive(Clone, Debug)]
struct PendingLookup {
    client: [u8; 16],
    port: u16,
    first: (i64, u64),
    queries: u64,
    answered: bool,
    /// Set once a connection that may have waited for this was opened: whether that was whole seconds later.
    opened: Option<bool>,
}

/// All look-ups of a capture.
#[derive(Debug, Default)]
pub struct LookUps {
    all: VecDeque<LookUp>,
    asked: VecDeque<PendingLookup>,
}

impl LookUps {
    /// Records a datagram to or from a name server.
    pub fn datagram(&mut self, datagram: &Datagram<'_>) {
        let Some(message) = Message::read(datagram.payload) else { return };
        let at = (datagram.time_ns, datagram.packet);
        let Message { answer, kind, name, label, addresses } = message;
        let asker = if answer { datagram.destination } else { datagram.source };
        let client = asker.address;
        self.of_socket(client, asker.port, at, answer);
        let known = self.all.iter_mut().rev().take(LOOKED_AT).find(|one| {
            let next = || one.answered.is_some_and(|(answered, _)| at.0 - answered <= NEXT_NAME_NS);
            let same = one.name == name && (!one.open.is_empty() || answer || next())
                || !answer && one.label == label && one.addresses.is_empty() && next();
            one.client == client && same && at.0 - one.asked.0 <= GIVEN_UP_NS
        });
        match (known, answer) {
            (Some(known), true) => {
                known.answered = Some(at);
                known.open.retain(|open| *open != kind);
                let room = MOST_ADDRESSES.saturating_sub(known.addresses.len());
                known.addresses.extend(addresses.into_iter().take(room));
            }
            (Some(known), false) => {
                known.queries += 1;
                if known.name != name {
                    (known.name, known.open) = (name, Vec::new());
                }
                if !known.open.contains(&kind) && known.open.len() < MOST_ADDRESSES {
                    known.open.push(kind);
                }
            }
            (None, true) => {}
            (None, false) => {
                if self.all.len() >= MOST {
                    self.all.pop_front();
                }
                let (answered, addresses, open) = (None, Vec::new(), vec![kind]);
                self.all.push_back(LookUp {
                    client,
                    name,
                    label,
                    asked: at,
                    answered,
                    open,
                    queries: 1,
                    addresses,
                });
            }
        }
    }

    /// The look-up that delayed a connection from `client` to `server`, opened at `at`; the connection's first
    /// byte will have the stream offset `start`.
    pub fn before(
        &mut self,
        client: [u8; 16],
        server: [u8; 16],
        at: (i64, u64),
        start: u64,
    ) -> Option<Episode> {
        self.answered(client, server, at.0, start).or_else(|| self.unanswered(client, at, start))
    }

    /// A look-up whose answer contains the server's address.
    fn answered(&self, client: [u8; 16], server: [u8; 16], at_ns: i64, start: u64) -> Option<Episode> {
        let (answered, look_up) = self.all.iter().rev().take(LOOKED_AT).find_map(|one| {
            let answered =
                one.answered.filter(|(answered, _)| (0..=SOON_NS).contains(&(at_ns - answered)))?;
            (one.client == client && one.addresses.contains(&server)).then_some((answered, one))
        })?;
        let took_us = nanos(look_up.asked.0, answered.0) / 1000;
        let what = What::with("the answer arrives after {us} and {} queries", took_us, look_up.queries);
        Some(episode(look_up.asked, answered, what, start))
    }

    /// A look-up that nobody answered and that timed out just before, if this host shows the pattern repeatedly.
    fn unanswered(&mut self, client: [u8; 16], at: (i64, u64), start: u64) -> Option<Episode> {
        let waited = |one: &PendingLookup| at.0 - one.first.0;
        let is_open = |one: &&mut PendingLookup| {
            one.client == client && !one.answered && waited(one) >= TIMEOUT_UNIT_NS
        };
        // Only the latest: among many, one would fit by chance.
        let latest =
            self.asked.iter_mut().rev().take(LOOKED_AT).filter(is_open).find(|one| one.opened.is_none())?;
        let fits = waited(latest) <= GIVEN_UP_NS && waited(latest) % TIMEOUT_UNIT_NS <= AFTER_GIVING_UP_NS;
        latest.opened = Some(fits);
        let (first, queries) = (latest.first, latest.queries);
        let (mut fit, mut all) = (0, 0);
        for one in self.asked.iter_mut().rev().take(LOOKED_AT).filter(is_open) {
            fit += u64::from(one.opened == Some(true));
            all += 1;
        }
        if !fits || fit < LEAST_GIVEN_UP || 2 * fit <= all {
            return None;
        }
        let took_us = nanos(first.0, at.0) / 1000;
        let what =
            What::with("the client goes on without an answer after {us} and {} queries", took_us, queries);
        Some(episode(first, at, what, start))
    }

    /// Records a query or an answer of a socket.
    fn of_socket(&mut self, client: [u8; 16], port: u16, at: (i64, u64), answer: bool) {
        let known = self.asked.iter_mut().rev().take(LOOKED_AT).find(|one| {
            (one.client, one.port) == (client, port)
                && one.opened.is_none()
                && at.0 - one.first.0 <= GIVEN_UP_NS
        });
        match (known, answer) {
            (Some(known), true) => known.answered = true,
            (Some(known), false) if !known.answered => known.queries += 1,
            (None, true) => {}
            (_, false) => {
                if self.asked.len() >= MOST {
                    self.asked.pop_front();
                }
                let (answered, opened) = (false, None);
                self.asked.push_back(PendingLookup { client, port, first: at, queries: 1, answered, opened });
            }
        }
    }
}

/// A connection waited for a look-up.
fn episode(asked: (i64, u64), until: (i64, u64), what: What, start: u64) -> Episode {
    let shown = |(time_ns, packet), what| PacketProof { packet, time_ns, what };
    Episode {
        cause: Cause::Dns,
        certainty: Certainty::Shown,
        side: Some(Side::Client),
        sender: Side::Client,
        from_ns: asked.0,
        to_ns: until.0,
        start,
        end: start,
        stream_id: None,
        copies: Copies::One,
        evidence: PacketProofs::of(&[
            shown(asked, What::text("the client asks a name server for the server's address")),
            shown(until, what),
        ]),
    }
}

/// The relevant fields of a DNS message.
struct Message {
    answer: bool,
    /// The question's type.
    kind: u16,
    name: u64,
    label: u64,
    addresses: Vec<[u8; 16]>,
}

impl Message {
    /// Parses a query or an answer with one question; `None` for anything else.
    fn read(bytes: &[u8]) -> Option<Message> {
        let header: &[u8; 12] = bytes.first_chunk()?;
        let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        // A standard query, or its answer.
        if number(2) & 0x7800 != 0 || number(4) != 1 {
            return None;
        }
        let (mut at, mut whole, mut label) = (12, FxHasher::default(), None);
        loop {
            let length = usize::from(*bytes.get(at)?);
            if length >= 64 {
                return None;
            }
            let part = bytes.get(at + 1..at + 1 + length)?.to_ascii_lowercase();
            part.hash(&mut whole);
            at += 1 + length;
            if length == 0 {
                break;
            }
            label.get_or_insert_with(|| {
                let mut first = FxHasher::default();
                part.hash(&mut first);
                first.finish()
            });
        }
        let [kind @ .., _, _]: [u8; 4] = *bytes.get(at..)?.first_chunk()?;
        at += 4;
        let answer = number(2) & 0x8000 != 0;
        let mut addresses = Vec::new();
        for _ in 0..if answer { number(6) } else { 0 } {
            let Some((next, address)) = record(bytes, at) else { break };
            at = next;
            addresses.extend(address);
        }
        Some(Message {
            answer,
            kind: u16::from_be_bytes(kind),
            name: whole.finish(),
            label: label?,
            addresses,
        })
    }
}

/// Start of the next record, and the address in this one, if it has one.
fn record(bytes: &[u8], mut at: usize) -> Option<(usize, Option<[u8; 16]>)> {
    loop {
        match *bytes.get(at)? {
            0 => break at += 1,
            // A pointer to an earlier name.
            192.. => break at += 2,
            length => at += 1 + usize::from(length),
        }
    }
    let head: &[u8; 10] = bytes.get(at..)?.first_chunk()?;
    let (kind, length) =
        (u16::from_be_bytes([head[0], head[1]]), usize::from(u16::from_be_bytes([head[8], head[9]])));
    let data = bytes.get(at + 10..at + 10 + length)?;
    let address = match (kind, data) {
        (ADDRESS, [a, b, c, d]) => Some([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, *a, *b, *c, *d]),
        (ADDRESS_V6, data) => data.try_into().ok(),
        _ => None,
    };
    Some((at + 10 + length, address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Endpoint;

    const CLIENT: [u8; 4] = [10, 0, 0, 1];
    const SERVER: [u8; 4] = [10, 0, 0, 9];

    fn message(name: &str, kind: u16, answer: Option<&[[u8; 4]]>) -> Vec<u8> {
        let count = answer.map_or(0, <[_]>::len) as u8;
        let mut bytes = vec![1, 2, if answer.is_some() { 0x81 } else { 1 }, 0, 0, 1, 0, count, 0, 0, 0, 0];
        for label in name.split('.') {
            bytes.push(label.len() as u8);
            bytes.extend_from_slice(label.as_bytes());
        }
        bytes.extend_from_slice(&[0, 0, kind as u8, 0, 1]);
        for address in answer.into_iter().flatten() {
            bytes.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
            bytes.extend_from_slice(address);
        }
        bytes
    }

    fn tell(names: &mut LookUps, at_ms: i64, payload: &[u8]) {
        tell_of(names, 40_000, at_ms, payload);
    }

    fn tell_of(names: &mut LookUps, port: u16, at_ms: i64, payload: &[u8]) {
        let (client, server) = (Endpoint::v4(CLIENT, port), Endpoint::v4([10, 0, 0, 53], PORT));
        let answer = payload[2] & 0x80 != 0;
        let (source, destination) = if answer { (server, client) } else { (client, server) };
        names.datagram(&Datagram { packet: 1, time_ns: at_ms * 1_000_000, source, destination, payload });
    }

    fn waited(names: &mut LookUps, at_ms: i64, server: [u8; 4]) -> Option<(i64, i64)> {
        let address = |of| Endpoint::v4(of, 1).address;
        let found = names.before(address(CLIENT), address(server), (at_ms * 1_000_000, 9), 7)?;
        Some((found.from_ns / 1_000_000, found.to_ns / 1_000_000))
    }

    #[test]
    fn a_connection_waits_for_both_answers_and_for_the_repeated_query() {
        let mut names = LookUps::default();
        tell(&mut names, 10, &message("db.local", 1, None));
        tell(&mut names, 10, &message("db.local", 28, None));
        tell(&mut names, 12, &message("DB.local", 1, Some(&[SERVER])));
        tell(&mut names, 5010, &message("db.local", 28, None));
        tell(&mut names, 5013, &message("db.local", 28, Some(&[])));
        assert_eq!(waited(&mut names, 5014, SERVER), Some((10, 5013)));
        assert_eq!(waited(&mut names, 5014, [10, 0, 0, 8]), None, "opened to another host");
        assert_eq!(waited(&mut names, 7000, SERVER), None, "opened long after");
        assert_eq!(waited(&mut names, 9, SERVER), None, "opened before");
    }

    #[test]
    fn a_search_list_is_one_look_up_and_another_name_is_another() {
        let mut names = LookUps::default();
        for (at_ms, name) in [(10, "db.ns.cluster"), (20, "db.cluster"), (30, "db")] {
            tell(&mut names, at_ms, &message(name, 1, None));
            let found: &[[u8; 4]] = if name == "db" { &[SERVER] } else { &[] };
            tell(&mut names, at_ms + 9, &message(name, 1, Some(found)));
        }
        assert_eq!(waited(&mut names, 40, SERVER), Some((10, 39)));
        tell(&mut names, 41, &message("web", 1, None));
        tell(&mut names, 45, &message("web", 1, Some(&[SERVER])));
        assert_eq!(waited(&mut names, 46, SERVER), Some((41, 45)));
    }

    #[test]
    fn a_silent_server_is_recognised_by_repeated_whole_second_timeouts() {
        // Queries for both address types, and a connection this long after them.
        let of = |after_ms: &[i64]| -> Vec<Option<(i64, i64)>> {
            let mut names = LookUps::default();
            let one = |(n, after): (usize, &i64)| {
                let at_ms = 10_000 * n as i64;
                tell(&mut names, at_ms, &message("db", 1, None));
                tell(&mut names, at_ms, &message("db", 28, None));
                waited(&mut names, at_ms + after, SERVER).map(|(from, to)| (from - at_ms, to - at_ms))
            };
            after_ms.iter().enumerate().map(one).collect()
        };
        // Two matches may be chance.
        let waits = |ms: i64| Some((0, ms));
        assert_eq!(of(&[1_001, 1_002, 1_003, 5_005]), [None, None, waits(1_003), waits(5_005)]);
        // Connections at arbitrary times are unrelated, even though some of them fit.
        let any: Vec<i64> = (0..40).map(|n| 1_000 + n * 97).collect();
        assert_eq!(of(&any), vec![None; 40]);
        assert_eq!(of(&[900; 20]), vec![None; 20], "too soon for a timeout");
    }

    #[test]
    fn an_unanswered_query_delays_only_one_connection() {
        let mut names = LookUps::default();
        let mut held = 0;
        for n in 0..10 {
            tell(&mut names, n * 10_000, &message("db", 1, None));
            let opened =
                [1_001, 1_010, 2_001, 3_001].map(|after| waited(&mut names, n * 10_000 + after, SERVER));
            held += opened.iter().flatten().count();
        }
        assert_eq!(held, 8);
    }

    #[test]
    fn sockets_distinguish_simultaneous_look_ups_of_one_name() {
        let mut names = LookUps::default();
        let (mut held, mut opened) = (Vec::new(), 0);
        // A query every 30 ms, each with a timeout of one second.
        for n in 0..100 {
            tell_of(&mut names, 40_000 + n as u16, n * 30, &message("db", 1, None));
            while opened * 30 + 1_002 <= n * 30 {
                held.extend(waited(&mut names, opened * 30 + 1_002, SERVER));
                opened += 1;
            }
        }
        assert!(held.len() > 50, "{held:?}");
        assert!(held.iter().all(|(from, to)| to - from == 1_002), "{held:?}");
    }

    #[test]
    fn unanswered_queries_and_a_few_connections_are_unrelated() {
        let mut names = LookUps::default();
        for n in 0..400 {
            tell_of(&mut names, 40_000 + n as u16, n * 30, &message("db", 1, None));
            if n % 40 == 39 {
                assert_eq!(waited(&mut names, n * 30 + 7, SERVER), None, "{n}");
            }
        }
    }

    #[test]
    fn invalid_messages_are_skipped() {
        let whole = message("db.local", 1, Some(&[SERVER]));
        for length in 0..whole.len() {
            let _ = Message::read(&whole[..length]);
        }
        assert!(Message::read(&[0xff; 64]).is_none());
    }
}

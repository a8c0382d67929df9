//! Names that a client looked up before it opened a connection: DNS over UDP (RFC 1035), as the same capture has it.
//!
//! A look-up ends with the last answer for its name: a resolver asks for IPv4 and IPv6 addresses at once and waits for
//! both. Names that it tries one after the other (the suffixes of its search list) are one look-up. A connection opened to
//! one of the addresses right after it waited for it; an answer from a cache leaves no packet and takes no time.

use crate::decode::Datagram;
use crate::episode::{Copies, Episode, PacketProof, PacketProofs, What};
use rustc_hash::FxHasher;
use spangap_model::evidence::Certainty;
use spangap_model::{Cause, Side};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

/// UDP port of name servers.
pub const PORT: u16 = 53;
/// Look-ups remembered, the latest.
const MOST: usize = 4096;
/// Look-ups that one packet is compared with, the latest.
const LOOKED_AT: usize = 256;
/// Addresses of one look-up.
const MOST_ADDRESSES: usize = 16;
/// A connection opened later is not opened because of it.
const SOON_NS: i64 = 1_000_000_000;
/// The next name of a search list is asked for so soon.
const NEXT_NAME_NS: i64 = 50_000_000;
/// A query without an answer is given up after that.
const GIVEN_UP_NS: i64 = 60_000_000_000;

const ADDRESS: u16 = 1;
const ADDRESS_V6: u16 = 28;

/// A name, or a few one after the other, looked up by one host.
#[derive(Clone, Debug)]
struct LookUp {
    client: [u8; 16],
    /// Hashes of the name asked for at present, and of its first label.
    name: u64,
    label: u64,
    asked: (i64, u64),
    answered: Option<(i64, u64)>,
    /// Types of addresses asked for without an answer yet.
    open: Vec<u16>,
    queries: u64,
    addresses: Vec<[u8; 16]>,
}

/// The look-ups of a capture.
#[derive(Debug, Default)]
pub struct LookUps {
    all: VecDeque<LookUp>,
}

impl LookUps {
    /// Takes in a datagram from or to a name server.
    pub fn datagram(&mut self, datagram: &Datagram<'_>) {
        let Some(message) = Message::read(datagram.payload) else { return };
        let at = (datagram.time_ns, datagram.packet);
        let Message { answer, kind, name, label, addresses } = message;
        let client = if answer { datagram.destination } else { datagram.source }.address;
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

    /// The look-up that a connection waited for, which `client` opens to `server` at `at_ns`; its first byte will have the
    /// stream offset `start`.
    pub fn before(&self, client: [u8; 16], server: [u8; 16], at_ns: i64, start: u64) -> Option<Episode> {
        let (answered, look_up) = self.all.iter().rev().take(LOOKED_AT).find_map(|one| {
            let answered =
                one.answered.filter(|(answered, _)| (0..=SOON_NS).contains(&(at_ns - answered)))?;
            (one.client == client && one.addresses.contains(&server)).then_some((answered, one))
        })?;
        let took_us = (answered.0 - look_up.asked.0).unsigned_abs() / 1000;
        let shown = |(time_ns, packet), what| PacketProof { packet, time_ns, what };
        Some(Episode {
            cause: Cause::Dns,
            certainty: Certainty::Shown,
            side: Some(Side::Client),
            sender: Side::Client,
            from_ns: look_up.asked.0,
            to_ns: answered.0,
            start,
            end: start,
            stream_id: None,
            copies: Copies::One,
            evidence: PacketProofs::of(&[
                shown(look_up.asked, What::text("the client asks a name server for the server's address")),
                shown(
                    answered,
                    What::with("it has the answer after {} us and {} queries", took_us, look_up.queries),
                ),
            ]),
        })
    }
}

/// What is of interest of a message.
struct Message {
    answer: bool,
    /// The question's type.
    kind: u16,
    name: u64,
    label: u64,
    addresses: Vec<[u8; 16]>,
}

impl Message {
    /// Of a query or an answer with one question; `None` for anything else.
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

/// Where the record after this one begins, and the address in it, if it has one.
fn record(bytes: &[u8], mut at: usize) -> Option<(usize, Option<[u8; 16]>)> {
    loop {
        match *bytes.get(at)? {
            0 => break at += 1,
            // A pointer to a name before.
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
        let (client, server) = (Endpoint::v4(CLIENT, 40_000), Endpoint::v4([10, 0, 0, 53], PORT));
        let answer = payload[2] & 0x80 != 0;
        let (source, destination) = if answer { (server, client) } else { (client, server) };
        names.datagram(&Datagram { packet: 1, time_ns: at_ms * 1_000_000, source, destination, payload });
    }

    fn waited(names: &LookUps, at_ms: i64, server: [u8; 4]) -> Option<(i64, i64)> {
        let address = |of| Endpoint::v4(of, 1).address;
        let found = names.before(address(CLIENT), address(server), at_ms * 1_000_000, 7)?;
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
        assert_eq!(waited(&names, 5014, SERVER), Some((10, 5013)));
        assert_eq!(waited(&names, 5014, [10, 0, 0, 8]), None, "opened to another host");
        assert_eq!(waited(&names, 7000, SERVER), None, "opened long after");
        assert_eq!(waited(&names, 9, SERVER), None, "opened before");
    }

    #[test]
    fn names_of_a_search_list_are_one_look_up_and_another_name_is_another() {
        let mut names = LookUps::default();
        for (at_ms, name) in [(10, "db.ns.cluster"), (20, "db.cluster"), (30, "db")] {
            tell(&mut names, at_ms, &message(name, 1, None));
            let found: &[[u8; 4]] = if name == "db" { &[SERVER] } else { &[] };
            tell(&mut names, at_ms + 9, &message(name, 1, Some(found)));
        }
        assert_eq!(waited(&names, 40, SERVER), Some((10, 39)));
        tell(&mut names, 41, &message("web", 1, None));
        tell(&mut names, 45, &message("web", 1, Some(&[SERVER])));
        assert_eq!(waited(&names, 46, SERVER), Some((41, 45)));
    }

    #[test]
    fn what_is_no_message_is_passed_over() {
        let whole = message("db.local", 1, Some(&[SERVER]));
        for length in 0..whole.len() {
            let _ = Message::read(&whole[..length]);
        }
        assert!(Message::read(&[0xff; 64]).is_none());
    }
}

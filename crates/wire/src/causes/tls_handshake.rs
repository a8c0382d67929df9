//! The opening of a TLS connection, as intervals: a call that was made while the connection was not open yet waited
//! for the TLS handshake, and for that of TCP before it.
//!
//! The round trip of TCP is part of it because no call pays for one without the other. If a SYN or its answer was
//! repeated, that wait has a cause of its own, and so has a client that dawdles between both handshakes.
//!
//! The rule follows records by their headers alone, so it needs no keys, and works with any snap length that
//! leaves the headers. The handshake begins with the ClientHello. In TLS 1.3 it ends, for the client, with the
//! first encrypted record that it sends (its Finished, or its certificate before that); in TLS 1.2, with the last
//! record before the first application data. If the rule cannot follow a handshake (missing segments, early data,
//! a failed handshake), it reports nothing.

use super::{Rule, View};
use crate::episode::{Copies, Episode, PacketProof, PacketProofs, What};
use crate::tcp::{Kind, Step};
use spangap_model::evidence::Certainty;
use spangap_model::{Cause, Side};

const HEADER_BYTES: u8 = 5;
const CHANGE_CIPHER: u8 = 20;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
const CLIENT_HELLO: u8 = 1;

/// State of the rule for one connection.
#[derive(Debug, Default)]
pub struct Memory {
    state: State,
    hello: (i64, u64),
    /// The last packet with a part of the handshake.
    last: (i64, u64),
    sides: [Records; 2],
    /// The server sent something encrypted before the client did.
    tls13: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing was sent yet.
    #[default]
    Begin,
    /// Between the ClientHello and the end of the handshake.
    Shaking,
    /// Finished, or not TLS, or not traceable.
    Done,
}

/// Position in a side's stream of records.
#[derive(Clone, Copy, Debug, Default)]
struct Records {
    /// Stream offset of the next byte.
    next: u64,
    /// Header bytes seen of a record, and its type and length as far as they show.
    header: u8,
    kind: u8,
    length: u16,
    /// Remaining bytes of the record's payload.
    left: u16,
}

impl Rule for Memory {
    #[inline]
    fn step(&mut self, step: &Step<'_>, view: View<'_>, found: &mut Vec<Episode>) {
        if self.state != State::Done && !step.bytes.is_empty() && step.kind != Kind::Handshake {
            self.data(step, view, found);
        }
    }
}

impl Memory {
    #[cold]
    fn data(&mut self, step: &Step<'_>, view: View<'_>, found: &mut Vec<Episode>) {
        let at = (step.segment.time_ns, step.segment.packet);
        if self.state == State::Begin {
            // Type, version, length, and the message's type.
            let is_hello = matches!(step.segment.payload, [HANDSHAKE, 3, 0..=4, _, _, CLIENT_HELLO, ..]);
            if view.handshake.syn.is_none() || step.from != Side::Client || !is_hello {
                self.state = State::Done;
                return;
            }
            (self.state, self.hello) = (State::Shaking, at);
        }
        let records = &mut self.sides[step.from.index()];
        let first = records.next == 0;
        if !first && step.bytes.end <= records.next {
            // Retransmission.
            return;
        }
        if step.kind != Kind::New || !first && step.bytes.start != records.next {
            self.state = State::Done;
            return;
        }
        records.next = step.bytes.end;
        let mut bytes = step.segment.payload;
        let mut beyond =
            u64::from(step.segment.payload_len) - bytes.len().min(step.segment.payload_len as usize) as u64;
        while !bytes.is_empty() {
            let records = &mut self.sides[step.from.index()];
            if records.left > 0 {
                let passed = bytes.len().min(usize::from(records.left));
                records.left -= passed as u16;
                bytes = &bytes[passed..];
                self.part(step.from, at, found, view);
            } else {
                let byte = bytes[0];
                bytes = &bytes[1..];
                match records.header {
                    0 => records.kind = byte,
                    3 => records.length = u16::from(byte) << 8,
                    4 => records.length |= u16::from(byte),
                    _ => {}
                }
                records.header += 1;
                if records.header == HEADER_BYTES {
                    (records.header, records.left) = (0, records.length);
                    self.part(step.from, at, found, view);
                }
            }
            if self.state == State::Done {
                return;
            }
        }
        // The bytes that the snap length cut off must lie within one record.
        let records = &mut self.sides[step.from.index()];
        let inside = beyond.min(u64::from(records.left));
        records.left -= inside as u16;
        beyond -= inside;
        if beyond > 0 {
            self.state = State::Done;
        }
    }

    /// A packet contains a part of the record that a side is sending.
    fn part(&mut self, from: Side, at: (i64, u64), found: &mut Vec<Episode>, view: View<'_>) {
        match (self.sides[from.index()].kind, from) {
            (HANDSHAKE | CHANGE_CIPHER, _) => self.last = at,
            (APPLICATION_DATA, Side::Server) => (self.tls13, self.last) = (true, at),
            (APPLICATION_DATA, Side::Client) => {
                self.state = State::Done;
                let answered = self.sides[Side::Server.index()].next > 0;
                let end = if self.tls13 { at } else { self.last };
                if answered && end.0 > self.hello.0 {
                    found.extend(self.tcp(view));
                    found.push(self.episode(end, view));
                }
            }
            _ => self.state = State::Done,
        }
    }

    /// The TCP handshake before it.
    fn tcp(&self, view: View<'_>) -> Option<Episode> {
        let handshake = view.handshake;
        let (syn, ack) = (handshake.syn?, handshake.ack?);
        let is_plain =
            handshake.syns == 1 && handshake.syn_acks == 1 && ack.0 > syn.0 && ack.0 <= self.hello.0;
        is_plain.then(|| {
            opening(view, syn, ack, ["the connection is opened", "TCP's handshake is over {us} later"])
        })
    }

    fn episode(&self, end: (i64, u64), view: View<'_>) -> Episode {
        let words = ["the client's hello: the TLS handshake begins", "the handshake is over {us} later"];
        opening(view, self.hello, end, words)
    }
}

/// A handshake from its first packet to its last.
fn opening(view: View<'_>, from: (i64, u64), end: (i64, u64), [begins, over]: [&'static str; 2]) -> Episode {
    let sent = view.of(Side::Client).next;
    let evidence = |(time_ns, packet): (i64, u64), what| PacketProof { packet, time_ns, what };
    let took_us = super::nanos(from.0, end.0) / 1000;
    Episode {
        cause: Cause::TlsHandshake,
        certainty: Certainty::Shown,
        side: None,
        sender: Side::Client,
        from_ns: from.0,
        to_ns: end.0,
        start: sent,
        end: sent,
        stream_id: None,
        copies: Copies::One,
        evidence: PacketProofs::of(&[
            evidence(from, What::text(begins)),
            evidence(end, What::with(over, took_us, 0)),
        ]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{CLIENT, SERVER, Scene};
    use super::*;

    /// Records of these types and payload lengths.
    fn records(of: &[(u8, usize)]) -> Vec<u8> {
        let one = |(kind, len): &(u8, usize)| {
            let mut record = vec![*kind, 3, 3, (len >> 8) as u8, *len as u8];
            record.resize(HEADER_BYTES as usize + len, CLIENT_HELLO);
            record
        };
        of.iter().flat_map(one).collect()
    }

    fn opened(mut scene: Scene, told: &[(Side, i64, Vec<u8>)]) -> Vec<(i64, i64)> {
        for (from, at_us, bytes) in told {
            scene.at(*at_us).payload(*from, bytes);
        }
        scene.found.iter().filter(|e| e.cause == Cause::TlsHandshake).map(|e| (e.from_ns, e.to_ns)).collect()
    }

    /// The TLS handshake alone, of a connection whose SYN was sent twice.
    fn found(told: &[(Side, i64, Vec<u8>)]) -> Vec<(i64, i64)> {
        let mut scene = Scene::at_client();
        scene.handshake_mut().syns = 2;
        opened(scene, told)
    }

    #[test]
    fn tls13_lasts_until_the_first_encrypted_record_of_the_client() {
        let hello = records(&[(22, 300)]);
        let flight = records(&[(22, 90), (20, 1), (23, 900), (23, 53)]);
        let finished = records(&[(20, 1), (23, 53)]);
        let request = records(&[(23, 200)]);
        let told = [
            (CLIENT, 100, hello.clone()),
            (SERVER, 1500, flight.clone()),
            (CLIENT, 1700, finished),
            (CLIENT, 9000, request.clone()),
        ];
        assert_eq!(found(&told), [(100_000, 1_700_000)]);
        // In pieces, with headers split across segments.
        let pieces = [
            (CLIENT, 100, hello[..2].to_vec()),
            (CLIENT, 100, hello[2..].to_vec()),
            (SERVER, 1500, flight[..97].to_vec()),
            (SERVER, 1600, flight[97..].to_vec()),
            (CLIENT, 1700, records(&[(20, 1), (23, 53), (23, 200)])),
        ];
        assert_eq!(
            found(&pieces),
            [] as [(i64, i64); 0],
            "a hello whose first segment ends before it says so"
        );
        assert_eq!(found(&[&told[..1], &pieces[2..]].concat()), [(100_000, 1_700_000)]);
    }

    #[test]
    fn the_round_trip_of_tcp_is_part_of_it_unless_a_syn_was_repeated() {
        let told = [
            (CLIENT, 100, records(&[(22, 300)])),
            (SERVER, 1500, records(&[(22, 90), (20, 1), (23, 900)])),
            (CLIENT, 1700, records(&[(20, 1), (23, 53)])),
        ];
        // The hello left 100 us after TCP's handshake, which took 1,020 us.
        let tls = (100_000, 1_700_000);
        assert_eq!(opened(Scene::at_client(), &told), [(-1_020_000, 0), tls]);
        for (syns, syn_acks) in [(2, 1), (1, 2)] {
            let mut scene = Scene::at_client();
            let handshake = scene.handshake_mut();
            (handshake.syns, handshake.syn_acks) = (syns, syn_acks);
            assert_eq!(opened(scene, &told), [tls], "{syns} SYNs, {syn_acks} answers");
        }
        // A handshake that failed opened nothing.
        assert_eq!(opened(Scene::at_client(), &told[..2]), []);
    }

    #[test]
    fn tls12_lasts_until_the_last_record_before_application_data() {
        let told = [
            (CLIENT, 100, records(&[(22, 300)])),
            (SERVER, 1500, records(&[(22, 90), (22, 900), (22, 4)])),
            (CLIENT, 1700, records(&[(22, 70), (20, 1), (22, 40)])),
            (SERVER, 3000, records(&[(20, 1), (22, 40)])),
            (CLIENT, 9000, records(&[(23, 200)])),
        ];
        assert_eq!(found(&told), [(100_000, 3_000_000)]);
    }

    #[test]
    fn an_incomplete_handshake_is_not_reported() {
        let hello = records(&[(22, 300)]);
        // Early data, an alert, other protocols, a server that speaks first.
        assert_eq!(found(&[(CLIENT, 1, hello.clone()), (CLIENT, 2, records(&[(23, 60)]))]), []);
        let refused =
            [(CLIENT, 1, hello.clone()), (SERVER, 2, records(&[(21, 2)])), (CLIENT, 3, records(&[(23, 60)]))];
        assert_eq!(found(&refused), []);
        assert_eq!(
            found(&[(CLIENT, 1, b"GET / HTTP/1.1\r\n".to_vec()), (SERVER, 2, b"HTTP/1.1 200".to_vec())]),
            []
        );
        assert_eq!(found(&[(SERVER, 1, hello.clone()), (CLIENT, 2, hello)]), []);
    }
}

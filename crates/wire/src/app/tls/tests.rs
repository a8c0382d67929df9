use super::*;
use crate::app::testing::{CONTEXT, at, chunk, hole};
use aes_gcm::aead::inout::InOutBuf;
use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes128Gcm, Nonce};

use Side::{Client as C, Server as S};

const SUITE: u16 = 0x1301;
const SECRETS: [[u8; 32]; 2] = [[3; 32], [4; 32]];

/// A simulated end of a TLS 1.3 connection that writes records according to RFC 8446.
struct Writer {
    secret: Vec<u8>,
    sequence: u64,
    offset: u64,
    bytes: Vec<u8>,
}

impl Writer {
    fn new(secret: [u8; 32], offset: u64) -> Writer {
        Writer { secret: secret.into(), sequence: 0, offset, bytes: Vec::new() }
    }

    fn expand(&self, label: &str, len: usize) -> Vec<u8> {
        let label = format!("tls13 {label}");
        let info = [&[0, len as u8, label.len() as u8], label.as_bytes(), &[0]].concat();
        let mut out = vec![0; len];
        hkdf::Hkdf::<sha2::Sha256>::from_prk(&self.secret).unwrap().expand(&info, &mut out).unwrap();
        out
    }

    fn record(&mut self, kind: u8, content: &[u8], padding: usize) {
        let mut text = [content, &[kind], &vec![0; padding]].concat();
        let len = (text.len() + 16) as u16;
        let header = [23, 3, 3, (len >> 8) as u8, len as u8];
        let (key, mut nonce) = (self.expand("key", 16), self.expand("iv", 12));
        nonce.iter_mut().rev().zip(self.sequence.to_le_bytes()).for_each(|(byte, part)| *byte ^= part);
        let nonce = Nonce::try_from(&nonce[..]).unwrap();
        let aead = Aes128Gcm::new_from_slice(&key).unwrap();
        let tag = aead.encrypt_inout_detached(&nonce, &header, InOutBuf::from(&mut text[..])).unwrap();
        self.bytes.extend([&header[..], &text, &tag].concat());
        self.sequence += 1;
    }

    fn key_update(&mut self) {
        self.record(HANDSHAKE, &[24, 0, 0, 1, 0], 0);
        (self.secret, self.sequence) = (self.expand("traffic upd", 32), 0);
    }

    /// The bytes written since the last call, and their stream offset.
    fn take(&mut self) -> (u64, Vec<u8>) {
        let bytes = std::mem::take(&mut self.bytes);
        let offset = self.offset;
        self.offset += bytes.len() as u64;
        (offset, bytes)
    }
}

/// A connection after its hellos, with only the traffic secrets known.
fn connected() -> (Tls, Sink, [Writer; 2]) {
    let mut sink = Sink::default();
    for (label, secret) in ["CLIENT", "SERVER"].iter().zip(SECRETS) {
        let line = format!("{label}_TRAFFIC_SECRET_0 {} {:02x}", "05".repeat(32), secret[0]);
        let digits = format!("{:02x}", secret[0]).repeat(31);
        assert!(sink.keys.add(format!("{line}{digits}").as_bytes()).is_empty());
    }
    let hello = |kind: u8, rest: &[u8], random: u8| {
        let body = [&[3, 3][..], &[random; 32], rest].concat();
        let message = [&[kind, 0, 0, body.len() as u8][..], &body].concat();
        [&[22, 3, 3, 0, message.len() as u8][..], &message].concat()
    };
    let server = [&[0][..], &SUITE.to_be_bytes(), &[0, 0, 6, 0, 43, 0, 2, 3, 4]].concat();
    let (client, server) = (hello(1, &[0], 5), hello(2, &server, 6));
    let mut tls = Tls::within(1, 0);
    tls.bytes(CONTEXT, chunk(C, 0, &client, 1), &mut sink);
    tls.bytes(CONTEXT, chunk(S, 0, &server, 1), &mut sink);
    assert_eq!(tls.mode, Mode::Decrypt);
    (tls, sink, [Writer::new(SECRETS[0], client.len() as u64), Writer::new(SECRETS[1], server.len() as u64)])
}

const REQUEST: &[u8] = b"GET /x HTTP/1.1\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc";

#[test]
fn keys_are_updated_and_padding_and_tickets_skipped() {
    let (mut tls, mut sink, mut ends) = connected();
    for round in 0..6 {
        ends[0].record(APPLICATION_DATA, REQUEST, 7);
        ends[1].record(HANDSHAKE, &[4; 50], 0);
        ends[1].record(APPLICATION_DATA, RESPONSE, 0);
        for (from, end) in [C, S].into_iter().zip(&mut ends) {
            if round % 2 == 1 {
                end.key_update();
            }
            let (offset, bytes) = end.take();
            tls.bytes(CONTEXT, chunk(from, offset, &bytes, round), &mut sink);
        }
    }
    assert_eq!((sink.exchanges.len(), sink.counts), (6, Default::default()));
    assert_eq!(tls.protocol(), Protocol::Http1);
}

#[test]
fn decryption_resumes_after_missing_records() {
    let (mut tls, mut sink, mut ends) = connected();
    for round in 0..10 {
        for (from, content) in [(C, REQUEST), (S, RESPONSE)] {
            let end = &mut ends[from.index()];
            end.record(APPLICATION_DATA, content, 0);
            let (offset, bytes) = end.take();
            if (3..6).contains(&round) {
                // Three records of each side at once, with a key change in the middle one.
                if round == 4 {
                    end.key_update();
                }
                let len = bytes.len() as u64 + end.bytes.len() as u64;
                end.take();
                tls.hole(CONTEXT, hole(from, offset, len, round, false), &mut sink);
            } else {
                tls.bytes(CONTEXT, chunk(from, offset, &bytes, round), &mut sink);
            }
        }
    }
    tls.finish(CONTEXT, true, &mut sink);
    let sure = sink.exchanges.iter().filter(|one| one.doubts == Default::default()).count();
    assert_eq!((sink.exchanges.len(), sure), (7, 6), "the first after the hole is in doubt");
    assert_eq!(sink.counts.records_undecrypted, 0);
}

#[test]
fn a_record_in_several_packets_is_ready_with_the_last_and_seen_with_each() {
    let (mut tls, mut sink, mut ends) = connected();
    ends[0].record(APPLICATION_DATA, REQUEST, 0);
    let (offset, bytes) = ends[0].take();
    let last = bytes.len() - 4;
    for (time, range) in [(10, 0..8), (20, 8..last), (30, last..bytes.len())] {
        let start = offset + range.start as u64;
        tls.bytes(CONTEXT, chunk(C, start, &bytes[range], time), &mut sink);
    }
    ends[1].record(APPLICATION_DATA, RESPONSE, 0);
    let (at_, bytes) = ends[1].take();
    tls.bytes(CONTEXT, chunk(S, at_, &bytes, 40), &mut sink);
    let request = sink.exchanges[0].request;
    assert_eq!((request.start, request.end), (offset + 5, offset + 5 + REQUEST.len() as u64));
    assert_eq!((request.first.seen_ns, request.first.ready_ns), (10, 30));
    assert_eq!(request.last, at(30), "its last byte is of use with the tag only");
}

#[test]
fn wrong_keys_are_counted_and_cost_no_more_than_a_bounded_search() {
    let (mut tls, mut sink, mut ends) = connected();
    ends[0].secret = vec![9; 32];
    for round in 0..200 {
        ends[0].record(APPLICATION_DATA, REQUEST, 0);
        let (offset, bytes) = ends[0].take();
        tls.bytes(CONTEXT, chunk(C, offset, &bytes, round), &mut sink);
    }
    tls.finish(CONTEXT, true, &mut sink);
    assert_eq!(sink.counts.records_undecrypted, 200);
    assert!(sink.exchanges.iter().all(|one| one.doubts.hole), "something was sent, and nobody knows what");
}

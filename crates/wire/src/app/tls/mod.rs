//! TLS: decrypted if the keys are known, otherwise turns of application data.
//!
//! The libraries are peers of a connection: they negotiate keys, and give up at the first lost byte. An observer gets
//! the keys from elsewhere, and reads on behind a hole. So records and key schedules are written here; ciphers and
//! hashes are those of RustCrypto.
//!
//! *Decrypted* (TLS 1.3, and 1.2 with AES-GCM or ChaCha20): the content is a conversation of its own. Its bytes
//! have the stream offsets of their record's payload, starting at its first byte; offsets jump from record to
//! record, and both ends of a connection compute the same ones. A byte was seen when its ciphertext was, except
//! that the last byte of a record was seen when the record's last one was; all are ready when the whole record
//! is. A record with missing bytes is a hole in the content.
//!
//! *Without keys*, only the bytes of application data form turns; the handshake is not a call. TLS 1.3 sends part
//! of the handshake as application data: for the client, everything up to a record of exactly the size of its
//! Finished; for the server, everything before the client's first data. Session tickets follow after that, and
//! look like the beginning of a response, so the start of the first turn's response is unknown. A record of 19
//! bytes is assumed to be an alert (the end of a connection), although two bytes of data would look the same.

pub mod cipher;
pub mod handshake;
pub mod keys;
mod record;

pub use keys::Keys;
pub use record::looks_like;

use self::cipher::{Cipher, Suite};
use self::handshake::Hello;
use self::keys::Secret;
use self::record::{APPLICATION_DATA, CHANGE_CIPHER, Found, HANDSHAKE, Missing, Piece, Record, Records};
use super::conversation::Conversation;
use super::turns::Turns;
use super::{Context, Parser, Sink};
use crate::exchange::Protocol;
use crate::tcp::{Chunk, Hole};
use spangap_model::Side;

/// Maximum records missing between two so that the second can still be decrypted.
const MAX_LOST_RECORDS: u64 = 512;

/// Maximum searches for the number of missing records; a connection that needs more has another problem.
const MAX_SEARCHES: u32 = 8;

/// Maximum handshake records of a TLS 1.3 client before its Finished (certificates).
const MAX_HIDDEN: u8 = 4;

/// Size of an encrypted alert in TLS 1.3: level, description, content type, tag.
const ALERT_BYTES: usize = 2 + 1 + cipher::TAG_BYTES;

/// One TLS connection.
#[derive(Debug)]
pub struct Tls {
    records: [Records; 2],
    /// Whether a side has switched to encryption (TLS 1.2).
    encrypted: [bool; 2],
    ciphers: [Keyring; 2],
    client_hello: Option<Hello>,
    server_hello: Option<Hello>,
    /// The server requested another ClientHello. Changes of cipher before its own hello are then only for
    /// middleboxes (RFC 8446, D.4).
    retried: bool,
    mode: Mode,
    /// The conversation inside, if it can be decrypted.
    inside: Box<Conversation>,
    /// The turns, if it cannot.
    turns: Turns,
    hidden: HiddenHandshake,
    plain: Vec<u8>,
    /// Number of earlier exchanges.
    number: u32,
    /// Whether secrets of this connection are known.
    keys_known: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Before the server's hello.
    Hello,
    Decrypt,
    Opaque,
}

/// The part of a TLS 1.3 handshake that looks like application data.
#[derive(Debug, Default)]
struct HiddenHandshake {
    /// Size of the client's Finished; zero when nothing more is hidden.
    finished_bytes: usize,
    /// Number of the client's records before it.
    records: u8,
    /// Whether a side's current record is part of it.
    passing: [bool; 2],
}

/// Decrypts one side's records.
#[derive(Debug, Default)]
struct Keyring {
    cipher: Option<Cipher>,
    /// The secret that follows the handshake's (TLS 1.3).
    traffic: Option<Secret>,
    sequence: u64,
    /// Number of records that may have been lost since the last decrypted one.
    may_be_lost: u64,
    searches: u32,
    /// Missing bytes since the last decrypted record: their start, and what is known of them.
    hole: Option<Hole>,
    /// Number of records missing before the last decrypted one.
    passed: u64,
}

impl Tls {
    /// TLS inside `depth` conversations, after `number` exchanges.
    pub fn within(depth: u8, number: u32) -> Tls {
        Tls {
            records: Default::default(),
            encrypted: [false; 2],
            ciphers: Default::default(),
            client_hello: None,
            server_hello: None,
            retried: false,
            mode: Mode::Hello,
            inside: Box::new(Conversation::within(depth, number)),
            turns: Turns::of(Protocol::Tls, number),
            hidden: HiddenHandshake::default(),
            plain: Vec::new(),
            number,
            keys_known: false,
        }
    }

    fn hello(&mut self, from: Side, payload: &[u8], sink: &Sink) {
        match (handshake::message(payload), from) {
            (Some((1, body)), Side::Client) => self.client_hello = self.client_hello.or(Hello::client(body)),
            (Some((2, body)), Side::Server) => {
                let Some(hello) = Hello::server(body) else { return };
                if hello.is_retry() {
                    self.retried = true;
                } else if self.mode == Mode::Hello {
                    self.server_hello = Some(hello);
                    self.start(hello, sink);
                }
            }
            _ => {}
        }
    }

    /// Both hellos are known: derives the keys, or gives up decryption.
    fn start(&mut self, hello: Hello, sink: &Sink) {
        let tls13 = hello.version == 0x0304;
        self.mode = Mode::Opaque;
        if tls13 {
            let hash_bytes = if hello.suite == 0x1302 { 48 } else { 32 };
            self.hidden.finished_bytes = 4 + hash_bytes + 1 + cipher::TAG_BYTES;
        }
        let Some(client) = self.client_hello else { return };
        let Some(secrets) = sink.keys.of(&client.random) else { return };
        self.keys_known = true;
        let Some(suite) = Suite::of(hello.suite, hello.version) else { return };
        let made = [Side::Client, Side::Server].map(|from| {
            let side = from.index();
            let fits = |secret: &Secret| secret.bytes().len() == suite.hash_bytes();
            let (cipher, traffic) = if tls13 {
                let traffic = secrets.traffic[side].filter(fits)?;
                let first = secrets.handshake[side].filter(fits);
                (Cipher::tls13(suite, first.unwrap_or(traffic))?, first.map(|_| traffic))
            } else {
                (Cipher::tls12(suite, from, secrets.master.as_ref()?, &client.random, &hello.random)?, None)
            };
            Some(Keyring { cipher: Some(cipher), traffic, ..Keyring::default() })
        });
        if let [Some(client), Some(server)] = made {
            self.ciphers = [client, server];
            self.mode = Mode::Decrypt;
        }
    }

    /// Processes a complete record.
    fn record(&mut self, context: Context, record: &Record<'_>, sink: &mut Sink) {
        let side = record.from.index();
        let tls13 = self.server_hello.is_some_and(|hello| hello.version == 0x0304);
        // Even if the change of cipher itself is missing, application data shows it.
        let encrypted = record.kind() == APPLICATION_DATA || !tls13 && self.encrypted[side];
        match (record.kind(), self.mode) {
            (CHANGE_CIPHER, _) if self.retried && self.server_hello.is_none() => {}
            (CHANGE_CIPHER, _) => self.encrypted[side] = true,
            (HANDSHAKE, _) if !encrypted => self.hello(record.from, record.payload, sink),
            (_, Mode::Decrypt) if encrypted => self.decrypt(context, record, sink),
            (APPLICATION_DATA, _) => {
                if self.keys_known {
                    sink.counts.records_undecrypted += 1;
                }
                self.begin_opaque(record.from, record.payload.len());
                let (mut at, pieces) = (0, record.pieces(0, record.payload.len()));
                for Piece { len, at: mark } in pieces {
                    let offset = record.offset + 5 + at as u64;
                    let bytes = &record.payload[at..at + len];
                    self.opaque(context, Chunk { from: record.from, offset, bytes, at: mark }, sink);
                    at += len;
                }
            }
            _ => {}
        }
    }

    fn decrypt(&mut self, context: Context, record: &Record<'_>, sink: &mut Sink) {
        let from = record.from;
        let keyring = &mut self.ciphers[from.index()];
        let mut plain = std::mem::take(&mut self.plain);
        if !keyring.open(record, &mut plain) {
            sink.counts.records_undecrypted += 1;
            let at = record.last();
            keyring.miss(Hole { from, offset: record.offset, len: record.len(), at, cut: false }, 1);
            self.plain = plain;
            return;
        }
        let explicit = keyring.cipher.as_ref().map_or(0, |cipher| cipher.suite().explicit_bytes());
        if let Some(hole) = keyring.take_hole(record.offset) {
            self.inside.hole(context, hole, sink);
        }
        let tls13 = self.server_hello.is_some_and(|hello| hello.version == 0x0304);
        let (kind, len) = if tls13 {
            let end = plain.iter().rposition(|byte| *byte != 0).unwrap_or(0);
            (plain.get(end).copied().unwrap_or(0), end)
        } else {
            (record.kind(), plain.len())
        };
        if kind == APPLICATION_DATA {
            let mut done = 0;
            for Piece { len, at } in record.pieces(explicit, len) {
                let offset = record.offset + (5 + done) as u64;
                let bytes = &plain[done..done + len];
                self.inside.bytes(context, Chunk { from, offset, bytes, at }, sink);
                done += len;
            }
        }
        self.plain = plain;
    }

    /// Application data of this size begins, and cannot be decrypted.
    fn begin_opaque(&mut self, from: Side, len: usize) {
        let hidden = &mut self.hidden;
        let tls13 = self.server_hello.is_none_or(|hello| hello.version == 0x0304);
        hidden.passing[from.index()] = tls13 && len == ALERT_BYTES;
        if self.mode == Mode::Hello || hidden.finished_bytes == 0 {
            return;
        }
        if from == Side::Client && hidden.records <= MAX_HIDDEN {
            hidden.passing[0] = true;
            hidden.records += 1;
            if len == hidden.finished_bytes {
                hidden.records = u8::MAX;
            }
        }
    }

    fn opaque(&mut self, context: Context, chunk: Chunk<'_>, sink: &mut Sink) {
        if self.hidden.passing[chunk.from.index()] {
            return;
        }
        self.turns.bytes(context, chunk, sink);
        if self.server_hello.is_none() && self.turns.number() <= self.number.saturating_add(2) {
            // Without the hellos, the first turn may be the client's Finished, and the next may begin with
            // tickets.
            self.turns.doubt();
        }
        if chunk.from == Side::Client && self.hidden.finished_bytes > 0 {
            self.turns.tickets_may_come();
            self.hidden.finished_bytes = 0;
        }
    }

    fn found(&mut self, context: Context, from: Side, found: &Found<'_>, sink: &mut Sink) {
        match found {
            Found::Nothing => {}
            Found::Whole(record) => self.record(context, record, sink),
            Found::Begins(len) => {
                sink.counts.records_undecrypted += u64::from(self.keys_known);
                self.begin_opaque(from, *len);
            }
            Found::Part(chunk) => self.opaque(context, *chunk, sink),
            Found::Skipped(bytes) => sink.counts.bytes_skipped += bytes,
            Found::Lost => {
                sink.counts.resyncs += 1;
                let keyring = &mut self.ciphers[from.index()];
                keyring.may_be_lost += 1;
            }
        }
    }
}

impl Keyring {
    /// Decrypts with the key and the sequence number that fit, and keeps both for the next record.
    fn open(&mut self, record: &Record<'_>, plain: &mut Vec<u8>) -> bool {
        let Some(cipher) = &self.cipher else { return false };
        let header = record.header;
        let lost = if self.searches < MAX_SEARCHES { self.may_be_lost.min(MAX_LOST_RECORDS) } else { 0 };
        self.searches += u32::from(lost > 0);
        let found = |cipher: &Cipher, first: u64, plain: &mut Vec<u8>| {
            (first..=first + lost).find(|sequence| cipher.open(header, record.payload, *sequence, plain))
        };
        let mut sequence = found(cipher, self.sequence, plain);
        if sequence.is_none() {
            // The keys change without an outer sign: after Finished, and after a KeyUpdate.
            let next = match self.traffic {
                Some(secret) => Cipher::tls13(cipher.suite(), secret),
                None => cipher.next(),
            };
            let Some(next) = next else { return false };
            sequence = found(&next, 0, plain);
            if sequence.is_some() {
                (self.cipher, self.traffic, self.sequence) = (Some(next), None, 0);
            }
        }
        let Some(sequence) = sequence else { return false };
        self.passed = sequence.saturating_sub(self.sequence);
        self.sequence = sequence + 1;
        (self.may_be_lost, self.searches) = (0, 0);
        true
    }

    /// Bytes of at most `records` records are missing. Their sequence numbers are skipped when a later record is
    /// decrypted.
    fn miss(&mut self, hole: Hole, records: u64) {
        let whole = self.hole.get_or_insert(hole);
        whole.len = hole.offset.saturating_add(hole.len).saturating_sub(whole.offset);
        whole.cut &= hole.cut;
        self.may_be_lost = self.may_be_lost.saturating_add(records);
    }

    /// The hole in the content before the just decrypted record at `offset`: its length is what records of that
    /// length and number carry.
    fn take_hole(&mut self, offset: u64) -> Option<Hole> {
        let records = std::mem::take(&mut self.passed);
        let mut hole = self.hole.take()?;
        let overhead = self.cipher.as_ref().map_or(0, |cipher| cipher.suite().overhead_bytes());
        hole.len = offset.saturating_sub(hole.offset).saturating_sub(records.saturating_mul(overhead));
        (hole.len > 0).then_some(hole)
    }
}

impl Parser for Tls {
    fn bytes(&mut self, context: Context, mut chunk: Chunk<'_>, sink: &mut Sink) {
        let from = chunk.from;
        let mut records = std::mem::take(&mut self.records[from.index()]);
        while !chunk.bytes.is_empty() {
            let through = self.mode == Mode::Opaque || self.client_hello.is_none();
            let (used, found) = records.next(chunk, through);
            self.found(context, from, &found, sink);
            chunk.bytes = &chunk.bytes[used..];
            chunk.offset += used as u64;
        }
        self.records[from.index()] = records;
    }

    fn hole(&mut self, context: Context, hole: Hole, sink: &mut Sink) {
        let side = hole.from.index();
        let missing = self.records[side].hole(&hole);
        if let Missing::Unknown(_) = missing {
            sink.counts.resyncs += 1;
        }
        if self.mode != Mode::Decrypt {
            if self.mode == Mode::Hello && !hole.cut {
                // Whether the following bytes are still part of the handshake may never be known.
                self.turns.doubt_next();
            }
            if !self.hidden.passing[side] {
                self.turns.hole(context, hole, sink);
            }
            return;
        }
        match missing {
            Missing::Inside => {}
            Missing::Record(record) => {
                sink.counts.records_undecrypted += 1;
                self.ciphers[side].miss(record, 1);
            }
            // The smallest record with content has 23 bytes.
            Missing::Unknown(bytes) => self.ciphers[side].miss(bytes, bytes.len / 23 + 1),
        }
    }

    fn fin(&mut self, context: Context, from: Side, sink: &mut Sink) {
        if let Some(hole) = self.ciphers[from.index()].hole.take() {
            self.inside.hole(context, hole, sink);
        }
        self.inside.fin(context, from, sink);
        self.turns.fin(context, from, sink);
    }

    fn finish(&mut self, context: Context, closed: bool, sink: &mut Sink) {
        for from in [Side::Client, Side::Server] {
            if let Some(hole) = self.ciphers[from.index()].hole.take() {
                self.inside.hole(context, hole, sink);
            }
        }
        self.inside.finish(context, closed, sink);
        self.turns.finish(context, closed, sink);
    }

    fn protocol(&self) -> Protocol {
        if self.mode == Mode::Decrypt { self.inside.protocol() } else { Protocol::Tls }
    }

    fn max_streams(&self) -> Option<u32> {
        self.inside.max_streams()
    }

    fn open(&self) -> usize {
        self.inside.open() + self.turns.open()
    }

    fn memory_bytes(&self) -> usize {
        std::mem::size_of::<Tls>()
            + self.records.iter().map(Records::memory_bytes).sum::<usize>()
            + self.plain.capacity()
            + self.inside.memory_bytes()
    }
}

#[cfg(test)]
mod tests;

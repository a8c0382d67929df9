//! Whole connections, written by a simple encoder in these tests.

use super::*;
use crate::exchange::{Exchange, TextId, TraceContext};
use proptest::prelude::*;
use spangap_model::CallStatus;

pub const CONTEXT: Context = Context { connection: 7, from_start: true };
pub const JOINED: Context = Context { connection: 7, from_start: false };

/// One frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A gRPC message.
pub fn message(length: usize) -> Vec<u8> {
    [&[0][..], &(length as u32).to_be_bytes(), &vec![0xab; length]].concat()
}

/// A HEADERS frame with these fields, none of them indexed.
pub fn headers(flags: u8, stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.extend([0, name.len() as u8]);
        block.extend(name.as_bytes());
        block.push(value.len() as u8);
        block.extend(value.as_bytes());
    }
    frame(kind::HEADERS, flags | flag::END_HEADERS, stream, &block)
}

pub fn request(stream: u32, flags: u8) -> Vec<u8> {
    let path = (":path", "/ping.Ping/Call");
    let trace = ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let fields =
        [(":method", "POST"), path, ("content-type", "application/grpc"), trace, ("grpc-timeout", "2S")];
    headers(flags, stream, &fields)
}

pub fn response(stream: u32) -> Vec<u8> {
    headers(0, stream, &[(":status", "200"), ("content-type", "application/grpc")])
}

pub fn trailers(stream: u32) -> Vec<u8> {
    headers(flag::END_STREAM, stream, &[("grpc-status", "5")])
}

/// Feeds a parser; each chunk is one packet, a microsecond after the previous one.
#[derive(Default)]
pub struct Feed {
    pub parser: Http2,
    pub sink: Sink,
    pub packet: u64,
    pub offsets: [u64; 2],
    pub joined: bool,
}

impl Feed {
    fn at(&mut self) -> Mark {
        self.packet += 1;
        let ns = self.packet as i64 * 1000;
        Mark { seen_ns: ns, ready_ns: ns, packet: self.packet, ready_packet: self.packet }
    }

    pub fn context(&self) -> Context {
        if self.joined { JOINED } else { CONTEXT }
    }

    pub fn send(&mut self, from: Side, bytes: &[u8]) {
        let at = self.at();
        let offset = self.offsets[from.index()];
        self.offsets[from.index()] += bytes.len() as u64;
        let context = self.context();
        self.parser.bytes(context, Chunk { from, offset, bytes, at }, &mut self.sink);
    }

    pub fn miss(&mut self, from: Side, len: u64, cut: bool) {
        let at = self.at();
        let offset = self.offsets[from.index()];
        self.offsets[from.index()] += len;
        let context = self.context();
        self.parser.hole(context, Hole { from, offset, len, at, cut }, &mut self.sink);
    }

    pub fn hello(&mut self) {
        let settings = frame(kind::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]);
        self.send(Side::Client, &[&frame::PREFACE[..], &frame(kind::SETTINGS, 0, 0, &[])].concat());
        self.send(Side::Server, &[settings, frame(kind::SETTINGS, flag::ACK, 0, &[])].concat());
        self.send(Side::Client, &frame(kind::SETTINGS, flag::ACK, 0, &[]));
    }

    pub fn over(&mut self) -> Vec<Exchange> {
        let context = self.context();
        self.parser.finish(context, false, &mut self.sink);
        std::mem::take(&mut self.sink.exchanges)
    }
}

const C: Side = Side::Client;
const S: Side = Side::Server;

#[test]
fn a_unary_call() {
    let mut feed = Feed::default();
    feed.hello();
    let start = feed.offsets;
    feed.send(C, &request(1, 0));
    feed.send(C, &frame(kind::DATA, flag::END_STREAM, 1, &message(20)));
    feed.send(S, &response(1));
    feed.send(S, &[frame(kind::DATA, 0, 1, &message(30)), trailers(1)].concat());
    let exchanges = feed.over();
    let [call] = &exchanges[..] else { panic!("{exchanges:?}") };
    assert_eq!((call.connection, call.stream_id, call.turn, call.protocol), (7, 1, 0, Protocol::Grpc));
    assert_eq!(feed.sink.texts.text(call.method).as_deref(), Some("/ping.Ping/Call"));
    assert_eq!(call.status, CallStatus::from_grpc(5));
    assert_eq!(call.deadline_ns, Some(2_000_000_000));
    let trace = TraceContext {
        trace_id: [
            0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84, 0x48, 0xeb, 0x21, 0x1c, 0x80, 0x31, 0x9c,
        ],
        span_id: [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31],
    };
    assert_eq!(call.trace, Some(trace));
    let request = &call.request;
    assert_eq!((request.first.packet, request.last.packet, request.start), (4, 5, start[0]));
    assert_eq!((request.end, request.body_bytes, request.messages), (feed.offsets[0], 25, 1));
    let response = call.response.as_ref().unwrap();
    assert_eq!((response.first.packet, response.last.packet, response.start), (6, 7, start[1]));
    assert_eq!((response.end, response.body_bytes, response.messages), (feed.offsets[1], 35, 1));
    assert_eq!((call.in_flight, call.ended), (1, Ended::Complete));
    assert_eq!(call.doubts, Default::default());
    assert_eq!((feed.parser.protocol(), feed.parser.max_streams()), (Protocol::Grpc, Some(100)));
    assert_eq!(feed.sink.counts, Default::default());
}

#[test]
fn alternating_messages_are_turns() {
    let mut feed = Feed::default();
    feed.hello();
    feed.send(C, &[request(1, 0), frame(kind::DATA, 0, 1, &message(1))].concat());
    feed.send(S, &[response(1), frame(kind::DATA, 0, 1, &message(2))].concat());
    let second = feed.offsets;
    feed.send(C, &frame(kind::DATA, 0, 1, &message(3)));
    feed.send(S, &frame(kind::DATA, 0, 1, &message(4)));
    let end = feed.offsets;
    feed.send(C, &frame(kind::DATA, flag::END_STREAM, 1, &[]));
    feed.send(S, &trailers(1));
    let exchanges = feed.over();
    let turns: Vec<_> = exchanges.iter().map(|e| (e.turn, e.request.body_bytes, e.in_flight)).collect();
    assert_eq!(turns, [(1, 6, 1), (2, 8, 1)]);
    let last = &exchanges[1];
    let response = last.response.unwrap();
    assert_eq!((last.request.start, last.request.end), (second[0], end[0]));
    assert_eq!((response.start, response.end, response.body_bytes), (second[1], end[1], 9));
    assert_eq!(last.method, exchanges[0].method);
    assert!(exchanges.iter().all(|e| e.ended == Ended::Complete && e.doubts == Default::default()));
}

#[test]
fn other_streams_are_one_exchange() {
    let data = |flags, length| frame(kind::DATA, flags, 1, &message(length));
    // Many requests, one answer.
    let mut feed = Feed::default();
    feed.hello();
    feed.send(C, &[request(1, 0), data(0, 1), data(0, 1), data(flag::END_STREAM, 1)].concat());
    feed.send(S, &[response(1), data(0, 2), trailers(1)].concat());
    // One request, many answers, while the client might still send more.
    feed.send(C, &[request(3, 0), frame(kind::DATA, 0, 3, &message(1))].concat());
    feed.send(S, &[response(3), frame(kind::DATA, 0, 3, &[message(2), message(2)].concat())].concat());
    feed.send(C, &frame(kind::DATA, flag::END_STREAM, 3, &message(1)));
    feed.send(S, &trailers(3));
    let exchanges = feed.over();
    let seen: Vec<_> = exchanges
        .iter()
        .map(|e| (e.stream_id, e.turn, e.request.messages, e.response.unwrap().messages))
        .collect();
    assert_eq!(seen, [(1, 0, 3, 1), (3, 0, 2, 2)]);
}

#[test]
fn ways_to_end() {
    let mut feed = Feed::default();
    feed.hello();
    let reset = |stream, code| frame(kind::RST_STREAM, 0, stream, &u32::to_be_bytes(code));
    for stream in [1, 3, 5, 7, 9] {
        feed.send(C, &request(stream, flag::END_STREAM));
    }
    feed.send(C, &reset(1, 8));
    feed.send(S, &reset(3, 7));
    feed.send(S, &headers(0, 5, &[(":status", "103")]));
    feed.send(S, &headers(flag::END_STREAM, 5, &[(":status", "503")]));
    feed.send(S, &frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 7, 0, 0, 0, 0]));
    let exchanges = feed.over();
    let seen: Vec<_> = exchanges.iter().map(|e| (e.stream_id, e.ended)).collect();
    let by = |code, by_client| Ended::Reset { code, by_client };
    let expected = [(1, by(8, true)), (3, by(7, false)), (5, Ended::Complete), (9, Ended::ConnectionClosed)];
    assert_eq!(seen, [&expected[..], &[(7, Ended::CaptureEnded)]].concat());
    assert_eq!(exchanges[2].status.name(), "http_5xx");
    assert_eq!(exchanges[2].response.unwrap().first.packet, 12, "not the informational one");
    assert_eq!(exchanges.iter().map(|e| e.in_flight).collect::<Vec<_>>(), [1, 2, 3, 5, 4]);
}

/// A connection with a bit of everything; each entry is one write of one side.
pub fn conversation() -> Vec<(Side, Vec<u8>)> {
    let data = |flags, stream, bytes: &[u8]| frame(kind::DATA, flags, stream, bytes);
    let split = |stream| {
        let whole = request(stream, 0);
        let block = &whole[9..];
        let first = frame(kind::HEADERS, flag::PADDED, stream, &[&[3][..], &block[..20], &[0; 3]].concat());
        [
            first,
            frame(kind::CONTINUATION, 0, stream, &block[20..30]),
            frame(kind::CONTINUATION, 4, stream, &block[30..]),
        ]
        .concat()
    };
    let mut all = vec![
        (C, [&frame::PREFACE[..], &frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])].concat()),
        (S, frame(kind::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100])),
        (C, frame(kind::SETTINGS, 1, 0, &[])),
        (S, frame(kind::SETTINGS, 1, 0, &[])),
    ];
    for stream in [1, 5, 9] {
        all.push((C, [split(stream), data(1, stream, &message(stream as usize * 40))].concat()));
        all.push((C, [request(stream + 2, 0), data(0, stream + 2, &message(9))].concat()));
        all.push((S, frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 1, 0])));
        all.push((S, [response(stream + 2), data(0, stream + 2, &message(300))].concat()));
        all.push((C, data(flag::PADDED, stream + 2, &[&[4][..], &message(11), &[0; 4]].concat())));
        all.push((S, [response(stream), data(0, stream, &message(200)), trailers(stream)].concat()));
        all.push((C, frame(kind::PING, 0, 0, &[9; 8])));
        all.push((S, data(0, stream + 2, &message(12))));
        all.push((C, [frame(99, 0xff, 3, &[1; 30]), data(1, stream + 2, &[])].concat()));
        all.push((S, trailers(stream + 2)));
    }
    all
}

/// The facts that do not depend on the division into packets.
fn essence(exchange: &Exchange) -> (u32, u32, TextId, CallStatus, [u64; 4], [u64; 4]) {
    let part = |p: &crate::exchange::Part| [p.start, p.end, p.body_bytes, u64::from(p.messages)];
    let response = exchange.response.unwrap_or_default();
    let Exchange { stream_id, turn, method, status, request, .. } = exchange;
    (*stream_id, *turn, *method, *status, part(request), part(&response))
}

fn whole() -> Vec<Exchange> {
    let mut feed = Feed::default();
    conversation().iter().for_each(|(from, bytes)| feed.send(*from, bytes));
    assert_eq!(feed.sink.counts, Default::default());
    feed.over()
}

#[test]
fn the_sample_conversation_has_the_expected_exchanges() {
    let exchanges = whole();
    let seen: Vec<_> = exchanges.iter().map(|e| (e.stream_id, e.turn)).collect();
    assert_eq!(seen, [(3, 1), (1, 0), (3, 2), (7, 1), (5, 0), (7, 2), (11, 1), (9, 0), (11, 2)]);
    assert!(exchanges.iter().all(|e| e.status == CallStatus::from_grpc(5) || e.turn == 1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_split_gives_the_same_exchanges(sizes in prop::collection::vec(1usize..60, 1..40)) {
        let mut feed = Feed::default();
        let mut sizes = sizes.iter().cycle();
        for (from, bytes) in conversation() {
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
                feed.send(from, now);
                rest = later;
            }
        }
        let got: Vec<_> = feed.over().iter().map(essence).collect();
        prop_assert_eq!(got, whole().iter().map(essence).collect::<Vec<_>>());
        prop_assert_eq!(feed.sink.counts, Default::default());
    }
}

/// Pseudo-random numbers, the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end.max(1)
    }
}

#[test]
fn damaged_bytes_are_read_within_bounds() {
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let intact = conversation();
    for round in 0..20_000 {
        let mut feed = Feed { joined: round % 3 == 0, ..Feed::default() };
        let mut all = intact.clone();
        for _ in 0..1 + chance.below(8) {
            let place = chance.below(all.len());
            let (from, bytes) = &mut all[place];
            let at = chance.below(bytes.len());
            match chance.below(5) {
                0 if !bytes.is_empty() => bytes[at] = chance.below(256) as u8,
                1 if !bytes.is_empty() => bytes[at] ^= 1 << chance.below(8),
                2 => bytes.truncate(at),
                3 => bytes.insert(at, chance.below(256) as u8),
                _ => {
                    let from = *from;
                    feed.miss(from, chance.below(300) as u64, at.is_multiple_of(2));
                }
            }
        }
        let total: usize = all.iter().map(|(_, bytes)| bytes.len()).sum();
        for (from, bytes) in &all {
            feed.send(*from, bytes);
        }
        assert!(feed.parser.memory_bytes() < (1 << 17) + 64 * total, "round {round}");
        feed.over();
        assert_eq!(feed.parser.open(), 0);
    }
}

#[test]
fn exchanges_outside_a_hole_are_correct() {
    let intact = conversation();
    let mut feed = Feed::default();
    intact.iter().for_each(|(from, bytes)| feed.send(*from, bytes));
    let whole: Vec<_> = feed.over().iter().map(essence).collect();
    let mut texts = feed.sink.texts;
    let (mut right, mut doubted) = (0, 0);
    for entry in 0..intact.len() {
        let length = intact[entry].1.len();
        for start in (0..length).step_by(7) {
            for end in (start + 1..=length).step_by(11) {
                // The same texts, so that the method numbers are the same.
                let mut feed = Feed {
                    sink: Sink { texts: std::mem::take(&mut texts), ..Sink::default() },
                    ..Feed::default()
                };
                for (number, (from, bytes)) in intact.iter().enumerate() {
                    if number != entry {
                        feed.send(*from, bytes);
                        continue;
                    }
                    feed.send(*from, &bytes[..start]);
                    feed.miss(*from, (end - start) as u64, false);
                    feed.send(*from, &bytes[end..]);
                }
                for exchange in feed.over() {
                    if exchange.doubts.hole {
                        doubted += 1;
                    } else {
                        let mut known = essence(&exchange);
                        let same = whole.iter().find(|other| (other.0, other.1) == (known.0, known.1));
                        if let Some(same) = same.filter(|_| exchange.doubts.headers_unknown) {
                            // Unknown values are left open.
                            known.2 = if known.2 == TextId(0) { same.2 } else { known.2 };
                            known.3 = if known.3 == CallStatus::UNSET { same.3 } else { known.3 };
                        }
                        assert_eq!(Some(&known), same, "{entry} without {start}..{end}");
                        right += 1;
                    }
                }
                texts = feed.sink.texts;
            }
        }
    }
    assert!(right > doubted, "{right} right, {doubted} with a doubt");
}

#[test]
fn a_hole_in_a_body_keeps_the_position() {
    for cut in [false, true] {
        let mut feed = Feed::default();
        feed.hello();
        let data = frame(kind::DATA, flag::END_STREAM, 1, &message(1000));
        feed.send(C, &[request(1, 0), data[..100].to_vec()].concat());
        feed.miss(C, 700, cut);
        feed.send(C, &data[800..]);
        feed.send(S, &[response(1), trailers(1)].concat());
        let exchanges = feed.over();
        let [call] = &exchanges[..] else { panic!("{exchanges:?}") };
        assert_eq!((call.request.body_bytes, call.request.messages, call.doubts.hole), (1005, 1, !cut));
        assert_eq!(feed.sink.counts, Default::default());
    }
}

#[test]
fn frames_are_found_again_after_a_larger_hole() {
    let mut feed = Feed::default();
    feed.hello();
    feed.send(C, &request(1, 0));
    feed.miss(C, 300, false);
    let next = [request(5, 0), frame(kind::DATA, flag::END_STREAM, 5, &message(9))].concat();
    feed.send(C, &[vec![0xee; 77], next].concat());
    feed.send(S, &[response(5), trailers(5)].concat());
    let exchanges = feed.over();
    let seen: Vec<_> = exchanges.iter().map(|e| (e.stream_id, e.doubts.hole, e.ended)).collect();
    assert_eq!(seen, [(5, false, Ended::Complete), (1, true, Ended::CaptureEnded)]);
    assert_eq!((feed.sink.counts.resyncs, feed.sink.counts.bytes_skipped), (1, 377));
}

#[test]
fn swapped_sides_are_detected() {
    let mut feed = Feed { joined: true, ..Feed::default() };
    let data = |stream| frame(kind::DATA, flag::END_STREAM, stream, &message(9));
    feed.send(C, &[response(1), data(1)].concat());
    assert_eq!(feed.parser.client(), Some(S));
    feed.send(S, &[request(3, 0), data(3)].concat());
    feed.send(C, &[response(3), trailers(3)].concat());
    let exchanges = feed.over();
    assert_eq!(exchanges.iter().map(|e| e.stream_id).collect::<Vec<_>>(), [3]);
}

/// Many calls, with as many in flight as allowed or fewer.
fn calls(feed: &mut Feed, at_once: usize, late: u32) -> usize {
    feed.hello();
    feed.send(S, &frame(kind::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 4]));
    feed.send(C, &frame(kind::SETTINGS, flag::ACK, 0, &[]));
    let mut open = std::collections::VecDeque::new();
    for call in 0..20 {
        let stream = call * 2 + 1;
        if open.len() == at_once {
            let oldest = open.pop_front().unwrap();
            feed.send(S, &[response(oldest), trailers(oldest)].concat());
            feed.packet += u64::from(late);
        }
        feed.send(C, &request(stream, flag::END_STREAM));
        open.push_back(stream);
    }
    feed.over();
    feed.sink.episodes.iter().filter(|(_, episode)| episode.cause == Cause::StreamLimit).count()
}

#[test]
fn the_stream_limit_is_found_when_reached() {
    let mut feed = Feed::default();
    assert_eq!(calls(&mut feed, 4, 0), 16);
    let episode = &feed.sink.episodes[0].1;
    assert!(matches!(episode.certainty, spangap_model::evidence::Certainty::Possible { .. }));
    assert_eq!((episode.side, episode.sender, episode.stream_id), (Some(C), C, Some(9)));
    let packets: Vec<_> = episode.evidence.iter().map(|evidence| evidence.packet).collect();
    assert_eq!(packets, [4, 10, 11], "SETTINGS, the end of stream 1, the request of stream 9");
    assert_eq!((episode.from_ns, episode.to_ns), (9_000, 11_000));
    assert_eq!(calls(&mut Feed::default(), 3, 0), 0, "one below the limit");
    // A slot that stayed free proves no wait: the episode ends where it became free, and a span must confirm it.
    let mut late = Feed::default();
    assert_eq!(calls(&mut late, 4, 5_000), 16);
    for (_, episode) in &late.sink.episodes {
        let [_, freed, opened] = episode.evidence.iter().collect::<Vec<_>>()[..] else {
            panic!("{episode:?}")
        };
        assert_eq!(episode.to_ns, freed.time_ns);
        assert!(opened.time_ns > freed.time_ns + 5_000_000, "{episode:?}");
    }
    let mut forgotten = Feed::default();
    assert_eq!(calls(&mut forgotten, 4, 1_100_000), 0, "a place that was free for a second");
}

#[test]
fn a_used_up_window_stalls_its_sender() {
    for (whole, update, shown) in [(100_000, 1, true), (65_530, 1, false), (100_000, 0, true)] {
        let mut feed = Feed::default();
        feed.hello();
        feed.send(C, &request(1, flag::END_STREAM));
        if update == 1 {
            // Only the stream's window is the short one.
            feed.send(C, &frame(kind::WINDOW_UPDATE, 0, 0, &[0, 16, 0, 0]));
        }
        feed.send(S, &response(1));
        let body = message(whole);
        for part in body[..65_535].chunks(16_384) {
            feed.send(S, &frame(kind::DATA, 0, 1, part));
        }
        let last = feed.packet;
        feed.send(C, &frame(kind::WINDOW_UPDATE, 0, update, &[0, 1, 0, 0]));
        if update == 0 {
            feed.send(C, &frame(kind::WINDOW_UPDATE, 0, 1, &[0, 1, 0, 0]));
        }
        let next = feed.offsets[1];
        feed.send(S, &frame(kind::DATA, 0, 1, &[&body[65_535..], &message(9)].concat()[..14]));
        let episodes: Vec<_> = feed.sink.episodes.iter().map(|(_, episode)| episode.clone()).collect();
        assert_eq!(episodes.len(), 2 - update as usize, "{episodes:?}");
        let episode = &episodes[episodes.len() - 1];
        assert_eq!(episode.certainty == spangap_model::evidence::Certainty::Shown, shown);
        assert_eq!((episode.cause, episode.side, episode.sender), (Cause::FlowControl, Some(C), S));
        assert_eq!((episode.stream_id, episode.start), (Some(1), next));
        assert_eq!((episode.from_ns, episode.to_ns), (last as i64 * 1000, feed.packet as i64 * 1000));
    }
}

#[test]
fn sufficient_or_unknown_windows_stall_nobody() {
    for (joined, bytes) in [(false, 65_534), (true, 65_535)] {
        let mut feed = Feed { joined, ..Feed::default() };
        if !joined {
            feed.hello();
        }
        feed.send(C, &request(1, flag::END_STREAM));
        feed.send(S, &response(1));
        let body = message(100_000);
        body[..bytes].chunks(16_384).for_each(|part| feed.send(S, &frame(kind::DATA, 0, 1, part)));
        feed.send(C, &frame(kind::WINDOW_UPDATE, 0, 0, &[0, 1, 0, 0]));
        feed.send(C, &frame(kind::WINDOW_UPDATE, 0, 1, &[0, 1, 0, 0]));
        feed.send(S, &frame(kind::DATA, 0, 1, &body[..10]));
        assert_eq!(feed.sink.episodes, []);
    }
}

#[test]
fn a_response_behind_another_is_found() {
    for (length, split, found) in [(100_000, false, 1), (30_000, false, 0), (100_000, true, 0)] {
        let mut feed = Feed::default();
        feed.hello();
        feed.send(C, &[request(1, flag::END_STREAM), request(3, flag::END_STREAM)].concat());
        feed.send(S, &response(1));
        let mut bytes: Vec<u8> =
            message(length).chunks(16_384).flat_map(|part| frame(kind::DATA, 0, 1, part)).collect();
        if split {
            feed.send(S, &bytes);
            bytes.clear();
        }
        feed.send(S, &[bytes, response(3), trailers(3)].concat());
        let lines =
            feed.sink.episodes.iter().filter(|(_, e)| e.cause == Cause::HeadOfLine && e.stream_id == Some(3));
        assert_eq!(lines.count(), found);
    }
}

#[test]
fn a_large_response_continues_across_small_ones() {
    // The time between the two halves of a large response, during which the server sends nothing.
    for (pause_ms, begins) in [(0, true), (11, false)] {
        let mut feed = Feed::default();
        feed.hello();
        feed.send(C, &[request(1, 0), request(3, 0), request(5, 0)].concat());
        feed.send(S, &response(1));
        let part = |parts: usize| frame(kind::DATA, 0, 1, &vec![0; 16_000]).repeat(parts);
        feed.send(S, &part(5));
        let first = feed.packet;
        feed.send(S, &[part(1), response(3), frame(kind::DATA, 0, 3, &message(5)), trailers(3)].concat());
        feed.packet += pause_ms * 1_000;
        let second = feed.packet + 1;
        feed.send(S, &part(5));
        feed.send(S, &[part(1), frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 1, 0]), response(5)].concat());
        let lines: Vec<_> =
            feed.sink.episodes.iter().map(|(_, e)| (e.cause, e.stream_id, e.from_ns)).collect();
        let from = if begins { first } else { second } as i64 * 1000;
        let behind = |stream, from| (Cause::HeadOfLine, Some(stream), from);
        assert_eq!(lines, [behind(3, first as i64 * 1000), behind(5, from)], "{pause_ms} ms");
    }
}

use super::*;
use crate::app::testing::{CONTEXT, at, chunk, hole};
use crate::exchange::{Ended, Exchange};
use proptest::prelude::*;

use Side::{Client as C, Server as S};

/// Plays a conversation of both sides, with a time for each event.
fn said(context: Context, events: &[(Side, &[u8])]) -> (Sink, Http1) {
    let (mut http, mut sink, mut offsets) = (Http1::default(), Sink::default(), [100u64, 900]);
    for (time, (from, bytes)) in events.iter().enumerate() {
        let offset = &mut offsets[from.index()];
        http.bytes(context, chunk(*from, *offset, bytes, time as i64), &mut sink);
        *offset += bytes.len() as u64;
    }
    (sink, http)
}

fn exchanges(events: &[(Side, &[u8])]) -> Vec<Exchange> {
    let (mut sink, mut http) = said(CONTEXT, events);
    http.finish(CONTEXT, true, &mut sink);
    sink.exchanges
}

#[test]
fn one_call_has_its_marks_method_status_and_trace() {
    let request = b"POST /a/b?q=1 HTTP/1.1\r\nHost: x\r\ntraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\nContent-Length: 4\r\n\r\nabcd";
    let (sink, _) = said(
        CONTEXT,
        &[
            (C, &request[..30]),
            (C, &request[30..]),
            (S, b"HTTP/1.1 100 Continue\r\n\r\n"),
            (S, b"HTTP/1.1 503 No\r\ncontent-length: 3\r\n\r\n"),
            (S, b"abc"),
        ],
    );
    let [exchange] = &sink.exchanges[..] else { panic!("{:?}", sink.exchanges) };
    assert_eq!(sink.texts.text(exchange.method).as_deref(), Some("POST /a/b"));
    assert_eq!(exchange.status.name(), "http_5xx");
    assert_eq!(exchange.trace.map(|trace| trace.span_id), Some(0x00f0_67aa_0ba9_02b7u64.to_be_bytes()));
    let (request_part, response) = (exchange.request, exchange.response.unwrap());
    assert_eq!(
        (request_part.start, request_part.end, request_part.body_bytes),
        (100, 100 + request.len() as u64, 4)
    );
    assert_eq!((request_part.first, request_part.last), (at(0), at(1)));
    assert_eq!((response.start, response.first, response.last, response.body_bytes), (925, at(3), at(4), 3));
    assert_eq!((exchange.ended, exchange.stream_id, exchange.in_flight), (Ended::Complete, 1, 1));
    assert_eq!(sink.counts, Default::default());
}

#[test]
fn bodies_end_at_the_right_byte() {
    let all = exchanges(&[
        (C, b"HEAD / HTTP/1.1\r\n\r\n"),
        (S, b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n"),
        (C, b"GET /304 HTTP/1.1\r\n\r\n"),
        (S, b"HTTP/1.1 304 Not Modified\r\ncontent-length: 100\r\n\r\n"),
        (C, b"DELETE /204 HTTP/1.1\r\n\r\n"),
        (S, b"HTTP/1.1 204 No Content\r\n\r\n"),
        (
            C,
            b"PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ),
        (S, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nx: y\r\n\r\n"),
        (C, b"GET /rest HTTP/1.0\r\n\r\n"),
        (S, b"HTTP/1.0 200 OK\r\n\r\nall that"),
        (S, b" comes"),
    ]);
    let bodies: Vec<_> =
        all.iter().map(|one| (one.request.body_bytes, one.response.unwrap().body_bytes)).collect();
    assert_eq!(bodies, [(0, 0), (0, 0), (0, 0), (3, 2), (0, 14)]);
    assert_eq!(
        all[4].ended,
        Ended::ConnectionClosed,
        "without a FIN nobody knows whether more would have come"
    );
    assert!(all.iter().all(|one| one.doubts == Default::default()));
    let (mut sink, mut http) =
        said(CONTEXT, &[(C, b"GET / HTTP/1.0\r\n\r\n"), (S, b"HTTP/1.0 200 OK\r\n\r\nall")]);
    http.fin(CONTEXT, S, &mut sink);
    assert_eq!(sink.exchanges[0].ended, Ended::Complete);
}

#[test]
fn statuses_match_the_wire() {
    let all = exchanges(&[
        (C, b"GET /hints HTTP/1.1\r\n\r\nHEAD /gone HTTP/1.1\r\n\r\nGET /same HTTP/1.1\r\n\r\n"),
        (S, b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
        (S, b"HTTP/1.1 404 Not Found\r\ncontent-length: 99\r\n\r\nHTTP/1.1 304 Not Modified\r\n\r\n"),
        (C, b"POST /busy HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n"),
        (S, b"HTTP/1.1 100 Continue\r\n\r\n"),
        (C, b"x"),
        (S, b"HTTP/1.1 429 Slow Down\r\ncontent-length: 0\r\n\r\n"),
        (C, b"DELETE /it HTTP/1.1\r\n\r\n"),
        (S, b"HTTP/1.1 204 No Content\r\n\r\n"),
        (C, b"GET /never HTTP/1.1\r\n\r\n"),
    ]);
    let statuses: Vec<_> = all.iter().map(|one| one.http_status).collect();
    assert_eq!(statuses, [Some(200), Some(404), Some(304), Some(429), Some(204), None]);
    assert!(all.iter().all(|one| one.doubts == Default::default()));
}

#[test]
fn an_early_response_waits_for_the_end_of_its_request() {
    let all = exchanges(&[
        (C, b"POST / HTTP/1.1\r\ncontent-length: 6\r\n\r\nabc"),
        (S, b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n"),
        (C, b"def"),
        (C, b"GET / HTTP/1.1\r\n\r\n"),
    ]);
    assert_eq!((all.len(), all[0].request.last, all[0].ended), (2, at(2), Ended::Complete));
    assert_eq!((all[1].response, all[1].ended), (None, Ended::ConnectionClosed));
}

#[test]
fn bytes_after_an_upgrade_are_a_separate_conversation() {
    let upgrade: &[(Side, &[u8])] = &[
        (C, b"GET /chat HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"),
        (S, b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n\x81\x02hi"),
        (C, b"\x81\x82abcdef"),
        (S, b"\x81\x01a"),
    ];
    let all = exchanges(upgrade);
    assert_eq!(
        all.iter().map(|one| (one.protocol, one.stream_id)).collect::<Vec<_>>(),
        [(Protocol::Http1, 1), (Protocol::Turns, 2)]
    );
    assert_eq!(all[1].response.unwrap().start, 900 + 46 + 4);

    let inside: &[(Side, &[u8])] = &[
        (C, b"CONNECT far:80 HTTP/1.1\r\n\r\n"),
        (S, b"HTTP/1.1 200 Fine\r\n\r\n"),
        (C, b"GET /far HTTP/1.1\r\n\r\n"),
        (S, b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n"),
    ];
    let (sink, http) = said(CONTEXT, inside);
    assert_eq!(sink.exchanges.iter().map(|one| one.stream_id).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(sink.exchanges[1].status.name(), "http_4xx");
    assert_eq!(http.protocol(), Protocol::Http1);
}

#[test]
fn the_answer_to_an_upgrade_to_http2_comes_over_http2() {
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    // `:status: 404`, and the end of the headers and the stream.
    let headers = |stream: u8| [0, 0, 1, 1, 5, 0, 0, 0, stream, 0x8d];
    let switching = b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\n\r\n";
    let answer = [&switching[..], &settings, &headers(1)].concat();
    // `:method: GET` and `:path: /`.
    let more =
        [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings, &[0, 0, 2, 1, 5, 0, 0, 0, 3, 0x82, 0x84]]
            .concat();
    let request = b"GET /a?b HTTP/1.1\r\nUpgrade: h2c\r\nHTTP2-Settings: \r\n\r\n";
    let (sink, http) = said(CONTEXT, &[(C, request), (S, &answer), (C, &more), (S, &headers(3))]);
    let calls = sink.exchanges.iter().map(|one| {
        (
            one.protocol,
            one.stream_id,
            sink.texts.text(one.method).unwrap_or_default(),
            one.status.name(),
            one.ended,
        )
    });
    assert_eq!(
        calls.collect::<Vec<_>>(),
        [
            (Protocol::Http2, 1, "/a".to_owned(), "http_4xx", Ended::Complete),
            (Protocol::Http2, 3, "/".to_owned(), "http_4xx", Ended::Complete)
        ]
    );
    let first = &sink.exchanges[0];
    assert_eq!((first.request.start, first.request.end), (100, 100 + request.len() as u64));
    assert_eq!(first.response.map(|part| part.start), Some(900 + (switching.len() + settings.len()) as u64));
    assert_eq!(http.protocol(), Protocol::Http2);
}

#[test]
fn the_end_of_a_body_is_no_method() {
    // The beginning of this body went another way.
    let body = [&[b'y'; 40][..], b"GET /b HTTP/1.1\r\n\r\n"].concat();
    let (sink, _) =
        said(CONTEXT, &[(C, b"GET /a HTTP/1.1\r\n\r\n"), (S, b"HTTP/1.1 204 No\r\n\r\n"), (C, &body)]);
    assert_eq!(sink.exchanges.len(), 1);
    assert_eq!(sink.counts.resyncs, 1);
}

#[test]
fn nesting_of_proxies_is_bounded() {
    let round: [(Side, &[u8]); 2] = [(C, b"CONNECT a:1 HTTP/1.1\r\n\r\n"), (S, b"HTTP/1.1 200 Fine\r\n\r\n")];
    let all = exchanges(&round.repeat(10_000));
    let (tunnels, turns): (Vec<_>, Vec<_>) = all.iter().partition(|one| one.protocol == Protocol::Http1);
    assert!(tunnels.len() < 10 && turns.len() > 9_000);
}

#[test]
fn a_hole_in_a_body_of_known_length_keeps_the_position() {
    let (mut sink, mut http) = said(
        CONTEXT,
        &[(C, b"GET / HTTP/1.1\r\n\r\n"), (S, b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n")],
    );
    let offset = 900 + 39;
    http.hole(CONTEXT, hole(S, offset, 20, 5, true), &mut sink);
    http.hole(CONTEXT, hole(S, offset + 20, 30, 6, false), &mut sink);
    let exchange = &sink.exchanges[0];
    assert_eq!((exchange.doubts.hole, exchange.response.unwrap().body_bytes), (true, 50));
    assert_eq!(sink.counts.resyncs, 0);
}

#[test]
fn heads_cut_by_the_snap_length_still_make_exchanges() {
    let (mut http, mut sink) = (Http1::default(), Sink::default());
    let (mut offsets, mut time) = ([100u64, 900], 0);
    let mut packet = |from: Side, bytes: &[u8], cut: u64| {
        time += 1;
        let offset = &mut offsets[from.index()];
        http.bytes(CONTEXT, chunk(from, *offset, bytes, time), &mut sink);
        *offset += bytes.len() as u64;
        http.hole(CONTEXT, hole(from, *offset, cut, time, true), &mut sink);
        *offset += cut;
    };
    for _ in 0..3 {
        packet(C, b"GET /path?q=longer", 100);
        packet(S, b"HTTP/1.1 200 OK\r\nContent-", 1000);
        packet(S, b"rest of the body", 1000);
    }
    packet(C, b"GET /path-of-which-th", 100);
    http.finish(CONTEXT, false, &mut sink);
    assert_eq!(sink.exchanges.len(), 4);
    for (at_, exchange) in sink.exchanges[..3].iter().enumerate() {
        let time = 3 * at_ as i64 + 1;
        let response = exchange.response.unwrap();
        assert_eq!((exchange.request.first, response.first), (at(time), at(time + 1)));
        assert_eq!(sink.texts.text(exchange.method).as_deref(), Some("GET /path"));
        assert!(exchange.doubts.headers_unknown && !exchange.doubts.hole && !exchange.doubts.turns_overlap);
        assert_eq!(exchange.status.name(), "http_2xx");
    }
    assert_eq!(sink.exchanges[0].response.unwrap().last, at(3));
    assert_eq!(sink.exchanges[3].method, TextId::default(), "half a path is no path");
}

#[test]
fn a_joined_connection_continues_at_the_next_message() {
    let context = Context { from_start: false, ..CONTEXT };
    let (sink, _) = said(
        context,
        &[
            (S, b"the rest of some body"),
            (C, b"GET /1 HTTP/1.1\r\n\r\n"),
            (S, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab"),
            (C, b"GET /2 HTTP/1.1\r\n\r\n"),
            (S, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab"),
        ],
    );
    let doubts: Vec<_> = sink.exchanges.iter().map(|one| one.doubts.turns_overlap).collect();
    assert_eq!(doubts, [true, false], "the first response may answer a request from before");
}

/// A call of a simulated client.
#[derive(Clone, Debug)]
struct Made {
    request: Vec<u8>,
    response: Vec<u8>,
    code: u16,
    bodies: (u64, u64),
}

fn made(at: usize, kind: u8, len: usize) -> Made {
    let body = "x".repeat(len);
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", len.max(1)).replace("\r\n\r\n0", "\r\n0");
    let (method, code, response, received) = match kind % 6 {
        0 => ("GET", 200, format!("content-length: {len}\r\n\r\n{body}"), len),
        1 if len > 0 => ("GET", 200, format!("transfer-encoding: chunked\r\n\r\n{chunked}"), len),
        2 => ("HEAD", 200, format!("content-length: {len}\r\n\r\n"), 0),
        3 => ("GET", 304, "\r\n".into(), 0),
        4 => ("GET", 500, format!("content-length: {len}\r\nx: \r\n y\r\n\r\n{body}"), len),
        _ => ("POST", 204, "\r\n".into(), 0),
    };
    let (sent, request) = match method {
        "POST" => (len as u64, format!("POST /{at} HTTP/1.1\r\ncontent-length: {len}\r\n\r\n{body}")),
        _ => (0, format!("{method} /{at}?q HTTP/1.1\r\nhost: x\r\n\r\n")),
    };
    let interim = if kind > 200 { "HTTP/1.1 103 Early\r\nlink: x\r\n\r\n" } else { "" };
    let response = format!("{interim}HTTP/1.1 {code} Words\r\n{response}");
    Made { request: request.into(), response: response.into(), code, bodies: (sent, received as u64) }
}

/// Bytes of one side in pieces.
fn pieces(from: Side, bytes: &[u8], piece: usize) -> impl Iterator<Item = (Side, &[u8])> {
    bytes.chunks(piece).map(move |piece| (from, piece))
}

proptest! {
    #[test]
    fn pipelined_calls_round_trip(calls in prop::collection::vec((any::<u8>(), 0usize..40), 1..12), depth in 1usize..5, piece in 1usize..60) {
        let calls: Vec<Made> = calls.iter().enumerate().map(|(at, (kind, len))| made(at, *kind, *len)).collect();
        let batches: Vec<(Vec<u8>, Vec<u8>)> = calls.chunks(depth).map(|batch| {
            (batch.iter().flat_map(|call| call.request.clone()).collect(), batch.iter().flat_map(|call| call.response.clone()).collect())
        }).collect();
        let events: Vec<_> = batches.iter().flat_map(|(c, s)| pieces(C, c, piece).chain(pieces(S, s, piece))).collect();
        let (sink, http) = said(CONTEXT, &events);
        prop_assert_eq!(http.open(), 0);
        prop_assert_eq!(sink.counts, Default::default());
        prop_assert_eq!(sink.exchanges.len(), calls.len());
        for (at, (exchange, call)) in sink.exchanges.iter().zip(&calls).enumerate() {
            let method = sink.texts.text(exchange.method).unwrap();
            let suffix = format!("/{at}");
            prop_assert!(method.ends_with(&suffix));
            prop_assert_eq!(exchange.http_status, Some(call.code));
            prop_assert_eq!((exchange.request.body_bytes, exchange.response.unwrap().body_bytes), call.bodies);
            prop_assert_eq!(exchange.request.end - exchange.request.start, call.request.len() as u64);
            prop_assert_eq!(exchange.doubts, Default::default());
            prop_assert_eq!(exchange.ended, Ended::Complete);
        }
    }

    /// Whatever packets are missing, an exchange without a doubt is a real one.
    #[test]
    fn wrong_pairs_after_holes_are_marked_doubtful(
        calls in prop::collection::vec((any::<u8>(), 0usize..400), 2..12),
        depth in 1usize..4,
        lost in prop::collection::vec(prop::bool::weighted(0.2), 80),
        late in any::<bool>(),
    ) {
        let calls: Vec<Made> = calls.iter().enumerate().map(|(at, (kind, len))| {
            // The path of a call and the length of its response identify both.
            let mut call = made(at, *kind, *len);
            let code = 200 + at as u16;
            if call.code != 304 && call.code != 204 {
                call.response = String::from_utf8(call.response).unwrap().replace(&format!(" {} Words", call.code), &format!(" {code} {at}")).into();
            }
            call
        }).collect();
        let (mut http, mut sink, mut offsets) = (Http1::default(), Sink::default(), [100u64, 900]);
        let (mut lost, mut time, mut starts) = (lost.into_iter().cycle(), 0, Vec::new());
        let mut held: [Option<Hole>; 2] = [None, None];
        for batch in calls.chunks(depth) {
            let mut places = Vec::new();
            for from in [C, S] {
                for (at, call) in batch.iter().enumerate() {
                    let bytes = if from == C { &call.request } else { &call.response };
                    // Start of its final status line.
                    let skip = if from == S && bytes.starts_with(b"HTTP/1.1 103") { 31 } else { 0 };
                    let start = offsets[from.index()] + skip;
                    if from == C { places.push((start, 0)) } else { places[at].1 = start }
                    for piece in bytes.chunks(100) {
                        time += 1;
                        let (offset, side) = (offsets[from.index()], from.index());
                        offsets[side] += piece.len() as u64;
                        if lost.next() == Some(true) {
                            let missing = hole(from, offset, piece.len() as u64, time, false);
                            if late && held[side].is_none() {
                                held[side] = Some(missing);
                            } else if let Some(held) = &mut held[side] {
                                held.len += missing.len;
                            } else {
                                http.hole(CONTEXT, missing, &mut sink);
                            }
                            continue;
                        }
                        if let Some(hole) = held[side].take() {
                            http.hole(CONTEXT, hole, &mut sink);
                        }
                        http.bytes(CONTEXT, chunk(from, offset, piece, time), &mut sink);
                    }
                }
            }
            starts.extend(places);
        }
        http.finish(CONTEXT, true, &mut sink);
        for exchange in sink.exchanges.iter().filter(|one| one.doubts == Default::default()) {
            let Some(response) = exchange.response else { continue };
            prop_assert!(starts.contains(&(exchange.request.start, response.start)), "{exchange:?} of {starts:?}");
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(events in prop::collection::vec(
        (any::<bool>(), any::<bool>(), "(GET / HTTP/1.1|HTTP/1.[01] (200|101|204) x|\r\n|content-length: [0-9]{1,3}|transfer-encoding: chunked|CONNECT x HTTP/1.1|[0-9a-f;]{0,3}|\\PC{0,5}){0,9}"), 0..12)) {
        let (mut http, mut sink, mut offsets) = (Http1::default(), Sink::default(), [0u64; 2]);
        for (client, missing, text) in &events {
            let from = if *client { C } else { S };
            let offset = &mut offsets[from.index()];
            if *missing && !text.is_empty() {
                http.hole(CONTEXT, hole(from, *offset, text.len() as u64, 1, *client), &mut sink);
            } else {
                http.bytes(CONTEXT, chunk(from, *offset, text.as_bytes(), 1), &mut sink);
            }
            *offset += text.len() as u64;
        }
        http.finish(CONTEXT, false, &mut sink);
        prop_assert_eq!(http.open(), 0);
    }
}

/// Real messages with a few bytes changed, removed or duplicated, cut into pieces: no panic, and memory stays
/// bounded.
#[test]
fn mutated_messages_are_read_without_a_panic() {
    let calls: Vec<Made> = (0..12).map(|at| made(at, at as u8, 3 * at)).collect();
    let whole: [Vec<u8>; 2] = [
        calls.iter().flat_map(|call| call.request.clone()).collect(),
        calls.iter().flat_map(|call| call.response.clone()).collect(),
    ];
    let mut seed = 7u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below.max(1)
    };
    for _ in 0..20_000 {
        let mut both = whole.clone();
        for bytes in &mut both {
            for _ in 0..1 + random(4) {
                let place = random(bytes.len());
                match random(3) {
                    0 => bytes[place] = random(256) as u8,
                    1 => drop(bytes.drain(place..(place + random(20)).min(bytes.len()))),
                    _ => bytes.extend_from_within(place..(place + random(20)).min(bytes.len())),
                }
            }
        }
        let (mut http, mut sink, mut done) = (Http1::default(), Sink::default(), [0usize; 2]);
        while done[0] < both[0].len() || done[1] < both[1].len() {
            let from = if random(2) == 0 { C } else { S };
            let (bytes, at) = (&both[from.index()], &mut done[from.index()]);
            let end = (*at + 1 + random(300)).min(bytes.len());
            http.bytes(CONTEXT, chunk(from, *at as u64, &bytes[*at..end], 1), &mut sink);
            *at = end;
        }
        http.finish(CONTEXT, true, &mut sink);
        assert!(http.memory_bytes() < 1 << 20);
        assert!(sink.exchanges.len() < 100);
    }
}

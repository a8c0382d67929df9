//! Captures of real programs, read from the file to the exchange: HTTP/1 in clear text and inside TLS.

use spangap_wire::call::{Call, LegTime};
use spangap_wire::dissect::{Settings, dissect};
use spangap_wire::exchange::{Ended, Exchange, Protocol};
use spangap_wire::source::Capture;
use spangap_wire::tap::{Tap, TapCounts};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::Command;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures").join(name)
}

/// Exchanges of a capture with their methods, its counts, and the protocol of its first connection.
fn read(name: &str, keys: Option<&str>) -> (Vec<(Exchange, String)>, TapCounts, Protocol) {
    let mut capture = Capture::open(&path(name)).expect("a fixture");
    let mut tap = Tap::default();
    if let Some(keys) = keys {
        assert!(tap.add_keys(&std::fs::read(path(keys)).expect("a fixture")).is_empty());
    }
    let mut protocol = Protocol::Turns;
    while let Some(packet) = capture.next() {
        tap.packet(&packet);
        if let Some(connection) = tap.connections().first() {
            protocol = connection.protocol;
        }
    }
    tap.finish();
    let mut exchanges = Vec::new();
    tap.take_exchanges(&mut exchanges);
    let named = exchanges.into_iter().map(|one| {
        let method = tap.texts().text(one.method).unwrap_or_default();
        (one, method)
    });
    (named.collect(), tap.counts(), protocol)
}

/// curl's requests: `/10`, `/20`, ... `/200`, each with a response of that many bytes.
fn check_fetches(name: &str, exchanges: &[(Exchange, String)]) {
    let methods: Vec<_> = exchanges.iter().map(|(_, method)| method.clone()).collect();
    let expected: Vec<_> = (10..=200).step_by(10).map(|bytes| format!("GET /{bytes}")).collect();
    assert_eq!(methods, expected, "{name}");
    for (at, (exchange, _)) in exchanges.iter().enumerate() {
        let response = exchange.response.expect("an answer");
        assert_eq!((exchange.protocol, exchange.ended), (Protocol::Http1, Ended::Complete), "{name}");
        assert_eq!(exchange.status.name(), "http_2xx");
        assert_eq!(response.body_bytes, 10 * (at as u64 + 1));
        assert_eq!(exchange.doubts, Default::default());
        assert!(exchange.request.first.seen_ns <= exchange.request.last.seen_ns);
        assert!(exchange.request.last.seen_ns <= response.first.seen_ns && response.start < response.end);
    }
}

#[test]
fn https_is_decrypted_with_its_keys_equally_at_both_ends() {
    for name in ["tls13-http1", "tls13-chacha", "tls12-http1", "tls12-chacha"] {
        let keys = format!("{name}.keys");
        let [client, server] = ["client", "server"].map(|end| {
            let (exchanges, counts, _) = read(&format!("{name}.{end}.pcapng"), Some(&keys));
            check_fetches(name, &exchanges);
            assert_eq!(counts.app, Default::default(), "{name}");
            exchanges
        });
        for ((client, _), (server, _)) in client.iter().zip(&server) {
            assert_eq!(client.request.start as u32, server.request.start as u32, "{name}");
            assert_eq!(client.request.end as u32, server.request.end as u32, "{name}");
        }
    }
}

#[test]
fn https_without_keys_is_turns_without_the_handshake() {
    for name in ["tls13-http1", "tls13-chacha", "tls12-http1", "tls12-chacha", "tls12-cbc"] {
        let (exchanges, counts, protocol) = read(&format!("{name}.client.pcapng"), None);
        assert_eq!((exchanges.len(), protocol), (20, Protocol::Tls), "{name}");
        assert!(exchanges.iter().all(|(one, _)| one.protocol == Protocol::Tls && one.response.is_some()));
        assert!(exchanges.iter().all(|(one, _)| !one.doubts.turns_overlap), "{name}: one at a time");
        let tickets: Vec<_> = exchanges.iter().map(|(one, _)| one.doubts.tickets).collect();
        assert!(tickets[1..].iter().all(|tickets| !tickets), "{name}");
        assert_eq!(tickets[0], name.starts_with("tls13"), "only there tickets come unseen");
        assert_eq!(counts.app, Default::default());
    }
}

/// The calls of both ends, in order.
fn calls(name: &str, keys: bool) -> Vec<Call> {
    let ends = ["client", "server"].map(|end| Capture::open(&path(&format!("{name}.{end}.pcapng"))));
    let key_log =
        if keys { std::fs::read(path(&format!("{name}.keys"))).expect("a fixture") } else { Vec::new() };
    let settings = Settings { slowest: 100, same_clock: true, key_log, ..Settings::default() };
    let opened = ends.into_iter().map(|end| end.expect("a fixture")).collect();
    let dissection = dissect(opened, &settings, &mut |_| ControlFlow::Continue(())).expect("files");
    let mut calls = dissection.calls;
    calls.sort_by_key(|call| call.start_ns);
    calls
}

#[test]
fn a_session_ticket_is_not_the_beginning_of_a_response() {
    for name in ["tls13-http1", "tls13-chacha", "tls12-http1"] {
        let (opaque, open) = (calls(name, false), calls(name, true));
        assert_eq!((opaque.len(), open.len()), (20, 20), "{name}");
        let mut earlier = 0;
        for (nth, (opaque, open)) in opaque.iter().zip(&open).enumerate() {
            let response = |call: &Call| {
                let half = call.halves.exchanges[1].as_ref();
                half.and_then(|half| half.response).expect("a response").first.seen_ns
            };
            earlier += usize::from(response(opaque) < response(open));
            // Legs that the keys separate are one leg without them, with the same total time.
            for leg in &opaque.legs {
                let inside =
                    |part: &&LegTime| leg.legs.first <= part.legs.first && part.legs.last <= leg.legs.last;
                let sum: i64 = open.legs.iter().filter(inside).map(|part| part.ns).sum();
                assert!(leg.ns.abs_diff(sum) <= 2, "{name}, call {nth}: {leg:?}, {sum} ns with the keys");
            }
        }
        assert_eq!(earlier, usize::from(name.starts_with("tls13")), "{name}: tickets came first");
    }
}

#[test]
fn http2_inside_tls_is_read_as_in_clear_text() {
    let [client, server] = ["client", "server"].map(|end| {
        let (exchanges, counts, protocol) =
            read(&format!("tls13-http2.{end}.pcapng"), Some("tls13-http2.keys"));
        assert_eq!((exchanges.len(), counts.app), (20, Default::default()));
        assert_eq!(protocol, Protocol::Grpc, "its content-type is application/grpc");
        exchanges
    });
    for (bytes, ((client, path), (server, _))) in (10..=200).step_by(10).zip(client.iter().zip(&server)) {
        assert_eq!(path, &format!("/{bytes}"));
        assert_eq!((client.stream_id, client.status), (server.stream_id, server.status));
        assert_eq!(client.request.start as u32, server.request.start as u32);
        assert_eq!(
            client.response.map(|one| (one.start as u32, one.body_bytes)),
            server.response.map(|one| (one.start as u32, one.body_bytes))
        );
        assert_eq!(
            client.response.map(|one| (one.body_bytes, one.messages)),
            Some((5, 1)),
            "an empty message each"
        );
    }
}

#[test]
fn an_unsupported_cipher_is_counted() {
    let (exchanges, counts, protocol) = read("tls12-cbc.client.pcapng", Some("tls12-cbc.keys"));
    assert_eq!((exchanges.len(), protocol), (20, Protocol::Tls));
    assert!(counts.app.records_undecrypted >= 40);
}

/// Compares with tshark: first packet of each request and response, in order.
#[test]
fn the_packets_match_tshark() {
    for (name, keys) in [
        ("http1-keep-alive", None),
        ("http1-pipelined", None),
        ("tls13-http1", Some("tls13-http1.keys")),
        ("tls12-http1", Some("tls12-http1.keys")),
        ("tls13-chacha", Some("tls13-chacha.keys")),
    ] {
        let file = format!("{name}.client.pcapng");
        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(path(&file)).args(["-Y", "http", "-T", "fields", "-E", "occurrence=a"]);
        tshark.args(["-e", "frame.number", "-e", "http.request.uri", "-e", "http.response.code"]);
        tshark.args(["-d", "tcp.port==50051,http", "-o", "tcp.desegment_tcp_streams:true"]);
        if let Some(keys) = keys {
            tshark.args(["-d", "tcp.port==50051,tls", "-d", "tls.port==50051,http"]);
            tshark.arg("-o").arg(format!("tls.keylog_file:{}", path(keys).display()));
        }
        let Ok(output) = tshark.output() else {
            println!("not run: tshark is not installed");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let (mut requests, mut responses) = (Vec::new(), Vec::new());
        for line in text.lines() {
            let fields: Vec<_> = line.split('\t').collect();
            let packet: u64 = fields[0].parse().expect("a number");
            let [uris, codes] = [1, 2].map(|at| fields.get(at).copied().unwrap_or_default());
            requests
                .extend(uris.split(',').filter(|uri| !uri.is_empty()).map(|uri| (packet, uri.to_owned())));
            responses.extend(codes.split(',').filter(|code| !code.is_empty()).map(|_| packet));
        }
        let (exchanges, ..) = read(&file, keys);
        assert!(
            !requests.is_empty(),
            "tshark sees requests in {name}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let ours: Vec<_> = exchanges
            .iter()
            .map(|(one, method)| (one.request.last.packet, method.split_once(' ').unwrap().1.to_owned()))
            .collect();
        assert_eq!(ours, requests, "{name}");
        // tshark identifies a message by the packet with its last byte.
        let ours: Vec<_> = exchanges.iter().filter_map(|(one, _)| Some(one.response?.last.packet)).collect();
        assert_eq!(ours, responses, "{name}");
    }
}

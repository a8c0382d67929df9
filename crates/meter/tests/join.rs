//! The join, on encoded requests: every order of arrival, duplicates, attempts, eviction, expiry.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use proptest::prelude::*;
use prost::Message;
use spangap_meter::engine::{Meter, PairMinute, Settings};
use spangap_meter::ingest::named::Part;
use spangap_meter::pairs::{Ends, Grouping, PairLimits};
use spangap_model::{CallStatus, PairStats};

const CLIENT: i32 = 3;
const SERVER: i32 = 2;

fn attribute(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, any_value::Value::StringValue(value.into()))
}

fn span(kind: i32, trace: u64, id: u64, parent: u64, start: u64, duration: u64) -> Span {
    let mut trace_id = [7; 16];
    trace_id[..8].copy_from_slice(&trace.to_be_bytes());
    Span {
        kind,
        trace_id: trace_id.to_vec(),
        span_id: id.to_be_bytes().to_vec(),
        parent_span_id: if parent == 0 { Vec::new() } else { parent.to_be_bytes().to_vec() },
        start_time_unix_nano: start,
        end_time_unix_nano: start + duration,
        ..Span::default()
    }
}

fn request(service: &str, spans: Vec<Span>) -> Vec<u8> {
    let host = format!("host-of-{service}");
    let resource = Resource {
        attributes: vec![text("service.name", service), text("host.name", &host)],
        ..Resource::default()
    };
    let scope = ScopeSpans { spans, ..ScopeSpans::default() };
    let resource_spans =
        ResourceSpans { resource: Some(resource), scope_spans: vec![scope], ..ResourceSpans::default() };
    ExportTraceServiceRequest { resource_spans: vec![resource_spans] }.encode_to_vec()
}

/// Figures that must not depend on the order of arrival.
fn figures(meter: &Meter) -> String {
    let mut rows: Vec<String> = meter.totals().iter().map(|(key, s)| row(key, s)).collect();
    rows.sort();
    let accounting = meter.overview().accounting;
    assert!(accounting.holds(), "{accounting:?}");
    format!("{accounting:?}\n{}", rows.join("\n"))
}

fn row(key: &spangap_model::PairKey, s: &PairStats) -> String {
    let buckets =
        |h: &spangap_model::Histogram| (h.buckets().collect::<Vec<_>>(), h.zero_count(), h.sum_ns());
    let worst: Vec<_> = s.worst.iter().take(5).map(|w| (w.gap_ns, w.trace_id, w.client_span_id)).collect();
    format!(
        "{key:?} {:?} {:?} {:?} {:?} {} {} {worst:?}",
        buckets(&s.gap),
        buckets(&s.client),
        buckets(&s.server),
        s.negative,
        s.attempts_over_one,
        s.excluded_large,
    )
}

/// A plausible call, as its requests, with one span each.
fn a_call() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let durations = (1u64..50_000_000, 0u64..60_000_000);
    (any::<u64>(), 1u64..u64::MAX, durations, 0usize..4, any::<bool>(), 0u8..12).prop_map(
        |(trace, id, (client_ns, server_ns), servers, has_client, twist)| {
            let start = 1_700_000_000_000_000_000;
            let mut client = span(CLIENT, trace, id, 0, start, client_ns);
            client
                .attributes
                .push(attribute("rpc.grpc.status_code", any_value::Value::IntValue(twist as i64 % 3 * 2)));
            if twist == 0 {
                client
                    .attributes
                    .push(attribute("http.response.body.size", any_value::Value::IntValue(1 << 20)));
            }
            if twist == 1 {
                client.end_time_unix_nano = start - 1;
            }
            let mut all = Vec::new();
            if has_client {
                all.push(request("front", vec![client]));
            }
            for attempt in 0..servers as u64 {
                let parent = if twist == 2 { 0 } else { id };
                let server =
                    span(SERVER, trace, id.wrapping_add(attempt + 1), parent, start + 100, server_ns);
                all.push(request("back", vec![server]));
            }
            if twist == 3 {
                all.push(request("front", vec![span(1, trace, 99, id, start, 5)]));
            }
            if twist >= 9 {
                // Every span of this call is sent twice.
                all.extend(all.clone());
            }
            all
        },
    )
}

proptest! {
    #[test]
    fn figures_do_not_depend_on_the_order(calls in prop::collection::vec(a_call(), 1..40), seeds in prop::collection::vec(any::<u64>(), 2)) {
        let requests: Vec<Vec<u8>> = calls.into_iter().flatten().collect();
        let run = |seed: u64, lanes: usize| {
            let mut order: Vec<usize> = (0..requests.len()).collect();
            order.sort_by_key(|i| (*i as u64 + 1).wrapping_mul(seed | 1).rotate_left(17).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let meter = Meter::new(Settings { join_ttl_ms: None, lanes, ..Settings::default() });
            let send = |at: &usize| {
                assert_eq!(meter.ingest(&requests[*at], 0).unwrap().spans, 1);
                assert!(meter.overview().accounting.holds());
            };
            // Each thread prefers another lane.
            for part in order.chunks(7) {
                std::thread::scope(|scope| scope.spawn(|| part.iter().for_each(send)).join().unwrap());
            }
            meter.finish();
            figures(&meter)
        };
        let first = run(seeds[0], 1);
        for lanes in [1, 2, 7] {
            prop_assert_eq!(&first, &run(seeds[1], lanes));
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    /// Every span is in some class, however small the store is.
    #[test]
    fn the_identity_holds_under_eviction(ids in prop::collection::vec(1u64..60_000, 1..4), lanes in 1usize..4) {
        let limits = Settings { max_pending_bytes: 0, keep_bytes: 4096, join_ttl_ms: None, lanes, ..Settings::default() };
        let meter = Meter::new(limits);
        for seed in ids {
            let spans = (1..20_000u64).map(|i| {
                let id = (i * seed) % 60_000 + 1;
                let kind = if (i ^ seed) % 3 == 0 { SERVER } else { CLIENT };
                let (own, parent) = if kind == SERVER { (i + 100_000, id) } else { (id, 0) };
                span(kind, 5, own, parent, 1_000_000, 1000 + i)
            });
            meter.ingest(&request("s", spans.collect()), 0).unwrap();
            let overview = meter.overview();
            prop_assert!(overview.accounting.holds(), "{:?}", overview.accounting);
            prop_assert!(overview.pending_bytes <= overview.pending_bytes_limit);
        }
        let halves = meter.overview().accounting;
        // If ids repeat soon, there are few calls, and the minimum store has room for two segments of them.
        let fits = halves.pending + halves.joined / 2 + halves.extra_attempts <= 2 * 8192;
        prop_assert!(halves.evicted > 0 || halves.received < 20_000 || fits, "{halves:?}");
    }
}

/// Two ports process requests concurrently: the one that arrived first may be processed second.
#[test]
fn a_span_may_be_processed_after_a_mate_that_arrived_later() {
    let minute_ms = 7 * 60_000;
    let meter = Meter::new(Settings::default());
    meter.set_wall_clock(minute_ms, minute_ms);
    meter.ingest(&request("front", vec![span(CLIENT, 1, 1, 0, 1_000, 500)]), minute_ms + 20).unwrap();
    // A clock that is a moment behind expires nothing.
    meter.tick(minute_ms + 19);
    assert_eq!(meter.overview().accounting.pending, 1);
    meter.ingest(&request("back", vec![span(SERVER, 1, 2, 1, 1_100, 300)]), minute_ms + 19).unwrap();
    // The same applies when an attempt retracts the call.
    meter.ingest(&request("back", vec![span(SERVER, 1, 3, 1, 1_100, 300)]), minute_ms + 18).unwrap();
    let minutes: Vec<PairMinute> = meter.open_minutes();
    let seen: Vec<_> =
        minutes.iter().map(|m| (m.unix_s, m.stats.joined_calls(), m.stats.mate_delay.max_ns())).collect();
    assert_eq!(seen, [(7 * 60, 1, Some(0))]);
}

#[test]
fn halves_expire_by_side_and_late_mates_are_counted() {
    let meter = Meter::new(Settings { join_ttl_ms: Some(15_000), ..Settings::default() });
    meter.ingest(&request("a", vec![span(CLIENT, 1, 10, 0, 1000, 50)]), 0).unwrap();
    meter.ingest(&request("b", vec![span(SERVER, 2, 21, 20, 1000, 50)]), 1000).unwrap();
    meter.tick(15_001);
    let counts = |meter: &Meter| {
        let a = meter.overview().accounting;
        assert!(a.holds());
        (a.pending, a.joined, a.expired_client_only, a.expired_server_only)
    };
    assert_eq!(counts(&meter), (1, 0, 1, 0));
    meter.ingest(&request("a", vec![span(CLIENT, 2, 20, 0, 900, 300)]), 16_000).unwrap();
    assert_eq!(counts(&meter), (0, 2, 1, 0));
    meter.ingest(&request("b", vec![span(SERVER, 1, 11, 10, 1000, 50)]), 16_000).unwrap();
    meter.tick(40_000);
    assert_eq!(counts(&meter), (0, 2, 1, 1));
    let totals = meter.totals();
    assert_eq!(totals[0].1.mate_delay.max_ns(), Some(15_000_000_000));
    let services = meter.overview().services;
    let b = services.iter().find(|(name, _)| &**name == "b").unwrap().1;
    assert_eq!((b.server_joined, b.server_unmatched), (1, 1));
}

#[test]
fn a_retry_leaves_the_distributions_and_the_worst_list() {
    let meter = Meter::new(Settings { join_ttl_ms: None, ..Settings::default() });
    let spans = vec![span(CLIENT, 1, 10, 0, 1000, 900), span(CLIENT, 2, 20, 0, 1000, 500)];
    meter.ingest(&request("a", spans), 0).unwrap();
    meter
        .ingest(&request("b", vec![span(SERVER, 1, 11, 10, 1000, 50), span(SERVER, 2, 21, 20, 1000, 50)]), 0)
        .unwrap();
    assert_eq!(meter.totals()[0].1.calls(), 2);
    meter.ingest(&request("b", vec![span(SERVER, 1, 12, 10, 1000, 50)]), 0).unwrap();
    let (_, stats) = &meter.totals()[0];
    assert_eq!((stats.calls(), stats.attempts_over_one, stats.gap.sum_ns()), (1, 1, 450));
    assert_eq!(stats.worst.iter().map(|w| w.gap_ns).collect::<Vec<_>>(), [450]);
    assert_eq!(meter.overview().accounting.extra_attempts, 1);
}

#[test]
fn negatives_are_counted_by_client_status_with_both_complete_spans() {
    let meter = Meter::new(Settings { join_ttl_ms: None, ..Settings::default() });
    let mut cancelled = span(CLIENT, 1, 10, 0, 1000, 900);
    cancelled.attributes.push(attribute("rpc.grpc.status_code", any_value::Value::IntValue(4)));
    let fine = span(CLIENT, 2, 20, 0, 1000, 5000);
    let (late, quick) = (span(SERVER, 1, 11, 10, 1000, 5000), span(SERVER, 2, 21, 20, 1100, 50));
    meter.ingest(&request("b", vec![late, quick.clone()]), 0).unwrap();
    meter.ingest(&request("a", vec![cancelled, fine.clone()]), 0).unwrap();
    let (_, stats) = &meter.totals()[0];
    assert_eq!(stats.negative.get(&CallStatus::from_grpc(4)), Some(&1));
    assert_eq!(stats.calls(), 1);
    let worst = &stats.worst[0];
    assert_eq!(Span::decode(&*worst.client.whole.as_ref().unwrap().span).unwrap(), fine);
    assert_eq!(Span::decode(&*worst.server.whole.as_ref().unwrap().span).unwrap(), quick);
    assert_eq!(worst.client.host.as_deref(), Some("host-of-a"));
    assert_eq!(worst.trace_id.to_vec(), fine.trace_id);
}

#[test]
fn methods_nodes_and_the_series_limit() {
    let by = |grouping, limits| {
        let meter =
            Meter::new(Settings { join_ttl_ms: None, grouping, pair_limits: limits, ..Settings::default() });
        for i in 1..=6u64 {
            let mut server = span(SERVER, i, 1000 + i, i, 1000, 50);
            server.name = format!("m{i}");
            meter.ingest(&request("a", vec![span(CLIENT, i, i, 0, 1000, 900)]), 0).unwrap();
            meter.ingest(&request("b", vec![server]), 0).unwrap();
        }
        let mut names: Vec<String> = meter
            .totals()
            .iter()
            .map(|(k, s)| {
                format!("{} {} {} {}", k.client, k.server, k.method.as_deref().unwrap_or("-"), s.calls())
            })
            .collect();
        names.sort();
        (names, meter.overview().calls_in_other)
    };
    let wide = PairLimits { total: 100, per_client: 100 };
    assert_eq!(by(Grouping::Pair, wide), (vec!["a b - 6".to_string()], 0));
    assert_eq!(by(Grouping::Part(Part::Node, Ends::Client), wide).0, ["a@host-of-a b - 6"]);
    assert_eq!(by(Grouping::Part(Part::Node, Ends::Server), wide).0, ["a b@host-of-b - 6"]);
    assert_eq!(by(Grouping::Method, wide).0.len(), 6);
    let narrow = by(Grouping::Method, PairLimits { total: 100, per_client: 2 });
    assert_eq!(narrow, (vec!["a b m1 1".into(), "a b m2 1".into(), "a other - 4".into()], 4));
}

/// Start and number of calls of each minute.
fn minutes(of: &[PairMinute]) -> Vec<(u64, u64)> {
    of.iter().map(|m| (m.unix_s, m.stats.calls())).collect()
}

#[test]
fn minutes_follow_steps_of_the_wall_clock() {
    const DAY_MS: i64 = 86_400_000;
    let started_ms = 1_700_000_000_000 / 60_000 * 60_000;
    for (by_ms, told) in [(400 * DAY_MS, true), (-90 * 60_000, true), (25_000, true), (-400, false)] {
        let meter = Meter::new(Settings { epoch_unix_ms: started_ms, ..Settings::default() });
        let call = |trace, at| {
            meter.ingest(&request("a", vec![span(CLIENT, trace, trace, 0, 1000, 900)]), at).unwrap();
            meter.ingest(&request("b", vec![span(SERVER, trace, trace + 1, trace, 1000, 50)]), at).unwrap();
        };
        // Reading of the wall clock, which is set 130 s after the start.
        let wall_ms = |at: u64| {
            if at < 130_000 { started_ms + at } else { (started_ms + at).saturating_add_signed(by_ms) }
        };
        let mut written = Vec::new();
        for (trace, at) in [(1, 10_000), (100, 70_000), (200, 125_000), (300, 140_000), (400, 200_000)] {
            meter.set_wall_clock(at, wall_ms(at));
            meter.tick(at);
            call(trace, at);
            written.extend(minutes(&meter.take_minutes().closed));
        }
        meter.set_wall_clock(300_000, wall_ms(300_000));
        meter.tick(300_000);
        let taken = meter.take_minutes();
        written.extend(minutes(&taken.closed));
        assert!(taken.open.is_empty());

        assert_eq!(written.iter().map(|(_, calls)| calls).sum::<u64>(), 5, "{by_ms}: none lost, none twice");
        // Minutes closed before that are written; all others use the new clock.
        let minute = |at: u64, by_ms: i64| (started_ms + at).saturating_add_signed(by_ms) / 60_000 * 60;
        let new_ms = if told { by_ms } else { 0 };
        let mut wanted = vec![minute(10_000, 0)];
        wanted.extend([70_000, 125_000, 140_000, 200_000].map(|at: u64| minute(at, new_ms)));
        // A minute that was open at the step is labelled with its start.
        let close = |(found, _): &(u64, u64)| wanted.iter().any(|wanted| found.abs_diff(*wanted) <= 60);
        assert!(written.iter().all(close), "{by_ms}: {written:?}, wanted {wanted:?}");
        assert_eq!(written.last().unwrap().0, minute(200_000, new_ms), "{by_ms}");
        assert_eq!(meter.overview().clock_steps, told as u64, "{by_ms}");
        assert_eq!(meter.overview().last_clock_steps.iter().map(|s| s.by_ms).sum::<i64>(), new_ms);
        assert_eq!(meter.totals()[0].1.calls(), 5);
    }
}

#[test]
fn closed_minutes_are_taken_once_and_totals_include_them() {
    let meter = Meter::new(Settings { epoch_unix_ms: 600_000, ..Settings::default() });
    let call = |trace, at| {
        meter.ingest(&request("a", vec![span(CLIENT, trace, trace, 0, 1000, 900)]), at).unwrap();
        meter.ingest(&request("b", vec![span(SERVER, trace, trace + 1, trace, 1000, 50)]), at).unwrap();
    };
    call(1, 59_000);
    call(100, 61_000);
    let taken = meter.take_minutes();
    assert_eq!((minutes(&taken.closed), minutes(&taken.open)), (vec![], vec![(600, 1), (660, 1)]));
    meter.tick(80_000);
    assert_eq!(minutes(&meter.open_minutes()), [(600, 1), (660, 1)]);
    let taken = meter.take_minutes();
    assert_eq!((minutes(&taken.closed), minutes(&taken.open)), (vec![(600, 1)], vec![(660, 1)]));
    assert_eq!(taken.settled_before_s, 660);
    assert_eq!(minutes(&meter.open_minutes()), [(660, 1)]);
    assert_eq!(meter.totals()[0].1.calls(), 2);
}

/// All representations of a response size of 200,000 bytes by instrumentations, by side of the span; and some
/// attributes without it.
#[test]
fn sizes_are_read_from_either_side_and_unknown_ones_are_reported() {
    use opentelemetry_proto::tonic::common::v1::ArrayValue;
    use opentelemetry_proto::tonic::trace::v1::span::Event;
    use spangap_meter::query::{pair_row, size_note};
    let int = |n: i64| any_value::Value::IntValue(n);
    let header = |text: &str| {
        let values = vec![AnyValue { value: Some(any_value::Value::StringValue(text.into())) }];
        any_value::Value::ArrayValue(ArrayValue { values })
    };
    let with = |key: &str, value: any_value::Value| {
        let attribute = attribute(key, value);
        move |span: &mut Span| span.attributes.push(attribute.clone())
    };
    let message = |direction: &str, sizes: &[(&str, i64)]| {
        let mut attributes = vec![text("message.type", direction)];
        attributes.extend(sizes.iter().map(|(key, n)| attribute(key, int(*n))));
        let event = Event { name: "message".into(), attributes, ..Event::default() };
        move |span: &mut Span| span.events.extend([event.clone(), event.clone()])
    };
    type SetAttributes = Box<dyn Fn(&mut Span)>;
    let cases: Vec<(i32, SetAttributes, bool)> = vec![
        (CLIENT, Box::new(with("http.response.body.size", int(200_000))), true),
        (SERVER, Box::new(with("http.response_content_length", int(200_000))), true),
        (CLIENT, Box::new(with("http.response_content_length_uncompressed", int(200_000))), true),
        (SERVER, Box::new(with("rpc.server.response.size", int(200_000))), true),
        (CLIENT, Box::new(with("http.response.header.content-length", header("200000"))), true),
        (SERVER, Box::new(with("http.response.header.content_length", header("200000"))), true),
        (SERVER, Box::new(with("http.wrote_bytes", int(200_000))), true),
        (CLIENT, Box::new(with("response_size", any_value::Value::StringValue("200000".into()))), true),
        (CLIENT, Box::new(message("RECEIVED", &[("message.uncompressed_size", 100_000)])), true),
        (SERVER, Box::new(message("SENT", &[("message.compressed_size", 100_000)])), true),
        // Attributes of requests, or without a size.
        (CLIENT, Box::new(with("http.wrote_bytes", int(200_000))), false),
        (SERVER, Box::new(message("RECEIVED", &[("message.uncompressed_size", 100_000)])), false),
        (CLIENT, Box::new(message("RECEIVED", &[])), false),
        (CLIENT, Box::new(with("http.request.header.content-length", header("200000"))), false),
    ];
    for (at, (side, told, is_known)) in cases.iter().enumerate() {
        let meter = Meter::new(Settings { join_ttl_ms: None, ..Settings::default() });
        let mut client = span(CLIENT, 1, 10, 0, 1000, 900);
        let mut server = span(SERVER, 1, 11, 10, 1100, 50);
        told(if *side == CLIENT { &mut client } else { &mut server });
        meter.ingest(&request("a", vec![client]), 0).unwrap();
        meter.ingest(&request("b", vec![server]), 0).unwrap();
        let (_, stats) = &meter.totals()[0];
        assert_eq!((stats.excluded_large, stats.sized), (*is_known as u64, *is_known as u64), "case {at}");
        assert_eq!(size_note(&meter.overview()).is_some(), !is_known, "case {at}");
    }

    // A small response of known size, one of size zero, and two unknown ones: half are known, and one is
    // retracted.
    let meter = Meter::new(Settings { join_ttl_ms: None, ..Settings::default() });
    for (id, size) in [(1u64, Some(100)), (2, Some(0)), (3, None), (4, None)] {
        let mut client = span(CLIENT, id, id * 10, 0, 1000, 900);
        client.attributes.extend(size.map(|size| attribute("http.response.body.size", int(size))));
        meter.ingest(&request("a", vec![client]), 0).unwrap();
        meter.ingest(&request("b", vec![span(SERVER, id, id * 10 + 1, id * 10, 1100, 50)]), 0).unwrap();
    }
    let row = |meter: &Meter| {
        let (key, stats) = &meter.totals()[0];
        pair_row(key, stats, &Default::default()).size_known_ratio
    };
    assert_eq!((row(&meter), size_note(&meter.overview())), (Some(0.5), None));
    meter.ingest(&request("b", vec![span(SERVER, 1, 12, 10, 1100, 50)]), 0).unwrap();
    assert_eq!(row(&meter), Some(1.0 / 3.0));
    let note = size_note(&meter.overview()).expect("most are unknown");
    assert!(note.contains("unknown for 2 of 3 calls") && note.contains("102,400 bytes"), "{note}");
}

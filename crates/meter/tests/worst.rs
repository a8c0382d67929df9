//! Worst calls and largest values while calls are hedged and retried, compared with a brute-force join that
//! knows the whole stream. Inexact results must be within the stated bound, and with enough candidates all
//! results are exact.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use proptest::prelude::*;
use prost::Message;
use spangap_meter::engine::{Meter, Settings};
use spangap_model::PairStats;
use std::collections::BTreeMap;

const TTL_MS: u64 = 5_000;
const SHOWN: usize = 5;

/// A call with all its spans: the client's and those of its attempts, each with its arrival.
#[derive(Clone, Debug)]
struct Call {
    id: u64,
    pair: u64,
    client_ns: u64,
    server_ns: u64,
    client_ms: u64,
    attempts_ms: Vec<u64>,
}

fn span(call: &Call, server: Option<usize>) -> Vec<u8> {
    let mut trace_id = [7; 16];
    trace_id[..8].copy_from_slice(&call.id.to_be_bytes());
    let client_span = call.id.to_be_bytes().to_vec();
    let own = |attempt: usize| (call.id << 8 | 1 << 60 | attempt as u64).to_be_bytes().to_vec();
    let start = 1_700_000_000_000_000_000;
    let span = match server {
        None => Span {
            kind: 3,
            span_id: client_span,
            end_time_unix_nano: start + call.client_ns,
            ..Span::default()
        },
        Some(attempt) => Span {
            kind: 2,
            span_id: own(attempt),
            parent_span_id: client_span,
            end_time_unix_nano: start + call.server_ns,
            ..Span::default()
        },
    };
    let span = Span { trace_id: trace_id.to_vec(), start_time_unix_nano: start, ..span };
    let service = if server.is_some() { format!("server-{}", call.pair) } else { "client".into() };
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(service)) });
    let name = KeyValue { key: "service.name".into(), value, ..KeyValue::default() };
    let resource = Some(Resource { attributes: vec![name], ..Resource::default() });
    let scope_spans = vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }];
    let resource_spans = vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }];
    ExportTraceServiceRequest { resource_spans }.encode_to_vec()
}

/// The truth about one pair in one minute.
#[derive(Debug, Default)]
struct Truth {
    /// Gap and id of single-attempt calls.
    single: Vec<(u64, u64)>,
    client_ns: Vec<u64>,
    server_ns: Vec<u64>,
    several: u64,
}

/// The brute-force join: a call belongs to the minute of its first span; a half that waited longer than the
/// time to live has no mate; an attempt that arrives while the call is remembered retracts it.
fn truths(calls: &[Call]) -> BTreeMap<(u64, u64), Truth> {
    let mut truths = BTreeMap::<(u64, u64), Truth>::new();
    for call in calls {
        let first_ms =
            call.attempts_ms.iter().copied().chain([call.client_ms]).min().expect("a client's span");
        let in_time = |at_ms: &u64| *at_ms <= first_ms + TTL_MS;
        let attempts = call.attempts_ms.iter().filter(|at| in_time(at)).count();
        if !in_time(&call.client_ms) || attempts == 0 {
            continue;
        }
        let truth = truths.entry((first_ms / 60_000, call.pair)).or_default();
        match attempts {
            1 => {
                truth.single.push((call.client_ns - call.server_ns, call.id));
                truth.client_ns.push(call.client_ns);
                truth.server_ns.push(call.server_ns);
            }
            _ => truth.several += 1,
        }
    }
    truths
        .values_mut()
        .for_each(|truth| truth.single.sort_by_key(|(gap, id)| (std::cmp::Reverse(*gap), *id)));
    truths
}

/// Sends the stream to an engine with so many lanes and advances the time; returns the meter's final figures for each minute and pair.
fn measured(calls: &[Call], lanes: usize) -> BTreeMap<(u64, u64), PairStats> {
    let settings =
        Settings { join_ttl_ms: Some(TTL_MS as u32), keep_bytes: 1 << 20, lanes, ..Settings::default() };
    let meter = Meter::new(settings);
    let mut stream: Vec<(u64, Vec<u8>)> = Vec::new();
    for call in calls {
        stream.push((call.client_ms, span(call, None)));
        stream.extend(call.attempts_ms.iter().enumerate().map(|(i, at_ms)| (*at_ms, span(call, Some(i)))));
    }
    stream.sort_by_key(|(at_ms, _)| *at_ms);
    let mut minutes = BTreeMap::new();
    let mut take = |minutes_taken: Vec<spangap_meter::engine::PairMinute>| {
        for minute in minutes_taken {
            let pair = minute.key.server.strip_prefix("server-").expect("a server's name").parse().unwrap();
            minutes.insert((minute.unix_s / 60, pair), minute.stats);
        }
    };
    let (mut last_ms, mut taken_ms) = (0, 0);
    let mut send = |(at_ms, request): &(u64, Vec<u8>)| {
        // Time also advances in between, so that nothing outlives its time to live.
        while last_ms + 50 <= *at_ms {
            last_ms += 50;
            meter.tick(last_ms);
        }
        meter.tick(*at_ms);
        last_ms = *at_ms;
        meter.ingest(request, *at_ms).unwrap();
        if at_ms / 10_000 > taken_ms / 10_000 {
            taken_ms = *at_ms;
            take(meter.take_minutes().closed);
        }
    };
    // Each thread prefers another lane.
    for part in stream.chunks(20) {
        std::thread::scope(|scope| scope.spawn(|| part.iter().for_each(&mut send)).join().unwrap());
    }
    meter.tick(last_ms + 200_000);
    take(meter.take_minutes().closed);
    assert!(meter.take_minutes().open.is_empty());
    assert!(meter.overview().accounting.holds());
    minutes
}

/// Compares the measurement with the truth; returns how many lists of worst calls were exact, and how many
/// were not.
fn compare(calls: &[Call], lanes: usize) -> (usize, usize) {
    let (truths, measured) = (truths(calls), measured(calls, lanes));
    let (mut exact, mut bounded) = (0, 0);
    assert_eq!(truths.keys().collect::<Vec<_>>(), measured.keys().collect::<Vec<_>>());
    for (key, truth) in &truths {
        let stats = &measured[key];
        assert_eq!(
            (stats.calls(), stats.attempts_over_one),
            (truth.single.len() as u64, truth.several),
            "{key:?}"
        );
        let shown: Vec<(u64, u64)> = stats
            .worst
            .iter()
            .take(SHOWN)
            .map(|w| (w.gap_ns, u64::from_be_bytes(w.client_span_id)))
            .collect();
        assert!(shown.iter().all(|one| truth.single.contains(one)), "{key:?}: only calls with one attempt");
        match stats.worst_complete_above_ns(SHOWN) {
            None => {
                let worst: Vec<_> = truth.single.iter().take(SHOWN).copied().collect();
                assert_eq!(shown, worst, "{key:?}");
                exact += 1;
            }
            Some(above_ns) => {
                let above = |list: &[(u64, u64)]| {
                    list.iter().copied().filter(|(gap, _)| *gap > above_ns).take(SHOWN).collect::<Vec<_>>()
                };
                assert_eq!(above(&shown), above(&truth.single), "{key:?} above {above_ns}");
                bounded += 1;
            }
        }
        let gaps: Vec<u64> = truth.single.iter().map(|(gap, _)| *gap).collect();
        let sides =
            [(&stats.gap, &gaps), (&stats.client, &truth.client_ns), (&stats.server, &truth.server_ns)];
        for (histogram, values) in sides {
            let (low, high) = (histogram.max_low_ns(), histogram.max_ns());
            let Some(max) = values.iter().copied().max() else {
                assert_eq!((low, high), (None, None));
                continue;
            };
            let (low, high) = (low.unwrap(), high.unwrap());
            assert!(low <= max.max(1) && max <= high, "{key:?}: {max} in {low}..={high}");
            assert!(high as f64 <= low as f64 * 1.05 + 2.0, "{key:?}: {low}..={high}");
            assert!(truth.several > 0 || low == high, "{key:?}: nothing was taken back");
        }
        if stats.worst_complete_above_ns(1).is_none() {
            assert_eq!(stats.gap.max_ns(), gaps.iter().copied().max(), "{key:?}: the worst call is known");
        }
    }
    (exact, bounded)
}

fn a_call() -> impl Strategy<Value = (u64, u64, u64, u64, Vec<u64>)> {
    let attempts = prop_oneof![
        6 => prop::collection::vec(0u64..200, 1..2),
        // Hedged: the second attempt arrives soon, late, or too late.
        3 => prop::collection::vec(0u64..7_000, 2..4),
        1 => prop::collection::vec(0u64..10, 0..1),
    ];
    (0u64..3, 0u64..100_000, 0u64..2_000, 0u64..200_000, attempts)
}

fn streams() -> impl Strategy<Value = Vec<Call>> {
    prop::collection::vec(a_call(), 1..400).prop_map(|calls| {
        let numbered = (1u64..).zip(calls);
        let call = |(id, (pair, gap, late_ms, begun_ms, attempts)): (u64, (u64, u64, u64, u64, Vec<u64>))| {
            let hedged = attempts.len() > 1;
            // Calls are hedged because they are slow.
            let gap_ns = gap * 10 + if hedged { 2_000_000 } else { 0 };
            let server_ns = 1_000 + gap % 977;
            Call {
                id,
                pair,
                client_ns: server_ns + gap_ns,
                server_ns,
                client_ms: begun_ms + late_ms,
                attempts_ms: attempts.into_iter().map(|after_ms| begun_ms + after_ms).collect(),
            }
        };
        numbered.map(call).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn worst_calls_and_largest_values_are_exact_or_within_the_stated_bound(calls in streams()) {
        for lanes in [1, 2, 7] {
            let (exact, bounded) = compare(&calls, lanes);
            prop_assert!(exact + bounded > 0 || truths(&calls).is_empty());
        }
    }
}

/// One call in ten is hedged after 10 ms, and the hedge's span arrives two seconds later. The faster calls
/// are not hedged.
fn hedging(per_s: u64, seconds: u64) -> Vec<Call> {
    let call = |id: u64| {
        let begun_ms = id * 1000 / per_s;
        let hedged = id.is_multiple_of(10);
        let gap_ns = if hedged { 10_000_000 + id * 7 % 1_000_000 } else { id * 7919 % 10_000_000 };
        let attempts_ms = if hedged { vec![begun_ms, begun_ms + 2_000] } else { vec![begun_ms] };
        Call {
            id,
            pair: 0,
            client_ns: gap_ns + 50_000,
            server_ns: 50_000,
            client_ms: begun_ms + 5,
            attempts_ms,
        }
    };
    (1..per_s * seconds).map(call).collect()
}

#[test]
fn a_service_that_hedges_shows_its_worst_calls() {
    // At any time twenty hedged calls are about to be retracted: twice the number of slots.
    let calls = hedging(100, 240);
    for lanes in [1, 2, 7] {
        let (exact, bounded) = compare(&calls, lanes);
        // Only in the first minute it is unknown that this service hedges.
        assert!(exact >= 3 && bounded <= 1, "{lanes} lanes: {exact} exact, {bounded} bounded");
        let measured = measured(&calls, lanes);
        assert!(
            measured.values().skip(1).take(3).all(|stats| stats.worst.len() >= 10),
            "the places are filled again"
        );
    }
}

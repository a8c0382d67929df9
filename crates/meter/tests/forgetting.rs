//! The interner removes idle entries: live entries keep their results, and new ones find room.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use proptest::prelude::*;
use prost::Message;
use spangap_meter::engine::{Meter, Settings};
use spangap_meter::ingest::named::Part;
use spangap_meter::ingest::origins::Limits;
use spangap_meter::pairs::{Ends, Grouping};
use std::collections::BTreeMap;

const TTL_MS: u64 = 2_000;

fn request(service: &str, host: &str, kind: i32, trace: u64, duration_ns: u64) -> Vec<u8> {
    let text = |key: &str, value: &str| KeyValue {
        key: key.into(),
        value: Some(AnyValue { value: Some(any_value::Value::StringValue(value.into())) }),
        ..KeyValue::default()
    };
    let client_span = trace.to_be_bytes().to_vec();
    let (span_id, parent_span_id) = match kind {
        3 => (client_span, Vec::new()),
        _ => ((trace | 1 << 60).to_be_bytes().to_vec(), client_span),
    };
    let mut trace_id = [7; 16];
    trace_id[..8].copy_from_slice(&trace.to_be_bytes());
    let span = Span {
        kind,
        trace_id: trace_id.to_vec(),
        span_id,
        parent_span_id,
        start_time_unix_nano: 1_700_000_000_000_000_000,
        end_time_unix_nano: 1_700_000_000_000_000_000 + duration_ns,
        ..Span::default()
    };
    let attributes = vec![text("service.name", service), text("host.name", host)];
    let resource = Some(Resource { attributes, ..Resource::default() });
    let scope_spans = vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }];
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }],
    }
    .encode_to_vec()
}

fn meter(limits: Limits, grouping: Grouping) -> Meter {
    Meter::new(Settings {
        join_ttl_ms: Some(TTL_MS as u32),
        max_pending_bytes: 1 << 22,
        keep_bytes: 1 << 16,
        origin_limits: limits,
        grouping,
        ..Settings::default()
    })
}

/// The figures of pairs whose services are called `live-…`.
fn live(meter: &Meter) -> BTreeMap<String, (u64, u128, Option<u64>)> {
    let totals = meter.totals();
    let live =
        totals.iter().filter(|(key, _)| key.client.starts_with("live-") && key.server.starts_with("live-"));
    live.map(|(key, s)| {
        (format!("{} {}", key.client, key.server), (s.calls(), s.gap.sum_ns(), s.gap.max_ns()))
    })
    .collect()
}

#[derive(Clone, Debug)]
enum Step {
    /// A call between two live services, whose halves arrive this far apart.
    Call { client: u64, server: u64, gap_ns: u64, apart_ms: u64 },
    /// Pods that appear once.
    Churn { pods: u64 },
    /// Time passes.
    Pass { ms: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0u64..4, 0u64..4, 0u64..1_000_000, 0u64..TTL_MS - 200).prop_map(|(client, server, gap_ns, apart_ms)| Step::Call { client, server, gap_ns, apart_ms }),
        2 => (1u64..30).prop_map(|pods| Step::Churn { pods }),
        3 => (100u64..3_000).prop_map(|ms| Step::Pass { ms }),
    ];
    prop::collection::vec(step, 1..80)
}

/// Runs the steps; a delayed half is sent at its time.
fn run(meter: &Meter, steps: &[Step]) {
    let (mut now_ms, mut next, mut pods) = (1_000, 1, 0);
    let mut due: BTreeMap<(u64, u64), Vec<u8>> = BTreeMap::new();
    let pass = |now_ms: &mut u64, until_ms: u64, due: &mut BTreeMap<(u64, u64), Vec<u8>>| {
        while *now_ms < until_ms {
            *now_ms += 100;
            meter.tick(*now_ms);
            while let Some(first) = due.first_entry().filter(|first| first.key().0 <= *now_ms) {
                meter.ingest(&first.remove(), *now_ms).unwrap();
            }
        }
    };
    // Every live service appears first, so that it has its room.
    for service in 0..4 {
        let name = format!("live-{service}");
        meter.ingest(&request(&name, &name, 1, 1_000_000 + service, 1), now_ms).unwrap();
    }
    for step in steps {
        match step {
            Step::Call { client, server, gap_ns, apart_ms } => {
                let name = |n: &u64| format!("live-{n}");
                meter.ingest(&request(&name(client), &name(client), 3, next, 1000 + gap_ns), now_ms).unwrap();
                due.insert((now_ms + apart_ms, next), request(&name(server), &name(server), 2, next, 1000));
                next += 1;
            }
            Step::Churn { pods: n } => {
                for _ in 0..*n {
                    pods += 1;
                    let name = format!("pod-{pods}");
                    meter.ingest(&request(&name, &name, 3, 2_000_000 + pods, 5), now_ms).unwrap();
                }
            }
            Step::Pass { ms } => {
                let until_ms = now_ms + ms;
                pass(&mut now_ms, until_ms, &mut due);
            }
        }
    }
    let until_ms = now_ms + TTL_MS;
    pass(&mut now_ms, until_ms, &mut due);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Compares the same stream with ample room, and with room for little more than the live entries.
    #[test]
    fn removal_does_not_change_figures_of_live_pairs(steps in steps(), seed in 0usize..3) {
        let roomy = meter(Limits::default(), Grouping::Pair);
        let room = [
            Limits { names: 4_000, origins: 3_000, ..Limits::default() },
            Limits { bytes: 1_500_000, ..Limits::default() },
            Limits { names: 8_000, bytes: 3_000_000, ..Limits::default() },
        ];
        let narrow = meter(room[seed], Grouping::Pair);
        run(&roomy, &steps);
        run(&narrow, &steps);
        prop_assert_eq!(live(&roomy), live(&narrow));
        prop_assert!(narrow.overview().accounting.holds());
        let services = |meter: &Meter| meter.overview().services.iter().map(|(_, c)| c.client_joined + c.client_unmatched + c.server_joined + c.server_unmatched).sum::<u64>();
        prop_assert_eq!(services(&roomy), services(&narrow), "what is forgotten is counted as other");
    }
}

#[test]
fn pods_come_and_go_and_new_pairs_find_room() {
    for grouping in [Grouping::Pair, Grouping::Part(Part::Node, Ends::Client)] {
        let limits = Limits { names: 1_000, origins: 1_000, ..Limits::default() };
        let meter = meter(limits, grouping);
        let mut now_ms = 0;
        for round in 0..20u64 {
            for pod in 0..300 {
                let host = format!("pod-{round}-{pod}");
                meter.ingest(&request("web", &host, 1, round << 32 | pod << 8 | 1, 5), now_ms).unwrap();
            }
            (0..80).for_each(|_| {
                now_ms += 100;
                meter.tick(now_ms);
            });
        }
        meter.ingest(&request("new-client", "host-a", 3, 77, 500), now_ms).unwrap();
        meter.ingest(&request("new-server", "host-b", 2, 77, 100), now_ms).unwrap();
        let totals = meter.totals();
        let names: Vec<_> = totals.iter().map(|(key, _)| (&*key.client, &*key.server)).collect();
        let client = if grouping == Grouping::Pair { "new-client" } else { "new-client@host-a" };
        assert_eq!(names, [(client, "new-server")]);
        let overview = meter.overview();
        assert_eq!((overview.calls_in_other, overview.names_in_other), (0, 0), "{:#?}", overview.limits);
        let names = overview.limits.iter().find(|limit| limit.name == "names").unwrap();
        assert!(names.forgotten > 5_000 && names.used <= names.limit, "{names:?}");
    }
}

#[test]
fn calls_with_rejected_names_count_as_other() {
    let meter = meter(Limits { names: 5, ..Limits::default() }, Grouping::Pair);
    for i in 1..=4u64 {
        meter.ingest(&request(&format!("client-{i}"), "h", 3, i, 500), 0).unwrap();
        meter.ingest(&request(&format!("server-{i}"), "h", 2, i, 100), 0).unwrap();
    }
    let overview = meter.overview();
    let named: u64 = meter
        .totals()
        .iter()
        .filter(|(key, _)| &*key.client != "other" && &*key.server != "other")
        .map(|(_, stats)| stats.calls())
        .sum();
    assert_eq!(overview.calls_in_other + named, 4);
    assert!(overview.calls_in_other >= 3 && overview.names_in_other > 0, "{overview:#?}");
}

/// A pair that exists keeps its calls, whatever arrives beside it: only what is new has to find room.
#[test]
fn a_flood_of_new_services_displaces_no_known_pair() {
    let by_node = Grouping::Part(Part::Node, Ends::Client);
    let narrow = [
        Limits { origins: 100, ..Limits::default() },
        Limits { names: 100, ..Limits::default() },
        Limits { bytes: 40_000, ..Limits::default() },
    ];
    for (limits, grouping) in
        narrow.into_iter().flat_map(|limits| [(limits, Grouping::Pair), (limits, by_node)])
    {
        let meter = meter(limits, grouping);
        let mut now_ms = 1_000;
        let call = |trace: u64, from: &str, to: &str, now_ms: u64| {
            meter.ingest(&request("live-web", from, 3, trace, 500), now_ms).unwrap();
            meter.ingest(&request("live-cart", to, 2, trace, 100), now_ms).unwrap();
        };
        call(1, "node-1", "node-1", now_ms);
        let known = live(&meter).into_keys().collect::<Vec<_>>();
        // Halves alone, and whole calls, of services that nobody has seen before.
        let flood = |round: u64, now_ms: u64| {
            for at in 1..=200 {
                let (name, trace) = (format!("new-{round}-{at}"), round << 32 | at << 8);
                meter.ingest(&request(&name, &name, 3, trace, 500), now_ms).unwrap();
                if at % 2 == 0 {
                    meter.ingest(&request(&format!("{name}-server"), &name, 2, trace, 100), now_ms).unwrap();
                }
            }
        };
        flood(1, now_ms);
        // From instances that are known, after these were idle and forgotten, and, where it is the same row, from new ones.
        call(2, "node-1", "node-1", now_ms);
        (0..700).for_each(|_| {
            now_ms += 100;
            meter.tick(now_ms);
        });
        flood(2, now_ms);
        call(3, "node-1", "node-1", now_ms);
        let mut calls = 3;
        if grouping == Grouping::Pair {
            call(4, "node-2", "node-3", now_ms);
            calls += 1;
        }
        let found = live(&meter);
        assert_eq!(found.keys().cloned().collect::<Vec<_>>(), known, "{limits:?} {grouping:?}");
        let counted: u64 = found.values().map(|(calls, ..)| calls).sum();
        assert_eq!(counted, calls, "{limits:?} {grouping:?}");
        let overview = meter.overview();
        let totals = meter.totals();
        let all: u64 = totals.iter().map(|(_, stats)| stats.calls()).sum();
        assert_eq!(all, calls + 2 * 100, "every call of the flood counts somewhere");
        let named = totals.iter().filter(|(key, _)| &*key.client != "other" && &*key.server != "other");
        let named: u64 = named.map(|(_, stats)| stats.calls()).sum();
        assert_eq!(overview.calls_in_other, all - named, "and as other wherever it is not under its name");
        assert!(overview.calls_in_other > 0 && overview.names_in_other > 0, "{overview:#?}");
    }
}

/// Two hosts whose names found no room are not one host: the clocks of the two have nothing to do with each other.
#[test]
fn hosts_without_room_for_their_names_have_no_legs() {
    // `other`, two services, and one host, with the row of each service at it: no room for the second host.
    let [narrow, roomy] = [5, 100].map(|names| meter(Limits { names, ..Limits::default() }, Grouping::Pair));
    let [narrow, roomy] = [narrow, roomy].map(|meter| {
        // More calls than it takes to know the clocks of two hosts.
        for trace in 1..=30 {
            meter.ingest(&request("web", "a", 3, trace, 500), 0).unwrap();
            meter.ingest(&request("cart", "b", 2, trace, 100), 0).unwrap();
        }
        meter.overview().calls_without_legs
    });
    assert_eq!(narrow, 30);
    assert!(roomy < 30, "{roomy}: with room for both hosts there are legs");
}

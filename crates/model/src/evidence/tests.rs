//! Every value round-trips through JSON, and a document of another version is refused.

use super::*;
use crate::{Cause, Culprit, Doing, Leg, Legs, Side, Taker, WaitReason};
use proptest::prelude::*;

fn side() -> impl Strategy<Value = Option<Side>> {
    prop::option::of(prop::sample::select(&Side::ALL[..]))
}

fn when() -> impl Strategy<Value = Option<Interval>> {
    prop::option::of((0..i64::MAX / 2, 0..i64::MAX / 2)).prop_map(|ends| {
        ends.map(|(from_unix_ns, long)| Interval { from_unix_ns, to_unix_ns: from_unix_ns + long })
    })
}

fn coverage() -> impl Strategy<Value = Coverage> {
    let counts = any::<(String, u64, u64, Vec<String>)>();
    (prop::sample::select(&Instrument::ALL[..]), side(), when(), counts).prop_map(
        |(instrument, side, when, (source, seen, lost, cannot))| Coverage {
            instrument,
            source,
            side,
            when,
            seen,
            lost,
            cannot,
        },
    )
}

fn finding() -> impl Strategy<Value = Finding> {
    let culprit =
        (prop::sample::select(&Cause::ALL[..]), side()).prop_map(|(cause, side)| Culprit { cause, side });
    let certainty = prop_oneof![
        Just(Certainty::Shown),
        prop::sample::select(&Missing::ALL[..]).prop_map(Certainty::Possible)
    ];
    let scope = prop_oneof![
        Just(Scope::Call),
        Just(Scope::Host),
        any::<(u32, String)>().prop_map(|(pid, name)| Scope::Process { pid, name }),
        any::<(String, String)>().prop_map(|(client, server)| Scope::Pair { client, server }),
        any::<(String, String)>().prop_map(|(client, server)| Scope::Connection { client, server }),
    ];
    let when = when();
    let proof = prop_oneof![
        any::<(u8, u64, i64, String)>().prop_map(|(capture, packet, time_unix_ns, what)| {
            Proof::Packet(PacketRecord { capture, packet, time_unix_ns, what })
        }),
        (side(), prop::sample::select(&Doing::ALL[..]), prop::option::of(taker()), any::<u64>())
            .prop_map(|(side, doing, taker, ns)| Proof::Stretch { side, doing, taker, ns }),
        any::<(String, String)>().prop_map(|(place, value)| Proof::Value { place, value }),
    ];
    let instrument = prop::sample::select(&Instrument::ALL[..]);
    let rest =
        (any::<Option<u64>>(), any::<String>(), prop::collection::vec(proof, 0..4), any::<Option<u8>>());
    (culprit, certainty, instrument, scope, when, rest).prop_map(
        |(culprit, certainty, instrument, scope, when, (cost_ns, note, proofs, hop))| Finding {
            hop,
            culprit,
            certainty,
            instrument,
            scope,
            when,
            cost_ns,
            note,
            proofs,
        },
    )
}

fn taker() -> impl Strategy<Value = Taker> {
    prop_oneof![
        Just(Taker::Idle),
        Just(Taker::Timer),
        Just(Taker::CrossCall),
        Just(Taker::Hypervisor),
        any::<(u32, Option<u32>, Option<String>)>().prop_map(|(tid, pid, name)| Taker::Task {
            tid,
            pid,
            name
        }),
        any::<(u32, Option<String>)>().prop_map(|(tid, name)| Taker::Sibling { tid, name }),
        any::<(String, Option<String>)>().prop_map(|(vector, device)| Taker::Softirq { vector, device }),
        any::<(u32, Option<String>)>().prop_map(|(line, name)| Taker::Interrupt { line, name }),
    ]
}

fn waker() -> impl Strategy<Value = Waker> {
    prop_oneof![
        any::<u32>().prop_map(Waker::Thread),
        Just(Waker::Timer),
        Just(Waker::Packets),
        Just(Waker::Other)
    ]
}

fn legs() -> impl Strategy<Value = Legs> {
    (0..Leg::ALL.len(), 0..Leg::ALL.len())
        .prop_map(|(one, other)| Legs { first: Leg::ALL[one.min(other)], last: Leg::ALL[one.max(other)] })
}

fn host_time() -> impl Strategy<Value = Option<HostTime>> {
    let reason = prop::option::of(prop::sample::select(&WaitReason::ALL[..]));
    let part = (
        prop::sample::select(&Doing::ALL[..]),
        prop::option::of(taker()),
        reason,
        any::<(Option<String>, u64)>(),
        prop::option::of(waker()),
    )
        .prop_map(|(doing, behind, waited_for, (woken_by, ns), waker)| HostPart {
            doing,
            behind,
            waited_for,
            woken_by,
            waker,
            ns,
        });
    let read = any::<(u32, u64, u64, u64)>().prop_map(|(tid, after_ns, begun_ns, held_ns)| ReadBy {
        tid,
        after_ns,
        begun_ns,
        held_ns,
    });
    let host =
        (any::<Vec<String>>(), any::<Vec<u32>>(), prop::option::of(read), prop::collection::vec(part, 0..4))
            .prop_map(|(threads, tids, read, parts)| HostTime { threads, tids, read, parts });
    prop::option::of(host)
}

fn leg() -> impl Strategy<Value = LegRecord> {
    (legs(), any::<(i64, u64)>(), host_time()).prop_map(|(legs, (ns, bound_ns), host)| LegRecord {
        legs,
        ns,
        bound_ns,
        host,
    })
}

fn hop() -> impl Strategy<Value = HopLeg> {
    let place = prop_oneof![
        legs().prop_map(HopPlace::Leg),
        Just(HopPlace::Proxy),
        Just(HopPlace::ProxyOrWire),
        Just(HopPlace::BetweenAttempts),
    ];
    (place, any::<(u8, u8, i64, u64)>(), host_time()).prop_map(
        |(place, (hop, attempt, ns, bound_ns), host)| HopLeg { hop, attempt, place, ns, bound_ns, host },
    )
}

prop_compose! {
    fn call()(
        (trace_id, span_id, client, server, method) in any::<(Option<String>, Option<String>, Option<String>, Option<String>, Option<String>)>(),
        (seen_in, windows) in any::<([Option<u8>; 2], [Option<u64>; 2])>(),
        (start_unix_ns, duration_ns, request_bytes, response_bytes) in any::<(i64, u64, u64, Option<u64>)>(),
        (retryable, stands_for) in any::<(bool, Option<u32>)>(),
        legs in prop::collection::vec(leg(), 0..4),
        path in prop::collection::vec(hop(), 0..4),
        findings in prop::collection::vec(finding(), 0..4),
    ) -> CallRecord {
        CallRecord {
            trace_id, span_id, client, server, method, seen_in, windows, start_unix_ns, duration_ns,
            request_bytes, response_bytes, retryable, stands_for: stands_for.map(f64::from), legs, path, findings,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn evidence_goes_to_json_and_back(
        calls in prop::collection::vec(call(), 0..3),
        findings in prop::collection::vec(finding(), 0..4),
        coverage in prop::collection::vec(coverage(), 0..3),
        (matching_calls, measured_from_unix_ns, spans) in any::<(u64, Option<i64>, Option<(u64, u64)>)>(),
        clocks in any::<Option<(i64, i64, u64, Option<(i32, i32)>)>>(),
        unplaced in any::<Option<(u64, u64)>>(),
    ) {
        let clocks = clocks.map(|(offset_low_ns, offset_high_ns, stretches, skew)| {
            let skew_ppm = skew.map(|(low, high)| (f64::from(low), f64::from(high)));
            Clocks { offset_low_ns, offset_high_ns, skew_ppm, stretches }
        });
        let spans = spans.map(|(joined, extra_attempts)| SpanCounts { joined, extra_attempts });
        let unplaced = unplaced.map(|(spans, median_ns)| UnplacedSpans { spans, median_ns });
        let evidence = Evidence {
            version: Version, calls, matching_calls, measured_from_unix_ns, clocks, spans, unplaced, findings, coverage,
        };
        let text = serde_json::to_string(&evidence).expect("it is plain data");
        prop_assert_eq!(serde_json::from_str::<Evidence>(&text).expect(&text), evidence);
    }
}

#[test]
fn a_document_of_another_version_is_refused() {
    let text = serde_json::to_string(&Evidence::default())
        .expect("plain data")
        .replace("\"version\":1", "\"version\":2");
    let error = serde_json::from_str::<Evidence>(&text).expect_err("a later version").to_string();
    assert!(error.contains("evidence of version 2; expected version 1"), "{error}");
}

#[test]
fn unknown_name_lists_the_known_ones() {
    let error = serde_json::from_str::<Cause>("\"gremlins\"").expect_err("no cause").to_string();
    assert!(error.contains("gremlins") && error.contains("nagle-delayed-ack"), "{error}");
}

#[test]
fn missing_evidence_has_words_and_name() {
    let certainty = Certainty::Possible(Missing::ServerSpan);
    let json = serde_json::to_value(certainty).expect("plain data");
    let expected =
        serde_json::json!({"certainty": "possible", "missing": "the server's span", "lacks": "server-span"});
    assert_eq!(json, expected);
}

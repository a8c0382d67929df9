//! Properties that hold for any evidence: no time is lost, scale does not matter, and a verdict needs a difference.

use super::account::{account, of_logical};
use super::logical::calls;
use super::*;
use proptest::prelude::*;
use spangap_model::Doing;
use spangap_model::evidence::{
    Certainty, Finding, HostPart, HostTime, Instrument, Interval, LegRecord, Scope,
};
use spangap_model::{Side, WaitReason};

const LEGS: [Leg; 9] = [
    Leg::ClientAppOut,
    Leg::ClientSend,
    Leg::RequestWire,
    Leg::ServerHostIn,
    Leg::ServerApp,
    Leg::ServerHostOut,
    Leg::ServerSend,
    Leg::ResponseWire,
    Leg::ClientAppIn,
];

fn finding() -> impl Strategy<Value = Finding> {
    let cause = prop::sample::select(&Cause::ALL[..]);
    let side = prop::option::of(prop::sample::select(&Side::ALL[..]));
    let when = prop::option::of((-2_000_i64..12_000, 0_i64..6_000));
    (cause, side, when, prop::option::of(0_u64..9_000), any::<bool>()).prop_map(
        |(cause, side, when, cost_ns, packets)| Finding {
            hop: None,
            culprit: Culprit { cause, side },
            certainty: Certainty::Shown,
            instrument: if packets { Instrument::Packets } else { Instrument::HostRecording },
            scope: Scope::Call,
            when: when.map(|(from, long)| Interval { from_unix_ns: from, to_unix_ns: from + long }),
            cost_ns,
            note: String::new(),
            proofs: Vec::new(),
        },
    )
}

fn part() -> impl Strategy<Value = HostPart> {
    let doing = prop::sample::select(&Doing::ALL[..]);
    let waited_for = prop::option::of(prop::sample::select(&WaitReason::ALL[..]));
    (doing, waited_for, 0_u64..2_000).prop_map(|(doing, waited_for, ns)| HostPart {
        doing,
        behind: None,
        waited_for,
        woken_by: None,
        waker: None,
        ns,
    })
}

fn leg() -> impl Strategy<Value = (i64, Option<Vec<HostPart>>)> {
    (-300_i64..3_000, prop::option::of(prop::collection::vec(part(), 0..4)))
}

fn call() -> impl Strategy<Value = CallRecord> {
    let legs = prop::collection::vec(leg(), LEGS.len());
    (legs, prop::collection::vec(finding(), 0..6), 0_i64..100, prop::option::of(0_u8..4)).prop_map(
        |(legs, findings, start, id)| {
            let record = |(leg, (ns, parts)): (Leg, (i64, Option<Vec<HostPart>>))| LegRecord {
                legs: Legs::one(leg),
                ns,
                bound_ns: 0,
                host: parts.map(|parts| HostTime { parts, ..HostTime::default() }),
            };
            let legs: Vec<LegRecord> = LEGS.into_iter().zip(legs).map(record).collect();
            let sum: i64 = legs.iter().map(|leg| leg.ns).sum();
            CallRecord {
                start_unix_ns: start,
                duration_ns: sum.max(0) as u64,
                trace_id: id.map(|id| id.to_string()),
                span_id: id.map(|id| id.to_string()),
                legs,
                findings,
                ..CallRecord::default()
            }
        },
    )
}

fn evidence(calls: Vec<CallRecord>) -> Evidence {
    Evidence { matching_calls: calls.len() as u64, calls, ..Evidence::default() }
}

/// Calls of two kinds; `slow` says which are slow, and `lost` which have a loss.
fn modes(slow: &[bool], lost: impl Fn(usize) -> bool, unit: i64) -> Evidence {
    let call = |(n, slow): (usize, &bool)| {
        let lost = lost(n);
        let wire = unit * (1 + if *slow { 200 } else { 0 }) + (n as i64 * 7919 % 100) * unit / 200;
        let legs: Vec<LegRecord> = [(Leg::ServerApp, unit * 4), (Leg::ResponseWire, wire)]
            .map(|(leg, ns)| LegRecord { legs: Legs::one(leg), ns, bound_ns: 0, host: None })
            .into();
        let findings = Finding {
            hop: None,
            culprit: Culprit::of(Cause::Rto),
            certainty: Certainty::Shown,
            instrument: Instrument::Packets,
            scope: Scope::Call,
            when: None,
            cost_ns: Some(unit as u64),
            note: String::new(),
            proofs: Vec::new(),
        };
        CallRecord {
            start_unix_ns: n as i64 * unit * 300,
            duration_ns: legs.iter().map(|leg| leg.ns as u64).sum(),
            seen_in: [Some(0), Some(1)],
            legs,
            findings: if lost { vec![findings] } else { Vec::new() },
            ..CallRecord::default()
        }
    };
    evidence(slow.iter().enumerate().map(call).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn owners_sum_to_the_duration_exactly(record in call()) {
        let duration_ns = record.duration_ns as i64;
        prop_assert_eq!(account(&record).values().sum::<i64>(), duration_ns);
        let owned: i64 = account(&record).iter().filter(|(owner, _)| matches!(owner, Owner::Culprit(_))).map(|(_, ns)| *ns).sum();
        let all: i64 = record.legs.iter().map(|leg| leg.ns.max(0)).sum();
        prop_assert!((0..=all).contains(&owned), "{} of {}", owned, all);
    }

    #[test]
    fn attempts_are_one_call_and_nothing_is_counted_twice(records in prop::collection::vec(call(), 1..12)) {
        let evidence = evidence(records);
        let ids: std::collections::BTreeSet<_> = evidence.calls.iter().filter_map(|call| call.trace_id.clone()).collect();
        let without = evidence.calls.iter().filter(|call| call.trace_id.is_none()).count();
        let calls = calls(&evidence, &Question::default());
        prop_assert_eq!(calls.len(), ids.len() + without);
        for call in &calls {
            prop_assert_eq!(of_logical(call, &turns::Turns::default()).values().sum::<i64>(), call.duration_ns as i64);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_evidence_gets_a_verdict(records in prop::collection::vec(call(), 0..60)) {
        let hunt = hunt(&evidence(records), &Question::default());
        let named = matches!(hunt.verdict, Kind::One | Kind::Several);
        prop_assert_eq!(named, !hunt.culprits.is_empty());
        for line in &hunt.sheet {
            prop_assert!(line.share.low <= line.share.mid && line.share.mid <= line.share.high);
        }
    }

    /// The document written for a meter's client is complete: what it omits has its default value when read
    /// back.
    #[test]
    fn a_document_is_read_back_as_it_was_written(records in prop::collection::vec(call(), 0..60)) {
        // Fractions may differ in their last digit.
        fn rounded(value: serde_json::Value) -> serde_json::Value {
            use serde_json::Value;
            match value {
                Value::Number(number) if number.is_f64() => {
                    Value::from((number.as_f64().unwrap_or(0.0) * 1e6).round() as i64)
                }
                Value::Array(all) => all.into_iter().map(rounded).collect(),
                Value::Object(all) => all.into_iter().map(|(key, value)| (key, rounded(value))).collect(),
                other => other,
            }
        }
        let hunt = hunt(&evidence(records), &Question::default());
        let document = serde_json::to_value(&hunt).expect("plain data");
        let read: Hunt = serde_json::from_str(&document.to_string()).expect("what was written is read");
        prop_assert_eq!(rounded(serde_json::to_value(&read).expect("plain data")), rounded(document));
    }

    #[test]
    fn a_sheet_scales_with_the_time(slow in prop::collection::vec(prop::bool::weighted(0.2), 60..200), unit in 1_u32..50) {
        let unit = i64::from(unit) * 100_000;
        let of = |unit: i64| hunt(&modes(&slow, |n| n % 3 == 0, unit), &Question { slower: Some(Slower::Over(100 * unit as u64)), ..Question::default() });
        let (one, ten) = (of(unit), of(unit * 10));
        prop_assert_eq!(one.verdict, ten.verdict);
        let figures = |hunt: &Hunt| -> Vec<(Option<Culprit>, i64)> {
            hunt.sheet.iter().map(|line| (line.culprit, (line.share.mid * 1e4).round() as i64)).collect()
        };
        prop_assert_eq!(figures(&one), figures(&ten));
    }

    #[test]
    fn what_all_calls_have_explains_nothing_of_the_slow_ones(slow in prop::collection::vec(prop::bool::weighted(0.1), 80..200)) {
        let hunt = hunt(&modes(&slow, |_| true, 1_000_000), &Question::default());
        if let Some(answer) = hunt.questions.slow {
            let lost = answer.sheet.iter().find(|line| line.culprit.is_some_and(|culprit| culprit.cause == Cause::Rto));
            prop_assert!(lost.is_none_or(|line| line.share.mid.abs() < 1e-6), "{:?}", lost);
        }
    }

    #[test]
    fn shuffled_labels_convict_nobody(
        slow in prop::collection::vec(prop::bool::weighted(0.15), 100..250),
        lost in prop::collection::vec(prop::bool::weighted(0.15), 250),
    ) {
        // Losses are independent of whether a call is slow.
        let hunt = hunt(&modes(&slow, |n| lost[n], 1_000_000), &Question::default());
        let convicted = hunt.culprits.iter().any(|one| one.culprit.cause == Cause::Rto);
        prop_assert!(!convicted, "{}", hunt.words);
    }
}

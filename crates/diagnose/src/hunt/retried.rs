//! Verdicts on calls that were tried again, with a span for each attempt.

use super::tests::{MS, call, leg, of};
use super::*;
use spangap_model::evidence::{Certainty, Finding, Instrument, Scope};

/// A call that takes `ms` in its server, begins at `at_ms`, and belongs to trace `trace`.
fn attempt(trace: i64, at_ms: i64, ms: i64, retryable: bool) -> CallRecord {
    CallRecord {
        trace_id: Some(format!("{trace:032x}")),
        span_id: Some(format!("{at_ms:016x}")),
        client: Some(format!("10.0.0.1:{}", 40_000 + at_ms % 7)),
        start_unix_ns: at_ms * MS,
        retryable,
        ..call(0, "/a", vec![leg(Leg::ClientAppOut, 1), leg(Leg::ServerApp, ms)], Vec::new())
    }
}

fn retries(hunt: &Hunt) -> bool {
    hunt.culprits.iter().any(|one| one.culprit == Culprit::of(Cause::Retries))
}

#[test]
fn back_off_after_a_failure_belongs_to_retries() {
    let hunt = of((0..200).flat_map(|n| match n % 10 {
        0 => vec![attempt(n, 100 * n, 2, true), attempt(n, 100 * n + 43, 2, false)],
        _ => vec![attempt(n, 100 * n, 2, false)],
    }));
    assert_eq!((hunt.verdict, hunt.excess.calls), (Kind::One, 200), "{}", hunt.words);
    assert!(retries(&hunt), "{}", hunt.words);
    assert_eq!(hunt.excess.mean_ns, 43 * MS as u64, "each operation counts once, from its first attempt on");
}

#[test]
fn what_held_up_an_attempt_keeps_its_time() {
    let stopped = Finding {
        hop: None,
        culprit: Culprit::at(Cause::Rto, Side::Client),
        certainty: Certainty::Shown,
        instrument: Instrument::Packets,
        scope: Scope::Call,
        when: None,
        cost_ns: Some(200 * MS as u64),
        note: String::new(),
        proofs: Vec::new(),
    };
    let hunt = of((0..200).flat_map(|n| match n % 10 {
        0 => {
            let mut lost = attempt(n, 1_000 * n, 202, true);
            lost.findings.push(stopped.clone());
            vec![lost, attempt(n, 1_000 * n + 213, 2, false)]
        }
        _ => vec![attempt(n, 1_000 * n, 2, false)],
    }));
    assert_eq!(
        hunt.culprits.iter().map(|one| one.culprit.cause).collect::<Vec<_>>(),
        [Cause::Rto],
        "{}",
        hunt.words
    );
}

#[test]
fn a_loop_of_calls_some_of_which_fail_repeats_nothing() {
    // One trace makes many calls 50 ms apart, and every fifth one fails at once.
    let hunt = of((0..300).map(|n| attempt(n / 30, 50 * n, 2 + n % 3, n % 5 == 0)));
    assert_eq!(
        (hunt.verdict, retries(&hunt), hunt.coverage.captured),
        (Kind::Nothing, false, 300),
        "{}",
        hunt.words
    );
}

#[test]
fn calls_side_by_side_or_to_other_methods_repeat_nothing() {
    let hunt = of((0..200).flat_map(|n| {
        let failed = attempt(n, 100 * n, 9, true);
        let beside = attempt(n, 100 * n + 5, 9, false);
        let mut other = attempt(n + 1_000, 100 * n + 50, 2, true);
        other.method = Some("/b".into());
        let elsewhere =
            CallRecord { client: Some("10.0.0.9:1".into()), ..attempt(n + 1_000, 100 * n + 80, 2, false) };
        [failed, beside, other, elsewhere]
    }));
    assert!(!retries(&hunt), "{}", hunt.words);
    assert_eq!(hunt.coverage.captured, 800, "{}", hunt.words);
}

/// All attempts fail: the program gives up, and nothing distinguishes a last failure from the next call.
#[test]
fn attempts_that_all_fail_stay_apart() {
    let hunt = of((0..100).flat_map(|n| [attempt(n, 100 * n, 2, true), attempt(n, 100 * n + 43, 2, true)]));
    assert!(!retries(&hunt), "{}", hunt.words);
}

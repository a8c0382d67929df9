//! Verdicts in the short form of the lab's judges, on evidence read from documents.

use super::*;
use serde_json::{Value, json};
use spangap_model::evidence::SpanCounts;

const MS: u64 = 1_000_000;

/// A call of this many milliseconds, with legs and findings.
fn call(ms: u64, legs: Value, findings: Value) -> Value {
    json!({ "method": "/ping/Ping", "start_unix_ns": 1000, "duration_ns": ms * MS, "request_bytes": 5,
        "response_bytes": 5, "seen_in": [0, 1], "legs": legs, "findings": findings })
}

fn fast() -> Value {
    call(1, json!([]), json!([]))
}

fn leg(name: &str, ms: i64) -> Value {
    json!({ "leg": name, "ns": ms * 1_000_000, "bound_ns": 1 })
}

fn finding(cause: &str, side: &str, certainty: &str, ms: u64) -> Value {
    json!({ "cause": cause, "side": side, "certainty": certainty, "cost_ns": ms * MS, "instrument": "packets", "evidence": [] })
}

/// A hundred calls: `some` as given, the rest fast.
fn evidence(some: usize, call: &Value) -> Evidence {
    let calls: Vec<Value> =
        std::iter::repeat_n(call.clone(), some).chain(std::iter::repeat_n(fast(), 100 - some)).collect();
    of(&calls)
}

fn of(calls: &[Value]) -> Evidence {
    let document = json!({ "version": 1, "matching_calls": calls.len(), "calls": calls, "findings": [], "coverage": [] });
    serde_json::from_value(document).expect("evidence")
}

fn said(evidence: &Evidence) -> String {
    hunt(evidence, &Question::default()).verdict().answer.to_string()
}

#[test]
fn fast_calls_and_a_few_slow_ones_are_nothing() {
    assert_eq!(said(&evidence(0, &fast())), "none");
    assert_eq!(said(&evidence(2, &call(12, json!([]), json!([])))), "none");
    // Of no calls, nothing is known.
    assert_eq!(said(&Evidence::default()), "unknown");
}

#[test]
fn what_is_shown_for_most_of_the_time_is_it() {
    let held = call(
        44,
        json!([leg("client_send", 42), leg("server_app", 2)]),
        json!([finding("nagle-delayed-ack", "client", "shown", 40)]),
    );
    assert_eq!(said(&evidence(30, &held)), "nagle-delayed-ack (client)");
}

#[test]
fn a_path_that_is_long_and_one_that_varies() {
    let way = |there: i64, back: i64| {
        let legs = json!([leg("request_wire", there), leg("response_wire", back), leg("server_app", 1)]);
        call((there + back) as u64 + 1, legs, json!([]))
    };
    let steady: Vec<Value> = (0..50).map(|_| way(10, 10)).collect();
    // Nothing shows whether it always took that long: a place, not a culprit.
    let steady = hunt(&of(&steady), &Question::default());
    assert!(steady.place.as_ref().is_some_and(|place| place.both_ways), "{steady:?}");
    assert_eq!(steady.verdict().answer.to_string(), "unknown");
    let varying: Vec<Value> = (0..50).map(|n| way(n % 10, 10 + n % 17)).collect();
    assert_eq!(said(&of(&varying)), "network-jitter");
}

#[test]
fn what_is_only_possible_convicts_nobody() {
    let held = call(44, json!([]), json!([finding("nagle-delayed-ack", "client", "possible", 40)]));
    assert_eq!(said(&evidence(30, &held)), "unknown");
}

#[test]
fn what_is_missing_may_be_there() {
    let mut waited = finding("stream-limit", "client", "possible", 40);
    waited["lacks"] = json!("client-span-start");
    let slow = |name: &str| call(60, json!([leg(name, 45), leg("server_app", 15)]), json!([waited.clone()]));
    assert_eq!(said(&evidence(80, &slow("client_app_out"))), "stream-limit (client)");
    assert_eq!(said(&evidence(80, &slow("client_app_out+client_send"))), "unknown");
}

#[test]
fn attempts_and_connections_are_counted() {
    let mut many = evidence(0, &fast());
    many.spans = Some(SpanCounts { joined: 100, extra_attempts: 30 });
    assert_eq!(said(&many), "retries");
    many.spans = Some(SpanCounts { joined: 100, extra_attempts: 1 });
    assert_eq!(said(&many), "none");
    let opens = call(1, json!([]), json!([finding("connection-per-call", "client", "shown", 0)]));
    assert_eq!(said(&evidence(90, &opens)), "connection-per-call (client)");
    assert_eq!(said(&evidence(10, &opens)), "none");
}

/// Evidence of 120 calls, 100 ms apart, every sixth of which is slow: it has these legs and findings in
/// addition to a millisecond of work.
fn every_sixth(late: &Value, findings: &Value) -> Evidence {
    let calls: Vec<Value> = (0..120)
        .map(|n| {
            let work = leg("server_app", 1);
            let mut one = match n % 6 {
                0 => {
                    let ms = 1 + late["ns"].as_u64().expect("a leg") / MS;
                    call(ms, json!([work, late]), findings.clone())
                }
                _ => call(1, json!([work]), json!([])),
            };
            one["start_unix_ns"] = json!(1_000 + n * 100 * MS);
            one
        })
        .collect();
    of(&calls)
}

fn with_host(name: &str, ms: i64, parts: &Value) -> Value {
    let mut late = leg(name, ms);
    late["host"] = json!({ "threads": [], "parts": parts });
    late
}

#[test]
fn what_came_to_warm_up_does_not_count() {
    let rto = json!([finding("rto", "client", "shown", 800)]);
    let mut warm = every_sixth(&leg("request_wire", 900), &rto);
    assert_eq!(said(&warm), "rto (client)");
    warm.measured_from_unix_ns = Some(i64::MAX);
    // No call is left to say anything of.
    assert_eq!(said(&warm), "unknown");
}

#[test]
fn the_more_particular_cause_has_the_time_first() {
    let parts = json!([{ "doing": "stopped", "ns": 20 * MS }, { "doing": "running", "ns": 10 * MS }]);
    let found = json!([finding("server-app", "server", "shown", 30)]);
    assert_eq!(said(&every_sixth(&with_host("server_host_out", 30, &parts), &found)), "stopped (server)");
}

#[test]
fn who_had_the_cpu_tells_a_flood_from_a_neighbour() {
    let waiting = |behind: Value| {
        let parts = json!([{ "doing": "runnable", "taker": behind, "ns": 20 * MS }]);
        said(&every_sixth(&with_host("client_app_in", 20, &parts), &json!([])))
    };
    assert_eq!(
        waiting(json!({ "kind": "softirq", "vector": "NET_RX", "device": "eth0" })),
        "softirq-on-cpu (client)"
    );
    assert_eq!(
        waiting(json!({ "kind": "task", "tid": 12, "pid": 12, "name": "stress" })),
        "run-queue (client)"
    );
}

#[test]
fn calls_behind_lost_bytes_wait_for_what_mends_the_loss() {
    let wire = leg("response_wire", 210);
    let mut behind = finding("head-of-line", "server", "shown", 140);
    let both = |behind: &Value| {
        said(&every_sixth(&wire, &json!([finding("rto", "server", "shown", 60), behind.clone()])))
    };
    // Behind a larger response, at the end that sends it: a loss elsewhere does not claim that time.
    assert_eq!(both(&behind), "head-of-line (server)");
    behind["side"] = Value::Null;
    assert_eq!(both(&behind), "rto (server)");
}

#[test]
fn a_lost_syn_is_within_the_opening() {
    let opening = json!([
        finding("connection-per-call", "client", "shown", 1001),
        finding("syn-loss", "client", "shown", 1000),
    ]);
    assert_eq!(said(&every_sixth(&leg("client_app_out", 1002), &opening)), "syn-loss (client)");
}

#[test]
fn work_that_all_calls_have_is_taken_off() {
    let late = with_host("client_app_in", 40, &json!([{ "doing": "stopped", "ns": 40 * MS }]));
    assert_eq!(said(&every_sixth(&late, &json!([]))), "stopped (client)");
}

#[test]
fn two_that_explain_as_much_are_not_one() {
    let both = json!([finding("rto", "server", "shown", 20), finding("stream-limit", "client", "shown", 20)]);
    assert_eq!(said(&every_sixth(&leg("response_wire", 40), &both)), "unknown");
}

//! The rules, on made-up evidence.

use super::*;
use serde_json::{Value, json};

const MS: u64 = 1_000_000;

/// A call of so many milliseconds with legs and findings.
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

/// A hundred calls: some as given, the rest fast.
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
    judge(evidence).answer.to_string()
}

#[test]
fn fast_calls_and_a_few_slow_ones_are_nothing() {
    assert_eq!(said(&evidence(0, &fast())), "none");
    assert_eq!(said(&evidence(2, &call(12, json!([]), json!([])))), "none");
    assert_eq!(said(&Evidence::default()), "none");
}

#[test]
fn what_is_shown_for_most_of_the_time_is_it() {
    let held = call(
        44,
        json!([leg("client_send", 42)]),
        json!([finding("nagle-delayed-ack", "client", "shown", 40)]),
    );
    let verdict = judge(&evidence(30, &held));
    assert_eq!(verdict.answer.to_string(), "nagle-delayed-ack (client)");
    assert_eq!(verdict.leg.map(|leg| leg.to_string()).as_deref(), Some("client_send"));
    assert!(verdict.why.is_some_and(|why| why.starts_with("it explains 93 % of the ")));
}

#[test]
fn what_is_typical_is_taken_off_before_the_rest_is_weighed() {
    let usual = call(21, json!([leg("server_app", 20), leg("client_app_in", 1)]), json!([]));
    let calls = |stopped: usize| {
        let mut late = leg("client_app_in", 41);
        late["host"] = json!({ "threads": [], "parts": [{ "doing": "stopped", "ns": 40 * MS }] });
        let slow = call(61, json!([leg("server_app", 20), late]), json!([]));
        let all = std::iter::repeat_n(slow, stopped).chain(std::iter::repeat_n(usual.clone(), 100 - stopped));
        of(&all.collect::<Vec<_>>())
    };
    assert_eq!(said(&calls(8)), "stopped (client)");
    // One of them is noise; that all calls take as long is the application.
    assert_eq!(said(&calls(1)), "server-app (server)");
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
fn what_came_to_warm_up_does_not_count() {
    let slow = call(900, json!([]), json!([finding("rto", "client", "shown", 800)]));
    assert_eq!(said(&evidence(5, &slow)), "rto (client)");
    let mut warm = evidence(5, &slow);
    warm.measured_from_unix_ns = Some(1001);
    assert_eq!(said(&warm), "none");
}

#[test]
fn the_more_particular_cause_has_the_time_first() {
    let mut served = leg("server_app", 30);
    served["host"] = json!({ "threads": [], "parts": [
        { "doing": "stopped", "ns": 20 * MS }, { "doing": "running", "ns": 10 * MS } ] });
    let slow = call(31, json!([served]), json!([finding("server-app", "server", "shown", 30)]));
    assert_eq!(said(&evidence(20, &slow)), "stopped (server)");
    // The same without a recording: the application is all that is seen.
    let slow =
        call(31, json!([leg("server_app", 30)]), json!([finding("server-app", "server", "shown", 30)]));
    assert_eq!(said(&evidence(20, &slow)), "server-app (server)");
}

#[test]
fn who_had_the_cpu_tells_a_flood_from_a_neighbour() {
    let waiting = |behind: Value| {
        let mut leg = leg("client_app_in", 20);
        leg["host"] =
            json!({ "threads": [], "parts": [{ "doing": "runnable", "taker": behind, "ns": 18 * MS }] });
        said(&evidence(20, &call(22, json!([leg]), json!([]))))
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
    let lost = call(210, json!([]), json!([finding("rto", "server", "shown", 200)]));
    let mut behind = call(150, json!([]), json!([finding("head-of-line", "server", "shown", 140)]));
    // Behind a larger response, at the end that sends it: a loss elsewhere does not take that.
    let three = |behind: &Value| said(&of(&[lost.clone(), behind.clone(), behind.clone()]));
    assert_eq!(three(&behind), "head-of-line (server)");
    behind["findings"][0]["side"] = Value::Null;
    assert_eq!(three(&behind), "rto (server)");
    assert_eq!(said(&of(&[behind.clone(), behind])), "head-of-line");
}

#[test]
fn a_lost_syn_is_within_the_opening_and_a_leg_yields_to_a_cause() {
    let opening = [
        finding("connection-per-call", "client", "shown", 1001),
        finding("syn-loss", "client", "shown", 1000),
    ];
    let quick = call(2, json!([]), json!([finding("connection-per-call", "client", "shown", 1)]));
    let mut calls = vec![quick; 30];
    calls.push(call(1003, json!([leg("client_app_out", 1002)]), json!(opening)));
    assert_eq!(said(&of(&calls)), "syn-loss (client)");
    let closed = finding("receive-window", "server", "shown", 40);
    assert_eq!(
        said(&of(&vec![call(100, json!([leg("server_app", 90)]), json!([closed])); 20])),
        "receive-window (server)"
    );
}

#[test]
fn two_that_explain_as_much_contradict_each_other() {
    let one = call(40, json!([]), json!([finding("rto", "server", "shown", 38)]));
    let other = call(40, json!([]), json!([finding("stream-limit", "client", "shown", 37)]));
    assert_eq!(said(&of(&[one.clone(), other.clone()])), "unknown");
    assert_eq!(said(&of(&[one.clone(), one, other])), "rto (server)");
}

#[test]
fn a_leg_speaks_where_nothing_is_shown() {
    for (name, expected) in [
        ("server_host_in", "server-queue (server)"),
        ("client_app_in", "client-app (client)"),
        ("request_wire", "network-delay"),
        ("server_host_in+server_app+server_host_out", "unknown"),
        ("client_send", "unknown"),
    ] {
        let slow = call(20, json!([leg(name, 18)]), json!([]));
        // All of them, or most.
        assert_eq!(said(&evidence(100, &slow)), expected, "{name}");
        assert_eq!(said(&evidence(95, &slow)), expected, "{name}");
        // A path that is longer for some calls only varies.
        let some = if expected == "network-delay" { "network-jitter" } else { expected };
        assert_eq!(said(&evidence(30, &slow)), some, "{name}");
    }
    let mut large = call(20, json!([leg("client_app_in", 18)]), json!([]));
    large["response_bytes"] = json!(1 << 20);
    assert_eq!(said(&evidence(30, &large)), "large-payload");
}

#[test]
fn a_path_that_varies_and_one_that_is_longer_one_way() {
    let way = |there: i64, back: i64| {
        let ms = (there + back) as u64;
        call(
            ms + 1,
            json!([leg("request_wire", there), leg("response_wire", back)]),
            json!([{ "cause": "network-delay", "certainty": "shown", "cost_ns": ms * MS,
                "instrument": "packets", "evidence": [] }]),
        )
    };
    let steady: Vec<Value> = (0..50).map(|_| way(10, 10)).collect();
    assert_eq!(said(&of(&steady)), "network-delay");
    let varying: Vec<Value> = (0..50).map(|n| way(n % 10, 10 + n % 17)).collect();
    assert_eq!(said(&of(&varying)), "network-jitter");
    let mut lopsided = of(&steady);
    let clocks = |offset_low_ns, offset_high_ns| {
        Some(Clocks { offset_low_ns, offset_high_ns, stretches: 1, ..Clocks::default() })
    };
    lopsided.clocks = clocks(-1_000_000, 19_000_000);
    // It may be the path or the clocks: the reasons say so, the verdict does not choose.
    let reasons = |evidence: &Evidence| judge(evidence).why.unwrap_or_default();
    assert_eq!(said(&lopsided), "network-delay");
    assert!(
        reasons(&lopsided)
            .ends_with("if the clocks agree, one way takes 4 times as long as the other or more")
    );
    // Clocks that differ for certain say nothing of the ways.
    lopsided.clocks = clocks(30_000_000, 50_000_000);
    assert_eq!(said(&lopsided), "network-delay");
    assert!(!reasons(&lopsided).contains("clocks agree"));
    let mut apart = evidence(0, &fast());
    apart.clocks = clocks(30_000_000, 30_100_000);
    assert_eq!(said(&apart), "clock");
    apart.clocks = clocks(-300_000, 300_000);
    assert_eq!(said(&apart), "none");
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

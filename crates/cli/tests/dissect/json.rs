//! The JSON document: its documented keys, and the consistency of its figures.

use super::{dissect, ends, json};
use serde_json::Value;

/// Keys that users rely on; keys may be added, none removed.
const KEYS: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "clock",
            "calls",
            "conclusions",
            "totals",
            "pairs",
            "connections",
            "connections_left_out",
            "capture",
            "captures",
            "caveats",
            "selection",
            "matching_calls",
            "interrupted",
            "trace_id_elsewhere",
        ],
    ),
    ("/clock", &["offset_low_ns", "offset_high_ns", "at_unix_ns", "skew_ppm", "stretches"]),
    (
        "/calls/0",
        &[
            "client",
            "server",
            "connection",
            "stream_id",
            "method",
            "protocol",
            "status",
            "ended",
            "seen_in",
            "start_unix_ns",
            "duration_ns",
            "legs",
            "findings",
            "doubts",
            "ladder",
        ],
    ),
    ("/calls/0/legs/0", &["leg", "ns", "bound_ns"]),
    ("/calls/0/findings/0", &["cause", "side", "certainty", "cost_ns", "evidence"]),
    ("/calls/0/findings/0/evidence/0", &["capture", "packet", "time_unix_ns", "what"]),
    (
        "/calls/0/ladder/packets/0",
        &[
            "capture",
            "seen_at",
            "packet",
            "time_unix_ns",
            "since_start_ns",
            "from",
            "flags",
            "seq",
            "bytes",
            "notes",
        ],
    ),
    (
        "/totals",
        &[
            "calls",
            "one_end",
            "failed",
            "unfinished",
            "p50_ns",
            "p99_ns",
            "max_ns",
            "total_ns",
            "legs",
            "causes",
        ],
    ),
    ("/totals/legs/0", &["leg", "total_ns", "bound_ns"]),
    ("/totals/causes/0", &["cause", "calls", "possible", "cost_ns"]),
    ("/pairs/0", &["client", "server", "connections", "calls", "legs", "causes"]),
    (
        "/connections/0",
        &["connection", "client", "server", "protocol", "packets", "calls", "legs", "causes", "notes"],
    ),
    ("/capture", &["packets", "dropped", "damaged", "unparsed"]),
    (
        "/captures/0",
        &["file", "side", "format", "packets", "dropped", "cut", "damaged_places", "unparsed", "unmatched"],
    ),
    ("/conclusions/0", &["cause", "calls", "seen", "meaning", "next"]),
];

#[test]
fn documented_keys_are_there() {
    let report = json(dissect().args(ends("nagle-client")));
    for (place, keys) in KEYS {
        let object = report.pointer(place).unwrap_or_else(|| panic!("nothing at {place:?}"));
        for key in *keys {
            assert!(object.get(key).is_some(), "{place}/{key} is not in {object:#}");
        }
    }
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn legs_sum_to_calls_and_all_packets_are_counted() {
    for case in ["nagle-client", "go-unary", "http1-keep-alive"] {
        let report = json(dissect().args(ends(case)).args(["--slowest", "50"]));
        let calls = report["calls"].as_array().expect("an array");
        assert!(!calls.is_empty(), "{case}");
        for call in calls {
            let legs = call["legs"].as_array().expect("an array");
            let sum: i64 = legs.iter().map(|leg| number(&leg["ns"])).sum();
            assert_eq!(sum, number(&call["duration_ns"]), "{case}: {call:#}");
        }
        let durations: Vec<i64> = calls.iter().map(|call| number(&call["duration_ns"])).collect();
        assert!(durations.windows(2).all(|pair| pair[0] >= pair[1]), "{case}: slowest first");
        let packets: i64 =
            report["captures"].as_array().expect("an array").iter().map(|one| number(&one["packets"])).sum();
        assert_eq!(packets, number(&report["capture"]["packets"]), "{case}");
    }
}

#[test]
fn either_order_gives_the_same_calls() {
    let [client, server] = ends("nagle-client");
    let one = json(dissect().args([&client, &server]));
    let other = json(dissect().args([&server, &client]));
    let facts = |report: &Value| -> Vec<Value> {
        let calls = report["calls"].as_array().expect("an array").iter();
        calls
            .map(|call| {
                let causes: Vec<Value> = call["findings"]
                    .as_array()
                    .expect("an array")
                    .iter()
                    .map(|f| f["cause"].clone())
                    .collect();
                serde_json::json!([
                    call["start_unix_ns"],
                    call["duration_ns"],
                    call["legs"],
                    call["method"],
                    causes
                ])
            })
            .collect()
    };
    assert_eq!(facts(&one), facts(&other));
    assert_eq!(one["captures"][0]["side"], "client");
    assert_eq!(other["captures"][0]["side"], "server");
    let offset = |report: &Value, key: &str| number(&report["clock"][key]);
    assert_eq!(offset(&one, "offset_low_ns"), -offset(&other, "offset_high_ns"));
}

#[test]
fn legs_are_exact_with_a_common_clock() {
    let report = json(dissect().args(ends("go-unary")).arg("--same-clock"));
    assert_eq!(
        (number(&report["clock"]["offset_low_ns"]), number(&report["clock"]["offset_high_ns"])),
        (0, 0)
    );
    for call in report["calls"].as_array().expect("an array") {
        for leg in call["legs"].as_array().expect("an array") {
            assert!(number(&leg["bound_ns"]) <= 2_000, "only the resolution of the times is left: {leg}");
        }
    }
}

#[test]
fn spans_split_the_ends() {
    let [client, server] =
        ["client", "server"].map(|end| super::fixture(&format!("rust-spans.{end}.spans.pb")));
    let report =
        json(dissect().args(ends("rust-spans")).arg("--spans").arg(client).arg("--spans").arg(server));
    let calls = report["calls"].as_array().expect("an array");
    let has = |leg: &str| {
        calls
            .iter()
            .any(|call| call["legs"].as_array().is_some_and(|legs| legs.iter().any(|one| one["leg"] == leg)))
    };
    for leg in ["client_app_out", "server_app", "client_app_in"] {
        assert!(has(leg), "{leg} is in no call of {calls:#?}");
    }
}

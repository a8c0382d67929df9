//! Every capture of `fixtures/captures`: the cause it was made to show is found, and the causes it was made
//! to exclude are not.

use crate::{calls, capture, captures, dissect, names, truth};
use serde_json::Value;

/// What dissect should report about one fixture and does not.
fn misses(name: &str, about: &Value) -> Vec<String> {
    let ends = [capture(name, "client"), capture(name, "server")];
    let keys = captures().join(format!("{name}.keys"));
    let keys = keys.to_string_lossy();
    let arguments = if std::path::Path::new(&*keys).exists() { vec!["--keylog", &keys] } else { Vec::new() };
    let mut misses = Vec::new();
    let report = dissect(&[&ends[0], &ends[1]], &arguments);
    misses.extend(truth::contradictions(&report).into_iter().take(1));
    match truth::clock(&report) {
        None if about["clock"] == "unknown" => {}
        None => misses.push("nothing bounds the clocks".into()),
        Some(_) if about["clock"] == "unknown" => misses.push("the clocks are bounded after all".into()),
        Some((low, high, _)) if low > 0 || high < 0 => {
            misses.push(format!("the clocks are one, and their offset was taken to be in {low}..{high} ns"));
        }
        Some(_) => {}
    }
    if calls(&report).is_empty() {
        misses.push("no call was found".into());
    }
    let expected = &about["expected"];
    if let Some(causes) = expected["cause"].as_str() {
        let side = expected["side"].as_str();
        let found = calls(&report)
            .iter()
            .filter(|call| {
                call["findings"].as_array().expect("findings").iter().any(|finding| {
                    causes.split('|').any(|cause| finding["cause"] == cause)
                        && side.is_none_or(|side| finding["side"] == side)
                })
            })
            .count() as u64;
        let least = expected["at_least_calls"].as_u64().expect("a number of calls");
        if found < least {
            misses.push(format!("{causes} at {side:?}: {found} calls of at least {least}"));
        }
        // A cause that delays a connection but no call must be reported for the connection.
        if least == 0 && !report["connections"].to_string().contains(causes) {
            misses.push(format!("{causes} is said of no connection"));
        }
    }
    let must_not: Vec<&str> =
        about["must_not"].as_array().expect("causes").iter().filter_map(Value::as_str).collect();
    let named = |report: &Value, shown_only: bool, seen: &str, misses: &mut Vec<String>| {
        for cause in &must_not {
            let blamed: Vec<&Value> = calls(report)
                .iter()
                .filter(|call| {
                    call["findings"].as_array().expect("findings").iter().any(|finding| {
                        finding["cause"] == *cause && (!shown_only || finding["certainty"] == "shown")
                    })
                })
                .collect();
            if let Some(first) = blamed.first() {
                misses.push(format!(
                    "{cause} is blamed for {} calls {seen}, first stream {} of {}",
                    blamed.len(),
                    first["stream_id"],
                    first["client"]
                ));
            }
        }
    };
    named(&report, false, "by both ends", &mut misses);
    // With one end, less is known: a finding may be merely possible, but must not be shown and wrong.
    for (end, file) in ["the client's end", "the server's end"].into_iter().zip(&ends) {
        let report = dissect(&[file], &arguments);
        misses.extend(truth::contradictions(&report).into_iter().take(1));
        named(&report, true, &format!("by {end} alone"), &mut misses);
    }
    misses
}

#[test]
fn every_fixture_shows_its_cause() {
    let mut failed = Vec::new();
    for name in names() {
        let text =
            std::fs::read_to_string(captures().join(format!("{name}.json"))).expect("what is known of it");
        let about: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}.json: {error}"));
        let misses = misses(&name, &about);
        match (about["known_miss"].as_str(), misses.is_empty()) {
            (Some(why), false) => println!("known miss: {name}: {}: {why}", misses.join("; ")),
            (Some(_), true) => {
                failed.push(format!("{name}: is a known miss no more: take it out of its JSON"))
            }
            (None, false) => failed.push(format!("{name}: {}", misses.join("; "))),
            (None, true) => {}
        }
    }
    assert!(failed.is_empty(), "{} of the fixtures:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn spans_separate_the_application_from_the_wire() {
    let ends = ["client", "server"].map(|end| capture("rust-spans", end));
    let spans = ["client", "server"].map(|end| captures().join(format!("rust-spans.{end}.spans.pb")));
    let spans = spans.each_ref().map(|path| path.to_string_lossy());
    let report = dissect(&[&ends[0], &ends[1]], &["--spans", &spans[0], "--spans", &spans[1]]);
    truth::consistent(&report);
    let pings: Vec<&Value> = calls(&report)
        .iter()
        .filter(|call| call["method"].as_str().is_some_and(|m| m.ends_with("Ping")))
        .collect();
    assert!(pings.len() >= 50, "{} calls of Ping", pings.len());
    for call in pings {
        let legs = call["legs"].as_array().expect("legs");
        for one in ["client_app_out", "request_wire", "server_app", "response_wire", "client_app_in"] {
            assert!(legs.iter().any(|leg| leg["leg"] == one), "no leg {one} in {call:#}");
        }
        // The target was told to think for 5 ms.
        let app = legs.iter().find(|leg| leg["leg"] == "server_app").and_then(|leg| leg["ns"].as_i64());
        assert!(app.is_some_and(|ns| ns >= 5_000_000), "{call:#}");
    }
}

/// Spans of OpenTelemetry for JavaScript are early by up to a millisecond, as long as half of these calls take. Taken at their
/// word, some end before their call's first byte leaves.
#[test]
fn spans_that_begin_in_whole_milliseconds_are_placed_by_the_packets_of_their_hosts() {
    let of = |end: &str, kind: &str| {
        captures().join(format!("../strangers/http1-node-spans.{end}.{kind}")).to_string_lossy().into_owned()
    };
    let packets = ["client", "server"].map(|end| std::path::PathBuf::from(of(end, "pcapng.zst")));
    let spans = ["client", "server"].map(|end| of(end, "spans.pb"));
    let report = dissect(&[&packets[0], &packets[1]], &["--spans", &spans[0], "--spans", &spans[1]]);
    assert_eq!(calls(&report).len(), 58);
    truth::consistent(&report);
    for call in calls(&report) {
        let legs = call["legs"].as_array().expect("legs");
        assert_eq!(legs.len(), 9, "every moment of a call is known: {call:#}");
        let of = |name: &str, key: &str| {
            let leg = legs.iter().find(|leg| leg["leg"] == name).expect("the leg");
            leg[key].as_i64().expect("nanoseconds")
        };
        for at_span in ["client_app_out", "server_host_in", "client_app_in"] {
            assert!(of(at_span, "ns") >= -of(at_span, "bound_ns"), "{at_span}: {call:#}");
            assert!(of(at_span, "bound_ns") <= 501_000, "{at_span}: {call:#}");
        }
        // Packets leave it some room, and the figure says how much.
        assert!(of("client_app_out", "bound_ns") > 1_000, "{call:#}");
    }
}

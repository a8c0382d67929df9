//! What calls wait for before their connection carries them, compared with what their clients measured: each
//! call of a capture that waited has the finding, with its cost, and no other call has one.

use crate::{calls, capture, captures, dissect};
use serde_json::Value;
use std::collections::HashMap;

/// How long each call waited by its client's clock, in nanoseconds, by trace id.
fn truth(name: &str) -> HashMap<String, u64> {
    let path = captures().join(format!("{name}.client.spans"));
    let spans: Value = serde_json::from_str(&std::fs::read_to_string(path).expect("spans")).expect("JSON");
    let spans = spans["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("spans");
    let one = |span: &Value| {
        let waited = span["attributes"][0]["value"]["intValue"].as_str()?.parse().ok()?;
        Some((span["traceId"].as_str()?.to_owned(), waited))
    };
    spans.iter().filter_map(one).collect()
}

/// Compares with each end's capture that can see the wait, and with both.
fn compare(name: &str, cause: &str) {
    compare_with(name, cause, true);
}

/// The keys decrypt the calls; without them, spans are matched by time.
fn compare_with(name: &str, cause: &str, opened: bool) {
    let truth = truth(name);
    let spans = captures().join(format!("{name}.client.spans"));
    let keys = captures().join(format!("{name}.keys"));
    let mut arguments = vec!["--same-clock", "--spans", spans.to_str().expect("text")];
    if opened && keys.exists() {
        arguments.extend(["--keylog", keys.to_str().expect("text")]);
    }
    let [client, server] = ["client", "server"].map(|end| capture(name, end));
    for files in [&[client.as_path(), &server][..], &[&client]] {
        let arguments = if files.len() == 1 { &arguments[1..] } else { &arguments[..] };
        let report = dissect(files, arguments);
        assert_eq!(calls(&report).len(), truth.len(), "{name}");
        for call in calls(&report) {
            let findings = call["findings"].as_array().expect("findings").iter();
            let found: Vec<&Value> =
                findings.filter(|one| one["cause"] == cause && one["certainty"] == "shown").collect();
            let cost_ns: u64 = found.iter().filter_map(|one| one["cost_ns"].as_u64()).sum();
            let waited_ns = truth[call["trace_id"].as_str().expect("a trace id")];
            // The client's measurement includes delays of its own threads.
            let off_ns = cost_ns.abs_diff(waited_ns);
            assert!(off_ns <= 3_000_000 + waited_ns / 5, "{name}: {cost_ns} of {waited_ns} ns: {call:#}");
            assert!(found.iter().all(|one| one["cost_ns"].is_u64() && one["when"].is_object()), "{found:?}");
        }
    }
}

#[test]
fn tls_handshakes_match_the_clients_measurement() {
    compare("tls-handshake", "tls-handshake");
    compare("tls-in-advance", "tls-handshake");
}

#[test]
fn tls_handshakes_without_keys_match_the_clients_measurement() {
    for name in ["tls-handshake", "tls-in-advance", "tls12-handshake"] {
        compare_with(name, "tls-handshake", false);
    }
}

#[test]
fn dns_lookups_match_the_clients_measurement() {
    compare("dns", "dns");
    compare("dns-in-advance", "dns");
}

#[test]
fn pool_waits_match_the_clients_measurement() {
    compare("pool-wait", "pool-wait");
    compare("pool-near", "pool-wait");
}

/// Calls whose bytes wait in the client's buffer behind lost ones: most leave long after the client gave up.
#[test]
fn calls_abandoned_in_the_send_buffer_waited_for_a_loss() {
    let spans = captures().join("black-hole-buffered.client.spans");
    let [client, server] = ["client", "server"].map(|end| capture("black-hole-buffered", end));
    let report = dissect(&[&client, &server], &["--same-clock", "--spans", spans.to_str().expect("text")]);
    let (mut late, mut waited) = (0, 0);
    for call in calls(&report) {
        let duration_ns = call["duration_ns"].as_i64().expect("a duration");
        let legs = call["legs"].as_array().expect("legs");
        // A leg longer than its call went on after the call had ended.
        for leg in legs {
            let ns = leg["ns"].as_i64().expect("a leg");
            assert!(ns <= duration_ns + 1_000_000 && ns >= -1_000_000, "{leg} of {duration_ns}: {call:#}");
        }
        if legs.len() > 1 || legs[0]["leg"] != "client_app_out" {
            continue;
        }
        late += 1;
        let findings = call["findings"].as_array().expect("findings").iter();
        let lost = |one: &&Value| one["certainty"] == "shown" && one["cause"] == "receiver-drop";
        let cost_ns: i64 = findings.filter(lost).filter_map(|one| one["cost_ns"].as_i64()).sum();
        waited += usize::from(2 * cost_ns >= duration_ns);
    }
    assert!(late >= 50, "{late}");
    assert!(waited * 10 >= late * 9, "{waited} of {late}");
}

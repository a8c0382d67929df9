//! Unanswered calls of real clients that gave up: each capture of `fixtures/captures` whose description has
//! `ends`, with both ends and with each end alone.

use serde_json::Value;
use spangap_model::{Cause, Leg, Legs};
use spangap_wire::dissect::{Dissection, Settings, dissect};
use spangap_wire::report::{CallReport, DissectPage, DissectReport, Extras, table};
use spangap_wire::source::Capture;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

const MS: u64 = 1_000_000;

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/captures"))
}

/// The captures of a fixture at the client and the server.
fn ends(name: &str) -> [PathBuf; 2] {
    ["client", "server"].map(|side| {
        let stored = ["pcapng", "pcapng.zst"].map(|suffix| folder().join(format!("{name}.{side}.{suffix}")));
        stored
            .into_iter()
            .find(|path| path.exists())
            .unwrap_or_else(|| panic!("{name}: the {side}'s capture"))
    })
}

/// Name and truth of the fixtures with calls without a response.
fn fixtures() -> Vec<(String, Value)> {
    let files = std::fs::read_dir(folder()).expect("the fixtures are there");
    let mut all: Vec<(String, Value)> = files
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".json")?.to_owned()))
        .map(|name| {
            let text = std::fs::read_to_string(folder().join(format!("{name}.json"))).expect("a file");
            let about: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, about)
        })
        .filter(|(_, about)| about.get("ends").is_some())
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

fn run(paths: &[&Path], over_ns: Option<u64>) -> (Dissection, DissectReport) {
    let open = |path: &&Path| Capture::open(path).expect("a capture");
    let settings = Settings { slowest: 1000, over_ns, ..Settings::default() };
    let dissection = dissect(paths.iter().map(open).collect(), &settings, &mut |_| ControlFlow::Continue(()))
        .expect("files can be read twice");
    let report = DissectReport::new(&dissection, &settings, &Extras::default());
    (dissection, report)
}

fn unanswered(report: &DissectReport) -> Vec<&CallReport> {
    let is = |call: &&CallReport| call.ending.as_ref().is_some_and(|ending| ending.unanswered);
    report.calls.iter().filter(is).collect()
}

#[test]
fn unanswered_calls_last_until_the_client_gives_up() {
    let fixtures = fixtures();
    assert!(fixtures.len() >= 10, "{} fixtures", fixtures.len());
    for (name, about) in fixtures {
        let truth = &about["ends"];
        let number = |key: &str| truth[key].as_u64().unwrap_or_else(|| panic!("{name}: no {key}"));
        let [client, server] = ends(&name);
        let lost = about["expected"]["cause"] == "black-hole";
        let views: [(&str, &[&Path]); 3] =
            [("both", &[&client, &server]), ("client", &[&client]), ("server", &[&server])];
        for (view, paths) in views {
            if lost && view == "server" {
                // A request that never arrived is in no packet there.
                continue;
            }
            let (dissection, report) = run(paths, None);
            let calls = unanswered(&report);
            let what = format!("{name}, {view}: {calls:#?}");
            assert_eq!(calls.len() as u64, number("unanswered"), "{what}");
            assert_eq!(report.totals.unanswered, number("unanswered"), "{what}");
            // They are the slowest, so they come first.
            assert!(report.calls[..calls.len()].iter().all(|call| call.ending.is_some()), "{what}");
            for call in &calls {
                let within = number("least_ms") * MS..=number("most_ms") * MS;
                assert!(within.contains(&call.duration_ns), "{what}");
                let last = call.legs.last().map(|leg| leg.legs);
                let expected = if lost && view == "both" { Leg::RequestWire } else { Leg::NoResponse };
                assert_eq!(last, Some(Legs::one(expected)), "{what}");
                let sum: i64 = call.legs.iter().map(|leg| leg.ns).sum();
                assert_eq!(sum, call.duration_ns as i64, "{what}");
                let causes: Vec<Cause> = call.findings.iter().map(|finding| finding.culprit.cause).collect();
                assert!(!causes.contains(&Cause::NetworkDelay), "{what}");
                if lost && view == "client" {
                    // It was retransmitted and never acknowledged: one end can show that much.
                    assert!(
                        !call.ending.as_ref().is_some_and(|ending| ending.request_acknowledged),
                        "{what}"
                    );
                    assert_eq!(causes.first(), Some(&Cause::Rto), "{what}");
                    continue;
                }
                let cause = if lost { Cause::BlackHole } else { Cause::NoResponse };
                assert_eq!(causes.first(), Some(&cause), "{what}");
                // One end alone is the server's only if its round trips show it.
                assert!(view != "both" || call.findings[0].is_shown(), "{what}");
            }
            let mut statuses: BTreeMap<&str, u64> = BTreeMap::new();
            for call in &calls {
                *statuses.entry(call.status.unwrap_or("none")).or_default() += 1;
            }
            assert_eq!(serde_json::json!(statuses), truth["statuses"], "{what}");
            // Totals, conclusion, table and page agree.
            let durations: u64 = dissection.calls.iter().map(|call| call.duration_ns).sum();
            assert_eq!(report.totals.total_ns, durations, "{what}");
            let leg_ns: i64 = report.totals.legs.iter().map(|leg| leg.total_ns).sum();
            let bound_ns: u64 = report.totals.legs.iter().map(|leg| leg.bound_ns).sum();
            assert!(leg_ns.abs_diff(report.totals.total_ns as i64) <= bound_ns, "{what}");
            let words = &report.conclusions.first().expect("a conclusion").seen;
            let said = match (lost, view) {
                (true, "both") => "sent a request that never arrived",
                (true, _) => "waited for a retransmission timer",
                (false, _) => "ended without a response",
            };
            assert!(words.contains(said), "{what} {words}");
            let text = table::write(&report, 200);
            assert!(text.contains(&format!("{} without a response", number("unanswered"))), "{text}");
            let page = serde_json::to_string(&DissectPage::new(&report)).expect("plain data");
            assert!(page.contains("server: no response") || lost, "{name}");
            // They are slow, whatever the selection.
            let (_, slow) = run(paths, Some(number("least_ms") * MS));
            assert_eq!(unanswered(&slow).len(), calls.len(), "{what}");
        }
    }
}

#[test]
fn answered_calls_have_no_ending() {
    for name in ["http1-pipelined", "go-unary", "raw-unary", "tls12-cbc", "tls13-http2", "python-unary"] {
        let [client, server] = ends(name);
        for paths in [&[client.as_path(), &server][..], &[&client], &[&server]] {
            let (_, report) = run(paths, None);
            assert!(report.totals.calls > 0);
            assert_eq!((unanswered(&report).len(), report.totals.unanswered), (0, 0), "{name}");
        }
    }
}

//! Captures of third-party programs, compared with what these programs reported: the number of calls by
//! method and status. `fixtures/strangers` has both.

use serde_json::Value;
use spangap_wire::dissect::{Settings, dissect};
use spangap_wire::exchange::Exchange;
use spangap_wire::packet::Packet;
use spangap_wire::report::{CallReport, DissectReport, Extras};
use spangap_wire::source::Capture;
use spangap_wire::tap::Tap;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/strangers"))
}

/// Names of the fixtures, and the programs' reports.
fn fixtures() -> BTreeMap<String, Value> {
    let files = std::fs::read_dir(folder()).expect("the fixtures are there");
    let named = files
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".json")?.to_owned()))
        .map(|name| {
            let text = std::fs::read_to_string(folder().join(format!("{name}.json"))).expect("a file");
            let about = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, about)
        });
    named.collect()
}

/// The capture of a fixture, or those of both ends.
fn captures(name: &str) -> Vec<Capture> {
    let path = |end: &str| folder().join(format!("{name}{end}.pcapng.zst"));
    let paths = if path("").exists() { vec![path("")] } else { vec![path(".client"), path(".server")] };
    paths.iter().map(|path| Capture::open(path).expect("a capture")).collect()
}

fn report(name: &str) -> DissectReport {
    let key_log = std::fs::read(folder().join(format!("{name}.keys"))).unwrap_or_default();
    let settings = Settings { slowest: 100_000, key_log, ..Settings::default() };
    let dissection = dissect(captures(name), &settings, &mut |_| ControlFlow::Continue(()))
        .expect("a file can be read twice");
    DissectReport::new(&dissection, &settings, &Extras::default())
}

/// A call as the fixtures name it: protocol, method, status.
fn name_of(call: &CallReport) -> String {
    let call = serde_json::to_value(call).expect("JSON");
    let word = |key: &str| match &call[key] {
        Value::String(text) => text.clone(),
        Value::Null => "-".into(),
        other => other.to_string(),
    };
    let status = if call["http_status"].is_null() { word("status") } else { word("http_status") };
    format!("{} {} {status}", word("protocol"), word("method"))
}

#[test]
fn calls_are_what_the_programs_said_they_were() {
    let fixtures = fixtures();
    assert!(fixtures.len() >= 17, "{} fixtures", fixtures.len());
    for (name, about) in fixtures {
        let report = report(&name);
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        report.calls.iter().for_each(|call| *found.entry(name_of(call)).or_default() += 1);
        let said: BTreeMap<String, u64> = serde_json::from_value(about["calls"].clone())
            .unwrap_or_else(|error| panic!("{name}: calls: {error}"));
        if about["spread"] == true {
            certain_calls_are_among(&said, &report, &name);
        } else {
            assert_eq!(found, said, "{name}: {}", about["how"]);
            assert_eq!(Some(report.totals.failed), about["failed"].as_u64(), "{name}: {}", about["how"]);
        }
        let text = serde_json::to_string(&report).expect("JSON");
        for never in about["never_said"].as_array().into_iter().flatten() {
            let never = never.as_str().expect("words");
            assert!(!text.contains(never), "{name}: `{never}` is said, but {}", about["how"]);
        }
        for said in about["said"].as_array().into_iter().flatten() {
            let said = said.as_str().expect("words");
            assert!(text.contains(said), "{name}: `{said}` is not said, but {}", about["how"]);
        }
        if let Some(causes) = about.get("causes") {
            let found: Vec<&str> =
                report.totals.causes.iter().map(|of_cause| of_cause.cause.name()).collect();
            for cause in causes.as_array().into_iter().flatten() {
                assert!(found.iter().any(|found| *found == cause), "{name}: {cause} is not in {found:?}");
            }
        }
    }
}

/// Where calls are incomplete, those without a doubt are real.
fn certain_calls_are_among(said: &BTreeMap<String, u64>, report: &DissectReport, name: &str) {
    let mut certain: BTreeMap<String, u64> = BTreeMap::new();
    let calls = report.calls.iter().filter(|call| call.doubts.is_empty());
    calls.for_each(|call| *certain.entry(name_of(call)).or_default() += 1);
    for (call, count) in &certain {
        assert!(said.get(call) >= Some(count), "{name}: {count} of {call}, but {said:?}");
    }
}

#[test]
fn every_capture_says_what_it_is() {
    let named = fixtures();
    for entry in std::fs::read_dir(folder()).expect("the fixtures are there") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        let fixture = name.split('.').next().unwrap_or_default();
        assert!(
            Path::new(name) == Path::new("README.md") || named.contains_key(fixture),
            "{name}: no {fixture}.json says what its calls are"
        );
    }
}

/// The exchanges of a capture whose clock is changed by `by_ns` from one packet on.
fn with_clock_set(name: &str, from_packet: u64, by_ns: i64) -> Vec<Exchange> {
    let mut capture = Capture::open(&folder().join(format!("{name}.pcapng.zst"))).expect("a capture");
    let (mut tap, mut exchanges) = (Tap::default(), Vec::new());
    while let Some(packet) = capture.next() {
        let by_ns = if packet.number < from_packet { 0 } else { by_ns };
        tap.packet(&Packet { time_ns: packet.time_ns + by_ns, ..packet });
        tap.take_exchanges(&mut exchanges);
    }
    tap.finish();
    tap.take_exchanges(&mut exchanges);
    assert_eq!(tap.counts().set_back.times, u64::from(by_ns < 0), "{name}");
    assert_eq!(tap.counts().set_forward.times, u64::from(by_ns > 0), "{name}");
    exchanges
}

#[test]
fn a_clock_that_was_set_changes_no_call_before_or_after_and_is_said_of_those_between() {
    let by = [-2_000_000_000, 3_600_000_000_000, 60_000_000_000];
    let each = ["http1-python", "grpc-python-ipv6", "dense-java"]
        .into_iter()
        .flat_map(|name| by.map(|by| (name, by)));
    for (name, by_ns) in each {
        let plain = with_clock_set(name, 0, 0);
        // While the call in the middle waits for its response.
        let answer = plain[plain.len() / 2..].iter().find_map(|one| one.response);
        let from_packet = answer.expect("one has an answer").first.packet;
        let set = with_clock_set(name, from_packet, by_ns);
        assert_eq!(plain.len(), set.len(), "{name}");
        let took = |one: &Exchange| one.response.map(|part| part.last.ready_ns - one.request.first.seen_ns);
        let mut between = 0;
        for (plain, set) in plain.iter().zip(&set) {
            assert!(!plain.doubts.clock_set, "{name}");
            let before = plain.request.first.packet < from_packet;
            let ends = plain.response.map_or(0, |part| part.last.packet).max(plain.request.last.packet);
            if before && ends >= from_packet {
                assert!(set.doubts.clock_set, "{name}: {set:?}");
                between += 1;
            } else if !set.doubts.clock_set {
                assert_eq!(took(set), took(plain), "{name}: {set:?}");
            }
        }
        assert!(between > 0, "{name}: a call was under way");
        assert!(set.iter().filter(|one| one.doubts.clock_set).count() <= between + 1, "{name}");
    }
}

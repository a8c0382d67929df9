//! Reading only the times of spans gives the times that reading everything gives.

use super::damage::{edited, edits};
use super::{content, derived};
use proptest::prelude::*;
use spangap_meter::ingest::delivery::FileReport;
use spangap_meter::ingest::file::{Input, ReadError, read, read_times};
use spangap_meter::ingest::times::{HalfTimes, TimesReader};
use std::io::Write;
use std::ops::ControlFlow;

type Read = (Vec<HalfTimes>, Result<FileReport, ReadError>);

/// By [`read`] and a [`TimesReader`], and by [`read_times`].
fn both(bytes: &[u8]) -> [Read; 2] {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(bytes).expect("written");
    let input = Input::Path(file.path().to_path_buf());
    let (mut of_all, mut of_times) = (Vec::new(), Vec::new());
    let mut reader = TimesReader::default();
    let mut sink = |request: &[u8]| reader.read(request, &mut |half| of_all.push(half));
    let whole = read(&input, &mut sink, &mut |_| ControlFlow::Continue(()));
    let times = read_times(&input, &mut |half| of_times.push(half), &mut |_| ControlFlow::Continue(()));
    [(of_all, whole), (of_times, times)]
}

#[test]
fn every_format_gives_the_same_times() {
    let written = ["otlp.json", "otlp.jsonl", "jaeger.json", "zipkin.json", "zipkin-shared-ids.json"];
    let written = written.map(|name| (name, content(name)));
    for (name, bytes) in derived().into_iter().chain(written) {
        let [(whole, all), (times, only)] = both(&bytes);
        assert!(!whole.is_empty(), "{name} has calls");
        assert_eq!(whole, times, "{name}");
        assert_eq!(all.expect("readable"), only.expect("readable"), "{name}");
    }
}

#[test]
fn ports_are_found_wherever_they_stand() {
    let span = |attributes: &str| {
        format!(
            r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{"traceId":"{}","spanId":"{}","kind":3,
            "startTimeUnixNano":"5","endTimeUnixNano":9,"attributes":[{attributes}]}}]}}]}}]}}"#,
            "ab".repeat(16),
            "cd".repeat(8)
        )
    };
    for (attributes, port) in [
        (r#"{"key":"server.port","value":{"intValue":"443"}}"#, Some(443)),
        (r#"{"value":{"intValue":443},"key":"server.port"}"#, Some(443)),
        (
            r#"{"key":"net.peer.port","value":{"stringValue":"80"}},{"key":"server.port","value":{"intValue":443}}"#,
            Some(443),
        ),
        (r#"{"key":"a","value":{"arrayValue":{"values":[{"intValue":1}]}}},null"#, None),
        (
            r#"{"key":"a","value":{"kvlistValue":{"values":[{"key":"server.port","value":{"intValue":1}}]}}}"#,
            None,
        ),
        (r#"{"key":null,"value":{"intValue":1}}"#, None),
        ("", None),
    ] {
        let [(whole, _), (times, _)] = both(span(attributes).as_bytes());
        assert_eq!(whole, times, "{attributes}");
        if !attributes.ends_with("null") {
            assert_eq!(times.first().map(|half| half.server_port), Some(port), "{attributes}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// What is damaged beside the times may cost a span whose times are read all the same, and never the other way around.
    #[test]
    fn damage_costs_no_more_times(name in prop::sample::select(&["otlp.json", "otlp.jsonl"][..]), edits in edits()) {
        let [(whole, all), (mut times, only)] = both(&edited(content(name), edits));
        if all.is_ok_and(|report| report.skipped_places == 0) {
            prop_assert_eq!(&whole, &times);
            prop_assert_eq!(only.map(|report| report.skipped_places).ok(), Some(0));
        }
        for half in whole {
            let at = times.iter().position(|other| *other == half);
            prop_assert!(at.is_some(), "{half:?} is missing");
            at.into_iter().for_each(|at| _ = times.swap_remove(at));
        }
    }
}

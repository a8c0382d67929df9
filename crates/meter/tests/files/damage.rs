//! Damaged files: damage affects only the damaged part, and is reported with its place.

use super::streaming::large_document;
use super::*;

/// JSON without whitespace, and of a Jaeger document only the first traces: the time to cut it at every byte
/// grows with the square of its length.
fn compact(name: &str) -> Vec<u8> {
    let mut json: serde_json::Value = serde_json::from_slice(&content(name)).expect("the fixture is JSON");
    if let Some(traces) = json.get_mut("data").and_then(|data| data.as_array_mut()) {
        traces.truncate(2);
    }
    json.to_string().into_bytes()
}

#[test]
fn truncation_anywhere_keeps_the_spans_before_it_and_is_reported() {
    // The text to cut, a key that occurs once per span, and the number of spans that the very last byte may
    // cost.
    let text = [
        (compact("otlp.json"), Some("\"parentSpanId\":"), 1),
        (lines().concat(), Some("\"parentSpanId\":"), 1),
        (compact("zipkin.json"), Some("\"traceId\":"), 1),
        (compact("jaeger.json"), None, 4),
    ];
    for (whole, key, last) in text {
        let expected = facts(&read_bytes(&whole).0);
        let mut most = 0;
        for cut in 1..whole.len() {
            let part = &whole[..cut];
            let (requests, report) = read_bytes(part);
            let facts = facts(&requests);
            assert!(facts.is_subset(&expected), "cut at {cut}: {facts:?}");
            assert!(facts.len() >= most, "cut at {cut} keeps {} of {most} spans", facts.len());
            most = facts.len();
            // Every span but the truncated one must be there.
            let begun = key.map_or(0, |key| String::from_utf8_lossy(part).matches(key).count());
            assert!(facts.len() + 1 >= begun, "cut at {cut} keeps {} of {begun} spans", facts.len());
            // A cut at the end of a line is undetectable.
            let whole_line = whole[cut] == b'\n' || part.ends_with(b"\n");
            if let Ok(report) = report {
                assert!(whole_line || report.skipped_places > 0, "cut at {cut} is not reported");
            } else {
                assert_eq!(most, 0);
            }
        }
        assert!(most >= expected.len() - last, "{most}");
    }
}

#[test]
fn truncation_of_binary_files_keeps_the_spans_before_it_and_is_reported() {
    for name in ["otlp.pb", "otlp-lengths.pb", "otlp-lengths-zstd.pb", "otlp.jsonl.gz", "otlp.jsonl.zst"] {
        let whole = content(name);
        let (expected, _) = read_well(&whole);
        let mut most = 0;
        for cut in 1..whole.len() {
            let (requests, report) = read_bytes(&whole[..cut]);
            let facts = facts(&requests);
            assert!(facts.is_subset(&expected), "{name} cut at {cut}: {facts:?}");
            assert!(facts.len() >= most, "{name} cut at {cut} keeps {} of {most} spans", facts.len());
            most = facts.len();
            let unseen = boundaries(name, &whole).contains(&cut);
            match report {
                Ok(report) => {
                    assert_eq!(unseen, report.skipped_places == 0, "{name} cut at {cut}: {report:?}")
                }
                Err(_) => assert_eq!(most, 0),
            }
        }
        // A compressor's block is delivered as a whole or not at all.
        let last = if name.contains("zst") { 2 } else { 1 };
        assert!(most >= expected.len() - last, "{name}: {most}");
    }
}

/// The ends of messages, frames or gzip members in a fixture.
fn boundaries(name: &str, whole: &[u8]) -> Vec<usize> {
    let pieces: Vec<usize> = match name {
        "otlp.pb" => {
            let request = TracesData::decode(whole).expect("the fixture is well-formed");
            let each = request.resource_spans.into_iter();
            each.map(|r| TracesData { resource_spans: vec![r] }.encoded_len()).collect()
        }
        "otlp-lengths.pb" | "otlp-lengths-zstd.pb" => {
            let mut pieces = Vec::new();
            let mut rest = whole;
            while let Some((len, content)) = rest.split_first_chunk::<4>() {
                let len = u32::from_be_bytes(*len) as usize;
                pieces.push(4 + len);
                rest = &content[len..];
            }
            pieces
        }
        "otlp.jsonl.gz" => lines().iter().map(|line| gzip(line).len()).collect(),
        _ => lines().iter().map(|line| zstd(line).len()).collect(),
    };
    let mut at = 0;
    pieces
        .into_iter()
        .map(|len| {
            at += len;
            at
        })
        .collect()
}

#[test]
fn a_broken_line_loses_only_itself() {
    let lines = lines();
    let broken: [&[u8]; 5] = [
        b"{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"key\":\"service.na\n",
        b"not JSON at all\n",
        b"{\"resourceSpans\":[}]}\n",
        b"{\"resourceSpans\":[]}}\n",
        b"{\"resourceSpans\":\"none\"}\n",
    ];
    let expected = facts(&read_bytes(&[&lines[0][..], &lines[2]].concat()).0);
    for broken in broken {
        for (text, line) in [
            ([&lines[0][..], broken, &lines[2]].concat(), 2),
            ([broken, &lines[0][..], &lines[2]].concat(), 1),
        ] {
            // A file that does not begin like JSON is not recognised as JSON.
            if line == 1 && broken[0] != b'{' {
                continue;
            }
            let (requests, report) = read_bytes(&text);
            let report = report.expect("readable");
            assert_eq!(facts(&requests), expected, "{report:?}");
            assert_eq!(report.skipped.len(), 1, "{report:?}");
            assert!(report.skipped[0].place.starts_with(&format!("line {line}, offset ")), "{report:?}");
            assert!(report.skipped[0].reason.contains("expected"), "{report:?}");
        }
    }
}

#[test]
fn a_truncated_line_keeps_its_complete_spans() {
    let lines = lines();
    let cut = lines[0].windows(6).rposition(|w| w == b"\"spanI").expect("a span id");
    let text = [&lines[0][..cut], b"\n", &lines[2]].concat();
    let (requests, report) = read_bytes(&text);
    let report = report.expect("readable");
    // Four of the first line's five spans, and both of the third line's.
    assert_eq!((facts(&requests).len(), report.skipped.len()), (4 + 2, 1), "{report:?}");
}

#[test]
fn an_invalid_span_loses_only_itself_and_is_counted() {
    let text = |name| String::from_utf8(content(name)).expect("text");
    let cases = [
        (text("otlp.json").replace("\"spanId\": \"1112131415161718\"", "\"spanId\": \"not hex\""), 1, "hex"),
        (text("otlp.json").replace("\"kind\": 3", "\"kind\": \"CALLER\""), 5, "SPAN_KIND_CLIENT"),
        (
            text("otlp.jsonl").replacen("\"startTimeUnixNano\":\"", "\"startTimeUnixNano\":\"x", 1),
            1,
            "64-bit",
        ),
        (text("jaeger.json").replacen("\"spanID\": \"00f067", "\"spanID\": \"+0f067", 1), 1, "16 hex digits"),
        (text("zipkin.json").replacen("\"id\": \"", "\"id\": \"11112222333344445", 1), 1, "16 hex digits"),
        (text("zipkin.json").replacen("\"id\": \"00f067aa0ba902b7\", ", "", 1), 1, "missing field `id`"),
    ];
    for (text, lost, expected) in cases {
        let (requests, report) = read_bytes(text.as_bytes());
        let report = report.expect("readable");
        assert!(
            report.skipped.iter().all(|s| s.reason.contains(expected) && s.spans == Some(1)),
            "{report:?}"
        );
        let all = facts(&requests).len() as u64;
        assert_eq!((all, report.skipped_spans), (11 - lost, lost), "{report:?}");
    }
}

#[test]
fn the_place_of_an_error_is_exact() {
    let text = String::from_utf8(content("otlp.json")).expect("text");
    let at = text.find("\"3132333435363738\"").expect("a span id of the fixture");
    let text = text.replacen("3132333435363738", "3132333435363x38", 1);
    let line = text[..at].matches('\n').count() + 1;
    let report = read_bytes(text.as_bytes()).1.expect("readable");
    let place = &report.skipped[0].place;
    let offset: usize = place.rsplit(' ').next().and_then(|n| n.parse().ok()).expect("an offset");
    assert!(place.starts_with(&format!("line {line}, ")), "{place}");
    assert!((at..at + 20).contains(&offset), "{place} should be near {at}");
}

#[test]
fn records_of_skipped_places_are_bounded() {
    let text = "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[7]}]}]}\n".repeat(SKIPPED_KEPT * 3);
    let report = read_bytes(text.as_bytes()).1.expect("readable");
    assert_eq!(report.skipped.len(), SKIPPED_KEPT);
    assert_eq!(
        (report.skipped_places, report.skipped_spans),
        (3 * SKIPPED_KEPT as u64, 3 * SKIPPED_KEPT as u64)
    );
}

#[test]
fn other_files_are_rejected_with_a_reason() {
    for (bytes, found) in [
        (&b""[..], "empty"),
        (b"  \n ", "  \\n "),
        (b"time,trace,span\n", "time,trace,span"),
        (b"\x7fELF\x02\x01", "7f 45 4c 46"),
        (b"{\"hits\": [], \"took\": 3}", "an object with \"hits\", \"took\""),
        (b"{}", "an empty object"),
        (b"{\"a\": ", "expected a value, found the end of the input"),
    ] {
        let error = read_bytes(bytes).1.expect_err("no spans").to_string();
        assert!(error.contains(found) && error.contains("expected OTLP JSON"), "{error}");
    }
    let mut sink = |_: &[u8]| Ok(0);
    let missing = Input::Path("no/such/file".into());
    let error =
        read(&missing, &mut sink, &mut |_| ControlFlow::Continue(())).expect_err("missing").to_string();
    assert!(error.starts_with("no/such/file: No such file"), "{error}");
    let error = read(&Input::Path(fixture("")), &mut sink, &mut |_| ControlFlow::Continue(()))
        .expect_err("a directory");
    assert!(matches!(error, ReadError::Io { .. }), "{error}");
}

#[test]
fn other_signals_in_the_same_file_are_accepted() {
    let text =
        [&b"{\"resourceLogs\":[{\"scopeLogs\":[]}]}\n"[..], &lines()[0], b"{\"resourceMetrics\":[]}\n"]
            .concat();
    assert_eq!(read_well(&text).1.spans, 5);
}

#[test]
fn damaged_compression_keeps_the_spans_before_the_damage() {
    // Several blocks, so that some output precedes the damage.
    let text = large_document(20_000, false);
    for compressed in [gzip(&text), zstd(&text)] {
        let half = &compressed[..compressed.len() / 2];
        let report = read_bytes(half).1.expect("readable");
        assert!(report.spans > 0, "{report:?}");
        assert!(report.skipped.iter().any(|s| s.place.ends_with("(decompressed)")), "{report:?}");
        let error = read_bytes(&compressed[..5]).1.expect_err("nothing comes out").to_string();
        assert!(error.contains("cannot decompress"), "{error}");
    }
}

#[test]
fn zipkin_v1_is_recognised() {
    let text =
        br#"[{"traceId":"1","id":"2","name":"x","annotations":[{"timestamp":1,"value":"cs","endpoint":{}}]},
        {"traceId":"1","id":"2","kind":"CLIENT","timestamp":5,"duration":1}]"#;
    let report = read_bytes(text).1.expect("readable");
    assert_eq!(report.spans, 1);
    assert!(
        report.skipped[0].reason.contains("v1") && report.skipped[0].place.starts_with("line 1"),
        "{report:?}"
    );
}

const MUTATED: [&str; 8] = [
    "otlp.json",
    "otlp.jsonl",
    "otlp.pb",
    "otlp-lengths.pb",
    "otlp-lengths-zstd.pb",
    "jaeger.json",
    "zipkin.json",
    "zipkin-shared-ids.json",
];

/// Place, byte, kind of edit, and length.
pub type Edit = (prop::sample::Index, u8, u8, usize);

pub fn edits() -> impl Strategy<Value = Vec<Edit>> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4u8, 0..64usize), 1..6)
}

/// Replaces, inserts, removes and repeats bytes.
pub fn edited(mut bytes: Vec<u8>, edits: Vec<Edit>) -> Vec<u8> {
    for (at, byte, edit, len) in edits {
        if bytes.is_empty() {
            break;
        }
        let at = at.index(bytes.len());
        let end = (at + len).min(bytes.len());
        match edit {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            2 => _ = bytes.drain(at..end),
            _ => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    /// Short form of the fuzz targets: with any bytes, reading ends and reports what it did.
    #[test]
    fn damage_is_survived(
        name in prop::sample::select(&MUTATED[..]),
        edits in edits(),
    ) {
        let bytes = edited(content(name), edits);
        let mut spans = 0;
        let mut sink = |request: &[u8]| {
            // The walk rejects damaged protobuf; here prost stands in for it.
            let request = TracesData::decode(request).map_err(|_| spangap_meter::ingest::wire::WalkError { offset: 0, expected: "OTLP" })?;
            let count = request.resource_spans.iter().flat_map(|r| &r.scope_spans).map(|s| s.spans.len() as u64).sum();
            spans += count;
            Ok(count)
        };
        let report = read_from("input".into(), Box::new(&bytes[..]), None, &mut sink, &mut |_| ControlFlow::Continue(()));
        if let Ok(report) = report {
            prop_assert_eq!(report.spans, spans);
            prop_assert!(report.skipped.len() as u64 <= report.skipped_places);
        }
    }
}

//! Large inputs are read in pieces, however their bytes arrive, and reading can be stopped.

use super::*;

/// One document with many spans, and `resource` before or after them.
pub fn large_document(spans: usize, resource_last: bool) -> Vec<u8> {
    let resource = r#""resource":{"attributes":[{"key":"service.name","value":{"stringValue":"big"}}]}"#;
    let span = |i: usize| {
        format!(
            r#"{{"traceId":"{:032x}","spanId":"{:016x}","kind":3,"startTimeUnixNano":"{}","endTimeUnixNano":"{}"}}"#,
            i + 1,
            i + 1,
            i + 1,
            i + 2
        )
    };
    let spans = (0..spans).map(span).collect::<Vec<_>>().join(",");
    let spans = format!(r#""scopeSpans":[{{"scope":{{"name":"s"}},"spans":[{spans}]}}]"#);
    let (first, last) = if resource_last { (&spans[..], resource) } else { (resource, &spans[..]) };
    format!(r#"{{"resourceSpans":[{{{first},{last}}}]}}"#).into_bytes()
}

#[test]
fn a_large_document_is_delivered_in_pieces_with_its_resource() {
    for resource_last in [false, true] {
        let document = large_document(20_000, resource_last);
        let (requests, report) = read_bytes(&document);
        assert_eq!(report.expect("readable").spans, 20_000);
        let services: BTreeSet<String> = facts(&requests).into_iter().map(|f| f.6).collect();
        assert_eq!(services, BTreeSet::from(["big".to_owned()]));
        assert!(resource_last || requests.iter().all(|r| r.encoded_len() < 2 << 20), "bounded requests");
    }
    let (requests, report) = read_bytes(&large_document(70_000, true));
    let report = report.expect("readable");
    assert_eq!(report.spans, 70_000);
    assert!(report.skipped[0].reason.contains("no \"resource\" before"), "{report:?}");
    assert_eq!(facts(&requests).iter().filter(|f| f.6.is_empty()).count(), 65_536);
}

/// Returns bytes in pieces of varying length.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.1 = self.1 % 97 + 1;
        let len = self.1.min(buf.len()).min(self.0.len());
        buf[..len].copy_from_slice(&self.0[..len]);
        self.0 = &self.0[len..];
        Ok(len)
    }
}

#[test]
fn the_result_does_not_depend_on_how_the_bytes_arrive() {
    for name in [
        "otlp.json",
        "otlp.jsonl",
        "jaeger.json",
        "zipkin.json",
        "otlp.pb",
        "otlp-lengths-zstd.pb",
        "otlp.jsonl.gz",
    ] {
        let whole = content(name);
        let (requests, report) = read_all(Box::new(Pieces(&whole, 0)));
        assert_eq!(report.expect("readable"), read_well(&whole).1, "{name}");
        assert_eq!(facts(&requests), read_well(&whole).0, "{name}");
    }
}

#[test]
fn reading_can_be_stopped() {
    let document = large_document(20_000, false);
    let mut spans = 0;
    let mut sink = |request: &[u8]| {
        let request = TracesData::decode(request).expect("well-formed");
        let count = request.resource_spans[0].scope_spans[0].spans.len() as u64;
        spans += count;
        Ok(count)
    };
    let mut reads = 0;
    let mut stop = |_| {
        reads += 1;
        if reads < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let report =
        read_from("input".into(), Box::new(&document[..]), None, &mut sink, &mut stop).expect("readable");
    assert!(report.spans > 0 && report.spans < 20_000, "{report:?}");
    assert!(report.skipped.iter().any(|s| s.reason.contains("interrupted")), "{report:?}");
    assert_eq!(report.spans, spans);
}

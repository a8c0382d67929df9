//! Inputs: files, pipes, and invalid ones.

use super::{dissect, ends, fixture, json, output};
use std::fs::File;
use std::process::Stdio;

#[test]
fn a_pipe_is_read_like_a_file_but_not_twice() {
    let [client, server] = ends("go-unary");
    let from_file = json(dissect().args([&client, &server]));
    let stdin = || Stdio::from(File::open(&client).expect("the fixture"));
    let from_pipe = json(dissect().arg("-").arg(&server).stdin(stdin()));
    assert_eq!(from_file["totals"], from_pipe["totals"]);
    assert!(from_pipe["calls"][0].get("ladder").is_none());
    let (_, text, _) = output(dissect().arg("-").stdin(stdin()));
    assert!(text.contains("No calls are shown packet by packet"), "{text}");
    let (code, _, stderr) = output(dissect().args(["-", "-"]));
    assert_eq!(code, 2);
    assert!(stderr.contains("\"-\" was given more than once"), "{stderr}");
}

#[test]
fn one_end_reports_what_it_cannot_show() {
    let [client, server] = ends("go-unary");
    for end in [client, server] {
        let report = json(dissect().arg(&end));
        assert!(report.get("clock").is_none());
        let calls = report["calls"].as_array().expect("an array");
        assert!(
            !calls.is_empty()
                && calls.iter().all(|call| call["legs"].as_array().is_some_and(|legs| !legs.is_empty()))
        );
        assert!(!report["caveats"].as_array().expect("an array").is_empty(), "{report:#}");
    }
}

#[test]
fn files_that_are_not_captures_are_named() {
    let [client, server] = ends("go-unary");
    let (code, _, stderr) = output(dissect().arg("no-such.pcap"));
    assert_eq!(code, 1);
    assert!(stderr.starts_with("spangap: no-such.pcap: "), "{stderr}");
    let (code, _, stderr) = output(dissect().arg(fixture("README.md")));
    assert_eq!(code, 1);
    assert!(
        stderr.contains("README.md: not a capture: ") && stderr.contains("expected pcap or pcapng"),
        "{stderr}"
    );
    // Span files go to another option, and the error says to which.
    let (code, _, stderr) = output(dissect().arg(fixture("../spans/otlp.json")));
    assert_eq!(code, 1);
    assert!(stderr.contains("found JSON: spans are for `--spans`, and for `spangap gaps`"), "{stderr}");
    let (code, _, stderr) = output(dissect().args([&client, &client]));
    assert_eq!(code, 1);
    assert!(stderr.contains("given as both ends"), "{stderr}");
    let (code, ..) = output(dissect().args([&client, &server, &client]));
    assert_eq!(code, 2);
}

#[test]
fn a_truncated_file_is_read_up_to_its_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let [client, _] = ends("go-unary");
    let bytes = std::fs::read(&client).expect("the fixture");
    let cut = directory.path().join("cut.pcapng");
    std::fs::write(&cut, &bytes[..bytes.len() / 2 + 1]).expect("written");
    let report = json(dissect().arg(&cut));
    assert!(report["capture"]["damaged"].as_u64() >= Some(1), "{}", report["captures"]);
    assert!(report["capture"]["packets"].as_u64() > Some(10));
    let (_, text, _) = output(dissect().arg(&cut));
    assert!(text.contains("of the file could not be read"), "{text}");
}

#[test]
fn invalid_keys_and_span_files_are_refused() {
    let captures = ends("go-unary");
    let readme = fixture("README.md");
    let (code, _, stderr) = output(dissect().args(&captures).arg("--keylog").arg(&readme));
    assert_eq!(code, 1);
    assert!(stderr.contains("no TLS keys") && stderr.contains("README.md"), "{stderr}");
    let (code, _, stderr) = output(dissect().args(&captures).arg("--spans").arg(&readme));
    assert_eq!(code, 1);
    assert!(stderr.contains("not a file of spans"), "{stderr}");
    let (code, _, stderr) = output(dissect().args(&captures).args(["--trace-id", "xyz"]));
    assert_eq!(code, 2);
    assert!(stderr.contains("expected 32 or 16 hex digits"), "{stderr}");
}

#[test]
fn keys_decrypt_calls() {
    let keys = fixture("tls13-http2.keys");
    let closed = json(dissect().args(ends("tls13-http2")));
    let opened = json(dissect().args(ends("tls13-http2")).arg("--keylog").arg(&keys));
    let has_method = |report: &serde_json::Value| {
        report["calls"].as_array().expect("an array").iter().any(|call| call.get("method").is_some())
    };
    assert!(!has_method(&closed) && has_method(&opened), "{opened:#}");
}

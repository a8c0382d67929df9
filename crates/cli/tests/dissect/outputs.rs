//! Output for people: table, ladder, page.

use super::{dissect, ends, json, output};
use serde_json::Value;

#[test]
fn the_text_has_calls_causes_a_ladder_and_remedies() {
    let (code, text, stderr) = output(dissect().args(ends("nagle-client")));
    assert_eq!((code, stderr.as_str()), (0, ""));
    for expected in [
        "nagle-client.client.pcapng",
        "(client's end)",
        "START UTC",
        "Where the time of all calls went",
        "nagle-delayed-ack, client side",
        "client ms",
        "In words",
        "waited for a delayed ACK",
        "TCP_NODELAY on the client's sockets",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
}

#[test]
fn a_healthy_capture_has_no_findings() {
    let (code, text, stderr) = output(dissect().args(ends("healthy")));
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(!text.contains("TCP_NODELAY") && !text.contains("lost"), "{text}");
}

/// A wait that was over before the calls began costs nothing within them, so no cost is shown.
#[test]
fn a_connection_for_each_call_costs_nothing_within_the_calls() {
    let (code, text, stderr) = output(dissect().args(ends("connection-per-call")));
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(text.contains("connection-per-call in 1 call") && !text.contains("call 0 ns"), "{text}");
}

#[test]
fn the_page_needs_no_other_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("report.html");
    let (code, _, stderr) = output(dissect().args(ends("nagle-client")).arg("--html").arg(&path));
    assert_eq!((code, stderr.as_str()), (0, ""));
    let page = std::fs::read_to_string(&path).expect("the page");
    // Namespaces are only names, and links that begin with # or data: stay within the page.
    let inside = ["http://www.w3.org/", "url(\"#", "url(#", "href=\"data:"];
    let fetched = inside.iter().fold(page.clone(), |page, inside| page.replace(inside, ""));
    for needle in ["http:", "https:", "src=", "href=", "url(", "@import"] {
        assert!(!fetched.contains(needle), "{needle}");
    }
    assert!(page.contains("default-src 'none'; script-src 'sha256-") && !page.contains("unsafe-inline"));
    assert!(page.len() < 300_000, "{}", page.len());
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"data\">").expect("its document");
    let document: Value =
        serde_json::from_str(rest.split_once("</script>").expect("its end").0).expect("JSON");
    let report = &document["report"];
    assert_eq!(document["kind"], "dissect");
    // What web/test/reports.test.ts expects in the rendered page.
    let call = &report["calls"][0];
    assert!(call["legs"].as_array().is_some_and(|legs| legs.len() >= 5), "{call:#}");
    let ladder = &call["report"]["ladder"];
    assert!(ladder["packets"].as_array().is_some_and(|packets| packets.len() == 10), "{ladder:#}");
    assert!(ladder["crossings"].as_array().is_some_and(|all| all.iter().any(|one| one["way"] == "crossed")));
    assert!(report["command"].as_str().is_some_and(|command| command.starts_with("spangap dissect ")));
    let nowhere = directory.path().join("no/such/report.html");
    let (code, _, stderr) = output(dissect().args(ends("healthy")).arg("--html").arg(&nowhere));
    assert_eq!(code, 1);
    assert!(stderr.starts_with("spangap: cannot write the page ("), "{stderr}");
}

#[test]
fn a_trace_is_found_by_every_form_of_its_id() {
    let all = json(dissect().args(ends("go-unary")));
    let calls = all["calls"].as_array().expect("an array");
    let id =
        calls.iter().find_map(|call| call["trace_id"].as_str()).expect("a call with a trace id").to_owned();
    let dashed = format!("{}-{}-{}", &id[..8], &id[8..16], &id[16..]);
    for form in [id.clone(), id.to_uppercase(), dashed] {
        let report = json(dissect().args(ends("go-unary")).args(["--trace-id", &form]));
        let calls = report["calls"].as_array().expect("an array");
        assert!(!calls.is_empty() && calls.iter().all(|call| call["trace_id"] == id.as_str()), "{form}");
    }
    let (code, text, _) = output(dissect().args(ends("go-unary")).args(["--trace-id", &"ab".repeat(16)]));
    assert_eq!(code, 0);
    assert!(text.contains("No call of trace abababab"), "{text}");
}

#[test]
fn least_duration_selects_slow_calls() {
    let report = json(dissect().args(ends("nagle-rare")).args(["--over", "2ms", "--slowest", "3"]));
    let calls = report["calls"].as_array().expect("an array");
    assert!(!calls.is_empty() && calls.len() <= 3);
    assert!(calls.iter().all(|call| call["duration_ns"].as_u64() >= Some(2_000_000)));
    assert!(report["matching_calls"].as_u64() >= Some(calls.len() as u64));
    assert!(report["totals"]["calls"].as_u64() > report["matching_calls"].as_u64());
}

#[test]
fn the_exit_code_reports_a_cause() {
    let code = |case: &str, causes: &str| output(dissect().args(ends(case)).args(["--fail-on", causes])).0;
    assert_eq!(code("nagle-client", "rto,nagle-delayed-ack"), 3);
    assert_eq!(code("nagle-client", "rto"), 0);
    assert_eq!(code("healthy", "nagle-delayed-ack"), 0);
    let (code, _, stderr) = output(dissect().args(ends("healthy")).args(["--fail-on", "gremlins"]));
    assert_eq!(code, 2);
    assert!(stderr.contains("is not a cause: expected one of none, nagle-delayed-ack"), "{stderr}");
}

//! `spangap demo`: three processes, one table, a joint end.

use super::process::{FREE_PORTS, Meter, Program, until};
use spangap_meter::report::PairsReport;
use std::path::Path;

#[test]
fn the_pair_is_measured_shown_and_ended_with_the_rest() {
    let demo = Meter::ready(Program::start(&[&["demo", "--interval", "2ms"], &FREE_PORTS[..]].concat()));
    let introduction = std::iter::from_fn(|| demo.program.error_line());
    let measured =
        introduction.into_iter().find(|line| line.contains("measured now")).expect("who is measured");
    let pids: Vec<u32> = measured
        .split("pid ")
        .skip(1)
        .map(|rest| {
            rest.split(|c: char| !c.is_ascii_digit()).next().expect("its digits").parse().expect("a pid")
        })
        .collect();
    assert_eq!(pids.len(), 2, "{measured}");
    let runs = |pid: &u32| Path::new(&format!("/proc/{pid}/exe")).exists();
    assert!(pids.iter().all(runs), "{measured}");

    let row = until("calls of the pair", || {
        let report: PairsReport = demo.api("/api/v1/pairs");
        report.pairs.into_iter().find(|row| row.calls > 0)
    });
    assert_eq!((&*row.client, &*row.server), ("tank", "target"));
    assert!(row.client_duration.p50_ns > row.server_duration.p50_ns, "{row:?}");
    demo.coverage();
    // Standard output is not a terminal here, so tables follow each other.
    let row = std::iter::from_fn(|| demo.program.line())
        .find(|line| line.contains("tank") && line.contains("target"));
    assert!(row.is_some(), "standard output ended without a table");
    let spans = std::iter::from_fn(|| demo.program.line()).find(|line| line.starts_with("spans: "));
    assert!(spans.expect("a line with the spans").contains("matched"));

    let ended = demo.stop();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!pids.iter().any(runs), "still running: {measured}");
}

#[test]
fn without_a_pair_it_waits_for_others() {
    let demo = Meter::ready(Program::start(&[&["demo", "--no-pair"], &FREE_PORTS[..]].concat()));
    let line = std::iter::from_fn(|| demo.program.line()).next().expect("a line");
    assert!(line.starts_with("No call has both of its spans yet"), "{line}");
    assert_eq!(demo.stop().code, Some(0));
}

use super::*;
use crate::contract::{Channels, Stack};
use crate::report::lines::WIDTH;
use crate::report::samples::{open, report, run};

fn latencies(count: u64, ns: u64) -> Vec<u64> {
    (0..count).map(|i| ns + i).collect()
}

fn text(runs: Vec<Run>) -> String {
    let text = report(runs).to_string();
    let longest = text.lines().map(|line| line.chars().count()).max();
    assert!(longest <= Some(WIDTH), "{longest:?} columns:\n{text}");
    text
}

/// Words of the first line that starts with this text.
fn line<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    let found = text.lines().find(|line| line.starts_with(start));
    found.unwrap_or_else(|| panic!("no line starts with {start:?}:\n{text}")).split_whitespace().collect()
}

#[test]
fn one_run_in_full() {
    let mut one = open(run(Stack::CppAsync, Channels::Shared, 4, 0, &latencies(500, 40_000)), 50.0);
    one.errors.insert("UNAVAILABLE".into(), 3);
    one.error_reasons.insert("UNAVAILABLE".into(), "connection reset".into());
    one.calls += 3;
    one.skipped_overload = 9;
    one.cpu_target_s = None;
    one.warnings.push("a warning".into());
    let text = text(vec![one]);
    assert_eq!(line(&text, "p99 "), ["p99", "40.5", "us", "40.5", "us", "40.5", "us"]);
    assert!(line(&text, "p99.9 ").join(" ").ends_with("n/a n/a n/a needs 1,000 calls"), "{text}");
    for part in [
        "libraries  gRPC C++ 1.51.1 (target: go, grpc-go 1.70.0)\n",
        "500 OK (50/s), 3 failed, 9 not made",
        "UNAVAILABLE 3, the last: connection reset",
        "CPU n/a",
        "1 connection at the end by the kernel's count, of 1 channel made",
        "warning    a warning\n",
        "cannot claim latency differences",
        "not run    stack go: no spangap-go",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
}

#[test]
fn several_runs_are_a_table_of_what_varies() {
    let mut runs = Vec::new();
    for channels in [Channels::Shared, Channels::Distinct] {
        for inflight in [1, 64] {
            runs.push(run(
                Stack::CppAsync,
                channels,
                inflight,
                0,
                &latencies(20_000, 40_000 * u64::from(inflight)),
            ));
        }
    }
    runs[3].connections = None;
    runs[3].warnings.push("nobody looked".into());
    let text = text(runs);
    assert!(text.contains("\nchannels shared") && text.contains("\nchannels distinct"), "{text}");
    assert!(line(&text, "all runs").join(" ").contains("stack cpp-async"), "{text}");
    assert_eq!(
        text.matches("libraries  gRPC C++ 1.51.1 (target: go, grpc-go 1.70.0)\n").count(),
        1,
        "{text}"
    );
    let last = text.lines().rfind(|line| line.starts_with("64 ")).unwrap();
    assert!(last.contains("n/a  /64"), "{last}");
    assert!(text.contains("warning    nobody looked (distinct, 64 in flight)"), "{text}");
}

#[test]
fn target_stack_is_shown_if_it_differs() {
    let mut runs: Vec<Run> =
        [1, 2].map(|inflight| run(Stack::Rust, Channels::Shared, inflight, 0, &latencies(100, 1_000))).into();
    runs[1].asked.target = "127.0.0.1:2".into();
    (runs[1].target_stack, runs[1].target_library) = (None, None);
    let text = text(runs);
    assert!(text.contains("target 127.0.0.1:2\nlibraries  gRPC C++ 1.51.1 (target: unknown)\n"), "{text}");
    assert_eq!(text.matches("grpc-go 1.70.0").count(), 1, "{text}");
}

#[test]
fn repetitions_show_median_and_range() {
    let runs: Vec<Run> = [3u64, 1, 2]
        .iter()
        .zip(0..)
        .map(|(n, i)| run(Stack::Raw, Channels::Shared, 8, i, &latencies(n * 1_000, 1_000)))
        .collect();
    let text = text(runs);
    assert_eq!(line(&text, "8 ")[1..3], ["2000", "200"]);
    assert_eq!(line(&text, " min of 3")[3..5], ["1000", "100"]);
    assert_eq!(line(&text, " max")[1..3], ["3000", "300"]);
    assert!(!text.contains("n/ax"), "{text}");
}

#[test]
fn the_widest_figures_fit() {
    let mut runs = Vec::new();
    for (rate, direction) in [(1.0, 0), (123_456.0, 0), (2.0, 0), (1.0, 1)] {
        let mut one = open(
            run(Stack::CppCallback, Channels::Pool(1024), 64, direction, &latencies(20_000, 1_234_567_890)),
            rate,
        );
        one.calls = 123_456_789;
        one.ok = one.calls;
        one.skipped_overload = 1_234_567;
        one.throughput_per_s = 1_234_567.8;
        one.floor = Some(crate::report::Floor {
            calls: 1,
            throughput_per_s: 1.0,
            latency: one.latency,
            lateness: None,
        });
        runs.push(one);
    }
    let text = text(runs);
    assert!(text.contains("1 up") && text.contains("1 down") && text.contains("1.0x"), "{text}");
}

#[test]
fn an_empty_report_says_so() {
    assert!(text(vec![]).starts_with("No run was made.\n"));
}

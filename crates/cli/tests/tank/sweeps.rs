//! Several runs in one report.

use crate::process::Program;
use crate::{report, reported, runs, says, tank, target, the_run};
use serde_json::Value;

/// What distinguishes the runs here.
fn order(report: &Value) -> Vec<(String, u64, u64)> {
    let of = |run: &Value| {
        let number = |key: &str| run[key].as_u64().unwrap_or(0);
        (run["call"].as_str().unwrap_or_default().to_owned(), number("inflight"), number("repeat"))
    };
    runs(report).iter().map(of).collect()
}

#[test]
fn every_combination_in_turn() {
    let (_target, address) = target(&[]);
    let report = reported(
        &address,
        &[
            "--call",
            "unary,stream",
            "--inflight",
            "2,1",
            "--repeat",
            "2",
            "--duration",
            "300ms",
            "--warmup",
            "20ms",
        ],
    );
    let (unary, stream) = ("unary".to_owned(), "stream".to_owned());
    let expected = [
        (&unary, 2, 0),
        (&unary, 1, 0),
        (&stream, 2, 0),
        (&stream, 1, 0),
        (&stream, 2, 1),
        (&stream, 1, 1),
        (&unary, 2, 1),
        (&unary, 1, 1),
    ];
    assert_eq!(order(&report), expected.map(|(call, inflight, repeat)| (call.clone(), inflight, repeat)));
    for run in runs(&report) {
        assert!(run["ok"].as_u64() > Some(0) && run["errors"] == serde_json::json!({}), "{run}");
        assert!(run["lateness"].is_null(), "a closed loop has no schedule: {run}");
        assert_eq!(run["latency"], run["latency_from_send"]);
        assert_eq!((&run["connections"], &run["channels_made"]), (&1.into(), &1.into()), "{run}");
        assert!(run["cpu_target_s"].as_f64().is_some(), "{run}");
    }
    assert_eq!(report["not_run"], serde_json::json!([]));
    assert!(says(&report["noise"]["cannot_claim"], "by which equal runs differed"), "{report}");
}

#[test]
fn the_floor_is_measured_once_for_each_load() {
    let (_target, address) = target(&[]);
    let report =
        reported(&address, &["--rate", "200,100", "--repeat", "2", "--duration", "100ms", "--warmup", "0ms"]);
    let floors: Vec<_> = runs(&report).iter().map(|run| &run["floor"]).collect();
    assert!(floors.iter().all(|floor| floor["latency"]["p50_ns"].as_u64() > Some(0)), "{report}");
    assert_eq!((floors[0], floors[1]), (floors[2], floors[3]));
    assert_eq!((&floors[0]["calls"], &floors[1]["calls"]), (&20.into(), &10.into()));
}

#[test]
fn unsupported_combinations_are_listed() {
    let (_target, address) = target(&[]);
    let arguments =
        ["--channels", "shared,local-pool", "--inflight", "1", "--duration", "50ms", "--warmup", "0ms"];
    let report = reported(&address, &arguments);
    assert_eq!(the_run(&report)["channels"], "shared");
    let [not_run] = report["not_run"].as_array().expect("a list").as_slice() else { panic!("{report}") };
    assert!(not_run["what"].as_str().is_some_and(|what| what.contains("local-pool")), "{not_run}");
    assert!(not_run["why"].as_str().is_some_and(|why| why.contains("no subchannel pools")), "{not_run}");
}

#[test]
fn an_interrupted_sweep_keeps_finished_runs_and_lists_the_rest() {
    let (_target, address) = target(&[]);
    let log = tempfile::NamedTempFile::new().expect("a temporary file");
    let path = log.path().to_str().expect("its name is text");
    let arguments = [
        "tank",
        &address,
        "--json",
        "--inflight",
        "1,2,4",
        "--duration",
        "1h",
        "--warmup",
        "0ms",
        "--slow",
        "0us",
        "--slow-log",
        path,
    ];
    let tank = Program::start(&arguments);
    // Every call is logged as slow, so once the log has a line, calls are being made.
    crate::process::until("a call", || {
        (log.as_file().metadata().expect("the file is there").len() > 0).then_some(())
    });
    tank.signal("INT");
    let ended = tank.wait();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let report = report(&ended);
    let run = the_run(&report);
    assert!(run["ok"].as_u64() > Some(0) && run["inflight"] == 1, "{run}");
    assert!(says(&run["warnings"], "stopped after"), "{run}");
    assert_eq!(run["slow"], report["slow_log"]["written"], "{report}");
    let not_run = report["not_run"].as_array().expect("a list");
    assert_eq!(not_run.len(), 2, "{report}");
    assert!(not_run.iter().all(|one| one["why"] == "stopped"), "{report}");
}

#[test]
fn a_client_stays_on_its_cpus() {
    let (_target, address) = target(&[]);
    let allowed = std::fs::read_to_string("/proc/self/status").expect("it is there");
    let allowed =
        allowed.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list").trim();
    let first: String = allowed.chars().take_while(char::is_ascii_digit).collect();
    let arguments =
        ["--inflight", "8", "--duration", "300ms", "--warmup", "0ms", "--cpus", &first, "--threads", "4"];
    let report = reported(&address, &arguments);
    let run = the_run(&report);
    assert_eq!((run["cpus"].as_str(), &report["noise"]["cpus"]), (Some(first.as_str()), &1.into()));
    assert!(run["cpu_client_s"].as_f64() <= run["duration_s"].as_f64().map(|time| 1.1 * time), "{run}");
    let ended = tank(&address, &["--cpus", "1023", "--duration", "50ms"]);
    let expected = format!("spangap: cannot run on CPUs 1023: this process may use {allowed}");
    assert_eq!((ended.code, &ended.err), (Some(1), &vec![expected]), "{ended:?}");
}

#[test]
fn a_page_can_be_written() {
    let (_target, address) = target(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("report.html");
    let page = page.to_str().expect("its name is text");
    reported(&address, &["--inflight", "1,2", "--duration", "50ms", "--warmup", "0ms", "--html", page]);
    let text = std::fs::read_to_string(page).expect("the page is there");
    assert!(text.contains("<html") && text.contains(&address), "{text}");
    let nowhere = folder.path().join("none/report.html");
    let nowhere = nowhere.to_str().expect("its name is text");
    let ended = tank(&address, &["--html", nowhere]);
    let expected = format!("spangap: cannot write {nowhere}: No such file or directory (os error 2)");
    assert_eq!((ended.code, ended.err), (Some(1), vec![expected]));
}

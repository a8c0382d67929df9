//! `spangap tank` with real clients, a real target, a real meter.

#[path = "../meter/client.rs"]
#[allow(dead_code)] // the meter's tests need more of it
mod client;
mod collector;
mod failures;
mod findings;
mod methods;
#[path = "../meter/process.rs"]
#[allow(dead_code)] // the meter's tests need more of it
mod process;
mod spans;
mod stacks;
mod sweeps;

use process::{Ended, Program};
use serde_json::Value;

/// A target on a free port, and its address.
fn target(arguments: &[&str]) -> (Program, String) {
    let target = Program::start(&[&["target", "--listen", "127.0.0.1:0"], arguments].concat());
    let line = target.line().expect("a target says where it listens");
    let address = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("no address in {line:?}"));
    let address = address.to_owned();
    (target, address)
}

/// Runs a tank to its end.
fn tank(target: &str, arguments: &[&str]) -> Ended {
    Program::start(&[&["tank", target, "--json"], arguments].concat()).wait()
}

/// Its report, after checking what must hold for every run.
fn report(ended: &Ended) -> Value {
    let [line] = ended.out.as_slice() else { panic!("one JSON document, not {ended:?}") };
    let report: Value = serde_json::from_str(line).expect("a JSON document");
    for run in runs(&report) {
        let count = |key: &str| run[key].as_u64().unwrap_or_else(|| panic!("no {key} in {run}"));
        assert_eq!(count("scheduled"), count("calls") + count("skipped_overload"), "{run}");
        let errors: u64 =
            run["errors"].as_object().expect("by status").values().filter_map(Value::as_u64).sum();
        assert_eq!(count("calls"), count("ok") + errors, "{run}");
        let seconds =
            run["seconds"].as_array().expect("a list").iter().filter(|second| second["measured"] == true);
        assert_eq!(seconds.filter_map(|second| second["ok"].as_u64()).sum::<u64>(), count("ok"), "{run}");
    }
    report
}

/// The report of a tank that must succeed.
fn reported(target: &str, arguments: &[&str]) -> Value {
    let ended = tank(target, arguments);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    report(&ended)
}

fn runs(report: &Value) -> &Vec<Value> {
    report["runs"].as_array().expect("a list of runs")
}

fn the_run(report: &Value) -> &Value {
    let [run] = runs(report).as_slice() else { panic!("one run, not {report}") };
    run
}

/// Whether one of these sentences contains this.
fn says(sentences: &Value, part: &str) -> bool {
    let mut sentences = sentences.as_array().expect("a list").iter();
    sentences.any(|sentence| sentence.as_str().is_some_and(|text| text.contains(part)))
}

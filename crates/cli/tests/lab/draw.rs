//! `spangap lab grade` of drawn runs: existing folders judged by all kinds of judges, and one run that is
//! really drawn.

use crate::process::{Ended, Program};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// Folders of drawn runs with their truths, and their judges.
struct Scene {
    root: tempfile::TempDir,
}

impl Scene {
    /// A run without a fault; one fault; two; and a near miss with another culprit.
    fn new() -> Scene {
        let scene = Scene { root: tempfile::tempdir().expect("a folder") };
        let call = |id: &str| json!([{ "trace_id": id, "cost_ns": 1000 }]);
        scene.keep(1, &json!({ "scenario": "healthy", "culprit": "none" }));
        scene.keep(
            2,
            &json!({ "scenario": "rto", "culprit": "rto", "leg": "response_wire", "affected": call("a") }),
        );
        scene.keep(
            3,
            &json!({ "scenario": "rto", "culprit": "rto", "leg": "response_wire", "affected": call("a"),
                "second": { "culprit": "stopped", "side": "client", "leg": "client_app_in", "active": [],
                    "affected": call("b") } }),
        );
        scene.keep(
            4,
            &json!({ "scenario": "rto", "near_miss": true, "culprit": "network-jitter", "leg": "response_wire",
                "looks_like": "rto" }),
        );
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn keep(&self, number: u64, some: &Value) {
        let drawn = json!({ "seed": 7, "number": number, "attempt": 1, "scenario": some["scenario"],
            "near_miss": some.get("near_miss").is_some(), "settings": [] });
        let mut truth = json!({ "near_miss": false, "active": [], "affected": [], "affected_rule": "", "acted": true,
            "proof": [], "parameters": {}, "seed": 1, "command": "spangap lab grade", "drawn": drawn });
        truth.as_object_mut().expect("it is one").extend(some.as_object().expect("it is one").clone());
        let folder = self.path("runs").join(format!("{number:04}"));
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("truth.json"), truth.to_string()).expect("a file");
        for file in ["client.pcapng", "server.pcapng", "client.host", "server.host"] {
            fs::write(folder.join(file), "").expect("a file");
        }
    }

    /// Grades them with this script, whose first argument is a run's folder.
    fn grade(&self, script: &str, more: &[&str]) -> Ended {
        let path = self.path("judge.sh");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        let (judge, runs) = (format!("'{}'", path.display()), self.path("runs").display().to_string());
        let state = self.path("state").display().to_string();
        let arguments = ["lab", "grade", "--runs", &runs, "--state", &state, "--judge", &judge];
        Program::start(&[&arguments[..], more].concat()).wait()
    }
}

fn report(ended: &Ended) -> Value {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(&ended.out.join("\n")).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

const ALWAYS_RTO: &str = r#"echo '{"verdict": "one", "question": "slow", "trace_ids": ["a"],
    "culprits": [{"cause": "rto", "share": {"low": 0.6, "mid": 0.7, "high": 0.8}}]}'"#;

#[test]
fn false_accusations_are_counted_on_any_run() {
    let scene = Scene::new();
    let graded = report(&scene.grade(ALWAYS_RTO, &["--json"]));
    let score = &graded["scores"][0];
    let count = |of: &Value, key: &str| of[key]["count"].as_u64();
    assert_eq!((count(score, "right"), count(score, "innocent")), (Some(2), Some(2)), "{graded:#}");
    assert_eq!((count(score, "grounded"), &score["grounded"]["of"]), (Some(2), &json!(2)));
    let parts = score["parts"].as_array().expect("parts");
    for (part, key) in
        [("nothing", "innocent"), ("near miss", "innocent"), ("one fault", "right"), ("two faults", "right")]
    {
        let of = parts.iter().find(|one| one["part"] == part).expect(part);
        assert_eq!(count(of, key), Some(1), "{part}: {of:#}");
    }
    let text = scene.grade(ALWAYS_RTO, &[]).out.join("\n");
    assert!(text.contains("1 healthy: rto (innocent); it is nothing"), "{text}");
    assert!(text.contains("longest leg") && text.contains("first finding"), "{text}");
}

#[test]
fn a_judge_that_is_always_wrong_scores_zero() {
    let scene = Scene::new();
    let graded = report(&scene.grade(r#"echo '{"culprit": "coalescing", "side": "client"}'"#, &["--json"]));
    let score = &graded["scores"][0];
    assert_eq!((&score["right"]["count"], &score["innocent"]["count"]), (&json!(0), &json!(4)), "{graded:#}");
    let graded = report(&scene.grade(r#"echo '{"culprit": "unknown"}'"#, &["--json"]));
    assert_eq!(graded["scores"][0]["unknown"]["count"], 4, "{graded:#}");
    let graded = report(&scene.grade("echo no idea", &["--json"]));
    assert_eq!((&graded["scores"][0]["failed"], &graded["scores"][0]["right"]["of"]), (&json!(4), &json!(0)));
}

#[test]
fn a_judge_sees_neither_truth_nor_removed_evidence() {
    let scene = Scene::new();
    let seen = scene.path("seen").display().to_string();
    let script = format!(r#"(echo "in $1"; ls "$1") >> '{seen}'; echo '{{"culprit":"none"}}'"#);
    // One at a time, so that the judge's notes are in the order of the sets.
    let less = ["--take-away", "hosts", "--take-away", "client", "--jobs", "1", "--json"];
    let graded = report(&scene.grade(&script, &less));
    let taken: Vec<&str> = graded["scores"]
        .as_array()
        .expect("scores")
        .iter()
        .filter_map(|score| score["taken_away"].as_str())
        .collect();
    assert_eq!(taken, ["hosts", "client"]);
    let seen = fs::read_to_string(seen).expect("the judge was asked");
    let shown: Vec<Vec<&str>> = seen.split("in /").skip(1).map(|one| one.lines().skip(1).collect()).collect();
    assert_eq!(shown[0], ["client.host", "client.pcapng", "server.host", "server.pcapng"]);
    assert_eq!(shown[1], ["client.pcapng", "server.pcapng"]);
    assert_eq!(shown[2], ["server.host", "server.pcapng"]);
    assert!(!seen.contains("truth") && !seen.contains("runs/"), "{seen}");
}

#[test]
fn invalid_combinations_are_refused() {
    let refused = |arguments: &[&str]| {
        let ended = Program::start(&[&["lab", "grade"], arguments].concat()).wait();
        assert_eq!(ended.code, Some(2), "{ended:?}");
        ended.err.join("\n")
    };
    assert!(refused(&["--draw", "3", "--only", "4"]).contains("no such run"));
    assert!(refused(&["--draw", "3", "--runs", "x"]).contains("--runs"));
    assert!(refused(&["--take-away", "hosts"]).contains("--draw"));
    assert!(refused(&["--draw", "3", "--take-away", "all"]).contains("spans-10%"));
}

/// The run of a seed is made, kept, and not made again when the draw continues.
#[test]
fn a_draw_continues_where_it_ended() {
    if !rustix::process::geteuid().is_root() {
        println!("not run: namespaces need root");
        return;
    }
    let scene = Scene::new();
    let (out, state) = (scene.path("out").display().to_string(), scene.path("state").display().to_string());
    let arguments =
        ["lab", "grade", "--draw", "13", "--only", "13", "--seed", "1", "--out", &out, "--state", &state];
    let arguments = [&arguments[..], &["--judge", "echo '{\"culprit\":\"none\"}' #", "--json"]].concat();
    let graded = report(&Program::start(&arguments).wait());
    let row = &graded["rows"][0];
    assert_eq!((&row["number"], &row["drawn"]["seed"]), (&json!(13), &json!(1)), "{graded:#}");
    if row["outcome"] != "judged" {
        println!("not run: {}", row["error"]);
        return;
    }
    let truth =
        || fs::metadata(scene.path("out/0013/truth.json")).expect("it stays").modified().expect("a time");
    // The same instruments recorded the window before it, and its truth is nobody's business. A fault that does not act, as beside
    // many programs, is drawn again with all else, and may have no such window.
    let (earlier, attempt) = (row["drawn"]["earlier"].is_object(), &row["drawn"]["attempt"]);
    assert!(earlier || *attempt != json!(1), "{graded:#}");
    for file in ["client.pcapng", "server.pcapng", "client.spans.json", "server.spans.json", "tank.json"] {
        assert_eq!(scene.path("out/0013/before").join(file).exists(), earlier, "{file}: {graded:#}");
    }
    assert!(!scene.path("out/0013/before/truth.json").exists());
    let made = truth();
    let again = report(&Program::start(&arguments).wait());
    assert_eq!((truth(), &again["rows"][0]["said"][0]["verdict"]), (made, &json!("nothing")), "{again:#}");
    let other: Vec<&str> = arguments.iter().map(|word| if *word == "1" { "2" } else { *word }).collect();
    let refused = Program::start(&other).wait();
    assert!(refused.err.join("\n").contains("another draw"), "{refused:?}");
}

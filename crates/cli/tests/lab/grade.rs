//! `spangap lab grade`: judges of every kind on existing folders, and one run that is really made and judged.

use crate::process::{Ended, Program, until};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Folders of runs with a truth, a judge, and the judge's output.
struct Scene {
    root: tempfile::TempDir,
}

impl Scene {
    /// A run without a fault, its near miss, and a run with a fault.
    fn new() -> Scene {
        let scene = Scene { root: tempfile::tempdir().expect("a folder") };
        scene.keep("a-healthy", &json!({ "scenario": "healthy", "culprit": "none" }));
        scene.keep(
            "b-like",
            &json!({ "scenario": "held", "near_miss": true, "culprit": "none",
                "looks_like": "nagle-delayed-ack (client)" }),
        );
        scene.keep(
            "c-held",
            &json!({ "scenario": "held", "culprit": "nagle-delayed-ack", "side": "client", "leg": "client_send" }),
        );
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn keep(&self, name: &str, some: &Value) {
        let mut truth = json!({ "near_miss": false, "active": [], "affected": [], "affected_rule": "", "acted": true,
            "proof": [], "parameters": {}, "seed": 1, "command": "spangap lab run" });
        truth.as_object_mut().expect("it is one").extend(some.as_object().expect("it is one").clone());
        let folder = self.path("runs").join(name);
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("truth.json"), truth.to_string()).expect("a file");
        for file in ["README", "tank.err", "tank.json", "client.pcapng"] {
            fs::write(folder.join(file), "what was recorded\n").expect("a file");
        }
    }

    /// A judge: a script that gets the folder as its first argument.
    fn judge(&self, script: &str) -> String {
        let path = self.path("judge.sh");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        // In quotes, because a shell runs the command.
        format!("'{}'", path.display())
    }

    /// Grades the folders with this judge.
    fn start(&self, script: &str, more: &[&str]) -> Program {
        let (judge, runs, state) = (self.judge(script), self.text("runs"), self.text("state"));
        let arguments = ["lab", "grade", "--runs", &runs, "--state", &state, "--judge", &judge];
        Program::start(&[&arguments[..], more].concat())
    }

    fn grade(&self, script: &str, more: &[&str]) -> Value {
        report(&self.start(script, &[more, &["--json"]].concat()).wait())
    }
}

fn report(ended: &Ended) -> Value {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(&ended.out.join("\n")).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// Answers with the truth.
const ALWAYS_RIGHT: &str =
    r#"grep -o '"culprit":"[^"]*"' "$1/truth.json" | sed 's/.*/{&, "side": "client"}/'"#;
const ALWAYS_NAGLE: &str = r#"echo '{"culprit": "nagle-delayed-ack", "side": "client", "leg": "client_send", "why": "it always is"}'"#;

#[test]
fn a_correct_judge_scores_fully() {
    let graded = Scene::new().grade(ALWAYS_RIGHT, &[]);
    assert_eq!(graded["runs"]["judged"], 3, "{graded:#}");
    assert_eq!(graded["right"]["count"], 3);
    assert_eq!(
        graded["false_alarms"],
        json!({ "count": 0, "of": 2, "share": 0.0, "low": 0.0, "high": graded["false_alarms"]["high"] })
    );
    assert_eq!(graded["matrix"]["rows"], json!(["none", "nagle-delayed-ack (client)"]));
    assert_eq!(graded["matrix"]["cells"], json!([[cell(2, 2), cell(0, 0)], [cell(0, 0), cell(1, 1)]]));
}

fn cell(runs: u64, right: u64) -> Value {
    json!({ "runs": runs, "right": right })
}

#[test]
fn a_constant_judge_is_scored() {
    let scene = Scene::new();
    let page = scene.text("page.html");
    let graded = scene.grade(ALWAYS_NAGLE, &["--html", &page]);
    assert_eq!((&graded["right"]["count"], &graded["right"]["of"]), (&json!(1), &json!(3)));
    assert_eq!((&graded["false_alarms"]["count"], &graded["false_alarms"]["of"]), (&json!(2), &json!(2)));
    assert_eq!((&graded["legs"]["count"], &graded["legs"]["of"]), (&json!(1), &json!(1)));
    let nagle = &graded["culprits"][1];
    assert_eq!(nagle["culprit"], "nagle-delayed-ack (client)");
    assert_eq!((&nagle["recall"]["share"], &nagle["precision"]["of"]), (&json!(1.0), &json!(3)));
    let page = fs::read_to_string(page).expect("a page");
    assert!(page.contains("1 of 3 verdicts are right") && page.contains("./runs/c-held/"), "{page}");
}

#[test]
fn failing_judges_are_counted_and_grading_continues() {
    let scene = Scene::new();
    let crash = scene
        .grade(r#"case "$1" in *c-held) echo no idea >&2; exit 7;; esac; echo '{"culprit":"none"}'"#, &[]);
    assert_eq!(
        (&crash["runs"]["judge_failed"], &crash["runs"]["judged"]),
        (&json!(1), &json!(2)),
        "{crash:#}"
    );
    let rows = crash["rows"].as_array().expect("rows");
    let failed = rows.iter().find(|row| row["outcome"] == "judge-failed").expect("it is told");
    let error = failed["error"].as_str().expect("an error");
    assert!(["runs/c-held", "7", "no idea", "expected"].iter().all(|word| error.contains(word)), "{error}");

    let garbage = scene.grade(r#"echo '{"culprit": "gremlins"}'"#, &[]);
    assert_eq!(garbage["runs"]["judge_failed"], 3);
    assert_eq!(garbage["right"]["of"], 0);
    let error = garbage["rows"][0]["error"].as_str().expect("an error");
    assert!(error.contains("gremlins") && error.contains("run-queue"), "{error}");

    let hanging = scene.grade("sleep 1000", &["--judge-limit", "50ms"]);
    assert_eq!((&hanging["runs"]["judge_timed_out"], &hanging["runs"]["graded"]), (&json!(3), &json!(3)));
    let text = scene.start("sleep 1000", &["--judge-limit", "50ms"]).wait().out.join("\n");
    assert!(text.contains("The judge took too long:") && text.contains("killed"), "{text}");
}

#[test]
fn a_run_whose_fault_did_not_act_is_not_judged() {
    let scene = Scene::new();
    let claim = json!({ "what": "holds", "measured": 0.0, "expected": "at least 5", "holds": false });
    scene.keep("d", &json!({ "scenario": "held", "culprit": "rto", "acted": false, "proof": [claim] }));
    let graded = scene.grade(ALWAYS_RIGHT, &[]);
    assert_eq!((&graded["runs"]["did_not_act"], &graded["runs"]["judged"]), (&json!(1), &json!(3)));
    let rows = graded["rows"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["outcome"] == "did-not-act").expect("it is told");
    assert_eq!(row["error"], "holds 0, expected at least 5");
}

#[test]
fn blind_folders_reveal_nothing() {
    let scene = Scene::new();
    let log = scene.text("log");
    let script = format!(r#"(echo "$1"; ls "$1"; cat "$1"/*) >> '{log}'; echo '{{"culprit":"unknown"}}'"#);
    let graded = scene.grade(&script, &["--blind"]);
    assert_eq!((&graded["unknown"]["count"], &graded["runs"]["judged"]), (&json!(3), &json!(3)));
    let seen = fs::read_to_string(&log).expect("the judge was asked");
    for hidden in ["truth.json", "README", "tank.err", "held", "healthy", "like", "runs"] {
        assert!(!seen.contains(hidden), "{hidden} in {seen}");
    }
    for shown in ["/run-0001\n", "/run-0002\n", "/run-0003\n", "client.pcapng\ntank.json\n"] {
        assert!(seen.contains(shown), "{shown} in {seen}");
    }
    // The blinded copies are gone; the folders remain, and the report says which was which.
    let shown: Vec<&str> = seen.lines().filter(|line| line.starts_with('/')).collect();
    assert!(shown.iter().all(|folder| !Path::new(folder).exists()), "{shown:?}");
    assert!(scene.path("runs/c-held/truth.json").exists());
    let order = |seed: &str| -> Vec<String> {
        let graded = scene.grade(&script, &["--blind", "--seed", seed]);
        let rows = graded["rows"].as_array().expect("rows").clone();
        rows.iter().map(|row| row["folder"].as_str().expect("it stays").to_owned()).collect()
    };
    assert_eq!(order("3"), order("3"));
    assert!((4..20).any(|seed| order(&seed.to_string()) != order("3")), "the order is a matter of the seed");
}

#[test]
fn only_selected_runs_are_graded() {
    let scene = Scene::new();
    let graded = scene.grade(ALWAYS_RIGHT, &["--near-misses", "no"]);
    assert_eq!(graded["runs"]["planned"], 2);
    let graded = scene.grade(ALWAYS_RIGHT, &["healthy"]);
    assert_eq!(graded["runs"]["planned"], 1);

    let refused = scene.start(ALWAYS_RIGHT, &["gremlins"]).wait();
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.join("\n").contains("spangap lab list"), "{refused:?}");
    let refused = Program::start(&["lab", "grade", "healthy", "--set", "colour=red"]).wait();
    assert_eq!(refused.code, Some(2), "{refused:?}");
    let empty = Program::start(&["lab", "grade", "--runs", &scene.text("")]).wait();
    assert_eq!(empty.code, Some(1), "{empty:?}");
    assert!(empty.err.join("\n").contains("truth.json"), "{empty:?}");
}

#[test]
fn ctrl_c_prints_the_score_so_far() {
    let scene = Scene::new();
    let (first, hangs) = (scene.text("first"), scene.text("hangs"));
    let script = format!(
        r#"if [ -e '{first}' ]; then : > '{hangs}'; exec sleep 1000; fi; : > '{first}'; echo '{{"culprit":"none"}}'"#
    );
    let program = scene.start(&script, &["--json", "--blind"]);
    until("the judge's second run", || Path::new(&hangs).exists().then_some(()));
    program.signal("INT");
    let graded = report(&program.wait());
    assert_eq!(graded["interrupted"], true);
    assert_eq!((&graded["runs"]["graded"], &graded["runs"]["planned"]), (&json!(1), &json!(3)));
}

/// All bytes that a judge saw of one run made for it, and the project's own verdict on that run.
#[test]
fn a_judged_run_does_not_reveal_its_name() {
    if !rustix::process::geteuid().is_root() {
        println!("not run: namespaces need root");
        return;
    }
    let scene = Scene::new();
    let (seen, spangap) = (scene.text("seen"), env!("CARGO_BIN_EXE_spangap"));
    let judge = scene.judge(&format!(r#"cp -r "$1" '{seen}' && exec '{spangap}' lab judge "$1""#));
    let (keep, state) = (scene.text("healthy-kept"), scene.text("state"));
    let graded = report(
        &Program::start(&[
            "lab",
            "grade",
            "healthy",
            "--blind",
            "--near-misses",
            "no",
            "--set",
            "duration=1s",
            "--keep",
            &keep,
            "--state",
            &state,
            "--judge",
            &judge,
            "--json",
        ])
        .wait(),
    );
    let (row, runs) = (&graded["rows"][0], &graded["runs"]);
    if row["outcome"] == "unavailable" {
        println!("not run: {}", row["error"]);
        return;
    }
    assert_eq!((&runs["planned"], &runs["graded"]), (&json!(1), &json!(1)), "{graded:#}");
    // On a busy machine, the scenario may find that it is not healthy, and is then not judged.
    if row["outcome"] == "did-not-act" {
        println!("not run: this machine is too busy for a healthy run: {}", row["error"]);
        return;
    }
    assert_eq!((&row["outcome"], &row["truth"]), (&json!("judged"), &json!("none")), "{graded:#}");
    assert!(row["verdict"].is_string() && row["why"].is_string(), "{graded:#}");
    assert_eq!(row["folder"], format!("{keep}/healthy-1"));
    assert!(Path::new(&keep).join("healthy-1/truth.json").exists());

    let listed = Program::start(&["lab", "list", "--json"]).wait().out.join("\n");
    let listed: Value = serde_json::from_str(&listed).expect("a list");
    let scenarios = listed["scenarios"].as_array().expect("some").clone();
    let names: Vec<&str> = scenarios.iter().map(|one| one["name"].as_str().expect("a name")).collect();
    assert!(names.contains(&"healthy"));
    let files: Vec<PathBuf> =
        fs::read_dir(&seen).expect("it was shown").map(|entry| entry.expect("a file").path()).collect();
    assert!(files.len() >= 5, "{files:?}");
    for file in files {
        let bytes = fs::read(&file).expect("it can be read");
        // `clock`, `rto` and `retries` occur in every report.
        for name in names.iter().filter(|name| name.contains('-') || **name == "healthy") {
            let at = bytes.windows(name.len()).position(|window| window == name.as_bytes());
            assert_eq!(at, None, "{} says {name}", file.display());
        }
    }
}

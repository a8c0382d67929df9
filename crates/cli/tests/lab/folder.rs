//! The folder of a run, as it looks to somebody who has never seen the lab.

use crate::process::Program;
use crate::scene::Scene;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

const FILES: [&str; 10] = [
    "README",
    "client.host",
    "client.pcapng",
    "client.spans.json",
    "machine.json",
    "server.host",
    "server.pcapng",
    "server.spans.json",
    "tank.json",
    "truth.json",
];

/// Makes a run in the scene's folder, and returns its output.
fn run(scene: &Scene, arguments: &[&str]) -> Option<Value> {
    let (state, out) = (scene.state(), scene.out());
    let [state, out] = [&state, &out].map(|path| path.to_str().expect("a plain path"));
    let all = [&["lab", "run"], arguments, &["--state", state, "--out", out, "--json"]].concat();
    let ended = Program::start(&all).wait();
    let cannot = ["is not available here", "was not ready before the calls were over"];
    if ended.err.iter().any(|line| cannot.iter().any(|why| line.contains(why))) {
        println!("not run: {:?}", ended.err);
        return None;
    }
    // A run whose fault did not act fails, and still has its folder.
    Some(
        serde_json::from_str(&ended.out.join("\n"))
            .unwrap_or_else(|error| panic!("{error}: {:?}", ended.err)),
    )
}

fn json(path: &Path) -> Value {
    let text = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What another verb reports about the folder.
fn says(folder: &Path, verb: &[&str], files: &[&str]) -> Value {
    let paths: Vec<String> =
        files
            .iter()
            .map(|word| {
                if word.starts_with("--") { (*word).into() } else { folder.join(word).display().to_string() }
            })
            .collect();
    let arguments: Vec<&str> =
        verb.iter().copied().chain(paths.iter().map(String::as_str)).chain(["--json"]).collect();
    let ended = Program::start(&arguments).wait();
    assert_eq!(ended.code, Some(0), "{arguments:?}: {:?}", ended.err);
    serde_json::from_str(&ended.out.join("\n")).expect("a document")
}

/// Files of the recorded hosts, as arguments of `dissect`.
fn hosts(folder: &Path) -> Vec<&'static str> {
    let there = ["client.host", "server.host"].into_iter().filter(|file| folder.join(file).exists());
    there.flat_map(|file| ["--host", file]).collect()
}

#[test]
fn a_runs_folder_is_complete_and_every_verb_reads_it() {
    let Some(scene) = Scene::new() else { return };
    let Some(printed) = run(&scene, &["healthy", "--set", "duration=1s", "--seed", "7"]) else { return };
    let folder = scene.out();
    let truth = json(&folder.join("truth.json"));
    assert_eq!(printed, truth);
    for (key, expected) in
        [("scenario", "healthy"), ("culprit", "none"), ("affected_rule", "no call is affected")]
    {
        assert_eq!(truth[key], expected);
    }
    assert_eq!(truth["command"], "spangap lab run healthy --set duration=1000ms --set rate=100 --seed 7");
    assert_eq!((&truth["near_miss"], &truth["seed"]), (&Value::Bool(false), &Value::from(7)));
    assert_eq!(truth["parameters"]["rate"], "100");
    assert!(truth["proof"].as_array().is_some_and(|claims| claims.len() >= 3));
    assert_eq!((&truth["active"], &truth["affected"]), (&serde_json::json!([]), &serde_json::json!([])));

    let machine = json(&folder.join("machine.json"));
    let not_recorded: BTreeSet<&str> = machine["not_recorded"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["file"].as_str())
        .collect();
    let names = fs::read_dir(&folder).expect("the folder").map(|entry| entry.expect("an entry").file_name());
    let found: BTreeSet<String> = names.map(|name| name.into_string().expect("plain names")).collect();
    let expected: BTreeSet<String> =
        FILES.into_iter().filter(|file| !not_recorded.contains(file)).map(Into::into).collect();
    assert_eq!(found, expected);
    for file in &found {
        assert!(folder.join(file).metadata().expect("it is there").len() > 0, "{file} is empty");
    }
    let recorded = machine["recorded"].as_array().expect("a list");
    assert_eq!(recorded.len() + not_recorded.len(), 6);
    for one in recorded {
        assert!(one["from_unix_ns"].as_u64() < one["to_unix_ns"].as_u64(), "{one}");
    }
    assert!(machine["noise"]["wall_ns"].as_u64() > Some(2_000_000_000), "{machine:#}");
    assert!(machine["noise"]["others_cpu_ns"].is_u64() && machine["noise"]["steal_ns"].is_u64());
    assert!(machine["versions"]["client"].as_str().is_some_and(|text| text.starts_with("rust, tonic ")));
    // Neither it nor the recordings reveal the scenario.
    assert!(!machine.to_string().contains("healthy"));
    let readme = fs::read_to_string(folder.join("README")).expect("a text");
    assert!(readme.contains(truth["command"].as_str().expect("a text")), "{readme}");

    let tank = json(&folder.join("tank.json"));
    let exported = tank["spans"]["exported"].as_u64().expect("a count");
    let gaps = says(&folder, &["gaps"], &["client.spans.json", "server.spans.json"]);
    assert_eq!(gaps["spans"]["joined"].as_u64(), Some(2 * exported), "{}", gaps["spans"]);
    let spans = ["--spans", "client.spans.json", "--spans", "server.spans.json"];
    let files = [&["client.pcapng", "server.pcapng"], &spans[..], &hosts(&folder)].concat();
    let dissected = says(&folder, &["dissect"], &files);
    let document = if dissected["clock"].is_object() { &dissected } else { &dissected[0] };
    let (low, high) = (&document["clock"]["offset_low_ns"], &document["clock"]["offset_high_ns"]);
    assert!(low.as_i64() <= Some(0) && high.as_i64() >= Some(0), "one clock: {}", document["clock"]);
    assert!(document["calls"].as_array().is_some_and(|calls| !calls.is_empty()));
    for capture in ["client.pcapng", "server.pcapng"] {
        let Ok(read) = Command::new("tshark").args(["-r"]).arg(folder.join(capture)).output() else {
            println!("not run: there is no tshark");
            break;
        };
        assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
        assert!(read.stdout.split(|byte| *byte == b'\n').count() > 100);
    }
}

#[test]
fn simulated_clocks_are_recovered() {
    let Some(scene) = Scene::new() else { return };
    let arguments = ["clock", "--set", "duration=1500ms", "--clock", "client=-2ms"];
    let Some(truth) = run(&scene, &arguments) else { return };
    assert_eq!((&truth["culprit"], &truth["also_right"][0]), (&"none".into(), &"clock".into()));
    let clocks = truth["clocks"].as_array().expect("two");
    let of = |side: &str| clocks.iter().find(|clock| clock["side"] == side).expect("it is set");
    assert_eq!(
        (&of("server")["offset_ns"], &of("client")["offset_ns"]),
        (&30_000_000.into(), &(-2_000_000).into())
    );
    let folder = scene.out();
    let spans = ["--spans", "client.spans.json", "--spans", "server.spans.json"];
    let files = [&["client.pcapng", "server.pcapng"], &spans[..], &hosts(&folder)].concat();
    let dissected = says(&folder, &["dissect"], &files);
    // Since the run began, the server's clock has gained at most 50 ppm of the elapsed time.
    let clock = &dissected["clock"];
    let [low, high] = ["offset_low_ns", "offset_high_ns"].map(|key| clock[key].as_i64().expect("a number"));
    assert!(low <= 33_000_000 && high >= 32_000_000 && low <= high, "{clock}");
    let machine = json(&folder.join("machine.json"));
    let wall_ns = machine["noise"]["wall_ns"].as_i64().expect("a number");
    assert!(high >= 32_000_000 && low <= 32_000_000 + wall_ns / 20_000, "{clock}");
    // The host recordings were used: threads are found behind the bytes of calls.
    let calls = dissected["calls"].as_array().expect("calls");
    let legs = calls.iter().flat_map(|call| call["legs"].as_array().into_iter().flatten());
    let split = legs.filter(|leg| leg["leg"] == "server_app" && leg["host"].is_object()).count();
    if folder.join("server.host").exists() {
        assert!(split > 0, "{dissected:#}");
    }
    for capture in ["client.pcapng", "server.pcapng"] {
        let Ok(read) = Command::new("tshark").args(["-r"]).arg(folder.join(capture)).output() else {
            println!("not run: there is no tshark");
            break;
        };
        assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    }
}

/// The truth describes what is between the hosts; it mentions netem only where the kernel has it.
fn says_its_line(name: &str, folder: &Path, truth: &Value) {
    let machine = json(&folder.join("machine.json"));
    let readme = fs::read_to_string(folder.join("README")).expect("a text");
    let line = truth["line"].as_str();
    match (name.starts_with("network-delay"), line) {
        (true, Some("netem")) => assert_eq!(machine["netem"], true, "{machine:#}"),
        (true, Some("tun")) | (false, None) => {}
        _ => panic!("{name}: {line:?}"),
    }
    assert_eq!(readme.contains("Between the hosts: a line of"), line.is_some(), "{readme}");
    assert_eq!(machine["line"], Value::Null);
}

/// A pause of the machine of this length can make a fault's near miss look like the fault.
const LONG_PAUSE_NS: u64 = 10_000_000;

/// Checks that a fault acts and its near miss does not show it. On a busy machine, one attempt may fail.
fn acts(name: &str) {
    let mut calm = 0;
    for _ in 0..3 {
        let Some(scene) = Scene::new() else { return };
        let Some(truth) = run(&scene, &[name]) else { return };
        says_its_line(name, &scene.out(), &truth);
        if truth["acted"] == true {
            return;
        }
        let pause = &json(&scene.out().join("machine.json"))["noise"]["longest_pause_ns"];
        let pause_ns = pause.as_u64().expect("a number of nanoseconds");
        println!("{name}, beside a pause of {pause_ns} ns of the machine itself: {:#}", truth["proof"]);
        calm += u32::from(pause_ns < LONG_PAUSE_NS);
    }
    // A run that the machine itself delayed says nothing about the fault.
    if calm == 0 {
        println!(
            "not run: does {name} act? The machine stood still for 10 ms and more by itself, three times of three"
        );
        return;
    }
    panic!("{name} did not act");
}

#[test]
fn faults_act_and_near_misses_do_not() {
    for name in ["stopped-client", "stopped-client-near-miss", "network-delay", "network-delay-near-miss"] {
        acts(name);
    }
}

#[test]
fn a_failed_run_names_its_logs() {
    let Some(scene) = Scene::new() else { return };
    let (state, out) = (scene.state(), scene.out());
    let [state, out] = [&state, &out].map(|path| path.to_str().expect("a plain path"));
    // The tank refuses this rate.
    let arguments = ["lab", "run", "healthy", "--set", "rate=0", "--state", state, "--out", out];
    let ended = Program::start(&arguments).wait();
    let said = ended.err.join("\n");
    assert_eq!(ended.code, Some(1), "{said}");
    let logs = said.split_once("the output of the run's programs is in ").expect("it is said").1;
    let logs = Path::new(logs.split(')').next().expect("up to the bracket"));
    assert!(logs.join("tank.err").metadata().expect("it is kept").len() > 0);
    assert!(!scene.out().exists() && scene.journals().is_empty());
    fs::remove_dir_all(logs).expect("it can go");
}

#[test]
fn wrong_usage_is_reported_before_anything_is_made() {
    for (arguments, expected) in [
        (&["nagel"][..], "there is no scenario nagel"),
        (&["healthy", "--set", "rate=fast"], "expected a whole number"),
        (&["healthy", "--set", "strength=3"], "healthy has the parameters: rate, duration"),
        (&["healthy", "--clock", "server=3"], "unit"),
        (&["healthy", "--clock", "server=3ms", "--clock", "server=4ms"], "has one already"),
        (&["healthy", "--out", "/"], "/ is already there"),
    ] {
        let ended = Program::start(&[&["lab", "run"], arguments].concat()).wait();
        let said = ended.err.join("\n");
        assert!(ended.code == Some(2) && said.contains(expected), "{arguments:?}: {:?} {said}", ended.code);
    }
}

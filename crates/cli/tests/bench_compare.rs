//! `spangap bench compare` as users run it, on results in the form that `spangap tank --json` prints.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn run(stack: &str, channels: &str, inflight: u32, repeat: u32, start: u64, p50_ns: u64) -> String {
    let quantiles = |p50: u64| {
        format!(
            r#"{{"p50_ns":{p50},"p90_ns":{p50},"p99_ns":{},"p999_ns":{},"p9999_ns":null,"max_ns":{},"mean_ns":{p50}}}"#,
            2 * p50,
            3 * p50,
            4 * p50
        )
    };
    let latency = quantiles(p50_ns);
    let throughput = f64::from(inflight) * 1e9 / p50_ns as f64;
    format!(
        r#"{{"target":"127.0.0.1:1","stack":"{stack}","call":"unary","channels":"{channels}","inflight":{inflight},
"rate_per_s":null,"request_bytes":0,"response_bytes":null,"think_ns":null,"nodelay":"on","split_writes":false,
"threads":1,"cpus":null,"trace":false,"repeat":{repeat},"library":"x","start_unix_ns":{start},"duration_s":1.0,
"warmup_s":0.0,"scheduled":9000,"calls":9000,"ok":9000,"errors":{{}},"error_reasons":{{}},"skipped_overload":0,
"warmup_errors":0,"throughput_per_s":{throughput},"latency":{latency},"latency_from_send":{latency},"lateness":null,
"spectrum":[],"seconds":[],"channels_made":1,"connections":null,"sockets":null,"streams":null,"slow_over_ns":1,
"slow":0,"cpu_client_s":0.1,"cpu_target_s":null,"context_switches":5,"context_switches_target":null,"floor":null,
"records_dropped":0,"client_error":null,"warnings":[]}}"#
    )
}

fn report(runs: &[String]) -> String {
    let quantiles = r#"{"p50_ns":null,"p90_ns":null,"p99_ns":null,"p999_ns":null,"p9999_ns":null,"max_ns":null,"mean_ns":null}"#;
    format!(
        r#"{{"runs":[{}],"noise":{{"clock_read_ns":1,"clock_step_ns":1,"timer_lateness":{quantiles},"timer_slack_ns":null,
"longest_pause_ns":0,"watched_ns":0,"cpus":2,"cannot_claim":[]}},"not_run":[],"warnings":[]}}"#,
        runs.join(",\n")
    )
}

/// Five alternating repetitions of both arms; the second takes `factor` times as long.
fn in_turn(factor: f64) -> Vec<(String, String)> {
    (0..5)
        .map(|i| {
            let one = |channels, at: u64, factor: f64| {
                let p50_ns = (100_000 + 1_000 * ((7 * u64::from(i) + at) % 5)) as f64 * factor;
                run("rust", channels, 8, i, 1_000 + 10 * u64::from(i) + at, p50_ns as u64)
            };
            (one("shared", 0, 1.0), one("distinct", 1, factor))
        })
        .collect()
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

fn compare(files: &[&Path], options: &[&str]) -> (Output, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spangap"));
    let output = command.args(["bench", "compare"]).args(files).args(options).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    (output, out, error)
}

#[test]
fn one_file_by_a_field() {
    let folder = Folder::new();
    let runs: Vec<String> = in_turn(2.0).into_iter().flat_map(|(a, b)| [a, b]).collect();
    let file = folder.file("runs.json", &report(&runs));
    let (output, text, error) = compare(&[&file], &["--by", "channels", "--fail-on", "slower"]);
    assert_eq!(output.status.code(), Some(3), "{text}{error}");
    assert!(text.contains("channels: shared in A, distinct in B") && text.contains("x slower"), "{text}");
    assert!(error.contains("slower: distinct is") && error.contains("(throughput, 8 in flight)"), "{error}");

    let (output, text, _) =
        compare(&[&file], &["--by", "channels", "--metric", "cpu-client", "--json", "--fail-on", "slower"]);
    assert_eq!(output.status.code(), Some(0));
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["comparisons"], 1);
    assert_eq!(json["pairs"][0]["rows"][0]["verdict"], "no_difference_seen");
}

#[test]
fn two_files_with_a_document_for_each_turn() {
    let folder = Folder::new();
    let (a, b): (Vec<_>, Vec<_>) = in_turn(0.5).into_iter().unzip();
    let documents = |runs: Vec<String>| {
        runs.iter().map(|run| report(std::slice::from_ref(run))).collect::<Vec<_>>().join("\n")
    };
    let (a, b) = (folder.file("A.json", &documents(a)), folder.file("B.json", &documents(b)));
    let (output, text, error) = compare(&[&a, &b], &["--metric", "p50", "--fail-on", "slower"]);
    assert_eq!(output.status.code(), Some(0), "{error}");
    assert!(text.contains("B.json is") && text.contains("x faster"), "{text}");
    let (output, text, _) = compare(&[&b, &a], &["--metric", "p50", "--fail-on", "slower"]);
    assert_eq!(output.status.code(), Some(3), "{text}");
}

#[test]
fn errors_name_the_file_and_the_place() {
    let folder = Folder::new();
    let good = folder.file("good.json", &report(&[run("rust", "shared", 1, 0, 1, 9)]));
    let cut = folder.file("cut.json", "{\"runs\":\n [}");
    let (output, _, error) = compare(&[&good, &cut], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        error.contains("cut.json is not a result of spangap tank --json")
            && error.contains("line 2 column 3"),
        "{error}"
    );
    let strange = folder.file("strange.json", &report(&[run("tonic", "shared", 1, 0, 1, 9)]));
    assert!(compare(&[&good, &strange], &[]).2.contains("tonic"));
    assert!(compare(&[&good, &folder.file("empty.json", "")], &[]).2.contains("it is empty"));
    assert!(compare(&[&good, &folder.0.path().join("none.json")], &[]).2.contains("none.json"));
    assert!(compare(&[&good], &[]).2.contains("--by FIELD"));
    assert_eq!(compare(&[&good], &["--by", "colour"]).0.status.code(), Some(2));
}

#[test]
fn one_run_each_gives_figures_and_no_verdict() {
    let folder = Folder::new();
    let files =
        ["A.json", "B.json"].map(|name| folder.file(name, &report(&[run("rust", "shared", 1, 0, 1, 9)])));
    let (output, text, _) = compare(&[&files[0], &files[1]], &["--fail-on", "slower"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text.contains("cannot tell: 1 run each; at least 4 each are needed"), "{text}");
}

/// A target that is killed when this value is dropped.
struct Target(std::process::Child);

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn results_of_a_real_tank_are_compared() {
    let spangap = || Command::new(env!("CARGO_BIN_EXE_spangap"));
    let mut target =
        Target(spangap().args(["target", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    let mut said = BufReader::new(target.0.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    let address = line.split_whitespace().find(|word| word.starts_with("127.0.0.1:")).unwrap().to_owned();

    let folder = Folder::new();
    let page = folder.0.path().join("runs.html");
    let tank = spangap()
        .args([
            "tank",
            &address,
            "--channels",
            "shared,per-worker",
            "--inflight",
            "2",
            "--repeat",
            "4",
            "--json",
        ])
        .args(["--duration", "200ms", "--warmup", "50ms", "--html"])
        .arg(&page)
        .output()
        .unwrap();
    assert!(tank.status.success(), "{}", String::from_utf8_lossy(&tank.stderr));
    let text = String::from_utf8(tank.stdout).unwrap();
    let file = folder.file("runs.json", &text);

    let (output, json, error) = compare(&[&file], &["--by", "channels", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{error}");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let row = &json["pairs"][0]["rows"][0];
    assert_eq!(
        (&row["metric"], &row["runs_a"], &row["runs_b"]),
        (&"throughput_per_s".into(), &4.into(), &4.into())
    );
    assert_eq!(row["interleaved"], true, "tank --repeat makes the runs of both in turn: {row}");
    assert!(row["ratio_low"].as_f64() <= row["ratio"].as_f64(), "{row}");

    let page = std::fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("id=\"data\">").unwrap();
    let (inside, _) = rest.split_once("</script>").unwrap();
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(read(inside), read(&text));
}

#[test]
fn saved_results_are_shown_as_table_page_and_json() {
    let folder = Folder::new();
    let turns = in_turn(2.0);
    let text: String = turns.iter().map(|(a, _)| report(std::slice::from_ref(a))).collect();
    let (file, page) = (folder.file("runs.json", &text), folder.file("runs.html", ""));
    let show = |options: &[&std::ffi::OsStr]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spangap"));
        command.args(["bench", "show"]).arg(&file).args(options).output().expect("the binary starts")
    };
    let shown = show(&["--html".as_ref(), page.as_os_str()]);
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    assert!(String::from_utf8_lossy(&shown.stdout).contains("ok/s"));
    assert!(std::fs::read_to_string(&page).expect("the page is written").starts_with("<!doctype html>"));
    let shown = show(&["--json".as_ref()]);
    let all: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("one JSON document");
    assert_eq!(all["runs"].as_array().map(Vec::len), Some(turns.len()));
}

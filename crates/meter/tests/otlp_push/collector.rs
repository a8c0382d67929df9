//! The push as the OpenTelemetry Collector's own code reads it.

use super::{Part, settings, snapshot};
use serde_json::Value;
use spangap_meter::export::otlp::Push;
use spangap_model::Histogram;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use tokio::sync::mpsc;

type Lines = std::io::Lines<BufReader<ChildStdout>>;

/// Ends the program with the test, however the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `Err` contains why it cannot be built.
fn build() -> Result<PathBuf, String> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("otlp-receiver");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/otlp_push/receiver");
    let mut go = Command::new("go");
    go.args(["build", "-buildvcs=false", "-o"]).arg(&program).arg(".").current_dir(source);
    let output = go.output().map_err(|e| format!("the Go toolchain cannot be started: {e}"))?;
    assert!(output.status.success(), "go build: {}", String::from_utf8_lossy(&output.stderr));
    Ok(program)
}

fn same_distribution(line: &Value, ours: &Histogram) {
    assert_eq!((line["scale"].as_i64(), line["temporality"].as_str()), (Some(4), Some("Cumulative")));
    assert_eq!(line["count"].as_u64(), Some(ours.count()));
    assert_eq!(line["zero"].as_u64(), Some(ours.zero_count()));
    assert_eq!(line["sum"].as_f64(), Some(ours.sum_ns() as f64 / 1e9));
    assert_eq!(line["max"].as_f64(), ours.max_ns().map(|ns| ns as f64 / 1e9));
    let offset = line["offset"].as_i64().unwrap() as i32;
    let counts = line["counts"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap());
    let counts: Vec<_> = (offset..).zip(counts).filter(|(_, n)| *n > 0).collect();
    assert_eq!(counts, ours.buckets().collect::<Vec<_>>());
}

#[tokio::test]
async fn the_collectors_own_code_reads_the_same_figures() {
    let program = match tokio::task::spawn_blocking(build).await.unwrap() {
        Ok(program) => program,
        Err(why) => return println!("not run: metric push to the Collector's receiver code: {why}"),
    };
    let mut receiver = Running(Command::new(program).stdout(Stdio::piped()).spawn().unwrap());
    let mut lines: Lines = BufReader::new(receiver.0.stdout.take().unwrap()).lines();
    let address = lines.next().expect("its address").unwrap().parse().unwrap();
    let (notices, mut told) = mpsc::unbounded_channel();
    let interval = Duration::from_secs(3600);
    let push =
        Push::start(settings(address, interval), || snapshot(2), move |notice| drop(notices.send(notice)));
    let read = tokio::task::spawn_blocking(move || {
        // Four distributions of two pairs.
        let read = lines.by_ref().take(8).map(|line| serde_json::from_str(&line.unwrap()).unwrap());
        (read.collect::<Vec<Value>>(), lines)
    });
    // The pipe stays open: the program has yet to write the last push.
    let (read, _lines) = read.await.unwrap();
    push.stop().await;
    assert_eq!(told.recv().await, None, "nothing to tell of");

    let expected = snapshot(2);
    let of: [(&str, Part); 4] = [
        ("spangap_gap_seconds", |s| &s.gap),
        ("spangap_client_duration_seconds", |s| &s.client),
        ("spangap_server_duration_seconds", |s| &s.server),
        ("spangap_mate_delay_seconds", |s| &s.mate_delay),
    ];
    for (name, of) in of {
        for (key, stats) in &expected.pairs {
            let is_it = |line: &&Value| line["name"] == name && line["labels"]["server"] == *key.server;
            let line = read.iter().find(is_it).unwrap_or_else(|| panic!("no {name} of {key:?} in {read:#?}"));
            assert_eq!(line["service"], "spangap");
            same_distribution(line, of(stats));
        }
    }
    let trace_id: String = expected.pairs[0].1.worst[0].trace_id.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(read.iter().find(|l| l["name"] == "spangap_gap_seconds").unwrap()["trace_ids"][0], trace_id);
}

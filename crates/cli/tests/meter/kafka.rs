//! `--kafka` without a broker: what is wrong is said, spans by other ways are refused, and the meter ends when asked.
//! `make test-kafka` runs it on Kafka itself.

use super::client::request;
use super::process::{FREE_PORTS, Meter, Program, until};
use std::net::TcpListener;
use std::path::Path;

/// How a meter with these settings ends at once.
fn refused(folder: &Path, settings: &str, more: &[&str]) -> String {
    let file = folder.join("kafka.toml");
    std::fs::write(&file, settings).expect("a file of settings");
    let file = file.to_str().expect("its name is text");
    let ended = Program::start(&[&["meter", "--kafka", file], &FREE_PORTS[..], more].concat()).wait();
    assert_eq!(ended.code, Some(1), "{:?}", ended.err);
    ended.err.join("\n")
}

#[test]
fn wrong_settings_are_refused_by_file_line_and_key() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let data = folder.path().join("data");
    let data = ["--data", data.to_str().expect("its name is text")];
    let brokers = "brokers = [\"127.0.0.1:1\"]\n";
    assert!(refused(folder.path(), brokers, &[]).contains("expected --data DIR"));
    let told = refused(folder.path(), &format!("{brokers}\nencoding = \"avro\"\n"), &data);
    assert!(told.contains("kafka.toml:3: encoding: "), "{told}");
    let told = refused(folder.path(), brokers, &[&data[..], &["--keep-spans", "1m"]].concat());
    assert!(told.contains("--keep-spans"), "{told}");
    let sasl = "[sasl]\nmechanism = \"PLAIN\"\nusername = \"u\"\npassword-file = \"/nowhere/at/all\"\n";
    let told = refused(folder.path(), &format!("{brokers}{sasl}"), &data);
    assert!(told.contains("sasl.password-file: cannot read /nowhere/at/all"), "{told}");
}

#[test]
fn without_a_broker_the_coverage_says_so_and_other_spans_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("kafka.toml");
    // Nobody listens there once it is dropped.
    let address = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a free port");
    std::fs::write(&file, format!("brokers = [\"{address}\"]\n")).expect("a file of settings");
    let data = folder.path().join("data");
    let text = |path: &Path| path.to_str().expect("its name is text").to_owned();
    let arguments = ["--kafka".to_string(), text(&file), "--data".to_string(), text(&data)];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let program = Program::start(&[&["meter"], &FREE_PORTS[..], &arguments].concat());
    let told = program.error_line().unwrap_or_default();
    if told.contains("needs librdkafka") {
        println!("not run: the meter on Kafka: {told}");
        return;
    }
    println!("not run: the meter on Kafka itself, for which there is `make test-kafka`");
    let meter = Meter::ready(program);
    let notes = until("a note on the broker", || {
        let coverage: serde_json::Value = meter.get("/api/v1/coverage").json();
        assert_eq!(coverage["kafka"]["topic"], "otlp_spans");
        let notes = coverage["notes"].as_array()?.iter().filter_map(|note| note.as_str());
        let of_kafka: Vec<String> =
            notes.filter(|note| note.starts_with("kafka: ")).map(String::from).collect();
        (!of_kafka.is_empty()).then_some(of_kafka)
    });
    assert!(notes.iter().any(|note| note.contains(&address.port().to_string())), "{notes:?}");
    let protobuf = [("content-type", "application/x-protobuf")];
    let answer = request(meter.otlp_http, "POST", "/v1/traces", &protobuf, b"");
    assert_eq!(answer.status, 409);
    let ended = meter.stop();
    assert_eq!(ended.code, Some(0), "{:?}", ended.err);
}

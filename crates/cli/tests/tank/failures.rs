//! Failures are reported, together with what was measured until then.

use crate::process::{FREE_PORTS, Meter, Program, until};
use crate::{report, says, tank, target, the_run};
use std::net::TcpListener;

#[test]
fn a_target_without_the_service_is_reported() {
    // A meter speaks gRPC, but has no Ping service.
    let meter = Meter::ready(Program::start(&[&["meter"], &FREE_PORTS[..]].concat()));
    let ended =
        tank(&meter.otlp_grpc.to_string(), &["--rate", "100", "--duration", "100ms", "--warmup", "0ms"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.iter().any(|line| line.starts_with("spangap: no call succeeded")), "{ended:?}");
    let report = report(&ended);
    let run = the_run(&report);
    assert_eq!(run["errors"], serde_json::json!({ "UNIMPLEMENTED": 10 }));
    assert!(says(&run["warnings"], "does not serve spangap.ping.v1.Ping"), "{run}");
    assert!(run["cpu_target_s"].is_null() && run["latency"]["max_ns"].is_null(), "{run}");
}

#[test]
fn a_target_that_expects_tls_is_reported() {
    let papers = tempfile::tempdir().expect("a folder");
    let path = |name: &str| papers.path().join(name).display().to_string();
    let (key, certificate) = (path("key.pem"), path("cert.pem"));
    let mut openssl = std::process::Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]);
    openssl.args(["-subj", "/CN=localhost", "-keyout", &key, "-out", &certificate]);
    let made = openssl.output().expect("openssl starts");
    assert!(made.status.success(), "{made:?}");
    let tls = ["--tls-cert", &certificate, "--tls-key", &key];
    let meter = Meter::ready(Program::start(&[&["meter"], &FREE_PORTS[..], &tls].concat()));
    let target = meter.otlp_grpc.to_string();
    let ended = tank(&target, &["--rate", "100", "--duration", "100ms", "--warmup", "0ms"]);
    assert_eq!(ended.code, Some(1));
    let report = report(&ended);
    assert!(says(&the_run(&report)["warnings"], "without TLS? tank speaks none"), "{report}");
    // Asked for its services, it says the same.
    let ended = tank(&target, &["--method", "shop.v1.Carts/Get", "--duration", "100ms"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.iter().any(|line| line.contains("without TLS? tank speaks none")), "{ended:?}");
}

#[test]
fn a_target_that_dies_leaves_the_results_so_far() {
    let (served, address) = target(&[]);
    let log = tempfile::NamedTempFile::new().expect("a temporary file");
    let path = log.path().to_str().expect("its name is text");
    let length = || log.as_file().metadata().expect("the file is there").len();
    let arguments = [
        "tank",
        &address,
        "--json",
        "--rate",
        "1000",
        "--warmup",
        "0ms",
        "--slow",
        "0us",
        "--slow-log",
        path,
    ];
    let tank = Program::start(&arguments);
    until("a call that succeeds", || (length() > 0).then_some(()));
    served.signal("KILL");
    served.wait();
    let text = || std::fs::read_to_string(path).expect("the log is there");
    until("a call that fails", || text().contains("\"UNAVAILABLE\"").then_some(()));
    tank.signal("INT");
    let ended = tank.wait();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let report = report(&ended);
    let run = the_run(&report);
    assert!(run["ok"].as_u64() > Some(0) && run["errors"]["UNAVAILABLE"].as_u64() > Some(0), "{run}");
    assert!(says(&run["warnings"], "calls ended with UNAVAILABLE"), "{run}");
    assert!(run["cpu_target_s"].is_null(), "{run}");
    assert_eq!((&run["connections"], &run["sockets"]["most_at_once"]), (&0.into(), &1.into()), "{run}");
    assert!(says(&run["warnings"], "no connection was left"), "{run}");
    assert_eq!(report["slow_log"]["written"], run["slow"], "{report}");
}

#[test]
fn available_targets_are_measured() {
    let (_target, address) = target(&[]);
    let free =
        TcpListener::bind("127.0.0.1:0").expect("loopback has a free port").local_addr().expect("bound");
    let free = free.to_string();
    let ended = tank(&free, &[&address, "--inflight", "1", "--duration", "50ms", "--warmup", "0ms"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let report = report(&ended);
    assert_eq!(the_run(&report)["target"], address);
    let why = report["not_run"][0]["why"].as_str().unwrap_or_default();
    assert!(why.contains(&format!("cannot connect to {free}")), "{report}");
}

#[test]
fn a_second_signal_kills_a_client_that_does_not_stop() {
    let (_target, address) = target(&[]);
    let tank = Program::start(&["tank", &address, "--json", "--inflight", "1", "--warmup", "0ms"]);
    let client = until("the client", || client_of(&address));
    send("STOP", client);
    tank.signal("INT");
    tank.signal("TERM");
    let ended = tank.wait();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(client_of(&address), None, "nothing is left behind");
    let report = report(&ended);
    let told = report.to_string();
    assert!(told.contains("killed by the second request to stop"), "{told}");
}

#[test]
fn a_client_that_dies_leaves_the_results_so_far() {
    let (_target, address) = target(&[]);
    let log = tempfile::NamedTempFile::new().expect("a temporary file");
    let path = log.path().to_str().expect("its name is text");
    let arguments = [
        "tank",
        &address,
        "--json",
        "--inflight",
        "1",
        "--warmup",
        "0ms",
        "--slow",
        "0us",
        "--slow-log",
        path,
    ];
    let tank = Program::start(&arguments);
    until("a call", || (log.as_file().metadata().expect("the file is there").len() > 0).then_some(()));
    send("KILL", client_of(&address).expect("the client calls"));
    let ended = tank.wait();
    let line = ended.out.first().unwrap_or_else(|| panic!("no report in {ended:?}"));
    let report: serde_json::Value = serde_json::from_str(line).expect("a JSON document");
    let run = the_run(&report);
    assert!(run["client_error"].as_str().is_some_and(|error| error.contains("signal: 9")), "{run}");
    assert!(says(&run["warnings"], "the client failed"), "{run}");
    assert_eq!(run["connections"], 1, "a client that ends takes its connections along: {run}");
}

fn send(signal: &str, pid: u32) {
    let sent = std::process::Command::new("kill").args(["-s", signal, &pid.to_string()]).status();
    assert!(sent.expect("kill is there").success());
}

/// The process that calls this target; the target has a port of its own, so there is only one.
fn client_of(address: &str) -> Option<u32> {
    let flag = format!("--target={address}");
    let processes = std::fs::read_dir("/proc").expect("it is there").filter_map(Result::ok);
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut pids = pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == flag.as_bytes())
    });
    pids.next()
}

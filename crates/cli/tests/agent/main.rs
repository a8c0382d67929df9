//! `spangap agent` on two hosts; the test plays the meter. `dissect` reads what the agents send as it reads
//! captured files, and what they are ordered to change is changed for a limited time, or not at all.

mod change;
mod isolation;
mod meter;
mod stage;

use meter::Meter;
use serde_json::Value;
use spangap_fleet::v1;
use stage::Stage;
use std::path::Path;
use std::process::Command;

fn dissect(folder: &Path, sides: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spangap"));
    command.args(["dissect", "--json", "--same-clock", "--slowest", "5000"]);
    for side in sides {
        command.arg(folder.join(side).join("capture.pcapng"));
        let recording = folder.join(side).join("host.rec");
        if recording.exists() {
            command.arg("--host").arg(recording);
        }
    }
    let output = command.output().expect("the binary starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn calls(report: &Value) -> &Vec<Value> {
    report["calls"].as_array().expect("calls")
}

/// Number of legs that a host recording has split.
fn split(report: &Value) -> usize {
    let legs = calls(report).iter().flat_map(|call| call["legs"].as_array().expect("legs"));
    legs.filter(|leg| leg["host"]["parts"].as_array().is_some_and(|parts| !parts.is_empty())).count()
}

const CALLS: u32 = 400;

#[test]
fn slices_of_both_hosts_contain_calls_legs_and_thread_activity() {
    let Some(stage) = Stage::new() else { return };
    let meter = Meter::start();
    let folder = tempfile::tempdir().expect("a folder");
    // The target listens before the agents look for processes.
    let (target, address) = stage.target();
    let _agents =
        [stage.agent("client", meter.port, &[]), stage.agent("server", meter.port, &["--payload", "full"])];
    let client = meter.attached(stage.netns("client"));
    let server = meter.attached(stage.netns("server"));
    let payloads = [v1::Payload::Headers, v1::Payload::Full];
    for ((hello, address), payload) in
        [(&client, stage::CLIENT), (&server, stage::SERVER)].into_iter().zip(payloads)
    {
        assert_eq!(hello.protocol, 1);
        assert_eq!(hello.payload(), payload);
        let inventory = hello.inventory.as_ref().expect("an inventory");
        assert!(inventory.addresses.iter().any(|one| one == address), "{address} is not in {inventory:?}");
        assert!(!inventory.addresses.iter().any(|one| one == "127.0.0.1"), "{inventory:?}");
    }
    let from_ns = stage::now_ns();
    stage.call(&address, CALLS);
    let to_ns = stage::now_ns();
    let ends = [v1::Endpoint {
        address: stage::SERVER.into(),
        port: address.rsplit(':').next().unwrap().parse().unwrap(),
    }];
    for (side, payload) in ["client", "server"].into_iter().zip(payloads) {
        let slice = meter.slice(stage.netns(side), (from_ns, to_ns), &ends, 64 << 20);
        assert_eq!(slice.end.error, "", "{:?}", slice.end);
        assert_eq!(slice.end.payload(), payload);
        assert!(
            slice.end.from_unix_ns <= from_ns + 1 && slice.end.to_unix_ns >= to_ns,
            "{:?} of {from_ns} to {to_ns}",
            slice.end
        );
        slice.write(&folder.path().join(side));
        let machine: Value = serde_json::from_slice(&slice.files["machine.json"]).expect("JSON");
        let word = if payload == v1::Payload::Full { "full" } else { "headers" };
        assert_eq!(machine["payload"], word);
    }
    let report = dissect(folder.path(), &["client", "server"]);
    assert_eq!(calls(&report).len(), CALLS as usize, "{:#}", report["caveats"]);
    for call in calls(&report) {
        let legs = call["legs"].as_array().expect("legs");
        assert!(legs.len() >= 3 && call["trace_id"].is_string(), "{call:#}");
    }
    if folder.path().join("server/host.rec").exists() {
        let split = split(&report);
        assert!(split >= CALLS as usize, "{split} legs have host parts, {:#}", report["caveats"]);
    } else {
        println!("host parts not run: {:?}", server.lacks);
    }
    drop(target);
}

/// One agent, which captures at the node's ends of the veths, and two captures all the same.
#[test]
fn the_ends_of_two_pods_of_one_node_are_told_apart() {
    let Some(stage) = Stage::of_one_node() else { return };
    let meter = Meter::start();
    let folder = tempfile::tempdir().expect("a folder");
    let (target, address) = stage.target();
    let _agent = stage.agent("node", meter.port, &["--whole-node"]);
    let netns = stage.netns("node");
    let hello = meter.attached(netns);
    let from_ns = stage::now_ns();
    stage.call(&address, CALLS);
    let to_ns = stage::now_ns();
    let port = address.rsplit(':').next().unwrap().parse().unwrap();
    let ends = [v1::Endpoint { address: stage::SERVER.into(), port }];
    let mut slice = meter.slice_of(netns, (from_ns, to_ns), &ends, 64 << 20, true);
    assert_eq!(slice.end.error, "", "{:?}", slice.end);
    let at_server = slice.files.remove("capture.server.pcapng").expect("a capture of the other end");
    slice.write(&folder.path().join("client"));
    std::fs::create_dir(folder.path().join("server")).expect("a folder");
    std::fs::write(folder.path().join("server/capture.pcapng"), at_server).expect("a file");
    let report = dissect(folder.path(), &["client", "server"]);
    assert_eq!(calls(&report).len(), CALLS as usize, "{:#}", report["caveats"]);
    for call in calls(&report) {
        // Packets pass the client's veth first: between the two is what the node takes to pass them on.
        let legs = call["legs"].as_array().expect("legs");
        assert!(legs.len() >= 3 && legs.iter().any(|leg| leg["leg"] == "request_wire"), "{call:#}");
    }
    if slice.files.contains_key("host.rec") {
        let split = split(&report);
        assert!(split >= CALLS as usize, "{split} legs have host parts, {:#}", report["caveats"]);
    } else {
        println!("host parts not run: {:?}", hello.lacks);
    }
    drop(target);
    // Over loopback there is nothing to tell apart.
    let (target, address) = stage.target_at("node", "127.0.0.1");
    let from_ns = stage::now_ns();
    stage.call_from("node", &address, CALLS);
    let to_ns = stage::now_ns();
    let port = address.rsplit(':').next().unwrap().parse().unwrap();
    let ends = [v1::Endpoint { address: "127.0.0.1".into(), port }];
    let slice = meter.slice_of(netns, (from_ns, to_ns), &ends, 64 << 20, true);
    assert!(!slice.files.contains_key("capture.server.pcapng"), "{:?}", slice.end);
    let folder = folder.path().join("loopback");
    slice.write(&folder.join("client"));
    assert_eq!(calls(&dissect(&folder, &["client"])).len(), CALLS as usize);
    drop(target);
}

/// A cluster's node may be a namespace of a machine: then the machine's first process is elsewhere.
#[test]
fn an_agent_for_a_whole_node_sees_the_namespaces_of_all_pods() {
    let Some(stage) = Stage::new() else { return };
    let meter = Meter::start();
    let _agents =
        [stage.agent("client", meter.port, &["--whole-node"]), stage.agent("server", meter.port, &[])];
    let sees = |side: &str| {
        let hello = meter.attached(stage.netns(side));
        let addresses = hello.inventory.as_ref().expect("an inventory").addresses.clone();
        let sees = |address| addresses.iter().any(|one| one == address);
        let lacks = hello.lacks.iter().any(|lack| lack.contains("other network namespaces"));
        (sees(stage::CLIENT), sees(stage::SERVER), lacks)
    };
    assert_eq!(sees("client"), (true, true, false));
    assert_eq!(sees("server"), (false, true, true));
}

#[test]
fn an_agent_reconnects_with_its_token_and_ends_on_a_signal() {
    let Some(stage) = Stage::new() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    std::fs::write(&token, "first\n").expect("a file");
    let meter = Meter::start();
    let agent = stage.agent("client", meter.port, &["--token-file", token.to_str().expect("text")]);
    let netns = stage.netns("client");
    let first = meter.attached(netns);
    assert_eq!(meter.authorization(netns).as_deref(), Some("Bearer first"));
    assert_eq!(first.payload(), v1::Payload::Headers, "payloads are masked unless it is told otherwise");
    let health = meter.health(netns, "a canary", |health| {
        health.rings.iter().any(|ring| ring.instrument == "capture" && ring.canaries_seen > 0)
    });
    assert!(health.memory_bytes > 1 << 20 && health.memory_limit_bytes == 256 << 20, "{health:?}");
    let port = meter.port;
    meter.end();
    // The token is replaced while no agent is connecting.
    std::fs::write(&token, "second\n").expect("a file");
    let meter = stage::until("the port", || Meter::at(port));
    let again = meter.attached(netns);
    assert_eq!((again.session, again.netns), (first.session, first.netns));
    assert_eq!(meter.authorization(netns).as_deref(), Some("Bearer second"));
    let backwards = meter.slice(netns, (2, 1), &[], 1 << 20);
    assert!(backwards.end.error.contains("ends before it begins"), "{:?}", backwards.end);
    let long_ago = meter.slice(netns, (1, 2), &[], 1 << 20);
    assert!(long_ago.end.lacks.iter().any(|lack| lack.contains("no packet")), "{:?}", long_ago.end);
    assert_eq!(agent.end("TERM"), Some(0));
}

/// Packet sockets in the network namespace of a side.
fn packet_sockets(stage: &Stage, side: &str) -> usize {
    let output = stage.on(side, "cat").arg("/proc/net/packet").output().expect("cat starts");
    String::from_utf8_lossy(&output.stdout).lines().count().saturating_sub(1)
}

#[test]
fn a_killed_agent_leaves_no_socket_behind() {
    let Some(stage) = Stage::new() else { return };
    let meter = Meter::start();
    let agent = stage.agent("client", meter.port, &[]);
    meter.health(stage.netns("client"), "packets", |health| {
        health.rings.iter().any(|ring| ring.instrument == "capture" && ring.taken > 0)
    });
    assert!(packet_sockets(&stage, "client") > 0);
    agent.end("KILL");
    // The kernel closes them when the process is gone.
    stage::until("the sockets to be gone", || (packet_sockets(&stage, "client") == 0).then_some(()));
}

//! Fifty agents of a meter that is a process: they register, and all return at once when it is killed and
//! restarted. The agents are thin: they speak the protocol, send inventories of the largest size accepted,
//! and record nothing.

use super::client::request;
use super::process::{Meter, PATIENCE, Program, until};
use super::spans::calls;
use prost::Message;
use serde_json::Value;
use spangap_fleet::slice::{CAPTURE, pieces};
use spangap_fleet::v1::fleet_client::FleetClient;
use spangap_fleet::v1::{Container, FromAgent, Health, Hello, Inventory, from_agent, from_meter};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

const AGENTS: u64 = 50;
/// Memory that the agents may add to the meter's own: 64 MiB of inventories, twice while they are being
/// replaced.
const MOST_BYTES: u64 = 192 << 20;

fn hello(number: u64) -> Hello {
    let id = |n: u64| format!("{number:032x}{n:032x}");
    let container = |n: u64| Container {
        id: id(n),
        pod_uid: format!("{number:08x}-0000-4000-8000-{n:012x}"),
        cgroup: id(n),
    };
    Hello {
        protocol: spangap_fleet::PROTOCOL,
        spangap: "test".into(),
        host_name: format!("s{number}-host"),
        machine_id: format!("{number:032x}"),
        session: number + 1,
        inventory: Some(Inventory {
            addresses: vec![format!("10.7.0.{}", number + 1)],
            containers: (0..5_000).map(container).collect(),
        }),
        ..Hello::default()
    }
}

/// Stays attached, or attaches again, until the test is over: what an agent does, without its pauses.
async fn live(at: SocketAddr, number: u64, mut over: watch::Receiver<bool>) {
    while !*over.borrow() {
        let stream = attach(at, number);
        tokio::select! {
            _ended = stream => {}
            _ = over.changed() => return,
        }
        // A pause, so that polling does not keep anybody from starting.
        let _over = tokio::time::timeout(Duration::from_millis(20), over.changed()).await;
    }
}

async fn attach(at: SocketAddr, number: u64) -> Option<()> {
    let mut client = FleetClient::connect(format!("http://{at}")).await.ok()?;
    let (to, messages) = mpsc::channel(4);
    let say = |what| FromAgent { what: Some(what) };
    to.send(say(from_agent::What::Hello(hello(number)))).await.ok()?;
    let mut from = client.attach(ReceiverStream::new(messages)).await.ok()?.into_inner();
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            said = from.message() => match said.ok()??.what {
                Some(from_meter::What::Welcome(_)) => {}
                // A part of the slice, and never the rest.
                Some(from_meter::What::Ask(ask)) => {
                    for piece in pieces(ask.id, CAPTURE, &[7; 100][..]) {
                        to.send(say(from_agent::What::Piece(piece.expect("memory")))).await.ok()?;
                    }
                }
                other => panic!("agent {number} is told {other:?}"),
            },
            _ = second.tick() => to.send(say(from_agent::What::Health(Health::default()))).await.ok()?,
        }
    }
}

/// The meter's list of agents, once all are attached.
fn all_there(meter: &Meter) -> Value {
    until("all agents", || {
        let report: Value = meter.api("/api/v1/agents");
        let agents = report["agents"].as_array()?;
        let there = agents.iter().filter(|agent| agent["connected"] == true).count() as u64;
        (there == AGENTS).then_some(report)
    })
}

fn resident_bytes(meter: &Meter) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", meter.program.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// Number of incomplete files.
fn parts(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".part")).count()
}

/// A case of two of the agents, of which part of a slice has arrived.
fn case_in_the_middle(meter: &Meter, folder: &Path) -> String {
    let body = calls("s0", "s1", 0..60).encode_to_vec();
    let headers = [("Content-Type", "application/x-protobuf")];
    assert_eq!(request(meter.otlp_http, "POST", "/v1/traces", &headers, &body).status, 200);
    meter.pair("s0", "s1", 60);
    let ask = br#"{"pair": {"client": "s0", "server": "s1"}}"#;
    let answer = request(meter.http, "POST", "/api/v1/cases", &[("Content-Type", "application/json")], ask);
    assert_eq!(answer.status, 202, "{}", String::from_utf8_lossy(&answer.body));
    let id = answer.json::<Value>()["id"].as_str().expect("an id").to_owned();
    until("some of a slice", || (parts(&folder.join(&id)) > 0).then_some(()));
    id
}

#[test]
fn fifty_agents_return_at_once_to_a_killed_meter() {
    let cases = tempfile::tempdir().expect("a folder");
    let folder = cases.path().to_str().expect("text");
    let meter = Meter::start(&["--cases", folder]);
    let alone = resident_bytes(&meter);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let (end, over) = watch::channel(false);
    let begun = Instant::now();
    for number in 0..AGENTS {
        runtime.spawn(live(meter.otlp_grpc, number, over.clone()));
    }
    let report = all_there(&meter);
    let (registered, with_all) = (begun.elapsed(), resident_bytes(&meter));
    assert_eq!(report["refused"]["hellos"], 0, "{:#}", report["refused"]);
    assert!(report["agents"].as_array().expect("agents").iter().all(|agent| agent["containers"] != 0));
    let id = case_in_the_middle(&meter, cases.path());
    let [grpc, otlp, http] = [meter.otlp_grpc, meter.otlp_http, meter.http].map(|at| at.to_string());
    meter.program.signal("KILL");
    meter.program.wait();
    let begun = Instant::now();
    let again = ["meter", "--cases", folder, "--otlp-grpc", &grpc, "--otlp-http", &otlp, "--http", &http];
    let meter = Meter::ready(Program::start(&again));
    let case: Value = meter.api(&format!("/api/v1/cases/{id}"));
    assert_eq!(case["state"], "unknown", "{case:#}");
    let words = "The meter exited before there was a verdict.";
    assert!(case["lacks"].as_array().expect("lacks").iter().any(|lack| lack == words), "{case:#}");
    assert_eq!(parts(&cases.path().join(&id)), 0, "what was not whole is gone");
    let report = all_there(&meter);
    let (back, with_all_again) = (begun.elapsed(), resident_bytes(&meter));
    assert_eq!(report["refused"]["hellos"], 0, "{:#}", report["refused"]);
    let most = with_all.max(with_all_again);
    assert!(most < alone + MOST_BYTES, "{alone} bytes alone, {with_all} and {with_all_again} with all");
    println!(
        "{AGENTS} agents: there after {registered:.1?}, back after {back:.1?}; {} MiB alone, {} MiB with them, {} MiB with them back",
        alone >> 20,
        with_all >> 20,
        with_all_again >> 20
    );
    end.send(true).expect("they listen");
    runtime.shutdown_timeout(PATIENCE);
}

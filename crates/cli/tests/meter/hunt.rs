//! `spangap hunt 'A->B' --meter URL`: a real meter, whose agents replay captures of Nagle's algorithm.

use super::grpc::{channel, sender};
use super::process::{Ended, Meter, Program, until};
use super::spans::calls;
use spangap_fleet::slice::{CAPTURE, pieces};
use spangap_fleet::v1::fleet_client::FleetClient;
use spangap_fleet::v1::{FromAgent, Health, Hello, Inventory, SliceEnd, from_agent, from_meter};
use std::io::Write;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;

fn hunt(meter: &Meter, arguments: &[&str]) -> Ended {
    let url = format!("http://{}", meter.http);
    Program::start(&[&["hunt", "--meter", &url], arguments].concat()).wait()
}

/// Answers every request with this capture, or with invalid bytes.
async fn agent(meter: &Meter, host: &str, capture: Option<&str>, token: Option<&str>) -> JoinHandle<()> {
    let (to, messages) = mpsc::channel(4);
    let hello = Hello {
        protocol: spangap_fleet::PROTOCOL,
        spangap: "test".into(),
        host_name: host.into(),
        machine_id: host.into(),
        session: 1,
        inventory: Some(Inventory::default()),
        ..Hello::default()
    };
    let message = |what| FromAgent { what: Some(what) };
    to.send(message(from_agent::What::Hello(hello))).await.expect("there is room");
    let mut request = Request::new(ReceiverStream::new(messages));
    if let Some(token) = token {
        let token = format!("Bearer {token}").parse().expect("text");
        request.metadata_mut().insert("authorization", token);
    }
    let mut fleet = FleetClient::new(channel(meter.otlp_grpc).await);
    let mut stream = fleet.attach(request).await.expect("welcome").into_inner();
    let welcome = stream.message().await.expect("it goes on").expect("a welcome");
    assert!(matches!(welcome.what, Some(from_meter::What::Welcome(_))), "{welcome:?}");
    let path = capture.map(|name| format!("{}/../../fixtures/captures/{name}", env!("CARGO_MANIFEST_DIR")));
    let bytes = path.map_or_else(|| b"no capture".to_vec(), |path| std::fs::read(path).expect("a fixture"));
    tokio::spawn(async move {
        let mut second = tokio::time::interval(Duration::from_secs(1));
        loop {
            let said = tokio::select! {
                said = stream.message() => said,
                _ = second.tick() => {
                    let well = to.send(message(from_agent::What::Health(Health::default()))).await;
                    if well.is_err() { return } else { continue }
                }
            };
            let Ok(Some(said)) = said else { return };
            let Some(from_meter::What::Ask(ask)) = said.what else { continue };
            let pieces = pieces(ask.id, CAPTURE, &bytes[..]).map(|piece| piece.expect("memory"));
            let end = SliceEnd { ask: ask.id, ..SliceEnd::default() };
            let all = pieces.map(from_agent::What::Piece).chain([from_agent::What::End(end)]);
            for what in all {
                if to.send(message(what)).await.is_err() {
                    return;
                }
            }
        }
    })
}

async fn fed(meter: &Meter) {
    sender(meter).await.export(calls("web", "cart", 0..400)).await.expect("it is accepted");
    meter.pair("web", "cart", 400);
}

/// Host names are those of the services in `spans`.
const HOSTS: [&str; 2] = ["web-host", "cart-host"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_pair_gets_a_verdict_like_a_folder() {
    let meter = Meter::start(&[]);
    fed(&meter).await;
    let nobody = tokio::task::block_in_place(|| hunt(&meter, &["web->cart"]));
    assert_eq!(nobody.code, Some(1), "{nobody:?}");
    assert!(nobody.err.concat().contains("no agent is connected"), "{nobody:?}");

    for (host, end) in HOSTS.into_iter().zip(["client", "server"]) {
        agent(&meter, host, Some(&format!("nagle-client.{end}.pcapng")), None).await;
    }
    let (told, json, other) = tokio::task::block_in_place(|| {
        let told = hunt(&meter, &["web->cart"]);
        let json = hunt(&meter, &["web -> cart", "--json"]);
        (told, json, hunt(&meter, &["wbe->cart"]))
    });
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(told.out[0].contains("One culprit: nagle-delayed-ack (client)"), "{told:?}");
    // Progress is printed while it waits, and not next to the verdict.
    for moment in ["agents: ", "asked for by a person", "slice of the client complete", "verdict: "] {
        assert!(told.err.iter().any(|line| line.contains(moment)), "{moment}: {told:?}");
        assert!(!told.out.iter().any(|line| line.contains(moment)), "{moment}: {told:?}");
    }
    assert_eq!(json.code, Some(0), "{json:?}");
    let document: serde_json::Value = serde_json::from_str(&json.out.join("\n")).expect("one document");
    assert_eq!(document["culprits"][0]["cause"], "nagle-delayed-ack");
    assert_eq!(document["verdict"], "one");

    assert_eq!(other.code, Some(1), "{other:?}");
    assert!(other.err.concat().contains("the nearest that were: web -> cart"), "{other:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_meter_names_the_token_that_it_requires() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let roles =
        ["ingest ingest-1234567890abcdef", "view view-1234567890abcdef", "capture capture-1234567890abcdef"];
    writeln!(file, "{}", roles.join("\n")).expect("written");
    let meter = Meter::start(&["--token-file", file.path().to_str().expect("plain")]);
    let with = |token: &str| {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        writeln!(file, "{token}").expect("written");
        tokio::task::block_in_place(|| {
            hunt(&meter, &["web->cart", "--token-file", file.path().to_str().expect("plain")])
        })
    };
    let without = tokio::task::block_in_place(|| hunt(&meter, &["web->cart"]));
    assert!(without.code == Some(1) && without.err.concat().contains("--token-file names"), "{without:?}");
    let wrong = with("wrong-1234567890abcdef");
    assert!(wrong.code == Some(1) && wrong.err.concat().contains("was refused"), "{wrong:?}");
    assert!(!wrong.err.concat().contains("wrong-1234567890abcdef"), "tokens are never told: {wrong:?}");
    agent(&meter, HOSTS[0], None, Some("capture-1234567890abcdef")).await;
    let viewer = with("view-1234567890abcdef");
    assert!(viewer.code == Some(1) && viewer.err.concat().contains("was refused"), "{viewer:?}");
    let may = with("capture-1234567890abcdef");
    assert!(may.code == Some(1) && may.err.concat().contains("no pair has been seen yet"), "{may:?}");
}

/// The judge is another process: it ends, and the meter goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_judge_out_of_memory_ends_alone_and_says_so() {
    let meter = Meter::start(&["--case-memory", "24MiB"]);
    fed(&meter).await;
    for (host, end) in HOSTS.into_iter().zip(["client", "server"]) {
        agent(&meter, host, Some(&format!("nagle-client.{end}.pcapng")), None).await;
    }
    let ended = tokio::task::block_in_place(|| hunt(&meter, &["web->cart"]));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.concat().contains("has no verdict: No verdict: the analysis"), "{ended:?}");
    // The meter still counts and answers.
    sender(&meter).await.export(calls("web", "cart", 400..500)).await.expect("it is accepted");
    meter.pair("web", "cart", 500);
    let agents: serde_json::Value = meter.api("/api/v1/agents");
    assert_eq!(agents["refused"]["verdicts"], 1, "{agents}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_captures_yield_no_verdict() {
    let meter = Meter::start(&[]);
    fed(&meter).await;
    for host in HOSTS {
        agent(&meter, host, None, None).await;
    }
    let ended = tokio::task::block_in_place(|| hunt(&meter, &["web->cart"]));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.concat().contains("has no verdict"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn experiments_need_a_change_token_and_a_permitted_agent() {
    const CHANGE: &str = "change-1234567890abcdef";
    const CAPTURE: &str = "capture-1234567890abcdef";
    const INGEST: &str = "ingest-1234567890abcdef";
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    writeln!(file, "ingest {INGEST}\ncapture {CAPTURE}\nchange {CHANGE}").expect("written");
    let tokens = file.path().to_str().expect("plain");
    let meter = Meter::start(&["--token-file", tokens, "--case-slices-per-minute", "60"]);
    for (host, end) in HOSTS.into_iter().zip(["client", "server"]) {
        agent(&meter, host, Some(&format!("nagle-client.{end}.pcapng")), Some(CAPTURE)).await;
    }
    // The meter keeps whole spans for half a minute, and each case takes seconds, so each has calls of its
    // own.
    let mut made = 0..400;
    let mut sender = sender(&meter).await;
    let mut export = async || {
        let mut request = Request::new(calls("web", "cart", made.clone()));
        request.metadata_mut().insert("authorization", format!("Bearer {INGEST}").parse().expect("text"));
        sender.export(request).await.expect("it is accepted");
        made = made.end..made.end + 400;
    };
    let with = |token: &str, more: &[&str]| {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        writeln!(file, "{token}").expect("written");
        let flags = ["web->cart", "--token-file", file.path().to_str().expect("plain")];
        tokio::task::block_in_place(|| {
            until("the pair", || {
                let ended = hunt(&meter, &[&flags[..], more].concat());
                (!ended.err.concat().contains("no pair has been seen yet")).then_some(ended)
            })
        })
    };
    export().await;
    // Nobody is at a terminal, so no experiment is tried or mentioned.
    let plain = with(CAPTURE, &[]);
    assert!(plain.code == Some(0) && plain.out[0].contains("nagle-delayed-ack (client)"), "{plain:?}");
    assert!(!plain.err.concat().contains("experiment"), "{plain:?}");
    // The verdict is printed nevertheless.
    for more in [&["--experiment", "auto"][..], &["--experiment", "ask", "--json"]] {
        export().await;
        let denied = with(CAPTURE, more);
        assert_eq!(denied.code, Some(1), "{denied:?}");
        assert!(denied.out.concat().contains("nagle-delayed-ack"), "{denied:?}");
        assert!(denied.err.concat().contains("a token of the role `change`"), "{denied:?}");
    }
    // These agents change nothing, whoever asks.
    export().await;
    let none = with(CHANGE, &["--experiment", "auto"]);
    assert!(none.code == Some(0) && none.err.concat().contains("no experiment: "), "{none:?}");
}

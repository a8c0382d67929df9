//! Malicious or broken agents, browsers and clients; docs/security.md lists these tests.

use super::agent::{Agent, hello, pieces};
use super::meter::{HOSTS, Served};
use serde_json::Value as Json;
use spangap_fleet::v1::{SlicePiece, from_agent};
use spangap_meter::serve::access::Access;
use tonic::Code;

/// Opens a case whose client agent answers as given; returns the case when it is closed. The meter still
/// accepts agents afterwards.
async fn answered(answer: impl AsyncFnOnce(Agent, u64) -> Option<Agent>) -> Json {
    let meter = Served::start().await;
    let mut agent = Agent::attach(&meter, hello(HOSTS[0], 1)).await.expect("welcome");
    meter.calls(40);
    let id = meter.open().await;
    let ask = agent.asked().await;
    // The spans of both ends name this host.
    assert!(ask.apart, "{ask:?}");
    let agent = answer(agent, ask.id).await;
    let case = meter.concluded(&id).await;
    drop(agent);
    assert_eq!(case["state"], "unknown", "{case:#}");
    assert_eq!(meter.get("/api/v1/agents").await["refused"]["slices"], 1);
    Agent::attach(&meter, hello(HOSTS[0], 2)).await.expect("welcome");
    let parts = meter.cases.case(&id).expect("it is kept").files;
    assert!(parts.iter().all(|file| !file.name.ends_with("pcapng")), "{parts:?}");
    case
}

fn lacks(case: &Json) -> String {
    case["lacks"].to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bomb_in_a_slice_is_refused_before_it_is_unpacked() {
    let case = answered(async |agent, ask| {
        // 512 KiB that decompress to 8 GiB: concatenated frames of zeros in one piece.
        let frame = zstd::bulk::compress(&vec![0; 64 << 20], 19).expect("memory compresses");
        let bomb = frame.repeat((512 << 10) / frame.len());
        agent.send([SlicePiece { ask, file: "capture.pcapng".into(), zstd: bomb.into() }]).await;
        Some(agent)
    })
    .await;
    assert!(lacks(&case).contains("cannot be decompressed to"), "{case:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slice_without_end_is_cut_at_what_was_asked_for() {
    let case = answered(async |mut agent, ask| {
        let noise: Vec<u8> = (0..1u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let piece = zstd::bulk::compress(&noise, 1).expect("memory compresses");
        let piece = SlicePiece { ask, file: "capture.pcapng".into(), zstd: piece.into() };
        let said = agent.send_until_told(piece).await;
        assert!(format!("{said:?}").contains("Cancel"), "{said:?}");
        Some(agent)
    })
    .await;
    assert!(lacks(&case).contains("more than the "), "{case:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_a_name_of_the_agents_own_is_refused() {
    let case = answered(async |agent, ask| {
        let piece = SlicePiece {
            file: "../../../../tmp/owned".into(),
            ..pieces(ask, "nagle-client.client.pcapng").remove(0)
        };
        agent.send([piece]).await;
        Some(agent)
    })
    .await;
    assert!(lacks(&case).contains("a file named"), "{case:#}");
    assert!(!std::path::Path::new("/tmp/owned").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_hangs_up_in_the_middle_leaves_no_half_file() {
    let case = answered(async |agent, ask| {
        agent.send(pieces(ask, "nagle-client.client.pcapng")).await;
        None
    })
    .await;
    assert!(lacks(&case).contains("disconnected"), "{case:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_never_sends_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let short = std::time::Duration::from_millis(300);
    let meter = Served::with(folder.path(), Access::default(), |settings| settings.slice_time = short).await;
    let mut agent = Agent::attach(&meter, hello(HOSTS[0], 1)).await.expect("welcome");
    meter.calls(40);
    let id = meter.open().await;
    agent.asked().await;
    let case = meter.concluded(&id).await;
    assert!(lacks(&case).contains("not complete within 300ms"), "{case:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_that_are_none_come_to_no_verdict_and_the_meter_lives() {
    let meter = Served::start().await;
    let mut agent = Agent::attach(&meter, hello(HOSTS[0], 1)).await.expect("welcome");
    meter.calls(40);
    let id = meter.open().await;
    let ask = agent.asked().await;
    // A pcapng whose first block claims four gigabytes.
    let lie =
        b"\x0a\x0d\x0d\x0a\xf0\xff\xff\xff\x4d\x3c\x2b\x1a\x01\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff";
    let zstd = zstd::bulk::compress(lie, 1).unwrap();
    agent.send([SlicePiece { ask: ask.id, file: "capture.pcapng".into(), zstd: zstd.into() }]).await;
    agent.end(ask.id).await;
    let case = meter.concluded(&id).await;
    assert_eq!(case["state"], "unknown");
    assert!(lacks(&case).contains("No verdict"), "{case:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stolen_view_token_asks_for_no_slice_and_is_no_agent() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = "view view-view-view-view\ncapture capture-capture-capture\ningest ingest-ingest-ingest\n";
    let access = Access::default().with_tokens(tokens).unwrap();
    let meter = Served::with(folder.path(), access, |_| ()).await;
    meter.calls(40);
    let bearer = |token: &str| format!("Bearer {token}");
    let (view, capture, ingest) =
        (bearer("view-view-view-view"), bearer("capture-capture-capture"), bearer("ingest-ingest-ingest"));
    for (token, expected) in [(None, 401), (Some(&ingest), 403), (Some(&view), 403), (Some(&capture), 202)] {
        let headers: Vec<(&str, &str)> =
            token.iter().map(|token| ("Authorization", token.as_str())).collect();
        let (status, answer) = meter.post("tank", &headers).await;
        // A client that may not even read learns that first.
        assert!(
            status == expected || (token == Some(&ingest) && status == 401),
            "{token:?}: {status} {answer}"
        );
        assert!(!answer.to_string().contains("view-view"), "tokens are in no answer");
    }
    let (status, _) = meter.request("GET", "/api/v1/cases", &[("Authorization", &view)], "").await;
    assert_eq!(status, 200, "looking is what it is for");
    for (token, expected) in [
        (None, Code::Unauthenticated),
        (Some("view-view-view-view"), Code::PermissionDenied),
        (Some("view-view-view-vieW"), Code::Unauthenticated),
    ] {
        let refused = Agent::attach_with(&meter, hello(HOSTS[0], 1), token).await.err().expect("no welcome");
        assert_eq!(refused.code(), expected, "{token:?}: {refused}");
    }
    Agent::attach_with(&meter, hello(HOSTS[0], 1), Some("capture-capture-capture")).await.expect("welcome");
    let (_, body) = meter.request("GET", "/api/v1/agents", &[("Authorization", &view)], "").await;
    let agents: Json = serde_json::from_slice(&body).unwrap();
    assert_eq!(agents["refused"]["requests"], 6, "{agents:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_origin_and_another_name_are_refused() {
    let meter = Served::start().await;
    meter.calls(40);
    let port = meter.at.http.port();
    for (host, origin, expected) in [
        (format!("127.0.0.1:{port}"), None, 200),
        (format!("localhost:{port}"), Some(format!("http://localhost:{port}")), 200),
        (format!("rebound.example:{port}"), None, 421),
        (format!("127.0.0.1:{port}"), Some("http://rebound.example".to_owned()), 403),
        (format!("127.0.0.1:{port}"), Some(format!("http://127.0.0.1:{}", port ^ 1)), 403),
    ] {
        let mut headers = vec![("Host", host.as_str())];
        headers.extend(origin.iter().map(|origin| ("Origin", origin.as_str())));
        for path in ["/api/v1/pairs", "/api/v1/agents"] {
            let (status, _) = meter.request("GET", path, &headers, "").await;
            assert_eq!(status, expected, "{path}: {headers:?}");
        }
        if expected != 200 {
            let (status, _) = meter.post("tank", &headers).await;
            assert_eq!(status, expected, "{headers:?}");
        }
    }
    // Health checks and scrapes of metrics use any host name.
    for path in ["/healthz", "/metrics"] {
        let (status, _) = meter.request("GET", path, &[("Host", "meter.monitoring.svc")], "").await;
        assert_eq!(status, 200, "{path}");
    }
    // A form of a foreign page has this type, and a browser sends it without a preflight request.
    let body = r#"{"pair": {"client": "tank", "server": "target"}}"#;
    let (status, _) = meter.request("POST", "/api/v1/cases", &[("Content-Type", "text/plain")], body).await;
    assert_eq!(status, 415);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replayed_registration_is_refused_and_the_agent_stays() {
    let meter = Served::start().await;
    let agent = Agent::attach(&meter, hello(HOSTS[0], 7)).await.expect("welcome");
    agent.say(from_agent::What::Health(Default::default())).await;
    let refused = Agent::attach(&meter, hello(HOSTS[0], 7)).await.err().expect("no welcome");
    assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
    // A newer session of the host replaces it; the older one is told so and cannot return.
    let _newer = Agent::attach(&meter, hello(HOSTS[0], 8)).await.expect("welcome");
    let mut agent = agent;
    assert_eq!(agent.hear().await.expect_err("it ends").code(), Code::Aborted);
    let refused = Agent::attach(&meter, hello(HOSTS[0], 7)).await.err().expect("no welcome");
    assert_eq!(refused.code(), Code::Aborted, "{refused}");
    let agents = meter.get("/api/v1/agents").await;
    assert_eq!(agents["agents"].as_array().unwrap().len(), 1);
    assert_eq!(agents["agents"][0]["replacements"], 1);
    assert_eq!(agents["refused"]["hellos"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_does_not_introduce_itself_is_sent_away() {
    let meter = Served::start().await;
    let mut agent = Agent::connect(&meter, None).await.expect("it listens");
    agent.say(from_agent::What::Health(Default::default())).await;
    assert_eq!(agent.hear().await.expect_err("it ends").code(), Code::InvalidArgument);
    // Unrequested pieces are counted and discarded.
    let agent = Agent::attach(&meter, hello(HOSTS[0], 1)).await.expect("welcome");
    agent.send(pieces(99, "nagle-client.client.pcapng")).await;
    meter.until("/api/v1/agents", |agents| agents["refused"]["unasked"].as_u64() > Some(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_ends_no_case_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny");
    std::fs::create_dir(&path).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=16k", "spangap-test"])
        .arg(&path)
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        println!("not run: a small file system cannot be mounted here, which takes root");
        return;
    }
    let unmount = Unmount(path.clone());
    let meter = Served::with(&path, Access::default(), |_| ()).await;
    let mut client = Agent::attach(&meter, hello(HOSTS[0], 1)).await.expect("welcome");
    let mut server = Agent::attach(&meter, hello(HOSTS[1], 2)).await.expect("welcome");
    meter.calls(400);
    let id = meter.open().await;
    tokio::join!(client.replay("nagle-client.client.pcapng"), server.replay("nagle-client.server.pcapng"));
    let case = meter.concluded(&id).await;
    assert!(lacks(&case).contains("could not be written"), "{case:#}");
    assert_ne!(meter.get("/api/v1/agents").await["refused"]["not_written"], 0);
    drop(meter);
    drop(unmount);
}

struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        // Lazily: the meter's tasks may still hold a file.
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

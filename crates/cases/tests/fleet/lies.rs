//! Invalid facts in slices, and the counts of refusals in `/metrics`.

use super::agent::{Agent, file, hello, pieces};
use super::meter::{HOSTS, Served};
use spangap_meter::serve::access::Access;

const TOKENS: &str = "view view-view-view-view\ncapture capture-capture-capture\n";

/// A count from `/metrics`.
async fn refusals(meter: &Served, headers: &[(&str, &str)], reason: &str) -> u64 {
    let (status, body) = meter.request("GET", "/metrics", headers, "").await;
    assert_eq!(status, 200);
    let text = String::from_utf8(body).expect("text");
    let begin = format!("spangap_refusals_total{{reason=\"{reason}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&begin));
    line.unwrap_or_else(|| panic!("{begin} is in {text}")).parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_is_counted_by_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let access = Access::default().with_tokens(TOKENS).unwrap();
    let meter = Served::with(folder.path(), access, |_| ()).await;
    meter.calls(40);
    let (view, capture) = ("Bearer view-view-view-view", "Bearer capture-capture-capture");
    let looks = [("Authorization", view)];
    let known = ["token", "role", "host", "origin", "hello", "slice", "slice_budget", "verdict"];
    for reason in known {
        assert_eq!(refusals(&meter, &looks, reason).await, 0, "{reason}");
    }
    meter.post("tank", &[]).await;
    meter.post("tank", &[("Authorization", "Bearer somebody-elses-token")]).await;
    assert_eq!(refusals(&meter, &looks, "token").await, 2);
    meter.post("tank", &looks).await;
    assert_eq!(refusals(&meter, &looks, "role").await, 1);
    let asks = |header| [("Authorization", capture), header];
    meter.post("tank", &asks(("Host", "rebound.example"))).await;
    assert_eq!(refusals(&meter, &looks, "host").await, 1);
    meter.post("tank", &asks(("Origin", "http://rebound.example"))).await;
    assert_eq!(refusals(&meter, &looks, "origin").await, 1);
    // A replayed session, and another agent with the same machine id that was replaced and returns.
    let token = Some("capture-capture-capture");
    let _first = Agent::attach_with(&meter, hello(HOSTS[0], 1), token).await.expect("welcome");
    Agent::attach_with(&meter, hello(HOSTS[0], 1), token).await.err().expect("no welcome");
    let mut second = Agent::attach_with(&meter, hello(HOSTS[0], 2), token).await.expect("welcome");
    Agent::attach_with(&meter, hello(HOSTS[0], 1), token).await.err().expect("no welcome");
    assert_eq!(refusals(&meter, &looks, "hello").await, 2);
    // A slice that exceeds the request.
    let (status, opened) = meter.post("tank", &[("Authorization", capture)]).await;
    assert_eq!(status, 202, "{opened}");
    let ask = second.asked().await;
    let noise: Vec<u8> = (0..1u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    second.send_until_told(file(ask.id, "capture.pcapng", &noise)).await;
    assert_eq!(refusals(&meter, &looks, "slice").await, 1);
}

/// Facts that no instrument writes.
fn lies() -> Vec<(&'static str, Vec<u8>)> {
    let deep = [vec![b'['; 200_000], vec![b']'; 200_000]].concat();
    let long = format!("{{\"findings\": [{}{{}}]}}", "{},".repeat(100_000));
    vec![
        ("nothing", Vec::new()),
        ("no JSON", b"\0\xff\xfe".to_vec()),
        ("a list", b"[1, null, \"x\"]".to_vec()),
        (
            "numbers beyond all bounds",
            br#"{"connections": [{"pid": 1e400, "rtt_us": -1e308}], "unix_ns": 9e999}"#.to_vec(),
        ),
        (
            "texts for numbers",
            br#"{"connections": {"a": {}}, "findings": "many", "boot_id": 7, "cpus": -1}"#.to_vec(),
        ),
        ("far too deep", deep),
        ("far too many", long.into_bytes()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_that_are_none_leave_packets_what_they_are() {
    for (what, lie) in lies() {
        let meter = Served::start().await;
        let mut client = Agent::attach(&meter, hello(HOSTS[0], 1)).await.expect("welcome");
        let mut server = Agent::attach(&meter, hello(HOSTS[1], 2)).await.expect("welcome");
        meter.calls(40);
        let id = meter.open().await;
        let lying = async {
            let ask = client.asked().await;
            client.send(pieces(ask.id, "nagle-client.client.pcapng")).await;
            for name in ["sockets.json", "check.json", "machine.json"] {
                client.send([file(ask.id, name, &lie)]).await;
            }
            client.end(ask.id).await;
        };
        tokio::join!(lying, server.replay("nagle-client.server.pcapng"));
        let case = meter.concluded(&id).await;
        assert_eq!(case["verdict"]["culprit"], "nagle-delayed-ack", "{what}: {case:#}");
        meter.get("/api/v1/agents").await;
    }
}

//! The path of a slow call from its spans to the verdict.

use super::agent::{Agent, hello};
use super::meter::{HOSTS, Served};

#[tokio::test(flavor = "multi_thread")]
async fn a_case_gets_packets_of_both_hosts_and_the_verdict_of_hunt() {
    let meter = Served::start().await;
    let mut client = Agent::attach(&meter, hello(HOSTS[0], 1)).await.expect("welcome");
    let mut server = Agent::attach(&meter, hello(HOSTS[1], 2)).await.expect("welcome");
    meter.calls(40);
    let id = meter.open().await;
    assert_eq!(meter.open().await, id, "one open case for a pair");
    let (asked_client, asked_server) = tokio::join!(
        client.replay("nagle-client.client.pcapng"),
        server.replay("nagle-client.server.pcapng")
    );
    for ask in [&asked_client, &asked_server] {
        assert!(ask.to_unix_ns - ask.from_unix_ns > 3_000_000_000, "margins: {ask:?}");
        assert!(ask.reason.contains("tank -> target"), "{ask:?}");
        // Only the pair's packets: an agent's own stream, and spans in transit, do not belong to its calls.
        let endpoints: Vec<_> = ask.endpoints.iter().map(|one| (one.address.as_str(), one.port)).collect();
        assert_eq!(endpoints, [(HOSTS[1], 50051)]);
    }
    let case = meter.concluded(&id).await;
    assert_eq!(case["state"], "explained", "{case:#}");
    assert_eq!(case["verdict"]["culprit"], "nagle-delayed-ack");
    assert_eq!(case["verdict"]["side"], "client");
    assert_eq!(case["hunt"]["verdict"], "one");
    assert_eq!(case["hosts"]["server"]["rule"], "address seen by the peer 10.88.0.2");
    assert_eq!(case["hosts"]["client"]["rule"], "address seen by the peer 10.88.0.1");
    let names: Vec<&str> =
        case["files"].as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap()).collect();
    let expected = [
        "case.json",
        "client.pcapng",
        "client.spans.json",
        "hunt.json",
        "server.pcapng",
        "server.spans.json",
    ];
    assert_eq!(names, expected);
    let moments: Vec<u64> = case["time_line"]
        .as_array()
        .unwrap()
        .iter()
        .map(|moment| moment["unix_ms"].as_u64().unwrap())
        .collect();
    assert!(moments.is_sorted() && moments.len() >= 7, "{case:#}");

    // The same files by the same judge, as `spangap hunt` reads them.
    let (status, capture) =
        meter.request("GET", &format!("/api/v1/cases/{id}/files/client.pcapng"), &[], "").await;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/captures/nagle-client.client.pcapng");
    assert!(status == 200 && capture == std::fs::read(path).unwrap(), "the file as it was sent");
    let listed = meter.get("/api/v1/cases?state=explained&pair=tank-%3Etarget").await;
    assert_eq!(listed["cases"][0]["id"], id.as_str());
    assert_eq!(meter.get("/api/v1/cases?state=fixed").await["cases"].as_array().unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_case_without_hosts_states_what_is_missing() {
    let meter = Served::start().await;
    meter.calls(40);
    let case = meter.concluded(&meter.open().await).await;
    assert_eq!(case["state"], "unknown");
    assert_eq!(case["hosts"]["client"]["why_not"], "no agent is connected");
    let lacks = case["lacks"].to_string();
    assert!(lacks.contains("No packets of either end: no agent is connected"), "{lacks}");
    // The calls in question are all that the meter has seen.
    assert!(case.get("usual").is_none() && case.get("before").is_none(), "{case:#}");
    let why = "How long these calls usually take is unknown: there were too few calls before these.";
    assert!(lacks.contains(why), "{lacks}");
    let agents = meter.get("/api/v1/agents").await;
    assert_eq!(
        (agents["unmatched"]["client"].as_u64(), agents["unmatched"]["server"].as_u64()),
        (Some(1), Some(1))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_of_hosts_in_a_minute_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let meter =
        Served::with(folder.path(), Default::default(), |settings| settings.slices_per_minute = 2).await;
    meter.calls(40);
    let id = meter.open().await;
    meter.concluded(&id).await;
    let (status, answer) = meter.post("tank", &[]).await;
    assert_eq!(status, 429, "{answer}");
    assert!(answer["error"].as_str().unwrap().contains("--case-slices-per-minute"));
    assert_eq!(meter.get("/api/v1/agents").await["refused"]["over_budget"], 1);
    let (status, answer) = meter.post("nobody", &[]).await;
    assert_eq!(status, 404, "{answer}");
}

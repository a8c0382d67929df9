//! Unusual hosts: without an agent, with a late one, with a wrong clock, with the machine id of another.

use super::agent::{Agent, hello};
use super::meter::{HOSTS, Served};
use spangap_fleet::v1::{Hello, Inventory, SliceEnd, from_agent};
use std::time::UNIX_EPOCH;

const CAPTURES: [&str; 2] = ["nagle-client.client.pcapng", "nagle-client.server.pcapng"];

#[tokio::test(flavor = "multi_thread")]
async fn a_case_with_one_agent_states_its_evidence_and_what_is_missing() {
    for side in [0, 1] {
        let meter = Served::start().await;
        // The spans of both name one host, which is neither's.
        let own = Hello { host_name: "its-own".into(), ..hello(HOSTS[side], 1) };
        let mut agent = Agent::attach(&meter, own).await.expect("welcome");
        meter.calls(40);
        let id = meter.open().await;
        agent.replay(CAPTURES[side]).await;
        let case = meter.concluded(&id).await;
        let (there, missing) = [("client", "server"), ("server", "client")][side];
        let lacks = case["lacks"].to_string();
        assert!(lacks.contains(&format!("No packets of the {missing}: no agent has")), "{case:#}");
        assert!(case["hosts"][there]["agent"].is_string(), "{case:#}");
        assert!(case["hosts"][missing].get("agent").is_none_or(|agent| agent.is_null()), "{case:#}");
        // About the host that sent nothing, only the other end's packets support claims.
        assert!(case["verdict"].is_object(), "{case:#}");
        if case["state"] == "explained" {
            assert_eq!(case["verdict"]["culprit"], "nagle-delayed-ack", "{case:#}");
            assert_eq!(case["verdict"]["side"], "client", "{case:#}");
        }
        let words = &case["verdict"]["words"];
        println!("with an agent on the {there}'s host alone: {} {words}", case["state"]);
        let agents = meter.get("/api/v1/agents").await;
        assert_eq!(agents["unmatched"][missing], 1, "{agents:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_started_after_the_calls_states_what_it_lacks() {
    let meter = Served::start().await;
    let mut server = Agent::attach(&meter, hello(HOSTS[1], 2)).await.expect("welcome");
    meter.calls(40);
    let mut client = Agent::attach(&meter, hello(HOSTS[0], 1)).await.expect("welcome");
    let id = meter.open().await;
    let late = async {
        let ask = client.asked().await;
        let late = "packets: the first 3000 ms of this time are no longer in the ring";
        let lacks =
            vec![late.to_owned(), "no packet of the connections asked for passed in this time".into()];
        client.say(from_agent::What::End(SliceEnd { ask: ask.id, lacks, ..SliceEnd::default() })).await;
    };
    tokio::join!(late, server.replay(CAPTURES[1]));
    let case = meter.concluded(&id).await;
    let lacks = case["lacks"].to_string();
    assert!(lacks.contains("client: packets: the first 3000 ms"), "{case:#}");
    assert!(case["verdict"].is_object(), "the other host's packets are there: {case:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_a_wrong_clock_is_asked_by_its_own_time() {
    const HOUR: i64 = 3600;
    for ahead_s in [[-HOUR, 0], [HOUR, 0], [0, HOUR], [-40, 40]] {
        let meter = Served::start().await;
        let mut client = Agent::attach(&meter, hello(HOSTS[0], 1)).await.expect("welcome");
        let mut server = Agent::attach(&meter, hello(HOSTS[1], 2)).await.expect("welcome");
        meter.calls_by_clocks(["tank", "target"], HOSTS, 40, ahead_s);
        let now_s = UNIX_EPOCH.elapsed().expect("after 1970").as_secs() as i64;
        let id = meter.open().await;
        let (there, here) = tokio::join!(client.replay(CAPTURES[0]), server.replay(CAPTURES[1]));
        for (ask, ahead_s) in [(there, ahead_s[0]), (here, ahead_s[1])] {
            let (from, to) = (ask.from_unix_ns / 1_000_000_000, ask.to_unix_ns / 1_000_000_000);
            let calls = now_s + ahead_s;
            assert!(from < calls - 2 && to >= calls - 1 && to - from <= 15, "{from} to {to}: {calls}");
        }
        let case = meter.concluded(&id).await;
        assert_eq!(case["state"], "explained", "{ahead_s:?}: {case:#}");
        assert!(case["slow_calls"].as_u64().is_some_and(|calls| calls > 0), "{case:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_whose_machine_id_was_copied_are_both_asked() {
    let meter = Served::start().await;
    let cloned = |side: usize| Hello {
        netns: 4_026_531_840,
        boot_id: format!("{side}{side}{side}{side}{side}{side}{side}{side}-0000-4000-8000-000000000000"),
        ..hello(HOSTS[side], side as u64 + 1)
    };
    let mut client = Agent::attach(&meter, cloned(0)).await.expect("welcome");
    let mut server = Agent::attach(&meter, cloned(1)).await.expect("welcome");
    meter.calls(40);
    let id = meter.open().await;
    tokio::join!(client.replay(CAPTURES[0]), server.replay(CAPTURES[1]));
    let case = meter.concluded(&id).await;
    assert_eq!(case["state"], "explained", "{case:#}");
    assert_ne!(case["hosts"]["client"]["agent"], case["hosts"]["server"]["agent"], "{case:#}");
    let agents = meter.get("/api/v1/agents").await;
    let mut replaced =
        agents["agents"].as_array().unwrap().iter().map(|agent| agent["replacements"].as_u64());
    assert!(replaced.all(|times| times.unwrap_or(0) == 0), "{agents:#}");
}

/// One of three replicas is slow, and the client's host is one of two: packets are requested from the two
/// hosts of the slow calls.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_hosts_those_with_most_slow_calls_are_asked() {
    let meter = Served::start().await;
    let address = |number: usize| format!("10.88.7.{}", number + 1);
    let host = |number: usize| Hello {
        host_name: format!("host-{number}"),
        netns: number as u64 + 1,
        ..hello(&address(number), number as u64 + 1)
    };
    let mut agents = Vec::new();
    for number in 0..5 {
        agents.push(Agent::attach(&meter, host(number)).await.expect("welcome"));
    }
    // Clients 0 and 1, servers 2, 3 and 4. The slowest call of all is between 0 and 2; most slow calls are
    // between 1 and 4.
    for (client, server, calls, gap_ms) in [(0, 2, 1, 90), (0, 2, 60, 1), (1, 3, 60, 1), (1, 4, 30, 60)] {
        let hosts = [address(client), address(server)];
        meter.calls_of(["tank", "target"], [&hosts[0], &hosts[1]], calls, gap_ms);
    }
    let id = meter.open().await;
    let mut agents = agents.into_iter();
    let (mut client, mut server) = (agents.nth(1).expect("five"), agents.nth(2).expect("five"));
    let (there, here) = tokio::join!(
        client.replay("nagle-client.client.pcapng"),
        server.replay("nagle-client.server.pcapng")
    );
    for ask in [there, here] {
        let ends: Vec<_> = ask.endpoints.iter().map(|end| end.address.clone()).collect();
        assert_eq!(ends, [address(4)], "{ask:?}");
    }
    let case = meter.concluded(&id).await;
    let asked = case["hosts"].to_string();
    assert!(asked.contains(&address(1)) && asked.contains(&address(4)), "{case:#}");
    assert!(case["time_line"].to_string().contains("between 2 pairs of hosts"), "{case:#}");
}

/// SDKs by default state neither their hosts nor, in some cases, any address: only packets then reveal the
/// hosts.
#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_no_span_names_are_found_by_their_packets() {
    // Two hosts of the recordings, and a third.
    const OWN: [&str; 3] = ["10.77.0.1", "10.77.0.2", "10.77.0.3"];
    for named in [[false, false], [true, false], [false, true]] {
        let meter = Served::start().await;
        let mut agents = Vec::new();
        for (number, address) in OWN.iter().enumerate() {
            let inventory = Some(Inventory { addresses: vec![(*address).into()], containers: Vec::new() });
            let hello =
                Hello { host_name: format!("host-{number}"), inventory, ..hello(address, number as u64 + 1) };
            agents.push(Agent::attach(&meter, hello).await.expect("welcome"));
        }
        let name = |side: usize| if named[side] { format!("host-{side}") } else { String::new() };
        meter.calls_of_capture(CAPTURES[0], [&name(0), &name(1)], None);
        let id = meter.open().await;
        // Each agent sends what passed there, as often as requested; nothing passed at the third.
        for (agent, capture) in agents.into_iter().zip([Some(CAPTURES[0]), Some(CAPTURES[1]), None]) {
            tokio::spawn(agent.answer_all(capture));
        }
        let case = meter.concluded(&id).await;
        for (side, at) in ["client", "server"].into_iter().zip(0..) {
            let host = &case["hosts"][side];
            let agent = host["agent"].as_str().unwrap_or_default();
            let (rule, by) = (
                host["rule"].as_str().unwrap_or_default(),
                if named[at] { "host.name" } else { "its packets have" },
            );
            assert!(rule.starts_with(by), "{side}: {case:#}");
            let netns: u64 = OWN[at].bytes().map(u64::from).sum();
            assert!(agent.ends_with(&format!("-{netns}")), "{side}: {case:#}");
        }
        assert_eq!(case["verdict"]["culprit"], "nagle-delayed-ack", "{case:#}");
        let files = case["files"].to_string();
        assert!(files.contains("client.pcapng") && files.contains("server.pcapng"), "{case:#}");
        assert!(!files.contains("asked"), "what was asked to find them is not kept: {case:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unnamed_host_without_an_agent_is_reported_with_advice() {
    let meter = Served::start().await;
    let inventory = Some(Inventory { addresses: vec!["10.77.0.9".into()], containers: Vec::new() });
    let agent = Agent::attach(&meter, Hello { inventory, ..hello("10.77.0.9", 1) }).await.expect("welcome");
    meter.calls_of_capture(CAPTURES[0], ["", ""], None);
    let id = meter.open().await;
    tokio::spawn(agent.answer_all(Some(CAPTURES[0])));
    let case = meter.concluded(&id).await;
    assert_eq!(case["state"], "unknown", "{case:#}");
    for side in ["client", "server"] {
        let why = case["hosts"][side]["why_not"].as_str().unwrap_or_default();
        assert!(why.contains("OTEL_RESOURCE_ATTRIBUTES=host.name="), "{case:#}");
        assert!(why.contains("no other agent's packets show"), "{case:#}");
    }
}

/// Each end sees only the proxy, which also has an agent: it is neither's host.
#[tokio::test(flavor = "multi_thread")]
async fn behind_a_proxy_with_an_agent_the_ends_are_found_by_their_packets() {
    const OWN: [&str; 3] = ["10.77.0.1", "10.77.0.2", "10.77.0.9"];
    let meter = Served::start().await;
    for (number, (address, capture)) in
        OWN.iter().zip([Some(CAPTURES[0]), Some(CAPTURES[1]), None]).enumerate()
    {
        let inventory = Some(Inventory { addresses: vec![(*address).into()], containers: Vec::new() });
        let hello =
            Hello { host_name: format!("host-{number}"), inventory, ..hello(address, number as u64 + 1) };
        let agent = Agent::attach(&meter, hello).await.expect("welcome");
        tokio::spawn(agent.answer_all(capture));
    }
    meter.calls_of_capture(CAPTURES[0], ["", ""], Some(OWN[2]));
    let case = meter.concluded(&meter.open().await).await;
    for (side, address) in ["client", "server"].into_iter().zip(OWN) {
        let netns: u64 = address.bytes().map(u64::from).sum();
        let agent = case["hosts"][side]["agent"].as_str().unwrap_or_default();
        assert!(agent.ends_with(&format!("-{netns}")), "{side}: {case:#}");
    }
    assert_eq!(case["verdict"]["culprit"], "nagle-delayed-ack", "{case:#}");
}

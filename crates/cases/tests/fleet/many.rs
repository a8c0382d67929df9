//! Fifty agents of one meter, some of them asked for slices at the same time, with one slow and one lying.

use super::agent::{Agent, file, hello};
use super::meter::Served;
use spangap_fleet::v1::{Health, Hello, Inventory, from_agent};
use spangap_meter::serve::access::Access;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Total number of agents.
const AGENTS: usize = 50;
/// Pairs of agents whose cases are opened together: the last one's client lies, and its server is slow.
const PAIRS: usize = 5;

/// How an agent treats a request.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    /// Sends what is requested.
    Honest,
    /// Sends one piece, and no more.
    Slow,
    /// Sends something else.
    Lying,
}

fn address(number: usize) -> String {
    format!("10.88.{}.{}", number / 2, number % 2 + 1)
}

/// Reports health and answers requests until the test is over.
async fn live(meter: Arc<Served>, number: usize, manner: Manner, mut over: watch::Receiver<()>) {
    let own = Hello {
        host_name: format!("host-{number}"),
        netns: number as u64 + 1,
        inventory: Some(Inventory { addresses: vec![address(number)], containers: Vec::new() }),
        ..hello("10.88.0.1", number as u64 + 1)
    };
    let mut agent = Agent::attach(&meter, own).await.expect("welcome");
    let capture = ["nagle-client.client.pcapng", "nagle-client.server.pcapng"][number % 2];
    loop {
        let ask = tokio::select! {
            ask = agent.asked() => ask,
            _ = over.changed() => return,
        };
        match manner {
            Manner::Honest => {
                agent.send(super::agent::pieces(ask.id, capture)).await;
                agent.end(ask.id).await;
            }
            Manner::Slow => agent.send(super::agent::pieces(ask.id, capture).into_iter().take(1)).await,
            Manner::Lying => {
                agent
                    .say(from_agent::What::Health(Health { cpu_share: f64::NAN, ..Health::default() }))
                    .await;
                agent
                    .send([file(ask.id + 1_000, "check.json", b"{}"), file(ask.id, "passwd", b"root")])
                    .await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_agents_share_a_meter() {
    let folder = tempfile::tempdir().unwrap();
    let set = |settings: &mut spangap_cases::cases::CaseSettings| {
        settings.slices_per_minute = 2 * PAIRS;
        settings.slice_time = Duration::from_secs(15);
    };
    let meter = Arc::new(Served::with(folder.path(), Access::default(), set).await);
    let (end, over) = watch::channel(());
    let manner = |number| match number {
        number if number == 2 * PAIRS - 2 => Manner::Lying,
        number if number == 2 * PAIRS - 1 => Manner::Slow,
        _ => Manner::Honest,
    };
    let mut agents = JoinSet::new();
    for number in 0..AGENTS {
        agents.spawn(live(meter.clone(), number, manner(number), over.clone()));
    }
    {
        let begun = Instant::now();
        let is_there = |agents: &serde_json::Value| {
            agents["agents"].as_array().unwrap().iter().filter(|agent| agent["connected"] == true).count()
                == AGENTS
        };
        meter.until("/api/v1/agents", is_there).await;
        let registered = begun.elapsed();
        let mut cases = Vec::new();
        for pair in 0..PAIRS {
            let (client, server) = (format!("tank-{pair}"), format!("target-{pair}"));
            let hosts = [2 * pair, 2 * pair + 1].map(address);
            meter.calls_between([&client, &server], [&hosts[0], &hosts[1]], 40);
            let (status, opened) = meter.post_pair([&client, &server], &[]).await;
            assert_eq!(status, 202, "{opened}");
            cases.push(opened["id"].as_str().expect("an id").to_owned());
        }
        for (pair, id) in cases.iter().enumerate() {
            let case = meter.concluded(id).await;
            if pair + 1 < PAIRS {
                assert_eq!(case["verdict"]["culprit"], "nagle-delayed-ack", "{case:#}");
            } else {
                assert_eq!(case["state"], "unknown", "{case:#}");
                let lacks = case["lacks"].to_string();
                assert!(
                    lacks.contains("a file named") && lacks.contains("not complete within 15s"),
                    "{lacks}"
                );
            }
        }
        // All are still connected, and unrequested pieces are counted.
        let agents = meter.until("/api/v1/agents", is_there).await;
        assert_eq!(agents["refused"]["slices"], 2, "{agents:#}");
        assert_eq!(agents["refused"]["unasked"], 1);
        println!(
            "{AGENTS} agents connected after {registered:.1?}, {PAIRS} cases concluded after {:.1?}",
            begun.elapsed()
        );
    }
    drop(end);
    // An agent that panicked was refused.
    agents.join_all().await;
}

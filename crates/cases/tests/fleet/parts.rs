//! Cases of a meter that keeps pods apart (`--by pod`), whose spans say nothing of their pods: the cluster's API names them and
//! their hosts.

use super::agent::{Agent, hello};
use super::meter::Served;
use spangap_fleet::v1::{Container, Hello, Inventory};
use spangap_meter::cluster::{Kind, Pod};
use spangap_meter::ingest::named::Part;
use spangap_meter::pairs::{Ends, Grouping};

const CAPTURES: [&str; 2] = ["nagle-client.client.pcapng", "nagle-client.server.pcapng"];
const PODS: [&str; 2] = ["tank-1", "target-1"];
/// Addresses of the nodes; the calls' packets have those of the pods.
const NODES: [&str; 2] = ["10.1.0.1", "10.1.0.2"];

fn uid(side: usize) -> String {
    format!("0000000{side}-1111-4222-8333-444455556666")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_case_between_two_pods_finds_their_nodes_by_the_clusters_api() {
    let folder = tempfile::tempdir().expect("a folder");
    let by_pod = Grouping::Part(Part::Pod, Ends::Both);
    let meter = Served::by(by_pod, folder.path()).await;
    let pod = |side: usize| Pod {
        uid: uid(side),
        namespace: "shop".into(),
        name: PODS[side].into(),
        node: format!("node-{side}"),
        host_name: PODS[side].into(),
        addresses: vec![format!("10.244.0.{}", side + 1).parse().expect("an address")],
        ..Pod::default()
    };
    let cluster = meter.meter.cluster();
    cluster.start();
    cluster.listed(vec![pod(0), pod(1)]);
    cluster.heard(Kind::Pods);
    for side in [0, 1] {
        let pod_uid = uid(side).replace('-', "_");
        let container = Container { id: side.to_string().repeat(64), pod_uid, ..Container::default() };
        let inventory = Inventory { addresses: vec![NODES[side].into()], containers: vec![container] };
        let hello = Hello {
            host_name: format!("node-{side}"),
            inventory: Some(inventory),
            ..hello(NODES[side], side as u64 + 1)
        };
        let agent = Agent::attach(&meter, hello).await.expect("welcome");
        tokio::spawn(agent.answer_all(Some(CAPTURES[side])));
    }
    meter.calls_of_capture(CAPTURES[0], PODS, None);
    let (status, answer) = meter.post_pair(["tank", "target"], &[]).await;
    assert_eq!(status, 404, "the pair is kept apart by its pods: {answer}");
    let (status, answer) = meter.post_pair(["tank@tank-1", "target@target-1"], &[]).await;
    assert_eq!(status, 202, "{answer}");
    let case = meter.concluded(answer["id"].as_str().expect("an id")).await;
    for (side, at) in ["client", "server"].into_iter().zip(0..) {
        let rule = case["hosts"][side]["rule"].as_str().unwrap_or_default();
        assert_eq!(rule, format!("pod by the Kubernetes API, {}", uid(at)), "{case:#}");
    }
    assert_eq!(case["verdict"]["culprit"], "nagle-delayed-ack", "{case:#}");
    assert_eq!(case["pair"]["server"], "target@target-1", "{case:#}");
    let listed = meter.get("/api/v1/pairs?window=1h&by=server").await;
    assert_eq!(listed["pairs"][0]["server"], "target@target-1", "{listed:#}");
}

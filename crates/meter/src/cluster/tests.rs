use super::*;

/// A pod of the namespace `shop` on the node `n1`; its container's id begins with the given digit.
fn pod(uid: &str, name: &str, address: &str, digit: char) -> Pod {
    Pod {
        uid: uid.into(),
        namespace: "shop".into(),
        name: name.into(),
        node: "n1".into(),
        host_name: name.into(),
        version: None,
        addresses: vec![address.parse().unwrap()],
        containers: vec![digit.to_string().repeat(64)],
        has_ended: false,
    }
}

/// A fed directory with these pods, heard at `now_ms` 0.
fn with(pods: Vec<Pod>) -> Cluster {
    let cluster = Cluster::default();
    cluster.start();
    cluster.listed(pods);
    cluster.nodes_listed(vec![("n1".into(), Some("zone-a".into())), ("n2".into(), None)]);
    cluster.heard(Kind::Pods);
    cluster
}

fn answer(cluster: &Cluster, stated: Stated) -> Result<String, Option<Outcome>> {
    let found = cluster.find(&stated);
    found.pod.map(|pod| pod.uid.clone()).ok_or(found.outcome)
}

fn by_address(address: &str) -> Stated<'_> {
    Stated { address: Some(address), ..Stated::default() }
}

fn by_host_name(name: &str) -> Stated<'_> {
    Stated { host_name: Some(name), ..Stated::default() }
}

#[test]
fn a_pod_is_found_by_each_thing_that_it_alone_has() {
    let cluster = with(vec![pod("u1", "cart-1", "10.0.0.1", 'a'), pod("u2", "cart-2", "fd00::2", 'b')]);
    let (whole, short) = ("b".repeat(64), "B".repeat(12));
    for (stated, uid) in [
        (Stated { uid: Some("u1"), ..Stated::default() }, "u1"),
        (Stated { container: Some(&whole), ..Stated::default() }, "u2"),
        (Stated { container: Some(&short), ..Stated::default() }, "u2"),
        (by_address("10.0.0.1"), "u1"),
        (by_address("::ffff:10.0.0.1"), "u1"),
        (by_address("fd00:0::2"), "u2"),
        (Stated { name: Some("cart-2"), ..Stated::default() }, "u2"),
        (by_host_name("cart-1"), "u1"),
    ] {
        assert_eq!(answer(&cluster, stated), Ok(uid.into()), "{stated:?}");
        assert_eq!(cluster.find(&stated).zone.as_deref(), Some("zone-a"), "{stated:?}");
    }
    assert_eq!(answer(&cluster, Stated::default()), Err(None), "nothing to look for");
    for stated in [
        by_address("10.0.0.9"),
        by_host_name("vm-7"),
        Stated { container: Some("bbbb"), ..Stated::default() },
    ] {
        assert_eq!(answer(&cluster, stated), Err(Some(Outcome::Unlisted)), "{stated:?}");
    }
}

#[test]
fn an_id_that_nobody_has_is_not_replaced_by_an_address_that_somebody_has() {
    let cluster = with(vec![pod("u1", "cart-1", "10.0.0.1", 'a')]);
    for id in [
        Stated { uid: Some("of another cluster"), ..by_address("10.0.0.1") },
        Stated { container: Some("cccccccccccccccc"), ..by_address("10.0.0.1") },
    ] {
        assert_eq!(answer(&cluster, id), Err(Some(Outcome::Unlisted)), "{id:?}");
    }
}

#[test]
fn what_a_resource_states_must_agree_with_the_pod() {
    let cluster = with(vec![pod("u1", "cart-1", "10.0.0.1", 'a')]);
    for stated in [
        Stated { host_name: Some("vm-of-another-network"), ..by_address("10.0.0.1") },
        Stated { namespace: Some("bank"), ..by_address("10.0.0.1") },
        Stated { node: Some("n2"), ..by_host_name("cart-1") },
        Stated { uid: Some("u1"), name: Some("cart-2"), ..Stated::default() },
    ] {
        assert_eq!(answer(&cluster, stated), Err(Some(Outcome::Contradicted)), "{stated:?}");
    }
    // A Collector on the node may have overwritten the host name.
    for host_name in ["n1", "N1", "cart-1"] {
        let stated = Stated { host_name: Some(host_name), ..by_address("10.0.0.1") };
        assert_eq!(answer(&cluster, stated), Ok("u1".into()));
    }
    let stated = Stated { uid: Some("u1"), host_name: Some("anything"), ..Stated::default() };
    assert_eq!(answer(&cluster, stated), Ok("u1".into()));
}

#[test]
fn an_address_used_again_is_nobodys_until_its_former_owner_is_past() {
    let cluster = with(vec![pod("u1", "cart-1", "10.0.0.1", 'a')]);
    cluster.tick(10_000);
    cluster.deleted("u1");
    cluster.put(pod("u2", "pay-1", "10.0.0.1", 'b'));
    assert_eq!(answer(&cluster, by_address("10.0.0.1")), Err(Some(Outcome::Several)));
    // Which of them it is, a second statement can decide.
    let stated = Stated { host_name: Some("pay-1"), ..by_address("10.0.0.1") };
    assert_eq!(answer(&cluster, stated), Ok("u2".into()));
    cluster.heard(Kind::Pods);
    assert!(cluster.tick(10_000 + ENDED_MEANT_MS + COMPARED_MS), "the answer is another");
    assert_eq!(answer(&cluster, by_address("10.0.0.1")), Ok("u2".into()));
    // Spans that were sent late still find the one that ended, by its id.
    assert_eq!(answer(&cluster, Stated { uid: Some("u1"), ..Stated::default() }), Ok("u1".into()));
    cluster.tick(10_000 + ENDED_KEPT_MS + COMPARED_MS);
    assert_eq!(
        answer(&cluster, Stated { uid: Some("u1"), ..Stated::default() }),
        Err(Some(Outcome::Unlisted))
    );
    assert_eq!(cluster.figures().pods, 1);
}

#[test]
fn a_completed_job_gives_its_address_up_without_being_deleted() {
    let job = pod("u1", "job-1", "10.0.0.1", 'a');
    let cluster = with(vec![job.clone()]);
    cluster.put(Pod { has_ended: true, ..job.clone() });
    cluster.put(pod("u2", "pay-1", "10.0.0.1", 'b'));
    cluster.tick(ENDED_MEANT_MS + COMPARED_MS);
    assert_eq!(answer(&cluster, by_address("10.0.0.1")), Ok("u2".into()));
    // Listed again, it is as past as before.
    cluster.listed(vec![
        Pod { has_ended: true, version: Some("2".into()), ..job },
        pod("u2", "pay-1", "10.0.0.1", 'b'),
    ]);
    cluster.tick(ENDED_MEANT_MS + 2 * COMPARED_MS);
    assert_eq!(answer(&cluster, by_address("10.0.0.1")), Ok("u2".into()));
}

#[test]
fn a_name_in_two_namespaces_is_nobodys_unless_the_namespace_is_stated() {
    let other = Pod { namespace: "bank".into(), ..pod("u2", "redis-0", "10.0.0.2", 'b') };
    let cluster = with(vec![pod("u1", "redis-0", "10.0.0.1", 'a'), other]);
    assert_eq!(answer(&cluster, by_host_name("redis-0")), Err(Some(Outcome::Several)));
    let stated = Stated { namespace: Some("bank"), ..by_host_name("redis-0") };
    assert_eq!(answer(&cluster, stated), Ok("u2".into()));
}

#[test]
fn a_pod_made_anew_at_the_same_place_is_no_second_one() {
    let cluster = with(vec![pod("u1", "redis-0", "10.0.0.1", 'a')]);
    cluster.deleted("u1");
    cluster.put(pod("u2", "redis-0", "10.0.0.2", 'b'));
    let found = cluster.find(&by_host_name("redis-0"));
    assert_eq!((found.outcome, found.pod.unwrap().name.as_str()), (Some(Outcome::ByName), "redis-0"));
}

#[test]
fn a_silent_api_leaves_ids_and_takes_addresses_and_names_away() {
    let cluster = with(vec![pod("u1", "cart-1", "10.0.0.1", 'a')]);
    cluster.tick(SILENCE_MS);
    assert_eq!(answer(&cluster, by_address("10.0.0.1")), Ok("u1".into()));
    cluster.failed(Kind::Pods, "pods: no answer".into());
    assert!(cluster.tick(SILENCE_MS + COMPARED_MS), "the answer is another");
    assert!(!cluster.tick(SILENCE_MS + 2 * COMPARED_MS));
    for stated in [by_address("10.0.0.1"), by_host_name("cart-1")] {
        assert_eq!(answer(&cluster, stated), Err(Some(Outcome::Silent)));
    }
    assert_eq!(answer(&cluster, Stated { uid: Some("u1"), ..Stated::default() }), Ok("u1".into()));
    assert_eq!(cluster.figures().problems, ["pods: no answer"]);
    cluster.heard(Kind::Pods);
    assert!(cluster.tick(SILENCE_MS + 3 * COMPARED_MS));
    assert_eq!(answer(&cluster, by_address("10.0.0.1")), Ok("u1".into()));
    assert_eq!(cluster.figures().problems, Vec::<String>::new());
}

#[test]
fn a_program_beside_the_pods_is_its_node_and_no_pod() {
    // A pod in its node's network has neither an address nor a host name of its own.
    let beside =
        Pod { addresses: Vec::new(), host_name: "cart-1".into(), ..pod("u1", "agent-x", "10.0.0.1", 'a') };
    let named_like_a_node = pod("u2", "n2", "10.0.0.2", 'b');
    let cluster = with(vec![beside, named_like_a_node]);
    for (host_name, outcome, zone) in
        [("n1", None, Some("zone-a")), ("n2", None, None), ("cart-1", Some(Outcome::Unlisted), None)]
    {
        let found = cluster.find(&by_host_name(host_name));
        assert_eq!((found.outcome, found.zone.as_deref()), (outcome, zone), "{host_name}");
        assert_eq!(found.pod, None);
    }
}

#[test]
fn pods_past_the_limit_are_counted_and_name_nobody() {
    let cluster = with(Vec::new());
    let many = |from: usize| {
        (from..from + MOST_PODS).map(|n| pod(&format!("u{n}"), &format!("p{n}"), "10.0.0.1", 'a'))
    };
    // Each with an address of its own: an index of one address would be as long as the list.
    let apart = many(0).map(|pod| Pod { addresses: Vec::new(), containers: Vec::new(), ..pod });
    cluster.listed(apart.collect());
    cluster.put(pod("late", "late", "10.0.0.2", 'b'));
    assert_eq!((cluster.figures().pods, cluster.figures().refused), (MOST_PODS as u64, 1));
    assert_eq!(answer(&cluster, by_address("10.0.0.2")), Err(Some(Outcome::Unlisted)));
}

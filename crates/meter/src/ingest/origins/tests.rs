use super::*;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

fn resource(pairs: &[(&str, &str)]) -> Vec<u8> {
    let attribute = |(key, value): &(&str, &str)| KeyValue {
        key: key.to_string(),
        value: Some(AnyValue { value: Some(any_value::Value::StringValue(value.to_string())) }),
        ..KeyValue::default()
    };
    Resource { attributes: pairs.iter().map(attribute).collect(), ..Resource::default() }.encode_to_vec()
}

#[test]
fn equal_resources_share_a_number_and_the_node_is_the_host() {
    let origins = Origins::new(Limits::default(), Part::Node);
    let a = origins.resource(&resource(&[
        ("service.name", "a"),
        ("host.name", "pod-1"),
        ("k8s.node.name", "n1"),
    ]));
    let b = origins.resource(&resource(&[
        ("service.name", "a"),
        ("host.name", "pod-2"),
        ("k8s.node.name", "n1"),
    ]));
    assert_eq!(
        a,
        origins.resource(&resource(&[
            ("service.name", "a"),
            ("host.name", "pod-1"),
            ("k8s.node.name", "n1")
        ]))
    );
    assert_ne!(a, b);
    let interned = origins.read();
    assert_eq!(interned.origin(a).service, interned.origin(b).service);
    assert_eq!(&**interned.name(interned.origin(a).host).unwrap(), "n1");
    assert_eq!(&**interned.name(interned.origin(b).service_at_part).unwrap(), "a@n1");
}

#[test]
fn services_with_one_name_in_two_namespaces_are_distinct() {
    let origins = Origins::new(Limits::default(), Part::Node);
    let name = |pairs: &[(&str, &str)]| {
        let id = origins.resource(&resource(pairs));
        let interned = origins.read();
        interned.name(interned.origin(id).service).unwrap().to_string()
    };
    assert_eq!(name(&[("service.name", "cart"), ("service.namespace", "shop")]), "shop/cart");
    assert_eq!(name(&[("service.namespace", "bank"), ("service.name", "cart")]), "bank/cart");
    assert_eq!(name(&[("service.name", "cart")]), "cart");
    assert_eq!(name(&[("service.name", "cart"), ("service.namespace", "")]), "cart");
    assert_eq!(name(&[("service.namespace", "shop")]), "shop/unknown_service");
}

#[test]
fn a_service_named_other_is_not_the_overflow() {
    let origins = Origins::new(Limits::default(), Part::Node);
    let ids = ["other", "other (service)", "other (service) (service)", "others", "other@x"]
        .map(|name| origins.resource(&resource(&[("service.name", name)])));
    let interned = origins.read();
    let numbers = ids.map(|id| interned.origin(id).service);
    let overflow = interned.origin(0).service;
    assert!(!numbers.contains(&overflow));
    let names = numbers.map(|number| &**interned.name(number).unwrap());
    assert_eq!(
        names,
        [
            "other (service)",
            "other (service) (service)",
            "other (service) (service) (service)",
            "others",
            "other@x"
        ]
    );
}

#[test]
fn past_the_limit_everything_counts_as_other() {
    let origins = Origins::new(Limits { origins: 3, ..Limits::default() }, Part::Node);
    let ids: Vec<u32> =
        (0..5).map(|i| origins.resource(&resource(&[("service.name", &format!("s{i}"))]))).collect();
    assert_eq!(ids, [1, 2, 0, 0, 0]);
    assert_eq!(origins.read().fill().origins_refused, 3);
}

#[test]
fn idle_origins_make_room() {
    let origins = Origins::new(Limits { origins: 2, ..Limits::default() }, Part::Node);
    let first = origins.resource(&resource(&[("service.name", "a")]));
    origins.set_now(10_000);
    let live = origins.write().forget_idle(10_000, 5_000);
    origins.write().forget_names(&live);
    let second = origins.resource(&resource(&[("service.name", "b")]));
    assert_eq!(first, second);
    assert_eq!(&**origins.read().name(origins.read().origin(second).service).unwrap(), "b");
}

#[test]
fn long_names_are_truncated_and_stay_distinct() {
    let long = |end: &str| format!("{}{end}", "ü".repeat(5_000_000));
    let origins = Origins::new(Limits::default(), Part::Node);
    let name = |origins: &Origins, service: &str| {
        let id = origins.resource(&resource(&[("service.name", service), ("host.name", &long("h"))]));
        let interned = origins.read();
        let name = |number| interned.name(number).unwrap().to_string();
        let origin = interned.origin(id);
        assert!(name(origin.host).len() <= 255 && name(origin.service_at_part).len() <= 511);
        let kept = Resource::decode(&*origin.resource).unwrap();
        assert_eq!((kept.attributes.len(), kept.dropped_attributes_count), (2, 0));
        assert!(kept.encoded_len() < 1000);
        name(origin.service)
    };
    let (a, b) = (name(&origins, &long("a")), name(&origins, &long("b")));
    assert_ne!(a, b);
    assert!(a.len() <= 255 && a.starts_with("üü") && a.contains("\u{2026}#"), "{a}");
    // The history is keyed by name: it must be the same after a restart.
    assert_eq!(a, name(&Origins::new(Limits::default(), Part::Node), &long("a")));
    let fill = origins.read().fill();
    assert_eq!((fill.names_cut, fill.resources_cut, fill.names), (4, 2, 6));
    assert!(fill.bytes < 10_000, "{fill:?}");
    assert_eq!(name(&origins, "exactly"), "exactly");
    assert_eq!(cut(&"x".repeat(255), 255), "x".repeat(255));
}

#[test]
fn large_resources_keep_their_names_and_bytes_stay_within_their_limit() {
    let limits = Limits { bytes: 1 << 20, ..Limits::default() };
    let origins = Origins::new(limits, Part::Node);
    let big = "v".repeat(20_000);
    for i in 0..600 {
        origins.resource(&resource(&[("service.name", &format!("s{i}")), ("big", &big)]));
        let fill = origins.read().fill();
        assert!(fill.bytes <= limits.bytes, "{fill:?}");
    }
    let fill = origins.read().fill();
    assert!(fill.resources_cut > 500 && fill.origins_refused == 0, "{fill:?}");
    let id = origins.resource(&resource(&[("service.name", "s599"), ("big", &big)]));
    let interned = origins.read();
    assert_eq!(&**interned.name(interned.origin(id).service).unwrap(), "s599");
    let kept = Resource::decode(&*interned.origin(id).resource).unwrap();
    assert_eq!((kept.attributes.len(), kept.dropped_attributes_count), (1, 1));
}

#[test]
fn removed_names_make_room_for_others() {
    let origins = Origins::new(Limits { names: 10, ..Limits::default() }, Part::Node);
    for round in 0..20u64 {
        origins.set_now(round * 1000);
        let id =
            origins.resource(&resource(&[("service.name", "s"), ("host.name", &format!("pod-{round}"))]));
        let interned = origins.read();
        let host = interned.origin(id).host;
        assert_eq!(&**interned.name(host).unwrap(), &format!("pod-{round}"));
        drop(interned);
        let mut interned = origins.write();
        let live = interned.forget_idle(round * 1000, 1_500);
        interned.forget_names(&live);
    }
    let fill = origins.read().fill();
    assert_eq!((fill.names_refused, fill.origins_refused), (0, 0), "{fill:?}");
    assert!(fill.names <= 10 && fill.names_forgotten > 30, "{fill:?}");
}

#[test]
fn a_resource_gets_another_origin_when_the_cluster_says_something_else() {
    use crate::cluster::{Kind, Pod};
    let origins = Origins::new(Limits::default(), Part::Pod);
    let encoded = resource(&[("service.name", "cart"), ("k8s.pod.ip", "10.0.0.1")]);
    let name = |id: u32| {
        let interned = origins.read();
        let host = interned.name(interned.origin(id).host).map(ToString::to_string);
        (interned.name(interned.origin(id).service_at_part).unwrap().to_string(), host)
    };
    let pod = |uid: &str, name: &str| Pod {
        uid: uid.into(),
        name: name.into(),
        node: "n1".into(),
        addresses: vec!["10.0.0.1".parse().unwrap()],
        ..Pod::default()
    };
    let cluster = origins.cluster();
    let advance = |now_ms: u64| {
        if cluster.tick(now_ms) {
            origins.ask_again();
        }
    };
    let before = origins.resource(&encoded);
    assert_eq!(name(before), ("cart@?".into(), None));
    cluster.start();
    cluster.listed(vec![pod("u1", "cart-1")]);
    cluster.heard(Kind::Pods);
    // A resource seen before anybody was asked keeps its origin until it is idle.
    let of_another = resource(&[("service.name", "cart"), ("k8s.pod.ip", "10.0.0.1"), ("x", "y")]);
    let first = origins.resource(&of_another);
    assert_eq!(name(first), ("cart@cart-1".into(), Some("n1".into())));
    advance(10_000);
    assert_eq!(origins.resource(&of_another), first, "nothing has changed");
    assert_eq!(origins.read().asked(Outcome::ByName), 1);
    cluster.deleted("u1");
    cluster.put(pod("u2", "cart-2"));
    advance(20_000);
    let several = origins.resource(&of_another);
    assert_eq!(name(several), ("cart@?".into(), None));
    assert_eq!(origins.read().asked(Outcome::Several), 1);
    cluster.heard(Kind::Pods);
    advance(90_000);
    let second = origins.resource(&of_another);
    assert_eq!(name(second), ("cart@cart-2".into(), Some("n1".into())));
    assert_eq!(name(first).0, "cart@cart-1", "spans that wait keep theirs");
    // Once the former ones are idle, they go, and the current one stays.
    origins.read().touch(second, 900_000);
    origins.write().forget_idle(900_000, 100_000);
    assert_eq!(origins.resource(&of_another), second);
    assert_eq!(origins.read().fill().origins_forgotten, 3);
}

#[test]
fn what_a_resource_states_comes_before_what_the_cluster_says() {
    use crate::cluster::Pod;
    let origins = Origins::new(Limits::default(), Part::Version);
    let cluster = origins.cluster();
    cluster.start();
    let pod = Pod {
        uid: "u1".into(),
        name: "cart-1".into(),
        node: "n1".into(),
        version: Some("2".into()),
        ..Pod::default()
    };
    cluster.listed(vec![pod]);
    let at_part = |pairs: &[(&str, &str)]| {
        let id = origins.resource(&resource(pairs));
        let interned = origins.read();
        interned.name(interned.origin(id).service_at_part).unwrap().to_string()
    };
    assert_eq!(at_part(&[("service.name", "a"), ("k8s.pod.uid", "u1")]), "a@2");
    assert_eq!(at_part(&[("service.name", "a"), ("k8s.pod.uid", "u1"), ("service.version", "1")]), "a@1");
    // Found by its id: it stays found when the API has forgotten it.
    cluster.deleted("u1");
    for now_ms in [1_000, 700_000] {
        cluster.tick(now_ms);
        origins.ask_again();
    }
    assert_eq!(cluster.figures().pods, 0);
    assert_eq!(at_part(&[("service.name", "a"), ("k8s.pod.uid", "u1")]), "a@2");
}

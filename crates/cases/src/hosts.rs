//! Which agent the host of a span has: by what the span's resource says, else by the addresses that both spans of a call
//! know of each other. A rule that fits several agents decides nothing.

use crate::agents::Place;
use crate::report::HostRow;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use std::net::IpAddr;

/// What the spans of a call say of one of its hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Facts {
    host_name: Option<String>,
    host_id: Option<String>,
    node_name: Option<String>,
    pod_uid: Option<String>,
    pod_ip: Option<String>,
    container_id: Option<String>,
    /// Its own span says: `network.local.address`.
    local: Option<IpAddr>,
    /// The other end's span says.
    seen_by_peer: Option<IpAddr>,
}

/// Attributes that name the other end, newest convention first.
const PEER: [&str; 5] =
    ["network.peer.address", "net.sock.peer.addr", "server.address", "net.peer.ip", "client.address"];
const PEER_PORT: [&str; 4] = ["network.peer.port", "net.sock.peer.port", "server.port", "net.peer.port"];

impl Facts {
    /// Of the side whose span and resource these are; `mate` is the span of the other one.
    pub fn of(resource: &Resource, span: &Span, mate: Option<&Span>) -> Facts {
        let text = |key: &str| text_of(&resource.attributes, key);
        Facts {
            host_name: text("host.name"),
            host_id: text("host.id"),
            node_name: text("k8s.node.name"),
            pod_uid: text("k8s.pod.uid"),
            pod_ip: text("k8s.pod.ip"),
            container_id: text("container.id"),
            local: address_of(span, &["network.local.address", "net.host.ip", "net.sock.host.addr"]),
            seen_by_peer: mate.and_then(|mate| address_of(mate, &PEER)),
        }
    }

    /// Both ends of the call are on one host.
    pub fn is_loopback(&self) -> bool {
        self.local.or(self.seen_by_peer).is_some_and(|address| address.is_loopback())
    }
}

/// Address and port of the server, as the client's span has it.
pub fn server_endpoint(client: &Span) -> Option<(IpAddr, u16)> {
    let port = PEER_PORT.iter().find_map(|key| number_of(&client.attributes, key));
    Some((address_of(client, &PEER)?, u16::try_from(port?).ok()?))
}

/// What it goes by, the value that spans have for it, and whether an agent fits.
type Rule = (&'static str, Option<String>, fn(&Place, &str) -> bool);

/// Which agent is on the host of these facts.
pub fn find(facts: &Facts, agents: &[Place]) -> HostRow {
    let mut several = None;
    let mut asked = Vec::new();
    let rules: [Rule; 9] = [
        // A control group names its container and pod: no two hosts share one.
        ("container.id", facts.container_id.clone(), |agent, id| {
            agent.containers.iter().any(|(container, _)| !container.is_empty() && starts_alike(container, id))
        }),
        ("k8s.pod.uid", facts.pod_uid.clone(), |agent, uid| {
            agent.containers.iter().any(|(_, pod)| !pod.is_empty() && same_uid(pod, uid))
        }),
        ("k8s.pod.ip", facts.pod_ip.clone(), has_address),
        ("host.id", facts.host_id.clone(), |agent, id| {
            !agent.machine_id.is_empty() && agent.machine_id.eq_ignore_ascii_case(id)
        }),
        ("k8s.node.name", facts.node_name.clone(), |agent, name| agent.host_name.eq_ignore_ascii_case(name)),
        ("host.name", facts.host_name.clone(), |agent, name| agent.host_name.eq_ignore_ascii_case(name)),
        ("host.name without its domain", facts.host_name.clone(), |agent, name| {
            !short(name).is_empty() && short(&agent.host_name).eq_ignore_ascii_case(short(name))
        }),
        (
            "network.local.address",
            facts.local.filter(|at| !at.is_loopback()).map(|at| at.to_string()),
            has_address,
        ),
        (
            "address seen by the peer",
            facts.seen_by_peer.filter(|at| !at.is_loopback()).map(|at| at.to_string()),
            has_address,
        ),
    ];
    for (rule, value, fits) in rules {
        let Some(value) = value.filter(|value| !value.is_empty()) else { continue };
        let mut fitting = agents.iter().filter(|agent| fits(agent, &value));
        match (fitting.next(), fitting.next()) {
            (Some(agent), None) => {
                return HostRow {
                    agent: Some(agent.id.clone()),
                    rule: Some(format!("{rule} {value}")),
                    why_not: None,
                };
            }
            (Some(_), Some(_)) => several = several.or(Some(format!("several agents have {rule} {value}"))),
            (None, _) => asked.push(format!("{rule} {value}")),
        }
    }
    let why_not = match (agents.is_empty(), several, asked.is_empty()) {
        (true, ..) => "no agent is connected".to_owned(),
        (_, Some(several), _) => several,
        (_, _, true) => "the spans name no host and no address".to_owned(),
        (_, _, false) => format!("no agent has {}", asked.join(", nor ")),
    };
    HostRow { agent: None, rule: None, why_not: Some(why_not) }
}

fn has_address(agent: &Place, address: &str) -> bool {
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let has =
        |own: &String| own.parse::<IpAddr>().is_ok_and(|own| own.to_canonical() == address.to_canonical());
    agent.addresses.iter().any(has)
}

/// Runtimes and SDKs name a container by 64 digits, or by the first twelve of them.
fn starts_alike(one: &str, other: &str) -> bool {
    let common = one.len().min(other.len());
    common >= 12 && one.as_bytes()[..common].eq_ignore_ascii_case(&other.as_bytes()[..common])
}

/// In the name of a control group the dashes of a uid may be underscores, or none.
fn same_uid(one: &str, other: &str) -> bool {
    let plain = |uid: &str| {
        uid.bytes().filter(u8::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect::<Vec<_>>()
    };
    plain(one) == plain(other)
}

fn short(name: &str) -> &str {
    // The first number of an address is no name.
    if name.parse::<IpAddr>().is_ok() { "" } else { name.split('.').next().unwrap_or("") }
}

fn value_of<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Value> {
    attributes.iter().find(|one| one.key == key)?.value.as_ref()?.value.as_ref()
}

fn text_of(attributes: &[KeyValue], key: &str) -> Option<String> {
    match value_of(attributes, key)? {
        Value::StringValue(text) if text.len() <= 256 => Some(text.clone()),
        _ => None,
    }
}

pub(crate) fn number_of(attributes: &[KeyValue], key: &str) -> Option<i64> {
    match value_of(attributes, key)? {
        Value::IntValue(number) => Some(*number),
        Value::StringValue(text) => text.parse().ok(),
        _ => None,
    }
}

fn address_of(span: &Span, keys: &[&str]) -> Option<IpAddr> {
    keys.iter().find_map(|key| text_of(&span.attributes, key)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::common::v1::AnyValue;

    fn attributes(of: &[(&str, &str)]) -> Vec<KeyValue> {
        let value = |text: &str| Some(AnyValue { value: Some(Value::StringValue(text.into())) });
        of.iter()
            .map(|(key, text)| KeyValue { key: (*key).into(), value: value(text), ..KeyValue::default() })
            .collect()
    }

    fn facts(resource: &[(&str, &str)], own: &[(&str, &str)], mate: &[(&str, &str)]) -> Facts {
        let resource = Resource { attributes: attributes(resource), ..Resource::default() };
        let span = |of| Span { attributes: attributes(of), ..Span::default() };
        Facts::of(&resource, &span(own), Some(&span(mate)))
    }

    fn place(id: &str, host_name: &str, addresses: &[&str]) -> Place {
        Place {
            id: id.into(),
            host_name: host_name.into(),
            addresses: addresses.iter().map(|text| (*text).into()).collect(),
            ..Place::default()
        }
    }

    fn rule(facts: &Facts, agents: &[Place]) -> (Option<String>, String) {
        let found = find(facts, agents);
        (found.agent, found.rule.or(found.why_not).unwrap())
    }

    #[test]
    fn the_most_specific_thing_that_decides_wins() {
        let mut agents =
            [place("a", "web-1.example", &["10.0.0.1"]), place("b", "web-2", &["10.0.0.2", "10.244.0.9"])];
        agents[1].containers =
            vec![("0123456789abcdef0123".into(), "11111111_2222_3333_4444_555555555555".into())];
        agents[1].machine_id = "feed".into();
        let found = |resource: &[(&str, &str)]| rule(&facts(resource, &[], &[]), &agents);
        assert_eq!(
            found(&[("host.name", "web-1")]),
            (Some("a".into()), "host.name without its domain web-1".into())
        );
        assert_eq!(found(&[("host.name", "WEB-2")]), (Some("b".into()), "host.name WEB-2".into()));
        // In a container the host name is the container's: what is more specific decides.
        let pod = [("host.name", "web-1"), ("k8s.pod.uid", "11111111-2222-3333-4444-555555555555")];
        assert_eq!(found(&pod).0, Some("b".into()));
        assert_eq!(found(&[("container.id", "0123456789ab")]).0, Some("b".into()));
        assert_eq!(found(&[("container.id", "012345678")]).0, None, "too short to be one");
        assert_eq!(found(&[("k8s.pod.ip", "10.244.0.9")]).0, Some("b".into()));
        assert_eq!(found(&[("host.id", "FEED")]).0, Some("b".into()));
        assert_eq!(
            found(&[("host.name", "db")]),
            (None, "no agent has host.name db, nor host.name without its domain db".into())
        );
        assert_eq!(found(&[]), (None, "the spans name no host and no address".into()));
        assert_eq!(rule(&facts(&[("host.name", "db")], &[], &[]), &[]).1, "no agent is connected");
    }

    #[test]
    fn two_hosts_of_one_name_are_told_apart_by_their_addresses() {
        let agents = [place("a", "lab", &["10.88.0.1", "fe80::1"]), place("b", "lab", &["10.88.0.2"])];
        let named = [("host.name", "lab")];
        let server = facts(&named, &[], &[("network.peer.address", "10.88.0.2")]);
        assert_eq!(rule(&server, &agents), (Some("b".into()), "address seen by the peer 10.88.0.2".into()));
        let client = facts(&named, &[("network.local.address", "::ffff:10.88.0.1")], &[]);
        assert_eq!(rule(&client, &agents).0, Some("a".into()));
        assert_eq!(
            rule(&facts(&named, &[], &[]), &agents),
            (None, "several agents have host.name lab".into())
        );
        // Every host has this one.
        let loopback = facts(&named, &[], &[("network.peer.address", "127.0.0.1")]);
        assert!(loopback.is_loopback());
        assert_eq!(rule(&loopback, &[place("a", "x", &["127.0.0.1"])]).0, None);
    }
}

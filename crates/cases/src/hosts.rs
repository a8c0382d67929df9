//! The agent on a span's host: found by the span's resource, otherwise by the addresses in both spans of a
//! call. A rule that matches several agents decides nothing.

use crate::agents::Place;
use crate::report::HostRow;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use std::net::IpAddr;

/// What the spans of a call state about one of its hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Facts {
    host_name: Option<String>,
    host_id: Option<String>,
    node_name: Option<String>,
    pod_uid: Option<String>,
    /// Uid of its pod according to the cluster's API, where the spans do not state it.
    found_pod: Option<String>,
    pod_ip: Option<String>,
    container_id: Option<String>,
    /// From its own span: `network.local.address`.
    local: Option<IpAddr>,
    /// From the other end's span.
    seen_by_peer: Option<IpAddr>,
    /// Client only: the original caller, as a proxy reported it to the server.
    first_caller: Option<IpAddr>,
    /// Server only: its address or name, from the client's span and from its own.
    called: [Option<String>; 2],
}

/// Attributes for the other end of the connection, newest convention first.
const PEER: [&str; 3] = ["network.peer.address", "net.sock.peer.addr", "net.peer.ip"];
const PEER_PORT: [&str; 4] = ["network.peer.port", "net.sock.peer.port", "server.port", "net.peer.port"];
/// Attributes for the server in a client's span, and in its own: names, addresses, some with a port.
const CALLED: [&str; 2] = ["server.address", "net.peer.name"];
const CALLED_OWN: [&str; 3] = ["server.address", "net.host.name", "http.host"];
/// Attributes of a client's span that contain the server in a URL.
const URLS: [&str; 2] = ["url.full", "http.url"];

impl Facts {
    /// Facts of the side with this span and resource; `mate` is the span of the other side.
    pub fn of(resource: &Resource, span: &Span, mate: Option<&Span>) -> Facts {
        let text = |key: &str| text_of(&resource.attributes, key);
        let is_server = span.kind() == SpanKind::Server;
        let servers = |span: &Span| -> [Option<String>; 2] {
            let own = CALLED_OWN.iter().find_map(|key| text_of(&span.attributes, key));
            [mate.and_then(called), own.map(|text| host_of(&text).to_owned())]
        };
        Facts {
            host_name: text("host.name"),
            host_id: text("host.id"),
            node_name: text("k8s.node.name"),
            pod_uid: text("k8s.pod.uid"),
            found_pod: None,
            pod_ip: text("k8s.pod.ip"),
            container_id: text("container.id"),
            local: address_of(span, &["network.local.address", "net.host.ip", "net.sock.host.addr"]),
            seen_by_peer: mate.and_then(|mate| address_of(mate, &PEER)),
            first_caller: mate.filter(|_| !is_server).and_then(|mate| address_of(mate, &["client.address"])),
            called: if is_server { servers(span) } else { Default::default() },
        }
    }

    /// The same with the pod that the cluster's API names, if any.
    pub fn with_pod(self, uid: Option<&str>) -> Facts {
        Facts { found_pod: uid.filter(|_| self.pod_uid.is_none()).map(Into::into), ..self }
    }

    /// Whether both ends of the call are on one host.
    pub fn is_loopback(&self) -> bool {
        let called = || self.called_address(0);
        let address = self.local.or(self.seen_by_peer).or_else(called);
        address.is_some_and(|address| address.is_loopback())
            || self.called[0].as_deref().is_some_and(|name| name.eq_ignore_ascii_case("localhost"))
    }

    /// Whether the other end's span has an address that is not of this host alone. If an end sees a loopback
    /// address nevertheless, a proxy is beside it, and the other end may be on any host.
    pub fn is_seen_from_elsewhere(&self) -> bool {
        [self.seen_by_peer, self.called_address(0)]
            .into_iter()
            .flatten()
            .any(|address| !address.is_loopback())
    }

    /// The server's address according to one of the spans, if it is not a name.
    fn called_address(&self, by: usize) -> Option<IpAddr> {
        self.called[by].as_deref()?.parse().ok()
    }

    /// The server's name according to the client, if it is a host name.
    fn called_name(&self) -> Option<String> {
        let name = self.called[0].as_ref()?;
        (name.parse::<IpAddr>().is_err() && !name.eq_ignore_ascii_case("localhost")).then(|| name.clone())
    }
}

/// Address and port of the server according to the client's span.
pub fn server_endpoint(client: &Span) -> Option<(IpAddr, u16)> {
    let port = PEER_PORT.iter().find_map(|key| number_of(&client.attributes, key));
    let port = port.and_then(|port| u16::try_from(port).ok()).or_else(|| {
        let url = URLS.iter().find_map(|key| text_of(&client.attributes, key))?;
        let (scheme, rest) = url.split_once("://")?;
        let authority = authority(rest);
        let port = authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        port.or(match scheme {
            "http" => Some(80),
            "https" => Some(443),
            _ => None,
        })
    });
    let address = address_of(client, &PEER).or_else(|| called(client)?.parse().ok());
    Some((address?, port?))
}

/// The server's address or name in a client's span.
fn called(client: &Span) -> Option<String> {
    let named = CALLED.iter().find_map(|key| text_of(&client.attributes, key));
    let url = || {
        let url = URLS.iter().find_map(|key| text_of(&client.attributes, key))?;
        Some(authority(url.split_once("://")?.1).to_owned())
    };
    let name = named.or_else(url)?;
    Some(host_of(&name).to_owned()).filter(|host| !host.is_empty())
}

/// The authority after `//` in a URL, without user information.
fn authority(rest: &str) -> &str {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

/// The host without port and without the brackets of IPv6.
fn host_of(authority: &str) -> &str {
    if authority.parse::<IpAddr>().is_ok() {
        return authority;
    }
    match authority.strip_prefix('[') {
        Some(six) => six.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

/// Advice for spans that do not state their host.
const NAME_IT: &str = "set OTEL_RESOURCE_ATTRIBUTES=host.name=$(hostname) where its service starts";

/// Rules based on one end's view of the other: behind a proxy they match the proxy.
const HEARSAY: [&str; 3] =
    ["address seen by the peer", "address that the client calls", "name that the client calls"];

/// Whether such a rule found the agent.
pub(crate) fn is_hearsay(host: &HostRow) -> bool {
    host.rule.as_deref().is_some_and(|rule| HEARSAY.iter().any(|hearsay| rule.starts_with(hearsay)))
}

/// Name of the rule, the spans' value for it, and its match with an agent.
type Rule = (&'static str, Option<String>, fn(&Place, &str) -> bool);

/// Finds the agent on the host of these facts.
pub fn find(facts: &Facts, agents: &[Place]) -> HostRow {
    let mut several = None;
    let mut asked = Vec::new();
    let address = |at: Option<IpAddr>| at.filter(|at| !at.is_loopback()).map(|at| at.to_string());
    let rules: [Rule; 14] = [
        // A control group identifies its container and pod, which no two hosts share.
        ("container.id", facts.container_id.clone(), |agent, id| {
            agent.containers.iter().any(|(container, _)| !container.is_empty() && starts_alike(container, id))
        }),
        ("k8s.pod.uid", facts.pod_uid.clone(), has_pod),
        ("pod by the Kubernetes API,", facts.found_pod.clone(), has_pod),
        ("k8s.pod.ip", facts.pod_ip.clone(), has_address),
        ("host.id", facts.host_id.clone(), |agent, id| {
            !agent.machine_id.is_empty() && agent.machine_id.eq_ignore_ascii_case(id)
        }),
        ("k8s.node.name", facts.node_name.clone(), |agent, name| agent.host_name.eq_ignore_ascii_case(name)),
        ("host.name", facts.host_name.clone(), |agent, name| agent.host_name.eq_ignore_ascii_case(name)),
        ("host.name without its domain", facts.host_name.clone(), |agent, name| {
            !short(name).is_empty() && short(&agent.host_name).eq_ignore_ascii_case(short(name))
        }),
        ("network.local.address", address(facts.local), has_address),
        // Of a proxy in between, the server also knows the address.
        ("client.address", address(facts.first_caller), has_address),
        (HEARSAY[0], address(facts.seen_by_peer), has_address),
        (HEARSAY[1], address(facts.called_address(0)), has_address),
        ("address that it is called by", address(facts.called_address(1)), has_address),
        (HEARSAY[2], facts.called_name(), |agent, name| {
            let same = |one: &str, other: &str| !one.is_empty() && one.eq_ignore_ascii_case(other);
            same(&agent.host_name, name) || same(short(&agent.host_name), short(name))
        }),
    ];
    for (rule, value, fits) in rules {
        let Some(value) = value.filter(|value| !value.is_empty()) else { continue };
        let mut fitting = agents.iter().filter(|agent| fits(agent, &value));
        match (fitting.next(), fitting.next()) {
            (Some(agent), None) => {
                return HostRow {
                    agent: Some(agent.id.clone()),
                    rule: Some(format!("{rule} {value}")),
                    ..HostRow::default()
                };
            }
            (Some(_), Some(_)) => several = several.or(Some(format!("several agents have {rule} {value}"))),
            (None, _) => asked.push(format!("{rule} {value}")),
        }
    }
    let of_several = several.is_some();
    let why_not = match (agents.is_empty(), several, asked.is_empty()) {
        (true, ..) => "no agent is connected".to_owned(),
        (_, Some(several), _) => several,
        (_, _, true) => format!("the spans name no host and no address; {NAME_IT}"),
        (_, _, false) => format!("no agent has {}; {NAME_IT}, or start one there", asked.join(", nor ")),
    };
    HostRow { why_not: Some(why_not), of_several, ..HostRow::default() }
}

fn has_pod(agent: &Place, uid: &str) -> bool {
    agent.containers.iter().any(|(_, pod)| !pod.is_empty() && same_uid(pod, uid))
}

fn has_address(agent: &Place, address: &str) -> bool {
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let has =
        |own: &String| own.parse::<IpAddr>().is_ok_and(|own| own.to_canonical() == address.to_canonical());
    agent.addresses.iter().any(has)
}

/// Runtimes and SDKs identify a container by 64 digits, or by the first twelve of them.
fn starts_alike(one: &str, other: &str) -> bool {
    let common = one.len().min(other.len());
    common >= 12 && one.as_bytes()[..common].eq_ignore_ascii_case(&other.as_bytes()[..common])
}

/// In the name of a control group, the dashes of a uid may be underscores or absent.
fn same_uid(one: &str, other: &str) -> bool {
    let plain = |uid: &str| {
        uid.bytes().filter(u8::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect::<Vec<_>>()
    };
    plain(one) == plain(other)
}

fn short(name: &str) -> &str {
    // The first number of an address is not a name.
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

    /// Facts of the client and the server of a call.
    fn both(client: &[(&str, &str)], server: &[(&str, &str)]) -> [Facts; 2] {
        let span =
            |kind: SpanKind, of| Span { kind: kind.into(), attributes: attributes(of), ..Span::default() };
        let (client, server) = (span(SpanKind::Client, client), span(SpanKind::Server, server));
        let resource = Resource::default();
        [Facts::of(&resource, &client, Some(&server)), Facts::of(&resource, &server, Some(&client))]
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
    fn the_most_specific_rule_wins() {
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
        // In a container, the host name is the container's: the more specific attribute decides.
        let pod = [("host.name", "web-1"), ("k8s.pod.uid", "11111111-2222-3333-4444-555555555555")];
        assert_eq!(found(&pod).0, Some("b".into()));
        assert_eq!(found(&[("container.id", "0123456789ab")]).0, Some("b".into()));
        assert_eq!(found(&[("container.id", "012345678")]).0, None, "too short to be one");
        assert_eq!(found(&[("k8s.pod.ip", "10.244.0.9")]).0, Some("b".into()));
        let by_api = |resource: &[(&str, &str)]| {
            rule(&facts(resource, &[], &[]).with_pod(Some("11111111-2222-3333-4444-555555555555")), &agents)
        };
        assert_eq!(
            by_api(&[("host.name", "checkout-7d9")]),
            (Some("b".into()), "pod by the Kubernetes API, 11111111-2222-3333-4444-555555555555".into())
        );
        assert_eq!(by_api(&[("k8s.pod.uid", "another")]).0, None, "the spans' own word counts");
        assert_eq!(found(&[("host.id", "FEED")]).0, Some("b".into()));
        assert_eq!(
            found(&[("host.name", "db")]),
            (
                None,
                format!(
                    "no agent has host.name db, nor host.name without its domain db; {NAME_IT}, or start one there"
                )
            )
        );
        assert_eq!(found(&[]), (None, format!("the spans name no host and no address; {NAME_IT}")));
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
        assert!(find(&facts(&named, &[], &[]), &agents).of_several && !find(&server, &agents).of_several);
        // Every host has this address.
        let loopback = facts(&named, &[], &[("network.peer.address", "127.0.0.1")]);
        assert!(loopback.is_loopback());
        assert_eq!(rule(&loopback, &[place("a", "x", &["127.0.0.1"])]).0, None);
    }

    #[test]
    fn a_proxy_beside_an_end_is_no_loopback_connection_of_both() {
        let of = |client: &str, server: &str| {
            let [client, server] = both(&[("server.address", client)], &[("network.peer.address", server)]);
            let is_loopback = client.is_loopback() || server.is_loopback();
            is_loopback && !client.is_seen_from_elsewhere() && !server.is_seen_from_elsewhere()
        };
        assert!(of("127.0.0.1", "127.0.0.1") && of("localhost", "127.0.0.1") && of("localhost", "::1"));
        // nginx, or a sidecar, on the server's host; then one on the client's.
        assert!(!of("10.0.0.2", "127.0.0.1") && !of("10.0.0.2", "127.0.0.6"));
        assert!(!of("localhost", "10.0.0.1") && !of("127.0.0.1", "10.0.0.1"));
    }

    /// Attributes that SDKs set by default for calls from 10.0.0.1 to 10.0.0.2, without a configured host: of
    /// the client's and the server's span.
    #[test]
    fn default_attributes_of_sdks_identify_hosts() {
        let agents =
            [place("client", "web-1", &["10.0.0.1"]), place("server", "stock.example", &["10.0.0.2"])];
        type Attributes<'a> = &'a [(&'a str, &'a str)];
        let sdks: [(&str, Attributes<'_>, Attributes<'_>); 6] = [
            (
                "Python: requests, Flask",
                &[("http.url", "http://10.0.0.2:8080/stock/1?a=b")],
                &[
                    ("net.peer.ip", "10.0.0.1"),
                    ("net.host.name", "10.0.0.2:8080"),
                    ("http.host", "10.0.0.2:8080"),
                ],
            ),
            (
                "Python: requests, FastAPI, by the newer names",
                &[("url.full", "http://me:secret@10.0.0.2:8080/"), ("server.address", "10.0.0.2")],
                &[("client.address", "10.0.0.1"), ("server.address", "10.0.0.2")],
            ),
            (
                "Java: HTTP client and server",
                &[
                    ("url.full", "http://10.0.0.2:8080/"),
                    ("server.address", "10.0.0.2"),
                    ("server.port", "8080"),
                ],
                &[("network.peer.address", "10.0.0.1"), ("client.address", "10.0.0.1")],
            ),
            ("a name", &[("server.address", "stock")], &[("net.peer.ip", "10.0.0.1")]),
            ("a name in a URL", &[("url.full", "https://stock.example/1")], &[("net.peer.ip", "10.0.0.1")]),
            (
                "behind a proxy",
                &[("server.address", "10.0.0.9")],
                &[
                    ("client.address", "10.0.0.1"),
                    ("network.peer.address", "10.0.0.9"),
                    ("server.address", "10.0.0.2"),
                ],
            ),
        ];
        for (name, client, server) in sdks {
            let found = both(client, server).map(|facts| find(&facts, &agents));
            let found = found.map(|host| host.agent.ok_or(host.why_not));
            assert_eq!(found, [Ok("client".to_owned()), Ok("server".to_owned())], "{name}");
        }
        // A server that knows only its own address says nothing about its client.
        let [client, _] = both(&[], &[("server.address", "10.0.0.2")]);
        assert_eq!(find(&client, &agents).agent, None);
    }

    #[test]
    fn server_addresses_are_read_from_urls() {
        let at = |url: &str| {
            server_endpoint(&Span { attributes: attributes(&[("url.full", url)]), ..Span::default() })
                .map(|(address, port)| format!("{address} {port}"))
        };
        for (url, expected) in [
            ("http://10.0.0.2:8080/stock/1", Some("10.0.0.2 8080")),
            ("https://10.0.0.2?q=http://10.0.0.9:1/", Some("10.0.0.2 443")),
            ("http://[fd00::2]:8080/", Some("fd00::2 8080")),
            ("http://a:b@10.0.0.2/", Some("10.0.0.2 80")),
            ("http://stock:8080/", None),
            ("unix:///run/stock", None),
            ("http://", None),
            ("nonsense", None),
        ] {
            assert_eq!(at(url).as_deref(), expected, "{url}");
        }
    }
}

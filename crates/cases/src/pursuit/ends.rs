//! The hosts of the two ends, and the connections of which packets are asked for there.

use super::SIDES;
use crate::agents::Place;
use crate::cases::{Cases, moment};
use crate::hosts::{Facts, find, server_endpoint};
use crate::now_unix_ms;
use crate::report::HostRow;
use crate::samples::Sample;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use spangap_fleet::v1::Endpoint;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Servers behind one name that are asked for one by one.
const MOST_ENDPOINTS: usize = 32;

/// What the spans of a call and the cluster's API say about the host of one side.
pub(super) fn facts(cases: &Cases, resource: &Resource, span: &Span, mate: Option<&Span>) -> Facts {
    let is_asked = cases.meter.cluster().is_fed();
    let pod = is_asked.then(|| cases.meter.pod_of(&resource.encode_to_vec())).flatten();
    Facts::of(resource, span, mate).with_pod(pod.as_ref().map(|pod| pod.uid.as_str()))
}

/// Which agent either side has.
pub(super) fn hosts(cases: &Cases, samples: &[Sample]) -> [HostRow; 2] {
    let places = cases.agents.places(now_unix_ms());
    let (mut loopback, mut elsewhere) = (false, false);
    let mut hosts = [0, 1].map(|side| {
        // Any of the calls whose spans decide it: not each of them names the peer.
        let mut found = HostRow { why_not: Some("no spans of it are held".into()), ..HostRow::default() };
        for sample in samples.iter().take(20) {
            let Some((resource, span)) = &sample.sides[side].whole else { continue };
            let mate = sample.sides[1 - side].whole.as_ref().map(|(_, span)| span);
            let facts = facts(cases, resource, span, mate);
            loopback |= facts.is_loopback();
            elsewhere |= facts.is_seen_from_elsewhere();
            found = find(&facts, &places);
            if found.agent.is_some() {
                break;
            }
        }
        found
    });
    // Two ends of a loopback connection are on one host, and so is whoever has an agent in that network namespace.
    if loopback && !elsewhere {
        for side in [0, 1] {
            if hosts[side].agent.is_none() && hosts[1 - side].agent.is_some() {
                hosts[side] = HostRow {
                    rule: Some("loopback: the other end's host".into()),
                    ..hosts[1 - side].clone()
                };
            }
        }
        if let [place] = &places[..] {
            for host in hosts.iter_mut().filter(|host| host.agent.is_none()) {
                let rule = "loopback, and only one agent is connected";
                *host =
                    HostRow { agent: Some(place.id.clone()), rule: Some(rule.into()), ..HostRow::default() };
            }
        }
    }
    hosts
}

/// Which agents they are, in the case.
pub(super) fn tell_hosts(cases: &Cases, id: &str, samples: &[Sample], hosts: &[HostRow; 2]) {
    for (side, host) in hosts.iter().enumerate() {
        if host.agent.is_none() {
            cases.unmatched(side);
        }
    }
    let endpoint = samples
        .iter()
        .filter_map(|sample| sample.sides[0].whole.as_ref())
        .find_map(|(_, span)| server_endpoint(span));
    cases.change(id, |case| {
        case.hosts = SIDES
            .iter()
            .map(|side| (*side).to_owned())
            .zip(hosts.iter().cloned())
            .collect::<BTreeMap<_, _>>();
        if let Some((address, port)) = endpoint {
            case.time_line.push(moment(
                now_unix_ms(),
                format!("the client's spans name the server at {address} port {port}"),
            ));
        }
    });
}

/// The servers' ends of the connections, as both hosts see them; none where an address is translated on the way, or where
/// that cannot be known: then all packets are asked for.
fn endpoints(places: &[Place], samples: &[Sample], hosts: &[HostRow; 2]) -> Vec<Endpoint> {
    let Some(server) = places.iter().find(|place| Some(&place.id) == hosts[1].agent.as_ref()) else {
        return Vec::new();
    };
    let is_its_own = |address: &IpAddr| {
        server.addresses.iter().any(|own| own.parse::<IpAddr>().is_ok_and(|own| own == *address))
    };
    let mut all = BTreeSet::new();
    for (_, span) in samples.iter().filter_map(|sample| sample.sides[0].whole.as_ref()) {
        match server_endpoint(span) {
            Some((address, port)) if is_its_own(&address) && all.len() < MOST_ENDPOINTS => {
                all.insert((address, port))
            }
            // One that is left out would be missed.
            _ => return Vec::new(),
        };
    }
    all.into_iter()
        .map(|(address, port)| Endpoint { address: address.to_string(), port: port.into() })
        .collect()
}

/// Whose packets are asked for on each host; none: all.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Ends {
    /// Client and server.
    pub sides: [Vec<Endpoint>; 2],
    /// The agent of a proxy's host between them, and what is asked of it.
    pub proxy: Option<(String, Vec<Endpoint>)>,
}

pub(super) fn ends(cases: &Cases, samples: &[Sample], hosts: &[HostRow; 2]) -> Ends {
    let places = cases.agents.places(now_unix_ms());
    if let Some(proxy) = between(&places, samples, hosts) {
        return proxy;
    }
    let of_both = endpoints(&places, samples, hosts);
    Ends { sides: [of_both.clone(), of_both], proxy: None }
}

/// Ends where the client calls an address of a host with an agent, and the server is elsewhere: a proxy passes its calls on. What else
/// goes on at these hosts would be taken for calls of the pair.
fn between(places: &[Place], samples: &[Sample], hosts: &[HostRow; 2]) -> Option<Ends> {
    let (client, server) = (hosts[0].agent.as_deref()?, hosts[1].agent.as_deref()?);
    let spans = samples.iter().filter_map(|sample| sample.sides[0].whole.as_ref());
    let called: Option<BTreeSet<(IpAddr, u16)>> = spans.map(|(_, span)| server_endpoint(span)).collect();
    let called = called.filter(|called| (1..=MOST_ENDPOINTS).contains(&called.len()))?;
    let has = |place: &Place, address: &IpAddr| {
        place.addresses.iter().any(|own| own.parse::<IpAddr>().is_ok_and(|own| own == *address))
    };
    let mut proxies = places.iter().filter(|place| called.iter().any(|(address, _)| has(place, address)));
    // Who has it twice does not say which of both it is; and one that is left out would be missed.
    let (proxy, None) = (proxies.next()?, proxies.next()) else { return None };
    if proxy.id == client || proxy.id == server || !called.iter().all(|(address, _)| has(proxy, address)) {
        return None;
    }
    let server = places.iter().find(|place| place.id == server)?;
    let called =
        called.iter().map(|(address, port)| Endpoint { address: address.to_string(), port: (*port).into() });
    let called: Vec<Endpoint> = called.collect();
    let all_of = |place: &Place| -> Vec<Endpoint> {
        let addresses = place.addresses.iter().take(MOST_ENDPOINTS);
        addresses.map(|address| Endpoint { address: address.clone(), port: 0 }).collect()
    };
    let both = [called.clone(), all_of(server)].concat();
    Some(Ends { sides: [called, all_of(proxy)], proxy: Some((proxy.id.clone(), both)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pursuit::sample_calls::call;

    #[test]
    fn a_proxy_between_the_hosts_is_asked_and_nothing_else_of_them() {
        let place = |id: &str, address: &str| Place {
            id: id.into(),
            host_name: id.into(),
            machine_id: id.into(),
            addresses: vec![address.into()],
            containers: Vec::new(),
        };
        let host = |id: &str| HostRow { agent: Some(id.into()), ..HostRow::default() };
        let end = |address: &str, port| Endpoint { address: address.into(), port };
        let calls = |url: &str| {
            use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
            let mut call = call(1, 0, 1);
            for half in &mut call.sides {
                let (_, span) = half.whole.as_mut().expect("it has one");
                let value = Some(AnyValue { value: Some(Value::StringValue(url.into())) });
                span.attributes.push(KeyValue { key: "url.full".into(), value, ..KeyValue::default() });
            }
            call
        };
        let places = [place("c", "10.0.0.1"), place("p", "10.0.0.2"), place("s", "10.0.0.3")];
        let hosts = [host("c"), host("s")];
        let through = between(&places, &[calls("http://10.0.0.2:8080/work")], &hosts).expect("a proxy");
        assert_eq!(through.sides, [vec![end("10.0.0.2", 8080)], vec![end("10.0.0.2", 0)]]);
        assert_eq!(through.proxy, Some(("p".into(), vec![end("10.0.0.2", 8080), end("10.0.0.3", 0)])));
        // The server's own address; one that nobody has; both; and one that two have.
        for urls in
            [&["http://10.0.0.3:80/"][..], &["http://10.9.9.9/"], &["http://10.0.0.2/", "http://10.9.9.9/"]]
        {
            let samples: Vec<Sample> = urls.iter().map(|url| calls(url)).collect();
            assert_eq!(between(&places, &samples, &hosts), None, "{urls:?}");
        }
        let twice = [&places[..], &[place("q", "10.0.0.2")]].concat();
        assert_eq!(between(&twice, &[calls("http://10.0.0.2/")], &hosts), None);
    }
}

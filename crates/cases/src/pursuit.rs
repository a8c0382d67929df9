//! The way of one case: its calls, their hosts, slices of both, the verdict.

use crate::cases::{Cases, moment};
use crate::folder::HUNT;
use crate::hosts::{Facts, find, server_endpoint};
use crate::report::{HostRow, State};
use crate::samples::{self, Sample};
use crate::server::now_unix_ms;
use crate::slices::fetch;
use crate::verdict;
use spangap_fleet::v1::{Ask, Endpoint};
use spangap_model::PairKey;
use spangap_model::duration::format_ns;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Calls that began earlier before the case are another story, nanoseconds.
const LOOK_BACK_NS: u64 = 25_000_000_000;
/// A slice begins so long before the first slow call, and ends so long after the last one, nanoseconds.
const BEFORE_NS: i64 = 2_000_000_000;
const AFTER_NS: i64 = 1_000_000_000;
/// And is at most this long: the last slow calls count most.
const LONGEST_NS: i64 = 15_000_000_000;
/// Servers behind one name that are asked for one by one.
const MOST_ENDPOINTS: usize = 32;
/// Names of the sides, by their number.
const SIDES: [&str; 2] = ["client", "server"];

/// From an open case to its verdict.
pub async fn pursue(cases: Arc<Cases>, id: String) {
    let Some(case) = cases.case(&id) else { return };
    let pair = PairKey {
        client: case.row.pair.client.as_str().into(),
        server: case.row.pair.server.as_str().into(),
        method: case.row.method.as_deref().map(Into::into),
    };
    let opened_ms = case.row.opened_unix_ms;
    let samples = collect(&cases, &id, &pair, opened_ms);
    let hosts = hosts(&cases, &id, &samples);
    let endpoints = endpoints(&cases, &samples, &hosts);
    let slices = slices(&cases, &id, &pair, &hosts, &windows(&samples, opened_ms), &endpoints).await;
    conclude(&cases, &id, &pair, slices).await;
}

/// Writes the spans of the calls in question.
fn collect(cases: &Cases, id: &str, pair: &PairKey, opened_ms: u64) -> Vec<Sample> {
    let since_unix_ns = opened_ms * 1_000_000 - LOOK_BACK_NS.min(opened_ms * 1_000_000);
    let samples = samples::of_pair(&cases.meter, pair, since_unix_ns);
    let slow = slow(&samples);
    let mut lacks = Vec::new();
    for (side, name) in SIDES.into_iter().enumerate() {
        let Some(document) = samples::document(&samples, side) else {
            lacks.push(format!("No spans of the {name} were held any more."));
            continue;
        };
        let written = cases.folder.write(id, &format!("{name}.spans.json"), document.to_string().as_bytes());
        if let Err(error) = written {
            cases.agents.count(|refused| refused.not_written += 1);
            lacks.push(format!("The spans of the {name} could not be written: {error}."));
        }
    }
    let first_end = samples[..slow].iter().map(|sample| sample.sides[0].end_unix_ns).min();
    let now_ms = now_unix_ms();
    cases.change(id, |case| {
        if let Some(end_ns) = first_end {
            case.time_line
                .push(moment(end_ns / 1_000_000, "the first of the slow calls ended, by its client's clock"));
        }
        case.time_line.push(moment(
            now_ms,
            format!("spans of {slow} slow and {} other calls taken", samples.len() - slow),
        ));
        case.time_line.sort_by_key(|moment| moment.unix_ms);
        case.row.slow_calls = slow as u64;
        case.lacks.extend(lacks);
    });
    samples
}

/// How many of them, from the first on, have gaps well beyond the median.
fn slow(samples: &[Sample]) -> usize {
    let median = samples.get(samples.len() / 2).map_or(0, |sample| sample.gap_ns);
    let slow = samples.iter().take_while(|sample| sample.gap_ns > 2 * median).count();
    // When most calls are slow, the largest half of them is.
    if slow == 0 { samples.len().div_ceil(2) } else { slow }
}

/// The stretch to ask for on either side, by the clock of its host.
fn windows(samples: &[Sample], opened_ms: u64) -> [(i64, i64); 2] {
    let slow = &samples[..slow(samples)];
    [0, 1].map(|side| {
        let sides = || slow.iter().map(|sample| &sample.sides[side]);
        let first = sides().map(|half| half.start_unix_ns as i64).min();
        let last = sides().map(|half| half.end_unix_ns as i64).max();
        let (Some(first), Some(last)) = (first, last) else {
            let now = (opened_ms * 1_000_000) as i64;
            return (now.saturating_sub(LONGEST_NS), now);
        };
        let to = last.saturating_add(AFTER_NS);
        ((first.saturating_sub(BEFORE_NS)).max(to.saturating_sub(LONGEST_NS)), to)
    })
}

/// Which agent either side has.
fn hosts(cases: &Cases, id: &str, samples: &[Sample]) -> [HostRow; 2] {
    let places = cases.agents.places(now_unix_ms());
    let mut loopback = false;
    let mut hosts = [0, 1].map(|side| {
        // Any of the calls whose spans decide it: not each of them names the peer.
        let mut found = HostRow { why_not: Some("no spans of it are held".into()), ..HostRow::default() };
        for sample in samples.iter().take(20) {
            let Some((resource, span)) = &sample.sides[side].whole else { continue };
            let mate = sample.sides[1 - side].whole.as_ref().map(|(_, span)| span);
            let facts = Facts::of(resource, span, mate);
            loopback |= facts.is_loopback();
            found = find(&facts, &places);
            if found.agent.is_some() {
                break;
            }
        }
        found
    });
    // Two ends of a loopback connection are on one host, and so is whoever has an agent in that network namespace.
    if loopback {
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
                *host = HostRow { agent: Some(place.id.clone()), rule: Some(rule.into()), why_not: None };
            }
        }
    }
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
    hosts
}

/// The servers' ends of the connections, as both hosts see them; none where an address is translated on the way, or where
/// that cannot be known: then all packets are asked for.
fn endpoints(cases: &Cases, samples: &[Sample], hosts: &[HostRow; 2]) -> Vec<Endpoint> {
    let places = cases.agents.places(now_unix_ms());
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

/// Asks both hosts at once. How many slices came.
async fn slices(
    cases: &Arc<Cases>,
    id: &str,
    pair: &PairKey,
    hosts: &[HostRow; 2],
    windows: &[(i64, i64); 2],
    endpoints: &[Endpoint],
) -> usize {
    let one = async |side: usize| {
        let Some(agent) = &hosts[side].agent else {
            let why = hosts[side].why_not.clone().unwrap_or_default();
            cases.change(id, |case| case.lacks.push(format!("No packets of the {}: {why}.", SIDES[side])));
            return 0;
        };
        let (from_unix_ns, to_unix_ns) = windows[side];
        let ask = Ask {
            from_unix_ns,
            to_unix_ns,
            endpoints: endpoints.to_vec(),
            max_bytes: cases.settings.slice_bytes,
            reason: format!("case {id}: {} -> {}", pair.client, pair.server),
            ..Ask::default()
        };
        let length = format_ns((to_unix_ns - from_unix_ns).unsigned_abs());
        cases.note(id, format!("asked {agent}, the {}'s host, for {length}", SIDES[side]));
        let slice =
            fetch(&cases.agents, &cases.folder, id, SIDES[side], agent, ask, cases.settings.slice_time).await;
        let now_ms = now_unix_ms();
        let (said, lacks, came) = match slice {
            Ok(slice) => {
                let lacks = slice.end.lacks.into_iter().take(20);
                let payload = crate::agents::payload_name(slice.end.payload);
                let mut lacks: Vec<String> = lacks
                    .map(|lack| format!("{}: {}", SIDES[side], lack.chars().take(300).collect::<String>()))
                    .collect();
                if payload == "full" {
                    lacks.push(format!("The packets of the {} have their payload.", SIDES[side]));
                }
                (format!("slice of the {} complete: {} bytes", SIDES[side], slice.bytes), lacks, 1)
            }
            Err(error) => {
                let said = format!("no slice of the {}: {error}", SIDES[side]);
                (said.clone(), vec![format!("{said}.")], 0)
            }
        };
        cases.change(id, |case| {
            case.time_line.push(moment(now_ms, said));
            case.lacks.extend(lacks);
        });
        came
    };
    if hosts[0].agent.is_some() && hosts[0].agent == hosts[1].agent {
        return one(0).await;
    }
    let (client, server) = tokio::join!(one(0), one(1));
    client + server
}

/// The verdict, from what is in the folder.
async fn conclude(cases: &Arc<Cases>, id: &str, pair: &PairKey, slices: usize) {
    let judged = match slices {
        0 => Err("No host sent packets: what passed on the wire is unknown.".to_owned()),
        _ => match cases.judge.judge(&cases.folder.of(id)).await {
            Ok(hunt) if hunt.coverage.captured == 0 => {
                Err("No verdict: there is no call in the packets that hosts sent.".to_owned())
            }
            Ok(hunt) => Ok(hunt),
            Err(error) => {
                cases.agents.count(|refused| refused.verdicts += 1);
                Err(format!("No verdict: {error}."))
            }
        },
    };
    let [usual, before] = cases.rows(pair, now_unix_ms());
    let document = judged.as_ref().ok().and_then(|hunt| serde_json::to_vec_pretty(hunt).ok());
    if let Some(document) = document
        && cases.folder.write(id, HUNT, &document).is_err()
    {
        cases.agents.count(|refused| refused.not_written += 1);
    }
    let now_ms = now_unix_ms();
    cases.change(id, |case| {
        case.usual = usual;
        case.before = before;
        match judged {
            Ok(hunt) => {
                let row = verdict::row(&hunt);
                case.time_line.push(moment(now_ms, format!("verdict: {}", row.words)));
                case.row.excess_ns = Some(hunt.excess.mean_ns);
                case.row.state = if verdict::is_explained(&hunt) { State::Explained } else { State::Unknown };
                case.row.verdict = Some(row);
            }
            Err(why) => {
                case.time_line.push(moment(now_ms, why.clone()));
                case.lacks.push(why);
                case.row.state = State::Unknown;
            }
        }
    });
}

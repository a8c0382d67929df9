//! The course of one case: its calls, their hosts, slices from both, the verdict.

use crate::agents::Place;
use crate::cases::{CLOSELY, Cases, moment};
use crate::experiment::plan::port_of;
use crate::folder::HUNT;
use crate::hosts::{Facts, find, server_endpoint};
use crate::report::{CaseReport, HostRow, State};
use crate::samples::{self, Measure, Sample};
use crate::server::now_unix_ms;
use crate::slices::fetch;
use crate::verdict;
use crate::whose::find_missing;
use spangap_fleet::v1::{Ask, Endpoint};
use spangap_model::PairKey;
use spangap_model::count::grouped;
use spangap_model::duration::format_ns;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

/// Calls that began earlier before the case, by the meter's clock, are another story, nanoseconds.
pub(crate) const LOOK_BACK_NS: u64 = 25_000_000_000;
/// A slice begins so long before the first slow call, and ends so long after the last one, nanoseconds.
const BEFORE_NS: i64 = 2_000_000_000;
const AFTER_NS: i64 = 1_000_000_000;
/// And is at most this long: the last slow calls count most.
const LONGEST_NS: i64 = 15_000_000_000;
/// What a ring may have lost by the time it is asked, nanoseconds.
const RING_MOVES_NS: i64 = 2_000_000_000;
/// The same where every call in it has its spans, nanoseconds: a call beside them would have none.
const AROUND_NS: i64 = 50_000_000;
/// Such a stretch has at least so many calls of a connection, and this length, nanoseconds.
const LEAST_KEPT: u64 = 100;
const LEAST_KEPT_NS: u64 = 1_500_000_000;
/// Slow calls, other calls, and calls of a connection in a stretch that is known by spans.
const LEAST_OF_EACH: u64 = 20;
/// Servers behind one name that are asked for one by one.
const MOST_ENDPOINTS: usize = 32;
/// Hosts that are looked for among the agents, as spans name them; more go by no agent.
const MOST_HOSTS: usize = 512;
/// Names of the sides, by their number.
const SIDES: [&str; 2] = ["client", "server"];

/// Which calls are slow.
#[derive(Clone, Copy, Debug)]
struct By {
    measure: Measure,
    /// Those that took longer than this are, if that is known, nanoseconds.
    over_ns: Option<u64>,
}

/// From an open case to its verdict.
pub async fn pursue(cases: Arc<Cases>, id: String) {
    let Some(case) = cases.case(&id) else { return };
    let pair = PairKey {
        client: case.row.pair.client.as_str().into(),
        server: case.row.pair.server.as_str().into(),
        method: case.row.method.as_deref().map(Into::into),
    };
    let opened_ms = case.row.opened_unix_ms;
    // Who asks for a case says no level: what is beyond nearly all that is usual is slow.
    let over_ns = case.slow_over_ns.or_else(|| {
        let [usual, _] = cases.rows(&pair, &case).ok()?;
        Some(usual.client_duration.p99_ns)
    });
    let by = By { measure: case.slow_by, over_ns };
    let all = collect(&cases, &id, &pair, opened_ms, by);
    let samples = of_worst_hosts(&cases, &id, all, by);
    let kept = cases.kept_since(&pair).and_then(|since_ms| {
        let kept = samples::all_kept(&cases.meter, &pair, since_ms * 1_000_000, CLOSELY)?;
        let why = "calls share connections";
        let shared = shared(&samples, kept.clone()).map(|kept| (kept, why));
        shared.or_else(|| Some((known_by_spans(&samples, kept, by)?, "the time is the server's own")))
    });
    let kept = kept.map(|(kept, why)| {
        let length = format_ns(kept.end - kept.start);
        cases.note(&id, format!("{why}: only {length} are requested, in which every call has its spans"));
        // Of calls outside of it there will be no packets, and they are not in question.
        let inside =
            samples.iter().filter(|sample| (kept.start..=kept.end).contains(&sample.sides[0].start_unix_ns));
        let lacks = write_spans(&cases, &id, &inside.cloned().collect::<Vec<_>>());
        cases.change(&id, |case| {
            let new: Vec<String> = lacks.into_iter().filter(|lack| !case.lacks.contains(lack)).collect();
            case.lacks.extend(new);
        });
        kept
    });
    let mut hosts = hosts(&cases, &samples);
    let around = windows(&samples, opened_ms, by, [None, None]);
    find_missing(&cases, &id, &samples, &mut hosts, &around).await;
    tell_hosts(&cases, &id, &samples, &hosts);
    let ends = ends(&cases, &samples, &hosts);
    let windows = match kept {
        Some(kept) => windows_of(&samples, &kept),
        None => {
            let reach = [0, 1].map(|side: usize| {
                cases
                    .agents
                    .packets_from_unix_ns(hosts[side].agent.as_deref()?)
                    .map(|from| from + RING_MOVES_NS)
            });
            windows(&samples, opened_ms, by, reach)
        }
    };
    drop(samples);
    let slices = slices(&cases, &id, &pair, &hosts, &windows, &ends).await;
    conclude(&cases, &case, &pair, slices).await;
}

/// Writes the spans of the calls in question.
fn collect(cases: &Cases, id: &str, pair: &PairKey, opened_ms: u64, by: By) -> Vec<Sample> {
    let since_unix_ns = opened_ms * 1_000_000 - LOOK_BACK_NS.min(opened_ms * 1_000_000);
    let samples = samples::of_pair(&cases.meter, pair, since_unix_ns, by.measure);
    let slow = slow(&samples, by);
    let lacks = write_spans(cases, id, &samples);
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

/// Writes the spans of these calls, in place of those that are there. What that lacks, in sentences.
fn write_spans(cases: &Cases, id: &str, samples: &[Sample]) -> Vec<String> {
    let mut lacks = Vec::new();
    for (side, name) in SIDES.into_iter().enumerate() {
        let Some(document) = samples::document(samples, side) else {
            lacks.push(format!("The spans of the {name} were no longer held."));
            continue;
        };
        let written = cases.folder.write_json(id, &format!("{name}.spans.json"), &document);
        if let Err(error) = written {
            cases.agents.count(|refused| refused.not_written += 1);
            lacks.push(format!("The spans of the {name} could not be written: {error}."));
        }
    }
    lacks
}

/// Those between the two hosts whose slow calls took the most together: a case has packets of one pair of hosts. Hosts with an agent
/// count twice as much as those without. The rest are in the folder with their spans.
fn of_worst_hosts(cases: &Cases, id: &str, samples: Vec<Sample>, by: By) -> Vec<Sample> {
    let places = cases.agents.places(now_unix_ms());
    let mut agents = HashMap::<Facts, Option<String>>::new();
    let mut agent = |sample: &Sample, side: usize| {
        let (resource, span) = sample.sides[side].whole.as_ref()?;
        let mate = sample.sides[1 - side].whole.as_ref().map(|(_, span)| span);
        let facts = Facts::of(resource, span, mate);
        if agents.len() >= MOST_HOSTS && !agents.contains_key(&facts) {
            return None;
        }
        agents.entry(facts).or_insert_with_key(|facts| find(facts, &places).agent).clone()
    };
    let between: Vec<[Option<String>; 2]> =
        samples.iter().map(|sample| [agent(sample, 0), agent(sample, 1)]).collect();
    let slow = slow(&samples, by);
    let mut lost = BTreeMap::<&[Option<String>; 2], (u64, usize)>::new();
    for (sample, between) in samples[..slow].iter().zip(&between) {
        let (ns, calls) = lost.entry(between).or_default();
        (*ns, *calls) = (ns.saturating_add(sample.took_ns(by.measure)), *calls + 1);
    }
    let pairs = lost.len();
    let weight = |hosts: &[Option<String>; 2], ns: u64| {
        ns.saturating_mul(hosts.iter().filter(|host| host.is_some()).count() as u64)
    };
    let worst = lost.into_iter().max_by_key(|(hosts, (ns, _))| weight(hosts, *ns));
    let Some((worst, (_, calls))) = worst.filter(|_| pairs > 1) else { return samples };
    cases.note(
        id,
        format!(
            "the slow calls passed between {pairs} pairs of hosts: packets are requested from the pair that lost \
             the most, {calls} of {slow}"
        ),
    );
    samples
        .iter()
        .zip(&between)
        .filter(|(_, hosts)| *hosts == worst)
        .map(|(sample, _)| sample.clone())
        .collect()
}

/// How many of them, from the first on, took well more than the median, or more than what is known to be slow: where most calls
/// are, those beyond twice their median are the outliers among them, and may be from before.
fn slow(samples: &[Sample], by: By) -> usize {
    let median = samples.get(samples.len() / 2).map_or(0, |sample| sample.took_ns(by.measure));
    let level = by.over_ns.unwrap_or(u64::MAX).min(2 * median);
    let slow = samples.iter().take_while(|sample| sample.took_ns(by.measure) > level).count();
    // When all calls are slow, the largest half of them is.
    if slow == 0 || slow == samples.len() { samples.len().div_ceil(2) } else { slow }
}

/// The stretch to ask for on either side, by the clock of its host: around the slow calls that are still in the rings of both, which
/// reach back to `reach`; where none is, around the calls that are.
fn windows(samples: &[Sample], opened_ms: u64, by: By, reach: [Option<i64>; 2]) -> [(i64, i64); 2] {
    let is_held = |sample: &&Sample| {
        let begins = |side: usize| i64::try_from(sample.sides[side].start_unix_ns).unwrap_or(i64::MAX);
        [0, 1].into_iter().all(|side| reach[side].is_none_or(|from| begins(side) >= from))
    };
    let slow = &samples[..slow(samples, by)];
    let mut chosen: Vec<&Sample> = slow.iter().filter(is_held).collect();
    if chosen.is_empty() {
        chosen = samples.iter().filter(is_held).collect();
    }
    if chosen.is_empty() {
        chosen = slow.iter().collect();
    }
    [0, 1].map(|side| {
        let sides = || chosen.iter().map(|sample| &sample.sides[side]);
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

/// The part of a stretch in which the spans of all calls are there, if some connection has several calls under way at a time. Why
/// they wait for each other shows in neighbours, and a call without spans beside them would be taken for a quick one.
fn shared(samples: &[Sample], kept: Range<u64>) -> Option<Range<u64>> {
    let mut by_connection = BTreeMap::<Option<u64>, (u64, u64, u64)>::new();
    for sample in samples {
        let began = sample.sides[0].start_unix_ns;
        if (kept.start..=kept.end).contains(&began) {
            let (calls, ns, last) = by_connection.entry(port_of(sample)).or_default();
            *calls += 1;
            *ns += sample.took_ns(Measure::ClientDuration);
            *last = began.max(*last);
        }
    }
    let length_ns = kept.end - kept.start;
    let several = |(calls, ns, _): &&(u64, u64, u64)| *calls >= LEAST_KEPT && *ns >= 2 * length_ns;
    // Each client sends its spans at a time of its own: of the last seconds, those of some are missing.
    let end = by_connection.values().filter(several).map(|(_, _, last)| *last).min()?;
    (end - kept.start >= LEAST_KEPT_NS).then_some(kept.start..end)
}

/// The part of a stretch in which the spans of all calls are there, if the calls are slow by what their client waited and not by
/// their gap, so that the server took the time: spans alone tell what a server did. A slow call without them counts as unexplained.
/// `None` where the stretch has too few slow or too few other calls.
fn known_by_spans(samples: &[Sample], kept: Range<u64>, by: By) -> Option<Range<u64>> {
    if by.measure != Measure::ClientDuration {
        return None;
    }
    // Whoever asks for a case goes by what the client waited, whoever took the time.
    let slow_calls = &samples[..slow(samples, by)];
    let total = |ns: fn(&Sample) -> u64| slow_calls.iter().map(|call| u128::from(ns(call))).sum::<u128>();
    if 2 * total(|call| call.gap_ns) > total(|call| call.took_ns(Measure::ClientDuration)) {
        return None;
    }
    // Each client sends its spans at a time of its own.
    let mut of_connection = BTreeMap::<Option<u64>, (u64, u64)>::new();
    for sample in samples {
        let began = sample.sides[0].start_unix_ns;
        if (kept.start..=kept.end).contains(&began) {
            let (calls, last) = of_connection.entry(port_of(sample)).or_default();
            (*calls, *last) = (*calls + 1, began.max(*last));
        }
    }
    let end =
        of_connection.values().filter(|(calls, _)| *calls >= LEAST_OF_EACH).map(|(_, last)| *last).min()?;
    let in_it = |sample: &&Sample| (kept.start..=end).contains(&sample.sides[0].start_unix_ns);
    let others = &samples[slow_calls.len()..];
    let is_enough =
        [slow_calls, others].iter().all(|some| some.iter().filter(in_it).count() as u64 >= LEAST_OF_EACH);
    (is_enough && end >= kept.start + LEAST_KEPT_NS).then_some(kept.start..end)
}

/// The stretch in which these calls began, by the clock of either host.
fn windows_of(samples: &[Sample], kept: &Range<u64>) -> [(i64, i64); 2] {
    [0, 1].map(|side| {
        let of_kept =
            samples.iter().filter(|sample| (kept.start..=kept.end).contains(&sample.sides[0].start_unix_ns));
        let sides = of_kept.map(|sample| &sample.sides[side]);
        let first = sides.clone().map(|half| half.start_unix_ns as i64).min().unwrap_or(0);
        let last = sides.map(|half| half.end_unix_ns as i64).max().unwrap_or(0);
        ((first - AROUND_NS).max(last - LONGEST_NS), last + AROUND_NS)
    })
}

/// Which agent either side has.
fn hosts(cases: &Cases, samples: &[Sample]) -> [HostRow; 2] {
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
    hosts
}

/// Which agents they are, in the case.
fn tell_hosts(cases: &Cases, id: &str, samples: &[Sample], hosts: &[HostRow; 2]) {
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
struct Ends {
    /// Client and server.
    sides: [Vec<Endpoint>; 2],
    /// The agent of a proxy's host between them, and what is asked of it.
    proxy: Option<(String, Vec<Endpoint>)>,
}

fn ends(cases: &Cases, samples: &[Sample], hosts: &[HostRow; 2]) -> Ends {
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

/// Asks both hosts at once, and that of a proxy between them if the budget allows it. How many slices of the two came.
async fn slices(
    cases: &Arc<Cases>,
    id: &str,
    pair: &PairKey,
    hosts: &[HostRow; 2],
    windows: &[(i64, i64); 2],
    ends: &Ends,
) -> usize {
    let one = async |side: usize| {
        let Some(agent) = &hosts[side].agent else {
            let why = hosts[side].why_not.clone().unwrap_or_default();
            cases.change(id, |case| case.lacks.push(format!("No packets of the {}: {why}.", SIDES[side])));
            return 0;
        };
        of_host(cases, id, pair, (SIDES[side], agent), windows[side], &ends.sides[side]).await
    };
    if hosts[0].agent.is_some() && hosts[0].agent == hosts[1].agent {
        return one(0).await;
    }
    let proxy = async {
        let Some((agent, ends)) = &ends.proxy else { return };
        if !cases.may_ask(1) {
            let lack = "No packets of the proxy's host: the slices of this minute are used up.";
            return cases.change(id, |case| case.lacks.push(lack.into()));
        }
        // Its spans are none of these, and do not say how its clock stands to that of the client.
        of_host(cases, id, pair, ("proxy", agent), windows[0], ends).await;
    };
    let (client, server, ()) = tokio::join!(one(0), one(1), proxy);
    client + server
}

/// Asks one host, and writes its slice. Whether it came.
async fn of_host(
    cases: &Arc<Cases>,
    id: &str,
    pair: &PairKey,
    (of, agent): (&str, &str),
    (from_unix_ns, to_unix_ns): (i64, i64),
    endpoints: &[Endpoint],
) -> usize {
    let ask = Ask {
        from_unix_ns,
        to_unix_ns,
        endpoints: endpoints.to_vec(),
        max_bytes: cases.settings.slice_bytes,
        reason: format!("case {id}: {} -> {}", pair.client, pair.server),
        ..Ask::default()
    };
    let length = format_ns((to_unix_ns - from_unix_ns).unsigned_abs());
    cases.note(id, format!("asked the {of}'s host for {length} of packets and events (agent {agent})"));
    let slice = fetch(&cases.agents, &cases.folder, id, of, agent, ask, cases.settings.slice_time).await;
    let now_ms = now_unix_ms();
    let (said, lacks, came) = match slice {
        Ok(slice) => {
            let lacks = slice.end.lacks.into_iter().take(20);
            let payload = crate::agents::payload_name(slice.end.payload);
            let mut lacks: Vec<String> =
                lacks.map(|lack| format!("{of}: {}", lack.chars().take(300).collect::<String>())).collect();
            if payload == "full" {
                lacks.push(format!("The packets of the {of} have their payload."));
            }
            (format!("slice of the {of} complete: {} bytes", grouped(slice.bytes)), lacks, 1)
        }
        Err(error) => {
            let said = format!("no slice of the {of}: {error}");
            (said.clone(), vec![format!("{said}.")], 0)
        }
    };
    cases.change(id, |case| {
        case.time_line.push(moment(now_ms, said));
        case.lacks.extend(lacks);
    });
    came
}

/// The verdict, from what is in the folder.
async fn conclude(cases: &Arc<Cases>, case: &CaseReport, pair: &PairKey, slices: usize) {
    let id = case.row.id.as_str();
    let judged = match slices {
        0 => Err("No host sent packets: what passed on the wire is unknown.".to_owned()),
        _ => match cases.judge.judge(&cases.folder.of(id)).await {
            Ok(hunt) if hunt.coverage.captured == 0 => {
                Err("No verdict: the packets that hosts sent contain no call.".to_owned())
            }
            Ok(hunt) => Ok(hunt),
            Err(error) => {
                cases.agents.count(|refused| refused.verdicts += 1);
                Err(format!("No verdict: {error}."))
            }
        },
    };
    let rows = cases.rows(pair, case);
    let document = judged.as_ref().ok().and_then(|hunt| serde_json::to_vec_pretty(hunt).ok());
    if let Some(document) = document
        && cases.folder.write(id, HUNT, &document).is_err()
    {
        cases.agents.count(|refused| refused.not_written += 1);
    }
    let now_ms = now_unix_ms();
    cases.change(id, |case| {
        match rows {
            Ok([usual, before]) => (case.usual, case.before) = (Some(usual), Some(before)),
            Err(why) => case.lacks.push(format!("How long these calls usually take is unknown: {why}.")),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::Half;
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use opentelemetry_proto::tonic::trace::v1::Span;

    const MS: u64 = 1_000_000;
    const GAP: By = By { measure: Measure::Gap, over_ns: None };

    /// A call of a client's port, from one millisecond to another one.
    fn call(port: i64, from_ms: u64, to_ms: u64) -> Sample {
        use opentelemetry_proto::tonic::common::v1::KeyValue;
        let value = call_port(port);
        let attributes = vec![KeyValue { key: "network.local.port".into(), value, ..KeyValue::default() }];
        let span = Span { attributes, ..Span::default() };
        let (start_unix_ns, end_unix_ns) = (from_ms * MS, to_ms * MS);
        let half = Half { start_unix_ns, end_unix_ns, whole: Some((Resource::default(), span)) };
        Sample { gap_ns: end_unix_ns - start_unix_ns, sides: [half.clone(), half] }
    }

    #[test]
    fn calls_that_share_a_connection_are_asked_for_where_all_have_their_spans() {
        // Eight at a time on one connection, each for 64 ms; another client calls now and then, and sends its spans later.
        let busy = |until_ms: u64| (0..until_ms / 8).map(|n| call(1, 8 * n, 8 * n + 64));
        let rare = (0..40).map(|n| call(2, 50 * n, 50 * n + 10));
        let samples: Vec<Sample> = busy(4_000).chain(rare.clone()).collect();
        let kept = shared(&samples, 500 * MS..3_992 * MS).expect("they wait for each other");
        assert_eq!(kept, 500 * MS..3_992 * MS);
        let windows = windows_of(&samples, &kept);
        assert_eq!(windows[0], windows[1]);
        assert_eq!(windows[0], ((500 - 50) * MS as i64, (3_992 + 64 + 50) * MS as i64));
        // The spans of a second busy connection have come up to an earlier moment.
        let second = busy(3_000).map(|mut call| {
            call.sides.iter_mut().for_each(|half| {
                if let Some((_, span)) = &mut half.whole {
                    span.attributes[0].value = call_port(3);
                }
            });
            call
        });
        let both: Vec<Sample> = samples.iter().cloned().chain(second).collect();
        assert_eq!(shared(&both, 500 * MS..3_992 * MS), Some(500 * MS..2_992 * MS));
        // One at a time, or for too short a time, nobody waits for anybody.
        let alone: Vec<Sample> = (0..400).map(|n| call(1, 10 * n, 10 * n + 9)).collect();
        assert_eq!(shared(&alone, 0..3_990 * MS), None);
        assert_eq!(shared(&samples, 3_000 * MS..3_992 * MS), None);
        assert_eq!(shared(&rare.collect::<Vec<_>>(), 0..2_000 * MS), None);
    }

    /// A third of the calls takes the server 60 ms. All spans are there from the second second on, those of another client up to the
    /// fourth.
    #[test]
    fn where_the_server_takes_the_time_every_call_has_its_spans() {
        let long = call(1, 0, 30).sides[0].end_unix_ns;
        let both = [(1, 6_000), (2, 4_000)].into_iter().flat_map(|(port, until_ms)| {
            (0..until_ms / 20).map(move |n| call(port, 20 * n, 20 * n + if n % 3 == 0 { 60 } else { 2 }))
        });
        // The server's span is as long as the client's.
        let mut samples: Vec<Sample> = both.map(|call| Sample { gap_ns: 0, ..call }).collect();
        samples.sort_by_key(|sample| std::cmp::Reverse(sample.took_ns(Measure::ClientDuration)));
        let by = By { measure: Measure::ClientDuration, over_ns: Some(long) };
        let kept = 2_000 * MS..5_980 * MS;
        assert_eq!(known_by_spans(&samples, kept.clone(), by), Some(2_000 * MS..3_980 * MS));
        // Packets tell where else time goes; one second is too short; and there must be both kinds of calls.
        assert_eq!(known_by_spans(&samples, kept.clone(), By { measure: Measure::Gap, ..by }), None);
        assert_eq!(known_by_spans(&samples, 3_000 * MS..5_980 * MS, by), None);
        // As long for the client, and most of it is outside of the server's span: its client was stopped, or its event loop was busy.
        let outside: Vec<Sample> = samples
            .iter()
            .map(|one| Sample { gap_ns: 3 * one.took_ns(Measure::ClientDuration) / 4, ..one.clone() })
            .collect();
        assert_eq!(known_by_spans(&outside, kept.clone(), by), None);
        let slow = samples.partition_point(|sample| sample.took_ns(Measure::ClientDuration) > long);
        assert_eq!(known_by_spans(&samples[..slow + 10], kept, by), None);
    }

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

    #[test]
    fn where_most_calls_are_slow_the_outliers_from_before_are_not_all_of_them() {
        // Two pauses of the machine; then every call takes up to 40 ms, and not 1 ms as before.
        let pauses = [10_000, 10_500].map(|at_ms| call(1, at_ms, at_ms + 100));
        let usual = (0..100).map(|n| call(1, 10_000 + 25 * n, 10_001 + 25 * n));
        let fault = (0..200).map(|n| call(1, 20_000 + 25 * n, 20_005 + 25 * n + n % 36));
        let mut samples: Vec<Sample> = pauses.into_iter().chain(usual).chain(fault).collect();
        samples.sort_by_key(|sample| std::cmp::Reverse(sample.gap_ns));
        let asked = |over_ns: Option<u64>| {
            let by = By { over_ns, ..GAP };
            let [(_, to), _] = windows(&samples, 30_000, by, [None, None]);
            (slow(&samples, by), to / MS as i64)
        };
        assert_eq!(asked(Some(4 * MS)).0, 202);
        assert!(
            asked(Some(4 * MS)).1 > 24_900,
            "the fault is in what is asked for: {:?}",
            asked(Some(4 * MS))
        );
        // Whatever is said to be slow, twice the median is; and where all calls are, the largest half of them.
        assert_eq!(asked(Some(u64::MAX)), asked(None));
        assert_eq!(asked(Some(0)).0, samples.len().div_ceil(2));
    }

    #[test]
    fn slow_calls_that_no_ring_holds_any_more_are_not_asked_for() {
        let slow = [10_000, 11_000, 40_000].map(|at_ms| call(1, at_ms, at_ms + 500));
        let quick = (0..400).map(|n| call(1, 100 * n, 100 * n + 1));
        let samples: Vec<Sample> = slow.into_iter().chain(quick).collect();
        let asked = |reach: [Option<i64>; 2]| {
            windows(&samples, 60_000, GAP, reach).map(|(from, to)| (from / MS as i64, to / MS as i64))
        };
        let ms = |at_ms: i64| Some(at_ms * MS as i64);
        assert_eq!(asked([None, None]), [(26_500, 41_500); 2], "the last one");
        assert_eq!(asked([ms(10_500), None]), [(26_500, 41_500); 2]);
        assert_eq!(asked([ms(10_500), ms(20_000)]), [(38_000, 41_500); 2], "one alone is held by both");
        assert_eq!(asked([ms(39_000), ms(40_100)]), [(26_500, 41_500); 2], "none of any kind is");
        // The slow ones are gone, and what goes on now is looked at instead.
        let early: Vec<Sample> = samples[..2].iter().chain(&samples[3..]).cloned().collect();
        let (from, to) = windows(&early, 60_000, GAP, [ms(30_000), None])[0];
        assert_eq!((from, to), (28_000 * MS as i64, 40_901 * MS as i64));
    }

    fn call_port(port: i64) -> Option<opentelemetry_proto::tonic::common::v1::AnyValue> {
        use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value::Value};
        Some(AnyValue { value: Some(Value::IntValue(port)) })
    }
}

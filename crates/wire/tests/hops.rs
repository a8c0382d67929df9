//! Calls through real proxies (nginx, haproxy), captured at every end: each call's path over the proxy is
//! compared with the servers' logs, which dissect never reads.
//!
//! For each request, a server logs the port that the proxy called from. On one connection, calls come one
//! after the other, so the n-th exchange of a connection is the n-th line of its log.

use serde_json::Value;
use spangap_model::Cause;
use spangap_model::evidence::Certainty;
use spangap_wire::call::Call;
use spangap_wire::dissect::{Dissection, Settings, dissect};
use spangap_wire::hops::{HopTotals, LinkedBy};
use spangap_wire::report::{DissectPage, DissectReport, Extras, table};
use spangap_wire::source::Capture;
use spangap_wire::spans::Spans;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/proxies"))
}

fn file(name: &str, end: &str) -> PathBuf {
    folder().join(format!("{name}.{end}.pcapng.zst"))
}

fn truth(name: &str) -> Value {
    let text = std::fs::read_to_string(folder().join(format!("{name}.json"))).expect("the fixture is there");
    serde_json::from_str(&text).expect("JSON")
}

fn names() -> Vec<String> {
    let files = std::fs::read_dir(folder()).expect("the fixtures are there");
    let names =
        files.filter_map(|file| Some(file.ok()?.file_name().to_str()?.strip_suffix(".json")?.to_owned()));
    // Fixtures with two proxies have a test of their own.
    let names: BTreeSet<String> = names.filter(|name| truth(name)["expected"]["proxies"] != 2).collect();
    assert!(names.len() >= 9, "{names:?}");
    names.into_iter().collect()
}

fn run(files: &[PathBuf], names: &[Option<&str>]) -> Dissection {
    let captures = files.iter().map(|file| Capture::open(file).expect("a capture")).collect();
    let names = names.iter().map(|name| name.map(str::to_owned)).collect();
    let settings = Settings { slowest: 10_000, names, ..Settings::default() };
    dissect(captures, &settings, &mut |_| ControlFlow::Continue(())).expect("files can be read twice")
}

/// Both ends of both links, with names as a user would give them.
fn all_four(name: &str) -> Dissection {
    let files = ["client", "in", "out", "server"].map(|end| file(name, end));
    run(&files, &[None, Some("proxy"), Some("proxy"), None])
}

fn hops(dissection: &Dissection) -> &HopTotals {
    dissection.hops.as_ref().expect("there is a proxy")
}

/// The client's and the server's port of a call's connection.
fn ports(dissection: &Dissection, call: &Call) -> (u16, u16) {
    let number = call.connection;
    let connection = dissection.connections.iter().find(|connection| connection.number == number);
    let facts =
        connection.and_then(|connection| connection.seen.iter().flatten().next()).expect("its connection");
    (facts.ends[0].port, facts.ends[1].port)
}

/// Checks that legs over all hops sum to the call, and all calls to the totals.
fn adds_up(name: &str, dissection: &Dissection) {
    let linked: Vec<&Call> = dissection.calls.iter().filter(|call| !call.hops.is_empty()).collect();
    for call in &linked {
        let sum: i64 = call.path.iter().map(|leg| leg.ns).sum();
        assert_eq!(sum, call.duration_ns as i64, "{name}: {:?}", call.path);
        let own: i64 = call.legs.iter().map(|leg| leg.ns).sum();
        assert_eq!(own, call.duration_ns as i64, "{name}");
    }
    assert_eq!(dissection.sums.calls, dissection.calls.len() as u64, "{name}: a hop counts as a call");
    let Some(hops) = &dissection.hops else { return };
    assert_eq!(hops.calls, linked.len() as u64, "{name}");
    let total: i64 = hops.legs.iter().map(|leg| leg.sum.total_ns).sum();
    assert_eq!(i128::from(total), hops.total_ns as i128, "{name}: {:#?}", hops.legs);
    fn attempts(call: &Call) -> usize {
        call.hops.iter().map(|hop| 1 + attempts(&hop.call)).sum()
    }
    let attempts: usize = linked.iter().map(|call| attempts(call)).sum();
    assert_eq!(hops.links.iter().sum::<u64>(), attempts as u64, "{name}");
}

/// Checks that every link is to the call that the server logged; returns how many calls are linked.
fn links_are_true(name: &str, dissection: &Dissection) -> usize {
    let about = truth(name);
    let calls = about["calls"].as_array().expect("calls");
    // Numbers of the calls in order, by the server's and the proxy's port.
    let mut logged: BTreeMap<(u16, u16), Vec<u64>> = BTreeMap::new();
    for call in calls {
        for attempt in call["attempts"].as_array().into_iter().flatten() {
            let port = |key: &str| attempt[key].as_u64().expect("a port") as u16;
            let of = logged.entry((port("peer"), port("port"))).or_default();
            of.push(call["call"].as_u64().expect("a number"));
        }
    }
    let mut workers: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    // Every connection of a client has equally many calls.
    let each = calls.len() as u64 / connections_of_clients(dissection).max(1);
    let mut linked = 0;
    for call in dissection.calls.iter().filter(|call| !call.hops.is_empty()) {
        linked += 1;
        let place = u64::from(call.halves.exchanges.iter().flatten().next().expect("a half").stream_id);
        for hop in &call.hops {
            if about["expected"]["ids"] == false {
                // One call at a time needs one connection, so its place is the same on both.
                let inner = hop.call.halves.exchanges.iter().flatten().next().expect("a half").stream_id;
                assert!(name != "nginx-plain" || u64::from(inner) == place, "{name}: {inner} for {place}");
                continue;
            }
            let nth = hop.call.halves.exchanges.iter().flatten().next().expect("a half").stream_id as usize;
            let of = logged
                .get(&ports(dissection, &hop.call))
                .unwrap_or_else(|| panic!("{name}: no such connection"));
            let mut of = of.clone();
            // The log is sorted by call, and the calls of one connection follow the order of its exchanges
            // only if sorted by time; workers alternate, too. Where there is a trace id, it is more precise.
            if let Some(trace) = hop.call.halves.exchanges.iter().flatten().find_map(|half| half.trace) {
                let number = u128::from_be_bytes(trace.trace_id) as u64 - 0xabc000;
                assert!(of.contains(&number), "{name}: call {number} did not take that connection");
                assert_eq!((number - 1) % each + 1, place, "{name}");
                workers.entry(call.connection).or_default().insert((number - 1) / each);
                continue;
            }
            of.sort_unstable();
            assert!(nth <= of.len(), "{name}");
            assert!(of.iter().any(|number| (number - 1) % each + 1 == place), "{name}: {place} of {of:?}");
        }
    }
    assert!(workers.values().all(|of| of.len() == 1), "{name}: {workers:?}");
    linked
}

fn connections_of_clients(dissection: &Dissection) -> u64 {
    let linked = dissection.calls.iter().filter(|call| !call.hops.is_empty());
    let of: BTreeSet<u32> = linked.map(|call| call.connection).collect();
    of.len() as u64
}

#[test]
fn every_call_takes_the_way_that_the_servers_logged() {
    for name in names() {
        let about = truth(&name);
        let dissection = all_four(&name);
        adds_up(&name, &dissection);
        let expected = &about["expected"];
        let calls = about["calls"].as_array().map_or(0, Vec::len);
        let linked = match calls {
            0 => hops(&dissection).calls as usize,
            _ => links_are_true(&name, &dissection),
        };
        println!("{name}: {linked} linked of {calls}, {:?}", hops(&dissection).links);
        if let Some(wanted) = expected["linked"].as_u64() {
            let exactly = calls > 0;
            assert!(linked as u64 == wanted || (!exactly && linked as u64 >= wanted / 2), "{name}: {linked}");
            let by = LinkedBy::ALL.iter().position(|by| expected["by"] == by.name()).expect("a way to link");
            let others = hops(&dissection).links.iter().enumerate().filter(|(place, _)| *place != by);
            // If tank makes the calls, there are also its own queries, which carry no id.
            assert!(!exactly || others.map(|(_, links)| links).sum::<u64>() == 0, "{name}");
        }
        assert!(dissection.warnings.is_empty(), "{name}: {:?}", dissection.warnings);
        // The time within a proxy lies between taps of one clock, so it is exact up to the clock's
        // resolution.
        for leg in dissection.calls.iter().flat_map(|call| &call.path) {
            assert!(leg.bound_ns < 20_000_000, "{name}: {leg:?}");
        }
    }
}

/// Both ends of all three links in a chain of proxies.
const CHAIN: [(&str, Option<&str>); 6] = [
    ("client", None),
    ("in", Some("proxy")),
    ("out", Some("proxy")),
    ("in2", Some("second")),
    ("out2", Some("second")),
    ("server", None),
];

#[test]
fn calls_through_two_proxies_take_the_way_that_the_server_logged() {
    for (name, by) in [("nginx-nginx", LinkedBy::TraceContext), ("haproxy-nginx", LinkedBy::RequestId)] {
        let about = truth(name);
        let dissection = run(&CHAIN.map(|(end, _)| file(name, end)), &CHAIN.map(|(_, host)| host));
        adds_up(name, &dissection);
        let calls = about["calls"].as_array().expect("calls");
        assert_eq!(dissection.sums.calls, calls.len() as u64, "{name}: a hop counts as a call");
        // The proxy's and the server's port, for each request that the server logged, and for each innermost
        // hop.
        let (mut logged, mut found) = (BTreeMap::new(), BTreeMap::new());
        for attempt in calls.iter().flat_map(|call| call["attempts"].as_array().expect("attempts")) {
            let port = |key: &str| attempt[key].as_u64().expect("a port") as u16;
            *logged.entry((port("peer"), port("port"))).or_insert(0) += 1;
        }
        for call in &dissection.calls {
            let [first] = &call.hops[..] else { panic!("{name}: {} hops", call.hops.len()) };
            let [second] = &first.call.hops[..] else { panic!("{name}: {} hops", first.call.hops.len()) };
            assert_eq!((first.by, second.by, second.call.hops.len()), (by, by, 0), "{name}");
            *found.entry(ports(&dissection, &second.call)).or_insert(0) += 1;
            let trace = |call: &Call| call.halves.exchanges.iter().flatten().find_map(|half| half.trace);
            assert_eq!(trace(call), trace(&second.call), "{name}");
            if let Some(trace) = trace(call) {
                let number = u128::from_be_bytes(trace.trace_id) as u64 - 0xabc000;
                let of = calls.iter().find(|of| of["call"] == number).expect("a call that was logged");
                assert_eq!(of["attempts"][0]["peer"], ports(&dissection, &second.call).0, "{name}: {number}");
            }
        }
        assert_eq!(found, logged, "{name}");
        assert_eq!(hops(&dissection).links.iter().sum::<u64>(), 2 * calls.len() as u64, "{name}");
        if about["expected"]["slow"] == 2 {
            // The second proxy holds calls back, and the first one forwards at once.
            let blames = |call: &Call| call.findings.iter().any(|finding| finding.cause == Cause::Proxy);
            let second = dissection.calls.iter().filter(|call| blames(&call.hops[0].call)).count();
            let first = dissection.calls.iter().filter(|call| blames(call)).count();
            assert!(second >= 15 && first == 0, "{name}: {first} and {second}");
        }
        // Without a capture at the second proxy: the same calls, linked across it.
        let fewer = ["client", "in", "out", "server"].map(|end| file(name, end));
        let fewer = run(&fewer, &[None, Some("proxy"), Some("proxy"), None]);
        adds_up(name, &fewer);
        assert_eq!(fewer.sums.calls, calls.len() as u64, "{name}: without the second proxy");
    }
}

#[test]
fn calls_that_are_alike_stay_unlinked_and_are_counted() {
    let dissection = all_four("nginx-alike");
    let (hops, calls) =
        (hops(&dissection), truth("nginx-alike")["calls"].as_array().expect("calls").len() as u64);
    assert!(hops.ambiguous > 0, "{hops:?}");
    // Each inner call is linked, ambiguous, or counted by itself.
    assert_eq!(dissection.sums.calls, 2 * calls - hops.links.iter().sum::<u64>(), "{hops:?}");
}

fn blamed(dissection: &Dissection, cause: Cause) -> usize {
    let with = |call: &&Call| {
        let shown = |call: &Call| {
            call.findings
                .iter()
                .any(|finding| finding.cause == cause && finding.certainty == Certainty::Shown)
        };
        shown(call) || call.hops.iter().any(|hop| shown(&hop.call))
    };
    dissection.calls.iter().filter(with).count()
}

#[test]
fn a_proxy_is_blamed_for_its_own_time_and_no_other() {
    let slow = all_four("nginx-slow");
    assert!(blamed(&slow, Cause::Proxy) >= 15, "{}", blamed(&slow, Cause::Proxy));
    let sum = slow.sums.causes.iter().find(|sum| sum.cause == Cause::Proxy).expect("it is in the sums");
    assert_eq!(sum.calls, blamed(&slow, Cause::Proxy) as u64);
    for innocent in ["nginx-near", "nginx-auth"] {
        assert_eq!(blamed(&all_four(innocent), Cause::Proxy), 0, "{innocent}");
    }
    let retry = all_four("nginx-retry");
    let twice = retry.calls.iter().filter(|call| call.hops.len() == 2).count();
    let about = truth("nginx-retry");
    let logged = about["calls"].as_array().expect("calls").iter();
    let logged = logged.filter(|call| call["attempts"].as_array().is_some_and(|of| of.len() == 2)).count();
    assert!(twice > 0 && twice == logged, "{twice} of {logged}");
    // Only if the failed attempt took most of the call.
    let blamed = blamed(&retry, Cause::Retries);
    assert!(blamed > twice / 2 && blamed <= twice, "{blamed} of {twice}");
}

#[test]
fn fewer_captures_tell_less_and_nothing_false() {
    let pool = |ends: &[&str]| {
        let files: Vec<PathBuf> = ends.iter().map(|end| file("nginx-pool", end)).collect();
        let dissection = run(&files, &vec![None; files.len()]);
        adds_up(&format!("{ends:?}"), &dissection);
        assert_eq!(dissection.sums.calls, 96, "{ends:?}");
        assert_eq!(links_are_true("nginx-pool", &dissection), 96, "{ends:?}");
        dissection
    };
    pool(&["server", "out", "in", "client"]);
    pool(&["client", "any", "server"]);
    pool(&["any"]);
    pool(&["in", "out"]);
    pool(&["client", "any"]);
    // The whole path, seen by more taps than there are ends.
    let all = pool(&["client", "in", "any", "out", "server"]);
    assert!(all.between > 0);
    // Without a capture at the proxy: linked by ids, and the report says so.
    let apart = pool(&["client", "server"]);
    let [warning] = &apart.warnings[..] else { panic!("{:?}", apart.warnings) };
    for expected in
        ["no connection in common", "10.81.0.2:80", "10.82.0.3:8081", "96 calls are linked", "overlap"]
    {
        assert!(warning.contains(expected), "{expected}: {warning}");
    }
    // Without ids, only the hint remains.
    let strangers = run(&[file("nginx-plain", "client"), file("nginx-plain", "server")], &[None; 2]);
    assert!(strangers.warnings[0].contains("Both have calls of /sleep/3"), "{:?}", strangers.warnings);
    assert_eq!(strangers.sums.calls, 60);
}

#[test]
fn calls_of_both_sides_of_a_proxy_that_are_not_linked_are_said_to_count_twice() {
    let files = ["client", "in", "out", "server"].map(|end| file("nginx-plain", end));
    // Nothing says that the proxy's two captures share a clock, and the calls carry no ids.
    let unnamed = run(&files, &[None; 4]);
    assert_eq!((unnamed.sums.calls, hops(&unnamed).calls), (60, 0));
    let [warning] = &unnamed.warnings[..] else { panic!("{:?}", unnamed.warnings) };
    for expected in
        ["client.pcapng", "server.pcapng", "/sleep/3", "counted twice", "proxy=in.pcap proxy=out.pcap"]
    {
        assert!(warning.contains(expected), "{expected}: {warning}");
    }
    // With names they are linked, and there is no warning.
    let named = all_four("nginx-plain");
    assert_eq!((named.sums.calls, named.warnings.len()), (30, 0), "{:?}", named.warnings);
}

/// Spans as both ends of calls record them: the client's begin before its first byte is sent and end after
/// its last byte is received, the server's lie within what its tap saw.
fn spans_of_both_ends(name: &str) -> Spans {
    let mut spans = Spans::default();
    for (end, beyond_ns) in [("client", 150_000), ("server", -20_000)] {
        for call in run(&[file(name, end)], &[None]).calls {
            let half = call.halves.exchanges.iter().flatten().next().expect("a half");
            let (Some(trace), Some(response)) = (half.trace, half.response) else { continue };
            let times = spans.times.entry((trace.trace_id, trace.span_id)).or_default();
            let seen = (half.request.first.seen_ns - beyond_ns, response.last.seen_ns + beyond_ns);
            *(if end == "client" { &mut times.client } else { &mut times.server }) = Some(seen);
        }
    }
    spans
}

#[test]
fn spans_of_both_ends_hide_no_call_where_nothing_of_the_proxy_is_captured() {
    let files = ["client", "server"].map(|end| file("nginx-pool", end));
    let captures = || files.iter().map(|file| Capture::open(file).expect("a capture")).collect();
    let spans = spans_of_both_ends("nginx-pool");
    assert_eq!(spans.times.len(), 96);
    let settings = Settings { slowest: 10_000, spans, ..Settings::default() };
    let dissection = dissect(captures(), &settings, &mut |_| ControlFlow::Continue(())).expect("captures");
    adds_up("nginx-pool", &dissection);
    assert_eq!(dissection.sums.calls, 96);
    assert_eq!(links_are_true("nginx-pool", &dissection), 96);
    assert!(dissection.warnings[0].contains("96 calls are linked"), "{:?}", dissection.warnings);
}

/// A file's packets, with times mapped by `shows`.
fn retimed(name: &str, end: &str, shows: &dyn Fn(i64) -> i64, folder: &std::path::Path) -> PathBuf {
    let mut capture = Capture::open(&file(name, end)).expect("the fixture is there");
    let mut bytes = Vec::new();
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 0x0004_0000, 1] {
        bytes.extend(word.to_le_bytes());
    }
    while let Some(packet) = capture.next() {
        let time = shows(packet.time_ns);
        let (seconds, nanos) = (time.div_euclid(1_000_000_000) as u32, time.rem_euclid(1_000_000_000) as u32);
        for word in [seconds, nanos, packet.data.len() as u32, packet.wire_len] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(packet.data);
    }
    let path = folder.join(format!("{end}.pcap"));
    std::fs::File::create(&path).and_then(|mut file| file.write_all(&bytes)).expect("written");
    path
}

/// Longer than any call waits to be linked: the calls repeated every second, as in two captures of which the
/// proxy's has both of its sides.
#[test]
fn in_long_captures_calls_are_linked_as_they_come() {
    const ROUNDS: i64 = 90;
    let folder = tempfile::tempdir().expect("a folder");
    let mut files = Vec::new();
    for end in ["client", "any"] {
        let mut bytes = Vec::new();
        let mut link = None;
        for round in 0..ROUNDS {
            let mut capture = Capture::open(&file("nginx-near", end)).expect("the fixture is there");
            while let Some(packet) = capture.next() {
                if link.is_none() {
                    link = Some(packet.link);
                    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 0x0004_0000, u32::from(packet.link.0)] {
                        bytes.extend(word.to_le_bytes());
                    }
                }
                let time = packet.time_ns + round * 5_000_000_000;
                let (seconds, nanos) = (time / 1_000_000_000, time % 1_000_000_000);
                for word in [seconds as u32, nanos as u32, packet.data.len() as u32, packet.wire_len] {
                    bytes.extend(word.to_le_bytes());
                }
                // Each round has other hosts, by the third byte of both addresses, and other sequence
                // numbers.
                let header = match packet.link.0 {
                    1 => 14,
                    113 => 16,
                    _ => 20,
                };
                let mut data = packet.data.to_vec();
                for at in [header + 14, header + 18] {
                    data[at] = round as u8;
                }
                for at in [header + 24, header + 28] {
                    let number = u32::from_be_bytes(data[at..at + 4].try_into().expect("four bytes"));
                    let moved = number.wrapping_add(round as u32 * 0x0100_0193);
                    data[at..at + 4].copy_from_slice(&moved.to_be_bytes());
                }
                bytes.extend(data);
            }
        }
        let path = folder.path().join(format!("{end}.pcap"));
        std::fs::write(&path, bytes).expect("written");
        files.push(path);
    }
    let dissection = run(&files, &[None; 2]);
    adds_up("long", &dissection);
    let linked = dissection.calls.iter().filter(|call| !call.hops.is_empty()).count() as u64;
    println!("{linked} of {}: {:?}", dissection.sums.calls, hops(&dissection));
    assert!(linked >= 20 * (ROUNDS as u64 - 1), "{linked}");
}

#[test]
fn with_four_clocks_the_same_legs_come_back_within_their_bounds() {
    let folder = tempfile::tempdir().expect("a folder");
    const S: i64 = 1_000_000_000;
    const FROM_NS: i64 = 1_795_000_000 * S;
    let clocks: [(&str, i64, i64); 4] =
        [("client", 0, 0), ("in", 7 * S, 30), ("out", -3_600 * S, -20), ("server", 90 * S, 0)];
    let files: Vec<PathBuf> = clocks
        .iter()
        .map(|(end, offset, ppm)| {
            let shows =
                |at: i64| at + offset + (i128::from(at - FROM_NS) * i128::from(*ppm) / 1_000_000) as i64;
            retimed("nginx-pool", end, &shows, folder.path())
        })
        .collect();
    let shifted = run(&files, &[None; 4]);
    adds_up("shifted", &shifted);
    assert_eq!(links_are_true("nginx-pool", &shifted), 96);
    let exact = all_four("nginx-pool");
    let identity = |call: &Call| call.halves.exchanges.iter().flatten().find_map(|half| half.trace);
    let mut compared = 0;
    for call in &shifted.calls {
        let same = exact.calls.iter().find(|other| identity(other) == identity(call)).expect("the same call");
        assert_eq!(call.path.len(), same.path.len());
        for (leg, true_leg) in call.path.iter().zip(&same.path) {
            assert_eq!((leg.hop, leg.stage), (true_leg.hop, true_leg.stage));
            let off = leg.ns.abs_diff(true_leg.ns);
            assert!(off <= leg.bound_ns + true_leg.bound_ns, "{leg:?} {true_leg:?}");
            compared += 1;
        }
    }
    assert!(compared > 900, "{compared}");
}

#[test]
fn people_and_programs_get_the_hops() {
    let settings = Settings { slowest: 3, ..Settings::default() };
    let files = ["client", "in", "out", "server"]
        .map(|end| Capture::open(&file("nginx-slow", end)).expect("a capture"));
    let dissection = dissect(files.into(), &settings, &mut |_| ControlFlow::Continue(()))
        .expect("files can be read twice");
    let report = DissectReport::new(&dissection, &settings, &Extras::default());
    let json = serde_json::to_value(&report).expect("JSON");
    let call = &json["calls"][0];
    assert_eq!(call["hops"][0]["linked_by"], "trace-context");
    assert_eq!((&call["hops"][0]["hop"], &call["seen_in"]), (&1.into(), &serde_json::json!([0, 1])));
    assert_eq!(call["hops"][0]["seen_in"], serde_json::json!([2, 3]));
    let legs: Vec<&str> =
        call["path"].as_array().expect("legs").iter().filter_map(|leg| leg["leg"].as_str()).collect();
    assert!(legs.contains(&"proxy_request") && legs.contains(&"proxy_response"), "{legs:?}");
    assert_eq!(json["hops"]["calls"], 20);
    assert_eq!(json["clocks"].as_array().map(Vec::len), Some(2));
    let text = table::write(&report, 120);
    for expected in [
        "over its hops",
        "proxy: request, until it is passed on",
        "through proxies went",
        "20 links by trace-context",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
    let page = DissectPage::new(&report);
    let hops = page.calls[0].hops.as_ref().expect("the page has the way");
    assert!(!hops.way.is_empty() && hops.rows.iter().any(|row| row[0].contains("proxy")), "{hops:?}");
}

#[test]
fn what_was_recorded_of_a_server_behind_a_proxy_stands_with_its_legs() {
    use spangap_model::Side;
    use spangap_model::evidence::{HopPlace, HostPart, HostTime};
    use spangap_wire::hosts::host_legs;
    let (mut laid, mut recorded) = (0, 0);
    for name in names() {
        let mut dissection = all_four(&name);
        let legs = host_legs(&dissection);
        for leg in legs.iter().filter(|leg| leg.nth > 0 && leg.side == Side::Server) {
            let call = dissection.calls[leg.call].nth(leg.nth).expect("the call that the leg is of");
            assert_eq!(
                call.ends.map(|[client, server]| (server, client)),
                Some((leg.local, leg.peer)),
                "{name}"
            );
            let ns = call.legs[leg.leg].ns;
            let part = HostPart {
                doing: spangap_model::Doing::Stopped,
                behind: None,
                waited_for: None,
                woken_by: None,
                waker: None,
                ns: ns.unsigned_abs(),
            };
            let host =
                HostTime { tids: vec![leg.local.port.into()], parts: vec![part], ..HostTime::default() };
            call.take_host(leg.leg, leg.side, host);
            laid += 1;
        }
        for record in spangap_wire::report::evidence(&dissection).calls {
            for step in &record.path {
                let Some(host) = &step.host else { continue };
                assert!(step.hop > 0 && matches!(step.place, HopPlace::Leg(_)), "{name}: {step:?}");
                assert_eq!(host.parts[0].ns, step.ns.unsigned_abs(), "{name}: {step:?}");
                recorded += 1;
            }
            // The proxy's calls are not counted as the client's.
            assert!(record.legs.iter().all(|leg| leg.host.is_none()), "{name}");
        }
    }
    assert!(laid > 300, "{laid}");
    assert_eq!(recorded, laid);
}

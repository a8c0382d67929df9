//! The table of pairs: filtered, grouped, sorted, paged, compared; lost time over time; unchanged answers
//! that are not sent again.

use super::client::request;
use super::process::Meter;
use super::spans::{SERVER_NS, calls, gap_ns};
use prost::Message;
use spangap_meter::report::{Changes, PairRow, PairsReport, Timeline, WorstReport};
use std::ops::Range;

/// Pairs with the numbers of their calls; the first has the most lost time.
const PAIRS: [(&str, &str, Range<u64>); 4] =
    [("front", "web", 400..460), ("web", "cart", 0..40), ("web", "db", 100..111), ("cart", "db", 200..203)];

fn lost(calls: &Range<u64>) -> u64 {
    calls.clone().map(gap_ns).sum()
}

fn send(meter: &Meter, client: &str, server: &str, numbers: Range<u64>) {
    let body = calls(client, server, numbers).encode_to_vec();
    let headers = [("Content-Type", "application/x-protobuf")];
    assert_eq!(request(meter.otlp_http, "POST", "/v1/traces", &headers, &body).status, 200);
}

fn fed() -> Meter {
    let meter = Meter::start(&[]);
    for (client, server, numbers) in &PAIRS {
        send(&meter, client, server, numbers.clone());
        meter.pair(client, server, numbers.end - numbers.start);
    }
    meter
}

fn names(rows: &[PairRow]) -> Vec<String> {
    rows.iter().map(|row| format!("{} {}", row.client, row.server)).collect()
}

fn pairs(meter: &Meter, query: &str) -> PairsReport {
    meter.api(&format!("/api/v1/pairs?window=1h&{query}"))
}

#[test]
fn filters_by_name_host_and_status_keep_full_counts() {
    let meter = fed();
    let cases: [(&str, &[&str]); 10] = [
        ("", &["front web", "web cart", "web db", "cart db"]),
        ("q=WEB", &["front web", "web cart", "web db"]),
        ("q=web+ca", &["web cart"]),
        ("service=cart", &["web cart", "cart db"]),
        ("client=web", &["web cart", "web db"]),
        ("server=db&client=cart", &["cart db"]),
        ("node=db-host", &["web db", "cart db"]),
        ("node=elsewhere", &[]),
        ("status=unset&q=front", &["front web"]),
        ("status=http_5xx", &[]),
    ];
    for (query, wanted) in cases {
        let report = pairs(&meter, query);
        assert_eq!(names(&report.pairs), wanted, "{query}");
        let matching = report.matching.expect("the service counts");
        assert_eq!((matching.pairs, matching.of_pairs), (wanted.len() as u64, 4), "{query}");
        let sum = |of: fn(&PairRow) -> u64| report.pairs.iter().map(of).sum::<u64>();
        assert_eq!(matching.calls, sum(|row| row.calls), "{query}");
        assert_eq!(matching.lost_ns_total, sum(|row| row.lost_ns_total), "{query}");
    }
}

#[test]
fn pairs_are_sorted_by_every_column_and_paged_completely() {
    let meter = fed();
    let order = |query: &str| names(&pairs(&meter, query).pairs);
    assert_eq!(order("sort=lost"), ["front web", "web cart", "web db", "cart db"]);
    // No pair has a case: none is slower than usual.
    assert_eq!(order("sort=beyond"), order("sort=lost"));
    assert_eq!(order("sort=calls&order=ascending"), ["cart db", "web db", "web cart", "front web"]);
    assert_eq!(order("sort=gap_p50"), ["front web", "cart db", "web db", "web cart"]);
    assert_eq!(order("sort=pair"), ["cart db", "front web", "web cart", "web db"]);
    // All other columns are equal for these pairs, which are then ordered by lost time.
    for sort in ["lost", "calls", "gap_p50", "gap_p99", "client_p99", "pair"] {
        let mut backwards = order(&format!("sort={sort}&order=ascending"));
        backwards.reverse();
        assert_eq!(order(&format!("sort={sort}")), backwards, "{sort}");
        let page = |offset| order(&format!("sort={sort}&top=3&offset={offset}"));
        assert_eq!([page(0), page(3)].concat(), order(&format!("sort={sort}")), "{sort}");
    }
    for sort in ["server_p99", "negative", "attempts", "match", "change"] {
        assert_eq!(order(&format!("sort={sort}")), order("sort=lost"), "{sort}");
    }
    let past = pairs(&meter, "top=3&offset=9");
    assert_eq!((past.pairs.len(), past.matching.expect("counted").pairs), (0, 4));
}

#[test]
fn groups_are_the_sums_of_their_pairs() {
    let meter = fed();
    let by = |group: &str| pairs(&meter, &format!("by={group}")).pairs;
    let clients = by("client");
    assert_eq!(names(&clients), ["front *", "web *", "cart *"]);
    assert_eq!(clients[1].calls, 51);
    assert_eq!(clients[1].lost_ns_total, lost(&PAIRS[1].2) + lost(&PAIRS[2].2));
    assert_eq!(names(&by("server")), ["* web", "* cart", "* db"]);
    assert_eq!(by("pair"), by("kept"));
    assert_eq!(by("method").iter().map(|row| row.calls).sum::<u64>(), 114);
}

#[test]
fn lost_time_agrees_between_rows_steps_and_total() {
    let meter = fed();
    let all: u64 = PAIRS.iter().map(|(_, _, numbers)| lost(numbers)).sum();
    let all_waited = all + 114 * SERVER_NS;
    for steps in [1, 7, 60, 1_500] {
        let timeline: Timeline = meter.api(&format!("/api/v1/timeline?window=1h&steps={steps}"));
        let sum: u64 = timeline.points.iter().map(|point| point.lost_ns_total).sum();
        assert_eq!(sum, all, "{steps} steps");
        assert_eq!(timeline.points.iter().map(|point| point.calls).sum::<u64>(), 114, "{steps} steps");
        let waited: u64 = timeline.points.iter().map(|point| point.client_ns_total).sum();
        assert_eq!(waited, all_waited, "{steps} steps");
    }
    let some: Timeline = meter.api("/api/v1/timeline?window=1h&service=cart");
    let sum: u64 = some.points.iter().map(|point| point.lost_ns_total).sum();
    assert_eq!(sum, lost(&PAIRS[1].2) + lost(&PAIRS[3].2));
    for by in ["kept", "client"] {
        let report = pairs(&meter, &format!("steps=30&by={by}"));
        assert!(report.step_s.is_some());
        for row in &report.pairs {
            let steps = row.lost_ns_by_step.as_ref().expect("steps were asked for");
            assert_eq!(steps.iter().sum::<u64>(), row.lost_ns_total, "{by}: {steps:?}");
            let waited = row.client_ns_by_step.as_ref().expect("they come together");
            assert_eq!(waited.len(), steps.len());
            let in_server: Vec<u64> = waited.iter().zip(steps).map(|(waited, lost)| waited - lost).collect();
            assert_eq!(in_server.iter().sum::<u64>(), row.calls * SERVER_NS, "{by}: {in_server:?}");
        }
    }
}

#[test]
fn time_ranges_are_compared_including_new_and_ended_pairs() {
    let meter = fed();
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    let (from, to) = (now - 600, now + 60);
    let same = pairs(&meter, &format!("against_from={from}&against_to={to}"));
    for row in &same.pairs {
        let before = row.before.as_ref().expect("it was compared");
        assert_eq!((before.calls, before.lost_ns_total), (row.calls, row.lost_ns_total));
        assert_eq!(before.gap, row.gap);
    }
    assert_eq!(same.against_unix_s, Some([from, to]));
    // There was nothing then, so all are new.
    let long_ago = pairs(&meter, "against_from=600&against_to=1200&sort=change");
    assert!(long_ago.pairs.iter().all(|row| row.before.as_ref().is_some_and(|before| before.calls == 0)));
    assert_eq!(long_ago.matching.expect("counted").lost_before_ns_total, Some(0));
    // The other way round, all have ended, and are listed with what they lost.
    let ended: PairsReport = meter.api(&format!(
        "/api/v1/pairs?from=600&to=1200&against_from={from}&against_to={to}&sort=change&order=ascending"
    ));
    assert_eq!(names(&ended.pairs), ["front web", "web cart", "web db", "cart db"]);
    assert!(ended.pairs.iter().all(|row| row.calls == 0));
    assert_eq!(
        ended.matching.expect("counted").lost_before_ns_total,
        Some(PAIRS.iter().map(|(_, _, n)| lost(n)).sum())
    );
    for query in ["against_from=5", "against_from=9&against_to=3", "sort=beauty", "by=colour", "top=-1"] {
        meter.api_error(&format!("/api/v1/pairs?{query}"), 400);
    }
}

#[test]
fn worst_calls_of_a_gap_band_have_legs() {
    let meter = fed();
    let band: WorstReport = meter.api(&format!(
        "/api/v1/worst?window=1h&client=front&server=web&min_gap_ns={}&max_gap_ns={}",
        gap_ns(455),
        gap_ns(457)
    ));
    let gaps: Vec<u64> = band.calls.iter().map(|call| call.call.gap_ns).collect();
    assert_eq!(gaps, [gap_ns(457), gap_ns(456), gap_ns(455)]);
    for call in band.calls.iter().map(|call| &call.call) {
        let legs = call.legs.as_ref().expect("60 calls between two hosts are enough");
        // Both spans begin at the same moment by their own clocks, so the offset is bounded by the smallest
        // gap alone.
        assert_eq!((legs.request_ns, legs.bound_ns), (gap_ns(400) / 2, gap_ns(400) / 2), "{call:?}");
    }
}

#[test]
fn unchanged_answers_are_not_resent_and_changes_are_pushed() {
    let meter = fed();
    let paths = [
        "/api/v1/pairs?window=1h",
        "/api/v1/timeline?window=1h",
        "/api/v1/pair?client=web&server=cart&window=1h",
        "/api/v1/worst?window=1h",
    ];
    let version = |query: &str| meter.api::<Changes>(&format!("/api/v1/changes{query}")).version;
    for path in paths {
        // A minute may begin between two requests, and change the answer.
        let held = (0..10).any(|_| {
            let first = request(meter.http, "GET", path, &[], b"");
            let tag = first.header("etag").expect("a tag").to_string();
            let again = request(meter.http, "GET", path, &[("If-None-Match", &tag)], b"");
            assert_eq!(first.status, 200);
            (again.status, again.body.len()) == (304, 0)
        });
        assert!(held, "{path}");
    }
    let before = version("");
    let tag = request(meter.http, "GET", paths[0], &[], b"").header("etag").expect("a tag").to_string();
    std::thread::scope(|scope| {
        let told = scope.spawn(|| version(&format!("?since={before}&wait=60s")));
        send(&meter, "web", "cart", 1_000..1_001);
        assert_ne!(told.join().expect("it answers"), before);
    });
    let after = request(meter.http, "GET", paths[0], &[("If-None-Match", &tag)], b"");
    assert_eq!(after.status, 200, "another call has come");
    // A request that does not ask for anything newer is answered at once.
    assert_ne!(version("?since=nonsense&wait=60s"), "nonsense");
    meter.api_error("/api/v1/changes?wait=soon", 400);
}

use super::*;
use crate::contract::Stack;
use crate::contract::{Channels, Nodelay};
use crate::report::samples::{open, report, run};
use crate::report::{Floor, Sockets, Streams, TankReport};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const US: u64 = 1_000;

/// An open loop of 200 calls of about this duration, over one socket, with a fast floor.
fn paced(rate: f64, p50_ns: u64, nodelay_on: bool) -> Run {
    let latencies: Vec<u64> = (0..200).map(|i| p50_ns + p50_ns / 2_000 * i / 10).collect();
    let mut run = open(run(Stack::Rust, Channels::Shared, 1, 0, &latencies), rate);
    run.asked.nodelay = if nodelay_on { Nodelay::On } else { Nodelay::Off };
    run.sockets = Some(sockets(nodelay_on));
    run.cpu_client_s = 0.1;
    run.cpu_target_s = Some(0.1);
    run.floor = Some(floor(50 * US));
    run
}

fn sockets(nodelay_on: bool) -> Sockets {
    Sockets {
        most_at_once: 1,
        seen: 1,
        nodelay_on: Some(u64::from(nodelay_on)),
        nodelay_off: Some(u64::from(!nodelay_on)),
        nodelay_forced: false,
        min_rtt_ns: Some(30 * US),
        retransmitted_segments: Some(0),
        congestion_control: None,
    }
}

fn floor(p50_ns: u64) -> Floor {
    let latency = crate::report::Quantiles { p50_ns: Some(p50_ns), ..Default::default() };
    Floor { calls: 200, throughput_per_s: 1.0, latency, lateness: None }
}

/// A closed loop with this throughput over this many connections, lasting ten seconds.
fn looped(channels: Channels, inflight: u32, per_s: f64, start: u64) -> Run {
    let latencies: Vec<u64> = (0..200).map(|i| (f64::from(inflight) * 1e9 / per_s) as u64 + i).collect();
    let mut run = run(Stack::CppAsync, channels, inflight, 0, &latencies);
    run.throughput_per_s = per_s;
    run.start_unix_ns = Some(start);
    run.cpu_client_s = 4.0;
    run.cpu_target_s = Some(3.0);
    run.asked.target = "10.0.0.1:1".into();
    run
}

fn causes(runs: Vec<Run>) -> Vec<(String, Standing)> {
    let found = report(runs).findings;
    found.into_iter().map(|finding| (finding.cause.to_string(), finding.standing)).collect()
}

fn only(cause: &str, standing: Standing) -> Vec<(String, Standing)> {
    vec![(cause.to_owned(), standing)]
}

/// Calls of a busy machine: up to 120 ms late, which is part of their latency but not of a call's own time.
#[test]
fn a_machine_that_sends_late_hides_no_delayed_ack() {
    let late = |mut run: Run, late_ns: u64| {
        let of = |ns: &dyn Fn(u64) -> u64| -> Vec<u64> { (0..200).map(ns).collect() };
        let sent = of(&|i| run.latency.p50_ns.expect("200 calls") + i);
        let due = of(&|i| sent[i as usize] + late_ns * (i % 20) / 20);
        let made =
            |latencies: &[u64]| crate::report::samples::run(Stack::Rust, Channels::Shared, 1, 0, latencies);
        let (due, sent) = (made(&due), made(&sent));
        (run.latency, run.spectrum) = (due.latency, due.spectrum);
        (run.latency_from_send, run.spectrum_from_send) = (sent.latency, sent.spectrum);
        run
    };
    let runs = vec![late(paced(10.0, 41 * MS, false), 120 * MS), late(paced(10.0, 400 * US, true), 120 * MS)];
    assert_eq!(causes(runs), only("nagle-delayed-ack", Standing::Shown));
    // The delay of the machine alone is not Nagle's.
    assert_eq!(causes(vec![late(paced(10.0, 400 * US, false), 90 * MS)]), vec![]);
}

#[test]
fn nodelay_experiment_heads_the_report() {
    let runs = vec![paced(10.0, 41 * MS, false), paced(10.0, 400 * US, true)];
    let report = report(runs);
    let [finding] = report.findings.as_slice() else { panic!("{:#?}", report.findings) };
    assert_eq!((finding.cause.name(), finding.standing), ("nagle-delayed-ack", Standing::Shown));
    assert_eq!(report.verdict, finding.says);
    assert!(
        report.verdict.contains("p50 is 41.2 ms without TCP_NODELAY and 402 us with it"),
        "{}",
        report.verdict
    );
    assert!(finding.rests_on[0].contains("TCP_NODELAY on 0 of the sockets, off 1"), "{finding:#?}");
    let text = report.to_string();
    let (said, not) = (text.find("verdict    Nagle").unwrap(), text.find("cannot claim").unwrap());
    assert!(said < not && text.contains("\n  cleared  by a repetition"), "{text}");
}

#[test]
fn a_sweep_of_sockets_without_nodelay_fits_and_is_not_proof() {
    let sweep = |on| vec![paced(1_000.0, 300 * US, on), paced(100.0, 15 * MS, on), paced(10.0, 41 * MS, on)];
    assert_eq!(causes(sweep(false)), only("nagle-delayed-ack", Standing::Possible));
    let of_target = report(sweep(true)).findings;
    assert_eq!((of_target.len(), of_target[0].side), (1, Some(Side::Server)), "{of_target:#?}");
    let verdict = report(sweep(false)).verdict;
    assert!(
        verdict.starts_with("Not proven, but it fits: Nagle's") && verdict.contains("302 us"),
        "{verdict}"
    );
}

#[test]
fn inherent_40_ms_is_not_nagle() {
    // As slow with TCP_NODELAY.
    assert_eq!(causes(vec![paced(10.0, 41 * MS, false), paced(10.0, 41 * MS, true)]), []);
    // As slow at every rate.
    assert_eq!(causes(vec![paced(10.0, 41 * MS, false), paced(200.0, 41 * MS, false)]), []);
    // The target was asked to think, or is far away.
    let (mut thinks, mut far) = (paced(10.0, 41 * MS, false), paced(10.0, 41 * MS, false));
    thinks.asked.think_ns = Some(40 * MS);
    far.sockets.as_mut().unwrap().min_rtt_ns = Some(40 * MS);
    assert_eq!((causes(vec![thinks]), causes(vec![far])), (vec![], vec![]));
    // TCP_NODELAY is set, or unknown.
    let mut unseen = paced(10.0, 41 * MS, false);
    unseen.sockets = None;
    assert_eq!((causes(vec![paced(10.0, 41 * MS, true)]), causes(vec![unseen])), (vec![], vec![]));
    // Alone, it may be either.
    assert_eq!(causes(vec![paced(10.0, 41 * MS, false)]), only("nagle-delayed-ack", Standing::Possible));
}

#[test]
fn another_delay_without_nodelay_is_not_nagle() {
    for ms in [5, 20, 100, 500] {
        assert_eq!(causes(vec![paced(10.0, ms * MS, false), paced(10.0, 400 * US, true)]), [], "{ms} ms");
    }
}

#[test]
fn delay_that_the_floor_shares_is_the_machines() {
    let with_floor = |rate, p50, floor_ns| Run { floor: Some(floor(floor_ns)), ..paced(rate, p50, true) };
    let idle = vec![with_floor(10.0, 500 * US, 400 * US), with_floor(1_000.0, 120 * US, 50 * US)];
    assert_eq!(causes(idle), only("idle-wake", Standing::Possible));
    // The floor does not have the delay, so it is the stack's.
    let stack = vec![with_floor(10.0, 500 * US, 50 * US), with_floor(1_000.0, 120 * US, 50 * US)];
    assert_eq!(causes(stack), []);
    // A floor above the run is invalid.
    let above = vec![with_floor(10.0, 500 * US, 600 * US), with_floor(1_000.0, 120 * US, 50 * US)];
    assert_eq!(causes(above), []);
}

/// Shared and distinct channels over the same loads, in this order of their starts.
fn ceiling(shared: &[(u32, f64)], distinct: &[(u32, f64)], turns: bool) -> Vec<Run> {
    let shared = shared
        .iter()
        .enumerate()
        .map(|(at, (n, per_s))| looped(Channels::Shared, *n, *per_s, 10 * at as u64));
    let first = if turns { 5 } else { 1_000 };
    let distinct = distinct
        .iter()
        .enumerate()
        .map(|(at, (n, per_s))| looped(Channels::Distinct, *n, *per_s, first + 10 * at as u64));
    shared.chain(distinct).collect()
}

const FLAT: [(u32, f64); 6] =
    [(1, 3_500.0), (2, 4_500.0), (4, 5_500.0), (8, 6_900.0), (12, 7_500.0), (16, 7_800.0)];
const GROWS: [(u32, f64); 6] =
    [(1, 3_500.0), (2, 6_900.0), (4, 11_500.0), (8, 16_500.0), (12, 19_000.0), (16, 21_000.0)];

#[test]
fn ceiling_needs_several_interleaved_pairs() {
    let twice: Vec<Run> = [ceiling(&FLAT, &GROWS, true), ceiling(&FLAT, &GROWS, true)].concat();
    let found = report(twice).findings;
    assert_eq!((found.len(), found[0].standing), (1, Standing::Shown), "{found:#?}");
    assert!(
        found[0].says.contains("16 connections carry 2.09 to 2.69 times as much as one"),
        "{}",
        found[0].says
    );
    // A machine that was busy during the first half looks the same.
    let sequential = [ceiling(&FLAT, &GROWS, false), ceiling(&FLAT, &GROWS, false)].concat();
    assert_eq!(causes(sequential), only("shared-connection", Standing::Possible));
    assert_eq!(
        causes(ceiling(&FLAT, &GROWS, true)),
        only("shared-connection", Standing::Possible),
        "four pairs"
    );
}

#[test]
fn growth_and_stream_limits_rule_out_a_ceiling() {
    assert_eq!(causes(ceiling(&GROWS, &GROWS, true)), []);
    assert_eq!(causes(ceiling(&FLAT, &FLAT, true)), []);
    // A slow start, then proportional growth up to the end; and too few pairs for a finding.
    let far: Vec<_> = [(1, 180.0), (2, 200.0), (4, 210.0), (8, 420.0), (16, 840.0)].into();
    assert_eq!(
        causes(ceiling(&far, &far.iter().map(|(n, per_s)| (*n, 2.0 * per_s)).collect::<Vec<_>>(), true)),
        []
    );
    assert_eq!(causes(ceiling(&[FLAT[0], FLAT[5]], &[GROWS[0], GROWS[5]], true)), [], "one pair");
    let mut mixed = GROWS;
    mixed[3].1 = FLAT[3].1;
    assert_eq!(causes(ceiling(&FLAT, &mixed, true)), [], "one pair disagrees");
    let mut limited = ceiling(&FLAT, &GROWS, true);
    for run in limited.iter_mut().filter(|run| run.asked.channels == Channels::Shared) {
        let queued_by_limit = run.asked.inflight.map(|n| u64::from(n.saturating_sub(1)));
        run.streams =
            Some(Streams { limit_per_connection: Some(1), queued_by_limit, target_peak_in_progress: None });
    }
    assert_eq!(causes(limited), only("stream-limit", Standing::Shown));
}

#[test]
fn a_targets_count_that_contradicts_the_limit_leaves_it_possible() {
    for (peak, standing) in
        [(Some(200), Standing::Shown), (None, Standing::Shown), (Some(201), Standing::Possible)]
    {
        let mut run = looped(Channels::Pool(2), 250, 20_000.0, 0);
        run.connections = Some(2);
        run.streams = Some(Streams {
            limit_per_connection: Some(100),
            queued_by_limit: Some(50),
            target_peak_in_progress: peak,
        });
        assert_eq!(causes(vec![run]), only("stream-limit", standing), "{peak:?}");
    }
}

#[test]
fn full_cpus_are_attributed_to_their_side() {
    let sides = |runs: Vec<Run>| {
        let found = report(runs).findings;
        found
            .into_iter()
            .map(|finding| (finding.cause.to_string(), finding.side.map(|side| side.to_string())))
            .collect::<Vec<_>>()
    };
    let full = |side: Option<&str>| vec![("cpu-saturated".to_owned(), side.map(str::to_owned))];
    let mut client = looped(Channels::Shared, 64, 70_000.0, 0);
    client.asked.threads = 1;
    client.cpu_client_s = 9.9;
    assert_eq!(sides(vec![client.clone()]), full(Some("client")));
    client.cpu_client_s = 9.0;
    assert_eq!(sides(vec![client]), []);

    // The target's CPU: doubling the load does not increase throughput.
    let busy = |inflight, per_s, client_s| {
        let mut run = looped(Channels::Shared, inflight, per_s, 0);
        (run.cpu_target_s, run.cpu_client_s) = (Some(10.0), client_s);
        run
    };
    assert_eq!(sides(vec![busy(16, 50_000.0, 12.0), busy(64, 51_000.0, 12.0)]), full(Some("server")));
    assert_eq!(sides(vec![busy(16, 50_000.0, 12.0), busy(64, 60_000.0, 12.0)]), [], "it still grows");
    assert_eq!(sides(vec![busy(64, 51_000.0, 12.0)]), [], "one load tells nothing");

    let mut both = busy(64, 50_000.0, 9.5);
    assert_eq!(sides(vec![both.clone()]), [], "the target is on another machine");
    both.asked.target = "localhost:1".into();
    assert_eq!(sides(vec![both]), full(None));
}

#[test]
fn there_is_always_a_verdict() {
    assert!(report(vec![]).verdict.contains("nothing is known"));
    let plain = report(vec![paced(100.0, 400 * US, true)]).verdict;
    assert!(plain.starts_with("No cause stands out: at 100/s") && plain.contains("8.0 times"), "{plain}");
    let mut failing = paced(100.0, 400 * US, true);
    failing.calls += 100;
    assert_eq!(report(vec![failing]).verdict.split(':').next(), Some("100 of 300 calls failed"));
}

proptest! {
    /// In all but a few draws, the interval of the median contains the median of the underlying distribution.
    #[test]
    fn the_interval_of_the_median_holds_the_median(seed: u64, calls in 20u64..400) {
        let mut random = fastrand::Rng::with_seed(seed);
        let hits = (0..40).filter(|_| {
            let latencies: Vec<u64> = (0..calls).map(|_| 1 + random.u64(0..2_000_000)).collect();
            let (low, high) = median_interval(&run(Stack::Raw, Channels::Shared, 1, 0, &latencies)).unwrap();
            low <= 1_000_000 + 1_000 && 1_000_000 - 1_000 <= high
        });
        // 95 % of 40 are 38; fewer than 31 occur once in a hundred thousand draws.
        prop_assert!(hits.count() >= 31);
    }
}

#[test]
fn each_finding_becomes_evidence_with_missing_parts() {
    use spangap_model::evidence::{Certainty, Instrument, Missing, Proof, Scope};
    let runs = vec![paced(10.0, 44 * MS, false), paced(10.0, 200 * US, true)];
    let proven = report(runs);
    let fits = report(vec![paced(10.0, 44 * MS, false)]);
    for (report, certainty) in
        [(proven, Certainty::Shown), (fits, Certainty::Possible(Missing::SocketOption))]
    {
        let [finding] = report.evidence.findings.as_slice() else { panic!("{:#?}", report.findings) };
        assert_eq!(finding.culprit.to_string(), "nagle-delayed-ack (client)");
        assert_eq!((finding.certainty, finding.instrument), (certainty, Instrument::Tank));
        let server = report.runs[0].asked.target.clone();
        assert_eq!(finding.scope, Scope::Pair { client: "spangap tank".into(), server });
        let value = |figure: &String| Proof::Value { place: "runs".into(), value: figure.clone() };
        assert_eq!(finding.proofs, report.findings[0].rests_on.iter().map(value).collect::<Vec<_>>());
        let [coverage] = report.evidence.coverage.as_slice() else { panic!("one look") };
        assert_eq!(coverage.seen, report.runs.iter().map(|run| run.calls).sum::<u64>());
        assert!(coverage.cannot.iter().any(|why| why.contains("go was not run")), "{:?}", coverage.cannot);
        // Read back and recomputed, it is the same.
        let mut again: TankReport = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
        assert!(again.evidence.coverage.is_empty());
        again.conclude();
        assert_eq!(again, report);
    }
}

//! Engines with several lanes and shards against one with a single one: the same spans give the same answers. To the bit where
//! nothing but the calls themselves determines an answer; what depends on what was known by then, such as legs, is as true.

#[path = "lanes/calls.rs"]
mod calls;

use calls::{Call, HOSTS, TTL_MS, batches, calls, true_request_ns};
use proptest::prelude::*;
use spangap_meter::engine::{Meter, PairMinute, Settings};
use spangap_meter::samples::Drawn;
use spangap_model::{Histogram, PairStats};
use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const LANES: [usize; 2] = [2, 7];

fn meter(lanes: usize) -> Meter {
    Meter::new(Settings {
        lanes,
        join_ttl_ms: Some(TTL_MS as u32),
        keep_bytes: 4 << 20,
        max_pending_bytes: 32 << 20,
        ..Settings::default()
    })
}

/// Hands requests to threads in turn, some to each: every thread prefers another lane.
fn in_lanes<T: Sync>(requests: &[T], mut send: impl FnMut(&T) + Send) {
    for part in requests.chunks(5) {
        std::thread::scope(|scope| scope.spawn(|| part.iter().for_each(&mut send)).join().unwrap());
    }
}

fn send_at_once(meter: &Meter, calls: &[Call], batch: usize) {
    let requests: Vec<_> = batches(calls, batch).collect();
    in_lanes(&requests, |(_, request)| _ = meter.ingest(request, 5).unwrap());
}

/// What must be the same to the bit.
fn figures(stats: &PairStats) -> String {
    let exact = |h: &Histogram| (h.buckets().collect::<Vec<_>>(), h.zero_count(), h.count(), h.sum_ns());
    let PairStats { gap, client, server, mate_delay, negative, .. } = stats;
    format!(
        "{:?} {:?} {:?} {:?} {:?} {} {} {} {negative:?} {} {} {}",
        exact(gap),
        exact(client),
        exact(server),
        exact(mate_delay),
        mate_delay.max_ns(),
        stats.calls(),
        stats.single_calls(),
        stats.joined_calls(),
        stats.attempts_over_one,
        stats.excluded_large,
        stats.sized,
    )
}

/// What one engine answers.
struct Answers {
    /// Accounting, reasons, services and sums over calls.
    spans: String,
    totals: BTreeMap<String, PairStats>,
    /// As a recorder took them, by pair and Unix second.
    minutes: BTreeMap<(String, u64), PairStats>,
}

fn take(minutes: &mut BTreeMap<(String, u64), PairStats>, taken: Vec<PairMinute>) {
    for minute in taken {
        let at = (format!("{:?}", minute.key), minute.unix_s);
        assert!(minutes.insert(at.clone(), minute.stats).is_none(), "{at:?} left the engine twice");
    }
}

fn overall(meter: &Meter) -> String {
    let overview = meter.overview();
    assert!(overview.accounting.holds(), "{:?}", overview.accounting);
    let mut services = overview.services.clone();
    services.sort_by(|a, b| a.0.cmp(&b.0));
    format!(
        "{:?} {:?} {services:?} {} {} {:?}",
        overview.accounting,
        overview.malformed,
        overview.calls_with_one_attempt,
        overview.calls_without_size,
        overview.mate_delay.buckets().collect::<Vec<_>>(),
    )
}

/// Sends the calls' spans in order of arrival, advances the time, and takes minutes like a recorder.
fn answers(calls: &[Call], lanes: usize, batch: usize) -> Answers {
    let meter = meter(lanes);
    let mut minutes = BTreeMap::new();
    let (mut last_ms, mut taken_ms) = (0, 0);
    let requests: Vec<_> = batches(calls, batch).collect();
    in_lanes(&requests, |(at_ms, request)| {
        while last_ms + 200 <= *at_ms {
            last_ms += 200;
            meter.tick(last_ms);
        }
        last_ms = last_ms.max(*at_ms);
        meter.ingest(request, *at_ms).unwrap();
        if *at_ms > taken_ms + 7_000 {
            taken_ms = *at_ms;
            let taken = meter.take_minutes();
            assert!(taken.open.iter().all(|minute| minute.unix_s >= taken.settled_before_s));
            take(&mut minutes, taken.closed);
        }
    });
    let spans = overall(&meter);
    let totals = meter.totals().into_iter().map(|(key, stats)| (format!("{key:?}"), stats)).collect();
    meter.tick(last_ms + 300_000);
    let taken = meter.take_minutes();
    assert!(taken.open.is_empty() && taken.spans.pending == 0);
    take(&mut minutes, taken.closed);
    Answers { spans, totals, minutes }
}

/// Compares the statistics of a pair.
fn same(of_one: &PairStats, of_many: &PairStats, what: &str) {
    assert_eq!(figures(of_many), figures(of_one), "{what}");
    // A largest value that was retracted is known to within a bucket, so two engines may know different parts of it.
    for (one, many) in
        [(&of_one.gap, &of_many.gap), (&of_one.client, &of_many.client), (&of_one.server, &of_many.server)]
    {
        let apart = one.max_low_ns() > many.max_ns() || many.max_low_ns() > one.max_ns();
        assert!(!apart, "{what}: {:?} and {:?}", one.max_ns(), many.max_ns());
        if of_one.attempts_over_one == 0 {
            let ends = |h: &Histogram| (h.min_ns(), h.max_ns());
            assert_eq!(ends(one), ends(many), "{what}");
        }
    }
    // Every call above both floors is in both lists.
    let floor_ns = of_one.worst_floor_ns.max(of_many.worst_floor_ns);
    let worst = |stats: &PairStats| -> Vec<_> {
        let above = stats.worst.iter().filter(|call| call.gap_ns > floor_ns || floor_ns == 0);
        above.map(|call| (call.gap_ns, call.trace_id, call.client_span_id, call.status)).collect()
    };
    assert_eq!(worst(of_many), worst(of_one), "{what}: worst calls above {floor_ns} ns");
    assert!(of_one.attempts_over_one > 0 || floor_ns == 0);
    // Legs are of the same calls, or of others: each sums to the gap, and the bound holds.
    for stats in [of_one, of_many] {
        assert_eq!(stats.request_leg.count(), stats.response_leg.count());
        assert!(stats.request_leg.count() <= stats.calls());
        for call in &stats.worst {
            let Some(legs) = call.legs else { continue };
            let true_ns = true_request_ns(&call.trace_id);
            assert!(legs.request_ns.abs_diff(true_ns) <= legs.bound_ns, "{what}: {legs:?}, truly {true_ns}");
            assert!(legs.request_ns <= call.gap_ns);
        }
    }
}

fn compare(calls: &[Call], batch: usize) {
    let one = answers(calls, 1, batch);
    for lanes in LANES {
        let many = answers(calls, lanes, batch);
        assert_eq!(many.spans, one.spans, "{lanes} lanes");
        assert_eq!(many.totals.keys().collect::<Vec<_>>(), one.totals.keys().collect::<Vec<_>>());
        for (pair, stats) in &one.totals {
            same(stats, &many.totals[pair], &format!("{lanes} lanes, {pair}"));
        }
        assert_eq!(many.minutes.keys().collect::<Vec<_>>(), one.minutes.keys().collect::<Vec<_>>());
        for (at, stats) in &one.minutes {
            same(stats, &many.minutes[at], &format!("{lanes} lanes, {at:?}"));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn lanes_answer_what_one_lane_answers(calls in calls(1..300), batch in 1usize..200) {
        compare(&calls, batch);
    }

    /// The clocks are known equally well in the end, and from the same number of calls on.
    #[test]
    fn clocks_are_known_equally_well(calls in calls(20..200), batch in 1usize..100) {
        // One hour later, so that nothing else is known; all calls in one slot of the window.
        let calls: Vec<Call> = calls.into_iter().map(|call| Call { attempts_ms: vec![0], begun_ms: 0, ..call }).collect();
        let mut legs = Vec::new();
        for lanes in [1].into_iter().chain(LANES) {
            let meter = meter(lanes);
            send_at_once(&meter, &calls, batch);
            let known = meter.overview().calls_without_legs;
            // The last call of each host pair is the slowest of all, so that it is shown.
            let probes: Vec<Call> = (0..HOSTS * HOSTS).map(|hosts| Call::probe(1_000_000 + hosts, hosts)).collect();
            send_at_once(&meter, &probes, 1);
            let mut shown: Vec<_> = meter.totals().iter().flat_map(|(_, stats)| &stats.worst)
                .filter(|call| call.gap_ns >= Call::PROBE_GAP_NS).map(|call| (call.trace_id, call.legs)).collect();
            shown.sort_by_key(|(trace, _)| *trace);
            prop_assert_eq!(shown.len() as u64, HOSTS * HOSTS);
            legs.push((known, shown));
        }
        prop_assert_eq!(&legs[1], &legs[0]);
        prop_assert_eq!(&legs[2], &legs[0]);
    }

    /// Few calls are all sampled, whatever the lanes.
    #[test]
    fn samples_of_few_calls_are_the_same(calls in calls(1..120), batch in 1usize..100) {
        let sorted = |lanes: usize| {
            let meter = Meter::new(Settings { lanes, join_ttl_ms: None, sampled_calls: 130, ..Settings::default() });
            send_at_once(&meter, &calls, batch);
            let of = |drawn: &Drawn| {
                let mut by_call: Vec<_> = drawn.by_call.iter().map(|call| call.trace_id).collect();
                let mut by_time: Vec<_> = drawn.by_time.iter().map(|(call, lost)| (call.trace_id, *lost as u64)).collect();
                by_call.sort();
                by_time.sort();
                (by_call, by_time, drawn.calls, drawn.lost_ns)
            };
            let mut all: Vec<_> = meter.samples(|_| true).iter()
                .map(|(key, drawn)| (key.clone(), drawn.iter().map(of).collect::<Vec<_>>())).collect();
            all.sort();
            all
        };
        let one = sorted(1);
        for lanes in LANES {
            prop_assert_eq!(sorted(lanes), one.clone());
        }
    }
}

/// Time between rounds of requests, less than half of the time to live in which these are joined.
const ROUND_MS: u64 = 20_000;

/// An engine without much room for anything.
fn narrow(lanes: usize) -> Meter {
    Meter::new(Settings {
        lanes,
        join_ttl_ms: Some(60_000),
        keep_bytes: 1 << 20,
        worst_bytes: 20_000,
        sample_bytes: 20_000,
        max_pending_bytes: 64 << 20,
        ..Settings::default()
    })
}

fn read(meter: &Meter) {
    let overview = meter.overview();
    assert!(overview.accounting.holds(), "{:?}", overview.accounting);
    for limit in &overview.limits {
        assert!(limit.used <= limit.limit, "{limit:?}");
    }
    let calls: u64 = meter.totals().iter().map(|(_, stats)| stats.calls()).sum();
    assert!(2 * calls <= meter.accounting().joined);
    meter.samples(|_| true);
    meter.durations(0, 100, |_, _, gap, client| assert_eq!(gap.count(), client.count()));
}

type Minutes = BTreeMap<(String, u64), PairStats>;

/// The time up to which minutes were recorded; without a limit once the recorder has ended.
struct Recorded<'a>(&'a AtomicU64);

impl Drop for Recorded<'_> {
    fn drop(&mut self) {
        self.0.store(u64::MAX, Relaxed);
    }
}

/// An engine keeps eight closed minutes for a recorder that is late, and counts what it drops beyond.
const RECORDER_LATE_MS: u64 = 180_000;

/// Threads that take in requests at once, beside one that reads and one that records: nothing is lost, nothing counts twice, and no
/// limit is exceeded at any moment.
fn at_once(requests: &[Vec<u8>], lanes: usize) -> (String, Minutes) {
    const THREADS: usize = 3;
    let meter = narrow(lanes);
    let rounds: Vec<&[Vec<u8>]> = requests.chunks(12).collect();
    let (done, now_ms, round) = (AtomicBool::new(false), AtomicU64::new(0), Barrier::new(THREADS));
    let recorded_ms = AtomicU64::new(0);
    let mut minutes = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (meter, rounds, now_ms, round) = (&meter, &rounds, &now_ms, &round);
                let recorded_ms = &recorded_ms;
                scope.spawn(move || {
                    for (at_ms, requests) in (0_u64..).step_by(ROUND_MS as usize).zip(rounds) {
                        while at_ms.saturating_sub(recorded_ms.load(Relaxed)) > RECORDER_LATE_MS {
                            std::thread::yield_now();
                        }
                        round.wait();
                        now_ms.store(at_ms, Relaxed);
                        for request in requests.iter().skip(thread).step_by(THREADS) {
                            meter.ingest(request, at_ms).unwrap();
                        }
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            while !done.load(Relaxed) {
                read(&meter);
            }
        });
        let recorder = scope.spawn(|| {
            let mut minutes = Minutes::new();
            let recorded = Recorded(&recorded_ms);
            while !done.load(Relaxed) {
                let now_ms = now_ms.load(Relaxed);
                meter.tick(now_ms);
                take(&mut minutes, meter.take_minutes().closed);
                recorded.0.store(now_ms, Relaxed);
            }
            minutes
        });
        let sent: Vec<_> = senders.into_iter().map(|sender| sender.join()).collect();
        done.store(true, Relaxed);
        sent.into_iter().for_each(|sent| sent.unwrap());
        reader.join().unwrap();
        recorder.join().unwrap()
    });
    meter.tick(requests.len() as u64 * ROUND_MS);
    take(&mut minutes, meter.take_minutes().closed);
    assert!(meter.open_minutes().is_empty());
    (overall(&meter), minutes)
}

/// The same rounds, one request after the other.
fn in_turn(requests: &[Vec<u8>]) -> (String, Minutes) {
    let meter = narrow(1);
    let mut minutes = Minutes::new();
    for (at_ms, requests) in (0..).step_by(ROUND_MS as usize).zip(requests.chunks(12)) {
        meter.tick(at_ms);
        take(&mut minutes, meter.take_minutes().closed);
        requests.iter().for_each(|request| _ = meter.ingest(request, at_ms).unwrap());
    }
    meter.tick(requests.len() as u64 * ROUND_MS);
    take(&mut minutes, meter.take_minutes().closed);
    (overall(&meter), minutes)
}

#[test]
fn threads_lose_nothing_and_exceed_no_limit() {
    let calls: Vec<Call> = (1..6_000).map(Call::numbered).collect();
    let requests: Vec<Vec<u8>> = batches(&calls, 40).map(|(_, request)| request).collect();
    let (spans, minutes) = in_turn(&requests);
    for lanes in [1, 2, 7] {
        let (spans_at_once, minutes_at_once) = at_once(&requests, lanes);
        assert_eq!(spans_at_once, spans, "{lanes} lanes");
        assert_eq!(minutes_at_once.keys().collect::<Vec<_>>(), minutes.keys().collect::<Vec<_>>());
        for (at, stats) in &minutes {
            same(stats, &minutes_at_once[at], &format!("{lanes} lanes, {at:?}"));
        }
    }
}

/// One trace fills the store of its shard, far beyond an even share: the oldest halves make room, not those of other traces.
#[test]
fn the_oldest_halves_make_room_whichever_shard_has_them() {
    const OTHERS: u64 = 160_000;
    let meter = Meter::new(Settings {
        lanes: 2,
        max_pending_bytes: 12 << 20,
        keep_bytes: 0,
        join_ttl_ms: Some(60_000),
        ..Settings::default()
    });
    let of_one_trace = |from: u64, to: u64| Call::clients_of_one_trace(from..to);
    let mut sent = 0;
    while meter.accounting().evicted == 0 {
        meter.ingest(&of_one_trace(sent, sent + 2_000), 1_000).unwrap();
        sent += 2_000;
        assert!(sent < 10_000_000, "the store has a limit");
        let overview = meter.overview();
        assert!(overview.pending_bytes <= overview.pending_bytes_limit);
    }
    // Far more than an even share is that shard's.
    assert!(meter.accounting().pending * 60 > 4 << 20, "{:?}", meter.accounting());
    let calls: Vec<Call> = (1..OTHERS).map(Call::plain).collect();
    let evicted = meter.accounting().evicted;
    let [clients, servers] = calls::halves(&calls, 500);
    for request in clients {
        meter.ingest(&request, 2_000).unwrap();
        let overview = meter.overview();
        assert!(overview.pending_bytes <= overview.pending_bytes_limit);
    }
    servers.iter().for_each(|request| _ = meter.ingest(request, 3_000).unwrap());
    let accounting = meter.accounting();
    assert_eq!(accounting.joined, 2 * (OTHERS - 1), "{accounting:?}");
    assert!(accounting.evicted > evicted && accounting.holds());
}

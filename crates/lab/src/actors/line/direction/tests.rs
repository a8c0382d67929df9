//! Invariants of a direction, whatever it does to its packets.

use super::super::packet::tests::v4;
use super::*;
use proptest::prelude::*;
use std::time::Duration;

const MS: u64 = 1_000_000;
const ACK: u8 = 16;

/// Packets that left: when, and which ones.
struct Passed {
    out: Vec<(u64, usize)>,
    fates: Vec<(usize, Fate)>,
    counts: Counts,
}

/// Sends packets at these times with this much payload; each leaves when it is due.
fn pass(way: &Way, seed: u64, packets: &[(u64, usize)]) -> Passed {
    let mut direction = Direction::new(way.clone(), seed);
    let (mut out, mut fates) = (Vec::new(), Vec::new());
    let mut release = |direction: &mut Direction, until_ns: u64| {
        while let Some(due_ns) = direction.next_due_ns().filter(|due_ns| *due_ns <= until_ns) {
            while let Some(packet) = direction.release(due_ns) {
                let sequence = tcp(&packet.bytes).expect("it came in as TCP").sequence;
                out.push((due_ns, sequence as usize / 10_000));
            }
        }
    };
    for (index, (at_ns, payload)) in packets.iter().enumerate() {
        release(&mut direction, at_ns - 1);
        // Far enough apart that none carries another's bytes.
        let bytes = v4(index as u32 * 10_000, *payload, ACK);
        direction.arrived(*at_ns, &bytes, |_, fate| fates.push((index, fate)));
    }
    release(&mut direction, u64::MAX);
    Passed { out, fates, counts: direction.counts() }
}

fn way() -> impl Strategy<Value = Way> {
    let numbers = || {
        proptest::collection::btree_set(1..60_u64, 0..8).prop_map(|set| set.into_iter().collect::<Vec<_>>())
    };
    let times = (0..30 * MS, 0..20 * MS, 0..40 * MS);
    let lists = (numbers(), numbers(), numbers(), numbers());
    let rest =
        (any::<bool>(), any::<bool>(), proptest::option::of(10_000..10_000_000_u64), 0.0..0.5, 0..9_u64);
    (times, lists, rest).prop_map(|((delay, jitter, late_by), (late, drop, twice, swap), rest)| {
        let (overtake, exponential, rate_bytes_per_s, loss, spike_every) = rest;
        Way {
            delay: Duration::from_nanos(delay),
            jitter: Duration::from_nanos(jitter),
            shape: if exponential { Shape::Exponential } else { Shape::Uniform },
            overtake,
            rate_bytes_per_s,
            queue_bytes: 20_000,
            loss,
            spike_every,
            spike: Duration::from_nanos(late_by / 2),
            late,
            late_by: Duration::from_nanos(late_by),
            drop,
            twice,
            swap,
            ..Way::default()
        }
    })
}

fn packets() -> impl Strategy<Value = Vec<(u64, usize)>> {
    proptest::collection::vec((0..3 * MS, 0..1400_usize), 1..60).prop_map(|steps| {
        let mut now = 1000 * MS;
        let arrivals = steps.into_iter().map(|(step, payload)| {
            now += step;
            (now, payload)
        });
        arrivals.collect()
    })
}

proptest! {
    #[test]
    fn every_packet_has_one_fate(way in way(), seed: u64, packets in packets()) {
        let passed = pass(&way, seed, &packets);
        let counts = passed.counts;
        let lost = counts.dropped_named
            + counts.dropped_hole
            + counts.dropped_too_large
            + counts.dropped_chance
            + counts.dropped_queue
            + counts.dropped_full;
        prop_assert_eq!(counts.received, packets.len() as u64);
        prop_assert_eq!(counts.passed, counts.received - lost + counts.twice);
        prop_assert_eq!(counts.left, 0);
        prop_assert_eq!(counts.passed, passed.out.len() as u64);
        for index in 0..packets.len() {
            let dropped = passed.fates.iter().any(|(of, fate)| *of == index && matches!(fate, Fate::Dropped { .. }));
            let twice = passed.fates.iter().any(|(of, fate)| *of == index && matches!(fate, Fate::Twice { .. }));
            let expected = if dropped { 0 } else if twice { 2 } else { 1 };
            prop_assert_eq!(passed.out.iter().filter(|(_, of)| *of == index).count(), expected, "packet {}", index);
        }
    }

    #[test]
    fn the_order_is_kept(way in way(), seed: u64, packets in packets()) {
        let way = Way { overtake: false, swap: Vec::new(), ..way };
        let passed = pass(&way, seed, &packets);
        prop_assert!(passed.out.is_sorted_by_key(|(_, index)| *index), "{:?}", passed.out);
    }

    #[test]
    fn packets_are_never_early_and_delays_are_reported(way in way(), seed: u64, packets in packets()) {
        let way = Way { swap: Vec::new(), ..way };
        let passed = pass(&way, seed, &packets);
        for (out_ns, index) in &passed.out {
            let told = passed.fates.iter().find_map(|(of, fate)| match fate {
                Fate::Delayed { by_ns, .. } if of == index => Some(*by_ns),
                _ => None,
            });
            prop_assert_eq!(*out_ns, packets[*index].0 + ns(way.delay) + told.unwrap_or(0));
        }
    }

    #[test]
    fn the_rate_is_kept(rate in 10_000..2_000_000_u64, seed: u64, packets in packets()) {
        let way = Way { rate_bytes_per_s: Some(rate), queue_bytes: 30_000, ..Way::default() };
        let passed = pass(&way, seed, &packets);
        let bytes = |index: usize| packets[index].1 as u128 + 40;
        for (first, (from_ns, _)) in passed.out.iter().enumerate() {
            let mut sum = 0;
            for (to_ns, index) in &passed.out[first + 1..] {
                sum += bytes(*index);
                // Whole nanoseconds per packet, rounded up.
                prop_assert!(sum * 1_000_000_000 <= u128::from(to_ns - from_ns) * u128::from(rate));
            }
        }
        for (out_ns, index) in &passed.out {
            // The queue's content, plus the packet itself.
            prop_assert!(u128::from(out_ns - packets[*index].0) * u128::from(rate) <= 30_001 * 1_000_000_000);
        }
    }

    #[test]
    fn chance_repeats_itself(way in way(), seed: u64, packets in packets()) {
        let (one, other) = (pass(&way, seed, &packets), pass(&way, seed, &packets));
        prop_assert_eq!(&one.out, &other.out);
        prop_assert_eq!(&one.fates, &other.fates);
        // The same packets are lost, whatever the other settings.
        let plain = Way { loss: way.loss, ..Way::default() };
        let unlucky = |passed: &Passed| -> Vec<usize> {
            let chance = |fate: &Fate| matches!(fate, Fate::Dropped { because: Loss::Chance, .. });
            passed.fates.iter().filter(|(_, fate)| chance(fate)).map(|(index, _)| *index).collect()
        };
        let named = Way { drop: Vec::new(), ..way.clone() };
        prop_assert_eq!(unlucky(&pass(&named, seed, &packets)), unlucky(&pass(&plain, seed, &packets)));
    }

    #[test]
    fn no_bytes_are_too_odd_to_pass(packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..90), 0..40)) {
        let mut direction = Direction::new(Way { loss: 0.2, least_bytes: 0, ..Way::default() }, 1);
        for bytes in &packets {
            direction.arrived(5, bytes, |_, _| {});
        }
        let out = std::iter::from_fn(|| direction.release(5)).count() as u64;
        prop_assert_eq!(out + direction.counts().dropped_chance, packets.len() as u64);
    }
}

#[test]
fn lists_name_what_is_counted() {
    let packets: Vec<_> = (0..8).map(|n| ((1 + n) * MS, if n % 2 == 0 { 100 } else { 0 })).collect();
    let passed = pass(&Way { drop: vec![2, 4], ..Way::default() }, 1, &packets);
    let out: Vec<_> = passed.out.iter().map(|(_, index)| *index).collect();
    assert_eq!(out, [0, 1, 3, 4, 5, 7]);
    assert_eq!((passed.counts.counted, passed.counts.dropped_named), (4, 2));
    let all = Way { drop: vec![2, 4], least_bytes: 0, ..Way::default() };
    let out: Vec<_> = pass(&all, 1, &packets).out.iter().map(|(_, index)| *index).collect();
    assert_eq!(out, [0, 2, 4, 5, 6, 7]);
}

#[test]
fn the_swapped_one_waits_for_the_next_or_goes_alone() {
    let packets = [(MS, 9), (2 * MS, 9), (3 * MS, 9), (100 * MS, 9)];
    let passed = pass(&Way { swap: vec![1, 3], ..Way::default() }, 1, &packets);
    assert_eq!(passed.out, [(2 * MS, 1), (2 * MS, 0), (3 * MS + SWAP_PATIENCE_NS, 2), (100 * MS, 3)]);
}

#[test]
fn packets_queue_behind_a_late_one() {
    let packets: Vec<_> = (1..5).map(|n| (n * MS, 9)).collect();
    let way = Way {
        delay: Duration::from_millis(5),
        late: vec![2],
        late_by: Duration::from_nanos(3 * MS / 2),
        overtake: true,
        ..Way::default()
    };
    let due: Vec<_> = pass(&way, 1, &packets).out.iter().map(|(due_ns, _)| *due_ns).collect();
    assert_eq!(due, [6 * MS, 8 * MS + MS / 2, 8 * MS + MS / 2, 9 * MS]);
}

#[test]
fn clumps_come_out_together() {
    let packets = [(MS, 9), (4 * MS, 9), (12 * MS, 9)];
    let way = Way { clump: Duration::from_millis(10), ..Way::default() };
    assert_eq!(pass(&way, 1, &packets).out, [(10 * MS, 0), (10 * MS, 1), (20 * MS, 2)]);
}

#[test]
fn retransmission_is_matched_with_its_loss() {
    let mut direction = Direction::new(Way { drop: vec![1, 2], ..Way::default() }, 1);
    let mut told = Vec::new();
    for (at_ns, sequence) in [(10, 500), (250, 500), (700, 500), (800, 500)] {
        direction.arrived(at_ns, &v4(sequence, 100, ACK), |_, fate| told.push(fate));
    }
    let because = Loss::Named;
    let dropped = |number| Fate::Dropped { number, because };
    assert_eq!(told, [dropped(1), dropped(2), Fate::Again { after_ns: 690 }]);
}

#[test]
fn memory_is_bounded() {
    let mut direction = Direction::new(Way::of_delay(Duration::from_secs(1)), 1);
    let bytes = v4(1, 1400, ACK);
    for _ in 0..MOST_PACKETS + 10 {
        direction.arrived(1, &bytes, |_, _| {});
    }
    let counts = direction.counts();
    assert_eq!(counts.left + counts.dropped_full, (MOST_PACKETS + 10) as u64);
    assert!(counts.left <= MOST_PACKETS as u64 && counts.dropped_full >= 10, "{counts:?}");
    let large = vec![0; 65_000];
    let mut direction = Direction::new(Way::of_delay(Duration::from_secs(1)), 1);
    (0..2000).for_each(|_| direction.arrived(1, &large, |_, _| {}));
    assert!(direction.waiting_bytes <= MOST_BYTES && direction.counts().dropped_full > 0);
}

//! The true offset lies in the interval, whatever the path does.

use super::*;
use proptest::prelude::*;

/// Two clocks and a path with random delays; all figures in nanoseconds.
#[derive(Clone, Debug)]
struct World {
    offset: i64,
    skew_ppm: f64,
    steps: Vec<(i64, i64)>,
    base_delays: (i64, i64),
    resolution: i64,
    calls: Vec<(i64, i64, i64)>,
}

const START: i64 = 1_700_000_000_000_000_000;

impl World {
    fn theta(&self, at: i64) -> i64 {
        let steps: i64 = self.steps.iter().filter(|(when, _)| at >= *when).map(|(_, step)| step).sum();
        self.offset + ((at - START) as f64 * self.skew_ppm * 1e-6).round() as i64 + steps
    }

    fn cut(&self, time: i64) -> i64 {
        time - time.rem_euclid(self.resolution)
    }

    fn bounds(&self) -> Bounds {
        let mut bounds = Bounds::default();
        for (at, there, back) in &self.calls {
            let sent = START + at;
            let arrived = sent + self.base_delays.0 + there;
            bounds.first_to_second(self.cut(sent), self.cut(arrived + self.theta(arrived)));
            let answered = arrived + 300_000;
            let received = answered + self.base_delays.1 + back;
            bounds.second_to_first(self.cut(answered + self.theta(answered)), self.cut(received));
        }
        bounds
    }
}

fn world() -> impl Strategy<Value = World> {
    let delay = prop_oneof![0..50_000_i64, 0..5_000_000_i64, Just(0)];
    // Short enough that all calls are in flight at once.
    let span = prop_oneof![Just(3_000_000_i64), Just(1_000_000_000), Just(3_600_000_000_000)];
    let calls = (span, prop::collection::vec((0.0..1.0_f64, delay.clone(), delay), 1..300)).prop_map(
        |(span, calls)| {
            calls.into_iter().map(|(at, there, back)| ((at * span as f64) as i64, there, back)).collect()
        },
    );
    let offset = prop_oneof![-1_000_000..1_000_000_i64, -40_000_000_000_000..40_000_000_000_000_i64];
    let resolution = prop_oneof![Just(1_i64), Just(1_000)];
    (offset, -200.0..200.0_f64, (0..2_000_000_i64, 0..2_000_000_i64), resolution, calls).prop_map(
        |(offset, skew_ppm, base_delays, resolution, calls)| World {
            offset,
            skew_ppm,
            steps: Vec::new(),
            base_delays,
            resolution,
            calls,
        },
    )
}

fn check(world: &World, clock: &Clock, at: i64) -> Result<(), TestCaseError> {
    let Some((low, high)) = clock.offset_ns(at) else { return Ok(()) };
    let theta = world.theta(at);
    // The model rounds to whole nanoseconds, twice.
    prop_assert!(low <= theta + 1 && theta - 1 <= high, "{theta} is not in {low}..={high} at {at}");
    let shown = at + theta;
    let (first, last) = clock.first_at(shown).expect("bounded one way, bounded the other way");
    prop_assert!(first <= at + 2 && at - 2 <= last, "{at} is not in {first}..={last}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_interval_contains_the_true_offset(world in world()) {
        let clock = Clock::fit(&world.bounds(), world.resolution as u32).expect("there are bounds");
        prop_assert_eq!(clock.stretches.len(), 1, "one line fits");
        prop_assert_eq!(clock.contradictions, 0);
        for (at, ..) in &world.calls {
            prop_assert!(clock.offset_ns(START + at).is_some());
            check(&world, &clock, START + at)?;
        }
        check(&world, &clock, START - 10_000_000_000)?;
        check(&world, &clock, START + 4_000_000_000_000)?;
    }

    #[test]
    fn a_clock_step_yields_two_stretches(
        mut world in world(),
        step in prop_oneof![20_000_000..90_000_000_000_i64, -90_000_000_000..-20_000_000_i64],
        share in 0.2..0.8_f64,
    ) {
        // Enough calls on both sides of the step to reveal it. A call takes up to 14 ms: if all were sent within
        // less than that, each could arrive after the step, and no packet would have seen the clock before it.
        let span = world.calls.iter().map(|call| call.0).max().unwrap_or(0).max(100_000_000);
        world.calls.extend((0..100).map(|i| (span * i / 100, 1_000 * i, 1_000 * (100 - i))));
        world.steps = vec![(START + (span as f64 * share) as i64, step)];
        let clock = Clock::fit(&world.bounds(), world.resolution as u32).expect("there are bounds");
        // Calls in flight at the step have bounds from before and after it side by side.
        prop_assert!(clock.stretches.len() <= 10, "{} stretches", clock.stretches.len());
        // A slow drift over an hour can be as large as a small step.
        if step.abs() > 2 * (span / 1_000 + 20_000_000) {
            prop_assert!(clock.stretches.len() >= 2);
            for (at, ..) in &world.calls {
                let (at, when) = (START + at, world.steps[0].0);
                // A step in the middle of a call belongs to neither time.
                if (at - when).abs() > 30_000_000 {
                    check_stepped(&world, &clock, at)?;
                }
            }
        }
    }
}

fn check_stepped(world: &World, clock: &Clock, at: i64) -> Result<(), TestCaseError> {
    let Some((low, high)) = clock.offset_ns(at) else { return Ok(()) };
    let theta = world.theta(at);
    prop_assert!(low <= theta + 1 && theta - 1 <= high, "{theta} is not in {low}..={high} at {at}");
    Ok(())
}

#[test]
fn symmetric_delays_give_half_the_round_trip_as_bound() {
    let calls = (0..1000).map(|i| (i * 1_000_000, i * 7 % 1000, i * 13 % 1000)).collect();
    let world = World {
        offset: 123_456_789,
        skew_ppm: 40.0,
        steps: Vec::new(),
        base_delays: (50_000, 50_000),
        resolution: 1,
        calls,
    };
    let clock = Clock::fit(&world.bounds(), 1).expect("there are bounds");
    let (low, high) = clock.offset_ns(START + 500_000_000).expect("both ways were seen");
    assert!(high - low < 102_000, "{low}..={high}");
    let (slowest, fastest) = clock.slope(START).expect("bounded");
    assert!(slowest < 40e-6 && 40e-6 < fastest && fastest - slowest < 300e-6, "{slowest} {fastest}");
}

#[test]
fn one_direction_alone_bounds_nothing() {
    let mut bounds = Bounds::default();
    (0..100).for_each(|i| bounds.first_to_second(START + i * 1000, START + i * 1000 + 77));
    let clock = Clock::fit(&bounds, 1).expect("there are bounds");
    assert_eq!(clock.offset_ns(START), None);
    assert_eq!(clock.first_at(START), None);
    assert_eq!(Clock::fit(&Bounds::default(), 1), None);
}

#[test]
fn a_single_false_bound_is_dropped_and_counted() {
    let mut bounds = Bounds::default();
    for i in 0..200 {
        let sent = START + i * 5_000_000;
        // The sender's capture dropped a packet and has only its retransmission.
        let seen = if i == 100 { sent + 40_000_000 } else { sent };
        bounds.first_to_second(seen, sent + 500_000 + 1_000_000);
        bounds.second_to_first(sent + 600_000 + 1_000_000, sent + 1_100_000);
    }
    let clock = Clock::fit(&bounds, 1).expect("there are bounds");
    assert_eq!((clock.stretches.len(), clock.contradictions), (1, 1));
    let (low, high) = clock.offset_ns(START + 500_000_000).expect("both ways were seen");
    assert!(low <= 1_000_000 && 1_000_000 <= high && high - low < 1_100_000, "{low}..={high}");
}

#[test]
fn clocks_decades_apart_lose_no_precision() {
    let mut bounds = Bounds::default();
    for i in 0..100 {
        let sent = START + i * 10_000_000;
        bounds.first_to_second(sent, i * 10_000_000 + 200);
        bounds.second_to_first(i * 10_000_000 + 300, sent + 500);
    }
    let clock = Clock::fit(&bounds, 1).expect("there are bounds");
    let (low, high) = clock.offset_ns(START + 500_000_000).expect("both ways were seen");
    assert!(low <= -START && -START <= high && high - low < 500, "{low}..={high}");
}

#[test]
fn a_shared_clock_is_exact() {
    let at = START + 123_456_789;
    assert_eq!(Clock::same().offset_ns(at), Some((0, 0)));
    assert_eq!(Clock::same().first_at(at), Some((at, at)));
    assert_eq!(Clock::same().second_at(at), Some((at, at)));
}

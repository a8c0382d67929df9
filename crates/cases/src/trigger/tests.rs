//! Simulated pairs: steady ones with every kind of noise, and ones that change.

use super::*;
use proptest::prelude::*;
use spangap_model::Histogram;

/// Seeded random numbers.
struct Dice(u64);

impl Dice {
    fn uniform(&mut self) -> f64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// Distribution of call durations, milliseconds.
#[derive(Clone, Copy, Debug)]
enum Noise {
    LogNormal {
        sigma: f64,
    },
    Exponential,
    Pareto {
        alpha: f64,
    },
    /// Some calls encounter a timer of 200 ms.
    Rare {
        share: f64,
    },
    /// Some calls encounter a server that pauses for a tenth of a second.
    Stalls {
        sigma: f64,
        share: f64,
    },
    /// A cache: most calls are fast, some are not.
    Two {
        share: f64,
    },
    /// Some calls lose a packet, which costs two thirds of a round trip more.
    Lossy {
        share: f64,
    },
}

impl Noise {
    fn ms(self, dice: &mut Dice) -> f64 {
        match self {
            Noise::LogNormal { sigma } => (sigma * dice.normal()).exp(),
            Noise::Exponential => -dice.uniform().ln(),
            Noise::Pareto { alpha } => dice.uniform().powf(-1.0 / alpha),
            Noise::Rare { share } => {
                if dice.uniform() < share {
                    200.0
                } else {
                    1.0 + 0.2 * dice.uniform()
                }
            }
            Noise::Stalls { sigma, share } => {
                let stall = if dice.uniform() < share { 60.0 + 60.0 * dice.uniform() } else { 0.0 };
                stall + (sigma * dice.normal()).exp()
            }
            Noise::Lossy { share } => {
                (if dice.uniform() < share { 1.67 } else { 1.0 }) * (0.05 * dice.normal()).exp()
            }
            Noise::Two { share } => {
                (if dice.uniform() < share { 20.0 } else { 1.0 }) * (0.2 * dice.normal()).exp()
            }
        }
    }
}

/// Five seconds of a pair, as the meter counts them: cumulative.
struct Pair {
    dice: Dice,
    noise: Noise,
    all: [Histogram; 2],
    before: [Counts; 2],
}

impl Pair {
    fn new(seed: u64, noise: Noise) -> Pair {
        Pair {
            dice: Dice(seed),
            noise,
            all: [Histogram::new(), Histogram::new()],
            before: Default::default(),
        }
    }

    /// The next slot with this many calls a second, each `factor` times as long.
    fn slot(&mut self, rate: f64, factor: f64) -> Option<Window> {
        let calls = (5.0 * rate * (1.0 + 0.1 * self.dice.normal())).max(0.0) as u64;
        for _ in 0..calls {
            let gap_ns = (self.noise.ms(&mut self.dice) * 1e6 * factor) as u64;
            self.all[0].record(gap_ns);
            self.all[1].record(gap_ns + 2_000_000);
        }
        let now = [Counts::of(&self.all[0]), Counts::of(&self.all[1])];
        let [gap, client] = [now[0].since(&self.before[0]), now[1].since(&self.before[1])];
        self.before = now;
        assert_eq!(gap.calls, calls, "a histogram that only grows has what came");
        Window::of(gap, client)
    }
}

const HOUR: usize = 720;

/// How often it left its baseline.
fn alarms(pair: &mut Pair, watch: &mut Watch, slots: usize, rate: impl Fn(usize) -> f64) -> usize {
    let (mut alarms, mut is_out) = (0, false);
    for slot in 0..slots {
        let Some(window) = pair.slot(rate(slot), 1.0) else { continue };
        let out = matches!(watch.take(window), State::Out(_));
        alarms += usize::from(out && !is_out);
        is_out = out;
    }
    alarms
}

fn noise() -> impl Strategy<Value = Noise> {
    prop_oneof![
        (0.1..1.5f64).prop_map(|sigma| Noise::LogNormal { sigma }),
        Just(Noise::Exponential),
        (2.2..4.0f64).prop_map(|alpha| Noise::Pareto { alpha }),
        (0.0005..0.02f64).prop_map(|share| Noise::Rare { share }),
        (0.01..0.5f64).prop_map(|share| Noise::Two { share }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Hours of noise do not raise an alarm.
    #[test]
    fn a_steady_pair_never_leaves_its_baseline(seed in any::<u64>(), noise in noise(), rate in 5.0..50.0f64) {
        let mut pair = Pair::new(seed, noise);
        let mut watch = Watch::default();
        // The shortest possible baseline is the weakest point, and is tested on the way.
        prop_assert_eq!(alarms(&mut pair, &mut watch, 2 * HOUR, |_| rate), 0, "{:?} at {}/s", noise, rate);
    }

    /// A change of load alone raises no alarm: the same calls, more or fewer of them.
    #[test]
    fn a_load_that_changes_is_no_slowness(seed in any::<u64>(), noise in noise(), low in 4.0..12.0f64, times in 2.0..10.0f64) {
        let mut pair = Pair::new(seed, noise);
        let mut watch = Watch::default();
        let rate = |slot: usize| if (slot / 60).is_multiple_of(2) { low } else { low * times };
        prop_assert_eq!(alarms(&mut pair, &mut watch, HOUR, rate), 0, "{:?} from {}/s", noise, low);
    }

    /// Twice the duration is detected within two windows.
    #[test]
    fn doubled_gaps_are_seen_within_two_windows(seed in any::<u64>(), sigma in 0.05..0.8f64, rate in 60.0..200.0f64) {
        let mut pair = Pair::new(seed, Noise::LogNormal { sigma });
        let mut watch = Watch::default();
        for _ in 0..60 {
            watch.take(pair.slot(rate, 1.0).unwrap());
        }
        let mut untouched = watch.clone();
        watch.take(pair.slot(rate, 2.2).unwrap());
        let state = watch.take(pair.slot(rate, 2.2).unwrap());
        prop_assert!(matches!(state, State::Out(_)), "{:?}", state);
        // And it stays so for as long as it is news, without becoming the baseline.
        for _ in 0..50 {
            let state = watch.take(pair.slot(rate, 2.2).unwrap());
            prop_assert!(matches!(state, State::Out(_)), "{:?}", state);
        }
        // One window in many is out of range by chance: these are windows that are usual for a pair that was never slow.
        let slots = std::iter::repeat_with(|| pair.slot(rate, 1.0).unwrap());
        let usual = slots.filter(|window| untouched.take(window.clone()) == State::Within);
        let mut back = usual.take(3).map(|window| watch.take(window));
        prop_assert!(back.all(|state| state == State::Within));
    }

    #[test]
    fn what_is_added_up_is_what_came(one in prop::collection::vec(any::<u32>(), 0..50), two in prop::collection::vec(any::<u32>(), 0..50)) {
        let of = |values: &[u32]| {
            let mut all = Histogram::new();
            values.iter().for_each(|ns| all.record((*ns).into()));
            all
        };
        let mut sum = Counts::of(&of(&one));
        sum.add(&Counts::of(&of(&two)));
        let all = Counts::of(&of(&[one.clone(), two.clone()].concat()));
        prop_assert_eq!(&sum, &all);
        prop_assert_eq!(all.since(&Counts::of(&of(&one))), Counts::of(&of(&two)));
    }
}

/// A serial client of a server that pauses occasionally: one call in twenty encounters a pause. Neither the
/// mean nor the p90 of calls that vary this much shows it.
#[test]
fn a_few_calls_that_take_very_long_are_seen() {
    let stalls = |seed: u64, share: f64| {
        let mut pair = Pair::new(seed, Noise::LogNormal { sigma: 1.0 });
        let mut watch = Watch::default();
        for _ in 0..9 {
            watch.take(pair.slot(30.0, 1.0).unwrap());
        }
        let mut out = Vec::new();
        for _ in 0..6 {
            pair.noise = Noise::Stalls { sigma: 1.0, share };
            if let State::Out(left) = watch.take(pair.slot(30.0, 1.0).unwrap()) {
                out.push(left.figure);
            }
        }
        out
    };
    let seen = (0..40).filter(|seed| !stalls(*seed, 0.05).is_empty()).count();
    assert!(seen >= 38, "{seen} of 40 within half a minute");
    let false_alarms = (0..40).filter(|seed| !stalls(*seed, 0.0).is_empty()).count();
    assert_eq!(false_alarms, 0, "nothing happened");
}

/// A client whose event loop stands still now and then: one call in a hundred and fifty takes a tenth of a second, for minutes.
/// No window has more than three of them.
#[test]
fn a_few_calls_that_take_very_long_for_a_minute_are_seen() {
    let after = |seed: u64, share: f64| {
        let mut pair = Pair::new(seed, Noise::LogNormal { sigma: 0.5 });
        let mut watch = Watch::default();
        for _ in 0..90 {
            assert!(!matches!(watch.take(pair.slot(60.0, 1.0).unwrap()), State::Out(_)));
        }
        pair.noise = Noise::Stalls { sigma: 0.5, share };
        (1..=24).find(|_| matches!(watch.take(pair.slot(60.0, 1.0).unwrap()), State::Out(_)))
    };
    let found: Vec<Option<usize>> = (0..100).map(|seed| after(seed, 0.007)).collect();
    assert!(found.iter().flatten().count() >= 90, "within two minutes: {found:?}");
    assert!((0..100).all(|seed| after(seed, 0.0).is_none()), "nothing happened");
    // Some have always been that long.
    let mut pair = Pair::new(1, Noise::Stalls { sigma: 0.5, share: 0.007 });
    assert_eq!(alarms(&mut pair, &mut Watch::default(), 2 * HOUR, |_| 60.0), 0);
}

/// While it goes on, most windows are out by a single such call, and none is after it has ended.
#[test]
fn a_few_long_calls_are_over_when_none_comes_any_more() {
    let mut found = 0;
    for seed in 0..20 {
        let mut pair = Pair::new(seed, Noise::LogNormal { sigma: 0.5 });
        let mut watch = Watch::default();
        for _ in 0..90 {
            watch.take(pair.slot(60.0, 1.0).unwrap());
        }
        pair.noise = Noise::Stalls { sigma: 0.5, share: 0.006 };
        let left = (0..24).find_map(|_| match watch.take(pair.slot(60.0, 1.0).unwrap()) {
            State::Out(left) => Some(left),
            _ => None,
        });
        // By chance, two windows in a row may have enough of them to be out by themselves.
        let Some(left) = left.filter(|left| LASTING.contains(&left.figure)) else { continue };
        found += 1;
        let usual = watch.remembered();
        let mut out =
            || (0..60).filter(|_| usual.is_out(&pair.slot(60.0, 1.0).unwrap(), left.figure)).count();
        let during = out();
        pair.noise = Noise::LogNormal { sigma: 0.5 };
        let mut out =
            || (0..60).filter(|_| usual.is_out(&pair.slot(60.0, 1.0).unwrap(), left.figure)).count();
        assert!(during >= 35 && out() == 0, "seed {seed}: {during} of 60 windows are out: {left:?}");
    }
    assert!(found >= 5, "{found} of 20");
}

/// A baseline of three quarters of a minute, and then a line that occasionally loses a packet: a third of the
/// calls take a round trip more. That is less than the factor of a short baseline, and lasts.
#[test]
fn what_is_slower_by_less_than_twice_is_seen_when_it_lasts() {
    let after = |seed: u64, share: f64| {
        let mut pair = Pair::new(seed, Noise::LogNormal { sigma: 0.05 });
        let mut watch = Watch::default();
        for _ in 0..9 {
            watch.take(pair.slot(60.0, 15.0).unwrap());
        }
        pair.noise = Noise::Lossy { share };
        (1..=8).find(|_| matches!(watch.take(pair.slot(60.0, 15.0).unwrap()), State::Out(_)))
    };
    for seed in 0..40 {
        assert_eq!(after(seed, 0.33), Some(usize::from(PATIENT)), "seed {seed}");
        assert_eq!(after(seed, 0.0), None, "seed {seed}: nothing happened");
    }
}

/// A pair on a host with busy neighbours: a varying share of a window's calls waits for long.
fn neighbours(pair: &mut Pair, share: f64, factor: f64) -> Option<Window> {
    let busy = pair.dice.uniform();
    pair.noise = Noise::Stalls { sigma: 0.3, share: share * busy * busy };
    pair.slot(40.0, factor)
}

/// Noise moves the mean and the upper quantiles of such a pair as far as a slowdown would. The median shows
/// that each call takes longer.
#[test]
fn calls_that_all_take_longer_are_seen_beside_busy_neighbours() {
    let out = |seed: u64, factor: f64| {
        let mut pair = Pair::new(seed, Noise::Exponential);
        let mut watch = Watch::default();
        for _ in 0..9 {
            watch.take(neighbours(&mut pair, 0.2, 1.0).unwrap());
        }
        (0..6).any(|_| matches!(watch.take(neighbours(&mut pair, 0.2, factor).unwrap()), State::Out(_)))
    };
    let seen = (0..100).filter(|seed| out(*seed, 4.0)).count();
    assert!(seen >= 98, "{seen} of 100 within half a minute");
    let false_alarms = (0..1000).filter(|seed| out(*seed, 1.0)).count();
    // The load of the neighbours varies between windows: some of that is a change, but not of the median.
    assert!(false_alarms <= 25, "{false_alarms} of 1000");
}

/// A window held because it might have been the first of a row enters the baseline if no row follows, and is
/// not held for ever.
#[test]
fn what_may_be_a_row_and_is_none_becomes_usual() {
    let mut pair = Pair::new(5, Noise::LogNormal { sigma: 0.05 });
    let mut watch = Watch::default();
    for slot in 0..240 {
        watch.take(pair.slot(40.0, if slot % 3 == 2 { 2.0 } else { 1.0 }).unwrap());
        assert!(watch.held.len() <= usize::from(PATIENT), "slot {slot}: {}", watch.held.len());
    }
    assert!(watch.baseline.len() > 100, "{}", watch.baseline.len());
}

/// All calls of one window encounter a pause, such as a garbage collector's: by itself, that is not news.
#[test]
fn one_pause_is_no_news() {
    for seed in 0..40 {
        let mut pair = Pair::new(seed, Noise::LogNormal { sigma: 0.5 });
        let mut watch = Watch::default();
        let mut out = 0;
        for slot in 0..120 {
            pair.noise = match slot % 10 {
                9 => Noise::Stalls { sigma: 0.5, share: 0.1 },
                _ => Noise::LogNormal { sigma: 0.5 },
            };
            out += usize::from(matches!(watch.take(pair.slot(30.0, 1.0).unwrap()), State::Out(_)));
        }
        assert_eq!(out, 0, "seed {seed}");
    }
}

#[test]
fn the_tail_of_a_binomial_distribution() {
    // 10 throws of a coin; 4 of 4 sixes.
    for (least, of, p, expected) in
        [(6, 10, 0.5, 0.376_953), (10, 10, 0.5, 0.000_977), (4, 4, 1.0 / 6.0, 0.000_772), (0, 9, 0.3, 1.0)]
    {
        let is = at_least(least, of, p);
        assert!((is - expected).abs() < 1e-5, "{least} of {of}: {is}");
    }
}

#[test]
fn three_calls_a_minute_are_no_baseline_and_yet_have_a_threshold() {
    let mut pair = Pair::new(7, Noise::Pareto { alpha: 1.2 });
    // A window of a minute has three.
    assert!((0..60).all(|_| pair.slot(3.0 / 60.0, 1.0).is_none()));
    let mut watch = Watch::default();
    assert!(!watch.is_over(1, 12) && !watch.is_over(1, 12));
    assert!(watch.is_over(1, 12), "the third within the minute");
    let still: Vec<bool> = (0..12).map(|_| watch.is_over(0, 12)).collect();
    assert_eq!(
        still.iter().filter(|is_over| **is_over).count(),
        9,
        "as long as all three are within the minute"
    );
    assert!(!watch.is_over(2, 12), "those have passed");
}

#[test]
fn a_change_for_good_becomes_usual() {
    let mut pair = Pair::new(3, Noise::LogNormal { sigma: 0.2 });
    let mut watch = Watch::default();
    for _ in 0..60 {
        watch.take(pair.slot(50.0, 1.0).unwrap());
    }
    let mut out = 0;
    while watch.take(pair.slot(50.0, 3.0).unwrap()) != State::Within {
        out += 1;
        assert!(out < 4 * NEW_USUAL, "it never becomes usual");
    }
    assert!(out >= NEW_USUAL, "{out} windows are too few to be usual");
}

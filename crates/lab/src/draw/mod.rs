//! Runs drawn from the declared [`distribution`]: the seed alone decides what each consists of.

pub mod distribution;
pub mod earlier;

use crate::LabError;
use crate::host_clock::HostClock;
use crate::scenario::{Case, Scenario, Value};
use crate::scenarios;
use distribution::{
    BUSY, FAULTS, FEW_PER_S, INNOCENT, MOST_PPM, NOISE, OFFSETS, OTHER_PAIR, OWN_NEAR_MISS, PARTS, Part,
    Range, Row, SECOND, SIZES, STACKS, WITH_CLOCKS, WITH_SIZES,
};
use earlier::EarlierWindow;
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use spangap_model::Side;
use std::time::Duration;

/// A drawn run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DrawnRun {
    /// Seed of the draw.
    pub seed: u64,
    /// Number of the run within the draw, from 1.
    pub number: u64,
    /// From 1; higher if earlier attempts did not act.
    pub attempt: u64,
    /// Name of the scenario.
    pub scenario: String,
    /// Whether it is the near miss.
    pub near_miss: bool,
    /// `NAME=VALUE` for its parameters.
    pub settings: Vec<String>,
    /// Stacks of target and client, if not the scenario's own.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stacks: Option<Stacks>,
    /// Payloads, if not the scenario's own.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sizes: Option<Sizes>,
    /// Clocks of hosts that differ from this machine's.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub clocks: Vec<HostClock>,
    /// Background noise.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub noise: Option<Noise>,
    /// A second fault: stops of a process.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub second: Option<Stops>,
    /// The window recorded before it, if there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub earlier: Option<EarlierWindow>,
}

/// Stacks of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stacks {
    /// Of the target.
    pub target: String,
    /// Of the client.
    pub client: String,
}

/// Payloads of a run, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Of a request.
    pub request_bytes: u64,
    /// Of a response.
    pub response_bytes: u64,
}

/// Background noise of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Noise {
    /// A loop on the host of one side, which never yields.
    BusyLoop {
        /// Whose host.
        side: Side,
        /// Busy time per 100 ms, in nanoseconds.
        on_ns: u64,
    },
    /// Another target, and another tank that calls it.
    OtherPair {
        /// Calls a second.
        rate: u64,
    },
}

/// Stops of a process in addition to the scenario's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stops {
    /// Whose.
    pub side: Side,
    /// Length of each stop, in nanoseconds.
    pub stop_ns: u64,
}

/// Time between the starts of two [`Stops`].
pub const STOP_EVERY: Duration = Duration::from_millis(430);
/// Period of a [`Noise::BusyLoop`].
pub const BUSY_EVERY: Duration = Duration::from_millis(100);

impl DrawnRun {
    /// Run `number` of the draw of `seed`. A further attempt has the same fault, with everything else drawn
    /// anew.
    pub fn draw(seed: u64, number: u64, attempt: u64) -> DrawnRun {
        let mut random = Rng::with_seed(mixed(&[seed, number]));
        let part = *weighted(&mut random, &PARTS.map(|(part, percent)| (part, percent)));
        let rows: Vec<(&Row, u32)> = match part {
            Part::Nothing => INNOCENT.iter().map(|row| (row, row.weight)).collect(),
            Part::NearMiss | Part::Fault => FAULTS.iter().map(|row| (row, row.weight)).collect(),
            Part::Both => {
                FAULTS.iter().filter(|row| row.around.second).map(|row| (row, row.weight)).collect()
            }
        };
        let row = *weighted(&mut random, &rows);
        let near_miss = part == Part::NearMiss;
        let mut random = Rng::with_seed(mixed(&[seed, number, attempt]));
        let settings = settings(&mut random, row);
        // Everything is drawn, needed or not, so that a changed row does not affect the other runs of a seed.
        let (target, client) =
            *weighted(&mut random, &STACKS.iter().map(|(a, b, n)| ((*a, *b), *n)).collect::<Vec<_>>());
        let stacks = Stacks { target: target.to_owned(), client: client.to_owned() };
        let [request_bytes, response_bytes] = [(); 2].map(|()| log_uniform(&mut random, SIZES.0, SIZES.1));
        let with_sizes = random.u32(..100) < WITH_SIZES;
        let clock = clock(&mut random);
        let with_clock = random.u32(..100) < WITH_CLOCKS;
        let noise = noise(&mut random);
        let second = Stops {
            side: side(&mut random),
            stop_ns: in_words(log_uniform(&mut random, SECOND.0, SECOND.1)),
        };
        let around = row.around;
        let own_target = near_miss && OWN_NEAR_MISS.contains(&row.scenario);
        let earlier = EarlierWindow::draw(&mut random, row.scenario, near_miss, &settings);
        DrawnRun {
            seed,
            number,
            attempt,
            scenario: row.scenario.to_owned(),
            near_miss,
            settings,
            stacks: (around.stacks && !own_target && (target != "rust" || client != "rust"))
                .then_some(stacks),
            sizes: (around.sizes && with_sizes).then_some(Sizes { request_bytes, response_bytes }),
            clocks: if around.clocks && with_clock { vec![clock] } else { Vec::new() },
            noise,
            second: (part == Part::Both).then_some(second),
            earlier,
        }
    }

    /// The case to make.
    ///
    /// # Errors
    /// The scenario does not exist, or rejects the settings: another version drew it.
    pub fn case(&self) -> Result<Case<'static>, LabError> {
        let scenario = self.scenario()?;
        Case::new(scenario, self.near_miss, &self.settings)
    }

    fn scenario(&self) -> Result<&'static Scenario, LabError> {
        let found = scenarios::find(&self.scenario);
        let why = || LabError::Parameter(format!("there is no scenario {}", self.scenario));
        found.map(|(scenario, _)| scenario).ok_or_else(why)
    }

    /// Seed of the random choices during the run.
    pub fn run_seed(&self) -> u64 {
        // As many digits as every tool accepts.
        mixed(&[self.seed, self.number, self.attempt, 1]) >> 33
    }

    /// The command that repeats it.
    pub fn command(&self) -> String {
        let DrawnRun { seed, number, attempt, .. } = self;
        format!("spangap lab grade --draw {number} --seed {seed} --only {number}.{attempt} --out DIR")
    }
}

/// Combines several numbers into one that depends on each.
fn mixed(numbers: &[u64]) -> u64 {
    // The finalizer of SplitMix64.
    numbers.iter().fold(0x9e37_79b9_7f4a_7c15, |sum: u64, number| {
        let mut mixed =
            (sum ^ number).wrapping_mul(0xbf58_476d_1ce4_e5b9).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

fn weighted<'a, T>(random: &mut Rng, of: &'a [(T, u32)]) -> &'a T {
    let mut left = random.u32(..of.iter().map(|(_, weight)| weight).sum::<u32>());
    for (one, weight) in of {
        match left.checked_sub(*weight) {
            Some(rest) => left = rest,
            None => return one,
        }
    }
    unreachable!("what is left is less than the sum of the weights")
}

fn log_uniform(random: &mut Rng, low: u64, high: u64) -> u64 {
    let (low_ln, high_ln) = ((low as f64).ln(), (high as f64).ln());
    let drawn = (low_ln + (high_ln - low_ln) * random.f64()).exp().round() as u64;
    drawn.clamp(low, high)
}

/// A duration with at most three digits, and whole microseconds, for readability.
fn in_words(ns: u64) -> u64 {
    let digits = ns.max(1).ilog10().saturating_sub(2).max(3);
    let unit = 10_u64.pow(digits);
    (ns / unit).max(1) * unit
}

fn side(random: &mut Rng) -> Side {
    if random.bool() { Side::Client } else { Side::Server }
}

fn settings(random: &mut Rng, row: &Row) -> Vec<String> {
    let (scenario, _) = scenarios::find(row.scenario).expect("a test compares the rows with the scenarios");
    let mut rate = None;
    let mut settings = Vec::new();
    for Range { name, low, high } in row.ranges {
        let drawn = log_uniform(random, *low, *high);
        let parameter = scenario.parameters.iter().find(|one| one.name == *name);
        let value = match parameter.map(|parameter| parameter.default) {
            Some(Value::Duration(_)) => Value::Duration(in_words(drawn)),
            _ => Value::Number(drawn),
        };
        if *name == "rate" {
            rate = Some(drawn);
        }
        settings.push(format!("{name}={value}"));
    }
    let seconds = if rate.is_some_and(|rate| rate < FEW_PER_S) { 8 } else { 4 };
    settings.push(format!("duration={seconds}s"));
    settings
}

fn clock(random: &mut Rng) -> HostClock {
    let side = side(random);
    let offset = in_words(log_uniform(random, OFFSETS.0, OFFSETS.1)).cast_signed();
    let offset_ns = if random.bool() { offset } else { -offset };
    let skew_ppm = ((random.f64() * 2.0 - 1.0) * MOST_PPM).round();
    HostClock { side, offset_ns, skew_ppm }
}

fn noise(random: &mut Rng) -> Option<Noise> {
    let [_, busy, _] = NOISE;
    let (side, on_ns) = (side(random), in_words(log_uniform(random, BUSY.0, BUSY.1)));
    let rate = log_uniform(random, OTHER_PAIR.0, OTHER_PAIR.1);
    match random.u32(..100) {
        drawn if drawn < NOISE[0] => None,
        drawn if drawn < NOISE[0] + busy => Some(Noise::BusyLoop { side, on_ns }),
        _ => Some(Noise::OtherPair { rate }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn seed_decides_everything_and_attempts_keep_the_fault() {
        for number in 1..200 {
            let one = DrawnRun::draw(7, number, 1);
            assert_eq!(one, DrawnRun::draw(7, number, 1));
            one.case().expect("the scenario takes what is drawn");
            let again = DrawnRun::draw(7, number, 2);
            assert_eq!((&one.scenario, one.near_miss), (&again.scenario, again.near_miss));
            assert_eq!(one.second.is_some(), again.second.is_some());
        }
        let all = |seed| (1..50).map(|number| DrawnRun::draw(seed, number, 1).settings).collect::<Vec<_>>();
        assert_ne!(all(7), all(8));
    }

    #[test]
    fn the_draw_is_of_the_declared_distribution() {
        const RUNS: u64 = 4_000;
        let runs: Vec<DrawnRun> = (1..=RUNS).map(|number| DrawnRun::draw(1, number, 1)).collect();
        let share = |is: &dyn Fn(&DrawnRun) -> bool| {
            runs.iter().filter(|run| is(run)).count() as f64 / RUNS as f64 * 100.0
        };
        let innocent = |run: &DrawnRun| INNOCENT.iter().any(|row| row.scenario == run.scenario);
        // Four standard deviations of so many draws are about 3 %.
        for (measured, declared) in [
            (share(&innocent), 20.0),
            (share(&|run| run.near_miss), 20.0),
            (share(&|run| run.second.is_some()), 10.0),
            (share(&|run| run.noise.is_none()), 60.0),
        ] {
            assert!((measured - declared).abs() < 4.0, "{measured} % of the runs, {declared} % declared");
        }
        let mut scenarios: BTreeMap<&str, u32> = BTreeMap::new();
        for run in &runs {
            *scenarios.entry(&run.scenario).or_default() += 1;
        }
        assert_eq!(scenarios.len(), INNOCENT.len() + FAULTS.len(), "{scenarios:?}");
    }

    #[test]
    fn near_misses_with_workers_keep_the_target_that_has_them() {
        let runs: Vec<DrawnRun> = (1..=4_000).map(|number| DrawnRun::draw(1, number, 1)).collect();
        let of =
            |near_miss| move |run: &&DrawnRun| run.scenario == "server-app" && run.near_miss == near_miss;
        assert!(runs.iter().filter(of(true)).all(|run| run.stacks.is_none()));
        assert!(runs.iter().filter(of(false)).any(|run| run.stacks.is_some()));
    }

    #[test]
    fn weak_and_strong_are_as_likely() {
        let mut random = Rng::with_seed(1);
        let drawn: Vec<u64> = (0..2_000).map(|_| log_uniform(&mut random, 1, 10_000)).collect();
        let below = |most| drawn.iter().filter(|number| **number <= most).count() as f64 / 2_000.0;
        assert!((below(100) - 0.5).abs() < 0.05, "{}", below(100));
        assert!((below(10) - 0.25).abs() < 0.06, "{}", below(10));
        assert!(drawn.iter().all(|number| (1..=10_000).contains(number)));
        assert_eq!(
            [in_words(1_234_567), in_words(87_654_321), in_words(1_999)],
            [1_230_000, 87_600_000, 1_000]
        );
    }
}

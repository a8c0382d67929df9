//! The earlier window of a drawn run: the same calls, recorded a few seconds before anything was wrong.
//!
//! Whoever has agents, a meter or a recording of a better day can compare with it; whoever begins to record when something is
//! slow cannot. [`WITH_EARLIER`] declares the share of runs that have one. It is recorded with the same programs, stacks,
//! payloads, clocks and noise, at another rate, since no two windows of real traffic have the same: [`RATE_FACTOR`].
//!
//! What it lacks is the cause of this run, by [`EARLIER`]: the fault, or what makes the near miss slow. Where a near miss is slow
//! for a reason that such a window has as well ([`Earlier::Same`]), nothing has changed, and a judge may say that.

use super::DrawnRun;
use super::distribution::FEW_PER_S;
use crate::scenario::Value;
use crate::scenarios;
use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// Runs with an earlier window, in per cent.
pub const WITH_EARLIER: u32 = 75;
/// Calls a second of an earlier window, per call a second of the run: at least, and at most.
pub const RATE_FACTOR: (f64, f64) = (0.5, 2.0);

/// The window before a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierWindow {
    /// Whether it is made by the near miss of the scenario.
    pub near_miss: bool,
    /// `NAME=VALUE` for its parameters.
    pub settings: Vec<String>,
    /// Whether it has the same cause as the run, so that nothing has changed.
    pub same: bool,
}

/// How an earlier window differs from a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// In nothing but its rate.
    Same,
    /// It is the near miss, which has the same surroundings without the fault.
    NearMiss,
    /// It has these parameters, with which the cause is too small to matter.
    With(&'static [&'static str]),
}

use Earlier::{NearMiss, Same, With};

/// For each scenario: the window before its fault, and before its near miss. Scenarios of which neither is drawn with a
/// cause (nothing is wrong, or a clock) have the same window.
pub const EARLIER: &[(&str, Earlier, Earlier)] = &[
    ("accept-overflow", With(&["pause=1us", "backlog=128"]), With(&["pause=2us"])),
    ("back-off", With(&["every=1000000"]), With(&["every=1000000"])),
    ("black-hole", With(&["every=1000000"]), With(&["every=1000000"])),
    ("client-app", With(&["pause=1us"]), With(&["pause=1us"])),
    ("clock", Same, Same),
    ("connection-per-call", NearMiss, With(&["delay=20us"])),
    ("cpu-quota-client", NearMiss, Same),
    ("cpu-quota-server", NearMiss, Same),
    ("disk", NearMiss, Same),
    ("dns", NearMiss, Same),
    ("fast-retransmit", With(&["every=1000000"]), With(&["delay=20us"])),
    ("flow-control", NearMiss, With(&["delay=20us"])),
    ("head-of-line", With(&["every=1000000"]), Same),
    ("healthy", Same, Same),
    ("large-payload", With(&["mib=1"]), Same),
    ("lock", NearMiss, Same),
    ("long-streams", Same, Same),
    ("memory", NearMiss, Same),
    ("nagle-client", NearMiss, Same),
    ("nagle-server", NearMiss, Same),
    ("network-delay", With(&["delay=20us"]), With(&["delay=20us"])),
    ("network-jitter", With(&["jitter=20us"]), With(&["jitter=40us"])),
    ("path-asymmetry", With(&["there=20us", "back=20us"]), Same),
    ("path-mtu", NearMiss, Same),
    ("pool-wait", NearMiss, With(&["think=20us"])),
    ("proxy-queue", NearMiss, Same),
    ("receive-window-client", NearMiss, Same),
    ("receive-window-server", NearMiss, Same),
    ("receiver-drop", NearMiss, Same),
    ("retries", With(&["every=1000000"]), With(&["think=20us"])),
    ("rto", With(&["every=1000000"]), With(&["every=1000000"])),
    ("run-queue-client", NearMiss, Same),
    ("run-queue-server", NearMiss, Same),
    ("server-app", With(&["think=50us"]), With(&["think=50us"])),
    ("server-queue", With(&["workers=64"]), With(&["workers=64"])),
    ("shared-connection", With(&["cost=1us"]), With(&["cost=1us"])),
    ("slow-method", Same, Same),
    ("softirq-client", NearMiss, Same),
    ("softirq-server", NearMiss, Same),
    ("stop-the-world", NearMiss, Same),
    ("stopped-client", NearMiss, Same),
    ("stopped-server", NearMiss, Same),
    ("stream-limit", With(&["limit=1000"]), With(&["think=20us"])),
    ("syn-loss", NearMiss, Same),
    ("tail-loss", With(&["every=1000000"]), With(&["delay=20us"])),
    ("tls-handshake", NearMiss, With(&["delay=20us"])),
];

impl EarlierWindow {
    /// The window before a run; `None` if this run has none.
    pub(super) fn draw(
        random: &mut Rng,
        scenario: &str,
        near_miss: bool,
        settings: &[String],
    ) -> Option<Self> {
        let is_there = random.u32(..100) < WITH_EARLIER;
        let factor = RATE_FACTOR.0 * (RATE_FACTOR.1 / RATE_FACTOR.0).powf(random.f64());
        let (_, of_fault, of_near_miss) = EARLIER.iter().find(|(name, ..)| *name == scenario)?;
        let how = if near_miss { *of_near_miss } else { *of_fault };
        let mut window = EarlierWindow {
            near_miss: near_miss || how == NearMiss,
            settings: settings.to_vec(),
            same: how == Same,
        };
        if let With(parameters) = how {
            window.settings.extend(parameters.iter().map(|one| (*one).to_owned()));
        }
        let rate = rate(scenario, settings).map(|rate| ((rate as f64 * factor).round() as u64).max(1));
        window.settings.extend(rate.map(|rate| format!("rate={rate}")));
        // A window only has to show what is usual.
        let seconds = if rate.is_some_and(|rate| rate < FEW_PER_S) { 8 } else { 2 };
        window.settings.push(format!("duration={seconds}s"));
        is_there.then_some(window)
    }

    /// The run that records it: like the other one, without a second fault.
    pub(crate) fn run(&self, of: &DrawnRun) -> DrawnRun {
        DrawnRun {
            near_miss: self.near_miss,
            settings: self.settings.clone(),
            second: None,
            earlier: None,
            ..of.clone()
        }
    }
}

/// Calls a second, if that is a parameter of the scenario.
fn rate(scenario: &str, settings: &[String]) -> Option<u64> {
    let drawn = settings.iter().find_map(|one| one.strip_prefix("rate=")?.parse().ok());
    let (scenario, _) = scenarios::find(scenario)?;
    let parameter = scenario.parameters.iter().find(|parameter| parameter.name == "rate")?;
    match parameter.default {
        Value::Number(rate) => Some(drawn.unwrap_or(rate)),
        Value::Duration(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Case;
    use std::collections::BTreeSet;

    #[test]
    fn every_scenario_has_an_earlier_window_that_it_can_make() {
        let named: BTreeSet<_> = EARLIER.iter().map(|(name, ..)| *name).collect();
        let all: BTreeSet<_> = scenarios::ALL.iter().map(|one| one.name).collect();
        assert_eq!(named, all);
        for (name, of_fault, of_near_miss) in EARLIER {
            let (scenario, _) = scenarios::find(name).expect(name);
            for how in [of_fault, of_near_miss] {
                let With(parameters) = how else { continue };
                let settings: Vec<String> = parameters.iter().map(|one| (*one).to_owned()).collect();
                Case::new(scenario, false, &settings).unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        }
    }

    #[test]
    fn a_window_lacks_the_fault_and_keeps_the_rest() {
        let runs: Vec<DrawnRun> = (1..2_000).map(|number| DrawnRun::draw(3, number, 1)).collect();
        let with: Vec<_> = runs.iter().filter_map(|run| Some((run, run.earlier.as_ref()?))).collect();
        let share = with.len() as f64 / runs.len() as f64 * 100.0;
        assert!((share - f64::from(WITH_EARLIER)).abs() < 4.0, "{share} %");
        for (run, window) in with {
            let earlier = window.run(run);
            assert_eq!(
                (&earlier.stacks, &earlier.sizes, &earlier.clocks),
                (&run.stacks, &run.sizes, &run.clocks)
            );
            assert!(earlier.second.is_none() && earlier.earlier.is_none());
            earlier.case().unwrap_or_else(|error| panic!("{}: {error}", run.scenario));
            let rates = [run, &earlier].map(|run| rate(&run.scenario, &run.settings));
            if let [Some(now), Some(_)] = rates {
                let then = earlier
                    .settings
                    .iter()
                    .rev()
                    .find_map(|one| one.strip_prefix("rate=")?.parse::<f64>().ok());
                let then = then.expect("a rate");
                assert!(
                    then >= (now as f64 * 0.5 - 0.5).max(1.0) && then <= now as f64 * 2.0 + 0.5,
                    "{now}, {then}"
                );
            }
        }
    }
}

//! The runs to make, and their order.

use crate::LabError;
use crate::scenario::{Case, Scenario};

/// A run to be made.
#[derive(Clone)]
pub struct PlannedRun {
    /// Scenario.
    pub scenario: &'static Scenario,
    /// Whether it is the near miss.
    pub near_miss: bool,
    /// Number of the repetition, from 1.
    pub repeat: u64,
    /// Seed of its random choices.
    pub seed: u64,
    /// `NAME=VALUE` for its parameters.
    pub settings: Vec<String>,
}

impl PlannedRun {
    /// The case to make.
    ///
    /// # Errors
    /// The scenario rejects the settings.
    pub fn case(&self) -> Result<Case<'static>, LabError> {
        Case::new(self.scenario, self.near_miss, &self.settings)
    }
}

/// `repeats` runs of each, in an order that depends on the seed. Repetition n has the seed `seed + n - 1`.
///
/// # Errors
/// A scenario rejects the settings.
pub fn plan(
    chosen: &[(&'static Scenario, bool)],
    repeats: u64,
    seed: u64,
    settings: &[String],
) -> Result<Vec<PlannedRun>, LabError> {
    let mut all = Vec::new();
    for (scenario, near_miss) in chosen {
        for repeat in 1..=repeats {
            let (scenario, near_miss) = (*scenario, *near_miss);
            let seed = seed.wrapping_add(repeat - 1);
            let planned = PlannedRun { scenario, near_miss, repeat, seed, settings: settings.to_vec() };
            planned.case()?;
            all.push(planned);
        }
    }
    shuffle(&mut all, seed);
    Ok(all)
}

/// Shuffles, depending on the seed.
pub fn shuffle<T>(all: &mut [T], seed: u64) {
    fastrand::Rng::with_seed(seed).shuffle(all);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios;
    use std::collections::BTreeSet;

    #[test]
    fn every_run_once_in_an_order_of_the_seed() {
        let (healthy, _) = scenarios::find("healthy").expect("there is one");
        let chosen = [(healthy, false), (healthy, true)];
        let order = |seed| -> Vec<(bool, u64, u64)> {
            let all = plan(&chosen, 10, seed, &[]).expect("a plan");
            all.iter().map(|one| (one.near_miss, one.repeat, one.seed - seed)).collect()
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        let all: BTreeSet<_> = order(7).into_iter().collect();
        let expected = [false, true].into_iter().flat_map(|near| (1..=10).map(move |n| (near, n, n - 1)));
        assert_eq!(all, expected.collect());
    }

    #[test]
    fn settings_have_to_fit_all() {
        let (healthy, _) = scenarios::find("healthy").expect("there is one");
        let error = plan(&[(healthy, false)], 1, 1, &["colour=red".into()]).err().expect("no such parameter");
        assert!(error.to_string().contains("colour"), "{error}");
    }
}

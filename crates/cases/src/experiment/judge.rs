//! The outcome of an experiment: proven, refuted or undecided, with figures and reason. Pure.

use super::paired::{self, CONFIDENCE, Effect};
use spangap_model::duration::format_ns;

/// Minimum calls in each half of a block.
pub const LEAST_CALLS: usize = 5;
/// Minimum blocks for an interval.
pub const LEAST_BLOCKS: usize = 6;

/// Durations of the client spans of one block's calls, nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// With the remedy.
    pub treated: Vec<u64>,
    /// Without the remedy.
    pub control: Vec<u64>,
}

/// The effect that the verdict predicts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expected {
    /// Mean client duration when the pair was as usual, nanoseconds.
    pub usual_ns: Option<f64>,
    /// Mean client duration when the case was opened.
    pub slow_ns: Option<f64>,
    /// Mean excess duration of a slow call compared with others.
    pub excess_ns: f64,
    /// The culprit's share of the excess.
    pub share: f64,
}

/// Outcome of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The effect is significant, and at least half the predicted one.
    Proven,
    /// The effect is significantly less than half the predicted one.
    Refuted,
    /// Neither can be concluded.
    Undecided,
}

impl Outcome {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Proven => "proven",
            Outcome::Refuted => "refuted",
            Outcome::Undecided => "undecided",
        }
    }
}

/// The complete judgement.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// Outcome.
    pub outcome: Outcome,
    /// Reduction of the mean client duration by the remedy, nanoseconds.
    pub effect: Option<Effect>,
    /// Predicted reduction.
    pub predicted_ns: Option<f64>,
    /// Blocks with enough calls.
    pub blocks: usize,
    /// Explanation in a sentence or two.
    pub words: String,
}

fn mean(of: &[u64]) -> f64 {
    of.iter().map(|one| *one as f64).sum::<f64>() / of.len().max(1) as f64
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(0.0)
}

/// Compares treated with control calls, block by block.
pub fn judge(blocks: &[Block], expected: &Expected) -> Judged {
    let is_used = |block: &&Block| block.treated.len() >= LEAST_CALLS && block.control.len() >= LEAST_CALLS;
    let used: Vec<&Block> = blocks.iter().filter(is_used).collect();
    let undecided = |words: String| Judged {
        outcome: Outcome::Undecided,
        effect: None,
        predicted_ns: None,
        blocks: used.len(),
        words,
    };
    if used.len() < LEAST_BLOCKS {
        return undecided(format!(
            "Undecided: {} of {} blocks have {LEAST_CALLS} calls on each side, and {LEAST_BLOCKS} are needed.",
            used.len(),
            blocks.len()
        ));
    }
    let differences: Vec<f64> =
        used.iter().map(|block| mean(&block.control) - mean(&block.treated)).collect();
    let Some(effect) = paired::effect(&differences) else {
        return undecided(format!("Undecided: {} blocks give no interval.", used.len()));
    };
    let control_ns = median(used.iter().map(|block| mean(&block.control)).collect());
    let predicted_ns = predicted(&used, control_ns, expected);
    let judged = |outcome, words| Judged {
        outcome,
        effect: Some(effect),
        predicted_ns: Some(predicted_ns),
        blocks: used.len(),
        words,
    };
    let seen = format!(
        "the remedy takes {} off the mean duration of a call ({} to {}, {:.0} % interval), of {} predicted",
        signed(effect.mid),
        signed(effect.low),
        signed(effect.high),
        CONFIDENCE * 100.0,
        signed(predicted_ns)
    );
    if let (Some(usual_ns), Some(slow_ns)) = (expected.usual_ns, expected.slow_ns)
        && control_ns - usual_ns < (slow_ns - usual_ns) / 2.0
    {
        return judged(
            Outcome::Undecided,
            format!(
                "Undecided: calls without the remedy now take {} on average, most of the way back to the usual {}: \
                 what made them slow is gone; {seen}.",
                signed(control_ns),
                signed(usual_ns)
            ),
        );
    }
    let is_chance = effect.probability > 1.0 - CONFIDENCE;
    if predicted_ns <= 0.0 {
        return judged(
            Outcome::Undecided,
            format!(
                "Undecided: there was no slow call during the experiment, so there is no prediction; {seen}."
            ),
        );
    }
    if effect.low > 0.0 && !is_chance && effect.mid >= predicted_ns / 2.0 {
        return judged(Outcome::Proven, format!("Proven: {seen}."));
    }
    if effect.high < predicted_ns / 2.0 {
        return judged(Outcome::Refuted, format!("Refuted: {seen}; that is less than half of it."));
    }
    judged(
        Outcome::Undecided,
        format!(
            "Undecided: {seen}; that may or may not be half of it, and chance alone would go as far with a \
             probability of {:.0} %.",
            effect.probability * 100.0
        ),
    )
}

/// The culprit's share of the excess of untreated calls over the usual, if a baseline is known; otherwise its
/// share of the excess of slow calls over others, at their current rate.
fn predicted(used: &[&Block], control_ns: f64, expected: &Expected) -> f64 {
    if let Some(usual_ns) = expected.usual_ns {
        // An excess that arose after the case was opened is not the culprit's.
        let excess_ns =
            (control_ns - usual_ns).min(expected.slow_ns.map_or(f64::INFINITY, |slow| slow - usual_ns));
        return expected.share * excess_ns.max(0.0);
    }
    let control: Vec<u64> = used.iter().flat_map(|block| &block.control).copied().collect();
    let slow = control.iter().filter(|took| **took as f64 >= expected.excess_ns / 2.0).count();
    expected.share * expected.excess_ns * slow as f64 / control.len().max(1) as f64
}

fn signed(ns: f64) -> String {
    let text = format_ns(ns.abs().round() as u64);
    if ns <= -0.5 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: f64 = 1e6;

    /// Blocks of calls with these mean durations in milliseconds; each block and each call has independent
    /// noise.
    fn blocks(number: usize, treated: f64, control: f64, noise: f64, seed: u64) -> Vec<Block> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..number)
            .map(|_| {
                let of_block = noise * random.f64();
                let mut arm = |took: f64| {
                    let took = took + of_block + noise * random.f64();
                    (0..20).map(|_| ((took + random.f64()) * MS) as u64).collect()
                };
                Block { treated: arm(treated), control: arm(control) }
            })
            .collect()
    }

    const EXPECTED: Expected =
        Expected { usual_ns: Some(1.5 * MS), slow_ns: Some(40.0 * MS), excess_ns: 40.0 * MS, share: 0.95 };

    #[test]
    fn an_effect_as_predicted_is_proven() {
        let judged = judge(&blocks(8, 1.0, 40.0, 0.2, 1), &EXPECTED);
        assert_eq!(judged.outcome, Outcome::Proven, "{judged:?}");
        let effect = judged.effect.expect("there is one");
        assert!(effect.low > 38.0 * MS && effect.high < 40.0 * MS && effect.probability < 0.01);
        assert!(judged.words.starts_with("Proven: the remedy takes 39"), "{}", judged.words);
        // Without a baseline, the rate of slow calls determines the prediction.
        let judged = judge(&blocks(8, 1.0, 40.0, 0.2, 1), &Expected { usual_ns: None, ..EXPECTED });
        assert_eq!(judged.outcome, Outcome::Proven);
        assert_eq!(judged.predicted_ns, Some(38.0 * MS));
    }

    #[test]
    fn no_effect_and_less_than_half_are_refuted() {
        for treated in [40.0, 30.0] {
            let judged = judge(&blocks(8, treated, 40.0, 0.5, 2), &EXPECTED);
            assert_eq!(judged.outcome, Outcome::Refuted, "{judged:?}");
        }
        let worse = judge(&blocks(8, 60.0, 40.0, 0.5, 3), &EXPECTED);
        assert_eq!(worse.outcome, Outcome::Refuted);
        assert!(worse.words.contains("takes -"), "{}", worse.words);
    }

    #[test]
    fn noise_few_calls_and_a_vanished_fault_are_undecided() {
        let noisy = (0..40).map(|seed| judge(&blocks(8, 20.0, 40.0, 150.0, seed), &EXPECTED));
        let noisy: Vec<Judged> = noisy.collect();
        let undecided = noisy.iter().filter(|one| one.outcome == Outcome::Undecided).count();
        assert!(undecided > 30, "{undecided}");
        assert!(noisy.iter().any(|one| one.words.contains("chance alone would go as far")));
        let few = judge(&blocks(5, 1.0, 40.0, 0.1, 4), &EXPECTED);
        assert!(few.words.contains("5 of 5 blocks") && few.effect.is_none(), "{}", few.words);
        let mut sparse = blocks(8, 1.0, 40.0, 0.1, 4);
        sparse.iter_mut().skip(3).for_each(|block| block.treated.truncate(2));
        assert!(judge(&sparse, &EXPECTED).words.contains("3 of 8 blocks"));
        let gone = judge(&blocks(8, 1.0, 1.5, 0.1, 5), &EXPECTED);
        assert_eq!(gone.outcome, Outcome::Undecided);
        assert!(gone.words.contains("is gone"), "{}", gone.words);
        let none = Expected { usual_ns: None, slow_ns: None, ..EXPECTED };
        assert!(judge(&blocks(8, 1.0, 1.5, 0.1, 5), &none).words.contains("no slow call"));
        assert_eq!(judge(&[], &EXPECTED).outcome, Outcome::Undecided);
    }
}

//! The outcome of an experiment: proven, refuted or undecided, with figures and reason. Pure.

use super::looks::{FIRST, Look};
use super::paired::{self, CONFIDENCE, ERROR, Effect};
use crate::report::{CaseReport, GapRow};
use spangap_model::duration::format_ns;

/// Minimum calls in each half of a block.
pub const LEAST_CALLS: usize = 5;
/// As much of the excess that opened the case must be left for an effect to be of that fault, and not of another one.
const LEAST_LEFT: f64 = 0.1;

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
    /// Reduction of the mean client duration by the remedy, nanoseconds; its probability is adjusted for the number of looks.
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

impl Block {
    /// Enough calls on either side.
    fn is_used(&self) -> bool {
        self.treated.len() >= LEAST_CALLS && self.control.len() >= LEAST_CALLS
    }

    /// Mean duration without the remedy minus mean duration with it.
    fn difference(&self) -> f64 {
        mean(&self.control) - mean(&self.treated)
    }
}

/// The place of the last block of the first look: from the one after it on, the look may be taken. `None` before there are enough.
pub fn end_of_first_look(blocks: &[Block]) -> Option<usize> {
    let used = blocks.iter().enumerate().filter(|(_, block)| block.is_used());
    used.map(|(at, _)| at).nth(FIRST.blocks - 1)
}

/// The judgement of the first look at these blocks, if they leave no doubt: the whole interval is on one side of half the prediction.
pub fn early(blocks: &[Block], expected: &Expected) -> Option<Judged> {
    let judged = judge(&blocks[..=end_of_first_look(blocks)?], expected);
    let half_ns = judged.predicted_ns? / 2.0;
    let is_clear = match judged.outcome {
        Outcome::Proven => judged.effect?.low >= half_ns,
        Outcome::Refuted => judged.effect?.high < half_ns,
        Outcome::Undecided => false,
    };
    is_clear.then_some(judged)
}

/// The reduction by these blocks, of which nothing may be concluded; `None` before one has calls.
pub fn so_far(blocks: &[Block]) -> Option<f64> {
    let used: Vec<f64> = blocks.iter().filter(|block| block.is_used()).map(Block::difference).collect();
    paired::estimate(&used)
}

/// Compares treated with control calls, block by block.
pub fn judge(blocks: &[Block], expected: &Expected) -> Judged {
    let used: Vec<&Block> = blocks.iter().filter(|block| block.is_used()).collect();
    let undecided = |words: String| Judged {
        outcome: Outcome::Undecided,
        effect: None,
        predicted_ns: None,
        blocks: used.len(),
        words,
    };
    if used.len() < FIRST.blocks {
        return undecided(format!(
            "Undecided: {} of {} blocks have {LEAST_CALLS} calls on each side, and {} are needed.",
            used.len(),
            blocks.len(),
            FIRST.blocks
        ));
    }
    let look = Look::at(used.len());
    let differences: Vec<f64> = used.iter().map(|block| block.difference()).collect();
    let Some(effect) = paired::effect(&differences, look.error) else {
        return undecided(format!("Undecided: {} blocks give no interval.", used.len()));
    };
    let effect = Effect { probability: look.adjusted(effect.probability), ..effect };
    let control_ns = median(used.iter().map(|block| mean(&block.control)).collect());
    let control: Vec<u64> = used.iter().flat_map(|block| &block.control).copied().collect();
    let predicted_ns = expected.reduction_ns(control_ns, &control);
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
    let is_chance = effect.probability > ERROR;
    let is_as_predicted = predicted_ns > 0.0 && effect.mid >= predicted_ns / 2.0;
    let left = expected.excess_left(control_ns);
    if effect.low > 0.0 && !is_chance && is_as_predicted && left.is_none_or(|left| left >= LEAST_LEFT) {
        return judged(Outcome::Proven, format!("Proven: {seen}."));
    }
    // Where little is left and no effect is clear, it may be the fault that is not there any more.
    if let (Some(usual_ns), Some(left)) = (expected.usual_ns, left)
        && left < 0.5
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
    if predicted_ns <= 0.0 {
        return judged(
            Outcome::Undecided,
            format!(
                "Undecided: there was no slow call during the experiment, so there is no prediction; {seen}."
            ),
        );
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

impl Expected {
    /// Of the verdict of a case.
    pub fn of(case: Option<&CaseReport>, share: f64) -> Expected {
        let Some(case) = case else { return Expected::default() };
        // Rows of an older version have no mean.
        let mean = |row: &GapRow| Some(row.client_duration.mean_ns as f64).filter(|ns| *ns > 0.0);
        Expected {
            usual_ns: case.usual.as_ref().and_then(mean),
            slow_ns: case.before.as_ref().and_then(mean),
            excess_ns: case.row.excess_ns.unwrap_or(0) as f64,
            share: share.clamp(0.0, 1.0),
        }
    }

    /// How much is left of the excess that calls had when the case was opened, as a share of it.
    fn excess_left(&self, control_ns: f64) -> Option<f64> {
        let (usual_ns, slow_ns) = (self.usual_ns?, self.slow_ns?);
        Some((control_ns - usual_ns) / (slow_ns - usual_ns).max(1.0))
    }

    /// The culprit's share of the excess of untreated calls over the usual, if a baseline is known; otherwise its
    /// share of the excess of slow calls over others, at their rate among these durations.
    pub fn reduction_ns(&self, mean_ns: f64, took_ns: &[u64]) -> f64 {
        if let Some(usual_ns) = self.usual_ns {
            // An excess that arose after the case was opened is not the culprit's.
            let excess_ns =
                (mean_ns - usual_ns).min(self.slow_ns.map_or(f64::INFINITY, |slow| slow - usual_ns));
            return self.share * excess_ns.max(0.0);
        }
        let slow = took_ns.iter().filter(|took| **took as f64 >= self.excess_ns / 2.0).count();
        self.share * self.excess_ns * slow as f64 / took_ns.len().max(1) as f64
    }
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
        let judged = judge(&blocks(10, 1.0, 40.0, 0.2, 1), &EXPECTED);
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
    fn a_clear_effect_is_told_at_the_first_look_and_a_doubtful_one_at_the_end() {
        let clear = blocks(10, 1.0, 40.0, 0.2, 1);
        assert_eq!(early(&clear[..5], &EXPECTED), None, "six are declared");
        assert_eq!(early(&clear[..6], &EXPECTED), early(&clear, &EXPECTED), "later ones do not count");
        let judged = early(&clear, &EXPECTED).expect("clear");
        assert_eq!((judged.outcome, judged.blocks), (Outcome::Proven, 6));
        // As if it were the only look: 2 of 64 is all that six blocks can show.
        assert!((judged.effect.expect("there is one").probability - 0.05).abs() < 1e-12);
        let idle = early(&blocks(6, 40.0, 40.0, 0.5, 2), &EXPECTED).expect("clear");
        assert_eq!(idle.outcome, Outcome::Refuted);
        // Above zero, but on both sides of half the prediction: six are not enough.
        let doubtful = blocks(10, 24.0, 40.0, 12.0, 3);
        assert_eq!(early(&doubtful, &EXPECTED), None);
        assert_eq!(judge(&doubtful, &EXPECTED).blocks, 10);
        // A block without calls on one side does not count; the next one takes its place.
        let mut sparse = clear.clone();
        sparse[2].treated.truncate(2);
        assert_eq!((end_of_first_look(&sparse[..6]), end_of_first_look(&sparse)), (None, Some(6)));
        assert_eq!(so_far(&sparse[2..3]), None);
        assert!((so_far(&clear[..1]).expect("one block") - 39.0 * MS).abs() < 1.0 * MS);
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
        // Calls are less slow than they were, and the remedy takes that away: it is what makes them slow.
        let weaker = judge(&blocks(8, 1.5, 10.0, 0.1, 5), &EXPECTED);
        assert_eq!(weaker.outcome, Outcome::Proven, "{weaker:?}");
        let idle = judge(&blocks(8, 10.0, 10.0, 0.1, 5), &EXPECTED);
        assert!(idle.outcome == Outcome::Undecided && idle.words.contains("is gone"), "{idle:?}");
        let none = Expected { usual_ns: None, slow_ns: None, ..EXPECTED };
        assert!(judge(&blocks(8, 1.0, 1.5, 0.1, 5), &none).words.contains("no slow call"));
        assert_eq!(judge(&[], &EXPECTED).outcome, Outcome::Undecided);
    }
}

//! The looks at the blocks of an experiment: declared before it begins, so that it may end half-way without more false alarms.
//!
//! Whoever looks after every block, and stops as soon as chance seems unlikely, is wrong far more often than one test says. So there are
//! two looks, and each has a part of the error (Bonferroni): their intervals hold together with at least 95 %, whichever of them
//! the experiment ends at, and whatever the blocks have in common.

use super::paired::ERROR;

/// One look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// Blocks with enough calls that it takes.
    pub blocks: usize,
    /// The part of the error that it may spend.
    pub error: f64,
}

/// As early as any: six differences have the same sign by chance in 2 of 64 cases.
pub const FIRST: Look = Look { blocks: 6, error: 2.0 / 64.0 };

/// At the end, with what is left of the error: enough for an interval from seven blocks on.
pub const LAST: Look = Look { blocks: 10, error: ERROR - FIRST.error };

impl Look {
    /// The look at this number of blocks. Calls alone decide which blocks count, not the treatment, so the choice costs nothing.
    pub fn at(blocks: usize) -> Look {
        if blocks <= FIRST.blocks { FIRST } else { LAST }
    }

    /// A probability of this look as if it were the only one: at most [`ERROR`] if it is within the look's part.
    pub fn adjusted(&self, probability: f64) -> f64 {
        (probability / self.error * ERROR).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::paired;

    #[test]
    fn all_looks_together_spend_no_more_than_one_test() {
        assert!((FIRST.error + LAST.error - 0.05).abs() < 1e-12);
        assert_eq!((Look::at(6), Look::at(7)), (FIRST, LAST));
        assert!((FIRST.adjusted(2.0 / 64.0) - 0.05).abs() < 1e-12 && LAST.adjusted(0.9) == 1.0);
        // The fewest blocks of each look have an interval.
        assert!(paired::effect(&[1.0; 6], FIRST.error).is_some());
        assert!(paired::effect(&[1.0; 6], LAST.error).is_none());
        assert!(paired::effect(&[1.0; 7], LAST.error).is_some());
    }

    /// The differences of blocks of a null experiment, skewed and with outliers; either sign is equally likely.
    fn differences(random: &mut fastrand::Rng) -> Vec<f64> {
        let mut one = || -random.f64().max(1e-12).ln();
        (0..LAST.blocks).map(|_| one() - one()).collect()
    }

    #[test]
    fn whoever_ends_at_the_first_look_is_not_wrong_more_often() {
        let mut random = fastrand::Rng::with_seed(11);
        let (rounds, mut alarms, mut missed, mut peeked) = (1_500, 0, 0, 0);
        for _ in 0..rounds {
            let null = differences(&mut random);
            let is_alarm = |effect: &paired::Effect| effect.low > 0.0 || effect.high < 0.0;
            let first = paired::effect(&null[..FIRST.blocks], FIRST.error).expect("enough");
            let last = paired::effect(&null, LAST.error).expect("enough");
            alarms += u32::from(is_alarm(&first) || is_alarm(&last));
            // Ended at the first look whenever it shows something, the interval that is told still holds.
            let told = if is_alarm(&first) { first } else { last };
            missed += u32::from(told.low > 0.0 || told.high < 0.0);
            // What this protects from: the same test after every block from the sixth on.
            let looks = FIRST.blocks..=LAST.blocks;
            let at_5_percent = |blocks: usize| paired::effect(&null[..blocks], 0.05).expect("enough");
            peeked += u32::from(looks.into_iter().any(|blocks| is_alarm(&at_5_percent(blocks))));
        }
        // Three standard errors above the nominal value.
        let most = f64::from(rounds) * 0.05 + 3.0 * (f64::from(rounds) * 0.05 * 0.95).sqrt();
        assert!(f64::from(alarms) < most && f64::from(missed) < most, "{alarms} {missed} of {rounds}");
        assert!(f64::from(peeked) > most, "{peeked}: peeking does no harm?");
    }
}

//! Statistics for few repetitions: an interval for a ratio, and probabilities adjusted for many comparisons.
//!
//! Both hold for any distribution: they assume only that, without a difference, any repetition could as well
//! belong to the other arm. Written here, because with four runs an arm only an enumeration of all relabelings, over
//! all comparisons at once, gives a probability that holds; the usual libraries approximate by a normal distribution.

use std::cmp::Ordering;

/// Up to this many relabelings all are enumerated; beyond that, this many are drawn.
const MOST_RELABELINGS: u64 = 20_000;
/// A fixed seed, so that repeating a comparison gives the same result.
const SEED: u64 = 0x5_9a6a9;

/// A shift between two samples with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    /// Hodges-Lehmann estimate: the median of all differences b - a.
    pub estimate: f64,
    /// The interval, if the samples are large enough for one.
    pub interval: Option<(f64, f64)>,
}

/// The shift from `a` to `b` with the exact interval that corresponds to the Mann-Whitney test: Hollander,
/// Wolfe and Chicken, *Nonparametric Statistical Methods*, 3rd edition, section 4.3 (after Moses). `None` if a
/// sample is empty.
pub fn shift(a: &[f64], b: &[f64], confidence: f64) -> Option<Shift> {
    let mut differences: Vec<f64> = a.iter().flat_map(|a| b.iter().map(move |b| b - a)).collect();
    differences.sort_by(f64::total_cmp);
    let estimate = crate::report::table::median(&differences)?;
    let cut = largest_cut(a.len(), b.len(), (1.0 - confidence) / 2.0);
    let interval = (cut > 0).then(|| (differences[cut - 1], differences[differences.len() - cut]));
    Some(Shift { estimate, interval })
}

/// The largest c such that the Mann-Whitney count is below c with at most this probability, when both samples
/// come from one distribution.
fn largest_cut(n: usize, m: usize, probability: f64) -> usize {
    let mut below = 0.0;
    for (count, share) in mann_whitney(n, m).into_iter().enumerate() {
        below += share;
        if below > probability {
            return count;
        }
    }
    0
}

/// Probability of each count of pairs with b < a, for samples of these sizes from one distribution. The largest of
/// all values is one of `a` (then it exceeds all of `b`) or one of `b`; counting both cases gives the recursion of
/// Mann and Whitney (1947).
fn mann_whitney(n: usize, m: usize) -> Vec<f64> {
    // rows[j] is the distribution for (i, j); i grows.
    let mut rows: Vec<Vec<f64>> = vec![vec![1.0]; m + 1];
    for i in 1..=n {
        let mut next = vec![vec![1.0]];
        for j in 1..=m {
            let largest_of_a = i as f64 / (i + j) as f64;
            let mut shares = vec![0.0; i * j + 1];
            for (count, share) in rows[j].iter().enumerate() {
                shares[count + j] += largest_of_a * share;
            }
            for (count, share) in next[j - 1].iter().enumerate() {
                shares[count] += (1.0 - largest_of_a) * share;
            }
            next.push(shares);
        }
        rows = next;
    }
    rows.swap_remove(m)
}

/// Number of ways to choose n of n + m, as exactly as a float permits.
fn ways(n: usize, m: usize) -> f64 {
    (1..=n).map(|i| (m + i) as f64 / i as f64).product()
}

/// Smallest probability that relabelings of samples of these sizes can assign to a difference in either
/// direction.
pub fn smallest_probability(n: usize, m: usize) -> f64 {
    // With equal sizes, swapping the arms gives the same difference with the opposite sign.
    let ways = ways(n, m).round().max(1.0);
    (if n == m { 2.0 } else { 1.0 } / ways).min(1.0)
}

/// One figure of every repetition, arm A's first; `None` where a repetition lacks it.
pub type Figures = Vec<Option<f64>>;

/// For each comparison the probability that, were there no difference anywhere, *any* of the comparisons would look
/// as different as this one: the step-down maxT procedure of Westfall and Young, *Resampling-Based Multiple Testing*
/// (1993), section 4.1. It keeps the rate of any false alarm, as Holm's does, and unlike Holm's takes into account
/// that the figures of one repetition go together.
///
/// `figures` has the same repetitions in the same order for every comparison, the first `n` of arm A.
pub fn adjusted_probabilities(figures: &[Figures], n: usize) -> Vec<f64> {
    let units = figures.iter().map(Vec::len).max().unwrap_or(0);
    if n == 0 || n >= units {
        return vec![1.0; figures.len()];
    }
    let labels: Vec<bool> = (0..units).map(|unit| unit < n).collect();
    let observed: Vec<f64> = figures.iter().map(|one| distance(one, &labels)).collect();
    let mut order: Vec<usize> = (0..figures.len()).collect();
    order.sort_by(|a, b| observed[*b].partial_cmp(&observed[*a]).unwrap_or(Ordering::Equal));
    let mut reached = vec![0u64; figures.len()];
    let mut relabelings = 0u64;
    let mut count = |labels: &[bool]| {
        relabelings += 1;
        let mut largest = 0.0f64;
        for &at in order.iter().rev() {
            largest = largest.max(distance(&figures[at], labels));
            // Sums in different orders differ in their last digits.
            reached[at] += u64::from(largest >= observed[at] * (1.0 - 1e-9));
        }
    };
    if ways(n, units - n) <= MOST_RELABELINGS as f64 {
        each_choice(units, n, &mut count);
    } else {
        let mut random = fastrand::Rng::with_seed(SEED);
        let mut drawn = labels.clone();
        // The actual labels count as one of the draws, so no probability is ever 0.
        count(&labels);
        for _ in 1..MOST_RELABELINGS {
            random.shuffle(&mut drawn);
            count(&drawn);
        }
    }
    let mut adjusted = vec![1.0; figures.len()];
    let mut at_least = 0.0f64;
    for &at in &order {
        at_least = at_least.max(reached[at] as f64 / relabelings as f64);
        adjusted[at] = at_least;
    }
    adjusted
}

/// Absolute value of Student's t between the two labels.
fn distance(figures: &Figures, labels: &[bool]) -> f64 {
    let of = |label: bool| -> Vec<f64> {
        figures
            .iter()
            .zip(labels)
            .filter(|(_, own)| **own == label)
            .filter_map(|(figure, _)| *figure)
            .collect()
    };
    let (a, b) = (of(true), of(false));
    if a.len() < 2 || b.len() < 2 {
        // Too few values to compare: counted as a difference, which can only make a claim harder.
        return f64::INFINITY;
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (mean_a, mean_b) = (mean(&a), mean(&b));
    let squares = |values: &[f64], mean: f64| values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    let (n, m) = (a.len() as f64, b.len() as f64);
    let variance = (squares(&a, mean_a) + squares(&b, mean_b)) / (n + m - 2.0);
    let difference = (mean_a - mean_b).abs();
    if difference == 0.0 { 0.0 } else { difference / (variance * (1.0 / n + 1.0 / m)).sqrt() }
}

/// Calls with every way to mark `n` of `units`.
fn each_choice(units: usize, n: usize, visit: &mut impl FnMut(&[bool])) {
    let mut chosen: Vec<usize> = (0..n).collect();
    let mut labels = vec![false; units];
    loop {
        labels.fill(false);
        chosen.iter().for_each(|unit| labels[*unit] = true);
        visit(&labels);
        let Some(last) = (0..n).rev().find(|place| chosen[*place] < units - n + place) else { return };
        chosen[last] += 1;
        for place in last + 1..n {
            chosen[place] = chosen[place - 1] + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Draws from distributions of several shapes; real figures are skewed, have outliers, or have two modes.
    fn draw(random: &mut fastrand::Rng, shape: u8) -> f64 {
        let uniform = random.f64().max(1e-12);
        match shape {
            0 => uniform,
            1 => -uniform.ln(),
            2 => (std::f64::consts::PI * (uniform - 0.5)).tan(),
            _ => f64::from(u8::from(uniform < 0.5)) + 0.01 * random.f64(),
        }
    }

    #[test]
    fn mann_whitney_counts_are_those_of_tables() {
        // Of the 70 ways to split 8 into 4 and 4, one has no b below an a, one has one, two have two.
        let four = mann_whitney(4, 4);
        let ways: Vec<u64> = four.iter().map(|share| (share * 70.0).round() as u64).collect();
        assert_eq!(ways[..6], [1, 1, 2, 3, 5, 5]);
        assert_eq!((ways.len(), ways.iter().sum::<u64>()), (17, 70));
        // Critical values of the two-sided test at 5 %: 0 for 4 and 4, 2 for 5 and 5, 13 for 8 and 8.
        let cuts = [(3, 3, 0), (4, 4, 1), (5, 5, 3), (8, 8, 14), (4, 6, 3)];
        for (n, m, cut) in cuts {
            assert_eq!(largest_cut(n, m, 0.025), cut, "{n} and {m}");
        }
    }

    #[test]
    fn every_choice_comes_once() {
        let mut seen = std::collections::BTreeSet::new();
        each_choice(7, 3, &mut |labels| assert!(seen.insert(labels.to_vec())));
        assert_eq!((seen.len(), ways(3, 4)), (35, 35.0));
        assert_eq!(smallest_probability(4, 4), 2.0 / 70.0);
    }

    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        let mut random = fastrand::Rng::with_seed(1);
        for shape in 0..4 {
            let rounds = 2_000;
            let mut held = 0;
            for _ in 0..rounds {
                let a: Vec<f64> = (0..5).map(|_| draw(&mut random, shape)).collect();
                let b: Vec<f64> = (0..5).map(|_| draw(&mut random, shape) + 3.0).collect();
                let (low, high) = shift(&a, &b, 0.95).unwrap().interval.unwrap();
                held += u32::from(low <= 3.0 && 3.0 <= high);
            }
            // Three standard errors below the promise.
            assert!(f64::from(held) / f64::from(rounds) > 0.95 - 0.015, "shape {shape}: {held} of {rounds}");
        }
    }

    #[test]
    fn fifty_comparisons_rarely_alarm() {
        let mut random = fastrand::Rng::with_seed(2);
        for shape in 0..4 {
            let rounds = 200;
            let mut alarms = 0;
            for _ in 0..rounds {
                let figures: Vec<Figures> =
                    (0..50).map(|_| (0..8).map(|_| Some(draw(&mut random, shape))).collect()).collect();
                alarms += u32::from(adjusted_probabilities(&figures, 4).iter().any(|p| *p <= 0.05));
            }
            // Three standard errors above the promise.
            assert!(
                f64::from(alarms) / f64::from(rounds) < 0.05 + 0.047,
                "shape {shape}: {alarms} of {rounds}"
            );
        }
    }

    #[test]
    fn a_clear_shift_is_found_among_fifty_comparisons() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut figures: Vec<Figures> =
            (0..50).map(|_| (0..10).map(|_| Some(draw(&mut random, 0))).collect()).collect();
        for figure in &mut figures[7][5..] {
            *figure = figure.map(|value| value + 40.0);
        }
        let adjusted = adjusted_probabilities(&figures, 5);
        assert!(adjusted[7] <= 0.05, "{}", adjusted[7]);
        assert_eq!(adjusted.iter().filter(|p| **p <= 0.05).count(), 1, "{adjusted:?}");
    }

    #[test]
    fn large_relabeling_sets_are_sampled() {
        let figures: Vec<Figures> = vec![(0..40).map(|i| Some(f64::from(i))).collect()];
        let adjusted = adjusted_probabilities(&figures, 20);
        assert!(adjusted[0] > 0.0 && adjusted[0] < 0.001, "{adjusted:?}");
        assert_eq!(adjusted, adjusted_probabilities(&figures, 20));
    }

    proptest! {
        #[test]
        fn swapping_the_arms_mirrors(a in prop::collection::vec(-9.0..9.0f64, 4..8), b in prop::collection::vec(-9.0..9.0f64, 4..8)) {
            let (there, back) = (shift(&a, &b, 0.95).unwrap(), shift(&b, &a, 0.95).unwrap());
            let ((low, high), (low_back, high_back)) = (there.interval.unwrap(), back.interval.unwrap());
            prop_assert!((there.estimate + back.estimate).abs() < 1e-9);
            prop_assert!((low + high_back).abs() < 1e-9 && (high + low_back).abs() < 1e-9);
            prop_assert!(low <= there.estimate && there.estimate <= high);
            let figures: Figures = a.iter().chain(&b).copied().map(Some).collect();
            let swapped: Figures = b.iter().chain(&a).copied().map(Some).collect();
            let (p, q) = (adjusted_probabilities(&[figures], a.len()), adjusted_probabilities(&[swapped], b.len()));
            prop_assert!((p[0] - q[0]).abs() < 1e-9);
        }

        #[test]
        fn step_down_is_no_bolder_than_one_comparison_alone(values in prop::collection::vec(prop::collection::vec(0.0..1.0f64, 8), 2..6)) {
            let figures: Vec<Figures> = values.iter().map(|one| one.iter().copied().map(Some).collect()).collect();
            let together = adjusted_probabilities(&figures, 4);
            for (one, adjusted) in figures.iter().zip(together) {
                let alone = adjusted_probabilities(std::slice::from_ref(one), 4)[0];
                prop_assert!(adjusted >= alone - 1e-12);
            }
        }
    }
}

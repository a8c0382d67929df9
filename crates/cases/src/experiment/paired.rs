//! Statistics of a few pairs: an interval for the effect of a treatment, and the probability that chance
//! produces such an effect.
//!
//! In each pair, a coin toss decided which half was treated; without an effect, either sign of the difference
//! is equally likely. There is no other assumption (Wilcoxon's signed ranks: Hollander, Wolfe and Chicken,
//! *Nonparametric Statistical Methods*, 3rd edition, sections 3.1 to 3.3). A test of two unpaired samples, as
//! `tank` uses for its arms, would treat variation common to all connections at one time as noise.

/// Significance level of an experiment's result.
pub const ERROR: f64 = 0.05;
/// Its confidence level.
pub const CONFIDENCE: f64 = 1.0 - ERROR;
/// Maximum number of pairs: all sign combinations are enumerated.
pub const MOST_PAIRS: usize = 16;

/// Reduction due to the treatment, in the unit of the differences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// Lower end of the interval.
    pub low: f64,
    /// Hodges-Lehmann estimate.
    pub mid: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Probability that chance alone produces an effect of this size, in either direction.
    pub probability: f64,
}

/// The effect from differences control minus treated, whose interval misses the truth with at most the probability `error`; `None` if
/// there are too few pairs for such an interval, or too many.
pub fn effect(differences: &[f64], error: f64) -> Option<Effect> {
    let pairs = differences.len();
    if pairs > MOST_PAIRS || differences.iter().any(|one| !one.is_finite()) {
        return None;
    }
    let means = means(differences);
    let cut = largest_cut(pairs, error / 2.0).filter(|cut| *cut > 0)?;
    Some(Effect {
        low: means[cut - 1],
        mid: middle(&means)?,
        high: means[means.len() - cut],
        probability: probability(differences),
    })
}

/// The Hodges-Lehmann estimate alone, of however few pairs; `None` of none.
pub fn estimate(differences: &[f64]) -> Option<f64> {
    middle(&means(differences))
}

/// Means of all pairs of differences, each with itself too, in order.
fn means(differences: &[f64]) -> Vec<f64> {
    let mut means = Vec::with_capacity(differences.len() * (differences.len() + 1) / 2);
    for (at, one) in differences.iter().enumerate() {
        means.extend(differences[at..].iter().map(|other| (one + other) / 2.0));
    }
    means.sort_by(f64::total_cmp);
    means
}

fn middle(sorted: &[f64]) -> Option<f64> {
    Some((sorted.get(sorted.len().checked_sub(1)? / 2)? + sorted.get(sorted.len() / 2)?) / 2.0)
}

/// The largest c such that the sum of the positive ranks is below c with at most this probability.
fn largest_cut(pairs: usize, probability: f64) -> Option<usize> {
    // Number of sign combinations for each sum: each rank is included or not.
    let mut ways = vec![1.0_f64];
    for rank in 1..=pairs {
        let mut next = vec![0.0; ways.len() + rank];
        for (sum, count) in ways.iter().enumerate() {
            next[sum] += count;
            next[sum + rank] += count;
        }
        ways = next;
    }
    let all: f64 = ways.iter().sum();
    let mut below = 0.0;
    ways.iter().position(|count| {
        below += count / all;
        below > probability
    })
}

/// Exact probability; equal differences share their ranks.
fn probability(differences: &[f64]) -> f64 {
    let mut sizes: Vec<f64> = differences.iter().map(|one| one.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let rank = |size: f64| {
        let first = sizes.partition_point(|other| *other < size);
        let behind = sizes.partition_point(|other| *other <= size);
        (first + 1 + behind) as f64 / 2.0
    };
    let ranks: Vec<f64> =
        differences.iter().map(|one| if *one == 0.0 { 0.0 } else { rank(one.abs()) }).collect();
    let distance = |is_positive: &dyn Fn(usize) -> bool| -> f64 {
        let signed = ranks.iter().enumerate().map(|(at, rank)| if is_positive(at) { *rank } else { -*rank });
        signed.sum::<f64>().abs()
    };
    let seen = distance(&|at| differences[at] > 0.0);
    let all = 1_u32 << differences.len();
    let as_far = (0..all).filter(|signs| distance(&|at| signs >> at & 1 == 1) >= seen - 1e-9).count();
    as_far as f64 / f64::from(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn critical_values_and_probabilities_match_tables() {
        // Critical values of the two-sided test at 5 %: none for 5 pairs, 0 for 6, 3 for 8, 8 for 10.
        for (pairs, cut) in [(5, 0), (6, 1), (7, 3), (8, 4), (10, 9), (12, 14)] {
            assert_eq!(largest_cut(pairs, 0.025), Some(cut), "{pairs}");
        }
        assert_eq!(effect(&[1.0; 5], 0.05), None);
        assert_eq!(effect(&[f64::NAN; 8], 0.05), None);
        let eight: Vec<f64> = (1..=8).map(f64::from).collect();
        let found = effect(&eight, 0.05).expect("enough");
        assert_eq!((found.mid, found.probability), (4.5, 2.0 / 256.0));
        assert!(found.low > 1.9 && found.high < 7.1, "{found:?}");
        assert_eq!((estimate(&eight), estimate(&[3.0]), estimate(&[])), (Some(4.5), Some(3.0), None));
        assert_eq!(effect(&[0.0; 8], 0.05).expect("enough").probability, 1.0);
    }

    #[test]
    fn intervals_cover_the_truth_and_false_alarms_are_rare() {
        let mut random = fastrand::Rng::with_seed(7);
        let rounds = 2_000;
        for shape in 0..3 {
            let (mut held, mut alarms) = (0, 0);
            for _ in 0..rounds {
                // Skewed, with outliers: contributions common to both halves of a block cancel out, and those
                // of one half are equally likely on either side.
                let mut one = || match shape {
                    0 => random.f64(),
                    1 => -random.f64().max(1e-12).ln(),
                    _ => (std::f64::consts::PI * (random.f64() - 0.5)).tan().abs(),
                };
                let differences: Vec<f64> = (0..8).map(|_| one() - one()).collect();
                let null = effect(&differences, 0.05).expect("enough");
                alarms += u32::from(null.probability <= 0.05);
                let shifted: Vec<f64> = differences.iter().map(|one| one + 3.0).collect();
                let shifted = effect(&shifted, 0.05).expect("enough");
                held += u32::from(shifted.low <= 3.0 && 3.0 <= shifted.high);
            }
            // Three standard errors from the nominal value.
            assert!(f64::from(held) / f64::from(rounds) > 0.95 - 0.015, "shape {shape}: {held}");
            assert!(f64::from(alarms) / f64::from(rounds) < 0.05 + 0.015, "shape {shape}: {alarms}");
        }
    }
}

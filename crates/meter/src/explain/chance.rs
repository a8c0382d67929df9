//! Significance of differences: tests that use only the ranks of gaps, so that a call of a minute weighs no more than
//! one of a second.

use super::attributes::Pool;

/// Probability that calls with a mark rank this high or higher by chance: the rank sum of Wilcoxon and Mann-Whitney, stratum
/// by stratum (E. van Elteren, 1960), by its normal approximation with ties and a correction for continuity. Strata are the
/// stretches, since the samples of each were drawn by a rule of its own. `among` says which calls are looked at. 1 where
/// nothing can be told.
pub fn ranks_above(pool: &Pool<'_>, marked: &[bool], among: &[bool]) -> f64 {
    let strata = pool.calls.iter().map(|call| call.stretch + 1).max().unwrap_or(0);
    let (mut above, mut expected, mut variance) = (0.0, 0.0, 0.0);
    for stratum in 0..strata {
        let calls = pool.calls.iter().enumerate();
        let mut gaps: Vec<(u64, bool)> = calls
            .filter(|(at, call)| among[*at] && call.stretch == stratum)
            .map(|(at, call)| (call.call.gap_ns, marked[at]))
            .collect();
        gaps.sort_unstable();
        let all = gaps.len() as f64;
        let with = gaps.iter().filter(|(_, marked)| *marked).count() as f64;
        if with == 0.0 || with == all {
            continue;
        }
        let (mut rank_sum, mut ties) = (0.0, 0.0);
        let mut rank = 0.0;
        for same in gaps.chunk_by(|a, b| a.0 == b.0) {
            let tied = same.len() as f64;
            let mean_rank = rank + (tied + 1.0) / 2.0;
            rank_sum += mean_rank * same.iter().filter(|(_, marked)| *marked).count() as f64;
            ties += tied * tied * tied - tied;
            rank += tied;
        }
        let without = all - with;
        // Weighed by 1 / (n + 1), which has the most power where strata differ in size.
        let weight = 1.0 / (all + 1.0);
        above += weight * rank_sum;
        expected += weight * with * (all + 1.0) / 2.0;
        variance +=
            weight * weight * with * without / 12.0 * ((all + 1.0) - ties / (all * (all - 1.0)).max(1.0));
    }
    if variance <= 0.0 {
        return 1.0;
    }
    let continuity = 0.5 / (pool.calls.len() as f64 + 1.0);
    normal_above((above - expected - continuity) / variance.sqrt())
}

/// Rank correlation of a number and the gap, and the probability that it is this far from zero by chance (Spearman's, by its
/// normal approximation; the ranks within each stretch). `among` says which calls are looked at.
pub fn rises(pool: &Pool<'_>, values: &[Option<f64>], among: &[bool]) -> (f64, f64) {
    let strata = pool.calls.iter().map(|call| call.stretch + 1).max().unwrap_or(0);
    let (mut sum, mut variance, mut scale) = (0.0, 0.0, 0.0);
    for stratum in 0..strata {
        let calls = pool.calls.iter().zip(values).zip(among);
        let calls = calls.filter(|((call, _), among)| **among && call.stretch == stratum);
        let (gaps, numbers): (Vec<f64>, Vec<f64>) =
            calls.filter_map(|((call, value), _)| Some((call.call.gap_ns as f64, (*value)?))).unzip();
        if gaps.len() < 3 {
            continue;
        }
        let (x, y) = (centred_ranks(&gaps), centred_ranks(&numbers));
        let squares = |ranks: &[f64]| ranks.iter().map(|rank| rank * rank).sum::<f64>();
        let (xx, yy) = (squares(&x), squares(&y));
        sum += x.iter().zip(&y).map(|(x, y)| x * y).sum::<f64>();
        // Of the sum over all orders of one of them.
        variance += xx * yy / (gaps.len() as f64 - 1.0);
        scale += (xx * yy).sqrt();
    }
    if variance <= 0.0 || scale <= 0.0 {
        return (0.0, 1.0);
    }
    (sum / scale, (2.0 * normal_above(sum.abs() / variance.sqrt())).min(1.0))
}

/// Ranks around their mean; ties share theirs.
fn centred_ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for same in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let mean = before as f64 + (same.len() as f64 - 1.0) / 2.0;
        same.iter().for_each(|at| ranks[*at] = mean - (values.len() as f64 - 1.0) / 2.0);
        before += same.len();
    }
    ranks
}

/// Probability above `z` of a standard normal: W. Cody's rational approximation would do; this is the continued fraction of
/// the tail and the series of the middle (Abramowitz and Stegun, 26.2.14 and 26.2.10), good to 1e-9 where it matters.
fn normal_above(z: f64) -> f64 {
    let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if z > 2.5 {
        let fraction = (1..=60).rev().fold(z, |below, k| z + k as f64 / below);
        return density / fraction;
    }
    if z < -2.5 {
        return 1.0 - normal_above(-z);
    }
    let (mut term, mut sum) = (z, z);
    for k in 1..60 {
        term *= z * z / (2 * k + 1) as f64;
        sum += term;
    }
    0.5 - density * sum
}

/// The least share of false discoveries at which each would be among them (Y. Benjamini, Y. Hochberg, 1995).
pub fn held_to_false_discoveries(probabilities: Vec<f64>) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|a, b| probabilities[*b].total_cmp(&probabilities[*a]));
    let mut adjusted = vec![1.0; probabilities.len()];
    let mut least = 1.0f64;
    for (larger, at) in order.iter().enumerate() {
        let rank = (probabilities.len() - larger) as f64;
        least = least.min(probabilities[*at] * probabilities.len() as f64 / rank);
        adjusted[*at] = least;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_normal_tail_is_that_of_the_tables() {
        // R: pnorm(z, lower.tail = FALSE)
        for (z, above) in [
            (0.0, 0.5),
            (1.0, 0.158655253931457),
            (1.959963984540054, 0.025),
            (2.6, 0.00466118802371875),
            (6.0, 9.86587645037698e-10),
            (-3.0, 0.998650101968370),
        ] {
            let is = normal_above(z);
            assert!((is / above - 1.0).abs() < 1e-8, "{z}: {is} instead of {above}");
        }
    }

    #[test]
    fn false_discoveries_are_those_of_the_books() {
        // R: p.adjust(c(0.01, 0.02, 0.03, 0.5), "BH")
        let adjusted = held_to_false_discoveries(vec![0.5, 0.01, 0.03, 0.02]);
        for (is, should) in adjusted.iter().zip([0.5, 0.04, 0.04, 0.04]) {
            assert!((is - should).abs() < 1e-12, "{adjusted:?}");
        }
    }
}

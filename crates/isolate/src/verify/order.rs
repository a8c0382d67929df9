//! Confidence intervals of quantiles from order statistics: no assumption about the distribution, only that the
//! draws are independent of each other.
//!
//! Of `n` draws, the number `B` that are at most the true quantile `q` is binomial with `n` and `q`. The draw
//! of rank `low` is at most the quantile if `B >= low`, and that of rank `high` is at least the quantile if `B
//! < high`, whatever the distribution is. So the two enclose it with the probability of `low <= B < high`,
//! which is held to at least 95 % by leaving at most 2.5 % on each side (W. J. Conover, Practical Nonparametric
//! Statistics, 3rd edition, section 3.2; H. A. David and H. N. Nagaraja, Order Statistics, 3rd edition, section
//! 7.1).

/// Maximum probability left on each side.
const TAIL: f64 = 0.025;
/// The normal deviate that corresponds to it.
const DEVIATE: f64 = 1.96;
/// Up to this many expected draws beyond the quantile, the binomial distribution is summed term by term. Above,
/// the normal approximation is used, one rank further out: its skewness shifts the bounds by `(DEVIATE^2 - 1) /
/// 6`, half a rank.
const EXACT_UP_TO: f64 = 300.0;

/// Ranks, from 1, of the draws that enclose the quantile `q` with at least 95 %; `None` if there are too few
/// draws: with fewer than 368, the largest may well be below the true 99th percentile.
pub fn ranks(n: u64, q: f64) -> Option<(u64, u64)> {
    if n == 0 || !(0.5..1.0).contains(&q) {
        return None;
    }
    // Counted from the top: the number of draws above the quantile.
    let (few, many) = above(n, 1.0 - q)?;
    let (low, high) = ((n + 1).checked_sub(many)?, n - few);
    (low >= 1).then_some((low, high))
}

/// The largest number of draws above the quantile whose lower tail is at most [`TAIL`], and the smallest whose
/// upper tail is. `None` if even zero draws above are more likely than that.
fn above(n: u64, p: f64) -> Option<(u64, u64)> {
    let expected = n as f64 * p;
    if expected > EXACT_UP_TO {
        let spread = DEVIATE * (expected * (1.0 - p)).sqrt() + 1.0;
        return Some(((expected - spread).floor() as u64, (expected + spread).ceil() as u64));
    }
    let (mut term, mut at, mut sum) = ((n as f64 * (-p).ln_1p()).exp(), 0_u64, 0.0);
    let mut few = None;
    // Until the remaining upper tail is at most the limit.
    while sum < 1.0 - TAIL && at <= n {
        sum += term;
        if sum <= TAIL {
            few = Some(at);
        }
        term *= (n - at) as f64 / (at + 1) as f64 * p / (1.0 - p);
        at += 1;
    }
    Some((few?, at))
}

/// A known quantile of `n` draws: which, and its value.
pub type KnownQuantile = (f64, u64);

/// Encloses the quantile `q` of the distribution behind `n` draws with at least 95 %, when only some quantiles
/// of the draws are known: by the nearest known ones outside [`ranks`]. `grain` is the maximum relative
/// deviation of a known value from the draw of its rank. `None` if there are too few draws, or no known
/// quantile outside.
pub fn enclose(known: &[KnownQuantile], n: u64, q: f64, grain: f64) -> Option<[u64; 2]> {
    let (low, high) = ranks(n, q)?;
    // Rounded to a quantile that so few draws can have, so that 0.9 x 10 is 9 and not 9.000000000000002.
    let rank = |quantile: f64| ((quantile * n as f64 - 1e-6).ceil().max(1.0) as u64).min(n);
    let below = known.iter().filter(|(quantile, _)| rank(*quantile) <= low).map(|(_, ns)| *ns).max()?;
    let above = known.iter().filter(|(quantile, _)| rank(*quantile) >= high).map(|(_, ns)| *ns).min()?;
    let off = |ns: u64| (ns as f64 * grain).ceil() as u64;
    Some([below.saturating_sub(off(below)), above.saturating_add(off(above))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_ranks() {
        // 0.99^367 > 2.5 % >= 0.99^368.
        assert_eq!(ranks(367, 0.99), None);
        assert_eq!(ranks(368, 0.99).map(|(_, high)| high), Some(368));
        // As in the tables of the sign test: of 15 draws, the 4th and the 12th enclose the median.
        assert_eq!(ranks(15, 0.5), Some((4, 12)));
        assert_eq!((ranks(0, 0.5), ranks(10, 1.0), ranks(10, f64::NAN)), (None, None, None));
    }

    #[test]
    fn exact_and_normal_meet() {
        let (exact, normal) = (ranks(30_000, 0.99).unwrap(), ranks(30_001, 0.99).unwrap());
        assert!(exact.0.abs_diff(normal.0) <= 3 && exact.1.abs_diff(normal.1) <= 3, "{exact:?} {normal:?}");
        assert!(normal.0 <= exact.0 + 1 && normal.1 >= exact.1, "{exact:?} {normal:?}");
    }

    #[test]
    fn bracketed_by_known_quantiles() {
        let known = [(0.5, 500), (0.9, 900), (0.95, 950), (0.99, 990), (0.999, 999), (1.0, 1_000)];
        assert_eq!(enclose(&known, 1_000, 0.99, 0.0), Some([950, 999]), "ranks 984 and 997");
        assert_eq!(enclose(&known, 400, 0.99, 0.0), Some([950, 999]), "p99.9 of 400 draws is the largest");
        assert_eq!(enclose(&known[3..], 1_000, 0.99, 0.0), None, "nothing known below");
        assert_eq!(enclose(&known, 1_000, 0.99, 0.01), Some([940, 1_009]));
    }

    /// Number of trials per simulation.
    const TRIALS: usize = 2_000;

    /// Number of trials that enclose the true p99 of an exponential distribution (times 1 ms), from `n` draws
    /// of which the quantiles in `quantiles` are known.
    fn covered(n: usize, quantiles: &[f64], seed: u64) -> usize {
        let mut random = fastrand::Rng::with_seed(seed);
        let truth = -(0.01_f64.ln()) * 1e6;
        let trial = |_: usize| {
            let mut draws: Vec<u64> =
                (0..n).map(|_| (-(1.0 - random.f64()).ln() * 1e6).round() as u64).collect();
            draws.sort_unstable();
            let at = |q: f64| draws[((q * n as f64 - 1e-6).ceil().max(1.0) as usize - 1).min(n - 1)];
            let known: Vec<KnownQuantile> = quantiles.iter().map(|q| (*q, at(*q))).collect();
            let [low, high] = enclose(&known, n as u64, 0.99, 0.0).expect("enough draws");
            low as f64 <= truth && truth <= high as f64
        };
        (0..TRIALS).map(trial).filter(|covers| *covers).count()
    }

    #[test]
    fn at_least_as_often_as_it_says() {
        let every: Vec<f64> = (0..=1_000).map(|at| f64::from(at) / 1_000.0).collect();
        let all = covered(1_000, &every, 7);
        assert!(all >= TRIALS * 94 / 100, "{all} of {TRIALS}, all ranks known");
        assert!(all <= TRIALS * 99 / 100, "{all} of {TRIALS}: wider than it need be");
        let few = covered(2_000, &[0.5, 0.9, 0.95, 0.99, 0.999, 1.0], 8);
        assert!(few >= all, "{few} of {TRIALS}, few quantiles known");
        let small = covered(368, &every, 9);
        assert!(small >= TRIALS * 94 / 100, "{small} of {TRIALS}, as few draws as can be");
    }

    proptest! {
        #[test]
        fn ranks_are_in_order_and_hold_the_quantile(n in 1_u64..2_000_000_000, q in 0.5..0.9999_f64) {
            if let Some((low, high)) = ranks(n, q) {
                prop_assert!(1 <= low && low < high && high <= n, "{low} {high} of {n}");
                prop_assert!(low as f64 <= q * n as f64 + 1.0 && q * n as f64 <= high as f64 + 1.0, "{low} {high}");
            }
        }
    }
}

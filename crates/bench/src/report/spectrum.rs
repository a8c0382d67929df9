//! The quantile spectrum of a distribution: finer towards the tail, as far as the counts permit.

use super::Distribution;

/// Hundredths of `one_in` within each decade: 1 - 1 / `one_in` is a quantile. Ten points a decade, including
/// the quantiles that tables show.
const ONE_IN_HUNDREDTHS: [u64; 10] = [100, 125, 160, 200, 250, 320, 400, 500, 640, 800];

/// `[quantile, ns]`, ascending in both. The first is the minimum (quantile 0), the last the maximum (quantile
/// 1); in between, only quantiles that at least one duration can exceed. Empty if there are no durations.
pub fn spectrum(distribution: &Distribution) -> Vec<(f64, u64)> {
    let count = distribution.count();
    let mut points = Vec::new();
    let mut buckets = distribution.buckets();
    let Some((mut value_ns, mut seen)) = buckets.next() else { return points };
    let decades = (0..18).map(|power| 10u64.pow(power));
    for hundredths in decades.flat_map(|decade| ONE_IN_HUNDREDTHS.map(|one_in| one_in * decade)) {
        let exceeding = u128::from(count) * 100 / u128::from(hundredths);
        if exceeding == 0 {
            break;
        }
        let rank = (count - exceeding as u64).max(1);
        while seen < rank {
            let Some((ns, more)) = buckets.next() else { break };
            (value_ns, seen) = (ns, seen + more);
        }
        points.push((1.0 - 100.0 / hundredths as f64, value_ns.min(distribution.max_ns())));
    }
    points.push((1.0, distribution.max_ns()));
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Distribution {
        let mut distribution = Distribution::default();
        values.iter().for_each(|ns| distribution.record(*ns));
        distribution
    }

    #[test]
    fn few_durations_give_few_points() {
        assert_eq!(spectrum(&of(&[])), []);
        assert_eq!(spectrum(&of(&[7])), [(0.0, 7), (1.0, 7)]);
        let ten: Vec<u64> = (1..=10).collect();
        let quantiles: Vec<f64> = spectrum(&of(&ten)).iter().map(|point| point.0).collect();
        assert_eq!((quantiles[quantiles.len() - 2], quantiles.len()), (0.9, 12));
    }

    #[test]
    fn a_million_durations_give_some_sixty_points() {
        let mut distribution = Distribution::default();
        distribution.add(2_000, 0, (1..=1_000).map(|ns| (2 * ns, 1_000)));
        let points = spectrum(&distribution);
        assert_eq!(points.len(), 62);
        assert!(points.contains(&(0.5, 1_000)) && points.contains(&(0.999, 1_998)), "{points:?}");
    }

    proptest! {
        #[test]
        fn every_point_is_the_value_of_its_rank(mut values in prop::collection::vec(0u64..1 << 36, 1..2_500)) {
            let points = spectrum(&of(&values));
            values.sort_unstable();
            for pair in points.windows(2) {
                prop_assert!(pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1, "{:?}", pair);
            }
            for &(quantile, ns) in &points {
                // Rounded to a quantile that so few durations can have, so that 0.9 x 10 is 9 and not
                // 9.000000000000002.
                let rank = (quantile * values.len() as f64 - 1e-6).ceil().max(1.0) as usize;
                let exact = values[rank - 1];
                prop_assert!(ns >= exact && ns - exact <= exact / 1000 + 1, "{} at {}: {}", ns, quantile, exact);
            }
            prop_assert_eq!(points.last(), Some(&(1.0, *values.last().unwrap())));
        }

        #[test]
        fn tables_and_spectrum_say_the_same(values in prop::collection::vec(0u64..1 << 36, 1_000..2_500)) {
            let distribution = of(&values);
            let (points, quantiles) = (spectrum(&distribution), distribution.quantiles());
            for (quantile, figure) in [(0.5, quantiles.p50_ns), (0.9, quantiles.p90_ns), (0.99, quantiles.p99_ns)] {
                let point = points.iter().find(|point| (point.0 - quantile).abs() < 1e-12).map(|point| point.1);
                prop_assert_eq!(point, figure);
            }
        }
    }
}

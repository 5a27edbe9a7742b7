//! The interval of a ratio of two sets of times, without a model of their noise.
//!
//! The ratio is the median of the ratios of all pairs (Hodges and Lehmann). The interval comes from the exact
//! distribution of the statistic of Mann and Whitney: it holds for times of any distribution, as long as both sets
//! differ by a factor alone.

use serde::{Deserialize, Serialize};

/// A ratio that is known up to an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The ratio.
    pub ratio: f64,
    /// The upper end.
    pub high: f64,
    /// The probability with which the interval contains the true ratio, at least.
    pub confidence: f64,
}

/// The ratio of the times `now` to the times `before`. `None` if there are too few times for the confidence.
pub fn ratio(now: &[f64], before: &[f64], confidence: f64) -> Option<Interval> {
    let rank = rank(now.len(), before.len(), 1.0 - confidence)?;
    let pairs = now.iter().flat_map(|n| before.iter().map(move |b| n / b));
    let mut ratios: Vec<f64> = pairs.collect();
    if ratios
        .iter()
        .any(|ratio| !ratio.is_finite() || *ratio <= 0.0)
    {
        return None;
    }
    ratios.sort_by(f64::total_cmp);
    Some(Interval {
        low: *ratios.get(rank - 1)?,
        ratio: crate::measure::median(ratios.clone()),
        high: *ratios.get(ratios.len() - rank)?,
        confidence,
    })
}

/// The largest rank, counted from 1, of a pair that may be the end of an interval which misses with probability
/// `alpha`. `None` if there is none.
fn rank(m: usize, n: usize, alpha: f64) -> Option<usize> {
    let mut below = 0.0;
    let mut rank = 0;
    for probability in distribution(m, n) {
        below += probability;
        if 2.0 * below > alpha {
            break;
        }
        rank += 1;
    }
    (rank > 0).then_some(rank)
}

/// The probabilities that 0, 1, 2 and so on of the `m n` pairs are in one order, if both sets have the same distribution.
fn distribution(m: usize, n: usize) -> Vec<f64> {
    // In a random order of all values, the last is one of the m with probability m / (m + n), and is then after all n of the others.
    let mut of_fewer: Vec<Vec<f64>> = vec![vec![1.0]; n + 1];
    for i in 1..=m {
        let mut of_i: Vec<Vec<f64>> = vec![vec![1.0]];
        for j in 1..=n {
            let last_is_ours = i as f64 / (i + j) as f64;
            let mut all = vec![0.0; i * j + 1];
            for (pairs, probability) in of_fewer[j].iter().enumerate() {
                all[pairs + j] += last_is_ours * probability;
            }
            for (pairs, probability) in of_i[j - 1].iter().enumerate() {
                all[pairs] += (1.0 - last_is_ours) * probability;
            }
            of_i.push(all);
        }
        of_fewer = of_i;
    }
    of_fewer.pop().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts all orders of three and two values.
    #[test]
    fn the_distribution_counts_orders() {
        let expected = [0.1, 0.1, 0.2, 0.2, 0.2, 0.1, 0.1];
        for (got, expected) in distribution(3, 2).iter().zip(expected) {
            assert!((got - expected).abs() < 1e-15, "{got} {expected}");
        }
        let sum: f64 = distribution(9, 40).iter().sum();
        assert!((sum - 1.0).abs() < 1e-12);
    }

    /// The table of Mann and Whitney: for 8 and 8 values, 13 or fewer pairs have a two-sided probability of at most 0.05.
    #[test]
    fn ranks_are_those_of_the_table() {
        assert_eq!(rank(8, 8, 0.05), Some(14));
        assert_eq!(rank(5, 7, 0.05), Some(6));
        assert_eq!(rank(3, 3, 0.05), None);
    }

    #[test]
    fn a_factor_is_found_and_an_outlier_ignored() {
        let before: Vec<f64> = (0..10).map(|i| 1.0 + 0.005 * f64::from(i)).collect();
        let mut now: Vec<f64> = before.iter().map(|t| 1.5 * t).collect();
        now[3] = 1000.0;
        let interval = ratio(&now, &before, 0.99).unwrap();
        assert!((interval.ratio - 1.5).abs() < 0.05, "{interval:?}");
        assert!(1.4 < interval.low && interval.low < interval.ratio);
        assert!(interval.ratio < interval.high && interval.high < 1.7);
    }

    #[test]
    fn few_or_impossible_times_have_no_interval() {
        assert_eq!(ratio(&[1.0, 2.0], &[1.0, 2.0], 0.99), None);
        assert_eq!(ratio(&[], &[1.0], 0.5), None);
        let times = [1.0; 12];
        let mut wrong = times;
        wrong[0] = f64::NAN;
        assert_eq!(ratio(&wrong, &times, 0.99), None);
        assert_eq!(ratio(&times, &[0.0; 12], 0.99), None);
    }
}

//! Dropout of the grades of items: random numbers that are a function of a key, of a step and of a place.
//!
//! Nothing is drawn in order, so the CPU and GPUs drop the same, in any number of threads, and a backward pass drops
//! what the forward pass dropped without a mask in memory. `flashcliff::cuda::dropout` does it on GPUs.
//!
//! ```text
//! base   = number `step` of the stream of `key`
//! number = number `place` of the stream of `base`, its upper 32 bits
//! place  = row * (grades * channels + scalars) + grade * channels + channel,  or  ... + grades * channels + scalar
//! ```
//!
//! The streams are SplitMix64 streams. Source: Steele, Lea and Flood, *Fast splittable pseudorandom number generators*, OOPSLA 2014.

use crate::Element;

/// The step from a state of a stream to the next.
const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// Dropout with a probability: each grade of a multivector channel, and each scalar, is 0 or scaled.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct GradeDropout {
    /// The seed of a stream of steps. Layers that drop independently have different keys, see [`key_of`].
    pub key: u64,
    /// Numbers of 32 bits below it are dropped.
    pub threshold: u32,
    /// The factor of what is not dropped.
    pub scale: f64,
}

impl GradeDropout {
    /// Dropout with a probability from 0 to less than 1; others stand for the nearest.
    pub fn new(p: f64, key: u64) -> Self {
        let all = 2_f64.powi(32);
        // The cast takes the nearest number of its type, and 0 for what is none.
        let threshold = (p * all).round() as u32;
        Self {
            key,
            threshold,
            // As `p` has it, not as the threshold rounds it: the scale of other libraries.
            // `max` takes the number where the other is none.
            scale: 1.0 / (1.0 - p.max(0.0).min(1.0 - 1.0 / all)),
        }
    }

    /// The numbers of a step.
    pub fn at(self, step: u32) -> Drawn {
        Drawn {
            base: number(self.key, step.into()),
            dropout: self,
        }
    }
}

/// Dropout in one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drawn {
    base: u64,
    dropout: GradeDropout,
}

impl Drawn {
    /// The factor of a place: 0 or the scale.
    pub fn factor<T: Element>(&self, place: u64) -> T {
        let drawn = (number(self.base, place) >> 32) as u32;
        let dropped = drawn < self.dropout.threshold;
        T::from_f64(if dropped { 0.0 } else { self.dropout.scale })
    }
}

/// A separate key for each place, from the key of all.
pub fn key_of(key: u64, place: u64) -> u64 {
    number(key, place)
}

/// A number of the stream of a seed.
pub(crate) fn number(seed: u64, at: u64) -> u64 {
    let mut z = seed.wrapping_add(at.wrapping_add(1).wrapping_mul(GAMMA));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that the generator's reference implementation has for this seed.
    #[test]
    fn streams_are_those_of_splitmix64() {
        let expected: [u64; 5] = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        let got: Vec<u64> = (0..5).map(|at| number(1_234_567, at)).collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn a_share_is_dropped_and_the_rest_scaled() {
        for p in [0.0, 0.1, 0.5, 0.9] {
            let drawn = GradeDropout::new(p, 7).at(3);
            let factors: Vec<f64> = (0..100_000).map(|place| drawn.factor(place)).collect();
            let dropped = factors.iter().filter(|&&factor| factor == 0.0).count();
            let share = dropped as f64 / factors.len() as f64;
            // Five standard deviations.
            assert!(
                (share - p).abs() <= 5.0 * (p * (1.0 - p) / 1e5).sqrt(),
                "{p}: {share}"
            );
            let kept = factors.iter().filter(|&&factor| factor != 0.0);
            assert!(kept.clone().all(|&factor| factor == 1.0 / (1.0 - p)));
        }
    }

    /// Whether two places, steps or keys drop the same is a coin's throw.
    #[test]
    fn places_steps_and_keys_are_independent() {
        let of = |key: u64, step: u32, shift: u64| -> Vec<bool> {
            let drawn = GradeDropout::new(0.5, key).at(step);
            let places = (0..20_000).map(|place| drawn.factor::<f64>(place + shift) == 0.0);
            places.collect()
        };
        let first = of(1, 0, 0);
        let others = [
            of(1, 1, 0),
            of(2, 0, 0),
            of(1, 0, 1),
            of(key_of(1, 0), 0, 0),
        ];
        for other in others {
            let same = first.iter().zip(&other).filter(|(a, b)| a == b).count();
            let share = same as f64 / first.len() as f64;
            assert!((share - 0.5).abs() < 0.02, "{share}");
        }
    }

    #[test]
    fn probabilities_outside_are_the_nearest() {
        assert_eq!(GradeDropout::new(-1.0, 0).threshold, 0);
        assert_eq!(GradeDropout::new(f64::NAN, 0).threshold, 0);
        assert_eq!(GradeDropout::new(1.0, 0).threshold, u32::MAX);
        assert!(GradeDropout::new(2.0, 0).scale.is_finite());
        assert_eq!(GradeDropout::new(f64::NAN, 0).scale, 1.0);
    }
}

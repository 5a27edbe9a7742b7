//! The learning rate of CGENN's n-body run: half a cosine up over a 64th of the steps, and half a cosine down over the last quarter.
//!
//! It changes between steps that run together, so each half has at most [`PIECES`] values.

use std::f64::consts::PI;

/// The values of a half.
const PIECES: usize = 64;
/// The factor at both ends: 1e-7 of the published rate of 4e-3.
const LEAST: f64 = 1e-7 / 4e-3;

/// The factor of a step counted from 0 in a run of so many, and the first step with another.
pub(super) fn factor(step: usize, steps: usize) -> (f64, Option<usize>) {
    let (up, down) = (steps / 64, steps / 4);
    let from_end = steps.saturating_sub(step);
    if step < up {
        let (at, next) = piece(step, up);
        return (half(at), Some(next));
    }
    if from_end > down {
        return (1.0, Some(steps - down));
    }
    let (at, next) = piece(down - from_end, down);
    (half(1.0 - at), Some(steps - down + next))
}

/// Where the piece of a step of a half begins, as a part of the half, and the step after the piece.
fn piece(step: usize, steps: usize) -> (f64, usize) {
    let piece = step * PIECES / steps.max(1);
    let behind = ((piece + 1) * steps).div_ceil(PIECES);
    (piece as f64 / PIECES as f64, behind)
}

/// From the least factor at 0 to 1 at 1.
fn half(at: f64) -> f64 {
    LEAST + (1.0 - LEAST) * (1.0 - (PI * at).cos()) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_grows_stays_and_falls() {
        let steps = 131_072;
        assert_eq!(factor(0, steps).0, LEAST);
        assert_eq!(factor(0, steps).1, Some(32));
        assert!((factor(1024, steps).0 - 0.5).abs() < 1e-3);
        assert_eq!(factor(2048, steps), (1.0, Some(98_304)));
        assert_eq!(factor(98_303, steps), (1.0, Some(98_304)));
        assert_eq!(factor(98_304, steps), (1.0, Some(98_304 + 512)));
        assert!((factor(98_304 + 16_384, steps).0 - 0.5).abs() < 1e-3);
        assert!(factor(131_071, steps).0 < 1e-3);
    }

    /// Also of short runs, whose pieces have fewer steps or none.
    #[test]
    fn the_next_step_with_another_rate_is_the_next_one() {
        for steps in [1, 2, 5, 63, 64, 65, 300, 1000, 4096] {
            let mut step = 0;
            while step < steps {
                let (rate, next) = factor(step, steps);
                assert!((0.0..=1.0).contains(&rate), "{rate}");
                let next = next.unwrap().min(steps);
                assert!(next > step, "{step} of {steps}");
                assert!((step..next).all(|own| factor(own, steps).0 == rate));
                step = next;
            }
        }
    }
}

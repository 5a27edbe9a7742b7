//! Steps of Lion on the CPU, over parameters and means in memory of a host.
//!
//! For each element of a parameter `p` with gradient `g` and mean `m`:
//! ```text
//! g <- clip (unscale g) + decay p
//! c <- beta1 m + (1 - beta1) g
//! m <- beta2 m + (1 - beta2) g
//! p <- keep p - rate sign(c)
//! ```
//! The sign of 0 is 0, and that of what is not a number is not one. Numbers are rounded to the type of the parameter, and so is each
//! operation, so a GPU ([`cuda::AdamRule::Lion`](../cuda/enum.AdamRule.html)) gives the same bits, and so does any number of threads.
//!
//! ```
//! use flashcliff::lion::{Member, Step};
//!
//! let (mut parameter, mut mean) = ([1.0_f32, 2.0], [0.0; 2]);
//! let member = Member::new(&mut parameter, &[4.0, -4.0], &mut mean)?;
//! Step { rate: 0.5, beta1: 0.5, beta2: 0.75, ..Step::default() }.run(vec![member]);
//! assert_eq!((parameter, mean), ([0.5, 2.5], [1.0, -1.0]));
//! # Ok::<(), flashcliff::Error>(())
//! ```
//!
//! Source: X. Chen et al., *Symbolic discovery of optimization algorithms*, NeurIPS 2023, algorithm 2.

use crate::{Element, Error, Loop, Tier, threads};

/// The elements of a piece of work. Steps of fewer are done by the calling thread.
const PIECE: usize = 1 << 16;

/// The numbers of a step. The default moves nothing: a rate of 0 and no decay, with the published decay rates of 0.9 and 0.99.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The first factor of gradients. They have two, since their product may be too small for `f32`.
    pub unscale: f64,
    /// The second factor of gradients.
    pub clip: f64,
    /// The decay that is a part of the gradient.
    pub decay: f64,
    /// The factor of parameters: `1 - rate weight_decay` for a decay that is not a part of the gradient.
    pub keep: f64,
    /// The learning rate.
    pub rate: f64,
    /// The decay rate of the direction of a step.
    pub beta1: f64,
    /// The decay rate of the mean of the gradients.
    pub beta2: f64,
}

impl Default for Step {
    fn default() -> Self {
        Self {
            unscale: 1.0,
            clip: 1.0,
            decay: 0.0,
            keep: 1.0,
            rate: 0.0,
            beta1: 0.9,
            beta2: 0.99,
        }
    }
}

/// A parameter with its gradient and mean, of one length.
#[derive(Debug)]
pub struct Member<'a, T> {
    parameter: &'a mut [T],
    gradient: &'a [T],
    mean: &'a mut [T],
}

impl<'a, T: Element> Member<'a, T> {
    /// A parameter, its gradient, and the mean of its gradients.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] for a gradient or a mean of another length than the parameter.
    pub fn new(
        parameter: &'a mut [T],
        gradient: &'a [T],
        mean: &'a mut [T],
    ) -> Result<Self, Error> {
        for (tensor, len) in [("gradient", gradient.len()), ("mean", mean.len())] {
            if len != parameter.len() {
                return Err(Error::ShapeMismatch {
                    operator: "Lion".to_owned(),
                    tensor: tensor.to_owned(),
                    expected: format!("of {} elements", parameter.len()),
                    got: vec![len],
                });
            }
        }
        Ok(Self {
            parameter,
            gradient,
            mean,
        })
    }

    /// The pieces of work of a step.
    fn pieces(self) -> impl Iterator<Item = Self> {
        let parameter = self.parameter.chunks_mut(PIECE);
        let gradient = self.gradient.chunks(PIECE);
        let parts = parameter.zip(gradient).zip(self.mean.chunks_mut(PIECE));
        parts.map(|((parameter, gradient), mean)| Self {
            parameter,
            gradient,
            mean,
        })
    }
}

impl Step {
    /// Changes parameters and means, on as many threads as [`threads`] says.
    pub fn run<T: Element>(&self, members: Vec<Member<'_, T>>) {
        let update = |member| self.run_on(Tier::best(), member);
        let count: usize = members.iter().map(|member| member.parameter.len()).sum();
        if count <= PIECE {
            return members.into_iter().for_each(update);
        }
        let pieces: Vec<_> = members.into_iter().flat_map(Member::pieces).collect();
        threads::each(pieces.into_iter(), update);
    }

    /// Changes one parameter and its mean on the calling thread, with the instructions of a tier.
    pub fn run_on<T: Element>(&self, tier: Tier, member: Member<'_, T>) {
        tier.run(Update { step: self, member });
    }
}

struct Update<'a, T> {
    step: &'a Step,
    member: Member<'a, T>,
}

impl<T: Element> Loop for Update<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let step = self.step;
        let (zero, one) = (T::from_f64(0.0), T::from_f64(1.0));
        let (unscale, clip) = (T::from_f64(step.unscale), T::from_f64(step.clip));
        let (decay, keep) = (T::from_f64(step.decay), T::from_f64(step.keep));
        let (beta1, gain1) = (T::from_f64(step.beta1), T::from_f64(1.0 - step.beta1));
        let (beta2, gain2) = (T::from_f64(step.beta2), T::from_f64(1.0 - step.beta2));
        let rate = T::from_f64(step.rate);
        let Member {
            parameter,
            gradient,
            mean,
        } = self.member;
        for ((p, &given), m) in parameter.iter_mut().zip(gradient).zip(mean) {
            let mut g = given * unscale * clip;
            g += decay * *p;
            let mut direction = beta1 * *m;
            direction += gain1 * g;
            // What is not a number passes, and is not taken for a 0.
            let falls = if direction < zero {
                zero - one
            } else {
                direction
            };
            let sign = if direction > zero { one } else { falls };
            *m = beta2 * *m;
            *m += gain2 * g;
            *p = keep * *p - rate * sign;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(seed: f64, count: usize) -> Vec<f32> {
        (0..count)
            .map(|at| ((at + 1) as f64 * seed).sin() as f32)
            .collect()
    }

    fn bits(data: &[f32]) -> Vec<u32> {
        data.iter().map(|x| x.to_bits()).collect()
    }

    const STEP: Step = Step {
        unscale: 0.5,
        clip: 0.7,
        decay: 0.01,
        keep: 0.99,
        rate: 1e-2,
        beta1: 0.9,
        beta2: 0.99,
    };

    /// Parameters and means of some lengths after a step.
    fn after(counts: &[usize], run: impl FnOnce(Vec<Member<'_, f32>>)) -> Vec<Vec<u32>> {
        let made = |seed: f64| counts.iter().map(move |&count| numbers(seed, count));
        let (mut p, g, mut m): (Vec<_>, Vec<_>, Vec<_>) = (
            made(0.11).collect(),
            made(0.37).collect(),
            made(0.23).collect(),
        );
        let members = p.iter_mut().zip(&g).zip(&mut m);
        let members = members.map(|((p, g), m)| Member::new(p, g, m).expect("one length"));
        run(members.collect());
        p.iter().chain(&m).map(|data| bits(data)).collect()
    }

    #[test]
    fn tiers_and_threads_give_the_same_bits() {
        let counts = [3, 0, 3 * PIECE + 5, 1003];
        let each = |tier| {
            move |members: Vec<Member<'_, f32>>| {
                members.into_iter().for_each(|m| STEP.run_on(tier, m));
            }
        };
        let expected = after(&counts, each(Tier::Scalar));
        for tier in Tier::available() {
            assert!(after(&counts, each(tier)) == expected, "{tier}");
        }
        assert!(after(&counts, |members| STEP.run(members)) == expected);
        let before: Vec<_> = counts.iter().map(|&n| bits(&numbers(0.11, n))).collect();
        let changed = expected
            .iter()
            .zip(&before)
            .all(|(a, b)| a.is_empty() || a != b);
        assert!(changed);
    }

    #[test]
    fn other_lengths_are_errors() {
        let (mut p, mut m) = ([0.0_f32; 3], [0.0; 3]);
        for (gradient, mean) in [(2, 3), (3, 2)] {
            let error = Member::new(&mut p, &[0.0; 3][..gradient], &mut m[..mean]);
            assert!(matches!(error, Err(Error::ShapeMismatch { .. })));
        }
    }
}

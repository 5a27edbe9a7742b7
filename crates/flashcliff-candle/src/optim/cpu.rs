//! The arithmetic of the optimisers on the CPU.

use candle_core::{CpuStorage, DType, Storage, Tensor, Var, backend::BackendStorage};

use flashcliff::{Loop, Tier, lion};

use super::options::{AdamOptions, Rule};
use crate::Error;
use crate::objective::Gradient;
use crate::op::{Scalar, in_place};

/// The first and second moments of a parameter, in its type. For Lion the second ones are empty.
#[derive(Debug, Clone)]
pub(super) enum Moments {
    F32(Vec<f32>, Vec<f32>),
    F64(Vec<f64>, Vec<f64>),
}

impl Moments {
    /// The moments before the first step.
    pub(super) fn zeros(rule: Rule, dtype: DType, count: usize) -> Self {
        let second = second_count(rule, count);
        match dtype {
            DType::F64 => Self::F64(vec![0.0; count], vec![0.0; second]),
            _ => Self::F32(vec![0.0; count], vec![0.0; second]),
        }
    }
}

/// The second moments of so many elements.
pub(super) fn second_count(rule: Rule, count: usize) -> usize {
    match rule {
        Rule::Adam => count,
        Rule::Lion => 0,
    }
}

/// The numbers of one step of one parameter.
#[derive(Clone, Copy)]
struct Coefficients {
    rule: Rule,
    unscale: f64,
    clip: f64,
    decay: f64,
    beta1: f64,
    gain1: f64,
    beta2: f64,
    gain2: f64,
    correction2: f64,
    eps: f64,
    step_size: f64,
    keep: f64,
}

impl Coefficients {
    fn at(options: &AdamOptions, factors: Factors, step: u32) -> Self {
        let Factors { rate, clip, scale } = factors;
        let decay = options.weight_decay;
        Self {
            rule: options.rule,
            unscale: 1.0 / scale,
            clip,
            decay: if options.decoupled { 0.0 } else { decay },
            beta1: options.beta1,
            gain1: 1.0 - options.beta1,
            beta2: options.beta2,
            gain2: 1.0 - options.beta2,
            correction2: (1.0 - power(options.beta2, step)).sqrt(),
            eps: options.eps,
            step_size: match options.rule {
                Rule::Adam => rate / (1.0 - power(options.beta1, step)),
                Rule::Lion => rate,
            },
            keep: if options.decoupled {
                1.0 - rate * decay
            } else {
                1.0
            },
        }
    }
}

/// A power by repeated squaring, as a GPU computes it: functions of libraries differ in the last bit.
fn power(mut base: f64, mut exponent: u32) -> f64 {
    let mut result = 1.0;
    while exponent != 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

/// The sum of the squares of a gradient, in `f64` and in an order that depends on its length alone.
pub(super) fn squares(gradient: &Gradient<'_>) -> Result<f64, Error> {
    match gradient {
        Gradient::F32(data) => Ok(Tier::best().run(Squares(data))),
        Gradient::F64(data) => Ok(Tier::best().run(Squares(data))),
        Gradient::Tensor(tensor) => with_elements(tensor, |gradient| squares(&gradient)),
        #[cfg(feature = "cuda")]
        Gradient::Gpu(storage) => Err(wrong_type(storage.dtype()).into()),
    }
}

/// A tensor of one element on the CPU as a number.
pub(crate) fn number(tensor: &Tensor) -> Result<f64, Error> {
    match tensor.dtype() {
        DType::F32 | DType::F64 => with_elements(tensor, |element| {
            Ok(match element {
                Gradient::F32(data) => data.first().map_or(f64::NAN, |&x| x.into()),
                Gradient::F64(data) => data.first().map_or(f64::NAN, |&x| x),
                _ => f64::NAN,
            })
        }),
        _ => Ok(tensor
            .flatten_all()?
            .to_dtype(DType::F64)?
            .to_vec1::<f64>()?[0]),
    }
}

/// Calls a function with the elements of a tensor on the CPU.
fn with_elements<R>(
    tensor: &Tensor,
    f: impl FnOnce(Gradient<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    let tensor = tensor.contiguous()?;
    let (storage, layout) = tensor.storage_and_layout();
    let (Storage::Cpu(storage), Some((start, end))) = (&*storage, layout.contiguous_offsets())
    else {
        return Err(candle_core::Error::RequiresContiguous { op: "adam" }.into());
    };
    match storage {
        CpuStorage::F32(data) => f(Gradient::F32(&data[start..end])),
        CpuStorage::F64(data) => f(Gradient::F64(&data[start..end])),
        other => Err(wrong_type(other.dtype()).into()),
    }
}

/// The sum of the squares of some numbers, in eight sums.
struct Squares<'a, T>(&'a [T]);

impl<T: Copy + Into<f64>> Loop for Squares<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        const LANES: usize = 8;
        let mut sums = [0.0; LANES];
        let chunks = self.0.chunks_exact(LANES);
        let rest = chunks.remainder();
        for chunk in chunks.chain([rest]) {
            for (sum, &x) in sums.iter_mut().zip(chunk) {
                let x: f64 = x.into();
                *sum += x * x;
            }
        }
        sums.iter().sum()
    }
}

fn wrong_type(got: candle_core::DType) -> candle_core::Error {
    candle_core::Error::UnexpectedDType {
        msg: "adam",
        expected: candle_core::DType::F32,
        got,
    }
}

/// The factors of a step.
#[derive(Clone, Copy)]
pub(super) struct Factors {
    /// The learning rate.
    pub(super) rate: f64,
    /// The factor of the gradients.
    pub(super) clip: f64,
    /// The power of two that the gradients were multiplied by.
    pub(super) scale: f64,
}

/// Changes one parameter and its moments, which have done `step` steps with this one.
pub(super) fn update(
    options: &AdamOptions,
    factors: Factors,
    step: u32,
    var: &Var,
    gradient: &Gradient<'_>,
    moments: &mut Moments,
) -> Result<(), Error> {
    let coefficients = Coefficients::at(options, factors, step);
    match (moments, gradient) {
        (Moments::F32(m, v), Gradient::F32(gradient)) => apply(var, gradient, m, v, coefficients),
        (Moments::F64(m, v), Gradient::F64(gradient)) => apply(var, gradient, m, v, coefficients),
        (moments, Gradient::Tensor(tensor)) => with_elements(tensor, |gradient| {
            update(options, factors, step, var, &gradient, moments)
        }),
        _ => Err(wrong_type(var.dtype()).into()),
    }
}

fn apply<T: Scalar>(
    var: &Var,
    gradient: &[T],
    m: &mut [T],
    v: &mut [T],
    coefficients: Coefficients,
) -> Result<(), Error> {
    let mut done = Ok(());
    in_place::change(var, |parameter| {
        let update = Update {
            parameter,
            gradient,
            m,
            v,
            coefficients,
        };
        done = update.run_on(Tier::best());
    })?;
    done
}

/// The update of the numbers of a parameter and of its moments.
struct Update<'a, T> {
    parameter: &'a mut [T],
    gradient: &'a [T],
    m: &'a mut [T],
    v: &'a mut [T],
    coefficients: Coefficients,
}

impl<T: Scalar> Update<'_, T> {
    fn run_on(self, tier: Tier) -> Result<(), Error> {
        match self.coefficients.rule {
            Rule::Adam => tier.run(AdamUpdate(self)),
            Rule::Lion => self.run_lion(tier)?,
        }
        Ok(())
    }
}

struct AdamUpdate<'a, T>(Update<'a, T>);

impl<T: Scalar> Loop for AdamUpdate<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let this = self.0;
        let c = &this.coefficients;
        let number = <T as candle_core::WithDType>::from_f64;
        let unscale = number(c.unscale);
        let (clip, decay, keep) = (number(c.clip), number(c.decay), number(c.keep));
        let (gain1, beta2, gain2) = (number(c.gain1), number(c.beta2), number(c.gain2));
        let (correction2, eps) = (number(c.correction2), number(c.eps));
        let step_size = number(c.step_size);
        let moments = this.m.iter_mut().zip(this.v.iter_mut());
        let numbers = this.parameter.iter_mut().zip(this.gradient);
        for ((p, &g), (m, v)) in numbers.zip(moments) {
            let g = g * unscale * clip + decay * *p;
            *m += gain1 * (g - *m);
            *v = beta2 * *v + gain2 * g * g;
            *p = keep * *p - step_size * (*m / (v.root() / correction2 + eps));
        }
    }
}

impl<T: Scalar> Update<'_, T> {
    fn run_lion(self, tier: Tier) -> Result<(), Error> {
        let c = &self.coefficients;
        let step = lion::Step {
            unscale: c.unscale,
            clip: c.clip,
            decay: c.decay,
            keep: c.keep,
            rate: c.step_size,
            beta1: c.beta1,
            beta2: c.beta2,
        };
        step.run_on(
            tier,
            lion::Member::new(self.parameter, self.gradient, self.m)?,
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(seed: f64) -> Vec<f32> {
        let number = |at| (f64::from(at + 1) * seed).sin() as f32;
        (0..1003).map(number).collect()
    }

    fn bits(data: Vec<f32>) -> Vec<u32> {
        data.into_iter().map(f32::to_bits).collect()
    }

    /// Parameter and moments after a step with all factors in use, and the sum of the squares of the gradient.
    fn step(tier: Tier, rule: Rule) -> ([Vec<u32>; 3], u64) {
        let options = AdamOptions {
            rule,
            weight_decay: 0.1,
            decoupled: true,
            ..AdamOptions::default()
        };
        let factors = Factors {
            rate: 1e-2,
            clip: 0.7,
            scale: 2.0,
        };
        let gradient = numbers(0.37);
        let [mut parameter, mut m, mut v] = [0.11, 0.23, 0.59].map(numbers);
        v.iter_mut().for_each(|v| *v = v.abs());
        let update = Update {
            parameter: &mut parameter,
            gradient: &gradient,
            m: &mut m,
            v: &mut v,
            coefficients: Coefficients::at(&options, factors, 3),
        };
        update.run_on(tier).expect("one length");
        let squares = tier.run(Squares(&gradient));
        ([parameter, m, v].map(bits), squares.to_bits())
    }

    #[test]
    fn tiers_give_the_same_bits() {
        for rule in [Rule::Adam, Rule::Lion] {
            let expected = step(Tier::Scalar, rule);
            let changed = expected.0[0].iter().zip(bits(numbers(0.11)));
            assert!(changed.into_iter().all(|(&after, before)| after != before));
            for tier in Tier::available() {
                assert!(step(tier, rule) == expected, "{rule:?}, {tier}");
            }
        }
    }
}

//! An oracle of plain loops in `f64`, which shares no code with the library: blades are bit masks,
//! signs count swaps.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test file uses its own part of the oracle"
)]

use candle_core::{DType, Device, Tensor};
use flashcliff::{Algebra, Signature};
use flashcliff_candle::init::Parameters;

/// Multivectors `[blades, batch, channels]`.
#[derive(Clone, Debug)]
pub struct Mv {
    pub batch: usize,
    pub channels: usize,
    pub data: Vec<f64>,
}

impl Mv {
    pub fn zeros(blades: usize, batch: usize, channels: usize) -> Self {
        let data = vec![0.0; blades * batch * channels];
        Self {
            batch,
            channels,
            data,
        }
    }

    pub fn of(tensor: &Tensor) -> Self {
        let (_, batch, channels) = tensor.dims3().unwrap();
        Self {
            batch,
            channels,
            data: values(tensor),
        }
    }

    pub fn at(&self, blade: usize, b: usize, c: usize) -> f64 {
        self.data[(blade * self.batch + b) * self.channels + c]
    }

    pub fn add(&mut self, blade: usize, b: usize, c: usize, value: f64) {
        self.data[(blade * self.batch + b) * self.channels + c] += value;
    }

    pub fn map(&self, f: impl Fn(usize, usize, usize, f64) -> f64) -> Self {
        let mut out = self.clone();
        for (at, value) in out.data.iter_mut().enumerate() {
            let (row, c) = (at / self.channels, at % self.channels);
            *value = f(row / self.batch, row % self.batch, c, *value);
        }
        out
    }
}

pub fn values(tensor: &Tensor) -> Vec<f64> {
    let flat = tensor.flatten_all().unwrap().to_dtype(DType::F64).unwrap();
    flat.to_vec1().unwrap()
}

/// Numbers in (-1, 1) with a long period.
pub fn noise(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

pub fn random(shape: &[usize], seed: u64) -> Tensor {
    Tensor::from_vec(noise(shape.iter().product(), seed), shape, &Device::Cpu).unwrap()
}

/// Moves every parameter away from its start value, so that no term hides behind a zero or a one.
pub fn disturb(parameters: &Parameters, seed: u64) {
    for (i, (_, var)) in parameters.variables().iter().enumerate() {
        let shift = random(var.dims(), seed + i as u64)
            .to_dtype(var.dtype())
            .unwrap();
        var.set(&(var.as_tensor() + (shift * 0.3).unwrap()).unwrap())
            .unwrap();
    }
}

pub fn parameter(parameters: &Parameters, name: &str) -> Vec<f64> {
    let var = parameters.get(name);
    values(&var.unwrap_or_else(|| panic!("no parameter {name}")))
}

pub fn assert_close(got: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1e-3, |m: f64, x| m.max(x.abs()));
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let error = (got - expected).abs();
        assert!(
            error <= tolerance * largest,
            "{what}: element {i}: got {got}, expected {expected}"
        );
    }
    assert!(
        expected.iter().any(|x| x.abs() > 1e-6),
        "{what}: nothing but zeros proves nothing"
    );
}

/// An algebra: the squares of its vectors, and the blades that they span.
pub struct Oracle {
    metric: Vec<f64>,
    /// The blades as bit masks, in short-lex order.
    pub blades: Vec<u32>,
}

impl Oracle {
    pub fn new(p: usize, q: usize) -> Self {
        let metric = [vec![1.0; p], vec![-1.0; q]].concat();
        let n = p + q;
        let mut blades: Vec<u32> = (0..1 << n).collect();
        let indices = |mask: u32| (0..n).filter(|i| mask >> i & 1 == 1).collect::<Vec<_>>();
        blades.sort_by_key(|&mask| (mask.count_ones(), indices(mask)));
        Self { metric, blades }
    }

    pub fn algebra(&self) -> Algebra {
        let negative = self.metric.iter().filter(|m| **m < 0.0).count();
        let positive = self.metric.len() - negative;
        Algebra::new(Signature::new(positive, negative, 0).unwrap()).unwrap()
    }

    pub fn grades(&self) -> usize {
        self.metric.len() + 1
    }

    pub fn grade(&self, blade: usize) -> usize {
        self.blades[blade].count_ones() as usize
    }

    /// `e_i e_k = sign e_j`, as `(j, sign)`.
    pub fn product(&self, i: usize, k: usize) -> (usize, f64) {
        let (a, b) = (self.blades[i], self.blades[k]);
        let swaps: u32 = (1..32)
            .map(|t| (a.checked_shr(t).unwrap_or(0) & b).count_ones())
            .sum();
        let mut sign = if swaps.is_multiple_of(2) { 1.0 } else { -1.0 };
        for (bit, square) in self.metric.iter().enumerate() {
            if (a & b) >> bit & 1 == 1 {
                sign *= square;
            }
        }
        let j = self.blades.iter().position(|&c| c == a ^ b).unwrap();
        (j, sign)
    }

    /// The grade triples (left, output, right) that occur, in lexicographic order.
    pub fn paths(&self) -> Vec<(usize, usize, usize)> {
        let mut paths = Vec::new();
        for i in 0..self.blades.len() {
            for k in 0..self.blades.len() {
                paths.push((
                    self.grade(i),
                    self.grade(self.product(i, k).0),
                    self.grade(k),
                ));
            }
        }
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    /// The quadratic form `q` of the part of grade `g`, or of the whole multivector.
    pub fn q(&self, x: &Mv, b: usize, c: usize, g: Option<usize>) -> f64 {
        let mut sum = 0.0;
        for i in 0..self.blades.len() {
            let k = self.grade(i);
            if g.is_none_or(|g| g == k) {
                let reversed = if (k * k.saturating_sub(1) / 2).is_multiple_of(2) {
                    1.0
                } else {
                    -1.0
                };
                sum += reversed * self.product(i, i).1 * x.at(i, b, c).powi(2);
            }
        }
        sum
    }

    pub fn smooth(q: f64) -> f64 {
        (q * q + 1e-16).powf(0.25)
    }

    /// A linear map. `weight` is `[out, in, G]`, or `[out, in]` if it has only `out * in` elements.
    pub fn linear(&self, x: &Mv, weight: &[f64], bias: Option<&[f64]>, out: usize) -> Mv {
        let grades = if weight.len() == out * x.channels {
            1
        } else {
            self.grades()
        };
        let mut y = Mv::zeros(self.blades.len(), x.batch, out);
        for i in 0..self.blades.len() {
            let g = if grades == 1 { 0 } else { self.grade(i) };
            for b in 0..x.batch {
                for o in 0..out {
                    for m in 0..x.channels {
                        let w = weight[(o * x.channels + m) * grades + g];
                        y.add(i, b, o, w * x.at(i, b, m));
                    }
                    if let (Some(bias), 0) = (bias, i) {
                        y.add(0, b, o, bias[o]);
                    }
                }
            }
        }
        y
    }

    pub fn grade_norm(&self, x: &Mv, a: &[f64]) -> Mv {
        x.map(|i, b, c, value| {
            let g = self.grade(i);
            let s = 1.0 / (1.0 + (-a[c * self.grades() + g]).exp());
            value / (s * (Self::smooth(self.q(x, b, c, Some(g))) - 1.0) + 1.0 + 1e-6)
        })
    }

    /// The weighted product with `w(path, in, out)`. Without `out` it works within each channel.
    pub fn weighted(
        &self,
        x: &Mv,
        r: &Mv,
        out: Option<usize>,
        w: impl Fn(usize, usize, usize) -> f64,
    ) -> Mv {
        let paths = self.paths();
        let mut z = Mv::zeros(self.blades.len(), x.batch, out.unwrap_or(x.channels));
        for i in 0..self.blades.len() {
            for k in 0..self.blades.len() {
                let (j, sign) = self.product(i, k);
                let triple = (self.grade(i), self.grade(j), self.grade(k));
                let path = paths.iter().position(|&p| p == triple).unwrap();
                for b in 0..x.batch {
                    for n in 0..x.channels {
                        let term = sign * x.at(i, b, n) * r.at(k, b, n);
                        match out {
                            None => z.add(j, b, n, w(path, n, n) * term),
                            Some(out) => {
                                for m in 0..out {
                                    z.add(j, b, m, w(path, n, m) * term);
                                }
                            }
                        }
                    }
                }
            }
        }
        z
    }

    pub fn mv_silu(&self, x: &Mv, a: &[f64], bias: &[f64], norm: bool) -> Mv {
        x.map(|i, b, c, value| {
            let g = self.grade(i);
            let u = match (g, norm) {
                (0, _) => x.at(0, b, c),
                (_, false) => self.q(x, b, c, Some(g)),
                (_, true) => Self::smooth(self.q(x, b, c, Some(g))),
            };
            let at = c * self.grades() + g;
            value / (1.0 + (-(a[at] * u + bias[at])).exp())
        })
    }

    pub fn mv_layer_norm(&self, x: &Mv, a: &[f64]) -> Mv {
        x.map(|_, b, c, value| {
            let norms = (0..x.channels).map(|c| Self::smooth(self.q(x, b, c, None)));
            let mean = norms.sum::<f64>() / x.channels as f64;
            a[c] * value / (mean + 1e-6)
        })
    }

    /// Divides each grade by the mean magnitude of its form. A form of both signs is smoothed by epsilon.
    pub fn grade_invariant(&self, x: &Mv) -> Mv {
        x.map(|i, b, _, value| {
            let grade = self.grade(i);
            let own = || (0..self.blades.len()).filter(|&k| self.grade(k) == grade);
            let squares: Vec<f64> = own().map(|k| self.product(k, k).1).collect();
            let both = squares.contains(&1.0) && squares.contains(&-1.0);
            let measure = |c| match (self.q(x, b, c, Some(grade)), both) {
                (q, true) => q.hypot(1e-6),
                (q, false) => q.abs() + 1e-6,
            };
            let sum: f64 = (0..x.channels).map(measure).sum();
            value / (sum / x.channels as f64).sqrt()
        })
    }

    pub fn grade_rms(&self, x: &Mv) -> Mv {
        x.map(|i, b, _, value| {
            let mut sum = 0.0;
            for k in (0..self.blades.len()).filter(|&k| self.grade(k) == self.grade(i)) {
                sum += (0..x.channels).map(|c| x.at(k, b, c).powi(2)).sum::<f64>();
            }
            value / (sum / x.channels as f64 + 1e-6).sqrt()
        })
    }
}

//! The formulas of the operators in f64, one row at a time, from the Cayley table alone.

use cayley::{Algebra, Path, ProductKind, Term};

use super::cases::Subject;

/// The formula of an operator, with the tables of an algebra.
pub(super) struct Formula<'a> {
    subject: Subject,
    algebra: &'a Algebra,
    /// The terms of the geometric product, with the numbers of their paths.
    terms: Vec<(Term, usize)>,
    paths: Vec<Path>,
}

impl<'a> Formula<'a> {
    /// The formula of a case's operator, with the options that `operator` uses.
    pub(super) fn new(subject: Subject, algebra: &'a Algebra) -> Self {
        let paths = algebra.paths();
        let numbered = |term: Term| {
            let path = algebra.path_of(term);
            (
                term,
                paths.iter().position(|p| *p == path).unwrap_or(usize::MAX),
            )
        };
        let terms = algebra.product(ProductKind::Geometric);
        Self {
            subject,
            algebra,
            terms: terms.into_iter().map(numbered).collect(),
            paths,
        }
    }

    /// The output `[blades, to]` of one batch element. Multivectors are `[blades, from]`; parameters have the layout of the operator.
    pub(super) fn row(&self, inputs: &[Vec<f64>], from: usize, to: usize) -> Vec<f64> {
        let x = &inputs[0];
        match self.subject {
            Subject::SgpNorm => {
                let (x, y) = (self.gelu(x, from), self.gelu(&inputs[1], from));
                self.rms(&self.weighted(&x, &y, &inputs[2], from), from)
            }
            Subject::FcgpNorm => {
                let (x, y) = (self.gelu(x, from), self.gelu(&inputs[1], from));
                self.rms(&self.connected(&x, &y, &inputs[2], from, to), to)
            }
            Subject::Linear => self.linear(x, &inputs[1], Some(&inputs[2]), from, to),
            Subject::Steerable => {
                let [_, r, w, a, l] = inputs else {
                    return Vec::new();
                };
                self.steerable(x, r, w, a, l, from)
            }
            Subject::GradeNorm => self.grade_norm(x, &inputs[1], from),
            Subject::MvLayerNorm => self.layer_norm(x, &inputs[1], from),
            Subject::MvSilu | Subject::HullsStep => self.silu(x, &inputs[1], &inputs[2], from),
        }
    }

    /// `weight[m, n, grade] x[n] + bias[m]`, where the bias is added to the scalar.
    pub(super) fn linear(
        &self,
        x: &[f64],
        weight: &[f64],
        bias: Option<&[f64]>,
        from: usize,
        to: usize,
    ) -> Vec<f64> {
        let grades = self.algebra.grade_count();
        let mut output = vec![0.0; self.algebra.blade_count() * to];
        for blade in 0..self.algebra.blade_count() {
            let grade = self.algebra.grade_of(blade);
            for m in 0..to {
                let products = (0..from)
                    .map(|n| weight[(m * from + n) * grades + grade] * x[blade * from + n]);
                output[blade * to + m] = products.sum();
            }
        }
        if let Some(bias) = bias {
            output.iter_mut().zip(bias).for_each(|(o, bias)| *o += bias);
        }
        output
    }

    /// `(l + weighted product of x and the normalised r) / sqrt 2`.
    pub(super) fn steerable(
        &self,
        x: &[f64],
        r: &[f64],
        w: &[f64],
        a: &[f64],
        l: &[f64],
        channels: usize,
    ) -> Vec<f64> {
        let z = self.weighted(x, &self.grade_norm(r, a, channels), w, channels);
        z.iter()
            .zip(l)
            .map(|(z, l)| (l + z) * std::f64::consts::FRAC_1_SQRT_2)
            .collect()
    }

    fn gelu(&self, x: &[f64], channels: usize) -> Vec<f64> {
        let gate = |scalar: f64| 0.5 * (1.0 + libm::erf(scalar * std::f64::consts::FRAC_1_SQRT_2));
        x.iter()
            .enumerate()
            .map(|(i, value)| gate(x[i % channels]) * value)
            .collect()
    }

    fn weighted(&self, x: &[f64], y: &[f64], w: &[f64], channels: usize) -> Vec<f64> {
        let mut output = vec![0.0; x.len()];
        for (term, path) in &self.terms {
            for c in 0..channels {
                let product = x[term.left * channels + c] * y[term.right * channels + c];
                let weight = w[c * self.paths.len() + path];
                output[term.output * channels + c] += f64::from(term.sign) * weight * product;
            }
        }
        output
    }

    fn connected(&self, x: &[f64], y: &[f64], w: &[f64], from: usize, to: usize) -> Vec<f64> {
        let mut output = vec![0.0; self.algebra.blade_count() * to];
        for (term, path) in &self.terms {
            for n in 0..from {
                let product = x[term.left * from + n] * y[term.right * from + n];
                for m in 0..to {
                    let weight = w[(path * from + n) * to + m];
                    output[term.output * to + m] += f64::from(term.sign) * weight * product;
                }
            }
        }
        output
    }

    fn rms(&self, x: &[f64], channels: usize) -> Vec<f64> {
        let mut output = x.to_vec();
        for grade in 0..self.algebra.grade_count() {
            let range = self.algebra.grade_range(grade);
            let part = &mut output[range.start * channels..range.end * channels];
            let mean = part.iter().map(|v| v * v).sum::<f64>() / channels as f64;
            part.iter_mut().for_each(|v| *v /= (mean + 1e-6).sqrt());
        }
        output
    }

    /// The quadratic form of one grade of one channel.
    fn form(&self, x: &[f64], grade: usize, channel: usize, channels: usize) -> f64 {
        let blades = self.algebra.grade_range(grade);
        let squares = blades.map(|blade| {
            let sign = f64::from(self.algebra.square_of_blade_norm(blade));
            sign * x[blade * channels + channel].powi(2)
        });
        squares.sum()
    }

    fn by_grade(
        &self,
        x: &[f64],
        channels: usize,
        factor: impl Fn(usize, usize) -> f64,
    ) -> Vec<f64> {
        let value = |(i, value): (usize, &f64)| {
            factor(self.algebra.grade_of(i / channels), i % channels) * value
        };
        x.iter().enumerate().map(value).collect()
    }

    fn grade_norm(&self, x: &[f64], a: &[f64], channels: usize) -> Vec<f64> {
        let grades = self.algebra.grade_count();
        self.by_grade(x, channels, |grade, c| {
            let norm = smooth_norm(self.form(x, grade, c, channels));
            1.0 / (sigmoid(a[c * grades + grade]) * (norm - 1.0) + 1.0 + 1e-6)
        })
    }

    fn silu(&self, x: &[f64], a: &[f64], b: &[f64], channels: usize) -> Vec<f64> {
        let grades = self.algebra.grade_count();
        self.by_grade(x, channels, |grade, c| {
            let invariant = match grade {
                0 => x[c],
                _ => self.form(x, grade, c, channels),
            };
            sigmoid(a[c * grades + grade] * invariant + b[c * grades + grade])
        })
    }

    fn layer_norm(&self, x: &[f64], a: &[f64], channels: usize) -> Vec<f64> {
        let norm = |c: usize| {
            let grades = 0..self.algebra.grade_count();
            smooth_norm(grades.map(|grade| self.form(x, grade, c, channels)).sum())
        };
        let mean = (0..channels).map(norm).sum::<f64>() / channels as f64;
        self.by_grade(x, channels, |_, c| a[c] / (mean + 1e-6))
    }
}

/// `1 / (1 + exp(-x))`.
pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn smooth_norm(form: f64) -> f64 {
    (form * form + 1e-16).sqrt().sqrt()
}

//! Gates, norms and nonlinearities.

use super::Formula;

/// The `eps` that norms have by default.
const EPS: f64 = 1e-6;

impl Formula<'_> {
    /// Every blade times `(1 + erf(x_0 / sqrt 2)) / 2`.
    pub(super) fn gelu(&self, x: &[f64], channels: usize) -> Vec<f64> {
        let gate = |scalar: f64| 0.5 * (1.0 + libm::erf(scalar * std::f64::consts::FRAC_1_SQRT_2));
        x.iter()
            .enumerate()
            .map(|(i, value)| gate(x[i % channels]) * value)
            .collect()
    }

    /// The invariant norm of every grade over channels.
    pub(super) fn rms(&self, x: &[f64], channels: usize) -> Vec<f64> {
        let mut output = x.to_vec();
        for grade in 0..self.algebra.grade_count() {
            let range = self.algebra.grade_range(grade);
            let form = self.algebra.invariant_form(grade);
            let part = &mut output[range.start * channels..range.end * channels];
            let magnitude = |channel: usize| {
                let terms = form.signs().iter().enumerate();
                let form_of_channel: f64 = terms
                    .map(|(blade, &sign)| {
                        f64::from(sign) * part[blade * channels + channel].powi(2)
                    })
                    .sum();
                match form.is_definite() {
                    true => form_of_channel,
                    false => form_of_channel.hypot(EPS),
                }
            };
            let mean = (0..channels).map(magnitude).sum::<f64>() / channels as f64;
            let divisor = match (form.is_zero(), form.is_definite()) {
                (true, _) => 1.0,
                (_, true) => (mean + EPS).sqrt(),
                (_, false) => mean.sqrt(),
            };
            part.iter_mut().for_each(|v| *v /= divisor);
        }
        output
    }

    pub(super) fn grade_norm(&self, x: &[f64], a: &[f64], channels: usize) -> Vec<f64> {
        let grades = self.algebra.grade_count();
        self.by_grade(x, channels, |grade, c| {
            let norm = smooth_norm(self.form(x, grade, c, channels));
            1.0 / (sigmoid(a[c * grades + grade]) * (norm - 1.0) + 1.0 + 1e-6)
        })
    }

    pub(super) fn silu(&self, x: &[f64], a: &[f64], b: &[f64], channels: usize) -> Vec<f64> {
        let grades = self.algebra.grade_count();
        self.by_grade(x, channels, |grade, c| {
            let invariant = match grade {
                0 => x[c],
                _ => self.form(x, grade, c, channels),
            };
            sigmoid(a[c * grades + grade] * invariant + b[c * grades + grade])
        })
    }

    pub(super) fn layer_norm(&self, x: &[f64], a: &[f64], channels: usize) -> Vec<f64> {
        let mean = self.norm(x, channels).iter().sum::<f64>() / channels as f64;
        self.by_grade(x, channels, |_, c| a[c] / (mean + 1e-6))
    }

    /// The smooth norm of every channel.
    pub(super) fn norm(&self, x: &[f64], channels: usize) -> Vec<f64> {
        let norm = |c: usize| {
            let grades = 0..self.algebra.grade_count();
            smooth_norm(grades.map(|grade| self.form(x, grade, c, channels)).sum())
        };
        (0..channels).map(norm).collect()
    }

    /// The smooth norm of every grade of every channel.
    pub(super) fn grade_norms(&self, x: &[f64], channels: usize) -> Vec<f64> {
        let grades = 0..self.algebra.grade_count();
        let of_grade = |grade: usize| {
            (0..channels).map(move |c| smooth_norm(self.form(x, grade, c, channels)))
        };
        grades.flat_map(of_grade).collect()
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
}

/// `1 / (1 + exp(-x))`.
pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn smooth_norm(form: f64) -> f64 {
    (form * form + 1e-16).sqrt().sqrt()
}

//! Products, weighted or not, and linear maps.

use super::Formula;

impl Formula<'_> {
    /// `weight[m, n, grade] x[n] + bias[m]`, where the bias is added to the scalar.
    pub fn linear(
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
    pub fn steerable(
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

    pub(super) fn weighted(&self, x: &[f64], y: &[f64], w: &[f64], channels: usize) -> Vec<f64> {
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

    pub(super) fn connected(
        &self,
        x: &[f64],
        y: &[f64],
        w: &[f64],
        from: usize,
        to: usize,
    ) -> Vec<f64> {
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

    pub(super) fn product(&self, x: &[f64], y: &[f64], channels: usize) -> Vec<f64> {
        let mut output = vec![0.0; x.len()];
        for (term, _) in &self.terms {
            for c in 0..channels {
                let product = x[term.left * channels + c] * y[term.right * channels + c];
                output[term.output * channels + c] += f64::from(term.sign) * product;
            }
        }
        output
    }

    /// Every blade times a sign.
    pub(super) fn signed(
        &self,
        x: &[f64],
        channels: usize,
        sign: impl Fn(usize) -> i8,
    ) -> Vec<f64> {
        self.moved(x, channels, |blade| (blade, sign(blade)))
    }

    /// Every blade moved to another, times a sign.
    pub(super) fn moved(
        &self,
        x: &[f64],
        channels: usize,
        to: impl Fn(usize) -> (usize, i8),
    ) -> Vec<f64> {
        let mut output = vec![0.0; x.len()];
        for (blade, row) in x.chunks_exact(channels).enumerate() {
            let (place, sign) = to(blade);
            let output = &mut output[place * channels..(place + 1) * channels];
            for (o, x) in output.iter_mut().zip(row) {
                *o = f64::from(sign) * x;
            }
        }
        output
    }
}

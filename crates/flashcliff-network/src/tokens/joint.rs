//! The norm of vectors and scalars together: of heads of L-GATr-slim.
//!
//! Source: arXiv 2512.17011.

use super::number;
use crate::Number;

/// The number that is added to the mean.
pub(crate) const EPS: f64 = 0.01;

/// `x r` for the elements of each row and group, `r = 1 / sqrt(m + 0.01)`, where `m` is the mean over all channels of
/// the group of the magnitudes of squared norms of multivectors, all blades together, and of squared scalars.
///
/// Multivectors are `[blades, rows, channels, groups]` and scalars `[rows, scalars, groups]`.
pub(crate) struct Joint<'n> {
    /// The squared norm of each blade.
    pub(crate) norms: &'n [i8],
    pub(crate) rows: usize,
    pub(crate) channels: usize,
    pub(crate) scalars: usize,
    pub(crate) groups: usize,
}

/// The numbers of a row: for each group its factor `r`, and for each element of a vector the slope of its magnitude.
struct Row<T> {
    scales: Vec<T>,
    signs: Vec<T>,
}

impl Joint<'_> {
    fn row<T: Number>(&self) -> Row<T> {
        Row {
            scales: vec![T::default(); self.groups],
            signs: vec![T::default(); self.channels * self.groups],
        }
    }

    /// The first element of a blade of a row.
    fn first(&self, blade: usize, row: usize) -> usize {
        (blade * self.rows + row) * self.channels * self.groups
    }

    /// The scalars of a row.
    fn of_row<'x, T>(&self, s: &'x [T], row: usize) -> &'x [T] {
        let width = self.scalars * self.groups;
        &s[row * width..][..width]
    }

    /// Computes the numbers of a row.
    fn measure<T: Number>(&self, row: usize, [x, s]: [&[T]; 2], of: &mut Row<T>) {
        of.scales.fill(T::default());
        of.signs.fill(T::default());
        for (blade, &norm) in self.norms.iter().enumerate() {
            let norm: T = number(f64::from(norm));
            let values = &x[self.first(blade, row)..][..of.signs.len()];
            for (sum, &value) in of.signs.iter_mut().zip(values) {
                *sum += norm * value * value;
            }
        }
        let (zero, one): (T, T) = (T::default(), number(1.0));
        for channel in of.signs.chunks_exact_mut(self.groups.max(1)) {
            for (sum, square) in of.scales.iter_mut().zip(channel) {
                let sign = match *square {
                    square if square > zero => one,
                    square if square < zero => zero - one,
                    _ => zero,
                };
                *sum += *square * sign;
                *square = sign;
            }
        }
        for channel in self.of_row(s, row).chunks_exact(self.groups.max(1)) {
            for (sum, &scalar) in of.scales.iter_mut().zip(channel) {
                *sum += scalar * scalar;
            }
        }
        let count: T = number((self.channels + self.scalars) as f64);
        for scale in &mut of.scales {
            *scale = one / (*scale / count + number(EPS)).root();
        }
    }

    /// Writes the norm of multivectors and scalars.
    pub(crate) fn forward<T: Number>(&self, [x, s]: [&[T]; 2], to: &mut [T], to_s: &mut [T]) {
        let mut of = self.row();
        for row in 0..self.rows {
            self.measure(row, [x, s], &mut of);
            let scale = |first: usize, len: usize, x: &[T], to: &mut [T]| {
                let step = self.groups.max(1);
                let channels = x[first..][..len].chunks_exact(step);
                for (x, to) in channels.zip(to[first..][..len].chunks_exact_mut(step)) {
                    for ((to, &x), &scale) in to.iter_mut().zip(x).zip(&of.scales) {
                        *to = x * scale;
                    }
                }
            };
            for blade in 0..self.norms.len() {
                scale(self.first(blade, row), self.channels * self.groups, x, to);
            }
            let width = self.scalars * self.groups;
            scale(row * width, width, s, to_s);
        }
    }

    /// Writes the gradients of multivectors and scalars from the gradients of their norms.
    pub(crate) fn backward<T: Number>(
        &self,
        [x, s]: [&[T]; 2],
        [g, g_s]: [&[T]; 2],
        to: &mut [T],
        to_s: &mut [T],
    ) {
        let mut of = self.row();
        let mut shares = vec![T::default(); self.groups];
        let step = self.groups.max(1);
        let (width, of_scalars) = (self.channels * self.groups, self.scalars * self.groups);
        let count: T = number((self.channels + self.scalars) as f64);
        for row in 0..self.rows {
            self.measure(row, [x, s], &mut of);
            shares.fill(T::default());
            let mut project = |x: &[T], g: &[T]| {
                for (x, g) in x.chunks_exact(step).zip(g.chunks_exact(step)) {
                    for ((share, &x), &g) in shares.iter_mut().zip(x).zip(g) {
                        *share += x * g;
                    }
                }
            };
            for blade in 0..self.norms.len() {
                let first = self.first(blade, row);
                project(&x[first..][..width], &g[first..][..width]);
            }
            project(self.of_row(s, row), self.of_row(g_s, row));
            for (share, &scale) in shares.iter_mut().zip(&of.scales) {
                *share = T::default() - *share * scale * scale * scale / count;
            }
            for (blade, &norm) in self.norms.iter().enumerate() {
                let (norm, first): (T, usize) = (number(f64::from(norm)), self.first(blade, row));
                let given = x[first..][..width].chunks_exact(step);
                let given = given.zip(g[first..][..width].chunks_exact(step));
                let given = given.zip(of.signs.chunks_exact(step));
                for (((x, g), signs), to) in given.zip(to[first..][..width].chunks_exact_mut(step))
                {
                    for (at, to) in to.iter_mut().enumerate() {
                        *to = g[at] * of.scales[at] + shares[at] * norm * signs[at] * x[at];
                    }
                }
            }
            let first = row * of_scalars;
            let given = self.of_row(s, row).chunks_exact(step);
            let given = given.zip(self.of_row(g_s, row).chunks_exact(step));
            for ((s, g), to) in given.zip(to_s[first..][..of_scalars].chunks_exact_mut(step)) {
                for (at, to) in to.iter_mut().enumerate() {
                    *to = g[at] * of.scales[at] + shares[at] * s[at];
                }
            }
        }
    }
}

//! Geometric products and joins of linear maps.

use flashcliff::{Operator, ProductKind, ops};

use super::chunk::Chunk;
use super::geometry::Geometry;
use super::stage::Gradients;
use super::{Channels, number};
use crate::Error;
use crate::op::Scalar;
use crate::op::function::Array;
use crate::op::operator::{run_backward, run_forward};
use crate::op::scratch::Buffer;

/// From channels `(a, b, c, d)` of multivectors, as many of each: the geometric products `a b`, and the joins of `c` and `d`. Without joins the
/// channels are `(a, b)`.
///
/// The join is `reference dual(dual(c) ^ dual(d))`, where `dual` is the right complement: the regressive product with the sign
/// `(-1)^(k (n - k))` in grade `k`, times the reference of the token. Scalars go through. Geometric products may lose their bivectors.
#[derive(Debug)]
pub(crate) struct Products {
    pub(super) blades: usize,
    pub(super) geometric: Operator,
    /// The regressive product, if there are joins.
    pub(super) regressive: Option<Operator>,
    /// The blades of geometric products that are zero in the output.
    pub(super) dropped: Vec<usize>,
    /// The sign of each blade of a join.
    pub(super) signs: Vec<f64>,
    /// The channels of a factor.
    pub(super) each: usize,
    scalars: usize,
}

impl Products {
    pub(crate) fn new(geometry: Geometry, each: usize, scalars: usize) -> Result<Self, Error> {
        let algebra = geometry.algebra;
        let cayley = algebra.cayley();
        let sign = |blade| {
            let grade = cayley.grade_of(blade);
            if (grade * (cayley.dim() - grade)).is_multiple_of(2) {
                1.0
            } else {
                -1.0
            }
        };
        let product = |kind| ops::product(algebra, kind, None, None);
        let regressive = geometry.join.then(|| product(ProductKind::Regressive));
        let is_dropped = |&blade: &usize| !geometry.bivectors && cayley.grade_of(blade) == 2;
        Ok(Self {
            blades: geometry.blades(),
            geometric: product(ProductKind::Geometric)?,
            regressive: regressive.transpose()?,
            dropped: (0..geometry.blades()).filter(is_dropped).collect(),
            signs: (0..geometry.blades()).map(sign).collect(),
            each,
            scalars,
        })
    }

    /// The products of factors, in order.
    pub(super) fn operators(&self) -> impl Iterator<Item = &Operator> {
        std::iter::once(&self.geometric).chain(&self.regressive)
    }

    /// The number of products of factors.
    fn count(&self) -> usize {
        1 + usize::from(self.regressive.is_some())
    }

    /// The number of factors.
    pub(super) fn factor_count(&self) -> usize {
        2 * self.count()
    }

    pub(super) fn input(&self) -> Channels {
        Channels::new(self.factor_count() * self.each, self.scalars)
    }

    pub(super) fn output(&self) -> Channels {
        Channels::new(self.count() * self.each, self.scalars)
    }

    pub(super) fn forward<T: Scalar>(
        &self,
        chunk: &Chunk<'_, T>,
        x: &[T],
        y: &mut [T],
    ) -> Result<(), Error> {
        let (mv, s) = chunk.split(self.input(), x);
        let (to, to_s) = chunk.split_mut(self.output(), y);
        to_s.copy_from_slice(s);
        let rows = chunk.rows();
        let shape = [self.blades, rows, self.each];
        let factors = self.factors(rows, mv);
        let mut made = Buffer::take(self.blades * rows * self.each);
        for (index, operator) in self.operators().enumerate() {
            let array = |at: usize| Array {
                data: &factors[at],
                shape: &shape,
            };
            run_forward(
                operator,
                &[array(2 * index), array(2 * index + 1)],
                &mut made,
            )?;
            match index {
                0 => self.drop_blades(rows, &mut made),
                _ => self.scale_joins(chunk, &mut made),
            }
            put(self.each, &made, to, (index, self.count()));
        }
        Ok(())
    }

    pub(super) fn backward<T: Scalar>(
        &self,
        chunk: &Chunk<'_, T>,
        x: &[T],
        g: &[T],
        to: Gradients<'_, '_, T>,
    ) -> Result<(), Error> {
        let (mv, _) = chunk.split(self.input(), x);
        let (g, g_s) = chunk.split(self.output(), g);
        let (to_mv, to_s) = chunk.split_mut(self.input(), to.input);
        to_s.copy_from_slice(g_s);
        let rows = chunk.rows();
        let len = self.blades * rows * self.each;
        let shape = [self.blades, rows, self.each];
        let factors = self.factors(rows, mv);
        let (mut made, mut gradient) = (Buffer::take(len), Buffer::take(len));
        let (mut left, mut right) = (Buffer::take(len), Buffer::take(len));
        for (index, operator) in self.operators().enumerate() {
            fn array<'a, T>(data: &'a [T], shape: &'a [usize]) -> Array<'a, T> {
                Array { data, shape }
            }
            let inputs = [
                array(&factors[2 * index], &shape),
                array(&factors[2 * index + 1], &shape),
            ];
            get(self.each, g, &mut gradient, (index, self.count()));
            if index == 0 {
                self.drop_blades(rows, &mut gradient);
            } else {
                if !to.reference.is_empty() {
                    run_forward(operator, &inputs, &mut made)?;
                    self.add_reference_gradient(rows, &made, &gradient, to.reference);
                }
                self.scale_joins(chunk, &mut gradient);
            }
            let slots = vec![Some(&mut *left), Some(&mut *right)];
            // The gradient of a product does not read its output.
            let output = array(&factors[2 * index], &shape);
            run_backward(
                operator,
                &inputs,
                output,
                &[],
                array(&gradient, &shape),
                slots,
            )?;
            put(self.each, &left, to_mv, (2 * index, self.factor_count()));
            put(
                self.each,
                &right,
                to_mv,
                (2 * index + 1, self.factor_count()),
            );
        }
        Ok(())
    }

    /// The factors, `[blades, rows, each]`.
    fn factors<T: Scalar>(&self, rows: usize, mv: &[T]) -> Vec<Buffer<T>> {
        let take = |index| {
            let mut factor = Buffer::take(self.blades * rows * self.each);
            get(self.each, mv, &mut factor, (index, self.factor_count()));
            factor
        };
        (0..self.factor_count()).map(take).collect()
    }

    /// The factor of a blade of products: 0 if it is dropped, else 1.
    pub(super) fn kept(&self, blade: usize) -> f64 {
        f64::from(u8::from(!self.dropped.contains(&blade)))
    }

    /// Clears the blades of products, or of their gradients, that are dropped.
    fn drop_blades<T: Scalar>(&self, rows: usize, products: &mut [T]) {
        let len = rows * self.each;
        for blade in &self.dropped {
            products[blade * len..][..len].fill(T::zero());
        }
    }

    /// Multiplies each token by its reference and each blade by its sign.
    fn scale_joins<T: Scalar>(&self, chunk: &Chunk<'_, T>, joins: &mut [T]) {
        let rows = joins.chunks_exact_mut(self.each.max(1));
        let blades = self.signs.iter().flat_map(|&sign| {
            let sign = number::<T>(sign);
            chunk
                .reference
                .iter()
                .map(move |&reference| sign * reference)
        });
        for (row, factor) in rows.zip(blades) {
            row.iter_mut().for_each(|value| *value *= factor);
        }
    }

    /// Adds the gradient of each token's reference: the sum of the joins without it times their gradient.
    fn add_reference_gradient<T: Scalar>(
        &self,
        rows: usize,
        joins: &[T],
        gradient: &[T],
        to: &mut [T],
    ) {
        let each = self.each.max(1);
        let pairs = joins.chunks_exact(each).zip(gradient.chunks_exact(each));
        for (at, (join, gradient)) in pairs.enumerate() {
            let mut sum = T::zero();
            for (&join, &gradient) in join.iter().zip(gradient) {
                sum += join * gradient;
            }
            to[at % rows] += sum * number::<T>(self.signs[at / rows]);
        }
    }
}

/// Copies one of `count` groups of channels out of rows.
fn get<T: Copy>(each: usize, rows: &[T], group: &mut [T], (index, count): (usize, usize)) {
    let each = each.max(1);
    let rows = rows.chunks_exact(count * each);
    for (row, to) in rows.zip(group.chunks_exact_mut(each)) {
        to.copy_from_slice(&row[index * each..][..each]);
    }
}

/// Copies one of `count` groups of channels into rows.
fn put<T: Copy>(each: usize, group: &[T], rows: &mut [T], (index, count): (usize, usize)) {
    let each = each.max(1);
    let rows = rows.chunks_exact_mut(count * each);
    for (row, from) in rows.zip(group.chunks_exact(each)) {
        row[index * each..][..each].copy_from_slice(from);
    }
}

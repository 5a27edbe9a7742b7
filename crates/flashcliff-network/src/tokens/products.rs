//! Geometric products and joins of linear maps.

use std::sync::Arc;

use flashcliff::{Operator, ProductKind, ops};

use super::chunk::Layout;
use super::step::{Given, Gradients};
use super::{Channels, Geometry, number, operators};
use crate::scratch::Buffer;
use crate::{Error, Number};

/// From channels `(a, b, c, d)` of multivectors, as many of each: the geometric products `a b`, and the joins of `c` and `d`. Without joins the
/// channels are `(a, b)`.
///
/// The join is `reference dual(dual(c) ^ dual(d))`, where `dual` is the right complement: the regressive product with the sign
/// `(-1)^(k (n - k))` in grade `k`, times the reference of the token. Scalars go through. Geometric products may lose their bivectors.
#[derive(Clone, Debug)]
pub struct Products {
    pub(crate) geometry: Geometry,
    pub(crate) blades: usize,
    pub(crate) geometric: Arc<Operator>,
    /// The regressive product, if there are joins.
    pub(crate) regressive: Option<Arc<Operator>>,
    /// The blades of geometric products that are zero in the output.
    pub(crate) dropped: Vec<usize>,
    /// The sign of each blade of a join.
    pub(crate) signs: Vec<f64>,
    /// The channels of a factor.
    pub(crate) each: usize,
    pub(crate) scalars: usize,
}

impl Products {
    /// Products of factors of so many channels, beside so many scalars.
    ///
    /// # Errors
    /// [`Error::Geometry`] for [vectors](Geometry::slim), and the errors of the operators.
    pub fn new(geometry: Geometry, each: usize, scalars: usize) -> Result<Self, Error> {
        geometry.check_multivectors("products")?;
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
        let product = |kind| ops::product(algebra, kind, None, None).map(Arc::new);
        let regressive = geometry.join.then(|| product(ProductKind::Regressive));
        let is_dropped = |&blade: &usize| !geometry.bivectors && cayley.grade_of(blade) == 2;
        Ok(Self {
            geometry,
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
    pub(crate) fn operators(&self) -> impl Iterator<Item = &Operator> {
        let all = std::iter::once(&self.geometric).chain(&self.regressive);
        all.map(|operator| &**operator)
    }

    /// The number of products of factors.
    fn count(&self) -> usize {
        1 + usize::from(self.regressive.is_some())
    }

    /// The number of factors.
    pub(crate) fn factor_count(&self) -> usize {
        2 * self.count()
    }

    pub(crate) fn input(&self) -> Channels {
        Channels::new(self.factor_count() * self.each, self.scalars)
    }

    pub(crate) fn output(&self) -> Channels {
        Channels::new(self.count() * self.each, self.scalars)
    }

    fn layout(&self, rows: usize, channels: Channels) -> Layout {
        Layout {
            blades: self.blades,
            rows,
            channels,
        }
    }

    pub(crate) fn forward<T: Number>(
        &self,
        given: &Given<'_, T>,
        y: &mut [T],
    ) -> Result<(), Error> {
        let rows = given.chunk.rows();
        let (mv, s) = self.layout(rows, self.input()).split(given.x);
        let (to, to_s) = self.layout(rows, self.output()).split_mut(y);
        to_s.copy_from_slice(s);
        let shape = [self.blades, rows, self.each];
        let factors = self.factors(rows, mv);
        let mut made = Buffer::take(self.blades * rows * self.each);
        for (index, operator) in self.operators().enumerate() {
            let pair = [&*factors[2 * index], &*factors[2 * index + 1]];
            operators::forward(operator, &pair, &shape, &mut made)?;
            match index {
                0 => self.drop_blades(rows, &mut made),
                _ => self.scale_joins(given.other, &mut made),
            }
            put(self.each, &made, to, (index, self.count()));
        }
        Ok(())
    }

    pub(crate) fn backward<T: Number>(
        &self,
        given: &Given<'_, T>,
        g: &[T],
        to: Gradients<'_, T>,
    ) -> Result<(), Error> {
        let rows = given.chunk.rows();
        let (mv, _) = self.layout(rows, self.input()).split(given.x);
        let (g, g_s) = self.layout(rows, self.output()).split(g);
        let factors = self.factors(rows, mv);
        let (count, of_factors) = (self.count(), self.factor_count());
        let len = self.blades * rows * self.each;
        let shape = [self.blades, rows, self.each];
        let mut of_input = to.x.map(|to| self.layout(rows, self.input()).split_mut(to));
        if let Some((_, to_s)) = &mut of_input {
            to_s.copy_from_slice(g_s);
        }
        let (mut of_reference, mut gradient) = (to.other, Buffer::take(len));
        let (mut left, mut right) = (Buffer::take(len), Buffer::take(len));
        for (index, operator) in self.operators().enumerate() {
            let pair = [&*factors[2 * index], &*factors[2 * index + 1]];
            get(self.each, g, &mut gradient, (index, count));
            if index == 0 {
                self.drop_blades(rows, &mut gradient);
            } else {
                if let Some(to) = &mut of_reference {
                    operators::forward(operator, &pair, &shape, &mut left)?;
                    self.reference_gradient(rows, &left, &gradient, to);
                }
                self.scale_joins(given.other, &mut gradient);
            }
            if let Some((to, _)) = &mut of_input {
                let grads = &mut [&mut *left, &mut *right];
                operators::backward(operator, &pair, &shape, &gradient, grads)?;
                put(self.each, &left, to, (2 * index, of_factors));
                put(self.each, &right, to, (2 * index + 1, of_factors));
            }
        }
        Ok(())
    }

    /// The operations of the passes over some rows, forwards and backwards.
    pub(crate) fn flops(&self, rows: usize) -> [usize; 2] {
        let dims = flashcliff::Dims {
            batch: rows,
            in_channels: self.each,
            out_channels: self.each,
            scalar_channels: 0,
        };
        let costs = self.operators().map(|operator| operator.cost(&dims));
        costs.fold([0; 2], |[forward, backward], cost| {
            [forward + cost.forward, backward + cost.backward]
        })
    }

    /// The factors, `[blades, rows, each]`.
    fn factors<T: Number>(&self, rows: usize, mv: &[T]) -> Vec<Buffer<T>> {
        let take = |index| {
            let mut factor = Buffer::take(self.blades * rows * self.each);
            get(self.each, mv, &mut factor, (index, self.factor_count()));
            factor
        };
        (0..self.factor_count()).map(take).collect()
    }

    /// The factor of a blade of products: 0 if it is dropped, else 1.
    #[cfg(feature = "cuda")]
    pub(crate) fn kept(&self, blade: usize) -> f64 {
        f64::from(u8::from(!self.dropped.contains(&blade)))
    }

    /// Clears the blades of products, or of their gradients, that are dropped.
    fn drop_blades<T: Number>(&self, rows: usize, products: &mut [T]) {
        let len = rows * self.each;
        for blade in &self.dropped {
            products[blade * len..][..len].fill(T::default());
        }
    }

    /// Multiplies each token by its reference and each blade by its sign.
    fn scale_joins<T: Number>(&self, reference: &[T], joins: &mut [T]) {
        let rows = joins.chunks_exact_mut(self.each.max(1));
        let blades = self.signs.iter().flat_map(|&sign| {
            let sign = number::<T>(sign);
            reference.iter().map(move |&reference| sign * reference)
        });
        for (row, factor) in rows.zip(blades) {
            row.iter_mut().for_each(|value| *value *= factor);
        }
    }

    /// Writes the gradient of each token's reference: the sum of the joins without it times their gradient.
    fn reference_gradient<T: Number>(
        &self,
        rows: usize,
        joins: &[T],
        gradient: &[T],
        to: &mut [T],
    ) {
        to.fill(T::default());
        let each = self.each.max(1);
        let pairs = joins.chunks_exact(each).zip(gradient.chunks_exact(each));
        for (at, (join, gradient)) in pairs.enumerate() {
            let mut sum = T::default();
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

//! Geometric products and joins.

use super::compiled::operator;
use super::programs::products::{Products, products};
use super::{Channels, Geometry, Lanes};
use crate::Error;

impl Lanes {
    /// From channels `(a, b, c, d)` of multivectors, as many of each: the geometric products `a b`, and the joins of
    /// `c` and `d`. Without joins the channels are `(a, b)`. There are `each` channels of a factor, and scalars
    /// beside them, which go through.
    ///
    /// The join is `reference dual(dual(c) ^ dual(d))`, where `dual` is the right complement: the regressive product with the sign
    /// `(-1)^(k (n - k))` in grade `k`, times the reference of the token. Geometric products may lose their bivectors.
    ///
    /// # Errors
    /// [`Error::Geometry`] for [vectors](Geometry::slim), and the errors of the operators.
    pub fn products(geometry: Geometry, each: usize, scalars: usize) -> Result<Self, Error> {
        geometry.check_multivectors("products")?;
        let algebra = geometry.algebra;
        let has = Products {
            joins: geometry.join,
            bivectors: geometry.bivectors,
            scalars: scalars > 0,
        };
        let p = products(algebra.cayley(), has);
        let each = Channels::new(each, scalars);
        Self::new(operator(algebra, &p)?, geometry.blades(), each)
    }
}

//! Geometric products and joins, as a program.

use flashcliff::cayley::{self, GradeSet, ProductKind};
use flashcliff::program::{Graph, Multivector, Program, Width};

use super::programs::{blades, one, operator};
use super::{Channels, Geometry, Lanes};
use crate::Error;

impl Lanes {
    /// From channels `(a, b, c, d)` of multivectors, as many of each: the geometric products `a b`, and the joins of `c` and `d`. Without joins the
    /// channels are `(a, b)`. There are `each` channels of a factor, and scalars beside them, which go through.
    ///
    /// The join is `reference dual(dual(c) ^ dual(d))`, where `dual` is the right complement: the regressive product with the sign
    /// `(-1)^(k (n - k))` in grade `k`, times the reference of the token. Geometric products may lose their bivectors.
    ///
    /// # Errors
    /// [`Error::Geometry`] for [vectors](Geometry::slim), and the errors of the operators.
    pub fn products(geometry: Geometry, each: usize, scalars: usize) -> Result<Self, Error> {
        geometry.check_multivectors("products")?;
        let algebra = geometry.algebra;
        let (cayley, all) = (algebra.cayley(), 0..geometry.blades());
        let mut p = Program::new("products", "o = a b, j = r dual(dual(c) ^ dual(d)), t = s");
        let mut factors = |names: [&str; 2]| {
            names.map(|name| Multivector {
                grades: GradeSet::full(cayley.dim()),
                components: p.input(name, blades(algebra, all.clone())),
            })
        };
        let pair = factors(["a", "b"]);
        let joined = geometry.join.then(|| factors(["c", "d"]));
        let s = (scalars > 0).then(|| p.input_of(Width::Scalars, "s", one()));
        let g = &mut p.graph;
        let product = product(g, cayley, ProductKind::Geometric, pair);
        let zero = g.constant(0.0);
        let keeps = |blade| geometry.bivectors || cayley.grade_of(blade) != 2;
        let o = product.map(
            cayley,
            |blade, value| if keeps(blade) { value } else { zero },
        );
        p.output("o", blades(algebra, all.clone()), o.components);
        if let Some(joined) = joined {
            let reference = p.row_value("reference");
            let g = &mut p.graph;
            let join = product_of_complements(g, cayley, joined);
            let j = join.map(cayley, |_, value| g.mul(value, reference));
            p.output("j", blades(algebra, all), j.components);
        }
        if let Some(s) = s {
            p.output_of(Width::Scalars, "t", one(), s);
        }
        let each = Channels::new(each, scalars);
        Self::new(operator(algebra, &p)?, geometry.blades(), each)
    }
}

fn product(
    g: &mut Graph,
    cayley: &cayley::Algebra,
    kind: ProductKind,
    [x, y]: [Multivector; 2],
) -> Multivector {
    x.product(g, cayley, kind, &y)
}

/// The join without its reference.
fn product_of_complements(
    g: &mut Graph,
    cayley: &cayley::Algebra,
    factors: [Multivector; 2],
) -> Multivector {
    let product = product(g, cayley, ProductKind::Regressive, factors);
    let dim = cayley.dim();
    product.signed(g, cayley, |blade| {
        let grade = cayley.grade_of(blade);
        match (grade * (dim - grade)).is_multiple_of(2) {
            true => 1,
            false => -1,
        }
    })
}

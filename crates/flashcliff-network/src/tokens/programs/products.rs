//! The program of geometric products and joins.

use flashcliff::cayley::{Algebra, GradeSet, ProductKind};
use flashcliff::program::{Graph, Multivector, Program, Width};

use super::parts::{blades, one};

/// What a program of products has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Products {
    /// Joins beside the products.
    pub(crate) joins: bool,
    /// Bivectors of the products.
    pub(crate) bivectors: bool,
    /// Scalars, which go through.
    pub(crate) scalars: bool,
}

/// Geometric products `a b`, and joins of `c` and `d` times a reference.
pub(crate) fn products(algebra: &Algebra, has: Products) -> Program {
    let mut p = Program::new("products", "o = a b, j = r dual(dual(c) ^ dual(d)), t = s");
    let names = || blades(algebra, 0..algebra.blade_count());
    let mut factors = |of: [&str; 2]| {
        of.map(|name| Multivector {
            grades: GradeSet::full(algebra.dim()),
            components: p.input(name, names()),
        })
    };
    let pair = factors(["a", "b"]);
    let joined = has.joins.then(|| factors(["c", "d"]));
    let s = has.scalars.then(|| p.input_of(Width::Scalars, "s", one()));
    let g = &mut p.graph;
    let product = product(g, algebra, ProductKind::Geometric, pair);
    let zero = g.constant(0.0);
    let keeps = |blade| has.bivectors || algebra.grade_of(blade) != 2;
    let o = product.map(
        algebra,
        |blade, value| if keeps(blade) { value } else { zero },
    );
    p.output("o", names(), o.components);
    if let Some(joined) = joined {
        let reference = p.row_value("reference");
        let g = &mut p.graph;
        let join = product_of_complements(g, algebra, joined);
        let j = join.map(algebra, |_, value| g.mul(value, reference));
        p.output("j", names(), j.components);
    }
    if let Some(s) = s {
        p.output_of(Width::Scalars, "t", one(), s);
    }
    p
}

fn product(
    g: &mut Graph,
    algebra: &Algebra,
    kind: ProductKind,
    [x, y]: [Multivector; 2],
) -> Multivector {
    x.product(g, algebra, kind, &y)
}

/// The join without its reference.
fn product_of_complements(
    g: &mut Graph,
    algebra: &Algebra,
    factors: [Multivector; 2],
) -> Multivector {
    let product = product(g, algebra, ProductKind::Regressive, factors);
    let dim = algebra.dim();
    product.signed(g, algebra, |blade| {
        let grade = algebra.grade_of(blade);
        match (grade * (dim - grade)).is_multiple_of(2) {
            true => 1,
            false => -1,
        }
    })
}

//! Finds one operator by its key, for any grades. Operators that are built at run time are found here.

use cayley::{Algebra, GradeSet, ProductKind};

use super::layers::{self, Measure};
use super::{Operator, products, unary};

/// The operator of a name between some grades, as [`operators`](super::operators) lists the compiled ones. `None` if
/// there is no such operator, or if its result has no grade.
///
/// `output` distinguishes path products with the same operands, and is read for these only.
pub fn find(
    algebra: &Algebra,
    name: &str,
    left: GradeSet,
    right: GradeSet,
    output: Option<GradeSet>,
) -> Option<Operator> {
    let full = GradeSet::full(algebra.dim());
    let geometric = algebra.reachable(ProductKind::Geometric, left, right);
    let (output, program) = match name {
        "sgp" => (geometric, products::sgp(algebra, left, right)),
        "sgp_rms" => (
            geometric,
            products::sgp_norm(algebra, left, right, Measure::Euclidean),
        ),
        "sgp_invariant" => (
            geometric,
            products::sgp_norm(algebra, left, right, Measure::Invariant),
        ),
        "sandwich" => (
            products::sandwich_grades(algebra, left, right),
            products::sandwich(algebra, left, right),
        ),
        "path_product" => {
            let single = |set: GradeSet| set.iter().next();
            let (a, b, c) = (single(left)?, single(output?)?, single(right)?);
            let mut paths = algebra.paths().into_iter();
            let path = paths.find(|path| (path.left, path.output, path.right) == (a, b, c));
            (output?, products::path_product(algebra, path?))
        }
        "gate_pair" => (GradeSet::single(0), products::gate_pair()),
        "grade_rms" => (
            left,
            layers::norm_of_grades(algebra, left, Measure::Euclidean),
        ),
        "grade_invariant" => (
            left,
            layers::norm_of_grades(algebra, left, Measure::Invariant),
        ),
        "undo_grade_rms" => (left, layers::undo_norm(algebra, left, Measure::Euclidean)),
        "undo_grade_invariant" => (left, layers::undo_norm(algebra, left, Measure::Invariant)),
        _ => {
            let mut kinds = ProductKind::ALL.into_iter();
            let kind = kinds.find(|&kind| products::name(kind) == name);
            match kind {
                Some(kind) => (
                    algebra.reachable(kind, left, right),
                    products::product(algebra, kind, left, right),
                ),
                None if (left, right) == (full, full) => (full, whole(algebra, name)?),
                None => return None,
            }
        }
    };
    let is_empty = output.is_empty() || program.outputs.iter().all(|o| o.values.is_empty());
    (!is_empty).then(|| Operator::new(left, right, output, program))
}

/// The operators that take full multivectors only.
fn whole(algebra: &Algebra, name: &str) -> Option<crate::ir::Program> {
    let steerable = [(false, false), (false, true), (true, false), (true, true)];
    let found = steerable
        .into_iter()
        .find(|&(normalize, first_order)| products::steerable_name(normalize, first_order) == name);
    if let Some((normalize, first_order)) = found {
        return Some(products::steerable_product(algebra, normalize, first_order));
    }
    let mut rest = unary::involutions(algebra)
        .into_iter()
        .chain(layers::all(algebra));
    rest.find(|program| program.name == name)
}

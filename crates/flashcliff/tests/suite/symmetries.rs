//! The symmetry of every operator.
//!
//! | operators | group | output |
//! |---|---|---|
//! | products, linear maps, gates, invariant norms, CGENN's layers, sandwich, involutions | Pin(p,q,r) | moves along |
//! | regressive product | Pin(p,q,r) | moves along, times the determinant |
//! | `norm`, `grade_norms` | Pin(p,q,r) | invariant |
//! | RMS norms (Euclidean lengths) | O(p) x O(q) | moves along |
//! | `dual`, `undual` (metric-free) | O(p) x O(q) | moves along, times the determinant |
//! | `mv_linear` with a bias on every blade, `mv_linear_sgp_norm` with one | none | |

use flashcliff::ops::LinearSgpOptions;
use flashcliff::{Bias, GradeSet, Norm, Operator, ProductKind};

use crate::basis::Basis;
use crate::cases::Spec;
use crate::versors::{Action, Group};

/// How an action on the inputs acts on the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Image {
    Along,
    AlongTimesDeterminant,
    Invariant,
}

pub(crate) struct Symmetry {
    pub(crate) group: Group,
    pub(crate) image: Image,
}

/// The symmetry that the table above promises; `None` if it promises none.
pub(crate) fn symmetry(spec: &Spec) -> Option<Symmetry> {
    if let Spec::Linear(o) | Spec::LinearSgp(LinearSgpOptions { linear: o, .. }) = spec
        // On scalars alone this bias breaks no symmetry.
        && o.bias == Bias::EveryBlade
        && o.grades != Some(GradeSet::single(0))
    {
        return None;
    }
    let (group, image) = match spec {
        Spec::Sgp(o) | Spec::Fcgp(o) if o.norm == Norm::Rms => (Group::Euclidean, Image::Along),
        Spec::LinearSgp(o) if o.norm == Norm::Rms => (Group::Euclidean, Image::Along),
        Spec::GradeRms(Norm::Rms, _) => (Group::Euclidean, Image::Along),
        Spec::Dual | Spec::Undual => (Group::Euclidean, Image::AlongTimesDeterminant),
        Spec::Product(ProductKind::Regressive, ..) => (Group::Pin, Image::AlongTimesDeterminant),
        Spec::Norm | Spec::GradeNorms => (Group::Pin, Image::Invariant),
        _ => (Group::Pin, Image::Along),
    };
    Some(Symmetry { group, image })
}

/// The grades of a multivector of an operator: an input by its name, or the output.
pub(crate) fn grades(basis: &Basis, spec: &Spec, name: &str) -> GradeSet {
    let full = GradeSet::full(basis.dim);
    let (kind, left, right) = match spec {
        Spec::Sgp(o) | Spec::Fcgp(o) => (ProductKind::Geometric, o.left, o.right),
        Spec::LinearSgp(o) => (ProductKind::Geometric, o.linear.grades, o.linear.grades),
        Spec::Product(kind, left, right) => (*kind, *left, *right),
        Spec::Sandwich(left, right) => (ProductKind::Geometric, *left, *right),
        Spec::Linear(o) => return o.grades.unwrap_or(full),
        _ => return full,
    };
    let (left, right) = (left.unwrap_or(full), right.unwrap_or(full));
    let reached = |left, right| {
        let blades = &basis.table(kind, left, right).outputs;
        let grades = blades.iter().map(|&b| GradeSet::single(basis.grade(b)));
        grades.fold(GradeSet::EMPTY, GradeSet::union)
    };
    match (name, spec) {
        ("x", _) => left,
        ("y", _) => right,
        // The result behaves under the reverse like `y`.
        (_, Spec::Sandwich(..)) => {
            let odd = |grade: usize| grade * grade.saturating_sub(1) / 2 % 2;
            let all = reached(reached(left, right), left);
            let kept = all
                .iter()
                .filter(|&g| right.iter().any(|r| odd(r) == odd(g)));
            kept.map(GradeSet::single)
                .fold(GradeSet::EMPTY, GradeSet::union)
        }
        _ => reached(left, right),
    }
}

/// The inputs of an operator after an action on its multivectors.
pub(crate) fn moved_inputs(
    basis: &Basis,
    spec: &Spec,
    op: &Operator,
    action: &Action,
    inputs: &[Vec<f64>],
) -> Vec<Vec<f64>> {
    let moved = op.inputs().iter().zip(inputs).map(|(input, values)| {
        let is_multivector = ["x", "y", "r", "l"].contains(&input.name);
        match is_multivector {
            true => action.apply(basis, grades(basis, spec, input.name), values),
            false => values.clone(),
        }
    });
    moved.collect()
}

/// The output after an action on the inputs.
pub(crate) fn moved_output(
    basis: &Basis,
    spec: &Spec,
    image: Image,
    action: &Action,
    output: &[f64],
) -> Vec<f64> {
    let along = || action.apply(basis, grades(basis, spec, "o"), output);
    match image {
        Image::Invariant => output.to_vec(),
        Image::Along => along(),
        Image::AlongTimesDeterminant => along().iter().map(|x| x * action.determinant).collect(),
    }
}

//! The table of operators: the name of each, how it is made between some grades, and between which grades it is compiled.
//!
//! [`operators`] lists what is compiled, [`find`] makes one operator between any grades.

use cayley::{Algebra, GradeSet, ProductKind};

use super::layers::{self, Measure};
use super::{Group, Operator, products, unary};
use crate::ir::Program;

/// The grades of the operands of an operator, and of its output where operands do not say them.
#[derive(Clone, Copy)]
struct Grades {
    left: GradeSet,
    right: GradeSet,
    /// The grade of the output of a path product; no other operator reads it.
    output: Option<GradeSet>,
}

impl Grades {
    fn new(left: GradeSet, right: GradeSet) -> Self {
        Self {
            left,
            right,
            output: None,
        }
    }

    fn of_one(operand: GradeSet) -> Self {
        Self::new(operand, operand)
    }
}

/// How an operator is made. A function gets the name of its program from the table.
#[derive(Clone, Copy)]
enum Make {
    /// A weighted product of gated operands.
    Weighted,
    /// A weighted product of gated operands, normalised grade by grade.
    WeightedNorm(Measure),
    /// A product without weights.
    Product(ProductKind),
    /// A versor applied to an operand.
    Sandwich,
    /// CGENN's product of full multivectors.
    Steerable { normalize: bool, first_order: bool },
    /// An operator of one full multivector.
    Whole(fn(&str, &Algebra) -> Program),
    /// The norm of the grades of one operand.
    Norm(Measure),
    /// The inverse of that norm, from its output and its row sums.
    UndoNorm(Measure),
    /// The product of the gates of two operands.
    GatePair,
    /// The terms of one path.
    PathProduct,
}

/// The operators of one name.
struct Row {
    name: String,
    make: Make,
}

/// Names that are compiled between the same grades. For each of these grades in order, every name is compiled in order.
struct Family {
    group: Group,
    rows: Vec<Row>,
    compiled: Vec<Grades>,
}

impl Family {
    fn new<N: Into<String>>(
        group: Group,
        rows: impl IntoIterator<Item = (N, Make)>,
        compiled: impl IntoIterator<Item = Grades>,
    ) -> Self {
        let row = |(name, make): (N, Make)| Row {
            name: name.into(),
            make,
        };
        Self {
            group,
            rows: rows.into_iter().map(row).collect(),
            compiled: compiled.into_iter().collect(),
        }
    }

    /// The compiled operators of the family.
    fn operators(&self, algebra: &Algebra) -> Vec<Operator> {
        let mut operators = Vec::new();
        for &grades in &self.compiled {
            let rows = self.rows.iter();
            let rows = rows.filter(|row| row.make.is_compiled(algebra, grades));
            operators.extend(rows.filter_map(|row| row.operator(algebra, grades)));
        }
        operators
    }
}

/// All operators of an algebra that are compiled, in the order in which they are generated.
pub fn operators(algebra: &Algebra) -> Vec<Operator> {
    operators_in(algebra, &Group::ALL)
}

/// The compiled operators of an algebra in some groups, in the order in which they are generated.
pub fn operators_in(algebra: &Algebra, groups: &[Group]) -> Vec<Operator> {
    let wanted = families(algebra).filter(|family| groups.contains(&family.group));
    wanted
        .flat_map(|family| family.operators(algebra))
        .collect()
}

/// All families, those of lane programs first.
fn families(algebra: &Algebra) -> impl Iterator<Item = Family> {
    lanes(algebra)
        .into_iter()
        .chain(fully_connected_parts(algebra))
}

/// The compiled operators that consist of one lane program.
pub fn lane_operators(algebra: &Algebra) -> Vec<Operator> {
    let families = lanes(algebra).into_iter();
    families
        .flat_map(|family| family.operators(algebra))
        .collect()
}

/// The operator of a name between some grades, compiled or not. `None` if there is no such operator, if its result has no grade, or if the algebra
/// lacks a grade.
///
/// `output` distinguishes path products with the same operands, and is read for these only.
pub fn find(
    algebra: &Algebra,
    name: &str,
    left: GradeSet,
    right: GradeSet,
    output: Option<GradeSet>,
) -> Option<Operator> {
    let mut given = [Some(left), Some(right), output].into_iter().flatten();
    if given.any(|grades| algebra.check_grades(grades).is_err()) {
        return None;
    }
    let mut rows = families(algebra).flat_map(|family| family.rows);
    let row = rows.find(|row| row.name == name)?;
    let grades = Grades {
        left,
        right,
        output,
    };
    let operator = row.operator(algebra, grades)?;
    let mut outputs = operator.program.outputs.iter();
    let is_empty = operator.output.is_empty() || outputs.all(|o| o.values.is_empty());
    (!is_empty).then_some(operator)
}

/// The operators that consist of one lane program.
fn lanes(algebra: &Algebra) -> Vec<Family> {
    use Measure::{Euclidean, Invariant};

    let full = GradeSet::full(algebra.dim());
    let vectors = GradeSet::single(1);
    let pairs = [
        (full, full),
        (vectors, full),
        (full, vectors),
        (vectors, vectors),
    ]
    .map(|(left, right)| Grades::new(left, right));
    let whole = [Grades::of_one(full)];
    let versors = [
        Grades::of_one(full),
        Grades::new(GradeSet::even(algebra.dim()), vectors),
    ];
    let weighted = [
        ("sgp", Make::Weighted),
        ("sgp_rms", Make::WeightedNorm(Euclidean)),
        ("sgp_invariant", Make::WeightedNorm(Invariant)),
    ];
    let steerable = [
        ("steerable_product", false, false),
        ("steerable_product_first_order", false, true),
        ("steerable_product_norm", true, false),
        ("steerable_product_norm_first_order", true, true),
    ]
    .map(|(name, normalize, first_order)| {
        let make = Make::Steerable {
            normalize,
            first_order,
        };
        (name, make)
    });
    let products = ProductKind::ALL.map(|kind| {
        let name = match kind {
            ProductKind::LeftContraction | ProductKind::RightContraction => kind.name().to_owned(),
            _ => format!("{}_product", kind.name()),
        };
        Family::new(Group::PlainProducts, [(name, Make::Product(kind))], pairs)
    });
    let involutions = [
        ("reverse", Make::Whole(unary::reverse)),
        ("grade_involution", Make::Whole(unary::grade_involution)),
        ("clifford_conjugate", Make::Whole(unary::clifford_conjugate)),
        ("dual", Make::Whole(unary::dual)),
        ("undual", Make::Whole(unary::undual)),
    ];
    let layers = [
        ("gate", Make::Whole(layers::gate)),
        ("grade_norm", Make::Whole(layers::grade_norm)),
        ("mv_silu_mag2", Make::Whole(layers::mv_silu_mag2)),
        ("mv_silu_norm", Make::Whole(layers::mv_silu_norm)),
        ("mv_layer_norm", Make::Whole(layers::mv_layer_norm)),
        ("norm", Make::Whole(layers::norm)),
        ("grade_norms", Make::Whole(layers::grade_norms)),
    ];
    let layer = Group::Layers;
    let mut families = vec![
        Family::new(layer, weighted, pairs),
        Family::new(layer, steerable, whole),
    ];
    families.extend(products);
    families.extend([
        Family::new(
            Group::PlainProducts,
            [("sandwich", Make::Sandwich)],
            versors,
        ),
        Family::new(layer, involutions, whole),
        Family::new(layer, [Euclidean, Invariant].map(norm), whole),
        Family::new(layer, layers, whole),
    ]);
    families
}

/// The programs of the fully connected product, around its matrix products.
fn fully_connected_parts(algebra: &Algebra) -> Vec<Family> {
    let full = GradeSet::full(algebra.dim());
    let paths = algebra.paths().into_iter().map(|path| {
        let [left, output, right] = [path.left, path.output, path.right].map(GradeSet::single);
        Grades {
            output: Some(output),
            ..Grades::new(left, right)
        }
    });
    // These programs go grade by grade, because the product takes any grade sets.
    let grades = (0..algebra.grade_count()).map(|grade| Grades::of_one(GradeSet::single(grade)));
    let norms = [
        norm(Measure::Euclidean),
        ("undo_grade_rms", Make::UndoNorm(Measure::Euclidean)),
        norm(Measure::Invariant),
        ("undo_grade_invariant", Make::UndoNorm(Measure::Invariant)),
    ];
    let group = Group::FullyConnected;
    vec![
        Family::new(
            group,
            [(products::GATE_PAIR, Make::GatePair)],
            [Grades::of_one(full)],
        ),
        Family::new(group, [(products::PATH_PRODUCT, Make::PathProduct)], paths),
        Family::new(group, norms, grades),
    ]
}

fn norm(measure: Measure) -> (&'static str, Make) {
    (measure.norm(), Make::Norm(measure))
}

impl Make {
    /// Whether the operator is compiled between grades of its family. A product without a result is not. Nor is the
    /// invariant norm where it is the Euclidean one; it is for scalars, and for all grades of a definite metric.
    fn is_compiled(self, algebra: &Algebra, grades: Grades) -> bool {
        let is_euclidean = |grade| algebra.invariant_form(grade).is_euclidean();
        match self {
            Self::WeightedNorm(Measure::Invariant)
            | Self::Norm(Measure::Invariant)
            | Self::UndoNorm(Measure::Invariant) => !grades.left.iter().all(is_euclidean),
            Self::Product(kind) => !algebra
                .reachable(kind, grades.left, grades.right)
                .is_empty(),
            _ => true,
        }
    }
}

impl Row {
    /// The operator between some grades; `None` if there is none.
    fn operator(&self, algebra: &Algebra, grades: Grades) -> Option<Operator> {
        let name = self.name.as_str();
        let Grades { left, right, .. } = grades;
        let full = GradeSet::full(algebra.dim());
        let is_whole = (left, right) == (full, full);
        let geometric = || algebra.reachable(ProductKind::Geometric, left, right);
        let (output, program) = match self.make {
            Make::Weighted => (geometric(), products::sgp(name, algebra, left, right)),
            Make::WeightedNorm(measure) => (
                geometric(),
                products::sgp_norm(name, algebra, left, right, measure),
            ),
            Make::Product(kind) => (
                algebra.reachable(kind, left, right),
                products::product(name, algebra, kind, left, right),
            ),
            Make::Sandwich => (
                algebra.reachable_by_sandwich(left, right),
                products::sandwich(name, algebra, left, right),
            ),
            Make::Steerable {
                normalize,
                first_order,
            } if is_whole => (
                full,
                products::steerable_product(name, algebra, normalize, first_order),
            ),
            Make::Whole(program) if is_whole => (full, program(name, algebra)),
            Make::Steerable { .. } | Make::Whole(_) => return None,
            Make::Norm(measure) => (left, layers::norm_of_grades(algebra, left, measure)),
            Make::UndoNorm(measure) => (left, layers::undo_norm(name, algebra, left, measure)),
            Make::GatePair => (GradeSet::single(0), products::gate_pair()),
            Make::PathProduct => {
                let output = grades.output?;
                let first = |set: GradeSet| set.iter().next();
                let ends = (first(left)?, first(output)?, first(right)?);
                let mut paths = algebra.paths().into_iter();
                let path = paths.find(|path| (path.left, path.output, path.right) == ends)?;
                (output, products::path_product(algebra, path))
            }
        };
        Some(Operator::new(left, right, output, program))
    }
}

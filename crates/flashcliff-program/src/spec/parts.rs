//! Programs around matrix products, and between operators.

use cayley::{Algebra, GradeSet, Path, ProductKind};

use super::multivector::Multivector;
use super::norms::{Measure, normalized_grades};
use crate::ir::{Function, Program};

const KIND: ProductKind = ProductKind::Geometric;

/// The name of [`gate_pair`].
pub(super) const GATE_PAIR: &str = "gate_pair";
/// The name of [`path_product`].
pub const PATH_PRODUCT: &str = "path_product";
/// The name of [`path_terms`].
const PATH_TERMS: &str = "path_terms";

/// `gate(x) x`, for an operand of some grades.
pub fn gated_operand(algebra: &Algebra, grades: GradeSet) -> Program {
    let mut p = Program::new("gated_operand", "o = gate(x_1) x");
    let x = Multivector::input(&mut p, algebra, "x", grades);
    let gate = x.gate_factor(&mut p.graph, algebra);
    let o = x.map(algebra, |_, x| p.graph.damp(gate, x));
    o.output(&mut p, algebra);
    p
}

/// The norm per grade of a multivector of some grades: of its coefficients, or by the invariant form.
pub fn normed(algebra: &Algebra, grades: GradeSet, is_invariant: bool) -> Program {
    let measure = match is_invariant {
        true => Measure::Invariant,
        false => Measure::Euclidean,
    };
    let mut p = Program::new("normed", format!("o = {}(x)", measure.norm()));
    let x = Multivector::input(&mut p, algebra, "x", grades);
    normalized_grades(&mut p, algebra, &x, measure).output(&mut p, algebra);
    p
}

/// A multivector with a bias for each channel, added to its first component or to all.
pub fn biased(algebra: &Algebra, grades: GradeSet, is_everywhere: bool) -> Program {
    let mut p = Program::new("biased", "o = x + b");
    let x = Multivector::input(&mut p, algebra, "x", grades);
    let bias = p.param("b", 1)[0];
    let first = x.components[0];
    let o = x.map(algebra, |_, x| match is_everywhere || x == first {
        true => p.graph.add(x, bias),
        false => x,
    });
    o.output(&mut p, algebra);
    p
}

/// The product of the gates of two operands, which depends on their scalar components only.
pub fn gate_pair() -> Program {
    let mut p = Program::new(GATE_PAIR, "o = gate(x_1) gate(y_1)");
    let x = p.input("x", vec!["1".to_owned()])[0];
    let y = p.input("y", vec!["1".to_owned()])[0];
    let g = &mut p.graph;
    let gate_x = g.call(Function::Gate { order: 0 }, x);
    let gate_y = g.call(Function::Gate { order: 0 }, y);
    let o = g.damp(gate_x, gate_y);
    p.output("o", vec!["1".to_owned()], vec![o]);
    p
}

/// The terms of one path times a common factor. They are the left operand of the matrix products in the fully connected
/// product.
pub fn path_product(algebra: &Algebra, path: Path) -> Program {
    let (a, b, c) = (path.left, path.output, path.right);
    let formula = format!("o = f <<x>_{a} <y>_{c}>_{b}");
    let mut p = Program::new(PATH_PRODUCT, formula);
    let [x, y] = path_operands(&mut p, algebra, path);
    let factor = p.input("f", vec!["1".to_owned()])[0];
    let mut terms = path_terms_of(&mut p, algebra, path, [&x, &y]);
    for sum in &mut terms.components {
        *sum = p.graph.damp(factor, *sum);
    }
    terms.output(&mut p, algebra);
    p
}

/// The terms of one path without a factor. With their gradients the factor is taken out of the sums over paths.
pub fn path_terms(algebra: &Algebra, path: Path) -> Program {
    let (a, b, c) = (path.left, path.output, path.right);
    let mut p = Program::new(PATH_TERMS, format!("o = <<x>_{a} <y>_{c}>_{b}"));
    let [x, y] = path_operands(&mut p, algebra, path);
    path_terms_of(&mut p, algebra, path, [&x, &y]).output(&mut p, algebra);
    p
}

/// The operands of a path.
fn path_operands(p: &mut Program, algebra: &Algebra, path: Path) -> [Multivector; 2] {
    [("x", path.left), ("y", path.right)]
        .map(|(name, grade)| Multivector::input(p, algebra, name, GradeSet::single(grade)))
}

fn path_terms_of(
    p: &mut Program,
    algebra: &Algebra,
    path: Path,
    [x, y]: [&Multivector; 2],
) -> Multivector {
    let all = x.product(&mut p.graph, algebra, KIND, y);
    let of_grade = all.grade(algebra, path.output).into_iter();
    Multivector {
        grades: GradeSet::single(path.output),
        components: of_grade.map(|(_, sum)| sum).collect(),
    }
}

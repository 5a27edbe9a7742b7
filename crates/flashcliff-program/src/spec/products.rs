//! The products, plain and weighted, and the operators built around them.

use cayley::{Algebra, GradeSet, Path, ProductKind};

use super::layers::{Measure, normalized, normalized_grades};
use super::multivector::Multivector;
use crate::ir::{Function, Id, Program};

const KIND: ProductKind = ProductKind::Geometric;

/// The name of [`gate_pair`].
pub(super) const GATE_PAIR: &str = "gate_pair";
/// The name of [`path_product`].
pub const PATH_PRODUCT: &str = "path_product";
/// The name of [`path_terms`].
const PATH_TERMS: &str = "path_terms";

/// `gate(x) gate(y) weighted_product(w, x, y)`: the product is bilinear, so the gates of the operands
/// are one factor of the result.
///
/// The product and the gates are cut, since the norm, the first-order term and all gradients start from them. So the
/// product, the heaviest stage, is the same for all of these, and a gate is computed once. Without any scalar component
/// the gates are constants, and there is nothing to keep.
fn gated_product(
    p: &mut Program,
    algebra: &Algebra,
    x: &Multivector,
    y: &Multivector,
    w: &[Id],
) -> Multivector {
    let mut gates = [x, y].map(|operand| operand.gate_factor(&mut p.graph, algebra));
    let product = x.weighted_product(&mut p.graph, algebra, w, y).cut(p);
    if gates.iter().any(|&gate| p.graph.varies(gate)) {
        gates = gates.map(|gate| p.cut(vec![gate])[0]);
    }
    // Closed gates give 0, even if the product of the ungated operands would overflow.
    let gate = p.graph.damp(gates[0], gates[1]);
    product.map(algebra, |_, value| p.graph.damp(gate, value))
}

/// The operands and weights of a product between some grades, and the product.
fn gated_operands(
    p: &mut Program,
    algebra: &Algebra,
    left: GradeSet,
    right: GradeSet,
) -> Multivector {
    let x = Multivector::input(p, algebra, "x", left);
    let y = Multivector::input(p, algebra, "y", right);
    let w = p.param("w", algebra.paths_between(left, right).len());
    gated_product(p, algebra, &x, &y, &w)
}

/// The steerable geometric product of gated operands (flash-clifford's SGP without its norm).
pub(super) fn sgp(name: &str, algebra: &Algebra, left: GradeSet, right: GradeSet) -> Program {
    let mut p = Program::new(name, "o = weighted_product(w, gate(x), gate(y))");
    let o = gated_operands(&mut p, algebra, left, right);
    o.output(&mut p, algebra);
    p
}

/// The steerable product with a grade-wise norm. With the Euclidean norm it is flash-clifford's SGP.
pub(super) fn sgp_norm(
    name: &str,
    algebra: &Algebra,
    left: GradeSet,
    right: GradeSet,
    measure: Measure,
) -> Program {
    let norm = measure.norm();
    let formula = format!("o = {norm}(weighted_product(w, gate(x), gate(y)))");
    let mut p = Program::new(name, formula);
    let product = gated_operands(&mut p, algebra, left, right);
    normalized_grades(&mut p, algebra, &product, measure).output(&mut p, algebra);
    p
}

/// CGENN's steerable product between its linear maps: `x` is the input, `r` the right linear map
/// of it, `l` the left one (only with the first-order term).
///
/// The gate exists so that the product shares its code with [`sgp`]; callers choose none.
pub(super) fn steerable_product(
    name: &str,
    algebra: &Algebra,
    normalize: bool,
    first_order: bool,
) -> Program {
    let full = GradeSet::full(algebra.dim());
    let right = if normalize { "norm(r; a)" } else { "r" };
    let product = format!("weighted_product(w, gate(x), gate({right}))");
    let formula = match first_order {
        true => format!("o = (l + {product}) / sqrt(2)"),
        false => format!("o = {product}"),
    };
    let mut p = Program::new(name, formula);
    let x = Multivector::input(&mut p, algebra, "x", full);
    let mut r = Multivector::input(&mut p, algebra, "r", full);
    let w = p.param("w", algebra.paths().len());
    if normalize {
        let a = p.param("a", algebra.grade_count());
        r = normalized(&mut p, algebra, &r, &a).cut(&mut p);
    }
    let mut o = gated_product(&mut p, algebra, &x, &r, &w);
    if first_order {
        let l = Multivector::input(&mut p, algebra, "l", full);
        let half_root = p.graph.constant(std::f64::consts::FRAC_1_SQRT_2);
        o = l.map(algebra, |blade, l| {
            let sum = match o.get(algebra, blade) {
                Some(z) => p.graph.add(l, z),
                None => l,
            };
            p.graph.mul(sum, half_root)
        });
    }
    o.output(&mut p, algebra);
    p
}

/// An unweighted product.
pub(super) fn product(
    name: &str,
    algebra: &Algebra,
    kind: ProductKind,
    left: GradeSet,
    right: GradeSet,
) -> Program {
    let mut p = Program::new(name, format!("o = {}(x, y)", kind.name()));
    let x = Multivector::input(&mut p, algebra, "x", left);
    let y = Multivector::input(&mut p, algebra, "y", right);
    let o = x.product(&mut p.graph, algebra, kind, &y);
    o.output(&mut p, algebra);
    p
}

/// The sandwich `x y reverse(x)`.
pub(super) fn sandwich(
    name: &str,
    algebra: &Algebra,
    versor: GradeSet,
    operand: GradeSet,
) -> Program {
    let mut p = Program::new(name, "o = x y reverse(x)");
    let x = Multivector::input(&mut p, algebra, "x", versor);
    let y = Multivector::input(&mut p, algebra, "y", operand);
    let half = x.product(&mut p.graph, algebra, KIND, &y).cut(&mut p);
    let reversed = x.signed(&mut p.graph, algebra, |blade| algebra.reverse_sign(blade));
    let reversed = reversed.cut(&mut p);
    let o = half.product(&mut p.graph, algebra, KIND, &reversed);
    let o = o.restricted(algebra, algebra.reachable_by_sandwich(versor, operand));
    o.output(&mut p, algebra);
    p
}

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

//! Gates, norms and normalisations: the operators around the products.

use cayley::{Algebra, GradeSet};

use super::multivector::{Multivector, smooth_norm};
use crate::ir::{Function, Graph, Id, Node, Program, Uniform};

/// Every operator of this file.
pub(super) fn all(algebra: &Algebra) -> Vec<Program> {
    vec![
        gate(algebra),
        grade_norm(algebra),
        mv_silu(algebra, "mv_silu_mag2", |_, q| q),
        mv_silu(algebra, "mv_silu_norm", |p, q| smooth_norm(&mut p.graph, q)),
        mv_layer_norm(algebra),
        norm(algebra),
        grade_norms(algebra),
    ]
}

fn full_input(p: &mut Program, algebra: &Algebra) -> Multivector {
    Multivector::input(p, algebra, "x", GradeSet::full(algebra.dim()))
}

/// The RMS norm per grade: `o_i / sqrt(sum over channels and the grade of o_i^2 / channels + eps)`
/// (Euclidean, as flash-clifford's).
pub(super) fn grade_rms(p: &mut Program, algebra: &Algebra, x: &Multivector) -> Multivector {
    let mut reciprocals = Vec::new();
    for grade in x.grades.iter() {
        let mut squares = Vec::new();
        for (_, x) in x.grade(algebra, grade) {
            squares.push((1, p.graph.mul(x, x)));
        }
        let total = p.graph.signed_sum(squares);
        let sum = p.row_sum(total);
        let g = &mut p.graph;
        let root = rms_root(g, sum);
        let one = g.constant(1.0);
        reciprocals.push((grade, g.div(one, root)));
    }
    x.map(algebra, |blade, x| {
        let grade = algebra.grade_of(blade);
        let found = reciprocals.iter().find(|(g, _)| *g == grade);
        found.map_or(x, |&(_, r)| p.graph.mul(x, r))
    })
}

/// The inverse of [`grade_rms`], from its output and its row sums: what the backward pass of the
/// fully connected product reads instead of computing the product again.
pub(super) fn undo_grade_rms(algebra: &Algebra, grades: GradeSet) -> Program {
    let formula = "o_g = x_g sqrt(mean_c |o_g|^2 + eps), the mean saved";
    let mut p = Program::new("undo_grade_rms", formula);
    let x = Multivector::input(&mut p, algebra, "x", grades);
    let zero = p.graph.constant(0.0);
    let mut roots = Vec::new();
    for (index, grade) in grades.iter().enumerate() {
        // Saved by the forward pass of the norm, so its definition is not used.
        p.row_sums.push(zero);
        p.saved_row_sums += 1;
        let sum = p.graph.intern(Node::RowSum(index));
        roots.push((grade, rms_root(&mut p.graph, sum)));
    }
    let o = x.map(algebra, |blade, x| {
        let grade = algebra.grade_of(blade);
        let found = roots.iter().find(|(g, _)| *g == grade);
        found.map_or(x, |&(_, root)| p.graph.mul(x, root))
    });
    o.output(&mut p, algebra);
    p
}

/// `sqrt(sum / channels + eps)`
fn rms_root(g: &mut Graph, sum: Id) -> Id {
    let per_channel = g.uniform(Uniform::InvChannels);
    let mean = g.mul(sum, per_channel);
    let eps = g.uniform(Uniform::Eps);
    let shifted = g.add(mean, eps);
    g.call(Function::Sqrt, shifted)
}

/// CGENN's normalisation: `x_g / (s (|x_g| - 1) + 1 + 1e-6)`, `s = sigmoid(a)`.
pub(super) fn normalized(
    p: &mut Program,
    algebra: &Algebra,
    x: &Multivector,
    a: &[Id],
) -> Multivector {
    let g = &mut p.graph;
    let one = g.constant(1.0);
    let shift = g.constant(1.0 + 1e-6);
    let mut denominators = Vec::new();
    for (grade, &a) in a.iter().enumerate() {
        let q = x.quadratic_form(g, algebra, grade);
        let norm = smooth_norm(g, q);
        let s = g.call(Function::Sigmoid, a);
        let excess = g.sub(norm, one);
        let scaled = g.mul(s, excess);
        denominators.push(g.add(scaled, shift));
    }
    let reciprocals: Vec<Id> = denominators.iter().map(|&d| g.div(one, d)).collect();
    x.map(algebra, |blade, x| {
        g.mul(x, reciprocals[algebra.grade_of(blade)])
    })
}

fn gate(algebra: &Algebra) -> Program {
    let mut p = Program::new("gate", "o = gate(x_1) x");
    let x = full_input(&mut p, algebra);
    let o = x.gated(&mut p.graph, algebra);
    o.output(&mut p, algebra);
    p
}

/// The norm as an operator of its own.
pub(super) fn rms(algebra: &Algebra, grades: GradeSet) -> Program {
    let mut p = Program::new("grade_rms", "o_g = x_g / sqrt(mean_c |x_g|^2 + eps)");
    let x = Multivector::input(&mut p, algebra, "x", grades);
    grade_rms(&mut p, algebra, &x).output(&mut p, algebra);
    p
}

fn grade_norm(algebra: &Algebra) -> Program {
    let formula = "o_g = x_g / (sigmoid(a_g) (|x_g| - 1) + 1 + 1e-6)";
    let mut p = Program::new("grade_norm", formula);
    let x = full_input(&mut p, algebra);
    let a = p.param("a", algebra.grade_count());
    normalized(&mut p, algebra, &x, &a).output(&mut p, algebra);
    p
}

fn mv_silu(algebra: &Algebra, name: &str, invariant: impl Fn(&mut Program, Id) -> Id) -> Program {
    let formula = "o_g = sigmoid(a_g u_g + b_g) x_g, u_0 = x_1, u_g an invariant of x_g";
    let mut p = Program::new(name, formula);
    let x = full_input(&mut p, algebra);
    let a = p.param("a", algebra.grade_count());
    let b = p.param("b", algebra.grade_count());
    let mut gates = Vec::new();
    for grade in 0..algebra.grade_count() {
        let u = if grade == 0 {
            x.components[0]
        } else {
            let q = x.quadratic_form(&mut p.graph, algebra, grade);
            invariant(&mut p, q)
        };
        let g = &mut p.graph;
        let scaled = g.mul(a[grade], u);
        let shifted = g.add(scaled, b[grade]);
        gates.push(g.call(Function::Sigmoid, shifted));
    }
    let o = x.map(algebra, |blade, x| {
        p.graph.mul(gates[algebra.grade_of(blade)], x)
    });
    o.output(&mut p, algebra);
    p
}

/// The smooth norm of a whole multivector.
fn whole_norm(p: &mut Program, algebra: &Algebra, x: &Multivector) -> Id {
    let g = &mut p.graph;
    let mut forms = Vec::new();
    for grade in x.grades.iter() {
        forms.push((1, x.quadratic_form(g, algebra, grade)));
    }
    let q = g.signed_sum(forms);
    smooth_norm(g, q)
}

fn mv_layer_norm(algebra: &Algebra) -> Program {
    let mut p = Program::new("mv_layer_norm", "o = a x / (mean_c |x| + 1e-6)");
    let x = full_input(&mut p, algebra);
    let a = p.param("a", 1)[0];
    let norm = whole_norm(&mut p, algebra, &x);
    let sum = p.row_sum(norm);
    let g = &mut p.graph;
    let per_channel = g.uniform(Uniform::InvChannels);
    let mean = g.mul(sum, per_channel);
    let tiny = g.constant(1e-6);
    let shifted = g.add(mean, tiny);
    let one = g.constant(1.0);
    let reciprocal = g.div(one, shifted);
    let factor = g.mul(a, reciprocal);
    let o = x.map(algebra, |_, x| p.graph.mul(factor, x));
    o.output(&mut p, algebra);
    p
}

fn norm(algebra: &Algebra) -> Program {
    let mut p = Program::new("norm", "o = (q(x)^2 + 1e-16)^(1/4)");
    let x = full_input(&mut p, algebra);
    let norm = whole_norm(&mut p, algebra, &x);
    p.output("o", vec!["norm".to_owned()], vec![norm]);
    p
}

fn grade_norms(algebra: &Algebra) -> Program {
    let mut p = Program::new("grade_norms", "o_g = (q(x_g)^2 + 1e-16)^(1/4)");
    let x = full_input(&mut p, algebra);
    let mut names = Vec::new();
    let mut norms = Vec::new();
    for grade in 0..algebra.grade_count() {
        let q = x.quadratic_form(&mut p.graph, algebra, grade);
        norms.push(smooth_norm(&mut p.graph, q));
        names.push(format!("grade {grade}"));
    }
    p.output("o", names, norms);
    p
}

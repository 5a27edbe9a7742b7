//! CGENN's learned normalisation of each grade.

use cayley::Algebra;
use flashcliff_operators::row::{PLAIN, X, input};
use flashcliff_operators::{Law, Operator as Row, Section};

use super::{Entry, Lanes, Place, WHOLE};
use crate::ir::{Function, Id, Program};
use crate::reference::{Call, Number, sigmoid};
use crate::spec::{Multivector, smooth_norm};

pub(super) const ENTRY: Entry = Entry {
    row: Row {
        name: "grade_norm",
        section: Section::Cgenn,
        title: "CGENN's learned normalisation of each grade.",
        formula: "o_g = x_g / (s (|x_g| - 1) + 1 + 1e-6), s = sigmoid(a_g)",
        details: "`|x_g|` is the smooth norm of {grade_norms}.",
        inputs: &[X, input("a", "[C, grades]")],
        source: "CGENN's `NormalizationLayer` (arXiv 2305.11141, section 4).",
        ..PLAIN
    },
    symmetry: &[Law::VERSORS],
    lanes: Some(Lanes {
        families: &[&["grade_norm"]],
        program,
        ..WHOLE
    }),
};

fn program(place: &Place<'_>) -> Program {
    let algebra = place.algebra;
    let formula = "o_g = x_g / (sigmoid(a_g) (|x_g| - 1) + 1 + 1e-6)";
    let mut p = Program::new(place.name, formula);
    let x = Multivector::input(&mut p, algebra, "x", place.left);
    let a = p.param("a", algebra.grade_count());
    normalized(&mut p, algebra, &x, &a).output(&mut p, algebra);
    p
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

pub(super) fn reference<N: Number>(call: &Call<'_, N>) -> Vec<N> {
    normalized_by_definition(call, call.input("x"), call.input("a"))
}

/// The normalisation of a full multivector.
pub(super) fn normalized_by_definition<N: Number>(call: &Call<'_, N>, x: &[N], a: &[N]) -> Vec<N> {
    let grades = call.basis.dim + 1;
    call.each_lane(call.basis.len(), |lane, out| {
        for grade in 0..grades {
            let blades = call.of_grade(grade);
            let norm = call.smooth_norm(x, lane, &blades);
            let s = sigmoid(a[call.channel(lane) * grades + grade]);
            let excess = s.mul(norm.add(N::constant(-1.0)));
            let denominator = excess.add(N::constant(1.0 + 1e-6));
            for b in blades {
                out[b * call.lanes() + lane] = x[b * call.lanes() + lane].div(denominator);
            }
        }
    })
}

//! The smooth norm of each grade.

use flashcliff_operators::row::PLAIN;
use flashcliff_operators::{Law, Operator as Row};

use super::{Entry, Lanes, Place, WHOLE};
use crate::ir::Program;
use crate::reference::{Call, Number};
use crate::spec::{Multivector, smooth_norm};

pub(super) const ENTRY: Entry = Entry {
    row: Row {
        name: "grade_norms",
        title: "The smooth norm of each grade.",
        formula: "o_g = (q(x_g)^2 + 1e-16)^(1/4), q(x) = <reverse(x) x>_0",
        output: "[grades, batch, C]",
        source: "CGENN's `norms` (arXiv 2305.11141, section 3).",
        ..PLAIN
    },
    symmetry: &[Law::VERSORS],
    lanes: Some(Lanes {
        families: &[&["grade_norms"]],
        program,
        ..WHOLE
    }),
};

fn program(place: &Place<'_>) -> Program {
    let algebra = place.algebra;
    let mut p = Program::new(place.name, "o_g = (q(x_g)^2 + 1e-16)^(1/4)");
    let x = Multivector::input(&mut p, algebra, "x", place.left);
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

pub(super) fn reference<N: Number>(call: &Call<'_, N>) -> Vec<N> {
    let x = call.input("x");
    let grades = call.basis.dim + 1;
    call.each_lane(grades, |lane, out| {
        for grade in 0..grades {
            let blades = call.of_grade(grade);
            out[grade * call.lanes() + lane] = call.smooth_norm(x, lane, &blades);
        }
    })
}

//! The smooth norm of a multivector.

use cayley::Algebra;
use flashcliff_operators::row::PLAIN;
use flashcliff_operators::{Law, Operator as Row};

use super::{Entry, Lanes, Place, WHOLE};
use crate::ir::{Id, Program};
use crate::reference::{Call, Number};
use crate::spec::{Multivector, smooth_norm};

pub(super) const ENTRY: Entry = Entry {
    row: Row {
        name: "norm",
        title: "The smooth norm of a multivector.",
        formula: "o = (q(x)^2 + 1e-16)^(1/4), q(x) = <reverse(x) x>_0",
        output: "[1, batch, C]",
        source: "CGENN's `norm` (arXiv 2305.11141, section 3).",
        ..PLAIN
    },
    symmetry: &[Law::VERSORS],
    lanes: Some(Lanes {
        families: &[&["norm"]],
        program,
        ..WHOLE
    }),
};

/// The smooth norm of a whole multivector.
pub(super) fn whole_norm(p: &mut Program, algebra: &Algebra, x: &Multivector) -> Id {
    let g = &mut p.graph;
    let mut forms = Vec::new();
    for grade in x.grades.iter() {
        forms.push((1, x.quadratic_form(g, algebra, grade)));
    }
    let q = g.signed_sum(forms);
    smooth_norm(g, q)
}

fn program(place: &Place<'_>) -> Program {
    let algebra = place.algebra;
    let mut p = Program::new(place.name, "o = (q(x)^2 + 1e-16)^(1/4)");
    let x = Multivector::input(&mut p, algebra, "x", place.left);
    let norm = whole_norm(&mut p, algebra, &x);
    p.output("o", vec!["norm".to_owned()], vec![norm]);
    p
}

pub(super) fn reference<N: Number>(call: &Call<'_, N>) -> Vec<N> {
    let (x, all) = (call.input("x"), call.blades());
    call.each_lane(1, |lane, out| out[lane] = call.smooth_norm(x, lane, &all))
}

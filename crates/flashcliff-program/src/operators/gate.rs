//! The gate of products, as an operator.

use flashcliff_operators::options::OWN_GATE;
use flashcliff_operators::row::PLAIN;
use flashcliff_operators::{Law, Operator as Row, Options};

use super::{Entry, Lanes, Place, WHOLE};
use crate::ir::Program;
use crate::reference::{Call, Number};
use crate::spec::Multivector;

pub(super) const ENTRY: Entry = Entry {
    row: Row {
        name: "gate",
        title: "The gate of {sgp_norm}: every blade times a function of the scalar component.",
        formula: "o = gate(x_0) x",
        options: Options::Each(&[&OWN_GATE]),
        source: "flash-clifford.",
        ..PLAIN
    },
    symmetry: &[Law::VERSORS],
    lanes: Some(Lanes {
        families: &[&["gate"]],
        program,
        ..WHOLE
    }),
};

fn program(place: &Place<'_>) -> Program {
    let algebra = place.algebra;
    let mut p = Program::new(place.name, "o = gate(x_1) x");
    let x = Multivector::input(&mut p, algebra, "x", place.left);
    let o = x.gated(&mut p.graph, algebra);
    o.output(&mut p, algebra);
    p
}

pub(super) fn reference<N: Number>(call: &Call<'_, N>) -> Vec<N> {
    call.gated(call.left, call.input("x"))
}

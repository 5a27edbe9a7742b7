//! The grade involution.

use flashcliff_operators::row::PLAIN;
use flashcliff_operators::{Gradient, Law, Operator as Row};

use super::{Entry, Lanes, Place, WHOLE};
use crate::ir::Program;
use crate::reference::{Call, Number};
use crate::spec::permutation;

pub(super) const ENTRY: Entry = Entry {
    row: Row {
        name: "grade_involution",
        title: "The grade involution: grade `k` times `(-1)^k`.",
        gradient: Gradient::LINEAR,
        source: "Dorst, Fontijne and Mann, Geometric Algebra for Computer Science (2007), chapter 2; `alpha` in CGENN's code.",
        ..PLAIN
    },
    symmetry: &[Law::VERSORS],
    lanes: Some(Lanes {
        families: &[&["grade_involution"]],
        program,
        ..WHOLE
    }),
};

fn program(place: &Place<'_>) -> Program {
    permutation(place, |b| (b, place.algebra.grade_involution_sign(b)))
}

pub(super) fn reference<N: Number>(call: &Call<'_, N>) -> Vec<N> {
    call.permuted(call.input("x"), |b| (b, call.basis.involution(b)))
}

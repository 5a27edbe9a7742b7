//! The reverse.

use flashcliff_operators::row::PLAIN;
use flashcliff_operators::{Gradient, Law, Operator as Row};

use super::{Entry, Lanes, Place, WHOLE};
use crate::ir::Program;
use crate::reference::{Call, Number};
use crate::spec::permutation;

pub(super) const ENTRY: Entry = Entry {
    row: Row {
        name: "reverse",
        title: "The reverse: grade `k` times `(-1)^(k(k-1)/2)`.",
        gradient: Gradient::LINEAR,
        source: "Dorst, Fontijne and Mann, Geometric Algebra for Computer Science (2007), chapter 2; `beta` in CGENN's code.",
        ..PLAIN
    },
    symmetry: &[Law::VERSORS],
    lanes: Some(Lanes {
        families: &[&["reverse"]],
        program,
        ..WHOLE
    }),
};

fn program(place: &Place<'_>) -> Program {
    permutation(place, |b| (b, place.algebra.reverse_sign(b)))
}

pub(super) fn reference<N: Number>(call: &Call<'_, N>) -> Vec<N> {
    call.permuted(call.input("x"), |b| (b, call.basis.reverse(b)))
}

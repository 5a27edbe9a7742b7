//! The Clifford conjugate.

use flashcliff_operators::row::PLAIN;
use flashcliff_operators::{Gradient, Law, Operator as Row};

use super::{Entry, Lanes, Place, WHOLE};
use crate::ir::Program;
use crate::reference::{Call, Number};
use crate::spec::permutation;

pub(super) const ENTRY: Entry = Entry {
    row: Row {
        name: "clifford_conjugate",
        title: "The Clifford conjugate: grade `k` times `(-1)^(k(k+1)/2)`.",
        gradient: Gradient::LINEAR,
        source: "The grade involution of the reverse; `gamma` in CGENN's code.",
        ..PLAIN
    },
    symmetry: &[Law::VERSORS],
    lanes: Some(Lanes {
        families: &[&["clifford_conjugate"]],
        program,
        ..WHOLE
    }),
};

fn program(place: &Place<'_>) -> Program {
    permutation(place, |b| (b, place.algebra.clifford_conjugate_sign(b)))
}

pub(super) fn reference<N: Number>(call: &Call<'_, N>) -> Vec<N> {
    call.permuted(call.input("x"), |b| {
        (b, call.basis.reverse(b) * call.basis.involution(b))
    })
}

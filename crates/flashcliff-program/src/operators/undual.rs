//! The inverse of the dual.

use flashcliff_operators::row::PLAIN;
use flashcliff_operators::{Gradient, Law, Operator as Row, Symmetry};

use super::{Entry, Lanes, Place, WHOLE};
use crate::ir::Program;
use crate::reference::{Call, Number};
use crate::spec::permutation;

pub(super) const ENTRY: Entry = Entry {
    row: Row {
        name: "undual",
        title: "The inverse of {dual}, the left complement; both commute with the same transformations.",
        gradient: Gradient::LINEAR,
        source: "Lengyel, Foundations of Game Engine Development, volume 1 (2016), chapter 4: the left complement.",
        ..PLAIN
    },
    symmetry: &[Law {
        definite: Symmetry::EvenVersors,
        ..Law::always(Symmetry::Rotations)
    }],
    lanes: Some(Lanes {
        families: &[&["undual"]],
        program,
        ..WHOLE
    }),
};

fn program(place: &Place<'_>) -> Program {
    permutation(place, |b| place.algebra.undual(b))
}

pub(super) fn reference<N: Number>(call: &Call<'_, N>) -> Vec<N> {
    call.permuted(call.input("x"), |b| call.basis.undual(b))
}

//! The dual without a metric.

use flashcliff_operators::row::PLAIN;
use flashcliff_operators::{Gradient, Law, Operator as Row, Symmetry};

use super::{Entry, Lanes, Place, WHOLE};
use crate::ir::Program;
use crate::reference::{Call, Number};
use crate::spec::permutation;

pub(super) const ENTRY: Entry = Entry {
    row: Row {
        name: "dual",
        title: "The dual without a metric, the right complement: `e_a ^ dual(e_a) = I`.",
        details: "It commutes with rotations among vectors of the same square. Reflections along such vectors \
                  change its sign. Boosts and translations act on a vector and on its complement in different \
                  ways: a layer that mixes a multivector with its dual is not equivariant under them. The \
                  regressive product of two multivectors is equivariant, up to a sign under reflections.",
        gradient: Gradient::LINEAR,
        source: "Lengyel, Foundations of Game Engine Development, volume 1 (2016), chapter 4: the right complement.",
        ..PLAIN
    },
    symmetry: &[Law {
        definite: Symmetry::EvenVersors,
        ..Law::always(Symmetry::Rotations)
    }],
    lanes: Some(Lanes {
        families: &[&["dual"]],
        program,
        ..WHOLE
    }),
};

fn program(place: &Place<'_>) -> Program {
    permutation(place, |b| place.algebra.dual(b))
}

pub(super) fn reference<N: Number>(call: &Call<'_, N>) -> Vec<N> {
    call.permuted(call.input("x"), |b| call.basis.dual(b))
}

//! The norm of products, as an operator.

use cayley::Algebra;
use flashcliff_operators::options::{EPS, OWN_NORM};
use flashcliff_operators::row::PLAIN;
use flashcliff_operators::{Gradient, Law, Operator as Row, Options};

use super::sgp_norm::is_euclidean;
use super::{Entry, Lanes, Place, Settings, WHOLE};
use crate::ir::Program;
use crate::reference::{Call, Number};
use crate::spec::{Measure, norm_of_grades};

pub(super) const ENTRY: Entry = Entry {
    row: Row {
        name: "grade_rms",
        title: "The norm of {sgp_norm}, for each grade and batch element, over channels.",
        formula: "o_g = x_g / sqrt(mean over channels of |x_g|^2 + eps)",
        details: "In `f32` the sum of the squares of a grade, over its blades and all channels of a batch element, must \
                  stay below 3.4e38: numbers up to `1.8e19 / sqrt(blades C)`. Beyond it the grade is 0, or not a number \
                  where the squares have both signs.",
        options: Options::Each(&[&OWN_NORM, &EPS]),
        errors: "[`Error::InvalidOption`] for an `eps` that is negative or not finite, [`Error::UnknownOption`] for \
                 [`Norm::None`].",
        source: "flash-clifford.",
        gradient: Gradient::SAVES,
        ..PLAIN
    },
    symmetry: &[Law::VERSORS, Law::RMS],
    lanes: Some(Lanes {
        families: &[&["grade_rms", "grade_invariant"]],
        program,
        is_compiled: |place| place.name == "grade_rms" || !is_euclidean(place.algebra, place.left),
        takes_grades: true,
        choose: Some(choose),
        ..WHOLE
    }),
};

fn choose(algebra: &Algebra, settings: &Settings) -> Result<&'static str, &'static str> {
    match settings.name("norm") {
        "invariant" if !algebra.has_euclidean_norms() => Ok("grade_invariant"),
        "none" => Err("norm"),
        _ => Ok("grade_rms"),
    }
}

fn program(place: &Place<'_>) -> Program {
    let measure = match place.name {
        "grade_rms" => Measure::Euclidean,
        _ => Measure::Invariant,
    };
    norm_of_grades(place.algebra, place.left, measure)
}

pub(super) fn reference<N: Number>(call: &Call<'_, N>) -> Vec<N> {
    let blades = call.basis.stored(call.left);
    call.divided(&blades, call.input("x").to_vec())
}

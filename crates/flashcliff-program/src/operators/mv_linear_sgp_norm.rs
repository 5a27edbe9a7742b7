//! The gated product of a multivector with a linear map of it.

use flashcliff_operators::options::LINEAR_SGP_OPTIONS;
use flashcliff_operators::row::{PLAIN, input, weight};
use flashcliff_operators::{Gradient, Input, Law, Operator as Row, Options, Presence, Section};

use super::Entry;
use crate::reference::{Call, Number};

pub(super) const ENTRY: Entry = Entry {
    row: Row {
        name: "mv_linear_sgp_norm",
        section: Section::Fused,
        title: "The gated product of `x` with a linear map of it: flash-clifford's layer.",
        formula: "o = sgp_norm(x, y, w), y = mv_linear(x, linear_weight, linear_bias)",
        details: "Without `per_grade` the weight of the map is `[C, C]`; the layout `grade_in_out` puts grades \
                  first.\n\nSaved for the backward pass: `y` in the type of `x`, and one sum per output grade and \
                  batch element. With `recompute` the sums alone: `y` is then in the workspace of each pass. The \
                  range of the norm is that of {sgp_norm}.\n\n\
                  The output, and all gradients but that of `x`, are the same bits as of the two operators in \
                  turn. In the backward pass the linear map adds to the gradient of `x` in place. This saves a pass \
                  over memory; that gradient may differ in its last bits.",
        inputs: &[
            input("x", "[blades of grades, batch, C]"),
            input("linear_weight", "[C, C, grades]"),
            Input {
                presence: Presence::WithBias,
                ..input("linear_bias", "[C]")
            },
            weight("[C, paths]"),
        ],
        output: "[reachable blades, batch, C]",
        options: Options::Set(&LINEAR_SGP_OPTIONS),
        errors: "The errors of {mv_linear} and {sgp_norm}; grades without scalars take no [`Bias::Scalar`].",
        source: "flash-clifford's `Layer`.",
        gradient: Gradient::SAVES,
        autocast: true,
        ..PLAIN
    },
    symmetry: &[Law::VERSORS, Law::RMS, Law::EVERY_BLADE],
    lanes: None,
};

pub(super) fn reference<N: Number>(call: &Call<'_, N>) -> Vec<N> {
    let grades = call.left;
    let x = call.input("x");
    let bias = call.has("linear_bias").then(|| call.input("linear_bias"));
    let y = call.linear(grades, x, call.input("linear_weight"), bias);
    let (x, y) = (call.gated(grades, x), call.gated(grades, &y));
    let product = call.weighted(grades, grades, [&x, &y, call.input("w")]);
    call.normalized(grades, grades, product)
}

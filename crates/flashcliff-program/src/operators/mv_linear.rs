//! The linear map of channels: a family of matrix products.

use flashcliff_operators::options::LINEAR_OPTIONS;
use flashcliff_operators::row::{PLAIN, input};
use flashcliff_operators::{Input, Law, Operator as Row, Options, Presence, Section};

use super::Entry;
use crate::reference::{Call, Number};

pub(super) const ENTRY: Entry = Entry {
    row: Row {
        name: "mv_linear",
        section: Section::Fused,
        title: "The linear map of channels, with a matrix for each grade.",
        formula: "o[m] = sum over n of weight[m, n, grade] x[n] (+ bias[m])",
        details: "Without `per_grade` the weight is `[out, in]`; the layout `grade_in_out` reverses its axes.",
        inputs: &[
            input("x", "[blades of grades, batch, in]"),
            input("weight", "[out, in, grades]"),
            Input {
                presence: Presence::WithBias,
                ..input("bias", "[out]")
            },
        ],
        output: "[blades of grades, batch, out]",
        options: Options::Set(&LINEAR_OPTIONS),
        errors: "[`Error::Algebra`] for grades the algebra does not have. With [`Bias::Scalar`] the grades must \
                 include 0: [`Error::UnsupportedGrades`].",
        source: "CGENN's `MVLinear` (arXiv 2305.11141, section 4).",
        autocast: true,
        ..PLAIN
    },
    symmetry: &[Law::VERSORS, Law::EVERY_BLADE],
    lanes: None,
};

pub(super) fn reference<N: Number>(call: &Call<'_, N>) -> Vec<N> {
    let bias = call.has("bias").then(|| call.input("bias"));
    call.linear(call.left, call.input("x"), call.input("weight"), bias)
}

//! The rows of the table.

use crate::options::{
    BLOCK_BYTES, EPS, INVARIANT, LEFT, LINEAR_OPTIONS, LINEAR_SGP_OPTIONS, OWN_GATE, OWN_NORM,
    PRODUCT_KIND, PRODUCT_OPTIONS, RIGHT, STEERABLE_OPTIONS,
};
use crate::{Gradient, Input, Operator, Options, Presence, Section};

const fn input(name: &'static str, shape: &'static str) -> Input {
    Input {
        name,
        python: name,
        shape,
        presence: Presence::Always,
    }
}

/// The path weights: `w` in formulas and in Rust, `weight` in Python.
const fn weight(shape: &'static str) -> Input {
    Input {
        python: "weight",
        ..input("w", shape)
    }
}

const X: Input = input("x", "[blades, batch, C]");

/// A row without options, errors and sentences for one host.
const PLAIN: Operator = Operator {
    name: "",
    section: Section::Unary,
    title: "",
    formula: "",
    details: "",
    inputs: &[X],
    output: "[blades, batch, C]",
    options: Options::Each(&[]),
    python_settings: &[],
    rust_note: "",
    errors: "",
    source: "",
    gradient: Gradient::PLAIN,
    autocast: false,
};

/// All operators.
pub const OPERATORS: &[Operator] = &[
    Operator {
        name: "sgp_norm",
        section: Section::Fused,
        title: "The fused steerable geometric product: gates, a weighted geometric product, a norm.",
        formula: "o = norm(sum over paths p of w[c, p] <<x'>_a <y'>_b>_p), x' = gate(x_0) x, y' alike",
        details: "Paths are in lexicographic order of (left, output, right). Saved for the backward pass: one \
                  sum per output grade and batch element.\n\n\
                  The norm sums squares of the product. In `f32` the sum over the blades of a grade and all channels \
                  of a batch element must stay below 3.4e38: products up to `1.8e19 / sqrt(blades C)`, which operands \
                  of some 1e8 have. Beyond it the grade is 0, or not a number where the squares have both signs: \
                  scale the weights.",
        inputs: &[
            input("x", "[blades of left, batch, C]"),
            input("y", "[blades of right, batch, C]"),
            weight("[C, paths]"),
        ],
        output: "[reachable blades, batch, C]",
        options: Options::Set(&PRODUCT_OPTIONS),
        errors: "[`Error::UnsupportedGrades`] for grades without a product, [`Error::InvalidOption`].",
        source: "flash-clifford's `fused_gelu_sgp_norm`; the product is CGENN's (arXiv 2305.11141, section 4), \
                 gate and norm are flash-clifford's.",
        gradient: Gradient::SAVES,
        autocast: true,
        ..PLAIN
    },
    Operator {
        name: "fcgp_norm",
        section: Section::Fused,
        title: "The fused fully connected geometric product: {sgp_norm} from all channels to all channels.",
        formula: "o[m] = norm(sum over n and paths p of w[p, n, m] <<x'[n]>_a <y'[n]>_b>_p)",
        details: "There is one matrix product for each path, whose left operand is formed from `x` and `y` block \
                  by block. Saved for the backward pass: one sum per output grade and batch element.\n\n\
                  The range of the norm is that of {sgp_norm}, here of sums over `n`.",
        inputs: &[
            input("x", "[blades of left, batch, in]"),
            input("y", "[blades of right, batch, in]"),
            weight("[paths, in, out]"),
        ],
        output: "[reachable blades, batch, out]",
        options: Options::Set(&PRODUCT_OPTIONS),
        python_settings: &[&BLOCK_BYTES],
        rust_note: "On CUDA the path products of a block of rows, and their gradients, are written to the workspace in the \
                    type of the tensors, for cuBLASLt to multiply. A block takes 256 MiB at the most, or what a tuning \
                    table or `cuda::Operator::with_block_bytes` says, or as much as a single row needs.",
        errors: "[`Error::Algebra`] for grades the algebra does not have, [`Error::InvalidOption`].",
        source: "flash-clifford's `fused_gelu_fcgp_norm`; CGENN's fully connected product (arXiv 2305.11141, \
                 section 4).",
        gradient: Gradient {
            reads_output: true,
            ..Gradient::SAVES
        },
        autocast: true,
    },
    Operator {
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
    Operator {
        name: "mv_linear_sgp_norm",
        section: Section::Fused,
        title: "The gated product of `x` with a linear map of it: flash-clifford's layer.",
        formula: "o = sgp_norm(x, y, w), y = mv_linear(x, linear_weight, linear_bias)",
        details: "Without `per_grade` the weight of the map is `[C, C]`; the layout `grade_in_out` puts grades \
                  first.\n\nSaved for the backward pass: `y` in the type of `x`, and one sum per output grade and \
                  batch element. With `recompute` the sums alone: `y` is then in the workspace of each pass. The \
                  range of the norm is that of {sgp_norm}.\n\n\
                  The output, and all gradients but that of `x`, are the same bits as of the two operators in \
                  turn. The map adds its part of the gradient of `x` to that of the product, which saves a pass \
                  and rounds in another order.",
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
    Operator {
        name: "grade_norm",
        section: Section::Cgenn,
        title: "CGENN's learned normalisation of each grade.",
        formula: "o_g = x_g / (s (|x_g| - 1) + 1 + 1e-6), s = sigmoid(a_g)",
        details: "`|x_g|` is the smooth norm of {grade_norms}.",
        inputs: &[X, input("a", "[C, grades]")],
        source: "CGENN's `NormalizationLayer` (arXiv 2305.11141, section 4).",
        ..PLAIN
    },
    Operator {
        name: "steerable_product",
        section: Section::Cgenn,
        title: "CGENN's weighted geometric product, as it stands between its linear maps.",
        formula: "o = (l + z) / sqrt 2, z = sum over paths p of w[c, p] <<x>_a <r'>_b>_p, r' = grade_norm(r, a)",
        details: "Without `l` the output is `z`; without `a` the right operand is `r` itself.",
        inputs: &[
            X,
            input("r", "[blades, batch, C]"),
            weight("[C, paths]"),
            Input {
                presence: Presence::With("normalize"),
                ..input("a", "[C, grades]")
            },
            Input {
                presence: Presence::With("first_order"),
                ..input("l", "[blades, batch, C]")
            },
        ],
        options: Options::Set(&STEERABLE_OPTIONS),
        source: "CGENN's `SteerableGeometricProductLayer` (arXiv 2305.11141, section 4).",
        autocast: true,
        ..PLAIN
    },
    Operator {
        name: "mv_silu",
        section: Section::Cgenn,
        title: "CGENN's gated nonlinearity.",
        formula: "o_g = sigmoid(a_g u_g + b_g) x_g",
        details: "`u_0` is the scalar component, `u_g` an invariant of the grade.",
        inputs: &[X, input("a", "[C, grades]"), input("b", "[C, grades]")],
        options: Options::Each(&[&INVARIANT]),
        source: "CGENN's `MVSiLU`.",
        ..PLAIN
    },
    Operator {
        name: "mv_layer_norm",
        section: Section::Cgenn,
        title: "CGENN's layer norm.",
        formula: "o = a x / (mean over channels of |x| + 1e-6)",
        details: "`|x|` is the smooth norm of the whole multivector, {norm}. Saved for the backward pass: one sum \
                  per batch element.",
        inputs: &[X, input("a", "[C, 1]")],
        source: "CGENN's `MVLayerNorm`.",
        gradient: Gradient::SAVES,
        ..PLAIN
    },
    Operator {
        name: "product",
        section: Section::Product,
        title: "A product of `x` and `y` without weights, channel by channel.",
        details: "Only terms between the grades of the operands are computed, and only reachable blades are \
                  written. Where no blade can be reached, as by the commutator in one dimension, the output has \
                  all blades and is zero.",
        inputs: &[
            input("x", "[blades of left, batch, C]"),
            input("y", "[blades of right, batch, C]"),
        ],
        output: "[reachable blades, batch, C]",
        options: Options::Each(&[&PRODUCT_KIND, &LEFT, &RIGHT]),
        errors: "[`Error::UnsupportedGrades`] for operands without grades.",
        autocast: true,
        ..PLAIN
    },
    Operator {
        name: "sandwich",
        section: Section::Product,
        title: "The sandwich `x y reverse(x)`: for a unit versor `x` its action on `y`, up to a sign.",
        details: "For an even versor, a rotor, it is the action. For an odd versor, such as a reflection, it is the \
                  action with the odd grades of `y` negated: a unit vector `n` with `n n = 1` keeps `n` and negates \
                  the vectors at right angles to it, where the reflection does the reverse. The action is then the \
                  sandwich of `x` with {grade_involution} of `y`. With `x reverse(x) = -1` all grades are negated, \
                  and otherwise the result is scaled by `x reverse(x)`.\n\n\
                  The output has the blades of the grades that `x y` times `x` can reach and whose sign under the \
                  reverse is that of a grade of `y`, in ascending order: more than `y` has if `x` is no versor. \
                  Python's `Algebra.reachable(\"sandwich\", left, right)` and \
                  `cayley::Algebra::reachable_by_sandwich` list them. Blades of these grades whose terms cancel are \
                  zeros. Where no grade can be reached, the output has all blades and is zero, as that of {product}.",
        inputs: &[
            input("x", "[blades of left, batch, C]"),
            input("y", "[blades of right, batch, C]"),
        ],
        output: "[reachable blades, batch, C]",
        options: Options::Each(&[&LEFT, &RIGHT]),
        errors: "[`Error::UnsupportedGrades`] for operands without grades.",
        autocast: true,
        ..PLAIN
    },
    Operator {
        name: "reverse",
        title: "The reverse: grade `k` times `(-1)^(k(k-1)/2)`.",
        gradient: Gradient::LINEAR,
        ..PLAIN
    },
    Operator {
        name: "grade_involution",
        title: "The grade involution: grade `k` times `(-1)^k`.",
        gradient: Gradient::LINEAR,
        ..PLAIN
    },
    Operator {
        name: "clifford_conjugate",
        title: "The Clifford conjugate: grade `k` times `(-1)^(k(k+1)/2)`.",
        gradient: Gradient::LINEAR,
        ..PLAIN
    },
    Operator {
        name: "dual",
        title: "The dual without a metric, the right complement: `e_a ^ dual(e_a) = I`.",
        details: "It commutes with rotations among vectors of the same square. Reflections along such vectors \
                  change its sign. Boosts and translations act on a vector and on its complement in different \
                  ways: a layer that mixes a multivector with its dual is not equivariant under them. The \
                  regressive product of two multivectors is equivariant, up to a sign under reflections.",
        gradient: Gradient::LINEAR,
        ..PLAIN
    },
    Operator {
        name: "undual",
        title: "The inverse of {dual}, the left complement; both commute with the same transformations.",
        gradient: Gradient::LINEAR,
        ..PLAIN
    },
    Operator {
        name: "norm",
        title: "The smooth norm of a multivector.",
        formula: "o = (q(x)^2 + 1e-16)^(1/4), q(x) = <reverse(x) x>_0",
        output: "[1, batch, C]",
        source: "CGENN's `norm` (arXiv 2305.11141, section 3).",
        ..PLAIN
    },
    Operator {
        name: "grade_norms",
        title: "The smooth norm of each grade.",
        formula: "o_g = (q(x_g)^2 + 1e-16)^(1/4), q(x) = <reverse(x) x>_0",
        output: "[grades, batch, C]",
        source: "CGENN's `norms` (arXiv 2305.11141, section 3).",
        ..PLAIN
    },
    Operator {
        name: "gate",
        title: "The gate of {sgp_norm}: every blade times a function of the scalar component.",
        formula: "o = gate(x_0) x",
        options: Options::Each(&[&OWN_GATE]),
        source: "flash-clifford.",
        ..PLAIN
    },
    Operator {
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
];

//! Options, each written once, and the structs that hold them.

use crate::{Choice, Choices, Kind, OptionSet, Setting};

const fn choice(name: &'static str, doc: &'static str, old: &'static [&'static str]) -> Choice {
    Choice {
        name,
        doc,
        old,
        function: "",
    }
}

const fn kind(name: &'static str, function: &'static str, doc: &'static str) -> Choice {
    Choice {
        name,
        doc,
        old: &[],
        function,
    }
}

const fn setting(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Setting {
    Setting {
        name,
        python: name,
        kind,
        default,
        doc,
        refused_in_python: &[],
    }
}

/// All options with names.
pub const CHOICES: &[&Choices] = &[&GATES, &NORMS, &INVARIANTS, &BIASES, &LAYOUTS, &PRODUCTS];

/// The gates.
pub static GATES: Choices = Choices {
    rust: "Gate",
    what: "gate",
    values: &[
        choice("none", "no gate", &[]),
        choice(
            "gelu",
            "`(1 + erf(x / sqrt 2)) / 2`; the scalar part of the result is then GELU of the scalar",
            &[],
        ),
        choice(
            "gelu_tanh",
            "the tanh form of GELU, `(1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2`",
            &["gelu-tanh"],
        ),
        choice("silu", "`1 / (1 + exp(-x))`", &[]),
        choice(
            "gelu_fast",
            "the fast form of GELU, `1 / (1 + exp(-1.702 x))`",
            &["sigmoid", "gelu-fast"],
        ),
    ],
};

/// The norms.
pub static NORMS: Choices = Choices {
    rust: "Norm",
    what: "norm",
    values: &[
        choice("none", "no norm", &[]),
        choice(
            "rms",
            "the sum of the squares of all coefficients, as in flash-clifford. It equals `invariant`, bit for \
             bit, if all vectors square to the same sign. In other algebras it is not equivariant: boosts and \
             translations change it",
            &[],
        ),
        choice(
            "invariant",
            "`|<o_g reverse(o_g)>_0|`, which no versor changes, so that the operator is equivariant in every \
             algebra. Blades with a null vector are left out; the pseudoscalar is measured by its own square; \
             where the quadratic form `q` can be negative, `sqrt(q^2 + eps^2)` replaces `|q| + eps`",
            &[],
        ),
    ],
};

/// The invariants of a grade.
pub static INVARIANTS: Choices = Choices {
    rust: "Invariant",
    what: "invariant",
    values: &[
        choice("mag2", "the quadratic form of the grade", &[]),
        choice("norm", "the smooth norm of the grade, {grade_norms}", &[]),
    ],
};

/// The biases of linear maps.
pub static BIASES: Choices = Choices {
    rust: "Bias",
    what: "bias",
    values: &[
        choice("none", "no bias", &[]),
        choice(
            "scalar",
            "on the scalar blade, which keeps the map equivariant",
            &[],
        ),
        choice(
            "every_blade",
            "on every blade, which is not equivariant and is there for flash-clifford's weights",
            &["every-blade", "all"],
        ),
    ],
};

/// The orders of the axes of a weight.
pub static LAYOUTS: Choices = Choices {
    rust: "WeightLayout",
    what: "weight layout",
    values: &[
        choice(
            "out_in_grade",
            "`[out, in, grades]`, as in CGENN",
            &["out-in-grade"],
        ),
        choice(
            "grade_in_out",
            "`[grades, in, out]`, as in flash-clifford; on CUDA it saves a copy of larger weights",
            &["grade-in-out"],
        ),
    ],
};

/// The products without weights.
pub static PRODUCTS: Choices = Choices {
    rust: "ProductKind",
    what: "product",
    values: &[
        kind("geometric", "geometric_product", "`x y`"),
        kind("exterior", "exterior_product", "`x ^ y`"),
        kind(
            "regressive",
            "regressive_product",
            "`undual(dual(x) ^ dual(y))`",
        ),
        kind(
            "left_contraction",
            "left_contraction",
            "the part of `<x>_g <y>_h` of grade `h - g`",
        ),
        kind(
            "right_contraction",
            "right_contraction",
            "the part of `<x>_g <y>_h` of grade `g - h`",
        ),
        kind(
            "scalar",
            "scalar_product",
            "the scalar part of `x y`, without a reverse",
        ),
        kind("commutator", "commutator_product", "`(x y - y x) / 2`"),
    ],
};

/// The gate on both operands of a product.
pub static GATE: Setting = setting(
    "gate",
    Kind::Choice(&GATES),
    "gelu",
    "The gate on both operands: every blade times a function of the scalar component. An operand without \
     scalars is gated by the constant `gate(0)`, 0.5 for all gates but `none`.",
);

/// The gate as an operator.
pub static OWN_GATE: Setting = setting(
    "gate",
    Kind::Choice(&GATES),
    "gelu",
    "The function of the scalar component that multiplies every blade.",
);

/// The norm of a result.
pub static NORM: Setting = setting(
    "norm",
    Kind::Choice(&NORMS),
    "invariant",
    "The norm of the result, for each grade and batch element: `o_g / sqrt(mean over channels of |o_g|^2 + \
     eps)`, where the option says what `|o_g|^2` is.",
);

/// The norm as an operator.
pub static OWN_NORM: Setting = setting(
    "norm",
    Kind::Choice(&NORMS),
    "invariant",
    "The form of `|x_g|^2`.",
);

/// The number under the root of a norm.
pub static EPS: Setting = setting(
    "eps",
    Kind::Number,
    "1e-6",
    "Added under the root of the mean; where the quadratic form can be negative, it smooths the magnitude instead.",
);

/// The grades of the left operand.
pub static LEFT: Setting = setting(
    "left",
    Kind::Grades,
    "all",
    "The grades that `x` carries. Its tensor holds the blades of these grades only.",
);

/// The grades of the right operand.
pub static RIGHT: Setting = setting(
    "right",
    Kind::Grades,
    "all",
    "The grades that `y` carries. Its tensor holds the blades of these grades only.",
);

/// Whether a linear map has a matrix for each grade.
pub static PER_GRADE: Setting = setting(
    "per_grade",
    Kind::Flag,
    "true",
    "A matrix for each grade, or one for all.",
);

/// The bias of a linear map.
pub static BIAS: Setting = Setting {
    python: "bias_mode",
    refused_in_python: &["none"],
    ..setting("bias", Kind::Choice(&BIASES), "scalar", "The bias.")
};

/// The grades of the only operand.
pub static GRADES: Setting = setting(
    "grades",
    Kind::Grades,
    "all",
    "The grades that `x` carries. Its tensor holds the blades of these grades only.",
);

/// The order of the axes of the weight of a linear map.
pub static WEIGHT_LAYOUT: Setting = setting(
    "weight_layout",
    Kind::Choice(&LAYOUTS),
    "out_in_grade",
    "The order of the axes of the weight of the linear map.",
);

/// Whether the backward pass computes a linear map again.
pub static RECOMPUTE: Setting = setting(
    "recompute",
    Kind::Flag,
    "false",
    "Whether the backward pass computes `y` again, by one more product of matrices, instead of reading it from \
     what the forward pass saved.",
);

/// The memory of path products on CUDA.
pub static BLOCK_BYTES: Setting = setting(
    "block_bytes",
    Kind::Bytes,
    "auto",
    "On CUDA the bytes that the path products of a block of rows may take, the main part of the workspace; a block \
     has a row in any case. `None` takes what was tuned, or 256 MiB. Less memory is slower, and gradients of \
     weights are rounded in another order: they are sums from block to block. On the CPU it has no effect.",
);

/// Whether a product has a first-order term.
pub static FIRST_ORDER: Setting = setting(
    "first_order",
    Kind::Flag,
    "true",
    "Whether the first-order term is added: `o = (l + z) / sqrt 2`.",
);

/// Whether the right operand of a product is normalised.
pub static NORMALIZE: Setting = setting(
    "normalize",
    Kind::Flag,
    "true",
    "Whether the right operand is normalised first, by {grade_norm} with `a`.",
);

/// The invariant that opens a gate.
pub static INVARIANT: Setting = setting(
    "invariant",
    Kind::Choice(&INVARIANTS),
    "mag2",
    "The invariant of the grades above 0.",
);

/// The kind of a product.
pub static PRODUCT_KIND: Setting = setting(
    "kind",
    Kind::Choice(&PRODUCTS),
    "geometric",
    "Which product.",
);

/// All structs of options.
pub const OPTION_SETS: &[&OptionSet] = &[
    &PRODUCT_OPTIONS,
    &LINEAR_OPTIONS,
    &LINEAR_SGP_OPTIONS,
    &STEERABLE_OPTIONS,
];

/// The options of gated and normalised products.
pub static PRODUCT_OPTIONS: OptionSet = OptionSet {
    name: "ProductOptions",
    doc: "Options of {sgp_norm} and {fcgp_norm}. The default is equivariant in every algebra, and \
          flash-clifford's function where all vectors square to one sign.",
    nested: None,
    settings: &[&GATE, &NORM, &EPS, &LEFT, &RIGHT],
};

/// The options of linear maps.
pub static LINEAR_OPTIONS: OptionSet = OptionSet {
    name: "LinearOptions",
    doc: "Options of {mv_linear}.",
    nested: None,
    settings: &[&PER_GRADE, &BIAS, &GRADES, &WEIGHT_LAYOUT],
};

/// The options of a product with a linear map.
pub static LINEAR_SGP_OPTIONS: OptionSet = OptionSet {
    name: "LinearSgpOptions",
    doc: "Options of {mv_linear_sgp_norm}. The default is that of {mv_linear} and of {sgp_norm}.",
    nested: Some((
        "linear",
        &LINEAR_OPTIONS,
        "Options of the linear map. Its grades are the grades of `x`, and so of `y`.",
    )),
    settings: &[&GATE, &NORM, &EPS, &RECOMPUTE],
};

/// The options of CGENN's product.
pub static STEERABLE_OPTIONS: OptionSet = OptionSet {
    name: "SteerableOptions",
    doc: "Options of {steerable_product}.",
    nested: None,
    settings: &[&FIRST_ORDER, &NORMALIZE],
};

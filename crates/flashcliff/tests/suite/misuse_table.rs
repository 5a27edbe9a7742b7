//! The table of misuse: the call, the expected error and the phrases of its message. No row may panic.

#![allow(
    clippy::needless_question_mark,
    reason = "the question mark also makes an error of ours of cayley's"
)]

use std::panic::catch_unwind;

use flashcliff::ops::{self, LinearOptions, LinearSgpOptions, ProductOptions, SteerableOptions};
use flashcliff::{
    Algebra, Bias, Dims, Dtype, Error, Evaluation, Gate, GradeSet, Invariant, Norm, Operator, Pass,
    ProductKind, Signature, Tensor, TensorMut, Tier, WeightLayout, threads,
};

/// A wrong call.
pub(crate) struct Row {
    /// A description of the call.
    pub(crate) what: &'static str,
    /// The start of the error when it is printed for debugging: its variant.
    pub(crate) variant: &'static str,
    /// Phrases that the message must have.
    pub(crate) says: &'static [&'static str],
    /// The call.
    pub(crate) call: fn() -> Result<(), Error>,
}

/// Makes a row of the table. The result of the call only matters if it is an error.
macro_rules! row {
    ($what:literal, $variant:literal, [$($says:expr),+], $call:expr) => {
        $crate::misuse_table::Row {
            what: $what,
            variant: $variant,
            says: &[$($says),+],
            call: || Ok($call.map(|_| ())?),
        }
    };
}

pub(crate) use row;

pub(crate) fn cl300() -> Algebra {
    Algebra::new(Signature::of(3, 0, 0)).expect("shipped")
}

fn grades(grades: &[usize]) -> Option<GradeSet> {
    Some(GradeSet::of(grades))
}

fn of_grades(left: Option<GradeSet>, right: Option<GradeSet>) -> ProductOptions {
    ProductOptions::default().with_left(left).with_right(right)
}

fn of_eps(eps: f64) -> ProductOptions {
    ProductOptions::default().with_eps(eps)
}

fn linear(grades: Option<GradeSet>, bias: Bias) -> LinearOptions {
    LinearOptions::default().with_grades(grades).with_bias(bias)
}

fn layer(linear: LinearOptions, eps: f64) -> Result<Operator, Error> {
    let options = LinearSgpOptions::default()
        .with_linear(linear)
        .with_eps(eps);
    ops::mv_linear_sgp_norm(cl300(), &options)
}

pub(crate) fn sgp() -> Operator {
    ops::sgp_norm(cl300(), &ProductOptions::default()).expect("shipped")
}

fn fcgp() -> Operator {
    ops::fcgp_norm(cl300(), &ProductOptions::default()).expect("shipped")
}

fn steerable() -> Operator {
    ops::steerable_product(cl300(), &SteerableOptions::default()).expect("shipped")
}

fn map(layout: WeightLayout) -> Operator {
    let options = LinearOptions::default().with_weight_layout(layout);
    ops::mv_linear(cl300(), &options).expect("shipped")
}

/// The sizes that shapes stand for.
fn bind(op: &Operator, shapes: &[&[usize]]) -> Result<(), Error> {
    op.bind(shapes).map(|_| ())
}

/// Evaluates an operator of one input with a tensor of a given shape.
fn unary(op: Result<Operator, Error>, shape: &[usize]) -> Result<(), Error> {
    let data = vec![0.5_f32; shape.iter().product()];
    op?.evaluate(&[Tensor::new(&data, shape)?]).map(|_| ())
}

/// Evaluates [`sgp`] correctly, changes something, and then computes the gradients.
fn gradients(change: impl FnOnce(&mut Evaluation<f64>), grad: &[usize]) -> Result<(), Error> {
    let (x, w) = (vec![0.5; 80], vec![0.1; 100]);
    let (x, w) = (Tensor::new(&x, &[8, 2, 5])?, Tensor::new(&w, &[5, 20])?);
    let mut evaluation = sgp().evaluate(&[x, x, w])?;
    change(&mut evaluation);
    let data = vec![1.0; grad.iter().product()];
    let grad = Tensor::new(&data, grad)?;
    sgp().gradients(&[x, x, w], &evaluation, grad).map(|_| ())
}

/// Runs the forward pass of [`sgp`] with buffers of given lengths.
fn forward(output: &[usize], saved: usize, workspace: usize) -> Result<(), Error> {
    let (x, w) = (vec![0.5_f32; 80], vec![0.1; 100]);
    let (x, w) = (Tensor::new(&x, &[8, 2, 5])?, Tensor::new(&w, &[5, 20])?);
    let mut data = vec![0.0; output.iter().product()];
    let (mut saved, mut workspace) = (vec![0.0; saved], vec![0.0; workspace]);
    let output = TensorMut::new(&mut data, output)?;
    sgp().forward(&[x, x, w], output, &mut saved, &mut workspace)
}

const FOREIGN: Tier = if cfg!(target_arch = "aarch64") {
    Tier::Avx512
} else {
    Tier::Neon
};

/// More workspace than any call of the table needs.
const PLENTY: usize = 1 << 16;

/// Sizes whose tensors take 2 PiB each in `f32`.
const ENORMOUS: Dims = Dims {
    batch: 1 << 30,
    in_channels: 1 << 16,
    out_channels: 1 << 16,
    scalar_channels: 0,
};

#[rustfmt::skip]
const TABLE: &[Row] = &[
    // Algebras.
    row!("a signature of nine vectors", "Algebra(DimensionTooLarge", ["p + q + r <= 8", "Cl(5,4,0)"], Signature::new(5, 4, 0)),
    row!("a signature of countless vectors", "Algebra(DimensionTooLarge", ["<= 8"], Signature::new(usize::MAX, usize::MAX, 1)),
    row!("a name that is no signature", "Algebra(InvalidSignature", ["clifford"], "clifford".parse::<Signature>()),
    row!("no name", "Algebra(InvalidSignature", ["expected"], "".parse::<Signature>()),
    row!("a negative signature", "Algebra(InvalidSignature", ["-1"], "3,0,-1".parse::<Signature>()),
    row!("a blade of another algebra", "Algebra(UnknownBlade", ["e4", "Cl(3,0,0)"], cl300().index_of_name("e4")),
    row!("a blade in another order", "Algebra(UnknownBlade", ["e21"], cl300().index_of_name("e21")),
    row!("a grade that no algebra has", "Algebra(GradeOutOfRange", ["9", "8"], GradeSet::try_of(&[0, 9])),
    row!("a grade that this algebra has not", "Algebra(GradeOutOfRange", ["4", "3"], cl300().check_grades(GradeSet::single(4))),
    row!("text that is no grades", "Algebra(InvalidGradeSet", ["a,b"], "a,b".parse::<GradeSet>()),
    row!("a product by a wrong name", "Algebra(UnknownProduct", ["geometric", "wedge"], "wedge".parse::<ProductKind>()),
    // Options by name and number.
    row!("a gate by a wrong name", "UnknownOption", ["gate", "gelu_tanh", "relu"], "relu".parse::<Gate>()),
    row!("a gate in capitals", "UnknownOption", ["gate", "gelu", "GELU"], "GELU".parse::<Gate>()),
    row!("a norm by a wrong name", "UnknownOption", ["norm", "rms", "l2"], "l2".parse::<Norm>()),
    row!("a bias by a wrong name", "UnknownOption", ["bias", "scalar", "yes"], "yes".parse::<Bias>()),
    row!("an invariant by a wrong name", "UnknownOption", ["mag2", "mag3"], "mag3".parse::<Invariant>()),
    row!("a layout by a wrong name", "UnknownOption", ["expected one of", "oig"], "oig".parse::<WeightLayout>()),
    row!("eps below 0 of sgp_norm", "InvalidOption", ["eps", "at least 0", "-1"], ops::sgp_norm(cl300(), &of_eps(-1.0))),
    row!("eps not a number of sgp_norm", "InvalidOption", ["eps", "finite", "NaN"], ops::sgp_norm(cl300(), &of_eps(f64::NAN))),
    row!("eps infinite of fcgp_norm", "InvalidOption", ["eps", "finite", "inf"], ops::fcgp_norm(cl300(), &of_eps(f64::INFINITY))),
    row!("eps below 0 of grade_rms", "InvalidOption", ["eps", "-0.5"], ops::grade_rms(cl300(), Norm::Invariant, -0.5)),
    row!("eps below 0 of the layer", "InvalidOption", ["eps", "-2"], layer(LinearOptions::default(), -2.0)),
    row!("eps minus infinity of grade_rms", "InvalidOption", ["eps", "finite", "-inf"], ops::grade_rms(cl300(), Norm::Invariant, f64::NEG_INFINITY)),
    row!("no thread", "InvalidOption", ["threads", "at least 1", "got 0"], threads::set(0)),
    row!("a tier by a wrong name", "TierUnavailable", ["available", "scalar"], sgp().with_tier(FOREIGN)),
    // Grades without kernels: the error names the operator that was called, and no program of it.
    row!("no grades of sgp_norm", "UnsupportedGrades", ["sgp_norm", "(none)"], ops::sgp_norm(cl300(), &of_grades(grades(&[]), None))),
    row!("no grades of the right operand", "UnsupportedGrades { operator: \"sgp_norm\"", ["sgp_norm of Cl(3,0,0)", "(none)", "expected grades"], ops::sgp_norm(cl300(), &of_grades(None, grades(&[])))),
    row!("no grades of the sandwich", "UnsupportedGrades { operator: \"sandwich\"", ["sandwich", "(none)"], ops::sandwich(cl300(), grades(&[]), None)),
    row!("a scalar bias of vectors, of the layer", "UnsupportedGrades { operator: \"mv_linear_sgp_norm with", ["mv_linear_sgp_norm", "scalar bias"], layer(linear(grades(&[1]), Bias::Scalar), 1e-6)),
    row!("a scalar bias of vectors", "UnsupportedGrades { operator: \"mv_linear", ["scalar bias", "grade 0"], ops::mv_linear(cl300(), &linear(grades(&[1]), Bias::Scalar))),
    row!("no grades of the commutator", "UnsupportedGrades", ["commutator_product", "(none)"], ops::product(cl300(), ProductKind::Commutator, grades(&[]), None)),
    row!("grades of another algebra of sgp_norm", "Algebra(GradeOutOfRange", ["5", "3"], ops::sgp_norm(cl300(), &of_grades(None, grades(&[5])))),
    row!("grades of another algebra of fcgp_norm", "Algebra(GradeOutOfRange", ["5", "3"], ops::fcgp_norm(cl300(), &of_grades(grades(&[0, 5]), None))),
    row!("grades of another algebra of mv_linear", "Algebra(GradeOutOfRange", ["4", "3"], ops::mv_linear(cl300(), &linear(grades(&[4]), Bias::None))),
    row!("grades of another algebra of a product", "Algebra(GradeOutOfRange", ["7", "3"], ops::product(cl300(), ProductKind::Scalar, grades(&[7]), grades(&[1]))),
    row!("grades of another algebra of the sandwich", "Algebra(GradeOutOfRange", ["4", "3"], ops::sandwich(cl300(), None, grades(&[4]))),
    // Tensors.
    row!("too few elements", "LengthMismatch", ["[2, 3]", "6", "5"], Tensor::new(&[0.0_f32; 5], &[2, 3])),
    row!("too many elements", "LengthMismatch", ["[2, 3]", "6", "7"], TensorMut::new(&mut [0.0_f64; 7], &[2, 3])),
    row!("elements of an empty shape", "LengthMismatch", ["[0, 3]", "0", "1"], Tensor::new(&[0_u8], &[0, 3])),
    row!("two elements of a number", "LengthMismatch", ["[]", "1", "2"], Tensor::new(&[0.0_f32; 2], &[])),
    row!("five axes", "ShapeTooLarge", ["[1, 1, 1, 1, 1]", "at most 4 axes"], Tensor::new(&[0.0_f32], &[1; 5])),
    row!("more elements than there are numbers", "ShapeTooLarge", ["too large"], Tensor::new(&[0.0_f32], &[usize::MAX, 2])),
    row!("an evaluation whose shape was changed", "LengthMismatch", ["[8, 2, 9]", "144", "80"], gradients(|e| e.output_shape = vec![8, 2, 9], &[8, 2, 5])),
    // Shapes.
    row!("the blades of another algebra", "ShapeMismatch", ["sgp_norm", "`x`", "[8, batch, in]", "[7, 2, 5]"], bind(&sgp(), &[&[7, 2, 5], &[8, 2, 5], &[5, 20]])),
    row!("two batches", "ShapeMismatch", ["sgp_norm", "`y`", "batch = 2", "[8, 3, 5]"], bind(&sgp(), &[&[8, 2, 5], &[8, 3, 5], &[5, 20]])),
    row!("two numbers of channels", "ShapeMismatch", ["`y`", "in = 5", "[8, 2, 6]"], bind(&sgp(), &[&[8, 2, 5], &[8, 2, 6], &[5, 20]])),
    row!("blades last", "ShapeMismatch", ["`x`", "[8, batch, in]", "[2, 5, 8]"], bind(&sgp(), &[&[2, 5, 8], &[2, 5, 8], &[5, 20]])),
    row!("two axes", "ShapeMismatch", ["`x`", "[8, 10]"], bind(&sgp(), &[&[8, 10], &[8, 2, 5], &[5, 20]])),
    row!("too few paths", "ShapeMismatch", ["`w`", "20", "[5, 19]"], bind(&sgp(), &[&[8, 2, 5], &[8, 2, 5], &[5, 19]])),
    row!("weights turned around", "ShapeMismatch", ["`w`", "in = 5", "[20, 5]"], bind(&sgp(), &[&[8, 2, 5], &[8, 2, 5], &[20, 5]])),
    row!("weights of sgp_norm for fcgp_norm", "ShapeMismatch", ["fcgp_norm", "`w`", "20", "[5, 20]"], bind(&fcgp(), &[&[8, 2, 5], &[8, 2, 5], &[5, 20]])),
    row!("weights for other channels of fcgp_norm", "ShapeMismatch", ["fcgp_norm", "`w`", "in = 5", "[20, 6, 7]"], bind(&fcgp(), &[&[8, 2, 5], &[8, 2, 5], &[20, 6, 7]])),
    row!("a map of other channels", "ShapeMismatch", ["mv_linear", "`weight`", "in = 5", "[7, 6, 4]"], bind(&map(WeightLayout::default()), &[&[8, 2, 5], &[7, 6, 4], &[7]])),
    row!("a map in the other order", "ShapeMismatch", ["mv_linear", "`weight`", "[7, 5, 4]"], bind(&map(WeightLayout::GradeInOut), &[&[8, 2, 5], &[7, 5, 4], &[7]])),
    row!("a bias of other channels", "ShapeMismatch", ["mv_linear", "`bias`", "out = 7", "[5]"], bind(&map(WeightLayout::default()), &[&[8, 2, 5], &[7, 5, 4], &[5]])),
    row!("a layer that changes the channels", "ShapeMismatch", ["mv_linear_sgp_norm", "`linear_weight`", "[6, 5, 4]"], bind(&layer(LinearOptions::default(), 1e-6)?, &[&[8, 2, 5], &[6, 5, 4], &[5], &[5, 20]])),
    row!("a map within a layer from other channels", "ShapeMismatch", ["`linear_weight`", "[in = 5, in = 5, 4]", "[5, 6, 4]"], bind(&layer(LinearOptions::default(), 1e-6)?, &[&[8, 2, 5], &[5, 6, 4], &[5], &[5, 20]])),
    row!("a bias of other channels within a layer", "ShapeMismatch", ["`linear_bias`", "[in = 5]", "[6]"], bind(&layer(LinearOptions::default(), 1e-6)?, &[&[8, 2, 5], &[5, 5, 4], &[6], &[5, 20]])),
    row!("weights of other channels within a layer", "ShapeMismatch", ["`w`", "[in = 5, 20]", "[6, 20]"], bind(&layer(LinearOptions::default(), 1e-6)?, &[&[8, 2, 5], &[5, 5, 4], &[5], &[6, 20]])),
    row!("a normalisation of other grades", "ShapeMismatch", ["steerable_product", "`a`", "[5, 3]"], bind(&steerable(), &[&[8, 2, 5], &[8, 2, 5], &[5, 20], &[5, 3], &[8, 2, 5]])),
    row!("no first-order term", "TensorCount", ["steerable_product", "expected 5 inputs", "x, r, w, a, l", "got 4"], bind(&steerable(), &[&[8, 2, 5], &[8, 2, 5], &[5, 20], &[5, 4]])),
    row!("no tensor", "TensorCount", ["expected 3 inputs", "x, y, w", "got 0"], bind(&sgp(), &[])),
    row!("a tensor too many", "TensorCount", ["reverse", "expected 1 inputs", "got 2"], bind(&ops::reverse(cl300())?, &[&[8, 2, 5], &[8, 2, 5]])),
    row!("an output that could not be addressed", "ShapeTooLarge", ["too large"], bind(&fcgp(), &[&[8, 1 << 40, 0], &[8, 1 << 40, 0], &[20, 0, 1 << 40]])),
    // Every unary operator names itself.
    row!("seven blades of the reverse", "ShapeMismatch", ["reverse", "[8, batch, in]", "[7, 1, 1]"], unary(ops::reverse(cl300()), &[7, 1, 1])),
    row!("seven blades of the dual", "ShapeMismatch", ["dual", "[7, 1, 1]"], unary(ops::dual(cl300()), &[7, 1, 1])),
    row!("seven blades of the norm", "ShapeMismatch", ["norm", "[7, 1, 1]"], unary(ops::norm(cl300()), &[7, 1, 1])),
    row!("two axes of grade_norms", "ShapeMismatch", ["grade_norms", "[8, 1]"], unary(ops::grade_norms(cl300()), &[8, 1])),
    row!("a number for grade_rms", "ShapeMismatch", ["grade_rms", "[]"], unary(ops::grade_rms(cl300(), Norm::Rms, 1e-6), &[])),
    row!("seven blades of a gate", "ShapeMismatch", ["gate", "[7, 1, 1]"], unary(ops::gate(cl300(), Gate::Silu), &[7, 1, 1])),
    row!("a layer norm without its parameter", "TensorCount", ["mv_layer_norm", "expected 2 inputs", "x, a"], unary(ops::mv_layer_norm(cl300()), &[8, 1, 1])),
    row!("a nonlinearity without its parameters", "TensorCount", ["mv_silu", "expected 3 inputs", "x, a, b"], unary(ops::mv_silu(cl300(), Invariant::Norm), &[8, 1, 1])),
    // Buffers.
    row!("an output of other channels", "ShapeMismatch", ["`o`", "[8, 2, 5]", "[8, 2, 4]"], forward(&[8, 2, 4], 8, PLENTY)),
    row!("too little room for the sums", "BufferTooSmall", ["sgp_norm", "saved", "at least 8", "got 7"], forward(&[8, 2, 5], 7, PLENTY)),
    row!("no workspace", "BufferTooSmall", ["sgp_norm", "workspace", "got 0"], forward(&[8, 2, 5], 8, 0)),
    row!("a gradient of another shape", "ShapeMismatch", ["`grad_o`", "[8, 2, 5]", "[8, 2, 1]"], gradients(|_| (), &[8, 2, 1])),
    row!("an output of another evaluation", "ShapeMismatch", ["`o`", "[8, 2, 5]", "[8, 5, 2]"], gradients(|e| e.output_shape = vec![8, 5, 2], &[8, 2, 5])),
    row!("sums that were lost", "BufferTooSmall", ["saved", "at least 8", "got 0"], gradients(|e| e.saved.clear(), &[8, 2, 5])),
    // Memory.
    row!("an output larger than all memory", "OutOfMemory", ["the forward pass with a batch of 1073741824", "(output 2097152 GiB", "to be available"], sgp().check_room(&ENORMOUS, Dtype::F32, Pass::Forward)),
    row!("gradients larger than all memory", "OutOfMemory", ["the backward pass", "(gradients 4194304 GiB", "to be available"], sgp().check_room_for(&ENORMOUS, Dtype::F32, &[true, true, false])),
];

fn table() -> impl Iterator<Item = &'static Row> {
    TABLE.iter().chain(crate::misuse_parts::TABLE)
}

#[test]
fn every_row_is_refused_as_it_says() {
    let rows = table().count();
    assert!(rows >= 110, "{rows} rows");
    let wrong: Vec<String> = table().filter_map(complaint).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A description of what is wrong with a row, if anything.
fn complaint(row: &Row) -> Option<String> {
    let Row {
        what,
        variant,
        says,
        call,
    } = row;
    let error = match catch_unwind(call) {
        Err(_) => return Some(format!("{what}: a panic")),
        Ok(Ok(())) => return Some(format!("{what}: no error")),
        Ok(Err(error)) => error,
    };
    let (message, debug) = (error.to_string(), format!("{error:?}"));
    if !debug.starts_with(variant) {
        return Some(format!("{what}: expected {variant}, got {debug}"));
    }
    if let Some(missing) = says.iter().find(|part| !message.contains(*part)) {
        return Some(format!("{what}: expected `{missing}` in `{message}`"));
    }
    let lacks = |words: &[&str]| !words.iter().any(|word| message.contains(word));
    if lacks(EXPECTED) {
        return Some(format!(
            "{what}: `{message}` does not say what was expected"
        ));
    }
    lacks(CAME).then(|| format!("{what}: `{message}` does not say what came"))
}

/// The words by which messages say what was expected, which is also what to do.
const EXPECTED: &[&str] = &["expected", "must", "holds", "available"];
/// The words by which messages say what came.
const CAME: &[&str] = &[
    "got",
    "found",
    "unknown",
    "no such operator between grades (",
    "does not support the",
    "shape [",
    "the memory of `",
    "has no setting",
];

#[test]
fn a_row_that_is_wrong_is_noticed() {
    let right = || {
        row!(
            "a signature",
            "Algebra(DimensionTooLarge",
            ["Cl(5,4,0)"],
            Signature::new(5, 4, 0)
        )
    };
    assert_eq!(complaint(&right()), None);
    let of = |row: Row| complaint(&row).is_some();
    assert!(of(Row {
        variant: "ShapeMismatch",
        ..right()
    }));
    assert!(of(Row {
        says: &["nothing of this"],
        ..right()
    }));
    assert!(of(Row {
        call: || Ok(()),
        ..right()
    }));
    assert!(of(Row {
        call: || panic!("for the test"),
        ..right()
    }));
}

#[test]
fn names_are_unique() {
    let mut names: Vec<&str> = table().map(|row| row.what).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), table().count());
}

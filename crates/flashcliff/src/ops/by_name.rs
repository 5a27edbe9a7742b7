// Written by `cargo xtask gen` from the operators, crates/flashcliff-program/src/operators.

use cayley::ProductKind;

use super::given::Given;
use super::options::{LinearOptions, LinearSgpOptions, ProductOptions, SteerableOptions};
use crate::{Algebra, Error, Gate, Invariant, Norm, Operator};

/// The operator of a name that the table has, with its settings; `None` for other names.
pub(super) fn by_name(
    algebra: Algebra,
    name: &str,
    given: &mut Given<'_>,
) -> Option<Result<Operator, Error>> {
    Some(match name {
        "sgp_norm" => sgp_norm(algebra, given),
        "fcgp_norm" => fcgp_norm(algebra, given),
        "mv_linear" => mv_linear(algebra, given),
        "mv_linear_sgp_norm" => mv_linear_sgp_norm(algebra, given),
        "steerable_product" => steerable_product(algebra, given),
        "product" => product(algebra, given),
        "sandwich" => sandwich(algebra, given),
        "reverse" => reverse(algebra, given),
        "grade_involution" => grade_involution(algebra, given),
        "clifford_conjugate" => clifford_conjugate(algebra, given),
        "dual" => dual(algebra, given),
        "undual" => undual(algebra, given),
        "grade_rms" => grade_rms(algebra, given),
        "gate" => gate(algebra, given),
        "grade_norm" => grade_norm(algebra, given),
        "mv_silu" => mv_silu(algebra, given),
        "mv_layer_norm" => mv_layer_norm(algebra, given),
        "norm" => norm(algebra, given),
        "grade_norms" => grade_norms(algebra, given),
        _ => return None,
    })
}

fn sgp_norm(algebra: Algebra, given: &mut Given<'_>) -> Result<Operator, Error> {
    let options = &product_options(given)?;
    given.finish("sgp_norm")?;
    super::sgp_norm(algebra, options)
}

fn fcgp_norm(algebra: Algebra, given: &mut Given<'_>) -> Result<Operator, Error> {
    let options = &product_options(given)?;
    given.finish("fcgp_norm")?;
    super::fcgp_norm(algebra, options)
}

fn mv_linear(algebra: Algebra, given: &mut Given<'_>) -> Result<Operator, Error> {
    let options = &linear_options(given)?;
    given.finish("mv_linear")?;
    super::mv_linear(algebra, options)
}

fn mv_linear_sgp_norm(algebra: Algebra, given: &mut Given<'_>) -> Result<Operator, Error> {
    let options = &linear_sgp_options(given)?;
    given.finish("mv_linear_sgp_norm")?;
    super::mv_linear_sgp_norm(algebra, options)
}

fn steerable_product(algebra: Algebra, given: &mut Given<'_>) -> Result<Operator, Error> {
    let options = &steerable_options(given)?;
    given.finish("steerable_product")?;
    super::steerable_product(algebra, options)
}

fn product(algebra: Algebra, given: &mut Given<'_>) -> Result<Operator, Error> {
    let kind = given.choice("kind", ProductKind::Geometric)?;
    let left = given.grades("left")?;
    let right = given.grades("right")?;
    given.finish("product")?;
    super::product(algebra, kind, left, right)
}

fn sandwich(algebra: Algebra, given: &mut Given<'_>) -> Result<Operator, Error> {
    let left = given.grades("left")?;
    let right = given.grades("right")?;
    given.finish("sandwich")?;
    super::sandwich(algebra, left, right)
}

fn reverse(algebra: Algebra, given: &Given<'_>) -> Result<Operator, Error> {
    given.finish("reverse")?;
    super::reverse(algebra)
}

fn grade_involution(algebra: Algebra, given: &Given<'_>) -> Result<Operator, Error> {
    given.finish("grade_involution")?;
    super::grade_involution(algebra)
}

fn clifford_conjugate(algebra: Algebra, given: &Given<'_>) -> Result<Operator, Error> {
    given.finish("clifford_conjugate")?;
    super::clifford_conjugate(algebra)
}

fn dual(algebra: Algebra, given: &Given<'_>) -> Result<Operator, Error> {
    given.finish("dual")?;
    super::dual(algebra)
}

fn undual(algebra: Algebra, given: &Given<'_>) -> Result<Operator, Error> {
    given.finish("undual")?;
    super::undual(algebra)
}

fn grade_rms(algebra: Algebra, given: &mut Given<'_>) -> Result<Operator, Error> {
    let norm = given.choice("norm", Norm::Invariant)?;
    let eps = given.number("eps", 1e-6)?;
    given.finish("grade_rms")?;
    super::grade_rms(algebra, norm, eps)
}

fn gate(algebra: Algebra, given: &mut Given<'_>) -> Result<Operator, Error> {
    let gate = given.choice("gate", Gate::Gelu)?;
    given.finish("gate")?;
    super::gate(algebra, gate)
}

fn grade_norm(algebra: Algebra, given: &Given<'_>) -> Result<Operator, Error> {
    given.finish("grade_norm")?;
    super::grade_norm(algebra)
}

fn mv_silu(algebra: Algebra, given: &mut Given<'_>) -> Result<Operator, Error> {
    let invariant = given.choice("invariant", Invariant::Mag2)?;
    given.finish("mv_silu")?;
    super::mv_silu(algebra, invariant)
}

fn mv_layer_norm(algebra: Algebra, given: &Given<'_>) -> Result<Operator, Error> {
    given.finish("mv_layer_norm")?;
    super::mv_layer_norm(algebra)
}

fn norm(algebra: Algebra, given: &Given<'_>) -> Result<Operator, Error> {
    given.finish("norm")?;
    super::norm(algebra)
}

fn grade_norms(algebra: Algebra, given: &Given<'_>) -> Result<Operator, Error> {
    given.finish("grade_norms")?;
    super::grade_norms(algebra)
}

fn product_options(given: &mut Given<'_>) -> Result<ProductOptions, Error> {
    let default = ProductOptions::default();
    Ok(ProductOptions {
        gate: given.choice("gate", default.gate)?,
        norm: given.choice("norm", default.norm)?,
        eps: given.number("eps", default.eps)?,
        left: given.grades("left")?,
        right: given.grades("right")?,
    })
}

fn linear_options(given: &mut Given<'_>) -> Result<LinearOptions, Error> {
    let default = LinearOptions::default();
    Ok(LinearOptions {
        per_grade: given.flag("per_grade", default.per_grade)?,
        bias: given.choice("bias", default.bias)?,
        grades: given.grades("grades")?,
        weight_layout: given.choice("weight_layout", default.weight_layout)?,
    })
}

fn linear_sgp_options(given: &mut Given<'_>) -> Result<LinearSgpOptions, Error> {
    let default = LinearSgpOptions::default();
    Ok(LinearSgpOptions {
        linear: linear_options(given)?,
        gate: given.choice("gate", default.gate)?,
        norm: given.choice("norm", default.norm)?,
        eps: given.number("eps", default.eps)?,
        recompute: given.flag("recompute", default.recompute)?,
    })
}

fn steerable_options(given: &mut Given<'_>) -> Result<SteerableOptions, Error> {
    let default = SteerableOptions::default();
    Ok(SteerableOptions {
        first_order: given.flag("first_order", default.first_order)?,
        normalize: given.flag("normalize", default.normalize)?,
    })
}

//! The core's operators as differentiable functions of candle tensors.
//!
//! Multivector tensors are `[blades, batch, channels]`; `C` is a number of channels, `G` the number
//! of grades, `P` the number of paths. Every function builds its operator and applies it
//! ([`apply`]); a layer that runs often keeps the operator instead. All of them take `f32` or `f64`,
//! on a GPU also `bf16` and `f16`, and fail as [`apply`] does, or because the algebra has no kernels for the options.

use candle_core::{Result, Tensor};
use flashcliff::ops::{self, LinearOptions, LinearSgpOptions, ProductOptions, SteerableOptions};
use flashcliff::{Algebra, Error, Gate, GradeSet, Invariant, Norm, Operator, ProductKind};

use crate::op::apply;

/// Gated, weighted geometric product of channels with themselves, then an RMS norm per grade.
///
/// `o = norm(sum_ik w[c, path(i,j,k)] e(i,j,k) gate(x)_i gate(y)_k)`, with the sign `e` of the
/// Cayley table, `gate(x) = gate(x_0) x`, and `norm(o)_j = o_j / sqrt(mean_c sum_(i in grade j)
/// o_i^2 + eps)`.
///
/// | tensor | shape |
/// |---|---|
/// | `x`, `y` | `[blades, batch, C]` |
/// | `w` | `[C, P]` |
/// | output | `[blades, batch, C]` |
///
/// Source: flash-clifford, `fused_gp_norm`.
pub fn sgp_norm(
    algebra: Algebra,
    options: &ProductOptions,
    x: &Tensor,
    y: &Tensor,
    w: &Tensor,
) -> Result<Tensor> {
    run(ops::sgp_norm(algebra, options), &[x, y, w])
}

/// Gated, weighted geometric product of all input channels into all output channels, then an RMS
/// norm per grade.
///
/// As [`sgp_norm`], with `sum_n w[path(i,j,k), n, m] ...` over the input channels `n`.
///
/// | tensor | shape |
/// |---|---|
/// | `x`, `y` | `[blades, batch, in]` |
/// | `w` | `[P, in, out]` |
/// | output | `[blades, batch, out]` |
///
/// [`apply_with`](crate::op::apply_with) bounds its memory on a GPU.
///
/// Source: flash-clifford, fully connected form; CGENN's
/// `FullyConnectedSteerableGeometricProductLayer`.
pub fn fcgp_norm(
    algebra: Algebra,
    options: &ProductOptions,
    x: &Tensor,
    y: &Tensor,
    w: &Tensor,
) -> Result<Tensor> {
    run(ops::fcgp_norm(algebra, options), &[x, y, w])
}

/// Linear map of channels with one matrix per grade, or one for all: `o_i = W[.., grade(i)] x_i (+
/// bias)`.
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades, batch, in]` |
/// | `weight` | `[out, in, G]`, or `[out, in]` without `per_grade` |
/// | `bias` | `[out]`, exactly when the options ask for one |
/// | output | `[blades, batch, out]` |
///
/// Source: CGENN, `MVLinear` (arXiv 2305.11141, section 4).
pub fn mv_linear(
    algebra: Algebra,
    options: &LinearOptions,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
) -> Result<Tensor> {
    let mut inputs = vec![x, weight];
    inputs.extend(bias);
    run(ops::mv_linear(algebra, options), &inputs)
}

/// [`sgp_norm`] of `x` with [`mv_linear`] of it, in one node: flash-clifford's layer.
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades, batch, C]` |
/// | `linear_weight` | `[C, C, G]`, or `[C, C]` without `per_grade` |
/// | `linear_bias` | `[C]`, exactly when the options ask for one |
/// | `w` | `[C, P]` |
/// | output | `[reachable blades, batch, C]` |
///
/// Source: flash-clifford, `modules/layer.py`.
pub fn mv_linear_sgp_norm(
    algebra: Algebra,
    options: &LinearSgpOptions,
    x: &Tensor,
    linear_weight: &Tensor,
    linear_bias: Option<&Tensor>,
    w: &Tensor,
) -> Result<Tensor> {
    let mut inputs = vec![x, linear_weight];
    inputs.extend(linear_bias);
    inputs.push(w);
    run(ops::mv_linear_sgp_norm(algebra, options), &inputs)
}

/// Learned normalisation per grade: `o_g = x_g / (sigmoid(a_g) (|x_g| - 1) + 1 + 1e-6)`, with the
/// smooth norm of [`grade_norms`].
///
/// | tensor | shape |
/// |---|---|
/// | `x`, output | `[blades, batch, C]` |
/// | `a` | `[C, G]` |
///
/// Source: CGENN, `NormalizationLayer` (arXiv 2305.11141, section 3).
pub fn grade_norm(algebra: Algebra, x: &Tensor, a: &Tensor) -> Result<Tensor> {
    run(ops::grade_norm(algebra), &[x, a])
}

/// Weighted geometric product `z = sum_ik w[c, path(i,j,k)] e(i,j,k) x_i r_k` with CGENN's
/// surroundings.
///
/// With `a`, `r` is normalised first as by [`grade_norm`]. With `l`, the output is `(l + z) / sqrt
/// 2`, else `z`.
///
/// | tensor | shape |
/// |---|---|
/// | `x`, `r`, `l`, output | `[blades, batch, C]` |
/// | `w` | `[C, P]` |
/// | `a` | `[C, G]` |
///
/// Source: CGENN, `SteerableGeometricProductLayer` (arXiv 2305.11141, section 4).
pub fn steerable_product(
    algebra: Algebra,
    x: &Tensor,
    r: &Tensor,
    w: &Tensor,
    a: Option<&Tensor>,
    l: Option<&Tensor>,
) -> Result<Tensor> {
    let options = SteerableOptions {
        first_order: l.is_some(),
        normalize: a.is_some(),
    };
    let mut inputs = vec![x, r, w];
    inputs.extend(a);
    inputs.extend(l);
    run(ops::steerable_product(algebra, &options), &inputs)
}

/// Gate per grade: `o_g = sigmoid(a_g u_g + b_g) x_g`, with `u_0 = x_0` and `u_g` an invariant of
/// `x_g` above.
///
/// | tensor | shape |
/// |---|---|
/// | `x`, output | `[blades, batch, C]` |
/// | `a`, `b` | `[C, G]` |
///
/// Source: CGENN, `MVSiLU`.
pub fn mv_silu(
    algebra: Algebra,
    invariant: Invariant,
    x: &Tensor,
    a: &Tensor,
    b: &Tensor,
) -> Result<Tensor> {
    run(ops::mv_silu(algebra, invariant), &[x, a, b])
}

/// Norm over channels: `o = a x / (mean_c |x_c| + 1e-6)`, with the smooth norm of [`norm`].
///
/// | tensor | shape |
/// |---|---|
/// | `x`, output | `[blades, batch, C]` |
/// | `a` | `[C, 1]` |
///
/// Source: CGENN, `MVLayerNorm`.
pub fn mv_layer_norm(algebra: Algebra, x: &Tensor, a: &Tensor) -> Result<Tensor> {
    run(ops::mv_layer_norm(algebra), &[x, a])
}

/// A bilinear product of multivectors, blade sets as given (`None` is all grades); the output holds
/// the grades that can be reached.
///
/// `x`, `y`, output: `[their blades, batch, C]`.
pub fn product(
    algebra: Algebra,
    kind: ProductKind,
    left: Option<GradeSet>,
    right: Option<GradeSet>,
    x: &Tensor,
    y: &Tensor,
) -> Result<Tensor> {
    run(ops::product(algebra, kind, left, right), &[x, y])
}

/// The sandwich product `x y reverse(x)`. `x`, `y`, output: `[their blades, batch, C]`.
pub fn sandwich(
    algebra: Algebra,
    left: Option<GradeSet>,
    right: Option<GradeSet>,
    x: &Tensor,
    y: &Tensor,
) -> Result<Tensor> {
    run(ops::sandwich(algebra, left, right), &[x, y])
}

/// Reversion: grade `k` times `(-1)^(k(k-1)/2)`. `[blades, batch, C]` to the same.
pub fn reverse(algebra: Algebra, x: &Tensor) -> Result<Tensor> {
    run(ops::reverse(algebra), &[x])
}

/// Grade involution: grade `k` times `(-1)^k`. `[blades, batch, C]` to the same.
pub fn grade_involution(algebra: Algebra, x: &Tensor) -> Result<Tensor> {
    run(ops::grade_involution(algebra), &[x])
}

/// Clifford conjugation: grade `k` times `(-1)^(k(k+1)/2)`. `[blades, batch, C]` to the same.
pub fn clifford_conjugate(algebra: Algebra, x: &Tensor) -> Result<Tensor> {
    run(ops::clifford_conjugate(algebra), &[x])
}

/// The dual, with the convention of the core. `[blades, batch, C]` to the same.
pub fn dual(algebra: Algebra, x: &Tensor) -> Result<Tensor> {
    run(ops::dual(algebra), &[x])
}

/// The inverse of [`dual`]. `[blades, batch, C]` to the same.
pub fn undual(algebra: Algebra, x: &Tensor) -> Result<Tensor> {
    run(ops::undual(algebra), &[x])
}

/// The smooth norm of whole multivectors, `(q^2 + 1e-16)^(1/4)` with `q = <reverse(x) x>_0`.
/// `[blades, batch, C]` to `[1, batch, C]`.
pub fn norm(algebra: Algebra, x: &Tensor) -> Result<Tensor> {
    run(ops::norm(algebra), &[x])
}

/// The smooth norm of each grade. `[blades, batch, C]` to `[G, batch, C]`.
pub fn grade_norms(algebra: Algebra, x: &Tensor) -> Result<Tensor> {
    run(ops::grade_norms(algebra), &[x])
}

/// Every blade times a function of the scalar component. `[blades, batch, C]` to the same.
pub fn gate(algebra: Algebra, gate: Gate, x: &Tensor) -> Result<Tensor> {
    run(ops::gate(algebra, gate), &[x])
}

/// Norm per grade and batch element: `o_g = x_g / sqrt(mean_c |x_g|^2 + eps)`, where [`Norm`] says what
/// `|x_g|^2` is. `[blades, batch, C]` to the same.
///
/// # Errors
/// [`Norm::None`], which leaves nothing to do; an epsilon that is negative or not finite.
pub fn grade_rms(algebra: Algebra, norm: Norm, eps: f64, x: &Tensor) -> Result<Tensor> {
    run(ops::grade_rms(algebra, norm, eps), &[x])
}

/// Points as the vector part of full multivectors: `[batch, points, dim]` to `[blades, batch,
/// points]`.
///
/// # Errors
/// Points whose dimension is not the algebra's.
pub fn embed_points(algebra: Algebra, points: &Tensor) -> Result<Tensor> {
    let vectors = point_vectors(algebra, points)?;
    let rest = algebra.blade_count() - 1 - vectors.dim(0)?;
    vectors.pad_with_zeros(0, 1, rest)
}

/// Points as vectors only: `[batch, points, dim]` to `[dim, batch, points]`, contiguous.
///
/// # Errors
/// Points whose dimension is not the algebra's.
pub fn point_vectors(algebra: Algebra, points: &Tensor) -> Result<Tensor> {
    let dim = algebra.signature().dim();
    match *points.dims() {
        [_, _, got] if got == dim => points.permute((2, 0, 1))?.contiguous(),
        _ => Err(crate::Error::Shape {
            tensor: "points".to_owned(),
            expected: format!("[batch, points, {dim}]"),
            got: points.dims().to_vec(),
        }
        .into()),
    }
}

fn run(operator: std::result::Result<Operator, Error>, inputs: &[&Tensor]) -> Result<Tensor> {
    let operator = operator.map_err(crate::Error::from)?;
    apply(&operator, inputs)
}

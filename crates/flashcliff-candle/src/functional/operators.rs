// Written by `cargo xtask gen` from the operators, crates/flashcliff-program/src/operators.

use candle_core::{Result, Tensor};
use flashcliff::ops::{self, LinearOptions, LinearSgpOptions, ProductOptions, SteerableOptions};
use flashcliff::{Algebra, Gate, GradeSet, Invariant, Norm, ProductKind};

use super::run;

/// The fused steerable geometric product: gates, a weighted geometric product, a norm.
///
/// ```text
/// o = norm(sum over paths p of w[c, p] <<x'>_a <y'>_b>_p), x' = gate(x_0) x, y' alike
/// ```
///
/// Paths are in lexicographic order of (left, output, right). Saved for the backward pass: one sum
/// per output grade and batch element.
///
/// The norm sums squares of the product. In `f32` the sum over the blades of a grade and all
/// channels of a batch element must stay below 3.4e38: products up to `1.8e19 / sqrt(blades C)`,
/// which operands of some 1e8 have. Beyond it the grade is 0, or not a number where the squares
/// have both signs: scale the weights.
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades of left, batch, C]` |
/// | `y` | `[blades of right, batch, C]` |
/// | `w` | `[C, paths]` |
/// | `o` | `[reachable blades, batch, C]` |
///
/// Source: flash-clifford's `fused_gelu_sgp_norm`; the product is CGENN's (arXiv 2305.11141,
/// section 4), gate and norm are flash-clifford's.
pub fn sgp_norm(algebra: Algebra, options: &ProductOptions, x: &Tensor, y: &Tensor, w: &Tensor) -> Result<Tensor> {
    run(ops::sgp_norm(algebra, options), &[Some(x), Some(y), Some(w)])
}

/// The fused fully connected geometric product: [`sgp_norm`] from all channels to all channels.
///
/// ```text
/// o[m] = norm(sum over n and paths p of w[p, n, m] <<x'[n]>_a <y'[n]>_b>_p)
/// ```
///
/// There is one matrix product for each path, whose left operand is formed from `x` and `y` block
/// by block. Saved for the backward pass: one sum per output grade and batch element.
///
/// The range of the norm is that of [`sgp_norm`], here of sums over `n`.
///
/// On CUDA the path products of a block of rows, and their gradients, are written to the workspace
/// in the type of the tensors, for cuBLASLt to multiply. A block takes 256 MiB at the most, or what
/// a tuning table or `cuda::Operator::with_block_bytes` says, or as much as a single row needs.
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades of left, batch, in]` |
/// | `y` | `[blades of right, batch, in]` |
/// | `w` | `[paths, in, out]` |
/// | `o` | `[reachable blades, batch, out]` |
///
/// Source: flash-clifford's `fused_gelu_fcgp_norm`; CGENN's fully connected product (arXiv
/// 2305.11141, section 4).
pub fn fcgp_norm(algebra: Algebra, options: &ProductOptions, x: &Tensor, y: &Tensor, w: &Tensor) -> Result<Tensor> {
    run(ops::fcgp_norm(algebra, options), &[Some(x), Some(y), Some(w)])
}

/// The linear map of channels, with a matrix for each grade.
///
/// ```text
/// o[m] = sum over n of weight[m, n, grade] x[n] (+ bias[m])
/// ```
///
/// Without `per_grade` the weight is `[out, in]`; the layout `grade_in_out` reverses its axes.
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades of grades, batch, in]` |
/// | `weight` | `[out, in, grades]` |
/// | `bias` | `[out]`, unless the bias is `none` |
/// | `o` | `[blades of grades, batch, out]` |
///
/// Source: CGENN's `MVLinear` (arXiv 2305.11141, section 4).
pub fn mv_linear(algebra: Algebra, options: &LinearOptions, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    run(ops::mv_linear(algebra, options), &[Some(x), Some(weight), bias])
}

/// The gated product of `x` with a linear map of it: flash-clifford's layer.
///
/// ```text
/// o = sgp_norm(x, y, w), y = mv_linear(x, linear_weight, linear_bias)
/// ```
///
/// Without `per_grade` the weight of the map is `[C, C]`; the layout `grade_in_out` puts grades
/// first.
///
/// Saved for the backward pass: `y` in the type of `x`, and one sum per output grade and batch
/// element. With `recompute` the sums alone: `y` is then in the workspace of each pass. The range
/// of the norm is that of [`sgp_norm`].
///
/// The output, and all gradients but that of `x`, are the same bits as of the two operators in
/// turn. In the backward pass the linear map adds to the gradient of `x` in place. This saves a
/// pass over memory; that gradient may differ in its last bits.
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades of grades, batch, C]` |
/// | `linear_weight` | `[C, C, grades]` |
/// | `linear_bias` | `[C]`, unless the bias is `none` |
/// | `w` | `[C, paths]` |
/// | `o` | `[reachable blades, batch, C]` |
///
/// Source: flash-clifford's `Layer`.
pub fn mv_linear_sgp_norm(algebra: Algebra, options: &LinearSgpOptions, x: &Tensor, linear_weight: &Tensor, linear_bias: Option<&Tensor>, w: &Tensor) -> Result<Tensor> {
    run(ops::mv_linear_sgp_norm(algebra, options), &[Some(x), Some(linear_weight), linear_bias, Some(w)])
}

/// CGENN's weighted geometric product, as it stands between its linear maps.
///
/// ```text
/// o = (l + z) / sqrt 2, z = sum over paths p of w[c, p] <<x>_a <r'>_b>_p, r' = grade_norm(r, a)
/// ```
///
/// Without `l` the output is `z`; without `a` the right operand is `r` itself.
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades, batch, C]` |
/// | `r` | `[blades, batch, C]` |
/// | `w` | `[C, paths]` |
/// | `a` | `[C, grades]`, with `normalize` |
/// | `l` | `[blades, batch, C]`, with `first_order` |
/// | `o` | `[blades, batch, C]` |
///
/// Source: CGENN's `SteerableGeometricProductLayer` (arXiv 2305.11141, section 4).
pub fn steerable_product(algebra: Algebra, x: &Tensor, r: &Tensor, w: &Tensor, a: Option<&Tensor>, l: Option<&Tensor>) -> Result<Tensor> {
    let options = SteerableOptions::default().with_normalize(a.is_some()).with_first_order(l.is_some());
    run(ops::steerable_product(algebra, &options), &[Some(x), Some(r), Some(w), a, l])
}

/// A product of `x` and `y` without weights, channel by channel.
///
/// Only terms between the grades of the operands are computed, and only reachable blades are
/// written. Where no blade can be reached, as by the commutator in one dimension, the output has
/// all blades and is zero.
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades of left, batch, C]` |
/// | `y` | `[blades of right, batch, C]` |
/// | `o` | `[reachable blades, batch, C]` |
///
/// * `kind`: Which product. The program and Python take `geometric` by default.
///
/// * `left`: The grades that `x` carries. Its tensor holds the blades of these grades only. `None`
///   is all of them.
///
/// * `right`: The grades that `y` carries. Its tensor holds the blades of these grades only. `None`
///   is all of them.
///
/// Source: Dorst, Fontijne and Mann, Geometric Algebra for Computer Science (2007), chapters 2, 3,
/// 6 and 8; the regressive product by complements: Lengyel, Foundations of Game Engine Development,
/// volume 1 (2016), chapter 4.
pub fn product(algebra: Algebra, kind: ProductKind, left: Option<GradeSet>, right: Option<GradeSet>, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    run(ops::product(algebra, kind, left, right), &[Some(x), Some(y)])
}

/// The sandwich `x y reverse(x)`: for a unit versor `x` its action on `y`, up to a sign.
///
/// For an even versor, a rotor, it is the action. For an odd versor, such as a reflection, it is
/// the action with the odd grades of `y` negated: a unit vector `n` with `n n = 1` keeps `n` and
/// negates the vectors at right angles to it, where the reflection does the reverse. The action is
/// then the sandwich of `x` with [`grade_involution`] of `y`. In both cases the result is
/// multiplied by the number `x reverse(x)`, which is 1 or -1 for a unit versor.
///
/// The output has the blades of the grades that `x y` times `x` can reach and whose sign under the
/// reverse is that of a grade of `y`, in ascending order: more than `y` has if `x` is not a versor.
/// Python's `Algebra.reachable("sandwich", left, right)` and
/// `cayley::Algebra::reachable_by_sandwich` list them. Blades of these grades whose terms cancel
/// are zeros. Where no grade can be reached, the output has all blades and is zero, as that of
/// [`product`].
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades of left, batch, C]` |
/// | `y` | `[blades of right, batch, C]` |
/// | `o` | `[reachable blades, batch, C]` |
///
/// * `left`: The grades that `x` carries. Its tensor holds the blades of these grades only. `None`
///   is all of them.
///
/// * `right`: The grades that `y` carries. Its tensor holds the blades of these grades only. `None`
///   is all of them.
///
/// Source: Dorst, Fontijne and Mann, Geometric Algebra for Computer Science (2007), chapter 7.
pub fn sandwich(algebra: Algebra, left: Option<GradeSet>, right: Option<GradeSet>, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    run(ops::sandwich(algebra, left, right), &[Some(x), Some(y)])
}

/// The reverse: grade `k` times `(-1)^(k(k-1)/2)`.
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades, batch, C]` |
/// | `o` | `[blades, batch, C]` |
///
/// Source: Dorst, Fontijne and Mann, Geometric Algebra for Computer Science (2007), chapter 2;
/// `beta` in CGENN's code.
pub fn reverse(algebra: Algebra, x: &Tensor) -> Result<Tensor> {
    run(ops::reverse(algebra), &[Some(x)])
}

/// The grade involution: grade `k` times `(-1)^k`.
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades, batch, C]` |
/// | `o` | `[blades, batch, C]` |
///
/// Source: Dorst, Fontijne and Mann, Geometric Algebra for Computer Science (2007), chapter 2;
/// `alpha` in CGENN's code.
pub fn grade_involution(algebra: Algebra, x: &Tensor) -> Result<Tensor> {
    run(ops::grade_involution(algebra), &[Some(x)])
}

/// The Clifford conjugate: grade `k` times `(-1)^(k(k+1)/2)`.
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades, batch, C]` |
/// | `o` | `[blades, batch, C]` |
///
/// Source: The grade involution of the reverse; `gamma` in CGENN's code.
pub fn clifford_conjugate(algebra: Algebra, x: &Tensor) -> Result<Tensor> {
    run(ops::clifford_conjugate(algebra), &[Some(x)])
}

/// The dual without a metric, the right complement: `e_a ^ dual(e_a) = I`.
///
/// It commutes with rotations among vectors of the same square. Reflections along such vectors
/// change its sign. Boosts and translations act on a vector and on its complement in different
/// ways: a layer that mixes a multivector with its dual is not equivariant under them. The
/// regressive product of two multivectors is equivariant, up to a sign under reflections.
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades, batch, C]` |
/// | `o` | `[blades, batch, C]` |
///
/// Source: Lengyel, Foundations of Game Engine Development, volume 1 (2016), chapter 4: the right
/// complement.
pub fn dual(algebra: Algebra, x: &Tensor) -> Result<Tensor> {
    run(ops::dual(algebra), &[Some(x)])
}

/// The inverse of [`dual`], the left complement; both commute with the same transformations.
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades, batch, C]` |
/// | `o` | `[blades, batch, C]` |
///
/// Source: Lengyel, Foundations of Game Engine Development, volume 1 (2016), chapter 4: the left
/// complement.
pub fn undual(algebra: Algebra, x: &Tensor) -> Result<Tensor> {
    run(ops::undual(algebra), &[Some(x)])
}

/// The norm of [`sgp_norm`], for each grade and batch element, over channels.
///
/// ```text
/// o_g = x_g / sqrt(mean over channels of |x_g|^2 + eps)
/// ```
///
/// In `f32` the sum of the squares of a grade, over its blades and all channels of a batch element,
/// must stay below 3.4e38: numbers up to `1.8e19 / sqrt(blades C)`. Beyond it the grade is 0, or
/// not a number where the squares have both signs.
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades, batch, C]` |
/// | `o` | `[blades, batch, C]` |
///
/// * `norm`: The form of `|x_g|^2`. The program and Python take `invariant` by default.
///
/// * `eps`: Added under the root of the mean; where the quadratic form can be negative, it smooths
///   the magnitude instead. The program and Python take `1e-6` by default.
///
/// Source: flash-clifford.
pub fn grade_rms(algebra: Algebra, norm: Norm, eps: f64, x: &Tensor) -> Result<Tensor> {
    run(ops::grade_rms(algebra, norm, eps), &[Some(x)])
}

/// The gate of [`sgp_norm`]: every blade times a function of the scalar component.
///
/// ```text
/// o = gate(x_0) x
/// ```
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades, batch, C]` |
/// | `o` | `[blades, batch, C]` |
///
/// * `gate`: The function of the scalar component that multiplies every blade. The program and
///   Python take `gelu` by default.
///
/// Source: flash-clifford.
pub fn gate(algebra: Algebra, gate: Gate, x: &Tensor) -> Result<Tensor> {
    run(ops::gate(algebra, gate), &[Some(x)])
}

/// CGENN's learned normalisation of each grade.
///
/// ```text
/// o_g = x_g / (s (|x_g| - 1) + 1 + 1e-6), s = sigmoid(a_g)
/// ```
///
/// `|x_g|` is the smooth norm of [`grade_norms`].
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades, batch, C]` |
/// | `a` | `[C, grades]` |
/// | `o` | `[blades, batch, C]` |
///
/// Source: CGENN's `NormalizationLayer` (arXiv 2305.11141, section 4).
pub fn grade_norm(algebra: Algebra, x: &Tensor, a: &Tensor) -> Result<Tensor> {
    run(ops::grade_norm(algebra), &[Some(x), Some(a)])
}

/// CGENN's gated nonlinearity.
///
/// ```text
/// o_g = sigmoid(a_g u_g + b_g) x_g
/// ```
///
/// `u_0` is the scalar component, `u_g` an invariant of the grade.
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades, batch, C]` |
/// | `a` | `[C, grades]` |
/// | `b` | `[C, grades]` |
/// | `o` | `[blades, batch, C]` |
///
/// * `invariant`: The invariant of the grades above 0. The program and Python take `mag2` by
///   default.
///
/// Source: CGENN's `MVSiLU`.
pub fn mv_silu(algebra: Algebra, invariant: Invariant, x: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    run(ops::mv_silu(algebra, invariant), &[Some(x), Some(a), Some(b)])
}

/// CGENN's layer norm.
///
/// ```text
/// o = a x / (mean over channels of |x| + 1e-6)
/// ```
///
/// `|x|` is the smooth norm of the whole multivector, [`norm`]. Saved for the backward pass: one
/// sum per batch element.
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades, batch, C]` |
/// | `a` | `[C, 1]` |
/// | `o` | `[blades, batch, C]` |
///
/// Source: CGENN's `MVLayerNorm`.
pub fn mv_layer_norm(algebra: Algebra, x: &Tensor, a: &Tensor) -> Result<Tensor> {
    run(ops::mv_layer_norm(algebra), &[Some(x), Some(a)])
}

/// The smooth norm of a multivector.
///
/// ```text
/// o = (q(x)^2 + 1e-16)^(1/4), q(x) = <reverse(x) x>_0
/// ```
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades, batch, C]` |
/// | `o` | `[1, batch, C]` |
///
/// Source: CGENN's `norm` (arXiv 2305.11141, section 3).
pub fn norm(algebra: Algebra, x: &Tensor) -> Result<Tensor> {
    run(ops::norm(algebra), &[Some(x)])
}

/// The smooth norm of each grade.
///
/// ```text
/// o_g = (q(x_g)^2 + 1e-16)^(1/4), q(x) = <reverse(x) x>_0
/// ```
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades, batch, C]` |
/// | `o` | `[grades, batch, C]` |
///
/// Source: CGENN's `norms` (arXiv 2305.11141, section 3).
pub fn grade_norms(algebra: Algebra, x: &Tensor) -> Result<Tensor> {
    run(ops::grade_norms(algebra), &[Some(x)])
}

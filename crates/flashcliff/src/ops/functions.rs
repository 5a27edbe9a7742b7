// Written by `cargo xtask gen` from the operators, crates/flashcliff-program/src/operators.

use cayley::{GradeSet, ProductKind};

use super::{Setting, make};
use super::options::{LinearOptions, LinearSgpOptions, ProductOptions, SteerableOptions};
#[allow(unused_imports, reason = "links of the documentation")]
use crate::{Algebra, Bias, Error, Gate, Invariant, Norm, Operator, WeightLayout};

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
///
/// # Errors
/// [`Error::UnsupportedGrades`] for grades without a product, [`Error::InvalidOption`].
pub fn sgp_norm(algebra: Algebra, options: &ProductOptions) -> Result<Operator, Error> {
    make::lanes("sgp_norm", algebra, &options.settings())
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
///
/// # Errors
/// [`Error::Algebra`] for grades the algebra does not have, [`Error::InvalidOption`].
pub fn fcgp_norm(algebra: Algebra, options: &ProductOptions) -> Result<Operator, Error> {
    make::fcgp_norm(algebra, options)
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
///
/// # Errors
/// [`Error::Algebra`] for grades the algebra does not have. With [`Bias::Scalar`] the grades must
/// include 0: [`Error::UnsupportedGrades`].
pub fn mv_linear(algebra: Algebra, options: &LinearOptions) -> Result<Operator, Error> {
    make::mv_linear(algebra, options)
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
///
/// # Errors
/// The errors of [`mv_linear`] and [`sgp_norm`]; grades without scalars take no [`Bias::Scalar`].
pub fn mv_linear_sgp_norm(algebra: Algebra, options: &LinearSgpOptions) -> Result<Operator, Error> {
    make::mv_linear_sgp_norm(algebra, options)
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
///
/// # Errors
/// None.
pub fn steerable_product(algebra: Algebra, options: &SteerableOptions) -> Result<Operator, Error> {
    make::lanes("steerable_product", algebra, &options.settings())
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
///
/// # Errors
/// [`Error::UnsupportedGrades`] for operands without grades.
pub fn product(algebra: Algebra, kind: ProductKind, left: Option<GradeSet>, right: Option<GradeSet>) -> Result<Operator, Error> {
    make::lanes("product", algebra, &[("kind", Setting::Name(kind.name())), ("left", Setting::Grades(left)), ("right", Setting::Grades(right))])
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
///
/// # Errors
/// [`Error::UnsupportedGrades`] for operands without grades.
pub fn sandwich(algebra: Algebra, left: Option<GradeSet>, right: Option<GradeSet>) -> Result<Operator, Error> {
    make::lanes("sandwich", algebra, &[("left", Setting::Grades(left)), ("right", Setting::Grades(right))])
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
///
/// # Errors
/// None.
pub fn reverse(algebra: Algebra) -> Result<Operator, Error> {
    make::lanes("reverse", algebra, &[])
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
///
/// # Errors
/// None.
pub fn grade_involution(algebra: Algebra) -> Result<Operator, Error> {
    make::lanes("grade_involution", algebra, &[])
}

/// The Clifford conjugate: grade `k` times `(-1)^(k(k+1)/2)`.
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades, batch, C]` |
/// | `o` | `[blades, batch, C]` |
///
/// Source: The grade involution of the reverse; `gamma` in CGENN's code.
///
/// # Errors
/// None.
pub fn clifford_conjugate(algebra: Algebra) -> Result<Operator, Error> {
    make::lanes("clifford_conjugate", algebra, &[])
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
///
/// # Errors
/// None.
pub fn dual(algebra: Algebra) -> Result<Operator, Error> {
    make::lanes("dual", algebra, &[])
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
///
/// # Errors
/// None.
pub fn undual(algebra: Algebra) -> Result<Operator, Error> {
    make::lanes("undual", algebra, &[])
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
///
/// # Errors
/// [`Error::InvalidOption`] for an `eps` that is negative or not finite, [`Error::UnknownOption`]
/// for [`Norm::None`].
pub fn grade_rms(algebra: Algebra, norm: Norm, eps: f64) -> Result<Operator, Error> {
    make::lanes("grade_rms", algebra, &[("norm", Setting::Name(norm.name())), ("eps", Setting::Number(eps))])
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
///
/// # Errors
/// None.
pub fn gate(algebra: Algebra, gate: Gate) -> Result<Operator, Error> {
    make::lanes("gate", algebra, &[("gate", Setting::Name(gate.name()))])
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
///
/// # Errors
/// None.
pub fn grade_norm(algebra: Algebra) -> Result<Operator, Error> {
    make::lanes("grade_norm", algebra, &[])
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
///
/// # Errors
/// None.
pub fn mv_silu(algebra: Algebra, invariant: Invariant) -> Result<Operator, Error> {
    make::lanes("mv_silu", algebra, &[("invariant", Setting::Name(invariant.name()))])
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
///
/// # Errors
/// None.
pub fn mv_layer_norm(algebra: Algebra) -> Result<Operator, Error> {
    make::lanes("mv_layer_norm", algebra, &[])
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
///
/// # Errors
/// None.
pub fn norm(algebra: Algebra) -> Result<Operator, Error> {
    make::lanes("norm", algebra, &[])
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
///
/// # Errors
/// None.
pub fn grade_norms(algebra: Algebra) -> Result<Operator, Error> {
    make::lanes("grade_norms", algebra, &[])
}

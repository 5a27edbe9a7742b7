//! The operators. Each function binds one to an algebra and its options.
//!
//! Every operator reads its inputs in the order given, writes one output `o`, and has a backward
//! pass that gives the gradients of all inputs, parameters included. `C` is the number of
//! channels, `G` the number of grades.
//!
//! Sums are accumulated in the element type. Products are accurate to `(terms + 2) u sum |w x y|`,
//! `u` the unit roundoff; gates to about two units in the last place of 1, on CUDA three (the left tail
//! of GELU is a difference of near-equal numbers), the slopes and norms to a few units in the last place.

use cayley::{GradeSet, ProductKind};

use crate::operator::{Kind, LaneOperator, Operator, Zero};
use crate::{Algebra, Bias, Error, Gate, Invariant, Norm, UnknownOption, WeightLayout};

/// Options of [`sgp_norm`] and [`fcgp_norm`]. The default is flash-clifford's function where all vectors
/// square to one sign, and equivariant everywhere.
#[derive(Clone, Debug, PartialEq)]
pub struct ProductOptions {
    /// The gate on both operands. An operand without a scalar blade is gated by `gate(0)`.
    pub gate: Gate,
    /// The normalisation of the result.
    pub norm: Norm,
    /// Added under the root of the mean; of a form with both signs, what smooths its magnitude.
    pub eps: f64,
    /// The grades that `x` carries; all if `None`.
    pub left: Option<GradeSet>,
    /// The grades that `y` carries; all if `None`.
    pub right: Option<GradeSet>,
}

impl Default for ProductOptions {
    fn default() -> Self {
        Self {
            gate: Gate::Gelu,
            norm: Norm::Invariant,
            eps: 1e-6,
            left: None,
            right: None,
        }
    }
}

impl ProductOptions {
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_eps(self.eps)
    }

    /// The steerable product of these options.
    pub(crate) fn lane(&self, algebra: Algebra) -> Result<LaneOperator, Error> {
        self.check()?;
        let name = match self.norm {
            Norm::None => "sgp",
            Norm::Invariant if !algebra.has_euclidean_norms() => "sgp_invariant",
            Norm::Rms | Norm::Invariant => "sgp_rms",
        };
        let left = self.left.unwrap_or(algebra.full());
        let right = self.right.unwrap_or(algebra.full());
        let lane = LaneOperator::new(algebra, name, left, right)?;
        Ok(lane.with_gate(self.gate).with_eps(self.eps))
    }
}

fn check_eps(eps: f64) -> Result<(), Error> {
    if eps.is_finite() && eps >= 0.0 {
        return Ok(());
    }
    Err(Error::InvalidOption {
        option: "eps",
        expected: "a finite number, at least 0",
        got: eps,
    })
}

/// Options of [`mv_linear`].
#[derive(Clone, Debug, PartialEq)]
pub struct LinearOptions {
    /// A matrix for each grade, or one for all.
    pub per_grade: bool,
    /// The bias.
    pub bias: Bias,
    /// The grades that `x` carries; all if `None`.
    pub grades: Option<GradeSet>,
    /// The order of the axes of the weight.
    pub layout: WeightLayout,
}

impl Default for LinearOptions {
    fn default() -> Self {
        Self {
            per_grade: true,
            bias: Bias::Scalar,
            grades: None,
            layout: WeightLayout::default(),
        }
    }
}

/// Options of [`mv_linear_sgp_norm`]. The default is that of [`mv_linear`] and of [`sgp_norm`].
#[derive(Clone, Debug, PartialEq)]
pub struct LinearSgpOptions {
    /// The linear map. Its grades are those of `x`, and so of `y`.
    pub linear: LinearOptions,
    /// The gate on both operands, as of [`sgp_norm`].
    pub gate: Gate,
    /// The normalisation of the result.
    pub norm: Norm,
    /// Added under the root of the mean, as of [`sgp_norm`].
    pub eps: f64,
    /// Whether the backward pass computes `y` again, by one more product of matrices, instead of
    /// reading it from what the forward pass saved.
    pub recompute: bool,
}

impl Default for LinearSgpOptions {
    fn default() -> Self {
        let ProductOptions {
            gate, norm, eps, ..
        } = ProductOptions::default();
        Self {
            linear: LinearOptions::default(),
            gate,
            norm,
            eps,
            recompute: false,
        }
    }
}

impl LinearSgpOptions {
    /// Those of the product.
    pub(crate) fn product(&self) -> ProductOptions {
        ProductOptions {
            gate: self.gate,
            norm: self.norm,
            eps: self.eps,
            left: self.linear.grades,
            right: self.linear.grades,
        }
    }
}

/// Options of [`steerable_product`].
#[derive(Clone, Debug, PartialEq)]
pub struct SteerableOptions {
    /// Add the first-order term: `o = (l + z) / sqrt 2`.
    pub first_order: bool,
    /// Normalise the right operand with [`grade_norm`] first.
    pub normalize: bool,
}

impl Default for SteerableOptions {
    fn default() -> Self {
        Self {
            first_order: true,
            normalize: true,
        }
    }
}

/// The fused steerable geometric product:
/// `o = norm(sum over paths p of w[c, p] <<x'>_a <y'>_b>_p)`, `x' = gate(x_1) x`, `y'` alike.
///
/// | tensor | shape |
/// |---|---|
/// | `x`, `y` | `[blades, batch, C]` |
/// | `w` | `[C, paths]`, paths in lexicographic (left, output, right) order |
/// | `o` | `[reachable blades, batch, C]` |
///
/// Saved for the backward pass: one sum per output grade and batch element.
///
/// Source: flash-clifford's `fused_gelu_sgp_norm`; the product is CGENN's (arXiv 2305.11141,
/// section 4), gate and norm are flash-clifford's.
///
/// # Errors
/// [`Error::UnsupportedGrades`] for grade sets without a product, [`Error::InvalidOption`].
pub fn sgp_norm(algebra: Algebra, options: &ProductOptions) -> Result<Operator, Error> {
    let lane = options.lane(algebra).map_err(|e| e.of("sgp_norm"))?;
    Ok(Operator::new("sgp_norm", algebra, Kind::Lanes(lane)))
}

/// The fused fully connected geometric product:
/// `o[m] = norm(sum over n and paths p of w[p, n, m] <<x'[n]>_a <y'[n]>_b>_p)`.
///
/// | tensor | shape |
/// |---|---|
/// | `x`, `y` | `[blades, batch, in]` |
/// | `w` | `[paths, in, out]` |
/// | `o` | `[reachable blades, batch, out]` |
///
/// One matrix product for each path, whose left operand is formed block by block from `x` and `y`;
/// no slice of the size of a tensor is made. Any grade sets will do.
///
/// On CUDA it goes in blocks of rows, whose path products are written to the workspace in the type of the
/// tensors, for cuBLASLt to multiply; so are their gradients. A block takes 256 MiB at the most, or what a tuning table or
/// `cuda::Operator::with_block_bytes` says, or as much as a single row needs.
///
/// Saved for the backward pass: one sum per output grade and batch element.
///
/// Source: flash-clifford's `fused_gelu_fcgp_norm`; CGENN's fully connected product
/// (arXiv 2305.11141, section 4).
///
/// # Errors
/// [`Error::Algebra`] for grades the algebra does not have, [`Error::InvalidOption`].
pub fn fcgp_norm(algebra: Algebra, options: &ProductOptions) -> Result<Operator, Error> {
    options.check()?;
    let kind = crate::operator::FullyConnected::new(algebra, options);
    let kind = kind.map_err(|e| e.of("fcgp_norm"))?;
    let kind = Kind::FullyConnected(Box::new(kind));
    Ok(Operator::new("fcgp_norm", algebra, kind))
}

/// The grade-wise linear map: `o[m] = sum over n of weight[m, n, grade] x[n] (+ bias[m])`.
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades, batch, in]` |
/// | `weight` | `[out, in, grades of x]`, or `[out, in]` without `per_grade`; reversed with [`WeightLayout::GradeInOut`] |
/// | `bias` | `[out]`, unless [`Bias::None`] |
/// | `o` | `[blades, batch, out]` |
///
/// [`Bias::EveryBlade`] breaks equivariance; it is there for flash-clifford's weights.
///
/// Source: CGENN's `MVLinear` (arXiv 2305.11141, section 4).
///
/// # Errors
/// [`Error::Algebra`] for grades the algebra does not have. With [`Bias::Scalar`] the grades must
/// include 0: [`Error::UnsupportedGrades`].
pub fn mv_linear(algebra: Algebra, options: &LinearOptions) -> Result<Operator, Error> {
    let kind = crate::operator::Linear::new(algebra, options)?;
    Ok(Operator::new("mv_linear", algebra, Kind::Linear(kind)))
}

/// The gated product of `x` with a linear map of it: `o = `[`sgp_norm`]`(x, y, w)` of
/// `y = `[`mv_linear`]`(x, linear_weight, linear_bias)`.
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[blades, batch, C]` |
/// | `linear_weight` | `[C, C, grades of x]`, or `[C, C]` without `per_grade`; in the order of [`LinearOptions::layout`] |
/// | `linear_bias` | `[C]`, unless [`Bias::None`] |
/// | `w` | `[C, paths]`, paths in lexicographic (left, output, right) order |
/// | `o` | `[reachable blades, batch, C]` |
///
/// Saved for the backward pass: `y` `[blades, batch, C]`, in the type of `x`, and one sum per output
/// grade and batch element. With [`LinearSgpOptions::recompute`] the sums alone: `y` is then in the
/// workspace of each pass, and the backward pass takes one more product of matrices.
///
/// The output, and all gradients but that of `x`, are the same bits as of the two operators in turn. The
/// gradient of `x` is the product's, to which the map adds its part: so it is rounded in another order, and
/// takes no pass of its own.
///
/// Source: flash-clifford's `Layer`.
///
/// # Errors
/// Those of [`mv_linear`] and [`sgp_norm`]; grades without scalars take no [`Bias::Scalar`].
pub fn mv_linear_sgp_norm(algebra: Algebra, options: &LinearSgpOptions) -> Result<Operator, Error> {
    let kind = crate::operator::LinearSgp::new(algebra, options);
    let kind = kind.map_err(|e| e.of("mv_linear_sgp_norm"))?;
    let kind = Kind::LinearSgp(Box::new(kind));
    Ok(Operator::new("mv_linear_sgp_norm", algebra, kind))
}

/// CGENN's normalisation: `o_g = x_g / (s (|x_g| - 1) + 1 + 1e-6)`, `s = sigmoid(a_g)`,
/// `|x| = (q(x)^2 + 1e-16)^(1/4)`.
///
/// `x` and `o` are `[blades, batch, C]`, `a` is `[C, G]`.
///
/// Source: CGENN's `NormalizationLayer` (arXiv 2305.11141, section 4).
///
/// # Errors
/// None for a shipped algebra.
pub fn grade_norm(algebra: Algebra) -> Result<Operator, Error> {
    lanes("grade_norm", "grade_norm", algebra)
}

/// CGENN's steerable product between its linear maps:
/// `z = sum over paths p of w[c, p] <<x>_a <r>_b>_p`, where `r` may be normalised first, and
/// `o = z` or `(l + z) / sqrt 2`.
///
/// | tensor | shape |
/// |---|---|
/// | `x`, `r` | `[blades, batch, C]` |
/// | `w` | `[C, paths]` |
/// | `a` | `[C, G]`, with `normalize` |
/// | `l` | `[blades, batch, C]`, with `first_order` |
/// | `o` | `[blades, batch, C]` |
///
/// Source: CGENN's `SteerableGeometricProductLayer` (arXiv 2305.11141, section 3.3).
///
/// # Errors
/// None for a shipped algebra.
pub fn steerable_product(algebra: Algebra, options: &SteerableOptions) -> Result<Operator, Error> {
    let program = match (options.normalize, options.first_order) {
        (false, false) => "steerable_product",
        (true, false) => "steerable_product_norm",
        (false, true) => "steerable_product_first_order",
        (true, true) => "steerable_product_norm_first_order",
    };
    lanes("steerable_product", program, algebra)
}

/// CGENN's gated nonlinearity: `o_g = sigmoid(a_g u_g + b_g) x_g`, `u_0` the scalar component and
/// `u_g` an invariant of the grade.
///
/// `x` and `o` are `[blades, batch, C]`, `a` and `b` `[C, G]`.
///
/// Source: CGENN's `MVSiLU`.
///
/// # Errors
/// None for a shipped algebra.
pub fn mv_silu(algebra: Algebra, invariant: Invariant) -> Result<Operator, Error> {
    let program = match invariant {
        Invariant::Mag2 => "mv_silu_mag2",
        Invariant::Norm => "mv_silu_norm",
    };
    lanes("mv_silu", program, algebra)
}

/// CGENN's layer norm: `o = a x / (mean over channels of |x| + 1e-6)`, `|x|` the smooth norm of
/// the whole multivector.
///
/// `x` and `o` are `[blades, batch, C]`, `a` is `[C, 1]`. Saved: one sum per batch element.
///
/// Source: CGENN's `MVLayerNorm`.
///
/// # Errors
/// None for a shipped algebra.
pub fn mv_layer_norm(algebra: Algebra) -> Result<Operator, Error> {
    lanes("mv_layer_norm", "mv_layer_norm", algebra)
}

/// A plain product of `x` and `y`, channel by channel. Only terms between the grades of the
/// operands are computed, and only reachable blades are written.
///
/// `x` and `y` are `[blades, batch, C]`, `o` is `[reachable blades, batch, C]`. Where no blade can be reached, as by
/// the commutator in one dimension, `o` has all blades and is zero.
///
/// # Errors
/// [`Error::UnsupportedGrades`] for grade sets without a result.
pub fn product(
    algebra: Algebra,
    kind: ProductKind,
    left: Option<GradeSet>,
    right: Option<GradeSet>,
) -> Result<Operator, Error> {
    let name = match kind {
        ProductKind::Geometric => "geometric_product",
        ProductKind::Exterior => "exterior_product",
        ProductKind::Regressive => "regressive_product",
        ProductKind::LeftContraction => "left_contraction",
        ProductKind::RightContraction => "right_contraction",
        ProductKind::Scalar => "scalar_product",
        ProductKind::Commutator => "commutator_product",
    };
    let made = between(name, algebra, left, right);
    if !matches!(made, Err(Error::UnsupportedGrades { .. })) {
        return made;
    }
    zero(algebra, kind, left, right).map_or(made, |zero| {
        Ok(Operator::new(name, algebra, Kind::Zero(zero)))
    })
}

/// The product without kernels, if it is zero for all operands with these grades.
fn zero(
    algebra: Algebra,
    kind: ProductKind,
    left: Option<GradeSet>,
    right: Option<GradeSet>,
) -> Option<Zero> {
    let [left, right] = [left, right].map(|grades| grades.unwrap_or(algebra.full()));
    // An operand without grades is a mistake rather than a zero.
    let operands = !left.is_empty() && !right.is_empty();
    let zero = operands && algebra.reachable(kind, left, right).is_empty();
    zero.then(|| Zero::new(algebra, left, right))
}

/// The sandwich `x y reverse(x)`: for a unit versor `x` its action on `y`, up to the sign that an
/// odd versor gives odd grades.
///
/// `x` and `y` are `[blades, batch, C]`, `o` is `[reachable blades, batch, C]`.
///
/// # Errors
/// [`Error::UnsupportedGrades`] for grade sets without a result.
pub fn sandwich(
    algebra: Algebra,
    left: Option<GradeSet>,
    right: Option<GradeSet>,
) -> Result<Operator, Error> {
    between("sandwich", algebra, left, right)
}

/// The reverse: grade `k` times `(-1)^(k(k-1)/2)`. `x` and `o` are `[blades, batch, C]`.
///
/// # Errors
/// None for a shipped algebra.
pub fn reverse(algebra: Algebra) -> Result<Operator, Error> {
    lanes("reverse", "reverse", algebra)
}

/// The grade involution: grade `k` times `(-1)^k`. `x` and `o` are `[blades, batch, C]`.
///
/// # Errors
/// None for a shipped algebra.
pub fn grade_involution(algebra: Algebra) -> Result<Operator, Error> {
    lanes("grade_involution", "grade_involution", algebra)
}

/// The Clifford conjugate: grade `k` times `(-1)^(k(k+1)/2)`. `x` and `o` are
/// `[blades, batch, C]`.
///
/// # Errors
/// None for a shipped algebra.
pub fn clifford_conjugate(algebra: Algebra) -> Result<Operator, Error> {
    lanes("clifford_conjugate", "clifford_conjugate", algebra)
}

/// The dual, metric-free: `e_a ^ dual(e_a) = I`. `x` and `o` are `[blades, batch, C]`.
///
/// # Errors
/// None for a shipped algebra.
pub fn dual(algebra: Algebra) -> Result<Operator, Error> {
    lanes("dual", "dual", algebra)
}

/// The inverse of [`dual`]. `x` and `o` are `[blades, batch, C]`.
///
/// # Errors
/// None for a shipped algebra.
pub fn undual(algebra: Algebra) -> Result<Operator, Error> {
    lanes("undual", "undual", algebra)
}

/// The smooth norm of a multivector, `(q(x)^2 + 1e-16)^(1/4)`, `q(x)` the scalar part of
/// `reverse(x) x`. `x` is `[blades, batch, C]`, `o` is `[1, batch, C]`.
///
/// # Errors
/// None for a shipped algebra.
pub fn norm(algebra: Algebra) -> Result<Operator, Error> {
    lanes("norm", "norm", algebra)
}

/// The smooth norm of each grade. `x` is `[blades, batch, C]`, `o` is `[G, batch, C]`.
///
/// # Errors
/// None for a shipped algebra.
pub fn grade_norms(algebra: Algebra) -> Result<Operator, Error> {
    lanes("grade_norms", "grade_norms", algebra)
}

/// The gate of a multivector: `o = gate(x_1) x`. `x` and `o` are `[blades, batch, C]`.
///
/// # Errors
/// None for a shipped algebra.
pub fn gate(algebra: Algebra, gate: Gate) -> Result<Operator, Error> {
    let lane = LaneOperator::new(algebra, "gate", algebra.full(), algebra.full())?;
    Ok(Operator::new(
        "gate",
        algebra,
        Kind::Lanes(lane.with_gate(gate)),
    ))
}

/// The norm per grade and batch element, over channels:
/// `o_g = x_g / sqrt(mean over channels of |x_g|^2 + eps)`, where [`Norm`] says what `|x_g|^2` is.
/// `x` and `o` are `[blades, batch, C]`.
///
/// # Errors
/// [`Error::InvalidOption`] for an `eps` that is negative or not finite, [`Error::UnknownOption`] for
/// [`Norm::None`], which leaves nothing to do.
pub fn grade_rms(algebra: Algebra, norm: Norm, eps: f64) -> Result<Operator, Error> {
    check_eps(eps)?;
    let program = match norm {
        Norm::Invariant if !algebra.has_euclidean_norms() => "grade_invariant",
        Norm::Rms | Norm::Invariant => "grade_rms",
        Norm::None => {
            return Err(Error::UnknownOption(UnknownOption {
                what: "norm",
                expected: [Norm::Rms, Norm::Invariant].map(Norm::name).join(", "),
                got: norm.name().to_owned(),
            }));
        }
    };
    let lane = LaneOperator::new(algebra, program, algebra.full(), algebra.full())?;
    let lane = lane.with_eps(eps);
    Ok(Operator::new("grade_rms", algebra, Kind::Lanes(lane)))
}

fn lanes(name: &'static str, program: &str, algebra: Algebra) -> Result<Operator, Error> {
    let lane = LaneOperator::new(algebra, program, algebra.full(), algebra.full());
    let lane = lane.map_err(|e| e.of(name))?;
    Ok(Operator::new(name, algebra, Kind::Lanes(lane)))
}

fn between(
    name: &'static str,
    algebra: Algebra,
    left: Option<GradeSet>,
    right: Option<GradeSet>,
) -> Result<Operator, Error> {
    let (left, right) = (
        left.unwrap_or(algebra.full()),
        right.unwrap_or(algebra.full()),
    );
    let lane = LaneOperator::new(algebra, name, left, right)?;
    Ok(Operator::new(name, algebra, Kind::Lanes(lane)))
}

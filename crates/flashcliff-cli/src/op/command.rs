//! A subcommand for every operator, with its own options.

use std::path::PathBuf;

use cayley::{GradeSet, ProductKind, Signature};
use clap::{Args, Subcommand};
use flashcliff::ops::{self, LinearOptions, LinearSgpOptions, ProductOptions, SteerableOptions};
use flashcliff::{Algebra, Bias, Gate, Invariant, Norm};

use super::Work;
use super::layer::{Connection, Layer};
use crate::device::DeviceArgs;
use crate::error::Error;

/// The algebra and the files.
#[derive(Args, Clone, Debug)]
pub(super) struct Files {
    /// Algebra, as cl300 or 3,0,0; `flashcliff info` lists those with kernels.
    #[arg(long, value_name = "SIGNATURE")]
    pub(super) algebra: Signature,

    /// Safetensors file with the inputs.
    #[arg(long = "in", value_name = "FILE", required_unless_present = "shapes")]
    pub(super) input: Option<PathBuf>,

    /// Safetensors file to write, whole or not at all.
    #[arg(long = "out", value_name = "FILE", required_unless_present = "shapes")]
    pub(super) output: Option<PathBuf>,

    /// Also compute the gradients of all inputs, from `grad_o` in the input file (which is ignored without this).
    #[arg(long)]
    pub(super) grad: bool,

    /// Only print the names and shapes of the tensors.
    #[arg(long)]
    pub(super) shapes: bool,

    #[command(flatten)]
    pub(super) device: DeviceArgs,
}

/// Only the algebra and the files.
#[derive(Args, Debug)]
pub(super) struct Plain {
    #[command(flatten)]
    files: Files,
}

/// What is done around a weighted product.
#[derive(Args, Debug)]
struct Around {
    /// Gate on both operands: none, gelu, gelu-tanh, silu or sigmoid (the fast GELU, sigmoid(1.702 x)).
    #[arg(long, default_value_t = Gate::Gelu)]
    gate: Gate,

    /// Norm of the result, per grade and batch element, over channels: invariant (by |<o reverse(o)>|, which versors leave
    /// alone), rms (by the sum of all squares; the same where all vectors square to one sign, else not equivariant) or none.
    #[arg(long, default_value_t = Norm::Invariant)]
    norm: Norm,

    /// Added under the root of the mean.
    #[arg(long, default_value_t = 1e-6, allow_negative_numbers = true)]
    eps: f64,
}

/// Options of the weighted products.
#[derive(Args, Debug)]
pub(super) struct Product {
    #[command(flatten)]
    around: Around,

    /// Grades that `x` carries, as 1 or 0,2; all if absent. Its tensor holds the blades of these grades only.
    #[arg(long, value_name = "GRADES")]
    left: Option<GradeSet>,

    /// Grades that `y` carries, likewise.
    #[arg(long, value_name = "GRADES")]
    right: Option<GradeSet>,

    #[command(flatten)]
    files: Files,
}

impl Product {
    fn options(&self) -> ProductOptions {
        ProductOptions {
            gate: self.around.gate,
            norm: self.around.norm,
            eps: self.around.eps,
            left: self.left,
            right: self.right,
        }
    }
}

/// Options of the unweighted products.
#[derive(Args, Debug)]
pub(super) struct Between {
    /// Grades that `x` carries, as 1 or 0,2; all if absent. Its tensor holds the blades of these grades only.
    #[arg(long, value_name = "GRADES")]
    left: Option<GradeSet>,

    /// Grades that `y` carries, likewise.
    #[arg(long, value_name = "GRADES")]
    right: Option<GradeSet>,

    #[command(flatten)]
    files: Files,
}

impl Between {
    fn product(&self, algebra: Algebra, kind: ProductKind) -> Result<Work, Error> {
        Ok(Work::Core(ops::product(
            algebra, kind, self.left, self.right,
        )?))
    }
}

/// A linear map.
#[derive(Args, Debug)]
struct Map {
    /// A matrix for each grade (the default): weight [out, in, grades].
    #[arg(long, conflicts_with = "shared")]
    per_grade: bool,

    /// One matrix for all grades: weight [out, in].
    #[arg(long)]
    shared: bool,

    /// Bias: none, scalar (on the scalar blade) or every-blade (not equivariant; for compatibility only).
    #[arg(long, default_value_t = Bias::Scalar)]
    bias: Bias,

    /// Grades that `x` carries, as 1 or 0,2; all if absent. Its tensor holds the blades of these grades only.
    #[arg(long, value_name = "GRADES")]
    grades: Option<GradeSet>,
}

impl Map {
    fn options(&self) -> LinearOptions {
        LinearOptions {
            per_grade: !self.shared,
            bias: self.bias,
            grades: self.grades,
            ..LinearOptions::default()
        }
    }
}

/// Options of the linear map.
#[derive(Args, Debug)]
pub(super) struct Linear {
    #[command(flatten)]
    map: Map,

    #[command(flatten)]
    files: Files,
}

/// Options of the product with a linear map.
#[derive(Args, Debug)]
pub(super) struct LinearSgp {
    #[command(flatten)]
    map: Map,

    #[command(flatten)]
    around: Around,

    #[command(flatten)]
    files: Files,
}

impl LinearSgp {
    fn options(&self) -> LinearSgpOptions {
        LinearSgpOptions {
            linear: self.map.options(),
            gate: self.around.gate,
            norm: self.around.norm,
            eps: self.around.eps,
            ..LinearSgpOptions::default()
        }
    }
}

/// Options of CGENN's steerable products.
#[derive(Args, Debug)]
pub(super) struct Steerable {
    /// With the first-order term (the default): o = (left + product) / sqrt 2.
    #[arg(long, overrides_with = "no_first_order")]
    first_order: bool,

    /// Without the first-order term: o = product.
    #[arg(long, overrides_with = "first_order")]
    no_first_order: bool,

    /// Normalise the right operand (the default).
    #[arg(long, overrides_with = "no_normalize")]
    normalize: bool,

    /// Do not normalise the right operand.
    #[arg(long, overrides_with = "normalize")]
    no_normalize: bool,

    #[command(flatten)]
    files: Files,
}

impl Steerable {
    /// Both are on unless switched off; the positive flags undo negative ones before them.
    fn options(&self) -> SteerableOptions {
        SteerableOptions {
            first_order: self.first_order || !self.no_first_order,
            normalize: self.normalize || !self.no_normalize,
        }
    }
}

/// Options of the gated nonlinearity.
#[derive(Args, Debug)]
pub(super) struct Silu {
    /// Invariant of the grades above 0: mag2 (the quadratic form) or norm (the smooth norm).
    #[arg(long, default_value_t = Invariant::Mag2)]
    invariant: Invariant,

    #[command(flatten)]
    files: Files,
}

/// Options of the gate.
#[derive(Args, Debug)]
pub(super) struct Gated {
    /// The gate: none, gelu, gelu-tanh, silu or sigmoid (the fast GELU, sigmoid(1.702 x)).
    #[arg(long, default_value_t = Gate::Gelu)]
    gate: Gate,

    #[command(flatten)]
    files: Files,
}

/// Options of the norm of each grade.
#[derive(Args, Debug)]
pub(super) struct Rms {
    /// What is measured: invariant (|<x reverse(x)>|, which versors leave alone) or rms (the sum of all squares).
    #[arg(long, default_value_t = Norm::Invariant)]
    norm: Norm,

    /// Added under the root of the mean.
    #[arg(long, default_value_t = 1e-6, allow_negative_numbers = true)]
    eps: f64,

    #[command(flatten)]
    files: Files,
}

/// The operators.
#[derive(Debug, Subcommand)]
#[command(rename_all = "snake_case")]
pub(super) enum OperatorCommand {
    /// Gated, weighted geometric product of equal channels, with a norm: flash-clifford's.
    #[command(after_help = "\
Tensors: x [blades of --left, batch, C], y [blades of --right, batch, C], w [C, paths] -> o [reachable blades, batch, C]
o = norm(sum over paths p of w[c, p] <<gate(x)>_a <gate(y)>_b>_p), paths (left, output, right) in lexicographic order.")]
    SgpNorm(Product),

    /// Gated, weighted geometric product of all input channels into all output channels, with a norm.
    #[command(after_help = "\
Tensors: x [blades of --left, batch, in], y [blades of --right, batch, in], w [paths, in, out] -> o [reachable blades, batch, out]
o[m] = norm(sum over n and paths p of w[p, n, m] <<gate(x[n])>_a <gate(y[n])>_b>_p), paths (left, output, right) in lexicographic order.")]
    FcgpNorm(Product),

    /// Linear map of channels, grade by grade.
    #[command(after_help = "\
Tensors: x [blades of --grades, batch, in], weight [out, in, grades] (with --shared [out, in]), bias [out] unless --bias none
-> o [blades of --grades, batch, out]
o[m] = sum over n of weight[m, n, grade] x[n], + bias[m] on the scalar blade.")]
    MvLinear(Linear),

    /// Gated, weighted geometric product of x with a linear map of x: flash-clifford's layer.
    #[command(after_help = "\
Tensors: x [blades of --grades, batch, C], linear_weight [C, C, grades] (with --shared [C, C]), linear_bias [C] unless --bias none,
w [C, paths] -> o [reachable blades, batch, C]
o = sgp_norm(x, y, w) of y = mv_linear(x, linear_weight, linear_bias). Grades with kernels: all, or 1 with --bias none.")]
    MvLinearSgpNorm(LinearSgp),

    /// CGENN's learned normalisation of each grade.
    #[command(after_help = "\
Tensors: x [blades, batch, C], a [C, grades] -> o [blades, batch, C]
o_g = x_g / (sigmoid(a_g) (|x_g| - 1) + 1 + 1e-6), |x| = (q(x)^2 + 1e-16)^(1/4).")]
    GradeNorm(Plain),

    /// CGENN's steerable product of prepared operands (for the whole layer see cgenn_sgp).
    #[command(after_help = "\
Tensors: x [blades, batch, C], r [blades, batch, C], w [C, paths], a [C, grades] (unless --no-normalize),
l [blades, batch, C] (unless --no-first-order) -> o [blades, batch, C]
z = sum over paths p of w[c, p] <<x>_a <r'>_b>_p, r' = r normalised as by grade_norm with a; o = (l + z) / sqrt 2, or z.")]
    SteerableProduct(Steerable),

    /// CGENN's gated nonlinearity.
    #[command(after_help = "\
Tensors: x [blades, batch, C], a [C, grades], b [C, grades] -> o [blades, batch, C]
o_g = sigmoid(a_g u_g + b_g) x_g, u_0 the scalar component, u_g the invariant of grade g.")]
    MvSilu(Silu),

    /// CGENN's layer norm.
    #[command(after_help = "\
Tensors: x [blades, batch, C], a [C, 1] -> o [blades, batch, C]
o = a x / (mean over channels of |x| + 1e-6), |x| = (q(x)^2 + 1e-16)^(1/4).")]
    MvLayerNorm(Plain),

    /// Geometric product.
    #[command(visible_alias = "geometric", after_help = PRODUCT_HELP)]
    GeometricProduct(Between),

    /// Exterior product.
    #[command(visible_alias = "exterior", after_help = PRODUCT_HELP)]
    ExteriorProduct(Between),

    /// Regressive product, undual(dual(x) ^ dual(y)).
    #[command(visible_alias = "regressive", after_help = PRODUCT_HELP)]
    RegressiveProduct(Between),

    /// Left contraction: of grades g and h, grade h - g of the geometric product.
    #[command(after_help = PRODUCT_HELP)]
    LeftContraction(Between),

    /// Right contraction: of grades g and h, grade g - h of the geometric product.
    #[command(after_help = PRODUCT_HELP)]
    RightContraction(Between),

    /// Scalar product, grade 0 of the geometric product.
    #[command(visible_alias = "scalar", after_help = PRODUCT_HELP)]
    ScalarProduct(Between),

    /// Commutator product, (xy - yx) / 2.
    #[command(visible_alias = "commutator", after_help = PRODUCT_HELP)]
    CommutatorProduct(Between),

    /// Sandwich x y ~x.
    #[command(after_help = "\
Tensors: x [blades of --left, batch, C], y [blades of --right, batch, C] -> o [reachable blades, batch, C]
Grades with kernels: all and all; even --left and --right 1.")]
    Sandwich(Between),

    /// Reverse.
    #[command(after_help = UNARY_HELP)]
    Reverse(Plain),

    /// Grade involution.
    #[command(after_help = UNARY_HELP)]
    GradeInvolution(Plain),

    /// Clifford conjugate.
    #[command(after_help = UNARY_HELP)]
    CliffordConjugate(Plain),

    /// Dual, the right complement: e ^ dual(e) = I.
    #[command(after_help = UNARY_HELP)]
    Dual(Plain),

    /// Inverse of the dual, the left complement.
    #[command(after_help = UNARY_HELP)]
    Undual(Plain),

    /// Smooth norm of the multivector, (q(x)^2 + 1e-16)^(1/4).
    #[command(after_help = "Tensors: x [blades, batch, C] -> o [1, batch, C]")]
    Norm(Plain),

    /// Smooth norm of each grade.
    #[command(after_help = "Tensors: x [blades, batch, C] -> o [grades, batch, C]")]
    GradeNorms(Plain),

    /// Gate: every component times a function of the scalar component.
    #[command(after_help = UNARY_HELP)]
    Gate(Gated),

    /// Norm of each grade over channels: x_g / sqrt(mean |x_g|^2 + eps).
    #[command(after_help = UNARY_HELP)]
    GradeRms(Rms),

    /// CGENN's whole steerable geometric product layer, with its parameter names.
    #[command(after_help = "\
Tensors: x [blades, batch, C], weight [C, paths], linear_right.weight [C, C, grades], normalization.a [C, grades] (unless --no-normalize),
linear_left.weight [C, C, grades] and linear_left.bias [1, C, 1] (unless --no-first-order) -> o [blades, batch, C]
o = (linear_left(x) + sum over paths p of weight[c, p] <<x>_a <normalization(linear_right(x))>_b>_p) / sqrt 2.")]
    CgennSgp(Steerable),

    /// CGENN's whole fully connected steerable geometric product layer, with its parameter names.
    #[command(after_help = "\
Tensors: x [blades, batch, in], weight [out, in, paths], linear_right.weight [in, in, grades], normalization.a [in, grades]
(unless --no-normalize), linear_left.weight [out, in, grades] and linear_left.bias [1, out, 1] (unless --no-first-order)
-> o [blades, batch, out]
o[m] = (linear_left(x)[m] + sum over n and paths p of weight[m, n, p] <<x[n]>_a <normalization(linear_right(x))[n]>_b>_p) / sqrt 2.")]
    CgennFcgp(Steerable),
}

const PRODUCT_HELP: &str = "\
Tensors: x [blades of --left, batch, C], y [blades of --right, batch, C] -> o [reachable blades, batch, C]
Grades with kernels: all or 1 on either side.";

const UNARY_HELP: &str = "Tensors: x [blades, batch, C] -> o [blades, batch, C]";

impl OperatorCommand {
    /// The algebra and the files.
    pub(super) fn files(&self) -> &Files {
        match self {
            Self::SgpNorm(args) | Self::FcgpNorm(args) => &args.files,
            Self::MvLinear(args) => &args.files,
            Self::MvLinearSgpNorm(args) => &args.files,
            Self::SteerableProduct(args) | Self::CgennSgp(args) | Self::CgennFcgp(args) => {
                &args.files
            }
            Self::MvSilu(args) => &args.files,
            Self::Gate(args) => &args.files,
            Self::GradeRms(args) => &args.files,
            Self::GeometricProduct(args)
            | Self::ExteriorProduct(args)
            | Self::RegressiveProduct(args)
            | Self::LeftContraction(args)
            | Self::RightContraction(args)
            | Self::ScalarProduct(args)
            | Self::CommutatorProduct(args)
            | Self::Sandwich(args) => &args.files,
            Self::GradeNorm(args)
            | Self::MvLayerNorm(args)
            | Self::Reverse(args)
            | Self::GradeInvolution(args)
            | Self::CliffordConjugate(args)
            | Self::Dual(args)
            | Self::Undual(args)
            | Self::Norm(args)
            | Self::GradeNorms(args) => &args.files,
        }
    }

    /// The operator with its options.
    ///
    /// # Errors
    /// Options that the core has no kernels for.
    pub(super) fn bind(&self, algebra: Algebra) -> Result<Work, Error> {
        Ok(Work::Core(match self {
            Self::SgpNorm(args) => ops::sgp_norm(algebra, &args.options())?,
            Self::FcgpNorm(args) => ops::fcgp_norm(algebra, &args.options())?,
            Self::MvLinear(args) => ops::mv_linear(algebra, &args.map.options())?,
            Self::MvLinearSgpNorm(args) => ops::mv_linear_sgp_norm(algebra, &args.options())?,
            Self::GradeNorm(_) => ops::grade_norm(algebra)?,
            Self::SteerableProduct(args) => ops::steerable_product(algebra, &args.options())?,
            Self::MvSilu(args) => ops::mv_silu(algebra, args.invariant)?,
            Self::MvLayerNorm(_) => ops::mv_layer_norm(algebra)?,
            Self::GeometricProduct(args) => return args.product(algebra, ProductKind::Geometric),
            Self::ExteriorProduct(args) => return args.product(algebra, ProductKind::Exterior),
            Self::RegressiveProduct(args) => return args.product(algebra, ProductKind::Regressive),
            Self::LeftContraction(args) => {
                return args.product(algebra, ProductKind::LeftContraction);
            }
            Self::RightContraction(args) => {
                return args.product(algebra, ProductKind::RightContraction);
            }
            Self::ScalarProduct(args) => return args.product(algebra, ProductKind::Scalar),
            Self::CommutatorProduct(args) => return args.product(algebra, ProductKind::Commutator),
            Self::Sandwich(args) => ops::sandwich(algebra, args.left, args.right)?,
            Self::Reverse(_) => ops::reverse(algebra)?,
            Self::GradeInvolution(_) => ops::grade_involution(algebra)?,
            Self::CliffordConjugate(_) => ops::clifford_conjugate(algebra)?,
            Self::Dual(_) => ops::dual(algebra)?,
            Self::Undual(_) => ops::undual(algebra)?,
            Self::Norm(_) => ops::norm(algebra)?,
            Self::GradeNorms(_) => ops::grade_norms(algebra)?,
            Self::Gate(args) => ops::gate(algebra, args.gate)?,
            Self::GradeRms(args) => ops::grade_rms(algebra, args.norm, args.eps)?,
            Self::CgennSgp(args) => {
                let layer = Layer::new(algebra, Connection::Channelwise, &args.options());
                return Ok(Work::Layer(layer));
            }
            Self::CgennFcgp(args) => {
                let layer = Layer::new(algebra, Connection::Full, &args.options());
                return Ok(Work::Layer(layer));
            }
        }))
    }
}

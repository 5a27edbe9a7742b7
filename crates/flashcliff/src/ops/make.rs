//! How each operator is built: which program, product or map does its work.

use cayley::{GradeSet, ProductKind};

use super::{LinearOptions, LinearSgpOptions, ProductOptions, SteerableOptions};
use crate::operator::{Kind, LaneOperator, Operator, Zero};
use crate::{Algebra, Error, Gate, Invariant, Norm, UnknownOption};

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
        let lane = lane.with_norm(self.norm);
        Ok(lane.with_gate(self.gate).with_eps(self.eps))
    }
}

pub(crate) fn check_eps(eps: f64) -> Result<(), Error> {
    if eps.is_finite() && eps >= 0.0 {
        return Ok(());
    }
    Err(Error::InvalidOption {
        option: "eps",
        expected: "a finite number, at least 0",
        got: eps,
    })
}

impl LinearSgpOptions {
    /// Options of the product.
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

pub(super) fn sgp_norm(algebra: Algebra, options: &ProductOptions) -> Result<Operator, Error> {
    let lane = options.lane(algebra).map_err(|e| e.of("sgp_norm"))?;
    Ok(Operator::new("sgp_norm", algebra, Kind::Lanes(lane)))
}

pub(super) fn fcgp_norm(algebra: Algebra, options: &ProductOptions) -> Result<Operator, Error> {
    options.check()?;
    let kind = crate::operator::FullyConnected::new(algebra, options);
    let kind = kind.map_err(|e| e.of("fcgp_norm"))?;
    let kind = Kind::FullyConnected(Box::new(kind));
    Ok(Operator::new("fcgp_norm", algebra, kind))
}

pub(super) fn mv_linear(algebra: Algebra, options: &LinearOptions) -> Result<Operator, Error> {
    let kind = crate::operator::Linear::new(algebra, options)?;
    Ok(Operator::new("mv_linear", algebra, Kind::Linear(kind)))
}

pub(super) fn mv_linear_sgp_norm(
    algebra: Algebra,
    options: &LinearSgpOptions,
) -> Result<Operator, Error> {
    let kind = crate::operator::LinearSgp::new(algebra, options);
    let kind = kind.map_err(|e| e.of("mv_linear_sgp_norm"))?;
    let kind = Kind::LinearSgp(Box::new(kind));
    Ok(Operator::new("mv_linear_sgp_norm", algebra, kind))
}

pub(super) fn grade_norm(algebra: Algebra) -> Result<Operator, Error> {
    lanes("grade_norm", "grade_norm", algebra)
}

pub(super) fn steerable_product(
    algebra: Algebra,
    options: &SteerableOptions,
) -> Result<Operator, Error> {
    let program = match (options.normalize, options.first_order) {
        (false, false) => "steerable_product",
        (true, false) => "steerable_product_norm",
        (false, true) => "steerable_product_first_order",
        (true, true) => "steerable_product_norm_first_order",
    };
    lanes("steerable_product", program, algebra)
}

pub(super) fn mv_silu(algebra: Algebra, invariant: Invariant) -> Result<Operator, Error> {
    let program = match invariant {
        Invariant::Mag2 => "mv_silu_mag2",
        Invariant::Norm => "mv_silu_norm",
    };
    lanes("mv_silu", program, algebra)
}

pub(super) fn mv_layer_norm(algebra: Algebra) -> Result<Operator, Error> {
    lanes("mv_layer_norm", "mv_layer_norm", algebra)
}

pub(super) fn product(
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
    or_zero(name, algebra, left, right, |left, right| {
        algebra.reachable(kind, left, right)
    })
}

/// A product, also one without kernels because no grade is `reachable` between its operands: it is zero.
fn or_zero(
    name: &'static str,
    algebra: Algebra,
    left: Option<GradeSet>,
    right: Option<GradeSet>,
    reachable: impl Fn(GradeSet, GradeSet) -> GradeSet,
) -> Result<Operator, Error> {
    let made = between(name, algebra, left, right);
    if !matches!(made, Err(Error::UnsupportedGrades { .. })) {
        return made;
    }
    let [left, right] = [left, right].map(|grades| grades.unwrap_or(algebra.full()));
    // An operand without grades is a mistake rather than a zero.
    if left.is_empty() || right.is_empty() || !reachable(left, right).is_empty() {
        return made;
    }
    let zero = Zero::new(algebra, left, right);
    Ok(Operator::new(name, algebra, Kind::Zero(zero)))
}

pub(super) fn sandwich(
    algebra: Algebra,
    left: Option<GradeSet>,
    right: Option<GradeSet>,
) -> Result<Operator, Error> {
    or_zero("sandwich", algebra, left, right, |left, right| {
        algebra.reachable_by_sandwich(left, right)
    })
}

pub(super) fn reverse(algebra: Algebra) -> Result<Operator, Error> {
    lanes("reverse", "reverse", algebra)
}

pub(super) fn grade_involution(algebra: Algebra) -> Result<Operator, Error> {
    lanes("grade_involution", "grade_involution", algebra)
}

pub(super) fn clifford_conjugate(algebra: Algebra) -> Result<Operator, Error> {
    lanes("clifford_conjugate", "clifford_conjugate", algebra)
}

pub(super) fn dual(algebra: Algebra) -> Result<Operator, Error> {
    lanes("dual", "dual", algebra)
}

pub(super) fn undual(algebra: Algebra) -> Result<Operator, Error> {
    lanes("undual", "undual", algebra)
}

pub(super) fn norm(algebra: Algebra) -> Result<Operator, Error> {
    lanes("norm", "norm", algebra)
}

pub(super) fn grade_norms(algebra: Algebra) -> Result<Operator, Error> {
    lanes("grade_norms", "grade_norms", algebra)
}

pub(super) fn gate(algebra: Algebra, gate: Gate) -> Result<Operator, Error> {
    let lane = LaneOperator::new(algebra, "gate", algebra.full(), algebra.full())?;
    Ok(Operator::new(
        "gate",
        algebra,
        Kind::Lanes(lane.with_gate(gate)),
    ))
}

pub(super) fn grade_rms(algebra: Algebra, norm: Norm, eps: f64) -> Result<Operator, Error> {
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
    let lane = lane.with_norm(norm).with_eps(eps);
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

// Written by `cargo xtask gen` from the operators, crates/flashcliff-program/src/operators.

use cayley::GradeSet;

use super::Setting;
use crate::{Bias, Gate, Norm, WeightLayout};

/// Options of [`sgp_norm`](crate::ops::sgp_norm) and [`fcgp_norm`](crate::ops::fcgp_norm). The
/// default is equivariant in every algebra, and flash-clifford's function where all vectors square
/// to one sign.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ProductOptions {
    /// The gate on both operands: every blade times a function of the scalar component. An operand
    /// without scalars is gated by the constant `gate(0)`, 0.5 for all gates but `none`. Default:
    /// `Gate::Gelu`.
    pub gate: Gate,
    /// The norm of the result, for each grade and batch element:
    /// `o_g / sqrt(mean over channels of |o_g|^2 + eps)`, where the option says what `|o_g|^2` is.
    /// Default: `Norm::Invariant`.
    pub norm: Norm,
    /// Added under the root of the mean; where the quadratic form can be negative, it smooths the
    /// magnitude instead. Default: `1e-6`.
    pub eps: f64,
    /// The grades that `x` carries. Its tensor holds the blades of these grades only. All grades if
    /// `None`. Default: `None`.
    pub left: Option<GradeSet>,
    /// The grades that `y` carries. Its tensor holds the blades of these grades only. All grades if
    /// `None`. Default: `None`.
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
    /// Sets [`gate`](Self::gate).
    #[must_use]
    pub fn with_gate(mut self, gate: Gate) -> Self {
        self.gate = gate;
        self
    }

    /// Sets [`norm`](Self::norm).
    #[must_use]
    pub fn with_norm(mut self, norm: Norm) -> Self {
        self.norm = norm;
        self
    }

    /// Sets [`eps`](Self::eps).
    #[must_use]
    pub fn with_eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// Sets [`left`](Self::left).
    #[must_use]
    pub fn with_left(mut self, left: impl Into<Option<GradeSet>>) -> Self {
        self.left = left.into();
        self
    }

    /// Sets [`right`](Self::right).
    #[must_use]
    pub fn with_right(mut self, right: impl Into<Option<GradeSet>>) -> Self {
        self.right = right.into();
        self
    }

    /// The settings by name, as [`by_name`](super::by_name) takes them.
    pub fn settings(&self) -> Vec<(&'static str, Setting<'static>)> {
        vec![("gate", Setting::Name(self.gate.name())), ("norm", Setting::Name(self.norm.name())), ("eps", Setting::Number(self.eps)), ("left", Setting::Grades(self.left)), ("right", Setting::Grades(self.right))]
    }
}

/// Options of [`mv_linear`](crate::ops::mv_linear).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LinearOptions {
    /// A matrix for each grade, or one for all. Default: `true`.
    pub per_grade: bool,
    /// The bias. Default: `Bias::Scalar`.
    pub bias: Bias,
    /// The grades that `x` carries. Its tensor holds the blades of these grades only. All grades if
    /// `None`. Default: `None`.
    pub grades: Option<GradeSet>,
    /// The order of the axes of the weight of the linear map. Default: `WeightLayout::OutInGrade`.
    pub weight_layout: WeightLayout,
}

impl Default for LinearOptions {
    fn default() -> Self {
        Self {
            per_grade: true,
            bias: Bias::Scalar,
            grades: None,
            weight_layout: WeightLayout::OutInGrade,
        }
    }
}

impl LinearOptions {
    /// Sets [`per_grade`](Self::per_grade).
    #[must_use]
    pub fn with_per_grade(mut self, per_grade: bool) -> Self {
        self.per_grade = per_grade;
        self
    }

    /// Sets [`bias`](Self::bias).
    #[must_use]
    pub fn with_bias(mut self, bias: Bias) -> Self {
        self.bias = bias;
        self
    }

    /// Sets [`grades`](Self::grades).
    #[must_use]
    pub fn with_grades(mut self, grades: impl Into<Option<GradeSet>>) -> Self {
        self.grades = grades.into();
        self
    }

    /// Sets [`weight_layout`](Self::weight_layout).
    #[must_use]
    pub fn with_weight_layout(mut self, weight_layout: WeightLayout) -> Self {
        self.weight_layout = weight_layout;
        self
    }

    /// The settings by name, as [`by_name`](super::by_name) takes them.
    pub fn settings(&self) -> Vec<(&'static str, Setting<'static>)> {
        vec![("per_grade", Setting::Flag(self.per_grade)), ("bias", Setting::Name(self.bias.name())), ("grades", Setting::Grades(self.grades)), ("weight_layout", Setting::Name(self.weight_layout.name()))]
    }
}

/// Options of [`mv_linear_sgp_norm`](crate::ops::mv_linear_sgp_norm). The default is that of
/// [`mv_linear`](crate::ops::mv_linear) and of [`sgp_norm`](crate::ops::sgp_norm).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LinearSgpOptions {
    /// Options of the linear map. Its grades are the grades of `x`, and so of `y`. Default:
    /// `LinearOptions::default()`.
    pub linear: LinearOptions,
    /// The gate on both operands: every blade times a function of the scalar component. An operand
    /// without scalars is gated by the constant `gate(0)`, 0.5 for all gates but `none`. Default:
    /// `Gate::Gelu`.
    pub gate: Gate,
    /// The norm of the result, for each grade and batch element:
    /// `o_g / sqrt(mean over channels of |o_g|^2 + eps)`, where the option says what `|o_g|^2` is.
    /// Default: `Norm::Invariant`.
    pub norm: Norm,
    /// Added under the root of the mean; where the quadratic form can be negative, it smooths the
    /// magnitude instead. Default: `1e-6`.
    pub eps: f64,
    /// Whether the backward pass computes `y` again, by one more product of matrices, instead of
    /// reading it from what the forward pass saved. Default: `false`.
    pub recompute: bool,
}

impl Default for LinearSgpOptions {
    fn default() -> Self {
        Self {
            linear: LinearOptions::default(),
            gate: Gate::Gelu,
            norm: Norm::Invariant,
            eps: 1e-6,
            recompute: false,
        }
    }
}

impl LinearSgpOptions {
    /// Sets [`linear`](Self::linear).
    #[must_use]
    pub fn with_linear(mut self, linear: LinearOptions) -> Self {
        self.linear = linear;
        self
    }

    /// Sets [`gate`](Self::gate).
    #[must_use]
    pub fn with_gate(mut self, gate: Gate) -> Self {
        self.gate = gate;
        self
    }

    /// Sets [`norm`](Self::norm).
    #[must_use]
    pub fn with_norm(mut self, norm: Norm) -> Self {
        self.norm = norm;
        self
    }

    /// Sets [`eps`](Self::eps).
    #[must_use]
    pub fn with_eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// Sets [`recompute`](Self::recompute).
    #[must_use]
    pub fn with_recompute(mut self, recompute: bool) -> Self {
        self.recompute = recompute;
        self
    }

    /// The settings by name, as [`by_name`](super::by_name) takes them.
    pub fn settings(&self) -> Vec<(&'static str, Setting<'static>)> {
        let mut settings = self.linear.settings();
        settings.extend(vec![("gate", Setting::Name(self.gate.name())), ("norm", Setting::Name(self.norm.name())), ("eps", Setting::Number(self.eps)), ("recompute", Setting::Flag(self.recompute))]);
        settings
    }
}

/// Options of [`steerable_product`](crate::ops::steerable_product).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SteerableOptions {
    /// Whether the first-order term is added: `o = (l + z) / sqrt 2`. Default: `true`.
    pub first_order: bool,
    /// Whether the right operand is normalised first, by [`grade_norm`](crate::ops::grade_norm)
    /// with `a`. Default: `true`.
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

impl SteerableOptions {
    /// Sets [`first_order`](Self::first_order).
    #[must_use]
    pub fn with_first_order(mut self, first_order: bool) -> Self {
        self.first_order = first_order;
        self
    }

    /// Sets [`normalize`](Self::normalize).
    #[must_use]
    pub fn with_normalize(mut self, normalize: bool) -> Self {
        self.normalize = normalize;
        self
    }

    /// The settings by name, as [`by_name`](super::by_name) takes them.
    pub fn settings(&self) -> Vec<(&'static str, Setting<'static>)> {
        vec![("first_order", Setting::Flag(self.first_order)), ("normalize", Setting::Flag(self.normalize))]
    }
}

//! The operators to test, with their options, for an algebra.

use flashcliff::ops::{self, LinearOptions, LinearSgpOptions, ProductOptions, SteerableOptions};
use flashcliff::{
    Algebra, Bias, Dim, Dims, Error, Gate, GradeSet, Invariant, Norm, Operator, ProductKind,
    WeightLayout,
};

use crate::basis::Basis;

/// An operator with its options, from which the reference computes it.
#[derive(Clone, Debug)]
pub(crate) enum Spec {
    Sgp(ProductOptions),
    Fcgp(ProductOptions),
    Linear(LinearOptions),
    LinearSgp(LinearSgpOptions),
    GradeNorm,
    Steerable(SteerableOptions),
    MvSilu(Invariant),
    MvLayerNorm,
    Product(ProductKind, Option<GradeSet>, Option<GradeSet>),
    Sandwich(Option<GradeSet>, Option<GradeSet>),
    Reverse,
    GradeInvolution,
    CliffordConjugate,
    Dual,
    Undual,
    Norm,
    GradeNorms,
    Gate(Gate),
    GradeRms(Norm, f64),
}

impl Spec {
    pub(crate) fn operator(&self, a: Algebra) -> Result<Operator, Error> {
        match self {
            Self::Sgp(options) => ops::sgp_norm(a, options),
            Self::Fcgp(options) => ops::fcgp_norm(a, options),
            Self::Linear(options) => ops::mv_linear(a, options),
            Self::LinearSgp(options) => ops::mv_linear_sgp_norm(a, options),
            Self::GradeNorm => ops::grade_norm(a),
            Self::Steerable(options) => ops::steerable_product(a, options),
            Self::MvSilu(invariant) => ops::mv_silu(a, *invariant),
            Self::MvLayerNorm => ops::mv_layer_norm(a),
            Self::Product(kind, left, right) => ops::product(a, *kind, *left, *right),
            Self::Sandwich(left, right) => ops::sandwich(a, *left, *right),
            Self::Reverse => ops::reverse(a),
            Self::GradeInvolution => ops::grade_involution(a),
            Self::CliffordConjugate => ops::clifford_conjugate(a),
            Self::Dual => ops::dual(a),
            Self::Undual => ops::undual(a),
            Self::Norm => ops::norm(a),
            Self::GradeNorms => ops::grade_norms(a),
            Self::Gate(gate) => ops::gate(a, *gate),
            Self::GradeRms(norm, eps) => ops::grade_rms(a, *norm, *eps),
        }
    }

    /// Whether the operator only adds and multiplies, so that integers come out exactly.
    pub(crate) fn is_exact(&self) -> bool {
        match self {
            Self::Sgp(o) | Self::Fcgp(o) => o.gate == Gate::None && o.norm == Norm::None,
            Self::LinearSgp(o) => o.gate == Gate::None && o.norm == Norm::None,
            Self::Steerable(o) => !o.normalize && !o.first_order,
            Self::Gate(gate) => *gate == Gate::None,
            Self::GradeNorm | Self::MvSilu(_) | Self::MvLayerNorm => false,
            Self::Norm | Self::GradeNorms | Self::GradeRms(..) => false,
            _ => true,
        }
    }
}

/// All gates but none.
const GATES: [Gate; 4] = [Gate::Gelu, Gate::GeluTanh, Gate::Silu, Gate::GeluFast];

/// Pairs of grade sets that have kernels.
pub(crate) fn grade_pairs() -> [(Option<GradeSet>, Option<GradeSet>); 4] {
    let vectors = Some(GradeSet::single(1));
    [
        (None, None),
        (vectors, None),
        (None, vectors),
        (vectors, vectors),
    ]
}

/// The operators with the options that a layer would choose, one of each kind.
pub(crate) fn main_operators() -> Vec<Spec> {
    let plain = ProductOptions::default()
        .with_gate(Gate::None)
        .with_norm(Norm::None);
    let mut specs = vec![
        Spec::Sgp(ProductOptions::default()),
        Spec::Sgp(plain.clone()),
        Spec::Fcgp(ProductOptions::default()),
        Spec::Fcgp(plain),
        Spec::Linear(LinearOptions::default()),
        Spec::LinearSgp(LinearSgpOptions::default()),
        Spec::LinearSgp(
            LinearSgpOptions::default()
                .with_gate(Gate::None)
                .with_norm(Norm::None)
                .with_recompute(true),
        ),
        Spec::GradeNorm,
        Spec::Steerable(SteerableOptions::default()),
        Spec::MvSilu(Invariant::Mag2),
        Spec::MvSilu(Invariant::Norm),
        Spec::MvLayerNorm,
        Spec::Sandwich(None, None),
        Spec::Reverse,
        Spec::GradeInvolution,
        Spec::CliffordConjugate,
        Spec::Dual,
        Spec::Undual,
        Spec::Norm,
        Spec::GradeNorms,
        Spec::Gate(Gate::Gelu),
        Spec::GradeRms(Norm::Invariant, 1e-6),
    ];
    specs.extend(ProductKind::ALL.map(|kind| Spec::Product(kind, None, None)));
    specs
}

/// All other choices of options.
pub(crate) fn option_variants(dim: usize) -> Vec<Spec> {
    let mut specs = Vec::new();
    for (left, right) in grade_pairs() {
        for gate in [&[Gate::None][..], &GATES].concat() {
            for norm in Norm::ALL {
                let options = ProductOptions::default()
                    .with_gate(gate)
                    .with_norm(norm)
                    .with_eps(1e-3)
                    .with_left(left)
                    .with_right(right);
                specs.push(Spec::Sgp(options.clone()));
                specs.push(Spec::Fcgp(options));
            }
        }
        specs.extend(ProductKind::ALL.map(|kind| Spec::Product(kind, left, right)));
    }
    // The fully connected product takes any grades.
    let (even, odd) = (GradeSet::even(dim), GradeSet::odd(dim));
    for (left, right) in [
        (even, odd),
        (odd, GradeSet::single(0)),
        (GradeSet::single(dim), even),
    ] {
        let (left, right) = (Some(left), Some(right));
        specs.push(Spec::Fcgp(
            ProductOptions::default().with_left(left).with_right(right),
        ));
    }
    for per_grade in [false, true] {
        for bias in Bias::ALL {
            for grades in [None, Some(even), Some(odd)] {
                if bias == Bias::Scalar && grades == Some(odd) {
                    continue;
                }
                specs.extend(WeightLayout::ALL.map(|layout| {
                    Spec::Linear(
                        LinearOptions::default()
                            .with_per_grade(per_grade)
                            .with_bias(bias)
                            .with_grades(grades)
                            .with_weight_layout(layout),
                    )
                }));
            }
        }
    }
    specs.extend(linear_sgps());
    for (first_order, normalize) in [(false, false), (false, true), (true, false)] {
        specs.push(Spec::Steerable(
            SteerableOptions::default()
                .with_first_order(first_order)
                .with_normalize(normalize),
        ));
    }
    specs.push(Spec::Sandwich(Some(even), Some(GradeSet::single(1))));
    specs.extend(GATES.map(Spec::Gate));
    specs.push(Spec::Gate(Gate::None));
    specs.extend([Norm::Rms, Norm::Invariant].map(|norm| Spec::GradeRms(norm, 0.25)));
    specs
}

/// The product of `x` with a linear map of `x`, with every option of the map.
pub(crate) fn linear_sgps() -> Vec<Spec> {
    let vectors = Some(GradeSet::single(1));
    let mut specs = Vec::new();
    for grades in [None, vectors] {
        for bias in Bias::ALL {
            if bias == Bias::Scalar && grades == vectors {
                continue;
            }
            for per_grade in [true, false] {
                for layout in WeightLayout::ALL {
                    let linear = LinearOptions::default()
                        .with_per_grade(per_grade)
                        .with_bias(bias)
                        .with_grades(grades)
                        .with_weight_layout(layout);
                    // The sums alone come first, then the sums with a gate and a norm.
                    for (gate, norm) in [
                        (Gate::None, Norm::None),
                        (Gate::Silu, Norm::Rms),
                        (Gate::Silu, Norm::Invariant),
                    ] {
                        specs.push(Spec::LinearSgp(
                            LinearSgpOptions::default()
                                .with_linear(linear.clone())
                                .with_gate(gate)
                                .with_norm(norm)
                                .with_eps(1e-3)
                                .with_recompute(specs.len() % 3 == 1),
                        ));
                    }
                }
            }
        }
    }
    specs
}

/// The main operators of an algebra, without products that are always zero.
pub(crate) fn main_of(basis: &Basis) -> Vec<Spec> {
    let mut specs = main_operators();
    specs.retain(|spec| !is_nothing(basis, spec));
    specs
}

/// All operators of an algebra, main ones and variants, without products that are always zero.
pub(crate) fn all_operators(basis: &Basis) -> Vec<Spec> {
    let mut specs = main_operators();
    specs.extend(option_variants(basis.dim));
    specs.retain(|spec| !is_nothing(basis, spec));
    specs
}

/// Whether a plain product of these grades is always zero: such products have no kernel.
pub(crate) fn is_nothing(basis: &Basis, spec: &Spec) -> bool {
    let Spec::Product(kind, left, right) = spec else {
        return false;
    };
    let full = GradeSet::full(basis.dim);
    let table = basis.table(*kind, left.unwrap_or(full), right.unwrap_or(full));
    table.outputs.is_empty()
}

/// The sizes for a call. `out` only matters if the operator can change the number of channels.
pub(crate) fn sizes(op: &Operator, batch: usize, channels: usize, out: usize) -> Dims {
    let has_out = op.output().dims.contains(&Dim::Out);
    let out_channels = if has_out { out } else { channels };
    Dims {
        batch,
        in_channels: channels,
        out_channels,
    }
}

/// The shapes of the inputs.
pub(crate) fn input_shapes(op: &Operator, dims: &Dims) -> Vec<Vec<usize>> {
    op.inputs().iter().map(|spec| spec.shape(dims)).collect()
}

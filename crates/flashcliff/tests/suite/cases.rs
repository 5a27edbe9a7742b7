//! The operators to test, with their options, for an algebra.

use flashcliff::ops::{
    self, LinearOptions, LinearSgpOptions, ProductOptions, Setting, SteerableOptions,
};
use flashcliff::{
    Algebra, Bias, Dim, Dims, Error, Gate, GradeSet, Invariant, Norm, Operator, ProductKind,
    Signature, WeightLayout,
};
use flashcliff_program::operators::{self, Entry, Place, Settings, Value};
use flashcliff_program::reference::{self, Basis, Number};

/// An operator with its options, from which the reference computes it.
#[derive(Clone, Debug)]
pub(crate) enum Spec {
    Sgp(ProductOptions),
    Fcgp(ProductOptions),
    Linear(LinearOptions),
    LinearSgp(LinearSgpOptions),
    Steerable(SteerableOptions),
    MvSilu(Invariant),
    Product(ProductKind, Option<GradeSet>, Option<GradeSet>),
    Sandwich(Option<GradeSet>, Option<GradeSet>),
    Gate(Gate),
    GradeRms(Norm, f64),
    /// Any operator of the table, with settings by name.
    Row(&'static str, Vec<(&'static str, Setting<'static>)>),
}

impl Spec {
    /// The name in the table, and the settings that differ from the defaults.
    fn named(&self) -> (&'static str, Vec<(&'static str, Setting<'static>)>) {
        let between = |left: &Option<GradeSet>, right: &Option<GradeSet>| {
            vec![
                ("left", Setting::Grades(*left)),
                ("right", Setting::Grades(*right)),
            ]
        };
        match self {
            Self::Sgp(options) => ("sgp_norm", options.settings()),
            Self::Fcgp(options) => ("fcgp_norm", options.settings()),
            Self::Linear(options) => ("mv_linear", options.settings()),
            Self::LinearSgp(options) => ("mv_linear_sgp_norm", options.settings()),
            Self::Steerable(options) => ("steerable_product", options.settings()),
            Self::MvSilu(invariant) => (
                "mv_silu",
                vec![("invariant", Setting::Name(invariant.name()))],
            ),
            Self::Product(kind, left, right) => {
                let kind = ("kind", Setting::Name(kind.name()));
                ("product", [vec![kind], between(left, right)].concat())
            }
            Self::Sandwich(left, right) => ("sandwich", between(left, right)),
            Self::Gate(gate) => ("gate", vec![("gate", Setting::Name(gate.name()))]),
            Self::GradeRms(norm, eps) => (
                "grade_rms",
                vec![
                    ("norm", Setting::Name(norm.name())),
                    ("eps", Setting::Number(*eps)),
                ],
            ),
            Self::Row(name, settings) => (*name, settings.clone()),
        }
    }

    /// An operator of the table with its defaults.
    pub(crate) const fn row(name: &'static str) -> Self {
        Self::Row(name, Vec::new())
    }

    /// The name in the table.
    pub(crate) fn name(&self) -> &'static str {
        self.named().0
    }

    pub(crate) fn operator(&self, a: Algebra) -> Result<Operator, Error> {
        let (name, settings) = self.named();
        ops::by_name(a, name, &settings)
    }

    /// The file of the operator.
    pub(crate) fn entry(&self) -> &'static Entry {
        operators::find(self.name()).expect("an operator of the table")
    }

    /// All settings.
    pub(crate) fn settings(&self) -> Settings {
        let (_, given) = self.named();
        let all = Settings::of(&self.entry().row);
        given.into_iter().fold(all, |all, (name, setting)| {
            let value = match setting {
                Setting::Name(name) => Value::Name(name),
                Setting::Number(number) => Value::Number(number),
                Setting::Flag(flag) => Value::Flag(flag),
                Setting::Grades(grades) => Value::Grades(grades),
                other => panic!("no setting {other:?}"),
            };
            all.with(name, value)
        })
    }

    /// The grades of the operands.
    pub(crate) fn operands(&self, dim: usize) -> [GradeSet; 2] {
        let operands = self.settings().operands();
        operands.map(|grades| grades.unwrap_or(GradeSet::full(dim)))
    }

    /// The grades of the output, as the file of an operator of lanes says them.
    pub(crate) fn reached(&self, basis: &Basis) -> Option<GradeSet> {
        let (entry, algebra) = (self.entry(), cayley::Algebra::new(basis.signature));
        let lanes = entry.lanes.as_ref()?;
        let name = lanes.program(entry, &algebra, &self.settings());
        let [left, right] = self.operands(basis.dim);
        let place = Place {
            name: name.ok()?,
            algebra: &algebra,
            left,
            right,
        };
        Some((lanes.output)(&place))
    }

    /// Whether the operator only adds and multiplies, so that integers come out exactly.
    pub(crate) fn is_exact(&self) -> bool {
        // Grades do not matter for it, and an algebra of two dimensions has few.
        let settings = self.settings();
        let names: Vec<&'static str> = settings.iter().map(|(name, _)| name).collect();
        let grades = ["left", "right", "grades"];
        let grades = grades.into_iter().filter(|name| names.contains(name));
        let settings = grades.fold(settings, |all, name| all.with(name, Value::Grades(None)));
        let (entry, basis) = (self.entry(), Basis::new(Signature::of(1, 1, 0)));
        // No parameter has more elements than there are paths.
        let full = GradeSet::full(basis.dim);
        let paths = basis.table(ProductKind::Geometric, full, full).paths.len();
        let names = settings.inputs(&entry.row);
        let inputs = entry
            .row
            .inputs
            .iter()
            .filter(|input| names.contains(&input.name));
        let inputs = inputs.map(|input| {
            let len = if input.is_parameter() {
                paths
            } else {
                basis.len()
            };
            vec![Exactness(true); len]
        });
        let inputs: Vec<Vec<Exactness>> = inputs.collect();
        let output = reference::evaluate(entry, &settings, &basis, [1, 1, 1], &inputs);
        output.into_iter().all(|number| number.0)
    }
}

/// Whether a number is exact for integers, of whatever value.
#[derive(Clone, Copy)]
struct Exactness(bool);

impl Number for Exactness {
    fn constant(value: f64) -> Self {
        Self(value.fract() == 0.0)
    }

    fn input(_: f64) -> Self {
        Self(true)
    }

    fn sum(terms: &[Self]) -> Self {
        Self(terms.iter().all(|term| term.0))
    }

    fn mul(self, other: Self) -> Self {
        Self(self.0 && other.0)
    }

    fn div(self, _: Self) -> Self {
        Self(false)
    }

    fn neg(self) -> Self {
        self
    }

    fn apply(self, _: &dyn Fn(f64) -> f64, _: &dyn Fn(f64) -> f64) -> Self {
        Self(false)
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
        Spec::Steerable(SteerableOptions::default()),
        Spec::MvSilu(Invariant::Mag2),
        Spec::MvSilu(Invariant::Norm),
        Spec::Sandwich(None, None),
        Spec::Gate(Gate::Gelu),
        Spec::GradeRms(Norm::Invariant, 1e-6),
    ];
    specs.extend(ProductKind::ALL.map(|kind| Spec::Product(kind, None, None)));
    specs.extend(unnamed(&specs));
    specs
}

/// The operators of the table that are not among `specs`, with their defaults.
fn unnamed(specs: &[Spec]) -> Vec<Spec> {
    let names: Vec<&str> = specs.iter().map(Spec::name).collect();
    let rows = ops::TABLE.iter().map(|row| row.name);
    rows.filter(|name| !names.contains(name))
        .map(Spec::row)
        .collect()
}

/// The combinations of choices and flags of operators that only the table names here. Those with programs of lanes between any grades are
/// also taken between fewer.
fn choices_of_rows(dim: usize) -> Vec<Spec> {
    let mut specs = Vec::new();
    for spec in main_operators() {
        let Spec::Row(name, _) = spec else { continue };
        let row = &spec.entry().row;
        for settings in Settings::choices(row) {
            let given = settings.iter().map(|(name, value)| match value {
                Value::Name(choice) => (name, Setting::Name(choice)),
                Value::Number(number) => (name, Setting::Number(number)),
                Value::Flag(flag) => (name, Setting::Flag(flag)),
                Value::Grades(grades) => (name, Setting::Grades(grades)),
            });
            let given: Vec<_> = given.collect();
            let sides = given
                .iter()
                .filter(|(_, value)| matches!(value, Setting::Grades(_)));
            let sides: Vec<&'static str> = sides.map(|(name, _)| *name).collect();
            for side in sides {
                let even = (side, Setting::Grades(Some(GradeSet::even(dim))));
                specs.push(Spec::Row(name, [given.clone(), vec![even]].concat()));
            }
            if settings != Settings::of(row) {
                specs.push(Spec::Row(name, given));
            }
        }
    }
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
    specs.extend(choices_of_rows(dim));
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

/// Whether an operator is always zero between these grades: it has no kernel.
pub(crate) fn is_nothing(basis: &Basis, spec: &Spec) -> bool {
    let [left, right] = spec.operands(basis.dim);
    if let Spec::Product(kind, ..) = spec {
        return basis.table(*kind, left, right).outputs.is_empty();
    }
    let lanes = spec.entry().lanes.as_ref();
    let is_zero = lanes.is_some_and(|lanes| lanes.is_zero_without_result);
    is_zero && spec.reached(basis).is_some_and(GradeSet::is_empty)
}

/// The sizes for a call. `out` only matters if the operator can change the number of channels.
pub(crate) fn sizes(op: &Operator, batch: usize, channels: usize, out: usize) -> Dims {
    let has_out = op.output().dims.contains(&Dim::Out);
    let out_channels = if has_out { out } else { channels };
    Dims {
        batch,
        in_channels: channels,
        out_channels,
        scalar_channels: 0,
    }
}

/// The shapes of the inputs.
pub(crate) fn input_shapes(op: &Operator, dims: &Dims) -> Vec<Vec<usize>> {
    op.inputs().iter().map(|spec| spec.shape(dims)).collect()
}

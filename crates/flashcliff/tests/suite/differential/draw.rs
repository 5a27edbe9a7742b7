//! A call that is drawn from a seed.

use flashcliff::ops::{LinearOptions, LinearSgpOptions, ProductOptions, SteerableOptions};
use flashcliff::{
    Algebra, Bias, Dim, Dims, Error, Gate, GradeSet, Invariant, Norm, Operator, ProductKind,
    Signature, Tier, WeightLayout,
};

use crate::cases::{Spec, grade_pairs, input_shapes, is_nothing, main_operators, sizes};
use crate::random::Random;
use flashcliff_program::reference::Basis;

/// The sizes of the axes: below, at and above the widths of vectors, primes, 1 and 0.
const BATCHES: [usize; 12] = [0, 1, 1, 2, 3, 4, 5, 7, 11, 13, 17, 31];
const CHANNELS: [usize; 18] = [0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 32, 37, 64, 97];
/// The batches of large calls, which are cut into chunks for threads.
const LARGE_BATCHES: [usize; 4] = [257, 512, 1021, 3001];
/// The largest number of floating-point operations of the forward pass. The reference takes some hundred times as long.
const BUDGET: usize = 20_000;
const LARGE_BUDGET: usize = 12 << 20;

/// Signatures whose operators are interpreted.
const OTHERS: [(usize, usize, usize); 3] = [(1, 1, 1), (2, 1, 0), (2, 2, 0)];

/// The algebras with their bases, and pools of threads.
pub(super) struct World {
    algebras: Vec<(Algebra, Basis)>,
    pools: Vec<rayon::ThreadPool>,
}

impl World {
    pub(super) fn new() -> Self {
        let pool = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            pool.build().expect("threads can be started")
        };
        Self {
            algebras: Algebra::shipped()
                .chain(
                    OTHERS.map(|(p, q, r)| {
                        Algebra::new(Signature::of(p, q, r)).expect("any signature")
                    }),
                )
                .map(|algebra| (algebra, Basis::new(algebra.signature())))
                .collect(),
            pools: (1..=3).map(pool).collect(),
        }
    }
}

/// An operator with sizes, inputs and the gradient of its output, and the way to run it.
pub(super) struct Call<'a> {
    pub(super) basis: &'a Basis,
    pub(super) spec: Spec,
    pub(super) op: Operator,
    pub(super) dims: Dims,
    pub(super) inputs: Vec<Vec<f64>>,
    pub(super) grad_output: Vec<f64>,
    /// Which gradients are wanted.
    pub(super) wanted: Vec<bool>,
    /// Whether all numbers are integers and the operator only adds and multiplies.
    pub(super) exact: bool,
    pub(super) single: bool,
    pub(super) offset: usize,
    pub(super) pool: &'a rayon::ThreadPool,
    /// The seed for everything that is drawn after the call.
    pub(super) seed: u64,
}

impl std::fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { spec, dims, .. } = self;
        write!(f, "{spec:?}, {dims:?}, {:?}", self.features())
    }
}

impl<'a> Call<'a> {
    /// The call of a seed; `None` if there is no such operator.
    pub(super) fn draw(world: &'a World, seed: u64, large: bool) -> Option<Self> {
        let mut random = Random::new(seed);
        let (algebra, basis) = &world.algebras[random.below(world.algebras.len())];
        let spec = spec(&mut random, basis.dim);
        let op = match spec.operator(*algebra) {
            Ok(op) => op,
            Err(Error::UnsupportedGrades { .. }) => return None,
            Err(error) => panic!("{spec:?} of {}: {error}", algebra.name()),
        };
        // Products that are always zero have no kernel, but have their own tests.
        if is_nothing(basis, &spec) {
            return None;
        }
        let tiers: Vec<Tier> = Tier::available().collect();
        let op = op.with_tier(random.pick(&tiers)).expect("available");
        let large = large && random.once_in(100);
        let dims = dims(&mut random, &op, large);
        let exact = spec.is_exact() && random.once_in(2);
        let inputs = input_shapes(&op, &dims)
            .iter()
            .map(|shape| fill(&mut random, shape.iter().product(), exact))
            .collect();
        let len = op.output_shape(&dims).iter().product();
        Some(Self {
            grad_output: fill(&mut random, len, exact),
            wanted: op.inputs().iter().map(|_| !random.once_in(5)).collect(),
            basis,
            spec,
            op,
            dims,
            inputs,
            exact,
            single: random.once_in(2),
            offset: random.below(4),
            pool: &world.pools[random.below(world.pools.len())],
            seed,
        })
    }

    /// Whether an axis is 0.
    pub(super) fn is_empty(&self) -> bool {
        let Dims {
            batch,
            in_channels,
            out_channels,
            ..
        } = self.dims;
        batch * in_channels * out_channels == 0
    }

    /// The properties of the call, in words.
    pub(super) fn features(&self) -> [String; 6] {
        let word = |yes, a: &str, b: &str| if yes { a } else { b }.to_owned();
        [
            self.op.name().to_owned(),
            self.op.algebra().name(),
            self.op.tier().name().to_owned(),
            word(self.single, "f32", "f64"),
            word(self.exact, "integers", "reals"),
            format!("{} threads", self.pool.current_num_threads()),
        ]
    }
}

/// A random subset of the grades, mostly all of them or the vectors.
fn grades(random: &mut Random, dim: usize) -> Option<GradeSet> {
    match random.below(4) {
        0 | 1 => None,
        2 => Some(GradeSet::single(1)),
        _ => {
            let drawn = (0..=dim).filter(|_| random.once_in(2));
            Some(drawn.fold(GradeSet::EMPTY, |set, g| set.union(GradeSet::single(g))))
        }
    }
}

fn spec(random: &mut Random, dim: usize) -> Spec {
    let gates = [
        Gate::None,
        Gate::Gelu,
        Gate::GeluTanh,
        Gate::Silu,
        Gate::GeluFast,
    ];
    let (gate, eps) = (random.pick(&gates), random.pick(&[1e-6, 1e-3, 0.25, 8.0]));
    let (left, right) = match random.once_in(3) {
        true => (grades(random, dim), grades(random, dim)),
        false => random.pick(&grade_pairs()),
    };
    let (yes, no) = (random.once_in(2), random.once_in(2));
    let product = ProductOptions::default()
        .with_gate(gate)
        .with_norm(random.pick(&Norm::ALL))
        .with_eps(eps)
        .with_left(left)
        .with_right(right);
    match random.below(27) {
        0..4 => Spec::Sgp(product),
        4..7 => Spec::Fcgp(
            product
                .with_left(grades(random, dim))
                .with_right(grades(random, dim)),
        ),
        7..10 => Spec::Linear(linear(random, dim, yes)),
        10..12 => Spec::Steerable(
            SteerableOptions::default()
                .with_first_order(yes)
                .with_normalize(no),
        ),
        12..15 => Spec::Product(random.pick(&ProductKind::ALL), left, right),
        15 => Spec::Sandwich(None, None),
        16 => Spec::Sandwich(Some(GradeSet::even(dim)), Some(GradeSet::single(1))),
        17 => Spec::row("grade_norm"),
        18 => Spec::MvSilu(if yes {
            Invariant::Mag2
        } else {
            Invariant::Norm
        }),
        19 => Spec::row("mv_layer_norm"),
        20 => Spec::Gate(gate),
        21 => Spec::GradeRms(random.pick(&[Norm::Rms, Norm::Invariant]), eps),
        24.. => Spec::LinearSgp(
            LinearSgpOptions::default()
                .with_linear(linear(random, dim, yes))
                .with_gate(gate)
                .with_norm(product.norm)
                .with_eps(eps)
                .with_recompute(no),
        ),
        22 if yes => Spec::row("norm"),
        22 => Spec::row("grade_norms"),
        _ => {
            let rows = main_operators().into_iter();
            let rows: Vec<Spec> = rows.filter(|spec| matches!(spec, Spec::Row(..))).collect();
            rows[random.below(rows.len())].clone()
        }
    }
}

fn linear(random: &mut Random, dim: usize, per_grade: bool) -> LinearOptions {
    let grades = grades(random, dim);
    let has_scalar = grades.is_none_or(|grades| grades.contains(0));
    let bias = match random.pick(&Bias::ALL) {
        Bias::Scalar if !has_scalar => Bias::None,
        bias => bias,
    };
    LinearOptions::default()
        .with_per_grade(per_grade)
        .with_bias(bias)
        .with_grades(grades)
        .with_weight_layout(random.pick(&WeightLayout::ALL))
}

/// Sizes within the budget: the largest of some draws.
fn dims(random: &mut Random, op: &Operator, large: bool) -> Dims {
    let (batches, budget) = match large {
        true => (&LARGE_BATCHES[..], LARGE_BUDGET),
        false => (&BATCHES[..], BUDGET),
    };
    for _ in 0..20 {
        let (batch, channels) = (random.pick(batches), random.pick(&CHANNELS));
        let dims = sizes(op, batch, channels, random.pick(&CHANNELS));
        if op.cost(&dims).forward <= budget && (!large || op.cost(&dims).forward > 4 << 20) {
            return dims;
        }
    }
    let has_out = op.output().dims.contains(&Dim::Out);
    sizes(op, 1, 3, if has_out { 2 } else { 3 })
}

/// Integers, or reals times some power of two with some stretches of zeros.
fn fill(random: &mut Random, len: usize, exact: bool) -> Vec<f64> {
    if exact {
        return random.integers(len);
    }
    let scale = 2.0_f64.powi(random.below(9) as i32 - 5);
    let mut values: Vec<f64> = random.reals(len).iter().map(|x| x * scale).collect();
    if len > 0 && random.once_in(4) {
        let start = random.below(len);
        let end = (start + random.below(40)).min(len);
        values[start..end].fill(0.0);
    }
    values
}

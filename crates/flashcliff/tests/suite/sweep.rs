//! Calls with numbers of every size: operators x algebras x magnitudes from 1e-30 to 1e30, also mixed within a row.

use flashcliff::ops::{LinearSgpOptions, ProductOptions, SteerableOptions};
use flashcliff::{Algebra, Gate, Norm, Signature};
use flashcliff_program::spec::shipped;

use crate::cases::{Spec, input_shapes, is_nothing, main_operators, sizes};
use crate::plain::{Tensors, Trial, Verdict, has_batch};
use crate::random::Random;
use flashcliff_program::reference::Basis;

/// How the sizes of the inputs are drawn: a power of ten for a row, and the largest number of powers by which its
/// numbers differ from it.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    power: f64,
    spread: f64,
}

impl Sizes {
    fn draw(self, random: &mut Random) -> f64 {
        let power = self.power + self.spread * random.unit();
        let size = 10_f64.powf(power.clamp(-30.0, 30.0)) * (1.0 + random.unit().abs());
        f64::from((size * if random.unit() < 0.0 { -1.0 } else { 1.0 }) as f32)
    }

    /// One size from 1e-30 to 1e30, sizes a few powers apart, and every size in one row.
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for power in [-30, -19, -12, -6, -2, 0, 2, 4, 7, 9, 12, 15, 18, 25, 30] {
            for spread in [0.0, 3.0] {
                let power = f64::from(power);
                all.push(Self { power, spread });
            }
        }
        all.push(Self {
            power: 0.0,
            spread: 30.0,
        });
        all
    }
}

/// Signatures that no build compiles.
const INTERPRETED: [(usize, usize, usize); 2] = [(2, 1, 0), (2, 1, 1)];

/// All algebras that flashcliff ships, whichever the build compiled, and some that are always interpreted.
pub(crate) fn algebras() -> Vec<Algebra> {
    let shipped = shipped().map(|signature| Algebra::new(signature).expect("any signature"));
    let interpreted = INTERPRETED.map(|(p, q, r)| {
        let algebra = Algebra::interpreted(Signature::of(p, q, r)).expect("any signature");
        assert!(!algebra.is_compiled());
        algebra
    });
    shipped.chain(interpreted).collect()
}

/// Every operator that an algebra has, with the options that decide about ranges: gates and norms.
fn operators(basis: &Basis) -> Vec<Spec> {
    let mut specs = main_operators();
    let gates = [
        Gate::None,
        Gate::Gelu,
        Gate::GeluTanh,
        Gate::Silu,
        Gate::GeluFast,
    ];
    for gate in gates {
        specs.push(Spec::Gate(gate));
        for norm in Norm::ALL {
            let options = ProductOptions::default().with_gate(gate).with_norm(norm);
            specs.push(Spec::Sgp(options));
        }
    }
    for (gate, norm) in [
        (Gate::None, Norm::Invariant),
        (Gate::Silu, Norm::None),
        (Gate::Gelu, Norm::Rms),
    ] {
        let product = ProductOptions::default().with_gate(gate).with_norm(norm);
        specs.push(Spec::Fcgp(product));
        let product = LinearSgpOptions::default().with_gate(gate).with_norm(norm);
        specs.push(Spec::LinearSgp(product));
    }
    for (first_order, normalize) in [(false, false), (true, false)] {
        specs.push(Spec::Steerable(
            SteerableOptions::default()
                .with_first_order(first_order)
                .with_normalize(normalize),
        ));
    }
    for eps in [1e-6, 1e-30] {
        specs.extend([Norm::Rms, Norm::Invariant].map(|norm| Spec::GradeRms(norm, eps)));
    }
    let mut seen = std::collections::BTreeSet::new();
    specs.retain(|spec| !is_nothing(basis, spec) && seen.insert(format!("{spec:?}")));
    specs
}

/// One operator of one algebra, over numbers of all sizes.
pub(crate) struct Job {
    pub(crate) algebra: Algebra,
    pub(crate) spec: Spec,
    /// The number of the operator among all, so that a thinned sweep takes other sizes for each.
    index: usize,
}

/// All operators of some algebras.
pub(crate) fn jobs(algebras: impl IntoIterator<Item = Algebra>) -> Vec<Job> {
    let specs = algebras.into_iter().flat_map(|algebra| {
        let specs = operators(&Basis::new(algebra.signature()));
        specs.into_iter().map(move |spec| (algebra, spec))
    });
    let jobs = specs.enumerate().map(|(index, (algebra, spec))| Job {
        algebra,
        spec,
        index,
    });
    jobs.collect()
}

impl Job {
    /// Judges the results of `run` for every `step`th size, of which each operator has others.
    pub(crate) fn judge(&self, step: usize, mut run: impl FnMut(&Trial<'_>) -> Tensors) -> Verdict {
        let basis = Basis::new(self.algebra.signature());
        let op = self.spec.operator(self.algebra).expect("an operator");
        // Enough batch elements to measure the error of the plain formula.
        let rows = if basis.len() <= 8 { 40 } else { 12 };
        let dims = sizes(&op, rows, 3, 2);
        let mut total = Verdict::default();
        for sizes in Sizes::all()
            .into_iter()
            .skip(self.index % step)
            .step_by(step)
        {
            let mut random = Random::new(100);
            let shapes = input_shapes(&op, &dims);
            let inputs = op.inputs().iter().zip(&shapes).map(|(input, shape)| {
                // Weights are of the size that they have in networks; multivectors have the sizes of the sweep.
                let len = shape.iter().product();
                match has_batch(input) {
                    true => (0..len).map(|_| sizes.draw(&mut random)).collect(),
                    false => random.reals(len),
                }
            });
            let inputs = inputs.collect();
            let grad_output = random.reals(op.output_shape(&dims).iter().product());
            let trial = Trial {
                basis: &basis,
                spec: &self.spec,
                op: &op,
                dims,
                inputs,
                grad_output,
                is_mixed: sizes.spread > 10.0,
            };
            let verdict = trial.judge(&run(&trial));
            let (name, spec) = (self.algebra.name(), &self.spec);
            let failures = verdict.failures.into_iter();
            total
                .failures
                .extend(failures.map(|what| format!("{name} {spec:?} at {sizes:?}, {what}")));
            total.compared += verdict.compared;
        }
        total
    }
}

impl Verdict {
    /// Fails if a result was wrong, or if hardly any was compared.
    pub(crate) fn demand(self) {
        let Self { failures, compared } = self;
        println!("{compared} numbers compared");
        for failure in &failures {
            println!("{failure}");
        }
        let few = &failures[..failures.len().min(5)];
        assert!(failures.is_empty(), "{} failures: {few:#?}", failures.len());
        assert!(compared > 100_000, "only {compared} numbers compared");
    }
}

//! An operator of an algebra at some sizes, with inputs.

use flashcliff::cuda::{self, Dtypes};
use flashcliff::{Algebra, Dims, GradeSet, Operator};

use crate::cases::{Spec, all_operators, input_shapes, is_nothing, main_operators, sizes};
use crate::derivatives::Derivatives;
use crate::device::device;
use crate::dtypes;
use crate::harness;
use crate::random::Random;
use crate::reference::evaluate;
use crate::symmetries::grades;
use flashcliff_program::reference::Basis;
use flashcliff_program::reference::Number;

/// The numbers that the inputs are filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// Small integers.
    Integers,
    /// Reals in [-2, 2).
    Reals,
    /// Reals for which no quadratic form is near zero. Smooth norms have a kink there, where `f32` knows no slope.
    Separated,
}

/// An operator with inputs and the gradient of its output.
pub(crate) struct Case<'a> {
    pub(crate) basis: &'a Basis,
    pub(crate) spec: &'a Spec,
    pub(crate) op: Operator,
    pub(crate) gpu: cuda::Operator,
    pub(crate) dims: Dims,
    pub(crate) inputs: Vec<Vec<f64>>,
    pub(crate) grad_output: Vec<f64>,
}

impl<'a> Case<'a> {
    pub(crate) fn new(
        algebra: Algebra,
        basis: &'a Basis,
        spec: &'a Spec,
        [batch, channels, out]: [usize; 3],
        fill: Fill,
        seed: u64,
    ) -> Self {
        let op = spec.operator(algebra).expect("a shipped operator");
        let gpu = op.on_cuda(device());
        let gpu = gpu.unwrap_or_else(|e| panic!("{spec:?} of {}: {e}", algebra.name()));
        let dims = sizes(&op, batch, channels, out);
        let mut random = Random::new(seed);
        let mut inputs = Vec::new();
        for (shape, input) in input_shapes(&op, &dims).into_iter().zip(op.inputs()) {
            let len = shape.iter().product();
            let is_multivector = !input.is_parameter();
            inputs.push(match fill {
                Fill::Integers => random.integers(len),
                Fill::Separated if is_multivector => {
                    separated(basis, grades(basis, spec, input.name), len, &mut random)
                }
                _ => random.reals(len),
            });
        }
        let len = op.output_shape(&dims).iter().product();
        let grad_output = match fill {
            Fill::Integers => random.integers(len),
            _ => random.reals(len),
        };
        Self {
            basis,
            spec,
            op,
            gpu,
            dims,
            inputs,
            grad_output,
        }
    }

    /// The case with all numbers rounded to the element types.
    pub(crate) fn rounded(&self, dtypes: Dtypes) -> Self {
        let round = |values: &Vec<f64>, dtype| -> Vec<f64> {
            values.iter().map(|&v| dtypes::round(dtype, v)).collect()
        };
        let inputs = self.inputs.iter().zip(self.op.inputs());
        Self {
            op: self.op.clone(),
            gpu: self.gpu.clone(),
            inputs: inputs
                .map(|(values, spec)| round(values, dtypes::of(spec, dtypes)))
                .collect(),
            grad_output: round(&self.grad_output, dtypes.lanes),
            ..*self
        }
    }

    /// The case with inputs that are off by relative errors of some units.
    fn perturbed(&self, unit: f64, random: &mut Random) -> Self {
        let mut moved = |values: &Vec<f64>| -> Vec<f64> {
            let values = values.iter();
            values.map(|x| x + x * unit * random.unit()).collect()
        };
        Self {
            op: self.op.clone(),
            gpu: self.gpu.clone(),
            inputs: self.inputs.iter().map(&mut moved).collect(),
            grad_output: self.grad_output.clone(),
            ..*self
        }
    }

    pub(crate) fn context(&self, dtypes: Dtypes) -> String {
        let (name, Dtypes { lanes, params }) = (self.op.algebra().name(), dtypes);
        let (spec, dims) = (self.spec, self.dims);
        format!("{spec:?} of {name} at {dims:?} in {lanes} with parameters in {params}")
    }

    pub(crate) fn all_wanted(&self) -> Vec<bool> {
        vec![true; self.inputs.len()]
    }

    /// The output of the reference.
    pub(crate) fn reference<N: Number>(&self) -> Vec<N> {
        let inputs = self.inputs.iter();
        let inputs: Vec<Vec<N>> = inputs
            .map(|v| v.iter().map(|&x| N::input(x)).collect())
            .collect();
        evaluate(self.basis, self.spec, &self.dims, &inputs)
    }

    /// Derivatives of the reference.
    pub(crate) fn derivatives(&self) -> Derivatives<'_> {
        Derivatives {
            basis: self.basis,
            spec: self.spec,
            dims: &self.dims,
            inputs: &self.inputs,
            grad_output: &self.grad_output,
        }
    }

    /// The output of the CPU in `f32`.
    pub(crate) fn on_cpu_in_f32(&self) -> Vec<f64> {
        let call = harness::Call::<f32>::new(&self.op, self.dims, &self.inputs, 0);
        let output = call.forward().output;
        output.get().iter().map(|&x| f64::from(x)).collect()
    }

    /// The output and the gradients of all inputs on the CPU in `f64`. Gradients that are not wanted are empty.
    pub(crate) fn on_cpu(&self, wanted: &[bool]) -> (Vec<f64>, Vec<Vec<f64>>) {
        let call = harness::Call::<f64>::new(&self.op, self.dims, &self.inputs, 0);
        let forward = call.forward();
        let grads = call.backward(&forward, &self.grad_output, wanted);
        (forward.output.get().to_vec(), grads)
    }

    /// The change of each element of the results when inputs are off by some units.
    ///
    /// Exact arithmetic would give sums of products and quadratic forms at such inputs; the functions after these may
    /// be steep.
    pub(crate) fn spread(&self, unit: f64, wanted: &[bool]) -> (Vec<f64>, Vec<Vec<f64>>) {
        let (output, grads) = self.on_cpu(wanted);
        let mut spread = (
            vec![0.0; output.len()],
            grads.iter().map(|g| vec![0.0; g.len()]).collect::<Vec<_>>(),
        );
        let mut random = Random::new(71);
        for _ in 0..SAMPLES {
            let moved = self.perturbed(SPREAD_UNITS * unit, &mut random);
            let (moved_output, moved_grads) = moved.on_cpu(wanted);
            widen(&mut spread.0, &output, &moved_output);
            for ((spread, grad), moved) in spread.1.iter_mut().zip(&grads).zip(&moved_grads) {
                widen(spread, grad, moved);
            }
        }
        spread
    }
}

/// How often, and how far, [`Case::spread`] moves inputs.
const SAMPLES: usize = 4;
const SPREAD_UNITS: f64 = 8.0;

fn widen(spread: &mut [f64], exact: &[f64], moved: &[f64]) {
    for ((spread, exact), moved) in spread.iter_mut().zip(exact).zip(moved) {
        *spread = spread.max((moved - exact).abs());
    }
}

/// Multivectors whose quadratic forms keep away from zero: the negative part is smaller than the positive part, and
/// neither is near zero.
fn separated(basis: &Basis, grades: GradeSet, len: usize, random: &mut Random) -> Vec<f64> {
    let blades = basis.stored(grades);
    let lanes = len / blades.len().max(1);
    let mut values = random.reals(len);
    for (values, &blade) in values.chunks_mut(lanes.max(1)).zip(&blades) {
        for value in values {
            // The size is in [0, 1), and the sign is separate.
            let (size, sign) = (value.abs() / 2.0, value.signum());
            *value = match basis.quadratic(blade) {
                1 => sign * (1.0 + size),
                -1 => sign * (0.125 + 0.125 * size),
                _ => *value,
            };
            *value = f64::from(*value as f32);
        }
    }
    values
}

/// Whether an operator takes smooth norms.
pub(crate) fn has_smooth_norm(spec: &Spec) -> bool {
    match spec {
        Spec::Steerable(options) => options.normalize,
        Spec::MvSilu(invariant) => *invariant == flashcliff::Invariant::Norm,
        Spec::Row("grade_norm" | "mv_layer_norm" | "norm" | "grade_norms", _) => true,
        _ => false,
    }
}

/// Whether an operator runs lane by lane, without matrix products.
fn is_lanes(spec: &Spec) -> bool {
    !matches!(spec, Spec::Fcgp(_) | Spec::Linear(_) | Spec::LinearSgp(_))
}

/// The lane operators with all options.
pub(crate) fn lane_operators(basis: &Basis) -> Vec<Spec> {
    let mut specs = all_operators(basis);
    specs.retain(is_lanes);
    specs
}

/// The lane operators with the options that a layer would choose, one of each kind.
pub(crate) fn main_lane_operators(basis: &Basis) -> Vec<Spec> {
    let mut specs = main_operators();
    specs.retain(|spec| is_lanes(spec) && !is_nothing(basis, spec));
    specs
}

/// Sizes with few channels for large algebras: some references run once for every element of every input.
pub(crate) fn tiny(basis: &Basis) -> [usize; 3] {
    match basis.len() {
        ..=8 => [3, 3, 2],
        9..=16 => [2, 2, 1],
        _ => [1, 2, 1],
    }
}

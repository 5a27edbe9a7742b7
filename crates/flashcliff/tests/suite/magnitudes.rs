//! Tests with numbers of every size: outputs and gradients in `f32` and the plain formula in `f32` are both compared
//! with `f64`.

use flashcliff::simd::Tier;
use flashcliff::{Algebra, Dim, Dims, Norm, Operator, TensorSpec, ops};

use crate::basis::Basis;
use crate::cases::{Spec, input_shapes, main_operators, sizes};
use crate::harness::Call;
use crate::numbers::Number;
use crate::random::Random;
use crate::reference::evaluate;
use crate::tape::Taped;

/// The largest allowed ratio of an error to the error of the plain formula.
const FACTOR: f64 = 10.0;
/// The share of the largest value below which errors of the plain formula count as luck: some units of `f32`.
const UNITS: f64 = 16.0 * f32::EPSILON as f64;
/// The number of batch elements of a call, enough to measure the error of the plain formula.
const ROWS: usize = 40;
/// A size below which results are not compared: below the normal numbers of `f32` few bits or none are left.
const TINY: f64 = 64.0 * f32::MIN_POSITIVE as f64;

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
}

/// The sweep: one size from 1e-30 to 1e30, sizes a few powers apart, and every size in one row.
fn sweep() -> Vec<Sizes> {
    let mut all = Vec::new();
    for power in [-30, -19, -12, -6, -2, 0, 2, 4, 7, 9, 12, 15, 18, 25, 30] {
        for spread in [0.0, 3.0] {
            let power = f64::from(power);
            all.push(Sizes { power, spread });
        }
    }
    all.push(Sizes {
        power: 0.0,
        spread: 30.0,
    });
    all
}

/// The output of a call, then the gradient of each input, in the layouts of the operator.
type Tensors = Vec<Vec<f64>>;

/// The results of the plain formula for one batch element.
struct Plain {
    tensors: Tensors,
    /// The scale for the errors of each tensor. For the output it is the largest element. For a gradient it is the
    /// largest magnitude of the terms of its sum, since no format has bits left where these cancel.
    scales: Vec<f64>,
    /// Whether the results are not compared, because the order of operations decides what overflows.
    is_undecided: bool,
}

/// An operator with data of given sizes.
struct Trial<'a> {
    basis: &'a Basis,
    spec: &'a Spec,
    op: &'a Operator,
    dims: Dims,
    inputs: Vec<Vec<f64>>,
    grad_output: Vec<f64>,
    /// The number of powers of ten by which the sizes differ.
    spread: f64,
}

/// The largest finite magnitude.
fn largest(values: &[f64]) -> f64 {
    let finite = values.iter().filter(|x| x.is_finite());
    finite.fold(0.0, |most, x| most.max(x.abs()))
}

impl Trial<'_> {
    /// Whether a tensor has a row for each batch element: `[components, batch, channels]`.
    fn has_batch(spec: &TensorSpec) -> bool {
        spec.dims.contains(&Dim::Batch)
    }

    /// One batch element of a tensor.
    fn element(&self, spec: &TensorSpec, values: &[f64], row: usize) -> Vec<f64> {
        if !Self::has_batch(spec) {
            return values.to_vec();
        }
        let channels = *spec.shape(&self.dims).last().expect("channels");
        let rows = values.chunks(channels).skip(row).step_by(self.dims.batch);
        rows.flatten().copied().collect()
    }

    /// The plain formula in one format, for one batch element.
    fn plain<const SINGLE: bool>(&self, row: usize) -> Plain {
        Taped::<SINGLE>::clear();
        let dims = Dims {
            batch: 1,
            ..self.dims
        };
        let specs = self.op.inputs().iter().zip(&self.inputs);
        let inputs = specs.map(|(spec, values)| {
            let values = self.element(spec, values, row);
            values.into_iter().map(Taped::<SINGLE>::input).collect()
        });
        let inputs: Vec<Vec<Taped<SINGLE>>> = inputs.collect();
        let output = evaluate(self.basis, self.spec, &dims, &inputs);
        let seeds = self.element(self.op.output(), &self.grad_output, row);
        let mut tensors = vec![output.iter().map(|x| x.value()).collect::<Vec<f64>>()];
        let mut scales = vec![largest(&tensors[0])];
        for input in &inputs {
            tensors.push(Taped::gradients(&output, &seeds, input));
            scales.push(largest(&Taped::magnitudes(&output, &seeds, input)));
        }
        let is_mixed = self.spread > 10.0;
        Plain {
            tensors,
            scales,
            is_undecided: Taped::<SINGLE>::is_borderline()
                || is_mixed && Taped::<SINGLE>::is_out_of_range()
                || self.products_overflow(row),
        }
    }

    /// Whether the product of ungated operands overflows. It is formed first, and then multiplied by the gates.
    fn products_overflow(&self, row: usize) -> bool {
        let specs = self.op.inputs().iter().zip(&self.inputs);
        let multivectors = specs.filter(|(spec, _)| Self::has_batch(spec));
        let sizes = multivectors.map(|(spec, values)| largest(&self.element(spec, values, row)));
        let product: f64 = sizes.map(|size| size.max(1.0)).product();
        self.is_gated_product() && product > f64::from(f32::MAX) / 256.0
    }

    fn is_gated_product(&self) -> bool {
        matches!(self.spec, Spec::Sgp(_) | Spec::Fcgp(_) | Spec::LinearSgp(_))
    }

    /// Descriptions of all wrong results of the library.
    fn failures(&self) -> Vec<String> {
        let call = Call::<f32>::new(self.op, self.dims, &self.inputs, 0);
        let forward = call.forward();
        let wanted = vec![true; self.inputs.len()];
        let grads = call.backward(&forward, &self.grad_output, &wanted);
        let mut got = vec![forward.output.get().to_vec()];
        got.extend(grads);
        let specs: Vec<&TensorSpec> = [self.op.output()]
            .into_iter()
            .chain(self.op.inputs())
            .collect();
        let mut rows: Vec<Vec<Row>> = specs.iter().map(|_| Vec::new()).collect();
        // Gradients of parameters are sums over the batch.
        let mut sums: Option<[Plain; 2]> = None;
        for row in 0..self.dims.batch {
            let both = [self.plain::<true>(row), self.plain::<false>(row)];
            let [single, double] = &both;
            for (tensor, spec) in specs.iter().enumerate() {
                if Self::has_batch(spec) && !single.is_undecided {
                    let got: Vec<f64> = got[tensor].iter().map(|&x| f64::from(x)).collect();
                    rows[tensor].push(Row {
                        got: self.element(spec, &got, row),
                        plain: single.tensors[tensor].clone(),
                        exact: double.tensors[tensor].clone(),
                        scale: double.scales[tensor],
                    });
                }
            }
            match &mut sums {
                None => sums = Some(both),
                Some([singles, doubles]) => {
                    singles.add(single, |x| f64::from(x as f32));
                    doubles.add(double, |x| x);
                }
            }
        }
        let [singles, doubles] = sums.expect("rows");
        for (tensor, spec) in specs.iter().enumerate() {
            if !Self::has_batch(spec) && !singles.is_undecided {
                rows[tensor].push(Row {
                    got: got[tensor].iter().map(|&x| f64::from(x)).collect(),
                    plain: singles.tensors[tensor].clone(),
                    exact: doubles.tensors[tensor].clone(),
                    scale: doubles.scales[tensor],
                });
            }
        }
        let names = specs.iter().zip(&rows);
        let found =
            names.filter_map(|(spec, rows)| Some(format!("{}: {}", spec.name, wrong(rows)?)));
        found.collect()
    }
}

impl Plain {
    /// Adds the contribution of another batch element to the gradients of parameters.
    fn add(&mut self, other: &Self, round: fn(f64) -> f64) {
        let terms = other.tensors.iter().flatten();
        for (sum, term) in self.tensors.iter_mut().flatten().zip(terms) {
            *sum = round(*sum + term);
        }
        for (sum, term) in self.scales.iter_mut().zip(&other.scales) {
            *sum += term;
        }
        self.is_undecided |= other.is_undecided;
    }
}

/// The numbers of one batch element or one parameter, with the scale for their errors.
struct Row {
    got: Vec<f64>,
    plain: Vec<f64>,
    exact: Vec<f64>,
    scale: f64,
}

/// A description of the error of a tensor, if it is wrong.
fn wrong(rows: &[Row]) -> Option<String> {
    // The plain formula may be lucky in one place, so its worst row counts.
    let mut allowed = UNITS;
    for row in rows {
        for (exact, plain) in row.exact.iter().zip(&row.plain) {
            let error = (exact - plain).abs();
            if plain.is_finite() && error > TINY {
                allowed = allowed.max(error / row.scale);
            }
        }
    }
    for row in rows {
        for ((exact, plain), got) in row.exact.iter().zip(&row.plain).zip(&row.got) {
            if !plain.is_finite() || exact.abs() > f64::from(f32::MAX) {
                continue;
            }
            if !got.is_finite() {
                return Some(format!("{got:e} where the formula has {plain:e}"));
            }
            let error = (got - exact).abs();
            if error > TINY && error > FACTOR * allowed * row.scale {
                return Some(format!(
                    "{got:e} instead of {exact:e}: off by {:.1e} of {:.1e}, the plain formula by \
                     up to {allowed:.1e}",
                    error / row.scale,
                    row.scale,
                ));
            }
        }
    }
    None
}

/// Runs an operator over the sweep. Returns descriptions of all errors.
fn check(algebra: Algebra, spec: &Spec) -> Vec<String> {
    let basis = Basis::new(algebra.signature());
    let op = spec.operator(algebra).expect("a shipped operator");
    let op = op.with_tier(Tier::best()).expect("available");
    let dims = sizes(&op, ROWS, 3, 2);
    let mut failures = Vec::new();
    for (index, scale) in sweep().into_iter().enumerate() {
        let mut random = Random::new(100 + index as u64);
        let shapes = input_shapes(&op, &dims);
        let inputs = op.inputs().iter().zip(&shapes).map(|(input, shape)| {
            // Weights are of the size that they have in networks; multivectors have the sizes of the sweep.
            let len = shape.iter().product();
            match Trial::has_batch(input) {
                true => (0..len).map(|_| scale.draw(&mut random)).collect(),
                false => random.reals(len),
            }
        });
        let inputs = inputs.collect();
        let grad_output = random.reals(op.output_shape(&dims).iter().product());
        let trial = Trial {
            basis: &basis,
            spec,
            op: &op,
            dims,
            inputs,
            grad_output,
            spread: scale.spread,
        };
        let name = algebra.name();
        let found = trial.failures().into_iter();
        failures.extend(found.map(|what| format!("{name} {spec:?} at {scale:?}, {what}")));
    }
    failures
}

#[test]
fn no_size_is_worse_than_the_plain_formula() {
    let mut failures = Vec::new();
    for name in ["cl010", "cl200", "cl300", "cl301", "cl130"] {
        let algebra = Algebra::shipped().find(|a| a.name() == name);
        let Some(algebra) = algebra else { continue };
        let mut specs = main_operators();
        specs.push(Spec::GradeRms(Norm::Rms, 1e-30));
        specs.retain(|spec| spec.operator(algebra).is_ok());
        for spec in specs {
            failures.extend(check(algebra, &spec));
        }
    }
    for failure in &failures {
        println!("{failure}");
    }
    let few = &failures[..failures.len().min(5)];
    assert!(failures.is_empty(), "{} failures: {few:#?}", failures.len());
}

/// Without epsilon a power of two does not change a norm: the output keeps its bits, and the gradient is divided by the
/// power, exactly. The test runs in both formats, as long as squares stay in range.
#[test]
fn norms_do_not_see_powers_of_two() {
    fn check<T: flashcliff::Element>(powers: &[i32]) {
        for algebra in Algebra::shipped() {
            for norm in [Norm::Rms, Norm::Invariant] {
                let op = ops::grade_rms(algebra, norm, 0.0).expect("shipped");
                let dims = sizes(&op, 2, 5, 5);
                let mut random = Random::new(8);
                let len = op.output_shape(&dims).iter().product();
                let (x, seed) = (random.reals(len), random.reals(len));
                let run = |power: i32| {
                    let factor = 2_f64.powi(power);
                    let x = x.iter().map(|x| x * factor).collect();
                    let inputs = [x];
                    let call = Call::<T>::new(&op, dims, &inputs, 0);
                    let forward = call.forward();
                    let grads = call.backward(&forward, &seed, &[true]);
                    let output: Vec<f64> =
                        forward.output.get().iter().map(|x| x.to_f64()).collect();
                    let grad = grads[0].iter().map(|g| g.to_f64() * factor);
                    (output, grad.collect::<Vec<f64>>())
                };
                let want = run(0);
                for &power in powers {
                    let got = run(power);
                    assert_eq!(want, got, "{} {norm} 2^{power}", algebra.name());
                }
            }
        }
    }
    check::<f32>(&[-50, -30, 20, 40, 55]);
    check::<f64>(&[-400, -200, 150, 370, 450]);
}

#[test]
fn a_wrong_tensor_is_caught() {
    let exact = vec![1.0, -2.0, 0.5];
    let plain: Vec<f64> = exact.iter().map(|x| x * (1.0 + 1e-6)).collect();
    let with = |got: f64, formula: f64| {
        let mut row = Row {
            got: plain.clone(),
            plain: plain.clone(),
            exact: exact.clone(),
            scale: 2.0,
        };
        (row.got[0], row.plain[0]) = (got, formula);
        wrong(&[row])
    };
    assert_eq!(with(1.0, 1.0), None);
    assert_eq!(with(1.0 + 1e-6, 1.0), None);
    assert!(with(1.0 + 1e-3, 1.0).is_some());
    assert!(with(f64::NAN, 1.0).is_some());
    // Nothing is demanded if the formula itself leaves the range.
    assert_eq!(with(f64::INFINITY, f64::INFINITY), None);
}

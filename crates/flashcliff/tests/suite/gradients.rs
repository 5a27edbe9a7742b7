//! Compares the backward pass with derivatives of the reference. Integers must come out equal.

use flashcliff::{Algebra, Dim, Dims, Element, Operator, Tier};

use crate::cases::{Spec, all_operators, input_shapes, main_of, main_operators, sizes};
use crate::compare::{close, exact, informative, same};
use crate::derivatives::Derivatives;
use crate::harness::Call;
use crate::random::Random;
use flashcliff_program::reference::Basis;
use flashcliff_program::reference::Number;

/// The allowed error of a gradient, relative to its largest element. The gradients sum a few hundred terms here; smooth
/// norms near their kink lose some more digits.
const TOLERANCE_F32: f64 = 512.0 / (1_u64 << 24) as f64;
const TOLERANCE_F64: f64 = 512.0 / (1_u64 << 53) as f64;

/// An operator at some sizes with its inputs and the gradient of its output.
struct Case<'a> {
    basis: &'a Basis,
    spec: &'a Spec,
    op: Operator,
    dims: Dims,
    inputs: Vec<Vec<f64>>,
    grad_output: Vec<f64>,
    random: Random,
}

impl<'a> Case<'a> {
    fn new(
        algebra: Algebra,
        basis: &'a Basis,
        spec: &'a Spec,
        [batch, channels, out]: [usize; 3],
        integers: bool,
    ) -> Self {
        let op = spec.operator(algebra).expect("a shipped operator");
        let dims = sizes(&op, batch, channels, out);
        let mut random = Random::new(17);
        let mut fill = |shape: Vec<usize>| {
            let len = shape.iter().product();
            if integers {
                random.integers(len)
            } else {
                random.reals(len)
            }
        };
        let inputs = input_shapes(&op, &dims)
            .into_iter()
            .map(&mut fill)
            .collect();
        let grad_output = fill(op.output_shape(&dims));
        Self {
            basis,
            spec,
            op,
            dims,
            inputs,
            grad_output,
            random,
        }
    }

    fn context(&self, tier: Tier) -> String {
        let (name, dims) = (self.op.algebra().name(), self.dims);
        format!("{:?} of {name} at {dims:?} on {tier}", self.spec)
    }

    fn gradients<T: Element>(&self, tier: Tier, offset: usize) -> Vec<Vec<T>> {
        self.some_gradients(tier, offset, &vec![true; self.inputs.len()])
    }

    fn some_gradients<T: Element>(
        &self,
        tier: Tier,
        offset: usize,
        wanted: &[bool],
    ) -> Vec<Vec<T>> {
        let op = self.op.clone().with_tier(tier).expect("available");
        let call = Call::<T>::new(&op, self.dims, &self.inputs, offset);
        call.backward(&call.forward(), &self.grad_output, wanted)
    }

    /// The derivative of `<grad_output, o>` as the inputs move along a direction.
    fn derivative<N: Number>(&self, direction: &[Vec<f64>]) -> N {
        self.derivatives().along(direction)
    }

    /// The gradient of every element of every input, by the derivative in its direction.
    fn reference<N: Number>(&self) -> Vec<Vec<N>> {
        self.derivatives().gradients()
    }

    fn derivatives(&self) -> Derivatives<'_> {
        Derivatives {
            basis: self.basis,
            spec: self.spec,
            dims: &self.dims,
            inputs: &self.inputs,
            grad_output: &self.grad_output,
        }
    }

    /// The change of a derivative when the inputs move by some units in the last place of `f32`. Smooth norms of
    /// quadratic forms near zero have steep slopes.
    fn sensitivity(&mut self, direction: &[Vec<f64>], at: f64) -> f64 {
        let exact = self.inputs.clone();
        let mut largest = 0.0_f64;
        for _ in 0..8 {
            for (moved, x) in self.inputs.iter_mut().flatten().zip(exact.iter().flatten()) {
                *moved = x + x * 4.0 * self.random.unit() / (1 << 24) as f64;
            }
            largest = largest.max((self.derivative::<f64>(direction) - at).abs());
        }
        self.inputs = exact;
        largest
    }

    fn random_direction(&mut self, integers: bool) -> Vec<Vec<f64>> {
        let random = &mut self.random;
        let lens = self.inputs.iter().map(Vec::len);
        lens.map(|n| {
            if integers {
                random.integers(n)
            } else {
                random.reals(n)
            }
        })
        .collect()
    }
}

fn for_each(
    shape: impl Fn(&Basis) -> [usize; 3],
    specs: impl Fn(&Basis) -> Vec<Spec>,
    mut check: impl FnMut(Algebra, &Basis, &Spec, [usize; 3]),
) {
    let mut count = 0;
    for algebra in Algebra::shipped() {
        let basis = Basis::new(algebra.signature());
        for spec in specs(&basis) {
            check(algebra, &basis, &spec, shape(&basis));
            count += 1;
        }
    }
    let least = 25 * Algebra::shipped().count();
    assert!(count >= least, "only {count} operators");
}

/// Sizes with fewer channels for larger algebras: the reference runs once for every element of every input.
fn tiny(basis: &Basis) -> [usize; 3] {
    match basis.len() {
        ..=8 => [3, 3, 2],
        9..=16 => [2, 2, 1],
        _ => [1, 2, 1],
    }
}

/// Compares every element of every gradient with the derivative of the reference in its direction. Returns the largest
/// relative errors in `f32` and `f64`.
///
/// If a result `is_telling`, gradients that are mostly zeros are refused, because they prove nothing.
pub(crate) fn compare_every_element(
    algebra: Algebra,
    basis: &Basis,
    spec: &Spec,
    is_telling: bool,
) -> [f64; 2] {
    let case = Case::new(algebra, basis, spec, tiny(basis), false);
    let want = case.reference::<f64>();
    let mut worst = [0.0_f64; 2];
    for (tier, offset) in Tier::available().zip([1, 0, 1]) {
        let (single, double) = (
            case.gradients::<f32>(tier, offset),
            case.gradients(tier, offset),
        );
        for (tensor, want) in want.iter().enumerate() {
            let what = format!("input {tensor} of {}", case.context(tier));
            let fail = |e: String| panic!("{what}: {e}");
            let off = close(want, &single[tensor], TOLERANCE_F32).unwrap_or_else(fail);
            worst[0] = worst[0].max(off);
            let off = close::<f64>(want, &double[tensor], TOLERANCE_F64).unwrap_or_else(fail);
            worst[1] = worst[1].max(off);
            if is_telling {
                informative(&single[tensor]).unwrap_or_else(|e| panic!("{what}: {e}"));
            }
        }
    }
    worst
}

#[test]
fn every_element_of_every_gradient_of_the_main_operators() {
    let mut worst = [0.0_f64; 2];
    for_each(tiny, main_of, |algebra, basis, spec, _| {
        let errors = compare_every_element(algebra, basis, spec, true);
        worst = [worst[0].max(errors[0]), worst[1].max(errors[1])];
    });
    println!(
        "largest relative error: f32 {:e}, f64 {:e}",
        worst[0], worst[1]
    );
}

#[test]
fn integer_gradients_are_exact() {
    let specs = |basis: &Basis| {
        let mut specs = main_of(basis);
        specs.retain(Spec::is_exact);
        specs
    };
    let mut count = 0;
    for algebra in Algebra::shipped() {
        let basis = Basis::new(algebra.signature());
        for spec in specs(&basis) {
            let case = Case::new(algebra, &basis, &spec, tiny(&basis), true);
            let want = case.reference::<i128>();
            for (tier, offset) in Tier::available().zip([0, 1, 0]) {
                let single = case.gradients::<f32>(tier, offset);
                let double = case.gradients::<f64>(tier, offset);
                for (tensor, want) in want.iter().enumerate() {
                    let results = [exact(want, &single[tensor]), exact(want, &double[tensor])];
                    for result in results {
                        let what = || format!("input {tensor} of {}", case.context(tier));
                        result.unwrap_or_else(|e| panic!("{}: {e}", what()));
                        count += 1;
                    }
                }
            }
        }
    }
    let least = 60 * Algebra::shipped().count();
    assert!(count >= least, "only {count} gradients");
}

#[test]
fn every_option_along_random_directions() {
    let shape = |basis: &Basis| {
        if basis.len() > 16 {
            [2, 3, 2]
        } else {
            [3, 5, 4]
        }
    };
    let mut worst = [0.0_f64; 2];
    for_each(shape, all_operators, |algebra, basis, spec, shape| {
        let integers = spec.is_exact();
        let mut case = Case::new(algebra, basis, spec, shape, integers);
        let direction = case.random_direction(integers);
        let grads: Vec<_> = Tier::available()
            .map(|tier| {
                (
                    tier,
                    case.gradients::<f32>(tier, 1),
                    case.gradients::<f64>(tier, 1),
                )
            })
            .collect();
        let exactly = integers.then(|| case.derivative::<i128>(&direction));
        let want = case.derivative::<f64>(&direction);
        for (tier, single, double) in &grads {
            let (got, size) = along(double, &direction);
            let (got_f32, _) = along(single, &direction);
            if let Some(exactly) = exactly {
                let exactly = exactly as f64;
                assert_eq!(
                    (got, got_f32),
                    (exactly, exactly),
                    "{}",
                    case.context(*tier)
                );
                continue;
            }
            let off = [(got_f32 - want).abs() / size, (got - want).abs() / size];
            let what = case.context(*tier);
            if off[0] > TOLERANCE_F32 {
                let allowed = TOLERANCE_F32 + case.sensitivity(&direction, want) / size;
                assert!(
                    off[0] <= allowed,
                    "f32 off by {:e} > {allowed:e}: {what}",
                    off[0]
                );
                continue;
            }
            assert!(off[1] <= TOLERANCE_F64, "f64 off by {:e}: {what}", off[1]);
            worst[0] = worst[0].max(off[0]);
            worst[1] = worst[1].max(off[1]);
        }
    });
    println!(
        "largest relative error: f32 {:e}, f64 {:e}",
        worst[0], worst[1]
    );
}

/// A gradient along a direction, and the sum of the magnitudes of its terms.
fn along<T: Element>(grads: &[Vec<T>], direction: &[Vec<f64>]) -> (f64, f64) {
    let pairs = grads.iter().flatten().zip(direction.iter().flatten());
    pairs.fold((0.0, 0.0), |(sum, size), (g, v)| {
        let term = g.to_f64() * v;
        (sum + term, size + term.abs())
    })
}

#[test]
fn unwanted_gradients_leave_the_others_as_they_are() {
    let shape = |_: &Basis| [3, 5, 4];
    for_each(shape, main_of, |algebra, basis, spec, shape| {
        let case = Case::new(algebra, basis, spec, shape, false);
        let tier = Tier::best();
        let all = case.gradients::<f32>(tier, 0);
        let count = case.inputs.len();
        // Each gradient is wanted alone, each is left out, and none is wanted.
        let alone = (0..count).map(|i| (0..count).map(|j| i == j).collect());
        let without = (0..count).map(|i| (0..count).map(|j| i != j).collect());
        for wanted in alone.chain(without).chain([vec![false; count]]) {
            let some = case.some_gradients::<f32>(tier, 1, &wanted);
            for (tensor, (grad, wanted)) in some.iter().zip(wanted).enumerate() {
                let want = if wanted { &all[tensor][..] } else { &[] };
                let result = same(want, grad);
                result.unwrap_or_else(|e| panic!("input {tensor} of {}: {e}", case.context(tier)));
            }
        }
    });
}

#[test]
fn an_empty_batch_gives_zero_parameter_gradients() {
    for_each(
        |_| [0, 3, 2],
        main_of,
        |algebra, basis, spec, shape| {
            let case = Case::new(algebra, basis, spec, shape, false);
            for grad in case.gradients::<f32>(Tier::best(), 0) {
                assert!(
                    grad.iter().all(|&g| g == 0.0),
                    "{}",
                    case.context(Tier::best())
                );
            }
        },
    );
}

#[test]
fn no_channels_in_or_out_is_no_trouble() {
    for shape in [[2, 0, 3], [2, 3, 0], [2, 0, 0]] {
        for_each(
            |_| shape,
            main_of,
            |algebra, basis, spec, shape| {
                let case = Case::new(algebra, basis, spec, shape, false);
                let zero = case.dims.out_channels == 0;
                for grad in case.gradients::<f32>(Tier::best(), 0) {
                    // If the output has no elements, all gradients are zero.
                    assert!(!zero || grad.iter().all(|&g| g == 0.0), "{spec:?}");
                }
            },
        );
    }
}

/// The partial sums of several chunks and blocks are added up.
#[test]
fn gradients_over_many_rows() {
    let mut parameters = 0;
    for name in ["cl200", "cl300"] {
        let algebra: Algebra = name.parse().expect("an algebra");
        let basis = Basis::new(algebra.signature());
        for spec in main_of(&basis) {
            let shape = match spec {
                Spec::Fcgp(_) => [300, 4, 3],
                _ => [1500, 28, 3],
            };
            let mut case = Case::new(algebra, &basis, &spec, shape, false);
            // The direction has parameters only; the other gradients would drown theirs.
            let mut direction = case.random_direction(false);
            for (v, input) in direction.iter_mut().zip(case.op.inputs()) {
                if input.dims.contains(&Dim::Batch) && case.inputs.len() > 2 {
                    v.fill(0.0);
                }
            }
            parameters += usize::from(case.inputs.len() > 2);
            let want = case.derivative::<f64>(&direction);
            for tier in Tier::available() {
                let (got, size) = along(&case.gradients::<f64>(tier, 0), &direction);
                let off = (got - want).abs() / size;
                assert!(
                    off <= TOLERANCE_F64,
                    "f64 off by {off:e}: {}",
                    case.context(tier)
                );
                let (got, _) = along(&case.gradients::<f32>(tier, 1), &direction);
                let off = (got - want).abs() / size;
                assert!(
                    off <= TOLERANCE_F32,
                    "f32 off by {off:e}: {}",
                    case.context(tier)
                );
            }
        }
    }
    assert!(
        parameters >= 12,
        "only {parameters} operators with parameters"
    );
}

#[test]
fn a_wrong_gradient_is_reported() {
    let algebra: Algebra = "cl200".parse().expect("an algebra");
    let basis = Basis::new(algebra.signature());
    let spec = &main_operators()[0];
    let case = Case::new(algebra, &basis, spec, [2, 2, 2], false);
    let want = case.reference::<f64>();
    let mut got = case.gradients::<f64>(Tier::best(), 0);
    assert!(close::<f64>(&want[0], &got[0], TOLERANCE_F64).is_ok());
    // One element has the wrong sign.
    got[0][3] = -got[0][3];
    assert!(close::<f64>(&want[0], &got[0], TOLERANCE_F64).is_err());
    // The gradient of another function: the same operator without its norm.
    let other = &main_operators()[1];
    let other =
        Case::new(algebra, &basis, other, [2, 2, 2], false).gradients::<f64>(Tier::best(), 0);
    assert!(close::<f64>(&want[0], &other[0], 1e-3).is_err());
}

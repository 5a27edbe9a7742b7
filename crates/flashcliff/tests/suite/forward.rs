//! Compares the forward pass with the reference.

use flashcliff::{Algebra, Dims, Element, Signature, Tier};
use flashcliff_program::spec;

use crate::cases::{Spec, all_operators, input_shapes, main_of, sizes};
use crate::compare::{bounded, exact, informative};
use crate::harness::Call;
use crate::numbers::Bounded;
use crate::random::Random;
use crate::reference::evaluate;
use flashcliff_program::reference::Basis;
use flashcliff_program::reference::Number;

const BATCHES: [usize; 4] = [0, 1, 2, 7];
const CHANNELS: [usize; 7] = [0, 1, 3, 16, 28, 37, 96];

/// Runs a spec with both element types on every tier, from aligned and misaligned buffers, and compares it with the
/// reference. Returns the largest used share of an error bound.
pub(crate) fn compare(algebra: Algebra, basis: &Basis, spec: &Spec, shape: [usize; 3]) -> f64 {
    compare_all(algebra, basis, spec, shape, false)
}

/// Does the same as [`compare`], and demands that the output is not mostly zeros.
pub(crate) fn check(algebra: Algebra, basis: &Basis, spec: &Spec, shape: [usize; 3]) -> f64 {
    compare_all(algebra, basis, spec, shape, true)
}

fn compare_all(
    algebra: Algebra,
    basis: &Basis,
    spec: &Spec,
    shape: [usize; 3],
    is_telling: bool,
) -> f64 {
    let op = spec.operator(algebra).expect("a shipped operator");
    let [batch, channels, out] = shape;
    let dims = sizes(&op, batch, channels, out);
    let lens = input_shapes(&op, &dims);
    let mut random = Random::new(shape.iter().fold(1, |seed, s| 100 * seed + *s as u64));
    let mut worst = 0.0_f64;
    let values: Vec<Vec<f64>> = lens
        .iter()
        .map(|s| random.reals(s.iter().product()))
        .collect();
    let context = |tier: Tier| format!("{spec:?} of {} at {dims:?} on {tier}", algebra.name());
    let wants = (
        reference::<Bounded<24>>(basis, spec, &dims, &values),
        reference::<Bounded<53>>(basis, spec, &dims, &values),
    );
    for (tier, offset) in Tier::available().zip([1, 0, 1]) {
        let op = op.clone().with_tier(tier).expect("available");
        let forward = Call::<f32>::new(&op, dims, &values, offset).forward();
        let single = bounded(&wants.0, forward.output.get(), 1.0);
        let single = single.unwrap_or_else(|e| panic!("{}, f32: {e}", context(tier)));
        if is_telling && expects_values(&dims) {
            let result = informative(forward.output.get());
            result.unwrap_or_else(|e| panic!("{}: {e}", context(tier)));
        }
        let forward = Call::<f64>::new(&op, dims, &values, offset).forward();
        // The reference itself has errors as large as the bounds.
        let double = bounded(&wants.1, forward.output.get(), 2.0);
        let double = double.unwrap_or_else(|e| panic!("{}, f64: {e}", context(tier)));
        worst = worst.max(single).max(double);
    }
    if spec.is_exact() {
        let values: Vec<Vec<f64>> = lens
            .iter()
            .map(|s| random.integers(s.iter().product()))
            .collect();
        let want = reference::<i128>(basis, spec, &dims, &values);
        for (tier, offset) in Tier::available().zip([0, 1, 0]) {
            let op = op.clone().with_tier(tier).expect("available");
            let single = exact_output::<f32>(&want, &Call::new(&op, dims, &values, offset));
            single.unwrap_or_else(|e| panic!("{}, f32: {e}", context(tier)));
            let double = exact_output::<f64>(&want, &Call::new(&op, dims, &values, offset));
            double.unwrap_or_else(|e| panic!("{}, f64: {e}", context(tier)));
        }
    }
    worst
}

/// Whether most of the output should differ from zero. Sums over no channels are zero.
fn expects_values(dims: &Dims) -> bool {
    dims.in_channels > 0
}

fn exact_output<T: Element>(want: &[i128], call: &Call<'_, T>) -> Result<(), String> {
    let forward = call.forward();
    exact(want, forward.output.get())
}

fn reference<N: Number>(basis: &Basis, spec: &Spec, dims: &Dims, values: &[Vec<f64>]) -> Vec<N> {
    let inputs: Vec<Vec<N>> = values
        .iter()
        .map(|v| v.iter().map(|&x| N::input(x)).collect())
        .collect();
    evaluate(basis, spec, dims, &inputs)
}

fn check_shapes(names: &[&str], specs: impl Fn(&Basis) -> Vec<Spec>, shapes: &[[usize; 3]]) {
    let mut worst = 0.0_f64;
    let mut count = 0;
    for name in names {
        let algebra: Algebra = name.parse().expect("an algebra");
        let basis = Basis::new(algebra.signature());
        for spec in specs(&basis) {
            for &shape in shapes {
                worst = worst.max(check(algebra, &basis, &spec, shape));
                count += 1;
            }
        }
    }
    assert!(count > 0, "nothing was compared");
    println!("{count} cases; largest share of an error bound used: {worst:.3}");
}

const SMALL: [&str; 5] = ["cl100", "cl010", "cl020", "cl200", "cl300"];
const SIXTEEN: [&str; 2] = ["cl301", "cl130"];
const LARGE: [&str; 2] = ["cl410", "cl500"];

#[test]
fn the_lists_cover_every_shipped_algebra() {
    let mut covered = [&SMALL[..], &SIXTEEN, &LARGE].concat();
    let mut shipped: Vec<String> = spec::shipped().map(Signature::name).collect();
    covered.sort_unstable();
    shipped.sort_unstable();
    assert_eq!(shipped, covered);
}

/// Every batch with every number of channels. The fully connected operators get fewer outputs.
fn grid() -> Vec<[usize; 3]> {
    let mut shapes = Vec::new();
    for batch in BATCHES {
        for (i, channels) in CHANNELS.into_iter().enumerate() {
            let out = [5, 1, 37, 16, 0, 28, 3][i];
            shapes.push([batch, channels, out]);
        }
    }
    shapes
}

#[test]
fn small_algebras_over_the_grid_of_shapes() {
    check_shapes(&SMALL, main_of, &grid());
}

#[test]
fn sixteen_blades_over_the_grid_of_shapes() {
    check_shapes(&SIXTEEN, main_of, &grid());
}

#[test]
fn thirty_two_blades_over_the_grid_of_shapes() {
    check_shapes(&LARGE, main_of, &grid());
}

#[test]
fn every_option_of_small_algebras() {
    check_shapes(&SMALL, all_operators, &[[3, 5, 4], [2, 18, 17]]);
}

#[test]
fn every_option_of_sixteen_blades() {
    check_shapes(&SIXTEEN, all_operators, &[[3, 5, 4]]);
}

#[test]
fn every_option_of_thirty_two_blades() {
    check_shapes(&LARGE, all_operators, &[[2, 5, 3]]);
}

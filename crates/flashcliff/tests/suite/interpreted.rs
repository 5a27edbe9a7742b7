//! Tests of operators that were not compiled: other signatures and grades are compared with the reference, and
//! interpreted programs with compiled ones, bit for bit.

use flashcliff::{Algebra, Element, GradeSet, ProductKind, Signature, Tier};

use crate::cases::{Spec, all_operators, input_shapes, is_nothing, main_of, sizes};
use crate::harness::Call;
use crate::random::Random;
use crate::{forward, gradients};
use flashcliff_program::reference::Basis;

/// Every signature of up to four dimensions.
fn signatures() -> impl Iterator<Item = Signature> {
    let sums = |dim: usize| {
        (0..=dim).flat_map(move |p| (0..=dim - p).map(move |q| Signature::of(p, q, dim - p - q)))
    };
    (1..=4).flat_map(sums)
}

/// Signatures of five and six dimensions.
const LARGE: [(usize, usize, usize); 4] = [(3, 2, 0), (2, 2, 1), (6, 0, 0), (2, 3, 1)];

fn interpreted(signature: Signature) -> (Algebra, Basis) {
    let algebra = Algebra::interpreted(signature).expect("any signature");
    assert!(!algebra.is_compiled());
    (algebra, Basis::new(signature))
}

#[test]
fn every_small_signature_is_right() {
    let mut worst = 0.0_f64;
    for signature in signatures() {
        let (algebra, basis) = interpreted(signature);
        for spec in main_of(&basis) {
            for shape in [[2, 5, 3], [1, 131, 2]] {
                // The reference takes long for sixteen blades.
                if basis.len() < 16 || shape[1] < 100 {
                    worst = worst.max(forward::compare(algebra, &basis, &spec, shape));
                }
            }
        }
    }
    println!("largest share of an error bound used: {worst:.3}");
}

#[test]
fn gradients_of_every_small_signature_are_right() {
    for signature in signatures().filter(|s| s.dim() <= 3 || s.p() == 2) {
        let (algebra, basis) = interpreted(signature);
        for spec in main_of(&basis) {
            gradients::compare_every_element(algebra, &basis, &spec, false);
        }
    }
}

#[test]
fn five_and_six_dimensions_are_right() {
    for (p, q, r) in LARGE {
        let (algebra, basis) = interpreted(Signature::of(p, q, r));
        for spec in main_of(&basis) {
            forward::compare(algebra, &basis, &spec, [1, 3, 1]);
        }
    }
}

#[test]
fn eight_dimensions_and_none() {
    for (p, q, r) in [(8, 0, 0), (0, 0, 0), (0, 0, 1)] {
        let (algebra, basis) = interpreted(Signature::of(p, q, r));
        let specs = [
            Spec::Product(ProductKind::Geometric, None, None),
            Spec::row("reverse"),
            Spec::row("grade_norms"),
        ];
        for spec in specs {
            forward::compare(algebra, &basis, &spec, [1, 2, 1]);
        }
    }
}

/// The bits of the output and of all gradients.
fn bits<T: Element>(
    algebra: Algebra,
    spec: &Spec,
    [batch, channels, out]: [usize; 3],
    tier: Tier,
) -> Vec<u64> {
    let op = spec.operator(algebra).expect("an operator");
    let op = op.with_tier(tier).expect("available");
    let dims = sizes(&op, batch, channels, out);
    let mut random = Random::new(11);
    let shapes = input_shapes(&op, &dims).into_iter();
    let inputs: Vec<Vec<f64>> = shapes.map(|s| random.reals(s.iter().product())).collect();
    let grad_output = random.reals(op.output_shape(&dims).iter().product());
    let call = Call::<T>::new(&op, dims, &inputs, 0);
    let result = call.forward();
    let gradients = call.backward(&result, &grad_output, &vec![true; inputs.len()]);
    let all = result.output.get().iter().chain(gradients.iter().flatten());
    all.map(|value| value.to_f64().to_bits()).collect()
}

#[test]
fn interpreted_programs_give_the_bits_of_compiled_ones() {
    let mut compared = 0;
    for algebra in Algebra::shipped() {
        let (same, basis) = interpreted(algebra.signature());
        let specs = match basis.len() {
            ..=8 => all_operators(&basis),
            _ => main_of(&basis),
        };
        for spec in specs {
            for tier in Tier::available().filter(|&tier| tier != Tier::Scalar) {
                // These shapes have blocks of eight vectors, of four and of one, and ragged rows.
                for shape in [[2, 16 * 13, 5], [3, 37, 2]] {
                    let compiled = bits::<f32>(algebra, &spec, shape, tier);
                    assert!(
                        compiled == bits::<f32>(same, &spec, shape, tier),
                        "{spec:?} of {} on {tier}",
                        algebra.name()
                    );
                    compared += 1;
                }
            }
        }
    }
    assert!(
        compared > 0 || Tier::available().count() == 1,
        "nothing was compared"
    );
}

#[test]
fn any_grades_of_operands() {
    let mut random = Random::new(3);
    for (p, q, r) in [(3, 0, 0), (3, 0, 1), (2, 1, 1)] {
        let algebra = Algebra::new(Signature::of(p, q, r)).expect("any signature");
        let basis = Basis::new(algebra.signature());
        for _ in 0..40 {
            let mut draw = || {
                let grades = (0..=basis.dim).filter(|_| random.once_in(2));
                let drawn = grades.fold(GradeSet::EMPTY, |set, g| set.union(GradeSet::single(g)));
                Some(if drawn.is_empty() {
                    GradeSet::single(2)
                } else {
                    drawn
                })
            };
            let (left, right) = (draw(), draw());
            let options = flashcliff::ops::ProductOptions::default()
                .with_left(left)
                .with_right(right);
            let kind = random.pick(&ProductKind::ALL);
            for spec in [
                Spec::Sgp(options),
                Spec::Product(kind, left, right),
                Spec::Sandwich(left, right),
            ] {
                if !is_nothing(&basis, &spec) {
                    forward::compare(algebra, &basis, &spec, [2, 3, 2]);
                }
            }
        }
    }
}

//! Equivariance: an operator commutes with the action of versors. `symmetries` says with which versors, and how they
//! act on the output.

use flashcliff::ops::{LinearOptions, LinearSgpOptions, ProductOptions};
use flashcliff::{Algebra, Bias, Dims, Element, Norm, ProductKind, Symmetry, Tier};

use crate::cases::{Spec, all_operators, input_shapes, sizes};
use crate::compare::{close, same};
use crate::harness::Call;
use crate::random::Random;
use crate::symmetries::{Image, moved_inputs, moved_output, symmetry};
use crate::versors::{Action, Group};
use flashcliff_program::reference::Basis;

/// The tolerance, relative to the largest component. Boosts multiply components by up to ten or so, four of them in a
/// row.
const TOLERANCE: f64 = 1e-9;

/// `op(action(inputs))` and `action(op(inputs))`.
fn both_ways<T: Element>(
    algebra: Algebra,
    basis: &Basis,
    spec: &Spec,
    tier: Tier,
    [batch, channels, out]: [usize; 3],
    image: Image,
    action: &Action,
) -> (Vec<T>, Vec<f64>) {
    let op = spec.operator(algebra).expect("a shipped operator");
    let op = op.with_tier(tier).expect("available");
    let dims: Dims = sizes(&op, batch, channels, out);
    let mut random = Random::new(23);
    let shapes = input_shapes(&op, &dims);
    let inputs: Vec<Vec<f64>> = shapes
        .iter()
        .map(|s| random.reals(s.iter().product()))
        .collect();
    let moved = moved_inputs(basis, spec, &op, action, &inputs);
    let before = Call::<T>::new(&op, dims, &moved, 1).forward();
    let after = Call::<T>::new(&op, dims, &inputs, 0).forward();
    let output: Vec<f64> = after.output.get().iter().map(|x| x.to_f64()).collect();
    let want = moved_output(basis, spec, image, action, &output);
    (before.output.get().to_vec(), want)
}

#[test]
fn operators_commute_with_random_versors() {
    let mut worst = 0.0_f64;
    let mut random = Random::new(11);
    for algebra in Algebra::shipped() {
        let basis = Basis::new(algebra.signature());
        for spec in all_operators(&basis) {
            let Some(symmetry) = symmetry(&spec) else {
                continue;
            };
            for count in 1..=4 {
                let action = Action::random(&basis, symmetry.group, count, &mut random);
                let (got, want) = both_ways::<f64>(
                    algebra,
                    &basis,
                    &spec,
                    Tier::best(),
                    [2, 3, 2],
                    symmetry.image,
                    &action,
                );
                let off = close(&want, &got, TOLERANCE);
                let off = off.unwrap_or_else(|e| panic!("{spec:?} of {}: {e}", algebra.name()));
                worst = worst.max(off);
                assert!(got.iter().any(|&x| x != 0.0), "{spec:?} gives nothing");
            }
        }
    }
    println!("largest relative difference: {worst:e}");
}

/// A reflection along a basis vector only flips signs, and rounding does not depend on signs.
#[test]
fn reflections_along_basis_vectors_are_bitwise() {
    for algebra in Algebra::shipped() {
        let basis = Basis::new(algebra.signature());
        for spec in all_operators(&basis) {
            let Some(symmetry) = symmetry(&spec) else {
                continue;
            };
            for tier in Tier::available() {
                for vector in 0..basis.dim {
                    let action = Action::reflection(&basis, vector);
                    let (got, want) = both_ways::<f32>(
                        algebra,
                        &basis,
                        &spec,
                        tier,
                        [2, 19, 5],
                        symmetry.image,
                        &action,
                    );
                    let want: Vec<f32> = want.iter().map(|&x| x as f32).collect();
                    let what = || format!("{spec:?} of {} on {tier}", algebra.name());
                    same(&want, &got).unwrap_or_else(|e| panic!("{}: {e}", what()));
                }
            }
        }
    }
}

#[test]
fn a_bias_on_every_blade_is_caught() {
    let mut caught = 0;
    for algebra in Algebra::shipped() {
        let basis = Basis::new(algebra.signature());
        for spec in all_operators(&basis) {
            if symmetry(&spec).is_some() {
                continue;
            }
            let action = Action::reflection(&basis, 0);
            let (got, want) = both_ways::<f32>(
                algebra,
                &basis,
                &spec,
                Tier::best(),
                [2, 3, 2],
                Image::Along,
                &action,
            );
            let want_f32: Vec<f32> = want.iter().map(|&x| x as f32).collect();
            assert!(
                same(&want_f32, &got).is_err(),
                "{spec:?} passes for equivariant"
            );
            assert!(
                close(&want, &got, 1e-3).is_err(),
                "{spec:?} passes for equivariant"
            );
            caught += 1;
        }
    }
    assert!(caught >= 9, "only {caught} cases");
}

/// The symmetries that the table of `symmetries` denies are indeed broken, so the check can fail.
#[test]
fn symmetries_that_are_not_there_are_caught() {
    let spacetime: Algebra = "cl130".parse().expect("an algebra");
    let basis = Basis::new(spacetime.signature());
    let mut random = Random::new(3);
    let boost = Action::random(&basis, Group::Pin, 2, &mut random);
    let reflection = Action::random(&basis, Group::Euclidean, 1, &mut random);
    let regressive = Spec::Product(ProductKind::Regressive, None, None);
    let cases = [
        (Spec::GradeRms(Norm::Rms, 1e-6), Image::Along, &boost),
        (Spec::row("dual"), Image::AlongTimesDeterminant, &boost),
        (Spec::row("dual"), Image::Along, &reflection),
        (regressive, Image::Along, &reflection),
        (Spec::row("norm"), Image::Invariant, &reflection),
        (Spec::row("reverse"), Image::Invariant, &reflection),
    ];
    for (spec, image, action) in cases {
        let (got, want) = both_ways::<f64>(
            spacetime,
            &basis,
            &spec,
            Tier::best(),
            [2, 3, 2],
            image,
            action,
        );
        let result = close(&want, &got, 1e-3);
        let holds = spec.name() == "norm";
        assert_eq!(result.is_ok(), holds, "{spec:?} as {image:?}: {result:?}");
    }
}

/// Whether an operator that commutes with all of `whole` does so with all of `part`.
pub(crate) fn contains(whole: Symmetry, part: Symmetry, is_definite: bool) -> bool {
    let even = [Symmetry::EvenVersors, Symmetry::Rotations];
    match whole {
        Symmetry::Versors => true,
        Symmetry::EvenVersors => even.contains(&part),
        Symmetry::Orthogonal => is_definite || [whole, Symmetry::Rotations].contains(&part),
        _ => part == whole,
    }
}

/// Operators with an option that breaks a symmetry.
pub(crate) fn breaking_operators() -> Vec<Spec> {
    let product = ProductOptions::default().with_norm(Norm::Rms);
    let linear = LinearOptions::default().with_bias(Bias::EveryBlade);
    vec![
        Spec::Sgp(product.clone()),
        Spec::Fcgp(product),
        Spec::GradeRms(Norm::Rms, 1e-6),
        Spec::Linear(linear.clone()),
        Spec::LinearSgp(LinearSgpOptions::default().with_norm(Norm::Rms)),
        Spec::LinearSgp(LinearSgpOptions::default().with_linear(linear)),
    ]
}

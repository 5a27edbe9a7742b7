//! Items without a result beside items with one: the gradients of the others are the same bits, and theirs are zero.

use flashcliff::rotor::{InterpolationGradients, Parity, RotorMap};
use flashcliff::{Tensor, TensorMut};

use super::Result;
use super::case::{Case, numbers, signatures};

/// The columns of some items as a tensor `[blades, 1, items]`.
fn joined(items: &[Vec<f64>]) -> Vec<f64> {
    let blades = items[0].len();
    (0..blades)
        .flat_map(|blade| items.iter().map(move |item| item[blade]))
        .collect()
}

fn column(x: &[f64], items: usize, item: usize) -> Vec<f64> {
    x.iter().skip(item).step_by(items).copied().collect()
}

/// Items that no map of versors can take.
fn bad(len: usize) -> Vec<Vec<f64>> {
    let zero = vec![0.0; len];
    let mut infinite = zero.clone();
    infinite[0] = f64::INFINITY;
    vec![zero, infinite, vec![f64::NAN; len]]
}

fn gradient(case: &Case, map: RotorMap, items: &[Vec<f64>], grad: &[Vec<f64>]) -> Result<Vec<f64>> {
    let count = items.len();
    let (x, grad) = (joined(items), joined(grad));
    let mut out = vec![9.0; x.len()];
    case.rotors.gradient(
        map,
        Tensor::new(&x, &[x.len() / count, 1, count])?,
        Tensor::new(&grad, &[grad.len() / count, 1, count])?,
        TensorMut::new(&mut out, &[x.len() / count, 1, count])?,
    )?;
    Ok(out)
}

#[test]
fn an_item_without_a_result_has_no_gradient_and_changes_no_other() -> Result {
    for signature in signatures().filter(|&(p, q, r)| p + q + r > 1) {
        let case = Case::new(signature)?;
        let b = case.random(0.4, 9);
        let r = case.map(RotorMap::Exp, &b)?;
        let mut minus_one = vec![0.0; r.len()];
        minus_one[0] = -1.0;
        let maps = [
            (RotorMap::Log, &r, [bad(r.len()), vec![minus_one]].concat()),
            (RotorMap::Inverse, &r, bad(r.len())),
            (RotorMap::Normalized, &r, bad(r.len())),
            (RotorMap::Exp, &b, bad(b.len())[1..].to_vec()),
        ];
        for (map, good, bad) in maps {
            let outputs = case.map(map, good)?.len();
            let alone = gradient(
                &case,
                map,
                std::slice::from_ref(good),
                &[numbers(5, outputs)],
            )?;
            for bad in bad {
                if map == RotorMap::Exp && case.map(map, &bad)?.iter().all(|x| x.is_finite()) {
                    continue;
                }
                let result = case.map(map, &bad)?;
                assert!(
                    result.iter().any(|x| !x.is_finite()),
                    "{signature:?} {map:?}"
                );
                let items = [good.clone(), bad];
                let grad = [numbers(5, outputs), vec![0.0; outputs]];
                let both = gradient(&case, map, &items, &grad)?;
                assert_eq!(column(&both, 2, 0), alone, "{signature:?} {map:?}");
                assert_eq!(column(&both, 2, 1), vec![0.0; items[1].len()]);
                // A gradient that is not zero, or is not a number, does not get through either.
                let grad = [numbers(5, outputs), vec![f64::NAN; outputs]];
                let both = gradient(&case, map, &items, &grad)?;
                assert_eq!(column(&both, 2, 0), alone, "{signature:?} {map:?}");
                assert_eq!(column(&both, 2, 1), vec![0.0; items[1].len()]);
            }
        }
    }
    Ok(())
}

#[test]
fn a_path_without_an_end_has_no_gradient() -> Result {
    let case = Case::new((3, 0, 1))?;
    let r = case.map(RotorMap::Exp, &case.random(0.4, 9))?;
    let other = case.map(RotorMap::Exp, &case.random(0.4, 3))?;
    let ends = [
        joined(&[r.clone(), r.clone()]),
        joined(&[other, vec![0.0; 8]]),
    ];
    let grad = joined(&[numbers(1, 8), vec![0.0; 8]]);
    let shape = [8, 1, 2];
    let (mut of_a, mut of_b, mut of_t) = ([9.0; 16], [9.0; 16], [9.0; 2]);
    case.rotors.interpolate_gradient(
        Parity::Even,
        [
            Tensor::new(&ends[0], &shape)?,
            Tensor::new(&ends[1], &shape)?,
        ],
        Tensor::new(&[0.3], &[1, 1])?,
        Tensor::new(&grad, &shape)?,
        InterpolationGradients {
            a: Some(TensorMut::new(&mut of_a, &shape)?),
            b: Some(TensorMut::new(&mut of_b, &shape)?),
            t: Some(TensorMut::new(&mut of_t, &[1, 2])?),
        },
    )?;
    for gradient in [&of_a[..], &of_b, &of_t] {
        assert!(gradient.iter().all(|x| x.is_finite()));
        assert!(column(gradient, 2, 1).iter().all(|&x| x == 0.0));
        assert!(column(gradient, 2, 0).iter().any(|&x| x != 0.0));
    }
    Ok(())
}

//! Bivectors of hundreds of units, and rotors near -1.

use std::f64::consts::PI;

use flashcliff::rotor::RotorMap;
use flashcliff::{Tensor, TensorMut};

use super::Result;
use super::case::{Case, dot, numbers, signatures};

const LENGTHS: [f64; 4] = [3.0, 30.0, 80.0, 250.0];

fn largest(x: &[f64]) -> f64 {
    x.iter().fold(0.0, |most, x| most.max(x.abs()))
}

fn apart(x: &[f64], y: &[f64]) -> f64 {
    let pairs = x.iter().zip(y);
    pairs.fold(0.0, |most, (x, y)| most.max((x - y).abs()))
}

/// Bivectors of a length, in any direction, in numbers of `f32`.
fn of_length(case: &Case, length: f64, seed: u64) -> Vec<f64> {
    let b = numbers(seed, case.bivectors.len());
    let size = dot(&b, &b).sqrt();
    b.iter()
        .map(|x| f64::from((x / size * length) as f32))
        .collect()
}

/// Each plane on its own, against the functions of the standard library.
#[test]
fn exponentials_of_planes_keep_their_digits() -> Result {
    for signature in signatures() {
        let case = Case::new(signature)?;
        for (place, &blade) in case.bivectors.iter().enumerate() {
            let mut square = -1.0;
            for (vector, own) in case.squares.iter().enumerate() {
                if case.bits[blade] >> vector & 1 == 1 {
                    square *= own;
                }
            }
            for length in LENGTHS.map(|length| length - 0.3) {
                let mut b = vec![0.0; case.bivectors.len()];
                b[place] = length;
                let r = case.map(RotorMap::Exp, &b)?;
                let [scalar, part] = match square {
                    -1.0 => [length.cos(), length.sin()],
                    1.0 => [length.cosh(), length.sinh()],
                    _ => [1.0, length],
                };
                let mut wanted = vec![0.0; case.bits.len()];
                (wanted[0], wanted[blade]) = (scalar, part);
                let wanted: Vec<f64> = case.even.iter().map(|&blade| wanted[blade]).collect();
                let error = apart(&r, &wanted) / largest(&wanted);
                assert!(error <= 1e-15, "{signature:?}, {length}: {error}");
            }
        }
    }
    Ok(())
}

/// Half of a bivector twice, and the sandwich with the reverse, in any direction.
#[test]
fn exponentials_in_any_direction_keep_their_digits() -> Result {
    for signature in signatures() {
        let case = Case::new(signature)?;
        for (seed, length) in (1..).zip(LENGTHS) {
            let b = of_length(&case, length, seed);
            let half: Vec<f64> = b.iter().map(|x| x / 2.0).collect();
            let [r, half] = [
                case.map(RotorMap::Exp, &b)?,
                case.map(RotorMap::Exp, &half)?,
            ];
            let size = largest(&half);
            let error = apart(&case.product(&half, &half), &r) / (size * size);
            assert!(
                error <= 8.0 * f64::EPSILON * length.max(8.0),
                "{signature:?}, {length}: {error}"
            );
            let signs = case.even.iter().map(|&blade| case.bits[blade].count_ones());
            let reverse: Vec<f64> = r
                .iter()
                .zip(signs)
                .map(|(x, grade)| if grade == 2 { -x } else { *x })
                .collect();
            let mut norm = case.product(&r, &reverse);
            norm[0] -= 1.0;
            let error = largest(&norm) / largest(&r).powi(2).max(1.0);
            assert!(error <= 4e-14, "{signature:?}, {length}: norm {error}");
        }
    }
    Ok(())
}

/// In single precision only the result is rounded.
#[test]
fn single_precision_rounds_once() -> Result {
    let case = Case::new((5, 0, 0))?;
    // Two equal angles, in turned planes.
    let mut double = vec![0.0; 10];
    (double[0], double[7]) = (120.3, 120.3);
    for b in [of_length(&case, 250.0, 3), double] {
        let wanted = case.map(RotorMap::Exp, &b)?;
        let single: Vec<f32> = b.iter().map(|&x| x as f32).collect();
        let b: Vec<f64> = single.iter().map(|&x| f64::from(x)).collect();
        let exact = case.map(RotorMap::Exp, &b)?;
        let mut out = vec![0.0_f32; wanted.len()];
        case.rotors.map(
            RotorMap::Exp,
            Tensor::new(&single, &[10, 1, 1])?,
            TensorMut::new(&mut out, &[16, 1, 1])?,
        )?;
        let out: Vec<f64> = out.iter().map(|&x| f64::from(x)).collect();
        assert!(apart(&out, &exact) <= f64::from(f32::EPSILON));
    }
    Ok(())
}

#[test]
fn the_logarithm_near_minus_one_keeps_its_digits() -> Result {
    for (signature, directions) in [
        ((2, 0, 0), vec![vec![1.0]]),
        ((3, 0, 0), vec![vec![0.6, 0.0, -0.8], vec![0.48, 0.64, 0.6]]),
        ((0, 3, 0), vec![vec![0.0, 1.0, 0.0]]),
    ] {
        let case = Case::new(signature)?;
        for direction in directions {
            for distance in [0.3, 1e-3, 1e-9, 1e-15, 1e-40, 1e-200] {
                let (sin, cos) = (f64::sin(distance), -f64::cos(distance));
                for length in [1.0, 1e3] {
                    let mut r = vec![cos * length];
                    r.extend(direction.iter().map(|x| sin * length * x));
                    let got = case.map(RotorMap::Log, &r)?;
                    let wanted: Vec<f64> = direction.iter().map(|x| x * (PI - distance)).collect();
                    assert!(apart(&got, &wanted) <= 3e-15, "{distance}: {got:?}");
                }
            }
        }
    }
    Ok(())
}

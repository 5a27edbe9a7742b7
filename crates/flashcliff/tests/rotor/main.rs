//! Rotors against matrix exponentials, as groups, and their gradients against differences.

mod action;
mod case;
mod interpolation;
mod large;
mod missing;
mod second;

use case::{Case, close, dot, numbers, signatures, slope};
use flashcliff::rotor::{RotorMap, Rotors};
use flashcliff::{Algebra, Error, Signature, Tensor, TensorMut, threads};

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

#[test]
fn exp_is_the_matrix_exponential_and_log_its_inverse() -> Result {
    for signature in signatures() {
        let case = Case::new(signature)?;
        for (seed, scale) in [(1, 1e-9), (2, 1e-3), (3, 0.6), (4, 2.5)] {
            let b = case.random(scale, seed);
            let r = case.map(RotorMap::Exp, &b)?;
            close(&r, &case.exponential(&b), 1e-12);
            if scale < 1.0 {
                close(&case.map(RotorMap::Log, &r)?, &b, 1e-13);
            }
        }
    }
    Ok(())
}

#[test]
fn rotors_are_groups() -> Result {
    for signature in signatures() {
        let case = Case::new(signature)?;
        let b = case.random(1.0, 5);
        let times = |t: f64| b.iter().map(|x| t * x).collect::<Vec<_>>();
        let first = case.map(RotorMap::Exp, &times(0.7))?;
        let second = case.map(RotorMap::Exp, &times(-1.2))?;
        close(
            &case.product(&first, &second),
            &case.map(RotorMap::Exp, &times(-0.5))?,
            1e-13,
        );
        let one = case.product(&first, &case.map(RotorMap::Inverse, &first)?);
        close(&one, &case.map(RotorMap::Exp, &times(0.0))?, 1e-13);
        let twice: Vec<f64> = first.iter().map(|x| 2.0 * x).collect();
        close(&case.map(RotorMap::Normalized, &twice)?, &first, 1e-13);
    }
    Ok(())
}

#[test]
fn special_points() -> Result {
    let space = Case::new((3, 0, 0))?;
    assert!(
        space
            .map(RotorMap::Log, &[-1.0, 0.0, 0.0, 0.0])?
            .iter()
            .all(|x| x.is_nan())
    );
    // The short way around.
    let plane = Case::new((2, 0, 0))?;
    let r = plane.map(RotorMap::Exp, &[4.0])?;
    close(
        &plane.map(RotorMap::Log, &r)?,
        &[4.0 - std::f64::consts::TAU],
        1e-14,
    );
    let near = std::f64::consts::PI - 1e-6;
    let r = plane.map(RotorMap::Exp, &[near])?;
    close(&plane.map(RotorMap::Log, &r)?, &[near], 1e-9);
    // Translations are linear, exactly.
    let pga = Case::new((3, 0, 1))?;
    let r = pga.map(RotorMap::Exp, &[0.3, -2.0, 1e6, 0.0, 0.0, 0.0])?;
    assert_eq!(r, [1.0, 0.3, -2.0, 1e6, 0.0, 0.0, 0.0, 0.0]);
    // Angles of any size, and boosts up to the largest number.
    let r = plane.map(RotorMap::Exp, &[1e5])?;
    close(&r, &[1e5_f64.cos(), 1e5_f64.sin()], 1e-9);
    let boost = Case::new((1, 1, 0))?.map(RotorMap::Exp, &[700.0])?;
    close(&boost, &[700.0_f64.cosh(), 700.0_f64.sinh()], 1e-11);
    for bad in [f64::NAN, f64::INFINITY] {
        assert!(!plane.map(RotorMap::Exp, &[bad])?[0].is_finite());
    }
    Ok(())
}

#[test]
fn inverses_of_odd_multivectors() -> Result {
    let case = Case::new((4, 1, 0))?;
    let odd = &case.odd;
    let mut x = numbers(7, odd.len());
    x[0] += 4.0;
    let inverse = case.map(RotorMap::InverseOdd, &x)?;
    let one = case.multiply(&case.whole(odd, &x), &case.whole(odd, &inverse));
    close(&one, &case.whole(&[0], &[1.0]), 1e-14);
    let unit = case.map(RotorMap::NormalizedOdd, &x)?;
    let back = case.map(RotorMap::InverseOdd, &unit)?;
    let reverse = |i: usize, x: f64| {
        if case.bits[odd[i]].count_ones() == 3 {
            -x
        } else {
            x
        }
    };
    let reversed: Vec<f64> = unit
        .iter()
        .enumerate()
        .map(|(i, &x)| reverse(i, x))
        .collect();
    close(&back, &reversed, 1e-13);
    Ok(())
}

#[test]
fn gradients_are_differences() -> Result {
    let maps = [
        RotorMap::Exp,
        RotorMap::Log,
        RotorMap::Inverse,
        RotorMap::Normalized,
    ];
    for signature in signatures().filter(|&(p, q, r)| p + q + r > 1) {
        let case = Case::new(signature)?;
        let b = case.random(0.6, 9);
        let r: Vec<f64> = case
            .map(RotorMap::Exp, &b)?
            .iter()
            .map(|x| 1.3 * x)
            .collect();
        for map in maps {
            for x in if map == RotorMap::Exp {
                vec![b.clone(), vec![0.0; b.len()]]
            } else {
                vec![r.clone()]
            } {
                let grad = numbers(11, case.map(map, &x)?.len());
                let mut got = vec![0.0; x.len()];
                case.rotors.gradient(
                    map,
                    Tensor::new(&x, &[x.len(), 1, 1])?,
                    Tensor::new(&grad, &[grad.len(), 1, 1])?,
                    TensorMut::new(&mut got, &[x.len(), 1, 1])?,
                )?;
                for (index, got) in got.iter().enumerate() {
                    let slope = slope(|step| {
                        let mut x = x.clone();
                        x[index] += step;
                        Ok(dot(&case.map(map, &x)?, &grad))
                    })?;
                    assert!(
                        (got - slope).abs() < 1e-8 * (1.0 + slope.abs()),
                        "{map:?} of {signature:?}: {got}, {slope}"
                    );
                }
            }
        }
    }
    Ok(())
}

#[test]
fn items_are_independent_of_each_other_and_of_threads() -> Result {
    let case = Case::new((4, 0, 0))?;
    let (batch, channels) = (37, 29);
    let x: Vec<f32> = numbers(1, 6 * batch * channels)
        .iter()
        .map(|&x| x as f32)
        .collect();
    let run = |ceiling| -> Result<Vec<f32>> {
        let mut out = vec![f32::NAN; 8 * batch * channels];
        threads::at_most(ceiling, || {
            let x = Tensor::new(&x, &[6, batch, channels])?;
            case.rotors.map(
                RotorMap::Exp,
                x,
                TensorMut::new(&mut out, &[8, batch, channels])?,
            )
        })?;
        Ok(out)
    };
    let out = run(1)?;
    assert_eq!(out, run(2)?);
    for item in [0, 500, batch * channels - 1] {
        let own: Vec<f64> = x
            .iter()
            .skip(item)
            .step_by(batch * channels)
            .map(|&x| x.into())
            .collect();
        let own = case.map(RotorMap::Exp, &own)?;
        let found = out.iter().skip(item).step_by(batch * channels);
        assert!(found.zip(own).all(|(&found, own)| found == own as f32));
    }
    Ok(())
}

#[test]
fn errors_say_what_was_expected() -> Result {
    let six = Algebra::new(Signature::new(6, 0, 0)?)?;
    let error = Rotors::new(six).unwrap_err();
    assert!(matches!(
        error,
        Error::TooManyDimensions { expected: 5, .. }
    ));
    assert!(
        error.to_string().contains("at most 5 dimensions"),
        "{error}"
    );
    let case = Case::new((3, 0, 0))?;
    assert_eq!(case.algebra.dim(), 3);
    let (x, mut out) = ([0.0_f32; 6], [0.0_f32; 8]);
    let x = Tensor::new(&x, &[3, 1, 2])?;
    let error = case
        .rotors
        .map(RotorMap::Exp, x, TensorMut::new(&mut out, &[4, 2, 1])?)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "exp: tensor `out` must be [4, 1, 2], got [4, 2, 1]"
    );
    let error = case
        .rotors
        .map(RotorMap::Log, x, TensorMut::new(&mut out, &[4, 1, 2])?)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "log: tensor `x` must be [4, batch, channels], got [3, 1, 2]"
    );
    Ok(())
}

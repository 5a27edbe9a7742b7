//! Second derivatives and directional derivatives: the operators of maps against differences of gradients.

use flashcliff::rotor::{Parity, RotorMap};
use flashcliff::{Operator, Tensor};

use super::Result;
use super::case::{Case, dot, numbers, signatures, slope};

/// A result of an operator for one item.
fn result(operator: &Operator, inputs: &[&[f64]], which: usize) -> Result<Vec<f64>> {
    let shapes: Vec<[usize; 3]> = inputs.iter().map(|x| [x.len(), 1, 1]).collect();
    let tensors = inputs.iter().zip(&shapes);
    let tensors: Result<Vec<Tensor<'_, f64>>, _> =
        tensors.map(|(x, shape)| Tensor::new(x, shape)).collect();
    Ok(operator.results(&tensors?)?.swap_remove(which))
}

fn moved(x: &[f64], direction: &[f64], step: f64) -> Vec<f64> {
    let pairs = x.iter().zip(direction);
    pairs.map(|(x, d)| x + step * d).collect()
}

/// Compares along a direction of all inputs: the tangent of the map, and the derivative of its gradient.
fn check(operator: &Operator, inputs: &[Vec<f64>], what: &str) -> Result {
    let directions: Vec<Vec<f64>> = (20..)
        .zip(inputs)
        .map(|(seed, x)| numbers(seed, x.len()))
        .collect();
    let at = |step: f64| -> Vec<Vec<f64>> {
        let pairs = inputs.iter().zip(&directions);
        pairs.map(|(x, d)| moved(x, d, step)).collect()
    };
    let borrowed = |lists: &[&[Vec<f64>]]| -> Vec<Vec<f64>> {
        lists.iter().flat_map(|list| list.to_vec()).collect()
    };
    let run = |operator: &Operator, inputs: &[Vec<f64>], which| {
        let inputs: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
        result(operator, &inputs, which)
    };
    let near = |got: f64, wanted: f64, of: &str| {
        let error = (got - wanted).abs();
        assert!(
            error < 1e-7 * (1.0 + wanted.abs()),
            "{of} of {what}: {got}, {wanted}"
        );
    };
    let outputs = run(operator, inputs, 0)?.len();
    let grad = [numbers(11, outputs)];
    let tangent = run(&operator.tangent()?, &borrowed(&[inputs, &directions]), 0)?;
    let wanted = slope(|step| Ok(dot(&run(operator, &at(step), 0)?, &grad[0])))?;
    near(dot(&tangent, &grad[0]), wanted, "tangent");
    let gradient = operator.gradient()?;
    let second = gradient.gradient()?;
    let weights: Vec<Vec<f64>> = (30..)
        .zip(inputs)
        .map(|(seed, x)| numbers(seed, x.len()))
        .collect();
    let of_second = borrowed(&[inputs, &grad, &weights]);
    let mut got = 0.0;
    for (which, direction) in directions.iter().enumerate() {
        got += dot(&run(&second, &of_second, which)?, direction);
    }
    let wanted = slope(|step| {
        let inputs = borrowed(&[&at(step), &grad]);
        let mut total = 0.0;
        for (which, weight) in weights.iter().enumerate() {
            total += dot(&run(&gradient, &inputs, which)?, weight);
        }
        Ok(total)
    })?;
    near(got, wanted, "second derivative");
    Ok(())
}

#[test]
fn derivatives_of_every_order_are_operators() -> Result {
    for signature in signatures().filter(|&(p, q, r)| p + q + r > 1) {
        let case = Case::new(signature)?;
        let b = case.random(0.6, 9);
        let r = case.map(RotorMap::Exp, &b)?;
        let r: Vec<f64> = r.iter().map(|x| 1.3 * x).collect();
        // Near and far from the series, and zero, where the formulas meet.
        let far: Vec<f64> = b.iter().map(|x| 4.0 * x).collect();
        for (map, x) in [
            (RotorMap::Exp, b.clone()),
            (RotorMap::Exp, far),
            (RotorMap::Exp, vec![0.0; b.len()]),
            (RotorMap::Log, r.clone()),
            (RotorMap::Inverse, r.clone()),
            (RotorMap::Normalized, r.clone()),
        ] {
            let operator = case.rotors.operator(map)?.ok_or("blades")?;
            check(&operator, &[x], &format!("{map:?} of {signature:?}"))?;
        }
        let [between, along] = case.rotors.path(Parity::Even)?.ok_or("bivectors")?;
        let ends = [b.clone(), case.random(0.5, 4)].map(|b| case.map(RotorMap::Exp, &b));
        let [from, to] = ends;
        let from = from?;
        check(
            &between,
            &[from.clone(), to?],
            &format!("a way of {signature:?}"),
        )?;
        check(
            &along,
            &[from, vec![0.3], b],
            &format!("a path of {signature:?}"),
        )?;
    }
    Ok(())
}

/// The two operators of a path are the interpolation.
#[test]
fn a_path_of_two_operators_is_the_interpolation() -> Result {
    for signature in signatures().filter(|&(p, q, r)| p + q + r > 1) {
        let case = Case::new(signature)?;
        let ends = [5, 6].map(|seed| case.map(RotorMap::Exp, &case.random(0.5, seed)));
        let [a, b] = ends;
        let (a, b) = (a?, b?);
        let [between, along] = case.rotors.path(Parity::Even)?.ok_or("bivectors")?;
        let step = result(&between, &[&a, &b], 0)?;
        let got = result(&along, &[&a, &[0.3], &step], 0)?;
        let wanted = case.between(Parity::Even, [&a, &b], 0.3)?;
        super::case::close(&got, &wanted, 1e-14);
    }
    Ok(())
}

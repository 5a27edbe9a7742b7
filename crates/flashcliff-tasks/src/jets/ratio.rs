//! The ratio of the two densities of a jet, whose axis is not known: a mean over the sphere.
//!
//! For `n` particles the integrand is an even polynomial of degree `2 n` of the axis. Gauss's rule with `n + 1` nodes
//! along the polar axis and `2 n + 1` equal steps around it give its mean exactly, but for rounding.

use std::f64::consts::{PI, TAU};

use super::{Vector, density, dot};

/// The logarithm of the mean over all axes `u` of the product of `1 + strength P2(u . direction)`.
pub(super) fn log_ratio(directions: &[Vector], strength: f64) -> f64 {
    let around = 2 * directions.len() + 1;
    let mut sum = 0.0;
    // The integrand is even: one half of the sphere is enough.
    for (height, weight) in gauss_legendre(directions.len() + 1) {
        if height < 0.0 {
            continue;
        }
        let radius = (1.0 - height * height).sqrt();
        let mut ring = 0.0;
        for step in 0..around {
            let (sin, cos) = (TAU * step as f64 / around as f64).sin_cos();
            let axis = [radius * cos, radius * sin, height];
            let densities = directions.iter().map(|&d| density(dot(d, axis), strength));
            ring += densities.product::<f64>();
        }
        let share = if height == 0.0 { 0.5 } else { 1.0 };
        sum += share * weight * ring / around as f64;
    }
    sum.ln()
}

/// Nodes and weights of Gauss's rule in [-1, 1]: the zeros of the Legendre polynomial, by Newton's method.
fn gauss_legendre(count: usize) -> impl Iterator<Item = (f64, f64)> {
    let n = count as f64;
    (0..count).map(move |k| {
        let middle = count % 2 == 1 && k == count / 2;
        let mut x = if middle {
            0.0
        } else {
            (PI * (k as f64 + 0.75) / (n + 0.5)).cos()
        };
        let mut slope;
        loop {
            let (value, before) = legendre(count, x);
            slope = n * (x * value - before) / (x * x - 1.0);
            let step = value / slope;
            if middle || step.abs() < 1e-15 {
                break;
            }
            x -= step;
        }
        (x, 2.0 / ((1.0 - x * x) * slope * slope))
    })
}

/// The Legendre polynomials of a degree, and of the degree below.
fn legendre(degree: usize, x: f64) -> (f64, f64) {
    let (mut value, mut before) = (x, 1.0);
    for k in 2..=degree {
        let k = k as f64;
        (value, before) = (
            ((2.0 * k - 1.0) * x * value - (k - 1.0) * before) / k,
            value,
        );
    }
    (value, before)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: Vector = [0.0, 0.0, 1.0];

    /// The addition theorem: the mean of P2(u.a) P2(u.b) over u is P2(a.b) / 5, and that of P2(u.a) is 0.
    #[test]
    fn one_and_two_particles_have_closed_forms() {
        assert!(log_ratio(&[UP], 0.7).abs() < 1e-15);
        for angle in [0.0, 0.4, 1.0, 1.5, 3.0] {
            let other = [f64::sin(angle), 0.0, f64::cos(angle)];
            let p2 = 1.5 * f64::cos(angle).powi(2) - 0.5;
            let expected = (0.7 * 0.7 * p2 / 5.0).ln_1p();
            assert!((log_ratio(&[UP, other], 0.7) - expected).abs() < 1e-14);
        }
    }

    /// Particles along one line: the mean of (1 + s P2(x))^n over x in [0, 1], by Simpson's rule.
    #[test]
    fn particles_along_a_line() {
        for n in [20, 45, 80] {
            let steps = 2_000_000;
            let mut sum = 0.0;
            for step in 0..=steps {
                let weight = match step {
                    0 => 1.0,
                    _ if step == steps => 1.0,
                    _ if step % 2 == 1 => 4.0,
                    _ => 2.0,
                };
                let x = f64::from(step) / f64::from(steps);
                sum += weight * density(x, 1.0).powi(n);
            }
            let expected = (sum / (3.0 * f64::from(steps))).ln();
            let got = log_ratio(&vec![UP; n as usize], 1.0);
            assert!((got - expected).abs() < 1e-11, "{n}: {got}, {expected}");
        }
    }

    #[test]
    fn the_ratio_does_not_depend_on_the_directions_of_the_coordinates() {
        let directions: Vec<Vector> = (0..30)
            .map(|i| {
                let (height, angle) = (f64::from(i) / 15.0 - 0.97, f64::from(i * i));
                let radius = f64::sqrt(1.0 - height * height);
                [radius * angle.cos(), radius * angle.sin(), height]
            })
            .collect();
        let turned: Vec<Vector> = directions.iter().map(|&[x, y, z]| [z, x, -y]).collect();
        let difference = log_ratio(&directions, 1.0) - log_ratio(&turned, 1.0);
        assert!(difference.abs() < 1e-12, "{difference}");
    }
}

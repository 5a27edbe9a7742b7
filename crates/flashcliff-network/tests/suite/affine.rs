//! The network for volumes, beside formulas written out pair by pair, and under affine maps.

use std::collections::HashMap;

use flashcliff_network::messages::{AffineHulls, MessageLayers};
use flashcliff_network::{Rows, Scales, Segments, Value};

use crate::networks::numbers;
use crate::runs::{F64, assert_near, run};

const SAMPLES: usize = 3;
const POINTS: usize = 7;
const DIM: usize = 3;

struct Made {
    layers: MessageLayers,
    volumes: Value,
    parameters: Vec<Vec<f64>>,
}

fn rows() -> Rows {
    Rows::of_graphs(SAMPLES, SAMPLES * POINTS, SAMPLES * POINTS * (POINTS - 1))
}

/// The pairs of points of each sample, receivers first, and the sample of each point.
fn relations() -> [Segments; 3] {
    let (mut receivers, mut senders) = (Vec::new(), Vec::new());
    for sample in 0..SAMPLES {
        for (i, j) in (0..POINTS).flat_map(|i| (0..POINTS).map(move |j| (i, j))) {
            if i != j {
                receivers.push(sample * POINTS + i);
                senders.push(sample * POINTS + j);
            }
        }
    }
    let points = SAMPLES * POINTS;
    let samples: Vec<usize> = (0..points).map(|at| at / POINTS).collect();
    [(receivers, points), (senders, points), (samples, SAMPLES)]
        .map(|(of, count)| Segments::new(&of, count).unwrap())
}

impl Made {
    fn new() -> Self {
        let own = AffineHulls {
            dim: DIM,
            points: POINTS,
            channels: 4,
            ratio: 2.5,
        };
        let (layers, ends) = own.layers().unwrap();
        let network = &layers.network;
        Self {
            parameters: numbers(network, network.parameters(), 1, 7),
            volumes: ends.volumes,
            layers,
        }
    }

    fn points(&self) -> Vec<f64> {
        let network = &self.layers.network;
        numbers(network, network.inputs(), rows(), 3).remove(0)
    }

    fn volumes(&self, points: Vec<f64>) -> Vec<f64> {
        let network = &self.layers.network;
        let plan = network.plan(&[self.volumes], rows(), F64).unwrap();
        let scales = Scales {
            relations: &relations(),
            ..Scales::default()
        };
        run(&plan, [&[points], &self.parameters], scales).remove(0)
    }
}

/// The inverse and the determinant of a matrix, by elimination.
fn inverse(mut m: [[f64; DIM]; DIM]) -> ([[f64; DIM]; DIM], f64) {
    let mut own = [[0.0; DIM]; DIM];
    (0..DIM).for_each(|i| own[i][i] = 1.0);
    let mut det = 1.0;
    for i in 0..DIM {
        let pivot = m[i][i];
        det *= pivot;
        for j in 0..DIM {
            m[i][j] /= pivot;
            own[i][j] /= pivot;
        }
        for row in (0..DIM).filter(|&row| row != i) {
            let factor = m[row][i];
            for j in 0..DIM {
                m[row][j] -= factor * m[i][j];
                own[row][j] -= factor * own[i][j];
            }
        }
    }
    (own, det)
}

/// The formulas for one sample, with the inverse of second moments in place of their Cholesky factor.
fn reference(made: &Made, points: &[f64]) -> f64 {
    let network = &made.layers.network;
    let names = network.parameters().iter().map(|&own| network.name(own));
    let named: HashMap<&str, &Vec<f64>> = names.zip(&made.parameters).collect();
    let linear = |name: &str, x: &[f64]| -> Vec<f64> {
        let weight = named[format!("{name}.weight").as_str()];
        let rows = weight.chunks_exact(x.len());
        let rows = rows.zip(named[format!("{name}.bias").as_str()]);
        rows.map(|(row, bias)| row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>() + bias)
            .collect()
    };
    let silu = |x: Vec<f64>| -> Vec<f64> { x.iter().map(|x| x / (1.0 + (-x).exp())).collect() };
    let perceptron = |name: &str, x: &[f64]| {
        linear(&format!("{name}.2"), &silu(linear(&format!("{name}.0"), x)))
    };
    let mean = |all: Vec<Vec<f64>>| -> Vec<f64> {
        let each = |at| all.iter().map(|own: &Vec<f64>| own[at]).sum::<f64>() / all.len() as f64;
        (0..all[0].len()).map(each).collect()
    };

    let (n, d) = (POINTS as f64, DIM as f64);
    let centre = mean(points.chunks_exact(DIM).map(<[f64]>::to_vec).collect());
    let from_centre = |x: &[f64]| std::array::from_fn(|i| x[i] - centre[i]);
    let x: Vec<[f64; DIM]> = points.chunks_exact(DIM).map(from_centre).collect();
    let moment = |i: usize, j: usize| x.iter().map(|x| x[i] * x[j]).sum::<f64>() / n;
    let (inverse, det) = inverse(std::array::from_fn(|i| {
        std::array::from_fn(|j| moment(i, j))
    }));
    let inner = |a: usize, b: usize| -> f64 {
        let all = (0..DIM).flat_map(|i| (0..DIM).map(move |j| (i, j)));
        all.map(|(i, j)| x[a][i] * inverse[i][j] * x[b][j]).sum()
    };
    // Moments of n times a random projection, from the moments of a unit vector: E u^4 = 3 / (n (n + 2)).
    let of_square = n * n * 2.0 * d * (n - d) / (n * n * (n + 2.0));
    let of_product = n * n * d * (n - d) / (n * (n - 1.0) * (n + 2.0));
    let of_point = |a: usize| {
        let others = (0..POINTS).filter(|&b| b != a);
        let pairs = others.map(|b| {
            let square = |a| (inner(a, a) - d) / of_square.sqrt();
            let scalars = [inner(a, b) / of_product.sqrt(), square(a), square(b)];
            silu(perceptron("pairs", &scalars))
        });
        silu(perceptron("points", &mean(pairs.collect())))
    };
    let factor = perceptron("volumes", &mean((0..POINTS).map(of_point).collect()));
    2.5 * det.sqrt() * (1.0 + factor[0])
}

#[test]
fn volumes_are_those_of_the_formulas() {
    let made = Made::new();
    let points = made.points();
    let samples = points.chunks_exact(POINTS * DIM);
    let expected: Vec<f64> = samples.map(|own| reference(&made, own)).collect();
    assert!(expected.iter().all(|own| own.abs() > 1e-3), "{expected:?}");
    assert_near(&made.volumes(points), &expected, 1e-11);
}

#[test]
fn volumes_follow_affine_maps_and_no_order() {
    let made = Made::new();
    let points = made.points();
    let before = made.volumes(points.clone());
    // Its determinant is 2 * 0.5 * -3 = -3.
    let map = [[2.0, 0.7, -0.3], [0.0, 0.5, 1.1], [0.0, 0.0, -3.0]];
    let moved = |x: &[f64]| -> Vec<f64> {
        let row = |row: &[f64; DIM]| row.iter().zip(x).map(|(m, x)| m * x).sum::<f64>() + 1.5;
        map.iter().map(row).collect()
    };
    let after = made.volumes(points.chunks_exact(DIM).flat_map(moved).collect());
    let expected: Vec<f64> = before.iter().map(|own| 3.0 * own).collect();
    assert_near(&after, &expected, 1e-10);
    // Points of each sample from the last to the first.
    let turned = points.chunks_exact(POINTS * DIM);
    let turned = turned.flat_map(|own| own.chunks_exact(DIM).rev().flatten().copied());
    assert_near(&made.volumes(turned.collect()), &before, 1e-12);
    // A map that is not affine changes more than a factor.
    let bent = points.iter().map(|x| x * x * x).collect();
    let ratios = made.volumes(bent).into_iter().zip(&before);
    let ratios: Vec<f64> = ratios.map(|(bent, own)| bent / own).collect();
    assert!((ratios[0] - ratios[1]).abs() > 1e-3, "{ratios:?}");
}

#[test]
fn flat_and_equal_points_have_no_volume() {
    let made = Made::new();
    let mut points = made.points();
    let widths = made.volumes(points.clone());
    points
        .iter_mut()
        .skip(2)
        .step_by(DIM)
        .for_each(|x| *x = 0.25);
    let flat = made.volumes(points);
    for (flat, wide) in flat.iter().zip(widths) {
        assert!(flat.abs() < 0.05 * wide.abs(), "{flat} beside {wide}");
    }
    let equal = made.volumes(vec![0.5; SAMPLES * POINTS * DIM]);
    assert!(equal.iter().all(|own| own.abs() < 1e-30), "{equal:?}");
}

#[test]
fn options_without_a_network_are_errors() {
    let usual = AffineHulls::default();
    for dim in [0, 1, 9] {
        let error = AffineHulls { dim, ..usual }.layers().err().unwrap();
        assert!(error.to_string().contains("from 2 to 8"), "{error}");
    }
    let few = AffineHulls { points: 5, ..usual };
    let error = few.layers().err().unwrap().to_string();
    assert!(error.contains("more points than dimensions"), "{error}");
}

#[test]
fn parameters_are_as_many_as_the_documentation_says() {
    let network = AffineHulls::default().layers().unwrap().0.network;
    let counts = network.parameters().iter().map(|&own| {
        let axes = network.shape(own).unwrap_or_default();
        axes.iter().map(|axis| axis.size(0)).product::<usize>()
    });
    assert_eq!(counts.sum::<usize>(), 4_385);
}

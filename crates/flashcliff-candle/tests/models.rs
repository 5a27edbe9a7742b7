//! Tests of the models: sizes, names, symmetries, gradients, determinism.

mod common;

use candle_core::{DType, Device, Tensor};
use common::{Reference, assert_close, disturb, noise, parameter, random, values};
use flashcliff_candle::models::{Architecture, Model, Neighbourhoods};
use flashcliff_candle::objective::Objective;
use flashcliff_program::operators::Value;

const ALL: [Architecture; 7] = [
    Architecture::Hulls,
    Architecture::AffineHulls,
    Architecture::Invariants,
    Architecture::Regression { width: 7 },
    Architecture::Volumes,
    Architecture::Bodies,
    Architecture::Forces,
];

fn model(architecture: Architecture, dtype: DType) -> Model {
    let model = Model::new(architecture, 5, dtype).unwrap();
    disturb(model.parameters(), 40);
    model
}

fn points(architecture: Architecture, batch: usize) -> Tensor {
    random(&[batch, architecture.points(), architecture.dim()], 9)
}

#[test]
fn parameter_counts() {
    let count = |architecture| {
        let model = Model::new(architecture, 0, DType::F32).unwrap();
        model.parameters().element_count()
    };
    assert_eq!(count(Architecture::Hulls), 58_849);
    assert_eq!(count(Architecture::AffineHulls), 4_385);
    assert_eq!(count(Architecture::Invariants), 68_865);
    assert_eq!(count(Architecture::Regression { width: 580 }), 344_077);
    assert_eq!(count(Architecture::Regression { width: 380 }), 149_877);
    assert_eq!(count(Architecture::Volumes), 48_913);
    assert_eq!(count(Architecture::Bodies), 134_625);
    assert_eq!(count(Architecture::Bodies5d), 210_113);
    // CSMPN counts four more, which have no part in results.
    assert_eq!(count(Architecture::SimplicialHulls), 254_329 - 4);
    assert_eq!(count(Architecture::Forces), 11_968);
}

#[test]
fn state_dict_names() {
    let names = |architecture| {
        let mut names = Model::new(architecture, 0, DType::F32)
            .unwrap()
            .parameters()
            .names();
        names.sort_unstable();
        names
    };
    let layer = |prefix: &str| {
        [
            "linear_left.bias",
            "linear_left.weight",
            "linear_right.weight",
            "normalization.a",
            "weight",
        ]
        .map(|name| format!("{prefix}.{name}"))
        .to_vec()
    };
    let affine = |prefix: &str| {
        ["bias", "weight"]
            .map(|name| format!("{prefix}.{name}"))
            .to_vec()
    };
    let hulls = [affine("mlp.0"), affine("mlp.2"), affine("net.0")].concat();
    let nets = (1..=4).flat_map(|i| layer(&format!("net.{i}")));
    assert_eq!(names(Architecture::Hulls), [hulls, nets.collect()].concat());
    let regression = [
        affine("gp.0"),
        layer("gp.1"),
        affine("mlp.0"),
        affine("mlp.2"),
        affine("mlp.4"),
    ];
    assert_eq!(
        names(Architecture::Regression { width: 3 }),
        regression.concat()
    );
    let gates = (1..=3).flat_map(|i| ["a", "b"].map(|name| format!("net.{i}.{name}")));
    let volumes = [layer("net.0"), gates.collect(), layer("net.4")].concat();
    assert_eq!(names(Architecture::Volumes), volumes);
}

/// The hull model by references, from the full multivectors on.
#[test]
fn hulls_are_those_of_the_references() {
    const CHANNELS: usize = 32;
    let reference = Reference::new(5, 0);
    let model = model(Architecture::Hulls, DType::F64);
    let points = points(Architecture::Hulls, 2);
    let data = values(&points);
    let mut x = vec![0.0; 32 * 2 * 16];
    for (at, number) in data.iter().enumerate() {
        let (row, d) = (at / 5, at % 5);
        x[(1 + d) * 2 * 16 + row] = *number;
    }
    let get = |name: &str| parameter(model.parameters(), name);
    let one_matrix = [("per_grade", Value::Flag(false))];
    let inputs = [&*x, &get("net.0.weight"), &get("net.0.bias")];
    x = reference.of("mv_linear", &one_matrix, [2, 16, CHANNELS], &inputs);
    let sizes = [2, CHANNELS, CHANNELS];
    for i in 1..=4 {
        let get = |name: &str| get(&format!("net.{i}.{name}"));
        let right = reference.linear(sizes, &x, &get("linear_right.weight"), &[]);
        let (weight, bias) = (get("linear_left.weight"), get("linear_left.bias"));
        let left = reference.linear(sizes, &x, &weight, &bias);
        let (weight, a) = (get("weight"), get("normalization.a"));
        let inputs = [&*x, &right, &weight, &a, &left];
        x = reference.of("steerable_product", &[], sizes, &inputs);
    }
    let dense = |x: &[f64], name: &str| -> Vec<f64> {
        let [weight, bias] = ["weight", "bias"].map(|own| get(&format!("{name}.{own}")));
        let rows = weight.chunks_exact(x.len()).zip(bias);
        rows.map(|(row, bias)| row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>() + bias)
            .collect()
    };
    let expected = (0..2).map(|b| {
        let square = |i: usize, c: usize| x[(i * 2 + b) * CHANNELS + c].powi(2);
        let norm = |c| (0..32).map(|i| square(i, c)).sum::<f64>().sqrt();
        let norms: Vec<f64> = (0..CHANNELS).map(norm).collect();
        let hidden = dense(&norms, "mlp.0").into_iter();
        let hidden: Vec<f64> = hidden.map(|v| v / (1.0 + (-v).exp())).collect();
        dense(&hidden, "mlp.2")[0]
    });
    let expected: Vec<f64> = expected.collect();
    let got = values(&model.forward(&points).unwrap());
    assert_close(&got, &expected, 1e-11, "hulls");
}

/// Reflects every point in the hyperplane orthogonal to a random vector.
fn reflected(points: &Tensor) -> Tensor {
    let dim = points.dim(2).unwrap();
    let normal = noise(dim, 123);
    let square: f64 = normal.iter().map(|n| n * n).sum();
    let mut data = values(points);
    for point in data.chunks_exact_mut(dim) {
        let along: f64 = point.iter().zip(&normal).map(|(p, n)| p * n).sum();
        for (p, n) in point.iter_mut().zip(&normal) {
            *p -= 2.0 * along / square * n;
        }
    }
    Tensor::from_vec(data, points.shape(), &Device::Cpu).unwrap()
}

#[test]
fn reflections_change_the_sign_of_volumes_and_nothing_else() {
    let invariant =
        |own: &Architecture| ![Architecture::Bodies, Architecture::Forces].contains(own);
    for architecture in ALL.into_iter().filter(invariant) {
        let model = model(architecture, DType::F64);
        let points = points(architecture, 3);
        let before = values(&model.forward(&points).unwrap());
        let after = values(&model.forward(&reflected(&points)).unwrap());
        let sign = if architecture == Architecture::Volumes {
            -1.0
        } else {
            1.0
        };
        let expected: Vec<f64> = before.iter().map(|y| sign * y).collect();
        assert_close(&after, &expected, 1e-10, architecture.name());
    }
}

/// Bodies that are reflected and moved are so afterwards too, in a space of so many dimensions.
fn check_bodies(architecture: Architecture, dim: usize) {
    let model = model(architecture, DType::F64);
    let bodies = points(architecture, 3);
    let part = |from: usize, len: usize| bodies.narrow(2, from, len).unwrap();
    let by = &[1.5, -0.5, 2.0, 0.25, -1.0][..dim];
    let by = Tensor::new(by, &Device::Cpu).unwrap();
    let moved = |x: &Tensor| reflected(x).broadcast_add(&by).unwrap();
    let parts = [
        part(0, 1),
        moved(&part(1, dim)),
        reflected(&part(1 + dim, dim)),
    ];
    let other = Tensor::cat(&parts, 2).unwrap();
    let before = model.forward(&bodies).unwrap();
    let before = before.reshape((3, 5, dim)).unwrap();
    let after = model.forward(&other).unwrap();
    let name = architecture.name();
    assert_close(&values(&after), &values(&moved(&before)), 1e-10, name);
    let stays = values(&part(1, dim));
    let moves = values(&before)
        .iter()
        .zip(stays)
        .any(|(a, b)| (a - b).abs() > 1e-3);
    assert!(moves);
}

#[test]
fn bodies_commute_with_reflections_and_translations() {
    check_bodies(Architecture::Bodies, 3);
    check_bodies(Architecture::Bodies5d, 5);
}

/// Sites of a sample: the crystal at rest, shaken.
fn crystals(samples: usize) -> Tensor {
    let mut rest = Vec::new();
    let corners = [
        [0, 0, 0],
        [0, 2, 2],
        [2, 0, 2],
        [2, 2, 0],
        [1, 1, 1],
        [1, 3, 3],
        [3, 1, 3],
        [3, 3, 1],
    ];
    for cell in 0..2 {
        for [x, y, z] in corners {
            rest.push([x + 4 * cell, y, z]);
        }
    }
    let quarter = 5.431 / 4.0;
    let mut data = Vec::new();
    for noise in noise(samples * 16 * 3, 71).chunks_exact(16 * 3) {
        for (place, shake) in rest.iter().zip(noise.chunks_exact(3)) {
            let each = place.iter().zip(shake);
            data.extend(each.map(|(&at, shake)| quarter * f64::from(at) + 0.2 * shake));
            data.push(1.0);
        }
        for image in 0..27 {
            let shift = [image / 9, image / 3 % 3, image % 3].map(|own| f64::from(own - 1));
            data.extend(
                [8.0, 4.0, 4.0]
                    .iter()
                    .zip(shift)
                    .map(|(n, s)| quarter * n * s),
            );
            data.push(0.0);
        }
    }
    Tensor::from_vec(data, (samples, 43, 4), &Device::Cpu).unwrap()
}

#[test]
fn forces_turn_with_crystals_and_energies_stay() {
    let model = model(Architecture::Forces, DType::F64);
    let sites = crystals(2);
    let part = |from: usize, len: usize| sites.narrow(2, from, len).unwrap();
    let atoms = part(3, 1).unsqueeze(3).unwrap().squeeze(3).unwrap();
    // Atoms are moved as well, translations are not.
    let by = Tensor::new(&[[[1.5, -0.5, 2.0]]], &Device::Cpu).unwrap();
    let moved = reflected(&part(0, 3));
    let moved = (moved + atoms.broadcast_mul(&by).unwrap()).unwrap();
    let other = Tensor::cat(&[moved, part(3, 1)], 2).unwrap();
    let rows = |sites: &Tensor| {
        let made = model.forward(sites).unwrap();
        made.reshape((2, 16, 4)).unwrap()
    };
    let (before, after) = (rows(&sites), rows(&other));
    let forces = |own: &Tensor| own.narrow(2, 0, 3).unwrap().contiguous().unwrap();
    let energies = |own: &Tensor| values(&own.narrow(2, 3, 1).unwrap().contiguous().unwrap());
    let turned = values(&reflected(&forces(&before)));
    assert!(turned.iter().any(|own| own.abs() > 1e-2));
    assert_close(&values(&forces(&after)), &turned, 1e-9, "forces");
    assert_close(&energies(&after), &energies(&before), 1e-10, "energies");
}

/// A field of forces has the numbers of the model, whatever else is among the edges.
#[test]
fn fields_of_forces_have_the_numbers_of_the_model() {
    let model = model(Architecture::Forces, DType::F64);
    let sites = crystals(1);
    let numbers = values(&sites);
    let rows: Vec<[f64; 3]> = numbers
        .chunks_exact(4)
        .map(|row| [row[0], row[1], row[2]])
        .collect();
    let (places, translations) = rows.split_at(16);
    let field = model.force_field().unwrap();
    let mut edges = Vec::new();
    for (to, from, image) in
        (0..16).flat_map(|to| (0..16).flat_map(move |from| (0..27).map(move |at| (to, from, at))))
    {
        let apart = |axis: usize| places[from][axis] - places[to][axis] + translations[image][axis];
        let square: f64 = (0..3).map(|axis| apart(axis).powi(2)).sum();
        if square > 0.0 && square < (field.cutoff() + 0.7).powi(2) {
            edges.push([to, from, image]);
        }
    }
    let around = Neighbourhoods::new(16, translations, &edges).unwrap();
    let place = (&Device::Cpu, DType::F64);
    let (energy, forces) = field.energy_and_forces(places, &around, place).unwrap();
    let mut got = Vec::new();
    for force in forces {
        got.extend(force);
        got.push(5.0 * energy / 16.0);
    }
    let expected = values(&model.forward(&sites).unwrap());
    assert_close(&got, &expected, 1e-11, "field");
    let refused = field.energy_and_forces(&places[1..], &around, place);
    assert!(refused.unwrap_err().to_string().contains("[16, 3]"));
    assert!(Neighbourhoods::new(16, translations, &[[0, 16, 0]]).is_err());
    assert!(Neighbourhoods::new(16, translations, &[[0, 1, 27]]).is_err());
    let other = Model::new(Architecture::Volumes, 1, DType::F64).unwrap();
    assert!(other.force_field().is_none());
}

/// The file has the energy, which hosts differentiate.
#[test]
fn the_file_of_forces_has_the_energy() {
    let model = model(Architecture::Forces, DType::F64);
    let text = model.description().unwrap();
    let (network, outputs) = flashcliff_network::file::network_from_json(&text).unwrap();
    let axes = network.shape(outputs[0].1).unwrap().iter();
    assert_eq!(
        axes.map(ToString::to_string).collect::<Vec<_>>(),
        ["1", "graphs", "1"]
    );
    assert_eq!(
        network.parameters().len(),
        model.parameters().variables().len()
    );
}

/// Simplices of hulls that are reflected and moved have the same volumes. A plan and candle's graph have the same errors and gradients.
#[test]
fn volumes_of_simplices_are_invariant_and_have_plans() {
    let model = model(Architecture::SimplicialHulls, DType::F64);
    let simplices = points(Architecture::SimplicialHulls, 2);
    let part = |from: usize, len: usize| simplices.narrow(2, from, len).unwrap();
    let by = Tensor::new(&[1.5, -0.5, 2.0, 0.3, -1.0], &Device::Cpu).unwrap();
    let positions = reflected(&part(0, 5)).broadcast_add(&by).unwrap();
    let other = Tensor::cat(&[positions.clone(), part(5, 6)], 2).unwrap();
    let before = model.forward(&simplices).unwrap();
    assert_eq!(before.dims(), [2]);
    let after = model.forward(&other).unwrap();
    assert_close(&values(&after), &values(&before), 1e-9, "simplices");
    let stretched = Tensor::cat(&[(positions * 2.0).unwrap(), part(5, 6)], 2).unwrap();
    let moves = values(&model.forward(&stretched).unwrap());
    assert!((moves[0] - values(&before)[0]).abs() > 1e-3);
    let batch = [simplices, random(&[2], 3)];
    let mut planned = Objective::new(&model, 2, 1).unwrap();
    let mut graph = Objective::through_graph(&model, 2, 1).unwrap();
    assert!(planned.is_planned());
    let [a, b] = [&mut planned, &mut graph].map(|own| values(&own.evaluate(&batch).unwrap()));
    assert_close(&a, &b, 1e-12, "errors");
    for (name, var) in model.parameters().variables().iter().step_by(7) {
        let of = |own: &Objective| values(&own.gradient_of(var).unwrap().unwrap());
        assert_close(&of(&planned), &of(&graph), 1e-9, name);
    }
}

/// The formulas of the network's documentation, with moments of lengths from values of the Gamma function.
#[test]
fn the_model_of_invariants_is_that_of_the_formulas() {
    const GAMMA: [f64; 7] = [
        1.329_340_388_179_137,
        2.0,
        3.323_350_970_447_842_6,
        6.0,
        11.631_728_396_567_448,
        24.0,
        52.342_777_784_553_52,
    ];
    let model = model(Architecture::Invariants, DType::F64);
    let points = points(Architecture::Invariants, 3);
    let moment = |k: i32| 2.0_f64.powi(k).sqrt() * GAMMA[k as usize] / GAMMA[0];
    let linear = |name: &str, x: &[f64]| -> Vec<f64> {
        let [weight, bias] =
            ["weight", "bias"].map(|own| parameter(model.parameters(), &format!("{name}.{own}")));
        let rows = weight.chunks_exact(x.len()).zip(bias);
        rows.map(|(row, bias)| row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>() + bias)
            .collect()
    };
    let silu = |x: Vec<f64>| -> Vec<f64> { x.iter().map(|x| x / (1.0 + (-x).exp())).collect() };
    let expected = values(&points);
    let expected = expected.chunks_exact(10).map(|own| {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let (x, y) = own.split_at(5);
        let norms = [dot(x, x).sqrt(), dot(y, y).sqrt()];
        let mut all = Vec::new();
        for [i, j] in [
            [1, 0],
            [0, 1],
            [2, 0],
            [1, 1],
            [0, 2],
            [3, 0],
            [2, 1],
            [1, 2],
            [0, 3],
        ] {
            let mean = moment(i) * moment(j);
            let variance = moment(2 * i) * moment(2 * j) - mean * mean;
            all.push((norms[0].powi(i) * norms[1].powi(j) - mean) / variance.sqrt());
        }
        all.push(dot(x, y) / (norms[0] * norms[1]) * 5.0_f64.sqrt());
        let hidden = silu(linear("mlp.2", &silu(linear("mlp.0", &all))));
        linear("mlp.4", &hidden)[0]
    });
    let expected: Vec<f64> = expected.collect();
    let got = model.forward(&points).unwrap();
    assert_close(&values(&got), &expected, 1e-11, "invariants");
    let turned = model.forward(&reflected(&points)).unwrap();
    assert_close(&values(&turned), &expected, 1e-11, "reflected");
    // Vectors of no length have a cosine of 0.
    let none = Tensor::zeros((1, 2, 5), DType::F64, &Device::Cpu).unwrap();
    assert!(values(&model.forward(&none).unwrap())[0].is_finite());
}

#[test]
fn gradients_against_central_differences() {
    for architecture in ALL {
        let model = model(architecture, DType::F64);
        let points = points(architecture, 2);
        let loss = || {
            model
                .forward(&points)
                .unwrap()
                .sqr()
                .unwrap()
                .sum_all()
                .unwrap()
        };
        let grads = loss().backward().unwrap();
        for (name, var) in model.parameters().variables() {
            let start = var.copy().unwrap();
            let direction = random(var.dims(), 3);
            let value = |step: f64| {
                var.set(&(&start + (&direction * step).unwrap()).unwrap())
                    .unwrap();
                loss().to_scalar::<f64>().unwrap()
            };
            let h = 1e-5;
            let (far, near) = (value(2.0 * h) - value(-2.0 * h), value(h) - value(-h));
            let expected = (8.0 * near - far) / (12.0 * h);
            var.set(&start).unwrap();
            let grad = grads.get(&var).unwrap();
            let got = values(&(grad * &direction).unwrap()).iter().sum::<f64>();
            assert!(
                (got - expected).abs() <= 1e-6 * (1.0 + expected.abs()),
                "{} {name}: got {got}, expected {expected}",
                architecture.name()
            );
        }
    }
}

#[test]
fn precisions_agree() {
    for architecture in ALL {
        let points = points(architecture, 4);
        let wide = values(&model(architecture, DType::F64).forward(&points).unwrap());
        let points = points.to_dtype(DType::F32).unwrap();
        let narrow = values(&model(architecture, DType::F32).forward(&points).unwrap());
        assert_close(&narrow, &wide, 1e-3, architecture.name());
    }
}

#[test]
fn a_seed_decides_everything_bit_for_bit() {
    for architecture in ALL {
        let points = points(architecture, 130).to_dtype(DType::F32).unwrap();
        let run = || {
            let model = Model::new(architecture, 8, DType::F32).unwrap();
            let loss = model
                .forward(&points)
                .unwrap()
                .sqr()
                .unwrap()
                .mean_all()
                .unwrap();
            let grads = loss.backward().unwrap();
            let variables = model.parameters().variables();
            let grads = variables
                .iter()
                .map(|(_, var)| values(grads.get(var).unwrap()));
            (values(&loss), grads.collect::<Vec<_>>())
        };
        assert_eq!(run(), run());
    }
}

#[test]
fn no_samples_have_no_predictions() {
    for architecture in ALL {
        let model = model(architecture, DType::F64);
        let [points, targets] = architecture.shapes(0);
        let found = model.forward(&random(&points, 1)).unwrap();
        assert_eq!(found.dims(), targets, "{architecture:?}");
    }
}

#[test]
fn wrong_points_are_refused() {
    for architecture in ALL.into_iter().chain([Architecture::Gravity]) {
        let model = model(architecture, DType::F64);
        let narrow = points(architecture, 2).to_dtype(DType::F32).unwrap();
        let error = model.forward(&narrow).unwrap_err().to_string();
        let words = "points: expected type F64, that of the model, got F32";
        assert!(error.contains(words), "{error}");
        let (count, dim) = (architecture.points(), architecture.dim());
        for shape in [
            vec![2, count, dim + 1],
            vec![2, count + 1, dim],
            vec![count, dim],
        ] {
            let error = model.forward(&random(&shape, 1)).unwrap_err().to_string();
            assert!(
                error.contains(&format!("[batch, {count}, {dim}]")),
                "{error}"
            );
        }
    }
}

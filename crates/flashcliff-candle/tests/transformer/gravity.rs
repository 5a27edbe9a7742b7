//! The model of gravity: names, sizes, embedding, regulariser, symmetry.

use candle_core::{DType, Device, Tensor};
use flashcliff_candle::layers::transformer::{Channels, Tokens};
use flashcliff_candle::models::{Architecture, Gatr, GatrOptions, Model};

use crate::common::{assert_close, noise, random, values};

fn model() -> Model {
    Model::new(Architecture::Gravity, 4, DType::F64).unwrap()
}

#[test]
fn parameters_are_those_of_gatr() {
    let model = Model::new(Architecture::Gravity, 1, DType::F32).unwrap();
    assert_eq!(model.parameters().element_count(), 2_209_058);
    let mut expected = Vec::new();
    let mut linear = |name: &str, has_scalars: bool| {
        let mut rest = vec!["weight", "s2mvs.weight", "s2mvs.bias"];
        if has_scalars {
            rest.extend(["mvs2s.weight", "mvs2s.bias", "s2s.weight"]);
        }
        expected.extend(rest.iter().map(|rest| format!("{name}.{rest}")));
    };
    linear("linear_in", true);
    linear("linear_out", true);
    for block in 0..10 {
        let attention = format!("blocks.{block}.attention");
        for part in ["q_linear", "k_linear", "v_linear"] {
            linear(&format!("{attention}.qkv_module.{part}"), true);
        }
        linear(&format!("{attention}.out_linear"), true);
        let layers = format!("blocks.{block}.mlp.layers");
        for part in ["left", "right", "join_left", "join_right"] {
            linear(&format!("{layers}.0.linear_{part}"), false);
        }
        linear(&format!("{layers}.0.linear_out"), true);
        linear(&format!("{layers}.2"), true);
    }
    expected.extend((0..10).map(|b| format!("blocks.{b}.attention.attention.log_weights")));
    expected.sort();
    let mut names = model.parameters().names();
    names.sort();
    assert_eq!(names, expected);
    let shape = |name: &str| model.parameters().get(name).unwrap().dims().to_vec();
    let weights = "blocks.0.attention.attention.log_weights";
    assert_eq!(shape(weights), [8, 1, 4]);
    assert_eq!(
        shape("blocks.0.mlp.layers.0.linear_left.weight"),
        [16, 16, 9]
    );
    assert_eq!(
        shape("blocks.3.attention.qkv_module.q_linear.weight"),
        [32, 16, 9]
    );
}

/// One sample, by a network with the same variables, with the embedding and the reading of points written again.
#[test]
fn predictions_and_losses_are_those_of_the_formulas() {
    let model = model();
    let bodies = random(&[1, 4, 7], 3);
    let rows = values(&bodies);
    let embedded = rows.chunks_exact(7).flat_map(|row| {
        let mut token = [0.0; 17];
        token[0] = row[0] + 1.0;
        (token[5], token[6], token[7]) = (-row[4] / 2.0, -row[5] / 2.0, -row[6] / 2.0);
        (token[11], token[12], token[13], token[14]) = (-row[3], row[2], -row[1], 1.0);
        token
    });
    let embedded = Tensor::from_vec(embedded.collect(), (1, 4, 17), &Device::Cpu).unwrap();
    let ends = Channels::new(1, 1);
    let options = GatrOptions::new(ends, ends, Channels::new(16, 128));
    let vb = model.parameters().builder(DType::F64, &Device::Cpu);
    let net = Gatr::new(options, vb).unwrap();
    let out = net.forward(&Tokens::from_packed(embedded, ends).unwrap());
    let out = values(out.unwrap().packed());
    let expected: Vec<f64> = out
        .chunks_exact(17)
        .flat_map(|x| {
            let w = if x[14].abs() > 1e-3 { x[14] } else { 1e-3 };
            [-x[13] / w, x[12] / w, -x[11] / w]
        })
        .collect();
    let got = model.forward(&bodies).unwrap();
    assert_eq!(got.dims(), [1, 12]);
    assert_close(&values(&got), &expected, 1e-9, "positions");

    let targets = random(&[1, 12], 5);
    let losses = model.losses(&bodies, &targets, None).unwrap();
    let of_targets = values(&targets);
    let pairs = expected.iter().zip(&of_targets);
    let error = pairs.map(|(p, t)| (p - t) * (p - t)).sum::<f64>() / 12.0;
    let regulariser: f64 = out
        .chunks_exact(17)
        .map(|x| {
            let others = (0..11).chain([15, 16]).map(|b| x[b] * x[b]).sum::<f64>();
            others + (x[14].abs() - 1.0).powi(2)
        })
        .sum();
    let objective = error + 0.01 * regulariser;
    assert_close(&values(&losses.error), &[error], 1e-9, "error");
    assert_close(&values(&losses.objective), &[objective], 1e-9, "objective");
}

#[test]
fn predictions_turn_and_move_with_the_bodies() {
    let model = model();
    let rows = noise(2 * 4 * 7, 8);
    // A quarter turn about z, and a translation.
    let turn = |v: &[f64]| [-v[1], v[0], v[2]];
    let shift = [3.0, -1.0, 2.0];
    let image: Vec<f64> = rows
        .chunks_exact(7)
        .flat_map(|row| {
            let (x, v) = (turn(&row[1..4]), turn(&row[4..7]));
            let mut image = vec![row[0]];
            image.extend(x.iter().zip(shift).map(|(x, s)| x + s));
            image.extend(v);
            image
        })
        .collect();
    let predict = |rows: Vec<f64>| {
        let bodies = Tensor::from_vec(rows, (2, 4, 7), &Device::Cpu).unwrap();
        values(&model.forward(&bodies).unwrap())
    };
    let expected: Vec<f64> = predict(rows)
        .chunks_exact(3)
        .flat_map(|x| {
            let turned = turn(x);
            std::array::from_fn::<f64, 3, _>(|i| turned[i] + shift[i])
        })
        .collect();
    assert_close(&predict(image), &expected, 1e-9, "moved predictions");
}

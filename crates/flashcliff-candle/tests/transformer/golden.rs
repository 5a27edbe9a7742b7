//! The outputs of GATr in PyTorch, which golden.py wrote, and of networks of the Python package, which golden_layers.py wrote.

use candle_core::{DType, Device, Tensor};
use flashcliff::{Algebra, Signature};
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::transformer::{AttentionOptions, Call, Draws, Geometry, Tokens};
use flashcliff_candle::models::{Gatr, GatrOptions};
use serde_json::Value;

use crate::common::{assert_close, random, values};
use crate::options;

const GOLDEN: &str = include_str!("golden.json");
const LAYERS: &str = include_str!("golden_layers.json");

/// A network whose parameters are, in the order of their names, noise of seeds from 100 on.
fn network(geometry: Geometry, options: GatrOptions) -> Gatr {
    let parameters = Parameters::seeded(0);
    let vb = parameters.builder(DType::F64, &Device::Cpu);
    let net = Gatr::over(geometry, options, vb).unwrap();
    let mut variables = parameters.variables();
    variables.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (at, (_, var)) in variables.iter().enumerate() {
        let value = random(var.dims(), 100 + at as u64);
        var.set(&(value / 2.0).unwrap()).unwrap();
    }
    net
}

fn geometry(p: usize, q: usize, r: usize) -> Geometry {
    Geometry::of(Algebra::new(Signature::new(p, q, r).unwrap()).unwrap())
}

/// Compares multivectors and scalars with those of a file.
fn compare(name: &str, golden: &Value, multivectors: &Tensor, scalars: &Tensor) {
    for (part, got) in [("multivectors", multivectors), ("scalars", scalars)] {
        let expected = golden[name][part].as_array().unwrap();
        let expected: Vec<f64> = expected.iter().map(|x| x.as_f64().unwrap()).collect();
        let what = format!("{part} of {name}");
        assert_close(&values(got), &expected, 1e-12, &what);
    }
}

#[test]
fn the_network_is_that_of_pytorch() {
    let golden: Value = serde_json::from_str(GOLDEN).unwrap();
    for (name, multi_query) in [("multi_query", true), ("own_keys", false)] {
        let net = network(geometry(3, 0, 1), options(multi_query));
        // PyTorch has blades last.
        let mv = random(&[2, 3, 2, 16], 1).permute((3, 0, 1, 2)).unwrap();
        let s: Tensor = random(&[2, 3, 3], 2);
        let x = Tokens::new(&mv, Some(&s)).unwrap();
        let out = net.forward(&x).unwrap();
        let mv = out.multivectors().unwrap().permute((1, 2, 3, 0)).unwrap();
        compare(name, &golden, &mv, &out.scalars().unwrap().unwrap());
    }
}

/// A network of golden_layers.py: its geometry and options, and the passes that dropout has drawn, none in prediction.
struct Choice {
    name: &'static str,
    geometry: Geometry,
    options: GatrOptions,
    passes: usize,
}

/// Gains of norms in L-GATr, all that its version 2.0 changed, rotary positions in GATr, factors of heads, reinserted channels, other perceptrons,
/// perceptrons without products, products without bivectors, and dropout.
fn choices() -> Vec<Choice> {
    let (gatr, lgatr) = (geometry(3, 0, 1), geometry(1, 3, 0));
    let gains = Geometry {
        norm_gains: true,
        ..lgatr
    };
    let gate_first = Geometry {
        product: false,
        ..gatr
    };
    let without_bivectors = |geometry| Geometry {
        bivectors: false,
        ..geometry
    };
    let attending = |change: fn(&mut AttentionOptions)| {
        let mut options = options(true);
        change(&mut options.attention);
        options
    };
    let reinserting = |multi_query, channels: &[usize], scalars: &[usize]| GatrOptions {
        reinsert_channels: channels.to_vec(),
        reinsert_scalars: scalars.to_vec(),
        ..options(multi_query)
    };
    let transforming = |mlp_ratio, mlp_layers| GatrOptions {
        mlp_ratio,
        mlp_layers,
        ..options(true)
    };
    let dropping = GatrOptions {
        dropout: Some(0.3),
        ..transforming(3, 3)
    };
    let rotary = attending(|attention| attention.rotary = Some(50));
    let own_keys = attending(|attention| {
        (attention.head_scale, attention.multi_query) = (true, false);
    });
    let shared = attending(|attention| attention.head_scale = true);
    let lgatr_2 = Geometry::lgatr_2().unwrap();
    let all = [
        ("gains", gains, options(true), 0),
        ("lgatr_2", lgatr_2, options(true), 0),
        ("rotary", gatr, rotary, 0),
        ("head_scale", lgatr, own_keys, 0),
        ("shared_head_scale", gatr, shared, 0),
        ("reinserted", gatr, reinserting(true, &[1, 0], &[2]), 0),
        (
            "reinserted_own_keys",
            lgatr,
            reinserting(false, &[1, 0], &[2]),
            0,
        ),
        (
            "reinserted_scalars",
            geometry(3, 0, 0),
            reinserting(true, &[], &[0, 2]),
            0,
        ),
        ("wide", gatr, transforming(3, 3), 0),
        ("narrow", geometry(4, 1, 0), transforming(1, 1), 0),
        ("gate_first", gate_first, options(true), 0),
        ("few_bivectors", without_bivectors(gatr), options(true), 0),
        ("no_bivectors", without_bivectors(lgatr), options(true), 0),
        ("prediction", gatr, dropping.clone(), 0),
        ("training", gatr, dropping, 2),
    ];
    let all = all
        .into_iter()
        .map(|(name, geometry, options, passes)| Choice {
            name,
            geometry,
            options,
            passes,
        });
    all.collect()
}

#[test]
fn choices_are_those_of_the_python_package() {
    let golden: Value = serde_json::from_str(LAYERS).unwrap();
    let choices = choices();
    assert_eq!(golden.as_object().unwrap().len(), choices.len());
    for choice in choices {
        let blades = choice.geometry.algebra.blade_count();
        let net = network(choice.geometry, choice.options);
        let (mv, s) = (random(&[blades, 2, 3, 2], 1), random(&[2, 3, 3], 2));
        let draws = Draws::new(6, &Device::Cpu).unwrap();
        let passes = (0..choice.passes).map(|_| draws.draw().unwrap());
        let draw = passes.collect::<Vec<_>>().pop();
        let call = Call {
            draw: draw.as_ref(),
            ..Call::default()
        };
        let x = Tokens::new(&mv, Some(&s)).unwrap();
        let out = net.call(&x, &call).unwrap();
        let (mv, s) = (out.multivectors().unwrap(), out.scalars().unwrap().unwrap());
        compare(choice.name, &golden, &mv, &s);
        // Blocks that run again compute the same.
        let again = net
            .with_gradient_checkpointing(true)
            .call(&x, &call)
            .unwrap();
        assert_eq!(values(again.packed()), values(out.packed()));
    }
}

//! The outputs of GATr in PyTorch, which golden.py wrote, and of networks of the Python package, which golden_layers.py wrote.

use candle_core::{DType, Device, Tensor};
use flashcliff::{Algebra, Signature};
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::transformer::{AttentionOptions, Geometry, Tokens};
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

/// Gains of norms in L-GATr, all that its version 2.0 changed, and rotary positions in GATr.
#[test]
fn choices_are_those_of_the_python_package() {
    let golden: Value = serde_json::from_str(LAYERS).unwrap();
    let plain = options(true);
    let gains = Geometry {
        norm_gains: true,
        ..geometry(1, 3, 0)
    };
    let rotary = GatrOptions {
        attention: AttentionOptions {
            rotary: Some(50),
            ..plain.attention
        },
        ..plain
    };
    for (name, geometry, options) in [
        ("gains", gains, plain),
        ("lgatr_2", Geometry::lgatr_2().unwrap(), plain),
        ("rotary", geometry(3, 0, 1), rotary),
    ] {
        let net = network(geometry, options);
        let (mv, s) = (random(&[16, 2, 3, 2], 1), random(&[2, 3, 3], 2));
        let out = net.forward(&Tokens::new(&mv, Some(&s)).unwrap()).unwrap();
        let (mv, s) = (out.multivectors().unwrap(), out.scalars().unwrap().unwrap());
        compare(name, &golden, &mv, &s);
    }
}

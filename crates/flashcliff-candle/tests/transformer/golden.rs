//! The output of GATr in PyTorch, which golden.py wrote.

use candle_core::{DType, Device, Tensor};
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::transformer::Tokens;
use flashcliff_candle::models::Gatr;
use serde_json::Value;

use crate::common::{assert_close, random, values};
use crate::options;

const GOLDEN: &str = include_str!("golden.json");

#[test]
fn the_network_is_that_of_pytorch() {
    let golden: Value = serde_json::from_str(GOLDEN).unwrap();
    for (name, multi_query) in [("multi_query", true), ("own_keys", false)] {
        let parameters = Parameters::seeded(0);
        let vb = parameters.builder(DType::F64, &Device::Cpu);
        let net = Gatr::new(options(multi_query), vb).unwrap();
        let mut variables = parameters.variables();
        variables.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (at, (_, var)) in variables.iter().enumerate() {
            let value = random(var.dims(), 100 + at as u64);
            var.set(&(value / 2.0).unwrap()).unwrap();
        }
        // PyTorch has blades last.
        let mv = random(&[2, 3, 2, 16], 1).permute((3, 0, 1, 2)).unwrap();
        let s: Tensor = random(&[2, 3, 3], 2);
        let x = Tokens::new(&mv, Some(&s)).unwrap();
        let out = net.forward(&x).unwrap();
        let mv = out.multivectors().unwrap().permute((1, 2, 3, 0)).unwrap();
        let s = out.scalars().unwrap().unwrap();
        for (part, got) in [("multivectors", mv), ("scalars", s)] {
            let expected = golden[name][part].as_array().unwrap();
            let expected: Vec<f64> = expected.iter().map(|x| x.as_f64().unwrap()).collect();
            let what = format!("{part} of {name}");
            assert_close(&values(&got), &expected, 1e-12, &what);
        }
    }
}

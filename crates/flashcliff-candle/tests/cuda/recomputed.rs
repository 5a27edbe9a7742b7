//! Functions that run again in the backward pass: the bits of the plain graph.

use candle_core::{DType, Result, Tensor, Var};
use flashcliff_candle::op::recomputed;

use crate::compare::{random, values, variable, weighted};
use crate::trials::{Tests, gpu};

pub(crate) fn add(tests: &mut Tests) {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        for weights in [0, 1, 5] {
            let name = format!("recomputed::{dtype:?}::{weights}");
            tests.add(name, move || {
                let plain = network(weights, dtype, false);
                assert!(plain == network(weights, dtype, true));
                assert!(plain.windows(2).all(|pair| pair[0] != pair[1]));
            });
        }
    }
}

/// `x + tanh(x w0 w1 ...) gate`, by candle's operations.
fn block(inputs: &[Tensor], weights: &[Var]) -> Result<Tensor> {
    let mut h = inputs[0].clone();
    for weight in weights {
        h = h.matmul(weight)?.tanh()?;
    }
    &inputs[0] + h.broadcast_mul(&inputs[1])?
}

/// The bits of output and gradients of two blocks.
fn network(weights: usize, dtype: DType, again: bool) -> Vec<Vec<u64>> {
    let make = |shape: &[usize], seed| variable(&random(shape, seed, dtype), dtype, gpu());
    let of = |first: u64| -> Vec<Var> {
        let seeds = first..first + weights as u64;
        seeds.map(|seed| make(&[5, 5], seed)).collect()
    };
    let (first, second) = (of(1), of(21));
    let (x, gate) = (make(&[7, 5], 41), make(&[5], 42));
    let mut h = x.as_tensor().clone();
    for weights in [&first, &second] {
        let own = weights.clone();
        h = match again {
            true => recomputed(&[&h, &gate], move |inputs| block(inputs, &own)).unwrap(),
            false => block(&[h.clone(), gate.as_tensor().clone()], &own).unwrap(),
        };
    }
    let gradients = weighted(&h, dtype).backward().unwrap();
    let bits =
        |tensor: &Tensor| -> Vec<u64> { values(tensor).into_iter().map(f64::to_bits).collect() };
    let all = [first, second, vec![x, gate]].concat();
    let of = all.iter().map(|var| bits(gradients.get(var).unwrap()));
    of.chain([bits(&h)]).collect()
}

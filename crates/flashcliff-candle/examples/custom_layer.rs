//! A custom layer in candle: linear maps, a gated product with path weights, a residual.
//!
//! It learns the plane that two vectors span, which is their exterior product, from examples. In the end the error on
//! vectors that were turned upside down is the same, because every part commutes with reflections.
//!
//! `cargo run --release --package flashcliff-candle --example custom_layer`

use candle_core::{DType, Device, IndexOp, Tensor};
use candle_nn::{Init, Module, VarBuilder};
use flashcliff::ops::{LinearOptions, ProductOptions};
use flashcliff::{Algebra, Gate, Norm, Signature};
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::MVLinear;
use flashcliff_candle::optim::{Adam, AdamOptions};
use flashcliff_candle::{Error, functional};

/// `x + out(product(left(x), right(x)))`.
struct ProductLayer {
    algebra: Algebra,
    left: MVLinear,
    right: MVLinear,
    out: MVLinear,
    paths: Tensor,
}

impl ProductLayer {
    fn new(
        algebra: Algebra,
        channels: usize,
        hidden: usize,
        vb: VarBuilder,
    ) -> Result<Self, Error> {
        let linear = |inputs, outputs, name| {
            MVLinear::new(
                algebra,
                inputs,
                outputs,
                &LinearOptions::default(),
                vb.pp(name),
            )
        };
        let start = Init::Randn {
            mean: 0.0,
            stdev: 0.3,
        };
        Ok(Self {
            algebra,
            left: linear(channels, hidden, "left")?,
            right: linear(channels, hidden, "right")?,
            out: linear(hidden, channels, "out")?,
            paths: vb.get_with_hints((hidden, algebra.path_count()), "paths", start)?,
        })
    }
}

impl Module for ProductLayer {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        let options = ProductOptions::default()
            .with_gate(Gate::None)
            .with_norm(Norm::None);
        let (left, right) = (self.left.forward(x)?, self.right.forward(x)?);
        let product = functional::sgp_norm(self.algebra, &options, &left, &right, &self.paths)?;
        x + self.out.forward(&product)?
    }
}

/// Two channels of vectors, `[8, batch, 2]`, and the blades e12, e13, e23 of their plane, `[3, batch]`.
fn draw(batch: usize) -> candle_core::Result<(Tensor, Tensor)> {
    let vectors = Tensor::randn(0f32, 1.0, (3, batch, 2), &Device::Cpu)?;
    let at = |axis: usize, which: usize| vectors.i((axis, .., which));
    let plane = |i: usize, j: usize| (at(i, 0)? * at(j, 1)?)? - (at(j, 0)? * at(i, 1)?)?;
    let target = Tensor::stack(&[plane(0, 1)?, plane(0, 2)?, plane(1, 2)?], 0)?;
    Ok((vectors.pad_with_zeros(0, 1, 4)?, target))
}

/// The mean squared error of the bivectors of the first channel.
fn loss(layer: &ProductLayer, x: &Tensor, target: &Tensor) -> candle_core::Result<Tensor> {
    let found = layer.forward(x)?.i((4..7, .., 0))?;
    (found - target)?.sqr()?.mean_all()
}

fn main() -> Result<(), Error> {
    let algebra = Algebra::new(Signature::new(3, 0, 0).map_err(flashcliff::Error::from)?)?;
    let parameters = Parameters::seeded(1);
    let layer = ProductLayer::new(algebra, 2, 8, parameters.builder(DType::F32, &Device::Cpu))?;
    let options = AdamOptions {
        learning_rate: 0.02,
        ..AdamOptions::default()
    };
    let mut adam = Adam::new(parameters.variables(), options)?;
    for step in 0..=400 {
        let (x, target) = draw(256)?;
        let error = loss(&layer, &x, &target)?;
        if step % 80 == 0 {
            let value = error.to_scalar::<f32>()?;
            let bar = "#".repeat(((value.log10() + 9.0) * 5.0).clamp(0.0, 60.0) as usize);
            println!("step {step:3}  error {value:8.1e}  {bar}");
        }
        adam.step(&error.backward()?)?;
    }
    let (x, target) = draw(1000)?;
    let error = loss(&layer, &x, &target)?.to_scalar::<f32>()?;
    // A point reflection negates vectors and leaves planes alone.
    let mirrored = loss(&layer, &x.neg()?, &target)?.to_scalar::<f32>()?;
    println!("new vectors: {error:.1e}; all of them upside down: {mirrored:.1e}");
    Ok(())
}

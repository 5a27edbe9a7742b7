//! Times the phases of a training step of the convex hull model: `cargo run --release -p
//! flashcliff-candle --example hulls_step`.

use std::time::{Duration, Instant};

use candle_core::{DType, Device, Tensor};
use flashcliff_candle::models::{Architecture, Model};
use flashcliff_candle::optim::{Adam, AdamOptions};

const BATCH: usize = 128;
const STEPS: usize = 200;

fn main() -> Result<(), flashcliff_candle::Error> {
    let model = Model::new(Architecture::Hulls, 1, DType::F32)?;
    let mut adam = Adam::new(model.parameters().variables(), AdamOptions::default())?;
    let count = BATCH * 16 * 5;
    let points: Vec<f32> = (0..count).map(|k| (k as f32 * 0.7).sin()).collect();
    let points = Tensor::from_vec(points, (BATCH, 16, 5), &Device::Cpu)?;
    let targets = Tensor::ones(BATCH, DType::F32, &Device::Cpu)?;

    let mut phases = [const { Vec::new() }; 3];
    for _ in 0..STEPS {
        let start = Instant::now();
        let loss = (model.forward(&points)? - &targets)?.sqr()?.mean_all()?;
        let forward = Instant::now();
        let gradients = loss.backward()?;
        let backward = Instant::now();
        adam.step(&gradients)?;
        drop((loss, gradients));
        let end = Instant::now();
        phases[0].push(forward - start);
        phases[1].push(backward - forward);
        phases[2].push(end - backward);
    }
    println!("medians of {STEPS} steps, batch {BATCH}, f32");
    let mut total = Duration::ZERO;
    for (name, times) in ["forward", "backward", "adam"].iter().zip(&mut phases) {
        times.sort_unstable();
        let median = times[STEPS / 2];
        total += median;
        println!("{name:>10} {:8.3} ms", median.as_secs_f64() * 1e3);
    }
    println!("{:>10} {:8.3} ms", "sum", total.as_secs_f64() * 1e3);
    Ok(())
}

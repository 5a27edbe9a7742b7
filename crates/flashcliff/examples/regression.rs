//! Learns the weights of a product from examples, with the core alone: no framework, no autograd.
//!
//! The target is a weighted geometric product with hidden weights. Gradients come from the operator; the optimiser is five
//! lines. In the end the same error is found for rotated data, because the operator commutes with rotations.
//!
//! `cargo run --release --package flashcliff --example regression`

use flashcliff::{Algebra, Error, Gate, Norm, Operator, Signature, Tensor, ops};

const BATCH: usize = 256;
const CHANNELS: usize = 4;

/// Numbers between -1 and 1 from a seed.
fn random(len: usize, mut seed: u64) -> Vec<f32> {
    let mut next = || {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// Rotates multivectors of space by 90 degrees in the plane of e1 and e2: e1 becomes e2, e2 becomes -e1.
fn turned(x: &[f32]) -> Vec<f32> {
    // Blades are 1, e1, e2, e3, e12, e13, e23, e123; each is read from a blade with a sign.
    let from = [
        (0, 1.0),
        (2, -1.0),
        (1, 1.0),
        (3, 1.0),
        (4, 1.0),
        (6, -1.0),
        (5, 1.0),
        (7, 1.0),
    ];
    let len = x.len() / 8;
    let blade = |(blade, sign): (usize, f32)| x[blade * len..][..len].iter().map(move |v| sign * v);
    from.into_iter().flat_map(blade).collect()
}

/// The mean squared error, and its gradient with respect to the weights.
fn loss(
    op: &Operator,
    x: &[f32],
    y: &[f32],
    w: &[f32],
    target: &[f32],
) -> Result<(f32, Vec<f32>), Error> {
    let shape = [8, BATCH, CHANNELS];
    let inputs = [
        Tensor::new(x, &shape)?,
        Tensor::new(y, &shape)?,
        Tensor::new(w, &[CHANNELS, w.len() / CHANNELS])?,
    ];
    let found = op.evaluate(&inputs)?;
    let scale = 1.0 / target.len() as f32;
    let errors = found.output.iter().zip(target).map(|(o, t)| o - t);
    let mean = errors.clone().map(|error| error * error * scale).sum();
    let gradient: Vec<f32> = errors.map(|error| 2.0 * error * scale).collect();
    let mut gradients = op.gradients(&inputs, &found, Tensor::new(&gradient, &shape)?)?;
    Ok((mean, gradients.pop().unwrap_or_default()))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let algebra = Algebra::new(Signature::new(3, 0, 0)?)?;
    let options = ops::ProductOptions::default()
        .with_gate(Gate::None)
        .with_norm(Norm::None);
    let op = ops::sgp_norm(algebra, &options)?;
    let len = 8 * BATCH * CHANNELS;
    let (x, y) = (random(len, 1), random(len, 2));
    let hidden = random(CHANNELS * algebra.path_count(), 3);
    let (shape, paths) = ([8, BATCH, CHANNELS], [CHANNELS, algebra.path_count()]);
    let inputs = [
        Tensor::new(&x, &shape)?,
        Tensor::new(&y, &shape)?,
        Tensor::new(&hidden, &paths)?,
    ];
    let target = op.evaluate(&inputs)?.output;

    let mut w = vec![0.0; hidden.len()];
    let mut speed = vec![0.0; hidden.len()];
    for step in 0..=200 {
        let (error, gradient) = loss(&op, &x, &y, &w, &target)?;
        if step % 40 == 0 {
            let bar = "#".repeat(((error.log10() + 14.0) * 4.0).clamp(0.0, 56.0) as usize);
            println!("step {step:3}  error {error:9.1e}  {bar}");
        }
        for ((w, speed), gradient) in w.iter_mut().zip(&mut speed).zip(gradient) {
            *speed = 0.8 * *speed - 8.0 * gradient;
            *w += *speed;
        }
    }
    let worst = w
        .iter()
        .zip(&hidden)
        .map(|(w, hidden)| (w - hidden).abs())
        .fold(0.0, f32::max);
    println!("weights are found to {worst:.1e}");

    let zero = vec![0.0; w.len()];
    let (still, _) = loss(&op, &x, &y, &zero, &target)?;
    let (moved, _) = loss(&op, &turned(&x), &turned(&y), &zero, &turned(&target))?;
    let (learned, _) = loss(&op, &turned(&x), &turned(&y), &w, &turned(&target))?;
    println!(
        "on rotated data: {moved:.6} before, as without rotation ({still:.6}); {learned:.1e} after"
    );
    Ok(())
}

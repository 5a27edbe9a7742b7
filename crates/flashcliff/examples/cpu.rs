//! The gated product of multivectors, and its gradients.

use flashcliff::{Algebra, Signature, Tensor, ops};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let algebra = Algebra::new(Signature::new(3, 0, 0)?)?;
    let op = ops::sgp_norm(algebra, &ops::ProductOptions::default())?;
    let x = vec![0.5_f32; 8 * 4 * 16]; // [blades, batch, channels]
    let w = vec![0.1_f32; 16 * 20]; // [channels, paths]
    let x = Tensor::new(&x, &[8, 4, 16])?;
    let w = Tensor::new(&w, &[16, 20])?;
    let o = op.evaluate(&[x, x, w])?;
    let gradients = op.gradients(&[x, x, w], &o, o.tensor()?)?;
    println!("{:?}, {} gradients", o.output_shape, gradients.len());
    Ok(())
}

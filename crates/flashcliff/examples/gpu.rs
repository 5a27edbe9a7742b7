//! The gated product of multivectors on a GPU.

use flashcliff::{Algebra, Device, Signature, cuda, ops};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::cuda(0)?;
    let stream = device.default_stream();
    let algebra = Algebra::new(Signature::new(3, 0, 0)?)?;
    let op = ops::sgp_norm(algebra, &ops::ProductOptions::default())?.on_cuda(&device)?;
    let x = cuda::Array::from_host(&stream, &[0.5_f32; 8 * 4 * 16], &[8, 4, 16])?;
    let w = cuda::Array::from_host(&stream, &[0.1_f32; 16 * 20], &[16, 20])?;
    let o = op.evaluate(&stream, &[x.view()?, x.view()?, w.view()?])?;
    println!("{:?}", o.output.shape());
    Ok(())
}

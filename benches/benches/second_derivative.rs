//! The second derivative of `sgp_norm` on the CPU, compiled and interpreted, beside its floor, which moves its bytes, and as many
//! operations in multiply-adds.
//!
//! `cargo bench -p flashcliff-benches --features second-order --bench second_derivative`; without the feature both are interpreted.
//! Cases take turns on the same threads. `RAYON_NUM_THREADS` sets how many these are.

use std::hint::black_box;
use std::time::Instant;

use flashcliff::{Algebra, Dims, Error, Operator, Signature, Tensor, TensorMut, ops};
use flashcliff_floor::{Floor, Width, multiply_add, values};

const BATCH: usize = 4096;
const CHANNELS: usize = 512;
const DIMS: Dims = Dims {
    batch: BATCH,
    in_channels: CHANNELS,
    out_channels: CHANNELS,
    scalar_channels: 0,
};
/// How often everything is timed.
const ROUNDS: usize = 15;

/// An operator with all tensors of a call.
struct Case {
    op: Operator,
    shapes: Vec<Vec<usize>>,
    inputs: Vec<Vec<f32>>,
    output_shapes: Vec<Vec<usize>>,
    outputs: Vec<Vec<f32>>,
    workspace: Vec<f32>,
}

impl Case {
    fn new(op: Operator) -> Self {
        let shapes: Vec<Vec<usize>> = op.inputs().iter().map(|i| i.shape(&DIMS)).collect();
        let output_shapes: Vec<Vec<usize>> = op.outputs().iter().map(|o| o.shape(&DIMS)).collect();
        let filled = |(seed, shape): (u64, &Vec<usize>)| values(shape.iter().product(), seed);
        Self {
            inputs: (1..).zip(&shapes).map(filled).collect(),
            outputs: (50..).zip(&output_shapes).map(filled).collect(),
            workspace: vec![0.0; op.run_workspace_len::<f32>(&DIMS)],
            shapes,
            output_shapes,
            op,
        }
    }

    /// The bytes that a call must read and write.
    fn bytes(&self) -> usize {
        let tensors = self.inputs.iter().chain(&self.outputs);
        tensors.map(|data| size_of_val(data.as_slice())).sum()
    }

    fn run(&mut self) -> Result<(), Error> {
        let tensors = self.inputs.iter().zip(&self.shapes);
        let tensors = tensors.map(|(data, shape)| Tensor::new(data, shape));
        let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
        let outputs = self.outputs.iter_mut().zip(&self.output_shapes);
        let outputs = outputs.map(|(data, shape)| TensorMut::new(data, shape).map(Some));
        let mut outputs = outputs.collect::<Result<Vec<_>, _>>()?;
        self.op.run(&tensors, &mut outputs, &mut self.workspace)?;
        black_box(&outputs);
        Ok(())
    }
}

/// Milliseconds of something, round by round.
struct Times {
    name: &'static str,
    all: Vec<f64>,
}

impl Times {
    fn of(name: &'static str) -> Self {
        Self {
            name,
            all: Vec::new(),
        }
    }

    fn take(&mut self, work: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let start = Instant::now();
        work()?;
        self.all.push(start.elapsed().as_secs_f64() * 1e3);
        Ok(())
    }

    /// The least time and the median.
    fn least_and_median(&self) -> [f64; 2] {
        let mut sorted = self.all.clone();
        sorted.sort_by(f64::total_cmp);
        [sorted[0], sorted[sorted.len() / 2]]
    }
}

fn second_derivative(algebra: Algebra) -> Result<Operator, Error> {
    let options = ops::ProductOptions::default();
    ops::sgp_norm(algebra, &options)?.gradient()?.gradient()
}

/// The times of everything in one algebra, in turns.
fn measure(signature: Signature) -> Result<[Times; 4], Error> {
    let mut built = Case::new(second_derivative(Algebra::new(signature)?)?);
    let mut interpreted = Case::new(second_derivative(Algebra::interpreted(signature)?)?);
    let mut floor = Floor::of_bytes(built.bytes());
    let threads = flashcliff::threads::count();
    let flops = built.op.cost(&DIMS).forward;
    let rounds = flops / multiply_add(Width::Single, threads, 1);
    let names = ["floor", "multiply-adds", "compiled", "interpreted"];
    let mut times = names.map(Times::of);
    let [bytes, arithmetic, compiled, data] = &mut times;
    for _ in 0..ROUNDS {
        bytes.take(|| {
            floor.run();
            Ok(())
        })?;
        arithmetic.take(|| {
            multiply_add(Width::Single, threads, rounds);
            Ok(())
        })?;
        compiled.take(|| built.run())?;
        data.take(|| interpreted.run())?;
    }
    Ok(times)
}

fn report(signature: Signature, times: &[Times]) {
    println!(
        "second derivative of sgp_norm in {}, {BATCH} x {CHANNELS}, f32, ms",
        signature.name()
    );
    let floor = times[0].least_and_median();
    for one in times {
        let [least, median] = one.least_and_median();
        let (name, relative) = (one.name, [least / floor[0], median / floor[1]]);
        let [low, middle] = relative;
        println!("{name:14} least {least:7.2} ({low:5.2} x)  median {median:7.2} ({middle:5.2} x)");
    }
}

fn main() -> Result<(), Error> {
    for (p, q, r) in [(2, 0, 0), (3, 0, 0)] {
        let signature = Signature::new(p, q, r)?;
        report(signature, &measure(signature)?);
    }
    Ok(())
}

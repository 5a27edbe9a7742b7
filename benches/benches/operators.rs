//! The lane operators at the sizes of the published tables, each beside its floor.
//!
//! `cargo bench -p flashcliff-benches`; `flashcliff bench` measures all operators, and has these cases among them.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use flashcliff::{Algebra, Operator, Pass, Signature, Tensor, TensorMut, ops};
use flashcliff_floor::{Floor, values};

const BATCH: usize = 4096;
const CHANNELS: usize = 512;

/// Buffers for an operator with inputs x, y and w.
struct Case {
    op: Operator,
    inputs: Vec<(Vec<f32>, Vec<usize>)>,
    output: Vec<f32>,
    output_shape: Vec<usize>,
    grads: Vec<Vec<f32>>,
    saved: Vec<f32>,
    workspaces: [Vec<f32>; 2],
}

impl Case {
    fn new(algebra: Algebra) -> Result<Self, flashcliff::Error> {
        let op = ops::sgp_norm(algebra, &ops::ProductOptions::default())?;
        let lanes = vec![algebra.blade_count(), BATCH, CHANNELS];
        let shapes = [lanes.clone(), lanes, vec![CHANNELS, algebra.path_count()]];
        let dims = op.bind(&shapes.each_ref().map(|shape| shape.as_slice()))?;
        let filled = |(seed, shape): (u64, &Vec<usize>)| values(shape.iter().product(), seed);
        let inputs: Vec<Vec<f32>> = (1..).zip(&shapes).map(filled).collect();
        let output_shape = op.output_shape(&dims);
        let passes = [Pass::Forward, Pass::Backward];
        Ok(Self {
            output: values(output_shape.iter().product(), 9),
            grads: inputs.clone(),
            saved: vec![0.0; op.saved_len(&dims)],
            workspaces: passes.map(|pass| vec![0.0; op.workspace_len::<f32>(&dims, pass)]),
            inputs: inputs.into_iter().zip(shapes).collect(),
            output_shape,
            op,
        })
    }

    fn inputs(&self) -> Result<Vec<Tensor<'_, f32>>, flashcliff::Error> {
        let tensors = self.inputs.iter();
        tensors
            .map(|(data, shape)| Tensor::new(data, shape))
            .collect()
    }

    fn forward(&mut self) -> Result<(), flashcliff::Error> {
        let mut output = std::mem::take(&mut self.output);
        let mut saved = std::mem::take(&mut self.saved);
        let mut workspace = std::mem::take(&mut self.workspaces[0]);
        let view = TensorMut::new(&mut output, &self.output_shape)?;
        self.op
            .forward(&self.inputs()?, view, &mut saved, &mut workspace)?;
        (self.output, self.saved) = (output, saved);
        self.workspaces[0] = workspace;
        Ok(())
    }

    fn backward(&mut self) -> Result<(), flashcliff::Error> {
        let mut grads = std::mem::take(&mut self.grads);
        let mut workspace = std::mem::take(&mut self.workspaces[1]);
        // Any tensor with the shape of the output will do as its gradient.
        let output = Tensor::new(&self.output, &self.output_shape)?;
        let mut views = Vec::new();
        for (grad, (_, shape)) in grads.iter_mut().zip(&self.inputs) {
            views.push(Some(TensorMut::new(grad, shape)?));
        }
        let inputs = self.inputs()?;
        let saved = &self.saved;
        self.op
            .backward(&inputs, output, saved, output, &mut views, &mut workspace)?;
        self.grads = grads;
        self.workspaces[1] = workspace;
        Ok(())
    }
}

fn sgp_norm(criterion: &mut Criterion) {
    for (p, q, r) in [(2, 0, 0), (3, 0, 0)] {
        let algebra = Signature::new(p, q, r).map(Algebra::new);
        let Ok(Ok(algebra)) = algebra else { continue };
        let tensor = algebra.blade_count() * BATCH * CHANNELS * size_of::<f32>();
        let mut case = Case::new(algebra).expect("the shapes fit");
        let mut group = criterion.benchmark_group(format!("sgp_norm {}", algebra.name()));
        group.sample_size(20);
        for (name, tensors) in [("forward", 3), ("forward+backward", 8)] {
            group.throughput(Throughput::Bytes((tensors * tensor) as u64));
            let mut floor = Floor::of_bytes(tensors * tensor);
            group.bench_function(format!("floor of {name}"), |b| b.iter(|| floor.run()));
            group.bench_function(name, |b| {
                b.iter(|| {
                    case.forward().expect("the shapes fit");
                    if tensors == 8 {
                        case.backward().expect("the shapes fit");
                    }
                    black_box(&case.output);
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, sgp_norm);
criterion_main!(benches);

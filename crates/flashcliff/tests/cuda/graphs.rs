//! CUDA graphs: both passes are captured, and replayed on other inputs.

use std::sync::Arc;

use flashcliff::cuda::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use flashcliff::cuda::cudarc::driver::{CudaGraph, CudaStream};
use flashcliff::cuda::{self, Dtypes, Scratch, Tensor, TensorMut};
use flashcliff::ops::{LinearOptions, LinearSgpOptions, ProductOptions};
use flashcliff::{Algebra, Dims, Error, Operator, Pass, Signature};

use crate::cases::{Spec, input_shapes, sizes};
use crate::device::device;
use crate::dtypes::{self, BF16, F32, F64};
use crate::memory::Memory;
use crate::random::Random;
use crate::trials::{Needs, Tests};

pub(crate) fn add(tests: &mut Tests) {
    tests.add(Needs::Gpu, "graphs::sgp_norm", || {
        for dtypes in [F32, BF16] {
            for shape in [[64, 128, 128], [5, 33, 33], [2, 4100, 4100]] {
                replays(3, &Spec::Sgp(ProductOptions::default()), shape, dtypes);
            }
        }
    });
    tests.add(Needs::CublasLt, "graphs::mv_linear", || {
        for dtypes in [F32, BF16] {
            for shape in [[64, 128, 96], [5, 33, 17]] {
                replays(3, &Spec::Linear(LinearOptions::default()), shape, dtypes);
            }
        }
    });
    tests.add(Needs::CublasLt, "graphs::mv_linear_sgp_norm", || {
        for recompute in [false, true] {
            let spec = Spec::LinearSgp(LinearSgpOptions::default().with_recompute(recompute));
            for dtypes in [F32, BF16] {
                for shape in [[64, 128, 128], [5, 33, 33]] {
                    replays(3, &spec, shape, dtypes);
                }
            }
        }
    });
    tests.add(Needs::CublasLt, "graphs::fcgp_norm", || {
        let spec = Spec::Fcgp(ProductOptions::default());
        for dtypes in [F32, F64, BF16] {
            replays(3, &spec, [64, 32, 24], dtypes);
            replays(5, &spec, [9, 7, 5], dtypes);
        }
        // This batch takes several blocks of rows.
        replays(3, &spec, [1601, 512, 8], F32);
    });
}

/// An operator with its own memory.
struct Program {
    op: Operator,
    gpu: cuda::Operator,
    dims: Dims,
    dtypes: Dtypes,
    stream: Arc<CudaStream>,
    inputs: Vec<Memory>,
    grad_output: Memory,
    output: Memory,
    saved: Memory,
    grads: Vec<Memory>,
    workspaces: [Memory; 2],
}

impl Program {
    fn new(dim: usize, spec: &Spec, [batch, channels, out]: [usize; 3], dtypes: Dtypes) -> Self {
        let algebra = Algebra::new(Signature::of(dim, 0, 0)).expect("shipped");
        let op = spec.operator(algebra).expect("shipped");
        let gpu = op.on_cuda(device()).expect("a kernel");
        let dims = sizes(&op, batch, channels, out);
        let shapes = input_shapes(&op, &dims);
        let memory = |bytes: usize| Memory::new(device(), bytes);
        let inputs = || {
            let both = shapes.iter().zip(op.inputs());
            let bytes = both.map(|(shape, spec)| {
                shape.iter().product::<usize>() * dtypes::of(spec, dtypes).bytes()
            });
            bytes.map(memory).collect::<Vec<_>>()
        };
        let output = || {
            let len: usize = op.output_shape(&dims).iter().product();
            memory(len * dtypes.lanes.bytes())
        };
        let workspace = |pass| {
            let bytes = gpu.workspace_bytes(&dims, pass, dtypes);
            memory(bytes.expect("a kernel"))
        };
        Self {
            stream: device().new_stream().expect("a stream"),
            inputs: inputs(),
            grads: inputs(),
            output: output(),
            grad_output: output(),
            saved: memory(gpu.saved_len(&dims, dtypes) * dtypes.arithmetic().bytes()),
            workspaces: [workspace(Pass::Forward), workspace(Pass::Backward)],
            op,
            gpu,
            dims,
            dtypes,
        }
    }

    /// Fills the inputs with new numbers.
    fn fill(&mut self, random: &mut Random) {
        let inputs = self.inputs.iter_mut().zip(self.op.inputs());
        let inputs = inputs.map(|(memory, spec)| (memory, dtypes::of(spec, self.dtypes)));
        for (memory, dtype) in inputs.chain([(&mut self.grad_output, self.dtypes.lanes)]) {
            let mut bytes = vec![0; memory.bytes()];
            let values = random.reals(bytes.len() / dtype.bytes());
            dtypes::encode(dtype, &values, &mut bytes);
            memory.write(&self.stream, 0, &bytes);
        }
    }

    /// Fills the outputs with NaN.
    fn spoil(&mut self) {
        let written = [&mut self.output, &mut self.saved];
        for memory in written
            .into_iter()
            .chain(&mut self.grads)
            .chain(&mut self.workspaces)
        {
            memory.fill(&self.stream, 0xff);
        }
    }

    fn results(&self) -> Vec<Vec<u8>> {
        let all = [&self.output, &self.saved].into_iter().chain(&self.grads);
        let read = |memory: &Memory| {
            let mut bytes = vec![0; memory.bytes()];
            memory.read(&self.stream, 0, &mut bytes);
            bytes
        };
        all.map(read).collect()
    }

    /// Launches both passes on the stream.
    fn launch(&self) -> Result<(), Error> {
        let (op, dims, dtypes) = (&self.op, &self.dims, self.dtypes);
        let read = |memory: &Memory, dtype, shape: &[usize]| {
            // SAFETY: the memory was made for the shape and lives as long as the program, which waits for its results.
            unsafe { Tensor::from_raw(memory.address(), dtype, shape, 0) }
        };
        let write = |memory: &Memory, dtype, shape: &[usize]| {
            // SAFETY: the same holds as above; each tensor is a separate allocation.
            unsafe { TensorMut::from_raw(memory.address(), dtype, shape, 0) }
        };
        let scratch = |memory: &Memory| {
            // SAFETY: the same holds as above.
            Some(unsafe { Scratch::from_raw(memory.address(), memory.bytes(), 0) })
        };
        let shapes = input_shapes(op, dims);
        let shape = op.output_shape(dims);
        let saved_shape = [self.gpu.saved_len(dims, dtypes)];
        let arithmetic = dtypes.arithmetic();
        let (mut inputs, mut grads) = (Vec::new(), Vec::new());
        for (tensor, (shape, spec)) in shapes.iter().zip(op.inputs()).enumerate() {
            let dtype = dtypes::of(spec, dtypes);
            inputs.push(read(&self.inputs[tensor], dtype, shape)?);
            grads.push(Some(write(&self.grads[tensor], dtype, shape)?));
        }
        self.gpu.forward(
            &self.stream,
            &inputs,
            write(&self.output, dtypes.lanes, &shape)?,
            Some(write(&self.saved, arithmetic, &saved_shape)?),
            scratch(&self.workspaces[0]),
        )?;
        self.gpu.backward(
            &self.stream,
            &inputs,
            read(&self.output, dtypes.lanes, &shape)?,
            Some(read(&self.saved, arithmetic, &saved_shape)?),
            read(&self.grad_output, dtypes.lanes, &shape)?,
            &mut grads,
            scratch(&self.workspaces[1]),
        )
    }

    fn capture(&self) -> CudaGraph {
        // The capture is of this thread only, because other tests allocate memory meanwhile.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.stream.begin_capture(mode).expect("a capture begins");
        let launched = self.launch();
        let flags = CUgraphInstantiate_flags(0);
        let graph = self.stream.end_capture(flags).expect("a capture ends");
        launched.expect("both passes can be captured");
        graph.expect("something was captured")
    }
}

fn replays(dim: usize, spec: &Spec, shape: [usize; 3], dtypes: Dtypes) {
    let mut program = Program::new(dim, spec, shape, dtypes);
    let mut random = Random::new(59);
    program.gpu.prepare(&program.dims, dtypes).expect("kernels");
    program.fill(&mut random);
    program.launch().expect("both passes");
    let before = program.results();
    program.spoil();
    let graph = program.capture();
    // Captured work does not run.
    assert!(program.results()[0].iter().all(|&byte| byte == 0xff));
    graph.launch().expect("a replay");
    assert!(program.results() == before, "{spec:?} at {shape:?}");
    let mut last = before;
    for _ in 0..2 {
        program.fill(&mut random);
        program.spoil();
        graph.launch().expect("a replay");
        let replayed = program.results();
        program.spoil();
        program.launch().expect("both passes");
        assert!(program.results() == replayed, "{spec:?} at {shape:?}");
        assert!(replayed != last, "the inputs were captured");
        last = replayed;
    }
}

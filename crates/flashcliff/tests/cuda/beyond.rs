//! Tensors of more than 2^31 elements: some of their rows must be the same as in a small batch of these rows.

use flashcliff::cuda::{self, Tensor, TensorMut};
use flashcliff::ops::{self, ProductOptions};
use flashcliff::{Algebra, Operator, Pass, ProductKind, Signature};

use crate::compare::informative;
use crate::device::device;
use crate::dtypes::{self, BF16};
use crate::measure::{equal, within};
use crate::memory::Memory;
use crate::random::Random;
use crate::trials::{Needs, Tests};

const BLADES: usize = 8;
const BATCH: usize = 300_000;
const CHANNELS: usize = 1024;
const PATHS: usize = 20;
const ELEMENT: usize = 2;
const ROW: usize = CHANNELS * ELEMENT;
const TENSOR: usize = BLADES * BATCH * ROW;

/// The period of the operands, in elements. It divides no stride.
const PERIOD: usize = 1_000_003;

/// The bytes of two operands, the output and its gradient, and two gradients, and some room.
const NEEDED: usize = 6 * TENSOR + (1 << 30);

pub(crate) fn add(tests: &mut Tests) {
    const { assert!(BLADES * BATCH * CHANNELS > 1 << 31) };
    let needs = Needs::Memory(NEEDED);
    tests.add(needs, "beyond_2_to_the_31", beyond);
}

/// A tensor in memory.
fn read(memory: &Memory, shape: &[usize]) -> Tensor<'static> {
    // SAFETY: the memory was made for the shape, and outlives the reads that wait for the stream.
    let tensor = unsafe { Tensor::from_raw(memory.address(), BF16.lanes, shape, 0) };
    tensor.expect("it can be addressed")
}

fn write(memory: &Memory, shape: &[usize]) -> TensorMut<'static> {
    // SAFETY: the same holds as above; each tensor is a separate allocation.
    let tensor = unsafe { TensorMut::from_raw(memory.address(), BF16.lanes, shape, 0) };
    tensor.expect("it can be addressed")
}

/// The large tensors of both operators.
struct Large {
    stream: std::sync::Arc<cuda::cudarc::driver::CudaStream>,
    rows: Vec<usize>,
    operands: [Memory; 2],
    grad_output: Memory,
    output: Memory,
    grads: [Memory; 2],
}

/// The rows that are compared: the ends, those around 2^31 bytes and elements, and some between.
fn rows() -> Vec<usize> {
    let mut rows = vec![0, 1, BATCH - 2, BATCH - 1];
    for bytes in [1_usize << 31, 1 << 32] {
        // The row that begins there, of any blade.
        let at = bytes / ROW % BATCH;
        rows.extend([at - 1, at, at + 1]);
    }
    rows.extend((0..BATCH).step_by(BATCH / 40 + 1));
    rows.sort_unstable();
    rows.dedup();
    rows
}

impl Large {
    fn new() -> Self {
        let stream = device().new_stream().expect("a stream");
        let memory = || Memory::new(device(), TENSOR);
        let mut random = Random::new(79);
        let mut pattern = || {
            let mut memory = memory();
            let mut bytes = vec![0; PERIOD * ELEMENT];
            dtypes::encode(BF16.lanes, &random.reals(PERIOD), &mut bytes);
            memory.write(&stream, 0, &bytes);
            memory.repeat(&stream, bytes.len());
            memory
        };
        let operands = [pattern(), pattern()];
        let rows = rows();
        // The gradient is zero outside of these rows, so the gradients of weights come from these rows alone.
        let mut grad_output = memory();
        grad_output.fill(&stream, 0);
        for k in 0..BLADES {
            for &row in &rows {
                let mut bytes = vec![0; ROW];
                dtypes::encode(BF16.lanes, &random.reals(CHANNELS), &mut bytes);
                grad_output.write(&stream, (k * BATCH + row) * ROW, &bytes);
            }
        }
        let dirty = || {
            let mut memory = memory();
            memory.fill(&stream, 0xff);
            memory
        };
        Self {
            output: dirty(),
            grads: [dirty(), dirty()],
            stream: stream.clone(),
            rows,
            operands,
            grad_output,
        }
    }

    /// The bytes of the compared rows of a large tensor, as a small tensor.
    fn pick(&self, memory: &Memory) -> Vec<u8> {
        let mut picked = vec![0; BLADES * self.rows.len() * ROW];
        let mut parts = picked.chunks_mut(ROW);
        for k in 0..BLADES {
            for (row, part) in self.rows.iter().zip(&mut parts) {
                memory.read(&self.stream, (k * BATCH + row) * ROW, part);
            }
        }
        picked
    }

    /// A small tensor of the compared rows on the device.
    fn small(&self, memory: &Memory) -> Memory {
        self.upload(&self.pick(memory))
    }

    fn upload(&self, bytes: &[u8]) -> Memory {
        let mut memory = Memory::new(device(), bytes.len());
        memory.write(&self.stream, 0, bytes);
        memory
    }

    fn dirty(&self, bytes: usize) -> Memory {
        let mut memory = Memory::new(device(), bytes);
        memory.fill(&self.stream, 0xff);
        memory
    }

    /// Runs both passes on tensors of a batch.
    fn run(&self, op: &cuda::Operator, batch: usize, tensors: &Tensors<'_>) {
        let lanes = [BLADES, batch, CHANNELS];
        let weights = [CHANNELS, PATHS];
        let mut inputs = vec![read(tensors.x, &lanes), read(tensors.y, &lanes)];
        let mut grads = vec![
            Some(write(tensors.grad_x, &lanes)),
            Some(write(tensors.grad_y, &lanes)),
        ];
        let mut shapes: Vec<&[usize]> = vec![&lanes, &lanes];
        if let Some((w, grad_w)) = tensors.weights {
            inputs.push(read(w, &weights));
            grads.push(Some(write(grad_w, &weights)));
            shapes.push(&weights);
        }
        let dims = op.bind(&shapes).expect("fits");
        let saved_len = op.saved_len(&dims, BF16);
        let saved = self.dirty(4 * saved_len);
        let saved_shape = [saved_len];
        let arithmetic = BF16.arithmetic();
        let workspace = |pass| {
            let bytes = op.workspace_bytes(&dims, pass, BF16).expect("a kernel");
            self.dirty(bytes)
        };
        let workspaces = [workspace(Pass::Forward), workspace(Pass::Backward)];
        // SAFETY: the same holds for all of them as in `read` and `write`.
        let (to, from, scratch) = unsafe {
            let to = TensorMut::from_raw(saved.address(), arithmetic, &saved_shape, 0);
            let from = Tensor::from_raw(saved.address(), arithmetic, &saved_shape, 0);
            let scratch = workspaces
                .each_ref()
                .map(|w| cuda::Scratch::from_raw(w.address(), w.bytes(), 0));
            (to.expect("1 axis"), from.expect("1 axis"), scratch)
        };
        let [forward, backward] = scratch;
        let output = write(tensors.output, &lanes);
        op.forward(&self.stream, &inputs, output, Some(to), Some(forward))
            .expect("forward");
        op.backward(
            &self.stream,
            &inputs,
            read(tensors.output, &lanes),
            Some(from),
            read(tensors.grad_output, &lanes),
            &mut grads,
            Some(backward),
        )
        .expect("backward");
        self.stream.synchronize().expect("no kernel failed");
    }
}

/// The tensors that a call reads and writes.
struct Tensors<'a> {
    x: &'a Memory,
    y: &'a Memory,
    weights: Option<(&'a Memory, &'a Memory)>,
    output: &'a Memory,
    grad_output: &'a Memory,
    grad_x: &'a Memory,
    grad_y: &'a Memory,
}

fn beyond() {
    let algebra = Algebra::new(Signature::of(3, 0, 0)).expect("shipped");
    let large = Large::new();
    let sgp = ops::sgp_norm(algebra, &ProductOptions::default()).expect("shipped");
    compare(&large, &sgp, true);
    let product = ops::product(algebra, ProductKind::Geometric, None, None).expect("shipped");
    compare(&large, &product, false);
}

/// Runs an operator on all rows and on the compared rows alone, and compares the latter.
fn compare(large: &Large, op: &Operator, weighted: bool) {
    let op = op.on_cuda(device()).expect("a kernel");
    let mut bytes = vec![0; CHANNELS * PATHS * ELEMENT];
    let weights = Random::new(83).reals(CHANNELS * PATHS);
    dtypes::encode(BF16.params, &weights, &mut bytes);
    let w = large.upload(&bytes);
    let grad_w = [large.dirty(bytes.len()), large.dirty(bytes.len())];
    let [x, y] = &large.operands;
    let [grad_x, grad_y] = &large.grads;
    large.run(
        &op,
        BATCH,
        &Tensors {
            x,
            y,
            weights: weighted.then_some((&w, &grad_w[0])),
            output: &large.output,
            grad_output: &large.grad_output,
            grad_x,
            grad_y,
        },
    );

    let count = large.rows.len();
    let small = |memory| large.small(memory);
    let [small_x, small_y, small_grad] = [x, y, &large.grad_output].map(small);
    let written = [0; 3].map(|_| large.dirty(BLADES * count * ROW));
    large.run(
        &op,
        count,
        &Tensors {
            x: &small_x,
            y: &small_y,
            weights: weighted.then_some((&w, &grad_w[1])),
            output: &written[0],
            grad_output: &small_grad,
            grad_x: &written[1],
            grad_y: &written[2],
        },
    );
    let values = |memory: &Memory| {
        let mut bytes = vec![0; memory.bytes()];
        memory.read(&large.stream, 0, &mut bytes);
        dtypes::decode(BF16.lanes, &bytes)
    };
    for (name, all, want) in [
        ("o", &large.output, &written[0]),
        ("grad_x", grad_x, &written[1]),
        ("grad_y", grad_y, &written[2]),
    ] {
        let got = dtypes::decode(BF16.lanes, &large.pick(all));
        let what = op.operator().name();
        let want = values(want);
        informative(&want).unwrap_or_else(|e| panic!("{name} of {what}: {e}"));
        equal(&want, &got).unwrap_or_else(|e| panic!("{name} of {what}: {e}"));
    }
    if weighted {
        // The sums are added in another order, and both are rounded.
        let [got, want] = grad_w.each_ref().map(values);
        informative(&want).expect("gradients of the weights");
        let unit = dtypes::unit(BF16.params);
        let rounding = || want.iter().map(|w| unit * w.abs()).collect();
        within(&want, &got, BF16.params, rounding).expect("gradients of the weights");
    }
}

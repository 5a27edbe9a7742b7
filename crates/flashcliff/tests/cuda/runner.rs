//! Runs operators on the GPU with dirty, guarded and misaligned buffers.

use std::sync::Arc;

use flashcliff::Pass;
use flashcliff::cuda::cudarc::driver::CudaStream;
use flashcliff::cuda::{Device, Dtypes, Scratch, Tensor, TensorMut};

use crate::arena::{Arena, Region, joined};
use crate::case::Case;
use crate::cases::input_shapes;
use crate::dtypes;
use crate::memory::Memory;

/// The placement of the buffers of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placement {
    /// All buffers lie in one allocation, dirty, between guard bands.
    Guarded,
    /// Each buffer lies in an allocation of exactly its size. Outputs have never been written before.
    Apart {
        /// Whether to copy results to the host.
        reads_back: bool,
    },
}

/// A stream, and memory that grows to the size that the largest call needs.
pub(crate) struct Runner {
    device: Device,
    stream: Arc<CudaStream>,
    placement: Placement,
    memory: Memory,
}

/// The results of a call, in the order of the operator. Gradients that are not wanted are empty.
pub(crate) struct Outcome {
    pub(crate) output: Vec<f64>,
    pub(crate) saved: Vec<f64>,
    pub(crate) grads: Vec<Vec<f64>>,
    /// The bytes of all results.
    pub(crate) bytes: Vec<u8>,
}

impl Runner {
    pub(crate) fn new(device: &Device) -> Self {
        Self::with_placement(device, Placement::Guarded)
    }

    /// A runner for tools that know which memory has been written. Without reading back, results are NaN.
    pub(crate) fn apart(device: &Device, reads_back: bool) -> Self {
        Self::with_placement(device, Placement::Apart { reads_back })
    }

    fn with_placement(device: &Device, placement: Placement) -> Self {
        Self {
            device: device.clone(),
            stream: device.new_stream().expect("a stream"),
            placement,
            memory: Memory::new(device, 1 << 20),
        }
    }

    /// Runs the forward pass alone. It saves nothing unless asked to, or unless the operator must.
    pub(crate) fn forward(
        &mut self,
        case: &Case<'_>,
        dtypes: Dtypes,
        offset: usize,
        save: bool,
    ) -> Outcome {
        let mut buffers = Buffers::new(case, dtypes, offset, save);
        self.run(case, dtypes, &mut buffers)
    }

    /// Runs both passes, with the wanted gradients.
    pub(crate) fn both(
        &mut self,
        case: &Case<'_>,
        dtypes: Dtypes,
        offset: usize,
        wanted: &[bool],
    ) -> Outcome {
        let mut buffers = Buffers::new(case, dtypes, offset, true);
        buffers.add_backward(case, dtypes, offset, wanted);
        self.run(case, dtypes, &mut buffers)
    }

    fn run(&mut self, case: &Case<'_>, dtypes: Dtypes, buffers: &mut Buffers) -> Outcome {
        let arena = &buffers.arena;
        let mut apart = Vec::new();
        let base = match self.placement {
            Placement::Guarded => {
                if self.memory.bytes() < arena.bytes().len() {
                    self.memory = Memory::new(&self.device, 2 * arena.bytes().len());
                }
                self.memory.write(&self.stream, 0, arena.bytes());
                self.memory.address()
            }
            Placement::Apart { .. } => {
                for region in arena.regions() {
                    // A misaligned buffer begins some elements after the start of its allocation.
                    let lead = region.start() % 256;
                    let mut memory = Memory::new(&self.device, lead + region.bytes());
                    if !region.is_written() {
                        let from = &arena.bytes()[region.start()..][..region.bytes()];
                        memory.write(&self.stream, lead, from);
                    }
                    apart.push((region.start(), lead, memory));
                }
                0
            }
        };
        let address = |region: &Region| match self.placement {
            Placement::Guarded => base + region.start() as u64,
            Placement::Apart { .. } => {
                let at = apart.iter().find(|(start, ..)| *start == region.start());
                at.map_or(0, |(_, lead, memory)| memory.address() + *lead as u64)
            }
        };
        launch(case, dtypes, &self.stream, buffers, &address)
            .unwrap_or_else(|e| panic!("{}: {e}", case.context(dtypes)));

        let mut after = arena.bytes().to_vec();
        match self.placement {
            Placement::Guarded => self.memory.read(&self.stream, 0, &mut after),
            Placement::Apart { reads_back } => {
                self.stream.synchronize().expect("no kernel failed");
                for (region, (_, lead, memory)) in arena.regions().iter().zip(&apart) {
                    if reads_back && region.is_written() {
                        let to = &mut after[region.start()..][..region.bytes()];
                        memory.read(&self.stream, *lead, to);
                    }
                }
            }
        }
        let checked = arena.check(&after);
        checked.unwrap_or_else(|e| panic!("{}: {e}", case.context(dtypes)));
        buffers.outcome(&after)
    }
}

/// The buffers of a call.
struct Buffers {
    arena: Arena,
    inputs: Vec<Region>,
    output: Region,
    saved: Option<Region>,
    workspace: Option<Region>,
    backward: Option<Backward>,
}

struct Backward {
    grad_output: Region,
    grads: Vec<Option<Region>>,
    workspace: Option<Region>,
}

impl Buffers {
    fn new(case: &Case<'_>, dtypes: Dtypes, offset: usize, save: bool) -> Self {
        let (op, dims) = (&case.op, &case.dims);
        let mut arena = Arena::new();
        let inputs = op.inputs().iter().zip(&case.inputs);
        let inputs = inputs
            .map(|(spec, values)| arena.input(spec.name, dtypes::of(spec, dtypes), values, offset))
            .collect();
        let len = op.output_shape(dims).iter().product();
        let output = arena.output("the output", dtypes.lanes, len, offset);
        // A buffer without elements may be left out.
        let saved_len = case.gpu.saved_len(dims, dtypes);
        // A tensor that is kept has no other place.
        let saved = ((save || op.kept().is_some()) && saved_len > 0)
            .then(|| arena.output("saved", dtypes.arithmetic(), saved_len, offset));
        let workspace = workspace(case, dtypes, Pass::Forward, &mut arena);
        Self {
            arena,
            inputs,
            output,
            saved,
            workspace,
            backward: None,
        }
    }

    fn add_backward(&mut self, case: &Case<'_>, dtypes: Dtypes, offset: usize, wanted: &[bool]) {
        let arena = &mut self.arena;
        let grad_output = arena.input("grad_o", dtypes.lanes, &case.grad_output, offset);
        let mut grads = Vec::new();
        for ((spec, values), wanted) in case.op.inputs().iter().zip(&case.inputs).zip(wanted) {
            let dtype = dtypes::of(spec, dtypes);
            grads.push(wanted.then(|| arena.output("a gradient", dtype, values.len(), offset)));
        }
        let workspace = workspace(case, dtypes, Pass::Backward, arena);
        self.backward = Some(Backward {
            grad_output,
            grads,
            workspace,
        });
    }

    fn outcome(&self, after: &[u8]) -> Outcome {
        let values = |region: &Region| Arena::values(region, after);
        let grads = self.backward.iter().flat_map(|b| &b.grads);
        let grads: Vec<Option<Region>> = grads.copied().collect();
        let written: Vec<Region> = [Some(self.output), self.saved]
            .into_iter()
            .chain(grads.iter().copied())
            .flatten()
            .collect();
        Outcome {
            output: values(&self.output),
            saved: self.saved.as_ref().map_or(Vec::new(), values),
            grads: grads
                .iter()
                .map(|grad| grad.as_ref().map_or(Vec::new(), values))
                .collect(),
            bytes: joined(&written, after),
        }
    }
}

/// The workspace of a pass, of exactly the size that it must have.
fn workspace(case: &Case<'_>, dtypes: Dtypes, pass: Pass, arena: &mut Arena) -> Option<Region> {
    let bytes = case.gpu.workspace_bytes(&case.dims, pass, dtypes);
    let bytes = bytes.unwrap_or_else(|e| panic!("{}: {e}", case.context(dtypes)));
    // The length is counted in elements of a type of 2 bytes.
    let len = bytes.div_ceil(2);
    (bytes > 0).then(|| arena.output("a workspace", flashcliff::Dtype::Bf16, len, 0))
}

/// Launches the passes for which there are buffers.
fn launch(
    case: &Case<'_>,
    dtypes: Dtypes,
    stream: &CudaStream,
    buffers: &Buffers,
    address: &dyn Fn(&Region) -> u64,
) -> Result<(), flashcliff::Error> {
    let ordinal = case.gpu.device().ordinal();
    let read = |region: &Region, dtype, shape: &[usize]| {
        // SAFETY: the region has this length, and its memory outlives the wait for the stream.
        unsafe { Tensor::from_raw(address(region), dtype, shape, ordinal) }
    };
    let write = |region: &Region, dtype, shape: &[usize]| {
        // SAFETY: the same holds as above; regions do not overlap, and nothing reads them before that wait.
        unsafe { TensorMut::from_raw(address(region), dtype, shape, ordinal) }
    };
    let scratch = |region: &Option<Region>| {
        region.as_ref().map(|region| {
            // SAFETY: the same holds as above.
            unsafe { Scratch::from_raw(address(region), region.bytes(), ordinal) }
        })
    };
    let (op, dims) = (&case.op, &case.dims);
    let shapes = input_shapes(op, dims);
    let mut inputs = Vec::new();
    for ((region, spec), shape) in buffers.inputs.iter().zip(op.inputs()).zip(&shapes) {
        inputs.push(read(region, dtypes::of(spec, dtypes), shape)?);
    }
    let shape = op.output_shape(dims);
    let saved_shape = [case.gpu.saved_len(dims, dtypes)];
    let saved = buffers.saved.as_ref();
    let saved_mut = saved.map(|region| write(region, dtypes.arithmetic(), &saved_shape));
    case.gpu.forward(
        stream,
        &inputs,
        write(&buffers.output, dtypes.lanes, &shape)?,
        saved_mut.transpose()?,
        scratch(&buffers.workspace),
    )?;
    let Some(backward) = &buffers.backward else {
        return Ok(());
    };
    let mut grads = Vec::new();
    for ((grad, spec), shape) in backward.grads.iter().zip(op.inputs()).zip(&shapes) {
        let grad = grad.as_ref();
        let grad = grad.map(|region| write(region, dtypes::of(spec, dtypes), shape));
        grads.push(grad.transpose()?);
    }
    let saved = saved.map(|region| read(region, dtypes.arithmetic(), &saved_shape));
    case.gpu.backward(
        stream,
        &inputs,
        read(&buffers.output, dtypes.lanes, &shape)?,
        saved.transpose()?,
        read(&backward.grad_output, dtypes.lanes, &shape)?,
        &mut grads,
        scratch(&backward.workspace),
    )
}

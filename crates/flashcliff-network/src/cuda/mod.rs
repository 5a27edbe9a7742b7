//! Runs plans on a GPU.
//!
//! * `operators` - the operators of the nodes, and the packing of their weights.
//! * `beside` - the stream beside the line of a captured step.
//! * `call` - the launch of a call.

mod beside;
mod call;
mod operators;

use std::ops::Range;
use std::sync::Arc;

use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use flashcliff::cuda::{
    self, MatmulPrecision, Packed, PackedGradient, Scratch, TensorMut, allocation_error,
};
use flashcliff::{Device, Dtype};

use crate::plan::{Memory, Plan};
use crate::{Error, Network, Value};
use beside::{Beside, Line};
use operators::Operators;

/// The calls for which memory of a small branch is of no other value. With fewer the line waits for branches, with more there is more memory.
const SLACK: usize = 6;

/// What a host lends to a run.
#[derive(Clone, Copy, Debug)]
pub struct Lent<'a> {
    /// The inputs, in their order, with the shapes of the plan.
    pub inputs: &'a [cuda::Tensor<'a>],
    /// The parameters, in their order, with the shapes of the plan.
    pub parameters: &'a [cuda::Tensor<'a>],
    /// The addresses of the outputs, in their order.
    pub outputs: &'a [CUdeviceptr],
    /// The factor of the sums of squared errors.
    pub error_scale: f64,
    /// Whether squared errors are added to what is in their outputs.
    pub adds_error: bool,
    /// The numbers of a scale of the loss, as [`squared_error`](cuda::network::squared_error) takes them.
    pub loss_scale: Option<cuda::Tensor<'a>>,
}

/// What a run does besides its calls.
#[derive(Clone, Copy, Debug)]
pub struct Course<'a> {
    /// Whether calls may run beside the line. It has a point in a step that is captured as a graph: launched one by one, calls wait for the host.
    pub forks: bool,
    /// Calls behind which all outputs so far are complete, in order; behind the last call they are in any case.
    pub stops: &'a [usize],
}

/// An event of a run, of which its watch hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A call is launched next.
    Call(usize),
    /// All calls are launched.
    End,
    /// All that is launched so far is complete behind what the stream has: the stop with this number.
    Stop(usize),
}

/// A plan with its memory on a GPU.
#[derive(Debug)]
pub struct Gpu {
    plan: Plan,
    device: Device,
    operators: Operators,
    workspace_bytes: [usize; 2],
    memory: Option<Taken>,
    beside: Option<Beside>,
}

/// The memory of a plan, which is taken once and stays where it is, so a captured step uses no other.
#[derive(Debug)]
struct Taken {
    arena: CudaSlice<u8>,
    /// Packed weights and the parts of their gradients.
    packed: CudaSlice<u8>,
    /// The workspace of each line.
    workspaces: [CudaSlice<u8>; 2],
}

/// The state of a run.
struct Run<'a> {
    plan: &'a Plan,
    device: &'a Device,
    operators: &'a Operators,
    lent: Lent<'a>,
    stream: &'a Arc<CudaStream>,
    arena: CUdeviceptr,
    workspaces: [&'a mut CudaSlice<u8>; 2],
    packed: Packed<'a>,
    beside: Option<&'a mut Beside>,
    /// The gradients that are left in parts, by their values: their calls.
    left: Vec<(Value, usize)>,
}

impl Gpu {
    /// Plans a network on a device: the calls that compute some outputs for a number of rows, with the types of features and model. Features may have
    /// 16 bits if the model has `f32`. Takes no memory yet.
    ///
    /// # Errors
    /// The errors of [`Network::plan`]; types without kernels, and errors of the device.
    pub fn new(
        network: &Network,
        outputs: &[Value],
        rows: usize,
        types: [Dtype; 2],
        device: &Device,
        precision: MatmulPrecision,
    ) -> Result<Self, Error> {
        let saved_len = |operator: &flashcliff::Operator, dims: &_, [lanes, params]: [Dtype; 2]| {
            let own = operator.on_cuda(device)?.with_precision(precision);
            Ok(own.saved_len(dims, cuda::Dtypes { lanes, params }))
        };
        let plan = Plan::new(network, outputs, rows, types, &saved_len, SLACK)?;
        let operators = Operators::new(&plan, device, precision)?;
        let workspace_bytes = operators.workspace_bytes(&plan)?;
        Ok(Self {
            plan,
            device: device.clone(),
            operators,
            workspace_bytes,
            memory: None,
            beside: None,
        })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The bytes of packed weights, and of the parts of their gradients.
    pub fn packed_bytes(&self) -> usize {
        self.operators.packing.bytes()
    }

    /// The bytes of workspaces.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace_bytes.iter().sum()
    }

    /// Takes the memory of the plan in the order of a stream, if it has not been taken. The first run does it else.
    ///
    /// # Errors
    /// [`flashcliff::Error::OutOfMemory`], [`flashcliff::Error::Cuda`].
    pub fn allocate(&mut self, stream: &Arc<CudaStream>) -> Result<(), Error> {
        if self.memory.is_some() {
            return Ok(());
        }
        let zeros = |bytes: usize| {
            // An allocation of no bytes is an error for some drivers.
            let memory = stream.alloc_zeros::<u8>(bytes.max(1));
            memory.map_err(|error| Error::Core(allocation_error(stream, bytes)(error)))
        };
        let [line, beside] = self.workspace_bytes;
        self.memory = Some(Taken {
            arena: zeros(self.plan.arena_bytes())?,
            packed: zeros(self.packed_bytes())?,
            workspaces: [zeros(line)?, zeros(beside)?],
        });
        Ok(())
    }

    /// Launches the plan on a stream. `watch` hears of each call and of each stop.
    ///
    /// # Errors
    /// [`Error::Length`] for a number of tensors; shapes, types and devices that are not those of the plan; errors of the device and of the watch.
    ///
    /// # Safety
    /// Each output is the address of memory on the device of the plan, with the elements and the type of the output, aligned to 16 bytes. It
    /// stays allocated until the work is done, and nothing else uses it meanwhile, but for work in the order of the stream.
    pub unsafe fn run<E: From<Error>>(
        &mut self,
        stream: &Arc<CudaStream>,
        lent: Lent<'_>,
        course: Course<'_>,
        watch: &mut dyn FnMut(Moment) -> Result<(), E>,
    ) -> Result<(), E> {
        self.check(&lent)?;
        self.allocate(stream)?;
        if course.forks && self.beside.is_none() {
            self.beside = Beside::new(stream)?;
        }
        let Some(Taken {
            arena,
            packed,
            workspaces: [line, beside],
        }) = &mut self.memory
        else {
            return Ok(());
        };
        let weights = self.operators.weights(&self.plan, lent.parameters);
        let packing = self.operators.packing.clone();
        let packed = packing.pack(stream, &weights, Scratch::new(packed));
        let mut run = Run {
            plan: &self.plan,
            device: &self.device,
            operators: &self.operators,
            lent,
            stream,
            arena: arena.device_ptr(stream).0,
            workspaces: [line, beside],
            packed: packed.map_err(Error::from)?,
            beside: self.beside.as_mut().filter(|_| course.forks),
            left: Vec::new(),
        };
        let done = run.all(course.stops, watch);
        if let (Err(_), Some(beside)) = (&done, &mut self.beside) {
            beside.forget();
        }
        done
    }

    fn check(&self, lent: &Lent<'_>) -> Result<(), Error> {
        let network = self.plan.network();
        let counts = [
            ("input", network.inputs().len(), lent.inputs.len()),
            (
                "parameter",
                network.parameters().len(),
                lent.parameters.len(),
            ),
            ("output", self.plan.outputs().len(), lent.outputs.len()),
        ];
        let wrong = counts.iter().find(|(_, expected, got)| expected != got);
        if let Some(&(what, expected, got)) = wrong {
            return Err(Error::Length {
                what,
                index: got,
                expected,
                got,
            });
        }
        let inputs = network.inputs().iter().zip(lent.inputs);
        let mut all = inputs.chain(network.parameters().iter().zip(lent.parameters));
        all.try_for_each(|(&value, tensor)| self.check_tensor(value, tensor))
    }

    /// Checks a tensor that calls read.
    fn check_tensor(&self, value: Value, tensor: &cuda::Tensor<'_>) -> Result<(), Error> {
        let Some((shape, dtype)) = self.plan.tensor(value) else {
            return Ok(());
        };
        match tensor.shape() == shape && tensor.dtype() == dtype {
            true => Ok(()),
            false => Err(Error::Shape {
                node: self.plan.network().name(value).to_owned(),
                expected: format!("{shape:?} of {dtype}"),
                got: format!("{:?} of {}", tensor.shape(), tensor.dtype()),
            }),
        }
    }
}

impl<'a> Run<'a> {
    fn all<E: From<Error>>(
        &mut self,
        stops: &[usize],
        watch: &mut dyn FnMut(Moment) -> Result<(), E>,
    ) -> Result<(), E> {
        for call in 0..self.plan.call_count() {
            watch(Moment::Call(call))?;
            self.call(call)?;
            for (number, _) in stops.iter().enumerate().filter(|(_, stop)| **stop == call) {
                self.settle(|_| true)?;
                watch(Moment::Stop(number))?;
            }
        }
        watch(Moment::End)?;
        Ok(self.settle(|_| true)?)
    }

    /// Launches a call, beside the line if it may be.
    fn call(&mut self, call: usize) -> Result<(), Error> {
        // A gradient in parts is complete before something reads it.
        let read = self.plan.reads(call);
        if self.left.iter().any(|(value, _)| read.contains(value)) {
            self.settle(|value| read.contains(&value))?;
        }
        let line = match &self.beside {
            Some(_) if self.plan.forks(call) => Line::Beside,
            _ => Line::Main,
        };
        let uses = match &self.beside {
            Some(_) => self.plan.uses(call),
            None => Vec::new(),
        };
        let stream = match (&mut self.beside, line) {
            (Some(beside), Line::Beside) => {
                beside.fork(self.stream)?;
                beside.stream().clone()
            }
            (Some(beside), Line::Main) => {
                beside.wait(self.stream, &uses)?;
                self.stream.clone()
            }
            (None, _) => self.stream.clone(),
        };
        self.launch(call, &stream, line)?;
        match (&mut self.beside, line) {
            (Some(beside), Line::Beside) => beside.note(&uses),
            _ => Ok(()),
        }
    }

    /// Completes gradients that backward passes have left in parts.
    fn settle(&mut self, wanted: impl Fn(Value) -> bool) -> Result<(), Error> {
        if let Some(beside) = &mut self.beside {
            beside.join(self.stream)?;
        }
        let left = std::mem::take(&mut self.left);
        let (now, later): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|(value, _)| wanted(*value));
        self.left = later;
        let mut gradients = Vec::with_capacity(now.len());
        for (value, call) in now {
            let Some((operator, input)) = self.operators.left(self.plan, call, value) else {
                continue;
            };
            gradients.push(PackedGradient {
                operator,
                input,
                gradient: self.result(value)?,
            });
        }
        Ok(self.packed.add_up(self.stream, &mut gradients)?)
    }

    /// The address of a value in the arena or in an output.
    fn address(&self, memory: Memory) -> CUdeviceptr {
        match memory {
            Memory::Arena { from, .. } => self.arena + from as CUdeviceptr,
            Memory::Output(at) => self.lent.outputs[at],
            Memory::Input(_) | Memory::Parameter(_) => 0,
        }
    }

    /// A value that a call reads.
    fn value(&self, value: Value) -> Result<cuda::Tensor<'a>, Error> {
        let spot = self.plan.spot(value)?;
        let (ordinal, shape) = (self.device.ordinal(), &spot.shape);
        let tensor = match spot.memory {
            Memory::Input(at) => return Ok(self.lent.inputs[at]),
            Memory::Parameter(at) => return Ok(self.lent.parameters[at]),
            // SAFETY: the arena is as long as the plan says, and outputs are what the caller of `run` promises. Work on them is in the order
            // of the stream, or of the branch beside it, which the line waits for.
            memory => unsafe {
                cuda::Tensor::from_raw(self.address(memory), spot.dtype, shape, ordinal)
            },
        };
        Ok(tensor?)
    }

    /// A value that a call writes.
    fn result<'r>(&self, value: Value) -> Result<TensorMut<'r>, Error> {
        let spot = self.plan.spot(value)?;
        let address = self.address(spot.memory);
        // SAFETY: the same holds as in `value`, and values that are needed at the same time have places of their own.
        let tensor =
            unsafe { TensorMut::from_raw(address, spot.dtype, &spot.shape, self.device.ordinal()) };
        Ok(tensor?)
    }

    /// Clears the elements of a value behind the first ones.
    fn clear(
        &self,
        stream: &CudaStream,
        value: Value,
        elements: Range<usize>,
    ) -> Result<(), Error> {
        let spot = self.plan.spot(value)?;
        let bytes = spot.dtype.bytes();
        let from = self.address(spot.memory) + (elements.start * bytes) as CUdeviceptr;
        // SAFETY: the elements are of the value, whose memory is there: see `value`.
        let cleared = unsafe {
            flashcliff::cuda::cudarc::driver::result::memset_d8_async(
                from,
                0,
                elements.len() * bytes,
                stream.cu_stream(),
            )
        };
        Ok(cleared.map_err(cuda::driver_error("cuMemsetD8Async"))?)
    }
}

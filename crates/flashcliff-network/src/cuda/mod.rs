//! Runs plans on a GPU.
//!
//! * `operators` - the operators of the nodes, and the packing of their weights.
//! * `beside` - the stream beside the line of a captured step; `own_stream` - streams that cudarc does not count.
//! * `call` - the launch of a call; `joined` - that of linear maps that run together; `addresses` - where values are,
//!   and values that lie one after another.
//! * `lent` - what a host lends to a run; `memory` - the memory of a stage; `room` - the parts of a piece of memory.
//! * `related` - relations between rows.
//! * `replays` - runs that come again with the same memory, as graphs.
//! * `listed` - the names of kernels, by a run of which nothing is launched; `explain` - the page of a plan with them;
//!   `advice` - what would be faster.
//! * `tokens` - steps of transformers.

mod addresses;
mod advice;
mod beside;
mod call;
mod explain;
mod joined;
mod lent;
mod listed;
mod memory;
mod operators;
mod own_stream;
mod related;
mod replays;
mod room;
mod tokens;

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use flashcliff::cuda::{
    self, MatmulPrecision, Packed, PackedGradient, Packing, Scratch, TensorMut, allocation_error,
};
use flashcliff::{Device, Dtype};

use crate::network::Set;
use crate::plan::{self, Plan, Saves, Target};
use crate::relation;
use crate::{Error, Network, Rows, Value};
use beside::{Beside, Line};
pub use lent::{Draw, Lent, Sequences};
pub use memory::Memory;
use memory::{Part, Parts};
use operators::Operators;
pub use related::DeviceSegments;
pub use replays::Replays;
use tokens::{Constants, Steps};

/// The calls for which memory of a small branch is of no other value. With fewer the line waits for branches, with
/// more there is more memory.
const SLACK: usize = 6;

/// What a run does besides its calls.
#[derive(Clone, Copy, Debug)]
pub struct Course<'a> {
    /// Whether calls may run beside the line. It has a point in a run that is captured as a graph: launched one by
    /// one, calls wait for the host.
    pub forks: bool,
    /// The calls after which all outputs so far are complete, in order. After the last call they always are.
    pub stops: &'a [usize],
}

/// An event of a run, of which its watch hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A call is launched next.
    Call(usize),
    /// All calls are launched.
    End,
    /// The stop with this number: all that is launched so far is complete once the stream has done what it has.
    Stop(usize),
}

/// A plan on a GPU.
#[derive(Debug)]
pub struct Gpu {
    plan: Plan,
    device: Device,
    stages: Vec<Stage>,
    /// The steps of transformers, if there are some.
    steps: Option<Steps>,
    /// The tables of steps and their address, once they are on the device.
    tables: OnceLock<(CudaSlice<u8>, CUdeviceptr)>,
    /// The streams beside lines that no run has.
    resting: Mutex<Vec<Beside>>,
    precision: MatmulPrecision,
    /// The bytes of shared memory of chains; `None` if the plan can have none.
    room: Option<usize>,
}

/// The operators of a stage, with the bytes of workspace of each line.
#[derive(Debug)]
struct Stage {
    operators: Operators,
    workspace_bytes: [usize; 2],
}

/// The state of a run.
struct Run<'a> {
    plan: &'a Plan,
    stage: usize,
    device: &'a Device,
    operators: &'a Operators,
    steps: Option<&'a Steps>,
    tables: CUdeviceptr,
    lent: Lent<'a>,
    stream: &'a Arc<CudaStream>,
    arena: CUdeviceptr,
    workspaces: [Part; 2],
    /// The weights of operators, once they are packed, and the memory for them.
    packed: Option<Packed<'a>>,
    for_packed: Part,
    beside: Option<&'a mut Beside>,
    /// The gradients that are left in parts, by their values: their calls.
    left: Vec<(Value, usize)>,
    /// The gradients of matrices that are there while the gradients of their parameters are not, by their numbers in the plan.
    of_matrices: Range<usize>,
}

impl Gpu {
    /// Plans a network on a device in [stages](Network::plan_stages): the calls that compute the outputs of each for
    /// a number of rows, with the types of features and model. Features may have 16 bits if the model has `f32`.
    /// Takes no memory yet.
    ///
    /// # Errors
    /// The errors of [`Network::plan`]; types without kernels, and errors of the device.
    pub fn new(
        network: &Network,
        stages: &[&[Value]],
        rows: impl Into<Rows>,
        types: [Dtype; 2],
        device: &Device,
        precision: MatmulPrecision,
    ) -> Result<Self, Error> {
        let rows = rows.into();
        let takes_16_bits = |step: &crate::tokens::Step, set: Set| {
            let rows = rows.seen_from(set);
            let sizes = tokens::sizes(step, rows, types, precision)?;
            tokens::take_16_bits(step, &sizes)
        };
        let saved_len = |saves: &Saves<'_>, [lanes, params]: [Dtype; 2]| match saves {
            Saves::Operator(operator, dims) => {
                let own = operator.on_cuda(device)?.with_precision(precision);
                Ok(own.saved_len(dims, cuda::Dtypes { lanes, params }))
            }
            Saves::Step(step, rows, set) => {
                let rows = rows.seen_from(*set);
                let sizes = tokens::sizes(step, rows, types, precision)?;
                tokens::kept(step, &sizes)
            }
        };
        let joining = tokens::joining(network, types[1], device)?;
        let room = tokens::room(device, types, precision)?;
        let fuses = |plan: &Plan, calls: &[usize]| {
            room.is_some_and(|room| tokens::fuses(plan, calls, room).is_ok())
        };
        let target = Target {
            slack: SLACK,
            has_chunks: false,
            gathers: joining.is_some(),
            adds: true,
            joins: Some(|operators, dims, [lanes, params]| {
                cuda::join(operators, dims, cuda::Dtypes { lanes, params })
            }),
            fuses: joining.is_some().then_some(&fuses),
            takes_16_bits: Some(&takes_16_bits),
        };
        let plan = Plan::new(network, stages, rows, types, &saved_len, target)?;
        let steps = Steps::new(&plan, joining, device, precision)?;
        let of_stage = |stage| {
            let operators = Operators::new(&plan, stage, device, precision)?;
            let mut workspace_bytes = operators.workspace_bytes(&plan, stage)?;
            if let Some(steps) = &steps {
                let more = steps.workspace_bytes(&plan, stage);
                workspace_bytes = std::array::from_fn(|line| workspace_bytes[line].max(more[line]));
            }
            Ok(Stage {
                operators,
                workspace_bytes,
            })
        };
        let stages: Result<Vec<Stage>, Error> = (0..plan.stage_count()).map(of_stage).collect();
        Ok(Self {
            stages: stages?,
            steps,
            tables: OnceLock::new(),
            resting: Mutex::default(),
            plan,
            device: device.clone(),
            precision,
            room,
        })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The bytes of packed weights of a stage, and of the parts of their gradients.
    pub fn packed_bytes(&self, stage: usize) -> usize {
        self.stages[stage].operators.packing.bytes()
    }

    /// The bytes of workspaces of a stage.
    pub fn workspace_bytes(&self, stage: usize) -> usize {
        self.stages[stage].workspace_bytes.iter().sum()
    }

    /// The address of the tables of steps. The first call copies them, and waits until they are there for all streams.
    fn tables(&self) -> Result<CUdeviceptr, Error> {
        let tables = self.steps.as_ref().map(Steps::constants);
        let tables = tables.map_or(&[][..], Constants::bytes);
        if tables.is_empty() {
            return Ok(0);
        }
        if let Some((_, address)) = self.tables.get() {
            return Ok(*address);
        }
        // The stream of a host may be gone when this memory goes.
        let stream = self.device.default_stream();
        let made = stream.clone_htod(tables);
        let made = made.map_err(|error| allocation_error(&stream, tables.len())(error))?;
        let waited = stream.synchronize();
        waited.map_err(cuda::driver_error("cuStreamSynchronize"))?;
        let address = made.device_ptr(&stream).0;
        // If two threads get here at once, both use the tables of the first.
        Ok(self.tables.get_or_init(|| (made, address)).1)
    }

    /// Launches a stage on a stream: the one that the memory was taken for. `watch` hears of each call and of each stop.
    ///
    /// # Errors
    /// [`Error::Length`] for a number of tensors; [`Error::OtherPlan`] for memory that was taken for another plan;
    /// shapes, types and devices that differ from the plan's; errors of the device and of the watch.
    ///
    /// # Safety
    /// Each output is the address of memory on the device of the plan, with the elements and the type of the output,
    /// aligned to 16 bytes; what is kept is that of as many bytes as the plan says, aligned to 128, with what the
    /// earlier stages left there. All of it stays allocated until the work is done, and nothing else uses it
    /// meanwhile, but for work in the order of the stream. The addresses of sequences, of relations and of the number
    /// of the pass are on that device too, and hold what their fields say.
    pub unsafe fn run<E: From<Error>>(
        &self,
        memory: &mut Memory,
        stream: &Arc<CudaStream>,
        lent: Lent<'_>,
        course: Course<'_>,
        watch: &mut dyn FnMut(Moment) -> Result<(), E>,
    ) -> Result<(), E> {
        self.check(memory, &lent)?;
        let tables = self.tables()?;
        // SAFETY: the caller promises it.
        unsafe { self.start(memory, stream, (lent, tables), course, watch) }
    }

    /// Launches a stage that was checked, with tables at an address.
    ///
    /// # Safety
    /// The contract of [`Self::run`] holds.
    unsafe fn start<E: From<Error>>(
        &self,
        memory: &mut Memory,
        stream: &Arc<CudaStream>,
        (lent, tables): (Lent<'_>, CUdeviceptr),
        course: Course<'_>,
        watch: &mut dyn FnMut(Moment) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut branches = match course.forks {
            true => self.beside(stream)?,
            false => None,
        };
        let Memory { stage, parts, .. } = memory;
        let Parts {
            arena,
            packed,
            workspaces,
        } = *parts;
        let operators = &self.stages[*stage].operators;
        let mut run = Run {
            plan: &self.plan,
            stage: *stage,
            device: &self.device,
            operators,
            steps: self.steps.as_ref(),
            tables,
            lent,
            stream,
            arena: arena.address,
            workspaces,
            packed: None,
            for_packed: packed,
            beside: branches.as_mut(),
            left: Vec::new(),
            of_matrices: self.plan.gathered.gradients_from(&self.plan, *stage),
        };
        let done = run.all(course.stops, watch);
        if let Some(mut branches) = branches {
            // Branches of a run that failed are gone.
            branches.forget();
            self.resting().push(branches);
        }
        done
    }

    /// A stream beside a line, which nothing uses.
    fn beside(&self, line: &CudaStream) -> Result<Option<Beside>, Error> {
        let own = {
            let mut resting = self.resting();
            // The rest takes part in captures of the host that go on, and would make this work a part of them.
            let free = resting.iter().position(Beside::is_free);
            free.map(|at| resting.swap_remove(at))
        };
        own.map_or_else(|| Beside::new(line), |own| Ok(Some(own)))
    }

    fn resting(&self) -> MutexGuard<'_, Vec<Beside>> {
        // The list is whole even after a panic.
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, memory: &Memory, lent: &Lent<'_>) -> Result<(), Error> {
        let (network, stage) = (self.plan.network(), memory.stage);
        if !Arc::ptr_eq(&memory.network, &self.plan.network) {
            return Err(Error::OtherPlan {
                expected: "this memory".to_owned(),
                got: "another one".to_owned(),
            });
        }
        let counts = [
            ("input", self.inputs_of(stage), lent.inputs.len()),
            (
                "parameter",
                network.parameters().len(),
                lent.parameters.len(),
            ),
            (
                "output",
                self.plan.stages[stage].outputs.end,
                lent.outputs.len(),
            ),
        ];
        let wrong = counts.iter().find(|(what, expected, got)| match *what {
            "input" => !(*expected..=network.inputs().len()).contains(got),
            _ => expected != got,
        });
        if let Some(&(what, expected, got)) = wrong {
            return Err(Error::Length {
                what,
                index: got,
                expected,
                got,
            });
        }
        let given = lent.relations.iter().map(|own| [own.rows, own.targets]);
        relation::check(network.relations(), self.plan.batch(), given)?;
        if let Some(sequences) = &lent.sequences {
            lent::check(sequences, self.plan.batch())?;
        }
        let inputs = network.inputs().iter().zip(lent.inputs);
        let mut all = inputs.chain(network.parameters().iter().zip(lent.parameters));
        all.try_for_each(|(&value, tensor)| self.check_tensor(value, tensor))
    }

    /// The number of inputs up to the last one that a stage reads.
    fn inputs_of(&self, stage: usize) -> usize {
        let values = self
            .plan
            .calls(stage)
            .flat_map(|call| self.plan.reads(call));
        let inputs = values.filter_map(|&value| match self.plan.spot(value).ok()?.memory {
            plan::Memory::Input(at) => Some(at + 1),
            _ => None,
        });
        inputs.max().unwrap_or(0)
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

/// A part of memory as operators take it.
fn scratch<'m>(Part { address, bytes }: Part, device: &Device) -> Scratch<'m> {
    // SAFETY: the memory is there while a run is launched, whose caller has it for itself; its work is in the order of the stream.
    unsafe { Scratch::from_raw(address, bytes, device.ordinal()) }
}

impl<'a> Run<'a> {
    fn workspace<'m>(&self, line: Line) -> Scratch<'m> {
        scratch(self.workspaces[line.number()], self.device)
    }

    fn all<E: From<Error>>(
        &mut self,
        stops: &[usize],
        watch: &mut dyn FnMut(Moment) -> Result<(), E>,
    ) -> Result<(), E> {
        for call in self.plan.calls(self.stage) {
            watch(Moment::Call(call))?;
            if self.packed.is_none() && !self.plan.network().is_ahead(self.plan.calls[call].node) {
                self.pack_weights()?;
            }
            self.call(call)?;
            if self.plan.gathered.is_read_behind(call) {
                self.write_gradients()?;
            }
            for (number, _) in stops.iter().enumerate().filter(|(_, stop)| **stop == call) {
                self.complete()?;
                watch(Moment::Stop(number))?;
            }
        }
        watch(Moment::End)?;
        Ok(self.complete()?)
    }

    /// Packs the weights of operators, which are there: calls ahead of all others have made those that are not given.
    fn pack_weights(&mut self) -> Result<(), Error> {
        if let Some(beside) = &mut self.beside {
            beside.join(self.stream)?;
        }
        let weights = self
            .operators
            .weights(self.plan, |value| self.value(value))?;
        let packing: &'a Packing = &self.operators.packing;
        let memory = scratch(self.for_packed, self.device);
        self.packed = Some(packing.pack(self.stream, &weights, memory)?);
        Ok(())
    }

    /// The packed weights of operators. They are packed at the first use, after the calls that make weights.
    fn packed(&mut self) -> Result<&mut Packed<'a>, Error> {
        if self.packed.is_none() {
            self.pack_weights()?;
        }
        self.packed.as_mut().ok_or_else(|| Error::OtherPlan {
            expected: "packed weights".to_owned(),
            got: "none".to_owned(),
        })
    }

    /// Completes all outputs so far.
    fn complete(&mut self) -> Result<(), Error> {
        self.settle(|_| true)?;
        self.write_gradients()
    }

    /// Makes matrices, by their numbers in the plan, in memory that a branch may use.
    fn make_matrices(&mut self, matrices: Range<usize>) -> Result<(), Error> {
        if let Some(beside) = &mut self.beside {
            beside.wait(self.stream, &self.plan.uses_of_matrices(matrices.clone()))?;
        }
        self.launch_matrices(matrices)
    }

    /// Writes the gradients of parameters for the gradients of matrices so far.
    fn write_gradients(&mut self) -> Result<(), Error> {
        if let Some(beside) = &mut self.beside {
            beside.join(self.stream)?;
        }
        let there = self.of_matrices.clone();
        self.of_matrices.start = there.end;
        self.launch_gradients(there)
    }

    /// Launches a call, beside the line if it may be.
    fn call(&mut self, call: usize) -> Result<(), Error> {
        // A gradient in parts is complete before something reads it.
        let read = self.plan.reads(call);
        if self.left.iter().any(|(value, _)| read.contains(value)) {
            self.settle(|value| read.contains(&value))?;
        }
        if self.plan.is_idle(call) {
            // Both values lie in one memory, or steps do it together.
            return Ok(());
        }
        let chain = self.plan.chains.led_by(call);
        for &call in chain.map_or(&[call][..], |own| own) {
            if let Some(matrices) = self.plan.gathered.made_before(call) {
                self.make_matrices(matrices)?;
            }
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
        if let Some(gradient) = self.plan.gathered.gradient_of(call) {
            self.of_matrices.end = gradient + 1;
        }
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
        let stream = self.stream;
        Ok(self.packed()?.add_up(stream, &mut gradients)?)
    }

    /// The address of a value in the arena, in what is kept, or in an output.
    fn address(&self, memory: plan::Memory) -> CUdeviceptr {
        match memory {
            plan::Memory::Arena { from, .. } => self.arena + from as CUdeviceptr,
            plan::Memory::Kept { from, .. } => self.lent.kept + from as CUdeviceptr,
            plan::Memory::Output(at) => self.lent.outputs[at],
            // Plans of GPUs have no chunks.
            plan::Memory::Input(_) | plan::Memory::Parameter(_) | plan::Memory::Local { .. } => 0,
        }
    }

    /// A value that a call reads.
    fn value(&self, value: Value) -> Result<cuda::Tensor<'a>, Error> {
        let spot = self.plan.spot(value)?;
        let (ordinal, shape) = (self.device.ordinal(), &spot.shape);
        let tensor = match spot.memory {
            // First blades of an input lie in it.
            plan::Memory::Input(at) => self.lent.inputs[at].first(shape),
            plan::Memory::Parameter(at) => self.lent.parameters[at].first(shape),
            // SAFETY: the arena is as long as the plan says, and outputs and what is kept are what the caller of
            // `run` promises. Work on them is in the order of the stream, or of the branch beside it, which the line
            // waits for.
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
        // SAFETY: the same holds as in `value`, and values that are needed at the same time have separate places.
        let tensor =
            unsafe { TensorMut::from_raw(address, spot.dtype, &spot.shape, self.device.ordinal()) };
        Ok(tensor?)
    }

    /// Clears the elements of a value after the first ones.
    fn clear(
        &self,
        stream: &CudaStream,
        value: Value,
        elements: Range<usize>,
    ) -> Result<(), Error> {
        let spot = self.plan.spot(value)?;
        let bytes = spot.dtype.bytes();
        let from = self.address(spot.memory) + (elements.start * bytes) as CUdeviceptr;
        let bytes = elements.len() * bytes;
        // SAFETY: the elements are of the value, whose memory is there: see `value`.
        Ok(unsafe { cuda::launches::clear(from, bytes, stream.cu_stream()) }?)
    }
}

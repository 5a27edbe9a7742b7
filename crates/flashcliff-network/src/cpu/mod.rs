//! Runs plans on the CPU.

mod chunks;
mod cut;
mod functions;
mod settled;
mod sides;
mod sources;

use std::ops::Range;
use std::slice;
use std::sync::Arc;

use flashcliff::segments;
use flashcliff::{Operator, Pass, Tensor, TensorMut, memory};

use crate::Error;
use crate::network::{Network, Node, Value};
use crate::plan::{Memory, Plan, Spot};
use crate::relation::{self, Segments};
use crate::tokens::Draw;
use crate::work::{Gradient, MOST_INPUTS, Work};
pub use functions::Number;
pub use settled::Settled;
pub use sources::{LaterSlices, Slices, Sources};

/// Numbers of a run that are no tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scales<'a> {
    /// The factor of the sums of squared errors.
    pub error: f64,
    /// The factor of the gradients of squared errors, beside the first one.
    pub gradient: f64,
    /// The random numbers of dropout. Without them nothing is dropped.
    pub draw: Option<Draw>,
    /// Where the sequences of a ragged batch begin among its rows, and the number of rows; and the same of their
    /// contexts, or nothing without a context. Items attend within their sequence. The plan has one sample then.
    /// Without sequences each sample of the plan is one.
    pub sequences: Option<[&'a [usize]; 2]>,
    /// The segments of each [relation](Network::relation), in their order.
    pub relations: &'a [Segments],
}

impl Default for Scales<'_> {
    fn default() -> Self {
        Self {
            error: 1.0,
            gradient: 1.0,
            draw: None,
            sequences: None,
            relations: &[],
        }
    }
}

/// Memory that a host lends to a stage of a plan on the CPU: at least as many elements as [`Plan::room`] says. What
/// is in it before the run does not matter, but for what is kept.
#[derive(Debug)]
pub struct Room<'m, T> {
    /// Values that several stages need.
    pub kept: Kept<'m, T>,
    /// Values of the stage alone, and between runs of nobody.
    pub arena: &'m mut [T],
    /// What operators work in.
    pub workspace: &'m mut [T],
}

/// Values that several stages need.
#[derive(Debug)]
pub enum Kept<'m, T> {
    /// For a stage that writes some of them.
    Written(&'m mut [T]),
    /// For a stage that reads them only: the last one. Several runs may share them.
    Read(&'m [T]),
}

impl<T> Kept<'_, T> {
    fn len(&self) -> usize {
        match self {
            Self::Written(all) => all.len(),
            Self::Read(all) => all.len(),
        }
    }

    fn address(&mut self) -> *mut T {
        match self {
            Self::Written(all) => all.as_mut_ptr(),
            Self::Read(all) => all.as_ptr().cast_mut(),
        }
    }
}

/// The memory of a plan of one stage on the CPU. Runs after the first one take no memory for values; steps on tokens make small lists.
#[derive(Debug)]
pub struct Cpu<T> {
    /// The network of the plan. Each plan has its own network, which its copies share.
    network: Arc<Network>,
    arena: Vec<T>,
    workspace: Vec<T>,
    /// The places of outputs, which a run asks for when it begins. The list is kept, so that runs allocate nothing.
    outputs: Vec<Place<T>>,
}

/// The place of an output, which is one during a run alone, and its length.
#[derive(Debug)]
struct Place<T>(*mut T, usize);

impl<T> Place<T> {
    fn of(output: &mut [T]) -> Self {
        Self(output.as_mut_ptr(), output.len())
    }
}

// SAFETY: nothing reads the address outside of the run that wrote it, which has the output for itself.
unsafe impl<T: Send> Send for Place<T> {}
// SAFETY: the same holds.
unsafe impl<T: Sync> Sync for Place<T> {}

/// The places of a run.
struct Run<'a, T, S> {
    plan: &'a Plan,
    sources: &'a S,
    kept: *mut T,
    writes_kept: bool,
    arena: *mut T,
    /// The outputs of the stage by their numbers in the plan.
    own: Range<usize>,
    outputs: &'a [Place<T>],
    workspace: &'a mut [T],
    scales: Scales<'a>,
    settled: Option<&'a Settled<T>>,
}

/// The tensors of the host that a node reads, held while it runs.
type Held<'a, T, S> = [Option<<S as Sources<T>>::Guard<'a>>; MOST_INPUTS];

impl<T: Number> Cpu<T> {
    /// Takes the memory of a plan.
    ///
    /// # Errors
    /// [`Error::OtherPlan`] for a plan with other types than `T`, and for one of several stages;
    /// [`flashcliff::Error::OutOfMemory`] if there is no room.
    pub fn new(plan: &Plan) -> Result<Self, Error> {
        check_types::<T>(plan)?;
        if plan.stage_count() != 1 {
            let got = format!("{} stages", plan.stage_count());
            return Err(other_plan("one stage", &got));
        }
        let bytes = plan.stage_bytes(0) as u128;
        memory::check("the memory of a plan", bytes, |_| {
            "make the batch smaller".to_owned()
        })?;
        Ok(Self {
            network: Arc::clone(&plan.network),
            arena: vec![T::default(); plan.room::<T>(0)[1]],
            workspace: Vec::new(),
            outputs: Vec::new(),
        })
    }

    /// The numbers of elements of the arena and of the workspace, which grows with the threads.
    pub fn len(&self) -> [usize; 2] {
        [self.arena.len(), self.workspace.len()]
    }

    /// Runs a plan: the one that the memory was taken for. `outputs` has a vector or a slice for each output, of its
    /// length. `watch` hears of each call before it runs, by its number; if calls run chunk by chunk together, it hears
    /// of the first one only. After the last call it hears the number of calls.
    ///
    /// # Errors
    /// [`Error::Length`] for tensors of another length, [`Error::OtherPlan`]; errors of the sources and of operators.
    pub fn run<S: Sources<T>, O: AsMut<[T]>>(
        &mut self,
        plan: &Plan,
        sources: &S,
        outputs: &mut [O],
        scales: Scales<'_>,
        watch: &mut dyn FnMut(usize),
    ) -> Result<(), S::Error> {
        self.run_with(plan, None, sources, outputs, scales, watch)
    }

    /// Runs a plan as [`Self::run`] does, with parameters that were settled for it. The sources lend the parameters
    /// that operators and other nodes read.
    ///
    /// # Errors
    /// The errors of [`Self::run`]; [`Error::OtherPlan`] for what was settled for another plan.
    pub fn run_settled<S: Sources<T>, O: AsMut<[T]>>(
        &mut self,
        plan: &Plan,
        settled: &Settled<T>,
        sources: &S,
        outputs: &mut [O],
        scales: Scales<'_>,
        watch: &mut dyn FnMut(usize),
    ) -> Result<(), S::Error> {
        self.run_with(plan, Some(settled), sources, outputs, scales, watch)
    }

    fn run_with<S: Sources<T>, O: AsMut<[T]>>(
        &mut self,
        plan: &Plan,
        settled: Option<&Settled<T>>,
        sources: &S,
        outputs: &mut [O],
        scales: Scales<'_>,
        watch: &mut dyn FnMut(usize),
    ) -> Result<(), S::Error> {
        check_types::<T>(plan)?;
        settled.map_or(Ok(()), |own| own.check(plan))?;
        // Zeros that are written once lie elsewhere in other plans.
        if !Arc::ptr_eq(&self.network, &plan.network) {
            return Err(other_plan("this memory", "another one").into());
        }
        self.outputs.clear();
        let places = outputs.iter_mut().map(|output| Place::of(output.as_mut()));
        self.outputs.extend(places);
        let [_, _, workspace] = plan.room::<T>(0);
        if self.workspace.len() < workspace {
            // Without this line a vector that grows takes twice what it had.
            let more = workspace - self.workspace.len();
            self.workspace.reserve_exact(more);
            self.workspace.resize(workspace, T::default());
        }
        let room = Room {
            kept: Kept::Read(&[]),
            arena: &mut self.arena,
            workspace: &mut self.workspace,
        };
        let own = (&self.outputs[..], room, settled);
        run(plan, 0, sources, own, scales, watch)
    }
}

impl Plan {
    /// The elements of the memory of a stage on the CPU: what is kept, the arena, and the workspace, which grows with the threads.
    pub fn room<T: Number>(&self, stage: usize) -> [usize; 3] {
        let workspace = |call: usize| match (self.work(call), self.dims(call)) {
            (Work::Operator(operator), Some(dims)) if operator.outputs().len() > 1 => {
                operator.run_workspace_len::<T>(dims)
            }
            (Work::Operator(operator), Some(dims)) => {
                operator.workspace_len::<T>(dims, Pass::Forward)
            }
            (Work::Gradient(gradient), Some(dims)) => match &*gradient.of {
                Work::Operator(operator) => operator.workspace_len::<T>(dims, Pass::Backward),
                _ => 0,
            },
            _ => 0,
        };
        let bytes = [self.kept_bytes(), self.stage_bytes(stage)];
        let [kept, arena] = bytes.map(|bytes| bytes.div_ceil(T::DTYPE.bytes()));
        let workspaces = self.calls(stage).map(workspace);
        [kept, arena, workspaces.max().unwrap_or(0)]
    }

    /// Runs a stage on the CPU, in memory that the host lends. `outputs` has room for each output of the stage.
    /// `watch` hears of each call before it runs, by its number in the plan, as the watch of [`Cpu::run`] does. After
    /// the last call it hears the next number.
    ///
    /// # Errors
    /// [`Error::Length`] for tensors of another length and for memory that is too short; [`Error::OtherPlan`] for
    /// other types than `T`, for memory that is to be read and not written, and for a plan of one stage, whose memory
    /// is [`Cpu`]; errors of the sources and of operators.
    pub fn run_stage<T: Number, S: Sources<T>>(
        &self,
        stage: usize,
        sources: &S,
        (outputs, room): (&mut [&mut [T]], Room<'_, T>),
        scales: Scales<'_>,
        watch: &mut dyn FnMut(usize),
    ) -> Result<(), S::Error> {
        check_types::<T>(self)?;
        // Zeros that are written once need their own memory.
        if self.is_whole() {
            return Err(other_plan("several stages", "one stage").into());
        }
        let places = outputs.iter_mut().map(|output| Place::of(output));
        let places: Vec<Place<T>> = places.collect();
        run(self, stage, sources, (&places, room, None), scales, watch)
    }
}

/// Runs a stage, whose outputs have places.
fn run<T: Number, S: Sources<T>>(
    plan: &Plan,
    stage: usize,
    sources: &S,
    (outputs, mut room, settled): (&[Place<T>], Room<'_, T>, Option<&Settled<T>>),
    scales: Scales<'_>,
    watch: &mut dyn FnMut(usize),
) -> Result<(), S::Error> {
    let own = plan.stages[stage].outputs.clone();
    check_outputs(plan, own.clone(), outputs)?;
    check_room(plan, stage, &room)?;
    let mut run = Run {
        plan,
        sources,
        kept: room.kept.address(),
        writes_kept: matches!(room.kept, Kept::Written(_)),
        arena: room.arena.as_mut_ptr(),
        own,
        outputs,
        workspace: room.workspace,
        scales,
        settled,
    };
    run.check_sequences()?;
    let given = scales.relations.iter().map(Segments::sizes);
    relation::check(plan.network().relations(), plan.batch(), given)?;
    run.stage(stage, watch)
}

impl<'a, T: Number, S: Sources<T>> Run<'a, T, S> {
    fn stage(&mut self, stage: usize, watch: &mut dyn FnMut(usize)) -> Result<(), S::Error> {
        let Range {
            start: mut call,
            end,
        } = self.plan.calls(stage);
        while call < end {
            let parts = &self.plan.parts;
            let Some(part) = parts.iter().find(|part| part.calls.start == call) else {
                watch(call);
                self.call(call)?;
                call += 1;
                continue;
            };
            // Chunk by chunk all its calls run: it is one for the watch.
            watch(call);
            self.part(part)?;
            call = part.calls.end;
        }
        watch(end);
        Ok(())
    }

    fn call(&mut self, call: usize) -> Result<(), S::Error> {
        let plan = self.plan;
        // Values lie in one memory, steps do the work, or it was done before.
        if plan.is_idle(call) || self.settled.is_some_and(|own| own.has_done(call)) {
            return Ok(());
        }
        let node = plan.node(call);
        let held = self.hold(node)?;
        match &node.work {
            Work::Operator(operator) if operator.outputs().len() > 1 => {
                self.results(node, &held, operator)?;
            }
            Work::Operator(operator) => self.forward(node, &held, operator)?,
            Work::Gather(along) => {
                let (x, o) = (self.read(node, &held, 0)?, self.write(node.outputs[0])?);
                let inner = self.inner(node, along.relation.to);
                segments::gather(&self.related(*along, inner), x, o);
            }
            Work::SegmentSum(along) => {
                let (x, o) = (self.read(node, &held, 0)?, self.write(node.outputs[0])?);
                let inner = self.inner(node, along.relation.from);
                segments::segment_sum(&self.related(*along, inner), x, o);
            }
            Work::Join(sides) => self.join(node, &held, sides)?,
            Work::Split(sides) => self.split_along(node, &held, sides)?,
            Work::Gradient(gradient) => self.gradient(node, &held, gradient)?,
            Work::SquaredError => self.error(node, &held)?,
            Work::Concatenate(lens) => self.concatenate(node, &held, lens)?,
            Work::ExtendBlades { .. } => {
                let len = plan.spot(node.inputs[0])?.len();
                self.write(node.outputs[0])?[len..].fill(T::default());
            }
            work => {
                let second = node.inputs.get(1).map(|_| self.read(node, &held, 1));
                let inputs = [Some(self.read(node, &held, 0)?), second.transpose()?];
                let shape = &plan.spot(node.inputs[0])?.shape;
                functions::forward(work, inputs, shape, self.write(node.outputs[0])?);
            }
        }
        Ok(())
    }

    /// Locks the tensors of the host that a node reads.
    fn hold(&self, node: &Node) -> Result<Held<'a, T, S>, S::Error> {
        let mut held: Held<'a, T, S> = std::array::from_fn(|_| None);
        for (at, &input) in node.inputs.iter().enumerate() {
            // A second lock of one tensor could wait for a writer that waits for the first.
            if node.inputs[..at].contains(&input) {
                continue;
            }
            let (memory, network) = (self.plan.spot(input)?.memory, self.plan.network());
            let (lent, value) = match memory {
                Memory::Input(at) => (self.sources.input(at)?, network.inputs()[at]),
                Memory::Parameter(at) => (self.sources.parameter(at)?, network.parameters()[at]),
                Memory::Output(at) if !self.own.contains(&at) => {
                    (self.sources.output(at)?, self.plan.outputs()[at])
                }
                _ => continue,
            };
            // First blades of a value lie in it.
            check_len(self.plan.spot(value)?, lent.len())?;
            held[at] = Some(lent);
        }
        Ok(held)
    }

    /// The elements of an input of a node.
    fn read<'h>(&self, node: &Node, held: &'h Held<'a, T, S>, at: usize) -> Result<&'h [T], Error> {
        let spot = self.plan.spot(node.inputs[at])?;
        let first = node
            .inputs
            .iter()
            .position(|input| *input == node.inputs[at]);
        Ok(match &held[first.unwrap_or(at)] {
            Some(held) => &held[..spot.len()],
            // SAFETY: the plan gives separate places, inside the memory of this run, to values that are needed at the same time. So nothing
            // writes to this value while the node runs, except for a value that takes its place, which nothing reads then.
            None => unsafe { slice::from_raw_parts(self.address(spot), spot.len()) },
        })
    }

    /// The elements of a result of a node.
    #[allow(
        clippy::mut_from_ref,
        reason = "each result of a node has a place of its own"
    )]
    fn write<'h>(&self, value: Value) -> Result<&'h mut [T], Error> {
        let spot = self.plan.spot(value)?;
        let is_lent = match spot.memory {
            Memory::Arena { .. } => true,
            Memory::Kept { .. } => self.writes_kept,
            Memory::Output(at) => self.own.contains(&at),
            Memory::Input(_) | Memory::Parameter(_) | Memory::Local { .. } => false,
        };
        if !is_lent {
            return Err(other_plan(
                "memory that is read alone",
                "memory that is written",
            ));
        }
        // SAFETY: the same holds as in `read`, a node writes each of its results once, and the memory was lent for writing.
        Ok(unsafe { slice::from_raw_parts_mut(self.address(spot), spot.len()) })
    }

    fn address(&self, spot: &Spot) -> *mut T {
        match spot.memory {
            Memory::Arena { from, .. } => self.arena.wrapping_add(from / T::DTYPE.bytes()),
            Memory::Kept { from, .. } => self.kept.wrapping_add(from / T::DTYPE.bytes()),
            Memory::Output(at) => self.outputs[at - self.own.start].0,
            // Nodes do not write there, and reads go through what is held.
            Memory::Input(_) | Memory::Parameter(_) | Memory::Local { .. } => std::ptr::null_mut(),
        }
    }

    fn tensor<'h>(
        &self,
        node: &Node,
        held: &'h Held<'a, T, S>,
        at: usize,
    ) -> Result<Tensor<'h, T>, Error> {
        let spot = self.plan.spot(node.inputs[at])?;
        Ok(Tensor::new(self.read(node, held, at)?, &spot.shape)?)
    }

    /// The first inputs of a node as tensors.
    fn tensors<'h>(
        &self,
        node: &Node,
        held: &'h Held<'a, T, S>,
        count: usize,
    ) -> Result<[Tensor<'h, T>; MOST_INPUTS], Error> {
        let mut tensors = [self.tensor(node, held, 0)?; MOST_INPUTS];
        for (at, tensor) in tensors[..count].iter_mut().enumerate().skip(1) {
            *tensor = self.tensor(node, held, at)?;
        }
        Ok(tensors)
    }

    fn forward(
        &mut self,
        node: &Node,
        held: &Held<'a, T, S>,
        operator: &Operator,
    ) -> Result<(), Error> {
        let count = operator.inputs().len();
        let inputs = self.tensors(node, held, count)?;
        let shape = &self.plan.spot(node.outputs[0])?.shape;
        let output = TensorMut::new(self.write(node.outputs[0])?, shape)?;
        let saved = self.write(node.outputs[1])?;
        operator.forward(&inputs[..count], output, saved, self.workspace)?;
        Ok(())
    }

    /// All results of an operator.
    fn results(
        &mut self,
        node: &Node,
        held: &Held<'a, T, S>,
        operator: &Operator,
    ) -> Result<(), Error> {
        let count = operator.inputs().len();
        let inputs = self.tensors(node, held, count)?;
        let mut results: [Option<TensorMut<'_, T>>; MOST_INPUTS] = std::array::from_fn(|_| None);
        for (result, &output) in results.iter_mut().zip(&node.outputs) {
            let shape = &self.plan.spot(output)?.shape;
            *result = Some(TensorMut::new(self.write(output)?, shape)?);
        }
        let results = &mut results[..node.outputs.len()];
        operator.run(&inputs[..count], results, self.workspace)?;
        Ok(())
    }

    fn gradient(
        &mut self,
        node: &Node,
        held: &Held<'a, T, S>,
        gradient: &Gradient,
    ) -> Result<(), Error> {
        if let Work::Operator(operator) = &*gradient.of {
            return self.backward(node, held, gradient, operator);
        }
        if let Work::Concatenate(lens) = &*gradient.of {
            return self.split(node, held, (lens, &gradient.wanted));
        }
        let mut inputs = [None; 3];
        for (at, input) in inputs.iter_mut().enumerate().take(node.inputs.len()) {
            *input = Some(self.read(node, held, at)?);
        }
        for &output in &node.outputs {
            let grad = self.write(output)?;
            let shape = &self
                .plan
                .spot(*node.inputs.last().unwrap_or(&output))?
                .shape;
            functions::gradient(&gradient.of, inputs, shape, grad);
        }
        Ok(())
    }

    fn backward(
        &mut self,
        node: &Node,
        held: &Held<'a, T, S>,
        gradient: &Gradient,
        operator: &Operator,
    ) -> Result<(), Error> {
        let count = operator.inputs().len();
        let inputs = self.tensors(node, held, count)?;
        let output = self.tensor(node, held, count)?;
        let saved = self.read(node, held, count + 1)?;
        let grad_output = self.tensor(node, held, count + 2)?;
        let mut grads: [Option<TensorMut<'_, T>>; MOST_INPUTS] = std::array::from_fn(|_| None);
        let mut results = node.outputs.iter();
        for (grad, _) in grads
            .iter_mut()
            .zip(&gradient.wanted)
            .filter(|(_, wanted)| **wanted)
        {
            if let Some(&result) = results.next() {
                let shape = &self.plan.spot(result)?.shape;
                *grad = Some(TensorMut::new(self.write(result)?, shape)?);
            }
        }
        let (inputs, grads) = (&inputs[..count], &mut grads[..count]);
        let workspace = &mut self.workspace[..];
        match gradient.adds {
            false => operator.backward(inputs, output, saved, grad_output, grads, workspace)?,
            true => {
                operator.backward_adding(inputs, output, saved, grad_output, grads, workspace)?;
            }
        }
        Ok(())
    }

    /// The squared error, and its gradient.
    fn error(&mut self, node: &Node, held: &Held<'a, T, S>) -> Result<(), Error> {
        let (y, target) = (self.read(node, held, 0)?, self.read(node, held, 1)?);
        let has_gradient = self.plan.spots[node.outputs[1].0].is_some();
        let gradient = match has_gradient {
            true => self.write(node.outputs[1])?,
            false => &mut [],
        };
        let sum = functions::squared_error([y, target], self.scales, gradient);
        self.write(node.outputs[0])?[0] = T::from_f64(sum);
        Ok(())
    }
}

fn check_types<T: Number>(plan: &Plan) -> Result<(), Error> {
    match plan.types() == [T::DTYPE; 2] {
        true => Ok(()),
        false => {
            let [features, model] = plan.types();
            let got = format!("features of {features} and a model of {model}");
            Err(other_plan(&format!("{} on the CPU", T::DTYPE), &got))
        }
    }
}

fn other_plan(expected: &str, got: &str) -> Error {
    Error::OtherPlan {
        expected: expected.to_owned(),
        got: got.to_owned(),
    }
}

fn check_outputs<T>(plan: &Plan, own: Range<usize>, outputs: &[Place<T>]) -> Result<(), Error> {
    let expected = own.len();
    if outputs.len() != expected {
        return Err(Error::Count {
            node: "the run of a plan".to_owned(),
            expected: expected.to_string(),
            got: outputs.len(),
        });
    }
    for (&value, output) in plan.outputs()[own].iter().zip(outputs) {
        check_len(plan.spot(value)?, output.1)?;
    }
    Ok(())
}

/// Checks the length of the memory of a stage. Operators check the workspace.
fn check_room<T: Number>(plan: &Plan, stage: usize, room: &Room<'_, T>) -> Result<(), Error> {
    let needed = [plan.kept_bytes(), plan.stage_bytes(stage)];
    let lent = [("kept", room.kept.len()), ("arena", room.arena.len())];
    for (needed, (what, got)) in needed.into_iter().zip(lent) {
        let expected = needed.div_ceil(T::DTYPE.bytes());
        if got < expected {
            return Err(Error::Length {
                what,
                index: stage,
                expected,
                got,
            });
        }
    }
    Ok(())
}

/// Checks the length of memory that the host lends.
fn check_len(spot: &Spot, got: usize) -> Result<(), Error> {
    let (what, index) = match spot.memory {
        Memory::Input(at) => ("input", at),
        Memory::Parameter(at) => ("parameter", at),
        Memory::Output(at) => ("output", at),
        Memory::Kept { .. } => ("kept", 0),
        Memory::Arena { .. } | Memory::Local { .. } => ("arena", 0),
    };
    let expected = spot.len();
    match got == expected {
        true => Ok(()),
        false => Err(Error::Length {
            what,
            index,
            expected,
            got,
        }),
    }
}

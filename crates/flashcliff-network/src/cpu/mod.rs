//! Runs plans on the CPU.

mod functions;
mod sources;

use std::slice;
use std::sync::Arc;

use flashcliff::{Dims, Operator, Pass, Tensor, TensorMut};

use crate::Error;
use crate::network::{Network, Node, Value};
use crate::plan::{Memory, Plan, Spot};
use crate::work::{Gradient, MOST_INPUTS, Work};
pub use functions::Number;
pub use sources::{Slices, Sources};

/// Numbers of a run that are no tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scales {
    /// The factor of the sums of squared errors.
    pub error: f64,
    /// The factor of the gradients of squared errors, beside the first one.
    pub gradient: f64,
}

impl Default for Scales {
    fn default() -> Self {
        Self {
            error: 1.0,
            gradient: 1.0,
        }
    }
}

/// The memory of a plan on the CPU. Runs after the first one allocate nothing.
#[derive(Debug)]
pub struct Cpu<T> {
    /// The network of the plan. Each plan has one of its own, which its copies share.
    network: Arc<Network>,
    arena: Vec<T>,
    workspace: Vec<T>,
    /// The places of outputs, which a run asks for when it begins. The list is kept, so that runs allocate nothing.
    outputs: Vec<Place<T>>,
}

/// The place of an output, which is one during a run alone.
#[derive(Debug)]
struct Place<T>(*mut T);

// SAFETY: nothing reads the address outside of the run that wrote it, which has the output for itself.
unsafe impl<T: Send> Send for Place<T> {}
// SAFETY: the same holds.
unsafe impl<T: Sync> Sync for Place<T> {}

/// The places of a run.
struct Run<'a, T, S> {
    plan: &'a Plan,
    sources: &'a S,
    arena: *mut T,
    outputs: &'a [Place<T>],
    workspace: &'a mut Vec<T>,
    scales: Scales,
}

/// The tensors of the host that a node reads, held while it runs.
type Held<'a, T, S> = [Option<<S as Sources<T>>::Guard<'a>>; MOST_INPUTS];

impl<T: Number> Cpu<T> {
    /// Takes the memory of a plan.
    ///
    /// # Errors
    /// [`Error::OtherPlan`] for a plan with other types than `T`.
    pub fn new(plan: &Plan) -> Result<Self, Error> {
        check_types::<T>(plan)?;
        Ok(Self {
            network: Arc::clone(&plan.network),
            arena: vec![T::default(); plan.arena_bytes().div_ceil(T::DTYPE.bytes())],
            workspace: Vec::new(),
            outputs: Vec::new(),
        })
    }

    /// The elements of the memory: those of the arena, and those of the workspace, which grows with the threads.
    pub fn len(&self) -> [usize; 2] {
        [self.arena.len(), self.workspace.len()]
    }

    /// Runs a plan: the one that the memory was taken for. `outputs` has a vector for each output, of its length. `watch` hears of each call before it runs, by its
    /// number, and of the number of calls behind the last one.
    ///
    /// # Errors
    /// [`Error::Length`] for tensors of another length, [`Error::OtherPlan`]; errors of the sources and of operators.
    pub fn run<S: Sources<T>>(
        &mut self,
        plan: &Plan,
        sources: &S,
        outputs: &mut [Vec<T>],
        scales: Scales,
        watch: &mut dyn FnMut(usize),
    ) -> Result<(), S::Error> {
        check_types::<T>(plan)?;
        // Zeros that are written once lie elsewhere in other plans.
        if !Arc::ptr_eq(&self.network, &plan.network) {
            return Err(other_plan("this memory", "another one").into());
        }
        check_outputs(plan, outputs)?;
        self.outputs.clear();
        let places = outputs.iter_mut().map(|output| Place(output.as_mut_ptr()));
        self.outputs.extend(places);
        let mut run = Run {
            plan,
            sources,
            arena: self.arena.as_mut_ptr(),
            outputs: &self.outputs,
            workspace: &mut self.workspace,
            scales,
        };
        for call in 0..plan.call_count() {
            watch(call);
            run.call(call)?;
        }
        watch(plan.call_count());
        Ok(())
    }
}

impl<'a, T: Number, S: Sources<T>> Run<'a, T, S> {
    fn call(&mut self, call: usize) -> Result<(), S::Error> {
        let plan = self.plan;
        let (node, dims) = (plan.node(call), plan.dims(call));
        let held = self.hold(node)?;
        match (&node.work, dims) {
            (Work::Operator(operator), Some(dims)) => {
                self.forward(node, &held, operator, dims)?;
            }
            (Work::Gradient(gradient), _) => self.gradient(node, &held, gradient, dims)?,
            (Work::SquaredError, _) => self.error(node, &held)?,
            (Work::ExtendBlades { clears: true, .. }, _) => {
                let len = plan.spot(node.inputs[0])?.len();
                self.write(node.outputs[0])?[len..].fill(T::default());
            }
            // Nothing is to do: both values lie in one memory.
            (Work::FirstBlades(_) | Work::ExtendBlades { .. }, _) => {}
            (work, _) => {
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
            let (held, spot) = (&mut held[at], self.plan.spot(input)?);
            *held = match spot.memory {
                Memory::Input(at) => Some(self.sources.input(at)?),
                Memory::Parameter(at) => Some(self.sources.parameter(at)?),
                Memory::Output(_) | Memory::Arena { .. } => continue,
            };
            let got = held.as_ref().map_or(0, |held| held.len());
            check_len(spot, got)?;
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
            // SAFETY: the plan gives values that are needed at the same time places of their own, inside of the memory of this run, so
            // nothing writes to this one while the node runs, but for a value that takes its place, which nothing reads then.
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
        // SAFETY: the same holds as in `read`, and a node writes each of its results once.
        Ok(unsafe { slice::from_raw_parts_mut(self.address(spot), spot.len()) })
    }

    fn address(&self, spot: &Spot) -> *mut T {
        match spot.memory {
            Memory::Arena { from, .. } => self.arena.wrapping_add(from / T::DTYPE.bytes()),
            Memory::Output(at) => self.outputs[at].0,
            // Nodes do not write there, and reads go through what is held.
            Memory::Input(_) | Memory::Parameter(_) => std::ptr::null_mut(),
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
        dims: &Dims,
    ) -> Result<(), Error> {
        self.grow(operator.workspace_len::<T>(dims, Pass::Forward));
        let count = operator.inputs().len();
        let inputs = self.tensors(node, held, count)?;
        let shape = &self.plan.spot(node.outputs[0])?.shape;
        let output = TensorMut::new(self.write(node.outputs[0])?, shape)?;
        let saved = self.write(node.outputs[1])?;
        operator.forward(&inputs[..count], output, saved, self.workspace)?;
        Ok(())
    }

    /// Makes the workspace at least so long.
    fn grow(&mut self, len: usize) {
        if self.workspace.len() < len {
            // Without this line a vector that grows takes twice what it had.
            self.workspace.reserve_exact(len - self.workspace.len());
            self.workspace.resize(len, T::default());
        }
    }

    fn gradient(
        &mut self,
        node: &Node,
        held: &Held<'a, T, S>,
        gradient: &Gradient,
        dims: Option<&Dims>,
    ) -> Result<(), Error> {
        if let (Work::Operator(operator), Some(dims)) = (&*gradient.of, dims) {
            return self.backward(node, held, gradient, (operator, dims));
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
        (operator, dims): (&Operator, &Dims),
    ) -> Result<(), Error> {
        self.grow(operator.workspace_len::<T>(dims, Pass::Backward));
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

fn check_outputs<T>(plan: &Plan, outputs: &[Vec<T>]) -> Result<(), Error> {
    let expected = plan.outputs().len();
    if outputs.len() != expected {
        return Err(Error::Count {
            node: "the run of a plan".to_owned(),
            expected: expected.to_string(),
            got: outputs.len(),
        });
    }
    for (&value, output) in plan.outputs().iter().zip(outputs) {
        check_len(plan.spot(value)?, output.len())?;
    }
    Ok(())
}

/// Checks the length of memory that the host lends.
fn check_len(spot: &Spot, got: usize) -> Result<(), Error> {
    let (what, index) = match spot.memory {
        Memory::Input(at) => ("input", at),
        Memory::Parameter(at) => ("parameter", at),
        Memory::Output(at) => ("output", at),
        Memory::Arena { .. } => ("arena", 0),
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

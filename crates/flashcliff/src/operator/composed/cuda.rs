//! Graphs of operators on a GPU: derivatives of the operators with matrix products over channels.

use std::sync::{Arc, OnceLock};

use flashcliff_program::ir::Program;

use super::graph::{Form, Graph, Step, ValueId};
use super::memory::{self, Memory};
use super::{Composed as OnCpu, dims_of};
use crate::cuda::call::{Call, Gradients, Kept, NO_GRADIENTS};
use crate::cuda::device::Device;
use crate::cuda::dtype::Dtypes;
use crate::cuda::matmul::MatmulPrecision;
use crate::cuda::operator::{Given, Operator};
use crate::cuda::queue::Queue;
use crate::cuda::spans::WORKSPACE_ALIGNMENT;
use crate::cuda::tensor::{Scratch, Tensor, TensorMut};
use crate::cuda::{Address, OnCuda};
use crate::operator::{Dim, Dims, Kind, Pass, TensorSpec};
use crate::{Algebra, Dtype, Error};

/// A graph with its operators on a GPU.
#[derive(Clone, Debug)]
pub(crate) struct Composed {
    of: OnCpu,
    algebra: Algebra,
    device: Device,
    precision: MatmulPrecision,
    /// The operator of each step that is one: of lanes, of a form, the sum of two.
    operators: Arc<Vec<Option<Operator>>>,
    /// The gradient, once something has asked for it.
    gradient: Arc<OnceLock<Box<Composed>>>,
}

impl OnCpu {
    pub(crate) fn on_cuda(
        &self,
        operator: &crate::Operator,
        device: &Device,
    ) -> Result<Composed, Error> {
        Composed::new(self, operator.algebra(), device)
    }
}

impl Composed {
    fn new(of: &OnCpu, algebra: Algebra, device: &Device) -> Result<Self, Error> {
        let on_gpu = |step: &Step| {
            let operator = match step {
                Step::Lanes { of, .. } => {
                    crate::Operator::new("step", algebra, Kind::Lanes(of.clone()))
                }
                Step::Form(form) => (*form.of).clone(),
                Step::Add { .. } => sum_of_two(algebra),
                Step::Zero { .. } | Step::Copy { .. } => return Ok(None),
            };
            operator.on_cuda(device).map(Some)
        };
        let operators = of.graph.steps.iter().map(on_gpu);
        Ok(Self {
            of: of.clone(),
            algebra,
            device: device.clone(),
            precision: MatmulPrecision::default(),
            operators: Arc::new(operators.collect::<Result<_, _>>()?),
            gradient: Arc::default(),
        })
    }

    fn of_precision(&self, precision: MatmulPrecision) -> Self {
        let operators = self.operators.iter().cloned();
        let operators = operators.map(|of| of.map(|of| of.with_precision(precision)));
        Self {
            precision,
            operators: Arc::new(operators.collect()),
            gradient: Arc::default(),
            ..self.clone()
        }
    }

    /// The gradient of the graph.
    fn gradient(&self) -> Result<&Self, Error> {
        if let Some(made) = self.gradient.get() {
            return Ok(made);
        }
        let made = Self::new(&self.of.gradient(), self.algebra, &self.device)?;
        let made = made.of_precision(self.precision);
        Ok(self.gradient.get_or_init(|| Box::new(made)))
    }

    fn steps(&self) -> impl Iterator<Item = (&Step, Option<&Operator>)> {
        let operators = self.operators.iter().map(Option::as_ref);
        self.of.graph.steps.iter().zip(operators)
    }

    fn run_bytes(&self, dims: &Dims, dtypes: Dtypes) -> Result<usize, Error> {
        let mut scratch = 0;
        for (step, of) in self.steps() {
            scratch = scratch.max(self.scratch_bytes(step, of, dims, dtypes)?);
        }
        let memory = Memory::of(&self.of.graph, dims, alignment(dtypes), |_| false);
        Ok(memory.len * widest(dtypes) + scratch)
    }

    fn scratch_bytes(
        &self,
        step: &Step,
        of: Option<&Operator>,
        dims: &Dims,
        dtypes: Dtypes,
    ) -> Result<usize, Error> {
        let kept = Kept::default();
        match (step, of) {
            (Step::Form(form), Some(of)) => {
                let (pass, wanted) = pass_of(form);
                of.implementation
                    .workspace_bytes(dims, pass, dtypes, &wanted, &kept)
            }
            (Step::Lanes { .. }, Some(of)) => {
                let dims = dims_of_step(step, dims);
                of.implementation.workspace_bytes(
                    &dims,
                    Pass::Forward,
                    dtypes,
                    &NO_GRADIENTS,
                    &kept,
                )
            }
            _ => Ok(0),
        }
    }

    /// Writes the results that are wanted.
    ///
    /// # Safety
    /// The call is checked, its stream valid, and the context of its tensors current.
    unsafe fn run_on(
        &self,
        call: &Call,
        inputs: &[Address],
        results: &Gradients,
    ) -> Result<(), Error> {
        let graph = &*self.of.graph;
        let memory = Memory::of(graph, &call.dims, alignment(call.dtypes), |_| false);
        let width = widest(call.dtypes);
        let place = |offset: usize| call.workspace + (offset * width) as u64;
        let mut places: Vec<Address> = memory
            .offsets
            .iter()
            .map(|offset| offset.map_or(0, place))
            .collect();
        for ((value, _), &input) in graph.arguments.iter().zip(inputs) {
            places[*value] = input;
        }
        for ((value, _), result) in graph.results.iter().zip(results) {
            if let Some(result) = result {
                places[*value] = *result;
            }
        }
        let values = memory.len * width;
        let run = Run {
            graph,
            call,
            places,
            zeros: place(memory.zeros),
            scratch: call.workspace + values as u64,
            scratch_bytes: call.workspace_bytes.saturating_sub(values),
            ordinal: self.device.ordinal(),
        };
        // SAFETY: the caller promises it; zeros have their own part of the workspace.
        unsafe {
            call.zero(run.zeros, memory.zeros_len * width)?;
            let queue = Queue::from_raw(call.stream, self.device.context());
            for (step, of) in self.steps() {
                run.step(&queue, step, of)?;
            }
        }
        Ok(())
    }
}

impl OnCuda for Composed {
    fn prepare(&self, dims: &Dims, dtypes: Dtypes) -> Result<(), Error> {
        for (step, of) in self.steps() {
            if let Some(of) = of {
                of.prepare(&dims_of_step(step, dims), dtypes)?;
            }
        }
        Ok(())
    }

    fn workspace_bytes(
        &self,
        dims: &Dims,
        pass: Pass,
        dtypes: Dtypes,
        _: &Gradients,
        _: &Kept,
    ) -> Result<usize, Error> {
        match pass {
            Pass::Forward => self.run_bytes(dims, dtypes),
            Pass::Backward => self.gradient()?.run_bytes(dims, dtypes),
        }
    }

    unsafe fn run(&self, call: &Call, results: &Gradients) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        unsafe { self.run_on(call, &call.inputs, results) }
    }

    unsafe fn backward(&self, call: &Call) -> Result<(), Error> {
        let mut inputs = call.inputs[..self.of.graph.arguments.len()].to_vec();
        inputs.push(call.output);
        // SAFETY: the caller promises it.
        unsafe { self.gradient()?.run_on(call, &inputs, &call.grads) }
    }

    fn with_precision(&self, precision: MatmulPrecision) -> Option<Arc<dyn OnCuda>> {
        (self.precision != precision).then(|| Arc::new(self.of_precision(precision)) as _)
    }
}

/// A run of a graph. Every value has a place of its size.
struct Run<'a> {
    graph: &'a Graph,
    call: &'a Call,
    places: Vec<Address>,
    zeros: Address,
    scratch: Address,
    scratch_bytes: usize,
    ordinal: usize,
}

impl<'a> Run<'a> {
    /// # Safety
    /// What the step reads was launched before on the stream, which belongs to the current context.
    unsafe fn step(
        &self,
        queue: &Queue<'_>,
        step: &Step,
        of: Option<&Operator>,
    ) -> Result<(), Error> {
        let dims = dims_of_step(step, &self.call.dims);
        // SAFETY: the caller promises it.
        unsafe {
            match (step, of) {
                (
                    Step::Lanes {
                        inputs, outputs, ..
                    },
                    Some(of),
                ) => {
                    let (reads, writes) = (of.operator().inputs(), of.operator().outputs());
                    let mut given = Vec::with_capacity(inputs.len());
                    for (&input, spec) in inputs.iter().zip(reads) {
                        given.push(self.read(self.places[input], spec, &dims)?);
                    }
                    let mut made = Vec::with_capacity(outputs.len());
                    for (&output, spec) in outputs.iter().zip(writes) {
                        made.push(Some(self.write(output, spec, &dims)?));
                    }
                    of.run_on(queue, &given, &mut made, self.scratch())
                }
                (Step::Form(form), Some(of)) => self.form(queue, form, of),
                (Step::Add { of: values, output }, Some(of)) => {
                    self.add(queue, of, values, *output)
                }
                (Step::Zero { output }, _) => {
                    self.call.zero(self.places[*output], self.bytes(*output))
                }
                (Step::Copy { of, output }, _) => {
                    let (from, to) = (self.places[*of], self.places[*output]);
                    self.call.copy(to, from, self.bytes(*output))
                }
                _ => unreachable!("a step of an operator has one"),
            }
        }
    }

    /// # Safety
    /// The contract of [`Self::step`] holds.
    unsafe fn form(&self, queue: &Queue<'_>, form: &Form, of: &Operator) -> Result<(), Error> {
        let dims = &self.call.dims;
        let specs = of.operator().inputs();
        let mut others = form.others.iter().copied();
        let mut inputs = Vec::with_capacity(specs.len());
        // SAFETY: the caller promises it; zeros are at least as many as any operand has elements.
        unsafe {
            for (place, spec) in specs.iter().enumerate() {
                let from = match place == form.by {
                    true => self.zeros,
                    false => others.next().map_or(0, |value| self.places[value]),
                };
                inputs.push(self.read(from, spec, dims)?);
            }
            let spec = of.operator().output();
            let Some(gradient) = others.next() else {
                let output = self.write(form.output, spec, dims)?;
                return of.forward_on(queue, &inputs, output, None, self.scratch(), None);
            };
            let gradient = self.read(self.places[gradient], spec, dims)?;
            let given = Given::new(&inputs, self.read(self.zeros, spec, dims)?, None, gradient);
            let mut grads: Vec<Option<TensorMut<'_>>> = specs.iter().map(|_| None).collect();
            grads[form.by] = Some(self.write(form.output, &specs[form.by], dims)?);
            let done = of.backward_on(queue, &given, &mut grads, self.scratch());
            done.map(drop)
        }
    }

    /// # Safety
    /// The contract of [`Self::step`] holds.
    unsafe fn add(
        &self,
        queue: &Queue<'_>,
        of: &Operator,
        values: &[ValueId; 2],
        output: ValueId,
    ) -> Result<(), Error> {
        // Any value is a row of lanes with one component.
        let shape = [1, 1, memory::len(self.graph, output, &self.call.dims)];
        let dtype = self.dtype(output);
        // SAFETY: the caller promises it.
        unsafe {
            let read =
                |value: ValueId| Tensor::from_raw(self.places[value], dtype, &shape, self.ordinal);
            let given = [read(values[0])?, read(values[1])?];
            let to = TensorMut::from_raw(self.places[output], dtype, &shape, self.ordinal)?;
            of.run_on(queue, &given, &mut [Some(to)], None)
        }
    }

    /// # Safety
    /// The tensor is at the address.
    unsafe fn read(
        &self,
        address: Address,
        spec: &TensorSpec,
        dims: &Dims,
    ) -> Result<Tensor<'a>, Error> {
        let dtype = self.call.dtypes.of(spec);
        // SAFETY: the caller promises it.
        unsafe { Tensor::from_raw(address, dtype, &spec.shape(dims), self.ordinal) }
    }

    /// # Safety
    /// Nothing else uses the place of the value.
    unsafe fn write(
        &self,
        value: ValueId,
        spec: &TensorSpec,
        dims: &Dims,
    ) -> Result<TensorMut<'a>, Error> {
        let dtype = self.call.dtypes.of(spec);
        // SAFETY: the caller promises it.
        unsafe { TensorMut::from_raw(self.places[value], dtype, &spec.shape(dims), self.ordinal) }
    }

    fn scratch(&self) -> Option<Scratch<'a>> {
        // SAFETY: the end of the workspace is that of the step that runs.
        let scratch =
            || unsafe { Scratch::from_raw(self.scratch, self.scratch_bytes, self.ordinal) };
        (self.scratch_bytes > 0).then(scratch)
    }

    fn dtype(&self, value: ValueId) -> Dtype {
        match self.graph.values[value].contains(&Dim::Batch) {
            true => self.call.dtypes.lanes,
            false => self.call.dtypes.params,
        }
    }

    fn bytes(&self, value: ValueId) -> usize {
        memory::len(self.graph, value, &self.call.dims) * self.dtype(value).bytes()
    }
}

/// The sum of two tensors of lanes with one component, by which a GPU adds values.
fn sum_of_two(algebra: Algebra) -> crate::Operator {
    let mut program = Program::new("sum_of_two", "o = a + b");
    let one = || vec!["1".to_owned()];
    let (a, b) = (program.input("a", one())[0], program.input("b", one())[0]);
    let sum = program.graph.add(a, b);
    program.output("o", one(), vec![sum]);
    crate::Operator::new(
        "sum_of_two",
        algebra,
        Kind::Lanes(super::lane(algebra, program)),
    )
}

fn dims_of_step(step: &Step, dims: &Dims) -> Dims {
    match step {
        Step::Lanes { side, .. } => dims_of(*side, dims),
        _ => *dims,
    }
}

/// The pass of an operator that computes a form, and the gradient that it writes.
fn pass_of(form: &Form) -> (Pass, Gradients) {
    let mut wanted = NO_GRADIENTS;
    if form.by == form.of.inputs().len() {
        return (Pass::Forward, wanted);
    }
    wanted[form.by] = Some(0);
    (Pass::Backward, wanted)
}

/// The bytes of the wider of the two types.
fn widest(dtypes: Dtypes) -> usize {
    dtypes.lanes.bytes().max(dtypes.params.bytes())
}

/// The elements to whose multiples places begin.
fn alignment(dtypes: Dtypes) -> usize {
    WORKSPACE_ALIGNMENT / widest(dtypes)
}

//! Runs a graph on the CPU.

use std::slice;

use super::Graph;
use super::graph::{Form, Side, Step, ValueId};
use super::memory::{self, Memory};
use crate::operator::{Dims, Implementation, Pass, TensorSpec};
use crate::tensor::{Tensor, TensorMut};
use crate::{Element, Error, Tier, sizes};

/// The elements to whose multiples places begin: a line of the cache.
const ALIGNMENT: usize = 16;

/// The sizes of a step on the lanes of one side.
pub(crate) fn dims_of(side: Side, dims: &Dims) -> Dims {
    let channels = match side {
        Side::In => dims.in_channels,
        Side::Out => dims.out_channels,
    };
    Dims {
        batch: dims.batch,
        in_channels: channels,
        out_channels: channels,
        scalar_channels: dims.scalar_channels,
    }
}

/// The elements of workspace of a run.
pub(super) fn workspace_len<T: Element>(graph: &Graph, tier: Tier, dims: &Dims) -> usize {
    // Results that are not wanted lie in the workspace.
    let memory = Memory::of(graph, dims, ALIGNMENT, |_| false);
    sizes::sum([memory.len, scratch_len::<T>(graph, tier, dims)])
}

/// The most elements that a step needs besides values.
fn scratch_len<T: Element>(graph: &Graph, tier: Tier, dims: &Dims) -> usize {
    let of_step = |step: &Step| match step {
        Step::Lanes { of, side, .. } => {
            of.workspace_len::<T>(tier, &dims_of(*side, dims), Pass::Forward)
        }
        Step::Form(Form { of, by, .. }) => {
            let pass = match *by == of.inputs().len() {
                true => Pass::Forward,
                false => Pass::Backward,
            };
            of.workspace_len::<T>(dims, pass)
        }
        Step::Add { .. } | Step::Zero { .. } | Step::Copy { .. } => 0,
    };
    graph.steps.iter().map(of_step).max().unwrap_or(0)
}

/// Computes the results that are wanted.
pub(super) fn run<T: Element>(
    graph: &Graph,
    tier: Tier,
    dims: &Dims,
    inputs: &[Tensor<'_, T>],
    outputs: &mut [Option<&mut [T]>],
    workspace: &mut [T],
) -> Result<(), Error> {
    let memory = Memory::of(graph, dims, ALIGNMENT, |_| false);
    let (values, scratch) = workspace.split_at_mut(memory.len);
    values[memory.zeros..memory.zeros + memory.zeros_len].fill(T::default());
    let base = values.as_mut_ptr();
    let offset = |offset: &Option<usize>| match offset {
        Some(offset) => base.wrapping_add(*offset),
        None => std::ptr::null_mut(),
    };
    let mut places: Vec<*mut T> = memory.offsets.iter().map(offset).collect();
    for ((value, _), input) in graph.arguments.iter().zip(inputs) {
        // Arguments are only read.
        places[*value] = input.data().as_ptr().cast_mut();
    }
    for ((value, _), output) in graph.results.iter().zip(outputs) {
        if let Some(output) = output {
            places[*value] = output.as_mut_ptr();
        }
    }
    let mut run = Run {
        graph,
        tier,
        dims,
        places,
        zeros: base.wrapping_add(memory.zeros),
        scratch,
    };
    // SAFETY: each value has a place of its size. Arguments and results have the places of the caller, whose shapes were checked. Any other
    // value has one in the workspace, where no two that are needed at once overlap.
    graph
        .steps
        .iter()
        .try_for_each(|step| unsafe { run.step(step) })
}

struct Run<'a, T> {
    graph: &'a Graph,
    tier: Tier,
    dims: &'a Dims,
    places: Vec<*mut T>,
    zeros: *mut T,
    scratch: &'a mut [T],
}

impl<'a, T: Element> Run<'a, T> {
    fn len(&self, value: ValueId) -> usize {
        memory::len(self.graph, value, self.dims)
    }

    /// # Safety
    /// The place of the value holds it, and nothing writes it while the slice lives.
    unsafe fn read(&self, value: ValueId) -> &'a [T] {
        // SAFETY: the caller promises it.
        unsafe { slice::from_raw_parts(self.places[value], self.len(value)) }
    }

    /// # Safety
    /// The place of the value is its own while the slice lives.
    unsafe fn write(&self, value: ValueId) -> &'a mut [T] {
        // SAFETY: the caller promises it.
        unsafe { slice::from_raw_parts_mut(self.places[value], self.len(value)) }
    }

    /// # Safety
    /// Every value that the step reads has been computed, and what it writes has its own places.
    unsafe fn step(&mut self, step: &Step) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        unsafe {
            match step {
                Step::Lanes {
                    of,
                    side,
                    inputs,
                    outputs,
                } => {
                    let dims = dims_of(*side, self.dims);
                    let (specs, _) = of.specs();
                    let mut given = Vec::with_capacity(inputs.len());
                    for (&input, spec) in inputs.iter().zip(&specs) {
                        given.push(Tensor::new(self.read(input), &spec.shape(&dims))?);
                    }
                    let outputs = outputs.iter().map(|&output| Some(self.write(output)));
                    let mut outputs: Vec<Option<&mut [T]>> = outputs.collect();
                    of.run(
                        self.tier,
                        &dims,
                        &given,
                        &mut outputs,
                        &mut [],
                        self.scratch,
                    )?;
                }
                Step::Form(form) => self.form(form)?,
                Step::Add { of, output } => {
                    let [a, b] = of.map(|value| self.read(value));
                    let output = self.write(*output);
                    for ((output, &a), &b) in output.iter_mut().zip(a).zip(b) {
                        *output = a;
                        *output += b;
                    }
                }
                Step::Zero { output } => self.write(*output).fill(T::default()),
                Step::Copy { of, output } => {
                    let of = self.read(*of);
                    self.write(*output).copy_from_slice(of);
                }
            }
        }
        Ok(())
    }

    /// # Safety
    /// The contract of [`Self::step`] holds.
    unsafe fn form(&mut self, form: &Form) -> Result<(), Error> {
        let (of, count) = (&*form.of, form.of.inputs().len());
        let shape = |spec: &TensorSpec| spec.shape(self.dims);
        // SAFETY: the caller promises it; zeros are at least as many as any operand has elements.
        unsafe {
            if form.by == count {
                let mut inputs = Vec::with_capacity(count);
                for (&value, spec) in form.others.iter().zip(of.inputs()) {
                    inputs.push(Tensor::new(self.read(value), &shape(spec))?);
                }
                let output = TensorMut::new(self.write(form.output), &shape(of.output()))?;
                return of.forward(&inputs, output, &mut [], self.scratch);
            }
            let zeros = |spec: &TensorSpec| {
                let shape = shape(spec);
                let zeros = slice::from_raw_parts(self.zeros, shape.iter().product());
                Tensor::new(zeros, &shape)
            };
            let [others @ .., gradient] = &form.others[..] else {
                unreachable!("a form has a place for the gradient of the output");
            };
            let mut others = others.iter();
            let mut inputs = Vec::with_capacity(count);
            for (place, spec) in of.inputs().iter().enumerate() {
                inputs.push(match others.as_slice().first() {
                    Some(&value) if place != form.by => {
                        others.next();
                        Tensor::new(self.read(value), &shape(spec))?
                    }
                    _ => zeros(spec)?,
                });
            }
            let output = zeros(of.output())?;
            let gradient = Tensor::new(self.read(*gradient), &shape(of.output()))?;
            let mut grads: Vec<Option<TensorMut<'_, T>>> = (0..count).map(|_| None).collect();
            let own = shape(&of.inputs()[form.by]);
            grads[form.by] = Some(TensorMut::new(self.write(form.output), &own)?);
            of.backward(&inputs, output, &[], gradient, &mut grads, self.scratch)
        }
    }
}

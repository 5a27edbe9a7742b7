//! Steps with parameters of a plan for a GPU share launches: their matrices are made of parameters by one launch, and
//! gradients of parameters are written by another one. The matrix of gains is diagonal: the factors of a row. That of
//! norms and of operators of programs are the parameters, one after another.
//!
//! ```text
//! each by itself:  parameters -> concatenate -> matrix -> product
//!                  product -> gradient of the matrix -> gradient of what is joined -> gradients of parameters
//! together:        parameters -> all matrices -> products
//!                  products -> gradients of all matrices -> gradients of parameters
//! ```
//! So nothing joins parameters, and the gradient of what would be joined has the elements of the gradient of the
//! matrix. Where another call reads one of both, or where gradients of a parameter are added up, steps stay by
//! themselves.
//!
//! On a CPU there are no matrices, and linear maps of tokens read the parameters of one layer where the host has them: nothing joins these
//! either.
//!
//! A matrix has memory from the launch on that makes it, and its gradient up to the launch that reads it. So that
//! both stay small beside tokens, a launch serves neighbouring steps up to [`MOST_BYTES`].

use std::ops::Range;

use super::Plan;
#[cfg(any(feature = "cuda", test))]
use super::{Memory, Use};
use crate::network::{Maker, Network, Value};
use crate::tokens::Step;
use crate::work::{Gradient, Work};

/// The most bytes of the matrices of a launch, unless one alone has more.
const MOST_BYTES: usize = 32 << 20;

/// The matrices of steps that are made together, and their gradients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gathered {
    /// In the order of calls.
    pub(crate) matrices: Vec<Matrix>,
    pub(crate) gradients: Vec<MatrixGradient>,
    /// The matrices, and the gradients, of each launch.
    made: Vec<Range<usize>>,
    read: Vec<Range<usize>>,
    /// For each value whether it is not there: joined parameters, each of which is read where the host has it.
    absent: Vec<bool>,
    /// For each call whether it has nothing to do.
    idle: Vec<bool>,
}

/// A matrix of parameters.
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    /// The call of the step.
    pub(crate) call: usize,
    /// The matrix, which the step keeps.
    pub(crate) value: Value,
    /// The parameters, in the order in which the step takes their elements.
    #[cfg_attr(
        not(any(feature = "cuda", test)),
        expect(dead_code, reason = "read on GPUs only")
    )]
    pub(crate) parts: Vec<Value>,
}

/// The gradient of a matrix of parameters.
#[derive(Clone, Debug)]
pub(crate) struct MatrixGradient {
    /// The call that computes it.
    pub(crate) call: usize,
    /// The gradient, in place of that of all parameters of the step.
    pub(crate) value: Value,
    /// For each parameter with a gradient: its first element among the elements of all, their number, and the gradient.
    pub(crate) parts: Vec<(usize, usize, Value)>,
}

impl Network {
    /// The parameters whose elements a value has, one parameter after another; `None` for all other values.
    pub(crate) fn parts(&self, value: Value) -> Option<&[Value]> {
        let is_parameter = |own: &Value| matches!(self.values[own.0].maker, Maker::Parameter(_));
        match self.values[value.0].maker {
            Maker::Input(_) => None,
            Maker::Parameter(at) => self.parameters.get(at..=at),
            Maker::Node(node) => {
                let node = &self.nodes[node];
                let joins = matches!(node.work, Work::Concatenate(_));
                (joins && node.inputs.iter().all(is_parameter)).then_some(&node.inputs[..])
            }
        }
    }
}

impl Gathered {
    /// Nothing that was found in a plan.
    fn of_none(plan: &Plan) -> Self {
        Self {
            absent: vec![false; plan.spots.len()],
            idle: vec![false; plan.call_count()],
            ..Self::default()
        }
    }

    /// Finds joined parameters of a plan for the CPU, whose calls are there, that linear maps of tokens alone read,
    /// and gradients of such: the maps read and write each by itself.
    pub(super) fn apart(plan: &Plan) -> Self {
        let mut own = Self::of_none(plan);
        let readers = Readers::of(plan);
        for call in 0..plan.call_count() {
            let node = plan.node(call);
            match &node.work {
                Work::Concatenate(lens) if readers.read_kinds(plan, node.outputs[0], lens) => {
                    own.absent[node.outputs[0].0] = true;
                    own.idle[call] = true;
                }
                Work::Gradient(gradient) => {
                    let found = readers.gradient(plan, call, gradient);
                    if let Some((found, split)) = found
                        && let Work::Gradient(parting) = plan.work(split)
                        && let Work::Concatenate(lens) = &*parting.of
                        && has_kinds(&gradient.of, lens)
                    {
                        own.absent[found.value.0] = true;
                        own.idle[split] = true;
                        own.gradients.push(found);
                    }
                }
                _ => {}
            }
        }
        own
    }

    /// Finds the steps of a plan, whose calls are there. The shapes of gradients become the shapes of matrices, which
    /// have elements of so many bytes.
    pub(super) fn new(plan: &Plan, shapes: &mut [Vec<usize>], element: usize) -> Self {
        let mut own = Self::of_none(plan);
        let readers = Readers::of(plan);
        for call in 0..plan.call_count() {
            let node = plan.node(call);
            match &node.work {
                Work::Step(step) if has_matrix(step) => {
                    let parts = node.inputs.get(1).and_then(|&own| plan.network.parts(own));
                    own.matrices.extend(parts.map(|parts| Matrix {
                        call,
                        value: node.outputs[1],
                        parts: parts.to_vec(),
                    }));
                }
                Work::Concatenate(_) if readers.make_matrices(plan, node.outputs[0]) => {
                    own.absent[node.outputs[0].0] = true;
                    own.idle[call] = true;
                }
                Work::Gradient(gradient) => {
                    let found = readers.gradient(plan, call, gradient);
                    if let Some((found, split)) = found {
                        // The matrix comes after the tokens and the parameters.
                        let matrix = node.inputs[2];
                        shapes[found.value.0] = shapes[matrix.0].clone();
                        own.gradients.push(found);
                        own.idle[split] = true;
                    }
                }
                _ => {}
            }
        }
        let bytes = |value: Value| shapes[value.0].iter().product::<usize>() * element;
        let launch = |call: usize, value| (plan.stage_of(call), bytes(value));
        own.made = together(own.matrices.iter().map(|own| launch(own.call, own.value)));
        own.read = together(own.gradients.iter().map(|own| launch(own.call, own.value)));
        own
    }

    /// Whether a call has nothing to do.
    pub(super) fn is_idle(&self, call: usize) -> bool {
        self.idle.get(call).copied().unwrap_or(false)
    }

    /// Whether a value is not there, because nothing reads it.
    pub(crate) fn is_absent(&self, value: Value) -> bool {
        self.absent.get(value.0).copied().unwrap_or(false)
    }

    /// The gradient of parameters that a call computes, by its number.
    pub(crate) fn gradient_of(&self, call: usize) -> Option<usize> {
        let of = self.gradients.binary_search_by_key(&call, |own| own.call);
        of.ok()
    }

    /// The matrices that are made in front of a call.
    pub(super) fn matrices_before(&self, call: usize) -> impl Iterator<Item = Value> {
        let first = |range: &Range<usize>| self.matrices[range.start].call;
        let at = self.made.binary_search_by_key(&call, first).ok();
        let range = at.map_or(0..0, |at| self.made[at].clone());
        self.matrices[range].iter().map(|own| own.value)
    }

    /// For each matrix the call in front of which it is made, and for each gradient the call after which it is read.
    pub(super) fn lives(&self) -> impl Iterator<Item = (Value, usize)> {
        let made = self.made.iter().flat_map(|range| {
            let call = self.matrices[range.start].call;
            let own = self.matrices[range.clone()].iter();
            own.map(move |own| (own.value, call))
        });
        let read = self.read.iter().flat_map(|range| {
            let call = self.gradients[range.end - 1].call;
            let own = self.gradients[range.clone()].iter();
            own.map(move |own| (own.value, call))
        });
        made.chain(read)
    }
}

#[cfg(any(feature = "cuda", test))]
impl Gathered {
    /// The matrices that are made in front of a call.
    pub(crate) fn made_before(&self, call: usize) -> Option<Range<usize>> {
        let first = |range: &Range<usize>| self.matrices[range.start].call;
        let at = self.made.binary_search_by_key(&call, first).ok()?;
        Some(self.made[at].clone())
    }

    /// Whether the gradients of matrices so far are read behind a call.
    pub(crate) fn is_read_behind(&self, call: usize) -> bool {
        let last = |range: &Range<usize>| self.gradients[range.end - 1].call;
        self.read.binary_search_by_key(&call, last).is_ok()
    }

    /// The first of the gradients of a stage, as an empty range.
    pub(crate) fn gradients_from(&self, plan: &Plan, stage: usize) -> Range<usize> {
        let first = plan.calls(stage).start;
        let at = self.gradients.partition_point(|own| own.call < first);
        at..at
    }

    /// The matrix of a call that takes parameters by themselves.
    pub(crate) fn matrix_of(&self, call: usize) -> Option<&Matrix> {
        let of = self.matrices.binary_search_by_key(&call, |own| own.call);
        of.ok().map(|at| &self.matrices[at])
    }
}

#[cfg(any(feature = "cuda", test))]
impl Plan {
    /// The memory that is written when some matrices are made.
    pub(crate) fn uses_of_matrices(&self, matrices: Range<usize>) -> Vec<(Memory, Use)> {
        let matrices = self.gathered.matrices[matrices].iter();
        let spots = matrices.filter_map(|own| self.spots[own.value.0].as_ref());
        spots.map(|spot| (spot.memory, Use::Written)).collect()
    }
}

/// The calls that read each value.
struct Readers(Vec<Vec<usize>>);

impl Readers {
    fn of(plan: &Plan) -> Self {
        let mut readers = vec![Vec::new(); plan.spots.len()];
        for call in 0..plan.call_count() {
            for input in plan.reads(call) {
                readers[input.0].push(call);
            }
        }
        Self(readers)
    }

    /// Whether steps that make a matrix of parameters, and their gradients, are all that reads joined parameters.
    fn make_matrices(&self, plan: &Plan, joined: Value) -> bool {
        let makes_matrix =
            |call: &usize| matches!(plan.work(*call).own(), Work::Step(step) if has_matrix(step));
        plan.network.parts(joined).is_some()
            && !plan.outputs.contains(&joined)
            && self.0[joined.0].iter().all(makes_matrix)
    }

    /// Whether linear maps of tokens, and their gradients, are all that reads joined parameters, of these lengths: one parameter of each
    /// kind.
    fn read_kinds(&self, plan: &Plan, joined: Value, lens: &[usize]) -> bool {
        plan.network.parts(joined).is_some()
            && !plan.outputs.contains(&joined)
            && self.0[joined.0]
                .iter()
                .all(|&call| has_kinds(plan.work(call).own(), lens))
    }

    /// The gradient that a call computes, and the call that parts it: if it is that of the parameters of a matrix,
    /// and nothing but outputs is made of it, which nothing reads.
    fn gradient(
        &self,
        plan: &Plan,
        call: usize,
        gradient: &Gradient,
    ) -> Option<(MatrixGradient, usize)> {
        let node = plan.node(call);
        let is_of_step = matches!(&*gradient.of, Work::Step(step) if has_matrix(step));
        if !is_of_step || gradient.wanted.get(1) != Some(&true) {
            return None;
        }
        // Parameters are the last input.
        let &value = node.outputs.last()?;
        let &[split] = &self.0[value.0][..] else {
            return None;
        };
        let (Work::Gradient(parting), results) = (plan.work(split), plan.writes(split)) else {
            return None;
        };
        let Work::Concatenate(lens) = &*parting.of else {
            return None;
        };
        let is_end = |own: &Value| plan.outputs.contains(own) && self.0[own.0].is_empty();
        let may = plan.stage_of(split) == plan.stage_of(call)
            && !plan.outputs.contains(&value)
            && results.iter().all(is_end);
        let (mut parts, mut results, mut first) = (Vec::new(), results.iter(), 0);
        for (&len, &wanted) in lens.iter().zip(&parting.wanted) {
            if wanted {
                parts.push((first, len, *results.next()?));
            }
            first += len;
        }
        may.then_some((MatrixGradient { call, value, parts }, split))
    }
}

/// Whether parameters of these lengths are the parameters of a linear map of tokens, one of each kind.
fn has_kinds(work: &Work, lens: &[usize]) -> bool {
    match work {
        Work::Step(step) => match &**step {
            Step::Linear(step) => step.lens().iter().filter(|&&len| len > 0).eq(lens),
            _ => false,
        },
        _ => false,
    }
}

/// Whether a step keeps a matrix of its parameters, and nothing else. Its inputs are tokens and, if there are some, parameters.
fn has_matrix(step: &Step) -> bool {
    match step {
        Step::Linear(_) | Step::Gains(_) => true,
        Step::Lanes(step) => step.parameter_len() > 0,
        _ => false,
    }
}

/// Neighbours of one stage with at most [`MOST_BYTES`], from the stage and the bytes of each.
fn together(all: impl Iterator<Item = (usize, usize)>) -> Vec<Range<usize>> {
    let mut launches: Vec<Range<usize>> = Vec::new();
    let mut last = (0, 0);
    for (at, (stage, bytes)) in all.enumerate() {
        let sum = bytes.saturating_add(last.1);
        match launches.last_mut() {
            Some(launch) if last.0 == stage && sum <= MOST_BYTES => {
                launch.end = at + 1;
                last.1 = sum;
            }
            _ => {
                launches.push(at..at + 1);
                last = (stage, bytes);
            }
        }
    }
    launches
}

#[cfg(test)]
pub(super) mod tests;

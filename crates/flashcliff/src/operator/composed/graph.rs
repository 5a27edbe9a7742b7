//! A graph: values, and the steps that compute them, in order.

use std::sync::Arc;

use super::super::lane::LaneOperator;
use super::super::{Derivative, Dim, Implementation, Operator, TensorSpec};
use crate::kept;

/// A value of a graph, by its number.
pub(crate) type ValueId = usize;

/// The channels that the lanes of a step have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The channels of the input.
    In,
    /// The channels of the output.
    Out,
}

impl Side {
    /// The axis of a lane operator with the channels of this side.
    fn of(self, dim: Dim) -> Dim {
        match (self, dim) {
            (Self::Out, Dim::In) => Dim::Out,
            (_, other) => other,
        }
    }
}

/// A step of a graph. It writes values that no step before it has written.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// An operator of lanes.
    Lanes {
        of: LaneOperator,
        side: Side,
        inputs: Vec<ValueId>,
        outputs: Vec<ValueId>,
    },
    /// One of the functions of a multilinear form.
    Form(Form),
    /// The sum of two values.
    Add { of: [ValueId; 2], output: ValueId },
    /// A value of zeros.
    Zero { output: ValueId },
    /// A copy of a value.
    Copy { of: ValueId, output: ValueId },
}

/// A function of a multilinear form, `sum of g o(a, b, ...)`, where `o` is linear in each input of an operator.
///
/// The places of the form are the inputs of the operator, then the gradient of its output. Its derivative by one place is a function of the
/// values at the others: by the last place it is the output of the operator, by another the gradient of that input. All of them are
/// functions of the same form, so derivatives of every order are.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    pub(crate) of: Arc<Operator>,
    /// The place by which the form is differentiated.
    pub(crate) by: usize,
    /// The values at the other places, in order.
    pub(crate) others: Vec<ValueId>,
    pub(crate) output: ValueId,
}

impl Form {
    /// The place of each of the other values.
    fn places(&self) -> impl Iterator<Item = usize> + use<> {
        let (by, count) = (self.by, self.others.len() + 1);
        (0..count).filter(move |place| *place != by)
    }

    /// The function that gives the gradient by the value at a place, from the gradient of this one's result.
    fn by(&self, place: usize, gradient: ValueId, output: ValueId) -> Self {
        let values = self.places().zip(self.others.iter().copied());
        let mut at: Vec<(usize, ValueId)> = values.filter(|(at, _)| *at != place).collect();
        at.push((self.by, gradient));
        at.sort_unstable();
        Self {
            of: Arc::clone(&self.of),
            by: place,
            others: at.into_iter().map(|(_, value)| value).collect(),
            output,
        }
    }
}

impl Step {
    pub(crate) fn inputs(&self) -> Vec<ValueId> {
        match self {
            Self::Lanes { inputs, .. } => inputs.clone(),
            Self::Form(form) => form.others.clone(),
            Self::Add { of, .. } => of.to_vec(),
            Self::Zero { .. } => Vec::new(),
            Self::Copy { of, .. } => vec![*of],
        }
    }

    pub(crate) fn outputs(&self) -> Vec<ValueId> {
        match self {
            Self::Lanes { outputs, .. } => outputs.clone(),
            Self::Form(Form { output, .. })
            | Self::Add { output, .. }
            | Self::Zero { output }
            | Self::Copy { output, .. } => vec![*output],
        }
    }
}

/// Values and steps. Arguments are values that no step writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    /// The axes of each value.
    pub(crate) values: Vec<Vec<Dim>>,
    pub(crate) steps: Vec<Step>,
    pub(crate) arguments: Vec<(ValueId, TensorSpec)>,
    pub(crate) results: Vec<(ValueId, TensorSpec)>,
}

impl Graph {
    pub(crate) fn argument(&mut self, spec: &TensorSpec) -> ValueId {
        let value = self.value(&spec.dims);
        self.arguments.push((value, spec.clone()));
        value
    }

    pub(crate) fn result(&mut self, value: ValueId, spec: TensorSpec) {
        self.results.push((value, spec));
    }

    fn value(&mut self, dims: &[Dim]) -> ValueId {
        self.values.push(dims.to_vec());
        self.values.len() - 1
    }

    /// Adds an operator of lanes, and returns its results. A result that is a copy of an input is that input, as the gradient of what a
    /// bias was added to is the gradient of the sum.
    pub(crate) fn lanes(
        &mut self,
        of: LaneOperator,
        side: Side,
        inputs: Vec<ValueId>,
    ) -> Vec<ValueId> {
        let (_, specs) = of.specs();
        let axes = |spec: &TensorSpec| spec.dims.iter().map(|&dim| side.of(dim)).collect();
        let specs: Vec<Vec<Dim>> = specs.iter().map(axes).collect();
        let outputs: Vec<ValueId> = specs.iter().map(|dims| self.value(dims)).collect();
        let copied = of.copied().into_iter().zip(&outputs);
        let results = copied
            .map(|(input, &output)| input.map_or(output, |input| inputs[input]))
            .collect();
        self.steps.push(Step::Lanes {
            of,
            side,
            inputs,
            outputs,
        });
        results
    }

    /// Adds the output of a multilinear operator.
    pub(crate) fn form(&mut self, of: Arc<Operator>, others: Vec<ValueId>) -> ValueId {
        let output = self.value(&of.output().dims.clone());
        self.steps.push(Step::Form(Form {
            by: others.len(),
            of,
            others,
            output,
        }));
        output
    }

    fn like(&mut self, value: ValueId) -> ValueId {
        let dims = self.values[value].clone();
        self.value(&dims)
    }

    fn add(&mut self, so_far: Option<ValueId>, more: ValueId) -> ValueId {
        let Some(so_far) = so_far else {
            return more;
        };
        let output = self.like(more);
        self.steps.push(Step::Add {
            of: [so_far, more],
            output,
        });
        output
    }

    /// The graph of the gradient: its arguments are the arguments of this graph, then the gradients of its results.
    pub(crate) fn gradient(&self) -> Self {
        let mut out = self.clone();
        out.results.clear();
        let mut gradients: Vec<Option<ValueId>> = vec![None; self.values.len()];
        for (value, spec) in &self.results {
            let seed = out.argument(&named("grad", spec));
            gradients[*value] = Some(out.add(gradients[*value], seed));
        }
        for step in self.steps.iter().rev() {
            out.pull_back(step, &mut gradients);
        }
        for (value, spec) in &self.arguments {
            let gradient = gradients[*value].unwrap_or_else(|| {
                let output = out.like(*value);
                out.steps.push(Step::Zero { output });
                output
            });
            out.result(gradient, named("grad", spec));
        }
        out.finished()
    }

    /// The graph of the directional derivative, the transpose of a transpose: its arguments are the arguments of this graph, then their
    /// tangents.
    pub(crate) fn tangent(&self) -> Self {
        let (arguments, results) = (self.arguments.len(), self.results.len());
        let mut out = self.gradient().gradient();
        out.results.drain(..arguments);
        for ((_, spec), (_, own)) in out.results.iter_mut().zip(&self.results) {
            *spec = named("tangent", own);
        }
        let tangents = out.arguments[arguments + results..].iter_mut();
        for ((_, spec), (_, own)) in tangents.zip(&self.arguments) {
            *spec = named("tangent", own);
        }
        // The gradient is linear in the gradients of the results, so nothing reads the elements of these. A step may
        // ask for the shape of one.
        let seeds = out.arguments.drain(arguments..arguments + results);
        let zeros = seeds.map(|(output, _)| Step::Zero { output });
        out.steps.splice(0..0, zeros);
        out.finished()
    }

    /// The graph with some of its results.
    pub(crate) fn selecting(&self, wanted: &[bool]) -> Self {
        let mut out = self.clone();
        let mut wanted = wanted.iter();
        out.results.retain(|_| wanted.next() == Some(&true));
        out.finished()
    }

    /// Adds the gradients of the inputs of a step to those so far.
    fn pull_back(&mut self, step: &Step, gradients: &mut [Option<ValueId>]) {
        match step {
            Step::Lanes {
                of,
                side,
                inputs,
                outputs,
            } => {
                let seeds = outputs.iter().map(|&output| gradients[output]);
                let seeds: Vec<Option<ValueId>> = seeds.collect();
                let there: Vec<bool> = seeds.iter().map(Option::is_some).collect();
                if !there.contains(&true) {
                    return;
                }
                let of = of.with_results(&there).derived(Derivative::Gradient);
                let given = inputs.iter().copied().chain(seeds.into_iter().flatten());
                let found = self.lanes(of, *side, given.collect());
                for (&input, found) in inputs.iter().zip(found) {
                    gradients[input] = Some(self.add(gradients[input], found));
                }
            }
            Step::Form(form) => {
                let Some(gradient) = gradients[form.output] else {
                    return;
                };
                for (place, &value) in form.places().zip(&form.others) {
                    let output = self.like(value);
                    self.steps
                        .push(Step::Form(form.by(place, gradient, output)));
                    gradients[value] = Some(self.add(gradients[value], output));
                }
            }
            Step::Add { of, output } => {
                for &value in of {
                    if let Some(gradient) = gradients[*output] {
                        gradients[value] = Some(self.add(gradients[value], gradient));
                    }
                }
            }
            Step::Zero { .. } => {}
            Step::Copy { of, output } => {
                if let Some(gradient) = gradients[*output] {
                    gradients[*of] = Some(self.add(gradients[*of], gradient));
                }
            }
        }
    }

    /// The graph without steps whose values nothing needs, and with a separate value for each result.
    fn finished(mut self) -> Self {
        let mut taken: Vec<ValueId> = self.arguments.iter().map(|(value, _)| *value).collect();
        for at in 0..self.results.len() {
            let of = self.results[at].0;
            if taken.contains(&of) {
                let output = self.like(of);
                self.steps.push(Step::Copy { of, output });
                self.results[at].0 = output;
            }
            taken.push(self.results[at].0);
        }
        let mut needed = vec![false; self.values.len()];
        for (value, _) in &self.results {
            needed[*value] = true;
        }
        let mut steps = Vec::new();
        for mut step in self.steps.into_iter().rev() {
            if !step.outputs().iter().any(|&output| needed[output]) {
                continue;
            }
            if let Step::Lanes {
                of,
                inputs,
                outputs,
                ..
            } = &mut step
            {
                let wanted: Vec<bool> = outputs.iter().map(|&output| needed[output]).collect();
                // A smaller program computes the results that are left.
                if wanted.contains(&false) {
                    *of = of.with_results(&wanted);
                    let mut wanted = wanted.into_iter();
                    outputs.retain(|_| wanted.next() == Some(true));
                }
                // A value that the program does not read need not be there.
                let reads = of.reads();
                if reads.contains(&false) {
                    *of = of.reading();
                    let mut reads = reads.into_iter();
                    inputs.retain(|_| reads.next() == Some(true));
                }
            }
            for input in step.inputs() {
                needed[input] = true;
            }
            steps.push(step);
        }
        steps.reverse();
        self.steps = steps;
        self
    }
}

/// A tensor with a word before its name.
fn named(word: &str, spec: &TensorSpec) -> TensorSpec {
    TensorSpec {
        name: kept::text(format!("{word}_{}", spec.name)),
        ..spec.clone()
    }
}

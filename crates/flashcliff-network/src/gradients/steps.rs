//! Gradients of gradients of steps on tokens.
//!
//! What the gradient of a step `y = f(x)` makes of `g` has, along `u`, the product `g·f'(x) u`. So its gradient by
//! `g` is `f'(x) u`, how the step changes along `u`, and its gradient by `x` is that of `f'(x) u` from `g`. Both are
//! nodes: `tangent` adds the nodes of the first, which are differentiated like any others.

use super::{Back, no_gradient};
use crate::Error;
use crate::network::{Axis, Extent, Network, Node, Value};
use crate::tokens::step::Input;
use crate::tokens::{
    Attention, AttentionTangent, Channels, Distances, HeadNorm, Lanes, Reinserted, Step,
};
use crate::work::{Gradient, Work};

/// What a step reads, and for each of it the change of it.
struct Changes<'a> {
    /// Nothing for steps whose gradient does not read them.
    reads: &'a [Value],
    along: &'a [Option<Value>],
    /// The gradient node of the step.
    node: &'a Node,
    own: &'a Gradient,
}

impl Back<'_> {
    /// The gradients of what the gradient of a step reads, from the gradients of its results.
    pub(super) fn of_step(
        &mut self,
        node: &Node,
        own: &Gradient,
        step: &Step,
        gradients: &[Option<Value>],
    ) -> Result<(), Error> {
        let count = step.read_by_gradient();
        let (reads, g) = (&node.inputs[..count], node.inputs[count + 1]);
        if !reads.iter().chain([&g]).any(|read| self.depends[read.0]) {
            return Ok(());
        }
        let mut results = gradients.iter().copied();
        let along = own.wanted.iter();
        let along = along.map(|&wanted| if wanted { results.next()? } else { None });
        let mut along: Vec<Option<Value>> = along.collect();
        let now: Vec<Value> = reads.iter().map(|&read| self.now(read)).collect();
        let first = self.network.nodes.len();
        for change in along.iter_mut().flatten() {
            // Gradients by what is read are none by the changes.
            if now.contains(change) {
                *change = self.network.one(Work::ScaledSum(1.0), &[*change])?;
            }
        }
        let node = &Node {
            inputs: node.inputs.iter().map(|&read| self.now(read)).collect(),
            ..node.clone()
        };
        let changes = Changes {
            reads: &now,
            along: &along,
            node,
            own,
        };
        let made = self.network.tangent(step, &changes)?;
        let made = made.ok_or_else(|| no_gradient(node))?;
        self.through(first, made, &along, (reads, g))
    }

    /// Differentiates nodes, from the one with a number to the last, that compute how a step changes.
    fn through(
        &mut self,
        first: usize,
        made: Value,
        along: &[Option<Value>],
        (reads, g): (&[Value], Value),
    ) -> Result<(), Error> {
        let last = self.network.nodes.len();
        self.gradients.resize(self.network.values.len(), None);
        self.depends.resize(self.network.values.len(), false);
        // Values that were computed again stand for themselves. What this pass finds is added up by itself, so that
        // sums have one order in any case.
        let mut so_far: Vec<(Value, Value, Option<Value>)> = Vec::new();
        for &read in reads {
            let now = self.now(read);
            if so_far.iter().all(|(own, ..)| *own != read) {
                self.depends[now.0] = self.depends[read.0];
                so_far.push((read, now, self.gradients[now.0].take()));
            }
        }
        let changes = along.iter().flatten();
        let changes: Vec<(usize, bool)> = changes.map(|own| (own.0, self.depends[own.0])).collect();
        changes
            .iter()
            .for_each(|&(own, _)| self.depends[own] = false);
        for at in first..last {
            let node = &self.network.nodes[at];
            let is_zero = matches!(node.work, Work::ScaledSum(scale) if scale == 0.0);
            let depends = node.inputs.iter().any(|input| self.depends[input.0]) && !is_zero;
            for output in node.outputs.clone() {
                self.depends[output.0] = depends && !along.contains(&Some(output));
            }
        }
        let seed = self.now(g);
        self.gradients[made.0] = Some(seed);
        for at in (first..last).rev() {
            self.node(at)?;
        }
        changes
            .iter()
            .for_each(|&(own, depends)| self.depends[own] = depends);
        for (read, now, so_far) in so_far {
            let more = std::mem::replace(&mut self.gradients[now.0], so_far);
            if let Some(more) = more {
                self.contribute(read, more)?;
            }
        }
        match self.depends[g.0] {
            true => self.contribute(g, made),
            false => Ok(()),
        }
    }
}

impl Network {
    /// Adds nodes for how a step changes along changes of its inputs; `None` if that is not known.
    fn tangent(&mut self, step: &Step, of: &Changes<'_>) -> Result<Option<Value>, Error> {
        match step {
            Step::Linear(own) => {
                let parts = [own.along_tokens(), own.along_parameters()];
                self.along_each(parts.map(Step::Linear), of).map(Some)
            }
            Step::Gains(own) => {
                let parts = [own.clone(), own.clone()];
                self.along_each(parts.map(Step::Gains), of).map(Some)
            }
            Step::Rotary(_) | Step::Components(_) | Step::Dropout(_) | Step::Reinserted(_) => {
                let parts = step.inputs();
                let parts = parts
                    .iter()
                    .map(|part| self.axes_beside(step, part, of.node));
                let parts: Vec<Vec<Axis>> = parts.collect();
                let changes = self.changes_of_parts((of.node, of.own), of.along, &parts)?;
                self.step(step.clone(), &changes).map(Some)
            }
            Step::Frames(_) => match *of.along {
                [Some(tokens), None] => self.step(step.clone(), &[tokens, of.reads[1]]).map(Some),
                _ => Ok(None),
            },
            Step::Lanes(own) => self.along_lanes((step, own), of),
            Step::Attention(own) => self.along_attention(own, of),
            Step::HeadNorm(own) => match own.derivative() {
                Some(derivative) => {
                    let blades = own.attention.head.blades;
                    let changed = self.changed(0, own.input(), blades, of)?;
                    self.step(Step::HeadNorm(derivative), &[changed]).map(Some)
                }
                None => Ok(None),
            },
            Step::Distances(own) => match own.derivative() {
                Some(derivative) => {
                    let blades = own.attention.head.blades;
                    let mut inputs = vec![self.changed(0, own.input(), blades, of)?];
                    if let Some(&logarithms) = of.reads.get(1) {
                        let change = self.change(1, of)?;
                        inputs.push(self.concatenate(&[logarithms, change])?);
                    }
                    self.step(Step::Distances(derivative), &inputs).map(Some)
                }
                None => Ok(None),
            },
            Step::AttentionTangent(own) => self.along_tangent(own, of),
        }
    }

    /// How a step that is linear in its tokens and in its parameters changes with each of them.
    fn along_each(&mut self, parts: [Step; 2], of: &Changes<'_>) -> Result<Value, Error> {
        let mut sum = None;
        for (at, (part, change)) in parts.into_iter().zip(of.along).enumerate() {
            let Some(change) = *change else { continue };
            let mut inputs = of.reads.to_vec();
            inputs[at] = change;
            let made = self.step(part, &inputs)?;
            sum = Some(match sum {
                None => made,
                Some(sum) => self.scaled_sum([sum, made], 1.0)?,
            });
        }
        sum.ok_or_else(|| no_gradient(of.node))
    }

    /// The change of an input, which is 0 if there is none.
    fn change(&mut self, at: usize, of: &Changes<'_>) -> Result<Value, Error> {
        match of.along[at] {
            Some(change) => Ok(change),
            None => self.one(Work::ScaledSum(0.0), &[of.reads[at]]),
        }
    }

    /// An input with its change as further channels.
    fn changed(
        &mut self,
        at: usize,
        channels: Channels,
        blades: usize,
        of: &Changes<'_>,
    ) -> Result<Value, Error> {
        let change = self.change(at, of)?;
        self.beside([of.reads[at], change], (channels, blades))
    }

    /// How an operator on tokens changes.
    fn along_lanes(
        &mut self,
        (step, own): (&Step, &Lanes),
        of: &Changes<'_>,
    ) -> Result<Option<Value>, Error> {
        let inputs = step.inputs();
        let changes = |kind: fn(&Input) -> bool| {
            let mut pairs = inputs.iter().zip(of.along);
            pairs.any(|(input, change)| kind(input) && change.is_some())
        };
        let tokens = changes(|input| matches!(input, Input::Tokens(_)));
        let parameters = changes(|input| matches!(input, Input::Parameters(_)));
        let along = match tokens || parameters {
            true => Some(self.along_tokens((&inputs, own), [tokens, parameters], of)?),
            false => None,
        };
        let numbers = inputs.iter().position(|input| *input == Input::Rows);
        let numbers = numbers.and_then(|at| Some((at, of.along[at]?)));
        let Some((at, change)) = numbers else {
            return Ok(along);
        };
        if !own.is_affine_in_rows()? {
            return Ok(None);
        }
        let more = self.along_numbers(step, (at, change), of)?;
        match along {
            Some(along) => self.scaled_sum([along, more], 1.0).map(Some),
            None => Ok(Some(more)),
        }
    }

    /// How an operator on tokens changes with its tokens and parameters.
    fn along_tokens(
        &mut self,
        (inputs, own): (&[Input], &Lanes),
        [tokens, parameters]: [bool; 2],
        of: &Changes<'_>,
    ) -> Result<Value, Error> {
        let mut values = of.reads.to_vec();
        for (at, (input, change)) in inputs.iter().zip(of.along).enumerate() {
            match (input, *change) {
                (_, None) | (Input::Rows, _) => {}
                (Input::Parameters(_), Some(change)) => {
                    values[at] = self.concatenate(&[values[at], change])?;
                }
                _ => values[at] = self.changed(at, own.input(), own.blades, of)?,
            }
        }
        self.step(Step::Lanes(own.along(tokens, parameters)?), &values)
    }

    /// How a step that is affine in its numbers of tokens changes with them: what it makes of their changes, less what it makes of zeros.
    fn along_numbers(
        &mut self,
        step: &Step,
        (at, change): (usize, Value),
        of: &Changes<'_>,
    ) -> Result<Value, Error> {
        let zero = self.one(Work::ScaledSum(0.0), &[of.reads[at]])?;
        let mut values = of.reads.to_vec();
        let mut made = |value| {
            values[at] = value;
            self.step(step.clone(), &values)
        };
        let (moved, still) = (made(change)?, made(zero)?);
        let still = self.one(Work::ScaledSum(-1.0), &[still])?;
        self.scaled_sum([moved, still], 1.0)
    }

    /// How attention changes. Norms of heads and features of distances come before it.
    fn along_attention(
        &mut self,
        own: &Attention,
        of: &Changes<'_>,
    ) -> Result<Option<Value>, Error> {
        let (sides, count) = (own.sides(), own.sides().len());
        let mask = count..count + usize::from(own.masked);
        // There is no place for changes of a mask.
        if of.along[mask.clone()].iter().any(Option::is_some) {
            return Ok(None);
        }
        let mut plain = own.clone();
        plain.geometry.head_norm = false;
        let has_points = own.head.points.is_some();
        if has_points {
            plain = Distances::plain(&plain);
        }
        let Some(derived) = AttentionTangent::new(plain) else {
            return Ok(None);
        };
        let mut weights = Vec::new();
        if has_points {
            let logarithms = of.reads[mask.end];
            let change = self.change(mask.end, of)?;
            weights = vec![logarithms, self.concatenate(&[logarithms, change])?];
        }
        let mut inputs = Vec::new();
        for (side, &channels) in sides.iter().enumerate() {
            let change = self.change(side, of)?;
            let mut pair = [of.reads[side], change];
            let size = (channels, own.head.blades);
            if own.geometry.head_norm {
                let norm = HeadNorm::new(own.clone(), side);
                let derivative = norm.derivative().map(Step::HeadNorm);
                let steps = [Some(Step::HeadNorm(norm)), derivative];
                pair = self.in_front(steps, pair, size, [&[]; 2])?;
            }
            if has_points {
                let step = Distances::new(own.clone(), side);
                let read = if step.len() > 0 { &weights[..] } else { &[] };
                let read = [0, 1].map(|at| read.get(at..=at).unwrap_or(&[]));
                let derivative = step.derivative().map(Step::Distances);
                let steps = [Some(Step::Distances(step)), derivative];
                pair = self.in_front(steps, pair, size, read)?;
            }
            inputs.push(self.beside(pair, size)?);
        }
        inputs.extend(&of.reads[mask]);
        self.step(Step::AttentionTangent(derived), &inputs)
            .map(Some)
    }

    /// How a derivative of attention changes: the derivative along one more direction.
    fn along_tangent(
        &mut self,
        own: &AttentionTangent,
        of: &Changes<'_>,
    ) -> Result<Option<Value>, Error> {
        let sides = own.sides();
        let mask = sides.len()..of.reads.len();
        let changes_mask = of.along[mask.clone()].iter().any(Option::is_some);
        let Some(derivative) = own.derivative().filter(|_| !changes_mask) else {
            return Ok(None);
        };
        let mut inputs = Vec::with_capacity(of.reads.len());
        for (at, &side) in sides.iter().enumerate() {
            inputs.push(self.changed(at, side, own.attention.head.blades, of)?);
        }
        inputs.extend(&of.reads[mask]);
        self.step(Step::AttentionTangent(derivative), &inputs)
            .map(Some)
    }

    /// Tokens after a step, and how they change: tokens after its derivative. Both steps read more.
    fn in_front(
        &mut self,
        steps: [Option<Step>; 2],
        pair: [Value; 2],
        size: (Channels, usize),
        more: [&[Value]; 2],
    ) -> Result<[Value; 2], Error> {
        let both = self.beside(pair, size)?;
        let mut made = pair;
        let each = steps.into_iter().zip([pair[0], both]).zip(more);
        for (made, ((step, tokens), more)) in made.iter_mut().zip(each) {
            let Some(step) = step else { continue };
            let inputs: Vec<Value> = [tokens].into_iter().chain(more.iter().copied()).collect();
            *made = self.step(step, &inputs)?;
        }
        Ok(made)
    }

    /// Tokens with their changes as further channels.
    fn beside(
        &mut self,
        pair: [Value; 2],
        (channels, blades): (Channels, usize),
    ) -> Result<Value, Error> {
        let step = Reinserted::new(blades, channels, channels);
        self.step(Step::Reinserted(step), &pair)
    }

    /// The axes of tokens of a step, in the rows of those that a gradient node of the step reads.
    fn axes_beside(&self, step: &Step, input: &Input, gradient: &Node) -> Vec<Axis> {
        let axes = self.shape(gradient.inputs[1]).unwrap_or_default();
        let channels = match input {
            Input::Tokens(channels) => *channels,
            _ => step.input(),
        };
        let blades = step.blades();
        let rows = axes.first().copied().unwrap_or(Axis::Rows);
        vec![rows, Axis::Token { blades, channels }]
    }

    /// The changes of the results of a gradient node that has a part of what it reads for each input, all of them
    /// with their axes. Those that there are none of are 0.
    pub(super) fn changes_of_parts(
        &mut self,
        (node, own): (&Node, &Gradient),
        along: &[Option<Value>],
        axes: &[Vec<Axis>],
    ) -> Result<Vec<Value>, Error> {
        let mut changes = Vec::with_capacity(along.len());
        for (at, (change, axes)) in along.iter().zip(axes).enumerate() {
            changes.push(match *change {
                Some(change) => change,
                None => {
                    let work = Work::Gradient(Gradient {
                        of: own.of.clone(),
                        wanted: (0..along.len()).map(|own| own == at).collect(),
                        adds: false,
                    });
                    let part = self.push_part(work, &node.inputs, axes);
                    self.one(Work::ScaledSum(0.0), &[part])?
                }
            });
        }
        Ok(changes)
    }

    /// Adds a node with one result of some axes.
    fn push_part(&mut self, work: Work, inputs: &[Value], axes: &[Axis]) -> Value {
        let made = self.results(vec![Extent::Shape(axes.to_vec())], true);
        self.nodes.push(Node {
            work,
            inputs: inputs.to_vec(),
            outputs: made.clone(),
            block: self.blocks,
            origin: self.nodes.len(),
        });
        made[0]
    }
}

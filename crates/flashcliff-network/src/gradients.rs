//! Gradients as nodes of the same network.
//!
//! From the last node back, each node whose result has a gradient gets a node that computes the gradients of its
//! inputs. A value with several readers has a sum: where an operator can, it adds to the gradient that is there. No
//! gradient is cleared first.
//!
//! * `derived` - gradients of gradients: operators of a higher order; `functions` - functions of nodes as operators;
//!   `steps` - steps on tokens.

mod derived;
mod functions;
mod steps;

use std::collections::HashMap;

use crate::Error;
use crate::network::{Extent, Info, Maker, Network, Node, Value};
use crate::work::{Gradient, MOST_INPUTS, Work};

/// The values of the forward pass that stay for gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keep {
    /// All that a gradient reads.
    #[default]
    All,
    /// The values between [blocks](Network::block). The others are computed again, by copies of their nodes in front of
    /// the gradients of their block. The copies compute from the same numbers, so gradients are the same bit for bit.
    /// Gradients of such gradients differ by rounding from gradients of gradients that kept all, because the copies are
    /// separate values.
    BetweenBlocks,
    /// The results of linear maps, attention and sums, and what [`Self::BetweenBlocks`] keeps. Norms, products, gates and
    /// dropout of tokens, which cost little, are computed again in the same way.
    Maps,
}

impl Network {
    /// Adds the nodes that compute the gradients of all parameters that a value depends on, from the gradient of that
    /// value. The pairs are a parameter and its gradient, in the order of the parameters.
    ///
    /// ```
    /// use flashcliff::ops::{self, LinearOptions};
    /// use flashcliff::{Algebra, Bias, Dtype, Signature};
    /// use flashcliff_network::{Axis, Cpu, Keep, Network, Scales, Slices};
    ///
    /// let plane = Algebra::new(Signature::new(2, 0, 0)?)?;
    /// let options = LinearOptions::default().with_per_grade(false).with_bias(Bias::None);
    /// let mut network = Network::new();
    /// let shape = [Axis::Fixed(4), Axis::Rows, Axis::Fixed(1)];
    /// let (x, target) = (network.input("x", &shape), network.input("target", &shape));
    /// let weight = network.parameter("weight", &[1, 1]);
    /// let y = network.operator(&ops::mv_linear(plane, &options)?, &[x, weight])?;
    /// let [loss, seed] = network.squared_error(y, target)?;
    /// let gradients = network.gradients(y, seed, Keep::All)?;
    ///
    /// let plan = network.plan(&[loss, gradients[0].1], 1, [Dtype::F64; 2])?;
    /// let (x, target) = ([1.0, 2.0, 3.0, 4.0], [0.0; 4]);
    /// let sources = Slices { inputs: &[&x, &target], parameters: &[&[0.5_f64]] };
    /// let mut outputs = [vec![0.0], vec![0.0]];
    /// Cpu::new(&plan)?.run(&plan, &sources, &mut outputs, Scales::default(), &mut |_| {})?;
    /// // The sum of (x / 2)^2, and of x (x / 2) twice.
    /// assert_eq!(outputs, [vec![7.5], vec![30.0]]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoGradient`]; [`Error::Unknown`].
    pub fn gradients(
        &mut self,
        of: Value,
        seed: Value,
        keep: Keep,
    ) -> Result<Vec<(Value, Value)>, Error> {
        let parameters = self.parameters.clone();
        self.gradients_by(of, seed, &parameters, keep)
    }

    /// Does the same as [`Self::gradients`] for some inputs and parameters alone, in their order: no other value gets a node.
    ///
    /// ```
    /// use flashcliff_network::{Activation, Axis, Keep, Network};
    ///
    /// let shape = [Axis::Fixed(1), Axis::Rows, Axis::Fixed(1)];
    /// let mut network = Network::new();
    /// let [x, y, seed] = ["x", "y", "seed"].map(|name| network.features(name, &shape));
    /// let activated = network.activation(x, Activation::Silu)?;
    /// let sum = network.scaled_sum([activated, y], 0.5)?;
    /// let by_y = network.gradients_by(sum, seed, &[y], Keep::All)?;
    /// assert_eq!(by_y[0].0, y);
    /// assert_eq!(network.to_string().matches("gradient").count(), 1);
    /// # Ok::<(), flashcliff_network::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Self::gradients`].
    pub fn gradients_by(
        &mut self,
        of: Value,
        seed: Value,
        by: &[Value],
        keep: Keep,
    ) -> Result<Vec<(Value, Value)>, Error> {
        self.gradients_from(&[(of, seed)], by, keep)
    }

    /// Does the same as [`Self::gradients_by`] for the sum of several values, each with its gradient. A value may be
    /// a gradient itself: networks of operators have derivatives of every order, [transformers](crate::tokens) two or
    /// more. Forces are the gradient of an energy, and a loss of both is trained by the gradient of their sum:
    ///
    /// ```
    /// use flashcliff::{Algebra, Dtype, ProductKind, Signature, ops};
    /// use flashcliff_network::{Axis, Cpu, Keep, Network, Scales, Slices};
    ///
    /// // The energy k x x of each row, with the derivative 2 k x, whose derivative by k is 2 x.
    /// let line = Algebra::new(Signature::new(1, 0, 0)?)?;
    /// let product = ops::product(line, ProductKind::Geometric, None, None)?;
    /// let shape = [Axis::Fixed(2), Axis::Rows, Axis::Fixed(1)];
    /// let mut network = Network::new();
    /// let [x, k] = ["x", "k"].map(|name| network.input(name, &shape));
    /// let [one, along] = ["one", "along"].map(|name| network.features(name, &shape));
    /// let square = network.operator(&product, &[x, x])?;
    /// let energy = network.operator(&product, &[k, square])?;
    /// let force = network.gradients_by(energy, one, &[x], Keep::All)?[0].1;
    /// let by_k = network.gradients_from(&[(force, along)], &[k], Keep::All)?[0].1;
    ///
    /// let plan = network.plan(&[by_k], 1, [Dtype::F64; 2])?;
    /// let inputs: [&[f64]; 4] = [&[3.0, 0.0], &[5.0, 0.0], &[1.0, 0.0], &[1.0, 0.0]];
    /// let sources = Slices { inputs: &inputs, parameters: &[] };
    /// let mut outputs = [vec![0.0; 2]];
    /// Cpu::new(&plan)?.run(&plan, &sources, &mut outputs, Scales::default(), &mut |_| {})?;
    /// assert_eq!(outputs[0], [6.0, 0.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Self::gradients`]; the errors of [`flashcliff::Operator::gradient`] for an order that kernels
    /// have no room for.
    pub fn gradients_from(
        &mut self,
        seeds: &[(Value, Value)],
        by: &[Value],
        keep: Keep,
    ) -> Result<Vec<(Value, Value)>, Error> {
        // The values of the last block are there still.
        self.gradients_sparing(seeds, by, keep, keep == Keep::BetweenBlocks)
    }

    /// Does the same; whether the last block is not computed again.
    pub(crate) fn gradients_sparing(
        &mut self,
        seeds: &[(Value, Value)],
        by: &[Value],
        keep: Keep,
        spares_last: bool,
    ) -> Result<Vec<(Value, Value)>, Error> {
        let (results, seed_values): (Vec<Value>, Vec<Value>) = seeds.iter().copied().unzip();
        for &value in results.iter().chain(&seed_values).chain(by) {
            self.info(value)?;
        }
        self.separate_sums();
        let forward = self.nodes.len();
        let mut back = Back {
            gradients: vec![None; self.values.len()],
            again: HashMap::new(),
            readers: self.reading_blocks(&results),
            seeds: seed_values,
            depends: self.depending_on(by),
            network: self,
        };
        for &(of, seed) in seeds {
            back.contribute(of, seed)?;
        }
        let last = back.network.nodes[..forward].last().map(|node| node.block);
        for at in (0..forward).rev() {
            let block = back.network.nodes[at].block;
            let ends_block = at + 1 == forward || back.network.nodes[at + 1].block != block;
            if ends_block {
                back.again.clear();
                let is_spared = last == Some(block) && spares_last;
                if keep != Keep::All && !is_spared {
                    back.compute_again(block, at, keep)?;
                }
            }
            back.node(at)?;
        }
        let (gradients, seeds) = (back.gradients, back.seeds);
        let mut pairs: Vec<(Value, Value)> = Vec::new();
        for &own in by {
            let Some(mut gradient) = gradients[own.0] else {
                continue;
            };
            // Each gradient is a separate value, so that each can be an output.
            if seeds.contains(&gradient) || pairs.iter().any(|&(_, other)| other == gradient) {
                gradient = self.one(Work::ScaledSum(1.0), &[gradient])?;
                self.values[gradient.0].gradient_of = Some(own);
            }
            pairs.push((own, gradient));
        }
        Ok(pairs)
    }

    /// For each value whether it depends on one of some values, or is one.
    fn depending_on(&self, by: &[Value]) -> Vec<bool> {
        let mut depends = vec![false; self.values.len()];
        by.iter().for_each(|own| depends[own.0] = true);
        for node in &self.nodes {
            if node.inputs.iter().any(|input| depends[input.0]) {
                node.outputs.iter().for_each(|own| depends[own.0] = true);
            }
        }
        depends
    }

    /// For each value the only block that makes and reads it; `None` for values of several blocks, and for those whose memory another
    /// value extends.
    fn reading_blocks(&self, of: &[Value]) -> Vec<Option<usize>> {
        let mut own = vec![None; self.values.len()];
        for node in &self.nodes {
            for &output in &node.outputs {
                own[output.0] = Some(node.block);
            }
            for &input in &node.inputs {
                let extends = matches!(node.work, Work::ExtendBlades { .. });
                if own[input.0] != Some(node.block) || extends {
                    own[input.0] = None;
                }
            }
            if let Work::ExtendBlades { .. } = node.work {
                own[node.outputs[0].0] = None;
            }
        }
        of.iter().for_each(|of| own[of.0] = None);
        own
    }
}

/// The state of the way back through a network.
struct Back<'a> {
    network: &'a mut Network,
    /// For each value of the forward pass its gradient so far.
    gradients: Vec<Option<Value>>,
    /// The values of the block that were computed again.
    again: HashMap<Value, Value>,
    /// For each value the only block that makes and reads it.
    readers: Vec<Option<usize>>,
    /// The gradients that the caller gave, which stay as they are.
    seeds: Vec<Value>,
    /// For each value of the forward pass whether its gradient is computed.
    depends: Vec<bool>,
}

impl Back<'_> {
    /// The value that stands for one of the forward pass.
    fn now(&self, value: Value) -> Value {
        self.again.get(&value).copied().unwrap_or(value)
    }

    /// Adds copies of the nodes of a block, whose last node is given, whose results nothing outside reads and that are
    /// not kept.
    fn compute_again(&mut self, block: usize, last: usize, keep: Keep) -> Result<(), Error> {
        let is_again = |at: &usize| {
            let node = &self.network.nodes[*at];
            let is_kept = keep == Keep::Maps
                && !matches!(&node.work, Work::Step(step) if step.costs_little());
            node.block == block && !is_kept
        };
        let nodes = (0..=last).filter(is_again);
        for at in nodes.collect::<Vec<_>>() {
            let node = self.network.nodes[at].clone();
            if self.readers[node.outputs[0].0] != Some(block) {
                continue;
            }
            let inputs: Vec<Value> = node.inputs.iter().map(|&input| self.now(input)).collect();
            let made = self.network.push(node.work, &inputs)?;
            self.network.set_origin(node.origin);
            self.again.extend(node.outputs.iter().copied().zip(made));
        }
        Ok(())
    }

    /// Adds the gradient of a node.
    fn node(&mut self, at: usize) -> Result<(), Error> {
        let node = self.network.nodes[at].clone();
        let gradients: Vec<Option<Value>> = node
            .outputs
            .iter()
            .map(|own| self.gradients[own.0])
            .collect();
        let wanted: Vec<bool> = node
            .inputs
            .iter()
            .map(|input| self.depends[input.0])
            .collect();
        if gradients.iter().all(Option::is_none) || !wanted.contains(&true) {
            return Ok(());
        }
        match (&node.work, gradients[0]) {
            (Work::Operator(operator), _) if operator.outputs().len() > 1 => {
                self.of_results(&node, operator, &gradients, &wanted)
            }
            (Work::Gradient(own), _) => self.of_gradient(&node, own, &gradients, &wanted),
            (Work::Split(sides), _) => {
                let has: Vec<bool> = gradients.iter().map(Option::is_some).collect();
                let gradients: Vec<Value> = gradients.iter().copied().flatten().collect();
                self.pass_on(Work::Join(sides.of(&has)), &gradients, &node.inputs)
            }
            (_, None) => Err(no_gradient(&node)),
            (Work::Join(sides), Some(gradient)) => {
                let inputs = select(&node.inputs, &wanted);
                self.pass_on(Work::Split(sides.of(&wanted)), &[gradient], &inputs)
            }
            (Work::Gather(along), Some(gradient)) => {
                self.pass_on(Work::SegmentSum(*along), &[gradient], &node.inputs)
            }
            (Work::SegmentSum(along), Some(gradient)) => {
                self.pass_on(Work::Gather(*along), &[gradient], &node.inputs)
            }
            (Work::BladesToChannels, Some(gradient)) => {
                let blades = self.network.blades(node.inputs[0]);
                self.pass_on(Work::ChannelsToBlades(blades), &[gradient], &node.inputs)
            }
            (Work::ChannelsToBlades(_), Some(gradient)) => {
                self.pass_on(Work::BladesToChannels, &[gradient], &node.inputs)
            }
            (Work::FirstBlades(_), Some(gradient)) => self.extended(&node, gradient),
            // The gradient of a sum is that of all that it adds.
            (Work::ScaledSum(1.0), Some(gradient)) => {
                let inputs = select(&node.inputs, &wanted);
                let mut inputs = inputs.into_iter();
                inputs.try_for_each(|input| self.contribute(input, gradient))
            }
            (Work::ExtendBlades { .. }, Some(gradient)) => {
                let blades = self.network.blades(node.inputs[0]);
                let first = self.network.one(Work::FirstBlades(blades), &[gradient])?;
                self.contribute(node.inputs[0], first)
            }
            (_, Some(gradient)) => {
                for wanted in self.shares(&node, wanted) {
                    self.gradient_node(at, &node, gradient, wanted)?;
                }
                Ok(())
            }
        }
    }

    /// Adds a node that computes gradients of values from the gradients of results.
    fn pass_on(&mut self, work: Work, gradients: &[Value], of: &[Value]) -> Result<(), Error> {
        let made = self.network.push(work, gradients)?;
        for (&value, made) in of.iter().zip(made) {
            self.network.values[made.0].gradient_of = Some(value);
            self.contribute(value, made)?;
        }
        Ok(())
    }

    /// The gradients of a node, as one node or as two. The gradients of the parameters of a linear map are separate
    /// matrix products, and nothing waits for them. So they come apart from the gradients of its values.
    fn shares(&self, node: &Node, wanted: Vec<bool>) -> Vec<Vec<bool>> {
        let is_parameter = |value: &Value| self.network.is_of_parameters(*value);
        let of = |parameters: bool| -> Vec<bool> {
            let pairs = node.inputs.iter().zip(&wanted);
            pairs
                .map(|(value, wanted)| *wanted && is_parameter(value) == parameters)
                .collect()
        };
        let parts = [of(true), of(false)];
        match node.work.is_linear() && parts.iter().all(|part| part.contains(&true)) {
            true => parts.into(),
            false => vec![wanted],
        }
    }

    /// The gradient of a value of which a node has the first blades, from the gradient of these.
    fn extended(&mut self, node: &Node, gradient: Value) -> Result<(), Error> {
        let (value, mut gradient) = (node.inputs[0], gradient);
        if !self.network.fills_its_memory(gradient) {
            gradient = self.network.one(Work::ScaledSum(1.0), &[gradient])?;
            self.network.values[gradient.0].gradient_of = Some(node.outputs[0]);
        }
        let work = Work::ExtendBlades {
            blades: self.network.blades(value),
            clears: true,
        };
        let whole = self.network.one(work, &[gradient])?;
        self.contribute(value, whole)
    }

    /// Adds a node for the gradients of a node.
    fn gradient_node(
        &mut self,
        at: usize,
        node: &Node,
        gradient: Value,
        wanted: Vec<bool>,
    ) -> Result<(), Error> {
        let reads = node
            .work
            .gradient_reads()
            .ok_or_else(|| no_gradient(node))?;
        let mut inputs = Vec::new();
        if reads.inputs {
            inputs.extend(&node.inputs);
        }
        if reads.output {
            inputs.push(node.outputs[0]);
        }
        if reads.saved {
            inputs.extend(node.outputs.get(1));
        }
        let mut inputs: Vec<Value> = inputs.into_iter().map(|value| self.now(value)).collect();
        inputs.push(gradient);
        let so_far = self.added_to(at, node, &wanted);
        inputs.extend(so_far);
        check_inputs(node, inputs.len())?;
        let of_values: Vec<Value> = select(&node.inputs, &wanted);
        let work = Work::Gradient(Gradient {
            of: Box::new(node.work.clone()),
            wanted,
            adds: so_far.is_some(),
        });
        let made = self.network.push_gradient(work, inputs, &of_values);
        self.network.set_origin(node.origin);
        for (&value, made) in of_values.iter().zip(made) {
            match so_far {
                // The sum takes the place of what was there.
                Some(_) if value == node.inputs[0] => self.gradients[value.0] = Some(made),
                _ => self.contribute(value, made)?,
            }
        }
        Ok(())
    }

    /// The gradient so far that a node, given with its number, can add its own to. A node adds to its first input, and there only once.
    fn added_to(&self, at: usize, node: &Node, wanted: &[bool]) -> Option<Value> {
        let adds = match &node.work {
            Work::Operator(operator) => operator.adds_to_gradient(),
            Work::Step(step) => step.adds_to_gradient(),
            _ => false,
        };
        let first = node.inputs[0];
        let is_once = node.inputs[1..].iter().all(|&other| other != first);
        let so_far = self.gradients[first.0]?;
        let is_own = self.network.fills_its_memory(so_far) && !self.seeds.contains(&so_far);
        let may = adds && wanted[0] && is_once && is_own && !self.is_read_later(at, first, so_far);
        may.then_some(so_far)
    }

    /// Whether a gradient so far of a value is also one that this node or nodes in front of it read, or that stays,
    /// as it is or as other channels.
    fn is_read_later(&self, at: usize, value: Value, so_far: Value) -> bool {
        let shows = |gradient: &Value| {
            let mut shown = Some(*gradient);
            while shown.is_some_and(|own| own != so_far) {
                shown = shown.and_then(|own| self.network.shown_by(own));
            }
            shown.is_some()
        };
        let gradients = self.gradients.iter().enumerate();
        let mut others = gradients
            .filter(|(own, gradient)| *own != value.0 && gradient.as_ref().is_some_and(shows));
        others.any(|(own, _)| match self.network.values[own].maker {
            Maker::Node(node) => node <= at,
            Maker::Input(_) | Maker::Parameter(_) => true,
        })
    }

    /// Adds a gradient to that of a value so far.
    fn contribute(&mut self, value: Value, more: Value) -> Result<(), Error> {
        let sum = match self.gradients[value.0] {
            None => more,
            Some(so_far) => {
                let sum = self.network.one(Work::ScaledSum(1.0), &[so_far, more])?;
                self.network.values[sum.0].gradient_of = Some(value);
                sum
            }
        };
        self.gradients[value.0] = Some(sum);
        Ok(())
    }
}

impl Network {
    /// The blades of a value of multivectors.
    fn blades(&self, value: Value) -> usize {
        let first = self.shape(value).and_then(<[_]>::first);
        first.map_or(0, |axis| axis.size(1))
    }

    /// Adds a node whose results are gradients of values.
    fn push_gradient(&mut self, work: Work, inputs: Vec<Value>, of: &[Value]) -> Vec<Value> {
        let maker = Maker::Node(self.nodes.len());
        let mut outputs = Vec::with_capacity(of.len());
        for &value in of {
            let extent: Extent = self.values[value.0].extent.clone();
            self.values.push(Info {
                name: format!("%{}", self.values.len()),
                extent,
                maker,
                is_tracked: true,
                gradient_of: Some(value),
            });
            outputs.push(Value(self.values.len() - 1));
        }
        self.nodes.push(Node {
            work,
            inputs,
            outputs: outputs.clone(),
            block: self.blocks,
            origin: self.nodes.len(),
        });
        outputs
    }

    /// Says which node of the forward pass the last node stands for.
    fn set_origin(&mut self, origin: usize) {
        if let Some(node) = self.nodes.last_mut() {
            node.origin = origin;
        }
    }
}

fn select(values: &[Value], wanted: &[bool]) -> Vec<Value> {
    let pairs = values.iter().zip(wanted);
    pairs
        .filter(|(_, wanted)| **wanted)
        .map(|(value, _)| *value)
        .collect()
}

fn no_gradient(node: &Node) -> Error {
    Error::NoGradient {
        node: node.work.to_string(),
    }
}

fn check_inputs(node: &Node, count: usize) -> Result<(), Error> {
    match count <= MOST_INPUTS {
        true => Ok(()),
        false => Err(Error::Count {
            node: format!("the gradient of {}", node.work.name()),
            expected: format!("at most {MOST_INPUTS}"),
            got: count,
        }),
    }
}

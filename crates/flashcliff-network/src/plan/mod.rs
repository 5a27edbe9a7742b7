//! Plans: the calls of a network for a number of rows, and where each value lies.

mod branches;
mod chains;
mod chunks;
mod gathered;
mod joined;
mod memory;
mod residual;
mod room;
mod types;

use std::ops::Range;
use std::sync::Arc;

use flashcliff::{Dims, Dtype, Operator};

#[cfg(any(feature = "cuda", test))]
pub(crate) use branches::{Use, Uses};
#[cfg(feature = "cuda")]
pub(crate) use chains::Chain;
use chains::{Chains, Fuses};
pub(crate) use chunks::Part;
use gathered::Gathered;
use joined::Joined;
pub(crate) use joined::Joins;
use residual::Residuals;
pub(crate) use types::{Takes16Bits, wide};

use crate::Error;
use crate::network::{Extent, Maker, Network, Node, Rows, Set, Value, sizes};
use crate::tokens::Step;
use crate::work::{Gradient, Work};

/// The memory that a value lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Memory {
    /// An input, by its number.
    Input(usize),
    /// A parameter, by its number.
    Parameter(usize),
    /// An output, by its number.
    Output(usize),
    /// What is kept between stages, from an offset in bytes up to another.
    Kept { from: usize, to: usize },
    /// The arena of the only stage that needs the value, from an offset in bytes up to another.
    Arena { from: usize, to: usize },
    /// The memory of a chunk, after so many elements of each row.
    Local { from: usize },
}

/// Where a value lies: at the start of some memory.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    pub(crate) memory: Memory,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: Dtype,
}

impl Spot {
    pub(crate) fn len(&self) -> usize {
        self.shape.iter().product()
    }
}

/// A call of a plan.
#[derive(Clone, Debug)]
pub struct Call {
    /// The node of the network.
    pub(crate) node: usize,
    /// The sizes of an operator, also of the one whose gradient is computed.
    pub(crate) dims: Option<Dims>,
}

/// Calls that run one after the other, as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub(crate) calls: Range<usize>,
    /// The outputs that are complete after it, and not before.
    pub(crate) outputs: Range<usize>,
    /// The bytes of values that no other stage needs.
    bytes: usize,
}

/// The calls of a network in order, with the place of each value.
///
/// Inputs, parameters and outputs lie in memory of the host. All other values lie in one arena, of
/// [`arena_bytes`](Self::arena_bytes) bytes. Values share memory if they are not needed at the same time. Nodes that
/// no output depends on have no call.
///
/// The calls run at once, or in [stages](Network::plan_stages). Values that a later stage needs lie in memory of
/// their own, of [`kept_bytes`](Self::kept_bytes) bytes. The arena is that of one stage at a time: others, also those
/// of other plans, may have it between stages.
///
/// Values between nodes have the type of the features, and so have inputs of [`Network::features`]. Parameters, other
/// inputs, what is subtracted from targets, and what shares an operator with it, have the type of the model. On a GPU
/// features may have 16 bits.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) network: Arc<Network>,
    pub(crate) rows: Rows,
    pub(crate) types: [Dtype; 2],
    pub(crate) calls: Vec<Call>,
    /// The place of each value; `None` for values of nodes without a call.
    pub(crate) spots: Vec<Option<Spot>>,
    /// Whether each value has the type of the model.
    wide: Vec<bool>,
    pub(crate) outputs: Vec<Value>,
    /// The calls that run chunk by chunk.
    pub(crate) parts: Vec<Part>,
    pub(crate) stages: Vec<Stage>,
    /// The matrices of steps that are made together.
    pub(crate) gathered: Gathered,
    /// The sums that norms compute.
    residuals: Residuals,
    /// The linear maps that run together.
    pub(crate) joined: Joined,
    /// The steps that run together.
    pub(crate) chains: Chains,
    kept: usize,
}

/// What a plan is for.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    /// Memory of a small [fork](Plan::forks) is of no other value for so many calls more, so that the line does not
    /// wait for the branch at once.
    pub(crate) slack: usize,
    /// Whether calls on tokens run chunk by chunk.
    pub(crate) has_chunks: bool,
    /// Whether steps make their matrices [together](Gathered).
    pub(crate) gathers: bool,
    /// Whether norms compute [sums](Residuals).
    pub(crate) adds: bool,
    /// Which linear maps run [together](Joined).
    pub(crate) joins: Option<Joins>,
    /// Which steps run together as a [chain](Chains).
    pub(crate) fuses: Option<&'a Fuses<'a>>,
    /// Which [steps](types) have kernels for tokens of 16 bits.
    pub(crate) takes_16_bits: Option<&'a Takes16Bits<'a>>,
}

/// The number of elements that a node saves for its gradient, for its sizes, and for the types of its result and of its
/// parameters.
pub(crate) type SavedLen<'a> = dyn Fn(&Saves<'_>, [Dtype; 2]) -> Result<usize, Error> + 'a;

/// A node that saves something for its gradient.
pub(crate) enum Saves<'a> {
    Operator(&'a Operator, &'a Dims),
    /// A step on the items of a set.
    Step(&'a Step, Rows, Set),
}

impl Network {
    /// Plans the network on the CPU: the calls that compute some outputs for a number of rows, with the types of features and model.
    ///
    /// # Errors
    /// [`Error::NotComputed`] for an output that no node computes, or that lies in the memory of another;
    /// [`Error::OutputTwice`] for a value that is two outputs; the errors of
    /// [`Operator::bind`], and [`flashcliff::Error::OutOfMemory`], for a number of rows that tensors cannot have.
    pub fn plan(
        &self,
        outputs: &[Value],
        rows: impl Into<Rows>,
        types: [Dtype; 2],
    ) -> Result<Plan, Error> {
        self.plan_stages(&[outputs], rows, types)
    }

    /// Plans the network in stages, each with its own outputs: a later stage runs at another time, more than once, or
    /// never. Inputs that no call of an earlier stage reads are given only then; outputs of an earlier stage that it
    /// reads are given again. So gradients are a stage after the values of a network, and their seed is an input.
    ///
    /// # Errors
    /// The errors of [`Self::plan`]; [`Error::EarlierStage`] for an output of a stage that an earlier one computes.
    pub fn plan_stages(
        &self,
        stages: &[&[Value]],
        rows: impl Into<Rows>,
        types: [Dtype; 2],
    ) -> Result<Plan, Error> {
        let saved_len = |saves: &Saves<'_>, _| {
            Ok(match saves {
                Saves::Operator(operator, dims) => operator.saved_len(dims),
                Saves::Step(step, rows, set) => {
                    let [own, context] = step.kept(*set);
                    own * rows.of(Set::Items) + context * rows.of(Set::Context)
                }
            })
        };
        let target = Target {
            slack: 0,
            has_chunks: true,
            gathers: false,
            adds: false,
            joins: None,
            fuses: None,
            takes_16_bits: None,
        };
        Plan::new(self, stages, rows.into(), types, &saved_len, target)
    }
}

impl Plan {
    /// Plans with a function for what nodes save.
    pub(crate) fn new(
        network: &Network,
        stages: &[&[Value]],
        rows: Rows,
        types: [Dtype; 2],
        saved_len: &SavedLen<'_>,
        target: Target<'_>,
    ) -> Result<Self, Error> {
        let outputs = stages.concat();
        for &output in &outputs {
            let info = network.info(output)?;
            if !matches!(info.maker, Maker::Node(_)) {
                return Err(Error::NotComputed {
                    what: "output",
                    got: info.name.clone(),
                });
            }
        }
        room::check(network, rows)?;
        let mut plan = Self {
            spots: vec![None; network.values.len()],
            wide: vec![true; network.values.len()],
            network: Arc::new(network.clone()),
            rows,
            types,
            calls: Vec::new(),
            outputs,
            parts: Vec::new(),
            stages: Vec::with_capacity(stages.len()),
            gathered: Gathered::default(),
            residuals: Residuals::default(),
            joined: Joined::default(),
            chains: Chains::default(),
            kept: 0,
        };
        let mut done = vec![false; network.nodes.len()];
        for outputs in stages {
            plan.add_stage(outputs, &mut done, target)?;
        }
        if types[0] != types[1] {
            plan.wide = wide(&plan.network, &plan.outputs, target.takes_16_bits)?;
        }
        let mut shapes = plan.shapes(saved_len)?;
        if target.has_chunks {
            plan.gathered = Gathered::apart(&plan);
        }
        if target.gathers {
            plan.gathered = Gathered::new(&plan, &mut shapes, types[1].bytes());
        }
        if target.adds {
            plan.residuals = Residuals::new(&plan);
        }
        if let Some(joins) = target.joins {
            plan.joined = Joined::new(&plan, joins);
        }
        if let Some(fuses) = target.fuses {
            plan.chains = Chains::new(&plan, fuses);
        }
        plan.place(shapes, target)?;
        Ok(plan)
    }

    /// Adds the calls of a stage with these outputs. Nodes of earlier stages are `done`.
    fn add_stage(
        &mut self,
        outputs: &[Value],
        done: &mut [bool],
        target: Target<'_>,
    ) -> Result<(), Error> {
        let [first_call, first_output] = self
            .stages
            .last()
            .map_or([0; 2], |last| [last.calls.end, last.outputs.end]);
        let is_done = |output: &&Value| match self.network.values[output.0].maker {
            Maker::Node(node) => done[node],
            _ => false,
        };
        if let Some(output) = outputs.iter().find(is_done) {
            return Err(Error::EarlierStage {
                stage: self.stages.len(),
                got: self.network.name(*output).to_owned(),
            });
        }
        let mut earlier = (0..outputs.len()).map(|at| (&outputs[..at], outputs[at]));
        if let Some((_, output)) = earlier.find(|(earlier, own)| earlier.contains(own)) {
            return Err(Error::OutputTwice {
                got: self.network.name(output).to_owned(),
            });
        }
        let mut nodes = needed(&self.network, outputs, done);
        if target.has_chunks {
            nodes = self.network.neighbours(nodes);
        }
        for node in nodes {
            let dims = self.network.dims(&self.network.nodes[node], self.rows)?;
            self.calls.push(Call { node, dims });
        }
        self.stages.push(Stage {
            calls: first_call..self.calls.len(),
            outputs: first_output..first_output + outputs.len(),
            bytes: 0,
        });
        Ok(())
    }

    /// The network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows.count()
    }

    /// The samples and their items.
    pub fn batch(&self) -> Rows {
        self.rows
    }

    /// The types of the features and of the model.
    pub fn types(&self) -> [Dtype; 2] {
        self.types
    }

    /// The outputs, in the order in which they were asked for.
    pub fn outputs(&self) -> &[Value] {
        &self.outputs
    }

    /// The number of stages.
    pub fn stage_count(&self) -> usize {
        self.stages.len()
    }

    /// The calls of a stage, by their numbers.
    pub fn calls(&self, stage: usize) -> Range<usize> {
        self.stages[stage].calls.clone()
    }

    /// The stage of a call.
    fn stage_of(&self, call: usize) -> usize {
        self.stages.partition_point(|stage| stage.calls.end <= call)
    }

    /// The bytes of the memory that values between inputs and outputs share: the most that a [stage](Self::stage_bytes) needs.
    pub fn arena_bytes(&self) -> usize {
        let bytes = self.stages.iter().map(|stage| stage.bytes);
        bytes.max().unwrap_or(0)
    }

    /// The bytes of values that a stage alone needs.
    pub fn stage_bytes(&self, stage: usize) -> usize {
        self.stages[stage].bytes
    }

    /// The bytes of values that several stages need.
    pub fn kept_bytes(&self) -> usize {
        self.kept
    }

    /// Whether nothing is to do in a call: what it reads and what it writes lie in one memory, or other calls do its
    /// work. Zeros after the first blades are written once if the arena is of one plan, and in each run if others have
    /// it too.
    pub fn is_idle(&self, call: usize) -> bool {
        match self.work(call) {
            Work::FirstBlades(_) => true,
            Work::ExtendBlades { clears, .. } => !clears && self.is_whole(),
            _ => {
                self.gathered.is_idle(call)
                    || self.residuals.is_idle(call)
                    || self.joined.is_idle(call)
                    || self.chains.is_idle(call)
                    || self.shows(call)
            }
        }
    }

    /// Whether a call shows numbers as other channels where they lie.
    fn shows(&self, call: usize) -> bool {
        let output = self.node(call).outputs[0];
        let memory = |value: Value| Some(self.spots[value.0].as_ref()?.memory);
        let shown = self.network.shown_by(output);
        shown.is_some_and(|shown| memory(shown) == memory(output))
    }

    /// Whether all calls run at once, in a separate arena, which stays as it is from run to run.
    pub(crate) fn is_whole(&self) -> bool {
        self.stages.len() == 1
    }

    /// The number of calls.
    pub fn call_count(&self) -> usize {
        self.calls.len()
    }

    /// The work of a call.
    pub fn work(&self, call: usize) -> &Work {
        &self.node(call).work
    }

    /// The sizes of the operator of a call, also of the one whose gradient is computed.
    pub fn dims(&self, call: usize) -> Option<&Dims> {
        self.calls[call].dims.as_ref()
    }

    /// The values that a call reads.
    pub fn reads(&self, call: usize) -> &[Value] {
        &self.node(call).inputs
    }

    /// The values that a call writes.
    pub fn writes(&self, call: usize) -> &[Value] {
        &self.node(call).outputs
    }

    /// The parameters that are read where the host has them, in place of a value that would join them.
    pub(crate) fn parts_apart(&self, value: Value) -> Option<&[Value]> {
        match self.gathered.is_absent(value) {
            true => self.network.parts(value),
            false => None,
        }
    }

    /// The gradients that a call writes in place of one of joined parameters, each with its first element among all elements.
    pub(crate) fn gradients_apart(&self, call: usize) -> &[(usize, usize, Value)] {
        let found = self.gathered.gradient_of(call);
        found.map_or(&[], |at| &self.gathered.gradients[at].parts)
    }

    /// The shape and the type of a value; `None` if no call needs it.
    pub fn tensor(&self, value: Value) -> Option<(&[usize], Dtype)> {
        let spot = self.spots.get(value.0)?.as_ref()?;
        Some((&spot.shape, spot.dtype))
    }

    /// The call after which an output is complete.
    pub fn completed_by(&self, output: usize) -> Option<usize> {
        let value = *self.outputs.get(output)?;
        let writes = |call: &Call| self.network.nodes[call.node].outputs.contains(&value);
        self.calls.iter().rposition(writes)
    }

    pub(crate) fn node(&self, call: usize) -> &Node {
        &self.network.nodes[self.calls[call].node]
    }

    /// Whether the tokens that a step reads, and the tokens that it writes, have the type of the model, by its node.
    #[cfg(feature = "cuda")]
    pub(crate) fn wide_ends(&self, node: usize) -> [bool; 2] {
        let Node {
            inputs, outputs, ..
        } = &self.network.nodes[node];
        [inputs[0], outputs[0]].map(|end| self.wide[end.0])
    }

    /// The set of the items that a step works on, by its node.
    #[cfg(feature = "cuda")]
    pub(crate) fn set_of_node(&self, node: usize) -> Set {
        let output = self.network.nodes[node].outputs[0];
        self.network.set_of(output).unwrap_or(Set::Items)
    }

    /// Where a value lies. Values of calls lie somewhere.
    pub(crate) fn spot(&self, value: Value) -> Result<&Spot, Error> {
        let spot = self.spots.get(value.0).and_then(Option::as_ref);
        spot.ok_or_else(|| Error::NotComputed {
            what: "plan",
            got: self.network.name(value).to_owned(),
        })
    }

    /// The shape of each value, as the calls need it.
    fn shapes(&self, saved_len: &SavedLen<'_>) -> Result<Vec<Vec<usize>>, Error> {
        let network = &self.network;
        let mut shapes: Vec<Vec<usize>> = Vec::with_capacity(network.values.len());
        for info in &network.values {
            shapes.push(match &info.extent {
                Extent::Shape(axes) => sizes(axes, self.rows),
                Extent::Saved => Vec::new(),
            });
        }
        for call in &self.calls {
            let node = &network.nodes[call.node];
            let saves = match (&node.work, &call.dims) {
                (Work::Operator(operator), Some(dims)) if operator.outputs().len() == 1 => {
                    Saves::Operator(operator, dims)
                }
                (Work::Step(step), _) => {
                    let set = network.set_of(node.outputs[0]);
                    Saves::Step(step, self.rows, set.unwrap_or(Set::Items))
                }
                _ => continue,
            };
            if let [output, saved] = node.outputs[..] {
                let types = [self.types[usize::from(self.wide[output.0])], self.types[1]];
                shapes[saved.0] = vec![saved_len(&saves, types)?];
            }
        }
        Ok(shapes)
    }
}

impl Network {
    /// The sizes of the operator of a node, also of the one whose gradient it is.
    pub(crate) fn dims(&self, node: &Node, rows: Rows) -> Result<Option<Dims>, Error> {
        let operator = match &node.work {
            Work::Operator(operator) => operator,
            Work::Gradient(Gradient { of, .. }) => match &**of {
                Work::Operator(operator) => operator,
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let mut shapes = Vec::new();
        for &input in &node.inputs[..operator.inputs().len()] {
            shapes.push(match &self.info(input)?.extent {
                Extent::Shape(axes) => sizes(axes, rows),
                Extent::Saved => Vec::new(),
            });
        }
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        Ok(Some(operator.bind(&shapes)?))
    }
}

/// The nodes that some outputs depend on and that are not done: first the nodes of parameters alone, then all others,
/// in order. Marks them as done.
fn needed(network: &Network, outputs: &[Value], done: &mut [bool]) -> Vec<usize> {
    let (mut nodes, mut open) = (Vec::new(), outputs.to_vec());
    while let Some(value) = open.pop() {
        if let Maker::Node(node) = network.values[value.0].maker
            && !std::mem::replace(&mut done[node], true)
        {
            nodes.push(node);
            open.extend(&network.nodes[node].inputs);
        }
    }
    nodes.sort_unstable();
    let nodes = nodes.into_iter();
    let (first, others): (Vec<usize>, Vec<usize>) = nodes.partition(|&node| network.is_ahead(node));
    first.into_iter().chain(others).collect()
}

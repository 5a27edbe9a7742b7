//! A network: values with shapes, and the nodes that compute them.

use std::fmt;
use std::sync::Arc;

use flashcliff::{Dim, Operator, TensorSpec};

use crate::Error;
use crate::relation::{Along, Reduction, Relation};
use crate::tokens::{Channels, Step};
use crate::work::{Activation, Sides, Work};

/// A value of a network, by its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub(crate) usize);

/// The rows of a batch: samples of as many items each. Rows without items are samples of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rows {
    /// The samples. A ragged batch is one sample here.
    pub samples: usize,
    /// The items of a sample.
    pub items: usize,
    /// The items of the context of a sample, to which its own may attend; 0 without a context.
    pub context: usize,
    /// The edges of a graph whose nodes are the rows; 0 without edges.
    pub edges: usize,
    /// The graphs of the batch; 0 without graphs.
    pub graphs: usize,
    /// The rows of further sets, which a network may have beside these, such as the simplices of each dimension; 0 without them.
    pub others: [usize; Self::MOST_OTHERS],
}

impl Rows {
    /// The most sets of rows besides the named ones.
    pub const MOST_OTHERS: usize = 3;

    /// Samples of as many items each, without a context.
    pub const fn new(samples: usize, items: usize) -> Self {
        Self {
            samples,
            items,
            context: 0,
            edges: 0,
            graphs: 0,
            others: [0; Self::MOST_OTHERS],
        }
    }

    /// The same samples, each with `context` items of context.
    pub const fn with_context(mut self, context: usize) -> Self {
        self.context = context;
        self
    }

    /// Graphs with so many nodes and edges together.
    pub const fn of_graphs(graphs: usize, nodes: usize, edges: usize) -> Self {
        Self {
            edges,
            graphs,
            ..Self::new(nodes, 1)
        }
    }

    /// The number of rows.
    pub fn count(self) -> usize {
        self.of(Set::Items)
    }

    /// The rows as steps on the tokens of a set see them.
    #[cfg(feature = "cuda")]
    pub(crate) fn seen_from(self, set: Set) -> Self {
        match set {
            Set::Items => self,
            Set::Context => Self::new(self.samples, self.context),
        }
    }

    /// The rows of a set.
    pub(crate) fn of(self, set: Set) -> usize {
        self.samples.saturating_mul(match set {
            Set::Items => self.items,
            Set::Context => self.context,
        })
    }
}

impl From<usize> for Rows {
    fn from(samples: usize) -> Self {
        Self::new(samples, 1)
    }
}

/// The sets of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Set {
    Items,
    Context,
}

impl Set {
    /// The axis of the rows of the set.
    pub(crate) fn rows(self) -> Axis {
        match self {
            Self::Items => Axis::Rows,
            Self::Context => Axis::ContextRows,
        }
    }

    /// The axis of the items of a sample.
    pub(crate) fn items(self) -> Axis {
        match self {
            Self::Items => Axis::Items,
            Self::Context => Axis::ContextItems,
        }
    }
}

/// An axis of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Axis {
    /// The rows of a batch, whose number a [plan](crate::Plan) has.
    Rows,
    /// The samples of a batch.
    Samples,
    /// The items of a sample.
    Items,
    /// The rows of the context of all samples.
    ContextRows,
    /// The items of the context of a sample.
    ContextItems,
    /// The edges of all graphs.
    Edges,
    /// The graphs of a batch.
    Graphs,
    /// The rows of a further set, by its number, below [`Rows::MOST_OTHERS`].
    Others(usize),
    /// A size.
    Fixed(usize),
    /// The numbers of a [token](crate::tokens).
    Token {
        /// The blades of its multivectors.
        blades: usize,
        /// Its channels.
        channels: Channels,
    },
}

impl Axis {
    /// The size for some rows.
    pub fn size(self, rows: impl Into<Rows>) -> usize {
        let rows = rows.into();
        match self {
            Self::Rows => rows.count(),
            Self::Samples => rows.samples,
            Self::Items => rows.items,
            Self::ContextRows => rows.of(Set::Context),
            Self::ContextItems => rows.context,
            Self::Edges => rows.edges,
            Self::Graphs => rows.graphs,
            Self::Others(number) => rows.others.get(number).copied().unwrap_or(0),
            Self::Fixed(size) => size,
            Self::Token { blades, channels } => channels.width_over(blades),
        }
    }
}

impl Axis {
    /// Whether operators take the axis as their batch: one of rows, in any number.
    pub(crate) fn is_batch(self) -> bool {
        matches!(
            self,
            Self::Rows
                | Self::Samples
                | Self::ContextRows
                | Self::Edges
                | Self::Graphs
                | Self::Others(_)
        )
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows => f.write_str("rows"),
            Self::Samples => f.write_str("samples"),
            Self::Items => f.write_str("items"),
            Self::ContextRows => f.write_str("context rows"),
            Self::ContextItems => f.write_str("context items"),
            Self::Edges => f.write_str("edges"),
            Self::Graphs => f.write_str("graphs"),
            Self::Others(number) => write!(f, "others {number}"),
            Self::Token { blades, channels } => {
                let Channels {
                    multivectors,
                    scalars,
                } = channels;
                write!(f, "{blades} x {multivectors} + {scalars}")
            }
            Self::Fixed(size) => write!(f, "{size}"),
        }
    }
}

/// The source of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    Input(usize),
    Parameter(usize),
    Node(usize),
}

/// The elements of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Shape(Vec<Axis>),
    /// What the operator of a node saves for its backward pass, whose size the operator knows.
    Saved,
}

/// What a network knows of a value.
#[derive(Clone, Debug)]
pub(crate) struct Info {
    pub(crate) name: String,
    pub(crate) extent: Extent,
    pub(crate) maker: Maker,
    /// Whether the value depends on a parameter.
    pub(crate) is_tracked: bool,
    /// The value whose gradient this is.
    pub(crate) gradient_of: Option<Value>,
}

/// A node: what computes some values from others.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) work: Work,
    pub(crate) inputs: Vec<Value>,
    pub(crate) outputs: Vec<Value>,
    /// The block that the node belongs to.
    pub(crate) block: usize,
    /// The node of the forward pass that this one computes again, or whose gradients it computes; else its own number.
    pub(crate) origin: usize,
}

/// A network as a graph: values with shapes, and nodes that compute them, in an order in which they can run.
///
/// The number of rows is open until a network is [planned](Self::plan). Multivectors are `[blades, rows, channels]`.
/// The methods add nodes and check shapes; [`gradients`](Self::gradients) adds the nodes that compute gradients. It
/// displays as text, a line for each node, and [`dot`](Self::dot) writes it for Graphviz.
///
/// ```
/// use flashcliff::ops::{self, LinearOptions};
/// use flashcliff::{Algebra, Bias, Signature};
/// use flashcliff_network::{Axis, Network};
///
/// let plane = Algebra::new(Signature::new(2, 0, 0)?)?;
/// let options = LinearOptions::default().with_per_grade(false).with_bias(Bias::None);
/// let mut network = Network::new();
/// let x = network.input("x", &[Axis::Fixed(4), Axis::Rows, Axis::Fixed(3)]);
/// let weight = network.parameter("weight", &[5, 3]);
/// let y = network.operator(&ops::mv_linear(plane, &options)?, &[x, weight])?;
/// assert_eq!(network.shape(y), Some(&[Axis::Fixed(4), Axis::Rows, Axis::Fixed(5)][..]));
/// assert!(network.to_string().contains("mv_linear"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Network {
    pub(crate) values: Vec<Info>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) inputs: Vec<Value>,
    /// The inputs that have the type of features.
    pub(crate) features: Vec<Value>,
    pub(crate) parameters: Vec<Value>,
    /// The relations, with their names.
    pub(crate) relations: Vec<(String, Relation)>,
    pub(crate) blocks: usize,
}

impl Network {
    /// A network without values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an input, which a host gives in each run, in the type of the model.
    pub fn input(&mut self, name: &str, shape: &[Axis]) -> Value {
        let maker = Maker::Input(self.inputs.len());
        let value = self.value(name, Extent::Shape(shape.to_vec()), maker, false);
        self.inputs.push(value);
        value
    }

    /// Adds an input in the type of the features: a value that another network computes, or its gradient.
    pub fn features(&mut self, name: &str, shape: &[Axis]) -> Value {
        let value = self.input(name, shape);
        self.features.push(value);
        value
    }

    /// Adds a parameter. [Gradients](Self::gradients) are by parameters.
    pub fn parameter(&mut self, name: &str, shape: &[usize]) -> Value {
        let maker = Maker::Parameter(self.parameters.len());
        let axes = shape.iter().map(|&size| Axis::Fixed(size)).collect();
        let value = self.value(name, Extent::Shape(axes), maker, true);
        self.parameters.push(value);
        value
    }

    /// Declares a relation: each row of one axis, an edge for example, belongs to a row of another, as its node. A run gives the
    /// [`Segments`](crate::Segments) of all relations, in this order.
    ///
    /// ```
    /// use flashcliff::{Algebra, Dtype, Signature};
    /// use flashcliff_network::{Axis, Cpu, Network, Reduction, Rows, Scales, Segments, Slices};
    ///
    /// // Each node gets the sum of its neighbours.
    /// let mut network = Network::new();
    /// let senders = network.relation("senders", Axis::Edges, Axis::Rows)?;
    /// let receivers = network.relation("receivers", Axis::Edges, Axis::Rows)?;
    /// let x = network.input("x", &[Axis::Fixed(1), Axis::Rows, Axis::Fixed(2)]);
    /// let messages = network.gather(x, senders)?;
    /// let y = network.segment_sum(messages, receivers, Reduction::Sum)?;
    ///
    /// let plan = network.plan(&[y], Rows::of_graphs(1, 3, 2), [Dtype::F64; 2])?;
    /// let relations = [Segments::new(&[0_i64, 1], 3)?, Segments::new(&[2_i64, 2], 3)?];
    /// let scales = Scales { relations: &relations, ..Scales::default() };
    /// let sources = Slices { inputs: &[&[1.0, 2.0, 10.0, 20.0, 0.0, 0.0]], parameters: &[] };
    /// let mut outputs = [vec![0.0; 6]];
    /// Cpu::new(&plan)?.run(&plan, &sources, &mut outputs, scales, &mut |_| {})?;
    /// assert_eq!(outputs[0], [0.0, 0.0, 0.0, 0.0, 11.0, 22.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] unless both axes are rows of some kind: items, samples, the context, edges, graphs, or the rows
    /// of a further set.
    pub fn relation(&mut self, name: &str, from: Axis, to: Axis) -> Result<Relation, Error> {
        if let Some(other) = [from, to].into_iter().find(|axis| !axis.is_batch()) {
            return Err(Error::Shape {
                node: format!("the relation {name}"),
                expected: "axes of rows, edges, graphs, samples, the context or a further set"
                    .to_owned(),
                got: other.to_string(),
            });
        }
        let number = self.relations.len();
        let own = Relation { number, from, to };
        self.relations.push((name.to_owned(), own));
        Ok(own)
    }

    /// The relations, in the order in which a run gives their segments.
    pub fn relations(&self) -> impl ExactSizeIterator<Item = Relation> {
        self.relations.iter().map(|(_, own)| *own)
    }

    /// The name of a relation.
    pub fn relation_name(&self, relation: Relation) -> &str {
        self.relations.get(relation.number).map_or("", |own| &own.0)
    }

    /// The inputs, in the order in which a host gives them.
    pub fn inputs(&self) -> &[Value] {
        &self.inputs
    }

    /// The parameters, in the order in which a host gives them.
    pub fn parameters(&self) -> &[Value] {
        &self.parameters
    }

    /// The name of a value: that of an input or of a parameter, `%7` of a computed one.
    pub fn name(&self, value: Value) -> &str {
        self.values.get(value.0).map_or("", |info| &info.name)
    }

    /// The axes of a value; `None` for what an operator saves for its gradient, and for a value of another network.
    pub fn shape(&self, value: Value) -> Option<&[Axis]> {
        match &self.values.get(value.0)?.extent {
            Extent::Shape(axes) => Some(axes),
            Extent::Saved => None,
        }
    }

    /// Whether a value depends on a parameter, or is one.
    pub fn depends_on_parameter(&self, value: Value) -> bool {
        self.values.get(value.0).is_some_and(|info| info.is_tracked)
    }

    /// Begins a block. With [`Keep::BetweenBlocks`](crate::Keep::BetweenBlocks), values that one block alone reads
    /// are computed again by the nodes of gradients. Without this call a network is one block.
    pub fn block(&mut self) {
        let used = self
            .nodes
            .last()
            .is_some_and(|node| node.block == self.blocks);
        self.blocks += usize::from(used);
    }

    /// An operator on values in the order of its inputs.
    ///
    /// # Errors
    /// [`Error::Count`], [`Error::Shape`] where rows stand for another axis than the batch, and the errors of [`Operator::bind`].
    pub fn operator(&mut self, operator: &Operator, inputs: &[Value]) -> Result<Value, Error> {
        self.shared_operator(&Arc::new(operator.clone()), inputs)
    }

    /// Does the same as [`Self::operator`] with an operator that several networks share.
    ///
    /// # Errors
    /// The errors of [`Self::operator`].
    pub fn shared_operator(
        &mut self,
        operator: &Arc<Operator>,
        inputs: &[Value],
    ) -> Result<Value, Error> {
        self.one(Work::Operator(operator.clone()), inputs)
    }

    /// An operator with any number of outputs: its results, in their order.
    ///
    /// # Errors
    /// The errors of [`Self::operator`].
    pub fn results_of(
        &mut self,
        operator: &Operator,
        inputs: &[Value],
    ) -> Result<Vec<Value>, Error> {
        let count = operator.outputs().len();
        let mut made = self.push(Work::Operator(Arc::new(operator.clone())), inputs)?;
        made.truncate(count);
        Ok(made)
    }

    /// For each row of the first axis of a relation what it belongs to: for each edge the value of its node. The
    /// value has the second axis once, and else only sizes.
    ///
    /// # Errors
    /// [`Error::Shape`]; [`Error::Unknown`] for a relation of another network.
    pub fn gather(&mut self, x: Value, relation: Relation) -> Result<Value, Error> {
        self.check_relation(relation)?;
        self.one(Work::Gather(Along::new(relation, Reduction::Sum)), &[x])
    }

    /// The difference of what each row belongs to by two relations of the same axes: for each edge the value of one
    /// of its nodes less that of the other.
    ///
    /// # Errors
    /// The errors of [`Self::gather`]; [`Error::Shape`] for relations of other axes.
    pub fn difference(
        &mut self,
        x: Value,
        [relation, minus]: [Relation; 2],
    ) -> Result<Value, Error> {
        self.check_relation(relation)?;
        self.check_relation(minus)?;
        let along = Along {
            minus: Some(minus),
            ..Along::new(relation, Reduction::Sum)
        };
        self.one(Work::Gather(along), &[x])
    }

    /// Values side by side along an axis that has a size in all of them; in all others they are equal.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::Count`].
    pub fn join(&mut self, parts: &[Value], axis: usize) -> Result<Value, Error> {
        let size = |&part: &Value| match self.shape(part).and_then(|axes| axes.get(axis)) {
            Some(Axis::Fixed(size)) => *size,
            _ => 0,
        };
        let sides = Sides::new(axis, parts.iter().map(size));
        match parts.len() {
            0 => Err(Error::Count {
                node: "join".to_owned(),
                expected: "at least 1".to_owned(),
                got: 0,
            }),
            _ => self.one(Work::Join(sides), parts),
        }
    }

    /// The parts of a value along an axis, by their sizes.
    ///
    /// # Errors
    /// [`Error::Shape`] for sizes that do not add up to the size of the axis.
    pub fn split(&mut self, x: Value, axis: usize, sizes: &[usize]) -> Result<Vec<Value>, Error> {
        self.push(Work::Split(Sides::new(axis, sizes.iter().copied())), &[x])
    }

    /// For each row of the second axis of a relation the sum over the rows that belong to it, in ascending order: for
    /// each node the sum of its edges. The sum of none is 0.
    ///
    /// # Errors
    /// [`Error::Shape`]; [`Error::Unknown`] for a relation of another network.
    pub fn segment_sum(
        &mut self,
        x: Value,
        relation: Relation,
        reduction: Reduction,
    ) -> Result<Value, Error> {
        self.check_relation(relation)?;
        self.one(Work::SegmentSum(Along::new(relation, reduction)), &[x])
    }

    fn check_relation(&self, relation: Relation) -> Result<(), Error> {
        let own = self.relations.get(relation.number);
        match own.is_some_and(|(_, own)| *own == relation) {
            true => Ok(()),
            false => Err(Error::Unknown {
                count: self.relations.len(),
                got: relation.number,
            }),
        }
    }

    /// Points `[rows, points, dim]` as multivectors of grades 0 and 1, whose scalars are 0: `[1 + dim, rows, points]`.
    ///
    /// # Errors
    /// [`Error::Shape`].
    pub fn points(&mut self, x: Value) -> Result<Value, Error> {
        self.one(Work::Points, &[x])
    }

    /// The Euclidean norm over the blades of `[blades, rows, channels]`: `[1, rows, channels]`. Its gradient is 0 where the norm is.
    ///
    /// # Errors
    /// [`Error::Shape`].
    pub fn blade_norm(&mut self, x: Value) -> Result<Value, Error> {
        self.one(Work::BladeNorm, &[x])
    }

    /// An activation of each element.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn activation(&mut self, x: Value, kind: Activation) -> Result<Value, Error> {
        self.one(Work::Activation(kind), &[x])
    }

    /// `scale (x + y)` of two values of one shape.
    ///
    /// # Errors
    /// [`Error::Shape`].
    pub fn scaled_sum(&mut self, [x, y]: [Value; 2], scale: f64) -> Result<Value, Error> {
        self.one(Work::ScaledSum(scale), &[x, y])
    }

    /// One blade of `[blades, rows, channels]`: `[1, rows, channels]`.
    ///
    /// # Errors
    /// [`Error::Shape`].
    pub fn blade(&mut self, x: Value, blade: usize) -> Result<Value, Error> {
        self.one(Work::Blade(blade), &[x])
    }

    /// The first blades of `[blades, rows, channels]`, where they lie: nothing is copied.
    ///
    /// # Errors
    /// [`Error::Shape`].
    pub fn first_blades(&mut self, x: Value, blades: usize) -> Result<Value, Error> {
        match self.shape(x) {
            Some([Axis::Fixed(all), ..]) if *all == blades => Ok(x),
            _ => self.one(Work::FirstBlades(blades), &[x]),
        }
    }

    /// Multivectors with further blades, which are 0. The memory of `x` has room for them, and they are written once.
    ///
    /// # Errors
    /// [`Error::Shape`]; [`Error::NotComputed`] for an input, a parameter, or blades that lie in a value of more.
    pub fn extend_blades(&mut self, x: Value, blades: usize) -> Result<Value, Error> {
        match self.shape(x) {
            Some([Axis::Fixed(all), ..]) if *all == blades => return Ok(x),
            _ => {}
        }
        if !self.fills_its_memory(x) {
            return Err(Error::NotComputed {
                what: "extend_blades",
                got: self.name(x).to_owned(),
            });
        }
        let work = Work::ExtendBlades {
            blades,
            clears: false,
        };
        self.one(work, &[x])
    }

    /// The blades of each channel side by side: `[blades, rows, channels]`, of at most 8 blades, as
    /// `[1, rows, channels x blades]`. Numbers of grades become scalars so.
    ///
    /// # Errors
    /// [`Error::Shape`].
    pub fn blades_to_channels(&mut self, x: Value) -> Result<Value, Error> {
        self.one(Work::BladesToChannels, &[x])
    }

    /// The inverse of [`Self::blades_to_channels`]: `[1, rows, channels x blades]` as `[blades, rows, channels]`.
    ///
    /// # Errors
    /// [`Error::Shape`] for channels that are no multiple of the blades, and for more than 8 blades.
    pub fn channels_to_blades(&mut self, x: Value, blades: usize) -> Result<Value, Error> {
        self.one(Work::ChannelsToBlades(blades), &[x])
    }

    /// A value `[first, middle, last]` with its axes in reverse order.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of axes, and for rows among them.
    pub fn reverse_axes(&mut self, x: Value) -> Result<Value, Error> {
        self.one(Work::ReverseAxes, &[x])
    }

    /// A step of a transformer on tokens, with its inputs in the order that [`Step`] says. [`Self::concatenate`] joins parameters.
    ///
    /// # Errors
    /// [`Error::Count`], [`Error::Shape`].
    pub fn step(&mut self, step: impl Into<Arc<Step>>, inputs: &[Value]) -> Result<Value, Error> {
        self.one(Work::Step(step.into()), inputs)
    }

    /// The elements of values without rows, one value after another: `[elements]`.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::Count`].
    pub fn concatenate(&mut self, parts: &[Value]) -> Result<Value, Error> {
        let len = |&part: &Value| {
            let axes = self.shape(part).unwrap_or_default();
            axes.iter().map(|axis| axis.size(1)).product()
        };
        self.one(Work::Concatenate(parts.iter().map(len).collect()), parts)
    }

    /// The squared error of predictions, `scale sum of (y - target)^2`, and its gradient by the predictions. A run
    /// gives the scale. Both values have the same number of elements, in any shape.
    ///
    /// # Errors
    /// [`Error::Shape`].
    pub fn squared_error(&mut self, y: Value, target: Value) -> Result<[Value; 2], Error> {
        let made = self.push(Work::SquaredError, &[y, target])?;
        self.values[made[1].0].gradient_of = Some(y);
        Ok([made[0], made[1]])
    }

    /// The value whose numbers another one shows as other channels; `None` for all others.
    pub(crate) fn shown_by(&self, value: Value) -> Option<Value> {
        let Maker::Node(node) = self.values.get(value.0)?.maker else {
            return None;
        };
        let Node {
            work,
            inputs,
            outputs,
            ..
        } = &self.nodes[node];
        let (of, shown) = match work {
            Work::Gradient(gradient) => (&*gradient.of, inputs.last()),
            work => (work, inputs.first()),
        };
        match of {
            Work::Step(step) if matches!(**step, Step::Components(_)) && outputs[0] == value => {
                shown.copied()
            }
            _ => None,
        }
    }

    /// Whether a node computes a value that shares its memory with no larger one, and with none whose numbers it shows.
    pub(crate) fn fills_its_memory(&self, value: Value) -> bool {
        match self.values.get(value.0).map(|info| info.maker) {
            Some(Maker::Node(node)) => {
                let is_first = matches!(self.nodes[node].work, Work::FirstBlades(_));
                !is_first && self.shown_by(value).is_none()
            }
            _ => false,
        }
    }

    /// Whether a value is what a node saves for its gradient.
    pub(crate) fn is_saved(&self, value: Value) -> bool {
        self.values[value.0].extent == Extent::Saved
    }

    /// Whether a value is a parameter, or parameters in another order.
    pub(crate) fn is_of_parameters(&self, value: Value) -> bool {
        match self.values[value.0].maker {
            Maker::Input(_) => false,
            Maker::Parameter(_) => true,
            Maker::Node(node) => {
                let Node { work, inputs, .. } = &self.nodes[node];
                work.moves() && inputs.iter().all(|&input| self.is_of_parameters(input))
            }
        }
    }

    /// Whether the parameters of an operator are there before all calls but those ahead of others: given, or made of what is given.
    pub(crate) fn has_own_weights(&self, node: &Node, operator: &Operator) -> bool {
        parameters(node, operator).all(|value| match self.values[value.0].maker {
            Maker::Parameter(_) => true,
            Maker::Input(_) => false,
            Maker::Node(made) => self.is_ahead(made),
        })
    }

    pub(crate) fn one(&mut self, work: Work, inputs: &[Value]) -> Result<Value, Error> {
        Ok(self.push(work, inputs)?[0])
    }

    /// Adds a node, and returns its results.
    pub(crate) fn push(&mut self, work: Work, inputs: &[Value]) -> Result<Vec<Value>, Error> {
        let mut shapes = Vec::with_capacity(inputs.len());
        for &input in inputs {
            shapes.push(&self.info(input)?.extent);
        }
        let extents = work.outputs(&shapes)?;
        let is_tracked = inputs.iter().any(|input| self.values[input.0].is_tracked);
        let outputs = self.results(extents, is_tracked);
        self.nodes.push(Node {
            work,
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
            block: self.blocks,
            origin: self.nodes.len(),
        });
        Ok(outputs)
    }

    /// The values that the next node computes.
    pub(crate) fn results(&mut self, extents: Vec<Extent>, is_tracked: bool) -> Vec<Value> {
        let maker = Maker::Node(self.nodes.len());
        let results = extents.into_iter().map(|extent| {
            let name = format!("%{}", self.values.len());
            self.value(&name, extent, maker, is_tracked)
        });
        results.collect()
    }

    fn value(&mut self, name: &str, extent: Extent, maker: Maker, is_tracked: bool) -> Value {
        self.values.push(Info {
            name: name.to_owned(),
            extent,
            maker,
            is_tracked,
            gradient_of: None,
        });
        Value(self.values.len() - 1)
    }

    pub(crate) fn info(&self, value: Value) -> Result<&Info, Error> {
        self.values.get(value.0).ok_or(Error::Unknown {
            count: self.values.len(),
            got: value.0,
        })
    }
}

/// The parameters of an operator among the inputs of its node.
pub(crate) fn parameters(node: &Node, operator: &Operator) -> impl Iterator<Item = Value> {
    let inputs = node.inputs.iter().zip(operator.inputs());
    inputs
        .filter(|(_, spec)| spec.is_parameter())
        .map(|(&value, _)| value)
}

/// The axes of an operator's results, and a check of the axes of its inputs. One axis of rows stands for the batch in
/// all of them.
pub(crate) fn axes_of_operator(
    operator: &Operator,
    inputs: &[&[Axis]],
) -> Result<Vec<Vec<Axis>>, Error> {
    let batch = inputs.iter().flat_map(|axes| axes.iter()).copied();
    let batch = batch.into_iter().find(|axis| axis.is_batch());
    for (spec, axes) in operator.inputs().iter().zip(inputs) {
        let fits = |(dim, axis): (&Dim, &Axis)| match axis {
            Axis::Fixed(_) => *dim != Dim::Batch,
            own => *dim == Dim::Batch && Some(*own) == batch,
        };
        if spec.dims.len() != axes.len() || !spec.dims.iter().zip(*axes).all(fits) {
            return Err(Error::Shape {
                node: operator.name().to_owned(),
                expected: spec.to_string(),
                got: in_words(axes),
            });
        }
    }
    // The number of rows does not matter for what an operator checks.
    let one = Rows {
        context: 1,
        others: [1; Rows::MOST_OTHERS],
        ..Rows::of_graphs(1, 1, 1)
    };
    let shapes: Vec<Vec<usize>> = inputs.iter().map(|axes| sizes(axes, one)).collect();
    let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
    let dims = operator.bind(&shapes)?;
    let axis = |(dim, size): (&Dim, usize)| match (dim, batch) {
        (Dim::Batch, Some(batch)) => batch,
        (Dim::Batch, None) => Axis::Rows,
        _ => Axis::Fixed(size),
    };
    let axes_of = |spec: &TensorSpec| spec.dims.iter().zip(spec.shape(&dims)).map(axis).collect();
    Ok(operator.outputs().iter().map(axes_of).collect())
}

/// The sizes of axes.
pub(crate) fn sizes(axes: &[Axis], rows: impl Into<Rows>) -> Vec<usize> {
    let rows = rows.into();
    axes.iter().map(|axis| axis.size(rows)).collect()
}

/// Axes as text.
pub(crate) fn in_words(axes: &[Axis]) -> String {
    let axes: Vec<String> = axes.iter().map(Axis::to_string).collect();
    format!("[{}]", axes.join(", "))
}

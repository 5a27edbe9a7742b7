//! What a node computes.

use std::fmt;
use std::sync::Arc;

use flashcliff::Operator;

use crate::Error;
use crate::network::{Axis, Extent, Set, axes_of_operator, in_words};
use crate::relation::{Along, Relation, name_of_sum};
use crate::tokens::Step;
use crate::tokens::step::Input;

/// The most values that a node reads.
pub(crate) const MOST_INPUTS: usize = 24;

/// The most parts of a value along an axis: as many as a kernel takes.
pub(crate) const MOST_PARTS: usize = 8;

/// A function of each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// `x / (1 + exp(-x))`.
    Silu,
    /// `max(x, 0)`.
    Relu,
}

/// The computation of a node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Work {
    /// An operator: its outputs, and what it saves if it has one.
    Operator(Arc<Operator>),
    /// For each row of a relation what it belongs to, divided as its sum is, whose gradient this is.
    Gather(Along),
    /// The sum over the rows that belong to each row of a relation.
    SegmentSum(Along),
    /// Values side by side along an axis.
    Join(Sides),
    /// The parts of a value along an axis: the gradient of a join.
    Split(Sides),
    /// Points as multivectors of grades 0 and 1.
    Points,
    /// The Euclidean norm over blades.
    BladeNorm,
    /// A function of each element.
    Activation(Activation),
    /// The sum of one or two values, times a number.
    ScaledSum(f64),
    /// One blade.
    Blade(usize),
    /// The first blades, where they lie.
    FirstBlades(usize),
    /// Further blades, which are 0, in the memory of the first ones.
    ExtendBlades {
        /// All blades.
        blades: usize,
        /// Whether each run writes the zeros. Else the memory is of no other value, and they are written once.
        clears: bool,
    },
    /// The blades of each channel side by side, as channels of one blade.
    BladesToChannels,
    /// Channels of one blade as so many blades of fewer channels: the gradient of that.
    ChannelsToBlades(usize),
    /// Three axes in reverse order.
    ReverseAxes,
    /// The elements of values one after another, so many of each.
    Concatenate(Arc<[usize]>),
    /// A step of a transformer: its tokens, and what it keeps for its gradient.
    Step(Arc<Step>),
    /// The squared error, and its gradient.
    SquaredError,
    /// The gradients of some inputs of another node.
    Gradient(Gradient),
}

/// Parts of a value along an axis, of which some are there: a join has zeros for the others, a split leaves them out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sides {
    /// The axis.
    pub axis: usize,
    /// For each part its size along the axis, and whether it is there.
    pub parts: Arc<[(usize, bool)]>,
}

impl Sides {
    /// Parts that are all there.
    pub(crate) fn new(axis: usize, sizes: impl IntoIterator<Item = usize>) -> Self {
        let parts = sizes.into_iter().map(|size| (size, true)).collect();
        Self { axis, parts }
    }

    /// The same parts, of which others are there: a choice for each of those that are.
    pub(crate) fn of(&self, choice: &[bool]) -> Self {
        let mut choice = choice.iter();
        let own = self.parts.iter().map(|&(size, there)| {
            let chosen = there && choice.next().copied().unwrap_or(false);
            (size, chosen)
        });
        Self {
            axis: self.axis,
            parts: own.collect(),
        }
    }

    /// The elements along the axis.
    pub(crate) fn whole(&self) -> usize {
        self.parts.iter().map(|(size, _)| size).sum()
    }

    /// The parts that are there: where each begins, and its size.
    pub(crate) fn there(&self) -> impl Iterator<Item = (usize, usize)> {
        let mut end = 0;
        let own = self.parts.iter().map(move |&(size, there)| {
            end += size;
            (end - size, size, there)
        });
        own.filter(|own| own.2).map(|(from, size, _)| (from, size))
    }

    /// Axes with another size along the axis.
    fn with(&self, axes: &[Axis], size: usize) -> Vec<Axis> {
        let mut axes = axes.to_vec();
        axes[self.axis] = Axis::Fixed(size);
        axes
    }
}

/// The gradients of some inputs of a node.
#[derive(Clone, Debug)]
pub struct Gradient {
    /// The node.
    pub of: Box<Work>,
    /// For each input of the node whether its gradient is computed.
    pub wanted: Vec<bool>,
    /// Whether the gradient of the first input is added to a value, which is the last that is read.
    pub adds: bool,
}

impl Gradient {
    /// Whether the gradient of a mask is computed.
    fn is_of_mask(&self) -> bool {
        let Work::Step(step) = &*self.of else {
            return false;
        };
        let inputs = step.inputs();
        let mut pairs = inputs.iter().zip(&self.wanted);
        pairs.any(|(input, wanted)| *wanted && matches!(input, Input::Mask(..)))
    }
}

/// The values that a gradient reads, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reads {
    pub(crate) inputs: bool,
    pub(crate) output: bool,
    pub(crate) saved: bool,
}

impl Work {
    /// The name.
    pub fn name(&self) -> &str {
        match self {
            Self::Operator(operator) => operator.name(),
            Self::Gather(Along { minus: None, .. }) => "gather",
            Self::Gather(_) => "difference",
            Self::SegmentSum(along) => name_of_sum(along.reduction),
            Self::Join(_) => "join",
            Self::Split(_) => "split",
            Self::Points => "points",
            Self::BladeNorm => "blade_norm",
            Self::Activation(Activation::Silu) => "silu",
            Self::Activation(Activation::Relu) => "relu",
            Self::ScaledSum(_) => "scaled_sum",
            Self::Blade(_) => "blade",
            Self::FirstBlades(_) => "first_blades",
            Self::ExtendBlades { .. } => "extend_blades",
            Self::BladesToChannels => "blades_to_channels",
            Self::ChannelsToBlades(_) => "channels_to_blades",
            Self::ReverseAxes => "reverse_axes",
            Self::Concatenate(_) => "concatenate",
            Self::Step(step) => step.name(),
            Self::SquaredError => "squared_error",
            Self::Gradient(gradient) => gradient.of.name(),
        }
    }

    /// Whether this is a linear map, whose gradients of parameters are separate matrix products.
    pub(crate) fn is_linear(&self) -> bool {
        match self {
            Self::Operator(operator) => operator.adds_to_gradient(),
            Self::Step(step) => matches!(**step, Step::Linear(_)),
            _ => false,
        }
    }

    /// Whether this has the numbers of values in another order.
    pub(crate) fn moves(&self) -> bool {
        matches!(
            self,
            Self::ReverseAxes | Self::Concatenate(_) | Self::Join(_) | Self::Split(_)
        )
    }

    /// The values that the gradient of a node reads; `None` if it is not a separate node, or is not known.
    pub(crate) fn gradient_reads(&self) -> Option<Reads> {
        let [inputs, output, saved] = match self {
            Self::Operator(operator) if operator.outputs().len() == 1 => [true, true, true],
            Self::BladeNorm => [true, true, false],
            Self::Activation(_) => [true, false, false],
            Self::Points
            | Self::ScaledSum(_)
            | Self::Blade(_)
            | Self::ReverseAxes
            | Self::Concatenate(_) => [false; 3],
            Self::Step(step) => [step.gradient_reads_tokens(), false, true],
            Self::Operator(_)
            | Self::Gather(_)
            | Self::SegmentSum(_)
            | Self::Join(_)
            | Self::Split(_)
            | Self::BladesToChannels
            | Self::ChannelsToBlades(_)
            | Self::FirstBlades(_)
            | Self::ExtendBlades { .. }
            | Self::SquaredError
            | Self::Gradient(_) => return None,
        };
        Some(Reads {
            inputs,
            output,
            saved,
        })
    }

    /// The extents of the results, after a check of the extents of the inputs.
    pub(crate) fn outputs(&self, inputs: &[&Extent]) -> Result<Vec<Extent>, Error> {
        self.check_count(inputs.len())?;
        let mut axes = Vec::with_capacity(inputs.len());
        for extent in inputs {
            match extent {
                Extent::Shape(shape) => axes.push(shape.as_slice()),
                Extent::Saved => return Err(self.refuse("a value with axes", "saved sums")),
            }
        }
        let output = match self {
            Self::Operator(operator) => {
                let outputs = axes_of_operator(operator, &axes)?.into_iter();
                let outputs = outputs.map(Extent::Shape);
                // What an operator of several outputs needs again is computed again.
                let saved = (outputs.len() == 1).then_some(Extent::Saved);
                return Ok(outputs.chain(saved).collect());
            }
            Self::Gather(along) => {
                let [from, to] = self.axes_along(along)?;
                self.related(axes[0], to, from)?
            }
            Self::SegmentSum(along) => {
                let [from, to] = self.axes_along(along)?;
                self.related(axes[0], from, to)?
            }
            Self::Join(sides) => self.joined(sides, &axes)?,
            Self::Split(sides) if sides.parts.len() > MOST_PARTS => {
                let got = format!("{} parts", sides.parts.len());
                return Err(self.refuse(&format!("at most {MOST_PARTS} parts"), &got));
            }
            Self::Split(sides) => {
                let axes = self.sized(sides, axes[0], sides.whole())?;
                let own = sides
                    .there()
                    .map(|(_, size)| Extent::Shape(sides.with(axes, size)));
                return Ok(own.collect());
            }
            Self::Step(step) => {
                let output = self.axes_of_step(step, &axes)?;
                return Ok(vec![Extent::Shape(output), Extent::Saved]);
            }
            Self::Concatenate(lens) => {
                let mut parts = axes.iter().zip(&**lens);
                match parts.find(|(own, len)| elements(own) != (**len, Vec::new())) {
                    Some((own, _)) => {
                        return Err(self.refuse("values without rows", &in_words(own)));
                    }
                    None => vec![Axis::Fixed(lens.iter().sum())],
                }
            }
            Self::SquaredError => {
                let [y, target] = [axes[0], axes[1]];
                let has_tokens =
                    |own: &[Axis]| own.iter().any(|axis| matches!(axis, Axis::Token { .. }));
                if elements(y) != elements(target) || has_tokens(y) || has_tokens(target) {
                    return Err(self.refuse(&in_words(y), &in_words(target)));
                }
                let loss = Extent::Shape(vec![Axis::Fixed(1)]);
                return Ok(vec![loss, Extent::Shape(y.to_vec())]);
            }
            Self::Points => match *axes[0] {
                [rows, points, Axis::Fixed(dim)] if rows.is_batch() => {
                    vec![Axis::Fixed(dim + 1), rows, points]
                }
                _ => return Err(self.refuse("[rows, points, dim]", &in_words(axes[0]))),
            },
            Self::Activation(_) => axes[0].to_vec(),
            Self::ScaledSum(_) => match axes.iter().find(|own| *own != &axes[0]) {
                None => axes[0].to_vec(),
                Some(other) => return Err(self.refuse(&in_words(axes[0]), &in_words(other))),
            },
            Self::BladeNorm => self.with_blades(axes[0], |_| Some(1))?,
            Self::Blade(at) => self.with_blades(axes[0], |all| (*at < all).then_some(1))?,
            Self::FirstBlades(count) => {
                self.with_blades(axes[0], |all| (*count <= all).then_some(*count))?
            }
            Self::ExtendBlades { blades, .. } => {
                self.with_blades(axes[0], |all| (all <= *blades).then_some(*blades))?
            }
            Self::BladesToChannels => match *axes[0] {
                [Axis::Fixed(blades), rows, Axis::Fixed(channels)]
                    if rows.is_batch() && (1..=MOST_PARTS).contains(&blades) =>
                {
                    vec![Axis::Fixed(1), rows, Axis::Fixed(channels * blades)]
                }
                _ => {
                    let expected =
                        format!("[blades, rows, channels] of at most {MOST_PARTS} blades");
                    return Err(self.refuse(&expected, &in_words(axes[0])));
                }
            },
            Self::ChannelsToBlades(blades) => match *axes[0] {
                [Axis::Fixed(1), rows, Axis::Fixed(channels)]
                    if rows.is_batch()
                        && (1..=MOST_PARTS).contains(blades)
                        && channels.is_multiple_of(*blades) =>
                {
                    vec![Axis::Fixed(*blades), rows, Axis::Fixed(channels / blades)]
                }
                _ => {
                    let expected = format!(
                        "[1, rows, channels] with a multiple of {blades} channels, and at most {MOST_PARTS} blades"
                    );
                    return Err(self.refuse(&expected, &in_words(axes[0])));
                }
            },
            Self::ReverseAxes => match *axes[0] {
                [a, b, c] if !axes[0].iter().any(|axis| axis.is_batch()) => vec![c, b, a],
                _ => return Err(self.refuse("three axes without rows", &in_words(axes[0]))),
            },
            // Gradients are made by the network, which knows the values.
            Self::Gradient(_) => return Err(self.refuse("a node of the forward pass", "gradient")),
        };
        Ok(vec![Extent::Shape(output)])
    }

    /// The axes of the result of a step, after a check of the axes of its inputs.
    fn axes_of_step(&self, step: &Step, inputs: &[&[Axis]]) -> Result<Vec<Axis>, Error> {
        step.check()?;
        // A step works on the items of samples, or on the items of their context.
        let set = match (step, inputs[0]) {
            (own, _) if own.attends().is_some_and(|own| own.crossing) => Set::Items,
            (_, [Axis::ContextRows, ..]) => Set::Context,
            _ => Set::Items,
        };
        for (input, own) in step.inputs().iter().zip(inputs) {
            let fits = match input {
                Input::Tokens(channels) => *own == &step.axes(set, *channels)[..],
                Input::Context(channels) => *own == &step.axes(Set::Context, *channels)[..],
                Input::Rows => *own == [set.rows()],
                Input::Mask(heads, keys) => is_mask(own, *heads, [set, keys.unwrap_or(set)]),
                Input::Parameters(len) => elements(own) == (*len, Vec::new()),
            };
            if !fits {
                let expected = match input {
                    Input::Tokens(channels) => in_words(&step.axes(set, *channels)),
                    Input::Context(channels) => in_words(&step.axes(Set::Context, *channels)),
                    Input::Rows => in_words(&[set.rows()]),
                    Input::Mask(heads, keys) => {
                        let [items, keys] = [set, keys.unwrap_or(set)].map(Set::items);
                        format!("[samples or 1, {heads} or 1, {items} or 1, {keys}]")
                    }
                    Input::Parameters(len) => format!("[{len}]"),
                };
                return Err(self.refuse(&expected, &in_words(own)));
            }
        }
        Ok(step.axes(set, step.output()))
    }

    /// The axes of the relation of a gathering or a sum. What is subtracted has the same axes.
    fn axes_along(&self, along: &Along) -> Result<[Axis; 2], Error> {
        let axes = |own: Relation| [own.from, own.to];
        let own = axes(along.relation);
        match along.minus.map(axes).filter(|minus| *minus != own) {
            None => Ok(own),
            Some(other) => Err(self.refuse(
                &format!("two relations of {}", in_words(&own)),
                &format!("one of {}", in_words(&other)),
            )),
        }
    }

    /// Axes with another one in the place of the only one that is not a size.
    fn related(&self, axes: &[Axis], own: Axis, other: Axis) -> Result<Vec<Axis>, Error> {
        let open = axes.iter().filter(|axis| !is_size(axis));
        if !open.eq([&own]) {
            let expected = format!("{own} among sizes");
            return Err(self.refuse(&expected, &in_words(axes)));
        }
        let replaced = axes.iter();
        Ok(replaced
            .map(|&axis| if axis == own { other } else { axis })
            .collect())
    }

    /// The axes of values side by side.
    fn joined(&self, sides: &Sides, parts: &[&[Axis]]) -> Result<Vec<Axis>, Error> {
        let first = parts[0];
        for ((_, size), own) in sides.there().zip(parts) {
            let own = self.sized(sides, own, size)?;
            if sides.with(own, 0) != sides.with(first, 0) {
                return Err(self.refuse(&in_words(&sides.with(first, size)), &in_words(own)));
            }
        }
        Ok(sides.with(first, sides.whole()))
    }

    /// Axes, of which that of sides has a size.
    fn sized<'a>(&self, sides: &Sides, axes: &'a [Axis], size: usize) -> Result<&'a [Axis], Error> {
        if axes.get(sides.axis) == Some(&Axis::Fixed(size)) {
            return Ok(axes);
        }
        let expected = format!("{size} elements along axis {}", sides.axis);
        Err(self.refuse(&expected, &in_words(axes)))
    }

    /// `[blades, rows, channels]` with another number of blades; `None` for a number that the function refuses.
    fn with_blades(
        &self,
        axes: &[Axis],
        blades: impl Fn(usize) -> Option<usize>,
    ) -> Result<Vec<Axis>, Error> {
        let refuse = || {
            self.refuse(
                "[blades, rows, channels] with the blades it reads",
                &in_words(axes),
            )
        };
        match *axes {
            [Axis::Fixed(all), rows, channels] if rows.is_batch() => {
                let count = blades(all).ok_or_else(refuse)?;
                Ok(vec![Axis::Fixed(count), rows, channels])
            }
            _ => Err(refuse()),
        }
    }

    fn check_count(&self, got: usize) -> Result<(), Error> {
        let (least, most) = match self {
            Self::Operator(operator) => (operator.inputs().len(), operator.inputs().len()),
            Self::ScaledSum(_) => (1, 2),
            Self::Concatenate(lens) => (lens.len().max(1), MOST_INPUTS),
            Self::Step(step) => (step.inputs().len(), step.inputs().len()),
            Self::Join(sides) => match sides.parts.len() <= MOST_PARTS {
                true => (sides.there().count(), sides.there().count()),
                false => (1, MOST_PARTS),
            },
            Self::SquaredError => (2, 2),
            _ => (1, 1),
        };
        if (least..=most).contains(&got) {
            return Ok(());
        }
        Err(Error::Count {
            node: self.name().to_owned(),
            expected: match least == most {
                true => least.to_string(),
                false => format!("{least} to {most}"),
            },
            got,
        })
    }

    fn refuse(&self, expected: &str, got: &str) -> Error {
        Error::Shape {
            node: self.name().to_owned(),
            expected: expected.to_owned(),
            got: got.to_owned(),
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::ScaledSum(scale) => write!(f, " {scale}"),
            Self::Blade(number) | Self::FirstBlades(number) | Self::ChannelsToBlades(number) => {
                write!(f, " {number}")
            }
            Self::ExtendBlades { blades, .. } => write!(f, " {blades}"),
            Self::Gradient(gradient) => f.write_str(match gradient.adds {
                true => " gradient, added",
                false if gradient.is_of_mask() => " gradient, of its mask too",
                false => " gradient",
            }),
            _ => Ok(()),
        }
    }
}

/// Whether these are the axes of a mask of so many heads, for queries and keys of sets.
fn is_mask(axes: &[Axis], heads: usize, [queries_of, keys_of]: [Set; 2]) -> bool {
    let is = |own: Axis, all: Axis| own == all || own == Axis::Fixed(1);
    match *axes {
        [samples, of_heads, queries, keys] => {
            is(samples, Axis::Samples)
                && is(of_heads, Axis::Fixed(heads))
                && is(queries, queries_of.items())
                && keys == keys_of.items()
        }
        _ => false,
    }
}

/// Whether an axis has one size in all batches.
fn is_size(axis: &Axis) -> bool {
    matches!(axis, Axis::Fixed(_) | Axis::Token { .. })
}

/// The elements of axes: a number, times the sizes of the open axes.
fn elements(axes: &[Axis]) -> (usize, Vec<Axis>) {
    let is_open = |axis: &&Axis| !is_size(axis);
    let fixed = axes.iter().filter(|axis| !is_open(axis));
    let fixed = fixed.map(|axis| axis.size(1)).product();
    (fixed, axes.iter().filter(is_open).copied().collect())
}

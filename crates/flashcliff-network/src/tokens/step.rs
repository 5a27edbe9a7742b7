//! A step of any kind, with its inputs, its result and its passes.

use flashcliff::Pass;
use flashcliff::equivariant::Prepared;

use super::chunk::Chunk;
use super::linear::KINDS;
use super::rotary::Way;
use super::{
    Attention, AttentionTangent, Channels, Components, Distances, Dropout, Frames, Gains, HeadNorm,
    Lanes, Linear, Reinserted, Rotary,
};
use crate::network::{Axis, Set};
use crate::{Error, Number};

/// A step from tokens to tokens.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Step {
    /// Equivariant linear layers. Inputs: tokens, and all parameters one after another in the order of [`Linear::order`].
    Linear(Linear),
    /// Factors of grades or heads. Inputs: tokens, and all gains one after another.
    Gains(Gains),
    /// Attention. Inputs: tokens; tokens of the context, if it attends to them; with a mask its numbers
    /// `[samples or 1, heads or 1, items or 1, keys]`; with distances the logarithms of their weights
    /// `[heads, 1, channels]`.
    Attention(Attention),
    /// Positions of items.
    Rotary(Rotary),
    /// Channels of other tokens. Inputs: tokens, and other tokens.
    Reinserted(Reinserted),
    /// A map to or from the frame of each token. Inputs: tokens, and frames, which are tokens of [`Frames::frames`].
    Frames(Frames),
    /// Multivectors as scalars, or scalars as multivectors.
    Components(Components),
    /// Dropout of grades.
    Dropout(Dropout),
    /// An operator of a program. Inputs: tokens; numbers `[rows]` if it reads some, as the reference of joins; with
    /// parameters all of them one after another.
    Lanes(Lanes),
    /// The norm of heads by itself, or its derivative. [Gradients of gradients](crate::Network::gradients_from) of
    /// attention have such nodes.
    HeadNorm(HeadNorm),
    /// Features of distances by themselves, or their derivative. Inputs: tokens, and for an input with queries the logarithms of weights.
    Distances(Distances),
    /// The derivative of attention, in gradients of gradients. Its inputs are the inputs of attention, with the changes
    /// of tokens as further channels.
    AttentionTangent(AttentionTangent),
}

/// What a pass of a step reads besides gradients, for a chunk.
#[derive(Clone, Copy)]
pub(crate) struct Given<'a, T> {
    pub(crate) chunk: Chunk<'a>,
    /// The tokens, in the layout of the chunk.
    pub(crate) x: &'a [T],
    /// Numbers of the tokens, or other tokens in the layout of the chunk.
    pub(crate) other: &'a [T],
    /// The numbers of a mask, only the chunk's if samples have their own masks, and the shape of the whole mask.
    pub(crate) mask: (&'a [T], [usize; 4]),
    pub(crate) parameters: Parameters<'a, T>,
}

/// The parameters of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parameters<'a, T> {
    /// One after another, in the order of the step.
    Joined(&'a [T]),
    /// Parameters of a linear map by their kinds, where the host has them.
    Apart([&'a [T]; KINDS.len()]),
}

impl<'a, T> Parameters<'a, T> {
    /// The parameters of a step that is not a linear map.
    pub(crate) fn joined(self) -> &'a [T] {
        match self {
            Self::Joined(own) => own,
            Self::Apart(_) => &[],
        }
    }
}

/// The gradients that a pass of a step writes, each if it is wanted.
pub(crate) struct Gradients<'a, T> {
    pub(crate) x: Option<&'a mut [T]>,
    pub(crate) other: Option<&'a mut [T]>,
    /// The numbers of a mask, as far as they are of the chunk.
    pub(crate) mask: Option<&'a mut [T]>,
    pub(crate) parameters: Option<ParametersMut<'a, T>>,
}

/// The gradients of the parameters of a step.
pub(crate) enum ParametersMut<'a, T> {
    /// One after another, in the order of the step.
    Joined(&'a mut [T]),
    /// The gradients by the kinds of a linear map, each where it is wanted; a kind that nobody wants has no elements.
    Apart([&'a mut [T]; KINDS.len()]),
}

impl<'a, T> ParametersMut<'a, T> {
    /// The gradients of a step which is not a linear map.
    pub(crate) fn joined(self) -> &'a mut [T] {
        match self {
            Self::Joined(own) => own,
            Self::Apart(_) => &mut [],
        }
    }
}

impl<T> Default for Gradients<'_, T> {
    fn default() -> Self {
        Self {
            x: None,
            other: None,
            mask: None,
            parameters: None,
        }
    }
}

/// An input of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// Tokens of some channels.
    Tokens(Channels),
    /// Tokens of some channels of the context.
    Context(Channels),
    /// A number for each token.
    Rows,
    /// A mask of so many heads, for keys of the context, or of the set of the step.
    Mask(usize, Option<Set>),
    /// So many elements of parameters.
    Parameters(usize),
}

impl Step {
    /// The name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Linear(_) => "equivariant_linear",
            Self::Gains(_) => "gains",
            Self::Attention(_) => "attention",
            Self::Rotary(_) => "rotary",
            Self::Reinserted(_) => "channels_beside",
            Self::Frames(_) => "frames",
            Self::Components(_) => "components",
            Self::Dropout(_) => "grade_dropout",
            Self::Lanes(step) => step.operator.name(),
            Self::HeadNorm(step) => step.name(),
            Self::Distances(step) => step.name(),
            Self::AttentionTangent(_) => "attention_tangent",
        }
    }

    /// The blades of multivectors.
    pub fn blades(&self) -> usize {
        match self {
            Self::Linear(step) => step.geometry.blades(),
            Self::Gains(step) => step.geometry.blades(),
            Self::Attention(step) => step.head.blades,
            Self::Rotary(step) => step.blades,
            Self::Reinserted(step) => step.blades,
            Self::Frames(step) => step.geometry.blades(),
            Self::Components(step) => step.blades,
            Self::Dropout(step) => step.geometry.blades(),
            Self::Lanes(step) => step.blades,
            Self::HeadNorm(step) => step.attention.head.blades,
            Self::Distances(step) => step.attention.head.blades,
            Self::AttentionTangent(step) => step.attention.head.blades,
        }
    }

    /// The channels of the first input.
    pub fn input(&self) -> Channels {
        match self {
            Self::Linear(step) => step.input,
            Self::Gains(step) => step.channels,
            Self::Attention(step) => step.input(),
            Self::Rotary(step) => step.channels,
            Self::Reinserted(step) => step.channels,
            Self::Frames(step) => step.channels,
            Self::Components(step) => step.input(),
            Self::Dropout(step) => step.channels,
            Self::Lanes(step) => step.input(),
            Self::HeadNorm(step) => step.input(),
            Self::Distances(step) => step.input(),
            Self::AttentionTangent(step) => step.sides()[0],
        }
    }

    /// The channels of the result.
    pub fn output(&self) -> Channels {
        match self {
            Self::Linear(step) => step.output(),
            Self::Attention(step) => step.output(),
            Self::Reinserted(step) => step.output(),
            Self::Components(step) => step.output(),
            Self::Lanes(step) => step.output(),
            Self::HeadNorm(step) => step.channels(),
            Self::Distances(step) => step.channels(),
            Self::AttentionTangent(step) => step.attention.output(),
            _ => self.input(),
        }
    }

    /// Checks that the geometry has what the step needs.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self {
            Self::Gains(step) => step.geometry.check_multivectors("gains"),
            Self::Attention(step) if step.geometry.distances => {
                step.geometry.check_multivectors("distances")
            }
            _ => Ok(()),
        }
    }

    /// All inputs, in order.
    pub(crate) fn inputs(&self) -> Vec<Input> {
        let elements =
            |shapes: Vec<Vec<usize>>| shapes.iter().map(|s| s.iter().product::<usize>()).sum();
        let parameters = match self {
            Self::Linear(step) => step.lens().iter().sum(),
            Self::Gains(step) => step.len(),
            Self::Attention(step) => elements(step.shapes()),
            Self::Lanes(step) => step.parameter_len(),
            Self::Distances(step) => step.parameter_len(),
            _ => 0,
        };
        let other = match self {
            Self::Lanes(step) if step.reads_rows() => Some(Input::Rows),
            Self::Attention(step) if step.crossing => Some(Input::Context(step.sides()[1])),
            Self::AttentionTangent(step) if step.attention.crossing => {
                Some(Input::Context(step.sides()[1]))
            }
            Self::Reinserted(step) => Some(Input::Tokens(step.extra)),
            Self::Frames(step) => Some(Input::Tokens(step.frames())),
            _ => None,
        };
        let mut inputs = vec![Input::Tokens(self.input())];
        inputs.extend(other);
        if let Some(step) = self.attends()
            && step.masked
        {
            inputs.push(Input::Mask(
                step.heads,
                step.crossing.then_some(Set::Context),
            ));
        }
        inputs.extend((parameters > 0).then_some(Input::Parameters(parameters)));
        inputs
    }

    /// The attention of a step whose items look at the items of their sample, or at the context.
    pub(crate) fn attends(&self) -> Option<&Attention> {
        match self {
            Self::Attention(step) => Some(step),
            Self::AttentionTangent(step) => Some(&step.attention),
            _ => None,
        }
    }

    /// The axes of tokens of a set.
    pub(crate) fn axes(&self, set: Set, channels: Channels) -> Vec<Axis> {
        let blades = self.blades();
        vec![set.rows(), Axis::Token { blades, channels }]
    }

    /// The elements that the backward pass of a step on a set needs besides inputs, on the CPU: of a row of items,
    /// and of one of the context.
    pub(crate) fn kept(&self, set: Set) -> [usize; 2] {
        match (self, set) {
            (Self::Attention(step), Set::Items) => step.kept(),
            // A step on the context attends within it.
            (Self::Attention(step), Set::Context) => [0, step.kept()[0]],
            _ => [0; 2],
        }
    }

    /// Whether it is a function of each item without a matrix, so that computing it again costs little.
    pub(crate) fn costs_little(&self) -> bool {
        matches!(self, Self::Lanes(_) | Self::Gains(_) | Self::Dropout(_))
    }

    /// Whether kernels of the step add the gradient of the tokens so far to their own gradient.
    pub(crate) fn adds_to_gradient(&self) -> bool {
        match self {
            Self::Lanes(step) => step.adding.is_some(),
            _ => false,
        }
    }

    /// Whether kernels of the step can add two values, write the sum, and work on it.
    pub(crate) fn takes_sums(&self) -> bool {
        match self {
            Self::Lanes(step) => step.of_sums.is_some(),
            _ => false,
        }
    }

    /// Whether the gradient reads the tokens, and what the step kept.
    pub(crate) fn gradient_reads_tokens(&self) -> bool {
        !matches!(
            self,
            Self::Rotary(_) | Self::Reinserted(_) | Self::Components(_) | Self::Dropout(_)
        )
    }

    /// The number of inputs of the step that its gradient reads, before what the step kept and the gradient of the result.
    pub(crate) fn read_by_gradient(&self) -> usize {
        match self.gradient_reads_tokens() {
            true => self.inputs().len(),
            false => 0,
        }
    }

    /// The parameters for many passes of one kind with them, if copies of them are faster.
    pub(crate) fn prepare<T: Number>(
        &self,
        parameters: Parameters<'_, T>,
        pass: Pass,
    ) -> Result<Option<Prepared<T>>, Error> {
        match self {
            Self::Linear(step) => Ok(Some(step.prepare(parameters, pass)?)),
            _ => Ok(None),
        }
    }

    /// Writes the result. `kept` gets what the backward pass needs.
    pub(crate) fn forward<T: Number>(
        &self,
        given: &Given<'_, T>,
        prepared: Option<&Prepared<T>>,
        y: &mut [T],
        kept: &mut [T],
    ) -> Result<(), Error> {
        match self {
            Self::Linear(step) => step.forward(given, prepared, y)?,
            Self::Gains(step) => step.forward(given, y),
            Self::Attention(step) => step.forward(given, y, kept)?,
            Self::Rotary(step) => step.turn(&given.chunk, Way::Forth, given.x, y),
            Self::Reinserted(step) => step.forward(given, y),
            Self::Frames(step) => step.forward(given, y),
            Self::Components(step) => step.forward(given.chunk.rows(), given.x, y),
            Self::Dropout(step) => step.drop(&given.chunk, given.x, y),
            Self::Lanes(step) => step.forward(given, y)?,
            Self::HeadNorm(step) => step.forward(given, y)?,
            Self::Distances(step) => step.forward(given, y),
            Self::AttentionTangent(step) => step.forward(given, y)?,
        }
        Ok(())
    }

    /// Writes the gradients that are wanted, from that of the result.
    pub(crate) fn backward<T: Number>(
        &self,
        given: &Given<'_, T>,
        prepared: Option<&Prepared<T>>,
        kept: &[T],
        g: &[T],
        to: Gradients<'_, T>,
    ) -> Result<(), Error> {
        match self {
            Self::Linear(step) => return step.backward(given, prepared, g, to),
            Self::Gains(step) => step.backward(given, g, to),
            Self::Attention(step) => return step.backward(given, kept, g, to),
            Self::Lanes(step) => return step.backward(given, g, to),
            Self::HeadNorm(step) => return step.backward(given, g, to),
            Self::Distances(step) => step.backward(given, g, to),
            Self::AttentionTangent(step) => return step.backward(given, g, to),
            Self::Reinserted(step) => step.backward(given.chunk.rows(), g, to),
            Self::Frames(step) => step.backward(given, g, to),
            Self::Rotary(step) => {
                if let Some(to) = to.x {
                    step.turn(&given.chunk, Way::Back, g, to);
                }
            }
            Self::Components(step) => {
                if let Some(to) = to.x {
                    step.backward(given.chunk.rows(), g, to);
                }
            }
            Self::Dropout(step) => {
                if let Some(to) = to.x {
                    step.drop(&given.chunk, g, to);
                }
            }
        }
        Ok(())
    }

    /// The operations of a pass over rows, forwards and backwards. Each item looks at so many keys.
    pub(crate) fn flops(&self, rows: usize, keys: usize) -> [usize; 2] {
        let (blades, channels) = (self.blades(), self.input());
        let width = channels.width_over(blades);
        // The gradients of the input and of parameters take as many operations each as the result.
        let twice = |each: usize| [rows * each, 2 * rows * each];
        match self {
            Self::Linear(step) => twice(step.flops_of_a_row()),
            Self::Gains(_) => twice(width),
            Self::Attention(step) => step.flops_of_pair().map(|each| rows * keys * each),
            // Two products and a sum, the same in the backward pass.
            Self::Rotary(_) => [rows * 3 * channels.scalars; 2],
            Self::Reinserted(_) | Self::Components(_) => [0; 2],
            Self::Frames(step) => twice(step.flops_of_a_row()),
            Self::Dropout(_) => [rows * width; 2],
            Self::Lanes(step) => step.flops(rows),
            // About twice the numbers and their gradients.
            Self::HeadNorm(_) | Self::Distances(_) => [4 * rows * width, 8 * rows * width],
            // Twice the products of attention, and weights again.
            Self::AttentionTangent(step) => {
                let [forward, backward] = step.attention.flops_of_pair();
                [3 * forward, 3 * backward].map(|each| rows * keys * each)
            }
        }
    }
}

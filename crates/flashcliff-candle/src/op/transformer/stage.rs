//! The stages of a function of tokens.

use super::Channels;
use super::attention::Attention;
use super::chunk::Chunk;
use super::dropout::Dropout;
use super::gains::Gains;
use super::gate::Gated;
use super::linear::Linear;
use super::norm::Norm;
use super::product::Products;
use super::reinserted::Reinserted;
use super::rotary::{Rotary, Way};
use crate::Error;
use crate::op::Scalar;
use crate::op::scratch::Buffer;

/// A step from tokens to tokens.
#[derive(Debug)]
pub(crate) enum Stage {
    Linear(Linear),
    Norm(Norm),
    Gains(Gains),
    Rotary(Rotary),
    Reinserted(Reinserted),
    Dropout(Dropout),
    Gated(Gated),
    Products(Products),
    Attention(Attention),
    /// The input, plus what stages make of it.
    Residual(Vec<Stage>),
}

/// The needs of a stage for a chunk besides its input.
#[derive(Clone, Copy)]
pub(crate) struct Given<'a, T> {
    pub(crate) chunk: Chunk<'a, T>,
    /// The parameters as the stages take them: see [`Stage::parameters`].
    pub(crate) parameters: &'a [&'a [T]],
}

impl<'a, T> Given<'a, T> {
    fn take(&self, range: std::ops::Range<usize>) -> Self
    where
        T: Copy,
    {
        Self {
            chunk: self.chunk,
            parameters: &self.parameters[range],
        }
    }
}

/// Gradients that a stage writes. Slices of parameters are empty if no gradient of a parameter is wanted.
pub(crate) struct Gradients<'a, 'b, T> {
    pub(crate) input: &'a mut [T],
    pub(crate) parameters: &'a mut [&'b mut [T]],
    /// The gradient of the reference of joins, which is added to.
    pub(crate) reference: &'a mut [T],
    /// The gradient of extra tokens, packed, which is added to. It is empty if it is not wanted.
    pub(crate) extra: &'a mut [T],
}

impl Stage {
    pub(crate) fn input(&self) -> Channels {
        match self {
            Self::Linear(stage) => stage.input(),
            Self::Norm(stage) => stage.channels,
            Self::Gains(stage) => stage.channels,
            Self::Rotary(stage) => stage.channels,
            Self::Reinserted(stage) => stage.channels,
            Self::Dropout(stage) => stage.channels,
            Self::Gated(stage) => stage.channels,
            Self::Products(stage) => stage.input(),
            Self::Attention(stage) => stage.input(),
            Self::Residual(stages) => stages.first().map_or_else(Channels::default, Self::input),
        }
    }

    pub(crate) fn output(&self) -> Channels {
        match self {
            Self::Linear(stage) => stage.output(),
            Self::Products(stage) => stage.output(),
            Self::Attention(stage) => stage.output(),
            Self::Reinserted(stage) => stage.output(),
            Self::Norm(_)
            | Self::Gains(_)
            | Self::Rotary(_)
            | Self::Dropout(_)
            | Self::Gated(_)
            | Self::Residual(_) => self.input(),
        }
    }

    /// The shapes of the parameters, as layers have them.
    pub(crate) fn shapes(&self) -> Vec<Vec<usize>> {
        match self {
            Self::Linear(stage) => stage.shapes(),
            Self::Norm(stage) => stage.shapes(),
            Self::Gains(stage) => stage.shapes(),
            Self::Attention(stage) => stage.shapes(),
            Self::Residual(stages) => stages.iter().flat_map(Self::shapes).collect(),
            _ => Vec::new(),
        }
    }

    /// For each parameter as the stages take it, the parameters of layers that it consists of, one after another.
    pub(crate) fn joins(&self) -> Vec<Vec<usize>> {
        match self {
            Self::Linear(stage) => stage.joins(),
            Self::Residual(stages) => joins(stages),
            _ => (0..self.shapes().len()).map(|at| vec![at]).collect(),
        }
    }

    /// The number of parameters as the stage takes them.
    fn parameters(&self) -> usize {
        match self {
            Self::Linear(_) => Linear::PARAMETERS,
            Self::Residual(stages) => stages.iter().map(Self::parameters).sum(),
            _ => self.shapes().len(),
        }
    }

    /// Whether the stage reads the reference of joins.
    pub(crate) fn has_joins(&self) -> bool {
        match self {
            Self::Products(stage) => stage.regressive.is_some(),
            Self::Residual(stages) => stages.iter().any(Self::has_joins),
            _ => false,
        }
    }

    /// The channels of extra tokens, if the stage reads some.
    pub(super) fn extra(&self) -> Option<Channels> {
        match self {
            Self::Reinserted(stage) => Some(stage.extra),
            Self::Residual(stages) => stages.iter().find_map(Self::extra),
            _ => None,
        }
    }

    /// The heads of attention, if the stage attends.
    pub(super) fn heads(&self) -> Option<usize> {
        match self {
            Self::Attention(stage) => Some(stage.heads),
            Self::Residual(stages) => stages.iter().find_map(Self::heads),
            _ => None,
        }
    }

    /// The number of elements that the backward pass needs besides the input.
    fn kept<T>(&self, chunk: &Chunk<'_, T>) -> usize {
        match self {
            Self::Attention(stage) => stage.kept(chunk.rows(), chunk.rows()),
            Self::Residual(stages) => kept(stages, chunk),
            _ => 0,
        }
    }

    fn forward<T: Scalar>(
        &self,
        given: Given<'_, T>,
        x: &[T],
        y: &mut [T],
        kept: &mut [T],
    ) -> Result<(), Error> {
        match self {
            Self::Linear(stage) => stage.forward(given, x, y),
            Self::Norm(stage) => stage.forward(given, x, y),
            Self::Gains(stage) => {
                stage.forward(given, x, y);
                Ok(())
            }
            Self::Rotary(stage) => {
                stage.turn(&given.chunk, Way::Forth, x, y);
                Ok(())
            }
            Self::Reinserted(stage) => {
                stage.forward(&given.chunk, x, y);
                Ok(())
            }
            Self::Dropout(stage) => {
                stage.drop(&given.chunk, x, y);
                Ok(())
            }
            Self::Gated(stage) => stage.forward(&given.chunk, x, y),
            Self::Products(stage) => stage.forward(&given.chunk, x, y),
            Self::Attention(stage) => stage.forward(given, x, y, kept),
            Self::Residual(stages) => {
                forward(stages, given, x, y, kept)?;
                add(y, x);
                Ok(())
            }
        }
    }

    fn backward<T: Scalar>(
        &self,
        given: Given<'_, T>,
        x: &[T],
        kept: &[T],
        g: &[T],
        to: Gradients<'_, '_, T>,
    ) -> Result<(), Error> {
        match self {
            Self::Linear(stage) => stage.backward(given, x, g, to),
            Self::Norm(stage) => stage.backward(given, x, g, to),
            Self::Gains(stage) => {
                stage.gradient(given, x, g, to.input, to.parameters);
                Ok(())
            }
            Self::Rotary(stage) => {
                stage.turn(&given.chunk, Way::Back, g, to.input);
                Ok(())
            }
            Self::Reinserted(stage) => {
                stage.backward(&given.chunk, g, to.input, to.extra);
                Ok(())
            }
            Self::Dropout(stage) => {
                stage.drop(&given.chunk, g, to.input);
                Ok(())
            }
            Self::Gated(stage) => stage.backward(&given.chunk, x, g, to.input),
            Self::Products(stage) => stage.backward(&given.chunk, x, g, to),
            Self::Attention(stage) => stage.backward(given, x, kept, g, to),
            Self::Residual(stages) => {
                let Gradients {
                    input,
                    parameters,
                    reference,
                    extra,
                } = to;
                let inner = Gradients {
                    input: &mut *input,
                    parameters,
                    reference,
                    extra,
                };
                backward(stages, given, x, kept, g, inner)?;
                add(input, g);
                Ok(())
            }
        }
    }
}

/// For each parameter of stages one after another, the parameters of layers that it consists of.
pub(super) fn joins(stages: &[Stage]) -> Vec<Vec<usize>> {
    let mut first = 0;
    let mut all = Vec::new();
    for stage in stages {
        let of_stage = stage.joins().into_iter();
        all.extend(of_stage.map(|join| join.into_iter().map(|at| first + at).collect()));
        first += stage.shapes().len();
    }
    all
}

/// The number of elements that the backward pass of stages needs: all outputs but the last, and what stages keep.
pub(super) fn kept<T>(stages: &[Stage], chunk: &Chunk<'_, T>) -> usize {
    let each = stages.iter().enumerate().map(|(at, stage)| {
        let output = match at + 1 < stages.len() {
            true => chunk.len(stage.output()),
            false => 0,
        };
        output + stage.kept(chunk)
    });
    each.sum()
}

/// Runs stages. `kept` gets what [`backward`] needs.
pub(super) fn forward<T: Scalar>(
    stages: &[Stage],
    given: Given<'_, T>,
    x: &[T],
    y: &mut [T],
    mut kept: &mut [T],
) -> Result<(), Error> {
    let mut input = x;
    let mut first = 0;
    for (at, stage) in stages.iter().enumerate() {
        let given_stage = given.take(first..first + stage.parameters());
        first += stage.parameters();
        let (own, rest) = kept.split_at_mut(stage.kept(&given.chunk));
        if at + 1 == stages.len() {
            return stage.forward(given_stage, input, y, own);
        }
        let (output, rest) = rest.split_at_mut(given.chunk.len(stage.output()));
        stage.forward(given_stage, input, output, own)?;
        (input, kept) = (output, rest);
    }
    Ok(())
}

/// Writes the gradients of stages.
pub(super) fn backward<T: Scalar>(
    stages: &[Stage],
    given: Given<'_, T>,
    x: &[T],
    kept: &[T],
    g: &[T],
    to: Gradients<'_, '_, T>,
) -> Result<(), Error> {
    // Where the values of each stage begin: its own, its output, its parameters.
    let (mut places, mut at, mut first) = (Vec::with_capacity(stages.len()), 0, 0);
    for stage in stages {
        let own = at..at + stage.kept(&given.chunk);
        let output = own.end..own.end + given.chunk.len(stage.output());
        let parameters = first..first + stage.parameters();
        (at, first) = (output.end, parameters.end);
        places.push((own, output, parameters));
    }
    let mut gradient: Option<Buffer<T>> = None;
    for (at, stage) in stages.iter().enumerate().rev() {
        let (own, _, parameters) = places[at].clone();
        let g = gradient.as_deref().unwrap_or(g);
        let input = match at {
            0 => x,
            _ => &kept[places[at - 1].1.clone()],
        };
        let mut buffer = None;
        let of_input = match at {
            0 => &mut *to.input,
            _ => &mut **buffer.insert(Buffer::take(input.len())),
        };
        let gradients = Gradients {
            input: of_input,
            parameters: &mut to.parameters[parameters.clone()],
            reference: &mut *to.reference,
            extra: &mut *to.extra,
        };
        stage.backward(given.take(parameters), input, &kept[own], g, gradients)?;
        gradient = buffer;
    }
    Ok(())
}

pub(super) fn add<T: Scalar>(sum: &mut [T], other: &[T]) {
    for (sum, &other) in sum.iter_mut().zip(other) {
        *sum += other;
    }
}

//! Stages one after another, forwards and backwards.

use candle_core::{Result, Tensor};

use super::Kernels;
use super::attention::Attended;
use super::layout::Layout;
use super::products::Factors;
use crate::op::transformer::draw::Draw;
use crate::op::transformer::dropout::Dropout;
use crate::op::transformer::rotary::{Rotary, Way};
use crate::op::transformer::stage::Stage;

/// The needs of all stages besides their input and parameters.
pub(super) struct Given<'a> {
    pub(super) kernels: &'a dyn Kernels,
    pub(super) layout: &'a Layout,
    /// The reference of joins `[rows, 1]`.
    pub(super) reference: Option<&'a Tensor>,
    /// Extra tokens `[rows, width]`.
    pub(super) extra: Option<&'a Tensor>,
    /// The random numbers of dropout; `None` outside of training.
    pub(super) draw: Option<&'a Draw>,
}

/// A stage that has run: its input, and what else its backward pass needs.
pub(super) struct Ran {
    input: Tensor,
    kept: Kept,
}

enum Kept {
    Nothing,
    /// The matrix of linear layers.
    Matrix(Tensor),
    /// The gains of a row.
    Gains(Tensor),
    /// The gains of a norm.
    OfNorm(Vec<Tensor>),
    Factors(Factors),
    Attended(Attended),
    Residual(Vec<Ran>),
}

/// The gradients that are wanted, and those that have been found.
pub(super) struct Gradients {
    /// Whether the gradient of the first input is wanted.
    pub(super) wants_input: bool,
    pub(super) wants_parameters: bool,
    pub(super) wants_reference: bool,
    pub(super) wants_extra: bool,
    /// The gradient of each parameter that has been found.
    pub(super) parameters: Vec<Option<Tensor>>,
    /// The sum of gradients of the reference, `[rows, 1]`.
    pub(super) reference: Option<Tensor>,
    /// The gradient of extra tokens, `[rows, width]`.
    pub(super) extra: Option<Tensor>,
}

/// Runs stages, and keeps what [`backward`] needs.
pub(super) fn forward(
    given: &Given,
    stages: &[Stage],
    x: Tensor,
    parameters: &[Tensor],
) -> Result<(Tensor, Vec<Ran>)> {
    let (mut x, mut rest) = (x, parameters);
    let mut ran = Vec::with_capacity(stages.len());
    for stage in stages {
        let (own, others) = rest.split_at(stage.shapes().len());
        rest = others;
        let kernels = given.kernels;
        let (output, kept) = match stage {
            Stage::Linear(linear) => {
                let (output, matrix) = linear.on_gpu(kernels, &x, own)?;
                (output, Kept::Matrix(matrix))
            }
            Stage::Norm(norm) => {
                let output = kernels.norm(norm, &x, own)?;
                (output, Kept::OfNorm(own.to_vec()))
            }
            Stage::Gains(gains) => {
                let (output, row) = gains.on_gpu(kernels, &x, own)?;
                (output, Kept::Gains(row))
            }
            Stage::Rotary(rotary) => (turned(rotary, given, &x, Way::Forth)?, Kept::Nothing),
            Stage::Reinserted(stage) => {
                let extra = given.extra.ok_or_else(mixed_up)?;
                (stage.compose(&x, extra)?, Kept::Nothing)
            }
            Stage::Dropout(dropout) => (dropped(dropout, given, &x)?, Kept::Nothing),
            Stage::Gated(gated) => (kernels.gate(gated, &x)?, Kept::Nothing),
            Stage::Products(products) => {
                let (output, factors) = products.on_gpu(given, &x)?;
                (output, Kept::Factors(factors))
            }
            Stage::Attention(attention) => {
                let (output, attended) = attention.on_gpu(given, &[&x], own.first())?;
                (output, Kept::Attended(attended))
            }
            Stage::Residual(stages) => {
                let (output, inner) = forward(given, stages, x.clone(), own)?;
                ((&x + output)?, Kept::Residual(inner))
            }
        };
        ran.push(Ran { input: x, kept });
        x = output;
    }
    Ok((x, ran))
}

/// The gradient of the input of stages plus `through`, if it is wanted. `first` is the position of the first of their parameters.
pub(super) fn backward(
    given: &Given,
    stages: &[Stage],
    ran: &[Ran],
    g: &Tensor,
    through: Option<&Tensor>,
    first: usize,
    to: &mut Gradients,
) -> Result<Option<Tensor>> {
    let counts: Vec<usize> = stages.iter().map(|stage| stage.shapes().len()).collect();
    let mut first = first + counts.iter().sum::<usize>();
    let wants_input = to.wants_input;
    let mut g = g.clone();
    for (at, (stage, ran)) in stages.iter().zip(ran).enumerate().rev() {
        first -= counts[at];
        to.wants_input = wants_input || at > 0;
        let through = if at == 0 { through } else { None };
        let (kernels, x) = (given.kernels, &ran.input);
        let found = match (stage, &ran.kept) {
            (Stage::Norm(norm), Kept::OfNorm(gains)) => {
                // Its kernel adds.
                let (found, of_gains) = kernels.norm_gradient(norm, x, gains, &g, through)?;
                if let (Some(of_gains), true) = (of_gains, to.wants_parameters) {
                    put(&of_gains, gains, &mut to.parameters[first..])?;
                }
                g = found;
                continue;
            }
            (Stage::Gated(gated), _) => Some(kernels.gate_gradient(gated, x, &g)?),
            (Stage::Linear(linear), Kept::Matrix(matrix)) => {
                linear.gradient_on_gpu(kernels, x, matrix, &g, first, to)?
            }
            (Stage::Gains(gains), Kept::Gains(row)) => {
                gains.gradient_on_gpu(kernels, x, row, &g, first, to)?
            }
            (Stage::Rotary(rotary), _) => Some(turned(rotary, given, &g, Way::Back)?),
            (Stage::Reinserted(stage), _) => {
                let [own, extra] = stage.apart(&g)?;
                if to.wants_extra {
                    to.extra = Some(extra);
                }
                Some(own)
            }
            (Stage::Dropout(dropout), _) => Some(dropped(dropout, given, &g)?),
            (Stage::Products(products), Kept::Factors(factors)) => {
                Some(products.gradient_on_gpu(given, x, factors, &g, to)?)
            }
            (Stage::Attention(attention), Kept::Attended(attended)) => attention
                .gradient_on_gpu(given, &[x], attended, &g, first, to)?
                .pop(),
            (Stage::Residual(stages), Kept::Residual(inner)) => {
                backward(given, stages, inner, &g, Some(&g), first, to)?
            }
            _ => return Err(mixed_up()),
        };
        g = match (found, through) {
            (None, _) => return Ok(None),
            (Some(found), None) => found,
            (Some(found), Some(through)) => (found + through)?,
        };
    }
    Ok(wants_input.then_some(g))
}

/// Puts the parts of gradients one after another to their parameters.
pub(super) fn put(all: &Tensor, parameters: &[Tensor], to: &mut [Option<Tensor>]) -> Result<()> {
    let mut first = 0;
    for (to, parameter) in to.iter_mut().zip(parameters) {
        let count = parameter.elem_count();
        *to = Some(all.narrow(0, first, count)?.reshape(parameter.shape())?);
        first += count;
    }
    Ok(())
}

/// Rows after dropout.
fn dropped(dropout: &Dropout, given: &Given, x: &Tensor) -> Result<Tensor> {
    match given.draw {
        Some(draw) => given.kernels.drop(dropout, x, draw),
        None => Ok(x.clone()),
    }
}

/// Rows that are turned as tokens.
fn turned(rotary: &Rotary, given: &Given, x: &Tensor, way: Way) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    // The items of a ragged batch are counted through.
    let samples = match given.layout.is_ragged() {
        true => 1,
        false => given.layout.samples,
    };
    if rows == 0 {
        return Ok(x.clone());
    }
    let x = x.reshape((samples, rows / samples, width))?;
    rotary.turned(&x, way)?.reshape((rows, width))
}

fn mixed_up() -> candle_core::Error {
    candle_core::Error::Msg("transformer: expected what the same stages kept".to_owned())
}

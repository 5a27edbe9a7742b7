//! Stages with their parameters, of which layers are made.

use std::iter;
use std::sync::Arc;

use candle_core::{Result, Tensor};
use candle_nn::{Init, VarBuilder};

use super::{Call, Channels, Draw, Geometry, Initialization, Tokens};
use crate::Error;
use crate::choices;
use crate::init::{note_bounds, uniform};
use crate::op::transformer::function::Stages;
use crate::op::transformer::linear::Linear;
use crate::op::transformer::scope::Scope;
use crate::op::transformer::stage::Stage;
use crate::op::{
    self,
    node::{self, Argument},
    once::entering,
};

/// Stages, and their parameters in order.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) stages: Vec<Stage>,
    pub(super) parameters: Vec<Parameter>,
}

/// A parameter, and so many zeros behind its second axis: those of input channels that its layer does not see.
#[derive(Clone, Debug)]
pub(super) struct Parameter {
    tensor: Tensor,
    unseen: usize,
}

impl From<Tensor> for Parameter {
    fn from(tensor: Tensor) -> Self {
        Self { tensor, unseen: 0 }
    }
}

impl Parameter {
    /// The tensor as stages take it.
    fn taken(&self) -> Result<Tensor> {
        match self.unseen {
            0 => Ok(self.tensor.clone()),
            unseen => entering(&self.tensor)?.pad_with_zeros(1, 0, unseen),
        }
    }
}

impl Part {
    /// A stage without parameters.
    pub(super) fn plain(stage: Stage) -> Self {
        Self {
            stages: vec![stage],
            parameters: Vec::new(),
        }
    }

    /// This part, then another.
    pub(super) fn then(mut self, next: Self) -> Self {
        self.stages.extend(next.stages);
        self.parameters.extend(next.parameters);
        self
    }

    /// The input, plus what this part makes of it.
    pub(super) fn residual(self) -> Self {
        Self {
            stages: vec![Stage::Residual(self.stages)],
            parameters: self.parameters,
        }
    }
}

/// A part as a function of tokens.
#[derive(Clone, Debug)]
pub(super) struct Function {
    stages: Arc<Stages>,
    parameters: Vec<Parameter>,
}

impl Function {
    pub(super) fn new(name: &'static str, geometry: Geometry, part: Part) -> Self {
        Self {
            stages: Arc::new(Stages::new(name, geometry, part.stages)),
            parameters: part.parameters,
        }
    }

    /// Applies the part; with joins there must be a reference, with extra channels their tokens.
    pub(super) fn apply(&self, x: &Tokens, call: &Call) -> Result<Tokens> {
        let stages = match (call.scope, call.draw) {
            (Scope::Sample, None) => self.stages.clone(),
            (scope, draw) => Arc::new(self.stages.within(scope, draw)?),
        };
        check_tokens(x, stages.input(), stages.geometry())?;
        if let Some(draw) = call.draw {
            check_device(draw, x.packed())?;
        }
        let mut arguments = vec![Argument::whole(x.packed())];
        if stages.has_joins() {
            let missing = || missing("reference", "[samples, items], because the layer has joins");
            arguments.push(Argument::whole(call.reference.ok_or_else(missing)?));
        }
        if let Scope::Masked(mask) = call.scope {
            arguments.push(Argument::whole(mask.added()));
        }
        match (stages.extra(), call.extra) {
            (None, None) => {}
            (Some(channels), Some(extra)) => {
                check_tokens(extra, channels, stages.geometry())?;
                arguments.push(Argument::whole(extra.packed()));
            }
            (Some(_), None) => {
                let expected = "tokens, because the layer has extra channels";
                return Err(missing("extra tokens", expected).into());
            }
            (None, Some(extra)) => return Err(unwanted(extra).into()),
        }
        let parameters = self.parameters.iter().map(Parameter::taken);
        let parameters = parameters.collect::<Result<Vec<_>>>()?;
        arguments.extend(parameters.iter().map(Argument::whole));
        let out = node::apply(&stages, &arguments)?;
        Tokens::over(out, stages.output(), stages.geometry())
    }

    /// Applies the part and keeps its inputs alone: the backward pass runs the part again.
    pub(super) fn recomputed(&self, x: &Tokens, call: &Call) -> Result<Tokens> {
        let (stages, channels) = (&self.stages, x.channels());
        check_tokens(x, stages.input(), stages.geometry())?;
        let reference = call.reference.filter(|_| stages.has_joins());
        let extra = call.extra.map(|extra| (extra.packed(), extra.channels()));
        let inputs = iter::once(x.packed()).chain(reference);
        let inputs: Vec<&Tensor> = inputs.chain(extra.map(|(packed, _)| packed)).collect();
        let (function, scope, draw) = (self.clone(), call.scope.clone(), call.draw.cloned());
        let (has_reference, extra) = (reference.is_some(), extra.map(|(_, channels)| channels));
        let out = op::recomputed(&inputs, move |inputs| {
            let geometry = function.stages.geometry();
            let tokens = |at: usize, channels| Tokens::over(inputs[at].clone(), channels, geometry);
            let at = 1 + usize::from(has_reference);
            let extra = extra.map(|channels| tokens(at, channels)).transpose()?;
            let call = Call {
                reference: inputs[1..at].first(),
                scope: &scope,
                extra: extra.as_ref(),
                draw: draw.as_ref(),
            };
            let out = function.apply(&tokens(0, channels)?, &call)?;
            Ok(out.packed().clone())
        })?;
        Tokens::over(out, stages.output(), stages.geometry())
    }
}

fn missing(tensor: &str, expected: &str) -> Error {
    Error::Shape {
        tensor: tensor.to_owned(),
        expected: expected.to_owned(),
        got: Vec::new(),
    }
}

/// The error of extra tokens for a layer that sees none.
pub(super) fn unwanted(extra: &Tokens) -> Error {
    Error::Shape {
        tensor: "extra tokens".to_owned(),
        expected: "none, because the layer takes none".to_owned(),
        got: extra.packed().dims().to_vec(),
    }
}

/// The random numbers must be where the tokens are.
fn check_device(draw: &Draw, x: &Tensor) -> std::result::Result<(), Error> {
    let got = draw.step().device();
    match got.same_device(x.device()) {
        true => Ok(()),
        false => Err(Error::InputDevice {
            operator: "dropout".to_owned(),
            input: 0,
            expected: "the device of its random numbers",
            got: x.device().location(),
        }),
    }
}

/// Tokens must have some channels of an algebra.
pub(super) fn check_tokens(x: &Tokens, channels: Channels, geometry: Geometry) -> Result<()> {
    let error = |tensor: &str, expected: String, got: Vec<usize>| {
        let tensor = tensor.to_owned();
        Err(Error::Shape {
            tensor,
            expected,
            got,
        }
        .into())
    };
    let got = x.channels();
    if got != channels {
        let got = vec![got.multivectors, got.scalars];
        return error("channels of tokens", format!("{channels:?}"), got);
    }
    if x.blades() != geometry.blades() {
        let expected = format!("{} of {}", geometry.blades(), geometry.algebra.name());
        return error("blades of tokens", expected, vec![x.blades()]);
    }
    Ok(())
}

/// The parameters of an equivariant linear layer, in the order of [`Linear`]. Without biases zeros that are no parameters take their places.
pub(super) fn linear_parameters(
    geometry: Geometry,
    input: Channels,
    output: Channels,
    initialization: Initialization,
    biased: bool,
    vb: &VarBuilder,
) -> std::result::Result<Vec<Parameter>, Error> {
    geometry.check()?;
    choices::note_algebra(vb, geometry.algebra);
    let bias = |vb: &VarBuilder, shape: &[usize], name: &str, init: Init| match biased {
        true => vb.get_with_hints(shape, name, init),
        false => Tensor::zeros(shape, vb.dtype(), vb.device()),
    };
    let invariant = geometry.scalar_blades();
    let (factor, of_scalars, mean) = initialization.numbers();
    let (mv, s) = (input.multivectors as f64, input.scalars as f64);
    let out = output.multivectors;
    let bounds = initialization.weight_bounds(&geometry, input)?;
    let shape = (out, input.multivectors, bounds.len());
    note_bounds(vb, "weight", &bounds);
    let mut made = vec![vb.get_with_hints(shape, "weight", uniform(1.0))?];
    if input.scalars == 0 {
        made.push(bias(vb, &[out, 1], "bias", Init::Const(0.0))?);
    } else {
        let vb = vb.pp("s2mvs");
        let init = uniform(factor / (2.0 * s).sqrt());
        made.push(vb.get_with_hints((invariant * out, input.scalars), "weight", init)?);
        let spread = 1.0 / (s + mv).sqrt();
        let init = Init::Uniform {
            lo: mean - spread,
            up: mean + spread,
        };
        made.push(bias(&vb, &[invariant * out], "bias", init)?);
    }
    if output.scalars > 0 {
        let maps = if input.scalars > 0 { 2.0 } else { 1.0 };
        let scalars = output.scalars;
        let of_blades = vb.pp("mvs2s");
        let mixed = invariant as f64 * mv;
        let init = uniform(of_scalars / (mixed * maps).sqrt());
        let shape = (scalars, invariant * input.multivectors);
        made.push(of_blades.get_with_hints(shape, "weight", init)?);
        let init = uniform(of_scalars / (mixed + s).sqrt());
        made.push(bias(&of_blades, &[scalars], "bias", init)?);
        if input.scalars > 0 {
            let init = uniform(of_scalars / (s * maps).sqrt());
            let shape = (scalars, input.scalars);
            made.push(vb.pp("s2s").get_with_hints(shape, "weight", init)?);
        }
    }
    Ok(made.into_iter().map(Parameter::from).collect())
}

/// The parameters of a layer as one of more input channels, which it does not see.
pub(super) fn beside_unseen(
    geometry: Geometry,
    unseen: Channels,
    parameters: Vec<Parameter>,
) -> Vec<Parameter> {
    let [of_channels, of_blades, of_scalars] = [
        unseen.multivectors,
        unseen.multivectors * geometry.scalar_blades(),
        unseen.scalars,
    ];
    // The parameters of a layer with scalar inputs and outputs, in the order of `Linear`. Biases see no channels.
    let padded = [of_channels, of_scalars, 0, of_blades, 0, of_scalars];
    let parameters = parameters.into_iter().zip(padded);
    parameters
        .map(|(parameter, unseen)| Parameter {
            unseen,
            ..parameter
        })
        .collect()
}

/// A linear layer.
pub(super) fn linear(
    geometry: Geometry,
    input: Channels,
    output: Channels,
    initialization: Initialization,
    vb: &VarBuilder,
) -> std::result::Result<Part, Error> {
    Ok(Part {
        stages: vec![Stage::Linear(Linear::new(geometry, input, vec![output])?)],
        parameters: linear_parameters(geometry, input, output, initialization, true, vb)?,
    })
}

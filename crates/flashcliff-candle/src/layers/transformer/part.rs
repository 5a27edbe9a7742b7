//! Stages with their parameters, of which layers are made.

use std::iter;
use std::sync::Arc;

use candle_core::{Result, Tensor};
use candle_nn::{Init, VarBuilder};

use super::{Channels, Geometry, Initialization, Scope, Tokens};
use crate::Error;
use crate::choices;
use crate::init::{note_bounds, uniform};
use crate::op::transformer::function::Stages;
use crate::op::transformer::linear::Linear;
use crate::op::transformer::stage::Stage;
use crate::op::{
    self,
    node::{self, Argument},
};

/// Stages, and the tensors of their parameters in order.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) stages: Vec<Stage>,
    pub(super) parameters: Vec<Tensor>,
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
    parameters: Vec<Tensor>,
}

impl Function {
    pub(super) fn new(name: &'static str, geometry: Geometry, part: Part) -> Self {
        Self {
            stages: Arc::new(Stages::new(name, geometry, part.stages)),
            parameters: part.parameters,
        }
    }

    /// Applies the part; with joins there must be a reference.
    pub(super) fn apply(&self, x: &Tokens, reference: Option<&Tensor>) -> Result<Tokens> {
        self.apply_within(x, reference, &Scope::Sample)
    }

    /// Applies the part to items that attend within a scope.
    pub(super) fn apply_within(
        &self,
        x: &Tokens,
        reference: Option<&Tensor>,
        scope: &Scope,
    ) -> Result<Tokens> {
        let stages = match scope {
            Scope::Sample => self.stages.clone(),
            _ => Arc::new(self.stages.within(scope)?),
        };
        check_tokens(x, stages.input(), stages.geometry())?;
        let mut arguments = vec![Argument::whole(x.packed())];
        if stages.has_joins() {
            let missing = || Error::Shape {
                tensor: "reference".to_owned(),
                expected: "[samples, items], because the layer has joins".to_owned(),
                got: Vec::new(),
            };
            arguments.push(Argument::whole(reference.ok_or_else(missing)?));
        }
        if let Scope::Masked(mask) = scope {
            arguments.push(Argument::whole(mask.added()));
        }
        arguments.extend(self.parameters.iter().map(Argument::whole));
        let out = node::apply(&stages, &arguments)?;
        Tokens::over(out, stages.output(), stages.geometry())
    }

    /// Applies the part to items that attend within a scope, and keeps its input alone: the backward pass runs the part again.
    pub(super) fn recomputed_within(
        &self,
        x: &Tokens,
        reference: Option<&Tensor>,
        scope: &Scope,
    ) -> Result<Tokens> {
        let (stages, channels) = (&self.stages, x.channels());
        check_tokens(x, stages.input(), stages.geometry())?;
        let reference = reference.filter(|_| stages.has_joins());
        let inputs: Vec<&Tensor> = iter::once(x.packed()).chain(reference).collect();
        let (function, scope) = (self.clone(), scope.clone());
        let out = op::recomputed(&inputs, move |inputs| {
            let geometry = function.stages.geometry();
            let x = Tokens::over(inputs[0].clone(), channels, geometry)?;
            let out = function.apply_within(&x, inputs.get(1), &scope)?;
            Ok(out.packed().clone())
        })?;
        Tokens::over(out, stages.output(), stages.geometry())
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
) -> std::result::Result<Vec<Tensor>, Error> {
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
    Ok(made)
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

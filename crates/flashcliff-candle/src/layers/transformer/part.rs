//! Parts of networks on tokens, of which layers are made.

use std::iter;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{Result, Tensor};
use candle_nn::{Init, VarBuilder};
use flashcliff_network::tokens::{Attention, Linear, Step};
use flashcliff_network::{Axis, Rows, Value};

use super::scope::{Mask, checked_mask};
use super::{Call, Channels, Draw, Geometry, Initialization, Scope, Sequences, Tokens};
use crate::Error;
use crate::choices;
use crate::init::{note_bounds, uniform};
use crate::objective::description::Description;
use crate::op;
use crate::op::network::{Applied, Around};

/// The computation of a layer on tokens, piece by piece.
#[derive(Debug, Default)]
pub(super) struct Part(Vec<Piece>);

#[derive(Debug)]
enum Piece {
    /// A step, and its parameters in the order in which it takes them.
    Step(Arc<Step>, Vec<Tensor>),
    /// The tokens, plus what pieces make of them.
    Residual(Vec<Piece>),
    /// The tokens that pieces make, beside those that others make of the same.
    Beside([Vec<Piece>; 2], Arc<Step>),
    /// Attention of queries, which pieces make of the tokens, to keys and values, which others make of those of a context.
    Crossing([Vec<Piece>; 2], Attention, Option<Tensor>),
}

impl Part {
    /// A step without parameters.
    pub(super) fn plain(step: Step) -> Self {
        Self::step(step, Vec::new())
    }

    /// A step with its parameters.
    pub(super) fn step(step: Step, parameters: Vec<Tensor>) -> Self {
        Self(vec![Piece::Step(Arc::new(step), parameters)])
    }

    /// Linear layers that share an input, with the parameters of each layer, layer by layer.
    pub(super) fn linear(linear: Linear, parameters: &[Tensor]) -> Self {
        let ordered = linear.order().into_iter();
        let ordered = ordered.map(|at| parameters[at].clone()).collect();
        Self::step(Step::Linear(linear), ordered)
    }

    /// The channels of this part, then those of another of the same tokens.
    pub(super) fn beside(self, other: Self, step: Step) -> Self {
        Self(vec![Piece::Beside([self.0, other.0], Arc::new(step))])
    }

    /// Attention of this part, queries, to another one of a context: keys and values.
    pub(super) fn crossing(
        self,
        other: Self,
        attention: Attention,
        log_weights: Option<Tensor>,
    ) -> Self {
        Self(vec![Piece::Crossing(
            [self.0, other.0],
            attention,
            log_weights,
        )])
    }

    /// Whether the part leaves tokens as they are.
    fn is_idle(&self, drops: bool) -> bool {
        let is_idle = |piece: &Piece| matches!(piece, Piece::Step(step, _) if is_dropout(step));
        !drops && self.0.iter().all(is_idle)
    }

    /// This part, then another.
    pub(super) fn then(mut self, next: Self) -> Self {
        self.0.extend(next.0);
        self
    }

    /// The input, plus what this part makes of it.
    pub(super) fn residual(self) -> Self {
        Self(vec![Piece::Residual(self.0)])
    }
}

fn is_dropout(step: &Step) -> bool {
    matches!(step, Step::Dropout(_))
}

/// The values of a network besides its tokens, and what a call has.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    reference: Option<Value>,
    mask: Option<Value>,
    extra: Option<Value>,
    context: Option<Value>,
    drops: bool,
}

/// Describes pieces on a value.
fn describe(
    pieces: &[Piece],
    network: &mut Description,
    mut x: Value,
    ends: &Ends,
) -> std::result::Result<Value, Error> {
    for piece in pieces {
        x = match piece {
            Piece::Step(step, _) if is_dropout(step) && !ends.drops => x,
            Piece::Step(step, parameters) => {
                let mut inputs = vec![x];
                let mut step = step.clone();
                match &*step {
                    Step::Products(own) if own.has_joins() => inputs.extend(ends.reference),
                    Step::Reinserted(_) => inputs.extend(ends.extra),
                    Step::Attention(own) if ends.mask.is_some() => {
                        step = Arc::new(Step::Attention(own.clone().masked()));
                        inputs.extend(ends.mask);
                    }
                    _ => {}
                }
                inputs.extend(network.flat(parameters)?);
                network.network.step(step, &inputs)?
            }
            Piece::Residual(pieces) => {
                let more = describe(pieces, network, x, ends)?;
                network.network.scaled_sum([x, more], 1.0)?
            }
            Piece::Beside([own, others], step) => {
                let own = describe(own, network, x, ends)?;
                let others = describe(others, network, x, ends)?;
                network.network.step(step.clone(), &[own, others])?
            }
            Piece::Crossing([queries, keys], attention, log_weights) => {
                let mut inputs = vec![describe(queries, network, x, ends)?];
                let context = ends.context.unwrap_or(x);
                inputs.push(describe(keys, network, context, ends)?);
                let attention = match ends.mask {
                    Some(_) => attention.clone().masked(),
                    None => attention.clone(),
                };
                inputs.extend(ends.mask);
                inputs.extend(network.flat(log_weights.as_slice())?);
                network.network.step(Step::Attention(attention), &inputs)?
            }
        };
    }
    Ok(x)
}

/// A part as a function of tokens. Clones share its plans.
#[derive(Clone, Debug)]
pub(super) struct Function(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: &'static str,
    geometry: Geometry,
    part: Part,
    needs: Needs,
    /// The network for each kind of call.
    networks: Mutex<Vec<(Kind, Applied)>>,
}

/// The needs of a function.
#[derive(Clone, Copy, Debug, Default)]
struct Needs {
    input: Channels,
    output: Channels,
    /// The channels of the context.
    context: Option<Channels>,
    /// The channels of extra tokens.
    extra: Option<Channels>,
    joins: bool,
    heads: usize,
}

/// The calls that one network serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    /// For each axis of a mask but the last whether it is 1, which stands for all.
    mask: Option<[bool; 3]>,
    drops: bool,
}

impl Needs {
    fn of(pieces: &[Piece]) -> Self {
        let mut needs = Self::default();
        let mut input = None;
        for piece in pieces {
            let [first, last] = needs.note(piece);
            input = input.or(Some(first));
            needs.output = last;
        }
        needs.input = input.unwrap_or_default();
        needs
    }

    /// Notes what a piece needs. Returns the channels of its input and of its result.
    fn note(&mut self, piece: &Piece) -> [Channels; 2] {
        match piece {
            Piece::Step(step, _) => {
                match &**step {
                    Step::Products(own) => self.joins |= own.has_joins(),
                    Step::Reinserted(own) => self.extra = Some(own.extra()),
                    Step::Attention(own) => self.heads = own.heads(),
                    _ => {}
                }
                [step.input(), step.output()]
            }
            Piece::Residual(pieces) => {
                let inner = self.merge(pieces);
                [inner.input, inner.input]
            }
            Piece::Beside([own, others], step) => {
                let input = self.merge(own).input;
                self.merge(others);
                [input, step.output()]
            }
            Piece::Crossing([queries, keys], attention, _) => {
                let input = self.merge(queries).input;
                self.context = Some(self.merge(keys).input);
                self.heads = attention.heads();
                [input, attention.output()]
            }
        }
    }

    fn merge(&mut self, pieces: &[Piece]) -> Self {
        let inner = Self::of(pieces);
        self.extra = self.extra.or(inner.extra);
        self.joins |= inner.joins;
        self.heads = self.heads.max(inner.heads);
        inner
    }
}

impl Function {
    pub(super) fn new(name: &'static str, geometry: Geometry, part: Part) -> Self {
        Self(Arc::new(Inner {
            needs: Needs::of(&part.0),
            name,
            geometry,
            part,
            networks: Mutex::default(),
        }))
    }

    /// Applies the part; with joins there must be a reference, with extra channels their tokens.
    pub(super) fn apply(&self, x: &Tokens, call: &Call) -> Result<Tokens> {
        self.apply_across(x, None, call)
    }

    /// Applies the part to tokens, and to those of a context if it attends to one.
    pub(super) fn apply_across(
        &self,
        x: &Tokens,
        context: Option<&Tokens>,
        call: &Call,
    ) -> Result<Tokens> {
        let (needs, geometry) = (self.0.needs, self.0.geometry);
        check_tokens(x, needs.input, geometry)?;
        let (samples, items, _) = x.packed().dims3()?;
        let mut around = Around {
            rows: Rows::new(samples, items),
            sequences: None,
            draw: call.draw.cloned(),
        };
        if let Some(draw) = call.draw {
            check_device(draw, x.packed())?;
        }
        let mut inputs = vec![x.packed()];
        if let (Some(channels), Some(context)) = (needs.context, context) {
            check_tokens(context, channels, geometry)?;
            around.rows.context = self.check_samples(samples, context)?;
            inputs.push(context.packed());
        }
        if needs.joins {
            inputs.push(self.check_reference(call.reference, [samples, items])?);
        }
        around.sequences = self.check_sequences(call.scope, around.rows)?;
        let mask = self.check_mask(call.scope, around.rows)?;
        if let Scope::Masked(mask) = call.scope {
            inputs.push(mask.added());
        }
        if let Some(extra) = self.check_extra(call.extra, [samples, items])? {
            inputs.push(extra);
        }
        let kind = Kind {
            mask,
            drops: call.draw.is_some(),
        };
        if self.0.part.is_idle(kind.drops) {
            return Ok(x.clone());
        }
        let network = self.network(kind);
        let describe = |network: &mut Description| self.describe(network, kind);
        let out = network.apply_around(self.0.name, &inputs, Some(around), describe)?;
        Tokens::over(out, needs.output, geometry)
    }

    /// The network for calls of a kind.
    fn network(&self, kind: Kind) -> Applied {
        let networks = self.0.networks.lock();
        // The list is whole even after a panic.
        let mut networks = networks.unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = networks.iter().find(|(own, _)| *own == kind) {
            return known.clone();
        }
        let network = Applied::default();
        networks.push((kind, network.clone()));
        network
    }

    fn describe(&self, network: &mut Description, kind: Kind) -> std::result::Result<Value, Error> {
        let (needs, blades) = (self.0.needs, self.0.geometry.blades());
        let token = |channels| Axis::Token { blades, channels };
        let own = &mut network.network;
        let x = own.features("tokens", &[Axis::Rows, token(needs.input)]);
        let items = match needs.context {
            Some(_) => Axis::ContextItems,
            None => Axis::Items,
        };
        let of_context = |channels| [Axis::ContextRows, token(channels)];
        let mut ends = Ends {
            drops: kind.drops,
            ..Ends::default()
        };
        ends.context = needs
            .context
            .map(|channels| own.features("tokens of the context", &of_context(channels)));
        if needs.joins {
            ends.reference = Some(own.features("reference", &[Axis::Rows]));
        }
        if let Some(are_one) = kind.mask {
            let axes = [Axis::Samples, Axis::Fixed(needs.heads), Axis::Items];
            let axis = |(axis, is_one)| if is_one { Axis::Fixed(1) } else { axis };
            let axes = axes.into_iter().zip(are_one).map(axis);
            let axes: Vec<Axis> = axes.chain(iter::once(items)).collect();
            ends.mask = Some(own.input("mask", &axes));
        }
        ends.extra = needs
            .extra
            .map(|channels| own.features("extra tokens", &[Axis::Rows, token(channels)]));
        describe(&self.0.part.0, network, x, &ends)
    }

    /// Applies the part and keeps its inputs alone: the backward pass runs the part again.
    pub(super) fn recomputed(&self, x: &Tokens, call: &Call) -> Result<Tokens> {
        let (needs, geometry, channels) = (self.0.needs, self.0.geometry, x.channels());
        check_tokens(x, needs.input, geometry)?;
        let reference = call.reference.filter(|_| needs.joins);
        let extra = call.extra.map(|extra| (extra.packed(), extra.channels()));
        let mask = match call.scope {
            Scope::Masked(mask) => Some(mask.added()),
            _ => None,
        };
        let inputs = iter::once(x.packed()).chain(reference);
        let inputs = inputs.chain(extra.map(|(packed, _)| packed));
        let inputs: Vec<&Tensor> = inputs.chain(mask).collect();
        let (function, scope, draw) = (self.clone(), call.scope.clone(), call.draw.cloned());
        let (has_reference, extra) = (reference.is_some(), extra.map(|(_, channels)| channels));
        let out = op::recomputed(&inputs, move |inputs| {
            let tokens = |at: usize, channels| Tokens::over(inputs[at].clone(), channels, geometry);
            let at = 1 + usize::from(has_reference);
            let extra = extra.map(|channels| tokens(at, channels)).transpose()?;
            let masked = match (&scope, inputs.last()) {
                (Scope::Masked(_), Some(mask)) => Some(Scope::Masked(Mask::of(mask.clone())?)),
                _ => None,
            };
            let call = Call {
                reference: inputs[1..at].first(),
                scope: masked.as_ref().unwrap_or(&scope),
                extra: extra.as_ref(),
                draw: draw.as_ref(),
            };
            let out = function.apply(&tokens(0, channels)?, &call)?;
            Ok(out.packed().clone())
        })?;
        Tokens::over(out, needs.output, geometry)
    }

    fn shape_error(&self, tensor: &str, expected: String, got: &Tensor) -> Error {
        Error::Shape {
            tensor: format!("{}: {tensor}", self.0.name),
            expected,
            got: got.dims().to_vec(),
        }
    }

    /// The items of each sample of a context, which has as many samples.
    fn check_samples(&self, samples: usize, context: &Tokens) -> std::result::Result<usize, Error> {
        let (got, items, width) = context.packed().dims3()?;
        match got == samples {
            true => Ok(items),
            false => {
                let expected = format!("[{samples}, items, {width}]");
                Err(self.shape_error("keys and values", expected, context.packed()))
            }
        }
    }

    fn check_reference<'a>(
        &self,
        reference: Option<&'a Tensor>,
        expected: [usize; 2],
    ) -> std::result::Result<&'a Tensor, Error> {
        let reference = reference
            .ok_or_else(|| missing("reference", "[samples, items], because the layer has joins"))?;
        match reference.dims() == expected {
            true => Ok(reference),
            false => Err(self.shape_error("reference", format!("{expected:?}"), reference)),
        }
    }

    fn check_extra<'a>(
        &self,
        extra: Option<&'a Tokens>,
        [samples, items]: [usize; 2],
    ) -> std::result::Result<Option<&'a Tensor>, Error> {
        let (channels, extra) = match (self.0.needs.extra, extra) {
            (None, None) => return Ok(None),
            (Some(channels), Some(extra)) => (channels, extra),
            (Some(_), None) => {
                let expected = "tokens, because the layer has extra channels";
                return Err(missing("extra tokens", expected));
            }
            (None, Some(extra)) => return Err(unwanted(extra)),
        };
        check_tokens(extra, channels, self.0.geometry)?;
        let expected = [samples, items, self.0.geometry.width(channels)];
        match extra.packed().dims() == expected {
            true => Ok(Some(extra.packed())),
            false => Err(self.shape_error("extra tokens", format!("{expected:?}"), extra.packed())),
        }
    }

    /// For each axis of the mask but the last whether it is 1, if there is a mask.
    fn check_mask(
        &self,
        scope: &Scope,
        rows: Rows,
    ) -> std::result::Result<Option<[bool; 3]>, Error> {
        let Scope::Masked(mask) = scope else {
            return Ok(None);
        };
        let keys = match self.0.needs.context {
            Some(_) => rows.context,
            None => rows.items,
        };
        // A layer without attention reads no mask.
        let heads = self.0.needs.heads.max(1);
        let expected = [rows.samples, heads, rows.items, keys];
        let [samples, heads, queries, _] =
            checked_mask(self.0.name, mask.added().dims(), expected)?;
        Ok(Some([samples == 1, heads == 1, queries == 1]))
    }

    /// The sequences of a ragged batch, and those of its context.
    fn check_sequences(
        &self,
        scope: &Scope,
        rows: Rows,
    ) -> std::result::Result<Option<(Sequences, Option<Sequences>)>, Error> {
        let crosses = self.0.needs.context.is_some();
        match (scope, crosses) {
            (Scope::Within(sequences), false) => {
                sequences.check(rows.samples, rows.items)?;
                Ok(Some((sequences.clone(), None)))
            }
            (Scope::Between(queries, keys), true) => {
                queries.check(rows.samples, rows.items)?;
                keys.check(rows.samples, rows.context)?;
                if keys.len() != queries.len() {
                    return Err(Error::Offsets {
                        at: keys.len(),
                        expected: format!("{} sequences of keys, as of queries", queries.len()),
                        got: keys.len().to_string(),
                    });
                }
                Ok(Some((queries.clone(), Some(keys.clone()))))
            }
            (Scope::Between(..), false) => {
                Err(self.other_scope("one set: Sample, Masked or Within", "Between"))
            }
            (Scope::Within(_), true) => {
                Err(self.other_scope("two sets: Sample, Masked or Between", "Within"))
            }
            _ => Ok(None),
        }
    }

    fn other_scope(&self, expected: &'static str, got: &'static str) -> Error {
        Error::Scope {
            layer: self.0.name.to_owned(),
            expected,
            got,
        }
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
    let parameters = linear_parameters(geometry, input, output, initialization, true, vb)?;
    let linear = Linear::new(geometry, input, vec![output])?;
    Ok(Part::linear(linear, &parameters))
}

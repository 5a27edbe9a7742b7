//! Layers that `flashcliff-network` describes, with tensors of candle as their parameters.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;
use flashcliff_network::tokens::{Beside, Layers, Start};
use flashcliff_network::{Axis, Value};

use super::checks::Given;
use super::{Call, Channels, Geometry, Tokens};
use crate::Error;
use crate::choices;
use crate::init::started;
use crate::op;
use crate::op::network::{Around, Node};

/// A layer as a function of tokens. Clones share its plans.
#[derive(Clone, Debug)]
pub(super) struct Layer(Arc<Inner>);

/// The result of a layer that is added to a network.
type Described = std::result::Result<Value, flashcliff_network::Error>;

/// Adds a layer to a network that has its inputs.
type Describe = dyn Fn(&mut Layers, &Inputs) -> Described + Send + Sync;

pub(super) struct Inner {
    pub(super) name: &'static str,
    pub(super) geometry: Geometry,
    pub(super) needs: Needs,
    describe: Box<Describe>,
    /// The parameters, in the order in which the layer adds them.
    parameters: Vec<Tensor>,
    /// The network for each kind of call, if the layer changes anything in it.
    networks: Mutex<Vec<(Kind, Option<Arc<Node>>)>>,
}

/// The inputs of a layer, and its result.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    pub(super) input: Channels,
    pub(super) output: Channels,
    /// The channels of the context.
    pub(super) context: Option<Channels>,
    /// The channels of extra tokens; none without any.
    pub(super) extra: Channels,
    pub(super) joins: bool,
    pub(super) heads: usize,
}

/// The inputs of a layer as values of its network.
pub(super) struct Inputs {
    pub(super) tokens: Value,
    /// The tokens of the context; without a context, the tokens of the layer.
    pub(super) context: Value,
    pub(super) beside: Beside,
}

/// The calls that one network serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// For each axis of a mask but the last whether it is 1, which stands for all.
    pub(super) mask: Option<[bool; 3]>,
    pub(super) drops: bool,
}

impl Kind {
    /// Training without a mask.
    const TRAINING: Self = Self {
        mask: None,
        drops: true,
    };
}

impl Needs {
    /// Tokens alone.
    pub(super) fn between(input: Channels, output: Channels) -> Self {
        Self {
            input,
            output,
            ..Self::default()
        }
    }

    /// The channels of extra tokens, if there are some.
    pub(super) fn extra(&self) -> Option<Channels> {
        (self.extra != Channels::default()).then_some(self.extra)
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut own = f.debug_struct(self.name);
        let own = own.field("geometry", &self.geometry);
        own.field("needs", &self.needs).finish_non_exhaustive()
    }
}

impl Inner {
    /// The network for calls of a kind, and its result.
    fn described(&self, kind: Kind) -> std::result::Result<(Layers, Value), Error> {
        let layers = Layers::new(self.geometry);
        let mut layers = match kind.drops {
            true => layers,
            false => layers.without_dropout(),
        };
        let inputs = self.inputs(&mut layers, kind);
        let output = (self.describe)(&mut layers, &inputs)?;
        Ok((layers, output))
    }

    /// Adds the inputs.
    fn inputs(&self, layers: &mut Layers, kind: Kind) -> Inputs {
        let (needs, blades) = (self.needs, self.geometry.blades());
        let token = |channels| Axis::Token { blades, channels };
        let network = &mut layers.network;
        let tokens = network.features("tokens", &[Axis::Rows, token(needs.input)]);
        let of_context = |channels| [Axis::ContextRows, token(channels)];
        let context = needs
            .context
            .map(|channels| network.features("tokens of the context", &of_context(channels)));
        let reference = needs
            .joins
            .then(|| network.features("reference", &[Axis::Rows]));
        let mask = kind.mask.map(|are_one| {
            let axes = [Axis::Samples, Axis::Fixed(needs.heads), Axis::Items];
            let axis = |(axis, is_one)| if is_one { Axis::Fixed(1) } else { axis };
            let keys = match needs.context {
                Some(_) => Axis::ContextItems,
                None => Axis::Items,
            };
            let axes = axes.into_iter().zip(are_one).map(axis);
            network.input("mask", &axes.chain([keys]).collect::<Vec<_>>())
        });
        let extra = needs
            .extra()
            .map(|channels| network.features("extra tokens", &[Axis::Rows, token(channels)]));
        Inputs {
            tokens,
            context: context.unwrap_or(tokens),
            beside: Beside {
                reference,
                mask,
                extra,
            },
        }
    }

    /// Makes the parameters, or takes them, by their names and in their shapes.
    fn parameters(&self, vb: &VarBuilder) -> std::result::Result<Vec<Tensor>, Error> {
        let (layers, _) = self.described(Kind::TRAINING)?;
        for layer in layers.with_algebra() {
            let vb = match layer.as_str() {
                "" => vb.clone(),
                layer => vb.pp(layer),
            };
            choices::note_algebra(&vb, self.geometry.algebra);
        }
        let network = &layers.network;
        let all = network.parameters().iter().zip(layers.starts());
        let make = |(&value, start): (&Value, &Start)| {
            let axes = network.shape(value).unwrap_or_default().iter();
            let shape: Vec<usize> = axes.map(|axis| axis.size(0)).collect();
            let name = network.name(value);
            started(vb, &shape, name, start)
        };
        Ok(all.map(make).collect::<Result<_>>()?)
    }
}

impl Layer {
    /// A layer without parameters.
    pub(super) fn new(
        name: &'static str,
        geometry: Geometry,
        needs: Needs,
        describe: impl Fn(&mut Layers, &Inputs) -> Described + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            name,
            geometry,
            needs,
            describe: Box::new(describe),
            parameters: Vec::new(),
            networks: Mutex::default(),
        }))
    }

    /// The layer with parameters of a builder.
    pub(super) fn bound(mut self, vb: &VarBuilder) -> std::result::Result<Self, Error> {
        let parameters = self.0.parameters(vb)?;
        // Nobody else has the layer yet.
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.parameters = parameters;
        }
        Ok(self)
    }

    /// The layer without parameters, if its network can be described.
    pub(super) fn checked(self) -> std::result::Result<Self, Error> {
        self.network(Kind::TRAINING)?;
        Ok(self)
    }

    /// Applies the layer; with joins there must be a reference, with extra channels their tokens.
    pub(super) fn apply(&self, x: &Tokens, call: &Call) -> Result<Tokens> {
        self.apply_across(x, None, call)
    }

    /// Applies the layer to tokens, and to the tokens of a context if it attends to one.
    pub(super) fn apply_across(
        &self,
        x: &Tokens,
        context: Option<&Tokens>,
        call: &Call,
    ) -> Result<Tokens> {
        self.run(x, context, call, |network, inputs, around| {
            Ok(network.apply(inputs, Some(around))?)
        })
    }

    /// Applies the layer and keeps its inputs alone: the backward pass runs the layer again.
    pub(super) fn recomputed(&self, x: &Tokens, call: &Call) -> Result<Tokens> {
        self.run(x, None, call, |network, inputs, around| {
            op::recomputed(inputs, move |inputs| {
                let inputs: Vec<&Tensor> = inputs.iter().collect();
                Ok(network.apply(&inputs, Some(around.clone()))?)
            })
        })
    }

    /// Applies the network of a call to its inputs in some way, after checks.
    fn run(
        &self,
        x: &Tokens,
        context: Option<&Tokens>,
        call: &Call,
        apply: impl FnOnce(Arc<Node>, &[&Tensor], Around) -> Result<Tensor>,
    ) -> Result<Tokens> {
        let Given {
            inputs,
            around,
            kind,
        } = self.0.given(x, context, call)?;
        let Some(network) = self.network(kind)? else {
            return Ok(x.clone());
        };
        let out = apply(network, &inputs, around)?;
        Tokens::over(out, self.0.needs.output, self.0.geometry)
    }

    /// The network for calls of a kind; `None` if it leaves tokens as they are.
    fn network(&self, kind: Kind) -> std::result::Result<Option<Arc<Node>>, Error> {
        let networks = self.0.networks.lock();
        // The list is whole even after a panic.
        let mut networks = networks.unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = networks.iter().find(|(own, _)| *own == kind) {
            return Ok(known.clone());
        }
        let (layers, output) = self.0.described(kind)?;
        let network = layers.network;
        let node = (network.inputs()[0] != output).then(|| {
            let parameters = self.0.parameters.clone();
            Arc::new(Node::of(self.0.name, network, output, parameters))
        });
        networks.push((kind, node.clone()));
        Ok(node)
    }
}

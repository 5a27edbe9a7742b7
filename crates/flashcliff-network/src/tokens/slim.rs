//! L-GATr-slim as a network: a linear layer, blocks of attention and gated linear units, a linear layer, on vectors and scalars.

use std::sync::Arc;

use flashcliff::Operator;

use super::compiled::operator;
use super::programs::slim;
use super::transformer::at_least_one;
use super::{Attention, Channels, GateFunction, Geometry, Lanes, Linear, Step};
use crate::{Axis, Error, Network, Value};

/// The sizes and options of L-GATr-slim.
///
/// Parameters of the network have the names and the order of elements of lgatr 2.0, such as `blocks.0.attention.linear_in.weight_v`
/// `[out, in]` of vectors and `blocks.0.attention.linear_in.linear_s.weight` of scalars.
///
/// Source: arXiv 2512.17011.
///
/// ```
/// use flashcliff::{Algebra, Signature};
/// use flashcliff_network::tokens::{Channels, Slim};
///
/// let spacetime = Algebra::new(Signature::new(1, 3, 0)?)?;
/// let (input, output, hidden) = (Channels::new(1, 7), Channels::new(0, 1), Channels::new(8, 16));
/// let options = Slim { blocks: 2, ..Slim::new(spacetime, input, output, hidden) };
/// let (network, _) = options.network()?;
/// assert_eq!(network.name(network.parameters()[0]), "linear_in.weight_v");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Slim {
    /// The algebra, Cl(1,3) in the paper.
    pub algebra: flashcliff::Algebra,
    /// Vector channels, here called multivectors, and scalar channels of the input.
    pub input: Channels,
    /// Channels of the output; one kind may have none.
    pub output: Channels,
    /// Channels of the blocks.
    pub hidden: Channels,
    /// The number of blocks. Default: 12.
    pub blocks: usize,
    /// The number of heads. Default: 8.
    pub heads: usize,
    /// All heads together have so many times the channels of a block. A head has at least one vector channel and four
    /// scalar ones. Default: 1.
    pub attention_ratio: usize,
    /// Hidden channels of the units of a block for each of its channels. Default: 2.
    pub mlp_ratio: usize,
    /// Successive linear layers in a block's perceptron, at least 2; all but the last are in gated units. Default: 2.
    pub mlp_layers: usize,
    /// The functions of gates of vectors and of scalars. Default: sigmoid, and GELU in its tanh form.
    pub gates: [GateFunction; 2],
    /// The factor of the inner products that gate vectors. Default: 1/2; lgatr 1.4 has 1.
    pub gate_scale: f64,
    /// Whether norms have gains, a factor for each channel. Default: yes; lgatr 1.4 has none.
    pub gains: bool,
    /// Whether queries, keys and values have biases. Default: no; lgatr 1.4 has them.
    pub attention_bias: bool,
    /// The axes of a mask, as [`Transformer::mask`](super::Transformer::mask). Default: no mask.
    pub mask: Option<[Axis; 4]>,
}

/// The values at the ends of a slim network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlimEnds {
    /// The input `tokens` `[rows, token]`.
    pub tokens: Value,
    /// The input `mask`, if there is one.
    pub mask: Option<Value>,
    /// The output `[rows, token]`.
    pub output: Value,
}

/// A network that gets layers, with the operators of blocks.
struct Made {
    network: Network,
    geometry: Geometry,
    norm: Arc<Operator>,
    unit: Arc<Operator>,
}

impl Slim {
    /// The network of lgatr 2.0 with these channels.
    pub fn new(
        algebra: flashcliff::Algebra,
        input: Channels,
        output: Channels,
        hidden: Channels,
    ) -> Self {
        Self {
            algebra,
            input,
            output,
            hidden,
            blocks: 12,
            heads: 8,
            attention_ratio: 1,
            mlp_ratio: 2,
            mlp_layers: 2,
            gates: [GateFunction::Sigmoid, GateFunction::GeluTanh],
            gate_scale: 0.5,
            gains: true,
            attention_bias: false,
            mask: None,
        }
    }

    /// The norm of blocks: vectors and scalars over the root of 0.01 plus their mean square over all channels, with
    /// gains also times the gain of each channel. The square of a vector counts by its magnitude. Gains:
    /// `[channels, 1]` of vectors, then `[scalars, 1]`.
    ///
    /// # Errors
    /// None: the program is supported.
    pub fn norm_operator(algebra: flashcliff::Algebra, has_gains: bool) -> Result<Operator, Error> {
        operator(algebra, &slim::norm(algebra.cayley(), has_gains))
    }

    /// The gated linear unit: `f_v(scale <a, b>) v` of vectors `v`, `a`, `b`, and `f(g) s` of scalars `s`, `g`, with
    /// the functions `[f_v, f]`.
    ///
    /// # Errors
    /// None: the program is supported.
    pub fn unit_operator(
        algebra: flashcliff::Algebra,
        gates: [GateFunction; 2],
        scale: f64,
    ) -> Result<Operator, Error> {
        operator(algebra, &slim::unit(algebra.cayley(), gates, scale))
    }

    /// The network, with each block as a separate [block](Network::block).
    ///
    /// # Errors
    /// [`Error::Option`] for no head, a ratio of 0, fewer than two layers, and an input or blocks without vectors or
    /// scalars; [`Error::Shape`] for axes that are no mask's; the errors of [`Geometry::maps`].
    pub fn network(&self) -> Result<(Network, SlimEnds), Error> {
        self.check()?;
        let geometry = Geometry::slim(self.algebra);
        let mut made = Made {
            network: Network::new(),
            geometry,
            norm: Arc::new(Self::norm_operator(self.algebra, self.gains)?),
            unit: Arc::new(Self::unit_operator(
                self.algebra,
                self.gates,
                self.gate_scale,
            )?),
        };
        let blades = geometry.blades();
        let axes = [
            Axis::Rows,
            Axis::Token {
                blades,
                channels: self.input,
            },
        ];
        let tokens = made.network.input("tokens", &axes);
        let mask = self.mask.map(|axes| made.network.input("mask", &axes));
        let mut x = made.linear("linear_in", tokens, [self.input, self.hidden], true)?;
        for at in 0..self.blocks {
            made.network.block();
            x = self.block(&mut made, &format!("blocks.{at}"), x, mask)?;
        }
        made.network.block();
        let output = made.linear("linear_out", x, [self.hidden, self.output], true)?;
        let ends = SlimEnds {
            tokens,
            mask,
            output,
        };
        Ok((made.network, ends))
    }

    fn check(&self) -> Result<(), Error> {
        for (option, got) in [
            ("heads", self.heads),
            ("attention_ratio", self.attention_ratio),
            ("mlp_ratio", self.mlp_ratio),
            ("vector channels of the input", self.input.multivectors),
            ("scalar channels of the input", self.input.scalars),
            ("vector channels of blocks", self.hidden.multivectors),
            ("scalar channels of blocks", self.hidden.scalars),
        ] {
            at_least_one(option, got)?;
        }
        match self.mlp_layers {
            0 | 1 => Err(Error::Option {
                option: "mlp_layers",
                expected: "a number from 2 up",
                got: self.mlp_layers as f64,
            }),
            _ => Ok(()),
        }
    }

    /// The channels of a head.
    fn head(&self) -> Channels {
        let share =
            |channels: usize, least| (self.attention_ratio * channels / self.heads).max(least);
        Channels::new(
            share(self.hidden.multivectors, 1),
            share(self.hidden.scalars, 4),
        )
    }

    /// `x + attention(norm(x))`, then `x + perceptron(norm(x))`.
    fn block(
        &self,
        network: &mut Made,
        prefix: &str,
        x: Value,
        mask: Option<Value>,
    ) -> Result<Value, Error> {
        let normed = self.norm(network, &format!("{prefix}.norm1"), x)?;
        let made = self.attend(network, &format!("{prefix}.attention"), normed, mask)?;
        let x = network.network.scaled_sum([x, made], 1.0)?;
        let mut made = self.norm(network, &format!("{prefix}.norm2"), x)?;
        let (mut here, hidden) = (self.hidden, self.hidden.times(self.mlp_ratio));
        for layer in 1..self.mlp_layers {
            let prefix = format!("{prefix}.mlp.layers.{}.linear", layer - 1);
            let all = Channels::new(3 * hidden.multivectors, 2 * hidden.scalars);
            let parts = network.linear(&prefix, made, [here, all], true)?;
            made = network.lanes(network.unit.clone(), hidden, &[parts])?;
            here = hidden;
        }
        let last = format!("{prefix}.mlp.layers.{}", self.mlp_layers - 1);
        let made = network.linear(&last, made, [here, self.hidden], true)?;
        network.network.scaled_sum([x, made], 1.0)
    }

    fn norm(&self, network: &mut Made, prefix: &str, x: Value) -> Result<Value, Error> {
        let Channels {
            multivectors,
            scalars,
        } = self.hidden;
        let mut inputs = vec![x];
        if self.gains {
            let own = [("weight_v", multivectors), ("weight_s", scalars)];
            let named = own.map(|(name, len)| (format!("{prefix}.{name}"), vec![len]));
            inputs.push(network.parameters(&named, &[0, 1])?);
        }
        network.lanes(network.norm.clone(), self.hidden, &inputs)
    }

    /// Attention of normalised tokens, with its projections.
    fn attend(
        &self,
        network: &mut Made,
        prefix: &str,
        x: Value,
        mask: Option<Value>,
    ) -> Result<Value, Error> {
        let head = self.head();
        let mut attention = Attention::new(network.geometry, self.heads, head, false);
        if mask.is_some() {
            attention = attention.masked();
        }
        let all = head.times(self.heads);
        let name = format!("{prefix}.linear_in");
        let of_parts = [self.hidden, all.times(3)];
        let projected = network.linear(&name, x, of_parts, self.attention_bias)?;
        let inputs: Vec<Value> = [projected].into_iter().chain(mask).collect();
        let attended = network.step(Step::Attention(attention), &inputs)?;
        network.linear(
            &format!("{prefix}.linear_out"),
            attended,
            [all, self.hidden],
            true,
        )
    }
}

impl Made {
    /// Adds parameters by their full names, and returns their elements one after another in some order.
    fn parameters(
        &mut self,
        named: &[(String, Vec<usize>)],
        order: &[usize],
    ) -> Result<Value, Error> {
        let all = named.iter();
        let all: Vec<Value> = all
            .map(|(name, shape)| self.network.parameter(name, shape))
            .collect();
        let ordered: Vec<Value> = order.iter().map(|&at| all[at]).collect();
        self.network.concatenate(&ordered)
    }

    /// A linear layer, with the names of lgatr.
    fn linear(
        &mut self,
        prefix: &str,
        x: Value,
        [from, to]: [Channels; 2],
        has_bias: bool,
    ) -> Result<Value, Error> {
        let step = Linear::new(self.geometry, from, vec![to])?;
        let step = if has_bias { step } else { step.without_bias() };
        let names = step.names().concat().into_iter();
        let named = names.zip(step.shapes()).map(|(name, mut shape)| {
            let name = match name {
                "weight" => {
                    // There is one map.
                    shape.truncate(2);
                    "weight_v"
                }
                "mvs2s.bias" => "linear_s.bias",
                _ => "linear_s.weight",
            };
            (format!("{prefix}.{name}"), shape)
        });
        let named: Vec<_> = named.collect();
        let parameters = self.parameters(&named, &step.order())?;
        self.step(Step::Linear(step), &[x, parameters])
    }

    fn lanes(
        &mut self,
        of: Arc<Operator>,
        each: Channels,
        inputs: &[Value],
    ) -> Result<Value, Error> {
        let step = Lanes::new(of, self.geometry.blades(), each)?;
        self.step(Step::Lanes(step), inputs)
    }

    fn step(&mut self, step: Step, inputs: &[Value]) -> Result<Value, Error> {
        self.network.step(step, inputs)
    }
}
